//! Every command that writes archives, killed at random moments, on a disk that is full now and then: no
//! committed state is lost, no object is wrong, no number is given twice. `WEIR_KILLS=500` for more of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::lfs::{Upstream, lfs_objects, noise};
use crate::common::{Env, Rng};

/// A small disk for the store, where the machine lets one be mounted.
struct Disk(Option<PathBuf>);

impl Disk {
    fn for_store(env: &Env) -> Disk {
        let mount = env.path("disk");
        std::fs::create_dir(&mount).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(&mount).status();
        if !mounted.is_ok_and(|s| s.success()) {
            return Disk(None);
        }
        let store = env.pool().join("store");
        assert!(Command::new("cp").arg("-a").args([&store, &mount]).status().unwrap().success());
        std::fs::remove_dir_all(&store).unwrap();
        std::os::unix::fs::symlink(mount.join("store"), &store).unwrap();
        Disk(Some(mount))
    }

    /// Leaves only little room.
    fn fill(&self, rng: &mut Rng) {
        if let Some(mount) = &self.0 {
            // As much as there is, and a little less.
            let mut data = vec![7; 32 << 20];
            while std::fs::write(mount.join("filler"), &data).is_err() {
                data.truncate(data.len().saturating_sub(64 << 10));
            }
            data.truncate(data.len().saturating_sub(rng.below(400_000) as usize));
            std::fs::write(mount.join("filler"), &data).unwrap();
        }
    }

    fn empty(&self) {
        if let Some(mount) = &self.0 {
            let _ = std::fs::remove_file(mount.join("filler"));
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(mount) = &self.0 {
            let _ = Command::new("umount").arg("-l").arg(mount).status();
        }
    }
}

/// What each repository's states changed, by number.
fn states(env: &Env, names: &[&str]) -> BTreeMap<(String, u64), String> {
    let mut all = BTreeMap::new();
    for name in names {
        // What is on its way is followed by the rest.
        for state in
            env.weir_json(&["log", name]).as_array().unwrap().iter().filter(|state| state["partial"] == false)
        {
            all.insert(((*name).to_owned(), state["seq"].as_u64().unwrap()), state["changes"].to_string());
        }
    }
    all
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn no_committed_state_is_lost() {
    let kills: u64 = std::env::var("WEIR_KILLS").map_or(40, |n| n.parse().unwrap());
    let clock =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed: u64 = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(clock);
    println!("WEIR_SEED={seed}");
    let mut rng = Rng(seed | 1);
    let env = Env::new();
    let disk = Disk::for_store(&env);
    env.configure("archive", "packs_max = 4");
    env.configure("store", "free_bytes_min = 0");
    let ups: Vec<PathBuf> = (0..3).map(|n| env.odd_repository(&format!("u{n}.git"))).collect();
    for (n, up) in ups.iter().enumerate() {
        env.weir(&["add", "--name", &format!("u{n}"), up.to_str().unwrap()]);
    }
    env.git(env.dir.path(), &["clone", "-q", "--mirror", ups[0].to_str().unwrap(), "f.git"]);
    env.weir(&["mirror"]);
    env.weir(&["add", "--reference", "u0", "--name", "f", env.path("f.git").to_str().unwrap()]);
    env.weir(&["mirror"]);
    // One has files that Git LFS keeps beside it.
    let large = Upstream::new(&env, "l.git");
    let file = |n: u64| noise(n, 1000 + n as usize % 7 * 3000);
    large.put(&file(0));
    large.commit(&env, &[&file(0)]);
    env.weir(&["add", "--name", "l", large.0.to_str().unwrap()]);
    env.weir(&["set", "--lfs", "true", "l"]);
    env.weir(&["mirror"]);
    let names = ["u0", "u1", "u2", "f", "l"];
    let all: Vec<PathBuf> = ups.into_iter().chain([env.path("f.git")]).collect();
    let mut before = states(&env, &names);
    for round in 0..kills {
        for (n, up) in all.iter().enumerate() {
            let message = format!("{round} {n}");
            let commit = env.git(up, &["commit-tree", "-m", &message, "-p", "main", "main^{tree}"]);
            env.git(
                up,
                &[
                    "update-ref",
                    ["refs/heads/main", "refs/heads/other", "refs/pull/9/head"][rng.below(3) as usize],
                    &commit,
                ],
            );
        }
        let files = [file(round), file(round + 1)];
        large.put(&files[1]);
        large.commit(&env, &[&files[0], &files[1]]);
        let name = names[rng.below(5) as usize];
        let log = env.weir_json(&["log", name]);
        let log = log.as_array().unwrap();
        let state = format!("{name}@{}", log[rng.below(log.len() as u64) as usize]["seq"]);
        let copy = format!("copy{round}");
        let (clones, clone) = (env.path("clones"), format!("clone{round}"));
        let args: Vec<&str> = match rng.below(11) {
            0 => vec!["compact"],
            1 => vec!["restore", &state],
            2 => vec!["restore", &state, "--name", &copy],
            3 => vec!["dissociate", "f"],
            4 => vec!["share", "--reference", "u0", "f"],
            5 => vec!["fsck", "--repair"],
            6 => vec!["export", name, "out.tar"],
            7 => {
                std::os::unix::fs::symlink(&all[0], env.path(&clone)).unwrap();
                let url = env.path(&clone);
                env.git(
                    env.dir.path(),
                    &["clone", "-q", "--mirror", url.to_str().unwrap(), clones.to_str().unwrap()],
                );
                vec!["import", "clones", clones.to_str().unwrap()]
            }
            _ => vec!["mirror", "--all"],
        };
        if rng.below(4) == 0 {
            disk.fill(&mut rng);
        }
        let mut child = env.weir_command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(rng.below(90_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        disk.empty();
        let _ = std::fs::remove_file(env.path("out.tar"));
        let what = format!("WEIR_SEED={seed}, round {round}, {args:?}");
        let checked = env.weir_command(&["fsck"]).output().unwrap();
        assert!(
            checked.status.success(),
            "{what}: {}{}",
            String::from_utf8_lossy(&checked.stdout),
            String::from_utf8_lossy(&checked.stderr)
        );
        let after = states(&env, &names);
        for (state, change) in &before {
            assert_eq!(after.get(state), Some(change), "{what}: {state:?}");
        }
        before = after;
        // A local upstream is called by its path.
        let clone = env.path(&clone).to_str().unwrap().trim_matches('/').to_owned();
        for name in [&copy, &clone] {
            if env.pool().join(format!("store/{name}.tar")).exists() {
                let _ = env.weir_command(&["rm", "--delete", name]).output().unwrap();
                let _ = std::fs::remove_file(env.pool().join(format!("store/{name}.tar")));
            }
        }
        let _ = std::fs::remove_dir_all(&clones);
    }
    // What was restored is mirrored again, once it is asked for.
    for name in names {
        env.weir(&["mirror", name]);
    }
    env.weir(&["fsck"]);
    assert!(lfs_objects(&env, "l").0 >= 2);
    let server = env.serve();
    for (name, up) in names.iter().zip(all.iter().chain([&large.0])) {
        env.assert_same(&server, name, up, &format!("WEIR_SEED={seed}"));
    }
    assert_eq!(
        env.stored().iter().filter(|name| name.contains(".torn") || name.contains(".damaged")).count(),
        0,
        "{:?}",
        env.stored()
    );
}
