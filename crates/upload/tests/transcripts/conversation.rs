//! The server that plays a conversation.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weir_repo::Repo;
use weir_upload::{Step, UploadOptions, UploadPack, Version, WorkOutcome};

/// The state machine under test, and the bytes that it has sent since the last [`Server::take`].
pub struct Server {
    machine: UploadPack,
    sent: Vec<u8>,
    has_ended: bool,
}

impl Server {
    pub fn new(repo: Arc<Repo>, version: Version, options: UploadOptions) -> Server {
        let machine = UploadPack::new(repo, version, options);
        let mut server = Server { machine, sent: Vec::new(), has_ended: false };
        server.run();
        server
    }

    /// Feeds `bytes`, and runs the machine until it waits for more. Errors show in what it sends.
    pub fn feed(&mut self, bytes: &[u8]) {
        if !self.has_ended {
            let _ = self.machine.feed(bytes);
            self.run();
        }
    }

    /// Returns what was sent since the last call, and whether the conversation is over.
    pub fn take(&mut self) -> (Vec<u8>, bool) {
        (std::mem::take(&mut self.sent), self.has_ended)
    }

    fn run(&mut self) {
        loop {
            match self.machine.step() {
                Step::Send(bytes) => self.sent.extend_from_slice(&bytes),
                Step::SendRegion(region, framing) => framing.push(&mut self.sent, &region),
                Step::SendArriving(_, framing) => {
                    framing.push_message(&mut self.sent, 2, "(the pack as it arrives)\n");
                    self.machine.finish(WorkOutcome::Sent);
                }
                Step::Work(work) => {
                    let sent = &mut self.sent;
                    let mut send = |bytes: Vec<u8>| {
                        sent.extend_from_slice(&bytes);
                        Ok(())
                    };
                    let outcome = work.run(&mut send, &AtomicBool::new(false));
                    self.machine.finish(outcome);
                }
                Step::Read => return,
                Step::Done => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }
}
