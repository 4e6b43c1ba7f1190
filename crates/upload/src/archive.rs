//! upload-archive (git-upload-archive(1)): an archive of a tree, made here and sent in a side band.

use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::Arc;

use weir_git::pktline::{Pkt, push, push_flush};
use weir_git::{HashKind, plain_sha};
use weir_repo::Repo;

use crate::answer::{Answer, Step};
use crate::band::Framing;
use crate::error::{RequestError, refuse};
use crate::options::Context;
use crate::pack_request::{Framed, WorkOutcome, sent};
use crate::work::Work;

/// Arguments of one request, as git takes them.
const ARGUMENTS_MAX: usize = 64;

/// Makes archives of trees for `git archive --remote`.
pub trait TreeArchiver: Debug + Send + Sync {
    /// Writes to `out` what `arguments`, those of git-archive(1), ask for.
    ///
    /// # Errors
    /// The words for the client.
    fn write(&self, repo: &Repo, arguments: &[Vec<u8>], out: &mut dyn Write) -> Result<(), String>;
}

/// The arguments that have come.
#[derive(Default)]
pub(crate) struct ArchiveArguments(Vec<Vec<u8>>);

/// A request for an archive.
pub struct ArchiveRequest {
    repo: Arc<Repo>,
    arguments: Vec<Vec<u8>>,
    archiver: Arc<dyn TreeArchiver>,
}

/// Takes a packet, and returns the answer if the request is whole.
pub(crate) fn take(
    arguments: &mut ArchiveArguments,
    context: &Context,
    pkt: Pkt<'_>,
) -> Result<Vec<Answer>, RequestError> {
    match pkt {
        Pkt::Line(line) => {
            let Some(word) = line.strip_prefix(b"argument ") else {
                return refuse("'argument' token or flush expected".to_owned());
            };
            if arguments.0.len() == ARGUMENTS_MAX {
                return refuse(format!("too many options (>{})", ARGUMENTS_MAX - 1));
            }
            arguments.0.push(word.strip_suffix(b"\n").unwrap_or(word).to_vec());
            Ok(Vec::new())
        }
        Pkt::Flush => {
            let mut out = Vec::new();
            let Some(archiver) = context.options.archiver.clone() else {
                push(&mut out, b"NACK git archive is not served\n");
                return Ok(vec![Answer::Step(Step::Send(out)), Answer::End]);
            };
            push(&mut out, b"ACK\n");
            push_flush(&mut out);
            let arguments = std::mem::take(&mut arguments.0);
            let request = ArchiveRequest { repo: context.repo.clone(), arguments, archiver };
            let work = Step::Work(Work::Archive(Box::new(request)));
            Ok(vec![Answer::Step(Step::Send(out)), Answer::Step(work)])
        }
        _ => refuse("'argument' token or flush expected".to_owned()),
    }
}

impl ArchiveRequest {
    pub(crate) fn run(&self, send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>) -> WorkOutcome {
        let mut out = Framed::new(Framing::Large, send);
        match self.archiver.write(&self.repo, &self.arguments, &mut out) {
            Ok(()) => sent(out.end()),
            Err(words) => {
                let _ = out.give();
                let _ = send(failure(&words));
                WorkOutcome::Failed(words)
            }
        }
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
