//! A repository is served while its first copy arrives.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use weir_testing::wait_until;

use super::on_demand::{rule, script, ssh_that};
use crate::common::{Env, Http, OPEN_SESAME, Rng};

/// Bytes of a pack that an upstream sends before it waits, or breaks off.
const FIRST_BYTES: u64 = 3_000_000;

/// The head of a request of protocol version 2, behind its path.
const HEAD: &str = "HTTP/1.1\r\nHost: x\r\nGit-Protocol: version=2\r\nConnection: close\r\n";

/// A command of that protocol, over HTTP.
fn posted(name: &str, command: &str) -> Vec<u8> {
    let types = "Content-Type: application/x-git-upload-pack-request";
    let len = command.len();
    format!("POST /{name}/git-upload-pack {HEAD}{types}\r\nContent-Length: {len}\r\n\r\n{command}")
        .into_bytes()
}

/// An upstream with more than that.
fn large_repository(env: &Env) -> PathBuf {
    let up = env.init_bare("up.git");
    let mut rng = Rng(5);
    for n in 0..5 {
        env.commit_file(&up, "refs/heads/main", &format!("f{n}"), &rng.bytes(1 << 20));
    }
    env.git(&up, &["tag", "-a", "-m", "one", "one", "main~1"]);
    up
}

/// Has the upstreams of `here/...` do `then` when they have sent the first bytes of a pack.
fn upstreams_that(env: &Env, then: &str, more: &str) {
    let hook = script(env, "hook", &format!("\"$@\" | {{ head -c {FIRST_BYTES}; {then}; }}"));
    let set = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=uploadpack.packObjectsHook GIT_CONFIG_VALUE_0=";
    ssh_that(env, &format!("{set}{}", hook.display()));
    rule(env, &format!("ssh://host{}/{{path}}.git", env.dir.path().display()), more);
}

/// Has them wait until the file that is returned has gone.
fn upstreams_that_wait(env: &Env, more: &str) -> PathBuf {
    let held = env.path("held");
    std::fs::write(&held, "").unwrap();
    upstreams_that(env, &format!("while [ -e {} ]; do sleep 0.1; done; cat", held.display()), more);
    held
}

fn clone(env: &Env, arguments: &[&str], url: &str, to: &Path) -> Child {
    let all = [&["clone"], arguments, &[url, to.to_str().unwrap()]].concat();
    env.git_command(env.dir.path(), &all).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for a clone, and returns what it said.
fn succeeds(clone: Child) -> String {
    let output = clone.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// Returns the bytes of packs that a clone has received.
fn received(clone: &Path) -> u64 {
    let Ok(entries) = clone.join("objects/pack").read_dir() else { return 0 };
    entries.map(|entry| entry.unwrap().metadata().map_or(0, |file| file.len())).sum()
}

#[test]
fn an_arriving_pack_is_sent_on() {
    let env = Env::new();
    let up = large_repository(&env);
    let held = upstreams_that_wait(&env, "");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    let clones: Vec<(PathBuf, Child)> = [server.url("here/up"), server.git_url("here/up.git")]
        .iter()
        .enumerate()
        .map(|(n, url)| {
            let to = env.path(&format!("clone{n}.git"));
            let child = clone(&env, &["--bare", "--progress", "-c", "protocol.version=2"], url, &to);
            (to, child)
        })
        .collect();
    for (to, _) in &clones {
        let told = || format!("{} bytes of {}", received(to), to.display());
        wait_until(told, || received(to) > FIRST_BYTES / 2);
    }
    std::fs::remove_file(held).unwrap();
    for (to, child) in clones {
        let said = succeeds(child);
        assert!(said.contains("remote: weir: this comes from the upstream, while it is mirrored"), "{said}");
        assert_eq!(env.picture(&to), env.picture(&up));
        env.git(&to, &["fsck", "--strict"]);
    }
    let visits = || env.weir_json(&["visits", "--json", "here/up"]);
    wait_until(|| visits().to_string(), || visits() != serde_json::json!([]));
    assert_eq!(visits().as_array().unwrap().len(), 1, "{}", visits());
    env.weir(&["fsck", "here/up"]);
}

#[test]
fn an_arriving_repository_answers_other_requests_when_it_is_here() {
    let env = Env::new();
    let up = large_repository(&env);
    env.commit_file(&up, "refs/changes/1", "a", b"change");
    let held = upstreams_that_wait(&env, "");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    let (http, git) = (server.url("here/up"), server.git_url("here/up"));
    let all = [
        (&http, vec!["--mirror"]),
        (&git, vec!["--mirror"]),
        (&http, vec!["--bare", "--depth=2", "--no-single-branch"]),
        (&git, vec!["--bare", "--single-branch", "--no-tags"]),
        (&http, vec!["--bare", "--filter=blob:none"]),
        (&http, vec!["--bare", "-c", "protocol.version=0"]),
        (&git, vec!["--bare", "-c", "protocol.version=0"]),
    ];
    let clones: Vec<(PathBuf, Child)> = all
        .iter()
        .enumerate()
        .map(|(n, (url, arguments))| {
            let to = env.path(&format!("clone{n}.git"));
            let child = clone(&env, arguments, url, &to);
            (to, child)
        })
        .collect();
    let (batch, listed) = std::thread::scope(|scope| {
        let list = scope.spawn(|| {
            let archive = env.git_command(env.dir.path(), &["archive", "--remote", &git, "main"]);
            let mut archive = { archive }.stdout(Stdio::piped()).spawn().unwrap();
            let listing = Command::new("tar").arg("-t").stdin(archive.stdout.take().unwrap()).output();
            archive.wait().unwrap();
            String::from_utf8(listing.unwrap().stdout).unwrap()
        });
        let ask = scope.spawn(|| {
            server.ask(
                b"POST /here/up/info/lfs/objects/batch HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                Content-Type: application/vnd.git-lfs+json\r\nContent-Length: 37\r\n\r\n\
                {\"operation\":\"download\",\"objects\":[]}",
            )
        });
        std::thread::sleep(std::time::Duration::from_secs(1));
        std::fs::remove_file(held).unwrap();
        (ask.join().unwrap(), list.join().unwrap())
    });
    assert_eq!(listed, "f4\n");
    assert!(batch.starts_with("HTTP/1.1 200"), "{batch}");
    let clones: Vec<PathBuf> = clones
        .into_iter()
        .map(|(to, child)| {
            succeeds(child);
            to
        })
        .collect();
    for mirror in &clones[..2] {
        assert_eq!(env.picture(mirror), env.picture(&up));
    }
    // The tag, at the commit before, is a tip, too.
    assert_eq!(env.git(&clones[2], &["rev-list", "--count", "main"]).trim(), "3");
    let refs = |clone: &Path| env.git(clone, &["for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs(&clones[3]).trim(), "refs/heads/main");
    for whole in &clones[4..] {
        assert_eq!(refs(whole).trim(), "refs/heads/main\nrefs/tags/one");
    }
    let visits = env.weir_json(&["visits", "--json", "here/up"]);
    assert_eq!(visits.as_array().unwrap().len(), 1, "{visits}");
}

#[test]
fn an_arriving_pack_that_breaks_off_fails_its_clones() {
    let env = Env::new();
    let up = large_repository(&env);
    for name in ["up2.git", "up3.git"] {
        let to = env.path(name);
        env.git(env.dir.path(), &["clone", "-q", "--mirror", up.to_str().unwrap(), to.to_str().unwrap()]);
    }
    upstreams_that(&env, "exit 1", "");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    for (url, arguments, why) in [
        (server.url("here/up"), vec!["--bare"], "the upstream's answer broke off"),
        (server.git_url("here/up2"), vec!["--bare"], "the upstream's answer broke off"),
        (
            server.git_url("here/up3"),
            vec!["--bare", "--depth=1"],
            "it cannot be fetched from its upstream now",
        ),
    ] {
        let arguments = [&["-c", "protocol.version=2"], &*arguments].concat();
        let output = clone(&env, &arguments, &url, &env.path("clone.git")).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
    let listed = || env.weir_json(&["ls", "--json"]);
    wait_until(|| format!("it is gone: {}", listed()), || listed() == serde_json::json!([]));
    // Whoever had begun to read is told so, too.
    let request = "0014command=ls-refs\n00010000";
    let refused = server.ask(&posted("here/up", request));
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
}

#[test]
fn an_arriving_archive_is_deleted_when_it_is_here() {
    let env = Env::new();
    large_repository(&env);
    let held = upstreams_that_wait(&env, "");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    let to = env.path("clone.git");
    let child = clone(&env, &["--bare"], &server.url("here/up"), &to);
    wait_until(|| format!("{} bytes", received(&to)), || received(&to) > FIRST_BYTES / 2);
    let refused = env.weir_fails(&["rm", "--delete", "here/up"]);
    assert!(refused.contains("'here/up' is being mirrored for the first time"), "{refused}");
    std::fs::remove_file(held).unwrap();
    succeeds(child);
    let visits = || env.weir_json(&["visits", "--json", "here/up"]);
    wait_until(|| visits().to_string(), || visits() != serde_json::json!([]));
    env.weir(&["rm", "--delete", "here/up"]);
    assert!(!env.pool().join("store/here/up.tar").exists());
}

#[test]
fn an_arriving_repository_is_shown_to_those_who_may_read_it() {
    let env = Env::new();
    let up = large_repository(&env);
    env.configure(
        "access",
        &format!(
            "tokens = [{{ name = 'ci', sha256 = '{OPEN_SESAME}' }}]\n\
            rules = [{{ repositories = ['here/*'], tokens = ['ci'] }}]"
        ),
    );
    let held = upstreams_that_wait(&env, "tokens = ['ci']");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    let to = env.path("clone.git");
    let with_token = server.url("here/up").replace("http://", "http://x:open%20sesame@");
    let child = clone(&env, &["--bare"], &with_token, &to);
    wait_until(|| format!("{} bytes", received(&to)), || received(&to) > FIRST_BYTES / 2);
    let begin = format!("GET /here/up/info/refs?service=git-upload-pack {HEAD}\r\n");
    let refused = server.ask(begin.as_bytes());
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let request = "0014command=ls-refs\n00010000";
    let refused = server.ask(&posted("here/up", request));
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    std::fs::remove_file(held).unwrap();
    succeeds(child);
    assert_eq!(env.picture(&to), env.picture(&up));
}

#[test]
fn an_arriving_shallow_history_is_waited_for() {
    let env = Env::new();
    let up = large_repository(&env);
    let url = format!("file://{}", up.display());
    env.git(env.dir.path(), &["clone", "-q", "--bare", "--depth=2", &url, "shallow.git"]);
    let held = upstreams_that_wait(&env, "");
    std::fs::remove_file(held).unwrap();
    let server = Http::serve_mirroring(&env, &env.path("log"));
    let to = env.path("clone.git");
    succeeds(clone(&env, &["--bare"], &server.url("here/shallow"), &to));
    assert_eq!(env.picture(&to), env.picture(&env.path("shallow.git")));
}
