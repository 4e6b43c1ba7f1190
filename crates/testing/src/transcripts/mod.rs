//! Transcripts: conversations with servers as text, and the repository that they are about.

mod history;
mod packets;

pub use history::{ObjectNames, create_history};
pub use packets::{decode_packets, encode_packet};
