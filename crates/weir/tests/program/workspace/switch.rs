//! `weir workspace switch`.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};

use super::{Workspace, mirrored};
use crate::common::Env;

#[test]
fn a_switch_leads_where_git_checkout_does() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let git = |args: &[&str]| env.git(&it.folder, args);
    let time = |name: &str| fs::metadata(it.folder.join(name)).map(|about| about.mtime()).unwrap();
    // A branch of the repository becomes one of the workspace.
    let switched = env.weir_json(&["ws", "switch", work, "other"]);
    assert_eq!(switched["branch"], "other");
    assert_eq!(switched["commit"], git(&["rev-parse", "HEAD"]));
    assert_eq!(switched["files"], git(&["diff", "--name-only", "main", "other", "--"]).lines().count());
    assert_eq!(git(&["status", "--porcelain", "--branch"]), "## other...origin/other");
    assert_eq!(git(&["reflog", "-1", "--format=%gs"]), "checkout: moving from main to other");
    // What is the same keeps its time, which is the commit's; what differs is of now.
    assert_eq!(time("same1"), 1_700_000_019);
    assert!(time("other") > 1_700_001_000);
    let old = fs::File::open(it.folder.join("run")).unwrap();
    assert!(env.weir(&["ws", "switch", work, "v1"]).contains("files differ"));
    assert_eq!(git(&["status", "--porcelain", "--branch"]), "## HEAD (no branch)");
    assert_eq!(git(&["-c", "core.fsmonitor=false", "diff", "v1"]), "");
    // Who has a file open keeps it.
    let mut content = String::new();
    (&old).read_to_string(&mut content).unwrap();
    assert_eq!(content, "#!\n");
    env.weir(&["ws", "switch", work, "main"]);
    assert_eq!(git(&["status", "--porcelain", "--branch"]), "## main...origin/main");
    git(&["fsck", "--no-dangling"]);
    // A list says where HEAD is, however it came there.
    let is_at = |branch: serde_json::Value| {
        let list = env.weir_json(&["ws", "ls"]);
        assert_eq!((&list[0]["branch"], &list[0]["commit"]), (&branch, &git(&["rev-parse", "HEAD"]).into()));
    };
    is_at("main".into());
    git(&["checkout", "-q", "-b", "mine", "v1"]);
    git(&["pack-refs", "--all"]);
    is_at("mine".into());
    git(&["checkout", "-q", "--detach"]);
    is_at(serde_json::Value::Null);
}

#[test]
fn a_switch_goes_back_to_where_head_was() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let git = |args: &[&str]| env.git(&it.folder, args);
    let switch = |revision: &str| env.weir_json(&["ws", "switch", "--", work, revision])["branch"].clone();
    let never = env.weir_fails(&["ws", "switch", work, "-"]);
    assert!(never.contains("'@{-1}' names nothing"), "{never}");
    assert_eq!(switch("HEAD"), "main");
    assert_eq!(switch("other"), "other");
    assert_eq!(switch("v1"), serde_json::Value::Null);
    assert_eq!(switch("-"), "other");
    assert_eq!(git(&["status", "--porcelain", "--branch"]), "## other...origin/other");
    assert_eq!(git(&["reflog", "-1", "--format=%gs"]).rsplit(' ').next(), Some("other"));
    assert_eq!(switch("-"), serde_json::Value::Null);
    assert_eq!(git(&["rev-parse", "HEAD"]), git(&["rev-parse", "v1^{}"]));
    // HEAD was at 'main' before all that, after a switch to where it was.
    assert_eq!(switch("@{-5}"), "main");
    assert_eq!(git(&["status", "--porcelain", "--branch"]), "## main...origin/main");
    // '-' names the branch, not a tag of the same name. '~1' counts from its commit.
    git(&["switch", "-q", "-c", "dup", "other"]);
    git(&["tag", "dup", "v1^{}"]);
    git(&["switch", "-q", "main"]);
    assert_eq!(switch("-"), "dup");
    assert_eq!(git(&["rev-parse", "HEAD"]), git(&["rev-parse", "other"]));
    assert_eq!(switch("@{-1}~1"), serde_json::Value::Null);
    assert_eq!(git(&["rev-parse", "HEAD"]), git(&["rev-parse", "main~1"]));
}

#[test]
fn a_branch_without_a_commit_is_not_switched_from() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    env.git(&it.folder, &["switch", "-q", "--orphan", "new"]);
    let said = env.weir_fails(&["ws", "switch", work, "main"]);
    assert!(said.contains("the branch 'new' has no commit yet"), "{said}");
    assert!(said.contains("'git checkout main'"), "{said}");
    env.git(&it.folder, &["checkout", "-q", "main"]);
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
}

#[test]
fn an_empty_folder_does_not_prevent_a_switch() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    env.weir(&["ws", "switch", work, "other"]);
    // It is a link in the other commit.
    fs::create_dir_all(it.folder.join("link/empty/deep")).unwrap();
    env.weir(&["ws", "switch", work, "main"]);
    assert!(fs::symlink_metadata(it.folder.join("link")).unwrap().is_symlink());
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
}

#[test]
fn a_switch_finds_what_was_mirrored_later() {
    let env = Env::new();
    let Some((up, it)) = mirrored(&env) else { return };
    let Some(twin) = Workspace::new(&env, "it", "twin") else { return };
    let work = it.folder.to_str().unwrap();
    env.commit_file(&up, "refs/heads/newer", "newer", b"newer\n");
    env.add_commit(&up, 9);
    env.weir(&["mirror", "--all"]);
    env.weir(&["ws", "switch", work, "newer"]);
    assert_eq!(fs::read(it.folder.join("newer")).unwrap(), b"newer\n");
    assert_eq!(env.git(&it.folder, &["rev-parse", "origin/main"]), env.git(&up, &["rev-parse", "main"]));
    env.weir(&["ws", "switch", work, "origin/main"]);
    assert_eq!(fs::read(it.folder.join("k9")).unwrap(), b"n");
    // Where the remote branch is now counts, not where it was.
    env.add_commit(&up, 10);
    env.weir(&["mirror", "--all"]);
    env.weir(&["ws", "switch", work, "origin/main"]);
    assert_eq!(env.git(&it.folder, &["rev-parse", "HEAD"]), env.git(&up, &["rev-parse", "main"]));
    assert_eq!(fs::read(it.folder.join("k10")).unwrap(), b"n");
    env.weir(&["compact", "it"]);
    env.git(&it.folder, &["fsck", "--no-dangling"]);
    assert_eq!(env.git(&twin.folder, &["status", "--porcelain"]), "");
    // Both views go with it, and the twin keeps its own.
    drop(it);
    assert_eq!(env.git(&twin.folder, &["fsck", "--no-dangling"]), "");
}

#[test]
fn a_switch_loses_no_change() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let git = |args: &[&str]| env.git(&it.folder, args);
    let fails = |part: &str| {
        let before = git(&["status", "--porcelain"]);
        let said = env.weir_fails(&["ws", "switch", work, "other"]);
        assert!(said.contains(part), "{part}: {said}");
        assert_eq!(git(&["status", "--porcelain"]), before, "{part}");
        assert_eq!(git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    };
    let reset = || git(&["reset", "-q", "--hard"]);
    fs::write(it.folder.join("d1/e1/f1"), b"mine").unwrap();
    fails("there are changes in 'd1/e1/f1'");
    git(&["add", "-A"]);
    fails("there are staged changes in");
    reset();
    fs::write(it.folder.join("other"), b"mine").unwrap();
    fails("git does not track 'other'");
    fs::remove_file(it.folder.join("other")).unwrap();
    // A folder that becomes a file, with a file in it that is nowhere else.
    fs::write(it.folder.join("d2/new"), b"mine").unwrap();
    fails("git does not track 'd2'");
    fs::remove_file(it.folder.join("d2/new")).unwrap();
    fs::write(it.folder.join(".git/MERGE_HEAD"), b"").unwrap();
    fails("a merge is not finished");
    fs::remove_file(it.folder.join(".git/MERGE_HEAD")).unwrap();
    fs::write(it.folder.join(".git/index.lock"), b"").unwrap();
    fails("another git works here");
    fs::remove_file(it.folder.join(".git/index.lock")).unwrap();
    // The folder is a link to one elsewhere: what is there stays.
    let away = env.path("away");
    fs::rename(it.folder.join("d1"), &away)
        .or_else(|_| {
            let moved = weir_testing::command("mv").arg(it.folder.join("d1")).arg(&away).status()?;
            assert!(moved.success());
            Ok::<_, std::io::Error>(())
        })
        .unwrap();
    symlink(&away, it.folder.join("d1")).unwrap();
    fails("there are changes in");
    assert!(away.join("e1/f1").exists(), "what a link leads to is not ours");
    fs::remove_file(it.folder.join("d1")).unwrap();
    // What was deleted may be.
    env.weir(&["ws", "switch", work, "other"]);
    assert_eq!(git(&["status", "--porcelain"]), "");
    let said = env.weir_fails(&["ws", "switch", work, "nothing"]);
    assert!(said.contains("no such revision: 'nothing'"), "{said}");
    // A switch that ended half way, as on a full disk, is resumed; another is refused.
    let begun = git(&["rev-parse", "HEAD", "main"]).replace('\n', " ");
    fs::write(it.folder.join(".git/switch.begun"), begun).unwrap();
    fs::remove_file(it.folder.join("other")).unwrap();
    fs::create_dir_all(it.folder.join("d1/e1")).unwrap();
    fs::write(it.folder.join("d1/e1/f1"), git(&["show", "main:d1/e1/f1"]) + "\n").unwrap();
    let said = env.weir_fails(&["ws", "switch", work, "v1"]);
    assert!(said.contains("is not finished"), "{said}");
    env.weir(&["ws", "switch", work, "main"]);
    assert_eq!(git(&["status", "--porcelain"]), "");
    env.weir(&["ws", "switch", work, "other"]);
    // Changes in files that do not differ are carried along.
    fs::write(it.folder.join("same1"), b"mine").unwrap();
    fs::write(it.folder.join("untracked"), b"mine").unwrap();
    env.weir(&["ws", "switch", work, "main"]);
    assert_eq!(git(&["status", "--porcelain"]), " M same1\n?? untracked");
}

#[test]
fn workspace_switch_hides_no_change_within_a_second() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let file = it.folder.join("mine");
    let modified = || fs::metadata(&file).unwrap().mtime();
    // Both contents have one size, and are written within the second in which the index is.
    loop {
        fs::write(&file, b"aaa").unwrap();
        env.git(&it.folder, &["add", "mine"]);
        let index = fs::metadata(it.folder.join(".git/index")).unwrap().mtime();
        let first = modified();
        fs::write(&file, b"bbb").unwrap();
        if modified() == first && index == first {
            break;
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(1100));
    for (revision, mount) in [("other", None), ("main", Some("--mount"))] {
        let mut switch = vec!["ws", "switch", work, revision];
        switch.extend(mount);
        env.weir(&switch);
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "AM mine", "{revision}");
    }
}

#[test]
fn workspace_switch_is_finished_by_another_try() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let git = |args: &[&str]| env.git(&it.folder, args);
    let git_dir = it.folder.join(".git");
    for mount in [None, Some("--mount")] {
        let switch = |to| ["ws", "switch", work, to].into_iter().chain(mount).collect::<Vec<_>>();
        // HEAD cannot be moved: nothing is done.
        fs::write(git_dir.join("HEAD.lock"), b"").unwrap();
        let said = env.weir_fails(&switch("other"));
        assert!(said.contains("HEAD.lock' is there"), "{said}");
        fs::remove_file(git_dir.join("HEAD.lock")).unwrap();
        assert_eq!(git(&["-c", "core.fsmonitor=false", "status", "--porcelain"]), "");
        // Files and index are switched, and HEAD is not, as after a kill.
        env.weir(&switch("other"));
        let [from, to] = ["main", "other"].map(|name| git(&["rev-parse", &format!("refs/heads/{name}")]));
        git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
        fs::write(git_dir.join("switch.begun"), format!("{from} {to}")).unwrap();
        fs::write(git_dir.join("index.lock"), b"").unwrap();
        fs::hard_link(git_dir.join("index.lock"), git_dir.join("switch.lock")).unwrap();
        assert!(env.weir_fails(&switch("v1")).contains(&format!("a switch to '{to}' is not finished")));
        fs::write(git_dir.join("switch.begun"), format!("{from} {to} other")).unwrap();
        assert!(env.weir_fails(&switch("v1")).contains("a switch to 'other' is not finished"));
        env.weir(&switch("other"));
        assert_eq!(git(&["status", "--porcelain", "--branch"]), "## other...origin/other");
        assert_eq!(git(&["-c", "core.fsmonitor=false", "diff", "other", "--"]), "");
        for left in ["switch.begun", "switch.lock", "index.lock"] {
            assert!(!git_dir.join(left).exists(), "{left}");
        }
        // A lock of another program stays.
        fs::write(git_dir.join("index.lock"), b"").unwrap();
        assert!(env.weir_fails(&switch("main")).contains("another git works here"));
        fs::remove_file(git_dir.join("index.lock")).unwrap();
        env.weir(&switch("main"));
    }
}

#[test]
fn workspace_switch_between_files_and_submodules() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let commit = |branch: &str, more: &str| {
        let head = format!("commit refs/heads/{branch}\ncommitter C <c@x> 1700000000 +0000\ndata 1\nx\n");
        head + more
    };
    let submodule = "1234567890123456789012345678901234567890";
    let stream = commit("main", "M 644 inline f\ndata 2\na\n\nM 644 inline g\ndata 2\na\n\n")
        + &commit("sub", "from refs/heads/main\n")
        + &format!("M 160000 {submodule} f\nM 644 inline g\ndata 2\nb\n\n")
        + &commit("other", "from refs/heads/main\n")
        + &format!("M 160000 {submodule} other\n\n");
    env.git_with(&up, &["fast-import", "--quiet"], stream.as_bytes());
    env.mirror_new("it", &up);
    let Some(it) = Workspace::new(&env, "it", "work") else { return };
    let work = it.folder.to_str().unwrap();
    for mount in [None, Some("--mount")] {
        let switch = |to| ["ws", "switch", work, to].into_iter().chain(mount).collect::<Vec<_>>();
        env.weir(&switch("sub"));
        assert!(it.folder.join("f").is_dir());
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
        // What is in it may be nowhere else.
        fs::write(it.folder.join("f/own"), b"own").unwrap();
        let said = env.weir_fails(&switch("main"));
        assert!(said.contains("there are files of the submodule 'f'"), "{said}");
        assert_eq!(fs::read(it.folder.join("g")).unwrap(), b"b\n");
        fs::remove_file(it.folder.join("f/own")).unwrap();
        env.weir(&switch("main"));
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
        // The repository of a submodule stays when another commit has none there, and comes back to it.
        let own = it.folder.join("other");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("own"), b"own").unwrap();
        assert!(env.weir_fails(&switch("other")).contains("git does not track 'other'"));
        env.git(&own, &["init", "-q"]);
        env.weir(&switch("other"));
        assert_eq!(
            env.git(&it.folder, &["ls-files", "--stage", "other"]),
            format!("160000 {submodule} 0\tother")
        );
        env.weir(&switch("main"));
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "?? other/");
        assert_eq!(fs::read(own.join("own")).unwrap(), b"own");
        fs::remove_dir_all(&own).unwrap();
    }
}
