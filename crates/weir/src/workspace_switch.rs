//! Switching a workspace to another commit.

use std::io::Write;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Stdio;
use std::thread::ScopedJoinHandle;

use serde_json::json;
use weir_git::{Kind, Oid};
use weir_ground::thread::spawn_scoped;
use weir_pool::open_local;
use weir_repo::{Head, Repo, resolve_revision};
use weir_workspace::{CommitSwitch, Workspace, Workspaces, is_mounted};

use crate::cli::Global;
use crate::environment::git_command;
use crate::error::{Error, Result};
use crate::named_source::NamedSource;
use crate::output;
use crate::workspace_mounts::{OwnProcesses, attached_to, git, of_workspace};

/// Shows another commit in a workspace.
pub(crate) fn switch(
    global: &Global,
    workspaces: &Workspaces,
    mut workspace: Workspace,
    revision: &str,
    prefers_mount: bool,
) -> Result<()> {
    let folder = workspace.folder.clone();
    if !is_mounted(&folder) {
        workspaces.mount(&workspace, &OwnProcesses).map_err(of_workspace)?;
    }
    workspaces.mend_monitor(&workspace, &OwnProcesses);
    let source =
        NamedSource { name: workspace.repository.clone(), path: workspace.source.clone(), revision: None };
    let (source, git_dir) = (source.open()?, folder.join(".git"));
    let open = || open_local(&git_dir).map_err(|e| Error::Message(format!("{}: {e}", git_dir.display())));
    let mut own = open()?;
    let moved = if attached_to(&workspace.source).is_some() {
        // What it is attached to stays as it was.
        if let Err(e) = git(&folder, &["fetch", "-q", "origin"]) {
            warn_line!("warning: {e}; nothing that is new there is known here");
        }
        own = open()?;
        Vec::new()
    } else {
        moved_refs(&own, &source)
    };
    // A later commit's view has the objects of all.
    if let Some((_, missing)) = moved.iter().find(|(_, oid)| !own.contains(oid)) {
        workspaces.add_objects(&mut workspace, missing, &OwnProcesses).map_err(of_workspace)?;
    }
    if !moved.is_empty() {
        bring_up(&folder, &moved)?;
        own = open()?;
    }
    let is_attached = attached_to(&workspace.source).is_some();
    let to = SwitchTarget::find(&own, (!is_attached).then_some(&source), revision)?;
    if !own.contains(&to.commit) {
        workspaces.add_objects(&mut workspace, &to.commit, &OwnProcesses).map_err(of_workspace)?;
        own = open()?;
    }
    if let Some(branch) = &to.branch
        && let Some(other) = linked_tree_on(&git_dir, branch)
    {
        return Err(Error::Message(format!("'{branch}' is checked out at '{other}', a linked working tree")));
    }
    let from = resolve_revision(&own, "HEAD").map_err(Error::of)?;
    let before = name_of_head(&own);
    let switch = CommitSwitch {
        own,
        open: &|| Ok(open_local(&git_dir)?),
        source: (!is_attached).then_some(&source),
        from,
        to: to.commit,
        prefers_mount,
    };
    let switched = workspaces.switch(&mut workspace, switch, &OwnProcesses).map_err(of_workspace)?;
    let said = format!("checkout: moving from {before} to {revision}");
    let moved = std::thread::scope(|scope| {
        let moving = spawn_scoped("head", scope, || move_head(&folder, &to, &said));
        workspaces.end_switch(&workspace, &switched);
        moving.map(ScopedJoinHandle::join)
    });
    moved?.unwrap_or_else(|panic| resume_unwind(panic))?;
    let count = switched.count;
    switched.head_is_moved();
    if global.json {
        return output::json(
            &json!({ "commit": to.commit.to_string(), "branch": to.branch, "files": count }),
        );
    }
    if !global.quiet {
        let at = to.branch.unwrap_or_else(|| to.commit.to_string()[..12].to_owned());
        writeln!(output::stdout(), "{} is at {at}, {count} files differ", folder.display())?;
    }
    Ok(())
}

/// Returns the branch that HEAD is on, or the id that it is at.
fn name_of_head(repo: &Repo) -> String {
    match &repo.refs().head {
        Head::Symbolic(name) => {
            String::from_utf8_lossy(name.strip_prefix(b"refs/heads/").unwrap_or(name)).into_owned()
        }
        Head::Detached(oid) => oid.to_string(),
    }
}

/// Returns the linked working tree (git-worktree(1)) that is on `branch`, if there is one.
fn linked_tree_on(git_dir: &Path, branch: &str) -> Option<String> {
    let on = format!("ref: refs/heads/{branch}");
    let mut trees = std::fs::read_dir(git_dir.join("worktrees")).ok()?.flatten().map(|entry| entry.path());
    let found = trees
        .find(|tree| std::fs::read_to_string(tree.join("HEAD")).is_ok_and(|head| head.trim_end() == on))?;
    let place = std::fs::read_to_string(found.join("gitdir")).unwrap_or_default();
    Some(place.trim_end().trim_end_matches("/.git").to_owned())
}

/// Moves HEAD of the workspace in `folder`, and logs `why`.
fn move_head(folder: &Path, to: &SwitchTarget, why: &str) -> Result<()> {
    match &to.branch {
        Some(branch) => {
            if !to.has_branch {
                git(folder, &["branch", "-q", "--track", branch, &format!("origin/{branch}")])?;
            }
            git(folder, &["symbolic-ref", "-m", why, "HEAD", &format!("refs/heads/{branch}")])?;
        }
        None => {
            git(folder, &["update-ref", "--no-deref", "-m", why, "HEAD", &to.commit.to_string()])?;
        }
    }
    Ok(())
}

/// The commit that a workspace is to show, and the branch that HEAD is to name.
struct SwitchTarget {
    commit: Oid,
    /// The branch that HEAD is to be on.
    branch: Option<String>,
    /// Whether the workspace has it.
    has_branch: bool,
}

impl SwitchTarget {
    /// Returns what git would check out: a branch of the workspace, a remote branch of that name, of which a
    /// branch is made, a tag or any commit. Without a `source`, the workspace has all.
    fn find(own: &Repo, source: Option<&Repo>, revision: &str) -> Result<SwitchTarget> {
        if revision.is_empty() {
            return Err(Error::Message("there is no revision without a name".to_owned()));
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
        let found = found.map_err(Error::of)?;
        let peeled = own.objects().peel(&found).ok().flatten();
        let commit = peeled.or_else(|| source?.objects().peel(&found).ok().flatten()).unwrap_or(found);
        let kind = |repo: &Repo| repo.reader().kind_and_size(&commit).ok().flatten().map(|(kind, _)| kind);
        if kind(own).or_else(|| source.and_then(kind)) != Some(Kind::Commit) {
            return Err(Error::Message(format!("'{revision}' is no commit")));
        }
        Ok(SwitchTarget { commit, branch: None, has_branch: false })
    }
}

/// Returns the remote branches and tags of `own` that `source` has elsewhere, as a fetch would set them.
fn moved_refs(own: &Repo, source: &Repo) -> Vec<(String, Oid)> {
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
fn bring_up(folder: &Path, refs: &[(String, Oid)]) -> Result<()> {
    let lines: String = refs.iter().map(|(name, oid)| format!("update {name} {oid}\n")).collect();
    let mut git = git_command();
    git.arg("-C").arg(folder).args(["update-ref", "--stdin"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = git.spawn().map_err(|e| Error::Message(format!("cannot start git: {e}")))?;
    child.stdin.take().expect("it is a pipe").write_all(lines.as_bytes())?;
    match child.wait()?.success() {
        true => Ok(()),
        false => Err(Error::Message(format!("git cannot set the refs of '{}'", folder.display()))),
    }
}
