//! The ways in besides `weir serve`: `weir daemon` and `weir upload-pack`, on directories and on archives.

mod common;

use common::{Env, Server, free_port, wait_for_port};
use std::process::Stdio;

/// `weir daemon` on this environment's folder.
fn daemon(env: &Env, args: &[&str]) -> Server {
    let port = free_port();
    let (port_option, base) = (format!("--port={port}"), format!("--base-path={}", env.dir.path().display()));
    let mut all = vec!["daemon", "--listen=127.0.0.1", &port_option, &base];
    all.extend(args);
    let child = env.weir_command(&all).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_port(port);
    Server { child, port }
}

#[test]
fn a_daemon_of_directories_and_archives() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let archive = env.weir_json(&["show", "odd"])["archive"].as_str().unwrap().to_owned();
    std::fs::copy(archive, env.path("packed.tar")).unwrap();
    let server = daemon(&env, &["--export-all"]);
    for name in ["odd.git", "odd", "packed", "packed.tar"] {
        env.assert_same(&server, name, &upstream, name);
    }
    let refused = |server: &Server, path: &str| {
        let output = env.git_command(env.dir.path(), &["ls-remote", &server.url(path)]).output().unwrap();
        assert!(!output.status.success(), "{path}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for path in ["nothing", "../odd.git", "odd.git/../odd.git", "/odd.git", "odd.git/objects"] {
        assert!(refused(&server, path).contains("access denied or repository not exported"), "{path}");
    }
    drop(server);
    let server = daemon(&env, &["--informative-errors"]);
    assert!(refused(&server, "nothing").contains("no such repository"));
    assert!(refused(&server, "odd.git").contains("repository not exported"));
    std::fs::write(upstream.join("git-daemon-export-ok"), "").unwrap();
    env.assert_same(&server, "odd.git", &upstream, "exported");
    let push = env.git_command(&upstream, &["push", &server.url("odd.git"), "main:x"]).output().unwrap();
    assert!(String::from_utf8_lossy(&push.stderr).contains("service not enabled"), "{push:?}");
    drop(server);
    let server = daemon(&env, &["--export-all", env.path("elsewhere").to_str().unwrap()]);
    assert!(refused(&server, "odd.git").contains("access denied"), "not in the list of directories");
}

#[test]
fn upload_pack_in_gits_place() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    let program = env!("CARGO_BIN_EXE_weir");
    for version in ["0", "1", "2"] {
        let (config, target) = (format!("protocol.version={version}"), env.path(&format!("copy{version}")));
        let (url, with) = (format!("file://{}", upstream.display()), format!("--upload-pack={program} upload-pack"));
        env.git(env.dir.path(), &["-c", &config, "clone", "-q", "--mirror", &with, &url, target.to_str().unwrap()]);
        assert_eq!(env.picture(&target), env.picture(&upstream), "v{version}");
    }
    env.weir_fails(&["upload-pack", "nothing"]);
    // Nobody speaks: it does not wait for ever.
    let mut silent = env.weir_command(&["upload-pack", "--timeout=1", upstream.to_str().unwrap()]);
    let mut child = silent.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let input = child.stdin.take();
    assert!(!child.wait().unwrap().success());
    drop(input);
}

#[test]
fn a_directory_shows_what_its_configuration_shows() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    let server = daemon(&env, &["--export-all"]);
    let listed = || env.git(env.dir.path(), &["ls-remote", &server.url("odd.git")]);
    assert!(listed().contains("refs/pull/1/head"));
    env.git(&upstream, &["config", "transfer.hideRefs", "refs/pull"]);
    env.git(&upstream, &["config", "--add", "uploadpack.hideRefs", "refs/heads"]);
    env.git(&upstream, &["config", "--add", "uploadpack.hideRefs", "!refs/heads/main"]);
    let left = listed();
    assert!(left.contains("refs/heads/main") && !left.contains("refs/heads/side") && !left.contains("refs/pull"), "{left}");
    let hidden = env.git(&upstream, &["rev-parse", "orphan"]);
    let fetch = |oid: &str| {
        let client = env.init_bare("client.git");
        let output = env.git_command(&client, &["fetch", "-q", &server.url("odd.git"), oid]).output().unwrap();
        output.status.success()
    };
    assert!(!fetch(&hidden), "hidden, and nothing shown reaches it");
    env.git(&upstream, &["config", "uploadpack.allowTipSHA1InWant", "true"]);
    assert!(fetch(&hidden));
}
