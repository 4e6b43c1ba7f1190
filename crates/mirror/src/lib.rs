//! Keeps archives up to date with their upstreams.
//!
//! [`visit`] brings one archive up to date. [`Mirror`] does so for many in parallel and records the results
//! in batches; [`MirrorLoop`] does it for what is due, once or until told to stop. A visit never removes a
//! committed state, whatever the upstream sends: it adds a commit group or changes nothing.
//!
//! `crates/pool/examples/mirror_and_read.rs` opens a pool, mirrors into it and reads a file.

mod arrivals;
mod batch;
mod compacting;
mod dumb;
mod failure;
mod happened;
mod incoming;
mod lease;
mod lfs;
mod mirror;
mod mirror_loop;
mod options;
mod queue;
mod refs_wanted;
mod replace;
mod rules;
mod run;
pub mod schedule;
mod scratch;
mod space;
mod store;
pub mod throttle;
mod update;
mod visit;
mod visited;
mod work_folder;

pub use arrivals::Arrivals;
pub use failure::Failure;
pub use happened::subject_of;
pub use lease::{Batches, Now};
pub use lfs::LfsReport;
pub use mirror::{Event, Leased, Mirror, MirrorOptions, More, Summary};
pub use mirror_loop::{MirrorLoop, Select, mend_times};
pub use options::{Compacting, VisitOptions};
pub use refs_wanted::{RefPatternError, RefsWanted};
pub use replace::{places_aside, relink_or_replace};
pub use rules::{ForgeRefs, SettingsRule};
pub use run::RunError;
pub use scratch::Scratch;
pub use space::Space;
pub use store::StoreMark;
pub use visit::visit;
pub use visited::{Known, LostCommits, Visited};
pub use work_folder::WorkFolder;
