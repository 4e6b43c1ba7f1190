//! A request for an archive, and how it is answered.

use std::io;
use std::sync::Arc;

use weir_git::pktline::push_flush;
use weir_git::{HashKind, plain_sha};
use weir_repo::Repo;

use crate::archiver::{ArchiverError, TreeArchiver};
use crate::band::Framing;
use crate::pack_request::{Framed, WorkOutcome, public, sent};

/// A request for an archive.
pub struct ArchiveRequest {
    pub(crate) repo: Arc<Repo>,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) archiver: Arc<dyn TreeArchiver>,
}

impl ArchiveRequest {
    pub(crate) fn run(&self, send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>) -> WorkOutcome {
        let mut out = Framed::new(Framing::Large, send);
        let (told, cause) = match self.archiver.write(&self.repo, &self.arguments, &mut out) {
            Ok(()) => return sent(out.end()),
            Err(ArchiverError::Output(e)) => return sent(Err(e)),
            Err(ArchiverError::Refused(words)) => (words.clone(), words),
            Err(ArchiverError::Repo(e)) => {
                let e = self.repo.check_reads().err().unwrap_or(e);
                (public(&e), e.to_string())
            }
        };
        let _ = out.give();
        let _ = send(failure(&told));
        WorkOutcome::Failed(cause)
    }

    pub(crate) fn key(&self) -> Option<[u8; 32]> {
        let mut sum = plain_sha(HashKind::Sha256);
        sum.update(format!("archive {:?} {:?}", self.repo.serial(), self.arguments).as_bytes());
        sum.finish().as_bytes().try_into().ok()
    }
}

/// Returns the packets that tell a client why there is no archive.
pub(crate) fn failure(words: &str) -> Vec<u8> {
    let mut out = Vec::new();
    Framing::Large.push_message(&mut out, 3, &format!("{words}\n"));
    push_flush(&mut out);
    out
}
