//! Sweeps: deliveries of webhooks that never arrived are taken once from the lists of forges.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_testing::{free_port, wait_for_port, wait_until};

use super::{end, received};
use crate::common::Env;
use crate::common::forge::{Deliveries, Forge, State};

/// Returns the attempt number `n` to deliver `event` about the repository at `url`.
fn attempt(n: u64, delivery: &str, event: &str, status: u64, url: &str) -> Value {
    let second = 22 * 3600 + n;
    let time = format!("2026-11-14T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
    json!({
        "id": n, "guid": delivery, "delivered_at": time,
        "redelivery": false, "status_code": status, "event": event, "action": null,
        "request": {
            "headers": {
                "X-GitHub-Event": event, "X-GitHub-Delivery": delivery,
                "X-Gitlab-Event": "Push Hook", "Idempotency-Key": delivery,
            },
            "payload": {
                "ref": "refs/heads/main", "before": "0", "after": "1", "repository": { "clone_url": url },
                "object_kind": "push", "project": { "git_http_url": url },
            },
        },
    })
}

/// Writes settings for webhooks of the forge, swept at `places`.
fn configure(env: &Env, kind: &str, forge: &Forge, places: &str, more: &str) {
    let text = format!(
        "[[forge]]\ntype = \"{kind}\"\nurl = \"{}\"\nname = \"f\"\ntokens = [\"t\"]\nretry = \"0s\"\n\
        interval = \"1d\"\n[[events.webhook]]\nforge = \"{kind}\"\nname = \"w\"\nsecrets = [\"s\"]\n\
        sweep = {places}\nsweep_forge = \"f\"\n{more}\n",
        forge.url()
    );
    std::fs::write(env.pool().join("weir.toml"), text).unwrap();
}

/// A receiver was down while a thousand pushes were made.
#[test]
fn a_sweep_loses_nothing_and_takes_nothing_twice() {
    const REPOSITORIES: usize = 20;
    for kind in ["github", "gitlab"] {
        let env = Env::new();
        let mut upstreams = Vec::new();
        for n in 0..REPOSITORIES {
            upstreams.push(env.odd_repository(&format!("r{n}.git")));
        }
        let daemon = env.git_daemon(&[]);
        let url = |n: usize| daemon.url(&format!("r{n}.git"));
        for n in 0..REPOSITORIES {
            env.weir(&["add", "--name", &format!("r{n}"), &url(n)]);
        }
        env.weir(&["mirror"]);
        let place = if kind == "github" { "orgs/o" } else { "groups/o/sub" };
        let hooks = vec![
            (place, 7, "https://weir.example/webhooks/w".to_owned()),
            (place, 8, "https://other.example/hook".to_owned()),
        ];
        let mut attempts = Vec::new();
        for n in 0..1000 {
            let status = [502, 503, 504, 0][n % 4];
            attempts.push(attempt(n as u64, &format!("lost-{n}"), "push", status, &url(n % REPOSITORIES)));
        }
        // One succeeded at the second attempt, one at once; one is no push, where the list says so.
        attempts.push(attempt(2000, "again", "push", 502, &url(0)));
        attempts.push(attempt(2001, "again", "push", 202, &url(0)));
        attempts.push(attempt(2002, "good", "push", 200, &url(0)));
        if kind == "github" {
            attempts.push(attempt(2003, "issue", "issues", 502, &url(0)));
        }
        let listed = attempts.len() as u64;
        let deliveries = Deliveries { hooks, attempts };
        // The limit is used up in the middle of the sweep. It is a second until there is a new one.
        let forge = Forge::new(State { deliveries, limit: Some(300), ..State::default() });
        configure(&env, kind, &forge, &format!("[\"{place}\"]"), "");
        for upstream in &upstreams {
            env.add_commit(upstream, 1);
        }
        env.let_pass(60);
        let swept = env.weir_json(&["events", "sweep"]);
        assert_eq!(
            swept,
            json!({
                "webhook": "w", "hook": format!("{place}/hooks/7"), "attempts": listed, "failed": 1000,
                "here": 0, "taken": 1000, "ignored": 0, "expired": 0, "unread": 0,
            }),
            "{kind}"
        );
        let requests = forge.state().log.len();
        assert!(forge.state().impatient == 0 && (kind == "gitlab" || requests > 1000), "{requests}");
        let log = forge.state().log.clone();
        let once: std::collections::HashSet<&String> = log.iter().collect();
        // The request that met the limit came twice.
        assert!(log.len() - once.len() <= 1, "{kind}: a delivery was fetched twice");
        assert_eq!(received(&env), BTreeMap::from_iter((0..REPOSITORIES).map(|n| (url(n), 50))), "{kind}");
        // Each repository is visited once for its fifty pushes.
        let ended = env.weir(&["--json", "mirror"]);
        let updated = ended.lines().filter(|line| line.contains("\"event\":\"update\"")).count();
        assert_eq!(updated, REPOSITORIES, "{kind}: {ended}");
        assert_eq!(
            env.weir_json(&["due"])
                .as_array()
                .map(|due| due.iter().filter(|d| d["in_s"].as_i64() <= Some(0)).count()),
            Some(0)
        );
        // Nothing is taken a second time, and little is asked: what came since, and a little before.
        forge.state().log.clear();
        let swept = env.weir_json(&["events", "sweep"]);
        assert_eq!((&swept["taken"], &swept["here"]), (&json!(0), &swept["failed"]), "{kind}: {swept}");
        let asked = forge.state().log.len();
        assert!(asked <= 13, "{kind}: {asked} requests");
        let swept = env.weir_json(&["events", "sweep", "--all"]);
        assert_eq!((&swept["taken"], &swept["here"]), (&json!(0), &json!(1000)), "{kind}: {swept}");
    }
}

#[test]
fn a_server_sweeps_when_it_starts_and_then_at_its_intervals() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "it", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let hooks = vec![("repos/o/n", 3, "http://h/webhooks/w?x=1".to_owned())];
    let attempts = vec![attempt(1, "first", "push", 500, "it")];
    let forge = Forge::new(State { deliveries: Deliveries { hooks, attempts }, ..State::default() });
    configure(&env, "github", &forge, "[\"repos/o/n\"]", "sweep_interval = \"1s\"");
    let http = free_port();
    let git = format!("127.0.0.1:{}", free_port());
    let args = ["serve", "--git", &git, "--http", &format!("127.0.0.1:{http}")];
    let serving = env.weir_command(&args).stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_for_port(http);
    let of_it = || received(&env).get("it").copied();
    wait_until(|| "nothing was swept".to_owned(), || of_it() == Some(1));
    forge.state().deliveries.attempts.push(attempt(2, "second", "push", 500, "it"));
    wait_until(|| format!("{:?}", received(&env)), || of_it() == Some(2));
    end(serving);
    assert_eq!(of_it(), Some(2));
}

#[test]
fn a_delivery_that_cannot_be_read_keeps_no_other_away() {
    let env = Env::new();
    let hooks = vec![("repos/o/n", 3, "http://h/webhooks/w".to_owned())];
    let attempts = (1..10).map(|n| attempt(n, &format!("d{n}"), "push", 500, &format!("r{n}"))).collect();
    let mut state = State { deliveries: Deliveries { hooks, attempts }, ..State::default() };
    let path = "/api/v3/repos/o/n/hooks/3/deliveries/5";
    state.answers = vec![(path, "403 Forbidden", json!({ "message": "no" }))];
    let forge = Forge::new(state);
    configure(&env, "github", &forge, "[\"repos/o/n\"]", "");
    let swept = env.weir_json(&["events", "sweep"]);
    assert_eq!((&swept["taken"], &swept["unread"]), (&json!(8), &json!(1)), "{swept}");
    // It is asked for again, until it can be read.
    let swept = env.weir_json(&["events", "sweep"]);
    assert_eq!(
        (&swept["taken"], &swept["unread"], &swept["here"]),
        (&json!(0), &json!(1), &json!(8)),
        "{swept}"
    );
    forge.state().answers.clear();
    let swept = env.weir_json(&["events", "sweep"]);
    assert_eq!((&swept["taken"], &swept["unread"]), (&json!(1), &json!(0)), "{swept}");
    assert_eq!(received(&env).len(), 9);
    // A forge that cannot be read at all is told of, and what was read before stays.
    let more = (10..20).map(|n| attempt(n, &format!("d{n}"), "push", 500, &format!("r{n}")));
    forge.state().deliveries.attempts.extend(more);
    let paths = ["13", "14", "15", "16", "17", "18"].map(|n| path.trim_end_matches('5').to_owned() + n);
    let paths: Vec<&'static str> = paths.into_iter().map(|path| &*path.leak()).collect();
    forge.state().answers =
        paths.into_iter().map(|path| (path, "403 Forbidden", json!({ "message": "no" }))).collect();
    assert!(env.weir_fails(&["events", "sweep"]).contains("403"));
    assert_eq!(received(&env).len(), 12);
}

#[test]
fn a_sweep_that_cannot_be_says_why() {
    let env = Env::new();
    let forge = Forge::new(State::default());
    assert!(env.weir_fails(&["events", "sweep"]).contains("no webhook in weir.toml has 'sweep'"));
    for (places, more, why) in [
        ("[\"orgs/../x\"]", "", "is none of repos/OWNER/NAME, orgs/NAME and app"),
        ("[\"o/n\"]", "", "is none of repos/OWNER/NAME, orgs/NAME and app"),
        ("[\"orgs/o\"]", "sweep_interval = \"0s\"", "sweep_interval must be at least 1 second"),
        ("[\"orgs/o\"]", "", "at orgs/o, no webhook has a URL that ends with /webhooks/w"),
        ("[\"orgs/o/hooks/99\"]", "", "cannot sweep 'w' at orgs/o/hooks/99"),
        ("[\"app\"]", "", "there is no App"),
    ] {
        let hooks = vec![("orgs/o", 8, "https://other.example/webhooks/w2".to_owned())];
        forge.state().deliveries = Deliveries { hooks, attempts: Vec::new() };
        configure(&env, "github", &forge, places, more);
        let error = env.weir_fails(&["events", "sweep"]);
        assert!(error.contains(why), "{places}: {error}");
    }
    configure(&env, "github", &forge, "[\"orgs/o\"]", "");
    let text = std::fs::read_to_string(env.pool().join("weir.toml")).unwrap();
    for (from, to, why) in [
        ("sweep_forge = \"f\"", "", "sweep needs sweep_forge"),
        ("sweep_forge = \"f\"", "sweep_forge = \"g\"", "no [[forge]] has this name"),
        ("tokens = [\"t\"]", "", "needs tokens or an app"),
        ("type = \"github\"", "type = \"gitlab\"", "is of another type"),
        ("forge = \"github\"", "forge = \"gitea\"", "gitea lists no deliveries"),
    ] {
        std::fs::write(env.pool().join("weir.toml"), text.replace(from, to)).unwrap();
        let error = env.weir_fails(&["config", "check"]);
        assert!(error.contains(why), "{to}: {error}");
    }
}
