//! Work that takes time: checking whether enough is in common, finding where history ends, and computing
//! packs.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weir_git::pktline::{push, push_delim, push_flush};
use weir_git::{HashKind, Oid, OidMap, OidSet, plain_sha};
use weir_repo::{
    BodyBundle, Cut, Deepen, Filter, PackPlan, Query, Repo, Result, StoredClone, WrittenPack, deepen, select,
};
use weir_repo::{Budget, all_wants_meet, are_reachable, reachable_among};

use crate::advertise::{Give, LsRefs, ls_refs, refs_v0};
use crate::band::Framing;
use crate::fetch_arguments::{FetchArguments, Sections, push_cut};
use crate::options::{Context, UploadOptions};
use crate::policy::WantPolicy;

/// The commits that are examined to find out whether wants and haves meet; beyond that, the client is asked
/// for more haves.
const MEETING_COMMITS_MAX: usize = 20_000;
/// The bytes that are gathered before they are sent.
const CHUNK_BYTES: usize = 64 << 10;
/// A list of more refs is larger than what may be queued for a client without a thread.
const LONG_LIST_REFS: usize = 5_000;

/// Work to run where blocking is allowed.
pub enum Work {
    /// Check whether enough is in common, and if so make a pack.
    Negotiate(Box<Negotiation>),
    /// Make a pack.
    Pack(Box<PackRequest>),
    /// Check whether enough is in common (v0 and v1, where haves are answered one by one).
    Meet(Box<Meeting>),
    /// Find where history ends (v0 and v1, where that is sent before the haves).
    Cut(Box<CutWork>),
    /// List refs, if there are many.
    Refs(RefsRequest),
    /// Answer with the sizes of objects.
    ObjectInfo(ObjectInfo),
    /// Answer with the URIs of bundles.
    Bundles(BundlesRequest),
    /// Compute the checksum of a pack that was sent as stored bodies.
    Trailer(TrailerRequest),
}

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
    /// It failed for this reason. The client was told what concerns it, or has gone.
    Failed(String),
}

/// A negotiation: the pack request with the common haves, and their acknowledgments.
pub struct Negotiation {
    pub(crate) request: PackRequest,
    pub(crate) acknowledged: Vec<u8>,
}

/// The wants and the common haves.
pub struct Meeting {
    pub(crate) repo: Arc<Repo>,
    pub(crate) wants: Vec<Oid>,
    pub(crate) common: Vec<Oid>,
    pub(crate) steps_max: u64,
}

/// The end of a pack whose stored bodies were sent.
pub struct TrailerRequest {
    pub(crate) repo: Arc<Repo>,
    pub(crate) clone: StoredClone,
    pub(crate) framing: Framing,
    pub(crate) after: Vec<u8>,
}

/// The depth requested in v0.
pub struct CutWork {
    pub(crate) repo: Arc<Repo>,
    pub(crate) wants: Vec<Oid>,
    pub(crate) shallow: Vec<Oid>,
    pub(crate) deepen: Deepen,
    pub(crate) steps_max: u64,
}

/// A request for refs.
pub struct RefsRequest {
    pub(crate) repo: Arc<Repo>,
    pub(crate) list: RefsList,
}

/// The form of the list.
pub(crate) enum RefsList {
    /// The advertisement of v0; with `announce`, of v1.
    Early { options: Arc<UploadOptions>, announce: bool },
    /// The answer to `ls-refs`.
    Asked(LsRefs),
}

/// A request for information on objects.
pub struct ObjectInfo {
    pub(crate) repo: Arc<Repo>,
    pub(crate) wants: WantPolicy,
    pub(crate) size: bool,
    /// In the order of the request, with repetitions.
    pub(crate) oids: Vec<Oid>,
    pub(crate) steps_max: u64,
}

/// A request for bundles.
pub struct BundlesRequest {
    pub(crate) repo: Arc<Repo>,
    /// Their folder, relative to the repository's URL.
    pub(crate) folder: String,
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
    pub(crate) common: Vec<Oid>,
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

impl Work {
    /// Runs the work. `send` gets the bytes for the client, and may fail when the client has gone. The work
    /// stops soon after `cancelled` is set.
    pub fn run(self, send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>, cancelled: &AtomicBool) -> WorkOutcome {
        match self {
            Work::Pack(request) => request.run(Vec::new(), send, cancelled),
            Work::Trailer(TrailerRequest { repo, clone, framing, after }) => {
                let mut out = Vec::new();
                framing.push(&mut out, clone.trailer(&repo).as_bytes());
                out.extend_from_slice(&after);
                sent(send(out))
            }
            Work::Cut(work) => {
                let CutWork { repo, wants, shallow, deepen: asked, steps_max } = *work;
                match deepen(
                    &repo,
                    &wants,
                    &shallow,
                    &asked,
                    Budget { steps_max, cancelled: Some(cancelled) },
                ) {
                    Ok(cut) => {
                        let mut out = Vec::new();
                        push_cut(&mut out, &cut);
                        push_flush(&mut out);
                        WorkOutcome::Cut(out, cut)
                    }
                    Err(e) => fail(&e, send),
                }
            }
            Work::Bundles(request) => WorkOutcome::GoOn(request.answer()),
            Work::Refs(request) => sent(request.write(send)),
            Work::Meet(meeting) => {
                let Meeting { repo, wants, common, steps_max } = *meeting;
                let budget = Budget { steps_max, cancelled: Some(cancelled) };
                // If this fails, the answer is no: the client then sends more haves, or `done`.
                let (meet, looked_at) =
                    wants_meet(&repo, &wants, &common, budget).unwrap_or((false, MEETING_COMMITS_MAX));
                WorkOutcome::Met(meet, looked_at)
            }
            Work::ObjectInfo(info) => match info.answer(cancelled) {
                Ok(out) => WorkOutcome::GoOn(out),
                Err(e) => fail(&e, send),
            },
            Work::Negotiate(negotiation) => {
                let Negotiation { request, acknowledged: mut out } = *negotiation;
                let sections = request.sections.clone().unwrap_or_default();
                let budget = Budget { steps_max: request.steps_max, cancelled: Some(cancelled) };
                let (meet, _) =
                    wants_meet(&request.repo, &request.wants, &request.common, budget).unwrap_or_default();
                if !meet {
                    push_flush(&mut out);
                    return WorkOutcome::GoOn(sections.banded(out));
                }
                push(&mut out, b"ready\n");
                push_delim(&mut out);
                request.run(sections.banded(out), send, cancelled)
            }
        }
    }

    /// Returns the packet to send while a pack is being made and nothing else is sent; `None` if that is not
    /// allowed.
    pub fn keepalive(&self) -> Option<Keepalive> {
        let (bytes, after_first) = match self {
            Work::Pack(request) => (request.framing.keepalive()?, request.sections.is_some()),
            Work::Negotiate(negotiation) => (negotiation.request.framing.keepalive()?, true),
            Work::Trailer(request) => (request.framing.keepalive()?, false),
            Work::Cut(_) | Work::Meet(_) | Work::Refs(_) | Work::ObjectInfo(_) | Work::Bundles(_) => {
                return None;
            }
        };
        Some(Keepalive { bytes, after_first })
    }

    /// Returns a key that is equal for two requests only if their answers have the same bytes; `None` for
    /// answers that are not worth sharing.
    pub fn key(&self) -> Option<[u8; 32]> {
        let (request, acknowledged) = match self {
            Work::Pack(request) => (&**request, &[][..]),
            Work::Negotiate(negotiation) => (&negotiation.request, negotiation.acknowledged.as_slice()),
            Work::Refs(request) => return request.key(),
            Work::Cut(_) | Work::Meet(_) | Work::ObjectInfo(_) | Work::Bundles(_) | Work::Trailer(_) => {
                return None;
            }
        };
        let PackRequest {
            repo,
            wants,
            common,
            thin,
            ofs_delta,
            include_tag,
            progress,
            framing,
            flush_after,
            steps_max,
            ..
        } = request;
        let PackRequest { policy, hidden_tips, filter, cut, sections, .. } = request;
        let mut sum = plain_sha(HashKind::Sha256);
        let flags = (
            repo.serial(),
            thin,
            ofs_delta,
            include_tag,
            progress,
            framing,
            flush_after,
            steps_max,
            policy,
            hidden_tips,
        );
        // Each part has its length, so that it cannot be taken for a part of another.
        let mut add = |bytes: &[u8]| {
            sum.update(&(bytes.len() as u64).to_be_bytes());
            sum.update(bytes);
        };
        add(format!("{flags:?} {filter:?} {cut:?} {sections:?}").as_bytes());
        add(acknowledged);
        for list in [wants, common] {
            add(&list.iter().flat_map(|oid| oid.as_bytes()).copied().collect::<Vec<u8>>());
        }
        sum.finish().as_bytes().try_into().ok()
    }

    /// Returns the message to the client if the work is refused for the reason `why`.
    pub fn refusal(&self, why: &str) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            // Before v2, the client cannot tell that the pack has not begun.
            Work::Pack(request) if request.sections.is_none() => {
                request.framing.push_message(&mut out, 3, &format!("{why}\n"))
            }
            _ => push(&mut out, format!("ERR {why}").as_bytes()),
        }
        out
    }

    /// Returns whether it lists so many refs that it may have to wait for its client.
    pub fn is_long_list(&self) -> bool {
        matches!(self, Work::Refs(request) if request.repo.refs().list().len() > LONG_LIST_REFS)
    }

    /// Returns whether it may take long.
    pub fn is_heavy(&self) -> bool {
        !matches!(self, Work::Trailer(_) | Work::Refs(_))
    }
}

/// A packet without content.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    /// The packet.
    pub bytes: &'static [u8],
    /// Whether it may be sent only after some of the answer.
    pub after_first: bool,
}

/// Sends the client the reason why it gets no answer.
fn fail(e: &weir_repo::Error, send: &mut dyn FnMut(Vec<u8>) -> io::Result<()>) -> WorkOutcome {
    let mut out = Vec::new();
    push(&mut out, format!("ERR {}", public(e)).as_bytes());
    let _ = send(out);
    WorkOutcome::Failed(e.to_string())
}

fn sent(result: io::Result<()>) -> WorkOutcome {
    match result {
        Ok(()) => WorkOutcome::Sent,
        Err(e) => WorkOutcome::Failed(format!("the client is gone: {e}")),
    }
}

/// Returns whether every want has a common object among its ancestors, and the number of commits examined.
fn wants_meet(repo: &Repo, wants: &[Oid], common: &[Oid], budget: Budget<'_>) -> Result<(bool, usize)> {
    all_wants_meet(repo.history(), wants, common, MEETING_COMMITS_MAX, budget)
}

impl RefsRequest {
    /// Lists the refs, in pieces.
    pub(crate) fn write(&self, give: &mut Give<'_>) -> io::Result<()> {
        match &self.list {
            RefsList::Early { options, announce } => refs_v0(&self.repo, options, *announce, give),
            RefsList::Asked(asked) => ls_refs(&self.repo, asked, give),
        }
    }

    fn key(&self) -> Option<[u8; 32]> {
        let asked = match &self.list {
            RefsList::Early { options, announce } => {
                format!("{announce} {} {:?}", options.agent, options.features)
            }
            RefsList::Asked(asked) => format!("{asked:?}"),
        };
        let mut sum = plain_sha(HashKind::Sha256);
        sum.update(format!("refs {:?} {asked}", self.repo.serial()).as_bytes());
        sum.finish().as_bytes().try_into().ok()
    }
}

impl BundlesRequest {
    /// Returns the bundles of a clone (gitprotocol-v2, "bundle-uri"): one of everything if its checksum is
    /// known, otherwise one for each body.
    fn answer(&self) -> Vec<u8> {
        let BundlesRequest { repo, folder } = self;
        let wants = repo.refs().head_and_tag_tips().collect();
        let trailer = repo.whole_clone(&wants).and_then(|clone| clone.known_trailer(repo));
        let mut lines = Vec::new();
        match trailer {
            Some(trailer) => lines.push(format!("bundle.clone.uri={folder}/clone-{trailer}.bundle")),
            // Without bundles the client still gets its clone: it is sent from the same bodies.
            None => {
                for BodyBundle { name, token, .. } in repo.body_bundles().unwrap_or_default() {
                    lines.push(format!("bundle.body-{name}.uri={folder}/body-{name}.bundle"));
                    // The key in lower case, as git prints its configuration: git looks for no other.
                    lines.push(format!("bundle.body-{name}.creationtoken={token}"));
                }
            }
        }
        let head = match (&*lines, trailer) {
            ([], _) => &[][..],
            (_, Some(_)) => &["bundle.version=1", "bundle.mode=all"],
            (_, None) => &["bundle.version=1", "bundle.mode=all", "bundle.heuristic=creationToken"],
        };
        let mut out = Vec::new();
        for line in head.iter().copied().chain(lines.iter().map(String::as_str)) {
            push(&mut out, line.as_bytes());
        }
        push_flush(&mut out);
        out
    }
}

impl ObjectInfo {
    fn answer(&self, cancelled: &AtomicBool) -> Result<Vec<u8>> {
        let mut reader = self.repo.reader();
        let mut out = Vec::new();
        if self.size {
            push(&mut out, b"size");
        }
        let budget = Budget { steps_max: self.steps_max, cancelled: Some(cancelled) };
        let visible = match self.wants {
            WantPolicy::Any => None,
            _ if !self.size => None,
            _ => Some(reachable_among(&self.repo, &self.oids, budget)?),
        };
        let mut sizes: OidMap<Option<u64>> = OidMap::default();
        for oid in &self.oids {
            if !self.size {
                push(&mut out, oid.to_string().as_bytes());
                continue;
            }
            let size = match sizes.get(oid) {
                Some(size) => *size,
                None => {
                    let is_visible = visible.as_ref().is_none_or(|visible| visible.contains(oid));
                    let size =
                        if is_visible { reader.kind_and_size(oid)?.map(|(_, size)| size) } else { None };
                    sizes.insert(*oid, size);
                    size
                }
            };
            let size = size.map_or_else(String::new, |size| size.to_string());
            push(&mut out, format!("{oid} {size}").as_bytes());
        }
        push_flush(&mut out);
        Ok(out)
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
        PackRequest {
            repo: context.repo.clone(),
            wants: asked.wants,
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
    fn run(
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
        let mut out = Framed { framing: self.framing, buf: Vec::new(), send };
        match self.make(cut.as_ref(), budget, &mut out) {
            Ok(()) => {
                if self.flush_after {
                    out.buf.extend_from_slice(b"0000");
                }
                sent(out.give())
            }
            Err(e) => {
                let _ = out.give();
                self.fail_in_band(&self.cause(e), send)
            }
        }
    }

    /// Returns the cause of `e`: an unreadable file can look like many other errors.
    fn cause(&self, e: weir_repo::Error) -> weir_repo::Error {
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
        Err(weir_repo::Error::NotFound(format!("upload-pack: not our ref {first}")))
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
fn public(e: &weir_repo::Error) -> String {
    match e {
        weir_repo::Error::NotFound(text) | weir_repo::Error::Unsupported(text) => text.clone(),
        weir_repo::Error::Missing(oid) => format!("object {oid} is missing here"),
        _ => UNREADABLE.to_owned(),
    }
}

/// A writer that frames what is written and sends it in chunks.
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
    /// Fails if no client waits for the answer any more.
    fn flush(&mut self) -> io::Result<()> {
        (self.send)(Vec::new())
    }
}
