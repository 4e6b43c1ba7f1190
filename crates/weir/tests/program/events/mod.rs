//! Events from outside: what senders are told is taken is there, whatever is killed or away, and repositories
//! are due because of it.

mod drill;
mod effect;
mod hooks;
mod streams;
mod sweep;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use weir_testing::{free_port, wait_for_port, wait_until};

use crate::common::{Env, Rng};

/// Returns a pool whose doors are at the port that it returns, too.
fn with_doors(env: Env) -> (Env, u16) {
    let port = free_port();
    env.configure("events", &format!("listen = [\"127.0.0.1:{port}\"]"));
    (env, port)
}

fn start(env: &Env, args: &[&str], port: u16) -> Child {
    let child = env.weir_command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_port(port);
    child
}

fn end(mut child: Child) {
    weir_testing::send(child.id(), weir_testing::Signal::SIGTERM);
    assert!(child.wait().unwrap().success());
}

/// Returns how often each event is there, by what it is about.
fn received(env: &Env) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for event in env.weir_json(&["events", "ls", "-n", "1000000"]).as_array().unwrap() {
        *found.entry(event["subject"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    found
}

/// Returns the metrics that a server has at `address`.
fn metrics_at(address: &str) -> String {
    let mut monitor = TcpStream::connect(address).unwrap();
    monitor.write_all(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
    std::io::read_to_string(monitor).unwrap()
}

/// A sender that asks for acknowledgements.
struct Sender {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Sender {
    fn connect(port: u16) -> Sender {
        Sender::try_connect(port).unwrap()
    }

    fn try_connect(port: u16) -> std::io::Result<Sender> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let answers = BufReader::new(stream.try_clone()?);
        Ok(Sender { stream, answers })
    }

    fn send(&mut self, id: &str, line: &str) -> std::io::Result<()> {
        self.stream.write_all(format!("id={id} {line}\n").as_bytes())
    }

    /// Returns the next answer; empty, if there is none any more.
    fn answer(&mut self) -> String {
        let mut answer = String::new();
        match self.answers.read_line(&mut answer) {
            Ok(_) if answer.ends_with('\n') => answer.trim_end().to_owned(),
            _ => String::new(),
        }
    }
}

#[test]
fn a_line_makes_a_repository_due_at_once() {
    let (env, port) = with_doors(Env::new());
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "team/tool", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let [git, metrics] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let serving = start(&env, &["serve", "--git", &git, "--metrics", &metrics], port);
    let seq = || env.weir_json(&["ls"])[0]["seq"].as_u64().unwrap();
    let before = seq();
    let commit = env.git(&upstream, &["commit-tree", "-m", "more", "-p", "main", "main^{tree}"]);
    env.git(&upstream, &["update-ref", "refs/heads/main", &commit]);
    let mut sender = Sender::connect(port);
    sender.send("1", "push team/tool refs/heads/main 0 1").unwrap();
    sender.send("2", "/team/tool.git").unwrap();
    sender.send("3", &format!("{{\"repository\":{{\"clone_url\":\"{}\"}}}}", upstream.display())).unwrap();
    sender.send("4", "https://elsewhere.example/x").unwrap();
    sender.send("5", "{\"ref\":\"refs/heads/main\"}").unwrap();
    assert_eq!([(); 5].map(|()| sender.answer()), ["ok 1", "ok 2", "ok 3", "ok 4", "ok 5"]);
    wait_until(|| "the archive is not updated".to_owned(), || seq() > before);
    let listed = env.weir_json(&["events", "ls"]);
    let keys: Vec<&String> = listed[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["at_ms", "id", "line", "peer", "subject", "verdict"], "reference/json.md has these");
    let verdicts: Vec<&str> =
        listed.as_array().unwrap().iter().map(|e| e["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["due", "due", "due", "unknown", "bad"], "{listed}");
    assert!(env.weir(&["events", "show", "4"]).contains("https://elsewhere.example/x"));
    assert!(env.weir_fails(&["events", "show", "99"]).contains("no event has the number 99"));
    let text = metrics_at(&metrics);
    assert!(text.contains("weir_event_lines_total{result=\"kept\"} 5\n"), "{text}");
    // A second process of the pool has no doors to open.
    let second = env.weir_fails(&["events", "serve"]);
    assert!(second.contains("takes events already"), "{second}");
    end(serving);
    // What was unknown is known later.
    env.weir(&["add", "--name", "elsewhere.example/x", upstream.to_str().unwrap()]);
    assert!(
        env.weir(&["events", "replay", "--failed"]).contains("2 events taken again, 1 name a repository")
    );
    assert_eq!(env.weir_json(&["events", "ls", "--verdict", "due"]).as_array().unwrap().len(), 4);
    assert!(
        env.weir_fails(&["events", "replay", "7-3"]).contains("neither a number of an event nor a range")
    );
}

#[test]
fn the_next_process_takes_the_doors_over() {
    let (env, port) = with_doors(Env::new());
    let first = start(&env, &["events", "serve"], port);
    let second = env.weir_command(&["mirror", "--watch"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let second = second.unwrap();
    Sender::connect(port).send("1", "one").unwrap();
    end(first);
    wait_for_port(port);
    let mut sender = Sender::connect(port);
    sender.send("2", "two").unwrap();
    assert_eq!(sender.answer(), "ok 2");
    end(second);
    assert_eq!(received(&env), BTreeMap::from([("one".to_owned(), 1), ("two".to_owned(), 1)]));
    let none = Env::new().weir_fails(&["events", "serve"]);
    assert!(none.contains("no address to take events at"), "{none}");
}

#[test]
fn a_mirror_that_watches_starts_anew_at_sighup() {
    let (env, port) = with_doors(Env::new());
    let settings = env.pool().join("weir.toml");
    let mirroring = start(&env, &["mirror", "--watch"], port);
    let other = free_port();
    let text = std::fs::read_to_string(&settings).unwrap();
    let text = text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{other}"));
    std::fs::write(&settings, text).unwrap();
    weir_testing::send(mirroring.id(), weir_testing::Signal::SIGHUP);
    wait_for_port(other);
    let mut sender = Sender::connect(other);
    sender.send("1", "x").unwrap();
    assert_eq!(sender.answer(), "ok 1");
    end(mirroring);
}

#[test]
fn a_reload_takes_new_settings_and_keeps_the_old_ones_if_those_are_wrong() {
    let (env, port) = with_doors(Env::new());
    let settings = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let serving = start(&env, &["events", "serve"], port);
    let reload = || weir_testing::send(serving.id(), weir_testing::Signal::SIGHUP);
    let ask = |port: u16, id: &str, first: &str| {
        let mut sender = Sender::connect(port);
        sender.stream.write_all(first.as_bytes()).unwrap();
        // A door that wants a token ends the connection.
        let _ = sender.send(id, id);
        let answer = sender.answer();
        if first.is_empty() { answer } else { sender.answer() }
    };
    assert_eq!(ask(port, "1", ""), "ok 1");
    std::fs::write(&settings, text.replace("[events]", "[events]\nlisten2 = 3")).unwrap();
    reload();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ask(port, "2", ""), "ok 2");
    // A sender that connects while weir opens the doors again waits, and is not refused.
    std::fs::write(&settings, &text).unwrap();
    reload();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(400) {
        TcpStream::connect(("127.0.0.1", port)).expect("a door is open");
        std::thread::sleep(Duration::from_millis(2));
    }
    // Now senders need a token, at another address.
    let other = free_port();
    let sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let tokens = "tokens = [\"ci\"]\nusers = [\"0\", \"nobody\"]";
    let text = text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{other}"));
    let text = text.replace("[events]", &format!("[events]\n{tokens}"));
    std::fs::write(&settings, format!("{text}\n[[access.tokens]]\nname = \"ci\"\nsha256 = \"{sha256}\"\n"))
        .unwrap();
    reload();
    wait_for_port(other);
    assert_eq!(ask(other, "3", ""), "err say 'auth TOKEN' first");
    assert_eq!(ask(other, "4", "auth secret\n"), "ok 4");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the old door is closed");
    end(serving);
    let peers = env.weir_json(&["events", "ls"]);
    let last = peers.as_array().unwrap().last().unwrap();
    assert!(last["peer"].as_str().unwrap().ends_with(" token=ci"), "{peers}");
    for (from, to, why) in [
        ("tokens = [\"ci\"]", "tokens = [\"none\"]", "tokens names 'none', which is not among access.tokens"),
        ("\"nobody\"", "\"no-such-user\"", "users names 'no-such-user', which is no user of this machine"),
    ] {
        let text = std::fs::read_to_string(&settings).unwrap();
        std::fs::write(&settings, text.replace(from, to)).unwrap();
        let error = env.weir_fails(&["config", "check"]);
        assert!(error.contains(why), "{error}");
        std::fs::write(&settings, text).unwrap();
    }
}

/// weir is killed again and again while senders send: what was acknowledged is there, and nothing twice.
/// `WEIR_KILLS=200` for more kills.
#[test]
fn no_kill_loses_what_was_acknowledged() {
    let kills = std::env::var("WEIR_KILLS").map_or(12, |n| n.parse().unwrap());
    let (env, port) = with_doors(Env::new());
    let (mut rng, mut sent, mut acknowledged) = (Rng(7), 0, Vec::new());
    for _ in 0..kills {
        let mut weir = start(&env, &["events", "serve"], port);
        let until = Instant::now() + Duration::from_millis(rng.below(400));
        let mut sender = Sender::connect(port);
        while Instant::now() < until {
            let mut asked = 0;
            for _ in 0..=rng.below(30) {
                sent += 1;
                asked += usize::from(sender.send(&sent.to_string(), &format!("r{sent}")).is_ok());
            }
            for _ in 0..asked {
                acknowledged.extend(sender.answer().strip_prefix("ok ").map(|id| format!("r{id}")));
            }
        }
        // Some that nobody waits for.
        for _ in 0..rng.below(100) {
            sent += 1;
            let _ = sender.send(&sent.to_string(), &format!("r{sent}"));
        }
        weir.kill().unwrap();
        weir.wait().unwrap();
        while let Some(id) = sender.answer().strip_prefix("ok ") {
            acknowledged.push(format!("r{id}"));
        }
    }
    end(start(&env, &["events", "serve"], port));
    let found = received(&env);
    let lost: Vec<_> = acknowledged.iter().filter(|name| !found.contains_key(*name)).collect();
    assert!(lost.is_empty() && acknowledged.len() > kills * 10, "{lost:?} of {}", acknowledged.len());
    assert!(found.values().all(|count| *count == 1));
    assert!(found.len() <= sent);
}

/// Sends a delivery to the webhook `name` with a bearer token. Returns the answer: its status, and its words.
fn post(port: u16, name: &str, token: &str, body: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return (0, String::new()) };
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let request = format!(
        "POST /webhooks/{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\
         Authorization: Bearer {token}\r\nwebhook-id: {}\r\n\r\n{body}",
        body.len(),
        body
    );
    let mut answer = String::new();
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map_or("", |(_, words)| words.trim_end()).to_owned())
}

/// Returns a pool with a webhook whose secret is `secret`, and the arguments that serve it at the port.
fn with_webhook() -> (Env, u16, [String; 4]) {
    let env = Env::new();
    std::fs::write(env.path("secrets"), "# the webhook's\nsecret\n").unwrap();
    let path = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let webhook = format!(
        "\n[[events.webhook]]\nforge = \"generic\"\nname = \"own\"\nsecret_files = [\"{}\"]\n",
        env.path("secrets").display()
    );
    std::fs::write(path, text + &webhook).unwrap();
    let (git, port) = (free_port(), free_port());
    let args = ["serve", "--git", &format!("127.0.0.1:{git}"), "--http"].map(str::to_owned);
    (env, port, args)
}

fn serve(env: &Env, port: u16, args: &[String; 4]) -> Child {
    let address = format!("127.0.0.1:{port}");
    let args: Vec<&str> = args.iter().map(String::as_str).chain([address.as_str()]).collect();
    start(env, &args, port)
}

#[test]
fn a_webhook_makes_a_repository_due_at_once() {
    let (env, port, args) = with_webhook();
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "Team/Tool", "https://forge.invalid/Team/Tool.git"]);
    env.weir(&["add", "--name", "local", upstream.to_str().unwrap()]);
    env.weir(&["mirror", "local"]);
    let serving = serve(&env, port, &args);
    let seq = || env.weir_json(&["ls", "local"])[0]["seq"].as_u64().unwrap();
    let before = seq();
    let commit = env.git(&upstream, &["commit-tree", "-m", "more", "-p", "main", "main^{tree}"]);
    env.git(&upstream, &["update-ref", "refs/heads/main", &commit]);
    let of_local = format!("{{\"url\":\"{}\"}}", upstream.display());
    assert_eq!(post(port, "own", "secret", &of_local), (202, "taken".to_owned()));
    wait_until(|| "the archive is not updated".to_owned(), || seq() > before);
    assert_eq!(post(port, "own", "secret", &of_local).0, 200, "it came before");
    let refused = post(port, "own", "guessed", &of_local);
    assert!(refused.0 == 401 && refused.1.contains("another secret"), "{refused:?}");
    assert_eq!(post(port, "own", "secret", "{\"type\":\"ping\"}").0, 200);
    assert_eq!(post(port, "own", "secret", "{").0, 400);
    assert_eq!(post(port, "none", "secret", &of_local), (404, "there is no such webhook".to_owned()));
    // Forges write URLs in their own case.
    assert_eq!(post(port, "own", "secret", "{\"url\":\"https://forge.invalid/team/tool\"}").0, 202);
    assert_eq!(post(port, "own", "secret", "{\"url\":\"https://forge.invalid/other\"}").0, 202);
    let list = || env.weir_json(&["events", "ls"]);
    wait_until(|| list().to_string(), || list().as_array().unwrap().len() == 3);
    let verdicts: Vec<String> =
        list().as_array().unwrap().iter().map(|e| e["verdict"].as_str().unwrap().to_owned()).collect();
    assert_eq!(verdicts, ["due", "due", "unknown"]);
    assert!(list()[0]["peer"].as_str().unwrap().starts_with("http 127.0.0.1"));
    end(serving);
    // A process that starts later knows what came before; the secret is replaced meanwhile.
    std::fs::write(env.path("secrets"), "new\nsecret").unwrap();
    let serving = serve(&env, port, &args);
    assert_eq!(post(port, "own", "new", &of_local).0, 200);
    // A second process of the pool takes webhooks, too; what it leaves is taken by the next.
    let [git, other] = [free_port(), free_port()];
    let addresses = [git, other].map(|port| format!("127.0.0.1:{port}"));
    let mut second = start(&env, &["serve", "--git", &addresses[0], "--http", &addresses[1]], other);
    let url = |n: usize| format!("{{\"url\":\"https://second.invalid/{n}\"}}");
    for n in 0..20 {
        assert_eq!(post(other, "own", "new", &url(n)), (202, "taken".to_owned()));
        assert_eq!(post(port, "own", "new", &url(n + 20)).0, 202);
    }
    second.kill().unwrap();
    second.wait().unwrap();
    end(serving);
    end(serve(&env, port, &args));
    let found = received(&env);
    assert!((0..40).all(|n| found.get(&format!("https://second.invalid/{n}")) == Some(&1)), "{found:?}");
    std::fs::write(env.path("secrets"), "# none\n").unwrap();
    let none = env.weir_fails(&["serve"]);
    assert!(none.contains("webhook 'own'") && none.contains("no secret is in"), "{none}");
    std::fs::remove_file(env.path("secrets")).unwrap();
    assert!(env.weir_fails(&["serve"]).contains("secret_files of the webhook 'own'"));
}

/// A server is killed again and again while forges deliver: what was answered with 202 is there once.
#[test]
fn no_kill_loses_a_delivery() {
    let kills = std::env::var("WEIR_KILLS").map_or(6, |n| n.parse().unwrap());
    let (env, port, args) = with_webhook();
    let (mut rng, mut taken) = (Rng(11), Vec::new());
    for round in 0..kills {
        let mut weir = serve(&env, port, &args);
        let until = Instant::now() + Duration::from_millis(300 + rng.below(300));
        let sender = std::thread::spawn(move || {
            let name = |n: usize| format!("https://h.invalid/{round}/{n}");
            (0..)
                .map(name)
                .take_while(|url| post(port, "own", "secret", &format!("{{\"url\":\"{url}\"}}")).0 == 202)
                .collect::<Vec<String>>()
        });
        std::thread::sleep(until - Instant::now());
        weir.kill().unwrap();
        weir.wait().unwrap();
        taken.extend(sender.join().unwrap());
    }
    end(serve(&env, port, &args));
    let found = received(&env);
    let lost: Vec<_> = taken.iter().filter(|url| found.get(*url) != Some(&1)).collect();
    assert!(lost.is_empty() && taken.len() > kills * 10, "{lost:?} of {}", taken.len());
}

#[test]
fn events_wait_while_the_database_is_away() {
    let Some(mut postgres) = weir_testing::PostgresServer::start(&[]) else { return };
    let (env, port) = with_doors(Env::over(&postgres.schema("pool")));
    let weir = start(&env, &["events", "serve"], port);
    let mut sender = Sender::connect(port);
    for n in 0..300 {
        match n {
            100 => postgres.stop(),
            200 => postgres.go_on(),
            _ => {}
        }
        sender.send(&n.to_string(), &format!("r{n}")).unwrap();
        assert_eq!(sender.answer(), format!("ok {n}"));
    }
    wait_until(|| format!("{:?}", received(&env).len()), || received(&env).len() == 300);
    assert!(received(&env).values().all(|count| *count == 1));
    end(weir);
}

/// A worker that appends each line to a file, and rejects those with `bad` in them.
const APPENDING: &str = "#!/bin/bash
while read -r line; do
    echo \"$line\" >> got
    case $line in *bad*) echo '{\"error\":\"bad\"}' ;; *) echo ok ;; esac
done
";

/// Returns a pool with a table in `database` and a worker, and the port of its doors.
fn with_collectors(database: &str) -> (Env, u16) {
    let (env, port) = with_doors(Env::new());
    std::fs::write(env.path("append"), APPENDING).unwrap();
    let path = env.pool().join("weir.toml");
    let settings = std::fs::read_to_string(&path).unwrap();
    let collectors = format!(
        "\n[[events.table]]\nname = \"readings\"\nmatch = '\"n\"'\n\
         columns = [\"n integer not null\", \"host text\"]\n{database}\n\
         [[events.worker]]\nname = \"count\"\ncommand = [\"bash\", \"{}\"]\ncount = 3\nkey = \"host\"\n",
        env.path("append").display()
    );
    std::fs::write(path, settings + &collectors).unwrap();
    (env, port)
}

/// Lines go into a table, and to workers, each once, though processes are killed and the database goes away;
/// what does not fit is listed, and tried again.
fn lines_are_collected(database: &str, count: &dyn Fn(&Env, &str) -> i64, away: &mut dyn FnMut(bool)) {
    let (env, port) = with_collectors(database);
    let mut sent = 0;
    let mut weir = start(&env, &["events", "serve"], port);
    for round in 0..4 {
        let mut sender = Sender::connect(port);
        for part in 0..10 {
            match (round, part) {
                (2, 3) => away(true),
                (2, 8) => away(false),
                _ => {}
            }
            for n in sent..sent + 20 {
                let line = format!("{{\"n\": {n}, \"host\": \"h{}\"}}", n % 7);
                sender.send(&n.to_string(), &line).unwrap();
            }
            (sent..sent + 20).for_each(|n| assert_eq!(sender.answer(), format!("ok {n}")));
            sent += 20;
        }
        if round < 3 {
            std::thread::sleep(Duration::from_millis(300));
            weir.kill().unwrap();
            weir.wait().unwrap();
            weir = start(&env, &["events", "serve"], port);
        }
    }
    let mut sender = Sender::connect(port);
    for (id, line) in [("a", "{\"n\": \"many\"}"), ("b", "{\"n\": 1, \"host\": \"bad\"}")] {
        sender.send(id, line).unwrap();
        assert_eq!(sender.answer(), format!("ok {id}"));
    }
    let table = || count(&env, "SELECT count(*) FROM readings");
    wait_until(|| format!("{} rows", table()), || table() == sent + 1);
    assert_eq!(count(&env, "SELECT count(DISTINCT n) FROM readings"), sent);
    let rejected = || env.weir_json(&["events", "rejected"]);
    wait_until(|| rejected().to_string(), || rejected().as_array().unwrap().len() == 2);
    // Lines that a killed process had not noted come again; none is missing.
    let got = || std::fs::read_to_string(env.pool().join("got")).unwrap_or_default();
    let distinct = || got().lines().collect::<std::collections::BTreeSet<_>>().len() as i64;
    wait_until(|| format!("{} lines", distinct()), || distinct() == sent + 2);
    let collectors = || env.weir_json(&["status"])["events"]["collectors"].clone();
    let is_done = || collectors().as_array().unwrap().iter().all(|one| one["waiting"] == 0);
    wait_until(|| collectors().to_string(), is_done);
    end(weir);
    let rejected = rejected();
    let keys: Vec<&String> = rejected[0].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["collector", "id", "line", "peer", "reason", "rejected"],
        "reference/json.md has these"
    );
    assert_eq!((&rejected[0]["collector"], &rejected[1]["collector"]), (&"readings".into(), &"count".into()));
    assert!(rejected[0]["reason"].as_str().unwrap().contains("'many' is no integer"), "{rejected}");
    assert_eq!(rejected[1]["reason"], "\"bad\"");
    // All lines are collected, and none is said to name an unknown repository.
    let unknown = env.weir_json(&["events", "ls", "--verdict", "unknown"]);
    assert_eq!(unknown.as_array().unwrap().len(), 0);
    assert!(env.weir(&["events", "rejected", "--of", "readings", "--retry"]).contains("1 lines to be tried"));
    assert!(env.weir(&["events", "rejected", "--of", "count", "--drop"]).contains("1 lines dropped"));
    assert!(env.weir_fails(&["events", "rejected", "3"]).contains("need --retry or --drop"));
    let before = rejected[0]["rejected"].as_i64().unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let weir = start(&env, &["events", "serve"], port);
    // It was tried, and does not fit: the time is a new one.
    let again = || env.weir_json(&["events", "rejected"]);
    wait_until(|| again().to_string(), || again()[0]["rejected"].as_i64().is_some_and(|at| at > before));
    assert_eq!(again().as_array().unwrap().len(), 1);
    end(weir);
}

#[test]
fn lines_go_into_sqlite_and_to_workers() {
    let count = |env: &Env, sql: &str| {
        let database = rusqlite::Connection::open(env.pool().join("events.db")).unwrap();
        database.query_row(sql, [], |row| row.get(0)).unwrap_or(0)
    };
    lines_are_collected("", &count, &mut |_| {});
}

#[test]
fn lines_go_into_postgres_and_to_workers() {
    let Some(postgres) = weir_testing::PostgresServer::start(&[]) else { return };
    let url = postgres.schema("collected");
    let database = format!("database = \"{url}\"");
    let mut postgres = postgres;
    let count = |_: &Env, sql: &str| {
        let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
        client.query_one(sql, &[]).map_or(0, |row| row.get(0))
    };
    let mut away = |is_away: bool| if is_away { postgres.stop() } else { postgres.go_on() };
    lines_are_collected(&database, &count, &mut away);
}
