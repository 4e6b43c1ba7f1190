//! Faults that people found who knew only the documentation.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use weir_testing::{Signal, processes, send, wait_until};

use super::{STATE, Workspace, mirrored};
use crate::common::Env;

#[test]
fn a_workspace_of_a_dead_view_is_mounted_again() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let Some(twin) = Workspace::new(&env, "it", "twin") else { return };
    fs::write(it.folder.join("same1"), b"mine").unwrap();
    let views = env.path(STATE).join("views");
    let view = fs::read_dir(&views).unwrap().flatten().find(|e| e.path().is_dir()).unwrap().path();
    let shown = processes::Strays(view.to_str().unwrap().to_owned());
    let ids = || shown.ids();
    // The process that answers the kernel, and the one that would start another.
    let both = ids();
    assert_eq!(both.len(), 2);
    both.iter().for_each(|id| send(*id, Signal::SIGSTOP));
    both.into_iter().for_each(|id| _ = processes::kill_found(id));
    wait_until(|| "it lives".to_owned(), || fs::read(it.folder.join("d0/e0/f0")).is_err());
    assert!(env.weir(&["ws", "ls"]).contains("broken"));
    env.weir(&["ws", "mount"]);
    for folder in [&it.folder, &twin.folder] {
        assert!(fs::read(folder.join("d0/e0/f0")).is_ok());
    }
    assert_eq!(fs::read(it.folder.join("same1")).unwrap(), b"mine");
    assert_eq!(ids().len(), 2, "they show the commit of both");
    // What a killed fork leaves.
    let mut remount = weir_testing::command("mount");
    // By the call that weir uses: by the newer one the kernel changes no overlay (util-linux 2.39 and later).
    remount.args(["-o", "remount,ro"]).arg(&it.folder).env("LIBMOUNT_FORCE_MOUNT2", "always");
    assert!(remount.status().unwrap().success());
    assert!(fs::write(it.folder.join("same2"), b"mine").is_err());
    env.weir(&["ws", "mount"]);
    fs::write(it.folder.join("same2"), b"mine").unwrap();
}

#[test]
fn workspace_rm_that_is_killed_leaves_nothing_to_the_next() {
    let env = Env::new();
    let Some((_, mut it)) = mirrored(&env) else { return };
    let folder = it.folder.to_str().unwrap().to_owned();
    for delay in [0, 2, 4, 6, 8, 10, 15] {
        (0..500).for_each(|n| fs::write(it.folder.join(format!("left{n}")), b"left").unwrap());
        fs::write(it.folder.join("same1"), b"left").unwrap();
        let mut rm = env.weir_command(&["ws", "rm", "--force", &folder]).spawn().unwrap();
        sleep(Duration::from_millis(delay));
        let _ = rm.kill();
        rm.wait().unwrap();
        if env.weir(&["ws", "ls"]).contains(&folder) {
            env.weir(&["ws", "rm", "--force", &folder]);
        }
        let _ = fs::remove_dir(&folder);
        std::mem::forget(std::mem::replace(&mut it, Workspace::new(&env, "it", "work").unwrap()));
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "", "{delay} ms");
        assert!(!env.path(STATE).join("gone").exists(), "{delay} ms");
    }
}

#[test]
fn workspace_rm_goes_on_after_one_that_is_not_removed() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let Some(twin) = Workspace::new(&env, "it", "twin") else { return };
    let Some(third) = Workspace::new(&env, "it", "third") else { return };
    fs::write(third.folder.join("same1"), b"mine").unwrap();
    let (gone, left) = (env.path("gone"), third.folder.to_str().unwrap());
    let folders = [gone.to_str().unwrap(), it.folder.to_str().unwrap(), left, twin.folder.to_str().unwrap()];
    let rm = env.weir_command(&[&["ws", "rm"], &folders[..]].concat()).output().unwrap();
    assert_eq!(rm.status.code(), Some(3), "{rm:?}");
    let said = String::from_utf8(rm.stderr).unwrap();
    assert_eq!(said.matches("error: ").count(), 2, "{said}");
    assert!(said.contains("no workspace") && said.contains(left), "{said}");
    let list = env.weir_json(&["ws", "ls"]);
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["folder"], left);
    let none = env.weir_command(&["ws", "rm", left, folders[0]]).status().unwrap();
    assert_eq!(none.code(), Some(1));
    // One that is named twice is removed once.
    env.weir(&["ws", "rm", "--force", left, left]);
}

#[test]
fn workspace_rm_that_stops_half_way_leaves_no_workspace() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let folder = it.folder.to_str().unwrap().to_owned();
    fs::create_dir(it.folder.join("kept")).unwrap();
    fs::write(it.folder.join("same1"), b"left").unwrap();
    let (state, is_place) = (env.path(STATE), |path: &PathBuf| path.join("workspace.json").exists());
    let place = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path()).find(is_place).unwrap();
    let mount = |program: &str, args: &[&str]| {
        assert!(weir_testing::command(program).args(args).status().unwrap().success());
    };
    // Nobody deletes a folder that something is mounted on.
    mount("mount", &["-t", "tmpfs", "none", place.join("files/kept").to_str().unwrap()]);
    assert!(env.weir_fails(&["ws", "rm", "--force", &folder]).contains("gone"));
    assert_eq!(env.weir_json(&["ws", "ls"]), serde_json::json!([]));
    std::mem::forget(it);
    let it = Workspace::new(&env, "it", "work").unwrap();
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
    let name = place.file_name().unwrap();
    mount("umount", &[state.join("gone").join(name).join("files/kept").to_str().unwrap()]);
    let other = Workspace::new(&env, "it", "other").unwrap();
    assert!(!state.join("gone").exists(), "the next command deletes it");
    // Files whose record somebody has removed are neither shown nor deleted.
    fs::write(it.folder.join("mine"), b"mine").unwrap();
    mount("umount", &[&folder]);
    let record = fs::read(place.join("workspace.json")).unwrap();
    fs::remove_file(place.join("workspace.json")).unwrap();
    assert!(env.weir_fails(&["ws", "add", "it", &folder]).contains("the record of which is gone"));
    assert_eq!(fs::read(place.join("files/mine")).unwrap(), b"mine");
    fs::write(place.join("workspace.json"), record).unwrap();
    drop((it, other));
}

#[test]
fn switches_at_the_same_time_wait_for_each_other() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let folder = it.folder.to_str().unwrap();
    for to in ["other", "main", "other"] {
        let mut all: Vec<_> =
            (0..3).map(|_| env.weir_command(&["ws", "switch", folder, to]).spawn().unwrap()).collect();
        assert!(all.iter_mut().all(|switch| switch.wait().unwrap().success()));
        assert_eq!(env.git(&it.folder, &["symbolic-ref", "--short", "HEAD"]).trim(), to);
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
    }
}

#[test]
fn modes_are_heeded_as_git_is_told() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let folder = it.folder.to_str().unwrap();
    let status = || env.weir(&["ws", "status", folder]).matches(" M ").count();
    // It differs between the branches, and 'same1' does not.
    for name in ["d1/e0/f9", "same1"] {
        let path = it.folder.join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(status(), 2);
    assert!(env.weir_fails(&["ws", "switch", folder, "other"]).contains("there are changes in 'd1/e0/f9'"));
    env.git(&it.folder, &["config", "core.fileMode", "false"]);
    assert_eq!((status(), &*env.git(&it.folder, &["status", "--porcelain"])), (0, ""));
    env.weir(&["ws", "switch", folder, "other"]);
    assert_eq!((status(), &*env.git(&it.folder, &["status", "--porcelain"])), (0, ""));
}

#[test]
fn one_of_many_makes_a_workspace() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let new = Workspace { env: &env, folder: env.path("new") };
    let adding: Vec<_> =
        (0..6).map(|_| env.weir_command(&["ws", "add", "it", "new"]).spawn().unwrap()).collect();
    let made = adding.into_iter().filter_map(|mut add| add.wait().unwrap().success().then_some(())).count();
    assert_eq!(made, 1);
    assert_eq!(env.git(&new.folder, &["status", "--porcelain"]), "");
    // One that is damaged hides no other.
    let is_of_new = |path: &PathBuf| {
        fs::read_to_string(path.join("workspace.json")).is_ok_and(|text| text.contains("/new\""))
    };
    let place = fs::read_dir(env.path(STATE)).unwrap().map(|e| e.unwrap().path()).find(is_of_new).unwrap();
    let record = fs::read(place.join("workspace.json")).unwrap();
    fs::write(place.join("workspace.json"), b"{}").unwrap();
    let output = env.weir_command(&["ws", "ls"]).output().unwrap();
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        said.contains(it.folder.to_str().unwrap()) && told.contains("what was written is in"),
        "{said}{told}"
    );
    fs::write(place.join("workspace.json"), record).unwrap();
}

#[test]
fn nothing_is_removed_that_is_nowhere_else() {
    let env = Env::new();
    let Some((up, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let git = |args: &[&str]| env.git(&it.folder, args);
    let refuses = |part: &str| {
        let said = env.weir_fails(&["ws", "rm", work]);
        assert!(said.contains(part), "{part}: {said}");
    };
    git(&["config", "status.showUntrackedFiles", "no"]);
    fs::write(it.folder.join("untracked"), b"mine").unwrap();
    refuses("it has changes (untracked)");
    fs::remove_file(it.folder.join("untracked")).unwrap();
    git(&["update-index", "--assume-unchanged", "run"]);
    fs::write(it.folder.join("run"), b"mine").unwrap();
    refuses("it has changes (run)");
    git(&["update-index", "--no-assume-unchanged", "run"]);
    git(&["checkout", "-q", "run"]);
    git(&["checkout", "-q", "--detach"]);
    git(&["commit", "-q", "--allow-empty", "-m", "mine"]);
    refuses("commits that are nowhere else");
    git(&["tag", "-m", "mine", "mine"]);
    git(&["checkout", "-q", "main"]);
    refuses("commits that are nowhere else");
    git(&["tag", "-d", "mine"]);
    git(&["tag", "-m", "mine", "mine"]);
    refuses("a tag that is nowhere else (refs/tags/mine)");
    git(&["tag", "-d", "mine"]);
    git(&["tag", "mine"]);
    git(&["sparse-checkout", "set", "d0"]);
    let said = env.weir_fails(&["ws", "status", work]);
    assert!(said.contains("this is a sparse checkout"), "{said}");
    fs::write(it.folder.join("untracked"), b"mine").unwrap();
    refuses("it has changes (?? untracked)");
    fs::remove_file(it.folder.join("untracked")).unwrap();
    git(&["sparse-checkout", "disable"]);
    env.weir(&["ws", "status", work]);
    fs::create_dir_all(it.folder.join(".git/modules/one")).unwrap();
    refuses("it has submodules");
    fs::remove_dir_all(it.folder.join(".git/modules")).unwrap();
    git(&["worktree", "add", "-q", env.path("linked").to_str().unwrap(), "-b", "linked"]);
    refuses("linked working trees");
    let said = env.weir_fails(&["ws", "fork", work, "fork"]);
    assert!(said.contains("linked working trees"), "{said}");
    git(&["worktree", "remove", env.path("linked").to_str().unwrap()]);
    // What the upstream has is somewhere else, on any branch or tag.
    env.commit_file(&up, "refs/heads/newer", "newer", b"newer\n");
    env.weir(&["mirror", "--all"]);
    env.weir(&["ws", "switch", work, "newer"]);
    env.weir(&["ws", "rm", work]);
}

#[test]
fn what_leads_nowhere_is_refused() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    for (revision, part) in [("main^{tree}", "is no commit"), ("", "without a name")] {
        let said = env.weir_fails(&["ws", "switch", work, revision]);
        assert!(said.contains(part), "{revision}: {said}");
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
    }
    for args in [["ws", "add", "it", "work/inner"], ["ws", "fork", "work", "work/inner"]] {
        let said = env.weir_fails(&args);
        assert!(said.contains("is in the workspace"), "{args:?}: {said}");
    }
    let mut weir = env.weir_command(&["ws", "add", "it"]);
    let said = weir.arg(OsStr::from_bytes(b"odd\xff")).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("is not UTF-8"), "{said:?}");
    let said = env.weir_fails(&["ws", "add", "it", "new\nline"]);
    assert!(said.contains("has a line break"), "{said}");
    assert_eq!(
        env.weir_command(&["ws", "shell", "work", "no-such-program"]).output().unwrap().status.code(),
        Some(127)
    );
    // Forks of what was not written to since cost no layer.
    let fork = |name: &str| {
        env.weir(&["ws", "fork", "work", name]);
        Workspace { env: &env, folder: env.path(name) }
    };
    let (_first, _second) = (fork("first"), fork("second"));
    assert_eq!(fs::read_dir(env.path(STATE).join("layers")).unwrap().count(), 1);
}

/// Who waits for the end of a lock or a pipe does not wait for the process that shows a commit.
#[test]
fn a_view_holds_nothing_of_who_started_it() {
    let env = Env::new();
    let Some((_, _it)) = mirrored(&env) else { return };
    let script = r#"exec 9>held; flock -n 9 || exit 9; "$0" -q ws add it@v1 second"#;
    let mut shell = weir_testing::command("sh");
    let done = shell
        .args(["-c", script, env!("CARGO_BIN_EXE_weir")])
        .env("WEIR_POOL", env.pool())
        .env("HOME", env.dir.path())
        .current_dir(env.dir.path())
        .status()
        .unwrap();
    assert!(done.success());
    let _second = Workspace { env: &env, folder: env.path("second") };
    let lock = |path: &Path| fs::File::open(path).unwrap().try_lock().is_ok();
    assert!(lock(&env.path("held")));
}

#[test]
fn the_index_of_a_commit_is_written_once() {
    let env = Env::new();
    let Some((_, first)) = mirrored(&env) else { return };
    let Some(second) = Workspace::new(&env, "it", "second") else { return };
    let indexes = env.path(STATE).join("indexes");
    let kept = || {
        let all = fs::read_dir(&indexes).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_none()).collect::<Vec<_>>()
    };
    let [index] = &kept()[..] else { panic!("{:?}", kept()) };
    let written = fs::read(index).unwrap();
    assert_eq!(fs::metadata(index).unwrap().nlink(), 2);
    // Another workspace has its own: git believes only of one place that there are no other files.
    let place = |index: &[u8], it: &Workspace| {
        let place = format!("Location {}, system Linux", it.folder.display());
        index.windows(place.len()).any(|part| part == place.as_bytes())
    };
    assert!(place(&written, &first));
    assert!(place(&fs::read(second.folder.join(".git/index")).unwrap(), &second));
    // git writes another.
    fs::write(first.folder.join("same1"), b"mine").unwrap();
    env.git(&first.folder, &["add", "-A"]);
    assert_eq!(fs::read(index).unwrap(), written);
    assert_eq!(env.git(&second.folder, &["status", "--porcelain"]), "");
    // weir replaces a damaged index.
    fs::remove_file(index).unwrap();
    fs::write(index, &written[..written.len() - 1]).unwrap();
    let Some(third) = Workspace::new(&env, "it", "third") else { return };
    assert_eq!(env.git(&third.folder, &["status", "--porcelain"]), "");
    assert!(place(&fs::read(index).unwrap(), &third));
    drop((first, second, third));
    assert_eq!(kept().len(), 0);
}

/// git heeds no answer of a monitor about such a name, and shows what is in its folder all the same.
#[test]
fn git_sees_changes_below_names_that_it_protects() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let status = || env.git(&it.folder, &["status", "--porcelain"]);
    for name in ["git~1", ".GIT"] {
        let folder = it.folder.join("z").join(name);
        fs::create_dir_all(&folder).unwrap();
        // git compares whole seconds: it trusts what it saw of a folder in one before.
        sleep(Duration::from_millis(1100));
        assert_eq!(status(), "", "{name}");
        fs::write(folder.join("a"), b"").unwrap();
        assert_eq!(status(), "?? z/", "{name}");
        sleep(Duration::from_millis(1100));
        assert_eq!(status(), "?? z/", "{name}");
        fs::write(folder.join(".gitignore"), b"*").unwrap();
        assert_eq!(status(), "", "{name}");
        fs::remove_dir_all(it.folder.join("z")).unwrap();
        assert_eq!(status(), "", "{name}");
    }
}

#[test]
fn status_does_not_look_into_repositories_in_a_workspace() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let is_told = |path: Option<&str>| {
        let changes = env.weir_json(&["ws", "status", work])[0]["changes"].clone();
        let expected = path.map(|path| serde_json::json!({ "path": path, "change": "new" }));
        assert_eq!(changes.as_array().unwrap(), &expected.into_iter().collect::<Vec<_>>());
    };
    let inner = it.folder.join("inner");
    env.git(&it.folder, &["init", "-q", "inner"]);
    fs::write(inner.join("a"), b"").unwrap();
    is_told(Some("inner/"));
    env.git(&inner, &["add", "-A"]);
    env.git(&inner, &["commit", "-q", "-m", "c"]);
    // A submodule that is staged only, with a file.
    let staged = "160000,1234567890123456789012345678901234567890,staged";
    env.git(&it.folder, &["update-index", "--add", "--cacheinfo", staged]);
    fs::create_dir(it.folder.join("staged")).unwrap();
    fs::write(it.folder.join("staged/a"), b"").unwrap();
    is_told(Some("inner/"));
    env.git(&it.folder, &["rm", "-q", "-f", "--cached", "staged"]);
    fs::remove_dir_all(it.folder.join("staged")).unwrap();
    // A submodule, staged and then committed.
    env.git(&it.folder, &["-c", "advice.addEmbeddedRepo=false", "add", "inner"]);
    is_told(Some("inner/"));
    env.git(&it.folder, &["commit", "-q", "-m", "s"]);
    is_told(None);
    let said = env.weir_fails(&["ws", "rm", work]);
    assert!(said.contains("commits that are nowhere else"), "{said}");
}

/// The git that moves HEAD goes on when weir is killed, and the next switch waits for it.
#[test]
fn workspace_switch_waits_for_the_git_of_one_that_was_killed() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let (work, bin) = (it.folder.to_str().unwrap(), env.path("bin"));
    let git = String::from_utf8(weir_testing::command("which").arg("git").output().unwrap().stdout).unwrap();
    fs::create_dir(&bin).unwrap();
    let (git, asked) = (git.trim(), env.path("asked"));
    let script = format!(
        "#!/bin/sh\nfor word; do [ \"$word\" != symbolic-ref ] || {{ touch {}; sleep 1; }}; done\n\
         exec {git} \"$@\"\n",
        asked.display()
    );
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut killed = env.weir_command(&["ws", "switch", work, "other"]).env("PATH", path).spawn().unwrap();
    wait_until(|| "git moves no HEAD".to_owned(), || asked.exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    env.weir(&["ws", "switch", work, "v1"]);
    sleep(Duration::from_secs(2));
    assert_eq!(env.git(&it.folder, &["rev-parse", "HEAD"]), env.git(&it.folder, &["rev-parse", "v1^{}"]));
    assert_eq!(env.git(&it.folder, &["-c", "core.fsmonitor=false", "status", "--porcelain"]), "");
}

/// A switch that is killed between two mounts leaves one below the other.
#[test]
fn workspace_rm_unmounts_all_that_lies_upon_each_other() {
    let env = Env::new();
    if !nix::unistd::getuid().is_root() {
        weir_testing::skip("overlay", "who is not root mounts nothing upon a workspace");
        return;
    }
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let bound = weir_testing::command("mount").args(["--bind", work, work]).status().unwrap();
    assert!(bound.success());
    env.weir(&["ws", "rm", "--force", work]);
    assert!(!it.folder.exists());
    let views = fs::read_dir(env.path(STATE).join("views")).unwrap().map(|entry| entry.unwrap().path());
    // The process of a view has its lock until it has ended.
    let left: Vec<PathBuf> = views.filter(|path| path.extension().is_none_or(|end| end != "lock")).collect();
    assert!(left.is_empty(), "{left:?}");
}
