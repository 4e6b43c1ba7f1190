//! The log: one line for each request, if it is wanted, in text or JSON.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Env, Http, Server};
use weir_testing::{free_port, wait_for_port, wait_until};

fn pool_with_one() -> Env {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env
}

fn lines(log: &Path) -> Vec<String> {
    std::fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
}

/// Returns the log once `count` of its lines contain `words`.
fn wait_for_lines(log: &Path, words: &str, count: usize) -> Vec<String> {
    let found = || lines(log).into_iter().filter(|line| line.contains(words)).collect::<Vec<_>>();
    wait_until(|| format!("{count} lines with '{words}': {:?}", lines(log)), || found().len() >= count);
    found()
}

#[test]
fn request_log_has_one_line_of_one_shape_for_each_request() {
    let env = pool_with_one();
    let log = env.path("log");
    let server = Http::serve_logging(&env, &["-v"], &log);
    let at = |url: &str| env.git(env.dir.path(), &["-c", "protocol.version=2", "ls-remote", url, "HEAD"]);
    assert_eq!(at(&server.git_url("up")), at(&server.url("up")));
    let (head, _) = server.get("/nothing/info/refs", "");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    env.git_command(env.dir.path(), &["ls-remote", &server.git_url("nothing")]).output().unwrap();
    let told = wait_for_lines(&log, " request peer=127.0.0.1:", 5);
    let is_told = |words: &[&str]| told.iter().any(|line| words.iter().all(|words| line.contains(words)));
    for words in [
        &["protocol=\"git\"", "request=\"git-upload-pack\"", "repository=\"/up\"", " status=ok "][..],
        &["protocol=\"http\"", "request=\"GET info/refs\"", "repository=\"/up\"", " status=200 "],
        &["protocol=\"http\"", "request=\"POST git-upload-pack\"", "repository=\"/up\"", " status=200 "],
        &["protocol=\"http\"", "request=\"GET info/refs\"", "repository=\"/nothing\"", " status=404 "],
        &["protocol=\"git\"", "repository=\"/nothing\"", " status=refused "],
    ] {
        assert!(is_told(words), "{words:?}: {told:?}");
    }
    for line in told {
        assert!(line.contains(" INFO ") && line.contains(" elapsed_ms="), "{line}");
        assert!(!line.contains("Some(") && !line.contains("ended_early"), "{line}");
        assert!(line.contains("refused") || !line.contains(" bytes=0 "), "{line}");
    }
}

#[test]
fn request_log_is_off_unless_it_is_wanted() {
    let env = pool_with_one();
    let log = env.path("log");
    let server = Http::serve_logging(&env, &[], &log);
    env.git(env.dir.path(), &["ls-remote", &server.url("up")]);
    server.get("/nothing/info/refs", "");
    wait_for_lines(&log, "refused: 404", 1);
    assert!(!lines(&log).iter().any(|line| line.contains("elapsed_ms")), "{:?}", lines(&log));
}

#[test]
fn json_log_is_one_object_a_line() {
    let env = pool_with_one();
    let log = env.path("log");
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut command = env.weir_command(&["--json", "-v", "serve", "--no-mirror", "--git", &address]);
    let child = command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let server = Server { child, port };
    wait_for_port(port);
    env.git(env.dir.path(), &["ls-remote", &server.url("up")]);
    wait_for_lines(&log, "elapsed_ms", 1);
    for line in lines(&log) {
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(value["timestamp"].is_string() && value["level"].is_string(), "{line}");
        if value["message"] == "request" {
            assert_eq!((&value["repository"], &value["status"]), (&"/up".into(), &"ok".into()), "{line}");
            assert!(value["bytes"].as_u64() > Some(100) && value["elapsed_ms"].is_u64(), "{line}");
        }
    }
    // So are warnings and the error that ends a command.
    let output = env.weir_command(&["--json", "show", "nosuch"]).output().unwrap();
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["level"], "ERROR");
    assert!(error["message"].as_str().unwrap().contains("'nosuch'"), "{error}");
}
