//! The effect of events: unknown repositories are added if the settings say so, and forges are asked about
//! repositories that were renamed or deleted.

use std::io::Write;
use std::time::Instant;

use weir_testing::{free_port, wait_until};

use super::{Sender, end, metrics_at, start, with_doors};
use crate::common::Env;
use crate::common::forge::{Forge, State};
use crate::crawl::listings::{configure, known, repositories};

#[test]
fn what_the_settings_want_is_added() {
    let env = Env::new();
    for name in ["wanted/a", "wanted/b", "other/c"] {
        env.odd_repository(&format!("{name}.git"));
    }
    let daemon = env.git_daemon(&[]);
    let port = free_port();
    env.configure("events", &format!("listen = [\"127.0.0.1:{port}\"]\nadd = [\"*/wanted/*\"]"));
    let serving = start(&env, &["serve", "--git", &format!("127.0.0.1:{}", free_port())], port);
    let mut sender = Sender::connect(port);
    for (id, line) in [
        ("1", daemon.url("wanted/a.git")),
        ("2", format!("push {} refs/heads/main 0 1", daemon.url("wanted/a"))),
        ("3", daemon.url("other/c.git")),
        ("4", format!("{{\"clone_url\":\"{}\",\"repository_deleted\":true}}", daemon.url("wanted/b.git"))),
        // Nobody who can connect makes weir read from this machine's disk.
        ("5", env.path("wanted/b.git").to_str().unwrap().to_owned()),
        ("6", format!("file://{}", env.path("wanted/b.git").display())),
        ("7", "wanted/b".to_owned()),
        // A pattern is about the text of a path. This one leads elsewhere.
        ("8", daemon.url("wanted/../other/c.git")),
        ("9", daemon.url("wanted/%2e%2e/other/c.git")),
    ] {
        sender.send(id, &line).unwrap();
        assert_eq!(sender.answer(), format!("ok {id}"));
    }
    let mirrored = || env.weir_json(&["ls"])[0]["seq"].as_u64().is_some_and(|seq| seq > 0);
    wait_until(|| format!("it is not mirrored: {:?}", env.weir_json(&["ls"])), mirrored);
    assert_eq!(known(&env).len(), 1, "{:?}", known(&env));
    let listed = env.weir_json(&["events", "ls"]);
    let verdicts: Vec<&str> =
        listed.as_array().unwrap().iter().map(|e| e["verdict"].as_str().unwrap()).collect();
    assert!(verdicts[2..].iter().all(|verdict| *verdict == "unknown"), "{listed}");
    assert_eq!(verdicts[..2], ["added", "due"], "{listed}");
    assert_eq!(env.weir_json(&["events", "ls", "--verdict", "added"]).as_array().unwrap().len(), 1);
    // Events that failed are taken again as often as asked for, and those of before are not doubled.
    for _ in 0..2 {
        let again = env.weir_command(&["events", "replay", "--failed"]).output().unwrap();
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(said.contains("7 events taken again, 0 name a repository"), "{said}");
    }
    // It is the rule that decides, when an event is taken again, too.
    // Two events that come together name it in two ways.
    let (one, other) = (daemon.url("wanted/b.git"), daemon.url("wanted/b"));
    sender.stream.write_all(format!("id=10 {one}\nid=11 push {other}\n").as_bytes()).unwrap();
    assert_eq!([sender.answer(), sender.answer()], ["ok 10", "ok 11"]);
    wait_until(|| "the second is not added".to_owned(), || known(&env).len() == 2);
    let last = || env.weir_json(&["events", "ls", "-n", "2"]);
    let verdicts = || last().as_array().unwrap().iter().map(|e| e["verdict"].clone()).collect::<Vec<_>>();
    wait_until(|| format!("{:?}", last()), || verdicts() == ["added", "due"]);
    end(serving);
}

#[test]
fn a_forge_is_asked_about_what_was_renamed_or_deleted() {
    let (env, port) = (Env::new(), free_port());
    for name in ["odd/r1", "even/r2", "odd/r3"] {
        env.odd_repository(&format!("{name}.git"));
    }
    let daemon = env.git_daemon(&[]);
    let forge =
        Forge::new(State { repositories: repositories(3), clone_base: daemon.url(""), ..State::default() });
    configure(
        &env,
        "gitea",
        &forge,
        &format!("interval = \"1d\"\n[events]\nlisten = [\"127.0.0.1:{port}\"]"),
    );
    env.weir(&["crawl"]);
    env.weir(&["mirror"]);
    let serving = start(&env, &["serve", "--git", &format!("127.0.0.1:{}", free_port())], port);
    std::fs::rename(env.path("odd/r1.git"), env.path("odd/new.git")).unwrap();
    std::fs::remove_dir_all(env.path("even/r2.git")).unwrap();
    {
        let mut state = forge.state();
        state.repositories[0].name = "new".into();
        state.repositories.remove(1);
    }
    let mut sender = Sender::connect(port);
    for (id, line) in [
        ("1", format!("{{\"url\":\"{}\",\"repository_changed\":true}}", daemon.url("odd/r1.git"))),
        ("2", format!("{{\"url\":\"{}\",\"repository_deleted\":true}}", daemon.url("even/r2.git"))),
    ] {
        sender.send(id, &line).unwrap();
        assert_eq!(sender.answer(), format!("ok {id}"));
    }
    let is_right =
        || env.weir_json(&["status"])["forges"][0]["gone"] == 1 && known(&env).contains_key("f/odd/new");
    wait_until(|| format!("{:?}", env.weir_json(&["ls"])), is_right);
    let asked = || forge.state().log.iter().filter(|path| path.contains("/repositories/")).count();
    assert_eq!(asked(), 2, "each is asked about once: {:?}", forge.state().log);
    // A group was renamed: it may be any of its repositories.
    std::fs::rename(env.path("odd/r3.git"), env.path("odd/r9.git")).unwrap();
    forge.state().repositories[1].name = "r9".into();
    let group = daemon.url("odd");
    sender.send("3", &format!("{{\"old_group_url\":\"{group}\",\"repository_changed\":true}}")).unwrap();
    assert_eq!(sender.answer(), "ok 3");
    wait_until(|| format!("{:?}", env.weir_json(&["ls"])), || known(&env).contains_key("f/odd/r9"));
    wait_until(|| format!("{:?}", forge.state().log), || asked() == 4);
    let last = env.weir_json(&["events", "ls", "-n", "1"]);
    assert_eq!((&last[0]["verdict"], &last[0]["subject"]), (&"due".into(), &group.into()), "{last}");
    end(serving);
}

#[test]
fn a_repository_is_known_as_soon_as_it_is_added() {
    let (env, port) = with_doors(Env::new());
    let serving = start(&env, &["events", "serve"], port);
    let mut sender = Sender::connect(port);
    let last = || env.weir_json(&["events", "ls", "-n", "1"]);
    // One has the name that its URL gives, the other is found by its URL alone.
    for (number, options) in [&[][..], &["--name", "another"]].into_iter().enumerate() {
        let url = format!("https://host.invalid/group/{number}");
        let mut send = |id: &str| {
            sender.send(id, &url).unwrap();
            assert_eq!(sender.answer(), format!("ok {id}"));
        };
        (0..20).for_each(|n| send(&n.to_string()));
        wait_until(|| last().to_string(), || last()[0]["id"] == 21 * number + 20);
        assert_eq!(last()[0]["verdict"], "unknown");
        env.weir(&[&["add"], options, &[url.as_str()]].concat());
        send("due");
        wait_until(|| last().to_string(), || last()[0]["id"] == 21 * number + 21);
        assert_eq!(last()[0]["verdict"], "due", "{}", last());
    }
    end(serving);
}

#[test]
fn many_events_about_a_repository_cause_few_visits() {
    let (env, port) = with_doors(Env::new());
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "it", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let metrics = format!("127.0.0.1:{}", free_port());
    let git = format!("127.0.0.1:{}", free_port());
    let serving = start(&env, &["serve", "--git", &git, "--metrics", &metrics], port);
    let mut sender = Sender::connect(port);
    let value = |name: &str| -> f64 {
        let text = metrics_at(&metrics);
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{text}"));
        line.trim().parse().unwrap()
    };
    let visits = || {
        let of = |result: &str| value(&format!("weir_visits_total{{result=\"{result}\"}}"));
        of("unchanged") + of("updated")
    };
    // One event is one visit.
    sender.send("0", "it").unwrap();
    assert_eq!(sender.answer(), "ok 0");
    wait_until(|| "no visit".to_owned(), || visits() > 0.0);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(visits() as u64, 1);
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed().as_secs() < 4 {
        sender.send("1", "it").unwrap();
        assert_eq!(sender.answer(), "ok 1");
        sent += 1;
    }
    env.add_commit(&upstream, 1);
    sender.send("2", "it").unwrap();
    assert_eq!(sender.answer(), "ok 2");
    let head = env.git(&upstream, &["rev-parse", "HEAD"]);
    let is_fresh = || env.git(&upstream, &["ls-remote", &format!("git://{git}/it")]).contains(&head);
    wait_until(|| "the last change is not here".to_owned(), is_fresh);
    let visits = visits();
    // At most one a second, whose seconds are whole ones.
    let most = began.elapsed().as_secs() as f64 + 3.0;
    assert!(visits <= most && sent > 20, "{visits} visits in {:?} for {sent} events", began.elapsed());
    let delays = value("weir_event_delay_seconds_count");
    assert!(delays >= 2.0 && delays <= visits, "{delays} of {visits}");
    assert_eq!(value("weir_event_delay_seconds_bucket{le=\"+Inf\"}"), delays);
    end(serving);
}
