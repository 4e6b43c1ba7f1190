//! Work of a session that may take long: it is run where blocking is allowed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weir_git::pktline::{push, push_delim, push_flush};
use weir_git::{HashKind, Oid, OidMap, plain_sha};
use weir_repo::{
    BodyBundle, Budget, Deepen, Repo, Result, StoredClone, all_wants_meet, are_reachable, deepen,
    reachable_among,
};

use crate::advertise::{Give, LsRefs, ls_refs, refs_v0};
use crate::archive_request::{self, ArchiveRequest};
use crate::band::Framing;
use crate::fetch_arguments::push_cut;
use crate::options::UploadOptions;
use crate::pack_request::{PackRequest, WorkOutcome, fail, sent};
use crate::policy::WantPolicy;

/// The commits that are examined to find out whether wants and haves meet; beyond that, the client is asked
/// for more haves.
const MEETING_COMMITS_MAX: usize = 20_000;
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
    /// Check whether refs reach a have (v0 and v1).
    Shown(Box<ShownRequest>),
    /// List refs, if there are many.
    Refs(RefsRequest),
    /// Answer with the sizes of objects.
    ObjectInfo(ObjectInfo),
    /// Answer with the URIs of bundles.
    Bundles(BundlesRequest),
    /// Make an archive of a tree.
    Archive(Box<ArchiveRequest>),
    /// Compute the checksum of a pack that was sent as stored bodies.
    Trailer(TrailerRequest),
}

/// A negotiation: the pack request with the haves that are here.
pub struct Negotiation {
    pub(crate) request: PackRequest,
    /// Whether the client wants no pack yet, however much is in common.
    pub(crate) wait_for_done: bool,
}

/// A have that is here, and that refs may not reach.
pub struct ShownRequest {
    pub(crate) repo: Arc<Repo>,
    pub(crate) have: Oid,
    pub(crate) steps_max: u64,
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
            Work::Archive(request) => request.run(send),
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
            Work::Shown(request) => {
                let ShownRequest { repo, have, steps_max } = *request;
                let budget = Budget { steps_max, cancelled: Some(cancelled) };
                // If this fails, the answer is no: the client then sends other haves.
                WorkOutcome::Shown(are_reachable(&repo, &[have], budget).unwrap_or(false))
            }
            Work::ObjectInfo(info) => match info.answer(cancelled) {
                Ok(out) => WorkOutcome::GoOn(out),
                Err(e) => fail(&e, send),
            },
            Work::Negotiate(negotiation) => {
                let Negotiation { mut request, wait_for_done } = *negotiation;
                let sections = request.sections.clone().unwrap_or_default();
                let budget = Budget { steps_max: request.steps_max, cancelled: Some(cancelled) };
                if let Err(e) = request.drop_removed(budget) {
                    return fail(&request.cause(e), send);
                }
                let mut out = request.acknowledgments();
                if request.common.is_empty() || wait_for_done {
                    push_flush(&mut out);
                    return WorkOutcome::GoOn(sections.banded(out));
                }
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
            Work::Archive(_) => (Framing::Large.keepalive()?, false),
            _ => return None,
        };
        Some(Keepalive { bytes, after_first })
    }

    /// Returns a key that is equal for two requests only if their answers have the same bytes; `None` for
    /// answers that are not worth sharing.
    pub fn key(&self) -> Option<[u8; 32]> {
        let (request, negotiation) = match self {
            Work::Pack(request) => (&**request, None),
            Work::Negotiate(negotiation) => (&negotiation.request, Some(negotiation.wait_for_done)),
            Work::Refs(request) => return request.key(),
            Work::Archive(request) => return request.key(),
            _ => return None,
        };
        let PackRequest { filter, cut, sections, wants, common, .. } = request;
        let mut sum = plain_sha(HashKind::Sha256);
        let flags = (
            request.repo.serial(),
            (request.thin, request.ofs_delta, request.include_tag, request.progress),
            (request.framing, request.flush_after),
            (request.steps_max, request.policy, request.hidden_tips),
        );
        // Each part has its length, so that it cannot be taken for a part of another.
        let mut add = |bytes: &[u8]| {
            sum.update(&(bytes.len() as u64).to_be_bytes());
            sum.update(bytes);
        };
        add(format!("{flags:?} {filter:?} {cut:?} {sections:?} {negotiation:?}").as_bytes());
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
            Work::Archive(_) => out = archive_request::failure(why),
            _ => push(&mut out, format!("ERR {why}").as_bytes()),
        }
        out
    }

    /// Returns whether the work lists more refs than are queued for a client, so that it may wait for one.
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
