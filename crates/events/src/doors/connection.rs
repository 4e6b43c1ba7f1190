//! One connection that sends lines.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::rc::Rc;

use tokio::sync::{Notify, watch};

use crate::doors::gate::{DoorGate, GateVerdict, LineSender};
use crate::doors::idle::{IdleSweep, LastHeard};
use crate::doors::intake::{Intake, IntakeCounts};
use crate::doors::lines::{LineBuffer, LineFate, LineVerdict, Stopped, judge, judge_long};
use crate::line_stream::LineStream;
use crate::record::{ReceivedLine, now_ms};

/// The number of bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// The most bytes of answers that a sender may leave unread: weir reads nothing from it meanwhile.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The part of a connection that the sweep for idle ones reads.
#[derive(Default)]
pub(crate) struct LastSeen {
    pub(crate) heard: LastHeard,
    /// Ends the connection.
    pub(crate) close: Notify,
}

/// The state that all connections of the thread share.
pub(crate) struct LineRoom {
    pub(crate) intake: Rc<Intake>,
    pub(crate) gate: DoorGate,
    /// Each connection reads into it, and leaves nothing there.
    chunk: RefCell<Vec<u8>>,
    pub(crate) sweep: IdleSweep,
}

impl LineRoom {
    pub(crate) fn new(intake: Rc<Intake>, gate: DoorGate) -> Rc<LineRoom> {
        let (chunk, sweep) = (RefCell::new(vec![0; CHUNK_BYTES]), IdleSweep::default());
        Rc::new(LineRoom { intake, gate, chunk, sweep })
    }
}

/// A connection, between two waits.
pub(crate) struct LineConnection {
    stream: LineStream,
    sender: LineSender,
    room: Rc<LineRoom>,
    lines: LineBuffer,
    answers: LineAnswers,
}

/// The answers that weir has to write to a sender.
#[derive(Default)]
struct LineAnswers {
    /// The answers to lines in batches that were not committed yet, with the number of the batch. They are
    /// in order, with those that wait behind them.
    waiting: VecDeque<(u64, Vec<u8>)>,
    /// Bytes that can be written.
    ready: Vec<u8>,
    waiting_bytes: usize,
}

impl LineAnswers {
    /// Adds an answer that may be written when `batch` is committed.
    fn add(&mut self, batch: u64, parts: &[&[u8]]) {
        let answer = [parts, &[b"\n"]].concat().concat();
        self.waiting_bytes += answer.len();
        self.waiting.push_back((batch, answer));
    }

    /// Makes the answers ready whose batches have numbers of at most `committed`.
    fn settle(&mut self, committed: u64) {
        while self.waiting.front().is_some_and(|(batch, _)| *batch <= committed) {
            let (_, answer) = self.waiting.pop_front().expect("looked at above");
            self.waiting_bytes -= answer.len();
            self.ready.extend(answer);
        }
    }

    fn bytes(&self) -> usize {
        self.ready.len() + self.waiting_bytes
    }
}

impl LineConnection {
    pub(crate) fn new(stream: LineStream, sender: LineSender, room: Rc<LineRoom>) -> LineConnection {
        let lines = LineBuffer::default();
        LineConnection { stream, sender, room, lines, answers: LineAnswers::default() }
    }

    /// Takes lines until the sender ends, or `seen` says that it is to. What it sent before that is taken.
    pub(crate) async fn run(&mut self, seen: &LastSeen) -> io::Result<()> {
        let mut committed: Option<watch::Receiver<u64>> = None;
        let mut is_open = true;
        let mut close = pin!(seen.close.notified());
        loop {
            if !self.answers.waiting.is_empty() && committed.is_none() {
                committed = Some(self.room.intake.committed());
            }
            if let Some(committed) = &mut committed {
                self.answers.settle(*committed.borrow_and_update());
            }
            let (has_waiting, has_ready) = (!self.answers.waiting.is_empty(), !self.answers.ready.is_empty());
            if !is_open && !has_waiting && !has_ready {
                return Ok(());
            }
            let reads = is_open && self.answers.bytes() < ANSWER_BYTES_MAX;
            let stream = &self.stream;
            tokio::select! {
                biased;
                ready = stream.writable(), if has_ready => {
                    ready?;
                    self.write()?;
                }
                _ = changed(&mut committed), if has_waiting => {}
                ready = stream.readable(), if reads => {
                    ready?;
                    self.room.sweep.hear(&seen.heard);
                    is_open = self.read().await?;
                }
                () = &mut close => return Ok(()),
            }
        }
    }

    /// Reads what is there, and takes its lines. Returns whether the sender may send more.
    async fn read(&mut self) -> io::Result<bool> {
        let taken = {
            let mut chunk = self.room.chunk.borrow_mut();
            match self.stream.try_read(&mut chunk) {
                // A last line needs no end.
                Ok(0) if self.lines.is_empty() => return Ok(false),
                Ok(0) => {
                    let mut line_taker = taker(&self.room, &mut self.sender, &mut self.answers);
                    self.lines.take(b"\n", &mut line_taker)
                }
                Ok(length) => {
                    self.room.intake.came(length);
                    let (lines, mut line_taker) =
                        (&mut self.lines, taker(&self.room, &mut self.sender, &mut self.answers));
                    lines.take(&chunk[..length], &mut line_taker)
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) => return Err(e),
            }
        };
        let mut taken = taken;
        loop {
            match taken {
                Ok(()) => return Ok(true),
                Err(Stopped::Quit) => return Ok(false),
                Err(Stopped::Full) => self.room.intake.room(self.sender.share).await,
            }
            let mut line_taker = taker(&self.room, &mut self.sender, &mut self.answers);
            taken = self.lines.take(b"", &mut line_taker);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        match self.stream.try_write(&self.answers.ready) {
            Ok(length) => drop(self.answers.ready.drain(..length)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        if self.answers.ready.is_empty() {
            self.answers.ready = Vec::new();
        }
        Ok(())
    }
}

/// Waits until another batch was committed.
async fn changed(committed: &mut Option<watch::Receiver<u64>>) {
    match committed {
        // The intake outlives its connections.
        Some(committed) => drop(committed.changed().await),
        None => std::future::pending().await,
    }
}

/// Returns the function that takes the lines of a connection.
fn taker<'c>(
    room: &'c LineRoom,
    sender: &'c mut LineSender,
    answers: &'c mut LineAnswers,
) -> impl FnMut(&[u8], bool) -> LineFate + 'c {
    let (at_ms, intake) = (now_ms(), &room.intake);
    move |line, is_long| {
        match room.gate.ask(line, sender) {
            None => {}
            Some(GateVerdict::Known) => {
                answers.add(0, &[b"ok"]);
                return LineFate::Taken;
            }
            Some(GateVerdict::Refused(why)) => {
                IntakeCounts::add(&intake.counts.bad, 1);
                answers.add(0, &[b"err ", why.as_bytes()]);
                return LineFate::Last;
            }
        }
        let LineSender { peer, share, .. } = &mut *sender;
        let verdict = if is_long { judge_long(line) } else { judge(line) };
        match verdict {
            LineVerdict::Empty => {}
            LineVerdict::Event { token, line } => {
                let Some(batch) = intake.put(&ReceivedLine { at_ms, peer, line }, share) else {
                    return LineFate::NoRoom;
                };
                if let Some(token) = token {
                    answers.add(batch, &[b"ok ", token]);
                }
            }
            LineVerdict::Ping => answers.add(0, &[b"pong"]),
            LineVerdict::Quit => return LineFate::Last,
            LineVerdict::Http => {
                IntakeCounts::add(&intake.counts.bad, 1);
                answers.add(0, &[b"err this is no HTTP server"]);
                return LineFate::Last;
            }
            LineVerdict::Bad { token, why } => {
                IntakeCounts::add(&intake.counts.bad, 1);
                // Whoever asks for no answers may read none.
                if answers.bytes() < ANSWER_BYTES_MAX {
                    let (token, space): (&[u8], &[u8]) = token.map_or((b"", b""), |token| (token, b" "));
                    answers.add(0, &[b"err ", token, space, why.as_bytes()]);
                }
            }
        }
        LineFate::Taken
    }
}
