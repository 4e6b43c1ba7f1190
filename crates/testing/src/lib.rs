//! Parts that the tests of all crates share: children that inherit nothing and end with their test, folders
//! that work on any machine, servers, and skips where a machine lacks something.

mod child;
mod folder;
mod numbers;
mod postgres;
pub mod processes;
mod recorded;
mod requirement;
mod transcripts;
mod trees;
mod waiting;

pub use child::{
    Terminated, command, command_ended_by, copy_program, git, is_git_since, output_of, run_git, send,
    short_command,
};
pub use folder::folder;
pub use nix::sys::signal::Signal;
pub use numbers::Numbers;
pub use postgres::PostgresServer;
pub use recorded::{AskedRequest, RecordedAnswer, RecordedServer};
pub use requirement::{program, skip};
pub use transcripts::{ObjectNames, create_history, decode_packets, encode_packet};
pub use trees::tree_data;
pub use waiting::{free_port, wait_for_port, wait_until};
