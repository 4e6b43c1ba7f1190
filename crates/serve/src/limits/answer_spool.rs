//! Computes each answer once for all clients that ask for it at the same time, and keeps it for a while for
//! clients that ask later.
//!
//! Usually the bytes of an answer pass through memory to the client, and the work waits when the client falls
//! behind. In these cases the answer goes to a spool instead, an unnamed file in the scratch folder from
//! which clients read at their own speed, and in which the answer is kept:
//!
//! - Another client asks for the answer while its start is still there.
//! - A client asked for the same answer a while ago.
//! - A client is slow, or a few slow clients would keep all others from their turn.
//!
//! Short answers are always kept in memory. An answer that is larger than the limit goes only to the clients
//! that read it already.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use weir_upload::WorkOutcome;

use crate::limits::admission::HeldTurn;

/// Answers no longer than this stay in memory, and are kept: most are.
const SHORT_BYTES_MAX: u64 = 64 << 10;
/// Bytes of all short answers in memory.
const MEMORY_BYTES_MAX: u64 = 32 << 20;
/// Bytes read from a spool at a time.
const PIECE_BYTES: usize = 64 << 10;
/// How many bytes clients may fall behind before the work waits.
const WINDOW_BYTES: u64 = 4 << 20;
/// How long the work waits for a slow client before the answer goes to a spool.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of answers whose keys are remembered: an answer that is asked for again is kept.
const SEEN_MAX: usize = 4096;
/// Bytes that a kept answer takes besides its content.
const PLACE_BYTES: u64 = 1024;
const _: () = assert!(WINDOW_BYTES.is_multiple_of(PIECE_BYTES as u64), "a window is made of whole pieces");
const _: () = assert!(
    SHORT_BYTES_MAX <= WINDOW_BYTES && WINDOW_BYTES <= MEMORY_BYTES_MAX,
    "an answer that fits in memory has room for a window"
);

/// The key that identifies an answer.
pub(crate) type Key = [u8; 32];

/// All answers that are being made or kept.
pub(crate) struct Answers {
    folder: PathBuf,
    bytes_max: u64,
    /// Bytes in spools, including the spools of answers that are no longer kept.
    spooled: Arc<AtomicU64>,
    list: Mutex<AnswerList>,
}

#[derive(Default)]
struct AnswerList {
    answers: HashMap<Key, KeptAnswer>,
    /// Bytes kept, in memory and in spools.
    bytes: [u64; 2],
    clock: u64,
    /// Keys of answers that were made; `seen_order` has the latest last.
    seen: HashSet<Key>,
    seen_order: VecDeque<Key>,
}

struct KeptAnswer {
    answer: Arc<AnswerSpool>,
    used: u64,
    /// Bytes counted for this answer, in memory or in a spool; 0 while it is being made.
    bytes: u64,
    is_spooled: bool,
}

/// One answer.
pub(crate) struct AnswerSpool {
    state: Mutex<SpoolState>,
    read: Condvar,
    /// The number of bytes written so far; readers wait for it to change.
    progress: watch::Sender<u64>,
    /// Set when the work is to stop because no client reads the answer.
    pub(crate) cancelled: AtomicBool,
    /// Set when the answer was refused because the server is busy.
    pub(crate) busy: AtomicBool,
    /// Bytes in the spools of all answers.
    spooled: Arc<AtomicU64>,
}

#[derive(Default)]
struct SpoolState {
    /// Whether the answer goes to the file from here on.
    is_spooled: bool,
    /// Whether the answer is too large for the file.
    is_too_large: bool,
    /// Whether a reader is slow and the answer cannot be spooled: the work gives back its turn whenever it
    /// waits.
    is_slow: bool,
    file: Option<File>,
    /// The offset in the answer at which the file starts; the bytes before it are gone.
    file_start: u64,
    /// The offset in the answer at which the file ends.
    file_end: u64,
    /// The bytes in memory; `start` is their offset in the answer.
    chunks: VecDeque<Bytes>,
    start: u64,
    len: u64,
    outcome: Option<WorkOutcome>,
    /// The offset that each reader has reached.
    readers: HashMap<u64, u64>,
    next_reader: u64,
}

/// How a client gets an answer.
pub(crate) enum AnswerPlace {
    /// The answer is being made, or was made, for another client.
    Follow(AnswerReader),
    /// The caller is to make the answer.
    Make(Arc<AnswerSpool>, AnswerReader),
}

/// The result of [`AnswerReader::next`].
#[derive(Debug)]
pub(crate) enum AnswerPiece {
    /// The next bytes of the answer.
    Bytes(Bytes),
    /// The end of the answer, and its outcome.
    End(WorkOutcome),
}

/// A client's place in an answer.
pub(crate) struct AnswerReader {
    spool: Arc<AnswerSpool>,
    number: u64,
    at: u64,
    progress: watch::Receiver<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Answers {
    /// Returns an empty collection that keeps at most `bytes_max` bytes of answers, with spools in `folder`.
    pub(crate) fn new(folder: PathBuf, bytes_max: u64) -> Answers {
        Answers { folder, bytes_max, spooled: Arc::default(), list: Mutex::default() }
    }

    /// Returns the largest number of bytes of an answer that is kept.
    fn answer_bytes_max(&self) -> u64 {
        self.bytes_max / 4
    }

    /// Returns whether another answer may go to a spool.
    fn has_room(&self) -> bool {
        self.spooled.load(Ordering::Relaxed) + self.answer_bytes_max() <= self.bytes_max
    }

    /// Returns a place in the answer `key`; without a key, in a new answer that no other client can join.
    pub(crate) fn place(&self, key: Option<Key>) -> AnswerPlace {
        let make = |is_spooled| {
            let spool = Arc::new(AnswerSpool {
                state: Mutex::new(SpoolState { is_spooled, ..SpoolState::default() }),
                read: Condvar::new(),
                progress: watch::Sender::new(0),
                cancelled: AtomicBool::new(false),
                busy: AtomicBool::new(false),
                spooled: self.spooled.clone(),
            });
            let reader = AnswerReader::of(&spool);
            (spool, reader)
        };
        let Some(key) = key else {
            let (spool, reader) = make(false);
            return AnswerPlace::Make(spool, reader);
        };
        let mut list = lock(&self.list);
        let has_room = self.has_room();
        if let Some(reader) = list.join(key, has_room) {
            return AnswerPlace::Follow(reader);
        }
        let (spool, reader) = make(list.was_seen(key) && has_room);
        let made = KeptAnswer { answer: spool.clone(), used: list.clock, bytes: 0, is_spooled: false };
        let before = list.answers.insert(key, made);
        list.uncount(before);
        AnswerPlace::Make(spool, reader)
    }

    /// Returns a place in the answer `key`, if it is kept or being made.
    pub(crate) fn join(&self, key: Key) -> Option<AnswerReader> {
        lock(&self.list).join(key, self.has_room())
    }

    /// Appends bytes to an answer. Waits for readers that fall behind; while it waits for a slow one, it
    /// gives back `turn`, the turn in which the answer is made. Call it only where blocking is allowed.
    ///
    /// # Errors
    /// If no client reads the answer any more, if its readers are slow and too many others are, too, or if
    /// the disk fails.
    pub(crate) fn write(
        &self,
        key: Option<Key>,
        spool: &AnswerSpool,
        bytes: Vec<u8>,
        mut turn: Option<&mut HeldTurn>,
    ) -> io::Result<()> {
        let bytes = Bytes::from(bytes);
        let mut state = lock(&spool.state);
        if spool.cancelled.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let is_full = self.spooled.load(Ordering::Relaxed) > self.bytes_max;
        if state.is_spooled && (is_full || state.len + bytes.len() as u64 > self.answer_bytes_max()) {
            (state.is_spooled, state.is_too_large) = (false, true);
            drop(state);
            self.forget(key, spool);
            state = lock(&spool.state);
        }
        let mut is_away = false;
        while !state.is_spooled && state.len > SHORT_BYTES_MAX {
            let Some(slowest) = state.readers.values().copied().min() else {
                return Err(io::ErrorKind::BrokenPipe.into());
            };
            state.let_go(slowest);
            // After the turn was given back, wait longer: a new turn is taken for more than a moment's work.
            if state.len - slowest < if is_away { WINDOW_BYTES / 2 } else { WINDOW_BYTES } {
                break;
            }
            if let Some(turn) = turn.as_mut().filter(|_| state.is_slow && !is_away) {
                if let Err(e) = turn.leave() {
                    state.give_up();
                    return Err(e);
                }
                is_away = true;
            }
            let (woken, waited) =
                spool.read.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if waited.timed_out() {
                if self.has_room() && !state.is_too_large && state.len <= self.answer_bytes_max() {
                    (state.is_spooled, state.file_start) = (true, state.start);
                } else {
                    state.is_slow = true;
                }
            }
        }
        if let Some(turn) = turn.filter(|_| is_away) {
            drop(state);
            turn.come_back();
            state = lock(&spool.state);
            if spool.cancelled.load(Ordering::Acquire) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        state.len += bytes.len() as u64;
        state.chunks.push_back(bytes);
        if state.is_spooled && state.len > SHORT_BYTES_MAX {
            state.spill(&self.folder, &self.spooled)?;
        }
        let len = state.len;
        drop(state);
        spool.progress.send_replace(len);
        Ok(())
    }

    /// Waits until the readers of an answer whose work has ended with `outcome` have read most of it. What a
    /// slow reader leaves goes to the spool. If the spool has no room, the answer breaks off for this reader:
    /// work that has ended holds no turn, so no limit would count the memory that it uses.
    pub(crate) fn settle(&self, spool: &AnswerSpool, outcome: WorkOutcome) -> WorkOutcome {
        let mut state = lock(&spool.state);
        while !state.is_spooled {
            let Some(slowest) = state.readers.values().copied().min() else { break };
            state.let_go(slowest);
            if state.len - state.start.max(slowest) <= SHORT_BYTES_MAX {
                break;
            }
            let (woken, waited) =
                spool.read.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if waited.timed_out() {
                let has_room = self.has_room() && !state.is_too_large && state.len <= self.answer_bytes_max();
                (state.is_spooled, state.file_start) = (has_room, state.start);
                if !has_room || state.spill(&self.folder, &self.spooled).is_err() {
                    state.give_up();
                    return WorkOutcome::Failed("it reads too slowly, as do too many others".to_owned());
                }
            }
        }
        outcome
    }

    /// Records how the work on an answer ended. An answer that was sent in full is kept, as long as there is
    /// room.
    pub(crate) fn end(&self, key: Option<Key>, spool: &AnswerSpool, outcome: WorkOutcome) {
        let is_whole = outcome == WorkOutcome::Sent;
        let (len, is_spooled, is_kept) = {
            let mut state = lock(&spool.state);
            state.outcome = Some(outcome);
            (
                state.len,
                state.file.is_some(),
                is_whole && state.is_all_here() && (state.is_spooled || state.len <= SHORT_BYTES_MAX),
            )
        };
        match key {
            Some(key) if is_kept => self.keep(key, spool, len + PLACE_BYTES, is_spooled),
            _ => self.forget(key, spool),
        }
        spool.progress.send_modify(|_| {});
    }

    fn keep(&self, key: Key, spool: &AnswerSpool, bytes: u64, is_spooled: bool) {
        let mut list = lock(&self.list);
        let Some(kept) = list.answers.get_mut(&key).filter(|kept| std::ptr::eq(&*kept.answer, spool)) else {
            return;
        };
        (kept.bytes, kept.is_spooled) = (bytes, is_spooled);
        list.bytes[usize::from(is_spooled)] += bytes;
        let bytes_max = if is_spooled { self.bytes_max / 2 } else { MEMORY_BYTES_MAX.min(self.bytes_max) };
        while list.bytes[usize::from(is_spooled)] > bytes_max {
            let candidates =
                list.answers.iter().filter(|(_, kept)| kept.bytes > 0 && kept.is_spooled == is_spooled);
            let Some(oldest) = candidates.min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key) else {
                break;
            };
            let gone = list.answers.remove(&oldest);
            list.uncount(gone);
        }
    }

    /// Ends an answer that the server is too busy to make, with `words` as its only content.
    pub(crate) fn refuse(&self, key: Option<Key>, spool: &AnswerSpool, words: &[u8]) {
        spool.busy.store(true, Ordering::Release);
        let _ = self.write(key, spool, words.to_vec(), None);
        self.end(key, spool, WorkOutcome::Failed("the server is busy".to_owned()));
    }

    fn forget(&self, key: Option<Key>, spool: &AnswerSpool) {
        let Some(key) = key else { return };
        let mut list = lock(&self.list);
        if list.answers.get(&key).is_some_and(|kept| std::ptr::eq(&*kept.answer, spool)) {
            let gone = list.answers.remove(&key);
            list.uncount(gone);
        }
    }
}

impl AnswerList {
    /// Returns a place in the answer `key`, if it is kept or being made and may be joined.
    fn join(&mut self, key: Key, has_room: bool) -> Option<AnswerReader> {
        self.clock += 1;
        let kept = self.answers.get_mut(&key)?;
        let reader = AnswerReader::join(&kept.answer, has_room)?;
        kept.used = self.clock;
        Some(reader)
    }

    fn uncount(&mut self, kept: Option<KeptAnswer>) {
        if let Some(kept) = kept {
            self.bytes[usize::from(kept.is_spooled)] -= kept.bytes;
        }
    }

    /// Returns whether the answer `key` was asked for before, and remembers it.
    fn was_seen(&mut self, key: Key) -> bool {
        if !self.seen.insert(key) {
            return true;
        }
        self.seen_order.push_back(key);
        if self.seen_order.len() > SEEN_MAX
            && let Some(oldest) = self.seen_order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        false
    }
}

impl AnswerSpool {
    /// Resolves when no client reads the answer any more.
    pub(crate) async fn unwanted(&self) {
        self.progress.closed().await;
    }
}

impl Drop for AnswerSpool {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.file.is_some() {
            self.spooled.fetch_sub(state.file_end - state.file_start, Ordering::Relaxed);
        }
    }
}

impl SpoolState {
    /// Drops the chunks in memory that end at `end` or before.
    fn let_go(&mut self, end: u64) {
        while let Some(chunk) = self.chunks.front()
            && self.start + chunk.len() as u64 <= end
        {
            self.start += chunk.len() as u64;
            self.chunks.pop_front();
        }
    }

    /// Drops what is in memory: a reader that has not read it yet gets an error.
    fn give_up(&mut self) {
        self.chunks.clear();
        self.start = self.len;
    }

    /// Moves the chunks in memory to the file.
    fn spill(&mut self, folder: &Path, spooled: &AtomicU64) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(folder)?),
        };
        for chunk in std::mem::take(&mut self.chunks) {
            file.write_all_at(&chunk, self.start)?;
            spooled.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            self.start += chunk.len() as u64;
            self.file_end = self.start;
        }
        Ok(())
    }

    /// Returns whether the answer can still be read from its start.
    fn is_all_here(&self) -> bool {
        self.start == 0 || (self.file.is_some() && self.file_start == 0 && !self.is_too_large)
    }
}

impl AnswerReader {
    fn of(spool: &Arc<AnswerSpool>) -> AnswerReader {
        let mut state = lock(&spool.state);
        let number = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(number, 0);
        AnswerReader { spool: spool.clone(), number, at: 0, progress: spool.progress.subscribe() }
    }

    /// Returns a place in an answer that is kept or being made; from here on it is spooled. Returns `None` if
    /// its start is gone, if its work was cancelled, or if it is being made in memory and the spools have no
    /// room.
    fn join(spool: &Arc<AnswerSpool>, has_room: bool) -> Option<AnswerReader> {
        let reader = AnswerReader::of(spool);
        let mut state = lock(&spool.state);
        // Checked after the reader is registered: while there is a reader, the work is not cancelled.
        if !state.is_all_here() || spool.cancelled.load(Ordering::Acquire) {
            drop(state);
            return None;
        }
        if !state.is_spooled && state.outcome.is_none() {
            if !has_room {
                drop(state);
                return None;
            }
            state.is_spooled = true;
        }
        drop(state);
        // The work may be waiting for a slow reader.
        spool.read.notify_all();
        Some(reader)
    }

    /// Returns whether this reader has read any bytes.
    pub(crate) fn has_begun(&self) -> bool {
        self.at > 0
    }

    /// Returns whether the answer was refused because the server is busy.
    pub(crate) fn is_refused(&self) -> bool {
        self.spool.busy.load(Ordering::Acquire)
    }

    /// Waits for the next bytes, or for the end of the answer.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) async fn next(&mut self) -> io::Result<AnswerPiece> {
        loop {
            self.progress.borrow_and_update();
            if let Some(piece) = self.piece()? {
                return Ok(piece);
            }
            if self.progress.changed().await.is_err() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    fn piece(&mut self) -> io::Result<Option<AnswerPiece>> {
        let mut state = lock(&self.spool.state);
        if self.at == state.len {
            return Ok(state.outcome.clone().map(AnswerPiece::End));
        }
        let bytes = if self.at < state.start {
            let Some(file) = &state.file else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            let mut bytes = vec![0; (state.start - self.at).min(PIECE_BYTES as u64) as usize];
            file.read_exact_at(&mut bytes, self.at)?;
            bytes.into()
        } else {
            let mut start = state.start;
            let mut chunks = state.chunks.iter();
            loop {
                let Some(chunk) = chunks.next() else { return Err(io::ErrorKind::UnexpectedEof.into()) };
                if self.at < start + chunk.len() as u64 {
                    break chunk.slice((self.at - start) as usize..);
                }
                start += chunk.len() as u64;
            }
        };
        self.at += bytes.len() as u64;
        let at = self.at;
        state.readers.insert(self.number, at);
        if !state.is_spooled {
            self.spool.read.notify_all();
        }
        Ok(Some(AnswerPiece::Bytes(bytes)))
    }
}

impl Drop for AnswerReader {
    fn drop(&mut self) {
        let mut state = lock(&self.spool.state);
        state.readers.remove(&self.number);
        if state.readers.is_empty() && state.outcome.is_none() {
            self.spool.cancelled.store(true, Ordering::Release);
        }
        self.spool.read.notify_all();
    }
}

#[cfg(test)]
mod tests;
