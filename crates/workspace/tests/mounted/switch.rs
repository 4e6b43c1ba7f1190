//! Switches of workspaces to other commits.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_git::Oid;
use weir_repo::{open_directory, open_directory_beside};
use weir_workspace::{
    CommitSwitch, Error, HeadMove, Result, SwitchTarget, UserSearch, Workspace, bring_up, earlier_head,
    linked_tree_on, moved_refs, name_of_head,
};

use crate::add::{MadeWorkspaces, assert_clean};
use crate::fork::fork;
use crate::inside::{TestProcesses, git, is_inside, open};
use crate::origin::{WalkedFile, assert_same, head, set_mode, walk, write};
use crate::status::assert_as_git;

/// Switches a workspace as the program does. Returns the number of files that differ.
fn switch(
    made: &MadeWorkspaces,
    workspace: &mut Workspace,
    revision: &str,
    prefers_mount: bool,
) -> Result<usize> {
    switch_from(made, workspace, revision, prefers_mount, None)
}

fn switch_from(
    made: &MadeWorkspaces,
    workspace: &mut Workspace,
    revision: &str,
    prefers_mount: bool,
    from: Option<Oid>,
) -> Result<usize> {
    let folder = workspace.folder.clone();
    let users = UserSearch::begin(&folder);
    let (git_dir, source) = (folder.join(".git"), open(&made.origin.git_dir));
    let revision = earlier_head(&folder, revision)?;
    let open_own = || Ok(open_directory_beside(&git_dir, &source)?);
    let own = open_own()?;
    let to = SwitchTarget::find(&own, Some(&source), &revision)?;
    let from = from.unwrap_or_else(|| own.refs().head_oid().unwrap());
    let why = format!("checkout: moving from {} to {revision}", name_of_head(&own));
    let switch = CommitSwitch {
        own,
        open_own: &open_own,
        open: &|| Ok(open_directory(&git_dir)?),
        source: Some(&source),
        from,
        head: HeadMove { folder: folder.clone(), to, why },
        users,
        prefers_mount,
    };
    let mut switched = made.workspaces.switch(workspace, switch, &TestProcesses)?;
    made.workspaces.end_switch(workspace, &mut switched);
    let count = switched.count;
    switched.wait()?;
    assert!(!folder.join(".git/switch.begun").exists() && !folder.join(".git/index.lock").exists());
    assert!(!folder.join(".git/switch.lock").exists() && !folder.join(".git/switch.new").exists());
    Ok(count)
}

/// Returns the times of all files in `folder` but `.git`, in nanoseconds.
fn times(folder: &Path) -> BTreeMap<PathBuf, i128> {
    let time = |path: &PathBuf| {
        let about = fs::symlink_metadata(folder.join(path)).unwrap();
        i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec())
    };
    walk(folder).into_keys().map(|path| (path.clone(), time(&path))).collect()
}

/// Returns the number of the inode of a file that no switch of these tests changes: another one when the
/// workspace was mounted again.
fn device(folder: &Path) -> u64 {
    fs::metadata(folder).unwrap().dev()
}

/// Checks that files have changed their times if and only if they have changed otherwise.
fn assert_times(before: &BTreeMap<PathBuf, i128>, was: &BTreeMap<PathBuf, WalkedFile>, folder: &Path) {
    let (after, is) = (times(folder), walk(folder));
    let latest = before.values().max().unwrap();
    for (path, time) in &after {
        let is_same = was.get(path) == is.get(path);
        match (is.get(path), before.get(path)) {
            (Some(WalkedFile::Folder), _) => {}
            (_, Some(old)) if is_same => assert_eq!(time, old, "{path:?}"),
            _ => assert!(time > latest, "{path:?}"),
        }
    }
}

#[test]
fn switch_shows_the_files_of_the_other_commit_in_each_way() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let files = ["main", "other", "near"].map(|name| (name, made.origin.files(name)));
    let files: BTreeMap<&str, _> = files.into_iter().collect();
    for prefers_mount in [false, true] {
        let mut workspace = made.add(&format!("w{prefers_mount}"));
        let folder = workspace.folder.clone();
        write(&folder.join("untracked/mine"), "mine\n");
        let mine = |of: &BTreeMap<PathBuf, WalkedFile>| {
            let mut of = of.clone();
            of.insert("untracked".into(), WalkedFile::Folder);
            of.insert(
                "untracked/mine".into(),
                WalkedFile::File { is_executable: false, data: b"mine\n".into() },
            );
            of
        };
        fs::write(folder.join(".git/info/exclude"), "untracked\n").unwrap();
        let (mut last, mut before) = ("main", times(&folder));
        for (to, count, is_many) in [
            ("near", 3, false),
            ("main", 3, false),
            ("other", 101, true),
            ("near", 103, true),
            ("main", 3, false),
        ] {
            let (was, device_before) = (walk(&folder), device(&folder));
            assert_eq!(switch(&made, &mut workspace, to, prefers_mount).unwrap(), count, "{last} to {to}");
            assert_same(&walk(&folder), &mine(&files[to]));
            assert_clean(&folder);
            assert_as_git(&made, &workspace);
            assert_times(&before, &was, &folder);
            assert_eq!(device(&folder) != device_before, is_many || prefers_mount, "{last} to {to}");
            assert_eq!(git(&folder, &["rev-parse", "--abbrev-ref", "HEAD"]).trim(), to);
            let said = git(&folder, &["reflog", "-1", "--format=%gs"]);
            assert_eq!(said.trim(), format!("checkout: moving from {last} to {to}"));
            assert!(made.workspaces.is_alive(&workspace));
            (last, before) = (to, times(&folder));
        }
        assert_eq!(switch(&made, &mut workspace, "-", prefers_mount).unwrap(), 3);
        assert_eq!(head(&folder), made.origin.near);
        assert_eq!(switch(&made, &mut workspace, "v1", prefers_mount).unwrap(), 3);
        assert_eq!(git(&folder, &["rev-parse", "--abbrev-ref", "HEAD"]), "HEAD\n");
        assert_eq!(head(&folder), made.origin.main);
        assert_eq!(switch(&made, &mut workspace, "HEAD", prefers_mount).unwrap(), 0);
        let views = fs::read_dir(made.root.join("views")).unwrap();
        let views = views.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
        assert_eq!(views, 1 + usize::from(prefers_mount), "others have ended");
        // It is mounted again as it was.
        let was = walk(&folder);
        weir_workspace::unmount_dead(&folder);
        weir_workspace::unmount_dead(&made.workspaces.view(&workspace));
        made.workspaces.mount(&workspace, &TestProcesses).unwrap();
        assert_same(&walk(&folder), &was);
        assert_clean(&folder);
    }
}

#[test]
fn switch_keeps_what_was_written_before_and_since() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    for (n, prefers_mount) in [false, true].into_iter().enumerate() {
        let mut workspace = made.add(&format!("w{n}"));
        let folder = workspace.folder.clone();
        // Some of what differs was written, and is in a layer of a fork.
        for file in ["many/1", "tree/y/z", "kind", "README"] {
            let text = fs::read(folder.join(file)).unwrap();
            fs::remove_file(folder.join(file)).unwrap();
            write(&folder.join(file), text);
        }
        fs::rename(folder.join("dir"), folder.join("moved")).unwrap();
        fs::rename(folder.join("moved"), folder.join("dir")).unwrap();
        fork(&made, &workspace, &format!("fork{n}"), 5);
        workspace = made.workspaces.find(&folder).unwrap();
        write(&folder.join("many/2"), "2\n");
        write(&folder.join("tree/y/ignored.o"), "stays\n");
        write(&folder.join("keep/me"), "changed, and no commit differs there\n");
        write(&folder.join("new"), "new\n");
        fs::remove_file(folder.join("same")).unwrap();
        let refused = switch(&made, &mut workspace, "other", prefers_mount);
        assert!(matches!(refused, Err(Error::Odd(_))), "an ignored file is in the way");
        assert_eq!(head(&folder), made.origin.main);
        fs::remove_file(folder.join("tree/y/ignored.o")).unwrap();
        assert_eq!(switch(&made, &mut workspace, "other", prefers_mount).unwrap(), 101);
        let mut expected = made.origin.files("other");
        let file = |text: &str| WalkedFile::File { is_executable: false, data: text.into() };
        expected.insert("keep/me".into(), file("changed, and no commit differs there\n"));
        expected.insert("new".into(), file("new\n"));
        expected.remove(Path::new("same"));
        assert_same(&walk(&folder), &expected);
        assert_as_git(&made, &workspace);
        // A commit of its own, and back.
        git(&folder, &["add", "-A"]);
        git(&folder, &["commit", "-q", "-m", "mine"]);
        switch(&made, &mut workspace, "near", prefers_mount).unwrap();
        assert_same(&walk(&folder), &made.origin.files("near"));
        assert_clean(&folder);
        switch(&made, &mut workspace, "other", prefers_mount).unwrap();
        assert_same(&walk(&folder), &expected);
        assert_clean(&folder);
        assert_as_git(&made, &workspace);
    }
}

#[test]
fn switch_stays_in_a_mount_that_is_in_use() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let mut workspace = made.add("w");
    let folder = workspace.folder.clone();
    let opened = fs::File::open(folder.join("large")).unwrap();
    let before = device(&folder);
    switch(&made, &mut workspace, "other", true).unwrap();
    assert_eq!(device(&folder), before);
    assert_same(&walk(&folder), &made.origin.files("other"));
    assert_clean(&folder);
    drop(opened);
    switch(&made, &mut workspace, "main", true).unwrap();
    assert_ne!(device(&folder), before);
    assert_same(&walk(&folder), &made.origin.files("main"));
    assert_clean(&folder);
    // It is mounted at another place, too.
    let (bound, before) = (made.origin.path("bound"), device(&folder));
    fs::create_dir(&bound).unwrap();
    let mount = |args: &[&str]| {
        weir_testing::output_of(weir_testing::short_command("mount").args(args));
    };
    mount(&["--bind", folder.to_str().unwrap(), bound.to_str().unwrap()]);
    switch(&made, &mut workspace, "other", true).unwrap();
    assert_eq!(device(&folder), before);
    assert_same(&walk(&bound), &made.origin.files("other"));
    weir_testing::output_of(weir_testing::short_command("umount").arg(&bound));
    // A program watches its files.
    let flags = rustix::fs::inotify::CreateFlags::CLOEXEC;
    let watch = rustix::fs::inotify::init(flags).unwrap();
    let what = rustix::fs::inotify::WatchFlags::CREATE;
    rustix::fs::inotify::add_watch(&watch, folder.join("dir"), what).unwrap();
    switch(&made, &mut workspace, "main", true).unwrap();
    assert_eq!(device(&folder), before);
    drop(watch);
    switch(&made, &mut workspace, "other", true).unwrap();
    assert_ne!(device(&folder), before);
    // A program of another namespace has it.
    let before = device(&folder);
    let mut other = weir_testing::command("unshare");
    let mut other = other.args(["--mount", "sleep", "1000"]).spawn().unwrap();
    weir_testing::wait_until(
        || "no namespace".to_owned(),
        || {
            let of = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
            of(other.id()) != of(std::process::id())
        },
    );
    switch(&made, &mut workspace, "main", true).unwrap();
    assert_eq!(device(&folder), before);
    assert_same(&walk(&folder), &made.origin.files("main"));
    other.kill().unwrap();
    other.wait().unwrap();
}

/// A change by which a switch would lose something, and how it is taken back.
type RefusedChange = (&'static str, fn(&Path), fn(&Path));

fn reset(at: &Path) {
    git(at, &["reset", "-q", "--hard"]);
    git(at, &["clean", "-q", "-f", "-d", "-x"]);
    // git removes what it takes for the folder of a file.
    let _ = fs::remove_dir_all(at.join("module"));
    fs::create_dir(at.join("module")).unwrap();
}

const IN_WAY: &[RefusedChange] = &[
    ("a change", |at| write(&at.join("many/7"), "mine\n"), reset),
    ("a change of the same size", |at| write(&at.join("many/7"), "8\n"), reset),
    ("a change of a mode", |at| set_mode(&at.join("many/7"), 0o755), reset),
    (
        "a link",
        |at| {
            fs::remove_file(at.join("link")).unwrap();
            std::os::unix::fs::symlink("x", at.join("link")).unwrap();
        },
        reset,
    ),
    ("a change of what goes", |at| write(&at.join("old/only/file"), "mine\n"), reset),
    ("a file beside what goes", |at| write(&at.join("tree/mine"), "mine\n"), reset),
    ("a file where a folder comes", |at| write(&at.join("dir/sub/new"), "mine\n"), reset),
    ("a file where one comes", |at| write(&at.join("dir/sub/new/deep"), "deep\n"), reset),
    (
        "a folder where a file is",
        |at| {
            fs::remove_file(at.join("many/7")).unwrap();
            write(&at.join("many/7/x"), "mine\n");
        },
        reset,
    ),
    (
        "a file in place of a folder",
        |at| {
            fs::remove_dir_all(at.join("old")).unwrap();
            write(&at.join("old"), "mine\n");
        },
        reset,
    ),
    (
        "what is staged",
        |at| {
            write(&at.join("many/7"), "mine\n");
            git(at, &["add", "many/7"]);
        },
        reset,
    ),
    ("what is staged to be removed", |at| drop(git(at, &["rm", "-q", "many/7"])), reset),
    (
        "what is staged and not there",
        |at| {
            write(&at.join("many/7"), "mine\n");
            git(at, &["add", "many/7"]);
            write(&at.join("many/7"), "7\n");
        },
        reset,
    ),
    (
        "what is staged below a new file",
        |at| {
            write(&at.join("dir/sub/new/deep/er"), "mine\n");
            git(at, &["add", "."]);
            fs::remove_dir_all(at.join("dir/sub/new")).unwrap();
        },
        reset,
    ),
    (
        "what is staged above a new file",
        |at| {
            write(&at.join("dir/sub/new"), "mine\n");
            git(at, &["add", "."]);
            fs::remove_file(at.join("dir/sub/new")).unwrap();
        },
        reset,
    ),
    (
        "a merge",
        |at| fs::write(at.join(".git/MERGE_HEAD"), "").unwrap(),
        |at| {
            fs::remove_file(at.join(".git/MERGE_HEAD")).unwrap();
        },
    ),
    (
        "a rebase",
        |at| fs::create_dir(at.join(".git/rebase-apply")).unwrap(),
        |at| {
            fs::remove_dir(at.join(".git/rebase-apply")).unwrap();
        },
    ),
    (
        "another git",
        |at| fs::write(at.join(".git/index.lock"), "").unwrap(),
        |at| {
            fs::remove_file(at.join(".git/index.lock")).unwrap();
        },
    ),
    (
        "another git at HEAD",
        |at| fs::write(at.join(".git/HEAD.lock"), "").unwrap(),
        |at| {
            fs::remove_file(at.join(".git/HEAD.lock")).unwrap();
        },
    ),
    (
        "another switch",
        |at| {
            let text = format!("{} {} near", head(at), "1".repeat(40));
            fs::write(at.join(".git/switch.begun"), text).unwrap();
        },
        |at| fs::remove_file(at.join(".git/switch.begun")).unwrap(),
    ),
    (
        "a sparse checkout",
        |at| drop(git(at, &["sparse-checkout", "set", "dir"])),
        |at| {
            git(at, &["sparse-checkout", "disable"]);
        },
    ),
    (
        "a damaged index",
        |at| {
            fs::copy(at.join(".git/index"), at.join(".git/kept")).unwrap();
            fs::remove_file(at.join(".git/index")).unwrap();
            fs::write(at.join(".git/index"), b"DIRC").unwrap();
        },
        |at| fs::rename(at.join(".git/kept"), at.join(".git/index")).unwrap(),
    ),
];

#[test]
fn switch_is_refused_where_something_would_be_lost() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let blob = git(&made.origin.git_dir, &["rev-parse", "main:README"]).trim().to_owned();
    for prefers_mount in [true, false] {
        let mut workspace = made.add(&format!("w{prefers_mount}"));
        let folder = workspace.folder.clone();
        for (what, begin, end) in IN_WAY {
            begin(&folder);
            let before = (walk(&folder), git(&folder, &["rev-parse", "HEAD"]));
            let index = fs::read(folder.join(".git/index")).unwrap();
            let refused = switch(&made, &mut workspace, "other", prefers_mount);
            assert!(refused.is_err(), "{what}");
            assert!(!matches!(refused, Err(Error::HeadMoved(_))), "{what}");
            assert_same(&walk(&folder), &before.0);
            assert_eq!(git(&folder, &["rev-parse", "HEAD"]), before.1, "{what}");
            assert!(fs::read(folder.join(".git/index")).unwrap() == index, "{what}");
            end(&folder);
            assert_eq!(git(&folder, &["status", "--porcelain"]), "", "{what}");
        }
        let stale = switch_from(&made, &mut workspace, "other", prefers_mount, Some(made.origin.near));
        assert!(matches!(stale, Err(Error::HeadMoved(at)) if at == folder));
        for (revision, is_it) in [
            ("", &(|e: &Error| matches!(e, Error::EmptyRevision)) as &dyn Fn(&Error) -> bool),
            ("@{-9}", &|e| matches!(e, Error::NeverElsewhere(_))),
            (&blob, &|e| matches!(e, Error::NotACommit(_))),
            ("nothing", &|e| matches!(e, Error::Repo(_))),
        ] {
            let refused = switch(&made, &mut workspace, revision, prefers_mount).unwrap_err();
            assert!(is_it(&refused), "{revision}: {refused}");
        }
        assert_same(&walk(&folder), &made.origin.files("main"));
        assert_eq!(switch(&made, &mut workspace, "other", prefers_mount).unwrap(), 101);
        assert_same(&walk(&folder), &made.origin.files("other"));
    }
}

#[test]
fn switch_that_ended_half_way_goes_on() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    for prefers_mount in [true, false] {
        let mut workspace = made.add(&format!("w{prefers_mount}"));
        let folder = workspace.folder.clone();
        let begun = format!("{} {} other", made.origin.main, made.origin.other);
        fs::write(folder.join(".git/switch.begun"), begun).unwrap();
        // A lock that the same switch had, and what it had written.
        fs::write(folder.join(".git/switch.lock"), "").unwrap();
        fs::hard_link(folder.join(".git/switch.lock"), folder.join(".git/index.lock")).unwrap();
        fs::write(folder.join(".git/switch.new"), "half").unwrap();
        write(&folder.join("README"), "other\n");
        write(&folder.join("many/7"), "other 7\n");
        fs::remove_dir_all(folder.join("tree")).unwrap();
        write(&folder.join("tree"), "a file now\n");
        fs::remove_file(folder.join("kind")).unwrap();
        write(&folder.join("kind/inner"), "inner\n");
        write(&folder.join("dir/sub/new/deep"), "deep\n");
        assert_eq!(switch(&made, &mut workspace, "other", prefers_mount).unwrap(), 101);
        assert_same(&walk(&folder), &made.origin.files("other"));
        assert_clean(&folder);
        assert_as_git(&made, &workspace);
    }
}

#[test]
fn switch_finds_commits_and_branches_as_git_does() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let workspace = made.add("w");
    let (folder, source) = (&workspace.folder, open(&made.origin.git_dir));
    let own = || open(&folder.join(".git"));
    let find = |revision: &str| {
        let found = SwitchTarget::find(&own(), Some(&source), revision).unwrap();
        (found.commit, found.branch, found.has_branch)
    };
    let (main, other) = (made.origin.main, made.origin.other);
    assert_eq!(find("HEAD"), (main, Some("main".to_owned()), true));
    assert_eq!(find("main"), (main, Some("main".to_owned()), true));
    assert_eq!(find("other"), (other, Some("other".to_owned()), false));
    assert_eq!(find("v1"), (main, None, false));
    assert_eq!(find("other~1"), (main, None, false));
    assert_eq!(find(&other.to_string()), (other, None, false));
    let alone = SwitchTarget::find(&own(), None, "other").unwrap();
    assert_eq!((alone.commit, alone.has_branch), (other, false));
    assert_eq!(name_of_head(&own()), "main");
    assert_eq!(earlier_head(folder, "@{-x").unwrap(), "@{-x");
    assert_eq!(earlier_head(folder, "main}").unwrap(), "main}");
    assert!(matches!(earlier_head(folder, "-"), Err(Error::NeverElsewhere(_))));
    git(folder, &["checkout", "-q", "near"]);
    assert_eq!(earlier_head(folder, "@{-1}~1").unwrap(), "main~1");
    assert_eq!(earlier_head(folder, "-").unwrap(), "main");
    git(folder, &["checkout", "-q", "--detach", "origin/other"]);
    assert_eq!(name_of_head(&own()), other.to_string());
    // The origin goes on: its branches are brought, its tags only if they are new.
    assert_eq!(moved_refs(&own(), &source), []);
    let at = &made.origin.git_dir;
    git(at, &["branch", "-f", "near", "other"]);
    git(at, &["branch", "new", "main"]);
    git(at, &["tag", "-f", "v1", "other"]);
    git(at, &["tag", "v2", "main"]);
    git(at, &["update-ref", "refs/notes/x", "main"]);
    let moved = moved_refs(&own(), &open(at));
    let expected = [("remotes/origin/near", other), ("remotes/origin/new", main), ("tags/v2", main)];
    assert_eq!(moved, expected.map(|(name, oid)| (format!("refs/{name}"), oid)));
    bring_up(folder, &moved).unwrap();
    assert_eq!(moved_refs(&own(), &open(at)), []);
    let nothing = Oid::from_hex_any("1".repeat(40).as_bytes()).unwrap();
    assert!(matches!(bring_up(folder, &[("refs/tags/x".to_owned(), nothing)]), Err(Error::Refs(_))));
    let (linked, git_dir) = (made.origin.path("linked"), folder.join(".git"));
    assert_eq!(linked_tree_on(&git_dir, "near"), None);
    git(folder, &["worktree", "add", "-q", linked.to_str().unwrap(), "near"]);
    assert_eq!(linked_tree_on(&git_dir, "near").as_deref(), linked.to_str());
    assert_eq!(linked_tree_on(&git_dir, "main"), None);
}

#[test]
fn switch_brings_objects_that_came_to_the_origin_later() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let mut workspace = made.add("w");
    let folder = workspace.folder.clone();
    // The view of a later commit has the objects of all, once they are in a pack.
    let mut view = workspace.clone();
    made.workspaces.add_objects(&mut view, &made.origin.near, &TestProcesses).unwrap();
    assert_eq!(view.later, [made.origin.near.to_string()]);
    let alternates = fs::read_to_string(folder.join(".git/objects/info/alternates")).unwrap();
    assert_eq!(alternates.lines().count(), 2, "{alternates}");
    for line in alternates.lines() {
        assert!(fs::read_dir(Path::new(line).join("pack")).unwrap().count() >= 2, "{line}");
    }
    assert_eq!(made.workspaces.find(&folder).unwrap().later, view.later);
    fs::write(folder.join(".git/objects/info/alternates"), format!("{alternates}/elsewhere\n")).unwrap();
    switch(&made, &mut workspace, "other", true).unwrap();
    assert!(workspace.later.is_empty(), "the view of the new commit has all");
    let alternates = fs::read_to_string(folder.join(".git/objects/info/alternates")).unwrap();
    let view = made.workspaces.view(&workspace).join("objects");
    let expected = [view.to_str().unwrap(), alternates.lines().nth(1).unwrap(), "/elsewhere"];
    assert_eq!(alternates.lines().collect::<Vec<_>>(), expected);
    assert_same(&walk(&folder), &made.origin.files("other"));
}
