//! An open repository: its packs, its refs and what is known about them, as of one moment.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_archive::Archive;
use weir_git::{HashKind, Oid, refname};

use crate::arriving::ArrivingPack;
use crate::error::{Error, Result};
use crate::objects::lookup::Objects;
use crate::objects::pack::Pack;
use crate::objects::reader::ObjectReader;
use crate::reach::history::{Derived, History};
use crate::refs::list::{Ref, Refs};
use crate::repo::bodies::{Bodies, Body};
use crate::repo::caches::Caches;

/// A repository as it was when it was opened. Updates make new ones; this one stays readable.
pub struct Repo {
    serial: Serial,
    history: Arc<History>,
    pub(crate) refs: Refs,
    pub(crate) bodies: Bodies,
    pub(crate) archive: Option<Archive>,
    /// The base, if the archive builds on one: its packs come first.
    pub(crate) base: Option<Arc<Repo>>,
    pub(crate) caches: Caches,
    /// The pack with its objects, if it is being mirrored for the first time.
    arriving: Option<Arc<ArrivingPack>>,
    /// The ids of refs that are not shown.
    hidden_tips: Vec<Oid>,
    /// The git directory with the configuration, unless the repository is an archive.
    pub(crate) git_dir: Option<PathBuf>,
    /// What else a git directory has that `git log` heeds.
    pub(crate) extras: DirectoryExtras,
    path: PathBuf,
}

/// What a git directory has besides objects and refs.
#[derive(Clone, Debug, Default)]
pub struct DirectoryExtras {
    /// The detached HEADs of other work trees, by the names that git gives them.
    pub heads: Vec<(Vec<u8>, Oid)>,
    /// Commits with the parents that `info/grafts` gives them.
    pub grafts: Vec<(Oid, Vec<Oid>)>,
}

/// A number that no other repository opened by this process has.
#[derive(Debug)]
struct Serial(u64);

impl Serial {
    fn next() -> Serial {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Serial(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Repo {
    /// Returns a repository with `history`, opened at `path`, that has no refs.
    pub(crate) fn new(history: History, path: &Path) -> Repo {
        Repo {
            serial: Serial::next(),
            caches: Caches::for_packs(history.objects.packs.len()),
            history: Arc::new(history),
            refs: Refs::default(),
            bodies: Bodies::default(),
            archive: None,
            base: None,
            arriving: None,
            hidden_tips: Vec::new(),
            git_dir: None,
            extras: DirectoryExtras::default(),
            path: path.to_owned(),
        }
    }

    /// Returns a repository that will be an archive at `path`, and whose objects are arriving: it has refs,
    /// and no objects yet.
    pub fn arriving(path: &Path, hash: HashKind, refs: Refs, pack: ArrivingPack) -> Repo {
        let objects = Objects::of_packs(hash, Vec::new());
        let history = History::new(objects, Vec::new(), Derived::default(), None);
        Repo { refs, arriving: Some(Arc::new(pack)), ..Repo::new(history, path) }
    }

    /// Returns the pack that is arriving, if the repository has no objects yet.
    pub fn arriving_pack(&self) -> Option<&Arc<ArrivingPack>> {
        self.arriving.as_ref()
    }

    /// Returns whether `other` is the same git directory in the same state: the refs that are shown, where
    /// history ends, and the packs. Loose objects are not compared; they are read when needed.
    pub fn is_same_directory(&self, other: &Repo) -> bool {
        let is_same_pack = |(one, other): (&Arc<Pack>, &Arc<Pack>)| {
            one.name() == other.name() && one.data().len() == other.data().len()
        };
        self.git_dir.is_some()
            && self.git_dir == other.git_dir
            && self.hash() == other.hash()
            && self.refs == other.refs
            && self.history.shallow == other.history.shallow
            && self.hidden_tips == other.hidden_tips
            && self.objects().loose.len() == other.objects().loose.len()
            && self.objects().packs.len() == other.objects().packs.len()
            && self.objects().packs.iter().zip(&other.objects().packs).all(is_same_pack)
    }

    /// Returns a number that no other repository opened by this process has, even if it is the same on disk.
    pub fn serial(&self) -> u64 {
        self.serial.0
    }

    /// Returns the hash that names the objects.
    pub fn hash(&self) -> HashKind {
        self.objects().hash
    }

    /// Returns the objects, including those of the base.
    pub fn objects(&self) -> &Objects {
        &self.history.objects
    }

    /// Returns whether the object is here.
    pub fn contains(&self, oid: &Oid) -> bool {
        self.objects().contains(oid)
    }

    /// Returns a reader of the objects, with its own caches, for one thread.
    pub fn reader(&self) -> ObjectReader<'_> {
        self.objects().reader()
    }

    /// Returns the history, including that of the base.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the history, to be shared with a repository that builds on this one.
    pub(crate) fn shared_history(&self) -> Arc<History> {
        self.history.clone()
    }

    /// Returns the refs.
    pub fn refs(&self) -> &Refs {
        &self.refs
    }

    /// Shows `refs` in place of the repository's own. They must point at objects that are here.
    pub fn set_refs(&mut self, refs: Refs) {
        self.refs = refs;
        (self.bodies.heads, self.bodies.all) = (None, None);
    }

    /// Returns the ids of refs that are not shown.
    pub fn hidden_tips(&self) -> &[Oid] {
        &self.hidden_tips
    }

    /// Shows only the refs of `namespace` (gitnamespaces), and of these only those that `patterns` do not
    /// hide (git-config, `transfer.hideRefs`). The other refs are then absent, except in
    /// [`Repo::hidden_tips`].
    pub fn present(&mut self, namespace: &str, patterns: &[&str]) {
        let prefix: String =
            namespace.split('/').filter(|p| !p.is_empty()).map(|p| format!("refs/namespaces/{p}/")).collect();
        let all = std::mem::take(&mut self.refs);
        let (shown, hidden) = all.shown(prefix.as_bytes(), patterns);
        self.refs = shown;
        if !prefix.is_empty() || hidden.iter().any(|r| refname::is_head_or_tag(&r.name)) {
            self.bodies.heads = None;
        }
        if !prefix.is_empty() || !hidden.is_empty() {
            self.bodies.all = None;
        }
        self.hidden_tips = hidden.into_iter().map(|r| r.oid).collect();
    }

    /// Returns what is known of the packs as bodies.
    pub fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// Checks that everything read from the files so far could be read. Where the disk fails, zeroes are
    /// read. So this must be called before a computed result is sent.
    ///
    /// # Errors
    /// If a part could not be read. Then the repository must be opened again.
    pub fn check_reads(&self) -> Result<()> {
        if let Some(base) = &self.base {
            base.check_reads().map_err(|e| Error::Base { path: base.path.clone(), source: Box::new(e) })?;
        }
        match &self.archive {
            Some(archive) => Ok(archive.region().check()?),
            None => self.objects().check_reads(),
        }
    }

    /// Returns the archive, unless the repository is a directory.
    pub fn archive(&self) -> Option<&Archive> {
        self.archive.as_ref()
    }

    /// Returns what a git directory has besides objects and refs; nothing of an archive.
    pub fn extras(&self) -> &DirectoryExtras {
        &self.extras
    }

    /// Returns the objects that others take the place of, each with that one (git-replace(1)).
    pub fn replaced(&self) -> Vec<(Oid, Oid)> {
        let below = |r: &Ref| Oid::from_hex(self.hash(), r.name.strip_prefix(b"refs/replace/")?);
        self.refs.list().iter().filter_map(|r| Some((below(r)?, r.oid))).collect()
    }

    /// Returns the path of the git directory, or of the archive.
    pub fn git_dir(&self) -> &Path {
        self.git_dir.as_deref().unwrap_or(&self.path)
    }

    /// Returns the path at which the repository was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the base, whose objects count as this repository's.
    pub fn base(&self) -> Option<&Arc<Repo>> {
        self.base.as_ref()
    }

    /// Returns the repository's own packs, without those of its base.
    pub fn own_packs(&self) -> &[Arc<Pack>] {
        &self.objects().packs
            [self.base.as_ref().map_or(0, |b| b.objects().packs.len().min(self.objects().packs.len()))..]
    }

    /// Returns this repository with only those packs for whose body `keep` returns true. Packs that are no
    /// bodies are passed as `None`.
    pub(crate) fn limited_to(&self, keep: impl Fn(Option<&Body>) -> bool) -> Repo {
        let body_of = |number: usize| self.bodies.list.iter().find(|b| b.pack as usize == number);
        let packs = self
            .objects()
            .packs
            .iter()
            .enumerate()
            .filter(|(n, _)| keep(body_of(*n)))
            .map(|(_, p)| p.clone())
            .collect();
        // The packs of the base are no bodies of this archive.
        let base = self.base.clone().filter(|_| keep(None));
        let history = self.history.with_packs(packs, base.is_some());
        let (refs, archive) = (self.refs.clone(), self.archive.clone());
        Repo { refs, archive, base, ..Repo::new(history, &self.path) }
    }

    /// Returns a new repository on `base` that has nothing of its own yet.
    pub(crate) fn empty_on(base: &Arc<Repo>) -> Repo {
        let objects = Objects::of_packs(base.hash(), base.objects().packs.clone());
        let history = History::new(objects, Vec::new(), Derived::default(), Some(base.shared_history()));
        Repo { base: Some(base.clone()), ..Repo::new(history, &base.path) }
    }
}
