//! Fetches issues, pull requests and releases from forges into the archives.
//!
//! Each repository has a schedule of its own for metadata, with a lease. [`run()`] leases the repository that
//! has been due for longest. It asks the forge for pages, from the place that the archive records, and
//! commits the lines and the next place in one group. This crate knows no terminal and no configuration file,
//! and holds no lock while it asks a forge.

mod look;
mod outcome;
mod place;
mod schedule;

pub use outcome::LookOutcome;
pub use place::Place;
pub use schedule::{Error, OpenForge, Result, Schedule, TellLook, run};
