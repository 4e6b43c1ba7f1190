//! Creating and updating an archive of a repository: one commit group an update.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use weir_archive::{Archive, Group, LockedFile, Replacement, Storage, Writer};
use weir_git::{HashKind, Oid};

use crate::base::{ALTERNATES, BASE_KEY, ID_KEY, Link, new_id};
use crate::bodies::{ALL_KEY, Addition, Body, HEADS_KEY, RefClass, WholeClone, body_key, parse_whole, still_exact, whole_value};
use crate::error::{Error, Result};
use crate::index::write_reverse_index;
use crate::ingest::Ingested;
use crate::refs::Refs;
use crate::repo::Repo;

/// Packs of fewer objects get no `.rev`: readers sort such an index in no time, and small updates stay small.
pub(crate) const REVERSE_INDEX_OBJECTS_MIN: usize = 4096;

/// An archive being created or updated, locked.
pub struct ArchiveRepo {
    path: PathBuf,
    writer: Writer<LockedFile>,
    /// The file under its temporary name, until it is persisted.
    unnamed: Option<Replacement>,
    /// Whether the first commit gives it its name.
    persists_at_once: bool,
    /// Whether somebody else makes that name durable.
    syncs_name_later: bool,
    /// The repository as last committed, once somebody asked for it.
    repo: Option<Arc<Repo>>,
    /// What its first commit says it builds on.
    base: Option<(Arc<Repo>, Link)>,
    /// What its first commit says it is known by.
    id: String,
    hash: HashKind,
}

/// How refs differ between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefsChange {
    /// Refs that are new.
    pub added: usize,
    /// Refs that point elsewhere.
    pub updated: usize,
    /// Refs that are gone.
    pub deleted: usize,
    /// Whether HEAD changed.
    pub head: bool,
}

impl RefsChange {
    /// From `old` to `new`.
    pub fn between(old: &Refs, new: &Refs) -> RefsChange {
        let mut change = RefsChange { head: old.head != new.head, ..Default::default() };
        for r in new.list() {
            match old.get(&r.name) {
                None => change.added += 1,
                Some(o) if o.oid != r.oid => change.updated += 1,
                Some(_) => {}
            }
        }
        change.deleted = old.list().iter().filter(|r| new.get(&r.name).is_none()).count();
        change
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == RefsChange::default()
    }
}

/// What an update did.
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
    /// A new archive at `path`, which gets its name at the first commit.
    ///
    /// # Errors
    /// Of the system.
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
            id: new_id(),
            hash,
        })
    }

    /// Lets a new archive build on `base`, before its first commit: what that holds is not taken in.
    ///
    /// # Errors
    /// If that cannot be built on.
    pub fn build_on(&mut self, base: &Arc<Repo>) -> Result<()> {
        if base.hash() != self.hash {
            return Err(Error::Unsupported(format!("'{}' has another object format", base.path().display())));
        }
        self.base = Some((base.clone(), Link::new(&self.path, base)?));
        Ok(())
    }

    /// Lets a new archive be known by what the one was whose place it takes: all that one had is in it, or will be.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn goes_on_as(&mut self, old: &Repo, time: u64) -> Result<()> {
        if let Some(id) = old.archive().and_then(|archive| archive.attribute(ID_KEY)) {
            id.clone_into(&mut self.id);
            if self.writer.state().is_some() {
                self.commit_members(&[], &[(ID_KEY.to_owned(), id.to_owned())], time)?;
            }
        }
        Ok(())
    }

    /// Lets an archive that is a copy be known by an id of its own.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn goes_on_alone(&mut self, time: u64) -> Result<()> {
        self.commit_members(&[], &[(ID_KEY.to_owned(), new_id())], time)
    }

    /// The same, but its name is durable only when the caller has called [`weir_archive::sync_folder_of`]: one call does for
    /// many.
    ///
    /// # Errors
    /// Of the system.
    pub fn create_named_later(path: &Path, hash: HashKind, first_seq: u64) -> Result<ArchiveRepo> {
        Ok(ArchiveRepo { syncs_name_later: true, ..ArchiveRepo::create(path, hash, first_seq)? })
    }

    /// A new archive that takes the place of the one at `path` only at [`ArchiveRepo::persist`]: until then that one stands.
    ///
    /// # Errors
    /// Of the system.
    pub fn create_beside(path: &Path, hash: HashKind, first_seq: u64) -> Result<ArchiveRepo> {
        Ok(ArchiveRepo { persists_at_once: false, ..ArchiveRepo::create(path, hash, first_seq)? })
    }

    /// Gives a new archive its name. All that was committed to it is durable.
    ///
    /// # Errors
    /// Of the system; then what stood there stands.
    pub fn persist(&mut self) -> Result<()> {
        if let Some(replacement) = self.unnamed.take() {
            if let Some((base, link)) = &self.base {
                // Another may have taken its place meanwhile.
                link.holds(base.path())?;
            }
            // The writer keeps its own handle on the file, and with it the lock.
            if self.syncs_name_later { replacement.persist_unsynced() } else { replacement.persist() }?;
        }
        Ok(())
    }

    /// Number of the last commit and length of the archive; `None` before the first.
    pub fn committed(&self) -> Option<(u64, u64)> {
        self.writer.state().map(|s| (s.record.seq, s.end()))
    }

    /// The archive at `path`, locked; waits for another writer.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<ArchiveRepo> {
        ArchiveRepo::open_locked(path, weir_archive::lock_existing(path)?)
    }

    /// The same without waiting; `None` if another writes to it.
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
        let writer = Writer::open(locked)?;
        let repo = repo_of(&writer, path)?;
        let hash = repo.hash();
        Ok(ArchiveRepo {
            path: path.to_owned(),
            writer,
            unnamed: None,
            persists_at_once: true,
            syncs_name_later: false,
            repo: Some(Arc::new(repo)),
            base: None,
            id: String::new(),
            hash,
        })
    }

    /// The repository as last committed; `None` before the first commit.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn repo(&mut self) -> Result<Option<Arc<Repo>>> {
        if self.repo.is_none() && self.writer.state().is_some() {
            self.repo = Some(Arc::new(repo_of(&self.writer, &self.path)?));
        }
        Ok(self.repo.clone())
    }

    /// Where what it builds on is, if it builds on another.
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

    /// Whether there is a member of that name.
    pub(crate) fn has_member(&self, name: &str) -> bool {
        self.writer.state().is_some_and(|state| state.members.contains_key(name))
    }

    /// Packs in the archive.
    pub fn pack_count(&self) -> usize {
        let is_pack = |name: &&String| name.starts_with("objects/pack/") && name.ends_with(".pack");
        self.writer.state().map_or(0, |s| s.members.keys().filter(is_pack).count())
    }

    /// Objects in a whole clone of heads and tags, if they are known to be exactly those of the bodies.
    pub(crate) fn whole_clone_count(&self) -> Option<u32> {
        let value = self.writer.state()?.attributes.get(HEADS_KEY)?;
        parse_whole(self.hash, value).map(|w| w.count)
    }

    /// What a pack fetched for `class` may build on: for heads and tags only bodies of that class, so that these stay
    /// whole by themselves.
    ///
    /// # Errors
    /// If the archive cannot be opened.
    pub fn base_for(&mut self, class: RefClass) -> Result<Option<Repo>> {
        let limit = |repo: Arc<Repo>| repo.limited_to(|body| class != RefClass::HeadsAndTags || body.is_none_or(|b| b.class == class));
        Ok(match self.repo()? {
            Some(repo) => Some(limit(repo)),
            None => self.base.as_ref().map(|(base, _)| Repo::empty_on(base)),
        })
    }

    /// Commits an update: the pack that came in for `class`, if any, and the refs as they are now.
    ///
    /// # Errors
    /// If the disk fails; then nothing has changed.
    pub fn commit(
        &mut self,
        added: Option<(RefClass, Ingested)>,
        refs: &Refs,
        shallow: &[Oid],
        time: u64,
        epoch: u64,
    ) -> Result<UpdateReport> {
        let hash = self.hash;
        let old = self.repo()?;
        let addition = added.as_ref().map(|(class, pack)| Addition {
            class: *class,
            unreferenced: &pack.unreferenced,
            outside: &pack.outside,
            tips_inside: refs.tips().filter(|t| pack.index.binary_search_by_key(t, |e| e.oid).is_ok()).collect(),
            repeats: old.as_ref().is_some_and(|r| pack.index.iter().any(|e| e.offset < pack.sent_end && r.contains(&e.oid))),
        });
        let link = match old.as_deref().and_then(Repo::base) {
            Some(base) => Some(Link::new(&self.path, base)?),
            None => self.base.as_ref().map(|(_, link)| link.clone()),
        };
        // What builds on another archive is no whole clone by itself.
        let is_exact = |all| Ok::<_, Error>(link.is_none() && still_exact(old.as_deref(), refs, addition.as_ref(), all)?);
        let (heads_exact, all_exact) = (is_exact(false)?, is_exact(true)?);
        let mut group = self.writer.begin();
        if old.is_none() {
            for name in ["objects/", "objects/info/", "objects/pack/", "refs/", "refs/heads/", "refs/tags/"] {
                group.directory(name);
            }
            group.append("config", config_file(hash).as_bytes())?;
            group.set(ID_KEY, self.id.clone());
        }
        if let Some(link) = &link {
            replace_if_changed(&mut group, ALTERNATES, link.line.as_bytes())?;
            if group.state().and_then(|s| s.attributes.get(BASE_KEY)) != Some(&link.value) {
                group.set(BASE_KEY, link.value.clone());
            }
        }
        if let Some((class, pack)) = &added {
            append_pack(&mut group, hash, *class, pack)?;
        }
        let packed_refs = refs.to_packed_refs();
        replace_if_changed(&mut group, "packed-refs", &packed_refs)?;
        replace_if_changed(&mut group, "HEAD", &refs.to_head_file())?;
        let mut shallow_file = Vec::new();
        for oid in shallow {
            oid.push_hex(&mut shallow_file);
            shallow_file.push(b'\n');
        }
        if !shallow.is_empty() {
            replace_if_changed(&mut group, "shallow", &shallow_file)?;
        } else if group.state().is_some_and(|s| s.members.contains_key("shallow")) {
            group.drop_member("shallow");
        }
        // What a shallow upstream gave is no whole clone for anybody.
        let of_heads = if heads_exact && shallow.is_empty() { whole_clone(old.as_deref(), added.as_ref(), false) } else { None };
        let is_rest = |class: RefClass| class == RefClass::Rest;
        let has_rest =
            old.as_ref().is_some_and(|r| r.bodies.list.iter().any(|b| is_rest(b.class))) || added.as_ref().is_some_and(|a| is_rest(a.0));
        let of_all = match (all_exact && shallow.is_empty(), has_rest) {
            (true, false) if of_heads.is_some() => of_heads,
            (true, _) => whole_clone(old.as_deref(), added.as_ref(), true),
            (false, _) => None,
        };
        set_whole(&mut group, HEADS_KEY, of_heads);
        set_whole(&mut group, ALL_KEY, of_all);
        let objects_added = added.as_ref().map_or(0, |(_, pack)| pack.sent_count);
        let commit = group.commit(time, epoch)?;
        if self.persists_at_once {
            self.persist()?;
        }
        self.repo = None;
        Ok(UpdateReport { seq: commit.seq, bytes_appended: commit.bytes, archive_bytes: commit.end, objects_added })
    }

    /// Adds members that are derived from what is committed (a commit-graph, say) in a commit of their own.
    ///
    /// # Errors
    /// If the disk fails; then nothing has changed.
    pub(crate) fn commit_members(&mut self, members: &[(&str, &[u8])], attributes: &[(String, String)], time: u64) -> Result<()> {
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

    /// Commits what `fill` puts into a group.
    ///
    /// # Errors
    /// Of `fill`, or if the disk fails; then nothing has changed.
    pub(crate) fn commit_with(&mut self, time: u64, fill: impl FnOnce(&mut Group<'_, LockedFile>) -> Result<()>) -> Result<()> {
        let mut group = self.writer.begin();
        fill(&mut group)?;
        group.commit(time, 0)?;
        self.repo = None;
        Ok(())
    }
}

/// The repository as the writer knows it: what it wrote or found itself needs no second check.
fn repo_of(writer: &Writer<LockedFile>, path: &Path) -> Result<Repo> {
    let file = Arc::new(writer.storage().0.try_clone()?);
    let state = writer.state().cloned().ok_or(weir_archive::Error::NoCommit)?;
    Repo::from_archive(Archive::with_state(file, state)?, path)
}

/// The `config` file of an extracted archive.
pub(crate) fn config_file(hash: HashKind) -> String {
    match hash {
        HashKind::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n".to_owned(),
        HashKind::Sha256 => {
            "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n".to_owned()
        }
    }
}

fn replace_if_changed<S: Storage>(group: &mut Group<'_, S>, name: &str, data: &[u8]) -> Result<()> {
    let sum: [u8; 32] = Sha256::digest(data).into();
    let same = group.state().and_then(|s| s.members.get(name)).is_some_and(|m| m.sha256 == sum && m.len == data.len() as u64);
    if !same {
        group.append(name, data)?;
    }
    Ok(())
}

fn set_whole<S: Storage>(group: &mut Group<'_, S>, key: &str, whole: Option<WholeClone>) {
    match whole {
        Some(w) => group.set(key, whole_value(&w)),
        None if group.state().is_some_and(|s| s.attributes.contains_key(key)) => group.unset(key),
        None => {}
    }
}

/// Appends a pack with its companions and says what it is.
pub(crate) fn append_pack<S: Storage>(group: &mut Group<'_, S>, hash: HashKind, class: RefClass, pack: &Ingested) -> Result<()> {
    let short = format!("pack-{}", pack.checksum);
    let name = format!("objects/pack/{short}");
    group.append_aligned(&format!("{name}.pack"), &pack.data)?;
    group.append(&format!("{name}.idx"), &crate::index::write_index(hash, &pack.index, &pack.checksum))?;
    if pack.index.len() >= REVERSE_INDEX_OBJECTS_MIN {
        let mut order: Vec<u32> = (0..pack.index.len() as u32).collect();
        order.sort_unstable_by_key(|&i| pack.index[i as usize].offset);
        group.append(&format!("{name}.rev"), &write_reverse_index(hash, &order, &pack.checksum))?;
    }
    group.set(&body_key(&short), format!("{} {} {}", class.name(), pack.sent_end, pack.sent_count));
    Ok(())
}

/// What the bodies of a class are together, once `added` is one of them.
fn whole_clone(old: Option<&Repo>, added: Option<&(RefClass, Ingested)>, with_rest: bool) -> Option<WholeClone> {
    let counts = |class: RefClass| class == RefClass::HeadsAndTags || (with_rest && class == RefClass::Rest);
    let added = added.filter(|(class, _)| counts(*class));
    let before: Vec<&Body> = old.map_or(Vec::new(), |old| old.bodies.list.iter().filter(|b| counts(b.class)).collect());
    match (added, before.as_slice()) {
        // Nothing of these classes came in: what is known of them still holds.
        (None, _) if !before.is_empty() => {
            let known = old.and_then(|old| if with_rest { old.bodies.all } else { old.bodies.heads });
            known.or_else(|| sum_of(before.iter().map(|b| b.sent_count)))
        }
        (Some((_, pack)), []) if pack.sent_count as usize == pack.index.len() => {
            Some(WholeClone { count: pack.sent_count, trailer: Some(pack.checksum) })
        }
        _ => sum_of(before.iter().map(|b| b.sent_count).chain(added.map(|(_, pack)| pack.sent_count))),
    }
}

fn sum_of(mut counts: impl Iterator<Item = u32>) -> Option<WholeClone> {
    Some(WholeClone { count: counts.try_fold(0u32, |sum, n| sum.checked_add(n))?, trailer: None })
}
