//! Everything that is tested with the program itself: one binary, linked once.

mod cli;
mod common;
mod crawl;
mod mirror;
mod serve;
