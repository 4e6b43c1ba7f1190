//! Smart HTTP: what git gets over it, and the answers to other requests.

use crate::common::{Env, Http};
use std::io::Write;
use std::process::Stdio;

fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

const TYPE: &str = "Content-Type: application/x-git-upload-pack-request\r\n";

#[test]
fn git_over_http() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    // Enough wants that git packs its request.
    for n in 0..60 {
        let commit = env.git(&upstream, &["commit-tree", "-m", &format!("{n}"), "-p", "main", "main^{tree}"]);
        env.git(&upstream, &["update-ref", &format!("refs/heads/many/{n}"), &commit]);
    }
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    for version in ["0", "1", "2"] {
        let config = format!("protocol.version={version}");
        let target = env.path(&format!("mirror{version}"));
        env.git(
            env.dir.path(),
            &["-c", &config, "clone", "-q", "--mirror", &server.url("odd.git"), target.to_str().unwrap()],
        );
        env.git(&target, &["fsck", "--full", "--strict", "--no-dangling"]);
        assert_eq!(env.picture(&target), env.picture(&upstream), "v{version}");
        // One branch, computed; then deeper, then all, with haves over several requests.
        let target = env.path(&format!("grown{version}"));
        let clone = [
            "-c",
            &config,
            "clone",
            "-q",
            "--bare",
            "--depth=2",
            "--single-branch",
            &server.url("odd"),
            target.to_str().unwrap(),
        ];
        env.git(env.dir.path(), &clone);
        env.git(&target, &["-c", &config, "fetch", "-q", "--deepen=3", "origin"]);
        env.git(&target, &["-c", &config, "fetch", "-q", "--unshallow", "origin", "+refs/*:refs/*"]);
        env.git(&target, &["fsck", "--full", "--strict", "--no-dangling"]);
        assert_eq!(env.picture(&target), env.picture(&upstream), "v{version}");
    }
    let lazy = env.path("lazy");
    env.git(
        env.dir.path(),
        &["clone", "-q", "--filter=blob:none", &server.url("odd"), lazy.to_str().unwrap()],
    );
    assert_eq!(env.git(&lazy, &["log", "-p", "-m"]), env.git(&upstream, &["log", "-p", "-m", "main"]));
    // weir itself is the client.
    env.weir(&["add", "--name", "again", &server.url("odd")]);
    env.weir(&["mirror", "again"]);
    env.assert_same(&env.serve(), "again", &upstream, "mirrored over HTTP");
    let refused = env.git_command(&upstream, &["push", "-q", &server.url("odd"), "main:x"]).output().unwrap();
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("403"),
        "{refused:?}"
    );
}

#[test]
fn statuses() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "a/odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    let get = |method: &str, path: &str| {
        server.ask(format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
    };
    for (method, path, status) in [
        ("GET", "/a/odd/info/refs?service=git-upload-pack", "200"),
        ("GET", "/a%2Fodd.git/info/refs?x=y&service=git-upload-pack", "200"),
        ("HEAD", "/a/odd/info/refs?service=git-upload-pack", "200"),
        ("POST", "/a/odd/info/refs?service=git-upload-pack", "405"),
        ("GET", "/a/odd/info/refs?service=git-receive-pack", "403"),
        ("GET", "/a/odd/info/refs?service=git-nothing", "403"),
        ("GET", "/a/odd/info/refs", "403"),
        ("GET", "/a/nothing/info/refs?service=git-upload-pack", "404"),
        ("GET", "/a/../a/odd/info/refs?service=git-upload-pack", "404"),
        ("GET", "/", "404"),
        ("GET", "/%zz", "400"),
        ("GET", "/a/odd/git-upload-pack", "405"),
        ("NONSENSE", "/a/odd/info/refs?service=git-upload-pack", "405"),
    ] {
        let answer = get(method, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {answer}");
        assert!(answer.contains("cache-control: no-cache, max-age=0, must-revalidate"), "{answer}");
    }
    let v0 = get("GET", "/a/odd/info/refs?service=git-upload-pack");
    assert!(
        v0.contains("content-type: application/x-git-upload-pack-advertisement")
            && v0.contains("\r\n\r\n001e# service=git-upload-pack\n0000"),
        "{v0}"
    );
    let path = "/a/odd/git-upload-pack";
    for (headers, body, status) in [
        ("Content-Type: text/plain\r\n".to_owned(), &b"0000"[..], "415"),
        (format!("{TYPE}Content-Encoding: br\r\n"), b"0000", "415"),
        (format!("{TYPE}Content-Encoding: gzip\r\n"), b"not gzip", "400"),
        (TYPE.to_owned(), b"0000", "200"),
        (format!("{TYPE}Git-Protocol: version=2\r\n"), b"0011command=ls-x\n0000", "200"),
    ] {
        let answer = server.ask(&post(path, &headers, body));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers} {body:?}: {answer}");
    }
    let answer =
        server.ask(&post(path, &format!("{TYPE}Git-Protocol: version=2\r\n"), b"0014command=ls-refs\n0000"));
    assert!(answer.contains("refs/heads/main"), "{answer}");
    let answer = server.ask(&post(
        "/a/odd/git-receive-pack",
        "Content-Type: application/x-git-receive-pack-request\r\n",
        b"0000",
    ));
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

#[test]
fn hostile_requests() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    // A bomb: 256 MiB of zeroes in a quarter of a megabyte.
    let mut gzip =
        weir_testing::command("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = gzip.stdin.take().unwrap();
    let writing = std::thread::spawn(move || (0..256).for_each(|_| input.write_all(&[0; 1 << 20]).unwrap()));
    let bomb = gzip.wait_with_output().unwrap().stdout;
    writing.join().unwrap();
    let answer =
        server.ask(&post("/odd/git-upload-pack", &format!("{TYPE}Content-Encoding: gzip\r\n"), &bomb));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // A body that is larger than a request may be.
    let answer = server.ask(&post("/odd/git-upload-pack", TYPE, &vec![b'0'; 40 << 20]));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413 "), "{answer}");
    for nonsense in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxxxxxxxxxxxx",
    ] {
        server.ask(nonsense);
    }
    let flood = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(100_000));
    server.ask(flood.as_bytes());
    // The server still runs, and serves.
    env.git(env.dir.path(), &["ls-remote", &server.url("odd")]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.0.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .unwrap();
    assert!(peak < 300 << 10, "the bomb took {peak} KiB");
}
