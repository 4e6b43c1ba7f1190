//! Clones, fetches and files from a pool, over every door.

mod access;
mod access_log;
mod api;
mod attacks;
mod behind_proxy;
mod bundles;
mod changes;
mod clone;
mod closure;
mod derived;
mod doors;
mod git_config;
mod hidden_history;
mod hostile;
mod http;
mod lfs;
mod lfs_ssh;
mod listen;
mod malformed;
mod older_states;
mod partial;
mod random_walk;
mod request_log;
mod service_manager;
mod slow;
mod ssh;
