//! Every command that writes archives is killed at random moments, on a disk that is full now and then: no
//! committed state is lost, no object is wrong, no number is used twice. `WEIR_KILLS=500` for more kills.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use crate::common::lfs::{Upstream, lfs_objects, noise};
use crate::common::{Env, Rng};

/// A small disk for the store, if the machine lets it be mounted.
struct Disk(Option<PathBuf>);

impl Disk {
    fn for_store(env: &Env) -> Disk {
        let mount = env.path("disk");
        std::fs::create_dir(&mount).unwrap();
        let mounted = weir_testing::command("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
            .arg(&mount)
            .status();
        if !mounted.is_ok_and(|s| s.success()) {
            return Disk(None);
        }
        let store = env.pool().join("store");
        assert!(weir_testing::command("cp").arg("-a").args([&store, &mount]).status().unwrap().success());
        std::fs::remove_dir_all(&store).unwrap();
        std::os::unix::fs::symlink(mount.join("store"), &store).unwrap();
        Disk(Some(mount))
    }

    /// Leaves only little room.
    fn fill(&self, rng: &mut Rng) {
        if let Some(mount) = &self.0 {
            // Takes all the room, and then gives a little of it back.
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
            let _ = weir_testing::command("umount").arg("-l").arg(mount).status();
        }
    }
}

/// The changes of each state, by repository and number.
type States = BTreeMap<(String, u64), String>;

/// Returns the states of the repositories `names`.
fn states(env: &Env, names: &[&str]) -> States {
    let mut all = BTreeMap::new();
    for name in names {
        // A partial state is left out: the rest follows it.
        for state in
            env.weir_json(&["log", name]).as_array().unwrap().iter().filter(|state| state["partial"] == false)
        {
            all.insert(((*name).to_owned(), state["seq"].as_u64().unwrap()), state["changes"].to_string());
        }
    }
    all
}

/// The names of the mirrors.
const NAMES: [&str; 5] = ["u0", "u1", "u2", "f", "l"];

/// Returns the content of a file that Git LFS keeps, another one for each `n`.
fn file(n: u64) -> Vec<u8> {
    noise(n, 1000 + n as usize % 7 * 3000)
}

/// Upstreams and their mirrors, which change at random.
struct Writers {
    /// Mounted in the folder of `env`, so it must be dropped first: fields are dropped in order.
    disk: Disk,
    env: Env,
    seed: u64,
    rng: Rng,
    /// The upstream of each of `NAMES` but the last.
    ups: Vec<PathBuf>,
    /// The upstream whose files Git LFS keeps.
    large: Upstream,
}

impl Writers {
    fn new(seed: u64) -> Writers {
        let env = Env::new();
        let disk = Disk::for_store(&env);
        env.configure("archive", "packs_max = 4");
        env.configure("store", "free_bytes_min = 0");
        let mut ups: Vec<PathBuf> = (0..3).map(|n| env.odd_repository(&format!("u{n}.git"))).collect();
        for (n, up) in ups.iter().enumerate() {
            env.weir(&["add", "--name", &format!("u{n}"), up.to_str().unwrap()]);
        }
        env.git(env.dir.path(), &["clone", "-q", "--mirror", ups[0].to_str().unwrap(), "f.git"]);
        env.weir(&["mirror"]);
        ups.push(env.path("f.git"));
        env.weir(&["add", "--reference", "u0", "--name", "f", ups[3].to_str().unwrap()]);
        env.weir(&["mirror"]);
        let large = Upstream::new(&env, "l.git");
        large.put(&file(0));
        large.commit(&env, &[&file(0)]);
        env.weir(&["add", "--name", "l", large.0.to_str().unwrap()]);
        env.weir(&["set", "--lfs", "true", "l"]);
        env.weir(&["mirror"]);
        Writers { disk, env, seed, rng: Rng(seed | 1), ups, large }
    }

    /// Adds a commit to each upstream.
    fn change_upstreams(&mut self, round: u64) {
        for (n, up) in self.ups.iter().enumerate() {
            let message = format!("{round} {n}");
            let commit = self.env.git(up, &["commit-tree", "-m", &message, "-p", "main", "main^{tree}"]);
            let names = ["refs/heads/main", "refs/heads/other", "refs/pull/9/head"];
            self.env.git(up, &["update-ref", names[self.rng.below(3) as usize], &commit]);
        }
        let files = [file(round), file(round + 1)];
        self.large.put(&files[1]);
        self.large.commit(&self.env, &[&files[0], &files[1]]);
    }

    /// Returns a command that writes, with its arguments.
    fn command(&mut self, round: u64) -> Vec<String> {
        let name = NAMES[self.rng.below(5) as usize];
        let log = self.env.weir_json(&["log", name]);
        let log = log.as_array().unwrap();
        let state = format!("{name}@{}", log[self.rng.below(log.len() as u64) as usize]["seq"]);
        let copy = format!("copy{round}");
        let clones = self.env.path("clones");
        let clones = clones.to_str().unwrap();
        let args: Vec<&str> = match self.rng.below(11) {
            0 => vec!["compact"],
            1 => vec!["restore", &state],
            2 => vec!["restore", &state, "--name", &copy],
            3 => vec!["dissociate", "f"],
            4 => vec!["share", "--reference", "u0", "f"],
            5 => vec!["fsck", "--repair"],
            6 => vec!["export", name, "out.tar"],
            7 => {
                let url = self.env.path(&format!("clone{round}"));
                std::os::unix::fs::symlink(&self.ups[0], &url).unwrap();
                let at = self.env.dir.path();
                self.env.git(at, &["clone", "-q", "--mirror", url.to_str().unwrap(), clones]);
                vec!["import", "clones", clones]
            }
            _ => vec!["mirror", "--all"],
        };
        args.into_iter().map(str::to_owned).collect()
    }

    /// Runs a command on a disk that may be full, and kills it.
    fn kill(&mut self, args: &[String]) {
        if self.rng.below(4) == 0 {
            self.disk.fill(&mut self.rng);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut child =
            self.env.weir_command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(self.rng.below(90_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        self.disk.empty();
        let _ = std::fs::remove_file(self.env.path("out.tar"));
    }

    /// Checks that archives are whole and have all states of `before`; returns their states.
    fn check(&self, before: &States, what: &str) -> States {
        let checked = self.env.weir_command(&["fsck"]).output().unwrap();
        assert!(
            checked.status.success(),
            "{what}: {}{}",
            String::from_utf8_lossy(&checked.stdout),
            String::from_utf8_lossy(&checked.stderr)
        );
        let after = states(&self.env, &NAMES);
        for (state, change) in before {
            assert_eq!(after.get(state), Some(change), "{what}: {state:?}");
        }
        after
    }

    /// Removes what a command of this round has added.
    fn clean(&self, round: u64) {
        // The name of a local upstream is its path.
        let clone = self.env.path(&format!("clone{round}"));
        let clone = clone.to_str().unwrap().trim_matches('/');
        for name in [format!("copy{round}").as_str(), clone] {
            let archive = self.env.pool().join(format!("store/{name}.tar"));
            if archive.exists() {
                let _ = self.env.weir_command(&["rm", "--delete", name]).output().unwrap();
                let _ = std::fs::remove_file(archive);
            }
        }
        let _ = std::fs::remove_dir_all(self.env.path("clones"));
    }

    /// Checks that each mirror is brought up to date, and that nothing was put aside as damaged.
    fn mirrors_all(&self) {
        let env = &self.env;
        // A repository that was restored is mirrored again if it is named.
        for name in NAMES {
            env.weir(&["mirror", name]);
        }
        env.weir(&["fsck"]);
        assert!(lfs_objects(env, "l").0 >= 2);
        let server = env.serve();
        for (name, up) in NAMES.iter().zip(self.ups.iter().chain([&self.large.0])) {
            env.assert_same(&server, name, up, &format!("WEIR_SEED={}", self.seed));
        }
        assert_eq!(
            env.stored().iter().filter(|name| name.contains(".torn") || name.contains(".damaged")).count(),
            0,
            "{:?}",
            env.stored()
        );
    }
}

#[test]
fn no_committed_state_is_lost() {
    let kills: u64 = std::env::var("WEIR_KILLS").map_or(40, |n| n.parse().unwrap());
    let clock =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed: u64 = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(clock);
    println!("WEIR_SEED={seed}");
    let mut writers = Writers::new(seed);
    let mut before = states(&writers.env, &NAMES);
    for round in 0..kills {
        writers.change_upstreams(round);
        let args = writers.command(round);
        writers.kill(&args);
        before = writers.check(&before, &format!("WEIR_SEED={seed}, round {round}, {args:?}"));
        writers.clean(round);
    }
    writers.mirrors_all();
}
