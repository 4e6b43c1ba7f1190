//! `weir workspace switch` that mounts a workspace again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::fs::inotify;
use weir_testing::processes;

use super::{STATE, Workspace, mirrored};
use crate::common::Env;

/// Returns whether the kernel puts a mount beneath another (Linux 6.5): else all files are written.
pub(super) fn replaces_mounts() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    let is_new = (numbers.next(), numbers.next()) >= (Some(6), Some(5));
    if !is_new {
        weir_testing::skip("Linux 6.5", &format!("it is {release}"));
    }
    is_new
}

/// Makes a workspace that a switch can mount again.
fn remountable(env: &Env) -> Option<(PathBuf, Workspace<'_>)> {
    if replaces_mounts() { mirrored(env) } else { None }
}

/// Returns the device of what is mounted on a folder: another one after it was mounted again.
fn device(at: &Path) -> u64 {
    fs::metadata(at).unwrap().dev()
}

/// Returns all that is written in the workspace, but git's files.
fn written(env: &Env) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(env.path(STATE)).unwrap() {
        let files = entry.unwrap().path().join("files");
        if files.is_dir() {
            let found = weir_testing::command("find").arg(".").current_dir(&files).output().unwrap();
            let found = String::from_utf8(found.stdout).unwrap();
            all.extend(
                found.lines().filter(|path| !path.starts_with("./.git") && *path != ".").map(str::to_owned),
            );
        }
    }
    all.sort();
    all
}

/// Returns the names of the views that are there. Locks are those of their processes, which may end later.
fn views(env: &Env) -> Vec<String> {
    let entries = fs::read_dir(env.path(STATE).join("views")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
    names.sort();
    names
}

#[test]
fn workspace_switch_writes_nothing_where_it_mounts_anew() {
    let env = Env::new();
    let Some((_, it)) = remountable(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let git = |args: &[&str]| env.git(&it.folder, args);
    let time = |name: &str| fs::metadata(it.folder.join(name)).unwrap().modified().unwrap();
    let same = time("same1");
    // The clock of files may be some milliseconds behind.
    fs::write(env.path("now"), b"").unwrap();
    let before = fs::metadata(env.path("now")).unwrap().modified().unwrap();
    for (revision, branch) in [("other", "## other...origin/other"), ("main", "## main...origin/main")] {
        let device_before = device(&it.folder);
        env.weir(&["ws", "switch", work, revision, "--mount"]);
        assert_ne!(device(&it.folder), device_before);
        assert_eq!(git(&["status", "--porcelain", "--branch"]), branch);
        assert_eq!(git(&["-c", "core.fsmonitor=false", "status", "--porcelain"]), "");
        assert_eq!(git(&["diff", revision, "--"]), "");
        assert_eq!(env.weir(&["ws", "status", work]).lines().count(), 1);
        assert_eq!(written(&env), Vec::<String>::new());
        assert_eq!(time("same1"), same);
        assert!(time("run") > before, "its mode differs");
        git(&["fsck", "--no-dangling"]);
    }
    // Nothing is left of the views before; what it needs survives a kill of all.
    let names = views(&env);
    let ends: Vec<Option<&str>> = names.iter().map(|name| name.split_once('.').map(|(_, end)| end)).collect();
    assert_eq!(ends, [None, Some("log"), Some("times")], "{names:?}");
    let shown = (time("run"), time("same1"));
    let mount = |args: &[&str]| weir_testing::command("umount").args(args).status().unwrap().success();
    assert!(mount(&["-l", work]));
    env.weir(&["ws", "switch", work, "main"]);
    assert_eq!((time("run"), time("same1")), shown);
    assert_eq!(git(&["-c", "core.fsmonitor=false", "status", "--porcelain"]), "");
    // A fork stands on the same view, which goes with the last.
    let fork = Workspace { env: &env, folder: env.path("fork") };
    fs::write(it.folder.join("new"), b"new").unwrap();
    env.weir(&["ws", "fork", work, "fork"]);
    env.weir(&["ws", "switch", work, "v1", "--mount"]);
    assert_eq!(
        env.git(&fork.folder, &["status", "--porcelain", "--branch"]),
        "## main...origin/main\n?? new"
    );
    assert_eq!(fs::metadata(fork.folder.join("run")).unwrap().modified().unwrap(), shown.0);
    assert_eq!(git(&["status", "--porcelain"]), "?? new");
    drop(fork);
    drop(it);
    assert_eq!(views(&env), Vec::<String>::new());
}

#[test]
fn workspace_switch_between_own_commits_and_those_that_came_later() {
    let env = Env::new();
    let Some((up, it)) = remountable(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let git = |args: &[&str]| env.git(&it.folder, args);
    // The source does not have it, and the workspace has it in a pack of its own.
    git(&["switch", "-q", "-c", "own"]);
    fs::write(it.folder.join("mine"), b"mine\n").unwrap();
    git(&["add", "mine"]);
    git(&["commit", "-q", "-m", "mine"]);
    git(&["gc", "-q"]);
    for (n, way) in [&["--mount"][..], &[]].into_iter().enumerate() {
        // The workspace knows no ref that leads there.
        let stream = format!(
            "commit refs/pull/{n}/head\ncommitter C <c@x> {n} +0000\ndata 1\nx\n\
             from refs/heads/main^0\nM 644 inline pulled{n}\ndata 1\nn\n"
        );
        env.git_with(&up, &["fast-import", "--quiet"], stream.as_bytes());
        env.weir(&["mirror", "--all"]);
        let commit = env.git(&up, &["rev-parse", &format!("refs/pull/{n}/head")]);
        let before = device(&it.folder);
        let switched = |revision: &str, own: bool| {
            env.weir(&[&["ws", "switch", work, revision], way].concat());
            assert_eq!(it.folder.join("mine").exists(), own);
            assert_eq!(it.folder.join(format!("pulled{n}")).exists(), !own);
            assert_eq!(git(&["-c", "core.fsmonitor=false", "status", "--porcelain"]), "", "{revision}");
            assert_eq!(git(&["fsck", "--no-dangling"]), "");
        };
        switched(&commit, false);
        assert_eq!(git(&["rev-parse", "HEAD"]), commit);
        assert_eq!(device(&it.folder) == before, way.is_empty());
        switched("own", true);
    }
}

#[test]
fn workspace_switch_that_is_refused_leaves_no_view() {
    let env = Env::new();
    let Some((_, it)) = remountable(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let views = env.path(STATE).join("views");
    let shown = processes::Strays(views.to_str().unwrap().to_owned());
    let all = || {
        let entries = fs::read_dir(&views).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        (names, shown.ids())
    };
    let before = all();
    fs::write(it.folder.join("d1/e1/f1"), b"mine").unwrap();
    let said = env.weir_fails(&["ws", "switch", "--mount", work, "other"]);
    assert!(said.contains("there are changes in 'd1/e1/f1'"), "{said}");
    assert_eq!(all(), before);
    assert_eq!(fs::read(it.folder.join("d1/e1/f1")).unwrap(), b"mine");
}

#[test]
fn workspace_switch_mounts_nothing_under_who_uses_it() {
    let env = Env::new();
    let Some((_, it)) = remountable(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let first = device(&it.folder);
    let in_it = |command: &mut std::process::Command| command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stays = in_it(weir_testing::command("cat").current_dir(it.folder.join("d0")));
    env.weir(&["ws", "switch", work, "v1", "--mount"]);
    assert_eq!(device(&it.folder), first);
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
    let _ = stays.kill();
    stays.wait().unwrap();
    // Who waits for changes of a file goes on waiting. It is in no folder of the workspace.
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, it.folder.join("same1"), inotify::WatchFlags::MODIFY).unwrap();
    env.weir(&["ws", "switch", work, "main", "--mount"]);
    assert_eq!(device(&it.folder), first);
    drop(watch);
    env.weir(&["ws", "switch", work, "other", "--mount"]);
    assert_ne!(device(&it.folder), first);
    assert_eq!(env.git(&it.folder, &["-c", "core.fsmonitor=false", "status", "--porcelain"]), "");
}

#[test]
fn workspace_switch_mounts_anew_above_what_was_written() {
    let env = Env::new();
    let Some((_, it)) = remountable(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let git = |args: &[&str]| env.git(&it.folder, args);
    let is_clean = |revision: &str| {
        assert_eq!(git(&["status", "--porcelain"]), "", "{revision}");
        assert_eq!(git(&["-c", "core.fsmonitor=false", "diff", revision, "--"]), "");
        let args = [".", "-path", "./.git", "-prune", "-o", "-type", "f", "-print"];
        let files = weir_testing::command("find").args(args).current_dir(&it.folder).output().unwrap();
        let count = String::from_utf8(files.stdout).unwrap().lines().count();
        let tracked = git(&["ls-files", "-s"]).lines().filter(|line| line.starts_with("100")).count();
        assert_eq!(count, tracked, "{revision}");
        for folder in ["d1", "d1/e1"] {
            assert_eq!(it.folder.join(folder).exists(), revision != "other", "{revision}: {folder}");
        }
    };
    let mut mounted = 0;
    // git writes and deletes files, some of which lie in folders that go with the next commit.
    for (n, revision) in ["other", "main", "v1", "other", "main", "other", "v1", "main"].iter().enumerate() {
        match n % 3 {
            0 => drop(git(&["checkout", "-q", revision, "--"])),
            _ => {
                let before = device(&it.folder);
                env.weir(&["ws", "switch", work, revision, "--mount"]);
                mounted += u32::from(device(&it.folder) != before);
            }
        }
        is_clean(revision);
    }
    // Whoever looks into it for a moment has a switch written.
    assert!(mounted > 0);
    // What a build left in a folder stays, as git leaves it.
    fs::write(it.folder.join("d1/e1/built.out"), b"built").unwrap();
    env.weir(&["ws", "switch", work, "main~3", "--mount"]);
    assert!(it.folder.join("d1/e1/built.out").exists());
    fs::remove_file(it.folder.join("d1/e1/built.out")).unwrap();
    // What the user deleted, and what is new, comes back as HEAD has it.
    fs::remove_dir_all(it.folder.join("d2")).unwrap();
    fs::rename(it.folder.join("d3"), it.folder.join("moved"))
        .or_else(|_| fs::create_dir(it.folder.join("moved")))
        .unwrap();
    let moved = || {
        let mut sums = weir_testing::command("sh");
        sums.args(["-c", "cat moved/*/* | cksum"]).current_dir(&it.folder).output().unwrap().stdout
    };
    let kept = moved();
    env.weir(&["ws", "switch", work, "v1", "--mount"]);
    assert_eq!(moved(), kept, "a renamed folder keeps its files");
}

#[test]
fn workspace_switch_tells_git_of_names_that_are_ignored_no_more() {
    let env = Env::new();
    let Some((up, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let stream = b"commit refs/heads/ignores\ncommitter C <c@x> 1700000900 +0000\ndata 1\ni\n\
        from refs/heads/main^0\nM 644 inline d0/.gitignore\ndata 7\n*.mine\n\n";
    env.git_with(&up, &["fast-import", "--quiet"], stream);
    env.weir(&["mirror", "--all"]);
    fs::write(it.folder.join("d0/a.mine"), b"a").unwrap();
    let status = || env.git(&it.folder, &["status", "--porcelain"]);
    assert_eq!(status(), "?? d0/a.mine");
    for (revision, left) in [("ignores", ""), ("main", "?? d0/a.mine"), ("origin/ignores", "")] {
        env.weir(&["ws", "switch", work, revision, "--mount"]);
        assert_eq!(status(), left, "{revision}");
        assert_eq!(status(), left, "{revision}, again");
    }
}

#[test]
fn workspace_switch_keeps_what_a_reset_left_in_the_files() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let [older, newest] = ["main~3", "main"].map(|name| env.git(&it.folder, &["rev-parse", name]));
    for mode in ["--mixed", "--soft"] {
        // The files stay those of the commit below, which nobody has written.
        env.git(&it.folder, &["reset", "-q", mode, &older]);
        let before = env.git(&it.folder, &["-c", "core.fsmonitor=false", "diff", "HEAD", "--"]);
        assert!(!before.is_empty());
        let output = env.weir_command(&["ws", "switch", work, &older, "--mount"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            env.git(&it.folder, &["-c", "core.fsmonitor=false", "diff", "HEAD", "--"]),
            before,
            "{mode}"
        );
        // Where the commits differ, nothing is switched.
        let other = env.weir_command(&["ws", "switch", work, "v1", "--mount"]).output().unwrap();
        assert!(!other.status.success(), "{other:?}");
        assert_eq!(
            env.git(&it.folder, &["-c", "core.fsmonitor=false", "diff", "HEAD", "--"]),
            before,
            "{mode}"
        );
        env.git(&it.folder, &["reset", "-q", "--hard", &newest]);
    }
}

#[test]
fn workspace_switch_sees_who_uses_it_by_another_mount() {
    let env = Env::new();
    let Some((_, it)) = remountable(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let first = device(&it.folder);
    // A namespace of its own, as a container has.
    let mut inside = weir_testing::command("unshare");
    inside.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        "echo; read x; echo mine > \"$0/mine\"; read x",
    ]);
    let mut inside = inside.arg(work).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(inside.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    env.weir(&["ws", "switch", work, "other", "--mount"]);
    assert_eq!(device(&it.folder), first);
    std::io::Write::write_all(inside.stdin.as_mut().unwrap(), b"x\nx\n").unwrap();
    assert!(inside.wait().unwrap().success());
    assert_eq!(fs::read(it.folder.join("mine")).unwrap(), b"mine\n");
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "?? mine");
    // Another place, as a container gets it.
    let bound = env.path("bound");
    fs::create_dir(&bound).unwrap();
    let mount = |program: &str, args: &[&str]| {
        assert!(weir_testing::command(program).args(args).status().unwrap().success());
    };
    mount("mount", &["--bind", work, bound.to_str().unwrap()]);
    env.weir(&["ws", "switch", work, "main", "--mount"]);
    assert_eq!(device(&it.folder), first);
    mount("umount", &[bound.to_str().unwrap()]);
    env.weir(&["ws", "switch", work, "other", "--mount"]);
    assert_ne!(device(&it.folder), first);
}

#[test]
fn workspace_switch_brings_nothing_back_in_a_fork() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    // d1 is not in the other branch.
    fs::write(it.folder.join("d1/new"), b"n").unwrap();
    fs::write(it.folder.join("d1/a.out"), b"o").unwrap();
    env.git(&it.folder, &["add", "d1/new"]);
    env.git(&it.folder, &["commit", "-qm", "n"]);
    env.weir(&["ws", "fork", work, "fork"]);
    let fork = Workspace { env: &env, folder: env.path("fork") };
    for one in [&fork, &it] {
        env.git(&one.folder, &["rm", "-q", "d1/new"]);
        env.git(&one.folder, &["commit", "-qm", "rm"]);
        fs::remove_file(one.folder.join("d1/a.out")).unwrap();
        env.weir(&["ws", "switch", one.folder.to_str().unwrap(), "other", "--mount"]);
        assert_eq!(env.git(&one.folder, &["status", "--porcelain", "--ignored"]), "");
        assert!(!one.folder.join("d1").exists());
    }
}

#[test]
fn workspace_switch_that_is_killed_leaves_nothing_for_ever() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    fs::write(it.folder.join("mine"), b"mine").unwrap();
    let umount =
        |at: &Path| assert!(weir_testing::command("umount").arg("-l").arg(at).status().unwrap().success());
    for n in 0..30 {
        let revision = ["other", "main"][n % 2];
        let mut switch =
            env.weir_command(&["-q", "ws", "switch", work, revision, "--mount"]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2 * n as u64));
        let _ = switch.kill();
        switch.wait().unwrap();
        if n % 3 == 0 {
            // As after a start of the machine.
            umount(&it.folder);
            env.weir(&["ws", "mount", work]);
        }
        // git sees what is there.
        let status = |more: &[&str]| env.git(&it.folder, &[more, &["status", "--porcelain"]].concat());
        let looked = status(&["-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"]);
        assert_eq!(status(&[]), looked, "{n}");
        env.git(&it.folder, &["cat-file", "-e", "HEAD^{tree}"]);
        // The same again ends it.
        env.weir(&["-q", "ws", "switch", work, revision, "--mount"]);
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "?? mine", "{n}");
        assert_eq!(env.git(&it.folder, &["-c", "core.fsmonitor=false", "diff", revision, "--"]), "", "{n}");
    }
    let ends: Vec<String> = views(&env).into_iter().filter(|name| !name.contains('.')).collect();
    assert_eq!(ends.len(), 1, "{ends:?}");
    let alternates = fs::read_to_string(it.folder.join(".git/objects/info/alternates")).unwrap();
    assert_eq!(alternates.lines().count(), 1, "{alternates}");
    assert!(alternates.contains(&ends[0]));
    // The file with the times of the files is gone: all are new.
    let times = env.path(STATE).join("views").join(format!("{}.times", ends[0]));
    umount(&it.folder);
    umount(&env.path(STATE).join("views").join(&ends[0]));
    fs::remove_file(times).unwrap();
    env.weir(&["ws", "switch", work, "v1", "--mount"]);
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "?? mine");
}

#[test]
fn workspace_switch_on_a_full_disk_can_be_done_again() {
    let env = Env::new();
    let state = env.path(".local/state");
    fs::create_dir_all(&state).unwrap();
    let small = ["-t", "tmpfs", "-o", "size=2m", "tmpfs", state.to_str().unwrap()];
    if !weir_testing::command("mount").args(small).status().unwrap().success() {
        return weir_testing::skip("tmpfs", "who is not root mounts none");
    }
    {
        let Some((_, it)) = mirrored(&env) else { return };
        let work = it.folder.to_str().unwrap();
        let git = |args: &[&str]| env.git(&it.folder, args);
        let (filler, mut refused) = (state.join("filler"), 0);
        for left in [0, 4, 8, 16, 32] {
            let mut size = 2 << 20;
            while fs::write(&filler, vec![1; size]).is_err() {
                size -= 4096;
            }
            fs::write(&filler, vec![1; size - (left << 10)]).unwrap();
            let output = env.weir_command(&["ws", "switch", work, "other", "--mount"]).output().unwrap();
            fs::remove_file(&filler).unwrap();
            // Another try ends what was begun.
            refused += u32::from(!output.status.success());
            env.weir(&["ws", "switch", work, "other", "--mount"]);
            env.weir(&["ws", "switch", work, "main", "--mount"]);
            assert_eq!(git(&["symbolic-ref", "HEAD"]), "refs/heads/main", "{left}");
            assert_eq!(
                git(&["-c", "core.fsmonitor=false", "status", "--porcelain"]),
                "",
                "{left}: {output:?}"
            );
        }
        assert!(refused > 0);
        env.weir(&["ws", "switch", work, "other", "--mount"]);
        assert_eq!(git(&["status", "--porcelain"]), "");
        assert_eq!(views(&env).iter().filter(|name| !name.contains('.')).count(), 1);
    }
    assert!(weir_testing::command("umount").arg("-l").arg(&state).status().unwrap().success());
}

#[test]
fn workspace_switch_and_fork_wait_for_each_other() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    fs::write(it.folder.join("mine"), b"mine").unwrap();
    for n in 0..8 {
        let revision = ["other", "main"][n % 2];
        let mut switch =
            env.weir_command(&["-q", "ws", "switch", work, revision, "--mount"]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(4 * n as u64));
        let fork = Workspace { env: &env, folder: env.path("fork") };
        env.weir(&["ws", "fork", work, "fork"]);
        env.weir(&["ws", "mount", work]);
        // A fork takes the workspace away for a moment: a switch that begins then refuses.
        if !switch.wait().unwrap().success() {
            env.weir(&["ws", "switch", work, revision, "--mount"]);
        }
        for one in [&it, &fork] {
            assert_eq!(env.git(&one.folder, &["status", "--porcelain"]), "?? mine", "{n}");
            assert_eq!(env.git(&one.folder, &["-c", "core.fsmonitor=false", "diff", "HEAD"]), "", "{n}");
        }
        drop(fork);
        assert_eq!(fs::read(it.folder.join("mine")).unwrap(), b"mine", "{n}");
    }
}
