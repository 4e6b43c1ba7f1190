//! `git archive --remote` from every door.

use std::path::Path;
use std::process::Output;

use crate::common::{Env, Http, OPEN_SESAME};

fn archive(env: &Env, remote: &str, args: &[&str]) -> Output {
    let shell = format!("{} --pool {} shell", env!("CARGO_BIN_EXE_weir"), env.pool().display());
    let ssh = env.path("ssh");
    std::fs::write(&ssh, format!("#!/bin/sh\nshift\nSSH_ORIGINAL_COMMAND=\"$*\" exec {shell}\n")).unwrap();
    let mut command = env.git_command(env.dir.path(), &["archive", &format!("--remote={remote}")]);
    let command = command.args(args).env("GIT_SSH_COMMAND", format!("sh {}", ssh.display()));
    command.env("GIT_SSH_VARIANT", "simple").output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a request of upload-archive for the revision `main`.
fn request() -> Vec<u8> {
    b"0012argument main\n0000".to_vec()
}

/// Returns the bytes of band 1 behind the acknowledgement.
fn of_band(mut answer: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    answer = answer.strip_prefix(b"0008ACK\n0000").expect("an acknowledgement");
    loop {
        let len = usize::from_str_radix(std::str::from_utf8(&answer[..4]).unwrap(), 16).unwrap();
        if len == 0 {
            assert_eq!(answer.len(), 4, "nothing follows");
            return content;
        }
        assert_eq!(answer[4], 1, "{}", String::from_utf8_lossy(&answer[5..len]));
        content.extend_from_slice(&answer[5..len]);
        answer = &answer[len..];
    }
}

#[test]
fn archives_from_git_and_ssh_are_those_of_git() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.mirror_new("some/up", &up);
    let server = env.serve();
    let url = server.url("some/up");
    for remote in [url.as_str(), "ssh://host/some/up"] {
        for args in [&["main"][..], &["--format=tar", "--prefix=x/", "v1"], &["main", "*"]] {
            let expected = env.git_command(&up, &["archive"]).args(args).output().unwrap();
            let found = archive(&env, remote, args);
            assert!(
                found.status.success() && expected.status.success(),
                "{remote} {args:?}: {}",
                said(&found)
            );
            assert!(found.stdout == expected.stdout, "{remote} {args:?}: {}", found.stdout.len());
        }
        let listed = archive(&env, remote, &["--list"]);
        assert_eq!(listed.stdout, b"tar\ntgz\ntar.gz\nzip\n");
        let zip = env.path("x.zip");
        let zipped = archive(&env, remote, &["-o", zip.to_str().unwrap(), "main"]);
        assert!(
            zipped.status.success() && std::fs::read(&zip).unwrap().starts_with(b"PK"),
            "{}",
            said(&zipped)
        );
        for (args, words) in [
            (&["nothing"][..], "remote: no such revision: 'nothing'"),
            (&["main", "nothing"], "remote: pathspec 'nothing' did not match any files"),
            (&["--format=rar", "main"], "remote: Unknown archive format 'rar'"),
        ] {
            let failed = archive(&env, remote, args);
            assert!(!failed.status.success() && said(&failed).contains(words), "{remote}: {}", said(&failed));
        }
    }
    let unknown = archive(&env, &server.url("nothing"), &["main"]);
    assert!(!unknown.status.success(), "{}", said(&unknown));
}

#[test]
fn archives_come_over_http() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.configure(
        "access",
        &format!(
            "rules = [{{ repositories = [\"secret\"], tokens = [\"ci\"] }}]\ntokens = \
        [{{ name = \"ci\", sha256 = \"{OPEN_SESAME}\" }}]"
        ),
    );
    env.mirror_new("up", &up);
    env.mirror_new("secret", &up);
    let server = Http::serve(&env, &[]);
    let post = |path: &str, kind: &str, headers: &str, body: &[u8]| {
        let head = format!(
            "POST /{path}/git-upload-archive HTTP/1.0\r\nHost: x\r\nContent-Length: {}\r\nContent-Type: \
            application/x-git-{kind}-request\r\n{headers}\r\n",
            body.len()
        );
        let answer = server.ask_bytes(&[head.as_bytes(), body].concat());
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end..].to_vec())
    };
    let (head, body) = post("up", "upload-archive", "", &request());
    assert!(head.starts_with("HTTP/1.0 200") && head.contains("x-git-upload-archive-result"), "{head}");
    let expected = env.git_command(&up, &["archive", "main"]).output().unwrap().stdout;
    assert!(of_band(&body) == expected, "{} bytes", body.len());
    assert!(post("up", "upload-pack", "", &request()).0.starts_with("HTTP/1.0 415"));
    assert!(post("secret", "upload-archive", "", &request()).0.starts_with("HTTP/1.0 401"));
    let token = "Authorization: Bearer open sesame\r\n";
    assert!(of_band(&post("secret", "upload-archive", token, &request()).1) == expected);
    // Anything but a request is refused, and half a request has no answer.
    let wrong = post("up", "upload-archive", "", b"0009wrong0000").1;
    assert!(String::from_utf8_lossy(&wrong).contains("ERR 'argument' token or flush expected"), "{wrong:?}");
    assert!(post("up", "upload-archive", "", b"0012argument main\n").0.starts_with("HTTP/1.0 400"));
    let many: Vec<u8> = [&b"000fargument x\n".repeat(65)[..], b"0000"].concat();
    assert!(String::from_utf8_lossy(&post("up", "upload-archive", "", &many).1).contains("too many options"));
    let info = server.ask(b"GET /up/info/refs?service=git-upload-archive HTTP/1.0\r\nHost: x\r\n\r\n");
    assert!(info.starts_with("HTTP/1.0 403"), "{info}");
}

#[test]
fn the_daemon_serves_no_archives() {
    let env = Env::new();
    env.odd_repository("up.git");
    let server = env.weir_daemon(&["--export-all"]);
    let refused = archive(&env, &server.url("up.git"), &["main"]);
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{}", said(&refused));
    assert!(Path::new(&env.path("up.git")).exists());
}
