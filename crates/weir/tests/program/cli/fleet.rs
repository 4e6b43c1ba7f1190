//! Pools whose catalog is in a real PostgreSQL: several processes mirror, the server goes away and comes
//! back, catalogs move.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Env, pkt};
use weir_testing::{wait_for_port, wait_until};

const COUNT: usize = 24;

/// Creates small upstreams below `ups/`, serves them with git daemon, and registers them.
fn upstreams(env: &Env) -> crate::common::Server {
    let mut list = String::new();
    for n in 0..COUNT {
        env.odd_repository(&format!("ups/u{n}.git"));
    }
    let daemon = env.git_daemon(&[]);
    for n in 0..COUNT {
        list.push_str(&format!("{} u{n}\n", daemon.url(&format!("ups/u{n}.git"))));
    }
    std::fs::write(env.path("list"), list).unwrap();
    env.weir(&["add", "--from", env.path("list").to_str().unwrap()]);
    daemon
}

#[test]
fn processes_share_the_work_and_what_is_served_is_served_while_the_catalog_is_away() {
    let Some(mut postgres) = weir_testing::PostgresServer::start(&[]) else { return };
    let env = Env::over(&postgres.schema("pool"));
    let daemon = upstreams(&env);
    let mut mirrors: Vec<_> = (0..3)
        .map(|_| env.weir_command(&["--json", "mirror"]).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    assert!(mirrors.iter_mut().all(|m| m.wait().unwrap().success()));
    let list = env.weir_json(&["ls"]);
    let seq_of_first = &list[0]["seq"];
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .all(|r| r["seq"] == *seq_of_first && r["failures"] == 0 && r["refs"] == 16),
        "{list}"
    );
    assert_eq!(env.weir_json(&["status"])["counts"]["leased"], 0);

    let server = env.serve();
    env.assert_same(&server, "u3", &env.path("ups/u3.git"), "as mirrored");
    // weir does not wait for a PostgreSQL server that stops answering.
    postgres.stall(true);
    let started = Instant::now();
    let mut waiting = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    waiting.write_all(pkt("git-upload-pack /u9\0host=x\0").as_bytes()).unwrap();
    wait_until(|| "the server does not read the request".to_owned(), || server.has_read_all());
    for _ in 0..2 {
        let mut asked = env.git_command(env.dir.path(), &["ls-remote", &server.url("u3")]);
        assert!(asked.output().unwrap().status.success());
    }
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    postgres.stall(false);
    drop(waiting);
    postgres.stop();
    env.assert_same(&server, "u3", &env.path("ups/u3.git"), "while the catalog is away");
    let said = env.weir_fails(&["mirror"]);
    assert!(said.contains("PostgreSQL"), "{said}");
    postgres.go_on();
    // For a while weir may still answer as if the catalog were away.
    let mut listing = env.git_command(env.dir.path(), &["ls-remote", &server.url("u4")]);
    wait_until(
        || "the catalog is back, and is not asked".to_owned(),
        || listing.output().unwrap().status.success(),
    );
    env.weir(&["mirror", "--all"]);
    drop((server, daemon));
}

fn wait_for_mirrored(env: &Env, count: usize, by: &mut std::process::Child) {
    wait_until(
        || env.weir(&["status"]),
        || {
            assert!(by.try_wait().unwrap().is_none(), "it ended");
            env.weir_json(&["status"])["counts"]["mirrored"] == count
        },
    );
}

#[test]
fn the_mirror_loop_goes_on_when_the_catalog_is_back() {
    let Some(mut postgres) = weir_testing::PostgresServer::start(&[]) else { return };
    let env = Env::over(&postgres.schema("pool"));
    let port = weir_testing::free_port();
    let address = format!("127.0.0.1:{port}");
    // Each loop has mirrored a repository before the catalog goes away.
    let add = |name: &str| {
        let upstream = env.odd_repository(&format!("{name}.git"));
        env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
    };
    add("first");
    let watch_some = ["-q", "mirror", "--watch", "first"];
    let mut by_pattern = env.weir_command(&watch_some).stderr(Stdio::null()).spawn().unwrap();
    wait_for_mirrored(&env, 1, &mut by_pattern);
    add("second");
    let log = std::fs::File::create(env.path("log")).unwrap();
    let mut child = env.weir_command(&["mirror", "--watch", "--quiet"]).stderr(log).spawn().unwrap();
    wait_for_mirrored(&env, 2, &mut child);
    let mut serving = env.weir_command(&["serve", "--git", &address]).stderr(Stdio::null()).spawn().unwrap();
    wait_for_port(port);
    postgres.stop();
    let log = || std::fs::read_to_string(env.path("log")).unwrap();
    wait_until(|| "the loop does not notice that the catalog is away".to_owned(), || !log().is_empty());
    postgres.go_on();
    let _daemon = upstreams(&env);
    wait_for_mirrored(&env, COUNT + 2, &mut child);
    assert!(by_pattern.try_wait().unwrap().is_none(), "the loop with a pattern has ended");
    for child in [&mut child, &mut by_pattern, &mut serving] {
        weir_testing::send(child.id(), weir_testing::Signal::SIGTERM);
        child.wait().unwrap();
    }
    assert_eq!(env.weir_json(&["status"])["counts"]["leased"], 0, "what was leased is given back");
}

#[test]
fn catalogs_move_to_postgres_and_back() {
    let Some(postgres) = weir_testing::PostgresServer::start(&["fsync=off"]) else { return };
    let env = Env::new();
    let _daemon = upstreams(&env);
    env.weir(&["mirror"]);
    let before = env.weir_json(&["ls"]);
    let url = postgres.schema("pool");
    {
        // The catalog is not moved while another process may write to it.
        let port = weir_testing::free_port();
        let mut serving =
            env.weir_command(&["-q", "serve", "--git", &format!("127.0.0.1:{port}")]).spawn().unwrap();
        env.wait_for_mirror();
        assert!(env.weir_fails(&["migrate", &url]).contains("'weir serve' is running"));
        serving.kill().unwrap();
        serving.wait().unwrap();
    }
    let said = env.weir(&["migrate", &url]);
    assert!(said.contains("24  repositories"), "{said}");
    assert_eq!(env.weir_json(&["ls"]), before);
    assert!(std::fs::read_to_string(env.pool().join("weir.toml")).unwrap().contains("\nurl = \"postgres://"));
    env.weir(&["mirror", "--all"]);
    let before = env.weir_json(&["ls"]);
    assert!(env.weir_fails(&["migrate", &url]).contains("is in postgres://"));
    assert!(
        env.weir_fails(&["migrate", &format!("{url}&connect_timeout=9")])
            .contains("already has a catalog with 24 repositories")
    );
    let refused = env.weir_fails(&["migrate", "sqlite"]);
    assert!(refused.contains("catalog.db"), "{refused}");
    std::fs::rename(env.pool().join("catalog.db"), env.path("old.db")).unwrap();
    env.weir(&["migrate", "sqlite"]);
    assert_eq!(env.weir_json(&["ls"]), before);
    assert!(env.pool().join("catalog.db").is_file());
    env.weir(&["mirror", "--all"]);
    assert!(env.weir_fails(&["migrate", "sqlite"]).contains("already"));
}

#[test]
fn what_cannot_be_is_said() {
    let Some(postgres) = weir_testing::PostgresServer::start(&["fsync=off"]) else { return };
    let (url, empty) = (postgres.schema("pool"), Env { dir: weir_testing::folder() });
    let env = Env::over(&url);
    // The archives of this catalog are not in the store of another pool.
    let refused = empty.weir_fails(&["init", "--catalog", &url]);
    assert!(refused.contains("another store"), "{refused}");
    let unreachable = empty.weir_fails(&["init", "--catalog", "postgres://weir:secret@127.0.0.1:1/db"]);
    assert!(unreachable.contains("127.0.0.1") && !unreachable.contains("secret"), "{unreachable}");
    assert!(!empty.pool().join("weir.toml").exists(), "nothing is written that could not be used");
    let named = empty.weir_fails(&["init", "--catalog", "mysql://x@y/z"]);
    assert!(named.contains("postgres://"), "{named}");
    let there = env.weir_fails(&["init", "--catalog", "postgres://weir:secret@127.0.0.1:1/db"]);
    assert!(there.contains("weir migrate postgres://weir@127.0.0.1:1/db"), "{there}");
    std::fs::write(
        env.pool().join("weir.toml"),
        "[catalog]\nurl = \"postgres://weir:secret@127.0.0.1:1/db\"\n",
    )
    .unwrap();
    let away = env.weir_fails(&["ls"]);
    assert!(away.contains("127.0.0.1") && !away.contains("secret"), "{away}");
}

#[test]
fn a_visit_keeps_its_lease_however_long_it_takes_and_a_dead_machine_loses_its() {
    let Some(postgres) = weir_testing::PostgresServer::start(&["fsync=off"]) else { return };
    let env = Env::over(&postgres.schema("pool"));
    env.configure("mirror", "lease = \"3s\"\nretry = \"1s\"");
    // This upstream accepts connections, but never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("git://127.0.0.1:{}/r", silent.local_addr().unwrap().port());
    env.weir(&["add", "--name", "r", &url]);
    let watch = || env.weir_command(&["-q", "mirror", "--watch"]).stderr(Stdio::null()).spawn().unwrap();
    let (mut first, asked) = (watch(), |silent: &std::net::TcpListener, time: u64| {
        silent.set_nonblocking(true).unwrap();
        let until = Instant::now() + Duration::from_secs(time);
        loop {
            match silent.accept() {
                Ok((stream, _)) => return Some(stream),
                Err(_) if Instant::now() > until => return None,
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    });
    let held = asked(&silent, 30).expect("it is visited");
    let mut second = watch();
    assert!(asked(&silent, 8).is_none(), "nobody else visits it, though three leases have run out");
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(asked(&silent, 30).is_some(), "the other takes it over");
    drop(held);
    second.kill().unwrap();
    second.wait().unwrap();
}
