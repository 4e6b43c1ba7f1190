//! Visits stop before the disk is full. A process that watches goes on by itself when there is room; another
//! run ends.

use super::outages::Disk;
use crate::common::Env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use weir_testing::wait_until;

fn with_upstreams(env: &Env) -> crate::common::Server {
    for name in ["a", "b"] {
        env.odd_repository(&format!("{name}.git"));
    }
    let daemon = env.git_daemon(&[]);
    for name in ["a", "b"] {
        env.weir(&["add", "--name", name, &daemon.url(&format!("{name}.git"))]);
    }
    daemon
}

/// Starts `weir mirror --watch`, and reads its output up to the line with `result`.
fn mirror_until(env: &Env, result: &str) -> (Child, impl Iterator<Item = serde_json::Value>) {
    let mut child = env
        .weir_command(&["--json", "mirror", "--watch", "--jobs", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut lines = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
    assert!(lines.by_ref().any(|line| line["event"] == result), "never '{result}'");
    (child, lines)
}

fn stop(mut child: Child) {
    weir_testing::send(child.id(), weir_testing::Signal::SIGTERM);
    assert!(child.wait().unwrap().success());
}

/// Returns the number of free bytes on the disk of `path`.
fn free(path: &Path) -> u64 {
    let told = weir_testing::command("stat").args(["-f", "-c", "%a %S"]).arg(path).output().unwrap();
    String::from_utf8(told.stdout).unwrap().split_whitespace().map(|n| n.parse::<u64>().unwrap()).product()
}

#[test]
fn a_quota_stops_visits_and_a_larger_one_lets_them_go_on() {
    let env = Env::new();
    let _daemon = with_upstreams(&env);
    env.configure("store", "bytes_max = 1000");
    let (child, _) = mirror_until(&env, "paused");
    assert!(env.weir(&["status"]).contains("archives take store.bytes_max or more"));
    stop(child);
    // The pause ended with the process that paused.
    assert_eq!(env.weir_json(&["status"])["pauses"].as_array().unwrap().len(), 0);
    assert_eq!(env.weir_json(&["status"])["counts"]["mirrored"], 1);
    let text = std::fs::read_to_string(env.pool().join("weir.toml")).unwrap();
    std::fs::write(env.pool().join("weir.toml"), text.replace("bytes_max = 1000", "bytes_max = \"1 GiB\""))
        .unwrap();
    env.weir(&["mirror"]);
    assert_eq!(env.weir_json(&["status"])["counts"]["mirrored"], 2);
    env.weir(&["fsck"]);
    // Space that is freed meanwhile is found.
    let used = env.weir_json(&["status"])["counts"]["archive_bytes"].as_u64().unwrap();
    let text = std::fs::read_to_string(env.pool().join("weir.toml")).unwrap();
    std::fs::write(
        env.pool().join("weir.toml"),
        text.replace("bytes_max = \"1 GiB\"", &format!("bytes_max = {}", used - 1)),
    )
    .unwrap();
    env.let_pass(7 * 86_400);
    let (child, mut lines) = mirror_until(&env, "paused");
    env.weir(&["rm", "--delete", "a"]);
    assert!(lines.any(|line| line["event"] == "resumed"));
    stop(child);
}

#[test]
fn a_disk_that_is_nearly_full_is_waited_for() {
    const MIB: u64 = 1 << 20;
    // A disk of a size that a test can fill.
    let env = Env { dir: tempfile::tempdir_in("/dev/shm").unwrap() };
    env.weir(&["init"]);
    let _daemon = with_upstreams(&env);
    let filler = env.path("filler");
    env.configure("store", &format!("free_bytes_min = {}", free(env.dir.path()) - 8 * MIB));
    std::fs::write(&filler, vec![1; 24 * MIB as usize]).unwrap();
    let (child, mut lines) = mirror_until(&env, "paused");
    assert!(env.weir(&["status"]).contains("store.free_bytes_min"));
    assert_eq!(env.weir_json(&["status"])["counts"]["mirrored"], 0);
    std::fs::remove_file(&filler).unwrap();
    assert!(lines.any(|line| line["event"] == "resumed"));
    let is_done = || env.weir_json(&["status"])["counts"]["mirrored"] == 2;
    wait_until(|| env.weir(&["status"]), is_done);
    assert_eq!(env.weir_json(&["status"])["pauses"].as_array().unwrap().len(), 0);
    stop(child);
}

#[test]
fn run_without_watch_ends_where_room_is_short() {
    let folder = weir_testing::folder();
    // Less than the 256 MiB that are to stay free.
    let Some(disk) = Disk::of(40 << 20, &folder.path().join("disk")) else {
        weir_testing::skip("mount", "no disk of its own can be mounted here");
        return;
    };
    let env = Env::new();
    // The upstreams are elsewhere: only the pool is on that disk.
    std::fs::rename(env.pool(), env.path("empty-pool")).unwrap();
    std::os::unix::fs::symlink(&disk.0, env.pool()).unwrap();
    env.weir(&["init"]);
    let _daemon = with_upstreams(&env);
    for args in [&["mirror"][..], &["mirror", "--all"], &["mirror", "a"]] {
        let output = env.weir_command(args).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
        let left = if args.contains(&"a") { "1 repository" } else { "2 repositories" };
        let line = format!("left       {left}, not visited: less space is free than store.free_bytes_min\n");
        assert!(said.contains(&line) && !said.contains("paused"), "{args:?}: {said}");
    }
    let said = env.weir_command(&["--json", "mirror"]).output().unwrap().stdout;
    let lines: Vec<serde_json::Value> =
        String::from_utf8(said).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["event"], &lines[0]["left"]), (&"left".into(), &2.into()));
    assert_eq!((&lines[1]["event"], &lines[1]["left"]), (&"summary".into(), &2.into()));
    let status = env.weir_json(&["status"]);
    assert_eq!((&status["pauses"], &status["counts"]["leased"]), (&serde_json::json!([]), &0.into()));
    assert_eq!(status["counts"]["due"], 2);
    assert_eq!(status["space"]["shortage"], "less space is free than store.free_bytes_min");
    assert!(env.weir(&["status"]).contains("; nothing is fetched: less space is free than store."));
    env.configure("store", "free_bytes_min = 0");
    env.weir(&["mirror"]);
    assert_eq!(env.weir_json(&["status"])["counts"]["mirrored"], 2);
}

#[test]
fn status_does_not_show_a_pause_whose_cause_is_gone() {
    let env = Env::new();
    let _daemon = with_upstreams(&env);
    env.configure("store", &format!("free_bytes_min = {}", 1u64 << 60));
    let (mut child, _) = mirror_until(&env, "paused");
    assert!(env.weir(&["status"]).contains("store.free_bytes_min"));
    // It cannot clear the pause any more.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(env.weir(&["status"]).contains("store.free_bytes_min"), "new visits would pause, too");
    std::fs::write(env.pool().join("weir.toml"), "").unwrap();
    assert!(!env.weir(&["status"]).contains("store.free_bytes_min"));
    env.weir(&["mirror"]);
}
