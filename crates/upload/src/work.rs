//! What takes time: whether enough is in common, and packs that are computed.

use std::io::{self, Write};
use std::sync::Arc;

use weir_git::pktline::{push, push_delim, push_flush};
use weir_git::{Oid, OidSet};
use weir_repo::walk::{Budget, all_wants_meet, are_reachable, select};
use weir_repo::{PackPlan, Repo, Result, StoredClone};

use crate::band::Framing;

/// Commits looked at to find out whether wants and haves meet; beyond that the client is asked for more.
const MEETING_COMMITS_MAX: usize = 20_000;
/// Commits looked at to find out whether a want is reachable.
const REACHABLE_COMMITS_MAX: usize = 2_000_000;
/// Wire bytes gathered before they are given out.
const CHUNK_BYTES: usize = 64 << 10;

/// Something to run where blocking is allowed.
pub enum Work {
    /// Find out whether a pack can be made already, and make it.
    Negotiate(Negotiation),
    /// Make a pack.
    Pack(PackRequest),
    /// Sum a pack that was sent as its bodies lie.
    Trailer(TrailerRequest),
}

/// How a piece of work ended.
#[derive(Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// The answer was sent in full.
    Sent,
    /// Nothing was sent: send these bytes and go on.
    GoOn(Vec<u8>),
    /// The client was told that it failed, or is gone.
    Failed,
}

/// Haves that are in common, and what would be asked for.
pub struct Negotiation {
    pub(crate) request: PackRequest,
    pub(crate) acknowledged: Vec<u8>,
}

/// The end of a pack whose bodies were sent.
pub struct TrailerRequest {
    pub(crate) repo: Arc<Repo>,
    pub(crate) clone: StoredClone,
    pub(crate) framing: Framing,
    pub(crate) after: Vec<u8>,
}

/// A pack asked for.
pub struct PackRequest {
    pub(crate) repo: Arc<Repo>,
    pub(crate) wants: Vec<Oid>,
    pub(crate) common: Vec<Oid>,
    pub(crate) thin: bool,
    pub(crate) ofs_delta: bool,
    pub(crate) include_tag: bool,
    pub(crate) progress: bool,
    pub(crate) framing: Framing,
    pub(crate) flush_after: bool,
    pub(crate) steps_max: u64,
}

impl Work {
    /// Does it; `send` gets the bytes for the client and may fail when that is gone.
    pub fn run(self, send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>) -> WorkOutcome {
        match self {
            Work::Pack(request) => request.run(send),
            Work::Trailer(TrailerRequest { repo, clone, framing, after }) => {
                let mut out = Vec::new();
                framing.push(&mut out, clone.trailer(&repo).as_bytes());
                out.extend_from_slice(&after);
                if send(out).is_ok() { WorkOutcome::Sent } else { WorkOutcome::Failed }
            }
            Work::Negotiate(Negotiation { request, acknowledged: mut out }) => {
                if !wants_meet(&request.repo, &request.wants, &request.common).unwrap_or(false) {
                    push_flush(&mut out);
                    return WorkOutcome::GoOn(out);
                }
                push(&mut out, b"ready\n");
                push_delim(&mut out);
                let context = crate::machine::Context { repo: request.repo.clone(), limits: crate::Limits::default() };
                crate::v2::push_shallow_info(&mut out, &context);
                push(&mut out, b"packfile\n");
                match send(out) {
                    Ok(()) => request.run(send),
                    Err(_) => WorkOutcome::Failed,
                }
            }
        }
    }

    /// The packet to send while a pack is being made and nothing comes; `None` before that may be sent.
    pub fn keepalive(&self) -> Option<&'static [u8]> {
        match self {
            Work::Pack(request) => request.framing.keepalive(),
            Work::Trailer(request) => request.framing.keepalive(),
            Work::Negotiate(_) => None,
        }
    }
}

/// Whether every want has something the client has among its ancestors.
pub(crate) fn wants_meet(repo: &Repo, wants: &[Oid], common: &[Oid]) -> Result<bool> {
    all_wants_meet(repo, wants, common, MEETING_COMMITS_MAX)
}

impl PackRequest {
    fn run(self, send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>) -> WorkOutcome {
        let mut out = Framed { framing: self.framing, buf: Vec::new(), send };
        let made = self.check_wants().and_then(|()| self.make(&mut out));
        match made {
            Ok(()) => {
                if self.flush_after {
                    out.buf.extend_from_slice(b"0000");
                }
                if out.give().is_ok() { WorkOutcome::Sent } else { WorkOutcome::Failed }
            }
            Err(e) => {
                // Words of ours and ids only: nothing of the repository's content or paths.
                out.framing.push_message(&mut out.buf, 3, &format!("weir: {}\n", public(&e)));
                let _ = out.give();
                WorkOutcome::Failed
            }
        }
    }

    /// Wants must be refs, or reachable from them: what a force-push removed is not for everybody.
    fn check_wants(&self) -> Result<()> {
        let tips: OidSet = self.repo.refs().tips().chain(self.repo.refs().list().iter().filter_map(|r| r.peeled)).collect();
        let mut others: Vec<Oid> = self.wants.iter().filter(|w| !tips.contains(w)).copied().collect();
        others.sort_unstable();
        others.dedup();
        match others.first() {
            Some(first) if !are_reachable(&self.repo, &others, REACHABLE_COMMITS_MAX)? => {
                Err(weir_repo::Error::NotFound(format!("upload-pack: not our ref {first}")))
            }
            _ => Ok(()),
        }
    }

    fn make(&self, out: &mut Framed<'_>) -> Result<()> {
        let mut selection = select(&self.repo, &self.wants, &self.common, Budget { steps_max: self.steps_max })?;
        if self.include_tag {
            let tags = self.repo.refs().list().iter().filter_map(|r| Some((r.oid, r.peeled?)));
            selection.include_tags(&self.repo, tags)?;
        }
        let plan = PackPlan::new(&self.repo, selection, self.thin, self.ofs_delta)?;
        if self.progress {
            out.framing.push_message(&mut out.buf, 2, &format!("Sending {} objects\n", plan.count()));
        }
        plan.write(&self.repo, out)
    }
}

/// What of an error a client is told.
fn public(e: &weir_repo::Error) -> String {
    match e {
        weir_repo::Error::NotFound(text) | weir_repo::Error::Unsupported(text) => text.clone(),
        weir_repo::Error::Missing(oid) => format!("object {oid} is missing here"),
        _ => "the repository cannot be read; its keeper finds the reason in the log".to_owned(),
    }
}

/// Wraps what is written and gives it out in chunks.
struct Framed<'a> {
    framing: Framing,
    buf: Vec<u8>,
    send: &'a mut dyn FnMut(Vec<u8>) -> io::Result<()>,
}

impl Framed<'_> {
    fn give(&mut self) -> io::Result<()> {
        if self.buf.is_empty() { Ok(()) } else { (self.send)(std::mem::take(&mut self.buf)) }
    }
}

impl Write for Framed<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let part = &data[..data.len().min(self.framing.payload_bytes_max().unwrap_or(CHUNK_BYTES))];
        self.framing.push(&mut self.buf, part);
        if self.buf.len() >= CHUNK_BYTES {
            self.give()?;
        }
        Ok(part.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
