//! A fixed number of long-lived programs that get lines, and answer each with a line.
//!
//! Each program has a thread and a queue. Several lines are written at once, so that a program that is quick
//! costs few switches. A line whose program ends or says nothing is given to a new one, a few times.

use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_ground::Stop;
use weir_ground::thread::spawn;

use crate::filter::LineFilter;
use crate::parser::JsonObject;
use crate::program::{LineProgram, WINDOW, error_of};

/// The number of lines that wait for one program.
const QUEUE: usize = 4 * WINDOW;
/// The bytes that are written to a program at once: more than fit into a pipe would wait for it to read.
const WRITTEN_BYTES_MAX: usize = 48 << 10;
/// How often a line is given to a program that ends or does not answer.
const TRIES: u32 = 3;
/// The time before a program is started again, after the first failure and at most.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// Time between lines of the log about a program that cannot be started.
const TOLD_EVERY: Duration = Duration::from_secs(30);
/// How often a full queue is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long a thread waits for a line before it looks whether it is to end.
const IDLE: Duration = Duration::from_millis(250);

/// A group of programs.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// Its name, for the log.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The folder in which it runs.
    pub folder: PathBuf,
    /// How many of it run.
    pub count: usize,
    /// Lines with the same value here go to the same program, in order: a key of JSON. The group `key` of the
    /// filter's pattern comes before it.
    pub key: Option<String>,
    /// Which lines it gets.
    pub filter: LineFilter,
    /// How long it may take for a line.
    pub timeout: Duration,
}

/// A line for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerLine {
    /// The number of the event.
    pub id: i64,
    /// The line, without its end.
    pub line: Vec<u8>,
}

/// A line that a program has answered, or that no program could answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedLine {
    /// The line.
    pub line: WorkerLine,
    /// The reason, if the program did not take the line.
    pub failure: Option<String>,
}

/// A running group. When it is dropped, its programs end after the lines that they have.
pub struct EventWorkers {
    queues: Vec<SyncSender<WorkerLine>>,
    threads: Vec<JoinHandle<()>>,
    stop: Stop,
    key: Option<String>,
    filter: LineFilter,
    next: usize,
}

impl EventWorkers {
    /// Starts the programs. The group sends each line to `finished` after a program has answered it.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(spec: &WorkerSpec, finished: &Sender<FinishedLine>) -> std::io::Result<EventWorkers> {
        let stop = Stop::default();
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..spec.count.max(1) {
            let (queue, lines) = sync_channel(QUEUE);
            let worker = WorkerThread {
                spec: spec.clone(),
                lines,
                finished: finished.clone(),
                stop: stop.clone(),
                program: None,
                pending: VecDeque::new(),
                told: None,
                failures: 0,
                tries: 0,
            };
            queues.push(queue);
            threads.push(spawn("event worker", move || worker.run())?);
        }
        let (key, filter) = (spec.key.clone(), spec.filter.clone());
        Ok(EventWorkers { queues, threads, stop, key, filter, next: 0 })
    }

    /// Gives a line to a program: to the one of its key, or to the next that has room. Waits for room until
    /// `stop` is requested; returns whether it was given.
    pub fn give(&mut self, mut line: WorkerLine, stop: &Stop) -> bool {
        let of_key = self.key_of(&line.line).map(|key| {
            let hasher = BuildHasherDefault::<DefaultHasher>::default();
            (hasher.hash_one(key) % self.queues.len() as u64) as usize
        });
        loop {
            let places = match of_key {
                Some(place) => place..place + 1,
                None => self.next..self.next + self.queues.len(),
            };
            for place in places {
                let place = place % self.queues.len();
                match self.queues[place].try_send(line) {
                    Ok(()) => {
                        self.next = (place + 1) % self.queues.len();
                        return true;
                    }
                    Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => line = back,
                }
            }
            if !stop.sleep(LOOK_EVERY) {
                return false;
            }
        }
    }

    fn key_of(&self, line: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(line).ok()?;
        if let Some(key) = self.filter.key(text) {
            return Some(key.to_owned());
        }
        let key = self.key.as_ref()?;
        JsonObject::parse(text).ok()?.find(key).map(|value| value.get().to_owned())
    }
}

impl Drop for EventWorkers {
    fn drop(&mut self) {
        self.stop.stop();
        self.queues.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct WorkerThread {
    spec: WorkerSpec,
    lines: Receiver<WorkerLine>,
    finished: Sender<FinishedLine>,
    stop: Stop,
    program: Option<LineProgram>,
    /// Lines that the program has, or that wait for it.
    pending: VecDeque<WorkerLine>,
    /// When a line of the log said that the program cannot be started.
    told: Option<Instant>,
    /// Failures of programs since one answered.
    failures: u32,
    /// How often the first pending line was given to a program.
    tries: u32,
}

impl WorkerThread {
    fn run(mut self) {
        while self.fill() {
            if !self.work() {
                break;
            }
        }
        if let Some(program) = self.program.take() {
            program.end();
        }
    }

    /// Takes lines from the queue. Returns false if there are none, and no more will come.
    fn fill(&mut self) -> bool {
        let mut bytes: usize = self.pending.iter().map(|line| line.line.len() + 1).sum();
        while self.pending.len() < WINDOW && bytes < WRITTEN_BYTES_MAX {
            match self.lines.try_recv() {
                Ok(line) => {
                    bytes += line.line.len() + 1;
                    self.pending.push_back(line);
                }
                Err(_) if !self.pending.is_empty() => return true,
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => match self.lines.recv_timeout(IDLE) {
                    Ok(line) => {
                        bytes += line.line.len() + 1;
                        self.pending.push_back(line);
                    }
                    Err(_) if self.stop.is_stopped() => return false,
                    Err(_) => {}
                },
            }
        }
        true
    }

    /// Gives the pending lines to the program. Returns false if the thread is to end.
    fn work(&mut self) -> bool {
        let name = &self.spec.name;
        let mut program = match self.program.take() {
            Some(program) => program,
            None => match LineProgram::start(&self.spec.command, &self.spec.folder) {
                Ok(program) => program,
                // Without the program, lines wait.
                Err(e) => {
                    if self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                        self.told = Some(Instant::now());
                        tracing::error!(
                            "cannot start '{}' of the worker '{name}': {e}; lines wait for it",
                            self.spec.command[0]
                        );
                    }
                    return self.back_off();
                }
            },
        };
        let lines: Vec<&[u8]> = self.pending.iter().map(|line| line.line.as_slice()).collect();
        let stop = self.stop.clone();
        let (answers, failure) = program.ask_all(&lines, self.spec.timeout, || stop.is_stopped());
        if !answers.is_empty() {
            (self.failures, self.tries) = (0, 0);
        }
        for answer in answers {
            self.finish(error_of(&answer));
        }
        let Some(why) = failure else {
            self.program = Some(program);
            return true;
        };
        drop(program);
        if self.stop.is_stopped() {
            return false;
        }
        self.tries += 1;
        tracing::warn!("the worker '{}' {why}, try {} of {TRIES}", self.spec.name, self.tries);
        if self.tries >= TRIES {
            self.tries = 0;
            self.finish(Some(format!("the program {why}")));
        }
        self.back_off()
    }

    /// Tells that the first pending line is done with.
    fn finish(&mut self, failure: Option<String>) {
        if let Some(line) = self.pending.pop_front() {
            // Who started the group may have gone.
            let _ = self.finished.send(FinishedLine { line, failure });
        }
    }

    /// Waits a while before the program is started again. Returns false if the thread is to end.
    fn back_off(&mut self) -> bool {
        let pause = BACK_OFF.saturating_mul(1 << self.failures.min(16)).min(BACK_OFF_MAX);
        self.failures += 1;
        let until = Instant::now() + pause;
        self.stop.sleep(until.saturating_duration_since(Instant::now()))
    }
}
