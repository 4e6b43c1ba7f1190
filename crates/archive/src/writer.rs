//! Appending groups (sections 3 and 4).

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use weir_ground::{Epoch, Timestamp};

use crate::error::{Error, Result};
use crate::record::{RECORD_BYTES_MAX, RECORD_NAME, Record, RecordPlace, VERSION};
use crate::state::{self, Member, State};
use crate::storage::Storage;
use crate::sum::Sha256Sum;
use crate::tail::{Tail, TailKind};
use crate::tar::{self, BLOCK_BYTES};

/// The maximum length of a chain of records, from a full record on. It limits what opening has to read.
const CHAIN_LEN_MAX: u32 = 64;
/// A group larger than this is made durable before its record is written, so that opening need not read it
/// again.
const UNSYNCED_GROUP_BYTES_MAX: u64 = 1 << 20;
/// The attribute that keeps the highest number of a lease that has written.
pub(crate) const EPOCH_KEY: &str = "epoch";
/// Small members are collected in memory up to this size before they are written; larger ones are written
/// directly.
const PENDING_BYTES_MAX: usize = 64 << 10;

/// Appends to an archive. The caller makes sure that it is the only writer (see [`crate::LockedFile`]).
pub struct Writer<S> {
    storage: S,
    state: Option<State>,
    /// The highest number that a commit was given.
    seq_max: u64,
}

/// The result of a commit.
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
    /// Opens a writer on an archive that has a commit. Cuts off a group that was never finished.
    ///
    /// # Errors
    /// As [`crate::Archive::open`]; [`Error::Tail`] if the bytes behind the last valid commit may be a
    /// commit, too.
    pub fn open(storage: S) -> Result<Writer<S>> {
        Writer::open_keeping(storage, |tail| match tail.kind {
            TailKind::Unfinished => Ok(()),
            TailKind::Doubtful | TailKind::Committed => Err(Error::Tail(*tail)),
        })
    }

    /// Opens an archive whose last commits may be damaged. The writer cuts off everything behind the last
    /// whole commit, and calls `keep` first, so that the caller can copy it. It does not use the numbers of
    /// the damaged commits again.
    ///
    /// # Errors
    /// As [`crate::Archive::open`]; if `keep` fails, and then nothing was cut.
    pub fn open_keeping(storage: S, keep: impl FnOnce(&Tail) -> Result<()>) -> Result<Writer<S>> {
        let found = state::find(&storage)?;
        if let Some(tail) = &found.tail {
            keep(tail)?;
            if storage.len()? != found.state.end() {
                storage.set_len(found.state.end())?;
                // The cut is durable before anything else is written.
                storage.sync()?;
            }
        }
        let mark = found.state.end_mark(found.seq_max);
        if storage.end_mark()? != Some(mark) {
            storage.set_end_mark(mark);
        }
        Ok(Writer { storage, seq_max: found.seq_max, state: Some(found.state) })
    }

    /// Creates a writer on an empty file. Its first commit gets the number `first_seq`.
    ///
    /// # Errors
    /// If a system call fails, or the file is not empty.
    pub fn create(storage: S, first_seq: u64) -> Result<Writer<S>> {
        if storage.len()? > 0 {
            return Err(Error::NotEmpty);
        }
        Ok(Writer { storage, seq_max: first_seq.saturating_sub(1), state: None })
    }

    /// Skips the numbers up to `seq`, which belonged to commits that no longer exist: the next commit gets a
    /// higher number.
    pub fn skip_to(&mut self, seq: u64) {
        self.seq_max = self.seq_max.max(seq);
    }

    /// Returns the committed state; `None` before the first commit.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Returns the file.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// Starts a group. Nothing of it counts until [`Group::commit`]; a group that is dropped before that is
    /// discarded.
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
            failed: None,
            has_begun: false,
            finished: false,
        };
        if first {
            group.directory("weir/");
        }
        group
    }
}

/// A function that takes one piece of a member's data.
pub type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// A member whose data the caller writes to the file itself, at `offset`.
#[derive(Debug, Clone, Copy)]
pub struct Reserved {
    /// Where the data belongs: a multiple of [`crate::ALIGNMENT_BYTES`].
    pub offset: u64,
    header_at: u64,
}

/// A group that is being written.
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
    /// The error of an invalid request; [`Group::commit`] returns it.
    failed: Option<Error>,
    /// Whether the file is known to end at the start of the group, or part of the group is already written.
    has_begun: bool,
    finished: bool,
}

impl<S: Storage> Group<'_, S> {
    /// Adds a directory entry; `name` ends in a slash. Some programs that read the extracted files need it.
    pub fn directory(&mut self, name: &str) {
        let header = tar::directory_header(name);
        self.frame.update(header);
        self.put(&header);
    }

    /// Appends a member.
    ///
    /// # Errors
    /// If the name is invalid, or a system call fails.
    pub fn append(&mut self, name: &str, data: &[u8]) -> Result<()> {
        self.append_member(name, data.len() as u64, Vec::new(), |take| take(data))
    }

    /// Appends a member whose data starts at a multiple of [`crate::ALIGNMENT_BYTES`].
    ///
    /// # Errors
    /// If the name is invalid, or a system call fails.
    pub fn append_aligned(&mut self, name: &str, data: &[u8]) -> Result<()> {
        self.append_aligned_pieces(name, data.len() as u64, |take| take(data))
    }

    /// Appends an aligned member of `len` bytes. `read` gives its data piece by piece, in order.
    ///
    /// # Errors
    /// If `read` fails or does not give `len` bytes, if the name is invalid, or if a system call fails.
    pub fn append_aligned_pieces(
        &mut self,
        name: &str,
        len: u64,
        read: impl FnOnce(Take<'_>) -> Result<()>,
    ) -> Result<()> {
        let filler = tar::alignment_filler(self.position);
        self.append_member(name, len, filler, read)
    }

    fn append_member(
        &mut self,
        name: &str,
        len: u64,
        mut header: Vec<u8>,
        read: impl FnOnce(Take<'_>) -> Result<()>,
    ) -> Result<()> {
        self.check_name(name)?;
        header.extend_from_slice(&tar::file_header(name, len));
        self.frame.update(&header);
        self.put(&header);
        let offset = self.position;
        debug_assert!(offset.is_multiple_of(BLOCK_BYTES), "a member starts at {offset}");
        if self.pending.len() as u64 + len > PENDING_BYTES_MAX as u64 {
            self.flush()?;
        }
        let mut sum = Sha256::new();
        read(&mut |piece: &[u8]| {
            if len > PENDING_BYTES_MAX as u64 {
                debug_assert!(self.pending.is_empty(), "something is to be written before");
                self.write_from_start()?;
                self.writer.storage.write_all_at(piece, self.position)?;
                self.position += piece.len() as u64;
                self.pending_at = self.position;
            } else {
                self.put(piece);
            }
            sum.update(piece);
            Ok(())
        })?;
        let given = self.position - offset;
        if given != len {
            return Err(Error::Length { name: name.to_owned(), len, given });
        }
        self.pad();
        self.members.insert(name.to_owned(), Member { offset, len, sha256: sum.finalize().into() });
        Ok(())
    }

    /// Checks whether a member of this group can have this name.
    fn check_name(&self, name: &str) -> Result<()> {
        tar::check_name(name)?;
        if name == RECORD_NAME || self.members.contains_key(name) {
            return Err(Error::NameTwice(name.to_owned()));
        }
        Ok(())
    }

    /// Reserves the next aligned place for a member whose name and length are not known yet. The caller
    /// writes its data at [`Reserved::offset`] and then calls [`Group::finish_reserved`], before anything
    /// else is added.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn reserve_aligned(&mut self) -> Result<Reserved> {
        let filler = tar::alignment_filler(self.position);
        self.frame.update(&filler);
        self.put(&filler);
        self.flush()?;
        let reserved = Reserved { header_at: self.position, offset: self.position + BLOCK_BYTES };
        debug_assert!(reserved.offset.is_multiple_of(tar::ALIGNMENT_BYTES), "{} bytes", reserved.offset);
        self.position = reserved.offset;
        self.pending_at = reserved.offset;
        Ok(reserved)
    }

    /// Names a reserved member of `len` bytes, and cuts off anything that was written behind them.
    ///
    /// # Errors
    /// If the name is invalid, if the file is shorter than the member, or if a system call fails.
    pub fn finish_reserved(
        &mut self,
        reserved: Reserved,
        name: &str,
        len: u64,
        sha256: Sha256Sum,
    ) -> Result<()> {
        self.check_name(name)?;
        debug_assert_eq!(self.position, reserved.offset, "something was added behind what was reserved");
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

    /// Returns the file, to which the caller writes the data of a reserved member.
    pub fn storage(&self) -> &S {
        &self.writer.storage
    }

    /// Returns what was committed before this group.
    pub fn state(&self) -> Option<&State> {
        self.writer.state.as_ref()
    }

    /// Removes a member from the live ones. Its bytes stay until compaction.
    pub fn drop_member(&mut self, name: &str) {
        self.dropped.push(name.to_owned());
    }

    /// Sets an attribute. The commit fails if the key is empty or has a space, or if either has a line break.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        if key.is_empty() || key.contains([' ', '\n', '\r']) || value.contains(['\n', '\r']) {
            self.failed = Some(Error::BadAttribute(key.to_owned()));
            return;
        }
        self.unset.retain(|k| k != key);
        self.set.insert(key.to_owned(), value);
    }

    /// Removes an attribute.
    pub fn unset(&mut self, key: &str) {
        self.set.remove(key);
        self.unset.push(key.to_owned());
    }

    /// Makes the group durable. `epoch` is the number of the lease under which it is written, 0 for none.
    ///
    /// # Errors
    /// [`Error::Fenced`] if a later lease has already written; or if a system call fails. Then nothing has
    /// changed.
    pub fn commit(mut self, time: Timestamp, epoch: Epoch) -> Result<Commit> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        self.pass_fence(epoch)?;
        let old = self.writer.state.as_ref();
        let full = old.is_none_or(|s| s.chain_len >= CHAIN_LEN_MAX);
        debug_assert!(old.is_none_or(|s| s.record.seq <= self.writer.seq_max), "a number comes again");
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
        // A full record lists all live members, and all members of this group, live or not, so that the group
        // can be checked.
        let listed = if full { &members } else { &self.members };
        let record = Record {
            version: old.map_or(VERSION, |s| s.record.version),
            seq: self.writer.seq_max + 1,
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
        // No reader would accept it.
        if data.len() as u64 > RECORD_BYTES_MAX {
            return Err(Error::TooManyMembers(record.members.len()));
        }
        self.put(&tar::file_header(RECORD_NAME, data.len() as u64));
        let record_at = RecordPlace { offset: self.position, len: data.len() as u64, sum };
        self.put(&data);
        let commit = Commit { seq: record.seq, end: self.position, bytes: self.position - self.start };
        debug_assert!(commit.end.is_multiple_of(BLOCK_BYTES), "a group ends at {}", commit.end);
        let state = State { record, record_at, members, attributes, chain_len };
        if let Some(what) = state.violation() {
            return Err(Error::Invariant { seq: commit.seq, what });
        }
        self.flush()?;
        self.writer.storage.sync()?;
        self.writer.seq_max = commit.seq;
        self.writer.storage.set_end_mark(state.end_mark(commit.seq));
        self.writer.state = Some(state);
        self.finished = true;
        Ok(commit)
    }

    /// Refuses a lease that is older than the last one that wrote, and remembers the highest number.
    fn pass_fence(&mut self, epoch: Epoch) -> Result<()> {
        let highest = self
            .writer
            .state
            .as_ref()
            .and_then(|s| s.attributes.get(EPOCH_KEY)?.parse().ok())
            .unwrap_or(Epoch::NONE);
        if epoch != Epoch::NONE && epoch < highest {
            return Err(Error::Fenced { epoch, highest });
        }
        if epoch > highest {
            self.set(EPOCH_KEY, epoch.to_string());
        }
        Ok(())
    }

    /// Cuts off what an abandoned group has left where this one starts. Readers walk from header to header,
    /// and must not meet bytes of another group.
    fn write_from_start(&mut self) -> Result<()> {
        if !self.has_begun {
            if self.writer.storage.len()? != self.start {
                self.writer.storage.set_len(self.start)?;
            }
            self.has_begun = true;
        }
        Ok(())
    }

    fn put(&mut self, data: &[u8]) {
        self.pending.extend_from_slice(data);
        self.position += data.len() as u64;
    }

    fn pad(&mut self) {
        let padding = tar::padded(self.position) - self.position;
        debug_assert!(padding < BLOCK_BYTES, "{padding} bytes of padding");
        self.put(&[0; 512][..padding as usize]);
    }

    fn flush(&mut self) -> Result<()> {
        let end = self.pending_at + self.pending.len() as u64;
        debug_assert_eq!(end, self.position, "what is pending ends elsewhere");
        if !self.pending.is_empty() {
            self.write_from_start()?;
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
            // Best effort: if a tail stays, it is unfinished, and the next writer cuts it off.
            let _ = self.writer.storage.set_len(self.start);
        }
    }
}
