//! An open repository: its packs, refs and what is known about them, as of one moment.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_archive::Archive;
use weir_git::{HashKind, Oid, refname};

use crate::error::{Error, Result};
use crate::objects::lookup::Objects;
use crate::objects::pack::Pack;
use crate::objects::reader::ObjectReader;
use crate::reach::history::{Derived, History};
use crate::refs::list::Refs;
use crate::repo::bodies::{Bodies, Body};
use crate::repo::caches::Caches;

/// A repository as it was when it was opened. Updates make new ones; this stays readable.
pub struct Repo {
    serial: Serial,
    history: Arc<History>,
    pub(crate) refs: Refs,
    pub(crate) bodies: Bodies,
    pub(crate) archive: Option<Archive>,
    /// What it builds on, if it is a part only: its packs come first.
    pub(crate) base: Option<Arc<Repo>>,
    pub(crate) caches: Caches,
    /// Ids of refs that are not shown.
    hidden_tips: Vec<Oid>,
    /// The directory with its configuration, unless it is an archive.
    pub(crate) git_dir: Option<PathBuf>,
    path: PathBuf,
}

/// A number no other repository that this process has opened has.
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
            hidden_tips: Vec::new(),
            git_dir: None,
            path: path.to_owned(),
        }
    }

    /// Whether `other` is the same git directory in the same state: the refs that are shown, where history
    /// ends, and the packs. Loose objects are read where they lie.
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

    /// A number no other repository that this process has opened has, even if it is the same on disk.
    pub fn serial(&self) -> u64 {
        self.serial.0
    }

    /// The hash its objects are named by.
    pub fn hash(&self) -> HashKind {
        self.objects().hash
    }

    /// Returns its objects, with those of its base.
    pub fn objects(&self) -> &Objects {
        &self.history.objects
    }

    /// Returns whether the object is here.
    pub fn contains(&self, oid: &Oid) -> bool {
        self.objects().contains(oid)
    }

    /// Returns a reader of its objects, with its own caches, for one thread.
    pub fn reader(&self) -> ObjectReader<'_> {
        self.objects().reader()
    }

    /// Returns its history, with that of its base.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns its history, for a repository that builds on it and shares it.
    pub(crate) fn shared_history(&self) -> Arc<History> {
        self.history.clone()
    }

    /// Its refs.
    pub fn refs(&self) -> &Refs {
        &self.refs
    }

    /// Shows `refs`, which must lead to what is here, in place of its own.
    pub fn set_refs(&mut self, refs: Refs) {
        self.refs = refs;
        (self.bodies.heads, self.bodies.all) = (None, None);
    }

    /// Ids of refs that are not shown.
    pub fn hidden_tips(&self) -> &[Oid] {
        &self.hidden_tips
    }

    /// Shows only the refs of `namespace` (gitnamespaces), and of these only those that `patterns` do not
    /// hide (git-config, `transfer.hideRefs`). What is not shown is as if it were not there, but for
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

    /// What is known of its packs as bodies.
    pub fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// Whether all that was read of its files so far was there. What a disk cannot read there are zeroes for:
    /// whoever has worked something out asks before it is given away.
    ///
    /// # Errors
    /// If something could not be read; then it is to be opened anew.
    pub fn check_reads(&self) -> Result<()> {
        if let Some(base) = &self.base {
            base.check_reads().map_err(|e| Error::Base { path: base.path.clone(), source: Box::new(e) })?;
        }
        match &self.archive {
            Some(archive) => Ok(archive.region().check()?),
            None => self.objects().check_reads(),
        }
    }

    /// The archive it lies in, unless it is a directory.
    pub fn archive(&self) -> Option<&Archive> {
        self.archive.as_ref()
    }

    /// The git directory it lies in; the archive, if it is one.
    pub fn git_dir(&self) -> &Path {
        self.git_dir.as_deref().unwrap_or(&self.path)
    }

    /// Where it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The repository it builds on, whose objects count as its own.
    pub fn base(&self) -> Option<&Arc<Repo>> {
        self.base.as_ref()
    }

    /// Its own packs; those of its base are left out.
    pub fn own_packs(&self) -> &[Arc<Pack>] {
        &self.objects().packs
            [self.base.as_ref().map_or(0, |b| b.objects().packs.len().min(self.objects().packs.len()))..]
    }

    /// This repository with only those packs for whose body `keep` says yes; packs that are no body are given
    /// as `None`.
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
        // Its packs are no bodies of this archive.
        let base = self.base.clone().filter(|_| keep(None));
        let history = self.history.with_packs(packs, base.is_some());
        let (refs, archive) = (self.refs.clone(), self.archive.clone());
        Repo { refs, archive, base, ..Repo::new(history, &self.path) }
    }

    /// What a new repository on `base` is before anything of its own has come in.
    pub(crate) fn empty_on(base: &Arc<Repo>) -> Repo {
        let objects = Objects::of_packs(base.hash(), base.objects().packs.clone());
        let history = History::new(objects, Vec::new(), Derived::default(), Some(base.shared_history()));
        Repo { base: Some(base.clone()), ..Repo::new(history, &base.path) }
    }
}
