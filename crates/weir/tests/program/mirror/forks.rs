//! Archives that build on another: all that is served, exported and checked is whole, and nothing that is
//! needed is removed.

use std::path::{Path, PathBuf};

use crate::common::forge::{Forge, Listed, State};
use crate::common::{Env, Http, Server};

/// Adds a commit to `branch` that has a new file, and the tree of `parent` as the folder `old`; returns its
/// id.
fn commit(env: &Env, at: &Path, branch: &str, parent: &str, text: &str) -> String {
    let blob = env.git_with(at, &["hash-object", "-w", "--stdin"], text.as_bytes());
    let tree = env.git_with(
        at,
        &["mktree"],
        format!(
            "100644 blob {blob}\t{text}\n040000 tree {parent_tree}\told\n",
            parent_tree = env.git(at, &["rev-parse", &format!("{parent}^{{tree}}")])
        )
        .as_bytes(),
    );
    let commit = env.git(at, &["commit-tree", "-m", text, "-p", parent, &tree]);
    env.git(at, &["update-ref", &format!("refs/heads/{branch}"), &commit]);
    commit
}

/// Makes another repository with all that `upstream` has.
fn fork_of(env: &Env, upstream: &Path, name: &str) -> PathBuf {
    env.git(&env.path(""), &["clone", "-q", "--mirror", upstream.to_str().unwrap(), name]);
    let path = env.path(name);
    // Otherwise it would share the files of `upstream`.
    env.git(&path, &["repack", "-adq"]);
    path
}

struct Network {
    env: Env,
    daemon: Server,
    up: PathBuf,
    /// A fork with a history of its own.
    fork: PathBuf,
    /// A fork that is the same as the base.
    same: PathBuf,
}

/// Mirrors `base`, and `of/fork` and `of/same` that build on it.
fn network() -> Network {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let (fork, same) = (fork_of(&env, &up, "fork.git"), fork_of(&env, &up, "same.git"));
    for n in 0..5 {
        commit(&env, &fork, "main", "main", &format!("own{n}"));
    }
    env.git(&fork, &["update-ref", "refs/heads/side", "side~1"]);
    env.git(&fork, &["update-ref", "refs/pull/7/head", &commit(&env, &fork, "gone", "main~3", "pulled")]);
    env.git(&fork, &["update-ref", "-d", "refs/heads/gone"]);
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "base", &daemon.url("up.git")]);
    for name in ["fork", "same"] {
        env.weir(&[
            "add",
            "--reference",
            "base",
            "--name",
            &format!("of/{name}"),
            &daemon.url(&format!("{name}.git")),
        ]);
    }
    assert!(env.weir(&["mirror"]).contains("3 updated"));
    Network { env, daemon, up, fork, same }
}

impl Network {
    fn archive(&self, name: &str) -> PathBuf {
        self.env.pool().join(format!("store/{name}.tar"))
    }

    fn len(&self, name: &str) -> u64 {
        std::fs::metadata(self.archive(name)).unwrap().len()
    }

    /// Checks that each repository is served as its upstream has it.
    fn assert_all(&self, why: &str) {
        self.env.weir(&["fsck"]);
        let server = self.env.serve();
        for (name, upstream) in [("base", &self.up), ("of/fork", &self.fork), ("of/same", &self.same)] {
            self.env.assert_same(&server, name, upstream, why);
        }
    }

    fn builds_on(&self, name: &str) -> serde_json::Value {
        self.env.weir_json(&["show", name])["base"].clone()
    }
}

#[test]
fn forks_hold_only_what_their_base_lacks() {
    let n = network();
    n.assert_all("first");
    assert_eq!(n.builds_on("of/fork"), "base");
    let ([base, fork, same], whole) =
        (["base", "of/fork", "of/same"].map(|name| n.len(name)), n.env.weir_json(&["show", "base"]));
    assert!(fork < base / 2 && same < base / 4, "{base} {fork} {same}");
    assert!(
        n.env.weir_json(&["show", "of/same"])["objects"].as_u64()
            < whole["objects"].as_u64().map(|all| all / 10)
    );

    // All get new commits, some shared and some not; then all archives are compacted.
    let env = &n.env;
    let tip = commit(env, &n.up, "main", "main", "more");
    env.git(&n.fork, &["fetch", "-q", n.up.to_str().unwrap(), "main:upstream"]);
    commit(env, &n.fork, "main", "main", "after");
    let merged = env.git(&n.fork, &["commit-tree", "-m", "merge", "-p", "main", "-p", &tip, "main^{tree}"]);
    env.git(&n.fork, &["update-ref", "refs/heads/main", &merged]);
    commit(env, &n.same, "main", "main~3", "forced");
    env.weir(&["mirror", "--all"]);
    n.assert_all("updated");
    // The base loses what the forks keep.
    env.git(&n.up, &["update-ref", "refs/heads/main", "main~8"]);
    for branch in ["side", "odd-mode"] {
        env.git(&n.up, &["update-ref", "-d", &format!("refs/heads/{branch}")]);
    }
    env.weir(&["mirror", "--all"]);
    n.assert_all("rewound");
    for _ in 0..2 {
        env.weir(&["compact"]);
        n.assert_all("compacted");
    }
    assert!(n.len("of/fork") < n.len("base") / 2);
    assert_eq!(n.builds_on("of/same"), "base");
    commit(env, &n.fork, "main", "main", "at last");
    env.weir(&["mirror", "--all"]);
    n.assert_all("updated after compaction");
}

#[test]
fn clients_need_not_know() {
    let n = network();
    let server = n.env.serve();
    let (env, url) = (&n.env, server.url("of/fork"));
    for (name, args) in [
        ("depth", &["--depth", "3"][..]),
        ("filter", &["--filter=blob:none", "--no-checkout"]),
        ("v0", &["-c", "protocol.version=0"]),
        ("one", &["--single-branch", "--branch", "side"]),
    ] {
        let clone = [&["clone", "-q"], args, &[url.as_str(), name]].concat();
        env.git(&env.path(""), &clone);
        env.git(&env.path(name), &["-c", "remote.origin.promisor=true", "fsck", "--no-dangling"]);
    }
    env.git(&env.path("depth"), &["fetch", "-q", "--unshallow"]);
    // The paths of the fork give no access to the base's files.
    env.configure("serve", "files = true");
    let http = Http::serve(env, &[]);
    assert!(http.get("/base/objects/info/packs", "").0.starts_with("HTTP/1.1 200"));
    for path in [
        "objects/info/packs".to_owned(),
        format!(
            "objects/pack/{}.pack",
            env.weir_json(&["show", "base"])["packs"][0]["name"]
                .as_str()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
        ),
    ] {
        assert!(http.get(&format!("/of/fork/{path}"), "").0.starts_with("HTTP/1.1 404"), "{path}");
    }
    assert!(http.get("/of/fork.tar", "").0.starts_with("HTTP/1.1 404"));
    // The fork does not serve what only the base has.
    let hidden = commit(env, &n.up, "main", "main", "only in the base");
    env.weir(&["mirror", "base"]);
    let asked = env.git_command(&env.path("one"), &["fetch", "-q", "origin", &hidden]).output().unwrap();
    assert!(!asked.status.success(), "{asked:?}");
    env.git(&env.path(""), &["init", "-q", "--bare", "into.git"]);
    let target = env.path("local");
    env.weir(&["clone", n.archive("of/fork").to_str().unwrap(), target.to_str().unwrap()]);
    env.git(&target, &["fsck", "--no-dangling"]);
    assert_eq!(env.git(&target, &["rev-parse", "HEAD"]), env.git(&n.fork, &["rev-parse", "main"]));
    assert_eq!(env.weir(&["cat", "of/fork", "main:own4"]).trim(), "own4");
}

#[test]
fn what_leaves_is_whole() {
    let n = network();
    let env = &n.env;
    let path = |name: &str| env.path(name).to_str().unwrap().to_owned();
    for target in ["out.tar", "out.bundle", "out.git"] {
        env.weir(&["export", "of/fork", &path(target)]);
    }
    std::fs::create_dir(env.path("x")).unwrap();
    assert!(
        weir_testing::command("tar")
            .args(["-C", &path("x"), "-xf", &path("out.tar")])
            .status()
            .unwrap()
            .success()
    );
    env.git(&env.path(""), &["clone", "-q", "--mirror", &path("out.bundle"), "b"]);
    for name in ["x", "out.git", "b"] {
        env.git(&env.path(name), &["fsck", "--full", "--strict", "--no-dangling"]);
        assert_eq!(env.picture(&env.path(name)), env.picture(&n.fork), "{name}");
    }
    let left: Vec<_> = std::fs::read_dir(env.path(""))
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().contains("weir-work"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // If both are extracted where they are, git finds the base from the fork.
    for name in ["base", "of/fork"] {
        let folder = env.pool().join("store").join(name);
        std::fs::create_dir(&folder).unwrap();
        assert!(
            weir_testing::command("tar")
                .arg("-C")
                .arg(&folder)
                .arg("-xf")
                .arg(n.archive(name))
                .status()
                .unwrap()
                .success()
        );
    }
    let fork = env.pool().join("store/of/fork");
    env.git(&fork, &["fsck", "--full", "--strict", "--no-dangling"]);
    assert_eq!(env.picture(&fork), env.picture(&n.fork));
    // A copy of an older state could not be cloned again, so it is whole.
    let states = env.weir_json(&["log", "of/fork"]);
    commit(env, &n.fork, "main", "main", "later");
    env.weir(&["mirror", "of/fork"]);
    let seq = &states[0]["seq"];
    env.weir(&["restore", &format!("of/fork@{seq}"), "--name", "deep/down/copy"]);
    env.weir(&["fsck", "deep/down/copy"]);
    assert_eq!(n.builds_on("deep/down/copy"), serde_json::Value::Null);
    assert!(env.weir_fails(&["cat", "deep/down/copy", "main:later"]).contains("later"));
    assert_eq!(env.weir(&["cat", "deep/down/copy", "main:own4"]).trim(), "own4");
}

#[test]
fn a_base_stays_while_it_is_needed() {
    let n = network();
    let env = &n.env;
    for args in [&["rm", "base"][..], &["rm", "--delete", "base"], &["rm", "--delete", "base", "of/fork"]] {
        let said = env.weir_fails(args);
        assert!(said.contains("build on it") && said.contains("weir dissociate"), "{said}");
        assert!(n.archive("base").exists());
    }
    // A fork's archive cannot be left in the store without its catalog entry, either. If it is put back and
    // added again, weir knows what it builds on.
    assert!(env.weir_fails(&["rm", "of/fork"]).contains("weir dissociate of/fork"));
    let fork = std::fs::read(n.archive("of/fork")).unwrap();
    env.weir(&["rm", "--delete", "of/fork"]);
    std::fs::write(n.archive("of/fork"), fork).unwrap();
    env.weir(&["add", "--name", "of/fork", &n.daemon.url("fork.git")]);
    env.weir(&["mirror"]);
    assert!(env.weir_fails(&["rm", "base"]).contains("2 archives build on it, such as 'of/fork'"));
    env.weir(&["rm", "--delete", "of/fork"]);
    // A base that is gone upstream is not purged.
    std::fs::rename(&n.up, env.path("elsewhere.git")).unwrap();
    env.weir_fails(&["mirror", "base"]);
    env.let_pass(2);
    let purge = ["purge", "--gone-for", "1s", "--purge-protect", "100", "base"];
    assert_eq!(env.weir_json(&purge)["purged"].as_array().unwrap().len(), 0);
    assert!(n.archive("base").exists());
    // A base does not become a fork, and a fork does not become a base.
    let refused = |args: &[&str]| env.weir_fails(args);
    assert!(refused(&["share", "base", "--reference", "of/same"]).contains("build on it"));
    assert!(
        refused(&["add", "--reference", "of/same", "--name", "third", &n.daemon.url("fork.git")])
            .contains("a base must be")
    );

    let said = env.weir(&["dissociate", "--reference", "base"]);
    assert!(said.starts_with("of/same: ") && said.contains("whole"), "{said}");
    assert_eq!(n.builds_on("of/same"), serde_json::Value::Null);
    assert_eq!(env.weir_json(&purge)["purged"].as_array().unwrap().len(), 1);
    assert!(!n.archive("base").exists());
    env.weir(&["fsck"]);
    let server = env.serve();
    env.assert_same(&server, "of/same", &n.same, "whole");
}

#[test]
fn a_base_that_is_replaced_costs_no_fork() {
    let n = network();
    let env = &n.env;
    let damage = |name: &str| {
        let mut bytes = std::fs::read(n.archive(name)).unwrap();
        let pack = bytes.windows(4).position(|w| w == b"PACK").unwrap();
        bytes[pack + 40] ^= 1;
        std::fs::write(n.archive(name), &bytes).unwrap();
    };
    // The new clone has all objects of the old one, so nothing changes for the forks.
    let lost = commit(env, &n.up, "main", "main", "lost");
    env.git(&n.fork, &["fetch", "-q", n.up.to_str().unwrap(), &format!("{lost}:refs/heads/lost")]);
    env.weir(&["mirror", "base"]);
    env.weir(&["mirror", "--all"]);
    let before = n.len("of/fork");
    damage("base");
    assert!(env.weir_fails(&["fsck", "base"]).contains("base"));
    env.weir(&["fsck", "--repair", "base"]);
    n.assert_all("a new clone in its place");
    assert_eq!(n.len("of/fork"), before);
    // Meanwhile the upstream has lost history that one of the forks needs: that fork is cloned again, and
    // builds on what the base has.
    env.git(&n.up, &["update-ref", "refs/heads/main", "main~1"]);
    damage("base");
    env.weir(&["fsck", "--repair", "base"]);
    let said = env.weir_fails(&["fsck", "of/fork"]);
    assert!(said.contains("has been replaced"), "{said}");
    let said = env.weir(&["mirror"]);
    assert!(
        said.contains("of/fork: its archive was damaged") && said.contains("1 updated, 2 unchanged"),
        "{said}"
    );
    n.assert_all("cloned anew");
    assert_eq!((n.builds_on("of/fork"), n.builds_on("of/same")), ("base".into(), "base".into()));
    assert!(n.archive("of/fork").with_extension("tar.damaged").exists());
    // A visit finds the damage, in the same pass as the forks' visits.
    for half in [n.len("base") / 2, 0] {
        let bytes = std::fs::read(n.archive("base")).unwrap();
        std::fs::write(n.archive("base"), &bytes[..half as usize]).unwrap();
        for (at, text) in [(&n.up, "base goes on"), (&n.fork, "fork goes on")] {
            commit(env, at, &format!("half{half}"), "main", text);
        }
        let _ = env.weir_command(&["-q", "mirror", "--all"]).output().unwrap();
        env.weir(&["mirror", "--all"]);
        n.assert_all("in the same pass");
    }
    // The file was deleted by hand.
    std::fs::remove_file(n.archive("base")).unwrap();
    assert!(env.weir_fails(&["fsck", "of/same"]).contains("is missing"));
    env.weir(&["fsck", "--repair", "of"]);
    env.weir(&["mirror", "--all"]);
    n.assert_all("whole, and on nothing");
    assert_eq!(n.builds_on("of/same"), serde_json::Value::Null);
}

#[test]
fn forks_whose_upstream_is_gone_build_on_a_base_that_was_lost() {
    let n = network();
    let env = &n.env;
    std::fs::rename(&n.same, env.path("away.git")).unwrap();
    std::fs::remove_file(n.archive("base")).unwrap();
    env.weir(&["mirror", "base"]);
    let before = std::fs::read(n.archive("of/fork")).unwrap().len() as u64;
    let said = env.weir(&["fsck", "--repair", "of"]);
    for name in ["of/fork", "of/same"] {
        assert!(said.contains(&format!("{name}: builds on the archive that replaced its base")), "{said}");
        assert_eq!(n.builds_on(name), "base");
    }
    assert!(n.len("of/fork") < before + 100_000, "it was not cloned again");
    env.weir(&["fsck"]);
}

#[test]
fn forks_wait_for_a_lost_base() {
    let n = network();
    let env = &n.env;
    for jobs in ["1", "8"] {
        std::fs::remove_file(n.archive("base")).unwrap();
        // A fork that comes before its base may fail now.
        let _ = env.weir_command(&["-q", "mirror", "--all", "-j", jobs]).output().unwrap();
        env.weir(&["mirror", "--all"]);
        n.assert_all("after the base");
        for name in ["of/fork", "of/same"] {
            assert_eq!(n.builds_on(name), "base");
            assert!(!n.archive(name).with_extension("tar.damaged").exists(), "{name} was cloned again");
        }
    }
}

#[test]
fn a_base_whose_history_is_cut_off_takes_no_more_forks_and_leaves_no_holes() {
    let n = network();
    let env = &n.env;
    let tip = commit(env, &n.up, "main", "main", "cut here");
    let after = commit(env, &n.up, "main", "main", "behind it");
    std::fs::write(n.up.join("shallow"), format!("{after}\n")).unwrap();
    env.git(&n.fork, &["fetch", "-q", n.same.to_str().unwrap(), "main:other"]);
    std::fs::remove_file(n.up.join("shallow")).unwrap();
    env.git(&n.fork, &["fetch", "-q", n.up.to_str().unwrap(), &format!("{after}:refs/heads/behind")]);
    std::fs::write(n.up.join("shallow"), format!("{after}\n")).unwrap();
    env.weir(&["mirror", "base"]);
    assert_eq!(env.weir_json(&["show", "base"])["shallow"], true);
    let said = env.weir_fails(&["mirror", "of/fork"]);
    assert!(said.contains("it is shallow now; dissociate the archives that build on it"), "{said}");
    env.weir(&["fsck"]);
    env.weir(&["dissociate", "of/fork"]);
    env.weir(&["mirror", "of/fork"]);
    let server = env.serve();
    env.assert_same(&server, "of/fork", &n.fork, "whole, with what the base lacks");
    assert!(!tip.is_empty());
}

#[test]
fn forks_wait_for_their_base_whoever_clones_it() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    fork_of(&env, &up, "fork.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "base", &daemon.url("up.git")]);
    env.weir(&["add", "--reference", "base", "--name", "a-fork", &daemon.url("fork.git")]);
    let said = env.weir(&["mirror", "a-fork"]);
    assert!(said.contains("0 updated") && said.contains("1 put off"), "{said}");
    env.weir(&["mirror", "base"]);
    assert!(env.weir(&["mirror", "a-fork"]).contains("1 updated"));
    assert_eq!(env.weir_json(&["show", "a-fork"])["base"], "base");
    // If there is no base to wait for, the fork is mirrored whole.
    env.weir(&["add", "--name", "second", &daemon.url("up.git")]);
    env.weir(&["add", "--reference", "second", "--name", "b-fork", &daemon.url("fork.git")]);
    env.weir(&["pause", "second"]);
    assert!(env.weir(&["mirror", "b-fork"]).contains("1 updated"));
    assert_eq!(env.weir_json(&["show", "b-fork"])["base"], serde_json::Value::Null);
    env.weir(&["rm", "second"]);
}

#[test]
fn archives_that_are_there_can_share() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let fork = fork_of(&env, &up, "fork.git");
    commit(&env, &fork, "main", "main", "own");
    let other = env.init_bare("other.git");
    let empty_tree = env.git_with(&other, &["mktree"], b"");
    let first = env.git(&other, &["commit-tree", "-m", "x", &empty_tree]);
    env.git(&other, &["update-ref", "refs/heads/main", &first]);
    let daemon = env.git_daemon(&[]);
    for name in ["up", "fork", "other"] {
        env.weir(&["add", "--name", name, &daemon.url(&format!("{name}.git"))]);
    }
    env.weir(&["mirror"]);
    let len = |name: &str| std::fs::metadata(env.pool().join(format!("store/{name}.tar"))).unwrap().len();
    let before = len("fork");
    assert!(env.weir(&["share", "fork", "--reference", "up", "--dry-run"]).contains("objects are in up"));
    assert_eq!(len("fork"), before);
    let output = env.weir_command(&["share", "--reference", "up"]).output().unwrap();
    let (said, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        said.contains("fork: ")
            && said.contains("on up")
            && warned.contains("other: not shared: only 0 of its"),
        "{said} {warned}"
    );
    assert!(len("fork") < before / 4);
    let listed = |name: &str| env.weir_json(&["show", name])["archive_bytes"].as_u64().unwrap();
    assert_eq!(listed("fork"), len("fork"), "what is listed is what there is");
    env.weir(&["compact", "up"]);
    assert_eq!(listed("up"), len("up"));
    assert!(env.weir(&["share", "fork", "--reference", "up"]).contains("already"));
    assert_eq!(
        env.weir(&["mirror", "--all"]).lines().last(),
        Some("0 updated, 3 unchanged, 0 failed, 0 B written")
    );
    env.weir(&["fsck"]);
    let server = env.serve();
    env.assert_same(&server, "fork", &fork, "shared");
    env.weir(&["rm", "other"]);
    assert!(env.weir_fails(&["rm", "up"]).contains("build on it"));
    env.weir(&["dissociate", "fork"]);
    drop(server);
    let server = env.serve();
    env.assert_same(&server, "fork", &fork, "whole again");
    env.weir(&["rm", "up", "--delete"]);
    env.weir(&["fsck"]);
}

#[test]
fn forks_of_a_forge_share_if_that_is_wanted() {
    let env = Env::new();
    let up = env.odd_repository("o/r1.git");
    let mut repositories = vec![];
    for id in 1..=4u64 {
        if id > 1 {
            fork_of(&env, &up, &format!("o/r{id}.git"));
        }
        repositories.push(Listed {
            id,
            owner: "o",
            name: format!("r{id}"),
            pushed_at: "2024-01-01T00:00:00Z".into(),
            fork: id > 1,
        });
    }
    let daemon = env.git_daemon(&[]);
    // Forks are listed first, and the parent cannot be fetched at first.
    repositories.reverse();
    let forge = Forge::new(State { repositories, clone_base: daemon.url(""), ..State::default() });
    let text = format!(
        "[store]\nshare_forks = true\n[mirror]\nretry = \"1s\"\nthrottle_window = 0\n[[forge]]\ntype = \
        \"bitbucket\"\nurl = \"{}\"\nname = \"f\"\nclone_from = [\"{}\"]\n\
        [[access.rules]]\nrepositories = [\"f/o/r1\", \"f/o/r2\", \"f/o/r3\"]\npublic = false\n",
        forge.url(),
        daemon.url("")
    );
    std::fs::write(env.pool().join("weir.toml"), text).unwrap();
    env.weir(&["crawl"]);
    std::fs::rename(&up, env.path("away.git")).unwrap();
    let said = env.weir_fails(&["mirror", "--all"]);
    assert!(said.contains("f/o/r1"), "{said}");
    assert_eq!(
        env.weir_json(&["ls"]).as_array().unwrap().iter().filter(|r| !r["seq"].is_null()).count(),
        1,
        "forks wait, but for the one that may not share"
    );
    std::fs::rename(env.path("away.git"), &up).unwrap();
    let said = env.weir(&["mirror", "--all"]);
    assert!(said.contains("3 updated"), "{said}");
    for id in 2..=3 {
        assert_eq!(env.weir_json(&["show", &format!("f/o/r{id}")])["base"], "f/o/r1");
        let len = |id: u64| std::fs::metadata(env.pool().join(format!("store/f/o/r{id}.tar"))).unwrap().len();
        assert!(len(id) < len(1) / 4);
    }
    // Who may read the last one may not read the base.
    assert_eq!(env.weir(&["share", "f/o/r4"]), "");
    let said = env.weir_fails(&["share", "--reference", "f/o/r1", "f/o/r4"]);
    assert!(said.contains("f/o/r4: an access rule hides 'f/o/r1' from some"), "{said}");
    assert_eq!(env.weir_json(&["show", "f/o/r4"])["base"], serde_json::Value::Null);
    env.weir(&["fsck"]);
}
