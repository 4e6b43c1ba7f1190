//! A repository that workspaces are made of, and comparisons of folders.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use weir_git::Oid;

use crate::inside::git;

/// Files that differ between the first two commits: more than are written one by one.
pub const MANY: usize = 90;

/// A git directory with three commits, in a folder of its own.
pub struct TestOrigin {
    pub folder: tempfile::TempDir,
    pub git_dir: PathBuf,
    /// The commit of `main`, that of `other`, which differs much, and that of `near`, which differs little.
    pub main: Oid,
    pub other: Oid,
    pub near: Oid,
}

/// A file as a walk finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkedFile {
    Folder,
    File { is_executable: bool, data: Vec<u8> },
    Link(PathBuf),
}

/// Writes a file, and the folders above it.
pub fn write(at: &Path, data: impl AsRef<[u8]>) {
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(at, data).unwrap();
}

pub fn set_mode(at: &Path, mode: u32) {
    fs::set_permissions(at, Permissions::from_mode(mode)).unwrap();
}

impl TestOrigin {
    pub fn new() -> TestOrigin {
        let folder = weir_testing::folder();
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).unwrap();
        git(&tree, &["init", "-q", "-b", "main"]);
        for (name, text) in [
            ("README", "one\n"),
            ("run.sh", "#!/bin/sh\n"),
            ("dir/a", "a\n"),
            ("dir/sub/b", "b\n"),
            ("dir/sub/c", "c\n"),
            ("old/only/file", "old\n"),
            ("kind", "a file\n"),
            ("tree/x", "x\n"),
            ("tree/y/z", "z\n"),
            ("empty", ""),
            (".gitignore", "*.o\nbuild/\n"),
            ("keep/me", "kept\n"),
            ("same", "the same\n"),
        ] {
            write(&tree.join(name), text);
        }
        set_mode(&tree.join("run.sh"), 0o755);
        symlink("dir/a", tree.join("link")).unwrap();
        (0..MANY).for_each(|n| write(&tree.join(format!("many/{n}")), format!("{n}\n")));
        write(&tree.join("large"), vec![b'x'; 300_000]);
        let first = commit(&tree, "first");
        git(&tree, &["update-index", "--add", "--cacheinfo", &format!("160000,{first},module")]);
        fs::create_dir(tree.join("module")).unwrap();
        git(&tree, &["commit", "-q", "-m", "main"]);
        let main = head(&tree);
        git(&tree, &["tag", "-a", "-m", "a tag", "v1"]);
        git(&tree, &["checkout", "-q", "-b", "near"]);
        write(&tree.join("README"), "near\n");
        write(&tree.join("dir/new/n"), "n\n");
        fs::remove_file(tree.join("keep/me")).unwrap();
        let near = commit(&tree, "near");
        git(&tree, &["checkout", "-q", "-b", "other", "main"]);
        write(&tree.join("README"), "other\n");
        set_mode(&tree.join("run.sh"), 0o644);
        fs::remove_file(tree.join("link")).unwrap();
        symlink("dir/sub", tree.join("link")).unwrap();
        fs::remove_dir_all(tree.join("old")).unwrap();
        fs::remove_file(tree.join("kind")).unwrap();
        write(&tree.join("kind/inner"), "inner\n");
        fs::remove_dir_all(tree.join("tree")).unwrap();
        write(&tree.join("tree"), "a file now\n");
        write(&tree.join("dir/sub/new/deep"), "deep\n");
        (0..MANY).for_each(|n| write(&tree.join(format!("many/{n}")), format!("other {n}\n")));
        git(&tree, &["rm", "-q", "--cached", "module"]);
        fs::remove_dir_all(tree.join("module")).unwrap();
        let other = commit(&tree, "other");
        git(&tree, &["checkout", "-q", "main"]);
        git(&tree, &["repack", "-q", "-a", "-d"]);
        let git_dir = folder.path().join("origin.git");
        fs::rename(tree.join(".git"), &git_dir).unwrap();
        git(&git_dir, &["config", "core.bare", "true"]);
        TestOrigin { folder, git_dir, main, other, near }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the files that git checks out of `revision`.
    pub fn files(&self, revision: &str) -> BTreeMap<PathBuf, WalkedFile> {
        let at = self.path("checked-out");
        git(self.folder.path(), &["clone", "-q", "--no-checkout", "origin.git", "checked-out"]);
        let commit = git(&self.git_dir, &["rev-parse", &format!("{revision}^{{commit}}")]);
        git(&at, &["checkout", "-q", "--detach", commit.trim()]);
        let found = walk(&at);
        fs::remove_dir_all(&at).unwrap();
        found
    }
}

/// Commits all files of `tree`. Returns the commit.
pub fn commit(tree: &Path, message: &str) -> Oid {
    git(tree, &["add", "-A"]);
    git(tree, &["commit", "-q", "--allow-empty", "-m", message]);
    head(tree)
}

pub fn head(tree: &Path) -> Oid {
    Oid::from_hex_any(git(tree, &["rev-parse", "HEAD"]).trim().as_bytes()).unwrap()
}

/// Returns all that is in `folder` but `.git`, by paths.
pub fn walk(folder: &Path) -> BTreeMap<PathBuf, WalkedFile> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            if name == Path::new(".git") {
                continue;
            }
            let about = fs::symlink_metadata(&path).unwrap();
            let what = if about.is_dir() {
                folders.push(path);
                WalkedFile::Folder
            } else if about.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                assert_eq!(about.len(), target.as_os_str().len() as u64, "{name:?}");
                WalkedFile::Link(target)
            } else {
                let data = fs::read(&path).unwrap();
                assert_eq!(about.len(), data.len() as u64, "{name:?}");
                WalkedFile::File { is_executable: about.mode() & 0o100 != 0, data }
            };
            found.insert(name, what);
        }
    }
    found
}

/// Checks that two walks have found the same.
pub fn assert_same(found: &BTreeMap<PathBuf, WalkedFile>, expected: &BTreeMap<PathBuf, WalkedFile>) {
    for (name, what) in expected {
        assert!(found.get(name) == Some(what), "{name:?}: {:?} in place of {what:?}", found.get(name));
    }
    let more: Vec<_> = found.keys().filter(|name| !expected.contains_key(*name)).collect();
    assert!(more.is_empty(), "{more:?}");
}
