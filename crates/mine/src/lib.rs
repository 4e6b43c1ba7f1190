//! Mining: the commits, tags and changed files of a repository as rows, equal to what git reports.
//!
//! A repository is mined in passes. Each pass decodes the objects of one kind, depth first through the delta
//! trees of the packs, so that each object is inflated once:
//!
//! 1. `commit_table`: all commits. What the refs reach is chosen, and sorted by time.
//! 2. `tree_steps`: how each tree differs from the tree that it is a delta of.
//! 3. `tree_compare`, `renames`: how the tree of each commit differs from that of its parent.
//! 4. `line_stats`: how many lines differ between the blobs that the third pass found.
//!
//! `visits` compares the states of the refs with what was mined before. The rows go to a [`RowSink`], one a
//! thread. This crate knows no format of tables.
//!
//! ```no_run
//! use std::io;
//! use std::sync::Mutex;
//!
//! use weir_ground::Stop;
//! use weir_mine::{MineOptions, MineProgress, RevisionRow, RowSink, Tips, mine};
//!
//! /// Prints the subject of each commit.
//! struct Subjects;
//!
//! impl RowSink for Subjects {
//!     fn revision(&mut self, row: &RevisionRow<'_>) -> io::Result<()> {
//!         let subject = row.commit.message.split(|&c| c == b'\n').next().unwrap_or_default();
//!         println!("{} {}", row.id.to_hex(), String::from_utf8_lossy(subject));
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let repo = weir_repo::open_directory("/srv/git/project.git".as_ref())?;
//! let head = weir_repo::resolve_revision(&repo, "HEAD")?;
//! let options = MineOptions { has_revisions: true, ..MineOptions::default() };
//! let tips = Tips { wanted: &[head], ..Tips::default() };
//! let sinks = [Mutex::new(Subjects)];
//! let report = mine(&repo, tips, &options, &sinks, &MineProgress::default(), &Stop::default())?;
//! println!("{} commits", report.revisions);
//! # Ok(())
//! # }
//! ```

mod changes;
mod commit;
mod commit_table;
mod edit_script;
mod entries;
mod error;
mod iconv;
mod ids;
mod line_stats;
mod lines;
mod miner;
mod mode;
mod names;
mod path_search;
mod progress;
mod renames;
mod rows;
mod similarity;
mod text;
mod tree_compare;
mod tree_delta;
mod tree_steps;
mod two_trees;
mod visits;

pub use changes::MergeMode;
pub use commit::{CommitParts, Ident, SignatureKind, TagParts};
pub use edit_script::{Edit, EditFinder, FileLines, LineStarts};
pub use error::{Error, Result};
pub use lines::{LineCounter, LineCounts};
pub use miner::{MineOptions, MineReport, Tips, mine};
pub use mode::Mode;
pub use progress::MineProgress;
pub use renames::{Detect, RenameOptions, Status};
pub use rows::{
    FaultKind, FaultRow, FileChangeRow, Lines, NoRows, RefChangeRow, ReleaseRow, ReplacedRows, RevisionRow,
    RowSink, Side, VisitRow,
};
pub use similarity::is_binary;
pub use text::{CommitDecoder, lossy};
pub use two_trees::{
    DifferenceSide, FileDifference, TreeComparison, TreeDifference, compare_trees, renamed_from,
};
pub use visits::{MinedRefs, MinedState, PresentTips, ToMine, mine_visits};
