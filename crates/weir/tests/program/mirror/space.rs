//! Visits stop before the disk is full, and go on by themselves when there is room.

use crate::common::Env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

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

/// Starts `weir mirror`, and reads its output up to the line with `result`.
fn mirror_until(env: &Env, result: &str) -> (Child, impl Iterator<Item = serde_json::Value>) {
    let mut child =
        env.weir_command(&["--json", "mirror", "--jobs", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut lines = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
    assert!(lines.by_ref().any(|line| line["result"] == result), "never '{result}'");
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
    let mut child = env.weir_command(&["--json", "mirror", "--all"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line.contains("\"paused\"")));
    env.weir(&["rm", "--delete", "a"]);
    assert!(lines.any(|line| line.contains("\"resumed\"")));
    assert!(child.wait().unwrap().success());
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
    let (mut child, mut lines) = mirror_until(&env, "paused");
    assert!(env.weir(&["status"]).contains("store.free_bytes_min"));
    assert_eq!(env.weir_json(&["status"])["counts"]["mirrored"], 0);
    std::fs::remove_file(&filler).unwrap();
    assert!(lines.any(|line| line["result"] == "resumed"));
    assert!(child.wait().unwrap().success());
    let status = env.weir_json(&["status"]);
    assert_eq!((&status["counts"]["mirrored"], status["pauses"].as_array().unwrap().len()), (&2.into(), 0));
}
