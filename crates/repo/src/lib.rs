//! A git repository, in one archive or in an ordinary bare directory: refs, packs, objects, reachability.
//!
//! This crate uses no network and no SQL. It reads in place and does not trust what it reads. It verifies
//! every pack that it takes in ([`ingest`]): an object enters an archive only if its hash is right and its
//! links lead to objects that are there.
//!
//! ```no_run
//! # fn main() -> weir_repo::Result<()> {
//! use weir_repo::{open_directory, resolve_path};
//!
//! let repo = open_directory("/srv/git/project.git".as_ref())?;
//! let (_, id) = resolve_path(&repo, "v1.0", b"src/main.c")?;
//! let file = repo.reader().require(&id)?;
//! println!("{} bytes, {} refs", file.data.len(), repo.refs().list().len());
//! # Ok(())
//! # }
//! ```

mod answer;
mod arriving;
mod error;
mod files;
pub mod ingest;
mod large;
mod lists;
mod objects;
mod progress;
mod reach;
mod refs;
mod repo;
mod select;
mod update;

pub use answer::bundles::BundleParts;
pub use answer::commit_trees::{CommitTrees, HashedTrees, ListHasher, TREES_BYTES_MAX, write_commit_trees};
pub use answer::deepen::{DEPTH_INFINITE, Deepen, deepen};
pub use answer::export::{ExportReport, bundle_header, copy_out, export_bundle, export_directory};
pub use answer::pack_writer::{PackPlan, PackWriter, WrittenPack};
pub use answer::whole_clone::{CloneIndex, StoredClone};
pub use arriving::ArrivingPack;
pub use error::{Error, Result};
pub use files::{read_at_most, read_if_there};
pub use objects::entry::{DeltaOp, delta_ops};
pub use objects::entry::{EntryHead, Stored, apply_delta};
pub use objects::forest::{DeltaBase, Forest, ForestReader, ForestVisit, NO_OBJECT};
pub use objects::index::{Index, IndexEntry, write_index, write_reverse_index};
pub use objects::lookup::{Location, Objects};
pub use objects::loose::read_loose;
pub use objects::pack::{Pack, PackOrder, pack_header};
pub use objects::reader::{Object, ObjectReader};
pub use objects::zlib::Inflate;
pub use progress::{Phase, Progress};
pub use reach::history::History;
pub use reach::path_filter::FilteredPath;
pub use reach::steps::Budget;
pub use reach::walk::{HaveCommits, LinkedCommit, all_wants_meet};
pub use refs::change::{ChangedRef, RefsChange};
pub use refs::config::{ConfigScope, GitConfig};
pub use refs::list::{Head, Ref, Refs, parse_head, parse_packed_refs};
pub use refs::quoted_pairs::quoted_pairs;
pub use refs::reftable::{RefValue, RefValues, read_table};
pub use refs::state_kind::StateKind;
pub use refs::states::{FollowedRefs, RefStates, StateChange};
pub use repo::archive_file::{check_end, epoch_of, has_doubtful_tail, lock_archive};
pub use repo::base::{base_holds, base_path};
pub use repo::bodies::{Bodies, Body, BodyBundle, RefClass, WholeClone};
pub use repo::directory::{folders_of, named_by_file, open_directory, open_directory_beside};
pub use repo::named_state::NamedState;
pub use repo::origin::Origin;
pub use repo::reached::{are_reachable, reachable_among};
pub use repo::repository::{DirectoryExtras, Repo};
pub use repo::revision::{TreeListing, resolve_path, resolve_ref, resolve_revision};
pub use repo::snapshot::SNAPSHOT_SWHID;
pub use select::by_walk::select;
pub use select::filter::{Filter, FilterError, FilterSort};
pub use select::query::{Cut, Query, Selection};
pub use update::archive_repo::{ArchiveRepo, NewState, UpdateReport};
pub use update::bundle_file::{is_bundle, open_bundle};
pub use update::compact::{ArchiveUse, Rewrite, Sharing, compact, write_anew};
pub use update::derived_files::derive;
pub use update::fsck::{FsckReport, fsck};
pub use update::lfs::{LfsObject, LfsPointer, is_lfs_oid};
pub use update::metadata::MetadataAddition;
pub use update::recover::{KEPT_MAX, Lost, torn_places};
pub use update::relink::{open_as_base, relink};
pub use weir_archive::{Region, Takes, WORK_PREFIX, sync_folder, sync_folder_of};
