//! Creating and updating an archive of a repository: one commit group an update.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_archive::{Archive, Commit, Group, LockedFile, Replacement, State, Takes, Writer};
use weir_git::{HashKind, Kind, Oid, OidMap};
use weir_ground::{Epoch, Timestamp};

use crate::error::{Error, Result};
use crate::ingest::Ingested;
use crate::objects::reader::TAGS_OF_TAGS_MAX;
use crate::refs::list::Refs;
use crate::refs::state_kind::StateKind;
use crate::refs::states::HISTORY_MEMBER;
use crate::repo::bodies::{ALL_KEY, Body, HEADS_KEY, RefClass, WholeClone, parse_whole};
use crate::repo::keys::{ALTERNATES, BASE_KEY, DELTAS_KEY, EPOCH_KEY, ID_KEY, SHORT_DELTAS, UNFINISHED_KEY};
use crate::repo::lost::LOST_KEY;
use crate::repo::origin::{FORGE_KEY, Origin, URL_KEY};
use crate::repo::repository::Repo;
use crate::update::exact::{Addition, still_exact};
use crate::update::link::{Link, new_id};
use crate::update::members::{
    append_pack, config_file, replace_if_changed, set_kind, set_refs, set_whole, unset,
};

/// The first version of the archive whose tags were peeled by weir itself.
const PEELED_SINCE_VERSION: u32 = 2;

/// An archive that is being created or updated, and is locked.
pub struct ArchiveRepo {
    path: PathBuf,
    writer: Writer<LockedFile>,
    /// The file under its temporary name, until it gets its own name.
    unnamed: Option<Replacement>,
    /// Whether the first commit gives the file its name.
    persists_at_once: bool,
    /// Whether the caller makes that name durable.
    syncs_name_later: bool,
    /// The repository as last committed, once it was asked for.
    repo: Option<Arc<Repo>>,
    /// The base that the first commit names.
    base: Option<(Arc<Repo>, Link)>,
    /// Attributes that the first commit sets: the id, and what is taken over from an older archive.
    first: BTreeMap<String, String>,
    /// The origin of the copy; the next update records it.
    origin: Option<Origin>,
    hash: HashKind,
}

/// The refs that a commit records.
#[derive(Clone, Debug)]
pub struct NewState<'a> {
    /// All refs.
    pub refs: Cow<'a, Refs>,
    /// Commits at which history ends.
    pub shallow: &'a [Oid],
    /// Seconds since 1970.
    pub time: Timestamp,
    /// The number of the lease under which the commit is written, 0 for none.
    pub epoch: Epoch,
    /// How the refs came to be.
    pub kind: StateKind,
}

/// The records of a rewritten archive about all of its bodies, and its refs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WholeClones {
    /// The bodies of class [`RefClass::HeadsAndTags`].
    pub(crate) heads: Option<WholeClone>,
    /// The bodies of that class and of class [`RefClass::Rest`].
    pub(crate) all: Option<WholeClone>,
    /// How the refs came to be.
    pub(crate) kind: StateKind,
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateReport {
    /// Number of the commit.
    pub seq: u64,
    /// Bytes appended.
    pub bytes_appended: u64,
    /// Length of the archive now.
    pub archive_bytes: u64,
    /// Objects added.
    pub objects_added: u32,
}

impl ArchiveRepo {
    /// Creates an archive at `path`, which gets its name at the first commit.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path, hash: HashKind, first_seq: u64) -> Result<ArchiveRepo> {
        let replacement = Replacement::create(path)?;
        let writer = Writer::create(LockedFile(replacement.file()?), first_seq)?;
        Ok(ArchiveRepo {
            path: path.to_owned(),
            writer,
            unnamed: Some(replacement),
            persists_at_once: true,
            syncs_name_later: false,
            repo: None,
            base: None,
            first: BTreeMap::from([
                (ID_KEY.to_owned(), new_id()),
                (DELTAS_KEY.to_owned(), SHORT_DELTAS.to_owned()),
            ]),
            origin: None,
            hash,
        })
    }

    /// Lets a new archive build on `base`, before its first commit: objects of `base` are not stored again.
    ///
    /// # Errors
    /// If the archive cannot build on `base`.
    pub fn build_on(&mut self, base: &Arc<Repo>) -> Result<()> {
        if base.hash() != self.hash {
            return Err(Error::Unsupported(format!("'{}' has another object format", base.path().display())));
        }
        self.base = Some((base.clone(), Link::new(&self.path, base)?));
        Ok(())
    }

    /// Lets a new archive take over the identity of `old`, whose place it takes. Everything that `old` holds
    /// is in it, or will be.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn goes_on_as(&mut self, old: &Repo, time: Timestamp) -> Result<()> {
        let Some(archive) = old.archive() else { return Ok(()) };
        let kept = [ID_KEY, LOST_KEY, EPOCH_KEY]
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), archive.attribute(key)?.to_owned())));
        match self.writer.state() {
            None => self.first.extend(kept),
            Some(_) => self.commit_members(&[], &kept.collect::<Vec<_>>(), time)?,
        }
        Ok(())
    }

    /// Gives an archive that is a copy an id of its own.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn goes_on_alone(&mut self, time: Timestamp) -> Result<()> {
        self.commit_members(&[], &[(ID_KEY.to_owned(), new_id())], time)
    }

    /// Creates an archive like [`ArchiveRepo::create`] without syncing its folder. A power failure may take
    /// the file away until the caller has called [`weir_archive::sync_folder_of`], once for many archives.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create_named_later(path: &Path, hash: HashKind, first_seq: u64) -> Result<ArchiveRepo> {
        Ok(ArchiveRepo { syncs_name_later: true, ..ArchiveRepo::create(path, hash, first_seq)? })
    }

    /// Creates an archive that replaces the one at `path` only at [`ArchiveRepo::persist`]. Until then the
    /// old one stays.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create_beside(path: &Path, hash: HashKind, first_seq: u64) -> Result<ArchiveRepo> {
        Ok(ArchiveRepo { persists_at_once: false, ..ArchiveRepo::create(path, hash, first_seq)? })
    }

    /// Gives a new archive its name, if `takes` allows it to replace what is there. Everything that was
    /// committed to it is durable.
    ///
    /// # Errors
    /// If something else is there by now, or if the disk fails. Then the file at that path stays as it is.
    pub fn persist(&mut self, takes: Takes<'_>) -> Result<()> {
        if let Some(replacement) = self.unnamed.take() {
            if let Some((base, link)) = &self.base {
                // Another archive may have taken the place of the base meanwhile.
                link.holds(base.path())?;
            }
            // The writer keeps its own handle on the file, and with it the lock.
            if self.syncs_name_later {
                replacement.persist_unsynced(takes)
            } else {
                replacement.persist(takes)
            }?;
        }
        Ok(())
    }

    /// Returns the file, for as long as it is written to.
    pub(crate) fn locked(&self) -> &LockedFile {
        self.writer.storage()
    }

    /// Returns the path of the archive.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the committed state.
    pub(crate) fn state(&self) -> Option<&State> {
        self.writer.state()
    }

    /// Returns the highest number of a lease under which something was written.
    pub fn epoch(&self) -> Epoch {
        self.state().and_then(|state| state.attributes.get(EPOCH_KEY)?.parse().ok()).unwrap_or(Epoch::NONE)
    }

    /// Returns the number of the last commit and the length of the archive; `None` before the first commit.
    pub fn committed(&self) -> Option<(u64, u64)> {
        self.writer.state().map(|s| (s.record.seq, s.end()))
    }

    /// Opens and locks the archive at `path`; waits for another writer.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<ArchiveRepo> {
        ArchiveRepo::open_locked(path, weir_archive::lock_existing(path)?)
    }

    /// Opens and locks the archive at `path`; returns `None` if another writer has it.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn try_open(path: &Path) -> Result<Option<ArchiveRepo>> {
        match weir_archive::try_lock_existing(path) {
            Ok(locked) => ArchiveRepo::open_locked(path, locked).map(Some),
            Err(weir_archive::Error::Locked) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn open_locked(path: &Path, locked: LockedFile) -> Result<ArchiveRepo> {
        ArchiveRepo::with_writer(path, Writer::open(locked)?)
    }

    /// Makes an `ArchiveRepo` of the archive at `path` that `writer` has opened.
    pub(crate) fn with_writer(path: &Path, writer: Writer<LockedFile>) -> Result<ArchiveRepo> {
        let repo = repo_of(&writer, path)?;
        let (hash, origin) = (repo.hash(), repo.archive().and_then(Origin::of));
        Ok(ArchiveRepo {
            path: path.to_owned(),
            writer,
            unnamed: None,
            persists_at_once: true,
            syncs_name_later: false,
            repo: Some(Arc::new(repo)),
            base: None,
            first: BTreeMap::new(),
            origin,
            hash,
        })
    }

    /// Returns the origin of the copy, if the archive names it.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Sets the origin of the copy. The next update writes it down.
    pub fn set_origin(&mut self, origin: Option<Origin>) {
        // It is one line in each of two files. An address with a line break cannot be fetched from anyway.
        self.origin = origin.filter(|origin| !origin.url.contains(char::is_control));
    }

    /// Gives the next commit a number higher than `seq`: numbers up to `seq` are already used.
    pub fn skip_to(&mut self, seq: u64) {
        self.writer.skip_to(seq);
    }

    /// Returns the repository as last committed; `None` before the first commit.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn repo(&mut self) -> Result<Option<Arc<Repo>>> {
        if self.repo.is_none() && self.writer.state().is_some() {
            self.repo = Some(Arc::new(repo_of(&self.writer, &self.path)?));
        }
        Ok(self.repo.clone())
    }

    /// Returns the path of the base, if the archive builds on one.
    ///
    /// # Errors
    /// If the archive cannot be opened.
    pub fn base_path(&mut self) -> Result<Option<PathBuf>> {
        let base = match self.repo()? {
            Some(repo) => repo.base().cloned(),
            None => self.base.as_ref().map(|(base, _)| base.clone()),
        };
        Ok(base.map(|base| base.path().to_owned()))
    }

    /// Returns whether there is a member of that name.
    pub(crate) fn has_member(&self, name: &str) -> bool {
        self.writer.state().is_some_and(|state| state.members.contains_key(name))
    }

    /// Returns the number of packs in the archive.
    pub fn pack_count(&self) -> usize {
        let is_pack = |name: &&String| name.starts_with("objects/pack/") && name.ends_with(".pack");
        self.writer.state().map_or(0, |s| s.members.keys().filter(is_pack).count())
    }

    /// Returns the number of objects in a whole clone of heads and tags, if they are known to be exactly
    /// those of the bodies.
    pub(crate) fn whole_clone_count(&self) -> Option<u32> {
        let value = self.writer.state()?.attributes.get(HEADS_KEY)?;
        parse_whole(self.hash, value).map(|w| w.count)
    }

    /// Returns what a pack fetched for `class` may build on: only bodies that are sent together with it. So
    /// each set of bodies that is sent is complete by itself. Heads and tags build on each other only, and
    /// only history builds on what history alone holds.
    ///
    /// # Errors
    /// If the archive cannot be opened.
    pub fn base_for(&mut self, class: RefClass) -> Result<Option<Repo>> {
        let limit = |repo: Arc<Repo>| repo.limited_to(|body| body.is_none_or(|b| b.class <= class));
        Ok(match self.repo()? {
            Some(repo) => Some(limit(repo)),
            None => self.base.as_ref().map(|(base, _)| Repo::empty_on(base)),
        })
    }

    /// Commits an update: the pack that was received for `class`, if any, and the refs as they are now.
    ///
    /// # Errors
    /// If the disk fails, or a later lease has written. Then nothing has changed.
    pub fn commit(&mut self, added: Option<(RefClass, Ingested)>, now: NewState<'_>) -> Result<UpdateReport> {
        let NewState { refs, shallow, time, epoch, kind } = now;
        let old = self.repo()?;
        old.as_ref().map_or(Ok(()), |old| old.check_reads())?;
        // The objects of a new fork's tags may all be in its base.
        let of_base =
            if old.is_none() { self.base.as_ref().map(|(base, _)| Repo::empty_on(base)) } else { None };
        let tags = added.as_ref().map_or(&[][..], |(_, pack)| &pack.tags);
        let refs = &peeled(refs.into_owned(), old.as_deref().or(of_base.as_ref()), old.as_deref(), tags)?;
        let addition = added.as_ref().map(|(class, pack)| Addition { class: *class, pack });
        let link = self.link(old.as_deref())?;
        // The bodies of an archive with a base are no whole clone by themselves.
        let is_exact = |all| {
            Ok::<_, Error>(link.is_none() && still_exact(old.as_deref(), refs, addition.as_ref(), all)?)
        };
        let (heads_exact, all_exact) = (is_exact(false)?, is_exact(true)?);
        // The pack of a shallow upstream is not a whole clone for any client.
        let of_heads = if heads_exact && shallow.is_empty() {
            whole_clone(old.as_deref(), added.as_ref(), false)
        } else {
            None
        };
        let is_rest = |class: RefClass| class == RefClass::Rest;
        let has_rest = old.as_ref().is_some_and(|r| r.bodies.list.iter().any(|b| is_rest(b.class)))
            || added.as_ref().is_some_and(|a| is_rest(a.0));
        let of_all = match (all_exact && shallow.is_empty(), has_rest) {
            (true, false) if of_heads.is_some() => of_heads,
            (true, _) => whole_clone(old.as_deref(), added.as_ref(), true),
            (false, _) => None,
        };
        let hash = self.hash;
        let mut group = self.begin_group(link.as_ref())?;
        if let Some((class, pack)) = &added {
            append_pack(&mut group, hash, *class, pack)?;
        }
        set_refs(&mut group, refs, shallow)?;
        set_kind(&mut group, kind);
        unset(&mut group, UNFINISHED_KEY);
        set_whole(&mut group, HEADS_KEY, of_heads);
        set_whole(&mut group, ALL_KEY, of_all);
        let commit = group.commit(time, epoch)?;
        self.committed_group(commit, added.map_or(0, |(_, pack)| pack.sent_count))
    }

    /// Commits the only body of a class to an archive that is being rewritten. Its refs are committed once
    /// all bodies are there.
    ///
    /// # Errors
    /// If the disk fails. Then nothing has changed.
    pub(crate) fn commit_body(
        &mut self,
        class: RefClass,
        pack: &Ingested,
        time: Timestamp,
    ) -> Result<UpdateReport> {
        let hash = self.hash;
        let link = self.link(None)?;
        let mut group = self.begin_group(link.as_ref())?;
        append_pack(&mut group, hash, class, pack)?;
        group.set(UNFINISHED_KEY, "yes");
        let commit = group.commit(time, Epoch::NONE)?;
        self.committed_group(commit, pack.sent_count)
    }

    /// Commits the refs of an archive that is being rewritten, and the earlier states. `whole` says what its
    /// bodies are together.
    ///
    /// # Errors
    /// If the disk fails. Then nothing has changed.
    pub(crate) fn commit_rewritten(
        &mut self,
        refs: &Refs,
        shallow: &[Oid],
        history: &[u8],
        whole: WholeClones,
        time: Timestamp,
    ) -> Result<UpdateReport> {
        let old = self.repo()?;
        let link = self.link(old.as_deref())?;
        // Version 1 recorded the peeled tags that the upstream reported.
        let of_base =
            if old.is_none() { self.base.as_ref().map(|(base, _)| Repo::empty_on(base)) } else { None };
        let refs = &peeled(refs.clone(), old.as_deref().or(of_base.as_ref()), None, &[])?;
        let mut group = self.begin_group(link.as_ref())?;
        set_refs(&mut group, refs, shallow)?;
        if !history.is_empty() {
            group.append(HISTORY_MEMBER, history)?;
        }
        set_kind(&mut group, whole.kind);
        unset(&mut group, UNFINISHED_KEY);
        set_whole(&mut group, HEADS_KEY, whole.heads);
        set_whole(&mut group, ALL_KEY, whole.all);
        let commit = group.commit(time, Epoch::NONE)?;
        self.committed_group(commit, 0)
    }

    /// Returns how this archive names its base.
    fn link(&self, old: Option<&Repo>) -> Result<Option<Link>> {
        match old.and_then(Repo::base) {
            Some(base) => Link::new(&self.path, base).map(Some),
            None => Ok(self.base.as_ref().map(|(_, link)| link.clone())),
        }
    }

    /// Begins a group with the members that every archive of a repository has.
    fn begin_group(&mut self, link: Option<&Link>) -> Result<Group<'_, LockedFile>> {
        let hash = self.hash;
        let mut group = self.writer.begin();
        if group.state().is_none_or(|state| !state.members.contains_key("config")) {
            for name in ["objects/", "objects/info/", "objects/pack/", "refs/", "refs/heads/", "refs/tags/"] {
                group.directory(name);
            }
            for (key, value) in &self.first {
                group.set(key, value.clone());
            }
        }
        replace_if_changed(&mut group, "config", config_file(hash, self.origin.as_ref()).as_bytes())?;
        let (url, forge) =
            (self.origin.as_ref().map(|o| o.url.clone()), self.origin.as_ref().and_then(|o| o.forge.clone()));
        for (key, value) in [(URL_KEY, url), (FORGE_KEY, forge)] {
            match (group.state().and_then(|s| s.attributes.get(key).cloned()), value) {
                (known, Some(value)) if known.as_ref() != Some(&value) => group.set(key, value),
                (Some(_), None) => group.unset(key),
                _ => {}
            }
        }
        if let Some(link) = link {
            replace_if_changed(&mut group, ALTERNATES, link.line.as_bytes())?;
            if group.state().and_then(|s| s.attributes.get(BASE_KEY)) != Some(&link.value) {
                group.set(BASE_KEY, link.value.clone());
            }
        }
        Ok(group)
    }

    fn committed_group(&mut self, commit: Commit, objects_added: u32) -> Result<UpdateReport> {
        if self.persists_at_once {
            self.persist(Takes::FreePlace)?;
        }
        self.repo = None;
        Ok(UpdateReport {
            seq: commit.seq,
            bytes_appended: commit.bytes,
            archive_bytes: commit.end,
            objects_added,
        })
    }

    /// Commits members that are derived from what is committed (a commit-graph, for example) in their own
    /// commit.
    ///
    /// # Errors
    /// If the disk fails. Then nothing has changed.
    pub(crate) fn commit_members(
        &mut self,
        members: &[(&str, &[u8])],
        attributes: &[(String, String)],
        time: Timestamp,
    ) -> Result<()> {
        self.commit_with(time, |group| {
            for (name, data) in members {
                group.append(name, data)?;
            }
            for (key, value) in attributes {
                group.set(key, value.clone());
            }
            Ok(())
        })
    }

    /// Commits the members and attributes that `fill` puts into a group.
    ///
    /// # Errors
    /// If `fill` or the disk fails. Then nothing has changed.
    pub(crate) fn commit_with(
        &mut self,
        time: Timestamp,
        fill: impl FnOnce(&mut Group<'_, LockedFile>) -> Result<()>,
    ) -> Result<()> {
        self.repo.as_ref().map_or(Ok(()), |repo| repo.check_reads())?;
        let mut group = self.writer.begin();
        fill(&mut group)?;
        group.commit(time, Epoch::NONE)?;
        self.repo = None;
        Ok(())
    }
}

/// Opens the repository in the state that the writer knows. The writer wrote or checked it, so it is not
/// checked again.
fn repo_of(writer: &Writer<LockedFile>, path: &Path) -> Result<Repo> {
    let file = Arc::new(writer.storage().0.try_clone()?);
    let state = writer.state().cloned().ok_or(weir_archive::Error::NoCommit)?;
    Repo::from_unfinished(Archive::with_state(file, state)?, path)
}

/// Returns `refs` with the peeled targets of their tags. They are read from the objects: the upstream is not
/// trusted. `tags` are the tags that were received. For tags that have not moved since `known`, the target is
/// taken from there.
fn peeled(mut refs: Refs, here: Option<&Repo>, known: Option<&Repo>, tags: &[(Oid, Oid)]) -> Result<Refs> {
    let new: OidMap<Oid> = tags.iter().copied().collect();
    let mut reader = here.map(Repo::reader);
    // Version 1 recorded what the upstream reported.
    let known = known.filter(|old| {
        old.archive().is_some_and(|archive| archive.state().record.version >= PEELED_SINCE_VERSION)
    });
    for r in refs.list_mut() {
        if let Some(known) = known.and_then(|old| old.refs().get(&r.name)).filter(|known| known.oid == r.oid)
        {
            r.peeled = known.peeled;
            continue;
        }
        let mut at = r.oid;
        for depth in 0.. {
            let target = match (new.get(&at), &mut reader) {
                (Some(target), _) => Some(*target),
                (None, Some(reader)) => match reader.kind(&at)? {
                    Some(Kind::Tag) => reader.tag(&at)?.map(|(target, _)| target),
                    _ => None,
                },
                (None, None) => None,
            };
            match target {
                Some(target) if depth < TAGS_OF_TAGS_MAX => at = target,
                _ => break,
            }
        }
        r.peeled = (at != r.oid).then_some(at);
    }
    Ok(refs)
}

/// Returns what the bodies of a class are together, once `added` is one of them.
fn whole_clone(
    old: Option<&Repo>,
    added: Option<&(RefClass, Ingested)>,
    with_rest: bool,
) -> Option<WholeClone> {
    let counts = |class: RefClass| class == RefClass::HeadsAndTags || (with_rest && class == RefClass::Rest);
    let added = added.filter(|(class, _)| counts(*class));
    let before: Vec<&Body> =
        old.map_or(Vec::new(), |old| old.bodies.list.iter().filter(|b| counts(b.class)).collect());
    match (added, before.as_slice()) {
        // Nothing of these classes was received: what is known of them still holds.
        (None, _) if !before.is_empty() => {
            let known = old.and_then(|old| if with_rest { old.bodies.all } else { old.bodies.heads });
            known.or_else(|| sum_of(before.iter().map(|b| b.sent_count)))
        }
        (Some((_, pack)), []) if pack.sent_count as usize == pack.objects.len() => {
            Some(WholeClone { count: pack.sent_count, trailer: Some(pack.checksum) })
        }
        _ => sum_of(before.iter().map(|b| b.sent_count).chain(added.map(|(_, pack)| pack.sent_count))),
    }
}

fn sum_of(mut counts: impl Iterator<Item = u32>) -> Option<WholeClone> {
    Some(WholeClone { count: counts.try_fold(0u32, |sum, n| sum.checked_add(n))?, trailer: None })
}
