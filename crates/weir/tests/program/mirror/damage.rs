//! Archives that the disk has damaged: a new clone takes the place of each, and the damaged file is kept.

use crate::common::Env;
use std::path::PathBuf;

fn mirrored() -> (Env, crate::common::Server, PathBuf, PathBuf) {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "a", &daemon.url("up.git")]);
    env.weir(&["mirror"]);
    let archive = env.pool().join("store/a.tar");
    (env, daemon, upstream, archive)
}

fn commit(env: &Env, upstream: &std::path::Path) {
    let commit = env.git(upstream, &["commit-tree", "-m", "more", "-p", "main", "main^{tree}"]);
    env.git(upstream, &["update-ref", "refs/heads/main", &commit]);
}

#[test]
fn a_visit_that_finds_damage_clones_anew() {
    let (env, daemon, upstream, archive) = mirrored();
    let seq = env.weir_json(&["ls"])[0]["seq"].as_u64().unwrap();
    let whole = std::fs::read(&archive).unwrap();
    for (n, damage) in
        [whole[..whole.len() / 2].to_vec(), Vec::new(), vec![0x55; whole.len()]].into_iter().enumerate()
    {
        std::fs::write(&archive, &damage).unwrap();
        commit(&env, &upstream);
        let said = env.weir(&["mirror", "--all"]);
        assert!(said.contains("damaged") && said.contains("1 updated"), "{said}");
        let kept = archive.with_file_name(if n == 0 {
            "a.tar.damaged".to_owned()
        } else {
            format!("a.tar.damaged-{}", n + 1)
        });
        assert_eq!(std::fs::read(kept).unwrap(), damage);
        env.weir(&["fsck"]);
        assert!(env.weir_json(&["ls"])[0]["seq"].as_u64().unwrap() > seq, "its numbers go on");
        let server = env.serve();
        env.assert_same(&server, "a", &upstream, "cloned anew");
    }
    // This ends when many damaged files are kept: the disk needs a check.
    for n in 4..=9 {
        std::fs::write(archive.with_file_name(format!("a.tar.damaged-{n}")), "").unwrap();
    }
    std::fs::write(&archive, b"no tar").unwrap();
    commit(&env, &upstream);
    let said = env.weir_fails(&["mirror", "--all"]);
    assert!(said.contains("check the disk"), "{said}");
    assert_eq!(std::fs::read(&archive).unwrap(), b"no tar");
    drop(daemon);
}

#[test]
fn what_cannot_be_replaced_stays_and_what_is_well_is_left_alone() {
    let (env, daemon, upstream, archive) = mirrored();
    let inode =
        |path: &std::path::Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let before = inode(&archive);
    commit(&env, &upstream);
    env.weir(&["mirror", "--all"]);
    assert_eq!(env.weir(&["fsck", "--repair"]).lines().count(), 1);
    assert_eq!(inode(&archive), before);
    // The upstream is gone, or is empty, when the damage is found.
    let damage = std::fs::read(&archive).unwrap()[..4096].to_vec();
    std::fs::write(&archive, &damage).unwrap();
    drop(daemon);
    env.weir_fails(&["mirror", "--all"]);
    assert!(env.weir_fails(&["fsck", "--repair"]).contains("not repaired"));
    assert_eq!(std::fs::read(&archive).unwrap(), damage);
    std::fs::rename(&upstream, env.path("old.git")).unwrap();
    env.init_bare("up.git");
    let daemon = env.git_daemon(&[]);
    std::fs::write(env.path("list"), format!("{} b\n", daemon.url("up.git"))).unwrap();
    env.weir(&["add", "--from", env.path("list").to_str().unwrap()]);
    std::fs::copy(&archive, archive.with_file_name("b.tar")).unwrap();
    let said = env.weir_fails(&["mirror", "b"]);
    assert!(said.contains("its upstream is empty"), "{said}");
    assert_eq!(std::fs::read(archive.with_file_name("b.tar")).unwrap(), damage);
}

#[test]
fn a_flipped_bit_is_found_by_fsck_and_repaired() {
    let (env, _daemon, upstream, archive) = mirrored();
    let mut bytes = std::fs::read(&archive).unwrap();
    let pack = bytes.windows(4).position(|w| w == b"PACK").unwrap();
    bytes[pack + 40] ^= 1;
    std::fs::write(&archive, &bytes).unwrap();
    env.weir_fails(&["fsck"]);
    let said = env.weir(&["fsck", "--repair"]);
    assert!(said.contains("a: cloned again; the damaged archive is "), "{said}");
    assert_eq!(std::fs::read(archive.with_file_name("a.tar.damaged")).unwrap(), bytes);
    env.weir(&["fsck"]);
    let server = env.serve();
    env.assert_same(&server, "a", &upstream, "repaired");
    assert!(
        env.weir(&["mirror"]).contains("1 unchanged"),
        "it is looked at once more, and nothing is to be done"
    );
}
