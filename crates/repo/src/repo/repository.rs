//! An open repository: its packs, refs and what is known about them, as of one moment.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weir_archive::Archive;
use weir_git::{HashKind, Oid, OidSet, refname};

use crate::answer::bundles::BodyBundle;
use crate::error::{Error, Result, corrupt};
use crate::objects::pack::Pack;
use crate::objects::reader::ObjectReader;
use crate::reach::bitmap::Bitmaps;
use crate::reach::changes::Changes;
use crate::reach::commit_graph::CommitGraph;
use crate::reach::walk::{Reachable, Steps};
use crate::refs::config::GitConfig;
use crate::refs::list::Refs;
use crate::refs::states::refs_in;
use crate::repo::base::{ALTERNATES, open_base};
use crate::repo::bodies::Bodies;
use crate::repo::directory::Loose;
use crate::update::archive_repo::UNFINISHED_KEY;

/// Where an object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Location {
    /// In a pack.
    Packed {
        /// Which of [`Repo::packs`].
        pack: u32,
        /// Its position in the pack's index.
        position: u32,
    },
    /// In a file of its own, in which of the object folders.
    Loose(u32),
}

/// A repository as it was when it was opened. Updates make new ones; this stays readable.
pub struct Repo {
    pub(crate) serial: Serial,
    pub(crate) hash: HashKind,
    pub(crate) packs: Vec<Arc<Pack>>,
    pub(crate) loose: Vec<Loose>,
    pub(crate) refs: Refs,
    pub(crate) shallow: Vec<Oid>,
    pub(crate) bodies: Bodies,
    pub(crate) archive: Option<Archive>,
    /// What it builds on, if it is a part only: its packs come first.
    pub(crate) base: Option<Arc<Repo>>,
    pub(crate) graph: OnceLock<Option<CommitGraph>>,
    pub(crate) bitmaps: OnceLock<Option<Bitmaps>>,
    /// Checksums of whole clones, of heads and tags and of all refs, where they had to be computed.
    pub(crate) trailers: [OnceLock<Oid>; 2],
    /// Its bodies as bundles, once somebody asked for them.
    pub(crate) bundles: OnceLock<Vec<BodyBundle>>,
    /// Checksums of what was sent of each pack, where they had to be computed.
    pub(crate) body_trailers: Vec<OnceLock<Oid>>,
    /// All that refs reach, once somebody asked for something that is not known to be.
    pub(crate) reachable: OnceLock<Option<Reachable>>,
    /// Ids of the LFS objects that its refs lead to pointers to, once somebody asked for one.
    pub(crate) lfs_given: OnceLock<OidSet>,
    /// Ids of refs that are not shown.
    pub(crate) hidden_tips: Vec<Oid>,
    /// Deltas that were made for clients.
    pub(crate) changes: Changes,
    /// The directory with its configuration, unless it is an archive.
    pub(crate) git_dir: Option<PathBuf>,
    pub(crate) path: PathBuf,
}

/// A number no other repository that this process has opened has.
#[derive(Debug)]
pub(crate) struct Serial(u64);

impl Serial {
    pub(crate) fn next() -> Serial {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Serial(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Repo {
    /// Opens the archive at `path`.
    ///
    /// # Errors
    /// If it is not an archive of a repository, or is damaged.
    pub fn open_archive(path: &Path) -> Result<Repo> {
        Repo::from_archive(Archive::open(path)?, path)
    }

    /// The repository in an archive that is open, as of the commit it was opened at.
    ///
    /// # Errors
    /// As [`Repo::open_archive`].
    pub fn from_archive(archive: Archive, path: &Path) -> Result<Repo> {
        // Without refs it would look like one that is empty.
        if archive.attribute(UNFINISHED_KEY).is_some() {
            return corrupt(
                path.display().to_string(),
                "its last commit is damaged, which had the refs: only objects are left",
            );
        }
        Repo::from_unfinished(archive, path)
    }

    /// The same, of an archive that may have objects only.
    pub(crate) fn from_unfinished(archive: Archive, path: &Path) -> Result<Repo> {
        let base = open_base(&archive, path)?;
        Repo::from_archive_on(archive, path, base)
    }

    /// The same, on `base` whatever the archive says.
    pub(crate) fn from_archive_on(archive: Archive, path: &Path, base: Option<Arc<Repo>>) -> Result<Repo> {
        let hash = GitConfig::parse(&archive.read("config")?.unwrap_or_default())?.hash_of_format()?;
        if let Some(base) = base.as_ref().filter(|base| base.hash != hash) {
            return corrupt(ALTERNATES, format!("'{}' has another object format", base.path.display()));
        }
        let mut packs = base.as_ref().map_or_else(Vec::new, |base| base.packs.clone());
        let of_base = packs.len();
        let state = archive.state();
        let mut names: Vec<(&str, u64)> = state
            .members
            .iter()
            .filter_map(|(name, m)| {
                Some((name.strip_prefix("objects/pack/")?.strip_suffix(".pack")?, m.offset))
            })
            .collect();
        // In the order they were appended: a body never needs a later one.
        names.sort_by_key(|n| n.1);
        for (short, _) in names {
            let name = format!("objects/pack/{short}");
            let part = |suffix: &str| {
                let member = format!("{name}{suffix}");
                archive.member(&member).map_or_else(|| corrupt(&member, "it is missing"), Ok)
            };
            let pack = Pack::open(&name, part(".pack")?, part(".idx")?, hash)?;
            packs.push(Arc::new(pack.with_reverse_index(archive.member(&format!("{name}.rev")))));
        }
        let refs = refs_in(&archive, hash)?.unwrap_or_default();
        let shallow = parse_shallow(hash, &archive.read("shallow")?.unwrap_or_default())?;
        let bodies = Bodies::parse(hash, &archive, &packs, of_base)?;
        let body_trailers = packs.iter().map(|_| OnceLock::new()).collect();
        Ok(Repo {
            serial: Serial::next(),
            hash,
            packs,
            loose: Vec::new(),
            refs,
            shallow,
            bodies,
            archive: Some(archive),
            base,
            graph: OnceLock::new(),
            bitmaps: OnceLock::new(),
            trailers: Default::default(),
            bundles: OnceLock::new(),
            body_trailers,
            reachable: OnceLock::new(),
            lfs_given: OnceLock::new(),
            hidden_tips: Vec::new(),
            changes: Changes::default(),
            git_dir: None,
            path: path.to_owned(),
        })
    }

    /// Whether `other` is the same git directory in the same state: the refs that are shown, where history
    /// ends, and the packs. Loose objects are read where they lie.
    pub fn is_same_directory(&self, other: &Repo) -> bool {
        let is_same_pack = |(one, other): (&Arc<Pack>, &Arc<Pack>)| {
            one.name() == other.name() && one.data().len() == other.data().len()
        };
        self.git_dir.is_some()
            && self.git_dir == other.git_dir
            && self.hash == other.hash
            && self.refs == other.refs
            && self.shallow == other.shallow
            && self.hidden_tips == other.hidden_tips
            && self.loose.len() == other.loose.len()
            && self.packs.len() == other.packs.len()
            && self.packs.iter().zip(&other.packs).all(is_same_pack)
    }

    /// A number no other repository that this process has opened has, even if it is the same on disk.
    pub fn serial(&self) -> u64 {
        self.serial.0
    }

    /// The hash its objects are named by.
    pub fn hash(&self) -> HashKind {
        self.hash
    }

    /// Its packs, oldest first; those of its base come before.
    pub fn packs(&self) -> &[Arc<Pack>] {
        &self.packs
    }

    /// Its refs.
    pub fn refs(&self) -> &Refs {
        &self.refs
    }

    /// Commits whose parents are not here although they have some (a shallow repository).
    pub fn shallow(&self) -> &[Oid] {
        &self.shallow
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
        let checked = match &self.archive {
            Some(archive) => archive.region().check(),
            None => self
                .packs
                .iter()
                .try_for_each(|pack| pack.data().check().and_then(|()| pack.index().data().check())),
        };
        Ok(checked?)
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

    /// Where the object lies, if it is here.
    pub fn locate(&self, oid: &Oid) -> Option<Location> {
        self.locate_raw(oid.as_bytes())
    }

    /// The same by raw id, which must be as long as the repository's hash.
    pub fn locate_raw(&self, id: &[u8]) -> Option<Location> {
        // The oldest first: later packs may repeat an object to be complete, and each has one place it is
        // numbered by.
        for (pack, p) in self.packs.iter().enumerate() {
            if let Some(position) = p.index().find(id) {
                return Some(Location::Packed { pack: pack as u32, position });
            }
        }
        self.loose.iter().position(|l| l.contains(id)).map(|i| Location::Loose(i as u32))
    }

    /// Whether the object is here.
    pub fn contains(&self, oid: &Oid) -> bool {
        self.locate(oid).is_some()
    }

    /// The place an object is numbered by across all packs: ranks of the first pack, then of the second, and
    /// so on. `None` for loose objects.
    ///
    /// # Errors
    /// If an index is corrupt.
    pub fn number(&self, location: Location) -> Result<Option<u32>> {
        let Location::Packed { pack, position } = location else { return Ok(None) };
        let before: u32 = self.packs[..pack as usize].iter().map(|p| p.index().count()).sum();
        Ok(Some(before + self.packs[pack as usize].rank(position)?))
    }

    /// The place that an object has in a table of all that packs have: index positions of the first pack,
    /// then of the second, and so on. `None` for loose objects.
    pub(crate) fn place(&self, location: Location) -> Option<u32> {
        let Location::Packed { pack, position } = location else { return None };
        let before: u64 = self.packs[..pack as usize].iter().map(|p| u64::from(p.index().count())).sum();
        u32::try_from(before + u64::from(position)).ok()
    }

    /// The pack and the index position of the object with the place `place`, which must be below
    /// [`Repo::packed_count`].
    pub(crate) fn at_place(&self, mut place: u32) -> (u32, u32) {
        let mut pack = 0;
        while place >= self.packs[pack].index().count() {
            place -= self.packs[pack].index().count();
            pack += 1;
        }
        (pack as u32, place)
    }

    /// Objects in all packs, duplicates counted.
    pub fn packed_count(&self) -> u64 {
        self.packs.iter().map(|p| u64::from(p.index().count())).sum()
    }

    /// A reader with its own caches, for one thread.
    pub fn reader(&self) -> ObjectReader<'_> {
        ObjectReader::new(self)
    }

    /// The commit-graph, if there is one that can be read.
    pub(crate) fn commit_graph(&self) -> Option<&CommitGraph> {
        self.graph
            .get_or_init(|| {
                let data = self.archive.as_ref()?.member("objects/info/commit-graph")?;
                CommitGraph::open(data, self.hash).ok()
            })
            .as_ref()
            .or_else(|| self.base.as_ref()?.commit_graph())
    }

    /// The bitmaps of the first pack, if there are some that can be read.
    pub(crate) fn bitmaps(&self) -> Option<&Bitmaps> {
        if let Some(base) = self.base.as_ref().filter(|base| !base.packs.is_empty()) {
            return base.bitmaps();
        }
        self.bitmaps
            .get_or_init(|| {
                let pack = self.packs.first()?;
                let name = format!("{}.bitmap", pack.name());
                // Of a directory's packs any may have bitmaps; they are only read of archives.
                let data = self.archive.as_ref()?.member(&name)?;
                Bitmaps::open(&name, data, self.hash, &pack.checksum(), pack.index().count()).ok()
            })
            .as_ref()
    }

    /// All that refs reach.
    ///
    /// # Errors
    /// If that cannot be found out: something is missing or corrupt, or it takes more steps than there are.
    pub(crate) fn reachable(&self, steps: &mut Steps<'_>) -> Result<&Reachable> {
        let found = match self.reachable.get() {
            Some(found) => found,
            // Two who ask at once both find it out, each within the steps it has.
            None => match Reachable::of(self, steps) {
                Err(e) if steps.have_ended() => return Err(e),
                found => self.reachable.get_or_init(|| found.ok()),
            },
        };
        found.as_ref().map_or_else(
            || corrupt(self.path.display().to_string(), "its refs do not lead to all they should"),
            Ok,
        )
    }

    /// Peels tags off `oid`; `None` if it is no tag.
    ///
    /// # Errors
    /// If an object is missing or corrupt.
    pub fn peel(&self, oid: &Oid) -> Result<Option<Oid>> {
        let mut reader = self.reader();
        let mut at = *oid;
        // Tags of tags are rare and short; git itself knows no bound, ours is only against loops of forged
        // hashes.
        for depth in 0..256 {
            let object = reader.read(&at)?.ok_or(Error::Missing(at))?;
            if object.kind != weir_git::Kind::Tag {
                return Ok((depth > 0).then_some(at));
            }
            at = weir_git::tag_target(self.hash, &object.data)
                .map_err(|source| Error::Object { oid: at, source })?
                .0;
        }
        corrupt(at.to_string(), "a chain of more than 256 tags")
    }
}

/// Parses a `shallow` file: an id a line.
pub(crate) fn parse_shallow(hash: HashKind, data: &[u8]) -> Result<Vec<Oid>> {
    data.split(|&c| c == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| Oid::from_hex(hash, l).map_or_else(|| corrupt("shallow", "not a list of object ids"), Ok))
        .collect()
}

impl Repo {
    /// This repository with only those packs for whose body `keep` says yes; packs that are no body are given
    /// as `None`.
    pub(crate) fn limited_to(&self, keep: impl Fn(Option<&crate::repo::bodies::Body>) -> bool) -> Repo {
        let body_of = |number: usize| self.bodies.list.iter().find(|b| b.pack as usize == number);
        let packs = self
            .packs
            .iter()
            .enumerate()
            .filter(|(n, _)| keep(body_of(*n)))
            .map(|(_, p)| p.clone())
            .collect();
        Repo {
            serial: Serial::next(),
            hash: self.hash,
            packs,
            loose: Vec::new(),
            refs: self.refs.clone(),
            shallow: self.shallow.clone(),
            bodies: Bodies::default(),
            archive: self.archive.clone(),
            // Its packs are no bodies of this archive.
            base: self.base.clone().filter(|_| keep(None)),
            graph: OnceLock::new(),
            bitmaps: OnceLock::new(),
            trailers: Default::default(),
            bundles: OnceLock::new(),
            body_trailers: self.packs.iter().map(|_| OnceLock::new()).collect(),
            reachable: OnceLock::new(),
            lfs_given: OnceLock::new(),
            hidden_tips: Vec::new(),
            changes: Changes::default(),
            git_dir: None,
            path: self.path.clone(),
        }
    }
}
