//! What differs in a workspace from its HEAD, found from what was touched: no index is read, and no file that
//! nobody wrote to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::PoisonError;

use serde::Serialize;
use weir_git::{Kind, Oid, TreeIter};
use weir_repo::{GitConfig, Head, ObjectReader, Repo, resolve_revision};

use crate::error::{Error, Result};
use crate::folders_above::{Above, FoldersAbove};
use crate::touched::{TouchedKind, touched_now};
use crate::touched_scan::Asked;
use crate::tree::CommitTree;
use crate::tree_changes::tree_changes;
use crate::workspaces::{Workspace, Workspaces};
use weir_worktree::{SUBMODULE, TreeFile, index_mode};

/// How a file differs from that of HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PathChange {
    /// It has another content or mode.
    Modified,
    /// It is not there.
    Deleted,
    /// HEAD has no such file.
    New,
}

/// What differs in a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceStatus {
    /// The commit of HEAD.
    pub commit: Oid,
    /// The branch that HEAD is on.
    pub branch: Option<String>,
    /// The paths that differ, ascending. A new folder with many files is named with a slash at its end, and
    /// not looked into.
    pub changes: BTreeMap<Vec<u8>, PathChange>,
}

/// What a status is made from.
struct StatusSearch<'a> {
    folder: &'a Path,
    above: FoldersAbove<'a>,
    repo: &'a Repo,
    reader: ObjectReader<'a>,
    top: Oid,
    heeds_modes: bool,
    /// The entries of trees of HEAD that were read, by their paths.
    trees: HashMap<Vec<u8>, Option<Rc<HeadTree>>>,
    /// Whether folders are repositories, by their paths.
    repositories: HashMap<Vec<u8>, bool>,
}

/// A repository in a workspace.
enum Nested {
    /// HEAD has it as a submodule, or it is the `.git` of a folder of HEAD. Its files are not compared.
    Known,
    /// HEAD does not have it: its folder, with a slash.
    New(Vec<u8>),
}

/// The entries of a tree: the mode as it is stored, and the id.
type HeadTree = HashMap<Vec<u8>, (u32, Oid)>;

const TREE: u32 = 0o040_000;

fn branch_name(of: &[u8]) -> String {
    String::from_utf8_lossy(of.strip_prefix(b"refs/heads/").unwrap_or(of)).into_owned()
}

/// Returns whether git leaves files of HEAD out of the working tree (git-sparse-checkout(1)).
#[must_use]
pub fn is_sparse(workspace: &Workspace) -> bool {
    let git_dir = workspace.folder.join(".git");
    if !git_dir.join("info/sparse-checkout").exists() {
        return false;
    }
    own_truth(&git_dir, "core.sparsecheckout").unwrap_or(false)
}

/// Returns whether git takes a file as changed if its executable bit has changed (`core.fileMode` of the git
/// directory).
pub(crate) fn heeds_modes(git_dir: &Path) -> bool {
    own_truth(git_dir, "core.filemode").unwrap_or(true)
}

/// Returns a boolean of a git directory's own configuration.
fn own_truth(git_dir: &Path, key: &str) -> Option<bool> {
    let truth = |file: &str| {
        let config = GitConfig::parse(&fs::read(git_dir.join(file)).ok()?).ok()?;
        config.truth(key).ok().flatten()
    };
    truth("config.worktree").or_else(|| truth("config"))
}

impl Workspaces {
    /// Returns what differs in a workspace, which is mounted and the git directory of which is `repo`, from
    /// its HEAD.
    ///
    /// # Errors
    /// If HEAD, an object or what was written cannot be read, or git leaves files out of the working tree.
    pub fn status(&self, workspace: &Workspace, repo: &Repo) -> Result<WorkspaceStatus> {
        if is_sparse(workspace) {
            return Err(Error::Odd(
                "this is a sparse checkout; 'git status' knows which files are left out".to_owned(),
            ));
        }
        let commit = resolve_revision(repo, "HEAD")?;
        let branch = match &repo.refs().head {
            Head::Symbolic(name) => Some(branch_name(name)),
            Head::Detached(_) => None,
        };
        let (top, _) = CommitTree::top_of(repo, &commit)?;
        let mut search = StatusSearch {
            folder: &workspace.folder,
            above: FoldersAbove::new(&workspace.folder),
            repo,
            reader: repo.reader(),
            top,
            heeds_modes: heeds_modes(&workspace.folder.join(".git")),
            trees: HashMap::new(),
            repositories: HashMap::new(),
        };
        let mut paths = BTreeSet::new();
        let mut changes = BTreeMap::new();
        if commit.to_string() != workspace.commit {
            let base = Oid::from_hex_any(workspace.commit.as_bytes()).ok_or(Error::NoNode)?;
            let (base, _) = CommitTree::top_of(repo, &base)?;
            paths.extend(tree_changes(&mut search.reader, &base, &top)?.paths().map(<[u8]>::to_vec));
        }
        for (path, (kind, _)) in self.touched(workspace)? {
            match kind {
                TouchedKind::Large if search.entry(&path)?.is_none() => {
                    changes.insert([path.as_slice(), b"/"].concat(), PathChange::New);
                }
                TouchedKind::Folder | TouchedKind::Large => {
                    search.files_of_head(&path, &mut paths)?;
                    search.files_there(&path, &mut paths)?;
                    // It may take the place of a file.
                    paths.insert(path);
                }
                TouchedKind::File => {
                    search.files_of_head(&path, &mut paths)?;
                    paths.insert(path);
                }
            }
        }
        for path in paths {
            match search.nested(&path)? {
                Some(Nested::New(repository)) => {
                    changes.insert(repository, PathChange::New);
                }
                Some(Nested::Known) => {}
                None => changes.extend(search.change(&path)?.map(|change| (path, change))),
            }
        }
        Ok(WorkspaceStatus { commit, branch, changes })
    }

    /// Returns the commit that HEAD of a mounted workspace is at, and the branch that it is on.
    pub fn head(&self, workspace: &Workspace) -> Option<(Oid, Option<String>)> {
        let git_dir = workspace.folder.join(".git");
        let head = fs::read(git_dir.join("HEAD")).ok()?;
        let Some(name) = head.strip_prefix(b"ref: ") else {
            return Some((Oid::from_hex_any(head.trim_ascii())?, None));
        };
        let name = name.trim_ascii();
        let loose = fs::read(git_dir.join(OsStr::from_bytes(name))).ok();
        let oid = match loose.and_then(|data| Oid::from_hex_any(data.trim_ascii())) {
            Some(oid) => oid,
            None => {
                let packed = fs::read(git_dir.join("packed-refs")).ok()?;
                let mut lines = packed.split(|byte| *byte == b'\n');
                let oid = lines.find_map(|line| line.strip_suffix(name)?.strip_suffix(b" "))?;
                Oid::from_hex_any(oid)?
            }
        };
        Some((oid, Some(branch_name(name))))
    }

    /// Returns a number that is another one when something was written in a workspace, or its HEAD has moved.
    ///
    /// # Errors
    /// If what was written cannot be read.
    pub fn fingerprint(&self, workspace: &Workspace) -> Result<u64> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        let git_dir = workspace.folder.join(".git");
        let head = fs::read(git_dir.join("HEAD")).unwrap_or_default();
        let named = head.strip_prefix(b"ref: ").map(|name| OsStr::from_bytes(name.trim_ascii_end()));
        let refs = named.map(|name| git_dir.join(name)).into_iter().chain([git_dir.join("packed-refs")]);
        for path in refs {
            let time = fs::metadata(path).map(|about| (about.ino(), about.mtime(), about.mtime_nsec()));
            time.unwrap_or_default().hash(&mut hasher);
        }
        (head, self.touched(workspace)?).hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn touched(&self, workspace: &Workspace) -> Result<BTreeMap<Vec<u8>, (TouchedKind, u64)>> {
        let remembered = self.remembered(&self.place(&workspace.folder));
        let mut remembered = remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = Asked {
            place: &self.place(&workspace.folder),
            folder: &workspace.folder,
            tree: &workspace.folder,
            lower: &self.lower(workspace),
            layers: &self.asked_layers(workspace),
        };
        touched_now(&asked, &mut remembered)
    }
}

impl StatusSearch<'_> {
    /// Returns the entries of HEAD's tree at `path`, if there is one.
    fn tree(&mut self, path: &[u8]) -> Result<Option<Rc<HeadTree>>> {
        if let Some(known) = self.trees.get(path) {
            return Ok(known.clone());
        }
        let oid = match path {
            b"" => Some(self.top),
            _ => self.entry(path)?.filter(|(mode, _)| mode & 0o170_000 == TREE).map(|(_, oid)| oid),
        };
        let tree = oid.map(|oid| self.read(&oid)).transpose()?.map(Rc::new);
        self.trees.insert(path.to_vec(), tree.clone());
        Ok(tree)
    }

    fn read(&mut self, oid: &Oid) -> Result<HeadTree> {
        let object = self.reader.require(oid)?;
        if object.kind != Kind::Tree {
            return Err(Error::NotAFolder);
        }
        let mut tree = HashMap::new();
        for entry in TreeIter::new(self.repo.hash(), &object.data) {
            let entry = entry.map_err(|source| weir_repo::Error::Object { oid: *oid, source })?;
            let id = Oid::from_bytes(self.repo.hash(), entry.id).expect("entries have ids of the hash");
            tree.insert(entry.name.to_vec(), (entry.mode, id));
        }
        Ok(tree)
    }

    /// Returns the mode and the id of what HEAD has at `path`.
    fn entry(&mut self, path: &[u8]) -> Result<Option<(u32, Oid)>> {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        Ok(self.tree(above)?.and_then(|tree| tree.get(name).copied()))
    }

    /// Adds the files that HEAD has below `path`.
    fn files_of_head(&mut self, path: &[u8], paths: &mut BTreeSet<Vec<u8>>) -> Result<()> {
        let Some(tree) = self.tree(path)? else { return Ok(()) };
        for (name, (mode, _)) in tree.iter() {
            let below = [path, b"/", name].concat();
            match mode & 0o170_000 {
                TREE => self.files_of_head(&below, paths)?,
                _ => {
                    paths.insert(below);
                }
            }
        }
        Ok(())
    }

    /// Adds the files that are in the folder `path`.
    fn files_there(&self, path: &[u8], paths: &mut BTreeSet<Vec<u8>>) -> Result<()> {
        let at = self.folder.join(OsStr::from_bytes(path));
        let entries = match fs::read_dir(&at) {
            Err(e)
                if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
            {
                return Ok(());
            }
            entries => entries.map_err(Error::on(&at))?,
        };
        for entry in entries {
            let entry = entry.map_err(Error::on(&at))?;
            let below = [path, b"/", entry.file_name().as_bytes()].concat();
            match entry.file_type().map_err(Error::on(&at))?.is_dir() {
                true => self.files_there(&below, paths)?,
                false => {
                    paths.insert(below);
                }
            }
        }
        Ok(())
    }

    /// Returns the repository in the workspace that the file at `path` belongs to.
    fn nested(&mut self, path: &[u8]) -> Result<Option<Nested>> {
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let above = &path[..at];
            if above == b".git" || above.ends_with(b"/.git") {
                return Ok(Some(Nested::Known));
            }
            let is_folder =
                |entry: Option<(u32, Oid)>| entry.is_some_and(|(mode, _)| mode & 0o170_000 == TREE);
            let entry = self.entry(above)?;
            if !is_folder(entry) && self.is_repository(above) {
                let new = || Nested::New([above, b"/"].concat());
                return Ok(Some(entry.map_or_else(new, |_| Nested::Known)));
            }
        }
        Ok(None)
    }

    fn is_repository(&mut self, folder: &[u8]) -> bool {
        if let Some(known) = self.repositories.get(folder) {
            return *known;
        }
        let git_dir = self.folder.join(OsStr::from_bytes(folder)).join(".git");
        let found = fs::symlink_metadata(git_dir).is_ok();
        self.repositories.insert(folder.to_vec(), found);
        found
    }

    /// Returns how the file at `path` differs.
    fn change(&mut self, path: &[u8]) -> Result<Option<PathChange>> {
        let head = self.entry(path)?.filter(|(mode, _)| mode & 0o170_000 != TREE);
        let head = head.map(|(mode, oid)| TreeFile { mode: index_mode(mode), oid });
        let at = self.folder.join(OsStr::from_bytes(path));
        // A file takes the place of a folder above it.
        let about = fs::symlink_metadata(&at)
            .ok()
            .filter(|_| self.above.of(path, &BTreeSet::new()) == Above::Folders);
        let about = about.filter(|about| !about.is_dir() || head.is_some_and(|head| head.mode == SUBMODULE));
        let (head, about) = match (head, about) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Ok(Some(PathChange::New)),
            (Some(_), None) => return Ok(Some(PathChange::Deleted)),
            (Some(head), Some(about)) => (head, about),
        };
        if head.mode == SUBMODULE {
            return Ok((!about.is_dir()).then_some(PathChange::Modified));
        }
        let size = self.reader.kind_and_size(&head.oid)?.map(|(_, size)| size);
        if !head.is_kind_of(&about, self.heeds_modes) || size != Some(about.size()) {
            return Ok(Some(PathChange::Modified));
        }
        let is_same = head.is_content_of(self.repo.hash(), &at)?;
        Ok((!is_same).then_some(PathChange::Modified))
    }
}
