//! weir is killed at random points: the result is the same as without kills, and little is done twice.
//! `WEIR_KILLS=200` for more kills.

use crate::common::forge::{Forge, Listed, State};
use crate::common::{Env, Rng};
use std::process::Stdio;
use std::time::{Duration, Instant};

fn kills_wanted() -> usize {
    std::env::var("WEIR_KILLS").map_or(40, |n| n.parse().unwrap())
}

/// Runs weir until it ends by itself. Before that, kills it up to `left` times, each time after less than
/// `most` milliseconds; returns the number of kills.
fn run_and_kill(env: &Env, args: &[&str], rng: &mut Rng, most: u64, left: usize) -> usize {
    for kills in 0..left {
        let mut child = env.weir_command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(rng.below(most)));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return kills;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    env.weir(args);
    left
}

fn names(env: &Env) -> Vec<(String, String)> {
    let list = env.weir_json(&["ls"]);
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(|r| (text(&r["name"]), text(&r["url"]))).collect()
}

#[test]
fn a_crawl() {
    let one = |n: u64| Listed {
        id: n,
        owner: if n.is_multiple_of(2) { "even" } else { "odd" },
        name: format!("r{n}"),
        pushed_at: "2024-01-01T00:00:00Z".into(),
        fork: false,
    };
    let forge = Forge::new(State {
        repositories: (1..=3000).map(one).collect(),
        clone_base: "https://h/".into(),
        slow: Duration::from_millis(8),
        ..State::default()
    });
    let (env, undisturbed) = (Env::new(), Env::new());
    for env in [&env, &undisturbed] {
        let text = format!(
            "[[forge]]\ntype = \"github\"\nurl = \"{}\"\nname = \"f\"\nclone_from = [\"https://h\"]\n",
            forge.url()
        );
        std::fs::write(env.pool().join("weir.toml"), text).unwrap();
    }
    let lists =
        |forge: &Forge| forge.state().log.iter().filter(|l| l.starts_with("/api/v3/repositories?")).count();
    let mut rng = Rng(0x911);
    let (mut kills, mut round) = (0, 0);
    let wanted = kills_wanted();
    while kills < wanted {
        {
            // Some repositories have new names this time, one is gone, and one is new.
            let mut state = forge.state();
            for n in 0..20 {
                let at = rng.below(state.repositories.len() as u64) as usize;
                state.repositories[at].name = format!("round{round}-{n}");
            }
            let gone = rng.below(state.repositories.len() as u64) as usize;
            state.repositories.remove(gone);
            state.repositories.push(one(10_000 + round));
            state.log.clear();
        }
        undisturbed.weir(&["crawl"]);
        let needed = lists(&forge);
        forge.state().log.clear();
        let killed = run_and_kill(&env, &["-q", "crawl"], &mut rng, 150, wanted - kills);
        // A crawl that is killed after the last page, but before the end is stored, begins another listing.
        let begun = forge.state().log.iter().filter(|l| l.contains("repositories?since=0&")).count();
        assert!(
            lists(&forge) <= needed * begun.max(1) + killed,
            "{} lists, {needed} needed, {killed} kills",
            lists(&forge)
        );
        (kills, round) = (kills + killed, round + 1);
        assert_eq!(names(&env), names(&undisturbed), "round {round}");
    }
    let counts = |env: &Env| env.weir_json(&["status"])["counts"].clone();
    assert_eq!(counts(&env)["gone"], counts(&undisturbed)["gone"]);
    assert!(counts(&env)["gone"].as_u64().unwrap() + 2 > round);
}

#[test]
fn passes_of_fetches() {
    const COUNT: usize = 10;
    const COMPACTED_AFTER: usize = 45;
    let (env, undisturbed) = (Env::new(), Env::new());
    let (log, hook) = (env.path("packs.log"), env.path("hook"));
    std::fs::write(&hook, format!("#!/bin/sh\necho pack >> '{}'\nexec \"$@\"\n", log.display())).unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    env.git(env.dir.path(), &["config", "--global", "uploadpack.packObjectsHook", hook.to_str().unwrap()]);
    let daemon = env.git_daemon(&[]);
    for n in 0..COUNT {
        let name = format!("u{n}.git");
        env.odd_repository(&name);
        for env in [&env, &undisturbed] {
            env.weir(&["add", "--name", &format!("u{n}"), &daemon.url(&name)]);
        }
    }
    // The number of packs that git has made since the last call.
    let packs = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        std::fs::write(&log, "").unwrap();
        text.lines().count()
    };
    let state = |env: &Env| -> Vec<(String, u64, u64)> {
        let list = env.weir_json(&["ls"]);
        let number = |v: &serde_json::Value| v.as_u64().unwrap();
        list.as_array()
            .unwrap()
            .iter()
            .map(|r| (r["name"].as_str().unwrap().to_owned(), number(&r["seq"]), number(&r["refs"])))
            .collect()
    };
    let mut rng = Rng(0x912);
    let (mut kills, mut round) = (0, 0);
    let wanted = kills_wanted();
    while kills < wanted {
        undisturbed.weir(&["mirror", "--all"]);
        let needed = packs();
        let killed =
            run_and_kill(&env, &["-q", "mirror", "--all", "--jobs", "1"], &mut rng, 180, wanted - kills);
        let made = packs();
        assert!(made <= needed + killed, "{made} packs, {needed} needed, {killed} kills");
        // Later the archives are compacted, and a kill puts a compaction off to the next change.
        if round < COMPACTED_AFTER {
            assert_eq!(state(&env), state(&undisturbed), "round {round}");
        }
        (kills, round) = (kills + killed, round + 1);
        for n in 0..COUNT {
            let at = env.path(&format!("u{n}.git"));
            let commit =
                env.git(&at, &["commit-tree", "-m", &format!("round {round}"), "-p", "main", "main^{tree}"]);
            env.git(&at, &["update-ref", "refs/heads/main", &commit]);
        }
    }
    env.weir(&["mirror", "--all"]);
    env.weir(&["fsck"]);
    let server = env.serve();
    for n in 0..COUNT {
        env.assert_same(&server, &format!("u{n}"), &env.path(&format!("u{n}.git")), "after all that");
    }
    assert_eq!(env.stored().len(), COUNT, "nothing half-written: {:?}", env.stored());
}

#[test]
fn visits_at_random_moments() {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11);
    println!("WEIR_SEED={seed}");
    let mut rng = Rng(seed);
    let env = Env::new();
    let mut upstreams = Vec::new();
    for i in 0..6 {
        let name = format!("r{i}.git");
        let upstream = env.odd_repository(&name);
        env.weir(&["add", "--name", &format!("r{i}"), upstream.to_str().unwrap()]);
        upstreams.push(upstream);
    }
    let kills = if cfg!(debug_assertions) { 60 } else { 200 };
    let mut step = 0;
    for round in 0..kills {
        if round % 4 == 3 {
            for upstream in &upstreams {
                step += 1;
                env.add_commit(upstream, step);
            }
        }
        let started = Instant::now();
        let mut child = env
            .weir_command(&["mirror", "--all", "--quiet"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let after = Duration::from_micros(rng.below(60_000));
        std::thread::sleep(after.saturating_sub(started.elapsed()));
        child.kill().unwrap();
        child.wait().unwrap();
        // All archives are whole.
        if round % 10 == 9 {
            env.weir(&["fsck", "--quiet"]);
        }
    }
    env.weir(&["mirror", "--all"]);
    let server = env.serve();
    for (i, upstream) in upstreams.iter().enumerate() {
        env.assert_same(&server, &format!("r{i}"), upstream, &format!("seed {seed}"));
    }
    env.weir(&["fsck"]);
    assert_eq!(env.stored().len(), 6, "one file a repository, nothing half-written: {:?}", env.stored());
}
