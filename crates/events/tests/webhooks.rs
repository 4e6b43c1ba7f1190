//! Deliveries of webhooks are checked, understood, kept once, and answered when they are on disk.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::signature::KeyPair;
use ring::{hmac, signature};
use serde_json::{Value, json};
use tokio::sync::watch;
use weir_events::{
    EventCommitter, EventIntake, EventSpool, ReceivedLine, SecretError, SpoolOptions, SpoolReader,
    WebhookCounts, WebhookDoors, WebhookForge, WebhookOptions, WebhookResult,
};

const SECRET: &str = "It's a Secret to Everybody";

/// Doors for webhooks, and the reading end of their spool.
struct Hooks {
    doors: WebhookDoors,
    counts: Arc<WebhookCounts>,
    intake: watch::Sender<Option<EventIntake>>,
    committer: Option<EventCommitter>,
    reader: SpoolReader,
    _folder: tempfile::TempDir,
}

impl Hooks {
    fn open(webhooks: &[WebhookOptions]) -> Hooks {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = EventSpool::open(folder.path(), SpoolOptions::default()).unwrap();
        let reader = spool.reader(0);
        let committer = EventCommitter::start(spool).unwrap();
        let intake = watch::Sender::new(Some(committer.intake()));
        let counts = Arc::<WebhookCounts>::default();
        let doors = WebhookDoors::new(webhooks, intake.subscribe(), counts.clone()).unwrap();
        Hooks { doors, counts, intake, committer: Some(committer), reader, _folder: folder }
    }

    fn of(forge: WebhookForge) -> Hooks {
        Hooks::open(&[hook("a", forge)])
    }

    fn send(&self, headers: &[(&str, &str)], body: &[u8]) -> (WebhookResult, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let address = Some("192.0.2.7".parse().unwrap());
        let answer = runtime.block_on(self.doors.deliver("a", &headers_of(headers), body, address));
        (answer.result, answer.words.into_owned())
    }

    /// Returns the lines that are in the spool and were not returned before.
    fn lines(&mut self) -> Vec<Value> {
        let mut found = Vec::new();
        let mut take = |_: u64, record: &[u8]| {
            let ReceivedLine { peer, line, .. } = ReceivedLine::parse(record).unwrap();
            assert_eq!(peer, "http 192.0.2.7 webhook=a");
            found.push(serde_json::from_slice(line).unwrap());
        };
        while self.reader.read(1000, &mut take).unwrap() > 0 {}
        found
    }
}

fn hook(name: &str, forge: WebhookForge) -> WebhookOptions {
    let secrets = vec![SECRET.to_owned()];
    WebhookOptions { name: name.to_owned(), forge, secrets, unsigned: false, site: None }
}

fn headers_of(headers: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    headers.iter().map(pair).collect()
}

fn hex_hmac(algorithm: hmac::Algorithm, secret: &[u8], body: &[u8]) -> String {
    weir_ground::hex(hmac::sign(&hmac::Key::new(algorithm, secret), body).as_ref())
}

fn sha256(secret: &str, body: &[u8]) -> String {
    hex_hmac(hmac::HMAC_SHA256, secret.as_bytes(), body)
}

/// A push to GitHub, as its documentation shows it, with what weir does not read cut short.
fn github_push() -> Value {
    json!({
        "ref": "refs/heads/main", "before": "a".repeat(40), "after": "b".repeat(40),
        "repository": {"id": 1, "name": "tool", "full_name": "acme/tool", "private": false,
            "owner": {"login": "acme"}, "html_url": "https://github.com/acme/tool",
            "clone_url": "https://github.com/acme/tool.git", "ssh_url": "git@github.com:acme/tool.git"},
        "pusher": {"name": "ann"}, "forced": false, "commits": [{"id": "b".repeat(40)}]
    })
}

#[test]
fn a_signature_is_one_over_the_bytes_of_the_body() {
    let mut hooks = Hooks::of(WebhookForge::GitHub);
    let body = serde_json::to_vec(&github_push()).unwrap();
    let right = format!("sha256={}", sha256(SECRET, &body));
    let send = |id: &str, signature: &str, body: &[u8]| {
        let mut headers = vec![("x-github-event", "push"), ("x-github-delivery", id)];
        if !signature.is_empty() {
            headers.push(("x-hub-signature-256", signature));
        }
        hooks.send(&headers, body)
    };
    assert_eq!(send("1", &right, &body).0, WebhookResult::Taken);
    let empty = sha256("", &body);
    for (wrong, why) in [
        ("", "it is not signed"),
        ("sha256=", "its signature is malformed"),
        ("sha256=zz", "its signature is malformed"),
        (&right["sha256=".len()..], "its signature is malformed"),
        (&right[..right.len() - 2], "another secret"),
        (&format!("sha256={empty}"), "another secret"),
        (&format!("sha1={}", hex_hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"x", &body)), "malformed"),
    ] {
        let (result, words) = send("2", wrong, &body);
        assert!(result == WebhookResult::Refused && words.contains(why), "{wrong}: {words}");
    }
    let mut other = body.clone();
    other.push(b' ');
    assert_eq!(send("2", &right, &other).0, WebhookResult::Refused);
    let expected = json!({
        "webhook": "a", "event": "push", "delivery": "1",
        "clone_url": "https://github.com/acme/tool.git", "ssh_url": "git@github.com:acme/tool.git",
        "ref": "refs/heads/main", "old": "a".repeat(40), "new": "b".repeat(40)
    });
    assert_eq!(hooks.lines(), [expected]);
    // The vector of GitHub's documentation.
    let published = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let headers = [("x-github-event", "ping"), ("x-hub-signature-256", published)];
    assert_eq!(hooks.send(&headers, b"Hello, World!").0, WebhookResult::Ignored);
    let counts = hooks.counts.all();
    let of = |result| counts.iter().find(|(_, found, _)| *found == result).map_or(0, |(_, _, n)| *n);
    assert_eq!((of(WebhookResult::Taken), of(WebhookResult::Refused)), (1, 8));
}

#[test]
fn either_of_two_secrets_is_right() {
    let secrets = vec!["old".to_owned(), "new".to_owned()];
    let hooks = Hooks::open(&[WebhookOptions { secrets, ..hook("a", WebhookForge::Gitea) }]);
    let body = serde_json::to_vec(&github_push()).unwrap();
    for (secret, result) in
        [("old", WebhookResult::Taken), ("new", WebhookResult::Taken), ("other", WebhookResult::Refused)]
    {
        let signature = sha256(secret, &body);
        // Gitea sends the headers of GitHub, too.
        let headers = [
            ("x-gitea-event", "push"),
            ("x-gitea-delivery", secret),
            ("x-github-event", "push"),
            ("x-gitea-signature", &signature),
        ];
        assert_eq!(hooks.send(&headers, &body).0, result, "{secret}");
    }
    // Gitea signs the JSON in a form.
    let form = b"payload=%7B%22repository%22%3A%7B%22clone_url%22%3A%22https%3A%2F%2Fh%2Fa%22%7D%7D";
    let json = br#"{"repository":{"clone_url":"https://h/a"}}"#;
    for (signed, result) in
        [(&json[..], WebhookResult::Taken), (&form[..], WebhookResult::Taken), (b"x", WebhookResult::Refused)]
    {
        let signature = sha256("new", signed);
        let kind = ("content-type", "application/x-www-form-urlencoded");
        let headers = [("x-gitea-event", "push"), ("x-gitea-signature", signature.as_str()), kind];
        assert_eq!(hooks.send(&headers, form).0, result);
    }
    let unsigned = [("x-gitea-event", "push"), ("x-hub-signature-256", "sha256="), ("x-gitea-signature", "")];
    assert_eq!(hooks.send(&unsigned, &body).0, WebhookResult::Refused);
}

#[test]
fn each_forge_signs_in_its_own_way() {
    let github = serde_json::to_vec(&github_push()).unwrap();
    let hex = sha256(SECRET, &github);
    for (forge, name) in [(WebhookForge::Forgejo, "forgejo"), (WebhookForge::Gogs, "gogs")] {
        let event = format!("x-{name}-event");
        let signature = format!("x-{name}-signature");
        let headers = [(event.as_str(), "push"), (signature.as_str(), hex.as_str())];
        assert_eq!(Hooks::of(forge).send(&headers, &github).0, WebhookResult::Taken, "{name}");
        assert_eq!(Hooks::of(forge).send(&headers[..1], &github).0, WebhookResult::Refused, "{name}");
    }
    let gitlab = Hooks::of(WebhookForge::GitLab);
    let body = br#"{"object_kind":"push","event_name":"push","project":{"git_http_url":"https://h/a.git"}}"#;
    let event = ("x-gitlab-event", "Push Hook");
    assert_eq!(gitlab.send(&[event, ("x-gitlab-token", SECRET)], body).0, WebhookResult::Taken);
    assert_eq!(gitlab.send(&[event, ("x-gitlab-token", "other")], body).0, WebhookResult::Refused);
    assert_eq!(gitlab.send(&[event], body).0, WebhookResult::Refused);
    let sourceforge = Hooks::of(WebhookForge::SourceForge);
    let body = br#"{"repository":{"full_name":"/p/x/code/","url":"https://sourceforge.net/p/x/code/"}}"#;
    let sha1 = hex_hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes(), body);
    let signed = |sum: &str| sourceforge.send(&[("x-allura-signature", &format!("sha1={sum}"))], body).0;
    assert_eq!((signed(&sha1), signed(&hex)), (WebhookResult::Taken, WebhookResult::Refused));
    let azure = Hooks::of(WebhookForge::AzureDevOps);
    let body =
        br#"{"id":"1","eventType":"git.push","resource":{"repository":{"remoteUrl":"https://h/_git/a"}}}"#;
    let basic = |password: &str| {
        let sent = format!("Basic {}", STANDARD.encode(format!("any:{password}")));
        azure.send(&[("authorization", &sent)], body).0
    };
    assert_eq!((basic(SECRET), basic("")), (WebhookResult::Taken, WebhookResult::Refused));
    let generic = Hooks::of(WebhookForge::Generic);
    let bearer = |token: &str| {
        generic.send(&[("authorization", &format!("bearer {token}"))], br#"{"url":"https://h/a"}"#).0
    };
    assert_eq!((bearer(SECRET), bearer("x")), (WebhookResult::Taken, WebhookResult::Refused));
}

#[test]
fn a_site_signs_with_its_private_key() {
    let random = ring::rand::SystemRandom::new();
    let pair = signature::Ed25519KeyPair::generate_pkcs8(&random).unwrap();
    let pair = signature::Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap();
    let secrets = vec![STANDARD.encode(pair.public_key().as_ref())];
    let mut hooks = Hooks::open(&[WebhookOptions { secrets, ..hook("a", WebhookForge::Sourcehut) }]);
    let body = json!({"data": {"webhook": {"uuid": "u1", "event": "GIT_POST_RECEIVE",
        "repository": {"name": "tool", "owner": {"canonicalName": "~ann"}},
        "updates": [{"ref": {"name": "refs/heads/m"}, "old": null, "new": {"id": "c0"}}]}}});
    let body = serde_json::to_vec(&body).unwrap();
    let sign = |signed: &[u8]| STANDARD.encode(pair.sign(signed).as_ref());
    let signature = sign(&[body.as_slice(), b"n1"].concat());
    let send = |nonce, signature: &str| {
        hooks.send(&[("x-payload-nonce", nonce), ("x-payload-signature", signature)], &body).0
    };
    assert_eq!(send("n2", &signature), WebhookResult::Refused);
    assert_eq!(send("n1", &sign(&body)), WebhookResult::Refused);
    assert_eq!(send("n1", &signature), WebhookResult::Taken);
    let expected = json!({"webhook": "a", "event": "GIT_POST_RECEIVE", "delivery": "u1",
        "clone_url": "https://git.sr.ht/~ann/tool", "ref": "refs/heads/m", "old": "0", "new": "c0"});
    assert_eq!(hooks.lines(), [expected]);
    // Without a key in the settings, that of sr.ht is used.
    let other = Hooks::open(&[WebhookOptions { secrets: Vec::new(), ..hook("a", WebhookForge::Sourcehut) }]);
    let headers = [("x-payload-nonce", "n1"), ("x-payload-signature", signature.as_str())];
    assert_eq!(other.send(&headers, &body).0, WebhookResult::Refused);
    let bad = [WebhookOptions { secrets: vec!["AAAA".to_owned()], ..hook("b", WebhookForge::Sourcehut) }];
    let (_, intake) = watch::channel(None);
    let error = WebhookDoors::new(&bad, intake, Arc::default()).err().unwrap();
    assert_eq!((error.webhook.as_str(), error.why), ("b", SecretError::NoPublicKey));
}

#[test]
fn standard_webhooks_are_signed_with_their_id_and_time() {
    let key = [7; 24];
    let secrets = vec![format!("whsec_{}", STANDARD.encode(key))];
    let hooks = Hooks::open(&[WebhookOptions { secrets, ..hook("a", WebhookForge::Standard) }]);
    let body = br#"{"type":"repository.pushed","repository":{"clone_url":"https://h/a.git"}}"#;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let sign = |id: &str, at_s: u64| {
        let signed = [format!("{id}.{at_s}.").as_bytes(), body].concat();
        STANDARD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed))
    };
    let send = |id: &str, at_s: u64, signature: &str| {
        let at = at_s.to_string();
        let headers = [("webhook-id", id), ("webhook-timestamp", &at), ("webhook-signature", signature)];
        hooks.send(&headers, body)
    };
    let right = sign("m1", now_s);
    assert_eq!(send("m2", now_s, &format!("v1,{right}")).0, WebhookResult::Refused);
    assert_eq!(send("m1", now_s - 1, &format!("v1,{right}")).0, WebhookResult::Refused);
    assert_eq!(send("m1", now_s, &format!("v2,{right}")).0, WebhookResult::Refused);
    let old = sign("m1", now_s - 1000);
    let (result, words) = send("m1", now_s - 1000, &format!("v1,{old}"));
    assert!(result == WebhookResult::Refused && words.contains("5 minutes"), "{words}");
    assert_eq!(send("m1", now_s, &format!("v1,AAAA v1,{right}")).0, WebhookResult::Taken);
    assert_eq!(send("m1", now_s, &format!("v1,{right}")).0, WebhookResult::Repeated);
}

#[test]
fn a_delivery_that_comes_again_is_kept_once() {
    let mut hooks = Hooks::of(WebhookForge::GitHub);
    let body = serde_json::to_vec(&github_push()).unwrap();
    let signature = format!("sha256={}", sha256(SECRET, &body));
    let headers = |id| {
        [("x-github-event", "push"), ("x-github-delivery", id), ("x-hub-signature-256", signature.as_str())]
    };
    assert_eq!(hooks.send(&headers("1"), &body).0, WebhookResult::Taken);
    assert_eq!(hooks.send(&headers("1"), &body).0, WebhookResult::Repeated);
    assert_eq!(hooks.send(&headers("2"), &body).0, WebhookResult::Taken);
    let lines = hooks.lines();
    assert_eq!(lines.len(), 2);
    // A server that is started later is told of what is on disk.
    let other = Hooks::of(WebhookForge::GitHub);
    let kept: Vec<Vec<u8>> = lines.iter().map(|line| serde_json::to_vec(line).unwrap()).collect();
    other.doors.remember(kept.iter().map(Vec::as_slice).chain([b"push https://h/a".as_slice()]));
    assert_eq!(other.send(&headers("2"), &body).0, WebhookResult::Repeated);
    assert_eq!(other.send(&headers("3"), &body).0, WebhookResult::Taken);
}

#[test]
fn a_delivery_is_not_taken_before_it_can_be_kept() {
    let mut hooks = Hooks::of(WebhookForge::GitHub);
    let body = serde_json::to_vec(&github_push()).unwrap();
    let signature = format!("sha256={}", sha256(SECRET, &body));
    let headers =
        [("x-github-event", "push"), ("x-github-delivery", "1"), ("x-hub-signature-256", signature.as_str())];
    drop(hooks.committer.take());
    let (result, words) = hooks.send(&headers, &body);
    assert!(result == WebhookResult::Failed && words.contains("send it again"), "{words}");
    // It waits for a process that is about to start.
    let folder = tempfile::tempdir().unwrap();
    let spool = EventSpool::open(folder.path(), SpoolOptions::default()).unwrap();
    let committer = EventCommitter::start(spool).unwrap();
    hooks.intake.send_replace(None);
    let (hooks, intake) = (&hooks, committer.intake());
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || hooks.send(&headers, &body).0);
        std::thread::sleep(Duration::from_millis(200));
        hooks.intake.send_replace(Some(intake));
        assert_eq!(sent.join().unwrap(), WebhookResult::Taken);
    });
}

#[test]
fn many_deliveries_at_once_are_all_kept() {
    let mut hooks = Hooks::of(WebhookForge::Generic);
    let shared = &hooks;
    std::thread::scope(|scope| {
        for thread in 0..16 {
            scope.spawn(move || {
                for n in 0..50 {
                    let body = format!(r#"{{"url":"https://h/{thread}/{n}"}}"#);
                    let token = format!("Bearer {SECRET}");
                    let answer = shared.send(&[("authorization", &token)], body.as_bytes());
                    assert_eq!(answer.0, WebhookResult::Taken);
                }
            });
        }
    });
    let mut urls: Vec<String> = hooks.lines().iter().map(|line| line["clone_url"].to_string()).collect();
    urls.sort();
    urls.dedup();
    assert_eq!(urls.len(), 800);
}
