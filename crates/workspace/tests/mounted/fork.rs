//! Forks of workspaces.

use std::fs;
use std::path::Path;

use weir_workspace::{Error, Forked, Monitor, NewFork, Result, Workspace, changed_since, is_mounted};

use crate::add::MadeWorkspaces;
use crate::inside::{TestProcesses, git, is_inside};
use crate::origin::{assert_same, walk, write};
use crate::status::{assert_as_git, change_all};

fn try_fork(made: &MadeWorkspaces, from: &Workspace, folder: &Path, now: u64) -> Result<Forked> {
    made.workspaces.fork(from.clone(), &NewFork { folder, now, monitor: "true" }, &TestProcesses)
}

pub fn fork(made: &MadeWorkspaces, from: &Workspace, name: &str, now: u64) -> Forked {
    try_fork(made, from, &made.origin.path(name), now).unwrap()
}

fn list_of(made: &MadeWorkspaces, workspace: &Workspace) -> Vec<u8> {
    let place = made.workspaces.written(workspace).parent().unwrap().to_owned();
    fs::read(place.join("touched")).unwrap()
}

#[test]
fn fork_has_all_that_was_written_and_goes_its_own_way() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let added = made.try_add(&made.origin.path("w"), |new| new.asks = Monitor::Hook).unwrap();
    let workspace = added.workspace;
    let folder = workspace.folder.clone();
    change_all(&folder);
    git(&folder, &["add", "README"]);
    let place = made.workspaces.written(&workspace).parent().unwrap().to_owned();
    changed_since(&place, &folder, "x").unwrap();
    let before = walk(&folder);
    let forked = fork(&made, &workspace, "fork", 1_700_000_200);
    assert!(!forked.was_in_use);
    let (other, workspace) = (forked.workspace, made.workspaces.find(&folder).unwrap());
    assert_eq!((other.made_at, &other.commit), (1_700_000_200, &workspace.commit));
    assert_eq!(list_of(&made, &other), list_of(&made, &workspace));
    let hook = git(&other.folder, &["config", "core.fsmonitor"]);
    let their_place = made.workspaces.written(&other).parent().unwrap().join("fsmonitor");
    assert_eq!(hook.trim(), their_place.to_str().unwrap());
    assert!(fs::read_to_string(&their_place).unwrap().contains("exec true"));
    for one in [&workspace, &other] {
        assert_same(&walk(&one.folder), &before);
        assert_as_git(&made, one);
        assert!(made.workspaces.is_alive(one));
    }
    let mut written = fs::read_dir(made.workspaces.written(&workspace)).unwrap();
    assert!(
        written.all(|entry| entry.unwrap().file_name() == ".git"),
        "git's own files alone are written since"
    );
    // Neither workspace sees the other's later writes; a fork of the fork has both layers.
    write(&folder.join("mine"), "mine");
    write(&folder.join("dir/new/file"), "mine");
    fs::remove_file(folder.join("dir/sub/c")).unwrap();
    assert_same(&walk(&other.folder), &before);
    let theirs = walk(&folder);
    let opened = fs::File::open(folder.join("mine")).unwrap();
    let third = fork(&made, &made.workspaces.find(&folder).unwrap(), "third", 1_700_000_300);
    assert!(third.was_in_use);
    drop(opened);
    assert_same(&walk(&third.workspace.folder), &theirs);
    assert_as_git(&made, &third.workspace);
    assert_as_git(&made, &made.workspaces.find(&folder).unwrap());
    let layers = || fs::read_dir(made.root.join("layers")).unwrap().count();
    assert_eq!(layers(), 2);
    // A layer goes with the last that stands on it.
    for one in [&workspace, &third.workspace] {
        made.workspaces.remove(&made.workspaces.find(&one.folder).unwrap()).unwrap();
    }
    assert_eq!(layers(), 1);
    assert_same(&walk(&other.folder), &before);
    made.workspaces.remove(&other).unwrap();
    assert_eq!(layers(), 0);
}

#[test]
fn fork_is_refused_where_something_would_be_lost() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let workspace = made.add("w");
    let folder = &workspace.folder;
    let refused = |at: &Path| try_fork(&made, &workspace, at, 1).map(|forked| forked.workspace.folder);
    let new = made.origin.path("fork");
    write(&new.join("full"), "");
    assert!(matches!(refused(&new), Err(Error::NotEmpty(_))));
    fs::remove_dir_all(&new).unwrap();
    assert!(matches!(refused(folder), Err(Error::Taken(_))));
    let opened = fs::File::create(folder.join("opened")).unwrap();
    assert!(matches!(refused(&new), Err(Error::Mount { .. })));
    drop(opened);
    write(&folder.join("written"), "still");
    let linked = made.origin.path("linked");
    git(folder, &["worktree", "add", "-q", "--detach", linked.to_str().unwrap()]);
    assert!(matches!(refused(&new), Err(Error::Odd(_))));
    git(folder, &["worktree", "remove", linked.to_str().unwrap()]);
    let mut by_program = workspace.clone();
    by_program.uses_fuse_overlayfs = true;
    assert!(matches!(try_fork(&made, &by_program, &new, 1), Err(Error::Odd(_))));
    assert!(!is_mounted(&new));
    assert_eq!(refused(&new).unwrap(), new);
    assert_eq!(fs::read_to_string(new.join("written")).unwrap(), "still");
    // As many as fit into a page.
    let mut at = workspace.clone();
    let mut forked = 0;
    let end = loop {
        write(&at.folder.join(format!("fork {forked}")), "x");
        match try_fork(&made, &at, &made.origin.path(&format!("f{forked}")), 2 + forked) {
            Ok(_) => at = made.workspaces.find(&at.folder).unwrap(),
            Err(e) => break e,
        }
        forked += 1;
    };
    assert!(matches!(end, Error::Odd(_)), "{end}");
    assert_eq!(forked, 47, "one before");
    assert_eq!(fs::read_to_string(at.folder.join("fork 0")).unwrap(), "x");
}

#[test]
fn fork_by_the_program_of_fuse_is_mounted_and_refused() {
    if !is_inside() || weir_testing::program("fuse-overlayfs").is_none() {
        return;
    }
    let made = MadeWorkspaces::new();
    let added = made.try_add(&made.origin.path("w, x:y"), |new| new.uses_fuse_overlayfs = true).unwrap();
    assert_same(&walk(&added.workspace.folder), &made.origin.files("main"));
    let new = made.origin.path("fork");
    assert!(matches!(try_fork(&made, &added.workspace, &new, 1), Err(Error::Odd(_))));
    made.workspaces.remove(&added.workspace).unwrap();
    assert!(!added.workspace.folder.exists());
}
