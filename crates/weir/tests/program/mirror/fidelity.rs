//! What comes out is what went in: refs and reachable objects, over every way in and out.

use crate::common::{Env, Rng};
use std::path::Path;

#[test]
fn an_odd_repository_comes_through_git_daemon_and_local_paths_unchanged() {
    let env = Env::new();
    let upstream = env.odd_repository("odd.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "by-daemon", &daemon.url("odd.git")]);
    env.weir(&["add", "--name", "by-path", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = env.serve();
    for name in ["by-daemon", "by-path"] {
        env.assert_same(&server, name, &upstream, name);
        let show = env.weir_json(&["show", name]);
        assert_eq!(show["whole_clone"]["heads_and_tags"], true, "{name}: {show}");
        assert_eq!(show["whole_clone"]["all"], true, "{name}: {show}");
    }
    env.weir(&["fsck"]);
}

#[test]
fn every_protocol_version_on_both_sides() {
    let env = Env::new();
    env.odd_repository("odd.git");
    let daemon = env.git_daemon(&[]);
    for version in ["0", "1", "2"] {
        std::fs::write(
            env.pool().join("weir.toml"),
            format!("[transport]\nprotocol_version_max = {version}\n"),
        )
        .unwrap();
        let name = format!("in-v{version}");
        env.weir(&["add", "--name", &name, &daemon.url("odd.git")]);
        env.weir(&["mirror", &name]);
        let server = env.serve();
        for out_version in ["0", "1", "2"] {
            let config = format!("protocol.version={out_version}");
            for (kind, args) in [
                ("plain", &[][..]),
                ("bare", &["--bare"]),
                ("mirror", &["--mirror"]),
                ("single", &["--single-branch", "--branch", "side"]),
            ] {
                let target = env.path(&format!("{name}-{out_version}-{kind}"));
                let from_upstream = env.path(&format!("{name}-{out_version}-{kind}-upstream"));
                for (url, target) in [(server.url(&name), &target), (daemon.url("odd.git"), &from_upstream)] {
                    let mut all = vec!["-c", &config, "clone", "-q"];
                    all.extend(args);
                    all.extend([url.as_str(), target.to_str().unwrap()]);
                    env.git(env.dir.path(), &all);
                }
                env.git(&target, &["fsck", "--full", "--strict", "--no-dangling"]);
                assert_eq!(
                    env.picture(&target),
                    env.picture(&from_upstream),
                    "{kind} in v{version} out v{out_version}"
                );
            }
        }
    }
}

#[test]
fn empty_unborn_and_detached() {
    let env = Env::new();
    let empty = env.init_bare("empty.git");
    env.git(&empty, &["symbolic-ref", "HEAD", "refs/heads/trunk"]);
    let detached = env.odd_repository("detached.git");
    let commit = env.git(&detached, &["rev-parse", "main~3"]);
    std::fs::write(detached.join("HEAD"), format!("{commit}\n")).unwrap();
    let lost = env.odd_repository("lost.git");
    // HEAD names a commit that no branch reaches.
    let alone = env.git(&lost, &["commit-tree", "-m", "alone", "main^{tree}"]);
    std::fs::write(lost.join("HEAD"), format!("{alone}\n")).unwrap();
    let daemon = env.git_daemon(&[]);
    for name in ["empty", "detached", "lost"] {
        env.weir(&["add", "--name", name, &daemon.url(&format!("{name}.git"))]);
    }
    env.weir(&["mirror"]);
    let server = env.serve();
    env.assert_same(&server, "empty", &empty, "empty");
    let clone = env.path("clone-of-empty");
    env.git(env.dir.path(), &["clone", "-q", &server.url("empty"), clone.to_str().unwrap()]);
    assert_eq!(env.git(&clone, &["symbolic-ref", "HEAD"]), "refs/heads/trunk", "the unborn branch is told");
    assert_eq!(
        env.git(env.dir.path(), &["ls-remote", &server.url("detached"), "HEAD"]),
        format!("{commit}\tHEAD")
    );
    assert_eq!(
        env.git(env.dir.path(), &["ls-remote", &server.url("lost"), "HEAD"]),
        format!("{alone}\tHEAD")
    );
    let clone = env.path("clone-of-lost");
    env.git(env.dir.path(), &["clone", "-q", &server.url("lost"), clone.to_str().unwrap()]);
    assert_eq!(env.git(&clone, &["rev-parse", "HEAD"]), alone);
    // The empty repository gets its first commit.
    env.git_with(
        &empty,
        &["fast-import", "--quiet"],
        b"commit refs/heads/trunk\ncommitter C <c@x> 1 +0000\ndata 1\nx\n",
    );
    env.weir(&["mirror", "--all"]);
    env.assert_same(&server, "empty", &empty, "no longer empty");
}

/// Checks that a known host can be asked for refs in the first packet even if its repositories are of several
/// kinds.
#[test]
fn one_host_of_many_kinds() {
    let env = Env::new();
    let mut upstreams = Vec::new();
    for n in 0..6 {
        let name = format!("k{n}.git");
        let format = if n % 2 == 1 { "--object-format=sha256" } else { "--object-format=sha1" };
        env.git(env.dir.path(), &["init", "-q", "--bare", "-b", "main", format, &name]);
        let upstream = env.path(&name);
        if n != 2 {
            let tree = env.git(&upstream, &["mktree"]);
            let commit = env.git(&upstream, &["commit-tree", "-m", &name, &tree]);
            env.git(&upstream, &["update-ref", "refs/heads/main", &commit]);
        }
        upstreams.push(upstream);
    }
    let daemon = env.git_daemon(&[]);
    for n in 0..6 {
        env.weir(&["add", "--name", &format!("k{n}"), &daemon.url(&format!("k{n}.git"))]);
    }
    env.weir(&["add", "--name", "gone", &daemon.url("gone.git")]);
    let server = env.serve();
    for round in 0..3 {
        for jobs in ["1", "4"] {
            let said = env.weir_fails(&["mirror", "--all", "--jobs", jobs]);
            assert!(
                said.contains("6 updated, 0 unchanged, 1 failed")
                    || said.contains("0 updated, 6 unchanged, 1 failed"),
                "{said}"
            );
        }
        for (n, upstream) in upstreams.iter().enumerate() {
            env.assert_same(&server, &format!("k{n}"), upstream, &format!("round {round}"));
            let tree = env.git(upstream, &["mktree"]);
            let commit = env.git(upstream, &["commit-tree", "-m", &format!("{round}"), &tree]);
            env.git(upstream, &["update-ref", "refs/heads/main", &commit]);
        }
    }
}

#[test]
fn sha256_repositories() {
    let env = Env::new();
    let upstream = env.path("s256.git");
    env.git(env.dir.path(), &["init", "-q", "--bare", "-b", "main", "--object-format=sha256", "s256.git"]);
    let mut stream = Vec::new();
    for i in 1..=200 {
        let body = format!("file {i} {}", "x".repeat(i * 10));
        stream.extend_from_slice(
            format!(
                "commit refs/heads/main\ncommitter C <c@x> {i} +0000\ndata 1\nx\nM 644 inline d{}/f\ndata \
                {}\n{body}\n",
                i % 7,
                body.len()
            )
            .as_bytes(),
        );
    }
    env.git_with(&upstream, &["fast-import", "--quiet"], &stream);
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "s", &daemon.url("s256.git")]);
    env.weir(&["mirror"]);
    let server = env.serve();
    env.assert_same(&server, "s", &upstream, "sha256");
    env.git_with(
        &upstream,
        &["fast-import", "--quiet"],
        b"commit refs/heads/main\ncommitter C <c@x> 999 +0000\ndata 1\ny\nfrom refs/heads/main^0\nM 644 \
            inline new\ndata 1\nn\n",
    );
    env.weir(&["mirror", "--all"]);
    env.assert_same(&server, "s", &upstream, "sha256, updated");
    env.weir(&["fsck"]);
}

#[test]
fn a_shallow_upstream_stays_shallow() {
    let env = Env::new();
    env.odd_repository("full.git");
    let url = format!("file://{}", env.path("full.git").display());
    env.git(env.dir.path(), &["clone", "-q", "--bare", "--depth=3", &url, "shallow.git"]);
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "s", &daemon.url("shallow.git")]);
    env.weir(&["mirror"]);
    assert_eq!(env.weir_json(&["show", "s"])["shallow"], true);
    let server = env.serve();
    env.git(env.dir.path(), &["clone", "-q", "--bare", &server.url("s"), "again.git"]);
    let log = |repo: &str| env.git(&env.path(repo), &["log", "--format=%H", "main"]);
    assert_eq!(log("again.git"), log("shallow.git"));
}

#[test]
fn log_says_where_head_leads_since() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    env.commit_file(&up, "refs/heads/main", "a", b"a");
    env.git(&up, &["branch", "trunk", "main"]);
    env.mirror_new("it", &up);
    assert!(!env.weir(&["log", "it"]).contains("HEAD"));
    env.git(&up, &["symbolic-ref", "HEAD", "refs/heads/trunk"]);
    env.weir(&["mirror", "--all"]);
    let said = env.weir(&["log", "it"]);
    assert!(said.contains("(+0 ~0 -0)\n    HEAD is trunk\n"), "{said}");
}

/// A server names the commits at which the history of the wanted branch ends, and no others. weir keeps those
/// that it knew before.
#[test]
fn a_shallow_upstream_gains_a_branch_without_its_end() {
    let env = Env::new();
    env.odd_repository("full.git");
    let full = format!("file://{}", env.path("full.git").display());
    let shallow = env.path("shallow.git");
    env.git(env.dir.path(), &["clone", "-q", "--bare", "--depth=1", "--branch=main", &full, "shallow.git"]);
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "s", &daemon.url("shallow.git")]);
    env.weir(&["mirror"]);
    // Its history is whole, and does not reach the commit at which that of 'main' ends.
    env.git(&env.path("full.git"), &["branch", "old", "main~3"]);
    env.git(&shallow, &["fetch", "-q", "origin", "old:old"]);
    env.weir(&["mirror", "--all"]);
    env.weir(&["fsck"]);
    let server = env.serve();
    env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.url("s"), "again.git"]);
    env.git(&env.path("again.git"), &["fsck", "--connectivity-only"]);
    let log = |repo: &Path| env.git(repo, &["log", "--all", "--format=%H %D"]);
    assert_eq!(log(&env.path("again.git")), log(&shallow));
    // A step deeper, and another branch at once.
    env.git(&env.path("full.git"), &["branch", "older", "main~5"]);
    env.git(&shallow, &["fetch", "-q", "--deepen=1", "origin", "main:main"]);
    env.git(&shallow, &["fetch", "-q", "origin", "older:older"]);
    env.weir(&["mirror", "--all"]);
    env.weir(&["fsck"]);
}

#[test]
fn ten_thousand_refs() {
    let env = Env::new();
    let upstream = env.odd_repository("many.git");
    let commits = env.git(&upstream, &["rev-list", "--all"]);
    let commits: Vec<&str> = commits.lines().collect();
    let updates: String = (0..10_000)
        .map(|i| {
            format!(
                "create refs/{}/n{i} {}\n",
                ["heads/x", "tags", "pull"][i % 3],
                commits[i % commits.len()]
            )
        })
        .collect();
    env.git_with(&upstream, &["update-ref", "--stdin"], updates.as_bytes());
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "many", &daemon.url("many.git")]);
    env.weir(&["mirror"]);
    let server = env.serve();
    env.assert_same(&server, "many", &upstream, "10,000 refs");
    env.git(&upstream, &["update-ref", "-d", "refs/tags/n1"]);
    env.weir(&["mirror", "--all"]);
    env.assert_same(&server, "many", &upstream, "one fewer");
}

/// Makes one random change to an upstream.
fn change(env: &Env, upstream: &Path, rng: &mut Rng, step: u64) -> String {
    let branches = env.git(upstream, &["for-each-ref", "--format=%(refname)", "refs/heads", "refs/pull"]);
    let branches: Vec<&str> = branches.lines().collect();
    let pick = branches[rng.below(branches.len() as u64) as usize].to_owned();
    match rng.below(10) {
        0 => {
            let target = format!("{pick}~{}", rng.below(3));
            if env.git_command(upstream, &["update-ref", &pick, &target]).output().unwrap().status.success() {
                return format!("reset {pick} to {target}");
            }
            String::new()
        }
        1 if branches.len() > 3 && !pick.ends_with("/main") => {
            env.git(upstream, &["update-ref", "-d", &pick]);
            format!("deleted {pick}")
        }
        2 => {
            env.git(upstream, &["tag", "-f", "-a", "-m", "t", &format!("t{}", rng.below(5)), &pick]);
            "tagged".to_owned()
        }
        3 => {
            let tags = env.git(upstream, &["tag", "-l"]);
            if let Some(tag) = tags.lines().next() {
                env.git(upstream, &["tag", "-d", tag]);
            }
            "deleted a tag".to_owned()
        }
        4 => {
            let name = format!("refs/heads/trunk{}", rng.below(3));
            env.git(upstream, &["update-ref", &name, &pick]);
            env.git(upstream, &["symbolic-ref", "HEAD", &name]);
            format!("HEAD is {name} now")
        }
        5 => {
            let name = format!("refs/pull/{step}/head");
            env.git(upstream, &["update-ref", &name, &pick]);
            commit(env, upstream, rng, &name, step);
            format!("pull request on {pick}")
        }
        6 => {
            // A pull request is merged: a branch now reaches what only the rest reached.
            if let Some(pull) = branches.iter().find(|b| b.starts_with("refs/pull/")) {
                env.git(upstream, &["update-ref", "refs/heads/main", pull]);
            }
            "merged a pull request".to_owned()
        }
        _ => {
            for _ in 0..=rng.below(5) {
                commit(env, upstream, rng, &pick, step);
            }
            format!("commits on {pick}")
        }
    }
}

fn commit(env: &Env, upstream: &Path, rng: &mut Rng, branch: &str, step: u64) {
    let data = format!("{} {step}", rng.below(1 << 40)).repeat(1 + rng.below(200) as usize);
    let stream = format!(
        "commit {branch}\ncommitter C <c@x> {} +0000\ndata 1\nc\nfrom {branch}^0\nM 644 inline d{}/f{}\ndata \
        {}\n{data}\n",
        1_700_000_000 + step * 60 - rng.below(600),
        rng.below(4),
        rng.below(9),
        data.len()
    );
    env.git_with(upstream, &["fast-import", "--quiet", "--force"], stream.as_bytes());
}

#[test]
fn fifty_random_updates() {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_121);
    println!("WEIR_SEED={seed}");
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "u", &daemon.url("u.git")]);
    env.weir(&["mirror"]);
    let server = env.serve();
    // A clone made by stock git, which fetches after each step.
    let follower = env.path("follower.git");
    env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.url("u"), follower.to_str().unwrap()]);
    let mut rng = Rng(seed);
    for step in 0..50 {
        let what = change(&env, &upstream, &mut rng, step);
        env.weir(&["mirror", "--all"]);
        let why = format!("step {step}: {what}");
        env.assert_same(&server, "u", &upstream, &why);
        env.git(&follower, &["fetch", "-q", "--prune"]);
        assert_eq!(env.picture(&follower).0, env.picture(&upstream).0, "{why}: the follower");
        if step % 10 == 9 {
            env.weir(&["fsck"]);
            env.git(&follower, &["fsck", "--full", "--strict", "--no-dangling"]);
        }
        if step == 30 {
            env.weir(&["compact"]);
            env.assert_same(&server, "u", &upstream, "compacted");
        }
    }
    let log = env.weir_json(&["log", "u"]);
    assert!(log.as_array().unwrap().len() > 20, "older states are there: {log}");
}

#[test]
fn tags_of_tags_come_along_with_all_between() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let config = ["-c", "user.name=a", "-c", "user.email=a@x"];
    for (name, of) in [("in", "main"), ("middle", "in"), ("out", "middle")] {
        env.git(&upstream, &[&config[..], &["tag", "-a", "-m", name, name, of]].concat());
    }
    env.git(&upstream, &["tag", "-d", "in", "middle"]);
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = env.serve();
    for (n, args) in [
        &["--single-branch"][..],
        &["--depth=1", "--no-single-branch"],
        &["--branch", "main", "--filter=blob:none"],
    ]
    .iter()
    .enumerate()
    {
        for protocol in ["0", "2"] {
            let copy = format!("copy{n}{protocol}");
            let version = format!("protocol.version={protocol}");
            env.git(
                env.dir.path(),
                &[&["-c", &version, "clone", "-q", "-n"], *args, &[&server.url("u"), &copy]].concat(),
            );
            let copy = env.path(&copy);
            env.git(&copy, &["fsck", "--connectivity-only"]);
            assert_eq!(
                env.git(&copy, &["rev-parse", "out^{commit}"]),
                env.git(&upstream, &["rev-parse", "main"])
            );
        }
    }
}

#[test]
fn force_push_and_deletion_lose_nothing() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let before = env.picture(&upstream);
    let lost = env.git(&upstream, &["rev-parse", "main"]);
    env.git(&upstream, &["update-ref", "refs/heads/main", "main~5"]);
    for branch in ["side", "odd-mode"] {
        env.git(&upstream, &["update-ref", "-d", &format!("refs/heads/{branch}")]);
    }
    env.git(&upstream, &["tag", "-d", "v1", "nested"]);
    env.weir(&["mirror", "--all"]);
    let server = env.serve();
    env.assert_same(&server, "u", &upstream, "after the force-push");
    // Removed commits are not served, not even by their ids.
    let elsewhere = env.init_bare("elsewhere.git");
    let fetch = env.git_command(&elsewhere, &["fetch", "-q", &server.url("u"), &lost]).output().unwrap();
    let said = String::from_utf8_lossy(&fetch.stderr);
    assert!(!fetch.status.success() && said.contains("not our ref"), "{said}");
    for round in ["as appended", "after compaction"] {
        let name = format!("old-{}", round.len());
        let log = env.weir_json(&["log", "u"]);
        // The newest state with all refs: the last one before the removal.
        let count = before.0.lines().count();
        let seq =
            log.as_array().unwrap().iter().find(|s| s["refs"] == count).unwrap()["seq"].as_u64().unwrap();
        env.weir(&["restore", &format!("u@{seq}"), "--name", &name]);
        let copy = env.path(&format!("{name}.git"));
        env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.url(&name), copy.to_str().unwrap()]);
        assert_eq!(env.picture(&copy), before, "{round}");
        env.weir(&["compact", "u"]);
        env.weir(&["fsck"]);
    }
}

#[test]
fn whole_clones_are_never_more_or_less_than_the_refs_reach() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let tree = env.git(&upstream, &["rev-parse", "main^{tree}"]);
    let commit = |parent: &str, message: &str| {
        env.git(&upstream, &["commit-tree", "-m", message, "-p", parent, &tree])
    };
    let feature = commit("main", "feature");
    env.git(&upstream, &["update-ref", "refs/heads/feature", &feature]);
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let with_feature = env.picture(&upstream);
    let server = env.serve();
    // One visit sees that the branch is gone, and that a pull request on it is new.
    let pull = commit(&feature, "pull");
    env.git(&upstream, &["update-ref", "-d", "refs/heads/feature"]);
    env.git(&upstream, &["update-ref", "refs/pull/9/head", &pull]);
    env.weir(&["mirror", "--all"]);
    env.assert_same(&server, "u", &upstream, "all refs");
    let plain = env.path("plain.git");
    env.git(env.dir.path(), &["clone", "-q", "--bare", &server.url("u"), plain.to_str().unwrap()]);
    let has = |repo: &Path, oid: &str| {
        env.git_command(repo, &["cat-file", "-e", oid]).output().unwrap().status.success()
    };
    assert!(!has(&plain, &feature), "an ordinary clone holds nothing of a deleted branch");
    // Now no ref reaches it. Compaction moves it to the history class, and then it is restored.
    env.git(&upstream, &["update-ref", "-d", "refs/pull/9/head"]);
    env.weir(&["mirror", "--all"]);
    env.weir(&["compact"]);
    env.assert_same(&server, "u", &upstream, "compacted");
    let log = env.weir_json(&["log", "u"]);
    let count = with_feature.0.lines().count();
    let is_before = |s: &&serde_json::Value| {
        s["refs"] == count && !s["changes"].to_string().contains("- refs/heads/feature")
    };
    let found = log.as_array().unwrap().iter().find(is_before);
    let seq = found.unwrap_or_else(|| panic!("{log}"))["seq"].as_u64().unwrap();
    env.weir(&["restore", &format!("u@{seq}")]);
    let restored = env.path("restored.git");
    env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.url("u"), restored.to_str().unwrap()]);
    env.git(&restored, &["fsck", "--full", "--strict"]);
    assert_eq!(env.picture(&restored), with_feature);
    env.weir(&["mirror", "u"]);
    env.assert_same(&server, "u", &upstream, "mirrored again when asked for by name");
}
