//! Opens an ordinary git directory, bare or not, as a [`Repo`]: packs, loose objects, alternates, loose refs.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weir_git::{HashKind, Oid, refname};

use crate::error::{Error, Result, corrupt};
use crate::files::{SMALL_BYTES_MAX, read_at_most, read_if_there, read_or_empty};
use crate::objects::lookup::Objects;
use crate::reach::history::{Derived, History, parse_shallow};
use crate::refs::config::{FILE_BYTES_MAX as CONFIG_BYTES_MAX, GitConfig};
use crate::refs::list::{Head, Ref, Refs, is_fully_peeled, parse_head, parse_packed_refs};
use crate::refs::reftable::{RefValue, read_stack};
use crate::repo::object_folders::{objects_below, objects_beside};
use crate::repo::repository::{DirectoryExtras, Repo};

/// The most symbolic refs that are followed in a row, as in git.
const SYMREF_DEPTH_MAX: usize = 5;

/// The refs that each work tree has for itself.
const OWN_REFS: [&str; 3] = ["refs/bisect/", "refs/worktree/", "refs/rewritten/"];

/// The most bytes of a list of refs or commits.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// Returns the git directory at `path` or below it, and the directory that it shares objects and refs with.
/// For a worktree that is the main repository's, otherwise the git directory itself.
///
/// # Errors
/// If there is no git directory.
pub fn folders_of(path: &Path) -> Result<(PathBuf, PathBuf)> {
    let git_dir = find_git_dir(path)?;
    let common = match read_if_there(&git_dir.join("commondir"), SMALL_BYTES_MAX)? {
        Some(text) => git_dir.join(String::from_utf8_lossy(&text).trim_end_matches(['\r', '\n'])),
        None => git_dir.clone(),
    };
    Ok((git_dir, common))
}

/// Opens the git directory at `path`, or the `.git` below it.
///
/// # Errors
/// If there is no git directory, or it cannot be read.
pub fn open_directory(path: &Path) -> Result<Repo> {
    open(path, &|folder, hash| objects_below(folder, hash))
}

/// Opens the git directory at `path` with the objects of `other` in place of those that its alternates name.
///
/// # Errors
/// If there is no git directory, it cannot be read, or `other` has another hash.
pub fn open_directory_beside(path: &Path, other: &Repo) -> Result<Repo> {
    open(path, &|folder, hash| match other.hash() == hash {
        true => objects_beside(other.objects(), folder),
        false => {
            let words = format!("it has another hash than '{}'", other.path().display());
            corrupt(path.display().to_string(), words)
        }
    })
}

/// Opens the git directory at `path` with the objects that `objects_of` returns for its folder of objects.
fn open(path: &Path, objects_of: &dyn Fn(&Path, HashKind) -> Result<Objects>) -> Result<Repo> {
    let (git_dir, common) = folders_of(path)?;
    // Included files cannot change the format of a repository.
    let config = GitConfig::parse(&read_or_empty(&common.join("config"), CONFIG_BYTES_MAX)?)?;
    let hash = config.hash_of_format()?;
    let objects = objects_of(&common.join("objects"), hash)?;
    let shallow = parse_shallow(hash, &read_or_empty(&common.join("shallow"), LIST_BYTES_MAX)?)?;
    let history = History::new(objects, shallow, Derived::default(), None);
    let mut repo = Repo::new(history, path);
    repo.git_dir = Some(common.clone());
    repo.extras = DirectoryExtras {
        heads: heads_of_others(hash, &git_dir, &common)?,
        grafts: parse_grafts(hash, &read_or_empty(&common.join("info/grafts"), LIST_BYTES_MAX)?)?,
    };
    let found = if config.has_reftable() {
        refs_in_reftable(hash, &git_dir, &common)?
    } else {
        refs_in_files(hash, &git_dir, &common)?
    };
    repo.refs = resolve_refs(repo.objects(), found)?;
    Ok(repo)
}

fn find_git_dir(path: &Path) -> Result<PathBuf> {
    for candidate in [path.to_owned(), path.join(".git")] {
        // What git asks for, too: without its folder of refs it would look like an empty repository.
        let is_folder = |name: &str| about(&candidate.join(name)).map(|a| a.is_some_and(|a| a.is_dir()));
        let is_file = |name: &str| about(&candidate.join(name)).map(|a| a.is_some_and(|a| a.is_file()));
        let has_folders = is_folder("objects")? && is_folder("refs")?;
        if (has_folders || is_file("commondir")?) && is_file("HEAD")? {
            return Ok(candidate);
        }
        if let Some(target) = named_by_file(&candidate) {
            return Ok(target);
        }
    }
    Err(Error::NotFound(format!("'{}' is not a git repository", path.display())))
}

/// Returns what is at `path`, if anything is.
///
/// # Errors
/// If that cannot be said: a repository that nobody may read is not gone.
fn about(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(about) => Ok(Some(about)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(io::Error::new(e.kind(), format!("cannot read '{}': {e}", path.display())).into()),
    }
}

/// Returns the folder that a `.git` file names, as submodules and worktrees have (gitrepository-layout(5)).
/// Any other large file is not read to its end.
pub fn named_by_file(path: &Path) -> Option<PathBuf> {
    let data = read_at_most(path, SMALL_BYTES_MAX).ok()?;
    let target = std::str::from_utf8(&data).ok()?.strip_prefix("gitdir: ")?.trim_end_matches(['\r', '\n']);
    (!target.is_empty()).then(|| path.parent().unwrap_or(Path::new(".")).join(target))
}

/// The refs as they are stored.
struct StoredRefs {
    by_name: BTreeMap<Vec<u8>, Ref>,
    /// The symbolic refs, with their targets.
    symbolic: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The names of refs whose peeled ids are known: `packed-refs` is fully peeled.
    peeled: HashSet<Vec<u8>>,
    head: Head,
}

/// Returns the detached HEADs of the work trees that share `common`, besides that of `git_dir`. One that
/// cannot be read is left out, as by git.
fn heads_of_others(hash: HashKind, git_dir: &Path, common: &Path) -> Result<Vec<(Vec<u8>, Oid)>> {
    let mut folders = vec![(b"main-worktree".to_vec(), common.to_owned())];
    match fs::read_dir(common.join("worktrees")) {
        Ok(entries) => {
            for entry in entries {
                let entry = entry?;
                let name = [b"worktrees/", entry.file_name().as_encoded_bytes()].concat();
                folders.push((name, entry.path()));
            }
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
        Err(e) => return Err(e.into()),
    }
    let is_here = |folder: &Path| folder.canonicalize().ok() == git_dir.canonicalize().ok();
    let mut heads = Vec::new();
    for (name, folder) in folders.into_iter().filter(|(_, folder)| !is_here(folder)) {
        let text = read_or_empty(&folder.join("HEAD"), SMALL_BYTES_MAX)?;
        if let Ok(Head::Detached(oid)) = parse_head(hash, &text) {
            heads.push(([&name[..], b"/HEAD"].concat(), oid));
        }
    }
    heads.sort_unstable();
    Ok(heads)
}

/// Parses `info/grafts`: a commit and its parents a line (gitrepository-layout(5)).
fn parse_grafts(hash: HashKind, data: &[u8]) -> Result<Vec<(Oid, Vec<Oid>)>> {
    let mut grafts = Vec::new();
    for line in data.split(|&c| c == b'\n').map(<[u8]>::trim_ascii_end) {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let ids = line.split(|&c| c == b' ').map(|id| Oid::from_hex(hash, id));
        match ids.collect::<Option<Vec<Oid>>>() {
            Some(ids) => grafts.push((ids[0], ids[1..].to_vec())),
            None => return corrupt("info/grafts", format!("bad line '{}'", String::from_utf8_lossy(line))),
        }
    }
    Ok(grafts)
}

fn refs_in_files(hash: HashKind, git_dir: &Path, common: &Path) -> Result<StoredRefs> {
    let text = read_or_empty(&common.join("packed-refs"), LIST_BYTES_MAX)?;
    let is_peeled = is_fully_peeled(&text);
    let packed = parse_packed_refs(hash, &text)?;
    let (mut by_name, mut symbolic) = (BTreeMap::new(), BTreeMap::new());
    add_loose_refs(&common.join("refs"), b"refs", hash, &mut by_name, &mut symbolic)?;
    if git_dir != common {
        // A worktree has refs of its own, and not those of the main one (gitrepository-layout(5), "refs").
        let is_own = |name: &[u8]| OWN_REFS.iter().any(|own| name.starts_with(own.as_bytes()));
        by_name.retain(|name, _| !is_own(name));
        symbolic.retain(|name, _| !is_own(name));
        for own in OWN_REFS {
            let own = own.trim_end_matches('/');
            add_loose_refs(&git_dir.join(own), own.as_bytes(), hash, &mut by_name, &mut symbolic)?;
        }
    }
    let mut peeled = HashSet::new();
    for r in packed {
        if let Entry::Vacant(vacant) = by_name.entry(r.name.clone()) {
            if is_peeled && !symbolic.contains_key(&r.name) {
                peeled.insert(r.name.clone());
            }
            vacant.insert(r);
        }
    }
    let head = parse_head(hash, &read_at_most(&git_dir.join("HEAD"), SMALL_BYTES_MAX)?)?;
    Ok(StoredRefs { by_name, symbolic, peeled, head })
}

/// Reads refs from reftables. A worktree has a second stack for its own refs: `HEAD`, `refs/worktree`,
/// `refs/bisect`.
fn refs_in_reftable(hash: HashKind, git_dir: &Path, common: &Path) -> Result<StoredRefs> {
    let mut values = read_stack(&common.join("reftable"), hash)?;
    if git_dir != common {
        values.extend(read_stack(&git_dir.join("reftable"), hash)?);
    }
    let head = match values.remove(&b"HEAD"[..]) {
        Some(RefValue::Direct(oid, _)) => Head::Detached(oid),
        Some(RefValue::Symbolic(name)) => Head::Symbolic(name),
        None => return corrupt(common.join("reftable").display().to_string(), "no HEAD"),
    };
    let mut stored =
        StoredRefs { by_name: BTreeMap::new(), symbolic: BTreeMap::new(), peeled: HashSet::new(), head };
    for (name, value) in values.into_iter().filter(|(name, _)| name.starts_with(b"refs/")) {
        match value {
            RefValue::Direct(oid, peeled) => {
                drop(stored.by_name.insert(name.clone(), Ref { name, oid, peeled }))
            }
            RefValue::Symbolic(target) => drop(stored.symbolic.insert(name, target)),
        }
    }
    Ok(stored)
}

/// Follows symbolic refs and peels tags. As git's upload-pack does, it lists refs to missing objects, too,
/// and refs that cannot be read with the null id: what cannot be read is not gone.
fn resolve_refs(objects: &Objects, stored: StoredRefs) -> Result<Refs> {
    let StoredRefs { mut by_name, symbolic, peeled, head } = stored;
    for name in symbolic.keys() {
        let mut at: &Vec<u8> = name;
        for _ in 0..SYMREF_DEPTH_MAX {
            match symbolic.get(at) {
                Some(next) => at = next,
                None => break,
            }
        }
        let value = by_name.get(at).cloned();
        match value {
            Some(target) => by_name.insert(name.clone(), Ref { name: name.clone(), ..target }),
            None => by_name.remove(name),
        };
    }
    let mut list: Vec<Ref> = by_name.into_values().filter(|r| refname::is_valid(&r.name)).collect();
    for r in &mut list {
        // `packed-refs` need not be fully peeled, and loose refs never are.
        if r.peeled.is_none() && !peeled.contains(&r.name) && objects.contains(&r.oid) {
            // A tag that cannot be peeled is listed as it is: whoever wants it hears why it cannot be read.
            r.peeled = objects.peel(&r.oid).unwrap_or_default();
        }
    }
    let mut refs = Refs::new(list, head);
    refs.symbolic = symbolic.into_iter().filter(|(name, _)| refs.get(name).is_some()).collect();
    Ok(refs)
}

fn add_loose_refs(
    folder: &Path,
    prefix: &[u8],
    hash: HashKind,
    refs: &mut BTreeMap<Vec<u8>, Ref>,
    symbolic: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    for entry in entries {
        let entry = entry?;
        let name = [prefix, b"/", entry.file_name().as_encoded_bytes()].concat();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            add_loose_refs(&entry.path(), &name, hash, refs, symbolic)?;
            continue;
        }
        // The file may have been deleted, or packed, meanwhile.
        let Some(data) = read_if_there(&entry.path(), SMALL_BYTES_MAX)? else { continue };
        match parse_head(hash, &data) {
            Ok(Head::Detached(oid)) => drop(refs.insert(name.clone(), Ref { name, oid, peeled: None })),
            Ok(Head::Symbolic(target)) => drop(symbolic.insert(name, target)),
            Err(_) => drop(refs.insert(name.clone(), Ref { oid: Oid::null(hash), name, peeled: None })),
        }
    }
    Ok(())
}
