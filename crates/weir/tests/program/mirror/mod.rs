//! Visits to upstreams, and what archives hold afterwards.

mod adopt;
mod bad_blocks;
mod compaction;
mod damage;
mod dumb_http;
mod fidelity;
mod first_visits;
mod forks;
mod histories;
mod hostile_upstreams;
mod kills;
mod kills_of_writers;
mod named;
pub mod outages;
mod places;
mod proxy;
mod rot;
mod settings;
mod slow_upstreams;
mod space;
mod spellings;
mod take_over;
mod tar_readers;
mod unreadable;
mod upstreams;
mod web_server;
