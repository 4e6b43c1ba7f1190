//! Rate limits of forges, and which token is used.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use weir_forge::{Api, Error, Forge, Gerrit, GitHub, RequestBudget, Sourcehut};
use weir_ground::Timestamp;
use weir_testing::{AskedRequest, RecordedAnswer, RecordedServer};

use crate::github::item;
use crate::{api, options};

const LINE: &str = "GET /projects/a";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Returns an API that ends at the first wait of a second or more, and these waits in seconds.
fn ending(tokens: &[&str]) -> (Api, Arc<Mutex<Vec<u64>>>) {
    let (waits, mut options) = (Arc::new(Mutex::new(Vec::new())), options(tokens));
    let noted = waits.clone();
    options.wait = Box::new(move |time| {
        let is_short = time < Duration::from_secs(1);
        noted.lock().unwrap().extend((!is_short).then_some(time.as_secs()));
        is_short
    });
    (Api::new(options), waits)
}

/// Checks that `seconds` were waited, or one less if a second ended meanwhile.
fn assert_waited(waits: &[u64], seconds: u64, told: &str) {
    assert!(matches!(waits, [wait] if (seconds - 2..=seconds).contains(wait)), "{told}: {waits:?}");
}

#[test]
fn limit_is_waited_for_as_the_forge_asks() {
    let server = RecordedServer::start();
    let at = (now() + 30).to_string();
    let reset = |left: &str, reset: &str| {
        vec![("X-RateLimit-Remaining", left), ("X-RateLimit-Reset", reset)]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<Vec<_>>()
    };
    let after = |seconds: &str| vec![("Retry-After".to_owned(), seconds.to_owned())];
    let other = vec![
        ("RateLimit-Remaining".to_owned(), "0".to_owned()),
        ("RateLimit-Reset".to_owned(), "40".to_owned()),
    ];
    for (status, headers, body, seconds) in [
        (429, vec![], "", 60),
        (403, vec![], r#"{"message":"API Rate Limit exceeded"}"#, 60),
        (403, after("7"), "", 7),
        (403, reset("0", &at), "", 31),
        (429, reset("0", &at), "", 31),
        (429, other, "", 40),
        (429, reset("5", "30"), "", 60),
        (429, after("100000"), "", 7200),
    ] {
        let told = format!("{status} {headers:?} {body}");
        let answer = headers
            .iter()
            .fold(RecordedAnswer::new(status, body), |answer, (name, value)| answer.header(name, value));
        server.forget(LINE);
        server.put(LINE, answer);
        let (api, waits) = ending(&[]);
        let mut forge = Gerrit::new(&server.url(), "s", api);
        assert!(matches!(forge.one("a"), Err(Error::Stopped)), "{told}");
        assert_waited(&waits.lock().unwrap(), seconds, &told);
        let usage = forge.usage();
        assert_eq!((usage.requests, usage.waits), (1, 1), "{told}");
        assert_eq!(usage.waited_s, waits.lock().unwrap()[0]);
    }
}

#[test]
fn limit_of_graphql_comes_with_a_success() {
    let server = RecordedServer::start();
    let line = "POST /query";
    let long = |bytes: usize| {
        let empty = json!({ "data": null, "errors": [{ "message": "rate limit" }], "x": "" }).to_string();
        json!({ "data": null, "errors": [{ "message": "rate limit" }], "x": "x".repeat(bytes - empty.len()) })
    };
    assert_eq!(long(65_536).to_string().len(), 65_536);
    for (answer, is_limit) in [
        (json!({ "errors": [{ "type": "RATE_LIMITED" }] }), true),
        (json!({ "data": null, "errors": [{}, { "code": "RATE_LIMIT" }] }), true),
        (json!({ "errors": [{ "extensions": { "code": "rate limited" } }] }), true),
        (json!({ "errors": [{ "message": "You exceeded a secondary rate limit" }] }), true),
        (json!({ "data": {}, "errors": [{ "type": "RATE_LIMITED" }] }), false),
        (json!({ "errors": [{ "type": "OTHER" }] }), false),
        (json!({ "message": "rate limit" }), false),
        (long(65_536), true),
        (long(65_537), false),
    ] {
        server.forget(line);
        server.put_json(line, &answer);
        let (api, waits) = ending(&["t"]);
        let found = Sourcehut::new(&server.url(), Vec::new(), api).page("0:");
        assert_eq!(matches!(found, Err(Error::Stopped)), is_limit, "{answer}");
        assert_eq!(waits.lock().unwrap().len(), usize::from(is_limit));
        waits.lock().unwrap().iter().for_each(|wait| assert!((58..=60).contains(wait)));
    }
}

#[test]
fn limit_that_ends_at_once_is_waited_for_longer_each_time() {
    let server = RecordedServer::start();
    server.put(LINE, RecordedAnswer::new(429, "").header("Retry-After", "0"));
    let (waits, mut options) = (Arc::new(Mutex::new(Vec::new())), options(&[]));
    let noted = waits.clone();
    options.wait = Box::new(move |time| {
        let mut waits = noted.lock().unwrap();
        waits.extend((!time.is_zero()).then_some(time.as_secs()));
        let goes_on = time < Duration::from_secs(3) && waits.len() < 6;
        drop(waits);
        std::thread::sleep(if goes_on { time } else { Duration::ZERO });
        goes_on
    });
    let mut forge = Gerrit::new(&server.url(), "s", Api::new(options));
    assert!(matches!(forge.one("a"), Err(Error::Stopped)));
    assert_eq!(server.lines().len(), 3, "{:?}", waits.lock().unwrap());
    assert!(matches!(waits.lock().unwrap().last(), Some(3 | 4)));
}

#[test]
fn limits_are_told_by_credential_and_kind() {
    let server = RecordedServer::start();
    let line = "GET /api/v3/repositories/1";
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&["t"]));
    let mut answer = |resource: &str, left: u64, limit: Option<&str>| {
        let mut answer = RecordedAnswer::json(item(1))
            .header("X-RateLimit-Remaining", &left.to_string())
            .header("X-RateLimit-Reset", "2000000000")
            .header("X-RateLimit-Resource", resource);
        if let Some(limit) = limit {
            answer = answer.header("X-RateLimit-Limit", limit);
        }
        server.forget(line);
        server.put(line, answer);
        forge.one("1").unwrap();
        forge.budgets()
    };
    // The start of the SHA-256 of "Bearer t".
    let name = "63a25a26";
    let budget = |of: &str, limit, remaining| RequestBudget {
        credential: format!("{name}{of}"),
        limit,
        remaining,
        reset_at: Timestamp(2_000_000_001),
    };
    assert_eq!(answer("core", 7, Some("60")), [budget("", Some(60), 7)]);
    assert_eq!(answer("search", 3, None), [budget("", Some(60), 7)], "it says nothing of others");
    assert_eq!(answer("graphql", 5, None), [budget("", Some(60), 7), budget(" graphql", None, 5)]);
    let long = "r".repeat(41);
    assert_eq!(answer(&long, 5, None).len(), 2);
    assert_eq!(answer(&long[1..], 5, None).len(), 3);
    for n in 4..12 {
        assert_eq!(answer(&format!("a{n}"), 5, None).len(), usize::min(n, 8));
    }
    assert_eq!(answer("core", 6, None)[0], budget("", None, 6), "those that are known go on");
    let of_none = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&[]));
    assert!(of_none.budgets().is_empty());
}

#[test]
fn limit_that_was_reached_is_told_and_remembered() {
    let server = RecordedServer::start();
    server.put("GET /api/v3/repositories/1", RecordedAnswer::new(429, ""));
    let (api, _) = ending(&[]);
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api);
    assert!(matches!(forge.one("1"), Err(Error::Stopped)));
    let budgets = forge.budgets();
    let until = budgets[0].reset_at.as_u64();
    assert!((now() + 55..=now() + 60).contains(&until));
    let none = RequestBudget {
        credential: "none".to_owned(),
        limit: None,
        remaining: 0,
        reset_at: budgets[0].reset_at,
    };
    assert_eq!(budgets, [none]);
    for (credential, remaining, reset_s, waited) in [
        ("none", 0, 50, Some(50)),
        ("none graphql", 0, 50, Some(50)),
        ("none", 0, 100_000, Some(7200)),
        ("none", 1, 50, None),
        ("nonesuch", 0, 50, None),
        ("other", 0, 50, None),
    ] {
        server.forget("GET /api/v3/repositories/1");
        server.put_json("GET /api/v3/repositories/1", item(1));
        let reset_at = Timestamp::from(now() + reset_s);
        let known = RequestBudget { credential: credential.to_owned(), remaining, reset_at, limit: None };
        let (api, waits) = ending(&[]);
        let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api);
        forge.remember(&[known]);
        assert_eq!(forge.one("1").is_ok(), waited.is_none(), "{credential}");
        match waited {
            Some(seconds) => assert_waited(&waits.lock().unwrap(), seconds, credential),
            None => assert!(waits.lock().unwrap().is_empty()),
        }
    }
}

fn used(asked: &[AskedRequest]) -> Vec<&str> {
    asked.iter().map(|asked| asked.authorization().unwrap_or("").trim_start_matches("Bearer ")).collect()
}

#[test]
fn token_whose_limit_is_used_up_gives_way_to_the_next() {
    let server = RecordedServer::start();
    let there = || RecordedAnswer::json(json!({ "name": "a" }));
    let spent = |seconds: u64| {
        let reset = (now() + seconds).to_string();
        there().header("X-RateLimit-Remaining", "0").header("X-RateLimit-Reset", &reset)
    };
    server.put(&format!("{LINE} Bearer a"), spent(100));
    server.put(&format!("{LINE} Bearer b"), there());
    server.put(&format!("{LINE} Bearer b"), there());
    server.put(&format!("{LINE} Bearer b"), spent(50));
    server.put(&format!("{LINE} Bearer c"), spent(70));
    let (api, waits) = ending(&["a", "b", "c"]);
    let mut forge = Gerrit::new(&server.url(), "s", api);
    for _ in 0..5 {
        assert!(forge.one("a").is_ok());
    }
    assert_eq!(used(&server.asked()), ["a", "b", "b", "b", "c"]);
    assert!(matches!(forge.one("a"), Err(Error::Stopped)));
    assert_waited(&waits.lock().unwrap(), 51, "the first that is free again");
}

#[test]
fn token_that_is_rejected_twice_is_not_used_again() {
    let server = RecordedServer::start();
    let there = || RecordedAnswer::json(json!({ "name": "a" }));
    let rejected = || RecordedAnswer::new(401, "Bad credentials");
    // One that is rejected once is tried again.
    for answer in [rejected(), there(), rejected()] {
        server.put(&format!("{LINE} Bearer a"), answer);
    }
    server.put(&format!("{LINE} Bearer b"), there());
    let mut forge = Gerrit::new(&server.url(), "s", api(&["a", "b"]));
    for _ in 0..3 {
        assert!(forge.one("a").is_ok());
    }
    assert_eq!(used(&server.asked()), ["a", "a", "a", "a", "b", "b"]);
    server.forget(&format!("{LINE} Bearer b"));
    server.put(&format!("{LINE} Bearer b"), rejected());
    for count in [2, 0] {
        assert!(matches!(forge.one("a"), Err(Error::Forbidden { status: 401, .. })));
        assert_eq!(server.asked().len(), count, "without a token, nothing is asked");
    }
    server.put(LINE, rejected());
    let mut unknown = Gerrit::new(&server.url(), "s", api(&[]));
    for _ in 0..2 {
        assert!(matches!(unknown.one("a"), Err(Error::Forbidden { status: 401, .. })));
        assert_eq!(server.asked().len(), 2);
    }
}

#[test]
fn token_that_sees_what_is_asked_for_is_looked_for() {
    let server = RecordedServer::start();
    let there = || RecordedAnswer::json(json!({ "name": "a" }));
    server.put(&format!("{LINE} Bearer b"), there());
    server.put("GET /projects/all", there());
    let mut forge = Gerrit::new(&server.url(), "s", api(&["a", "b", "c"]));
    assert!(forge.one("a").unwrap().is_some());
    assert!(forge.one("all").unwrap().is_some());
    assert_eq!(used(&server.asked()), ["a", "b", "b"], "the one that found it is used on");
    assert!(forge.one("gone").unwrap().is_none());
    assert_eq!(used(&server.asked()), ["b", "a", "c"]);
    // Nobody knows that it is gone while the limit of a token is used up, or what one without rights sees.
    let mut github = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&["a", "b"]));
    let reset_at = Timestamp::from(now() + 50);
    // The start of the SHA-256 of "Bearer b".
    let credential = "929ce5ee".to_owned();
    github.remember(&[RequestBudget { credential, limit: None, remaining: 0, reset_at }]);
    assert!(matches!(github.one("9"), Err(Error::Unexpected { .. })));
    assert_eq!(used(&server.asked()), ["a"]);
    let line = "GET /api/v3/repositories/8";
    server.put(&format!("{line} Bearer a"), RecordedAnswer::new(401, "no"));
    let mut github = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&["a", "b"]));
    assert!(github.one("8").unwrap().is_none());
    assert_eq!(used(&server.asked()), ["a", "a", "b"], "one that was rejected is not asked again");
}
