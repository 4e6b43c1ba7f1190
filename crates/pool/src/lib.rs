//! Operations on the archives of a pool, besides visits to their upstreams.
//!
//! A pool is a [`Store`], the folder of archives, and a [`weir_catalog::Catalog`] that knows what they are.
//! Each function here keeps the two in step: it updates the catalog before anything depends on the change,
//! and deletes an archive only once the catalog has forgotten it. Functions take the catalog and the store,
//! return what they did, and print nothing. `weir`'s commands and its API use the same functions.

mod adopt;
mod clones;
mod error;
mod files;
mod find;
mod fsck;
mod locks;
mod register;
mod remove;
mod restore;
mod rewrite;
mod share;
mod store;
mod store_id;
mod upstream;

pub use adopt::{FoundArchives, LeftOut, adopt, find_archives};
pub use clones::{CloneImport, ImportedClone, find_clones};
pub use error::{Error, InRepo, Result};
pub use files::{SUFFIX, is_archive, is_kept_aside, walk};
pub use find::{get, matching, matching_any};
pub use fsck::{Checked, Repair, check, note, repair};
pub use locks::check_locks;
pub use register::SoundEntries;
pub use remove::{PurgeOutcome, check_purge, check_removal, forget, gone_since, purge_one};
pub use restore::{Restored, restore};
pub use rewrite::{Rewritten, compact};
pub use share::{ShareOutcome, Sharer, bases_for, dissociate};
pub use store::{Store, end_of};
pub use store_id::{STORE_ID_NAME, claim, read_or_make};
pub use upstream::{check_url, entry};
