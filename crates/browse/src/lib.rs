//! One repository as people look at it: revisions, the log of a path, folders, files, patches, the commits of
//! lines, and archives of a tree, equal to what git shows.
//!
//! Clients see what the refs reach and nothing else, whatever objects the repository holds besides.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weir_browse::{LogPositions, LogQuery, log, readable};
//!
//! let repo = weir_repo::open_directory("/srv/git/project.git".as_ref())?;
//! let query = LogQuery {
//!     path: b"README.md".to_vec(),
//!     since: None,
//!     until: None,
//!     passed: 0,
//!     count_max: 10,
//!     walked_max: 100_000,
//! };
//! let page = log(&repo, &readable(&repo, "HEAD")?, &query, &LogPositions::default())?;
//! println!("{} commits change the file", page.commits.len());
//! # Ok(())
//! # }
//! ```

mod archive;
mod archive_format;
mod archive_paths;
mod blame;
mod error;
mod folder;
mod grep;
mod kept;
mod last_commits;
mod log;
mod merge_base;
mod patch;
mod path_entries;
mod remote_archive;
mod revision;
mod tar_header;
mod told_commit;

pub use archive::TreeArchive;
pub use archive_format::ArchiveFormat;
pub use archive_paths::ArchivePaths;
pub use blame::{Blame, BlameQuery, BlameRange, KeptBlames, blame};
pub use error::{Error, Result};
pub use folder::{FolderEntry, FolderList, clean_path, entry_at, list_folder};
pub use grep::{GrepLine, GrepPage, GrepPlace, GrepQuery, PatternError, grep, grep_pattern};
pub use last_commits::last_commits;
pub use log::{LogPage, LogPositions, LogQuery, log};
pub use merge_base::merge_base;
pub use patch::PatchWriter;
pub use remote_archive::RemoteArchives;
pub use revision::{commit_of, readable, tree_of_revision};
pub use told_commit::{Person, ToldCommit, ToldCommits};
