//! One repository as people look at it: revisions, the log of a path, folders, files and archives of a tree,
//! equal to what git shows.
//!
//! Clients see what the refs reach and nothing else, whatever objects the repository holds besides.

mod archive;
mod error;
mod export_attributes;
mod folder;
mod grep;
mod log;
mod revision;
mod tar_header;
mod told_commit;

pub use archive::{TreeArchive, write_tar, write_zip};
pub use error::{Error, Result};
pub use folder::{FolderEntry, FolderList, entry_at, list_folder};
pub use grep::{GrepLine, GrepPage, GrepPlace, GrepQuery, grep, grep_pattern};
pub use log::{LogPage, LogQuery, log};
pub use revision::{commit_of, readable, tree_of_revision};
pub use told_commit::{Person, ToldCommit, ToldCommits};
