//! Answers being computed: each once for all who ask the same at a time, and kept for a while for those who ask later.
//!
//! What a piece of work yields goes to a spool: the first bytes in memory, the rest to an unnamed file in the scratch folder.
//! Clients read from there at their own speed, so that the thread that computes is free as soon as it is done. An answer
//! larger than an answer may be is for those who are there already: what all of them have read is given back to the disk,
//! and the work waits for the slowest.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use weir_upload::WorkOutcome;

/// The first bytes of an answer, which stay in memory: most answers are no longer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes given to a client at a time.
const PIECE_BYTES: usize = 256 << 10;
/// How far those who read an answer that is too large may fall behind.
const WINDOW_BYTES: u64 = 16 << 20;

/// What tells answers apart.
pub(crate) type Key = [u8; 32];

/// All of them.
pub(crate) struct Answers {
    folder: PathBuf,
    bytes_max: u64,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    answers: HashMap<Key, Kept>,
    bytes: u64,
    clock: u64,
}

struct Kept {
    answer: Arc<Spool>,
    used: u64,
    /// Bytes counted for it; none while it is being made.
    bytes: u64,
}

/// One answer.
pub(crate) struct Spool {
    state: Mutex<State>,
    read: Condvar,
    /// Bytes written so far; told to those who read.
    progress: watch::Sender<u64>,
    /// The work is to be given up: nobody reads.
    pub(crate) cancelled: AtomicBool,
    /// It was refused, for now, because there is too much to do.
    pub(crate) busy: AtomicBool,
}

#[derive(Default)]
struct State {
    head: Vec<u8>,
    file: Option<File>,
    len: u64,
    outcome: Option<WorkOutcome>,
    /// How far each reader is.
    readers: HashMap<u64, u64>,
    next_reader: u64,
    /// Set when it is too large to be kept: all before this is gone.
    freed: Option<u64>,
}

/// What an answer is to a client.
pub(crate) enum Place {
    /// It is being made, or was, for somebody else.
    Follow(Reader),
    /// It is to be made: by whoever got this.
    Make(Arc<Spool>, Reader),
}

/// A client's place in an answer.
pub(crate) struct Reader {
    spool: Arc<Spool>,
    number: u64,
    at: u64,
    progress: watch::Receiver<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Answers {
    /// Keeps at most `bytes_max` bytes of answers, in `folder`.
    pub(crate) fn new(folder: PathBuf, bytes_max: u64) -> Answers {
        Answers { folder, bytes_max, list: Mutex::default() }
    }

    /// The largest that is kept.
    fn answer_bytes_max(&self) -> u64 {
        self.bytes_max / 4
    }

    /// The answer called `key`; without one, an answer of this client's own.
    pub(crate) fn place(&self, key: Option<Key>) -> Place {
        let make = || {
            let spool = Arc::new(Spool {
                state: Mutex::default(),
                read: Condvar::new(),
                progress: watch::Sender::new(0),
                cancelled: AtomicBool::new(false),
                busy: AtomicBool::new(false),
            });
            let reader = Reader::of(&spool);
            (spool, reader)
        };
        let Some(key) = key else {
            let (spool, reader) = make();
            return Place::Make(spool, reader);
        };
        let mut list = lock(&self.list);
        list.clock += 1;
        let clock = list.clock;
        if let Some(kept) = list.answers.get_mut(&key) {
            let reader = Reader::of(&kept.answer);
            // Asked once it is known that we read: from then on it is not given up.
            if !kept.answer.cancelled.load(Ordering::Acquire) {
                kept.used = clock;
                return Place::Follow(reader);
            }
        }
        let (spool, reader) = make();
        let before = list.answers.insert(key, Kept { answer: spool.clone(), used: clock, bytes: 0 });
        list.bytes -= before.map_or(0, |kept| kept.bytes);
        Place::Make(spool, reader)
    }

    /// Takes bytes of an answer. Called where blocking is allowed.
    ///
    /// # Errors
    /// If nobody wants it any more, or the disk fails.
    pub(crate) fn write(&self, key: Option<Key>, spool: &Spool, bytes: &[u8]) -> io::Result<()> {
        let gone = || Err(io::ErrorKind::BrokenPipe.into());
        let mut state = lock(&spool.state);
        if spool.cancelled.load(Ordering::Acquire) {
            return gone();
        }
        let is_too_large = state.len + bytes.len() as u64 > self.answer_bytes_max();
        if is_too_large && state.freed.is_none() {
            state.freed = Some(0);
            drop(state);
            self.forget(key, spool);
            state = lock(&spool.state);
        }
        while state.freed.is_some() {
            if state.readers.is_empty() {
                return gone();
            }
            let slowest = state.readers.values().copied().min().unwrap_or(0);
            state.free(slowest);
            if state.len - slowest < WINDOW_BYTES {
                break;
            }
            state = spool.read.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.file.is_none() && state.head.len() + bytes.len() <= HEAD_BYTES_MAX {
            state.head.extend_from_slice(bytes);
        } else {
            if state.file.is_none() {
                state.file = Some(tempfile::tempfile_in(&self.folder)?);
            }
            let at = state.len - state.head.len() as u64;
            if let Some(file) = &state.file {
                file.write_all_at(bytes, at)?;
            }
        }
        state.len += bytes.len() as u64;
        let len = state.len;
        drop(state);
        spool.progress.send_replace(len);
        Ok(())
    }

    /// Says how it ended. What was sent in full is kept, as long as there is room.
    pub(crate) fn end(&self, key: Option<Key>, spool: &Spool, outcome: WorkOutcome) {
        let is_whole = outcome == WorkOutcome::Sent;
        let (len, is_kept) = {
            let mut state = lock(&spool.state);
            state.outcome = Some(outcome);
            (state.len, is_whole && state.freed.is_none())
        };
        if is_kept {
            self.keep(key, spool, len);
        } else {
            self.forget(key, spool);
        }
        spool.progress.send_modify(|_| {});
    }

    fn keep(&self, key: Option<Key>, spool: &Spool, len: u64) {
        let Some(key) = key else { return };
        let mut list = lock(&self.list);
        let Some(kept) = list.answers.get_mut(&key).filter(|kept| std::ptr::eq(&*kept.answer, spool)) else { return };
        // Its place in the table, too, is memory.
        kept.bytes = len + 1024;
        list.bytes += len + 1024;
        while list.bytes > self.bytes_max {
            let oldest = list.answers.iter().filter(|(_, kept)| kept.bytes > 0).min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key);
            let Some(kept) = oldest.and_then(|key| list.answers.remove(&key)) else { break };
            list.bytes -= kept.bytes;
        }
    }

    /// As an answer that nobody had time to make.
    pub(crate) fn refuse(&self, key: Option<Key>, spool: &Spool, words: &[u8]) {
        spool.busy.store(true, Ordering::Release);
        let _ = self.write(key, spool, words);
        self.end(key, spool, WorkOutcome::Failed("too much to do".to_owned()));
    }

    fn forget(&self, key: Option<Key>, spool: &Spool) {
        let Some(key) = key else { return };
        let mut list = lock(&self.list);
        if list.answers.get(&key).is_some_and(|kept| std::ptr::eq(&*kept.answer, spool)) {
            let bytes = list.answers.remove(&key).map_or(0, |kept| kept.bytes);
            list.bytes -= bytes;
        }
    }
}

impl Spool {
    /// Resolves when nobody reads it any more.
    pub(crate) async fn unwanted(&self) {
        self.progress.closed().await;
    }
}

impl State {
    /// Gives what lies before `end` back to the disk.
    fn free(&mut self, end: u64) {
        let (Some(from), Some(file)) = (self.freed, &self.file) else { return };
        let end = end.saturating_sub(self.head.len() as u64);
        if end < from + (1 << 20) {
            return;
        }
        // SAFETY: the descriptor is open; nothing of ours is touched. If the file system cannot do it, the space is taken
        // until the answer is over.
        unsafe {
            libc::fallocate(
                file.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                from as libc::off_t,
                (end - from) as libc::off_t,
            );
        }
        self.freed = Some(end);
    }
}

impl Reader {
    fn of(spool: &Arc<Spool>) -> Reader {
        let mut state = lock(&spool.state);
        let number = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(number, 0);
        Reader { spool: spool.clone(), number, at: 0, progress: spool.progress.subscribe() }
    }

    /// Whether anything of it was given.
    pub(crate) fn has_begun(&self) -> bool {
        self.at > 0
    }

    /// Whether nobody has time to make it.
    pub(crate) fn is_refused(&self) -> bool {
        self.spool.busy.load(Ordering::Acquire)
    }

    /// The next bytes, or how it ended. Waits until there are some.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) async fn next(&mut self) -> io::Result<Result<Vec<u8>, WorkOutcome>> {
        loop {
            self.progress.borrow_and_update();
            if let Some(step) = self.step()? {
                return Ok(step);
            }
            if self.progress.changed().await.is_err() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    fn step(&mut self) -> io::Result<Option<Result<Vec<u8>, WorkOutcome>>> {
        let mut state = lock(&self.spool.state);
        if self.at == state.len {
            return Ok(state.outcome.clone().map(Err));
        }
        let head = state.head.len() as u64;
        let bytes = if self.at < head {
            state.head[self.at as usize..].to_vec()
        } else {
            let Some(file) = &state.file else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            let mut bytes = vec![0; (state.len - self.at).min(PIECE_BYTES as u64) as usize];
            file.read_exact_at(&mut bytes, self.at - head)?;
            bytes
        };
        self.at += bytes.len() as u64;
        let at = self.at;
        state.readers.insert(self.number, at);
        if state.freed.is_some() {
            self.spool.read.notify_all();
        }
        Ok(Some(Ok(bytes)))
    }
}

impl Drop for Reader {
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
mod tests {
    use super::*;

    fn make(answers: &Answers, key: Key) -> (Arc<Spool>, Reader) {
        match answers.place(Some(key)) {
            Place::Make(spool, reader) => (spool, reader),
            Place::Follow(_) => panic!("there is one already"),
        }
    }

    async fn all(mut reader: Reader) -> (Vec<u8>, WorkOutcome) {
        let mut out = Vec::new();
        loop {
            match reader.next().await.unwrap() {
                Ok(bytes) => out.extend(bytes),
                Err(outcome) => return (out, outcome),
            }
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_answer_is_made_once() {
        let answers = Answers::new(std::env::temp_dir(), 8 << 20);
        let (spool, first) = make(&answers, [1; 32]);
        let Place::Follow(second) = answers.place(Some([1; 32])) else { panic!("made twice") };
        let data: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
        for part in data.chunks(50_000) {
            answers.write(Some([1; 32]), &spool, part).unwrap();
        }
        answers.end(Some([1; 32]), &spool, WorkOutcome::Sent);
        let Place::Follow(third) = answers.place(Some([1; 32])) else { panic!("not kept") };
        for reader in [first, second, third] {
            assert_eq!(all(reader).await, (data.clone(), WorkOutcome::Sent));
        }
        assert_eq!(lock(&answers.list).bytes, 1_001_024);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn room_is_bounded_and_failures_are_not_kept() {
        let answers = Answers::new(std::env::temp_dir(), 1 << 20);
        for n in 0..100 {
            let (spool, reader) = make(&answers, [n; 32]);
            answers.write(Some([n; 32]), &spool, &vec![n; 200 << 10]).unwrap();
            let outcome = if n % 10 == 9 { WorkOutcome::Failed("x".to_owned()) } else { WorkOutcome::Sent };
            answers.end(Some([n; 32]), &spool, outcome);
            drop(reader);
            assert!(lock(&answers.list).bytes <= 1 << 20);
        }
        assert!(matches!(answers.place(Some([99; 32])), Place::Make(..)), "a failure");
        assert!(matches!(answers.place(Some([98; 32])), Place::Follow(_)));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn nobody_left_ends_the_work() {
        let answers = Answers::new(std::env::temp_dir(), 8 << 20);
        let (spool, first) = make(&answers, [1; 32]);
        drop(first);
        assert!(answers.write(Some([1; 32]), &spool, b"x").is_err());
        assert!(matches!(answers.place(Some([1; 32])), Place::Make(..)), "those who come later start anew");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_too_large_flows_through() {
        let answers = Arc::new(Answers::new(std::env::temp_dir(), 8 << 20));
        let (spool, reader) = make(&answers, [1; 32]);
        let writing = tokio::task::spawn_blocking({
            let answers = answers.clone();
            move || {
                for n in 0..100u8 {
                    answers.write(Some([1; 32]), &spool, &vec![n; 1 << 20]).unwrap();
                }
                answers.end(Some([1; 32]), &spool, WorkOutcome::Sent);
            }
        });
        let (data, outcome) = all(reader).await;
        writing.await.unwrap();
        assert_eq!((data.len(), outcome), (100 << 20, WorkOutcome::Sent));
        assert!(data.chunks(1 << 20).zip(0u8..).all(|(part, n)| part.iter().all(|&b| b == n)));
        assert_eq!(lock(&answers.list).bytes, 0);
    }
}
