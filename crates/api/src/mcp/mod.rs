//! The Model Context Protocol at `/mcp`: programs that speak it call the read requests of the API as tools
//! (<https://modelcontextprotocol.io/specification/2026-07-28>).
//!
//! Requests are answered one by one, as revision 2026-07-28 has it. Clients of earlier revisions, which open
//! with `initialize`, get the same tools: there are no sessions in them that a server must keep.

mod era;
mod handler;
mod message;
mod tools;

pub use handler::McpHandler;
