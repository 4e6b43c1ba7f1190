//! What forges send is understood: which repository has changed, where it was before, and what changes none.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::sync::watch;
use weir_events::{
    EventCommitter, EventSpool, Notice, ReceivedLine, SpoolOptions, WebhookAnswer, WebhookDoors,
    WebhookForge, WebhookOptions, WebhookResult,
};

/// Sends a delivery with `headers`, each `NAME: VALUE`, to a webhook that wants no signature. Returns the
/// answer, and the line that was kept.
fn deliver(
    forge: WebhookForge,
    site: Option<&str>,
    headers: &[&str],
    body: &[u8],
) -> (WebhookAnswer, Option<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = EventSpool::open(folder.path(), SpoolOptions::default()).unwrap();
    let mut reader = spool.reader(0);
    let committer = EventCommitter::start(spool).unwrap();
    let intake = watch::Sender::new(Some(committer.intake()));
    let (site, name) = (site.map(str::to_owned), "a".to_owned());
    let webhook = WebhookOptions { name, forge, secrets: Vec::new(), unsigned: true, site };
    let doors = WebhookDoors::new(&[webhook], intake.subscribe(), Arc::default()).unwrap();
    let pair = |header: &&str| {
        let (name, value) = header.split_once(": ").unwrap();
        (HeaderName::try_from(name).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    let headers: HeaderMap = headers.iter().map(pair).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let answer = runtime.block_on(doors.deliver("a", &headers, body, None));
    let mut kept = None;
    let mut take = |_: u64, record: &[u8]| {
        let line = ReceivedLine::parse(record).unwrap().line;
        assert!(Notice::parse(line).is_ok());
        kept = Some(serde_json::from_slice(line).unwrap());
    };
    while reader.read(10, &mut take).unwrap() > 0 {}
    assert_eq!(kept.is_some(), answer.result == WebhookResult::Taken);
    (answer, kept)
}

/// Checks that a delivery is kept with these values: `KEY=VALUE`, separated by blanks.
fn is_kept(forge: WebhookForge, headers: &[&str], body: &str, expected: &str) {
    let (answer, kept) = deliver(forge, None, headers, body.as_bytes());
    let kept = kept.unwrap_or_else(|| panic!("{body}: {answer:?}"));
    for pair in expected.split(' ') {
        let (key, value) = pair.split_once('=').unwrap();
        let found = kept.get(key).map_or("nothing", |found| found.as_str().unwrap());
        assert_eq!(found, value, "{key} of {body}");
    }
}

#[test]
fn github() {
    let repository = r#""repository":{"name":"tool","full_name":"acme/tool","owner":{"login":"acme"},
        "html_url":"https://github.com/acme/tool","clone_url":"https://github.com/acme/tool.git",
        "ssh_url":"git@github.com:acme/tool.git"}"#;
    let event = |event: &str| format!("X-GitHub-Event: {event}");
    let kept = |name: &str, fields: &str, expected: &str| {
        let body = format!("{{{fields}{repository}}}");
        is_kept(WebhookForge::GitHub, &[&event(name), "X-GitHub-Delivery: 7"], &body, expected);
    };
    let url = "clone_url=https://github.com/acme/tool.git";
    kept(
        "push",
        r#""ref":"refs/tags/v1","before":"0","after":"b","#,
        "ref=refs/tags/v1 old=0 new=b delivery=7",
    );
    kept("create", r#""ref":"v1","ref_type":"tag","#, url);
    kept("public", "", "event=public");
    kept("pull_request", r#""action":"synchronize","before":"a","after":"b","#, "action=synchronize");
    kept("gollum", "", "clone_url=https://github.com/acme/tool.wiki.git");
    let renamed = r#""action":"renamed","changes":{"repository":{"name":{"from":"old"}}},"#;
    kept("repository", renamed, "action=renamed old_url=https://github.com/acme/old.git");
    for owner in ["user", "organization"] {
        let changes = format!(r#""changes":{{"owner":{{"from":{{"{owner}":{{"login":"bob"}}}}}}}}"#);
        let moved = format!(r#""action":"transferred",{changes},"#);
        kept("repository", &moved, &format!("{url} old_url=https://github.com/bob/tool.git"));
    }
    kept("repository", r#""action":"edited","changes":{"description":{"from":null}},"#, "old_url=nothing");
    for (api, site) in [
        ("https://api.github.com", "https://github.com"),
        ("https://g/api/v3", "https://g"),
        ("https://api.g/api/v3", "https://api.g"),
    ] {
        let changes = r#""action":"renamed","changes":{"login":{"from":"bob"}}"#;
        let body = format!(r#"{{{changes},"organization":{{"login":"acme","url":"{api}/orgs/acme"}}}}"#);
        let expected = format!("old_group_url={site}/bob");
        is_kept(WebhookForge::GitHub, &[&event("organization")], &body, &expected);
    }
    let ignored = |name: &str, body: &str| {
        let (answer, _) = deliver(WebhookForge::GitHub, None, &[&event(name)], body.as_bytes());
        assert_eq!((answer.result, answer.status()), (WebhookResult::Ignored, 200), "{name}");
    };
    ignored("organization", r#"{"action":"member_added","organization":{"url":"https://g/orgs/a"}}"#);
    ignored("ping", r#"{"zen":"Keep it logically awesome."}"#);
    ignored("issues", "not even JSON");
    ignored("pull_request", &format!(r#"{{"action":"labeled",{repository}}}"#));
}

#[test]
fn a_form_holds_the_json() {
    let form = "payload=%7B%22repository%22%3A%7B%22name%22%3A%22a+b%22%2C%22clone_url%22%3A%22https%3A%2F%2F\
        h%2Fa%22%7D%7D&other=1";
    let kind = "Content-Type: application/x-www-form-urlencoded";
    is_kept(WebhookForge::GitHub, &["X-GitHub-Event: push", kind], form, "clone_url=https://h/a");
    // curl says so of JSON, too.
    let json = r#" {"repository":{"clone_url":"https://h/a?x=1&payload=2"}}"#;
    is_kept(
        WebhookForge::GitHub,
        &["X-GitHub-Event: push", kind],
        json,
        "clone_url=https://h/a?x=1&payload=2",
    );
    let (answer, _) = deliver(WebhookForge::GitHub, None, &["X-GitHub-Event: push", kind], b"a=1");
    assert!(answer.status() == 400 && answer.words.contains("not the expected JSON"), "{answer:?}");
}

#[test]
fn gitlab() {
    let project = r#""project":{"git_http_url":"https://gl/g/t.git","git_ssh_url":"git@gl:g/t.git"}"#;
    let kept = |fields: &str, expected: &str| {
        let headers = ["X-Gitlab-Event: Hook", "Idempotency-Key: k", "X-Gitlab-Webhook-UUID: u"];
        is_kept(WebhookForge::GitLab, &headers, &format!("{{{fields},{project}}}"), expected);
    };
    let push = r#""object_kind":"push","event_name":"push","ref":"refs/heads/m","before":"a","after":"b""#;
    kept(push, "clone_url=https://gl/g/t.git ssh_url=git@gl:g/t.git delivery=k ref=refs/heads/m");
    kept(r#""object_kind":"tag_push""#, "event=tag_push");
    kept(r#""event_name":"repository_update","changes":[]"#, "event=repository_update");
    kept(r#""object_kind":"merge_request","object_attributes":{"action":"open"}"#, "action=open");
    let moved = r#""object_kind":"merge_request","object_attributes":{"action":"update","oldrev":"a"}"#;
    kept(moved, "action=update");
    let wiki = r#""object_kind":"wiki_page","wiki":{"git_http_url":"https://gl/g/t.wiki.git"}"#;
    kept(wiki, "clone_url=https://gl/g/t.wiki.git");
    let system = |name: &str| {
        format!(
            r#"{{"event_name":"{name}","path_with_namespace":"g/new","old_path_with_namespace":"g/old"}}"#
        )
    };
    let expected = "clone_url=https://gl/g/new.git old_url=https://gl/g/old.git";
    let headers = ["X-Gitlab-Event: System Hook", "X-Gitlab-Instance: https://gl"];
    is_kept(WebhookForge::GitLab, &headers, &system("project_rename"), expected);
    for (event, expected) in [
        (r#""event_name":"group_rename","full_path":"g/new","old_full_path":"g/old""#, "https://gl/g/old"),
        (r#""event_name":"user_rename","username":"bob","old_username":"ann""#, "https://gl/ann"),
    ] {
        let expected = format!("old_group_url={expected}");
        is_kept(WebhookForge::GitLab, &headers, &format!("{{{event}}}"), &expected);
    }
    let site = Some("https://other/");
    let (_, kept) = deliver(WebhookForge::GitLab, site, &headers[..1], system("project_create").as_bytes());
    assert_eq!(kept.unwrap()["clone_url"], "https://other/g/new.git");
    let (answer, _) = deliver(WebhookForge::GitLab, None, &headers[..1], system("project_create").as_bytes());
    assert!(answer.status() == 400 && answer.words.contains("set url"), "{answer:?}");
    for body in [
        r#"{"object_kind":"merge_request","object_attributes":{"action":"approved"}}"#,
        r#"{"object_kind":"merge_request","object_attributes":{"action":"update"}}"#,
        r#"{"event_name":"user_create"}"#,
        r#"{"object_kind":"pipeline","object_attributes":{"ref":"m"}}"#,
        "{}",
    ] {
        let (answer, _) = deliver(WebhookForge::GitLab, None, &headers, body.as_bytes());
        assert_eq!(answer.result, WebhookResult::Ignored, "{body}");
    }
}

#[test]
fn gitea_and_its_kin() {
    let body = r#"{"ref":"refs/heads/m","before":"a","after":"b","action":"opened","repository":
        {"name":"t","full_name":"ann/t","clone_url":"https://gt/ann/t.git","ssh_url":"git@gt:ann/t.git"}}"#;
    for (forge, name) in
        [(WebhookForge::Gitea, "Gitea"), (WebhookForge::Forgejo, "Forgejo"), (WebhookForge::Gogs, "Gogs")]
    {
        let of = |event: &str| [format!("X-{name}-Event: {event}"), format!("X-{name}-Delivery: 9")];
        for event in ["push", "create", "delete", "repository", "pull_request"] {
            let headers = of(event);
            let headers = [headers[0].as_str(), headers[1].as_str(), "X-GitHub-Event: other"];
            is_kept(
                forge,
                &headers,
                body,
                &format!("event={event} clone_url=https://gt/ann/t.git delivery=9"),
            );
        }
        is_kept(forge, &[&of("wiki")[0]], body, "clone_url=https://gt/ann/t.wiki.git");
        let (answer, _) = deliver(forge, None, &["X-GitHub-Event: push"], body.as_bytes());
        assert!(answer.status() == 400 && answer.words.contains("of another forge"), "{answer:?}");
    }
}

#[test]
fn bitbucket() {
    let cloud = r#"{"push":{"changes":[{"new":{"type":"branch","name":"m","target":{"hash":"b"}},
        "old":{"type":"branch","name":"m","target":{"hash":"a"}}}]},"repository":{"full_name":"acme/tool",
        "links":{"html":{"href":"https://bitbucket.org/acme/tool"}}}}"#;
    let headers = ["X-Event-Key: repo:push", "X-Request-UUID: r", "X-Hook-UUID: h"];
    let expected = "clone_url=https://bitbucket.org/acme/tool.git delivery=r ref=refs/heads/m old=a new=b";
    is_kept(WebhookForge::Bitbucket, &headers, cloud, expected);
    let renamed = r#"{"changes":{"full_name":{"old":"acme/old","new":"acme/tool"},"name":{"old":"x"}},
        "repository":{"links":{"html":{"href":"https://bitbucket.org/acme/tool"}}}}"#;
    let expected = "old_url=https://bitbucket.org/acme/old.git";
    is_kept(WebhookForge::Bitbucket, &["X-Event-Key: repo:updated"], renamed, expected);
    let links = |slug: &str| {
        format!(
            r#"{{"slug":"{slug}","links":{{"self":[{{"href":"https://bb/projects/P/repos/{slug}/browse"}}],
            "clone":[{{"href":"ssh://git@bb:7999/p/{slug}.git","name":"ssh"}},
            {{"href":"https://bb/scm/p/{slug}.git","name":"http"}}]}}}}"#
        )
    };
    let server = format!(
        r#"{{"eventKey":"repo:refs_changed","repository":{},"changes":[{{"ref":{{"id":"refs/heads/m"}},
        "refId":"refs/heads/m","fromHash":"a","toHash":"b","type":"UPDATE"}}]}}"#,
        links("tool")
    );
    let headers = ["X-Event-Key: repo:refs_changed", "X-Request-Id: q"];
    let expected =
        "clone_url=https://bb/scm/p/tool.git ssh_url=ssh://git@bb:7999/p/tool.git delivery=q new=b";
    is_kept(WebhookForge::Bitbucket, &headers, &server, expected);
    let modified = format!(r#"{{"old":{},"new":{}}}"#, links("old"), links("tool"));
    let expected = "clone_url=https://bb/scm/p/tool.git old_url=https://bb/scm/p/old.git";
    is_kept(WebhookForge::Bitbucket, &["X-Event-Key: repo:modified"], &modified, expected);
    let request = format!(r#"{{"pullRequest":{{"toRef":{{"repository":{}}}}}}}"#, links("tool"));
    let expected = "clone_url=https://bb/scm/p/tool.git";
    is_kept(WebhookForge::Bitbucket, &["X-Event-Key: pr:from_ref_updated"], &request, expected);
    let bare = br#"{"repository":{"slug":"rep","project":{"key":"PRJ"}},"changes":[]}"#;
    let header = ["X-Event-Key: repo:refs_changed"];
    let (_, kept) = deliver(WebhookForge::Bitbucket, Some("https://bb/"), &header, bare);
    assert_eq!(kept.unwrap()["clone_url"], "https://bb/scm/prj/rep.git");
    let (answer, _) = deliver(WebhookForge::Bitbucket, None, &header, bare);
    assert!(answer.status() == 400 && answer.words.contains("set url"), "{answer:?}");
    for event in ["diagnostics:ping", "repo:fork", "pr:comment:added"] {
        let header = format!("X-Event-Key: {event}");
        let (answer, _) = deliver(WebhookForge::Bitbucket, None, &[&header], br#"{"test":true}"#);
        assert_eq!(answer.result, WebhookResult::Ignored, "{event}");
    }
}

#[test]
fn others() {
    let sourceforge = |host: &str| {
        format!(
            r#"{{"size":1,"commits":[],"before":"a","after":"b","ref":"refs/heads/m",
            "repository":{{"name":"Code","full_name":"/p/x/code/","url":"https://{host}/p/x/code/"}}}}"#
        )
    };
    let expected = "clone_url=https://git.code.sf.net/p/x/code ref=refs/heads/m event=push";
    is_kept(WebhookForge::SourceForge, &[], &sourceforge("sourceforge.net"), expected);
    let expected = "clone_url=https://forge.example/p/x/code/";
    is_kept(WebhookForge::SourceForge, &[], &sourceforge("forge.example"), expected);
    let azure = r#"{"id":"i","eventType":"git.push","resource":{"refUpdates":[{"name":"refs/heads/m",
        "oldObjectId":"a","newObjectId":"b"}],"repository":{"name":"t",
        "remoteUrl":"https://acme@dev.azure.com/acme/p/_git/t"}}}"#;
    let expected = "delivery=i clone_url=https://acme@dev.azure.com/acme/p/_git/t new=b";
    is_kept(WebhookForge::AzureDevOps, &[], azure, expected);
    let built = br#"{"id":"i","eventType":"build.complete","resource":{"id":4}}"#;
    let (answer, _) = deliver(WebhookForge::AzureDevOps, None, &[], built);
    assert_eq!(answer.result, WebhookResult::Ignored);
    let minimal = br#"{"id":"i","eventType":"git.push","resource":{"pushId":4}}"#;
    let (answer, _) = deliver(WebhookForge::AzureDevOps, None, &[], minimal);
    assert!(answer.status() == 400 && answer.words.contains("choose 'All'"), "{answer:?}");
    let sourcehut = r#"{"data":{"webhook":{"event":"REPO_CREATED","repository":
        {"name":"t","owner":{"canonicalName":"~ann"}}}}}"#;
    let headers = ["X-Webhook-Delivery: d"];
    is_kept(WebhookForge::Sourcehut, &headers, sourcehut, "clone_url=https://git.sr.ht/~ann/t delivery=d");
    let (_, kept) =
        deliver(WebhookForge::Sourcehut, Some("https://git.own/"), &headers, sourcehut.as_bytes());
    assert_eq!(kept.unwrap()["clone_url"], "https://git.own/~ann/t");
    for forge in [WebhookForge::Standard, WebhookForge::Generic] {
        let expected = "clone_url=https://h/a event=repo.pushed delivery=w";
        let body = r#"{"type":"repo.pushed","repository":{"clone_url":"https://h/a"}}"#;
        is_kept(forge, &["webhook-id: w"], body, expected);
        let (answer, _) = deliver(forge, None, &[], br#"{"type":"invoice.paid"}"#);
        assert_eq!(answer.result, WebhookResult::Ignored);
        let body = r#"{"type":"repo.push","timestamp":"t","data":{"url":"https://h/a"}}"#;
        is_kept(forge, &[], body, "clone_url=https://h/a event=repo.push");
        let (answer, _) = deliver(forge, None, &[], br#"{"url":null}"#);
        assert!(answer.status() == 400 && answer.words.contains("none of the keys"), "{answer:?}");
    }
}

#[test]
fn what_cannot_be_understood_is_told() {
    let event = ["X-GitHub-Event: push"];
    let long = format!(r#"{{"repository":{{"clone_url":"https://h/{}"}}}}"#, "x".repeat(9000));
    for (body, why) in [
        ("", "not the expected JSON"),
        ("[]", "not the expected JSON"),
        (r#"{"repository":3}"#, "expected an object"),
        (r#"{"repository":{"name":"x"}}"#, "the 'push' event names no repository"),
        (r#"{"repository":{"clone_url":""}}"#, "the 'push' event names no repository"),
        (&long, "too long"),
    ] {
        let (answer, _) = deliver(WebhookForge::GitHub, None, &event, body.as_bytes());
        assert_eq!(answer.result, WebhookResult::Bad, "{body}");
        assert!(answer.status() == 400 && answer.words.contains(why), "{answer:?}");
    }
    let deep = "[".repeat(100_000);
    for forge in WebhookForge::ALL {
        let headers = ["X-GitLab-Event: a", "X-Event-Key: repo:push", "X-GitHub-Event: push"];
        for body in [deep.as_bytes(), b"\xff\xfe", b"null", b"{}", b"{\"data\":{}}"] {
            assert!(matches!(deliver(forge, None, &headers, body).0.status(), 200 | 400));
        }
    }
}
