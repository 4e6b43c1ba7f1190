//! A request for a pack, and how it is answered.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weir_git::pktline::push;
use weir_git::{Oid, OidSet};
use weir_repo::{
    Budget, Cut, Deepen, Filter, PackPlan, Query, Repo, Result, WrittenPack, are_reachable, deepen,
    reachable_among, select,
};

use crate::band::Framing;
use crate::fetch_arguments::{FetchArguments, Sections};
use crate::options::{Context, NOT_OUR_REF};
use crate::policy::WantPolicy;

/// A flush packet.
const FLUSH: &[u8] = b"0000";
/// The bytes that are gathered before they are sent.
const CHUNK_BYTES: usize = 64 << 10;

/// The result of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// The answer was sent in full.
    Sent,
    /// Nothing was sent: send these bytes and continue.
    GoOn(Vec<u8>),
    /// Nothing was sent: send these bytes and continue, with history ending at the cut.
    Cut(Vec<u8>, Cut),
    /// Nothing was sent: whether enough is in common, and the number of commits examined.
    Met(bool, usize),
    /// Nothing was sent: whether refs reach the have.
    Shown(bool),
    /// Nothing was sent: no answer can be made of what was asked for. The client may know the reason.
    Refused(String),
    /// It failed for this reason. The client was told what concerns it, or has gone.
    Failed(String),
}

/// The end of history for an answer.
#[derive(Debug)]
pub(crate) enum CutRequest {
    /// The end of the repository's own history.
    None,
    /// A known cut.
    Known(Cut),
    /// To be computed from the client's shallow commits and the requested depth.
    FetchArguments(Vec<Oid>, Deepen),
}

/// A request for a pack.
pub struct PackRequest {
    pub(crate) repo: Arc<Repo>,
    pub(crate) wants: Vec<Oid>,
    /// Haves that are here.
    pub(crate) common: Vec<Oid>,
    /// Whether some of them may be told to nobody, because refs may not reach them.
    pub(crate) has_doubtful: bool,
    pub(crate) thin: bool,
    pub(crate) ofs_delta: bool,
    pub(crate) include_tag: bool,
    pub(crate) progress: bool,
    pub(crate) framing: Framing,
    pub(crate) flush_after: bool,
    pub(crate) steps_max: u64,
    pub(crate) policy: WantPolicy,
    pub(crate) hidden_tips: bool,
    pub(crate) filter: Option<Filter>,
    pub(crate) cut: CutRequest,
    /// The sections before the pack, in v2.
    pub(crate) sections: Option<Sections>,
}

/// Sends the client the reason why it gets no answer.
pub(crate) fn fail(e: &weir_repo::Error, send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>) -> WorkOutcome {
    let mut out = Vec::new();
    push(&mut out, format!("ERR {}", public(e)).as_bytes());
    let _ = send(out);
    WorkOutcome::Failed(e.to_string())
}

pub(crate) fn sent(result: io::Result<()>) -> WorkOutcome {
    match result {
        Ok(()) => WorkOutcome::Sent,
        Err(e) => WorkOutcome::Failed(format!("the client is gone: {e}")),
    }
}

impl PackRequest {
    pub(crate) fn new(
        context: &Context,
        asked: FetchArguments,
        common: Vec<Oid>,
        framing: Framing,
        sections: Option<Sections>,
    ) -> PackRequest {
        let cut = if asked.deepen.is_asked() || !context.repo.history().shallow().is_empty() {
            CutRequest::FetchArguments(asked.shallow, asked.deepen)
        } else if asked.shallow.is_empty() {
            CutRequest::None
        } else {
            CutRequest::Known(Cut { commits: asked.shallow.into_iter().collect(), ..Cut::default() })
        };
        let may_be_removed = |have| context.repo.may_be_removed(have);
        PackRequest {
            repo: context.repo.clone(),
            wants: asked.wants,
            has_doubtful: sections.is_some() && common.iter().any(may_be_removed),
            common,
            // A client with a filter may lack the base of a delta.
            thin: asked.thin && asked.filter.is_none(),
            ofs_delta: asked.ofs_delta,
            include_tag: asked.include_tag,
            progress: !asked.no_progress,
            framing,
            flush_after: framing != Framing::Raw,
            steps_max: context.options.limits.steps_max,
            policy: context.options.features.wants,
            hidden_tips: context.options.features.hidden_tips,
            filter: asked.filter,
            cut,
            sections,
        }
    }

    /// Runs the request. `before` is sent together with the sections: a packet between the two would be taken
    /// for a section.
    pub(crate) fn run(
        mut self,
        mut before: Vec<u8>,
        send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
        cancelled: &AtomicBool,
    ) -> WorkOutcome {
        let budget = Budget { steps_max: self.steps_max, cancelled: Some(cancelled) };
        let filter = |this: &mut Self| {
            this.filter.as_mut().map_or(Ok(()), |filter| filter.resolve(&this.repo, budget))
        };
        let cut = match self
            .check_wants(budget)
            .and_then(|()| self.drop_removed(budget))
            .and_then(|()| filter(&mut self))
            .and_then(|()| self.work_out_cut(budget))
        {
            Ok(cut) => cut,
            // Nothing was sent yet, so the error may be a plain packet. Before v2, the client cannot tell
            // that the pack has not begun.
            Err(e) if self.sections.is_some() => return fail(&self.cause(e), send),
            Err(e) => return self.fail_in_band(&self.cause(e), send),
        };
        if let Some(sections) = &self.sections {
            before.extend_from_slice(&sections.write(cut.as_ref()));
            if let Err(e) = send(before) {
                return sent(Err(e));
            }
        }
        let mut out = Framed::new(self.framing, send);
        match self.make(cut.as_ref(), budget, &mut out) {
            Ok(()) if self.flush_after => sent(out.end()),
            Ok(()) => sent(out.give()),
            Err(e) => {
                let _ = out.give();
                self.fail_in_band(&self.cause(e), send)
            }
        }
    }

    /// Returns the cause of `e`: an unreadable file can look like many other errors.
    pub(crate) fn cause(&self, e: weir_repo::Error) -> weir_repo::Error {
        self.repo.check_reads().err().unwrap_or(e)
    }

    fn fail_in_band(
        &self,
        e: &weir_repo::Error,
        send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    ) -> WorkOutcome {
        let mut out = Vec::new();
        // Only our own words and ids: no content or path of the repository.
        self.framing.push_message(&mut out, 3, &format!("{}\n", public(e)));
        let _ = send(out);
        WorkOutcome::Failed(e.to_string())
    }

    /// Checks that the wants are refs or, if the policy allows it, reachable from refs.
    fn check_wants(&self, budget: Budget<'_>) -> Result<()> {
        if self.policy == WantPolicy::Any {
            return Ok(());
        }
        let tips: OidSet =
            self.repo.refs().tips().chain(self.repo.refs().list().iter().filter_map(|r| r.peeled)).collect();
        let hidden: &[Oid] = if self.hidden_tips { self.repo.hidden_tips() } else { &[] };
        let mut others: Vec<Oid> =
            self.wants.iter().filter(|w| !tips.contains(w) && !hidden.contains(w)).copied().collect();
        others.sort_unstable();
        others.dedup();
        let Some(first) = others.first() else { return Ok(()) };
        if self.policy == WantPolicy::Reachable && are_reachable(&self.repo, &others, budget)? {
            return Ok(());
        }
        Err(weir_repo::Error::NotFound(format!("{NOT_OUR_REF} {first}")))
    }

    /// Takes haves that refs do not reach for absent: that they are here is nobody's business.
    pub(crate) fn drop_removed(&mut self, budget: Budget<'_>) -> Result<()> {
        if std::mem::take(&mut self.has_doubtful) {
            let shown = reachable_among(&self.repo, &self.common, budget)?;
            self.common.retain(|have| shown.contains(have));
        }
        Ok(())
    }

    /// Returns the section "acknowledgments" of v2, without its end.
    pub(crate) fn acknowledgments(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, b"acknowledgments\n");
        if self.common.is_empty() {
            push(&mut out, b"NAK\n");
        }
        self.common.iter().for_each(|have| push(&mut out, format!("ACK {have}\n").as_bytes()));
        out
    }

    fn work_out_cut(&mut self, budget: Budget<'_>) -> Result<Option<Cut>> {
        match std::mem::replace(&mut self.cut, CutRequest::None) {
            CutRequest::None => Ok(None),
            CutRequest::Known(cut) => Ok(Some(cut)),
            CutRequest::FetchArguments(shallow, asked) => {
                deepen(&self.repo, &self.wants, &shallow, &asked, budget).map(Some)
            }
        }
    }

    fn make(&self, cut: Option<&Cut>, budget: Budget<'_>, out: &mut Framed<'_>) -> Result<()> {
        let query =
            Query { wants: &self.wants, haves: &self.common, cut, filter: self.filter.as_ref(), budget };
        let mut selection = select(self.repo.history(), &query)?;
        self.repo.check_reads()?;
        if self.include_tag {
            let tags = self.repo.refs().list().iter().filter_map(|r| Some((r.oid, r.peeled?)));
            selection.include_tags(self.repo.objects(), tags)?;
        }
        let plan = PackPlan::new(self.repo.history(), selection, self.thin, self.ofs_delta)?;
        if self.progress {
            out.framing.push_message(
                &mut out.buf,
                2,
                &format!("Enumerating objects: {}, done.\n", plan.count()),
            );
        }
        let written = plan.write(self.repo.history(), out)?;
        if self.progress {
            let WrittenPack { count, deltas, copied, copied_deltas } = written;
            let total = format!(
                "Total {count} (delta {deltas}), reused {copied} (delta {copied_deltas}), pack-reused 0\n"
            );
            out.framing.push_message(&mut out.buf, 2, &total);
        }
        Ok(())
    }
}

/// The message to a client if the repository is damaged. It reveals no content or path.
pub const UNREADABLE: &str = "the repository cannot be read; see the log of the server";

/// Returns the part of an error that a client is told.
pub(crate) fn public(e: &weir_repo::Error) -> String {
    match e {
        weir_repo::Error::NotFound(text) | weir_repo::Error::Unsupported(text) => text.clone(),
        weir_repo::Error::Missing(oid) => format!("object {oid} is missing here"),
        _ => UNREADABLE.to_owned(),
    }
}

/// A writer that frames what is written and sends it in chunks.
pub(crate) struct Framed<'a> {
    framing: Framing,
    buf: Vec<u8>,
    send: &'a mut dyn FnMut(Vec<u8>) -> io::Result<()>,
}

impl<'a> Framed<'a> {
    pub(crate) fn new(framing: Framing, send: &'a mut dyn FnMut(Vec<u8>) -> io::Result<()>) -> Framed<'a> {
        Framed { framing, buf: Vec::new(), send }
    }

    /// Sends what is left, and a flush packet.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.buf.extend_from_slice(FLUSH);
        self.give()
    }

    pub(crate) fn give(&mut self) -> io::Result<()> {
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
    /// Fails if no client waits for the answer any more.
    fn flush(&mut self) -> io::Result<()> {
        (self.send)(Vec::new())
    }
}
