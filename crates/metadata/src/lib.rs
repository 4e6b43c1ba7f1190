//! What forges say around repositories (issues, pull requests, releases), taken into their archives.
//!
//! A repository has a schedule of its own, with a lease: [`run()`] leases what has been due for longest, asks
//! its forge for pages from where the archive says to go on, and commits lines with the next place in one
//! group. This crate knows no terminal and no configuration file, and holds no lock while a forge is asked.

mod look;
mod outcome;
mod place;
mod schedule;

pub use outcome::LookOutcome;
pub use place::Place;
pub use schedule::{Error, OpenForge, Result, Schedule, TellLook, run};
