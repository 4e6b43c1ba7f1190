//! All tests that run the program itself, in one binary that is linked once.

mod cli;
mod common;
mod crawl;
mod events;
mod mine;
mod mirror;
mod mount;
mod serve;
mod workspace;
