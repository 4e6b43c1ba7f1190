//! Rot in the last commit of an archive: weir reports it, keeps the remains aside, and fetches the content
//! from the upstream again or reports it as lost. No commit number is used twice.

use std::path::{Path, PathBuf};

use crate::common::{Env, Rng};

/// Adds a commit to `branch` with a file of `len` random bytes; returns its id.
fn commit(env: &Env, upstream: &Path, branch: &str, rng: &mut Rng, len: usize) -> String {
    let (content, file) = (rng.bytes(len), format!("f{}", rng.below(1 << 30)));
    env.commit_file(upstream, &format!("refs/heads/{branch}"), &file, &content)
}

fn flip(path: &Path, at: usize, bit: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1 << bit;
    // The file is written in place: a rotten block does not change the file's inode or attributes.
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .map(|f| std::os::unix::fs::FileExt::write_all_at(&f, &bytes, 0).unwrap())
        .unwrap();
}

struct Mirrored {
    env: Env,
    up: PathBuf,
    archive: PathBuf,
    rng: Rng,
}

/// Returns an archive of `groups` commits.
fn mirrored(groups: u64, seed: u64) -> Mirrored {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let mut rng = Rng(seed);
    env.weir(&["add", "--name", "a", up.to_str().unwrap()]);
    for _ in 0..groups {
        commit(&env, &up, "main", &mut rng, 3000);
        env.weir(&["mirror", "--all"]);
    }
    let archive = env.pool().join("store/a.tar");
    Mirrored { env, up, archive, rng }
}

#[test]
fn a_bit_of_the_last_record() {
    let Mirrored { env, up, archive, mut rng } = mirrored(4, 3);
    let secret = commit(&env, &up, "secret", &mut rng, 3000);
    env.weir(&["mirror", "--all"]);
    env.git(&up, &["update-ref", "-d", "refs/heads/secret"]);
    let seq = env.weir_json(&["ls"])[0]["seq"].as_u64().unwrap();
    let whole = std::fs::read(&archive).unwrap();
    flip(&archive, whole.len() - 100, 0);
    let said = env.weir_fails(&["fsck"]);
    assert!(said.contains(&format!("commit {seq} is corrupt")), "{said}");
    // Meanwhile readers get the state before it. A check removes nothing.
    assert_eq!(env.weir_json(&["log", "a"])[0]["seq"].as_u64().unwrap(), seq - 1);
    assert_eq!(std::fs::metadata(&archive).unwrap().len(), whole.len() as u64);
    for command in [&["compact"][..], &["restore", "a@1"]] {
        let said = env.weir_fails(command);
        assert!(said.contains("fsck --repair"), "{said}");
    }
    assert_eq!(std::fs::metadata(&archive).unwrap().len(), whole.len() as u64);
    commit(&env, &up, "main", &mut rng, 3000);
    let said = env.weir(&["mirror"]);
    assert!(said.contains(&format!("a: commit {seq} is damaged; the remains are kept as")), "{said}");
    assert!(said.contains(&format!("1 refs of it cannot be restored: refs/heads/secret {secret}")), "{said}");
    let kept = std::fs::read(archive.with_file_name("a.tar.torn")).unwrap();
    assert!(whole.len() > kept.len() && !kept.is_empty());
    env.weir(&["fsck"]);
    let log = env.weir_json(&["log", "a"]);
    assert!(log[0]["seq"].as_u64().unwrap() > seq, "its number is not given again: {log}");
    let server = env.serve();
    env.assert_same(&server, "a", &up, "healed");
    env.weir(&["rm", "--delete", "a"]);
    assert!(env.stored().is_empty(), "{:?}", env.stored());
}

#[test]
fn an_unchanged_upstream_heals_it_too() {
    let Mirrored { env, up, archive, .. } = mirrored(3, 4);
    let len = std::fs::metadata(&archive).unwrap().len() as usize;
    flip(&archive, len - 700, 3);
    let said = env.weir(&["mirror", "--all"]);
    assert!(said.contains("a: commit 3 is damaged") && !said.contains("cannot be restored"), "{said}");
    env.weir(&["fsck"]);
    assert!(env.weir(&["mirror", "--all"]).contains("1 unchanged"));
    let server = env.serve();
    env.assert_same(&server, "a", &up, "healed");
    // The last commits are gone without a trace, in a file that was put in the archive's place.
    let whole = std::fs::read(&archive).unwrap();
    env.weir(&["mirror", "--all"]);
    std::fs::remove_file(&archive).unwrap();
    std::fs::write(&archive, &whole[..whole.len() / 1024 * 512]).unwrap();
    let said = env.weir(&["mirror", "--all"]);
    assert!(said.contains("gone") || said.contains("damaged"), "{said}");
    env.weir(&["fsck"]);
    env.assert_same(&server, "a", &up, "healed again");
}

#[test]
fn fsck_repair_goes_on_from_what_holds() {
    let Mirrored { env, up, archive, .. } = mirrored(3, 5);
    let len = std::fs::metadata(&archive).unwrap().len() as usize;
    flip(&archive, len - 100, 0);
    let said = env.weir(&["fsck", "--repair"]);
    assert!(said.contains("a: commit 3 is damaged; the remains are kept as"), "{said}");
    assert_eq!(env.stored(), ["a.tar", "a.tar.torn"]);
    assert_eq!(env.weir_json(&["log", "a"]).as_array().unwrap().len(), 3, "the states before are there");
    env.weir(&["fsck"]);
    let server = env.serve();
    env.assert_same(&server, "a", &up, "repaired");
}

#[test]
fn a_fork_on_a_base_that_lost_commits_is_healed() {
    let Mirrored { env, up, archive, mut rng } = mirrored(3, 6);
    env.git(&env.path(""), &["clone", "-q", "--mirror", up.to_str().unwrap(), "fork.git"]);
    let fork = env.path("fork.git");
    env.weir(&["add", "--reference", "a", "--name", "fork", fork.to_str().unwrap()]);
    env.weir(&["mirror"]);
    // For its new branch, the fork needs only what the base received last.
    commit(&env, &up, "x", &mut rng, 3000);
    env.weir(&["mirror", "a"]);
    env.git(&fork, &["fetch", "-q", up.to_str().unwrap(), "x:refs/heads/x"]);
    let said = env.weir(&["mirror", "fork"]);
    assert!(said.contains("0 objects") || said.contains("1 updated"), "{said}");
    env.git(&up, &["update-ref", "-d", "refs/heads/x"]);
    let len = std::fs::metadata(&archive).unwrap().len() as usize;
    flip(&archive, len - 100, 0);
    commit(&env, &up, "main", &mut rng, 3000);
    assert!(env.weir(&["mirror", "a"]).contains("is damaged"));
    // The visit of the fork finds the loss, and fetches the objects from the fork's own upstream.
    env.weir(&["mirror", "--all"]);
    env.weir(&["mirror", "--all"]);
    env.weir(&["fsck"]);
    let server = env.serve();
    env.assert_same(&server, "a", &up, "the base");
    env.assert_same(&server, "fork", &fork, "the fork");
}

/// Checks that fsck reports each of many flipped bits, and that the next visit reports and repairs it.
/// `WEIR_FLIPS` sets the number of bits.
#[test]
fn any_bit_is_told_of() {
    let flips: u64 = std::env::var("WEIR_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    let seed: u64 = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| std::process::id().into());
    println!("WEIR_SEED={seed}");
    let mut pick = Rng(seed | 1);
    let mut left = flips;
    while left > 0 {
        let Mirrored { env, up, archive, mut rng } =
            mirrored(1 + pick.below(if flips > 100 { 50 } else { 6 }), pick.below(1 << 40) | 1);
        for _ in 0..left.min(8) {
            left -= 1;
            let len = std::fs::metadata(&archive).unwrap().len();
            let (at, bit) = (pick.below(len), pick.below(8));
            let states = || -> Vec<String> {
                env.weir_json(&["log", "a"])
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|state| format!("{} {}", state["seq"], state["changes"]))
                    .collect()
            };
            let before = states();
            flip(&archive, at as usize, bit);
            let is_told = |command: &[&str]| {
                let output = env.weir_command(command).output().unwrap();
                assert!(
                    !output.status.success(),
                    "WEIR_SEED={seed}: bit {bit} of byte {at} of {}: {output:?}",
                    archive.display()
                );
            };
            // A visit alone finds damage in the last commits; after fsck, a visit finds all damage.
            let is_checked = pick.below(2) == 0;
            if is_checked {
                is_told(&["fsck"]);
            }
            commit(&env, &up, "main", &mut rng, 3000);
            let said = env.weir(&["mirror", "--all"]);
            if is_checked {
                assert!(said.contains("damaged"), "WEIR_SEED={seed}: bit {bit} of byte {at}: {said}");
            } else if !said.contains("damaged") && std::fs::metadata(&archive).unwrap().len() < len {
                // The archive was compacted meanwhile: the damaged bytes belonged to nothing that is needed.
                let after = states();
                assert!(
                    before.iter().all(|state| after.contains(state)),
                    "WEIR_SEED={seed}: bit {bit} of byte {at}: {said}"
                );
            } else if !said.contains("damaged") {
                is_told(&["fsck"]);
                let said = env.weir(&["mirror", "--all"]);
                assert!(said.contains("damaged"), "WEIR_SEED={seed}: bit {bit} of byte {at}: {said}");
            }
            env.weir(&["fsck"]);
            for name in env.stored().iter().filter(|name| *name != "a.tar") {
                std::fs::remove_file(archive.with_file_name(name)).unwrap();
            }
        }
        let server = env.serve();
        env.assert_same(&server, "a", &up, &format!("WEIR_SEED={seed}"));
    }
}

#[test]
fn an_archive_that_lost_its_refs_is_not_an_empty_one() {
    let Mirrored { env, up, archive, .. } = mirrored(4, 11);
    env.weir(&["compact"]);
    let (log, refs) = (env.weir_json(&["log", "a"]), env.git(&up, &["ls-remote", "."]));
    let whole = std::fs::read(&archive).unwrap();
    let cut =
        |len: u64| std::fs::OpenOptions::new().write(true).open(&archive).unwrap().set_len(len).unwrap();
    // The last bytes belong to a commit whose loss changes nothing.
    cut(whole.len() as u64 - 1);
    {
        let server = env.serve();
        assert_eq!(env.git(env.dir.path(), &["ls-remote", &server.url("a")]), refs);
    }
    assert_eq!(env.weir_json(&["log", "a"]), log);
    assert!(env.weir_fails(&["fsck"]).contains("damaged"));
    let said = env.weir(&["mirror", "--all"]);
    assert!(said.contains("is damaged; the remains are kept as") && !said.contains("older states"), "{said}");
    assert_eq!(env.weir_json(&["log", "a"]), log);
    env.weir(&["fsck"]);

    // The commits before hold the refs and all older states: without them the archive has objects only.
    env.weir(&["compact"]);
    let mut len = std::fs::metadata(&archive).unwrap().len();
    while env.weir_command(&["log", "a"]).output().unwrap().status.success() {
        len -= 512;
        cut(len);
    }
    let server = env.serve();
    let listed = env.git_command(env.dir.path(), &["ls-remote", &server.url("a")]).output().unwrap();
    assert!(!listed.status.success(), "an empty repository: {listed:?}");
    for command in [&["export", "a", "out.git"][..], &["compact"], &["fsck"], &["restore", "a@1"]] {
        let said = env.weir_fails(command);
        assert!(said.contains("damaged"), "{command:?}: {said}");
    }
    let said = env.weir(&["mirror", "--all"]);
    assert!(said.contains("older states of the refs are lost") && said.contains("a.tar.torn"), "{said}");
    env.weir(&["fsck"]);
    env.assert_same(&server, "a", &up, "healed");
}

#[test]
fn a_visit_that_goes_on_from_damage_and_is_killed_is_not_the_last() {
    let Mirrored { env, up, archive, .. } = mirrored(3, 12);
    let len = std::fs::metadata(&archive).unwrap().len() as usize;
    flip(&archive, len - 100, 0);
    // The upstream lists the same refs as before, but it lacks an object.
    let blob = env.git(&up, &["rev-parse", "main:"]);
    let object = up.join(format!("objects/{}/{}", &blob[..2], &blob[2..]));
    let kept = std::fs::read(&object).unwrap();
    std::fs::remove_file(&object).unwrap();
    // The visit is as if killed: the catalog is set back afterwards, and knows nothing of it.
    let files = |end: &str| (env.pool().join(format!("catalog.db{end}")), env.path(&format!("catalog{end}")));
    let ends =
        ["", "-wal", "-shm"].map(files).into_iter().filter(|(file, _)| file.exists()).collect::<Vec<_>>();
    for (file, copy) in &ends {
        std::fs::copy(file, copy).unwrap();
    }
    let said = env.weir_fails(&["mirror", "--all"]);
    assert!(said.contains("is damaged; continuing from its last intact commit"), "{said}");
    for (file, copy) in &ends {
        std::fs::copy(copy, file).unwrap();
    }
    std::fs::write(&object, kept).unwrap();
    let said = env.weir(&["mirror", "--all"]);
    assert!(!said.contains("1 unchanged"), "{said}");
    let server = env.serve();
    env.assert_same(&server, "a", &up, "healed");
    assert!(env.weir(&["mirror", "--all"]).contains("1 unchanged"));
}

#[test]
fn what_a_kill_leaves_is_no_damage() {
    let Mirrored { env, up, archive, .. } = mirrored(3, 13);
    let log = env.weir_json(&["log", "a"]);
    let mut file = std::fs::OpenOptions::new().append(true).open(&archive).unwrap();
    std::io::Write::write_all(&mut file, &[0x5a; 700]).unwrap();
    let said = env.weir(&["fsck"]);
    assert!(
        said.contains("all intact") && said.contains("were never committed; the next visit that changes"),
        "{said}"
    );
    env.weir(&["fsck", "--repair"]);
    env.weir(&["mirror", "--all"]);
    assert_eq!(env.weir_json(&["log", "a"]), log);
    assert_eq!(env.stored(), ["a.tar"]);
    let server = env.serve();
    env.assert_same(&server, "a", &up, "after a kill");
}

#[test]
fn what_is_left_of_a_commit_is_kept_without_the_mark_too() {
    let Mirrored { env, up, archive, .. } = mirrored(3, 14);
    let whole = std::fs::read(&archive).unwrap();
    // A copy of the file, without its extended attributes and without the end of its last commit.
    std::fs::remove_file(&archive).unwrap();
    std::fs::write(&archive, &whole[..whole.len() - 1024]).unwrap();
    assert!(env.weir_fails(&["fsck"]).contains("never committed"));
    let said = env.weir(&["mirror", "--all"]);
    assert!(said.contains("commit 3 is damaged; the remains are kept as"), "{said}");
    let kept = std::fs::read(archive.with_file_name("a.tar.torn")).unwrap();
    assert!(whole[..whole.len() - 1024].ends_with(&kept) && kept.len() > 1000);
    let server = env.serve();
    env.assert_same(&server, "a", &up, "healed");
}

#[test]
fn an_archive_that_is_damaged_twice_is_cloned_anew() {
    let Mirrored { env, up, archive, .. } = mirrored(3, 15);
    let bytes = std::fs::read(&archive).unwrap();
    let index = bytes.windows(4).position(|w| w == b"\xfftOc").unwrap();
    for bit in 0..8 {
        flip(&archive, index + 0x108, bit);
    }
    flip(&archive, bytes.len() - 100, 0);
    assert!(env.weir_fails(&["fsck"]).contains("corrupt"));
    env.weir(&["mirror", "--all"]);
    env.weir(&["fsck"]);
    assert!(env.stored().contains(&"a.tar.damaged".to_owned()), "{:?}", env.stored());
    let server = env.serve();
    env.assert_same(&server, "a", &up, "cloned anew");
}
