//! The reading end of a spool.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_ground::FileError;

use crate::spool::error::SpoolError;
use crate::spool::frame::split;
use crate::spool::segment::{FrameReader, segment_path};
use crate::spool::shared::{SegmentEnd, SharedState};

/// Reads the records of a spool in order, and deletes what is done with.
pub struct SpoolReader {
    folder: PathBuf,
    shared: Arc<SharedState>,
    /// The number of the last record that was read.
    position: u64,
    /// The segment that is being read.
    open: Option<(u64, FrameReader)>,
    /// The number of records that were lost to damage.
    lost: u64,
}

impl SpoolReader {
    pub(crate) fn new(folder: PathBuf, shared: Arc<SharedState>, after: u64) -> SpoolReader {
        SpoolReader { folder, shared, position: after, open: None, lost: 0 }
    }

    /// Returns the number of the last record that was read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns how many records were lost to damage of the disk so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns how many records wait to be read.
    pub fn waiting(&self) -> u64 {
        self.shared.lock().last.saturating_sub(self.position)
    }

    /// Waits up to `timeout` until a record waits to be read. Returns whether one does.
    pub fn wait(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.shared.lock();
        while state.last <= self.position && !state.is_closed {
            let now = Instant::now();
            if now >= until {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        state.last > self.position
    }

    /// Gives the records of the next frames to `each`, with their numbers, until at least `max` were read or
    /// none are left. Returns how many there were.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn read(&mut self, max: usize, each: &mut dyn FnMut(u64, &[u8])) -> Result<usize, SpoolError> {
        let mut read = 0;
        while read < max {
            let Some((segment, end)) = self.segment() else { break };
            let path = segment_path(&self.folder, segment.first);
            let failed = FileError::on("read", &path);
            let frames = match &mut self.open {
                Some((first, frames)) if *first == segment.first => frames,
                open => {
                    let file = File::open(&path).map_err(failed)?;
                    &mut open.insert((segment.first, FrameReader::new(file))).1
                }
            };
            // Frames behind the first number of the next segment were given up after a failure.
            let frame = frames.next(segment.bytes).map_err(failed)?;
            let Some(frame) = frame.filter(|frame| end.is_none_or(|end| frame.head.first < end)) else {
                let Some(end) = end else { break };
                self.open = None;
                self.pass_over(end - 1);
                continue;
            };
            let first = frame.head.first;
            if frame.damaged > 0 {
                let (bytes, path) = (frame.damaged, path.display());
                tracing::error!("passing over {bytes} damaged bytes of '{path}'");
            }
            let (mut position, lost) = (self.position, first.saturating_sub(self.position + 1));
            if lost > 0 {
                tracing::error!("the spool lost {lost} records before number {first}");
            }
            let numbers = first..first + u64::from(frame.head.count);
            for (number, record) in numbers.zip(split(frame.records)) {
                if number > position {
                    each(number, record);
                    position = number;
                    read += 1;
                }
            }
            self.lost += lost;
            self.position = position.max(first + u64::from(frame.head.count) - 1);
        }
        Ok(read)
    }

    /// Returns the segment with the record behind the position, and the number with which the next one
    /// begins.
    fn segment(&self) -> Option<(SegmentEnd, Option<u64>)> {
        let state = self.shared.lock();
        let at = state.segments.iter().rposition(|segment| segment.first <= self.position + 1);
        // The first ones may be away.
        let at = at.unwrap_or(0);
        let end = state.segments.get(at + 1).map(|next| next.first);
        let segment = *state.segments.get(at)?;
        (end.is_some() || state.last > self.position).then_some((segment, end))
    }

    /// Moves the position on to `last`, over records that are not there.
    fn pass_over(&mut self, last: u64) {
        if last > self.position {
            let lost = last - self.position;
            self.lost += lost;
            tracing::error!("the spool lost {lost} records up to number {last}");
            self.position = last;
        }
    }

    /// Returns whether a segment can be deleted if the records up to number `done` are done with.
    pub fn can_release(&self, done: u64) -> bool {
        self.shared.lock().segments.get(1).is_some_and(|next| next.first <= done + 1)
    }

    /// Deletes the segments whose records have numbers of at most `done`.
    ///
    /// # Errors
    /// If a file cannot be deleted.
    pub fn release(&mut self, done: u64) -> Result<(), SpoolError> {
        loop {
            let mut state = self.shared.lock();
            let is_done = state.segments.get(1).is_some_and(|next| next.first <= done + 1);
            if !is_done {
                return Ok(());
            }
            let first = state.segments[0].first;
            let path = segment_path(&self.folder, first);
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(FileError::on("delete", &path)(e).into());
                }
                _ => drop(state.segments.pop_front()),
            }
            self.open.take_if(|(open, _)| *open == first);
        }
    }
}
