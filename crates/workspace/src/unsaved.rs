//! Finds what would be lost with a workspace.

use std::fmt;
use std::fs;

use weir_git::{Kind, Oid};
use weir_repo::{Head, Ref, Repo, open_directory};

use crate::error::Result;
use crate::git::git;
use crate::overlay::is_mounted;
use crate::status::is_sparse;
use crate::workspaces::{Workspace, Workspaces};

/// What a workspace has that is nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsaved {
    /// Nobody can say: it is not mounted.
    Unknown,
    /// Changes: the first path, or the first line of git's status.
    Changes(String),
    /// Linked working trees (git-worktree(1)).
    LinkedTrees,
    /// Submodules.
    Submodules,
    /// Stashed changes (git-stash(1)).
    Stash,
    /// Commits, one of which is this.
    Commits(String),
    /// A tag with a message of its own.
    Tag(String),
}

impl fmt::Display for Unsaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsaved::Unknown => f.write_str("it is not mounted, so that nobody can say what it has"),
            Unsaved::Changes(first) => write!(f, "it has changes ({first})"),
            Unsaved::LinkedTrees => f.write_str("it has linked working trees ('git worktree list')"),
            Unsaved::Submodules => {
                f.write_str("it has submodules, which may have commits that are nowhere else")
            }
            Unsaved::Stash => f.write_str("it has stashed changes"),
            Unsaved::Commits(one) => write!(f, "it has commits that are nowhere else ({one})"),
            Unsaved::Tag(name) => write!(f, "it has a tag that is nowhere else ({name})"),
        }
    }
}

impl Workspaces {
    /// Returns what would be lost with a workspace, if anything. `source` is the repository of which it is
    /// one; without it, that repository has nothing.
    ///
    /// # Errors
    /// If something in it cannot be read, or git fails.
    pub fn unsaved(&self, workspace: &Workspace, source: Option<&Repo>) -> Result<Option<Unsaved>> {
        let folder = &workspace.folder;
        if !is_mounted(folder) {
            return Ok(Some(Unsaved::Unknown));
        }
        // git's settings may hide files from git.
        if !is_sparse(workspace)
            && let Some(path) = self.whole_status(workspace)?.changes.keys().next()
        {
            return Ok(Some(Unsaved::Changes(String::from_utf8_lossy(path).into_owned())));
        }
        let staged = git(folder, &["status", "--porcelain", "--untracked-files=all"])?;
        if let Some(line) = staged.lines().next() {
            return Ok(Some(Unsaved::Changes(line.trim().to_owned())));
        }
        let has_some = |name: &str| fs::read_dir(folder.join(name)).is_ok_and(|mut all| all.next().is_some());
        if has_some(".git/worktrees") {
            return Ok(Some(Unsaved::LinkedTrees));
        }
        if has_some(".git/modules") {
            return Ok(Some(Unsaved::Submodules));
        }
        let own = open_directory(&folder.join(".git"))?;
        if own.refs().get(b"refs/stash").is_some() {
            return Ok(Some(Unsaved::Stash));
        }
        let is_elsewhere = |oid: &Oid| source.is_some_and(|source| source.contains(oid));
        let is_own = |r: &&Ref| !r.name.starts_with(b"refs/remotes/") && !is_elsewhere(&r.oid);
        let mut tips: Vec<String> =
            own.refs().list().iter().filter(is_own).map(|r| r.oid.to_string()).collect();
        if let Head::Detached(oid) = &own.refs().head
            && !is_elsewhere(oid)
        {
            tips.push(oid.to_string());
        }
        if tips.is_empty() {
            return Ok(None);
        }
        let tips = tips.iter().map(String::as_str);
        let args: Vec<&str> = ["rev-list", "--max-count=1"].into_iter().chain(tips).collect();
        let not = [&args[..], &["--not", "--remotes", &workspace.commit]].concat();
        let commits = git(folder, &not)?;
        let commits = commits.trim();
        if !commits.is_empty() {
            return Ok(Some(Unsaved::Commits(commits.to_owned())));
        }
        // A tag with a message of its own is lost even if its commit is not.
        let kind = |oid: &Oid| own.reader().kind_and_size(oid).ok().flatten().map(|(kind, _)| kind);
        let tag = own.refs().list().iter().filter(is_own).find(|r| kind(&r.oid) == Some(Kind::Tag));
        Ok(tag.map(|tag| Unsaved::Tag(String::from_utf8_lossy(&tag.name).into_owned())))
    }
}
