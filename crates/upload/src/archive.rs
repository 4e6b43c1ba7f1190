//! upload-archive (git-upload-archive(1)): an archive of a tree, made here and sent in a side band.

use weir_git::pktline::{Pkt, push, push_flush};

use crate::answer::{Answer, Step};
use crate::archive_request::ArchiveRequest;
use crate::error::{RequestError, refuse};
use crate::options::Context;
use crate::work::Work;

/// Arguments of one request, as git takes them.
const ARGUMENTS_MAX: usize = 64;

/// The arguments that have come.
#[derive(Default)]
pub(crate) struct ArchiveArguments(Vec<Vec<u8>>);

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
