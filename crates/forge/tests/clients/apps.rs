//! Tokens of GitHub Apps.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use weir_forge::{Api, ApiOptions, AppError, AppTokens, Error, Forge, GitHub, GitHubApp, RequestBudget};
use weir_ground::Timestamp;
use weir_testing::{AskedRequest, RecordedAnswer, RecordedServer};

use crate::github::{item, listed};
use crate::options;

fn openssl(folder: &Path, args: &[&str]) -> Vec<u8> {
    let output = weir_testing::command("openssl").args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// Returns a private key, or `None` where nothing makes one.
fn key() -> Option<Vec<u8>> {
    weir_testing::program("openssl")?;
    Some(openssl(weir_testing::folder().path(), &["genrsa", "2048"]))
}

fn options_of(server: &RecordedServer, key: &[u8], installations: &[u64]) -> ApiOptions {
    let app = GitHubApp::new("iss", key, installations.to_vec()).unwrap();
    ApiOptions { app: Some((app, server.url() + "/api/v3")), ..options(&[]) }
}

fn github(server: &RecordedServer, key: &[u8], installations: &[u64]) -> GitHub {
    let api = Api::new(options_of(server, key, installations));
    GitHub::new(&server.url(), Vec::new(), Vec::new(), api)
}

fn list(page: u64) -> String {
    format!("GET /api/v3/app/installations?per_page=100&page={page}")
}

fn tokens_of(installation: u64) -> String {
    format!("POST /api/v3/app/installations/{installation}/access_tokens")
}

const ONE: &str = "GET /api/v3/repositories/1";

fn lines(asked: &[AskedRequest]) -> Vec<&str> {
    asked.iter().map(|asked| asked.line.as_str()).collect()
}

#[test]
fn app_asks_for_a_token_and_uses_it() {
    let Some(key) = key() else { return };
    let server = RecordedServer::start();
    server.put_json(&tokens_of(5), json!({ "token": "five" }));
    let answer = RecordedAnswer::json(item(1));
    let answer = answer.header("X-RateLimit-Remaining", "7").header("X-RateLimit-Reset", "2000000000");
    server.put(&format!("{ONE} Bearer five"), answer);
    let mut forge = github(&server, &key, &[5]);
    for _ in 0..2 {
        assert_eq!(forge.one("1").unwrap(), Some(listed(1)));
    }
    let asked = server.asked();
    assert_eq!(lines(&asked), [&tokens_of(5), ONE, ONE], "the token is used as long as it is valid");
    assert_eq!(forge.usage().requests, 3);
    let word: Vec<&str> = asked[0].authorization().unwrap()["Bearer ".len()..].split('.').collect();
    let read =
        |n: usize| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(word[n]).unwrap()).unwrap() };
    assert_eq!((read(0), word.len()), (json!({ "alg": "RS256", "typ": "JWT" }), 3));
    assert_eq!(read(1)["iss"], "iss");
    assert_eq!(read(1)["exp"].as_u64().unwrap() - read(1)["iat"].as_u64().unwrap(), 600);
    assert_eq!(URL_SAFE_NO_PAD.decode(word[2]).unwrap().len(), 256);
    let budget = RequestBudget {
        credential: "installation 5".to_owned(),
        limit: None,
        remaining: 7,
        reset_at: Timestamp(2_000_000_001),
    };
    assert_eq!(forge.budgets(), [budget]);
}

#[test]
fn app_uses_the_tokens_of_all_its_installations() {
    let Some(key) = key() else { return };
    let server = RecordedServer::start();
    let one = |id: u64| json!({ "id": id, "account": { "login": format!("Owner{id}") } });
    let many: Vec<Value> = (200..300).map(one).collect();
    server.put_json(&list(1), json!([one(5), one(6), {}]));
    server.put_json(&tokens_of(5), json!({ "token": "five" }));
    server.put_json(&tokens_of(6), json!({ "token": "six" }));
    server.put_json(&format!("{ONE} Bearer six"), item(1));
    let mut forge = github(&server, &key, &[]);
    assert_eq!(forge.one("1").unwrap(), Some(listed(1)));
    assert_eq!(lines(&server.asked()), [&list(1), &tokens_of(5), ONE, &tokens_of(6), ONE]);
    // An owner that is an organisation is asked for as one: the App sees more than everybody.
    let api = Api::new(options_of(&server, &key, &[6]));
    let mut owned = GitHub::new(&server.url(), vec!["o".to_owned()], Vec::new(), api);
    owned.page("0:1").unwrap();
    assert!(server.lines()[1].starts_with("GET /api/v3/orgs/o/repos?"));
    // An installation without a token does not keep the others from being used.
    server.forget(&tokens_of(5));
    server.put(&tokens_of(5), RecordedAnswer::new(403, "suspended"));
    let mut forge = github(&server, &key, &[5, 6]);
    assert_eq!(forge.one("1").unwrap(), Some(listed(1)));
    server.forget(&tokens_of(6));
    server.put_json(&tokens_of(6), json!({}));
    let mut forge = github(&server, &key, &[5, 6]);
    assert!(matches!(forge.one("1"), Err(Error::Forbidden { status: 401, .. })));
    server.forget(&list(1));
    server.put_json(&list(1), json!([]));
    let mut forge = github(&server, &key, &[]);
    assert!(matches!(forge.one("1"), Err(Error::Forbidden { status: 401, .. })));
    // All pages of the list are read.
    server.forget(&list(1));
    server.put_json(&list(1), json!(many));
    server.put_json(&list(2), json!([one(7)]));
    server.put_json(&tokens_of(7), json!({ "token": "seven" }));
    let tokens = AppTokens::new(Api::new(options_of(&server, &key, &[])));
    assert_eq!(tokens.token_for("owner7").unwrap().as_deref(), Some("seven"));
    assert!(!server.lines().contains(&list(3)));
}

#[test]
fn app_repeats_what_fails_for_a_moment() {
    let Some(key) = key() else { return };
    let server = RecordedServer::start();
    server.put_json(ONE, item(1));
    for answer in [RecordedAnswer::new(500, "no"), RecordedAnswer::json(json!({ "token": "five" }))] {
        server.put(&tokens_of(5), answer);
    }
    let mut forge = github(&server, &key, &[5]);
    assert_eq!(forge.one("1").unwrap(), Some(listed(1)));
    assert_eq!(forge.usage().requests, 3);
    for answer in
        [RecordedAnswer::new(500, "no"), RecordedAnswer::new(429, "no"), RecordedAnswer::json("{}").cut()]
    {
        server.forget(&tokens_of(5));
        server.put(&tokens_of(5), answer);
        server.asked();
        let waits = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let (noted, mut options) = (waits.clone(), options_of(&server, &key, &[5]));
        options.tries = 3;
        options.wait = Box::new(move |time| {
            noted.lock().unwrap().push(time.as_millis());
            true
        });
        let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), Api::new(options));
        assert!(matches!(forge.one("1"), Err(Error::Unavailable { .. })));
        assert_eq!(lines(&server.asked()), [&tokens_of(5); 3]);
        assert_eq!(*waits.lock().unwrap(), [0, 1, 2]);
    }
    let mut calls = 0;
    let wait = Box::new(move |_| {
        calls += 1;
        calls < 2
    });
    let api = Api::new(ApiOptions { wait, ..options_of(&server, &key, &[5]) });
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api);
    assert!(matches!(forge.one("1"), Err(Error::Stopped)));
    assert_eq!(server.lines().len(), 1);
}

#[test]
fn app_tokens_are_those_of_owners() {
    let Some(key) = key() else { return };
    let server = RecordedServer::start();
    let one = |id: u64| json!({ "id": id, "account": { "login": format!("Owner{id}") } });
    server.put_json(&list(1), json!([one(5), one(6), one(7)]));
    server.put_json(&tokens_of(5), json!({ "token": "five" }));
    server.put(&tokens_of(6), RecordedAnswer::new(403, "suspended"));
    server.put_json(&tokens_of(7), json!({ "token": "seven" }));
    let tokens = AppTokens::new(Api::new(options_of(&server, &key, &[5, 6])));
    for owner in ["owner5", "OWNER5"] {
        assert_eq!(tokens.token_for(owner).unwrap().as_deref(), Some("five"));
    }
    assert_eq!(server.lines(), [list(1), tokens_of(5)], "each is asked for once");
    for owner in ["nobody", "owner7"] {
        assert_eq!(tokens.token_for(owner).unwrap(), None, "{owner} is not among those that are used");
    }
    assert!(server.lines().is_empty(), "the list is not asked for again so soon");
    assert!(matches!(tokens.token_for("owner6"), Err(Error::Forbidden { status: 403, .. })));
    assert_eq!(tokens.token_for("owner6").unwrap(), None);
    assert_eq!(server.lines(), [tokens_of(6)], "nor is a token that was not given");
}

#[test]
fn app_has_an_rsa_key() {
    let Some(key) = key() else { return };
    let folder = weir_testing::folder();
    let app = GitHubApp::new("iss", &key, vec![5]).unwrap();
    assert_eq!(format!("{app:?}"), "GitHubApp(iss, [5])");
    std::fs::write(folder.path().join("key.pem"), &key).unwrap();
    let old = openssl(folder.path(), &["rsa", "-traditional", "-in", "key.pem"]);
    assert!(GitHubApp::new("iss", &old, Vec::new()).is_ok());
    let other = openssl(folder.path(), &["ecparam", "-genkey", "-noout", "-name", "prime256v1"]);
    assert!(matches!(GitHubApp::new("iss", &other, Vec::new()), Err(AppError::NoRsa)));
    let odd = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert!(matches!(GitHubApp::new("iss", odd, Vec::new()), Err(AppError::Rejected(_))));
    assert!(matches!(GitHubApp::new("iss", b"odd", Vec::new()), Err(AppError::NoPem(_))));
}
