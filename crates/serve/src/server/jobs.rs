//! Work that takes time: it waits for a turn, runs on a thread of its own, and its answer is sent as it
//! comes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_upload::{Keepalive, Work, WorkOutcome};

use crate::access::locate::{BUSY, INTERNAL_ERROR};
use crate::limits::admission::{HeldTurn, Party};
use crate::limits::answer_spool::{AnswerPiece, AnswerPlace, AnswerReader};
use crate::server::daemon::Daemon;
use crate::sockets::send::Gone;

/// Time without any bytes after which a client gets a keepalive.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);
/// Time that the head of an answer waits for the answer's first bytes. It is short, because a hung-up client
/// is noticed only when something is sent to it.
const PEEK: Duration = Duration::from_secs(1);

/// The packet that ends an answer (gitprotocol-common, "flush-pkt").
pub(crate) const FLUSH: &[u8] = b"0000";

/// Where an answer is sent.
pub(crate) trait Out: Send {
    /// Sends bytes.
    fn give(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;
    /// Restarts the measurement of the client's speed: the time until now was not the client's.
    fn restart(&mut self) {}
    /// Resolves when the client asks for nothing more, or has gone.
    fn gone(&mut self) -> impl Future<Output = Gone> + Send;
}

/// Work under way, from the point of view of one client.
pub(crate) struct Started {
    reader: AnswerReader,
    keepalive: Option<Keepalive>,
    /// A piece that was read ahead.
    first: Option<AnswerPiece>,
}

impl Started {
    /// Waits a little for the first piece, so that the answer's head can report a failure.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) async fn peek(&mut self) -> io::Result<()> {
        if let Ok(first) = tokio::time::timeout(PEEK, self.reader.next()).await {
            self.first = Some(first?);
        }
        Ok(())
    }

    /// Returns whether the answer was refused because the server is busy.
    pub(crate) fn is_refused(&self) -> bool {
        self.reader.is_refused()
    }
}

impl Daemon {
    /// Starts `work`, or finds it started already.
    pub(crate) fn start(self: &Arc<Self>, work: Work, party: &Party) -> Started {
        let keepalive = work.keepalive();
        let key = work.key();
        let (spool, reader) = match self.answers.place(key) {
            AnswerPlace::Follow(reader) => return Started { reader, keepalive, first: None },
            AnswerPlace::Make(spool, reader) => (spool, reader),
        };
        let (daemon, party) = (self.clone(), party.clone());
        tokio::spawn(async move {
            // The rest of a clone that is being sent already needs no turn.
            let turns = match (work.is_heavy(), work.is_long_list()) {
                (true, _) => Some(daemon.turns.clone()),
                (false, true) => Some(daemon.lists.clone()),
                (false, false) => None,
            };
            let turn = if let Some(turns) = &turns {
                tokio::select! {
                    turn = turns.take(party.clone()) => match turn {
                        Ok(turn) => Some(turn),
                        Err(_) => {
                            daemon.notices.say(party.address, "too many packs to be made", &"refused");
                            daemon.answers.refuse(key, &spool, &work.refusal(BUSY));
                            return;
                        }
                    },
                    () = spool.unwanted() => {
                        daemon.answers.end(key, &spool, WorkOutcome::Failed("the client is gone".to_owned()));
                        return;
                    }
                }
            } else {
                None
            };
            let (inner, its_spool) = (daemon.clone(), spool.clone());
            let running = tokio::task::spawn_blocking(move || {
                // Held until the work is over, except while it waits for its readers.
                let mut turn = turns.zip(turn).map(|(turns, turn)| HeldTurn::new(turns, party, turn));
                let mut send = |bytes: Vec<u8>| inner.answers.write(key, &its_spool, bytes, turn.as_mut());
                // A panic in here ends only this answer: the task reports it as an error.
                let outcome = work.run(&mut send, &its_spool.cancelled);
                let outcome = inner.answers.settle(&its_spool, outcome);
                inner.answers.end(key, &its_spool, outcome);
            });
            if running.await.is_err() {
                let outcome = WorkOutcome::Failed(format!("cannot make the answer: {INTERNAL_ERROR}"));
                daemon.answers.end(key, &spool, outcome);
            }
        });
        Started { reader, keepalive, first: None }
    }

    /// Sends the answer of `started`, to its end.
    ///
    /// # Errors
    /// If the client is gone, or the disk fails.
    pub(crate) async fn follow(&self, mut started: Started, out: &mut impl Out) -> io::Result<WorkOutcome> {
        let mut first = started.first.take();
        // The answer may be complete before its work ends. A keepalive would then start the next answer.
        let mut is_flushed = false;
        loop {
            let next = match first.take() {
                Some(first) => Some(first),
                None => tokio::select! {
                    biased;
                    next = tokio::time::timeout(KEEPALIVE, started.reader.next()) => next.ok().transpose()?,
                    gone = out.gone() => match gone {
                        Gone::Whole => return Err(io::ErrorKind::BrokenPipe.into()),
                        // The next write to the client shows whether it still reads.
                        Gone::Half => None,
                    },
                },
            };
            match next {
                Some(AnswerPiece::Bytes(bytes)) => {
                    is_flushed = bytes.ends_with(FLUSH);
                    out.give(bytes).await?;
                }
                Some(AnswerPiece::End(outcome)) => return Ok(outcome),
                None => {
                    let may = |k: &Keepalive| !is_flushed && (started.reader.has_begun() || !k.after_first);
                    if let Some(keepalive) = started.keepalive.filter(may) {
                        out.give(Bytes::from_static(keepalive.bytes)).await?;
                    }
                    out.restart();
                }
            }
        }
    }
}
