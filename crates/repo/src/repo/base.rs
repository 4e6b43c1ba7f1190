//! Archives that build on another: a fork holds what its base lacks (`docs/archive-format.md`, section 9).
//!
//! A base is whole by itself, and only grows: what it holds stays reachable to those who build on it, through
//! its updates and compactions. It is named by its place, as git names alternates, and known by its id.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use weir_archive::{Archive, Writer};
use weir_git::Oid;

use crate::error::{Error, Result, corrupt};
use crate::objects::pack::Pack;
use crate::reach::changes::Changes;
use crate::reach::walk::{Budget, Steps, visit_reachable};
use crate::refs::list::Refs;
use crate::repo::bodies::Bodies;
use crate::repo::repository::{Location, Repo, Serial};
use crate::update::archive_repo::{ArchiveRepo, LOST_KEY};
use crate::update::recover::is_lost;

/// The member that names the base, as git does (gitrepository-layout, "objects/info/alternates").
pub(crate) const ALTERNATES: &str = "objects/info/alternates";
/// The attribute that says which archive that must be, and its number of commits when something was last
/// built on it.
pub(crate) const BASE_KEY: &str = "base";
/// The attribute an archive is known by, through updates and compactions. A new clone has another.
pub(crate) const ID_KEY: &str = "id";

/// What the name of an archive ends in.
const SUFFIX: &str = ".tar";
/// Longest line read.
const LINE_BYTES_MAX: usize = 8192;

/// An id that no other archive has.
pub(crate) fn new_id() -> String {
    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}

/// What an archive says of its base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The content of [`ALTERNATES`].
    pub(crate) line: String,
    /// The value of [`BASE_KEY`].
    pub(crate) value: String,
}

impl Link {
    /// How the archive at `path` names `base`.
    pub(crate) fn new(path: &Path, base: &Repo) -> Result<Link> {
        let state = base.archive.as_ref().map(Archive::state);
        let id = state.and_then(|s| Some((s.attributes.get(ID_KEY)?, s.record.seq)));
        let unfit = |why: &str| {
            Err(Error::Unsupported(format!("'{}' cannot be built on: {why}", base.path.display())))
        };
        let Some((id, seq)) = id else { return unfit("it has no id; 'weir compact' gives it one") };
        if base.base.is_some() {
            return unfit("it builds on another archive itself");
        }
        if !base.shallow.is_empty() {
            return unfit("its history is cut off now; 'weir dissociate' makes what builds on it whole");
        }
        match relative(path, &base.path)? {
            Some(place) => {
                Ok(Link { line: format!("../../{place}/objects\n"), value: format!("{id} {seq}") })
            }
            None => unfit(&format!("its name must end in {SUFFIX} and be UTF-8 without line breaks")),
        }
    }

    /// Whether the archive at `base` is still the one.
    pub(crate) fn holds(&self, base: &Path) -> Result<()> {
        let id = self.value.split(' ').next();
        match Archive::open(base)?.attribute(ID_KEY) == id {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "'{}' has been replaced meanwhile; try again",
                base.display()
            ))),
        }
    }
}

/// Where the archive `base` is from the folder of the one at `path`, without suffix: also where it is when
/// both are extracted beside themselves.
fn relative(path: &Path, base: &Path) -> Result<Option<String>> {
    let (path, base) = (std::path::absolute(path)?, std::path::absolute(base)?);
    let Some(name) = base.file_name().and_then(OsStr::to_str).and_then(|n| n.strip_suffix(SUFFIX)) else {
        return Ok(None);
    };
    let parts = |p: &Path| {
        p.parent()
            .map_or(Vec::new(), |folder| folder.components().map(|c| c.as_os_str().to_owned()).collect())
    };
    let (from, to): (Vec<_>, Vec<_>) = (parts(&path), parts(&base));
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let mut place = "../".repeat(from.len() - shared);
    for part in &to[shared..] {
        let Some(part) = part.to_str() else { return Ok(None) };
        place.push_str(part);
        place.push('/');
    }
    place.push_str(name);
    Ok(Some(place).filter(|p| !p.contains('\n')))
}

/// Where the base of the archive at `path` is, if it names one.
///
/// # Errors
/// If it names none as it should.
pub fn base_path(archive: &Archive, path: &Path) -> Result<Option<PathBuf>> {
    let Some(member) = archive.member(ALTERNATES) else { return Ok(None) };
    let line = (member.len() <= LINE_BYTES_MAX).then(|| std::str::from_utf8(&member).ok()).flatten();
    let place = line.and_then(|l| l.strip_suffix('\n')?.strip_prefix("../../")?.strip_suffix("/objects"));
    let is_place =
        |p: &&str| !p.contains('\n') && Path::new(p).is_relative() && Path::new(p).file_name().is_some();
    let Some(place) = place.filter(is_place) else {
        return corrupt(ALTERNATES, "it names no archive");
    };
    // Without "..", so that messages name a place one can find.
    let mut base = std::path::absolute(path)?;
    base.pop();
    for part in Path::new(&format!("{place}{SUFFIX}")).components() {
        match part {
            Component::ParentDir => drop(base.pop()),
            other => base.push(other),
        }
    }
    Ok(Some(base))
}

/// Opens the base of the archive at `path`, if it names one.
///
/// # Errors
/// If it is missing, another than it was, or cannot be opened.
pub(crate) fn open_base(archive: &Archive, path: &Path) -> Result<Option<Arc<Repo>>> {
    let Some(base_path) = base_path(archive, path)? else { return Ok(None) };
    let base = check_base(archive, path, &base_path)?;
    let m = base.file().metadata()?;
    let key = (m.dev(), m.ino(), base.state().record.seq, base.state().end());
    if let Some(base) =
        open_bases().get(&key).and_then(Weak::upgrade).filter(|base| base.check_reads().is_ok())
    {
        return Ok(Some(base));
    }
    let base = Arc::new(Repo::from_archive(base, &base_path).map_err(|e| unusable(&base_path, e))?);
    let mut open = open_bases();
    open.retain(|_, base| base.strong_count() > 0);
    open.insert(key, Arc::downgrade(&base));
    Ok(Some(base))
}

/// Bases that are open, by device and inode of their files, last commit and committed length: forks of one
/// share it.
type OpenBases = HashMap<(u64, u64, u64, u64), Weak<Repo>>;

fn open_bases() -> MutexGuard<'static, OpenBases> {
    static OPEN: LazyLock<Mutex<OpenBases>> = LazyLock::new(Mutex::default);
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is wrong with a base is no damage of what builds on it.
fn unusable(base: &Path, e: Error) -> Error {
    if e.is_damage() { Error::Base { path: base.to_owned(), source: Box::new(e) } } else { e }
}

/// Whether the base of the archive at `path`, if it has one, is there and the one it was built on; what both
/// hold is not looked at.
///
/// # Errors
/// If it is missing, another than it was, or cannot be opened.
pub fn base_holds(path: &Path) -> Result<()> {
    let archive = Archive::open(path)?;
    match base_path(&archive, path)? {
        Some(base) => check_base(&archive, path, &base).map(|_| ()),
        None => Ok(()),
    }
}

fn check_base(archive: &Archive, path: &Path, base_path: &Path) -> Result<Archive> {
    let bad = |what: &str| {
        corrupt(
            path.display().to_string(),
            format!("the archive it builds on, '{}', {what}", base_path.display()),
        )
    };
    let value = archive.attribute(BASE_KEY).and_then(|v| v.split_once(' '));
    let Some((id, seq)) = value.and_then(|(id, seq)| Some((id, seq.parse::<u64>().ok()?))) else {
        return corrupt("weir/commit", format!("attribute '{BASE_KEY}' is malformed"));
    };
    // Opening anything else might wait for ever.
    match std::fs::metadata(base_path) {
        Ok(m) if m.is_file() => {}
        Ok(_) => return bad("is no file"),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return bad("is missing"),
        Err(e) => return Err(e.into()),
    }
    let base = Archive::open(base_path).map_err(|e| unusable(base_path, e.into()))?;
    if base.member(ALTERNATES).is_some() {
        return bad("builds on another itself");
    }
    if base.attribute(ID_KEY) != Some(id) {
        return bad("has been replaced by another");
    }
    if base.state().record.seq < seq {
        return bad("is older than it was");
    }
    if base.attribute(LOST_KEY).is_some_and(|lost| is_lost(lost, seq)) {
        return bad("has lost to damage what this was built on");
    }
    Ok(base)
}

impl Repo {
    /// The repository it builds on, whose objects count as its own.
    pub fn base(&self) -> Option<&Arc<Repo>> {
        self.base.as_ref()
    }

    /// Its own packs; those of its base are left out.
    pub fn own_packs(&self) -> &[Arc<Pack>] {
        &self.packs[self.base.as_ref().map_or(0, |b| b.packs.len().min(self.packs.len()))..]
    }

    /// Whether the object counts as had here: its own packs hold it, or refs reach it, its own or those of
    /// its base. What the base holds besides was given to the base, by another upstream: whoever names it has
    /// yet to show it.
    pub fn has(&self, oid: &Oid) -> bool {
        let Some(base) = &self.base else { return self.contains(oid) };
        self.own_packs().iter().any(|pack| pack.index().find(oid.as_bytes()).is_some())
            || base.gives(oid)
            || self.gives(oid)
    }

    /// Whether its refs reach the object; no, where that cannot be found out.
    pub(crate) fn gives(&self, oid: &Oid) -> bool {
        match self.locate(oid) {
            None => false,
            Some(Location::Packed { pack, .. }) if self.bodies.is_reachable_whole(pack) => true,
            Some(_) => self
                .reachable(&mut Steps::new(Budget::default()))
                .and_then(|all| all.contains(self, oid))
                .unwrap_or(false),
        }
    }

    /// What a new repository on `base` is before anything of its own has come in.
    pub(crate) fn empty_on(base: &Arc<Repo>) -> Repo {
        Repo {
            serial: Serial::next(),
            hash: base.hash,
            packs: base.packs.clone(),
            loose: Vec::new(),
            refs: Refs::default(),
            shallow: Vec::new(),
            bodies: Bodies::default(),
            archive: None,
            base: Some(base.clone()),
            graph: OnceLock::new(),
            bitmaps: OnceLock::new(),
            trailers: Default::default(),
            bundles: OnceLock::new(),
            body_trailers: base.packs.iter().map(|_| OnceLock::new()).collect(),
            reachable: OnceLock::new(),
            lfs_given: OnceLock::new(),
            hidden_tips: Vec::new(),
            changes: Changes::default(),
            git_dir: None,
            path: base.path.clone(),
        }
    }
}

/// Opens the archive at `path` for others to build on; gives it an id if it has none, for which it waits for
/// whoever writes to it.
///
/// # Errors
/// If it cannot be opened, or the disk fails.
pub fn open_as_base(path: &Path, time: u64) -> Result<Arc<Repo>> {
    let repo = Repo::open_archive(path)?;
    if repo.archive.as_ref().is_some_and(|a| a.attribute(ID_KEY).is_some()) {
        return Ok(Arc::new(repo));
    }
    let mut archive = ArchiveRepo::open(path)?;
    archive.commit_members(&[], &[(ID_KEY.to_owned(), new_id())], time)?;
    archive.repo()?.map_or_else(|| Err(Error::NotFound(format!("'{}' is empty", path.display()))), Ok)
}

/// Lets the archive at `path` build on `base`, in the place of one that it built on before, if that has all
/// it needs: what its refs lead to, or led to once. Says whether it does.
///
/// # Errors
/// If one of them cannot be read or written.
pub fn relink(path: &Path, base: &Arc<Repo>, time: u64) -> Result<bool> {
    let mut writer = Writer::open(weir_archive::lock_existing(path)?)?;
    let state = writer.state().cloned().ok_or(weir_archive::Error::NoCommit)?;
    let link = Link::new(path, base)?;
    let archive = Archive::with_state(Arc::new(writer.storage().0.try_clone()?), state)?;
    let repo = Repo::from_archive_on(archive, path, Some(base.clone()))?;
    let tips = repo.tips_ever()?;
    let mut is_whole = true;
    visit_reachable(
        &repo,
        |oid, _| base.contains(oid),
        tips,
        &mut Steps::unbounded(),
        |_, found, _| is_whole &= found.is_some(),
    )?;
    if is_whole {
        let mut group = writer.begin();
        group.append(ALTERNATES, link.line.as_bytes())?;
        group.set(BASE_KEY, link.value);
        group.commit(time, 0)?;
    }
    Ok(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_relative_to_the_folder() {
        let place = |path: &str, base: &str| relative(Path::new(path), Path::new(base)).unwrap();
        assert_eq!(place("/s/a/x.tar", "/s/a/y.tar").as_deref(), Some("y"));
        assert_eq!(place("/s/a/x.tar", "/s/b/c/y.git.tar").as_deref(), Some("../b/c/y.git"));
        assert_eq!(place("/s/x.tar", "/s/b/y.tar").as_deref(), Some("b/y"));
        assert_eq!(place("/s/x.tar", "/s/y"), None);
        assert_eq!(place("/s/x.tar", "/s/a\nb/y.tar"), None);
    }
}
