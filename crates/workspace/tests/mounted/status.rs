//! Tests that compare weir's status of a workspace with the one that git prints.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use weir_workspace::{Error, Monitor, PathChange, Unsaved, Workspace, changed_since, is_sparse};

use crate::add::MadeWorkspaces;
use crate::inside::{git, is_inside, open};
use crate::origin::{set_mode, write};

/// Returns the status as git prints it: files that are staged differ, too.
fn status_of_git(folder: &Path) -> BTreeMap<String, PathChange> {
    let args = ["-c", "core.fsmonitor=false", "status", "--porcelain", "--no-renames", "-uall", "-z"];
    let text = git(folder, &args);
    let lines = text.split('\0').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (letters, name) = line.split_at(3);
            let change = match letters.trim() {
                "??" | "A" => PathChange::New,
                "D" => PathChange::Deleted,
                "M" | "T" => PathChange::Modified,
                other => panic!("{other} of {name}"),
            };
            (name.to_owned(), change)
        })
        .collect()
}

/// Checks that the status of a workspace is the one of git.
pub fn assert_as_git(made: &MadeWorkspaces, workspace: &Workspace) {
    let status = made.workspaces.whole_status(workspace).unwrap();
    let changes = status.changes.into_iter().map(|(path, change)| (String::from_utf8(path).unwrap(), change));
    assert_eq!(changes.collect::<BTreeMap<_, _>>(), status_of_git(&workspace.folder));
    assert_eq!(status.commit, crate::origin::head(&workspace.folder));
}

/// Changes a workspace of `main` in each way that there is.
pub fn change_all(folder: &Path) {
    let at = |name: &str| folder.join(name);
    write(&at("README"), "two\n");
    set_mode(&at("run.sh"), 0o644);
    set_mode(&at("same"), 0o755);
    fs::remove_file(at("dir/a")).unwrap();
    write(&at("dir/new/file"), "new");
    write(&at("dir/object.o"), "ignored");
    write(&at("build/out"), "ignored");
    fs::remove_file(at("link")).unwrap();
    symlink("README", at("link")).unwrap();
    fs::remove_file(at("kind")).unwrap();
    write(&at("kind/inner"), "a folder in place of a file");
    fs::remove_dir_all(at("tree")).unwrap();
    write(&at("tree"), "a file in place of a folder");
    fs::rename(at("old"), at("renamed")).unwrap();
    fs::remove_file(at("many/1")).unwrap();
    symlink("2", at("many/1")).unwrap();
    // Written again as it was.
    write(&at("many/3"), "3\n");
    fs::remove_file(at("many/4")).unwrap();
    write(&at("many/4"), "4\n");
    // Of the same size.
    write(&at("many/5"), "6\n");
    fs::remove_dir_all(at("keep")).unwrap();
    write(&at("keep/other"), "another folder in its place");
    write(&at("gone"), "");
    fs::remove_file(at("gone")).unwrap();
}

#[test]
fn status_is_what_git_finds() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let workspace = made.add("w");
    let folder = &workspace.folder;
    let (ours, first) = (&made.workspaces, made.workspaces.fingerprint(&workspace).unwrap());
    let status = ours.whole_status(&workspace).unwrap();
    assert_eq!((status.branch.as_deref(), status.changes.len()), (Some("main"), 0));
    assert_eq!(ours.fingerprint(&workspace).unwrap(), first);
    change_all(folder);
    assert_as_git(&made, &workspace);
    let second = ours.fingerprint(&workspace).unwrap();
    assert_ne!(second, first);
    let changes = ours.status(&workspace, &open(&folder.join(".git"))).unwrap().changes;
    assert_eq!(changes.get(&b"build/out"[..]), Some(&PathChange::New), "git ignores it, this does not");
    // After a commit, weir lists no difference.
    git(folder, &["add", "-A", "."]);
    assert_as_git(&made, &workspace);
    git(folder, &["commit", "-q", "-m", "all"]);
    assert_as_git(&made, &workspace);
    assert_ne!(ours.fingerprint(&workspace).unwrap(), second);
    // HEAD is another one, and the files are those of before.
    git(folder, &["checkout", "-q", "--detach"]);
    git(folder, &["reset", "-q", "--soft", "origin/near"]);
    assert_as_git(&made, &workspace);
    assert_eq!(ours.whole_status(&workspace).unwrap().branch, None);
    git(folder, &["config", "core.fileMode", "false"]);
    git(folder, &["reset", "-q", "--hard", "main"]);
    set_mode(&folder.join("large"), 0o755);
    assert!(ours.whole_status(&workspace).unwrap().changes.is_empty());
    git(folder, &["config", "core.fileMode", "true"]);
    assert_as_git(&made, &workspace);
}

#[test]
fn status_names_a_large_folder_and_repositories_once() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let workspace = made.add("w");
    let folder = &workspace.folder;
    let changes = || made.workspaces.whole_status(&workspace).unwrap().changes;
    for n in 0..1100 {
        write(&folder.join(format!("more/deep/{n}")), "");
    }
    // A list of what was touched is made when git asks.
    let place = made.workspaces.written(&workspace).parent().unwrap().to_owned();
    changed_since(&place, folder, "weir:0:0").unwrap();
    git(folder, &["init", "-q", "nested"]);
    write(&folder.join("nested/file"), "x");
    write(&folder.join("module/file"), "in a submodule that is no repository");
    let expected =
        [("module/file", PathChange::New), ("more/", PathChange::New), ("nested/", PathChange::New)];
    let found: Vec<(String, PathChange)> =
        changes().into_iter().map(|(path, change)| (String::from_utf8(path).unwrap(), change)).collect();
    assert_eq!(found.iter().map(|(path, change)| (&**path, *change)).collect::<Vec<_>>(), expected[1..]);
    git(folder, &["init", "-q", "module"]);
    assert!(!changes().contains_key(&b"module/file"[..]));
    fs::remove_dir_all(folder.join("module")).unwrap();
    write(&folder.join("module"), "a file");
    assert_eq!(changes().get(&b"module"[..]), Some(&PathChange::Modified));
    fs::remove_file(folder.join("module")).unwrap();
    assert_eq!(changes().get(&b"module"[..]), Some(&PathChange::Deleted));
    // Files that git leaves out are no changes, and this knows nothing of them.
    assert!(!is_sparse(&workspace));
    git(folder, &["sparse-checkout", "set", "--no-cone", "dir"]);
    assert!(is_sparse(&workspace));
    assert!(matches!(made.workspaces.whole_status(&workspace), Err(Error::Odd(_))));
    git(folder, &["sparse-checkout", "disable"]);
    assert!(!is_sparse(&workspace));
}

#[test]
fn status_finds_what_would_be_lost_with_a_workspace() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let workspace = made.add("w");
    let folder = &workspace.folder;
    let unsaved = || made.workspaces.unsaved(&workspace, Some(&open(&made.origin.git_dir))).unwrap();
    assert_eq!(unsaved(), None);
    assert_eq!(made.workspaces.unsaved(&workspace, None).unwrap(), Some(Unsaved::Tag("refs/tags/v1".into())));
    write(&folder.join("new"), "x");
    assert_eq!(unsaved(), Some(Unsaved::Changes("new".to_owned())));
    git(folder, &["add", "new"]);
    fs::remove_file(folder.join("new")).unwrap();
    assert_eq!(unsaved(), Some(Unsaved::Changes("AD new".to_owned())));
    git(folder, &["reset", "-q", "--hard"]);
    write(&folder.join("README"), "x");
    git(folder, &["stash", "-q"]);
    assert_eq!(unsaved(), Some(Unsaved::Stash));
    git(folder, &["stash", "drop", "-q"]);
    write(&folder.join(".git/modules/m"), "x");
    assert_eq!(unsaved(), Some(Unsaved::Submodules));
    fs::remove_dir_all(folder.join(".git/modules")).unwrap();
    git(folder, &["worktree", "add", "-q", "--detach", made.origin.path("linked").to_str().unwrap()]);
    assert_eq!(unsaved(), Some(Unsaved::LinkedTrees));
    git(folder, &["worktree", "remove", made.origin.path("linked").to_str().unwrap()]);
    assert_eq!(unsaved(), None);
    git(folder, &["tag", "-a", "-m", "a message", "mine"]);
    assert_eq!(unsaved(), Some(Unsaved::Tag("refs/tags/mine".to_owned())));
    git(folder, &["tag", "-d", "mine"]);
    git(folder, &["checkout", "-q", "--detach"]);
    git(folder, &["commit", "-q", "--allow-empty", "-m", "mine"]);
    let mine = crate::origin::head(folder).to_string();
    assert_eq!(unsaved(), Some(Unsaved::Commits(mine.clone())));
    git(folder, &["branch", "kept"]);
    git(folder, &["checkout", "-q", "main"]);
    assert_eq!(unsaved(), Some(Unsaved::Commits(mine)));
    git(folder, &["push", "-q", "origin", "kept"]);
    assert_eq!(unsaved(), None);
    let text: Vec<String> = [
        Unsaved::Unknown,
        Unsaved::Changes("a".to_owned()),
        Unsaved::LinkedTrees,
        Unsaved::Submodules,
        Unsaved::Stash,
        Unsaved::Commits("1".to_owned()),
        Unsaved::Tag("t".to_owned()),
    ]
    .iter()
    .map(ToString::to_string)
    .collect();
    assert!(text.iter().all(|text| text.starts_with("it ")), "{text:?}");
}

#[test]
fn status_of_what_was_touched_is_answered_to_git() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let added = made.try_add(&made.origin.path("w"), |new| new.asks = Monitor::Hook).unwrap();
    let workspace = added.workspace;
    let folder = &workspace.folder;
    let hook = git(folder, &["config", "core.fsmonitor"]);
    let place = Path::new(hook.trim()).parent().unwrap().to_owned();
    let script = fs::read_to_string(hook.trim()).unwrap();
    assert_eq!(script, format!("#!/bin/sh\nexec false '{}' \"$@\"\n", place.display()));
    let ask = |token: &str| {
        let answer = String::from_utf8(changed_since(&place, folder, token).unwrap()).unwrap();
        let mut parts = answer.split('\0').map(str::to_owned);
        (parts.next().unwrap(), parts.filter(|part| !part.is_empty()).collect::<Vec<_>>())
    };
    let (token, all) = ask("x");
    assert_eq!(all, ["/"]);
    write(&folder.join("README"), "x");
    write(&folder.join("dir/git~1/b"), "x");
    fs::rename(folder.join("old"), folder.join("renamed")).unwrap();
    fs::remove_file(folder.join("same")).unwrap();
    let (_, changed) = ask(&token);
    let named = |name: &str| changed.iter().any(|one| one == name);
    for name in ["README", "dir/*", "old", "renamed", "renamed/only/file", "same"] {
        assert!(named(name), "{name} of {changed:?}");
    }
    assert!(!named("many") && !named("dir/git~1"), "{changed:?}");
    let config = fs::read_to_string(folder.join(".git/config")).unwrap();
    assert!(config.ends_with("[core]\n\tuntrackedCache = false\n"), "{config}");
}
