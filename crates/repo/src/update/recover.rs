//! Goes on behind the last commit that holds, when those after it are damaged. The remains of the damaged
//! commits are kept in a file beside the archive. Their numbers are not used again, and archives that build
//! on this one learn of the loss.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use weir_archive::{Tail, TailKind, Writer, is_unreadable, walk_members};
use weir_ground::Timestamp;

use crate::error::{Error, Result};
use crate::refs::list::{Ref, parse_packed_refs};
use crate::repo::keys::UNFINISHED_KEY;
use crate::repo::lost::{LOST_KEY, with_range};
use crate::repo::repository::Repo;
use crate::update::archive_repo::ArchiveRepo;

/// The most files with remains that are kept for one archive. After more damage than that, the disk must be
/// checked first.
pub const KEPT_MAX: u32 = 9;
/// The suffix of their names.
const SUFFIX: &str = ".torn";
/// The bytes copied at a time, and the size of a block that is left out where the disk cannot read it.
const COPIED_BYTES: usize = 1 << 20;
const UNREADABLE_BYTES: usize = 4096;
/// Refs of damaged commits are not read from a larger member.
const REFS_BYTES_MAX: u64 = 256 << 20;

/// Commits that were lost to damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The number of the first commit.
    pub first: u64,
    /// The number of the last commit.
    pub last: u64,
    /// Whether the commits were surely finished; otherwise they may never have been.
    pub is_certain: bool,
    /// Whether the commits had the refs and all older states: the archive was rewritten with them, and
    /// nothing was committed since.
    pub with_history: bool,
    /// The file with the remains, if there are any.
    pub kept: Option<PathBuf>,
    /// The refs that the commits named, as far as they can be read.
    refs: Vec<Ref>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lost { first, last, .. } = self;
        let commits = if first == last {
            format!("commit {first} is")
        } else {
            format!("commits {first} to {last} are")
        };
        match (&self.kept, self.is_certain) {
            (Some(kept), true) => {
                write!(f, "{commits} damaged; the remains are kept as '{}'", kept.display())
            }
            (Some(kept), false) => {
                write!(f, "{commits} damaged or unfinished; the remains are kept as '{}'", kept.display())
            }
            (None, _) => write!(f, "{commits} gone"),
        }?;
        if self.with_history {
            f.write_str("; all older states of the refs are lost with it")?;
        }
        Ok(())
    }
}

impl Lost {
    /// Returns the loss of all commits of an archive that is gone.
    pub fn all_up_to(last: u64) -> Lost {
        Lost { first: 1.min(last), last, is_certain: true, with_history: false, kept: None, refs: Vec::new() }
    }

    /// Returns the names of refs that lead to objects missing in `repo`.
    pub fn missing_in(&self, repo: &Repo) -> Vec<String> {
        let gone = self.refs.iter().filter(|r| !repo.contains(&r.oid));
        gone.map(|r| format!("{} {}", String::from_utf8_lossy(&r.name), r.oid)).collect()
    }
}

impl ArchiveRepo {
    /// Opens and locks the archive at `path`, as [`ArchiveRepo::open`] does. `seq_known` is the number of a
    /// commit that was reported as finished. If that commit is damaged, or the bytes behind the last commit
    /// that holds may be a commit, they are kept in another file, and the archive goes on from there.
    ///
    /// # Errors
    /// If the archive cannot be opened or the disk fails. Then nothing was cut.
    pub fn open_recovering(
        path: &Path,
        seq_known: Option<u64>,
        time: Timestamp,
    ) -> Result<(ArchiveRepo, Option<Lost>)> {
        let locked = weir_archive::lock_existing(path)?;
        let file = locked.0.try_clone()?;
        let mut lost = None;
        let mut writer = Writer::open_keeping(locked, |tail| {
            // The tail may be all that is left of a finished commit.
            if tail.kind != TailKind::Unfinished || seq_known.is_some_and(|known| known > tail.seq) {
                lost = Some(keep(path, &file, tail)?);
            }
            Ok(())
        })?;
        let seq = writer.state().map_or(0, |state| state.record.seq);
        if let Some(known) = seq_known {
            writer.skip_to(known);
            if known > seq {
                // A finished commit may be gone without a trace, or have a higher number than the remains
                // show.
                let found = lost.take().unwrap_or(Lost {
                    first: seq + 1,
                    last: known,
                    is_certain: true,
                    with_history: false,
                    kept: None,
                    refs: Vec::new(),
                });
                lost = Some(Lost { last: found.last.max(known), is_certain: true, ..found });
            }
        }
        let mut archive = ArchiveRepo::with_writer(path, writer)?;
        if let Some(lost) = &mut lost {
            lost.with_history =
                archive.state().is_some_and(|state| state.attributes.contains_key(UNFINISHED_KEY));
            let before =
                archive.repo()?.and_then(|repo| Some(repo.archive()?.attribute(LOST_KEY)?.to_owned()));
            archive.commit_members(
                &[],
                &[(LOST_KEY.to_owned(), with_range(before.as_deref(), lost.first, lost.last))],
                time,
            )?;
        }
        Ok((archive, lost))
    }
}

/// Copies `tail` of the archive at `path` to a file beside it, and makes that durable.
fn keep(path: &Path, file: &File, tail: &Tail) -> io::Result<Lost> {
    let mut lost = Lost {
        first: tail.seq + 1,
        last: tail.seq_max.max(tail.seq + 1),
        is_certain: tail.kind == TailKind::Committed,
        with_history: false,
        kept: None,
        refs: Vec::new(),
    };
    if tail.len == 0 {
        return Ok(lost);
    }
    let (kept, copy) = create_aside(path)?;
    let mut buffer = vec![0; COPIED_BYTES];
    let mut done = 0;
    while done < tail.len {
        let len = (tail.len - done).min(COPIED_BYTES as u64) as usize;
        let part = &mut buffer[..len];
        match file.read_exact_at(part, tail.offset + done) {
            Err(e) if is_unreadable(&e) => {
                for (n, block) in part.chunks_mut(UNREADABLE_BYTES).enumerate() {
                    if file.read_exact_at(block, tail.offset + done + (n * UNREADABLE_BYTES) as u64).is_err()
                    {
                        block.fill(0);
                    }
                }
            }
            other => other?,
        }
        copy.write_all_at(part, done)?;
        done += len as u64;
    }
    copy.sync_all()?;
    weir_archive::sync_folder_of(&kept)?;
    lost.refs = refs_in(&copy, tail.len);
    lost.kept = Some(kept);
    Ok(lost)
}

/// Creates a new file beside the archive at `path`.
fn create_aside(path: &Path) -> io::Result<(PathBuf, File)> {
    for place in torn_places(path) {
        match OpenOptions::new().read(true).write(true).create_new(true).open(&place) {
            Ok(file) => return Ok((place, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    let error = format!(
        "it has damaged commits, and the remains of {KEPT_MAX} others are already kept next to it: check the \
        disk, then remove those"
    );
    Err(io::Error::other(error))
}

/// Returns the paths at which the remains of damaged commits of the archive at `path` are kept.
pub fn torn_places(path: &Path) -> impl Iterator<Item = PathBuf> {
    let path = path.as_os_str().to_owned();
    (1..=KEPT_MAX).map(move |n| {
        let mut name = path.clone();
        name.push(if n == 1 { SUFFIX.to_owned() } else { format!("{SUFFIX}-{n}") });
        PathBuf::from(name)
    })
}

/// Returns the refs that the last commit in `file` with readable refs names, whether it holds or not.
fn refs_in(file: &File, len: u64) -> Vec<Ref> {
    let mut found = None;
    // The walk ends at the damage, at the latest.
    let _ = walk_members(file, 0, len, |member, _| {
        if member.name == "packed-refs" && member.len <= REFS_BYTES_MAX {
            found = Some((member.offset, member.len));
        }
        Ok(())
    });
    let Some((offset, len)) = found else { return Vec::new() };
    let mut data = vec![0; len as usize];
    if file.read_exact_at(&mut data, offset).is_err() {
        return Vec::new();
    }
    [weir_git::HashKind::Sha1, weir_git::HashKind::Sha256]
        .into_iter()
        .find_map(|hash| parse_packed_refs(hash, &data).ok())
        .unwrap_or_default()
}

impl Error {
    /// Returns whether commits are damaged while those before them are not: the archive can go on from there.
    pub fn is_torn(&self) -> bool {
        matches!(self, Error::Archive(weir_archive::Error::Tail(_)))
    }
}
