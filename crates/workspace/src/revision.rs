//! Finds the commit that a workspace is to show, and moves its refs.

use std::fs::{self, File};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use weir_git::{Kind, Oid};
use weir_ground::thread::spawn;
use weir_repo::{Head, Repo, resolve_revision};

use crate::error::{Error, Result};
use crate::git::{git, git_holding, git_with};

/// Returns the branch that HEAD is on, or the id that it is at.
pub fn name_of_head(repo: &Repo) -> String {
    match &repo.refs().head {
        Head::Symbolic(name) => {
            String::from_utf8_lossy(name.strip_prefix(b"refs/heads/").unwrap_or(name)).into_owned()
        }
        Head::Detached(oid) => oid.to_string(),
    }
}

/// Returns what HEAD of the workspace in `folder` was at before, if `revision` says so as git does: `-` for
/// the last time, `@{-N}` for an earlier one. Else returns `revision`.
///
/// # Errors
/// If HEAD was not elsewhere that often.
pub fn earlier_head(folder: &Path, revision: &str) -> Result<String> {
    let revision = if revision == "-" { "@{-1}" } else { revision };
    let Some(end) = revision.find('}').filter(|_| revision.starts_with("@{-")) else {
        return Ok(revision.to_owned());
    };
    let (name, rest) = revision.split_at(end + 1);
    // This git returns the branch, also if a tag has the same name.
    let named = git(folder, &["check-ref-format", "--branch", name]);
    let named = named.map_err(|e| match e {
        Error::Git { .. } => Error::NeverElsewhere(name.to_owned()),
        e => e,
    })?;
    Ok(format!("{}{rest}", named.trim_end()))
}

/// Returns the linked working tree (git-worktree(1)) that is on `branch`, if there is one.
pub fn linked_tree_on(git_dir: &Path, branch: &str) -> Option<String> {
    let on = format!("ref: refs/heads/{branch}");
    let mut trees = fs::read_dir(git_dir.join("worktrees")).ok()?.flatten().map(|entry| entry.path());
    let found =
        trees.find(|tree| fs::read_to_string(tree.join("HEAD")).is_ok_and(|head| head.trim_end() == on))?;
    let place = fs::read_to_string(found.join("gitdir")).unwrap_or_default();
    Some(place.trim_end().trim_end_matches("/.git").to_owned())
}

/// A move of the HEAD of a workspace.
pub struct HeadMove {
    /// The folder of the workspace.
    pub folder: PathBuf,
    /// The commit that HEAD goes to, and its branch.
    pub to: SwitchTarget,
    /// The message for the reflog (git-reflog(1)).
    pub why: String,
}

impl HeadMove {
    /// Begins to move HEAD in a thread, which starts git: whoever starts a program waits until it runs.
    ///
    /// git has the lock `alone` until it ends. If this process is killed, other processes wait for git.
    ///
    /// # Errors
    /// If the system starts no thread, or no descriptor is left.
    pub(crate) fn begin(self, alone: &File) -> Result<MovingHead> {
        let alone = alone.try_clone().map_err(Error::NoGit)?;
        spawn("git", move || self.run(&alone)).map(MovingHead).map_err(Error::NoGit)
    }

    fn run(&self, alone: &File) -> Result<()> {
        let HeadMove { folder, to, why } = self;
        let git = |args: &[&str]| {
            let alone = alone.try_clone().map_err(Error::NoGit)?;
            git_holding(folder, args, alone.into())
        };
        match &to.branch {
            Some(branch) => {
                if !to.has_branch {
                    git(&["branch", "-q", "--track", branch, &format!("origin/{branch}")])?;
                }
                let name = format!("refs/heads/{branch}");
                git(&["symbolic-ref", "-m", why, "HEAD", &name])?;
            }
            None => {
                let commit = to.commit.to_string();
                git(&["update-ref", "--no-deref", "-m", why, "HEAD", &commit])?;
            }
        }
        Ok(())
    }
}

/// A HEAD that git moves.
pub(crate) struct MovingHead(JoinHandle<Result<()>>);

impl MovingHead {
    /// Waits until git has moved it.
    ///
    /// # Errors
    /// If git fails.
    pub(crate) fn wait(self) -> Result<()> {
        self.0.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// The commit that a workspace is to show, and the branch that HEAD is to name.
#[derive(Clone)]
pub struct SwitchTarget {
    /// The commit.
    pub commit: Oid,
    /// The branch that HEAD is to be on.
    pub branch: Option<String>,
    /// Whether the workspace has it.
    pub has_branch: bool,
}

impl SwitchTarget {
    /// Returns what git would check out: a branch of the workspace, a remote branch of that name, of which a
    /// branch is made, a tag or any commit. Without a `source`, the workspace has all.
    ///
    /// # Errors
    /// If there is no such commit.
    pub fn find(own: &Repo, source: Option<&Repo>, revision: &str) -> Result<SwitchTarget> {
        if revision.is_empty() {
            return Err(Error::EmptyRevision);
        }
        // git stays on the branch, also if another has that name.
        if revision == "HEAD"
            && let Head::Symbolic(name) = &own.refs().head
            && let (Some(name), Some(commit)) = (name.strip_prefix(b"refs/heads/"), own.refs().head_oid())
            && let Ok(name) = std::str::from_utf8(name)
        {
            return Ok(SwitchTarget { commit, branch: Some(name.to_owned()), has_branch: true });
        }
        let branch = format!("refs/heads/{revision}");
        let remote = format!("refs/remotes/origin/{revision}");
        let of_source = source.map_or((own, &remote), |source| (source, &branch));
        for ((repo, name), has_branch) in [((own, &branch), true), (of_source, false)] {
            if let Some(found) = repo.refs().get(name.as_bytes()) {
                return Ok(SwitchTarget { commit: found.oid, branch: Some(revision.to_owned()), has_branch });
            }
        }
        // HEAD is the workspace's.
        let is_of_head = revision.starts_with("HEAD");
        let found = match resolve_revision(own, revision) {
            Err(e) if !is_of_head => source.map_or(Err(e), |source| resolve_revision(source, revision)),
            found => found,
        };
        let found = found?;
        let peeled = own.objects().peel(&found).ok().flatten();
        let commit = peeled.or_else(|| source?.objects().peel(&found).ok().flatten()).unwrap_or(found);
        let kind = |repo: &Repo| repo.reader().kind_and_size(&commit).ok().flatten().map(|(kind, _)| kind);
        if kind(own).or_else(|| source.and_then(kind)) != Some(Kind::Commit) {
            return Err(Error::NotACommit(revision.to_owned()));
        }
        Ok(SwitchTarget { commit, branch: None, has_branch: false })
    }
}

/// Returns the remote branches and tags of `own` that `source` has elsewhere, as a fetch would set them.
pub fn moved_refs(own: &Repo, source: &Repo) -> Vec<(String, Oid)> {
    let mut moved = Vec::new();
    for r in source.refs().list() {
        let name = match r.name.strip_prefix(b"refs/heads/") {
            Some(branch) => [b"refs/remotes/origin/", branch].concat(),
            None if r.name.starts_with(b"refs/tags/") => r.name.clone(),
            None => continue,
        };
        let known = own.refs().get(&name);
        // Tags stay where they are, as git fetch leaves them.
        let has_moved = known.is_none_or(|known| known.oid != r.oid && name.starts_with(b"refs/remotes/"));
        if let Ok(name) = String::from_utf8(name)
            && has_moved
        {
            moved.push((name, r.oid));
        }
    }
    moved
}

/// Sets refs of the workspace in `folder`.
///
/// # Errors
/// If git fails.
pub fn bring_up(folder: &Path, refs: &[(String, Oid)]) -> Result<()> {
    let lines: String = refs.iter().map(|(name, oid)| format!("update {name} {oid}\n")).collect();
    match git_with(folder, &["update-ref", "--stdin"], lines.into_bytes())? {
        (Some(0), _) => Ok(()),
        _ => Err(Error::Refs(folder.to_owned())),
    }
}
