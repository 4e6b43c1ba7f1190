//! A git repository inside one archive: refs, packs, objects, reachability; and the same of an ordinary bare
//! directory.
//!
//! This crate knows no network and no SQL. It reads in place, what it reads it does not trust, and what it
//! takes in ([`ingest`]) it verifies: no object enters an archive whose hash is wrong or whose links lead
//! nowhere.

mod base;
mod bitmap;
mod bodies;
mod bundles;
mod changes;
mod commit_graph;
mod config;
mod create;
mod delta;
mod delta_cache;
mod derive;
mod directory;
mod entry;
mod error;
mod export;
mod files;
mod fill;
mod filter;
mod fsck;
mod history;
mod index;
pub mod ingest;
mod inspect;
mod large;
mod lfs;
mod lists;
mod members;
mod metadata;
mod object_set;
mod origin;
mod pack;
mod progress;
mod reader;
mod recover;
mod refs;
mod reftable;
mod repack;
mod repo;
mod resident;
mod select;
mod shallow;
mod snapshot;
mod sparse;
mod state_kind;
mod tree_diff;
mod update;
pub mod walk;
mod write;
mod zlib;

pub use base::{base_holds, base_path, open_as_base, relink};
pub use bodies::{Bodies, Body, CloneIndex, RefClass, StoredClone, WholeClone, pack_header};
pub use bundles::{BodyBundle, BundleParts};
pub use config::{ConfigScope, GitConfig};
pub use create::{ArchiveRepo, NewState, RefsChange, UpdateReport};
pub use derive::derive;
pub use directory::{folders_of, named_by_file, open_directory, read_loose};
pub use entry::{EntryHead, Stored, apply_delta};
pub use error::{Error, Result};
pub use export::{ExportReport, bundle_header, copy_out, export_bundle, export_directory};
pub use files::{read_at_most, read_if_there};
pub use filter::{Filter, FilterError, FilterSort};
pub use fsck::{FsckReport, fsck};
pub use history::{FollowedRefs, RefStates, StateChange};
pub use index::{Index, IndexEntry, write_index, write_reverse_index};
pub use inspect::{TreeListing, resolve_path, resolve_revision};
pub use lfs::{LfsObject, LfsPointer, is_lfs_oid};
pub use metadata::MetadataAddition;
pub use origin::Origin;
pub use pack::{Pack, PackOrder};
pub use progress::{Phase, Progress};
pub use reader::{Object, ObjectReader};
pub use recover::{KEPT_MAX, Lost, torn_places};
pub use refs::{Head, Ref, Refs, parse_head, parse_packed_refs};
pub use reftable::{RefValue, RefValues, read_table};
pub use repo::{Location, Repo};
pub use select::{Query, Selection, select};
pub use shallow::{Cut, DEPTH_INFINITE, Deepen, deepen};
pub use snapshot::SNAPSHOT_SWHID;
pub use state_kind::StateKind;
pub use update::{ArchiveUse, Rewrite, Sharing, compact, write_anew};
pub use weir_archive::{Region, Takes, WORK_PREFIX, sync_folder, sync_folder_of};

/// Number of the last commit of the archive at `path`, which is held against what was written, as far as that
/// can be told without reading more than that.
///
/// # Errors
/// If it cannot be opened, or commits are damaged that somebody was told of ([`Error::is_torn`]).
pub fn check_end(path: &std::path::Path) -> Result<u64> {
    Ok(weir_archive::Archive::check_end(path)?)
}

/// The highest number of a lease under which something was written to the archive at `path`; 0 for none.
///
/// # Errors
/// If it cannot be opened.
pub fn epoch_of(path: &std::path::Path) -> Result<u64> {
    let archive = weir_archive::Archive::open(path)?;
    Ok(archive.attribute(create::EPOCH_KEY).and_then(|epoch| epoch.parse().ok()).unwrap_or(0))
}

/// Whether something lies behind the last commit of the archive at `path` that holds which may be a commit,
/// too.
pub fn has_doubtful_tail(path: &std::path::Path) -> bool {
    let archive = weir_archive::Archive::open(path).ok();
    archive
        .and_then(|archive| archive.tail().copied())
        .is_some_and(|tail| tail.kind != weir_archive::TailKind::Unfinished)
}

/// Locks the archive at `path`: nobody else writes to it, or replaces it, while what is returned lives.
///
/// # Errors
/// If it cannot be opened.
pub fn lock_archive(path: &std::path::Path) -> Result<weir_archive::LockedFile> {
    Ok(weir_archive::lock_existing(path)?)
}
pub use write::{PackPlan, PackWriter, WrittenPack};
