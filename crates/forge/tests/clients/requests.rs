//! Requests: which answers are repeated, which are errors, and where redirects lead.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use weir_forge::{Api, ApiOptions, Error, Forge, Gerrit, GitHub, Sourcehut};
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::{api, options};

const LINE: &str = "GET /projects/a";

fn there() -> RecordedAnswer {
    RecordedAnswer::json(json!({ "name": "a" }))
}

fn gerrit(server: &RecordedServer, api: Api) -> Gerrit {
    Gerrit::new(&server.url(), "s", api)
}

#[test]
fn request_that_fails_is_repeated_after_longer_and_longer_pauses() {
    let server = RecordedServer::start();
    let waits = Arc::new(Mutex::new(Vec::new()));
    let noted = waits.clone();
    let options = ApiOptions {
        tries: 4,
        retry: Duration::from_millis(3),
        wait: Box::new(move |time| {
            noted.lock().unwrap().push(time.as_millis());
            true
        }),
        ..options(&[])
    };
    let mut forge = gerrit(&server, Api::new(options));
    for status in [500, 408, 503] {
        server.put(LINE, RecordedAnswer::new(status, "no"));
    }
    server.put(LINE, there());
    assert!(forge.one("a").unwrap().is_some());
    assert_eq!(*waits.lock().unwrap(), [0, 3, 0, 6, 0, 12, 0]);
    assert_eq!((server.lines().len(), forge.usage().requests), (4, 4));
    server.put("GET /projects/b", RecordedAnswer::new(599, "no"));
    let failed = forge.one("b");
    assert!(matches!(failed, Err(Error::Unavailable { .. })));
    assert_eq!((server.lines().len(), forge.usage().requests), (4, 8));
    // Nobody answers there any more.
    let url = server.url();
    drop(server);
    let mut forge = Gerrit::new(&url, "s", api(&[]));
    assert!(matches!(forge.one("a"), Err(Error::Unavailable { .. })));
    assert_eq!(forge.usage().requests, 2);
}

#[test]
fn request_ends_when_the_caller_stops() {
    for (calls, status, requests) in [(0, 500, 0), (1, 500, 1), (1, 401, 1), (2, 500, 1)] {
        let server = RecordedServer::start();
        server.put(LINE, RecordedAnswer::new(status, "no"));
        let mut left = calls;
        let wait = Box::new(move |_| {
            left -= 1;
            left >= 0
        });
        let mut forge = gerrit(&server, Api::new(ApiOptions { wait, ..options(&["t"]) }));
        assert!(matches!(forge.one("a"), Err(Error::Stopped)), "{calls} {status}");
        assert_eq!(server.lines().len(), requests, "{calls} {status}");
    }
}

#[test]
fn request_whose_answer_is_not_whole_is_repeated() {
    let server = RecordedServer::start();
    let mut forge = gerrit(&server, api(&[]));
    server.put(LINE, there().cut());
    server.put(LINE, there());
    assert!(forge.one("a").unwrap().is_some());
    server.put("GET /projects/b", RecordedAnswer::json("{\"name\":"));
    server.put("GET /projects/b", there());
    assert!(forge.one("b").unwrap().is_some());
    assert_eq!(server.lines().len(), 4);
    // An answer that does not claim to be JSON is what it is.
    server.put("GET /projects/c", RecordedAnswer::new(200, "<html>"));
    assert!(matches!(forge.one("c"), Err(Error::Unexpected { .. })));
    assert_eq!(server.lines().len(), 1);
    let mut asking = Sourcehut::new(&server.url(), Vec::new(), api(&["t"]));
    server.put("POST /query", RecordedAnswer::new(200, "<html>"));
    assert!(matches!(asking.page("0:"), Err(Error::Unavailable { .. })), "a question has JSON as its answer");
    assert_eq!(server.lines().len(), 2);
}

#[test]
fn statuses_decide_what_an_answer_is() {
    let server = RecordedServer::start();
    let mut forge = gerrit(&server, api(&["t", "u"]));
    for status in [404, 410, 451] {
        server.put(LINE, RecordedAnswer::new(status, "no"));
        assert_eq!(forge.one("a").unwrap(), None);
        server.forget(LINE);
    }
    server.put(LINE, RecordedAnswer::new(204, "no"));
    assert!(matches!(forge.one("a"), Err(Error::Unexpected { .. })));
    let mut fails = |status, body: &str| {
        server.forget(LINE);
        server.put(LINE, RecordedAnswer::new(status, body));
        let error = forge.one("a").unwrap_err();
        (error.is_of_page(), error.is_of_all(), error)
    };
    let found = fails(403, r#"{"message":"no\nway"}"#);
    assert!(
        matches!(&found, (false, false, Error::Forbidden { status: 403, detail, .. }) if detail == "no way")
    );
    assert!(matches!(fails(422, "odd"), (true, false, Error::Refused { detail, .. }) if detail == "odd"));
    assert!(matches!(fails(500, "odd"), (true, false, Error::Unavailable { .. })));
    let (is_of_page, _, error) = fails(418, &"é".repeat(900));
    let Error::Unexpected { detail, .. } = error else { panic!("{error}") };
    assert!(is_of_page && detail.ends_with(&"é".repeat(200)) && !detail.contains(&"é".repeat(201)));
    for status in [407, 401] {
        let mut forge = gerrit(&server, api(&["t"]));
        server.forget(LINE);
        server.put(LINE, RecordedAnswer::new(status, "no"));
        let error = forge.one("a").unwrap_err();
        assert!(error.is_of_all() && matches!(error, Error::Forbidden { status: 401 | 407, .. }));
    }
    assert!(Error::Stopped.is_of_all() && !Error::Stopped.is_of_page());
    assert!(!Error::NotFound(String::new()).is_of_page());
}

#[test]
fn redirects_are_followed_and_take_tokens_to_no_other_server() {
    let (server, other) = (RecordedServer::start(), RecordedServer::start());
    let to = |status, target: &str| RecordedAnswer::new(status, "").header("Location", target);
    server.put(LINE, to(301, "/moved"));
    server.put("GET /moved", to(307, &(other.url() + "/there")));
    other.put("GET /there", there());
    let mut forge = gerrit(&server, api(&["t"]));
    assert!(forge.one("a").unwrap().is_some());
    let tokens: Vec<bool> = server.asked().iter().map(|asked| asked.authorization().is_some()).collect();
    assert_eq!((tokens, other.asked()[0].authorization()), (vec![true, true], None));
    for n in 0..6 {
        server.put(&format!("GET /projects/{n}"), to(302, &format!("/projects/{}", n + 1)));
    }
    server.put_json("GET /projects/6", json!({ "name": "a" }));
    assert!(forge.one("2").unwrap().is_some());
    server.asked();
    assert!(matches!(forge.one("0"), Err(Error::Unavailable { .. })), "there are too many");
    assert_eq!(server.lines().len(), 10);
    server.put("GET /projects/nowhere", to(301, "relative"));
    assert!(matches!(forge.one("nowhere"), Err(Error::Unexpected { .. })));
    server.put("POST /query", to(307, "/projects/6"));
    server.asked();
    let mut asking = Sourcehut::new(&server.url(), Vec::new(), api(&["t"]));
    assert!(matches!(asking.page("0:"), Err(Error::Unexpected { .. })));
    assert_eq!(server.lines(), ["POST /query"]);
}

#[test]
fn requests_tell_who_asks_for_what_and_keep_no_long_etag() {
    let server = RecordedServer::start();
    let line = "GET /api/v3/users/o/repos?per_page=100&page=1&sort=created&direction=asc";
    let mut forge = GitHub::new(&server.url(), vec!["o".to_owned()], Vec::new(), api(&[]));
    for (bytes, is_kept) in [(200, true), (201, false)] {
        server.forget(line);
        server.put(line, RecordedAnswer::json("[]").header("ETag", &"e".repeat(bytes)));
        assert_eq!(forge.page("0:1").unwrap().etag.is_some(), is_kept);
    }
    let asked = server.asked();
    assert_eq!(asked[0].headers["user-agent"], "weir");
    assert_eq!(asked[0].headers["accept"], "application/json");
    assert!(!asked[0].headers.contains_key("if-none-match"));
    // Without a tag that was sent, an answer that nothing has changed is none.
    server.forget(line);
    server.put(line, RecordedAnswer::new(304, ""));
    assert!(forge.page("0:1").unwrap().skipped.is_some());
    // An empty body is no answer, unless a tag was sent.
    server.forget(line);
    server.put(line, RecordedAnswer::new(200, ""));
    assert!(forge.page("0:1").unwrap().skipped.is_some());
}
