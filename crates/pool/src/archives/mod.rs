//! What can be done with the archives of a pool, besides visits to their upstreams.

mod adopt;
mod clones;
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

pub use adopt::{AdoptError, FoundArchives, LeftOut, adopt, find_archives};
pub use clones::{CloneImport, ImportedClone, find_clones};
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
