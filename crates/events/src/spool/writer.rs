//! The writing end of a spool.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_ground::FileError;

use crate::spool::error::SpoolError;
use crate::spool::frame::{FrameHead, FrameRecords, HEAD_BYTES, LENGTH_BYTES};
use crate::spool::reader::SpoolReader;
use crate::spool::segment::{
    FrameReader, SEGMENT_HEAD_BYTES, SegmentHead, VERSION, first_of_name, segment_path,
};
use crate::spool::shared::{SegmentEnd, SharedState, WaitingRecords};

/// The file that is locked by the process that has the spool.
const LOCK_NAME: &str = "lock";

/// The maximum length of a segment, in bytes: what is behind that in a file is none of a spool.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// The bounds of a spool.
#[derive(Clone, Copy, Debug)]
pub struct SpoolOptions {
    /// The number of bytes that may wait.
    pub bytes_max: u64,
    /// The length at which a segment ends, and another begins.
    pub segment_bytes: u64,
}

impl Default for SpoolOptions {
    fn default() -> SpoolOptions {
        SpoolOptions { bytes_max: 1 << 30, segment_bytes: 16 << 20 }
    }
}

/// A spool that is open for writing.
#[derive(Debug)]
pub struct EventSpool {
    folder: PathBuf,
    id: u64,
    options: SpoolOptions,
    shared: Arc<SharedState>,
    /// The last segment; `None` if the next record begins one.
    file: Option<File>,
    /// The number of the next record.
    next: u64,
    /// A frame as it is written.
    frame: Vec<u8>,
    _lock: File,
}

impl EventSpool {
    /// Opens the spool in `folder`, and makes it if there is none. Only the heads of segments are read, and
    /// the frames of the last one. A frame that was not finished there is cut off.
    ///
    /// # Errors
    /// If another process has it, a newer version wrote it, or a file cannot be read or written.
    pub fn open(folder: &Path, options: SpoolOptions) -> Result<EventSpool, SpoolError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(FileError::on("make", folder))?;
        let lock = lock(folder)?;
        let (id, mut segments) = find_segments(folder, &lock)?;
        let (mut next, mut file) = (1, None);
        if let Some(last) = segments.back_mut() {
            let path = segment_path(folder, last.first);
            (next, file) = open_last(&path, last)?;
        }
        let waiting = WaitingRecords { segments, last: next - 1, is_closed: false };
        let shared = Arc::new(SharedState::new(waiting));
        let folder = folder.to_owned();
        Ok(EventSpool { folder, id, options, shared, file, next, frame: Vec::new(), _lock: lock })
    }

    /// Returns the id of the spool: numbers of another spool mean nothing here.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of the last record; 0 if there was none.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    /// Returns how many bytes the spool takes.
    pub fn bytes(&self) -> u64 {
        self.shared.lock().bytes()
    }

    /// Appends `records` as one frame and syncs it. Returns the number of the last of them.
    ///
    /// # Errors
    /// If the spool is full or the file cannot be written: nothing was appended then.
    pub fn append(&mut self, records: &FrameRecords) -> Result<u64, SpoolError> {
        if records.is_empty() {
            return Ok(self.last());
        }
        let bytes = self.bytes();
        let added = (HEAD_BYTES + records.bytes()) as u64;
        let length = self.shared.lock().segments.back().map_or(0, |segment| segment.bytes);
        if bytes + added > self.options.bytes_max {
            // The last segment can be deleted, too, once another follows it.
            if length > SEGMENT_HEAD_BYTES as u64 {
                self.begin_segment()?;
            }
            return Err(SpoolError::Full { folder: self.folder.clone(), bytes });
        }
        if self.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|found| found.nlink() == 0)) {
            tracing::error!(
                "somebody has deleted files of '{}': going on with a new one",
                self.folder.display()
            );
            self.file = None;
        }
        // Several segments fit, so that those that are done with can go.
        let segment_max = self.options.segment_bytes.min(self.options.bytes_max / 4).min(SEGMENT_BYTES_MAX);
        let is_long = length > SEGMENT_HEAD_BYTES as u64 && length + added > segment_max;
        if self.file.is_none() || is_long {
            self.begin_segment()?;
        }
        self.frame.clear();
        FrameHead::of(records.as_bytes(), self.next, records.len()).write(&mut self.frame);
        self.frame.extend_from_slice(records.as_bytes());
        debug_assert_eq!(self.frame.len() as u64, added, "the frame is longer than there is room for");
        let mut file = self.file.as_ref().expect("begun above");
        if let Err(e) = file.write_all(&self.frame).and_then(|()| file.sync_data()) {
            self.abandon();
            return Err(FileError::on("write", &self.folder)(e).into());
        }
        self.next += u64::from(records.len());
        let mut state = self.shared.lock();
        state.segments.back_mut().expect("begun above").bytes += added;
        state.last = self.next - 1;
        drop(state);
        self.shared.changed.notify_all();
        Ok(self.last())
    }

    /// Gives up the last segment after a failure: what the disk has of the frame is unknown, even if another
    /// sync succeeds (fsync(2)). The reader does not read it, and the next frame begins a segment.
    fn abandon(&mut self) {
        let Some(file) = self.file.take() else { return };
        let length = self.shared.lock().segments.back().map_or(0, |segment| segment.bytes);
        // It may fail, on a broken disk: then the next open finds a frame whose numbers come again.
        let _ = file.set_len(length).and_then(|()| file.sync_data());
    }

    /// Makes a segment that begins with the next record.
    fn begin_segment(&mut self) -> Result<(), SpoolError> {
        debug_assert!(self.next > 0, "records are counted from 1 on");
        self.file = None;
        let path = segment_path(&self.folder, self.next);
        let failed = FileError::on("write", &path);
        let head = SegmentHead { version: VERSION, id: self.id, first: self.next };
        let mut open = OpenOptions::new();
        // A segment of this number has no records: it was made just before a failure.
        let _ = std::fs::remove_file(&path);
        open.write(true).create_new(true).mode(0o600);
        let made = open.open(&path).and_then(|mut file| {
            file.write_all(&head.to_bytes())?;
            file.sync_data()?;
            File::open(&self.folder)?.sync_all()?;
            Ok(file)
        });
        let file = made.map_err(|e| {
            let _ = std::fs::remove_file(&path);
            failed(e)
        })?;
        let mut state = self.shared.lock();
        state.segments.retain(|segment| segment.first != self.next);
        let is_behind = state.segments.back().is_none_or(|last| last.first < self.next);
        debug_assert!(is_behind, "a segment begins before the last one");
        state.segments.push_back(SegmentEnd { first: self.next, bytes: SEGMENT_HEAD_BYTES as u64 });
        drop(state);
        self.file = Some(file);
        Ok(())
    }

    /// Returns a reader of what comes after record `after`. If the spool has lost records that were read
    /// already, numbers go on behind them.
    pub fn reader(&mut self, after: u64) -> SpoolReader {
        if after >= self.next {
            tracing::warn!("'{}' lost records that were read already", self.folder.display());
            (self.next, self.file) = (after + 1, None);
            self.shared.lock().last = after;
        }
        SpoolReader::new(self.folder.clone(), self.shared.clone(), after)
    }
}

impl Drop for EventSpool {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
    }
}

/// Locks the spool in `folder` for this process.
fn lock(folder: &Path) -> Result<File, SpoolError> {
    let path = folder.join(LOCK_NAME);
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
    let file = file.map_err(FileError::on("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SpoolError::InUse(folder.to_owned())),
        Err(TryLockError::Error(e)) => Err(FileError::on("lock", &path)(e).into()),
    }
}

/// Returns the id of the spool that its lock holds: the heads of segments may be damaged.
fn read_id(lock: &File) -> Option<u64> {
    let mut text = [0; 16];
    lock.read_exact_at(&mut text, 0).ok()?;
    u64::from_str_radix(std::str::from_utf8(&text).ok()?, 16).ok()
}

/// Returns the id of the spool in `folder`, and its segments, oldest first.
fn find_segments(folder: &Path, lock: &File) -> Result<(u64, VecDeque<SegmentEnd>), SpoolError> {
    let failed = FileError::on("read", folder);
    let known = read_id(lock);
    let (mut id, mut segments) = (known, Vec::new());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(first) = entry.file_name().to_str().and_then(first_of_name) else { continue };
        let path = entry.path();
        let failed = FileError::on("read", &path);
        if !entry.file_type().map_err(failed)?.is_file() {
            tracing::warn!("'{}' is no file of a spool and does not count", path.display());
            continue;
        }
        let file = File::open(&path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        match SegmentHead::read(&file).map_err(failed)? {
            Some(SegmentHead { version, .. }) if version > VERSION => {
                return Err(SpoolError::Newer { path, version });
            }
            Some(head) if id.is_some_and(|id| id != head.id) => {
                tracing::warn!("'{}' is of another spool and does not count", path.display());
                continue;
            }
            Some(head) => id = Some(head.id),
            None => {
                tracing::warn!(
                    "the head of '{}' is damaged; its records are read as they are",
                    path.display()
                );
            }
        }
        segments.push(SegmentEnd { first, bytes: bytes.min(SEGMENT_BYTES_MAX) });
    }
    segments.sort_by_key(|segment| segment.first);
    let id = id.unwrap_or_else(|| RandomState::new().hash_one(0));
    if known.is_none() {
        let written = lock.set_len(0).and_then(|()| lock.write_all_at(format!("{id:016x}\n").as_bytes(), 0));
        written.and_then(|()| lock.sync_data()).map_err(FileError::on("write", &folder.join(LOCK_NAME)))?;
    }
    Ok((id, segments.into()))
}

/// Finds the end of the last segment. Returns the number of the next record, and the file if more can be
/// appended to it.
fn open_last(path: &Path, last: &mut SegmentEnd) -> Result<(u64, Option<File>), SpoolError> {
    let failed = FileError::on("read", path);
    let file = OpenOptions::new().read(true).append(true).open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut frames = FrameReader::new(file.try_clone().map_err(failed)?);
    let (mut next, mut end) = (last.first, SEGMENT_HEAD_BYTES as u64);
    while let Some(frame) = frames.next(last.bytes).map_err(failed)? {
        next = next.max(frame.head.first + u64::from(frame.head.count));
        end = frame.end;
    }
    let has_head = SegmentHead::read(&file).map_err(failed)?.is_some();
    if last.bytes < length || frames.damaged > 0 || !has_head {
        // There may be more that is sound. It stays as it is, and numbers go on behind all that it can have.
        let unread = (length - last.bytes) / LENGTH_BYTES as u64;
        tracing::warn!("'{}' is damaged; what is left of it is read", path.display());
        return Ok((next + unread, None));
    }
    if end < last.bytes {
        tracing::info!("cut {} bytes off '{}' that were never finished", last.bytes - end, path.display());
        file.set_len(end).and_then(|()| file.sync_data()).map_err(FileError::on("cut", path))?;
        last.bytes = end;
    }
    Ok((next, Some(file)))
}
