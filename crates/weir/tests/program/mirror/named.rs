//! Tests repositories that a user names, an upstream hides, nobody can read, or somebody lost.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;

use crate::common::Env;

/// Returns the class of the last failure of `name`.
fn failure(env: &Env, name: &str) -> String {
    let list = env.weir_json(&["errors", name]);
    list[0]["error_class"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn local_upstream_that_cannot_be_read_is_not_gone() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.mirror_new("up", &up);
    // Nobody can read a link that leads to itself, root included.
    fs::rename(&up, env.path("away.git")).unwrap();
    symlink(&up, &up).unwrap();
    env.weir_fails(&["mirror", "up"]);
    assert_eq!(failure(&env, "up"), "local");
    fs::remove_file(&up).unwrap();
    env.weir_fails(&["mirror", "up"]);
    assert_eq!(failure(&env, "up"), "gone");
}

#[test]
fn local_upstream_shows_no_refs_that_it_hides() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.git(&up, &["update-ref", "refs/secret/x", "main"]);
    env.git(&up, &["config", "transfer.hideRefs", "refs/secret"]);
    env.mirror_new("up", &up);
    let server = env.serve();
    let refs = || env.git(env.dir.path(), &["ls-remote", &server.url("up")]);
    assert!(refs().contains("refs/heads/main") && !refs().contains("refs/secret"), "{}", refs());
    env.git(&up, &["config", "--unset", "transfer.hideRefs"]);
    env.weir(&["mirror", "up"]);
    assert!(refs().contains("refs/secret/x"));
}

/// Relays to the port `to`. The first connection gets no byte for two seconds.
fn slow_at_first(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for (n, client) in listener.incoming().enumerate() {
            thread::spawn(move || {
                if n == 0 {
                    thread::sleep(Duration::from_secs(2));
                }
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
                let (mut from, mut back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || drop(std::io::copy(&mut from, &mut &server)));
                let _ = std::io::copy(&mut back, &mut &client);
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    port
}

#[test]
fn mirror_waits_for_the_visit_of_another_process() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let daemon = env.git_daemon(&[]);
    let port = slow_at_first(daemon.port);
    env.weir(&["add", "--name", "up", &format!("git://127.0.0.1:{port}/up.git")]);
    let mut other = env.weir_command(&["mirror", "up"]).spawn().unwrap();
    let catalog = rusqlite::Connection::open(env.pool().join("catalog.db")).unwrap();
    let leased = "SELECT count(*) FROM repositories WHERE lease_owner IS NOT NULL";
    weir_testing::wait_until(
        || "the lease of the other process".to_owned(),
        || catalog.query_row(leased, [], |row| row.get::<_, i64>(0)).is_ok_and(|count| count == 1),
    );
    drop(catalog);
    let said = env.weir(&["mirror", "up"]);
    assert!(said.contains("another weir process is visiting 1"), "{said}");
    assert!(said.contains("0 updated, 1 unchanged, 0 failed"), "{said}");
    assert!(other.wait().unwrap().success());
    env.assert_same(&env.serve(), "up", &up, "after both");
}

#[test]
fn adopt_finds_names_with_dots() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    for name in ["o/.github", "o/.x/y"] {
        env.mirror_new(name, &up);
    }
    env.weir(&["rm", "o/.github", "o/.x/y"]);
    let said = env.weir(&["adopt"]);
    assert!(said.contains("2 "), "{said}");
    let names: Vec<String> =
        env.weir_json(&["ls"]).as_array().unwrap().iter().map(|r| r["name"].to_string()).collect();
    assert_eq!(names, ["\"o/.github\"", "\"o/.x/y\""]);
}

#[test]
fn pool_that_lost_a_file_is_not_a_new_one() {
    let env = Env::new();
    env.mirror_new("up", &env.odd_repository("up.git"));
    let (config, catalog) = (env.pool().join("weir.toml"), env.pool().join("catalog.db"));
    fs::rename(&config, env.path("kept.toml")).unwrap();
    for args in [&["ls"][..], &["config", "check"], &["serve"]] {
        assert!(env.weir_fails(args).contains("has no weir.toml"), "{args:?}");
    }
    fs::rename(env.path("kept.toml"), &config).unwrap();
    let whole = fs::read(&catalog).unwrap();
    fs::write(&catalog, b"").unwrap();
    for args in [&["ls"][..], &["mirror"]] {
        assert!(env.weir_fails(args).contains("has no catalog.db"), "{args:?}");
    }
    fs::write(&catalog, whole).unwrap();
    assert!(env.weir(&["ls"]).contains("up"));
}

#[test]
fn rm_that_cannot_delete_forgets_nothing() {
    let env = Env::new();
    env.mirror_new("up", &env.odd_repository("up.git"));
    let store = env.pool().join("store");
    let store = store.to_str().unwrap();
    let mount = |args: &[&str]| weir_testing::command("mount").args(args).status().is_ok_and(|s| s.success());
    if !mount(&["--bind", store, store]) || !mount(&["-o", "remount,bind,ro", store]) {
        return weir_testing::skip("mount", "who is not root mounts nothing");
    }
    let said = env.weir_fails(&["rm", "--delete", "up"]);
    assert!(weir_testing::command("umount").arg(store).status().unwrap().success());
    assert!(said.contains("cannot lock"), "{said}");
    assert!(env.weir(&["ls"]).contains("up"));
    env.weir(&["rm", "--delete", "up"]);
    assert!(env.stored().iter().all(|name| !name.contains("up")), "{:?}", env.stored());
}
