//! Fetches what an upstream has and the archive lacks, and commits it, one class of refs after the other.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use weir_git::{HashKind, Oid, OidSet, commit_links, refname};
use weir_ground::thread::giving_way;
use weir_ground::{Epoch, FailureClass, Timestamp};
use weir_repo::HaveCommits;
use weir_repo::ingest::{IngestOptions, Ingested, ingest};
use weir_repo::{
    ArchiveRepo, ArrivingPack, NewState, Phase, Ref, RefClass, Refs, Repo, StateKind, UpdateReport,
};
use weir_transport::{FetchRequest, Negotiator, Session, Url};

use crate::arrivals::ListedArrival;
use crate::dumb;
use crate::failure::Failure;
use crate::options::VisitOptions;

/// An update of an archive.
pub(crate) struct IncomingUpdate<'a> {
    pub(crate) archive: &'a mut ArchiveRepo,
    pub(crate) session: &'a mut Session,
    pub(crate) url: &'a Url,
    pub(crate) options: &'a VisitOptions,
    /// Where the archive is, or will be.
    pub(crate) path: &'a Path,
    pub(crate) epoch: Epoch,
    pub(crate) now: Timestamp,
    pub(crate) arrival: &'a mut Arrival,
}

/// The repository that clients get while its first copy arrives.
#[derive(Default)]
pub(crate) struct Arrival {
    /// The repository, until its pack begins.
    awaited: Option<Repo>,
    /// Its entry in the list of arrivals, from then on until the update ends.
    listed: Option<ListedArrival>,
}

impl Arrival {
    /// Runs `work` on what has arrived. If clients have read the pack, they check it now: the work gives way
    /// to them, if they are on this machine.
    pub(crate) fn work_on<T: Send>(&self, name: &str, work: impl FnOnce() -> T + Send) -> T {
        let is_read = self.listed.as_ref().and_then(ListedArrival::pack).is_some_and(ArrivingPack::is_read);
        if is_read { giving_way(name, work) } else { work() }
    }
}

/// A pack to take in.
struct IncomingPack<'a> {
    hash: HashKind,
    base: Option<&'a Repo>,
    wants: &'a [Oid],
    /// The commits at which history ends.
    ended: OidSet,
    /// Tells clients how much of the pack is here.
    arriving: Option<&'a ArrivingPack>,
}

impl IncomingUpdate<'_> {
    /// Fetches heads and tags first, then the other refs. Each class becomes a pack and a commit, if it has
    /// new objects.
    pub(crate) fn run(mut self, refs: Refs) -> Result<UpdateReport, Failure> {
        let is_rest = |r: &&Ref| !refname::is_head_or_tag(&r.name);
        let has_rest = refs.list().iter().any(|r| is_rest(&r));
        let mut appended = 0;
        let mut added = 0;
        let mut add = |report: UpdateReport| {
            appended += report.bytes_appended;
            added += report.objects_added;
            UpdateReport { bytes_appended: appended, objects_added: added, ..report }
        };
        let wants = self.wants(RefClass::HeadsAndTags, refs.head_and_tag_tips())?;
        let rest_wants =
            |this: &mut Self| if has_rest { this.wants(RefClass::Rest, refs.tips()) } else { Ok(Vec::new()) };
        if wants.is_empty() {
            let rest = rest_wants(&mut self)?;
            return self.commit(RefClass::Rest, &rest, Cow::Owned(refs), false).map(add);
        }
        self.await_arrival(&refs, &wants)?;
        // The other refs stay as they were until their own pack is here.
        let kept: Vec<Ref> = match self.archive.repo()? {
            Some(old) => old.refs().list().iter().filter(is_rest).cloned().collect(),
            None => Vec::new(),
        };
        if !has_rest && kept.is_empty() {
            // The list is not copied: it may have a million refs.
            return self.commit(RefClass::HeadsAndTags, &wants, Cow::Owned(refs), false);
        }
        let heads = refs.list().iter().filter(|r| !is_rest(r)).cloned();
        let interim = Refs::new(heads.chain(kept).collect(), refs.head.clone());
        if interim == refs {
            return self.commit(RefClass::HeadsAndTags, &wants, Cow::Owned(refs), false);
        }
        add(self.commit(RefClass::HeadsAndTags, &wants, Cow::Owned(interim), true)?);
        let rest = rest_wants(&mut self)?;
        self.commit(RefClass::Rest, &rest, Cow::Owned(refs), false).map(add)
    }

    /// Prepares the repository that clients get while its first copy arrives.
    fn await_arrival(&mut self, refs: &Refs, wants: &[Oid]) -> Result<(), Failure> {
        if self.options.arrivals.is_watched() && self.archive.base_for(RefClass::Rest)?.is_none() {
            let pack = ArrivingPack::new(wants.iter().copied().collect());
            let repo = Repo::arriving(self.path, self.session.hash(), refs.clone(), pack);
            self.arrival.awaited = Some(repo);
        }
        Ok(())
    }

    /// Returns the tips that are not here yet.
    fn wants(&mut self, class: RefClass, tips: impl Iterator<Item = Oid>) -> Result<Vec<Oid>, Failure> {
        let base = self.archive.base_for(class)?;
        let mut wants: Vec<Oid> = tips.filter(|t| !base.as_ref().is_some_and(|b| b.has(t))).collect();
        wants.sort_unstable();
        wants.dedup();
        Ok(wants)
    }

    fn commit(
        &mut self,
        class: RefClass,
        wants: &[Oid],
        refs: Cow<'_, Refs>,
        is_partial: bool,
    ) -> Result<UpdateReport, Failure> {
        let (added, shallow) = if wants.is_empty() {
            let shallow = self.archive.repo()?.map(|r| r.history().shallow().to_vec()).unwrap_or_default();
            (None, shallow)
        } else {
            self.fetch(class, wants)?
        };
        self.options.progress.begin(Phase::Writing, 0);
        let kind = if is_partial { StateKind::Partial } else { StateKind::Mirrored };
        let now = NewState { refs, shallow: &shallow, time: self.now, epoch: self.epoch, kind };
        let archive = &mut *self.archive;
        Ok(self.arrival.work_on("commit", move || archive.commit(added.map(|a| (class, a)), now))?)
    }

    /// Fetches the objects that `wants` reach and the archive lacks. Returns them, and the commits at which
    /// history ends then.
    fn fetch(&mut self, class: RefClass, wants: &[Oid]) -> Result<(Option<Ingested>, Vec<Oid>), Failure> {
        let base = self.archive.base_for(class)?;
        let ended: OidSet = base.iter().flat_map(|b| b.history().shallow().iter().copied()).collect();
        if let Some(files) = self.session.plain_files() {
            let (hash, store) = (self.session.hash(), folder_of(self.path));
            let mut pack = dumb::fetch(files, hash, wants, base.as_ref(), self.options, store)?;
            let incoming = IncomingPack { hash, base: base.as_ref(), wants, ended, arriving: None };
            return take_in(&mut pack, incoming, self.options, store);
        }
        self.options.progress.begin(Phase::Asking, 0);
        self.open_again_if_used_up()?;
        let is_second = self.session.has_fetched();
        match self.fetch_pack(class, wants, base.as_ref(), ended.clone()) {
            // JGit answers a second fetch on one connection as if only the common commits of the first one
            // existed.
            Err(failure) if failure.class == FailureClass::Incomplete && is_second => {
                tracing::debug!("asking again on a connection of its own: {failure}");
                *self.session = Session::open(self.url, &self.options.transport)?;
                self.fetch_pack(class, wants, base.as_ref(), ended)
            }
            result => result,
        }
    }

    /// Fetches the objects that `wants` reach and `base` lacks, where history ends at `ended`.
    fn fetch_pack(
        &mut self,
        class: RefClass,
        wants: &[Oid],
        base: Option<&Repo>,
        mut ended: OidSet,
    ) -> Result<(Option<Ingested>, Vec<Oid>), Failure> {
        let store = folder_of(self.path);
        let mut haves = Haves::new(base, class)?;
        // Messages of progress are requested even if nobody sees them: some servers send no keepalives, and
        // would be silent while they make the pack.
        let mut said = |text: &str| self.options.progress.say(text);
        let progress = Some(&mut said as &mut dyn FnMut(&str));
        let mut pack = self.session.fetch(FetchRequest { wants, negotiator: &mut haves, progress })?;
        let goes_on = !ended.is_empty() && !pack.shallow.iter().any(|oid| ended.contains(oid));
        if !goes_on {
            let mut arriving = None;
            // Clients would have to be told where the history of a shallow upstream ends.
            if let Some(repo) = self.arrival.awaited.take().filter(|_| pack.shallow.is_empty()) {
                let listed = self.options.arrivals.begin(Arc::new(repo));
                arriving = self.arrival.listed.insert(listed).pack();
            }
            ended.extend(pack.shallow.iter().copied());
            let incoming = IncomingPack { hash: pack.hash(), base, wants, ended, arriving };
            return take_in(&mut pack, incoming, self.options, store);
        }
        // History that ended here continues at the upstream by now. It would take our commits for complete,
        // so everything is requested.
        drop(pack);
        *self.session = Session::open(self.url, &self.options.transport)?;
        let mut nothing = Haves::new(None, class)?;
        let mut said = |text: &str| self.options.progress.say(text);
        let progress = Some(&mut said as &mut dyn FnMut(&str));
        let mut pack = self.session.fetch(FetchRequest { wants, negotiator: &mut nothing, progress })?;
        let ends = pack.shallow.iter().copied().collect();
        let incoming = IncomingPack { hash: pack.hash(), base, wants, ended: ends, arriving: None };
        let (added, mut shallow) = take_in(&mut pack, incoming, self.options, store)?;
        // Some of the old ends may have vanished there, with their ancestors.
        if let Some(base) = base {
            let is_here = |oid: &Oid| {
                base.contains(oid) || added.as_ref().is_some_and(|a| a.objects.get(oid).is_some())
            };
            for oid in ended {
                // The parents that the commit names: weir's history, which ends here, has none.
                let object = base.reader().require(&oid)?;
                let links = commit_links(base.hash(), &object.data);
                let parents = links.map_err(|source| weir_repo::Error::Object { oid, source })?.parents;
                if !parents.iter().all(is_here) {
                    shallow.push(oid);
                }
            }
            shallow.sort_unstable();
            shallow.dedup();
        }
        Ok((added, shallow))
    }

    fn open_again_if_used_up(&mut self) -> Result<(), Failure> {
        if !self.session.can_fetch() {
            // v0 and v1 send one pack per connection.
            *self.session = Session::open(self.url, &self.options.transport)?;
        }
        Ok(())
    }
}

/// Returns the folder of the archive at `path`, for packs that do not fit the scratch folder.
fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Ingests `pack`. Returns it, and the commits at which history ends.
fn take_in(
    pack: &mut dyn Read,
    incoming: IncomingPack<'_>,
    options: &VisitOptions,
    store: &Path,
) -> Result<(Option<Ingested>, Vec<Oid>), Failure> {
    let IncomingPack { hash, base, wants, ended, arriving } = incoming;
    let how = IngestOptions {
        hash,
        limits: options.limits,
        threads: options.threads,
        base,
        wanted: wants,
        shallow: &ended,
        lost: &OidSet::default(),
        delta_bytes_max: options.delta_bytes_max,
        progress: &options.progress,
        arriving,
    };
    let spill = |bytes| options.scratch.place(bytes, store);
    let added = ingest(pack, &spill, &how)?;
    let mut shallow: Vec<Oid> = ended.into_iter().collect();
    shallow.sort_unstable();
    Ok((added, shallow))
}

/// Offers the commits that are here: all tips first, then their ancestors.
struct Haves<'r> {
    tips: Vec<Oid>,
    behind: Option<HaveCommits<'r>>,
    repo: Option<&'r Repo>,
}

impl<'r> Haves<'r> {
    fn new(repo: Option<&'r Repo>, class: RefClass) -> Result<Haves<'r>, Failure> {
        let tips: Vec<Oid> = match repo {
            None => Vec::new(),
            Some(r) => {
                let tips: OidSet = match class {
                    RefClass::HeadsAndTags => r.refs().head_and_tag_tips().collect(),
                    _ => r.refs().tips().collect(),
                };
                // The tips of the base, too: a fork has most of its history from there.
                let of_base = r.base().into_iter().flat_map(|base| base.refs().head_and_tag_tips());
                let tips: OidSet = tips.into_iter().chain(of_base).filter(|t| r.has(t)).collect();
                tips.into_iter().collect()
            }
        };
        Ok(Haves { tips, behind: None, repo })
    }
}

impl Negotiator for Haves<'_> {
    fn next_haves(&mut self, max: usize) -> Vec<Oid> {
        let Some(repo) = self.repo else { return Vec::new() };
        if self.behind.is_none() {
            // The newest commits are the most useful, and an upstream walks back as far as the oldest commit
            // it was told. Of many thousand refs the first ones suffice: the walk behind them finds the
            // others.
            self.behind = HaveCommits::new(repo.history(), std::mem::take(&mut self.tips)).ok();
            let batch: Vec<Oid> = self.behind.as_ref().map_or_else(Vec::new, |behind| behind.tips(max));
            if !batch.is_empty() {
                return batch;
            }
        }
        // Commits that cannot be read are not offered: the fetch is then larger, nothing else.
        self.behind.as_mut().and_then(|b| b.next_batch(max).ok()).unwrap_or_default()
    }
}
