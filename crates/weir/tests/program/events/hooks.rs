//! Hooks: webhooks that weir sends, and commands that it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use weir_testing::{free_port, wait_until};

use super::{end, start};
use crate::common::Env;

/// A server that takes webhooks.
#[derive(Clone)]
struct Receiver {
    port: u16,
    /// The heads and bodies of the requests that it answered.
    taken: Arc<Mutex<Vec<(String, Value)>>>,
    /// The answer: a status; or 0, if it does not answer.
    status: Arc<Mutex<u16>>,
}

impl Receiver {
    fn new(status: u16) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let receiver = Receiver { port, taken: Arc::default(), status: Arc::new(Mutex::new(status)) };
        let serving = receiver.clone();
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for mut stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut head, mut line) = (String::new(), String::new());
                while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                    head += &std::mem::take(&mut line).to_lowercase();
                }
                let length =
                    head.lines().find_map(|l| l.strip_prefix("content-length: ")?.trim().parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                let _ = reader.read_exact(&mut body);
                let status = *serving.status.lock().unwrap();
                if status == 0 {
                    silent.push(stream);
                    continue;
                }
                if status < 300 {
                    serving.taken.lock().unwrap().push((head, serde_json::from_slice(&body).unwrap()));
                }
                let answer =
                    format!("HTTP/1.1 {status} X\r\nContent-Length: 4\r\nConnection: close\r\n\r\nsaid");
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        receiver
    }

    /// Returns the names of the repositories that it was told of.
    fn names(&self) -> Vec<String> {
        let taken = self.taken.lock().unwrap();
        taken.iter().map(|(_, body)| body["data"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn answers(&self, status: u16) {
        *self.status.lock().unwrap() = status;
    }
}

/// Returns a pool with two repositories, `team/a` and `other/b`, and their upstreams.
fn with_two() -> (Env, [std::path::PathBuf; 2]) {
    let env = Env::new();
    let upstreams = ["a.git", "b.git"].map(|name| env.odd_repository(name));
    for (name, upstream) in ["team/a", "other/b"].iter().zip(&upstreams) {
        env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
    }
    env.weir(&["mirror"]);
    (env, upstreams)
}

/// Adds a table to the settings.
fn add_table(env: &Env, table: &str, lines: &str) {
    let path = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}\n[[{table}]]\n{lines}\n")).unwrap();
}

#[test]
fn a_weir_tells_another_one() {
    let (env, [upstream, _]) = with_two();
    let other = Env::new();
    let clone = format!("file://{}", upstream.display());
    other.weir(&["add", "--name", "copy", &clone]);
    other.weir(&["mirror"]);
    add_table(&other, "events.webhook", "forge = \"standard\"\nsecrets = [\"whsec_c2VjcmV0\"]");
    let (http, git) = (free_port(), format!("127.0.0.1:{}", free_port()));
    let receiving = start(&other, &["serve", "--git", &git, "--http", &format!("127.0.0.1:{http}")], http);
    let url = format!("url = \"http://127.0.0.1:{http}/webhooks/standard\"");
    add_table(&env, "hooks.webhook", &format!("name = \"right\"\n{url}\nsecrets = [\"whsec_c2VjcmV0\"]"));
    add_table(&env, "hooks.webhook", &format!("name = \"wrong\"\n{url}\nsecrets = [\"whsec_d3Jvbmc=\"]"));
    env.add_commit(&upstream, 1);
    // What is new is told of what happens from then on.
    env.weir(&["mirror"]);
    env.weir(&["mirror", "team/a"]);
    let head = env.git(&upstream, &["rev-parse", "HEAD"]);
    let is_here = || other.git(&upstream, &["ls-remote", &format!("git://{git}/copy")]).contains(&head);
    wait_until(|| "the other weir has it not".to_owned(), is_here);
    let heard = other.weir_json(&["events", "ls"]);
    assert_eq!((heard.as_array().unwrap().len(), &heard[0]["verdict"]), (1, &json!("due")), "{heard}");
    // A trial tells what is wrong.
    let tested = env.weir_fails(&["hooks", "test", "wrong"]);
    assert!(tested.contains("it answers 401 it was made with another secret"), "{tested}");
    let hooks = env.weir_json(&["hooks", "ls"]);
    let of_wrong = &hooks[1];
    assert_eq!(
        (&of_wrong["name"], &of_wrong["waiting"], &of_wrong["is_dead"]),
        (&json!("wrong"), &json!(1), &json!(false))
    );
    assert!(of_wrong["failing"]["error"].as_str().unwrap().contains("401"), "{hooks}");
    assert_eq!((&hooks[0]["waiting"], &hooks[0]["failing"]), (&json!(0), &Value::Null), "{hooks}");
    assert!(env.weir(&["status"]).contains("wrong: 1 events wait, failing for"), "{}", env.weir(&["status"]));
    end(receiving);
}

#[test]
fn a_receiver_that_fails_delays_nobody_and_loses_nothing() {
    let (env, upstreams) = with_two();
    let (good, silent, down) = (Receiver::new(204), Receiver::new(0), Receiver::new(503));
    for (name, receiver, more) in [
        ("good", &good, "repositories = [\"team\"]\nsecrets = [\"s\"]"),
        ("silent", &silent, "timeout = \"1s\""),
        ("down", &down, "count = 2"),
    ] {
        let url = format!("http://127.0.0.1:{}/x", receiver.port);
        add_table(&env, "hooks.webhook", &format!("name = \"{name}\"\nurl = \"{url}\"\n{more}"));
    }
    // Who mirrors the pool learns of hints by the door.
    env.configure("events", &format!("listen = [\"127.0.0.1:{}\"]", free_port()));
    let (git, metrics) = (free_port(), format!("127.0.0.1:{}", free_port()));
    let serving = start(&env, &["serve", "--git", &format!("127.0.0.1:{git}"), "--metrics", &metrics], git);
    for n in 0..3 {
        for (name, upstream) in ["team/a", "other/b"].iter().zip(&upstreams) {
            env.add_commit(upstream, n);
            let seq = || env.weir_json(&["show", name])["seq"].as_u64();
            let before = seq();
            env.weir(&["hint", name]);
            wait_until(|| "no visit".to_owned(), || seq() > before);
        }
    }
    wait_until(|| format!("{:?}", good.names()), || good.names().len() == 3);
    assert_eq!(good.names(), ["team/a"; 3], "it wants no others");
    let (head, body) = good.taken.lock().unwrap()[0].clone();
    for header in
        ["webhook-id: weir-", "webhook-timestamp: ", "webhook-signature: v1,", "x-hub-signature-256: sha256="]
    {
        assert!(head.contains(header), "{head}");
    }
    assert_eq!(
        (&body["type"], &body["data"]["event"], &body["data"]["refs"][0]["name"]),
        (&json!("update"), &json!("update"), &json!("refs/heads/main")),
        "{body}"
    );
    assert!(body["data"]["archive"].is_null(), "paths of this machine are not told: {body}");
    let state = |name: &str| {
        let hooks = env.weir_json(&["hooks", "ls"]);
        hooks.as_array().unwrap().iter().find(|hook| hook["name"] == name).unwrap().clone()
    };
    for name in ["silent", "down"] {
        wait_until(|| state(name).to_string(), || state(name)["failing"]["failures"].as_i64() >= Some(2));
        assert_eq!(state(name)["waiting"], 6, "{name}");
    }
    let text = super::metrics_at(&metrics);
    assert!(text.contains("weir_hook_waiting{hook=\"down\"}"), "{text}");
    assert!(
        env.weir(&["check", "--offline"]).contains("'down' fails, and 6 events wait: it answers 503 said")
    );
    // A restart forgets neither what waits nor how long to wait.
    let failures = state("down")["failing"]["failures"].as_i64();
    end(serving);
    let serving = start(&env, &["serve", "--git", &format!("127.0.0.1:{git}")], git);
    assert!(state("down")["failing"]["failures"].as_i64() >= failures);
    for receiver in [&silent, &down] {
        receiver.answers(200);
    }
    for name in ["silent", "down"] {
        env.weir(&["hooks", "retry", name]);
    }
    for (name, receiver) in [("silent", &silent), ("down", &down)] {
        wait_until(|| format!("{name}: {:?}", receiver.names()), || receiver.names().len() == 6);
        wait_until(|| state(name).to_string(), || state(name)["failing"].is_null());
        let of = |name: &str| {
            let taken = receiver.taken.lock().unwrap();
            let of_name = taken.iter().filter(|(_, body)| body["data"]["name"] == name);
            of_name.map(|(_, body)| body["data"]["seq"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert!(of("team/a").is_sorted() && of("other/b").is_sorted(), "each repository in order");
    }
    end(serving);
}

#[test]
fn an_event_that_is_refused_is_given_up() {
    let (env, upstreams) = with_two();
    let picky = Receiver::new(422);
    let url = format!("http://127.0.0.1:{}/x", picky.port);
    add_table(&env, "hooks.webhook", &format!("name = \"picky\"\nurl = \"{url}\""));
    env.weir(&["mirror"]);
    env.add_commit(&upstreams[0], 1);
    // It ends when the event was given up.
    env.weir(&["mirror", "team/a"]);
    let state = env.weir_json(&["hooks", "ls"]);
    assert_eq!(state[0]["waiting"], 0, "{state}");
    let error = state[0]["failing"]["error"].as_str().unwrap();
    assert!(error.contains("'update' of team/a was given up: it answers 422"), "{state}");
    picky.answers(200);
    env.add_commit(&upstreams[1], 1);
    env.weir(&["mirror", "other/b"]);
    assert_eq!(picky.names(), ["other/b"]);
    assert_eq!(env.weir_json(&["hooks", "ls"])[0]["failing"], Value::Null);
}

#[test]
fn a_command_runs_for_each_event() {
    let (env, upstreams) = with_two();
    let log = env.path("log");
    let script = env.path("on-update");
    std::fs::write(
        &script,
        format!(
            "#!/bin/sh\nread -r line\n\
            printf '%s %s %s %s\\n' $WEIR_EVENT $WEIR_NAME $WEIR_ARCHIVE $1 >> {}\n\
            printf '%s' \"$line\" > {}.json\n[ \"$WEIR_NAME\" != other/b ]\n",
            log.display(),
            log.display()
        ),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let command = format!(
        "name = \"c\"\ncommand = [\"{}\", \"word\"]\nevents = [\"update\", \"failed\"]",
        script.display()
    );
    add_table(&env, "hooks.command", &command);
    // The hook is told of what happens from its first run on.
    env.weir(&["mirror"]);
    upstreams.iter().for_each(|upstream| env.add_commit(upstream, 1));
    env.weir(&["mirror", "team/a", "other/b"]);
    let text = std::fs::read_to_string(&log).unwrap();
    let archive = |name: &str| env.pool().join("store").join(format!("{name}.tar")).display().to_string();
    let expected = |name: &str| format!("update {name} {} word", archive(name));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    // One that fails is run three times.
    let b = expected("other/b");
    assert_eq!(lines, [b.as_str(), &b, &b, &expected("team/a")]);
    // Its state tells so, until it takes one.
    let state = env.weir_json(&["hooks", "ls"]);
    let failing = &state[0]["failing"];
    assert!(
        failing.is_null() || failing["error"].as_str().unwrap().contains("of other/b was given up: it ended")
    );
    let line: Value = serde_json::from_str(&std::fs::read_to_string(env.path("log.json")).unwrap()).unwrap();
    assert!(line["event"] == "update" && line["archive"].is_string(), "{line}");
    std::fs::remove_dir_all(&upstreams[0]).unwrap();
    env.weir_command(&["mirror", "team/a"]).output().unwrap();
    assert!(std::fs::read_to_string(&log).unwrap().contains("failed team/a"));
    assert!(env.weir(&["hooks", "test", "c"]).contains("it took the event"));
    assert!(std::fs::read_to_string(&log).unwrap().contains("test word"));
    assert_eq!(env.weir_json(&["hooks", "ls"])[0]["waiting"], 0);
    // One that runs for too long is ended, with what it has started.
    std::fs::write(&script, "#!/bin/sh\nsleep 1000\n").unwrap();
    let text = std::fs::read_to_string(env.pool().join("weir.toml")).unwrap();
    std::fs::write(env.pool().join("weir.toml"), text + "timeout = \"1s\"\n").unwrap();
    let tested = env.weir_command(&["hooks", "test", "c"]).output().unwrap();
    assert!(String::from_utf8_lossy(&tested.stdout).contains("it was killed"), "{tested:?}");
}

#[test]
fn hooks_that_cannot_be_are_named() {
    let env = Env::new();
    for (table, lines, why) in [
        ("hooks.webhook", "name = \"a\"\nurl = \"ftp://h/\"", "must start with https:// or http://"),
        ("hooks.webhook", "name = \"a\"\nurl = \"http://\"", "must start with https:// or http://"),
        ("hooks.webhook", "name = \"a b\"\nurl = \"http://h/\"", "name 'a b': letters, digits"),
        (
            "hooks.webhook",
            "name = \"a\"\nurl = \"http://h/\"\nsecrets = [\"whsec_?\"]",
            "a secret is not in base64",
        ),
        (
            "hooks.webhook",
            "name = \"a\"\nurl = \"http://h/\"\nevents = [\"push\"]",
            "'push' is no kind of event: update,",
        ),
        ("hooks.webhook", "name = \"a\"\nurl = \"http://h/\"\nevents = []", "events is empty"),
        ("hooks.webhook", "name = \"a\"\nurl = \"http://h/\"\ncount = 0", "count must be between 1 and 64"),
        (
            "hooks.webhook",
            "name = \"a\"\nurl = \"http://h/\"\nsecret_files = [\"/none\"]",
            "secret_files of the webhook 'a' in [[hooks.webhook]]",
        ),
        ("hooks.command", "name = \"a\"\ncommand = []", "command is empty"),
        ("hooks.command", "name = \"a\"\ncommand = [\"/none\"]", "command of the hook a"),
        (
            "hooks.command",
            "name = \"a\"\ncommand = [\"true\"]\ntimeout = \"0s\"",
            "timeout must be at least 1 second",
        ),
    ] {
        std::fs::write(env.pool().join("weir.toml"), format!("[[{table}]]\n{lines}\n")).unwrap();
        let error = env.weir_fails(&["config", "check"]);
        assert!(error.contains(why), "{lines}: {error}");
    }
    std::fs::write(env.pool().join("weir.toml"), "").unwrap();
    assert!(env.weir_fails(&["hooks", "test", "x"]).contains("is called 'x'"));
    assert!(env.weir_fails(&["hooks", "retry", "x"]).contains("is called 'x'"));
}
