//! The REST API of a pool, below `/api/v1`: repositories, the states of their refs, commits, files and
//! archives of trees; for managers also the state of the pool, and what adds, pauses and removes
//! repositories. [`McpHandler`] answers the same to programs that speak the Model Context Protocol.
//!
//! [`ApiHandler`] answers the requests that a server hands on. Whatever a client asks for, it learns of no
//! repository that `[access]` hides from it. [`openapi`] describes all requests and answers.
//!
//! ```
//! let described = weir_api::openapi();
//! assert!(described.paths.paths.contains_key("/api/v1/repositories"));
//! ```

mod accounts;
mod answer;
mod blame;
mod commits;
mod cors;
mod diff;
mod files;
mod handler;
mod manage;
mod mcp;
mod openapi;
mod owners;
mod page;
mod parameters;
mod problem;
mod query;
mod refs;
mod repositories;
mod request;
mod routes;
mod search;
mod state;
mod tables;
mod tree_archive;

pub use handler::ApiHandler;
pub use mcp::McpHandler;
pub use openapi::openapi;
pub use state::IsNeeded;
