//! Deliveries of webhooks that GitHub and GitLab list.

use serde_json::{Value, json};
use weir_forge::{
    Api, ApiOptions, AttemptPage, DeliveryAttempt, DeliveryRequest, Error, Forge, GitHub, GitHubApp, GitLab,
};
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::{api, options, text};

fn header(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn github_deliveries_are_listed_with_their_requests() {
    let server = RecordedServer::start();
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&["t"]));
    let of_github = forge.hook_deliveries().unwrap();
    let hook = |id: u64, url: &str| json!({ "id": id, "config": { "url": url } });
    let line = |page: u64| format!("GET /api/v3/orgs/o/hooks?per_page=100&page={page}");
    let many: Vec<Value> = (0..100).map(|id| hook(id, if id == 7 { "ours" } else { "other" })).collect();
    server.put_json(&line(1), json!(many));
    server.put_json(&line(2), json!([hook(200, "ours"), { "config": { "url": "ours" } }]));
    let ours = |url: &str| url == "ours";
    assert_eq!(of_github.hooks("orgs/o", &ours).unwrap(), ["orgs/o/hooks/7", "orgs/o/hooks/200"]);
    assert_eq!(of_github.hooks("app", &ours).unwrap(), ["app/hook"]);
    assert_eq!(of_github.hooks("orgs/o/hooks/12", &ours).unwrap(), ["orgs/o/hooks/12"]);
    assert_eq!(server.lines().len(), 2);
    assert!(matches!(of_github.hooks("orgs/o/hooks/x", &ours), Err(Error::NotFound(_))));
    let first = json!([
        { "id": 3, "guid": "g", "event": "push", "action": "made", "delivered_at": "1970-01-01T00:00:09Z",
            "status_code": 299 },
        { "id": 2, "guid": "g", "event": "push", "action": null, "delivered_at": "1970-01-01T00:00:08.5Z",
            "status_code": 500 },
        { "id": "odd" },
    ]);
    let deliveries = "GET /api/v3/orgs/o/hooks/7/deliveries?per_page=100";
    let linked = RecordedAnswer::json(first).header("Link", "<x?per_page=100&cursor=v1_2>; rel=\"next\"");
    server.put(deliveries, linked);
    server.put_json(&format!("{deliveries}&cursor=v1_2"), json!([]));
    let attempt = |id, action, at, has_succeeded| DeliveryAttempt {
        id,
        delivery: "g".to_owned(),
        event: "push".to_owned(),
        action,
        mark: at,
        at: Some(at),
        has_succeeded,
        request: None,
    };
    let attempts = vec![attempt(3, text("made"), 9, true), attempt(2, None, 8, false)];
    let found = of_github.attempts("orgs/o/hooks/7", None).unwrap();
    assert_eq!(found, AttemptPage { attempts: attempts.clone(), next: text("v1_2") });
    assert_eq!(of_github.attempts("orgs/o/hooks/7", Some("v1_2")).unwrap(), AttemptPage::default());
    for odd in [json!([{ "id": "odd" }]), json!({})] {
        server.forget(deliveries);
        server.put_json(deliveries, odd);
        assert!(matches!(of_github.attempts("orgs/o/hooks/7", None), Err(Error::Unexpected { .. })));
    }
    let request = json!({ "request": { "headers": { "X-A": "a", "X-B": 5 }, "payload": { "x": 1 } } });
    server.put_json("GET /api/v3/orgs/o/hooks/7/deliveries/3", request);
    let headers = vec![header("X-A", "a"), header("X-B", "5")];
    let expected = DeliveryRequest { headers, body: b"{\"x\":1}".to_vec() };
    assert_eq!(of_github.request("orgs/o/hooks/7", &attempts[0]).unwrap(), Some(expected));
    assert_eq!(of_github.request("orgs/o/hooks/7", &attempts[1]).unwrap(), None);
    server.put("GET /api/v3/orgs/o/hooks/7/deliveries/2", RecordedAnswer::new(500, "no"));
    let failed = of_github.request("orgs/o/hooks/7", &attempts[1]);
    assert!(matches!(failed, Err(Error::Unavailable { .. })));
    assert!(matches!(of_github.attempts("app/hook", None), Err(Error::Unexpected { .. })), "no App");
}

#[test]
fn github_deliveries_of_an_app_are_asked_for_as_the_app() {
    if weir_testing::program("openssl").is_none() {
        return;
    }
    let server = RecordedServer::start();
    let key = weir_testing::command("openssl").args(["genrsa", "2048"]).output().unwrap().stdout;
    let app = GitHubApp::new("iss", &key, vec![5]).unwrap();
    let options = ApiOptions { app: Some((app, server.url() + "/api/v3")), ..options(&["t"]) };
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), Api::new(options));
    server.put_json("GET /api/v3/app/hook/deliveries?per_page=100", json!([]));
    let of_github = forge.hook_deliveries().unwrap();
    assert_eq!(of_github.attempts("app/hook", None).unwrap(), AttemptPage::default());
    assert_eq!(server.asked()[0].authorization().unwrap().split('.').count(), 3, "a signed word");
}

#[test]
fn gitlab_deliveries_are_listed_with_their_requests() {
    let server = RecordedServer::start();
    let mut forge = GitLab::new(&server.url(), Vec::new(), api(&["t"]));
    let of_gitlab = forge.hook_deliveries().unwrap();
    let hooks = "GET /api/v4/projects/g%2Fs/hooks?per_page=100&page=1";
    server.put_json(hooks, json!([{ "id": 7, "url": "ours" }, { "id": 8, "url": "other" }]));
    let ours = |url: &str| url == "ours";
    assert_eq!(of_gitlab.hooks("projects/g/s", &ours).unwrap(), ["projects/g/s/hooks/7"]);
    assert_eq!(of_gitlab.hooks("groups/g/hooks/9", &ours).unwrap(), ["groups/g/hooks/9"]);
    let line = |page: u64| format!("GET /api/v4/projects/g%2Fs/hooks/7/events?per_page=100&page={page}");
    let item = |id: u64, headers: Value, status: Value| {
        json!({ "id": id, "trigger": "push_hooks", "request_headers": headers, "request_data": "body",
            "response_status": status })
    };
    let first = json!([
        item(5, json!({ "X-Gitlab-Event-UUID": "u", "Idempotency-Key": "key" }), json!("200")),
        item(4, json!({ "webhook-ID": "w" }), json!(201)),
        item(3, json!({}), json!("internal error")),
        item(2, json!({}), json!("20")),
        item(1, json!({}), json!(500)),
        { "id": "odd" },
    ]);
    server.put(&line(1), RecordedAnswer::json(first).header("Link", "<x>; rel=\"next\""));
    let attempt = |id, delivery: &str, headers, has_succeeded| DeliveryAttempt {
        id,
        delivery: delivery.to_owned(),
        event: "push_hooks".to_owned(),
        action: None,
        mark: i64::try_from(id).unwrap(),
        at: None,
        has_succeeded,
        request: Some(DeliveryRequest { headers, body: b"body".to_vec() }),
    };
    let keyed = vec![header("Idempotency-Key", "key"), header("X-Gitlab-Event-UUID", "u")];
    let attempts = vec![
        attempt(5, "key", keyed, true),
        attempt(4, "w", vec![header("webhook-ID", "w")], true),
        attempt(3, "attempt 3", Vec::new(), false),
        attempt(2, "attempt 2", Vec::new(), false),
        attempt(1, "attempt 1", Vec::new(), false),
    ];
    let found = of_gitlab.attempts("projects/g/s/hooks/7", None).unwrap();
    assert_eq!(found, AttemptPage { attempts: attempts.clone(), next: text("2") });
    let full: Vec<Value> = (0..100).map(|id| item(id, json!({}), json!(200))).collect();
    server.put_json(&line(2), json!(full));
    let found = of_gitlab.attempts("projects/g/s/hooks/7", Some("2")).unwrap();
    assert_eq!((found.attempts.len(), found.next.as_deref()), (100, Some("3")));
    server.put_json(&line(3), json!([]));
    let found = of_gitlab.attempts("projects/g/s/hooks/7", Some("3")).unwrap();
    assert_eq!(found, AttemptPage::default());
    let request = of_gitlab.request("projects/g/s/hooks/7", &attempts[0]).unwrap();
    assert_eq!(request, attempts[0].request);
    server.put_json(&line(4), json!({}));
    let failed = of_gitlab.attempts("projects/g/s/hooks/7", Some("4"));
    assert!(matches!(failed, Err(Error::Unexpected { .. })));
}
