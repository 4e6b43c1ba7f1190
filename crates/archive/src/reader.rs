//! Reading an archive in place.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::lock::open_to_read;
use crate::record::{Record, RecordPlace};
use crate::region::Region;
use crate::state::{self, Member, State};
use crate::storage::Storage;
use crate::sum::Sha256Sum;
use crate::tail::{Tail, TailKind};

/// An archive as of one commit. It stays readable while the file is appended to, compacted or renamed.
#[derive(Clone)]
pub struct Archive {
    file: Arc<File>,
    region: Region,
    state: Arc<State>,
    tail: Option<Tail>,
}

impl Archive {
    /// Opens the archive at `path` at its last commit.
    ///
    /// # Errors
    /// If a system call fails; [`crate::Error::NoCommit`] or [`crate::Error::Damaged`], depending on the
    /// file.
    pub fn open(path: &Path) -> Result<Archive> {
        Archive::from_file(Arc::new(open_to_read(path)?))
    }

    /// Opens an archive from an open file, at its last commit.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn from_file(file: Arc<File>) -> Result<Archive> {
        let found = state::find(&*file)?;
        Ok(Archive { tail: found.tail, ..Archive::with_state(file, found.state)? })
    }

    /// Opens `file` in a `state` that the caller knows, for example from a writer of that file. It neither
    /// searches for the last commit nor verifies it.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn with_state(file: Arc<File>, state: State) -> Result<Archive> {
        // SAFETY: committed bytes of an archive are never changed (docs/archive-format.md, section 3).
        let region = unsafe { Region::map(file.clone(), state.end())? };
        Ok(Archive { file, region, state: Arc::new(state), tail: None })
    }

    /// Returns the number of the last commit of the archive at `path`. Checks for damage as far as that needs
    /// no further reading.
    ///
    /// # Errors
    /// As [`Archive::open`]; [`Error::Tail`] if commits that the end mark records are damaged.
    pub fn check_end(path: &Path) -> Result<u64> {
        let (record, tail) = state::find_last(&open_to_read(path)?)?;
        match tail.filter(|tail| tail.kind == TailKind::Committed) {
            Some(tail) => Err(Error::Tail(tail)),
            None => Ok(record.seq),
        }
    }

    /// Returns the archive as of commit `seq`; `None` if it has no such commit (any more). Walks back from
    /// the last commit.
    ///
    /// # Errors
    /// If the chain of records is damaged.
    pub fn at(&self, seq: u64) -> Result<Option<Archive>> {
        self.at_newest(|record| record.seq == seq)
    }

    /// Returns the archive as of the newest commit whose record `is_wanted`; `None` if it has none (any
    /// more). Walks back from the last commit.
    ///
    /// # Errors
    /// If the chain of records is damaged.
    pub fn at_newest(&self, is_wanted: impl Fn(&Record) -> bool) -> Result<Option<Archive>> {
        let mut records = self.records();
        while let Some((record, at)) = records.next_placed()? {
            if is_wanted(&record) {
                let state = state::assemble(&*self.file, record, at)?;
                return Archive::with_state(self.file.clone(), state).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns all records, newest first. It reads them one at a time: a full one names every live member.
    pub fn records(&self) -> Records<'_> {
        Records { file: &self.file, next: Some((self.state.record.clone(), self.state.record_at)) }
    }

    /// Returns the part of the file behind the last valid commit, if it is not empty.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Reads the live member called `name` into memory, if there is one, and checks its checksum. It is for
    /// small data that must not be used if it has changed. [`Archive::member`] is for data that has its own
    /// checks.
    ///
    /// # Errors
    /// As [`Archive::read_member`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.state.members.get(name).map(|member| self.read_member(name, member)).transpose()
    }

    /// Reads and checks a member of any commit up to the one this archive was opened at.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not as it was written.
    pub fn read_member(&self, name: &str, member: &Member) -> Result<Vec<u8>> {
        let bad = |what: &str| Error::Damaged {
            offset: member.offset,
            what: format!("the content of '{name}' {what}"),
        };
        if member.offset.checked_add(member.len).is_none_or(|end| end > self.state.end()) {
            return Err(bad("reaches beyond its commit"));
        }
        let mut data = vec![0; member.len as usize];
        match Storage::read_exact_at(&*self.file, &mut data, member.offset) {
            Ok(()) if Sha256Sum::from(Sha256::digest(&data)) == member.sha256 => Ok(data),
            Ok(()) => Err(bad("has a wrong checksum")),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(bad("is cut off")),
            Err(e) => Err(e.into()),
        }
    }

    /// Checks the data of `member` against its checksum, without keeping the data.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not as it was written.
    pub fn check_member(&self, name: &str, member: &Member) -> Result<()> {
        match state::data_holds(&*self.file, member.offset, member.len, &member.sha256)? {
            true => Ok(()),
            false => Err(Error::Damaged {
                offset: member.offset,
                what: format!("the content of '{name}' has a wrong checksum"),
            }),
        }
    }

    /// Returns the committed state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the data of the live member called `name`.
    pub fn member(&self, name: &str) -> Option<Region> {
        let m = self.state.members.get(name)?;
        self.region.slice(m.offset..m.offset + m.len)
    }

    /// Returns the value of the attribute called `key`.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.state.attributes.get(key).map(String::as_str)
    }

    /// Returns the whole committed part.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the open file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}

/// Records of an archive, newest first.
pub struct Records<'a> {
    file: &'a File,
    next: Option<(Record, RecordPlace)>,
}

impl Records<'_> {
    fn next_placed(&mut self) -> Result<Option<(Record, RecordPlace)>> {
        let Some((record, at)) = self.next.take() else { return Ok(None) };
        self.next = state::previous(self.file, &record)?;
        Ok(Some((record, at)))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.next_placed().map(|placed| Some(placed?.0)).transpose()
    }
}
