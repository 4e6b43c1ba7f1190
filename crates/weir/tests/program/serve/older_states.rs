//! `REPO@STATE` is served as a repository of its own, before and after a compaction.

use std::path::{Path, PathBuf};

use crate::common::{Env, Http, OPEN_SESAME};

/// Asserts that a mirror clone of `name`, over each door, has exactly the refs and the objects of `expected`.
fn assert_served(env: &Env, server: &Http, name: &str, expected: &Path) {
    let picture = env.picture(expected);
    for url in [server.git_url(name), server.url(name)] {
        let copy = tempfile::tempdir_in(env.dir.path()).unwrap();
        let target = copy.path().join("copy.git");
        env.git(env.dir.path(), &["clone", "-q", "--mirror", &url, target.to_str().unwrap()]);
        env.git(&target, &["fsck", "--full", "--strict", "--no-dangling"]);
        assert_eq!(env.picture(&target), picture, "{url}");
        let here = env.git(&target, &["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
        assert_eq!(here.lines().count(), picture.1.len(), "{url}: objects of another state");
        let head = ["symbolic-ref", "HEAD"];
        assert_eq!(env.git(&target, &head), env.git(expected, &head), "{url}");
    }
}

/// Changes the upstream in six ways and mirrors each; returns a copy of the upstream for each state, by
/// number.
fn states(env: &Env, up: &Path, name: &str) -> Vec<(u64, PathBuf)> {
    let set = |name: &str, to: &str| env.git(up, &["update-ref", name, to]);
    let mut states = Vec::new();
    for n in 0..7_u64 {
        match n {
            0 => drop(env.commit_file(up, "refs/heads/main", "a", b"first")),
            1 => {
                env.commit_file(up, "refs/heads/main", "b", &[7; 5000]);
                set("refs/heads/side", "refs/heads/main~1");
                env.git(up, &["tag", "-a", "-m", "one", "v1", "main"]);
            }
            2 => drop(env.commit_file(up, "refs/heads/side", "c", b"on the side")),
            // An overwritten branch, and a tag that is deleted.
            3 => {
                set("refs/heads/main", "refs/heads/side");
                env.git(up, &["update-ref", "-d", "refs/tags/v1"]);
            }
            4 => {
                env.git(up, &["update-ref", "-d", "refs/heads/side"]);
                env.commit_file(up, "refs/pull/1/head", "d", b"wanted");
            }
            5 => drop(env.git(up, &["symbolic-ref", "HEAD", "refs/heads/next"])),
            _ => drop(env.commit_file(up, "refs/heads/next", "e", b"elsewhere")),
        }
        match n {
            0 => env.mirror_new(name, up),
            _ => drop(env.weir(&["mirror", "--all"])),
        }
        let copy = env.path(&format!("{name}-{n}.git"));
        env.git(env.dir.path(), &["clone", "-q", "--mirror", up.to_str().unwrap(), copy.to_str().unwrap()]);
        env.git(&copy, &["symbolic-ref", "HEAD", env.git(up, &["symbolic-ref", "HEAD"]).trim()]);
        let newest = env.weir_json(&["log", "--json", "-n1", name]);
        states.push((newest[0]["seq"].as_u64().unwrap(), copy));
    }
    states
}

#[test]
fn every_state_is_cloned_and_fetched_as_it_was() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let states = states(&env, &up, "some/r");
    env.configure("serve", "older_states = true");
    let mut server = Http::serve(&env, &[]);
    for compact in [false, true] {
        if compact {
            env.weir(&["compact", "some/r"]);
            server = server.again(&env);
        }
        for (seq, copy) in &states {
            assert_served(&env, &server, &format!("some/r@{seq}"), copy);
        }
        let (first, last) = (states[0].0, states.last().unwrap());
        assert_served(&env, &server, &format!("some/r.git@{first}"), &states[0].1);
        assert_served(&env, &server, &format!("some/r@{first}.git"), &states[0].1);
        assert_served(&env, &server, "some/r@2999-12-31", &last.1);
        assert_served(&env, &server, "some/r@2999-12-31T00:00:00+01:00", &last.1);
        assert_served(&env, &server, "some/r", &last.1);
        // From one state to the next, and back.
        let walker = env.init_bare(&format!("walker{compact}.git"));
        for (seq, copy) in states.iter().chain(states.iter().rev()) {
            let url = server.url(&format!("some/r@{seq}"));
            env.git(&walker, &["fetch", "-q", "--prune", &url, "+refs/*:refs/*"]);
            assert_eq!(env.picture(&walker), env.picture(copy));
        }
        // Nothing of another state is given with it, even to a client that names it.
        let newest = env.git(&up, &["rev-parse", "refs/heads/next"]);
        let stranger = env.init_bare(&format!("stranger{compact}.git"));
        let fetch = env
            .git_command(&stranger, &["fetch", "-q", &server.url(&format!("some/r@{first}")), newest.trim()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&fetch.stderr).into_owned();
        assert!(!fetch.status.success() && said.contains("not our ref"), "{said}");
    }
    for (name, why) in
        [("some/r@99", "no such state"), ("some/r@2001-01-01", "no such state"), ("some/x@1", "no such repo")]
    {
        let answer = server.ask(
            format!(
                "GET /{name}/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: \
                close\r\n\r\n"
            )
            .as_bytes(),
        );
        assert!(answer.starts_with("HTTP/1.1 404") && answer.contains(why), "{name}: {answer}");
    }
}

#[test]
fn the_state_of_a_fork_stands_on_its_base() {
    let env = Env::new();
    let base = env.init_bare("base.git");
    env.commit_file(&base, "refs/heads/main", "base", &[3; 100_000]);
    env.mirror_new("base", &base);
    let up = env.path("up.git");
    env.git(env.dir.path(), &["clone", "-q", "--bare", base.to_str().unwrap(), up.to_str().unwrap()]);
    env.weir(&["add", "--name", "fork", "--reference", "base", up.to_str().unwrap()]);
    let mut copies = Vec::new();
    for n in 0..3 {
        env.commit_file(&up, "refs/heads/main", &format!("f{n}"), &[n; 2000]);
        env.weir(&["mirror", "--all"]);
        let copy = env.path(&format!("fork-{n}.git"));
        env.git(env.dir.path(), &["clone", "-q", "--mirror", up.to_str().unwrap(), copy.to_str().unwrap()]);
        copies.push((env.weir_json(&["log", "--json", "-n1", "fork"])[0]["seq"].as_u64().unwrap(), copy));
    }
    env.configure("serve", "older_states = true");
    let mut server = Http::serve(&env, &[]);
    for compact in [false, true] {
        if compact {
            env.weir(&["compact"]);
            server = server.again(&env);
        }
        for (seq, copy) in &copies {
            assert_served(&env, &server, &format!("fork@{seq}"), copy);
            let bundle = env.path("fork.bundle");
            env.weir(&["export", &format!("fork@{seq}"), bundle.to_str().unwrap()]);
            let target = tempfile::tempdir_in(env.dir.path()).unwrap();
            let from_bundle = target.path().join("b.git");
            env.git(
                env.dir.path(),
                &["clone", "-q", "--mirror", bundle.to_str().unwrap(), from_bundle.to_str().unwrap()],
            );
            assert_eq!(env.picture(&from_bundle), env.picture(copy));
            let folder = target.path().join("d.git");
            env.weir(&["export", &format!("fork@{seq}"), folder.to_str().unwrap()]);
            assert_eq!(env.picture(&folder), env.picture(copy));
        }
    }
}

#[test]
fn older_states_are_for_those_who_may_read_them() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    env.commit_file(&up, "refs/heads/main", "a", b"first");
    env.mirror_new("r", &up);
    env.mirror_new("hidden", &up);
    env.configure(
        "access",
        &format!(
            "tokens = [{{ name = \"boss\", sha256 = \"{OPEN_SESAME}\", scopes = [\"manage\"] }}]\nrules = \
            [{{ repositories = [\"hidden\"], tokens = [\"boss\"] }}]"
        ),
    );
    let server = Http::serve(&env, &[]);
    let refs = |name: &str, headers: &str| {
        server.ask(
            format!(
                "GET /{name}/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                {headers}\r\n"
            )
            .as_bytes(),
        )
    };
    let answer = refs("r@1", "");
    // git sends its password only to a server that asks for one.
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("serve.older_states"), "{answer}");
    let url = server.url("r@1").replace("http://", "http://x:open%20sesame@");
    assert!(env.git(env.dir.path(), &["ls-remote", &url]).contains("refs/heads/main"));
    let manager = "Authorization: Bearer open sesame\r\n";
    for name in ["r@1", "hidden@1"] {
        assert!(refs(name, manager).starts_with("HTTP/1.1 200"), "{name}");
    }
    // A hidden repository is refused as one that is not there.
    let of = |name: &str| refs(name, "").replace(name, "NAME");
    assert_eq!(of("hidden@1"), of("absent@1"));
    let api = |name: &str, headers: &str| {
        server.ask(
            format!(
                "GET /api/v1/repositories/{name}/refs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                {headers}\r\n"
            )
            .as_bytes(),
        )
    };
    assert!(api("r@1", "").starts_with("HTTP/1.1 401"), "{}", api("r@1", ""));
    let shown = api("r@1", manager);
    assert!(shown.starts_with("HTTP/1.1 200") && shown.contains("refs/heads/main"), "{shown}");
    assert!(api("1@1", manager).starts_with("HTTP/1.1 200"), "by its number");
    assert!(api("r@9", manager).contains("no such state: r@9"), "{}", api("r@9", manager));
    let of = |name: &str| api(name, "").replace(name, "NAME");
    assert_eq!(of("hidden@1"), of("absent@1"));
}

#[test]
fn commands_read_older_states() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    env.commit_file(&up, "refs/heads/main", "a", b"first");
    env.mirror_new("r", &up);
    env.commit_file(&up, "refs/heads/main", "a", b"second");
    env.weir(&["mirror", "--all"]);
    for compact in [false, true] {
        if compact {
            env.weir(&["compact"]);
        }
        assert_eq!(env.weir(&["cat", "r@1", "main:a"]), "first");
        assert_eq!(env.weir(&["cat", "r", "main:a"]), "second");
        assert_ne!(env.weir(&["ls-tree", "r@1"]), env.weir(&["ls-tree", "r@2"]));
        let why = env.weir_fails(&["cat", "r@7", "main:a"]);
        assert!(why.contains("'r' has no state 7; run 'weir log r' to list its states"), "{why}");
        let why = env.weir_fails(&["export", "r@1", env.path("x.tar").to_str().unwrap()]);
        assert!(why.contains("as a bundle"), "{why}");
    }
}
