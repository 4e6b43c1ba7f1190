//! One ordinary tar file that only grows: named members, appended in groups. A group is committed as a whole
//! or not at all.
//!
//! The format is specified in `docs/archive-format.md`; section numbers in this crate refer to it. This crate
//! must never know git, overwrite a committed byte, or trust the end of a tar.
//!
//! - [`Archive`] reads: it maps the committed part and finds members in it. There may be any number of
//!   readers, and writers never disturb them.
//! - [`Writer`] appends a [`Group`] at a time, under a lock that ends with its process.
//! - [`Replacement`] writes a whole new file beside an old one and takes its place only when durable.
//!
//! ```
//! # fn main() -> weir_archive::Result<()> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("notes.tar");
//! use weir_archive::{Archive, Writer};
//! use weir_ground::{Epoch, Timestamp};
//!
//! let mut writer = Writer::create(std::fs::File::create_new(&path)?, 1)?;
//! let mut group = writer.begin();
//! group.append("note", b"an ordinary member of a tar file")?;
//! let committed = group.commit(Timestamp(1_700_000_000), Epoch(1))?;
//! assert_eq!(committed.seq, 1);
//!
//! let archive = Archive::open(&path)?;
//! assert_eq!(archive.read("note")?.unwrap(), b"an ordinary member of a tar file");
//! # Ok(())
//! # }
//! ```

mod end;
mod error;
mod fault;
mod lock;
mod reader;
mod record;
mod region;
mod replace;
mod seal;
mod state;
mod storage;
mod sum;
mod tail;
mod tar;
mod verify;
mod writer;

pub use end::EndMark;
pub use error::{Error, Result, is_unreadable};
pub use lock::{LockedFile, lock_existing, try_lock_existing};
pub use reader::{Archive, Records};
pub use record::{Record, RecordPlace};
pub use region::Region;
pub use replace::{
    Replacement, TEMPORARY_SUFFIX, Takes, WORK_PREFIX, remove_stale, sync_folder, sync_folder_of,
};
pub use seal::{seal_prefix, write_sealed};
pub use state::{Member, State};
pub use storage::Storage;
pub use sum::{SHA256_BYTES, Sha256Sum};
pub use tail::{Tail, TailKind};
pub use tar::{ALIGNMENT_BYTES, BLOCK_BYTES, NAME_BYTES_MAX, WalkedMember, walk_members};
pub use verify::{Damage, verify};
pub use writer::{Commit, Group, Reserved, Take, Writer};
