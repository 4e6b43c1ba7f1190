//! Appending groups (sections 3 and 4).

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::record::{RECORD_BYTES_MAX, RECORD_NAME, Record, Sha256Sum};
use crate::state::{self, Member, State};
use crate::storage::Storage;
use crate::tar::{self, BLOCK_BYTES};

/// Records between two full ones: bounds what opening has to read.
const CHAIN_LEN_MAX: u32 = 64;
/// A group larger than this is made durable before its record is written, so that opening need not read it again.
const UNSYNCED_GROUP_BYTES_MAX: u64 = 1 << 20;
/// Small members are gathered up to this before they are written; larger ones are written from where they are.
const PENDING_BYTES_MAX: usize = 64 << 10;

/// Appends to an archive. Whoever makes one sees to it that it is the only one (see [`crate::LockedFile`]).
pub struct Writer<S> {
    storage: S,
    state: Option<State>,
    first_seq: u64,
}

/// What a commit made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Its number.
    pub seq: u64,
    /// The length of the archive.
    pub end: u64,
    /// Bytes of the group: the segment is `end - bytes..end`.
    pub bytes: u64,
}

impl<S: Storage> Writer<S> {
    /// A writer on an archive that has a commit. A torn tail is cut off.
    ///
    /// # Errors
    /// As [`crate::Archive::open`].
    pub fn open(storage: S) -> Result<Writer<S>> {
        let state = state::find(&storage)?;
        if storage.len()? != state.end() {
            storage.set_len(state.end())?;
        }
        Ok(Writer { storage, first_seq: 0, state: Some(state) })
    }

    /// A writer on an empty file, whose first commit will be number `first_seq`.
    ///
    /// # Errors
    /// Of the system.
    pub fn create(storage: S, first_seq: u64) -> Result<Writer<S>> {
        if storage.len()? > 0 {
            storage.set_len(0)?;
        }
        Ok(Writer { storage, first_seq, state: None })
    }

    /// What is committed; `None` before the first commit.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// The file.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// Starts a group. Nothing of it counts until [`Group::commit`]; dropped before that, it never was.
    pub fn begin(&mut self) -> Group<'_, S> {
        let start = self.state.as_ref().map_or(0, State::end);
        let first = self.state.is_none();
        let mut group = Group {
            writer: self,
            start,
            position: start,
            pending: Vec::new(),
            pending_at: start,
            frame: Sha256::new(),
            members: BTreeMap::new(),
            dropped: Vec::new(),
            set: BTreeMap::new(),
            unset: Vec::new(),
            finished: false,
        };
        if first {
            group.directory("weir/");
        }
        group
    }
}

/// A member whose data the caller writes to the file itself, at `offset`.
#[derive(Debug, Clone, Copy)]
pub struct Reserved {
    /// Where the data belongs: a multiple of [`crate::ALIGNMENT_BYTES`].
    pub offset: u64,
    header_at: u64,
}

/// A group being written.
pub struct Group<'w, S: Storage> {
    writer: &'w mut Writer<S>,
    start: u64,
    position: u64,
    pending: Vec<u8>,
    pending_at: u64,
    frame: Sha256,
    members: BTreeMap<String, Member>,
    dropped: Vec<String>,
    set: BTreeMap<String, String>,
    unset: Vec<String>,
    finished: bool,
}

impl<S: Storage> Group<'_, S> {
    /// Adds a directory entry, without which some readers of the extraction are lost; `name` ends in a slash.
    pub fn directory(&mut self, name: &str) {
        let header = tar::directory_header(name);
        self.frame.update(header);
        self.put(&header);
    }

    /// Appends a member.
    ///
    /// # Errors
    /// For a bad name, and of the system.
    pub fn append(&mut self, name: &str, data: &[u8]) -> Result<()> {
        self.append_member(name, data, Vec::new())
    }

    /// Appends a member whose data starts at a multiple of [`crate::ALIGNMENT_BYTES`].
    ///
    /// # Errors
    /// For a bad name, and of the system.
    pub fn append_aligned(&mut self, name: &str, data: &[u8]) -> Result<()> {
        let filler = tar::alignment_filler(self.position);
        self.append_member(name, data, filler)
    }

    fn append_member(&mut self, name: &str, data: &[u8], mut header: Vec<u8>) -> Result<()> {
        tar::check_name(name)?;
        header.extend_from_slice(&tar::file_header(name, data.len() as u64));
        self.frame.update(&header);
        self.put(&header);
        let offset = self.position;
        if self.pending.len() + data.len() > PENDING_BYTES_MAX {
            self.flush()?;
        }
        if data.len() > PENDING_BYTES_MAX {
            self.writer.storage.write_all_at(data, offset)?;
            self.position += data.len() as u64;
            self.pending_at = self.position;
        } else {
            self.put(data);
        }
        self.pad();
        let member = Member { offset, len: data.len() as u64, sha256: Sha256::digest(data).into() };
        self.members.insert(name.to_owned(), member);
        Ok(())
    }

    /// Reserves the next place, aligned, for a member whose name and length are not known yet. The caller writes its data
    /// at [`Reserved::offset`] and then calls [`Group::finish_reserved`], before anything else is added.
    ///
    /// # Errors
    /// Of the system.
    pub fn reserve_aligned(&mut self) -> Result<Reserved> {
        let filler = tar::alignment_filler(self.position);
        self.frame.update(&filler);
        self.put(&filler);
        self.flush()?;
        let reserved = Reserved { header_at: self.position, offset: self.position + BLOCK_BYTES };
        self.position = reserved.offset;
        self.pending_at = reserved.offset;
        Ok(reserved)
    }

    /// Names a reserved member of which `len` bytes were written, and cuts what was written beyond.
    ///
    /// # Errors
    /// For a bad name, if the file is shorter than that, and of the system.
    pub fn finish_reserved(&mut self, reserved: Reserved, name: &str, len: u64, sha256: Sha256Sum) -> Result<()> {
        tar::check_name(name)?;
        let storage = &self.writer.storage;
        let (end, file_len) = (reserved.offset + len, storage.len()?);
        if file_len < end {
            return Err(Error::Reserved { given: end - file_len });
        }
        if file_len > end {
            storage.set_len(end)?;
        }
        let header = tar::file_header(name, len);
        storage.write_all_at(&header, reserved.header_at)?;
        self.frame.update(header);
        self.position = end;
        self.pending_at = end;
        self.pad();
        self.members.insert(name.to_owned(), Member { offset: reserved.offset, len, sha256 });
        Ok(())
    }

    /// The file, for the data of a reserved member.
    pub fn storage(&self) -> &S {
        &self.writer.storage
    }

    /// What was committed before this group.
    pub fn state(&self) -> Option<&State> {
        self.writer.state.as_ref()
    }

    /// Takes a member out of the live ones. Its bytes stay until compaction.
    pub fn drop_member(&mut self, name: &str) {
        self.dropped.push(name.to_owned());
    }

    /// Sets an attribute: a key without spaces, a value without newlines.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        debug_assert!(!key.contains([' ', '\n']) && !value.contains('\n'));
        self.unset.retain(|k| k != key);
        self.set.insert(key.to_owned(), value);
    }

    /// Removes an attribute.
    pub fn unset(&mut self, key: &str) {
        self.set.remove(key);
        self.unset.push(key.to_owned());
    }

    /// Makes the group durable, and with it everything it says.
    ///
    /// # Errors
    /// Of the system; then nothing has changed.
    pub fn commit(mut self, time: u64, epoch: u64) -> Result<Commit> {
        let old = self.writer.state.as_ref();
        let full = old.is_none_or(|s| s.chain_len >= CHAIN_LEN_MAX);
        let synced = self.position - self.start > UNSYNCED_GROUP_BYTES_MAX;
        let (mut members, mut attributes) = match old {
            Some(s) => (s.members.clone(), s.attributes.clone()),
            None => Default::default(),
        };
        for name in &self.dropped {
            members.remove(name);
        }
        for key in &self.unset {
            attributes.remove(key);
        }
        members.extend(self.members.iter().map(|(k, v)| (k.clone(), *v)));
        attributes.extend(self.set.iter().map(|(k, v)| (k.clone(), v.clone())));
        // A full record lists what is live, and of this group all, live or not, so that the group can be checked.
        let listed = if full { &members } else { &self.members };
        let record = Record {
            seq: old.map_or(self.writer.first_seq, |s| s.record.seq + 1),
            epoch,
            time,
            start: self.start,
            previous: old.map(|s| s.record_at),
            full,
            synced,
            frame: std::mem::take(&mut self.frame).finalize().into(),
            members: listed.iter().map(|(n, m)| (n.clone(), m.offset, m.len, m.sha256)).collect(),
            dropped: if full { Vec::new() } else { self.dropped.clone() },
            set: if full { attributes.clone() } else { std::mem::take(&mut self.set) }.into_iter().collect(),
            unset: if full { Vec::new() } else { std::mem::take(&mut self.unset) },
        };
        let chain_len = if full { 1 } else { old.map_or(0, |s| s.chain_len) + 1 };
        if synced {
            self.flush()?;
            self.writer.storage.sync()?;
        }
        let (data, sum) = record.encode();
        // Nobody could read it again.
        if data.len() as u64 > RECORD_BYTES_MAX {
            return Err(Error::TooManyMembers(record.members.len()));
        }
        self.put(&tar::file_header(RECORD_NAME, data.len() as u64));
        let record_at = (self.position, data.len() as u64, sum);
        self.put(&data);
        self.flush()?;
        self.writer.storage.sync()?;
        let commit = Commit { seq: record.seq, end: self.position, bytes: self.position - self.start };
        self.writer.state = Some(State { record, record_at, members, attributes, chain_len });
        self.finished = true;
        Ok(commit)
    }

    fn put(&mut self, data: &[u8]) {
        self.pending.extend_from_slice(data);
        self.position += data.len() as u64;
    }

    fn pad(&mut self) {
        let padding = tar::padded(self.position) - self.position;
        self.put(&[0; 512][..padding as usize]);
    }

    fn flush(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            self.writer.storage.write_all_at(&self.pending, self.pending_at)?;
            self.pending.clear();
        }
        self.pending_at = self.position;
        Ok(())
    }
}

impl<S: Storage> Drop for Group<'_, S> {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: a tail that stays is torn, and cut by the next writer.
            let _ = self.writer.storage.set_len(self.start);
        }
    }
}
