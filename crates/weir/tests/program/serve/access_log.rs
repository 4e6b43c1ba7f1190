//! The access log has a line for each request, over each door, in either form.

use std::path::Path;

use serde_json::Value;
use weir_testing::wait_until;

use crate::common::{Env, Http, OPEN_SESAME};

fn pool_with_log(format: &str) -> (Env, std::path::PathBuf) {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.mirror_new("some/up", &upstream);
    let log = env.path("access.log");
    env.configure("serve", &format!("access_log = '{}'\naccess_log_format = '{format}'", log.display()));
    env.configure("access", &format!("tokens = [{{ name = 'ci robot', sha256 = '{OPEN_SESAME}' }}]"));
    (env, log)
}

/// Returns the lines of the log once there are `count`.
fn wait_for_lines(log: &Path, count: usize) -> Vec<String> {
    let lines =
        || std::fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    wait_until(|| format!("{count} lines: {:#?}", lines()), || lines().len() >= count);
    let lines = lines();
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

#[test]
fn access_log_has_the_form_of_web_servers() {
    let (env, log) = pool_with_log("combined");
    let server = Http::serve(&env, &[]);
    let git = |url: &str| env.git(env.dir.path(), &["-c", "protocol.version=2", "ls-remote", url, "HEAD"]);
    git(&server.git_url("some/up"));
    git(&server.url("some/up"));
    server.get(
        "/api/v1/repositories?search=up",
        "Authorization: Bearer open sesame\r\nReferer: http://x/\"y\r\n",
    );
    server.get("/nothing/info/refs", "User-Agent: a\u{e9}\t\"b\r\n");
    env.git_command(env.dir.path(), &["ls-remote", &server.git_url("nothing")]).output().unwrap();
    server.ask(b"GET /a HTTP/1.1\r\nno colon\r\n\r\n");
    server.ask(b"GET http://elsewhere/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut git = std::net::TcpStream::connect(("127.0.0.1", server.1)).unwrap();
    std::io::Write::write_all(&mut git, b"000erm -rf /\n\n").unwrap();
    let told = wait_for_lines(&log, 9);
    let is_told = |words: &[&str]| told.iter().any(|line| words.iter().all(|words| line.contains(words)));
    for words in [
        &["127.0.0.1 - - [", "] \"git-upload-pack /some/up GIT/2\" 200 ", " \"-\" \"-\""][..],
        &["\"GET /some/up/info/refs?service=git-upload-pack HTTP/1.1\" 200 ", " \"-\" \"git/"],
        &["\"POST /some/up/git-upload-pack HTTP/1.1\" 200 "],
        &[
            "127.0.0.1 - ci_robot [",
            "\"GET /api/v1/repositories?search=up HTTP/1.1\" 200 ",
            " \"http://x/\\\"y\" \"-\"",
        ],
        &["\"GET /nothing/info/refs HTTP/1.1\" 404 ", "\"a\\xc3\\xa9\\x09\\\"b\""],
        &["\"git-upload-pack /nothing GIT/", "\" 404 -"],
        &["127.0.0.1 - - [", "] \"- - -\" 400 - \"-\" \"-\""],
        &["\"GET http://elsewhere/healthz HTTP/1.1\" 200 "],
    ] {
        assert!(is_told(words), "{words:?}: {told:#?}");
    }
    assert!(told.iter().all(|line| line.contains(" +0000] \"")), "{told:#?}");
}

#[test]
fn access_log_in_json_names_requests_and_their_results() {
    let (env, log) = pool_with_log("json");
    let server = Http::serve(&env, &[]);
    let copy = env.path("copy.git");
    env.git(env.dir.path(), &["clone", "-q", "--bare", &server.git_url("some/up"), copy.to_str().unwrap()]);
    let (head, _) = server.get("/some/up/info/refs?service=git-upload-pack", "X-Request-Id: trace-7\r\n");
    assert!(head.contains("\r\nx-request-id: trace-7\r\n"), "{head}");
    let (head, _) = server.get("/healthz", "X-Request-Id: \"bad name\"\r\n");
    let made = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().to_owned();
    // Over ssh each request is a process.
    let shell = |command: &str, expected: bool| {
        let mut shell = env.weir_command(&["shell", "--as", "ci robot", "-c", command]);
        let output = shell.env("SSH_CONNECTION", "192.0.2.9 5022 192.0.2.1 22").output().unwrap();
        assert_eq!(output.status.success(), expected, "{output:?}");
    };
    shell("git-upload-pack 'nothing'", false);
    let lines = wait_for_lines(&log, 4);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |key: &str| lines.iter().map(|line| line[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("protocol"), ["git", "http", "http", "ssh"]);
    assert_eq!(of("status"), [200, 200, 200, 404]);
    assert_eq!(of("result"), ["answered", "answered", "answered", "refused"]);
    assert_eq!(of("repository"), [Value::from("/some/up"), "/some/up".into(), Value::Null, "nothing".into()]);
    assert_eq!((&of("request_id")[1], &of("request_id")[2]), (&"trace-7".into(), &made.as_str().into()));
    assert_eq!((&lines[3]["user"], &lines[3]["client"]), (&"ci robot".into(), &"192.0.2.9".into()));
    assert!(lines[0]["bytes"].as_u64() > Some(1000) && lines[0]["seconds"].as_f64() > Some(0.0));
    assert_eq!(lines[0]["user"], Value::Null);
    // A file that was moved away, as logrotate does, is made again.
    std::fs::rename(&log, env.path("access.log.1")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    server.get("/healthz", "");
    wait_for_lines(&log, 1);
}

#[test]
fn access_log_says_that_a_file_broke_off() {
    let (env, log) = pool_with_log("json");
    let big = env.init_bare("big.git");
    env.commit_file(&big, "refs/heads/main", "big", &crate::common::Rng(7).bytes(20_000_000));
    env.mirror_new("big", &big);
    let server = Http::serve(&env, &[]);
    let mut client = std::net::TcpStream::connect(("127.0.0.1", server.0.port)).unwrap();
    let request = "GET /api/v1/repositories/big/file?path=big HTTP/1.1\r\nHost: x\r\n\r\n";
    std::io::Write::write_all(&mut client, request.as_bytes()).unwrap();
    std::io::Read::read_exact(&mut client, &mut [0; 100_000]).unwrap();
    drop(client);
    let line: Value = serde_json::from_str(&wait_for_lines(&log, 1)[0]).unwrap();
    assert_eq!((&line["status"], &line["result"]), (&200.into(), &"broken_off".into()), "{line}");
    assert!(line["bytes"].as_u64() < Some(15_000_000), "{line}");
}

#[test]
fn an_access_log_that_cannot_be_opened_is_an_error() {
    let (env, log) = pool_with_log("combined");
    std::fs::create_dir(&log).unwrap();
    let why = env.weir_fails(&["serve", "--no-mirror", "--git", "127.0.0.1:0"]);
    assert!(why.contains("access.log") && why.contains("open"), "{why}");
    let settings = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replace(log.to_str().unwrap(), "/no/such/folder/access.log")).unwrap();
    let why = env.weir_fails(&["config", "check"]);
    assert!(why.contains("serve.access_log: there is no folder '/no/such/folder'"), "{why}");
}
