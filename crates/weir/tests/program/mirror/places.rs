//! A visit replaces no archive that it has not examined, and writes to none after its lease has passed to
//! another process.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::Env;
use weir_testing::wait_until;

fn add_commit(env: &Env, upstream: &Path, branch: &str, message: &str) -> String {
    let commit = env.git(upstream, &["commit-tree", "-m", message, "-p", "main", "main^{tree}"]);
    env.git(upstream, &["update-ref", &format!("refs/heads/{branch}"), &commit]);
    commit
}

/// Sets the numbers of all leases in the catalog to `epoch`.
fn set_epochs(env: &Env, epoch: u64) {
    let script = "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('UPDATE repositories SET \
        epoch = ?',(int(sys.argv[2]),)); c.commit()";
    let mut python = weir_testing::command("python3");
    python.args(["-c", script]).arg(env.pool().join("catalog.db")).arg(epoch.to_string());
    assert!(python.status().unwrap().success());
}

#[test]
fn a_store_that_is_not_mounted_gets_no_clones() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "a", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let (store, away) = (env.pool().join("store"), env.path("away"));
    std::fs::rename(&store, &away).unwrap();
    std::fs::create_dir(&store).unwrap();
    let said = env.weir_fails(&["mirror", "--all"]);
    assert!(said.contains("mount the store"), "{said}");
    assert_eq!(std::fs::read_dir(&store).unwrap().count(), 0);
    std::fs::remove_dir(&store).unwrap();
    std::fs::rename(&away, &store).unwrap();
    assert!(env.weir(&["mirror", "--all"]).contains("1 unchanged"));
}

#[test]
fn an_archive_of_another_upstream_is_not_taken_for_ones_own() {
    let env = Env::new();
    let (one, other) = (env.odd_repository("one.git"), env.init_bare("other.git"));
    env.git(&other, &["fetch", "-q", one.to_str().unwrap(), "+refs/heads/main:refs/heads/main"]);
    env.weir(&["add", "--name", "a", one.to_str().unwrap()]);
    env.weir(&["mirror"]);
    // This also happens if the file system ignores case, or if a name is used again.
    env.weir(&["rm", "a"]);
    let (archive, away) = (env.pool().join("store/a.tar"), env.path("away.tar"));
    assert!(env.weir_fails(&["add", "--name", "a", other.to_str().unwrap()]).contains("a copy of"));
    std::fs::rename(&archive, &away).unwrap();
    env.weir(&["add", "--name", "a", other.to_str().unwrap()]);
    std::fs::rename(&away, &archive).unwrap();
    let said = env.weir_fails(&["mirror"]);
    assert!(said.contains("already holds a copy of") && said.contains("one.git"), "{said}");
    env.weir(&["rm", "--delete", "a"]);
    env.weir(&["add", "--name", "a", other.to_str().unwrap()]);
    env.weir(&["mirror"]);
}

#[test]
fn a_store_that_goes_away_while_it_is_served_gets_none_either() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "a", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let log = std::fs::File::create(env.path("log")).unwrap();
    let mut child =
        env.weir_command(&["--json", "mirror", "--watch"]).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let log = || std::fs::read_to_string(env.path("log")).unwrap();
    // It has opened the store: it has visited the repository.
    let catalog = env.pool().join("catalog.db");
    sql(&catalog, "UPDATE repositories SET next_due = 0");
    wait_until(log, || !sql(&catalog, "SELECT next_due FROM repositories").contains("(0,)"));
    let (store, away) = (env.pool().join("store"), env.path("away"));
    std::fs::rename(&store, &away).unwrap();
    std::fs::create_dir(&store).unwrap();
    // Its upstream changes, and is visited.
    add_commit(&env, &upstream, "main", "more");
    sql(&catalog, "UPDATE repositories SET next_due = 0");
    wait_until(log, || sql(&catalog, "SELECT error_class FROM repositories").contains("store"));
    assert_eq!(std::fs::read_dir(&store).unwrap().count(), 0, "{}", log());
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_dir(&store).unwrap();
    std::fs::rename(&away, &store).unwrap();
    let said = env.weir_json(&["ls"]);
    assert_eq!(said[0]["error_class"], "store", "{said}");
    env.weir(&["mirror", "--all"]);
    env.weir(&["fsck"]);
}

/// Runs a statement on the catalog, and returns the rows as text. weir itself reads no catalog whose store is
/// missing.
fn sql(catalog: &Path, statement: &str) -> String {
    let script = "import sqlite3,sys; c=sqlite3.connect(sys.argv[1],timeout=10); \
        print(c.execute(sys.argv[2]).fetchall()); c.commit()";
    let output =
        weir_testing::command("python3").args(["-c", script]).arg(catalog).arg(statement).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_archive_that_is_gone_is_cloned_anew_under_new_numbers_and_that_is_said() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "a", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    for n in 0..3 {
        add_commit(&env, &upstream, "main", &n.to_string());
        env.weir(&["mirror", "--all"]);
    }
    let seq = env.weir_json(&["ls"])[0]["seq"].as_u64().unwrap();
    std::fs::remove_file(env.pool().join("store/a.tar")).unwrap();
    assert!(env.weir_fails(&["fsck"]).contains("a: the archive is missing"));
    let said = env.weir(&["mirror", "--all"]);
    assert!(said.contains(&format!("a: commits 1 to {seq} are gone")), "{said}");
    let log = env.weir_json(&["log", "a"]);
    assert!(log.as_array().unwrap().iter().all(|state| state["seq"].as_u64().unwrap() > seq), "{log}");
    env.weir(&["fsck"]);
}

/// Suspends a process, such as a `weir mirror` that waits for a lock of the test. Its lease then runs out.
fn stop(child: &Child) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGSTOP)
        .unwrap();
}

fn go_on(child: &Child) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGCONT)
        .unwrap();
}

/// Checks whether the process waits for a lock on a file.
fn waits_for_lock(pid: u32) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|line| line.contains("->") && line.contains(&format!(" {pid} ")))
}

#[test]
fn a_visit_that_outlived_its_lease_writes_nothing_over_what_is_newer() {
    let env = Env::new();
    env.configure("mirror", "lease = \"2s\"");
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "a", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let archive = env.pool().join("store/a.tar");
    // Process A lists the refs, waits for the archive, and is suspended there past its lease.
    let first = add_commit(&env, &upstream, "main", "what A sees");
    let lock = std::fs::OpenOptions::new().read(true).write(true).open(&archive).unwrap();
    lock.lock().unwrap();
    let log = std::fs::File::create(env.path("A.log")).unwrap();
    let mut a =
        env.weir_command(&["mirror", "--all"]).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    wait_until(|| "A does not come to the archive".to_owned(), || waits_for_lock(a.id()));
    stop(&a);
    // A stopped process does not wait for the lock until it continues.
    let end = Instant::now() + Duration::from_secs(5);
    while waits_for_lock(a.id()) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    lock.unlock().unwrap();
    let second = add_commit(&env, &upstream, "main", "what B sees");
    env.let_pass(3);
    assert!(env.weir(&["mirror", "--all"]).contains("1 updated"), "B");
    go_on(&a);
    a.wait().unwrap();
    // The newest state is served, and stays.
    env.weir(&["mirror", "--all"]);
    let server = env.serve();
    let served = env.git(env.dir.path(), &["ls-remote", &server.url("a"), "refs/heads/main"]);
    assert!(
        served.starts_with(&second),
        "{served}, not {second}; A saw {first}: {}",
        std::fs::read_to_string(env.path("A.log")).unwrap()
    );
    env.assert_same(&server, "a", &upstream, "after both");
}

#[test]
fn a_catalog_that_has_forgotten_its_leases_goes_on() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "a", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    add_commit(&env, &upstream, "main", "more");
    // As after the catalog was restored from a copy of a week ago; then, a repository is removed and added
    // again.
    set_epochs(&env, 0);
    assert!(env.weir(&["mirror", "--all"]).contains("1 updated"));
    add_commit(&env, &upstream, "main", "again");
    env.weir(&["rm", "a"]);
    env.weir(&["add", "--name", "a", upstream.to_str().unwrap()]);
    assert!(env.weir(&["mirror"]).contains("1 updated"));
    // A machine whose clock is far ahead writes the archive. The catalog learns of that number, and gives
    // higher ones from then on.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    set_epochs(&env, now + 100_000_000);
    add_commit(&env, &upstream, "main", "ahead");
    env.weir(&["mirror", "--all"]);
    set_epochs(&env, 0);
    add_commit(&env, &upstream, "main", "back");
    assert!(env.weir_fails(&["mirror", "--all"]).contains("another visit has taken the lease"));
    env.weir(&["mirror"]);
    let server = env.serve();
    env.assert_same(&server, "a", &upstream, "after all");
}

/// Gives the last record of the archive at `path` a later version of the format, and its checksum.
const LATER_FORMAT: &str = "
import hashlib, sys
data = bytearray(open(sys.argv[1], 'rb').read())
start = data.rindex(b'weir-commit 2\\n')
data[start + 12:start + 13] = b'9'
end = data.rindex(b'\\nend ') + 1
data[-65:-1] = hashlib.sha256(data[start:end]).hexdigest().encode()
open(sys.argv[1], 'wb').write(data)
";

#[test]
fn an_archive_of_a_newer_weir_is_left_alone() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.mirror_new("a", &upstream);
    let archive = env.pool().join("store/a.tar");
    let done = weir_testing::command("python3").args(["-c", LATER_FORMAT]).arg(&archive).status().unwrap();
    assert!(done.success());
    let before = std::fs::read(&archive).unwrap();
    add_commit(&env, &upstream, "main", "more");
    let newer = "its format is version 9, written by a newer weir; upgrade weir";
    for command in [
        &["mirror", "a"][..],
        &["mirror", "a"],
        &["fsck", "a"],
        &["fsck", "--repair", "a"],
        &["cat", "a", "HEAD"],
    ] {
        let said = env.weir_fails(command);
        assert!(said.contains(newer), "{command:?}: {said}");
    }
    assert_eq!(std::fs::read(&archive).unwrap(), before);
    assert_eq!(std::fs::read_dir(env.pool().join("store")).unwrap().count(), 2, "nothing was set aside");
}
