//! Compaction: the data that it keeps, when it begins, and the room that it needs.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Env, Rng};

fn add_commit(env: &Env, upstream: &Path, name: &str, n: u64, len: usize) -> String {
    env.commit_file(upstream, name, &format!("f{n}"), &Rng(n * 31 + 7).bytes(len))
}

fn states(env: &Env) -> Vec<(u64, Option<u64>, String)> {
    let log = env.weir_json(&["log", "a"]);
    let of =
        |s: &serde_json::Value| (s["seq"].as_u64().unwrap(), s["time"].as_u64(), s["changes"].to_string());
    log.as_array().unwrap().iter().map(of).collect()
}

#[test]
fn states_keep_their_numbers_and_times_and_none_is_invented() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    add_commit(&env, &up, "refs/heads/main", 1, 300);
    add_commit(&env, &up, "refs/pull/1/head", 2, 300);
    env.weir(&["add", "--name", "a", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    for n in 3..6 {
        add_commit(&env, &up, "refs/heads/main", n, 300);
        env.git(&up, &["tag", "-a", "-m", "t", &format!("v{n}"), "main"]);
        if n == 4 {
            env.git(&up, &["update-ref", "-d", "refs/pull/1/head"]);
            env.git(&up, &["symbolic-ref", "HEAD", "refs/heads/other"]);
        }
        env.weir(&["mirror", "--all"]);
    }
    let before = states(&env);
    assert!(before.iter().all(|(_, time, _)| time.is_some()));
    for round in 0..3 {
        env.weir(&["compact"]);
        assert_eq!(states(&env), before, "round {round}");
        env.weir(&["fsck"]);
    }
    add_commit(&env, &up, "refs/heads/main", 9, 300);
    env.weir(&["mirror", "--all"]);
    let after = states(&env);
    assert_eq!(after[1..], before);
    env.weir(&["compact"]);
    assert_eq!(states(&env), after);
    // Any of the states can be restored.
    let oldest = after.last().unwrap().0;
    env.weir(&["restore", &format!("a@{oldest}"), "--name", "then"]);
    let server = env.serve();
    let refs = env.git(env.dir.path(), &["ls-remote", &server.url("then"), "refs/pull/1/head"]);
    assert!(!refs.is_empty() || oldest < after[after.len() - 2].0, "{refs}");
    // A number that no state has cannot be restored.
    env.weir_fails(&["restore", &format!("a@{}", after[0].0 + 50)]);
}

#[test]
fn what_has_rotted_is_not_signed_as_sound() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    add_commit(&env, &up, "refs/heads/main", 1, 300);
    add_commit(&env, &up, "refs/heads/precious", 2, 300);
    env.weir(&["add", "--name", "a", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.git(&up, &["update-ref", "-d", "refs/heads/precious"]);
    add_commit(&env, &up, "refs/heads/main", 3, 300);
    env.weir(&["mirror", "--all"]);
    let archive = env.pool().join("store/a.tar");
    let mut bytes = std::fs::read(&archive).unwrap();
    let at = bytes.windows(19).position(|w| w == b"refs/heads/precious").unwrap();
    bytes[at + 11] ^= 1;
    std::fs::write(&archive, &bytes).unwrap();
    env.weir_fails(&["fsck"]);
    let said = env.weir_fails(&["compact"]);
    assert!(said.contains("'packed-refs' has a wrong checksum"), "{said}");
    env.weir_fails(&["log", "a"]);
    env.weir_fails(&["fsck"]);
    // The current refs are not trusted, either, if they have rotted.
    let at = bytes.windows(15).rposition(|w| w == b"refs/heads/main").unwrap();
    bytes[at + 11] ^= 1;
    std::fs::write(&archive, &bytes).unwrap();
    let said = env.weir_fails(&["ls-tree", "a", "HEAD"]);
    assert!(said.contains("checksum") || said.contains("damaged"), "{said}");
}

#[test]
fn bytes_that_nobody_needs_are_a_reason() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let (one, two) =
        (add_commit(&env, &up, "refs/heads/main", 1, 300), add_commit(&env, &up, "refs/heads/b", 2, 300));
    let refs: String = (0..4000).map(|n| format!("create refs/pull/{n}/head {one}\n")).collect();
    env.git_with(&up, &["update-ref", "--stdin"], refs.as_bytes());
    env.git(&up, &["pack-refs", "--all"]);
    env.weir(&["add", "--name", "a", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let len = || std::fs::metadata(env.pool().join("store/a.tar")).unwrap().len();
    let mut largest = 0;
    for n in 0..60 {
        env.git(&up, &["update-ref", "refs/tags/nightly", if n % 2 == 0 { &one } else { &two }]);
        env.weir(&["mirror", "--all"]);
        largest = largest.max(len());
    }
    assert!(largest < 12 << 20, "it grew to {largest} bytes");
    assert!(len() < 8 << 20);
    assert_eq!(states(&env).len(), 61, "no state is lost");
    env.weir(&["fsck"]);
}

/// A file system in memory that is unmounted in the end.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = weir_testing::command("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn without_room_it_waits_and_nothing_else_fails_for_that() {
    let env = Env::new();
    let disk = env.path("disk");
    std::fs::create_dir(&disk).unwrap();
    if !weir_testing::command("mount")
        .args(["-t", "tmpfs", "-o", "size=40m", "tmpfs"])
        .arg(&disk)
        .status()
        .is_ok_and(|s| s.success())
    {
        weir_testing::skip("mount", "this machine lets nothing be mounted");
        return;
    }
    let _mounted = Mounted(disk.clone());
    // The store is on that disk.
    let store = env.pool().join("store");
    assert!(weir_testing::command("cp").arg("-a").args([&store, &disk]).status().unwrap().success());
    std::fs::remove_dir_all(&store).unwrap();
    std::os::unix::fs::symlink(disk.join("store"), &store).unwrap();
    env.configure("archive", "packs_max = 2");
    env.configure("store", "free_bytes_min = \"4 MiB\"");
    let up = env.init_bare("up.git");
    add_commit(&env, &up, "refs/heads/main", 1, 24_000_000);
    env.weir(&["add", "--name", "a", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    for n in 2..7 {
        add_commit(&env, &up, "refs/heads/main", n, 1000);
        let said = env.weir_command(&["mirror", "--all"]).output().unwrap();
        assert!(said.status.success());
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.contains("not enough free space"), n > 2, "{n}: {said}");
    }
    env.weir(&["fsck"]);
    let server = env.serve();
    env.assert_same(&server, "a", &up, "all of it is there");
}

#[test]
fn a_folder_that_cannot_be_read_stops_nothing() {
    if !nix::unistd::getuid().is_root() {
        weir_testing::skip("root", "only root can be somebody else");
        return;
    }
    const NOBODY: u32 = 65534;
    let env = Env::new();
    let up = env.init_bare("up.git");
    add_commit(&env, &up, "refs/heads/main", 1, 300);
    env.weir(&["add", "--name", "a", up.to_str().unwrap()]);
    for entry in ["chown", "chmod"] {
        let mode = if entry == "chown" { "65534:65534" } else { "u+rwX" };
        assert!(
            weir_testing::command(entry).args(["-R", mode]).arg(env.dir.path()).status().unwrap().success()
        );
    }
    // As at the root of an ext file system.
    let lost = env.pool().join("store/lost+found");
    std::fs::create_dir(&lost).unwrap();
    std::fs::set_permissions(&lost, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let program = env.path("weir");
    weir_testing::copy_program(env!("CARGO_BIN_EXE_weir"), &program);
    let mut command = weir_testing::command(program);
    command
        .args(["mirror"])
        .env("WEIR_POOL", env.pool())
        .env("HOME", env.dir.path())
        .current_dir(env.dir.path())
        .uid(NOBODY)
        .gid(NOBODY);
    let said = command.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(String::from_utf8_lossy(&said.stdout).contains("1 updated"));
}

#[test]
fn a_compaction_that_fails_changes_nothing() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.git(&upstream, &["update-ref", "-d", "refs/heads/odd-mode"]);
    env.weir(&["mirror", "--all"]);
    let archive = env.pool().join("store/u.tar");
    let before = std::fs::read(&archive).unwrap();
    let states = env.weir_json(&["log", "u"]);
    let mut rng = Rng(3);
    for _ in 0..40 {
        let mut child = env
            .weir_command(&["compact", "--quiet"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(rng.below(30_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        if std::fs::read(&archive).unwrap() != before {
            // The compaction finished: then the archive has everything, older states included.
            assert_eq!(env.weir_json(&["log", "u"]), states);
            env.weir(&["fsck", "--quiet"]);
            std::fs::write(&archive, &before).unwrap();
        }
    }
}

#[test]
fn many_updates_compact_an_archive_by_themselves() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    env.configure("archive", "packs_max = 4");
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    let server = env.serve();
    let mut packs = Vec::new();
    for step in 0..12 {
        if step == 5 {
            // Objects that no ref reaches any more go to a body of their own, which must not spoil the
            // others.
            env.git(&upstream, &["update-ref", "-d", "refs/heads/odd-mode"]);
        }
        env.add_commit(&upstream, step);
        env.weir(&["mirror", "--all"]);
        packs.push(env.weir_json(&["show", "u"])["packs"].as_array().unwrap().len());
        env.assert_same(&server, "u", &upstream, &format!("update {step}"));
    }
    assert!(
        packs.iter().max() <= Some(&4) && packs.windows(2).filter(|w| w[1] < w[0]).count() >= 2,
        "{packs:?}"
    );
    let show = env.weir_json(&["show", "u"]);
    assert_eq!(show["whole_clone"], serde_json::json!({ "heads_and_tags": true, "all": true }), "{show}");
    // The history of refs is kept: at least one state for each update.
    assert!(env.weir_json(&["log", "u"]).as_array().unwrap().len() >= 12);
    env.weir(&["fsck", "--quiet"]);
}
