//! Settings of single repositories, the order of visits, and the record of what visits have found.

use std::path::Path;
use std::process::Stdio;

use crate::common::{Env, Server};
use weir_testing::wait_until;

/// Refs to an object of each kind, whose snapshots Software Heritage's own program (`swh identify --type
/// snapshot`) has named.
fn known_snapshot(env: &Env) -> std::path::PathBuf {
    let repo = env.init_bare("known.git");
    let object = |kind: &str, text: &str| {
        env.git_with(&repo, &["hash-object", "-w", "-t", kind, "--stdin"], text.as_bytes())
    };
    let who = "A <a@b> 1700000000 +0000";
    let blob = object("blob", "hello\n");
    let tree = env.git_with(&repo, &["mktree"], format!("100644 blob {blob}\tf\n").as_bytes());
    let commit = object("commit", &format!("tree {tree}\nauthor {who}\ncommitter {who}\n\nm\n"));
    let tag = object("tag", &format!("object {commit}\ntype commit\ntag v1\ntagger {who}\n\nr\n"));
    for (name, oid) in [
        ("heads/main", &commit),
        ("pull/1/head", &commit),
        ("tags/blob", &blob),
        ("tags/tree", &tree),
        ("tags/v1", &tag),
    ] {
        env.git(&repo, &["update-ref", &format!("refs/{name}"), oid]);
    }
    env.git(&repo, &["symbolic-ref", "HEAD", "refs/heads/main"]);
    repo
}

fn visits(env: &Env, name: &str) -> Vec<(String, Option<String>)> {
    let list = env.weir_json(&["visits", name]);
    let text = |v: &serde_json::Value| v.as_str().map(str::to_owned);
    let one = |v: &serde_json::Value| {
        (text(&v["result"]).unwrap(), text(&v["snapshot"]).or(text(&v["error_class"])))
    };
    list.as_array().unwrap().iter().rev().map(one).collect()
}

#[test]
fn visits_that_found_something_are_kept_with_the_snapshot() {
    let env = Env::new();
    let upstream = known_snapshot(&env);
    env.weir(&["add", "--name", "known", upstream.to_str().unwrap()]);
    env.weir(&["mirror", "known"]);
    let first = ("changed".to_owned(), Some("swh:1:snp:da4316dbf6515de53d9cb13987a68253f716c961".to_owned()));
    assert_eq!(visits(&env, "known"), std::slice::from_ref(&first));
    // A visit that finds nothing new is not recorded, and neither is a second failure.
    let away = env.path("away.git");
    // Visits that end within one second count as one.
    let tick = || env.let_pass(2);
    for _ in 0..2 {
        tick();
        env.weir(&["mirror", "known"]);
    }
    std::fs::rename(&upstream, &away).unwrap();
    for _ in 0..2 {
        tick();
        env.weir_fails(&["mirror", "known"]);
    }
    std::fs::rename(&away, &upstream).unwrap();
    tick();
    env.weir(&["mirror", "known"]);
    tick();
    env.git(&upstream, &["update-ref", "--no-deref", "HEAD", "refs/heads/main"]);
    env.weir(&["mirror", "known"]);
    let detached = "swh:1:snp:0110dc81e2172f3a9133351021cbdabe5a793d95".to_owned();
    let all = [
        first,
        ("failed".to_owned(), Some("gone".to_owned())),
        ("well again".to_owned(), None),
        ("changed".to_owned(), Some(detached)),
    ];
    assert_eq!(visits(&env, "known"), all);
    assert_eq!(visits(&env, "known.git"), all, "as everywhere, .git may follow");
    let latest = env.weir(&["visits", "-n", "1", "known"]);
    assert!(
        latest.contains("  changed ")
            && latest.trim_end().ends_with(all[3].1.as_ref().unwrap())
            && latest.lines().count() == 1,
        "{latest}"
    );
    env.weir(&["rm", "known"]);
    env.weir(&["add", "--name", "known", upstream.to_str().unwrap()]);
    assert_eq!(visits(&env, "known"), [], "another one of that name");
}

fn refs(env: &Env, name: &str) -> String {
    let server = env.serve();
    env.git(&env.path(""), &["ls-remote", &server.url(name)])
}

#[test]
fn one_repository_has_settings_of_its_own() {
    let env = Env::new();
    let upstream = known_snapshot(&env);
    let url = upstream.to_str().unwrap();
    for name in ["a", "b"] {
        env.weir(&["add", "--name", name, url]);
    }
    assert!(env.weir_fails(&["set", "--priority", "1"]).contains("no repositories given"));
    assert!(env.weir_fails(&["set", "--priority", "4", "a"]).contains("from 0 to 3, or default"));
    assert!(
        env.weir_fails(&["set", "--refs", "some", "a"])
            .contains("is not a ref pattern: use all, heads-and-tags, refs")
    );
    assert!(env.weir_fails(&["set", "--priority", "1", "no-such"]).contains("no-such"));
    env.weir(&["set", "--refs", "heads-and-tags", "--interval", "7d", "--priority", "2", "a"]);
    env.weir(&["mirror", "--all"]);
    assert!(!refs(&env, "a").contains("refs/pull/1/head") && refs(&env, "b").contains("refs/pull/1/head"));
    let show = |name: &str| env.weir_json(&["show", name]);
    let wait =
        |name: &str| show(name)["next_due"].as_i64().unwrap() - show(name)["last_success"].as_i64().unwrap();
    // Up to a tenth is added, so that what was added together is not due together.
    assert!(
        (7 * 86_400..8 * 86_400).contains(&wait("a")) && wait("b") < 86_400 * 2,
        "{} {}",
        wait("a"),
        wait("b")
    );
    assert_eq!(
        show("a")["settings"],
        serde_json::json!({ "interval_s": 7 * 86_400, "refs": ["heads-and-tags"], "lfs": null,
            "metadata": null })
    );
    let listed = env.weir(&["set"]);
    assert!(
        listed.contains("7 d 0 h") && listed.contains("heads-and-tags") && !listed.contains("  b"),
        "{listed}"
    );
    // A setting that is taken back follows the default again, and the repository is visited at once.
    env.weir(&["set", "--refs", "default", "--interval", "default", "--priority", "0", "a"]);
    env.weir(&["mirror"]);
    assert!(refs(&env, "a").contains("refs/pull/1/head"));
    assert!(wait("a") < 86_400 * 2);
    assert_eq!(env.weir_json(&["set"]), serde_json::json!([]));
}

#[test]
fn one_goes_by_its_changes_where_others_have_an_interval() {
    let env = Env::new();
    env.configure("mirror", "interval = '5m'\nrules = [{ repositories = ['r*'], interval = 'auto' }]");
    let upstream = known_snapshot(&env);
    for name in ["a", "b", "r"] {
        env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
    }
    env.weir(&["set", "--interval", "auto", "a"]);
    assert_eq!(env.weir_json(&["show", "a"])["settings"]["interval_s"], "auto");
    assert!(env.weir(&["set"]).contains("auto"));
    env.weir(&["mirror"]);
    let wait = |name: &str| {
        let shown = env.weir_json(&["show", name]);
        shown["next_due"].as_i64().unwrap() - shown["last_success"].as_i64().unwrap()
    };
    assert!(
        wait("a") > 400 && wait("r") > 400 && (300..400).contains(&wait("b")),
        "{} {} {}",
        wait("a"),
        wait("r"),
        wait("b")
    );
    for (interval, said) in
        [("0s", "between a second"), ("4000d", "and ten years"), ("often", "either auto, default, or a time")]
    {
        assert!(env.weir_fails(&["set", "--interval", interval, "a"]).contains(said), "{interval}");
    }
}

#[test]
fn what_is_hinted_at_is_visited_by_whoever_mirrors() {
    let env = Env::new();
    let upstreams = [env.init_bare("a.git"), env.init_bare("b.git")];
    let commit = |at: &Path, text: &str| {
        let tree = env.git_with(at, &["mktree"], b"");
        let commit = env.git(at, &["commit-tree", "-m", text, &tree]);
        env.git(at, &["update-ref", "refs/heads/main", &commit]);
        commit
    };
    let daemon = env.git_daemon(&[]);
    for (name, upstream) in ["a", "b"].iter().zip(&upstreams) {
        commit(upstream, "first");
        env.weir(&["add", &daemon.url(&format!("{name}.git"))]);
    }
    let name = |which: &str| format!("127.0.0.1/{which}");
    env.weir(&["mirror"]);
    let watch = Server {
        child: env.weir_command(&["-q", "mirror", "--watch"]).stdout(Stdio::null()).spawn().unwrap(),
        port: 0,
    };
    let tips: Vec<String> = upstreams.iter().map(|at| commit(at, "second")).collect();
    let hints = env.path("hints");
    std::fs::write(&hints, format!("# what a feed tells\n{}\n", daemon.url("b.git"))).unwrap();
    let told = env.weir_json(&[
        "hint",
        &name("a"),
        "https://example.org/other.git",
        "--from",
        hints.to_str().unwrap(),
    ]);
    assert_eq!(told, serde_json::json!({ "hinted": 2, "unknown": ["https://example.org/other.git"] }));
    let server = env.serve();
    for (which, tip) in ["a", "b"].iter().zip(&tips) {
        let listed = || env.git(&env.path(""), &["ls-remote", &server.url(&name(which))]);
        wait_until(|| format!("{which} was not visited"), || listed().contains(tip.as_str()));
    }
    drop(watch);
    env.weir(&["pause", &name("a")]);
    assert_eq!(env.weir_json(&["hint", &name("a")])["hinted"], 0, "what is paused is left alone");
}

#[test]
fn a_hint_finds_what_is_mirrored_from_a_url_under_any_name() {
    let env = Env::new();
    known_snapshot(&env);
    let daemon = env.git_daemon(&[]);
    for name in ["x", "y/z"] {
        env.weir(&["add", "--name", name, &daemon.url("known.git")]);
    }
    env.weir(&["mirror"]);
    // A webhook may name another URL than the one that is mirrored.
    let told =
        env.weir_json(&["hint", "https://user@127.0.0.1/known", "ssh://git@127.0.0.1/other.git", "no-such"]);
    assert_eq!(
        told,
        serde_json::json!({ "hinted": 2, "unknown": ["ssh://git@127.0.0.1/other.git", "no-such"] })
    );
    assert!(env.weir(&["mirror"]).contains("2 unchanged"));
    // `weir hint` also finds a local upstream by its path.
    let path = env.path("known.git").display().to_string();
    env.weir(&["add", "--name", "local", &path]);
    for url in [&path, &format!("{path}/"), &format!("file://{path}")] {
        assert_eq!(env.weir_json(&["hint", url])["hinted"], 1, "{url}");
    }
}

#[test]
fn hints_go_before_what_waits_already() {
    let env = Env::new();
    // Each visit takes a while, one at a time.
    let script = env.path("ssh");
    std::fs::write(&script, "#!/bin/sh\nfor last; do :; done\nsleep 0.7\neval \"$last\"\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    env.configure("transport", &format!("ssh_command = '{}'", script.display()));
    let upstream = env.odd_repository("up.git");
    for n in 0..20 {
        env.weir(&["add", "--name", &format!("r{n:02}"), &format!("ssh://host{}", upstream.display())]);
    }
    let mut child = env
        .weir_command(&["--json", "mirror", "--watch", "--jobs", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut names = lines.map(|line| {
        serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap()["name"].as_str().map(str::to_owned)
    });
    let mut next = || names.next().unwrap().unwrap();
    next();
    env.weir(&["hint", "r17"]);
    env.weir(&["set", "--priority", "2", "r18"]);
    // And a repository that no process has leased yet.
    env.weir(&["add", "--name", "new", &format!("ssh://host{}", upstream.display())]);
    env.weir(&["hint", "new"]);
    let seen: Vec<String> = (0..9).map(|_| next()).collect();
    let place = |name: &str| seen.iter().position(|seen| seen == name);
    assert!(place("r18").is_some() && place("r17").is_some() && place("new").is_some(), "{seen:?}");
    assert!(place("r18") < place("new"), "{seen:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}
