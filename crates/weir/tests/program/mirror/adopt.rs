//! A lost catalog is made again from the store, and an extracted archive is updated by `git fetch`.

use crate::common::Env;

#[test]
fn a_lost_catalog_is_made_again_from_the_store() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let daemon = env.git_daemon(&[]);
    env.git(env.dir.path(), &["clone", "-q", "--mirror", up.to_str().unwrap(), "fork.git"]);
    env.weir(&["add", "--name", "host/owner/a", &daemon.url("up.git")]);
    env.weir(&["mirror"]);
    env.weir(&["add", "--reference", "host/owner/a", "--name", "host/other/fork", &daemon.url("fork.git")]);
    for _ in 0..3 {
        env.weir(&["mirror", "--all"]);
        let commit = env.git(&up, &["commit-tree", "-m", "more", "-p", "main", "main^{tree}"]);
        env.git(&up, &["update-ref", "refs/heads/main", &commit]);
    }
    env.weir(&["mirror", "--all"]);
    let before = env.weir_json(&["ls"]);
    for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(env.pool().join(name));
    }
    let said = env.weir(&["init"]);
    assert!(said.contains("made an empty catalog"), "{said}");
    assert_eq!(env.weir_json(&["ls"]).as_array().unwrap().len(), 0);
    std::fs::write(env.pool().join("store/host/stray.tar"), b"no archive").unwrap();
    assert!(env.weir_fails(&["adopt", "--dry-run"]).contains("2 would be registered, 1 skipped"));
    let said = env.weir_fails(&["adopt"]);
    assert!(said.contains("2 registered, 1 skipped") && said.contains("host/stray.tar"), "{said}");
    std::fs::remove_file(env.pool().join("store/host/stray.tar")).unwrap();
    assert!(env.weir(&["adopt"]).contains("0 registered, 0 skipped"));
    let after = env.weir_json(&["ls"]);
    let of = |list: &serde_json::Value| -> Vec<[String; 5]> {
        let row = |r: &serde_json::Value| {
            ["name", "url", "archive", "seq", "archive_bytes"].map(|key| r[key].to_string())
        };
        list.as_array().unwrap().iter().map(row).collect()
    };
    assert_eq!(of(&after), of(&before));
    // Visits go on under leases with higher numbers, and the base is known to be a base.
    let commit = env.git(&up, &["commit-tree", "-m", "after", "-p", "main", "main^{tree}"]);
    env.git(&up, &["update-ref", "refs/heads/main", &commit]);
    assert!(
        env.weir(&["mirror", "--all"]).contains("1 updated, 1 unchanged")
            || env.weir(&["mirror", "--all"]).contains("0 failed")
    );
    env.weir(&["fsck"]);
    assert!(env.weir_fails(&["rm", "--delete", "host/owner/a"]).contains("host/other/fork"));
    let server = env.serve();
    env.assert_same(&server, "host/owner/a", &up, "adopted");
}

#[test]
fn adopt_says_that_a_name_is_taken() {
    let env = Env::new();
    for name in ["one", "two"] {
        let up = env.init_bare(name);
        env.commit_file(&up, "refs/heads/main", name, b"a");
    }
    env.mirror_new("x", &env.path("one"));
    env.weir(&["rename", "x", "old"]);
    env.mirror_new("x", &env.path("two"));
    env.weir(&["rm", "old"]);
    for args in [&["adopt", "--dry-run"][..], &["adopt"]] {
        let said = env.weir_fails(args);
        assert!(
            said.contains("x.tar: the pool has another repository called 'x': rename the file"),
            "{said}"
        );
        assert!(said.contains("0 ") && said.contains(", 1 skipped"), "{said}");
    }
    let store = env.pool().join("store");
    std::fs::rename(store.join("x.tar"), store.join("old.tar")).unwrap();
    assert!(env.weir(&["adopt"]).contains("1 registered, 0 skipped"));
    assert_eq!(env.weir_json(&["show", "x"])["url"], env.path("two").to_str().unwrap());
    assert_eq!(env.weir_json(&["show", "old"])["url"], env.path("one").to_str().unwrap());
    env.weir(&["fsck"]);
}

#[test]
fn an_extracted_archive_goes_on_with_git_fetch() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "a", &daemon.url("up.git")]);
    env.weir(&["mirror"]);
    let archive = env.pool().join("store/a.tar");
    for compacted in [false, true] {
        if compacted {
            env.weir(&["compact"]);
        }
        let target = env.path(&format!("out{compacted}"));
        std::fs::create_dir(&target).unwrap();
        let tar = weir_testing::command("tar")
            .args(["xf", archive.to_str().unwrap(), "--no-same-owner"])
            .current_dir(&target)
            .status();
        assert!(tar.unwrap().success());
        let commit = env.git(&up, &["commit-tree", "-m", "more", "-p", "main", "main^{tree}"]);
        env.git(&up, &["update-ref", "refs/heads/main", &commit]);
        env.git(&target, &["fetch", "-q", "--prune"]);
        assert_eq!(env.picture(&target), env.picture(&up));
    }
    // The password of one repository is not written to the archive of another.
    env.weir(&["add", "--name", "secret", &format!("http://user:password@127.0.0.1:{}/up.git", daemon.port)]);
    env.weir(&["add", "--name", "ours", &format!("{}/up.git", env.dir.path().display())]);
    env.weir(&["mirror", "ours"]);
    let said = std::fs::read(env.pool().join("store/ours.tar")).unwrap();
    assert!(!String::from_utf8_lossy(&said).contains("password"));
}

#[test]
fn what_was_restored_stays_so_without_the_catalog() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    for name in ["kept", "r"] {
        env.weir(&["add", "--name", name, up.to_str().unwrap()]);
    }
    env.weir(&["mirror"]);
    let old = env.git(&up, &["rev-parse", "main"]);
    let commit = env.git(&up, &["commit-tree", "-m", "more", "-p", "main", "main^{tree}"]);
    env.git(&up, &["update-ref", "refs/heads/main", &commit]);
    env.weir(&["mirror", "--all"]);
    let first = |name: &str| {
        format!("{name}@{}", env.weir_json(&["log", name]).as_array().unwrap().last().unwrap()["seq"])
    };
    env.weir(&["restore", &first("r"), "--name", "copy"]);
    env.weir(&["restore", &first("kept")]);
    // The copy records that it was restored, also after a compaction.
    env.weir(&["compact", "copy"]);
    for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(env.pool().join(name));
    }
    env.weir(&["init"]);
    assert!(env.weir(&["adopt"]).contains("3 registered"));
    env.weir(&["mirror", "--all"]);
    let server = env.serve();
    let main = |name: &str| {
        env.git(env.dir.path(), &["ls-remote", &server.url(name), "refs/heads/main"])[..40].to_owned()
    };
    assert_eq!((main("kept"), main("copy"), main("r")), (old.clone(), old, commit.clone()));
    // It is mirrored again once it is asked for by name.
    env.weir(&["mirror", "kept"]);
    assert_eq!(main("kept"), commit);
}

#[test]
fn an_archive_of_another_upstream_is_not_served_under_a_name() {
    let env = Env::new();
    let (up, other) = (env.odd_repository("up.git"), env.odd_repository("other.git"));
    env.weir(&["add", "--name", "n", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.weir(&["rm", "n"]);
    let said = env.weir_fails(&["add", "--name", "n", other.to_str().unwrap()]);
    assert!(said.contains("a copy of") && said.contains("--name"), "{said}");
    assert_eq!(env.weir_json(&["ls"]).as_array().unwrap().len(), 0);
    // The archive is used again for the same upstream.
    env.weir(&["add", "--name", "n", up.to_str().unwrap()]);
    assert!(env.weir(&["mirror"]).contains("1 unchanged") || env.weir(&["fsck"]).contains("all intact"));
}

#[test]
fn init_around_archives_points_to_adopt() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let pool = env.pool();
    std::fs::remove_file(pool.join("catalog.db")).unwrap();
    let said = env.weir(&["init"]);
    let words = "; run 'weir adopt' to register its archives again\n";
    assert_eq!(said, format!("made an empty catalog for the pool at {}{words}", pool.display()));
    for file in ["catalog.db", "weir.toml"] {
        std::fs::remove_file(pool.join(file)).unwrap();
    }
    let said = env.weir(&["init"]);
    let words = "; run 'weir adopt' to register the archives in its store\n";
    assert_eq!(said, format!("made a pool at {}{words}", pool.display()));
    env.weir(&["adopt"]);
    assert_eq!(env.weir_json(&["ls"])[0]["name"], "up");
}
