//! How upstreams spell the paths of repositories, and under which names they are then found.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use weir_testing::{free_port, wait_for_port};

use super::web_server::nginx;
use crate::common::{Env, Http};

/// Paths of repositories below a host, as folders on disk.
const PATHS: &[&str] = &[
    "plain/repo",
    "My Project/Repo One",
    "two  blanks/r",
    "~user/r",
    "org/.github",
    "org/.github/nested",
    "c++/libstdc++",
    "p(1)/r",
    "at@home/r",
    "caf\u{e9}/\u{fc}ber",
    "cafe\u{301}/decomposed",
    "\u{4ed3}\u{5e93}/\u{5de5}",
    "\u{1f980}/crab",
    "100%/sure",
    "100%25/twice",
    "a&b/r",
    "a=b,c;d/r!",
    "it's/mine",
    "x[0]/r",
    "x{y}/r$1",
    "Other/Lib",
    "ends.with.dots./r",
    "double.git.git",
    "q/who?",
    "q/c#",
    "a:b/c:d",
    "star*/r",
    "back\\slash/r",
    "quote\"d/r",
    "less<more>/r|p",
    "caret^/r`t",
    "-dash/-r",
    "_/__",
    "a.lock/r",
    "con/aux.txt",
];

/// Escapes the bytes of `path` that `keeps` does not keep, in capitals or not.
fn escaped(path: &str, is_small: bool, keeps: impl Fn(u8) -> bool) -> String {
    let escape = |byte: u8| if is_small { format!("%{byte:02x}") } else { format!("%{byte:02X}") };
    path.bytes().map(|b| if b == b'/' || keeps(b) { (b as char).to_string() } else { escape(b) }).collect()
}

/// Escapes what a path of a URL may not hold as it is (RFC 3986, section 3.3).
fn needed(path: &str, is_small: bool) -> String {
    escaped(path, is_small, |b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&b))
}

/// A way to spell the URL of a path.
struct Manner {
    name: &'static str,
    /// The host's part of the URL, with which paths begin.
    host: String,
    /// What the name of each repository of the host begins with.
    prefix: &'static str,
    spell: fn(&str) -> String,
    /// Bytes that this manner cannot spell: they mean something else there.
    cannot: &'static str,
}

fn manners(http: u16, git: u16) -> Vec<Manner> {
    let web = |n: u8| format!("http://127.0.0.1:{http}/git/u{n}/");
    let manner = |name, host, prefix, spell, cannot| Manner { name, host, prefix, spell, cannot };
    vec![
        manner("escaped", web(0), "127.0.0.1/git/u0/", |path| needed(path, false), ""),
        manner("small", web(1), "127.0.0.1/git/u1/", |path| needed(path, true) + "/", ""),
        manner(
            "all",
            web(2),
            "127.0.0.1/git/u2/",
            |path| escaped(path, false, |b| b.is_ascii_lowercase()),
            "",
        ),
        // curl sends what no path may hold; weir refuses `<`, `>`, `|`, `^` and '`' in a request line.
        manner("as it is", web(3), "127.0.0.1/git/u3/", str::to_owned, "%?# <>|^`"),
        manner("git", format!("git://127.0.0.1:{git}/u4/"), "127.0.0.1/u4/", str::to_owned, "%"),
        manner("ssh", "ssh://git@there/u5/".to_owned(), "there/u5/", str::to_owned, "%"),
        manner("scp", "git@there:u6/".to_owned(), "there/u6/", str::to_owned, "%"),
    ]
}

/// Writes a program of the shell; returns its path.
fn script(env: &Env, name: &str, text: &str) -> PathBuf {
    let path = env.path(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Checks that a repository is found at every door under the path that its upstream has, or that weir said
/// why it does not take it when it was added.
#[test]
fn what_is_added_is_found_under_its_path_at_every_door() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    for path in PATHS {
        let place = env.path("up").join(path);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-r").arg(&upstream).arg(&place).status().unwrap();
        assert!(copied.success());
    }
    for n in 0..7 {
        std::os::unix::fs::symlink("up", env.path(&format!("u{n}"))).unwrap();
    }
    let wanted = env.git(env.dir.path(), &["ls-remote", upstream.to_str().unwrap()]);
    let daemon = env.git_daemon(&[]);
    let http = free_port();
    let Some(_nginx) = nginx(&env, http) else { return };
    wait_for_port(http);
    // Where the upstream's ssh leads to, paths are below the environment's folder.
    let root = env.dir.path().display();
    let line = format!("cd '{root}'; for last; do :; done\neval \"$(echo \"$last\" | sed \"s:'/:':\")\"");
    let far = script(&env, "far", &line);
    let (pool, weir) = (env.pool(), env!("CARGO_BIN_EXE_weir"));
    let line = format!("shift\nSSH_ORIGINAL_COMMAND=\"$*\" exec {weir} --pool '{}' shell", pool.display());
    let near = script(&env, "near", &line);
    let (mut added, mut wrong, mut refused) = (Vec::new(), Vec::new(), 0);
    let manners = manners(http, daemon.port);
    for manner in &manners {
        for path in PATHS.iter().filter(|path| !path.contains(|c| manner.cannot.contains(c))) {
            let url = format!("{}{}", manner.host, (manner.spell)(path));
            let output = env.weir_command(&["add", &url]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let name = format!("'{}{path}' is not a valid name: ", manner.prefix);
            if output.status.success() {
                added.push((manner, path, url));
            } else if said.contains(&name) && said.contains("choose a name with --name") {
                assert!(path.contains(['@', ':', '*', '?', '\\']), "{said}");
                refused += 1;
            } else {
                wrong.push(format!("{url}: {said}"));
            }
        }
    }
    assert!(added.len() + refused >= 200, "{} spellings", added.len() + refused);
    let output = env.weir_command(&["mirror", "--quiet"]).env("GIT_SSH", &far).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let served = Http::serve(&env, &["--quiet"]);
    for (manner, path, url) in &added {
        let is_web = manner.host.starts_with("http:");
        for door in [served.url(""), served.git_url(""), "ssh://near/".to_owned()] {
            // What is a path for git:// or ssh, and no URL, cannot be put into a URL of HTTP.
            if !is_web && door.starts_with("http:") && needed(path, false) != **path {
                continue;
            }
            let rule = format!("url.{door}{}.insteadOf={}", manner.prefix, manner.host);
            let output = env
                .git_command(env.dir.path(), &["-c", &rule, "ls-remote", url])
                .env("GIT_SSH", &near)
                .env("GIT_SSH_VARIANT", "simple")
                .output()
                .unwrap();
            if String::from_utf8_lossy(&output.stdout).trim() != wanted.trim() {
                let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
                wrong.push(format!("{}: {url} at {door}: {said}", manner.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), added.len(), wrong.join("\n"));
}
