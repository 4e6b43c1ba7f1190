//! Hooks get every update at least once, and in order. A fixed number of hook programs runs.

use crate::common::Env;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_testing::wait_until;

const COUNT: usize = 6;

/// Returns a pool with upstreams and a hook. The hook runs `body` for each `$line`, and then appends the line
/// to the file `told`.
fn with_hook(body: &str) -> (Env, crate::common::Server) {
    let env = Env::new();
    for n in 0..COUNT {
        env.odd_repository(&format!("u{n}.git"));
    }
    let daemon = env.git_daemon(&[]);
    for n in 0..COUNT {
        env.weir(&["add", "--name", &format!("u{n}"), &daemon.url(&format!("u{n}.git"))]);
    }
    write_hook(&env, body);
    env.configure("hooks", &format!("post_update = [\"{}\"]\ntimeout = \"2s\"", env.path("hook").display()));
    (env, daemon)
}

fn write_hook(env: &Env, body: &str) {
    let (hook, told, started) = (env.path("hook"), env.path("told"), env.path("started"));
    let text = format!(
        "#!/bin/sh\necho $$ >> '{}'\nwhile read -r line; do\n{body}\necho \"$line\" >> '{}'\necho ok\ndone\n",
        started.display(),
        told.display()
    );
    std::fs::write(&hook, text).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Returns the commits of archives that the hook was told, by repository.
fn told(env: &Env) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in lines(&env.path("told")) {
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(value["event"] == "update" && value["url"].as_str().unwrap().starts_with("git://"));
        assert!(Path::new(value["archive"].as_str().unwrap()).is_file());
        all.entry(value["name"].as_str().unwrap().to_owned())
            .or_default()
            .push(value["seq"].as_u64().unwrap());
    }
    all
}

fn commit(env: &Env, name: &str) {
    let at = env.path(name);
    let commit = env.git(&at, &["commit-tree", "-m", "more", "-p", "main", "main^{tree}"]);
    env.git(&at, &["update-ref", "refs/heads/main", &commit]);
}

fn seqs(env: &Env) -> BTreeMap<String, u64> {
    let list = env.weir_json(&["ls"]);
    list.as_array()
        .unwrap()
        .iter()
        .map(|r| (r["name"].as_str().unwrap().to_owned(), r["seq"].as_u64().unwrap()))
        .collect()
}

#[test]
fn every_update_is_told_once_and_in_order() {
    let (env, _daemon) = with_hook("");
    env.weir(&["mirror"]);
    for _ in 0..2 {
        commit(&env, "u1.git");
        env.weir(&["mirror", "--all"]);
    }
    let all = told(&env);
    assert_eq!((all.len(), all["u0"].len(), all["u1"].len()), (COUNT, 1, 3), "{all:?}");
    assert!(all["u1"].is_sorted() && seqs(&env).iter().all(|(name, seq)| all[name].last() == Some(seq)));
    assert!(lines(&env.path("started")).len() <= 3 * 2, "two programs a run, not one an update");
    assert!(env.weir(&["config", "check"]).contains("OK"));
}

#[test]
fn another_number_of_workers_repeats_nothing() {
    let (env, _daemon) = with_hook("");
    let settings = std::fs::read_to_string(env.pool().join("weir.toml")).unwrap();
    for (n, workers) in [2, 5, 1, 7, 3].into_iter().enumerate() {
        let settings = settings.replace("[hooks]\n", &format!("[hooks]\nworkers = {workers}\n"));
        std::fs::write(env.pool().join("weir.toml"), settings).unwrap();
        for n in 0..COUNT {
            commit(&env, &format!("u{n}.git"));
        }
        env.weir(&["mirror", "--all"]);
        let all = told(&env);
        assert!(all.values().all(|seqs| seqs.len() == n + 1), "{workers}: {all:?}");
    }
}

#[test]
fn programs_that_fail_are_tried_again_and_stop_nobody() {
    let (env, _daemon) = with_hook(
        "case \"$line\" in *'\"u2\"'*) exit 1;; *'\"u3\"'*) sleep 30;; *'\"u4\"'*) echo \
        '{\"error\":\"oops\"}'; continue;; esac",
    );
    let output = env.weir_command(&["mirror"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    for expected in [
        "the hook for u2 has ended: exit status: 1, try 3 of 3",
        "giving up on the hook for u2",
        "the hook for u3 said nothing for 2 s",
        "the hook for u4: \"oops\"",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(told(&env).keys().collect::<Vec<_>>(), ["u0", "u1", "u5"]);
    assert!(env.weir(&["mirror", "--all"]).contains("6 unchanged"), "given up is given up");
}

#[test]
fn what_was_not_told_is_told_later() {
    let (env, _daemon) = with_hook("sleep 0.3");
    // weir is killed while it runs hooks.
    let mut child = env.weir_command(&["-q", "mirror"]).spawn().unwrap();
    wait_until(|| "no hook is told".to_owned(), || !lines(&env.path("told")).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    // For a while the hook cannot be run. The updates wait, but a mirror that is told to stop does not.
    let hook = env.path("hook");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o644)).unwrap();
    let log = std::fs::File::create(env.path("log")).unwrap();
    let mut child = env.weir_command(&["-q", "mirror", "--watch"]).stderr(log).spawn().unwrap();
    let log = || std::fs::read_to_string(env.path("log")).unwrap();
    wait_until(|| "nobody says that the hook cannot be run".to_owned(), || !log().is_empty());
    weir_testing::send(child.id(), weir_testing::Signal::SIGTERM);
    assert!(child.wait().unwrap().success());
    assert!(told(&env).len() < COUNT);
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    env.weir(&["mirror"]);
    let all = told(&env);
    assert_eq!(all.len(), COUNT, "{all:?}");
    assert!(seqs(&env).iter().all(|(name, seq)| all[name].last() == Some(seq)));
}

#[test]
fn one_process_tells_what_several_mirror() {
    let (env, _daemon) = with_hook("");
    let port = weir_testing::free_port();
    let mut serving =
        env.weir_command(&["-q", "serve", "--git", &format!("127.0.0.1:{port}")]).spawn().unwrap();
    weir_testing::wait_for_port(port);
    env.weir(&["mirror", "--all"]);
    wait_until(|| format!("{:?}", told(&env)), || told(&env).len() == COUNT);
    weir_testing::send(serving.id(), weir_testing::Signal::SIGTERM);
    serving.wait().unwrap();
    assert!(told(&env).values().all(|seqs| seqs.len() == 1), "{:?}", told(&env));
}

#[test]
fn its_keeper_is_told_of_what_is_new() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let told = env.path("notified");
    let script = env.path("notify");
    std::fs::write(
        &script,
        format!("#!/bin/sh\nwhile read -r line; do echo \"$line\" >> '{}'; echo ok; done\n", told.display()),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    env.configure("hooks", &format!("notify = [\"{}\"]", script.display()));
    env.configure("store", "");
    env.weir(&["add", "--name", "r", upstream.to_str().unwrap()]);
    env.weir(&["mirror", "r"]);
    assert_eq!(lines(&told), Vec::<String>::new(), "all is well, and nobody was started for that");
    let away = env.path("away.git");
    std::fs::rename(&upstream, &away).unwrap();
    for _ in 0..2 {
        env.weir_fails(&["mirror", "r"]);
    }
    std::fs::rename(&away, &upstream).unwrap();
    for _ in 0..2 {
        env.weir(&["mirror", "r"]);
    }
    let events: Vec<serde_json::Value> =
        lines(&told).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let what: Vec<_> = events
        .iter()
        .map(|e| (e["event"].as_str().unwrap(), e["name"].as_str().unwrap(), e["class"].as_str().unwrap()))
        .collect();
    assert_eq!(what, [("failed", "r", "gone"), ("recovered", "r", "gone")], "the second failure is no news");
    // A program that says nothing, or that cannot be started, does not hold weir up for long.
    for body in ["#!/bin/sh\nsleep 60\n", "no program"] {
        std::fs::write(&script, body).unwrap();
        std::fs::rename(&upstream, &away).unwrap();
        let started = Instant::now();
        assert!(env.weir_fails(&["mirror", "r"]).contains("dropped"), "{body}");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        std::fs::rename(&away, &upstream).unwrap();
        std::fs::write(&script, "#!/bin/sh\nwhile read -r line; do echo ok; done\n").unwrap();
        env.weir(&["mirror", "r"]);
    }
}

#[test]
fn notify_tells_of_a_host_once() {
    let env = Env::new();
    let (told, script) = (env.path("notified"), env.path("notify"));
    let keeper =
        format!("#!/bin/sh\nwhile read -r line; do echo \"$line\" >> '{}'; echo ok; done\n", told.display());
    std::fs::write(&script, keeper).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    env.configure("hooks", &format!("notify = [\"{}\"]", script.display()));
    let dead = weir_testing::free_port();
    for name in ["a", "b", "c"] {
        env.weir(&["add", "--name", name, &format!("git://127.0.0.1:{dead}/{name}.git")]);
    }
    env.weir_fails(&["mirror"]);
    let events: Vec<serde_json::Value> =
        lines(&told).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.len() == 1 && events[0]["event"] == "failed", "{events:?}");
    let host = format!("127.0.0.1:{dead}");
    assert_eq!((&events[0]["host"], &events[0]["class"]), (&host.as_str().into(), &"network".into()));
    // So does the list of errors.
    let listed = env.weir(&["errors"]);
    let (list, advice) = listed.split_once("\n\nWhat to do:\n").unwrap();
    let mut list = list.lines();
    let line = list.next().unwrap();
    assert!(
        line.starts_with(&format!("network     {host}: ")) && line.contains("(3 repositories: "),
        "{listed}"
    );
    assert_eq!(list.next(), Some("'weir errors --all' lists each repository"));
    assert_eq!((list.next(), advice.lines().count()), (None, 1));
    let each = env.weir(&["errors", "--all", "network"]);
    assert_eq!(each.lines().filter(|line| line.contains(" in a row; next visit in ")).count(), 3, "{each}");
    assert_eq!(env.weir_json(&["errors"]).as_array().unwrap().len(), 3);
}
