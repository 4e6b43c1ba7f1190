//! Events from other threads, which wait until theirs is committed.

use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::{mpsc, oneshot};

use crate::doors::intake::{Intake, now_ms};
use crate::record::ReceivedLine;

/// The number of events that may wait for the thread of the doors.
const OFFERS_MAX: usize = 1024;

/// An event that another thread offers.
struct Offer {
    peer: String,
    line: Vec<u8>,
    committed: oneshot::Sender<()>,
}

/// The way of other threads into the spool of a server.
#[derive(Clone, Debug)]
pub struct EventIntake(mpsc::Sender<Offer>);

/// The error that a server ended before an event was committed.
#[derive(Clone, Copy, Debug)]
pub struct ServerEnded;

impl EventIntake {
    /// Puts a line of `peer` into the spool, and returns when it is on disk.
    ///
    /// # Errors
    /// If the server ends before. The line may be on disk even so.
    pub async fn put(&self, peer: String, line: Vec<u8>) -> Result<(), ServerEnded> {
        let (committed, is_committed) = oneshot::channel();
        self.0.send(Offer { peer, line, committed }).await.map_err(|_| ServerEnded)?;
        is_committed.await.map_err(|_| ServerEnded)
    }
}

/// The events that come from other threads.
pub(crate) struct Offers(mpsc::Receiver<Offer>);

impl Offers {
    /// Returns the two ends of a way into a spool.
    pub(crate) fn new() -> (EventIntake, Offers) {
        let (sender, receiver) = mpsc::channel(OFFERS_MAX);
        (EventIntake(sender), Offers(receiver))
    }

    /// Takes what comes, and answers when it is committed, until it is dropped.
    pub(crate) async fn take(mut self, intake: Rc<Intake>) {
        let mut committed = intake.committed();
        let mut waiting: VecDeque<(u64, oneshot::Sender<()>)> = VecDeque::new();
        let mut pending: Option<Offer> = None;
        let mut is_open = true;
        loop {
            let done = *committed.borrow_and_update();
            while let Some((_, sender)) = waiting.pop_front_if(|(batch, _)| *batch <= done) {
                // Who asked may have gone.
                let _ = sender.send(());
            }
            if let Some(offer) = pending.take() {
                let received = ReceivedLine { at_ms: now_ms(), peer: &offer.peer, line: &offer.line };
                match intake.put(&received) {
                    Some(batch) => waiting.push_back((batch, offer.committed)),
                    None => pending = Some(offer),
                }
            }
            if !is_open && pending.is_none() && waiting.is_empty() {
                return;
            }
            tokio::select! {
                offer = self.0.recv(), if is_open && pending.is_none() => match offer {
                    Some(offer) => pending = Some(offer),
                    None => is_open = false,
                },
                () = intake.room(), if pending.is_some() => {}
                changed = committed.changed(), if !waiting.is_empty() => if changed.is_err() { return },
            }
        }
    }
}
