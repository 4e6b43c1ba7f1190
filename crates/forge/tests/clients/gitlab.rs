//! Listings of GitLab, and what it says around repositories.

use serde_json::{Value, json};
use weir_forge::{Error, Forge, GitLab, Listed, MetadataKind, MetadataPage, Page, Skipped};
use weir_ground::Timestamp;
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::{api, organization, page, pages, skipping, text, user};

const ORDER: &str = "pagination=keyset&order_by=id&sort=asc&per_page=100&id_after=";

fn project(id: u64) -> Value {
    json!({ "id": id, "path_with_namespace": format!("g/s/{id}"), "description": "says",
        "http_url_to_repo": format!("https://h/g/s/{id}.git"), "topics": ["x", ""],
        "namespace": { "id": 3, "full_path": "g/s", "kind": "group" }, "default_branch": "trunk",
        "visibility": "internal", "forked_from_project": { "id": 5 }, "archived": true,
        "empty_repo": true, "wiki_enabled": true, "star_count": 6, "forks_count": 7,
        "open_issues_count": 8, "created_at": "2020", "updated_at": "2021", "last_activity_at": "2022" })
}

fn listed(id: u64) -> Listed {
    Listed {
        forge_id: id.to_string(),
        full_name: format!("g/s/{id}"),
        clone_url: format!("https://h/g/s/{id}.git"),
        owner: Some(organization("3", "g/s")),
        description: text("says"),
        topics: Some(vec!["x".to_owned()]),
        default_branch: text("trunk"),
        fork: Some(true),
        parent_id: text("5"),
        archived: Some(true),
        private: Some(true),
        empty: Some(true),
        wiki: Some(true),
        stars: Some(6),
        forks: Some(7),
        open_issues: Some(8),
        created_at: text("2020"),
        updated_at: text("2021"),
        pushed_at: text("2022"),
        ..Listed::default()
    }
}

fn small(id: u64) -> Value {
    json!({ "id": id, "path_with_namespace": id.to_string(), "http_url_to_repo": "u" })
}

#[test]
fn gitlab_listing_of_everything_goes_on_after_an_id() {
    let server = RecordedServer::start();
    let line = |after: u64| format!("GET /api/v4/projects?{ORDER}{after}");
    let mut public = project(4);
    (public["visibility"], public["forked_from_project"]) = (json!("public"), json!(null));
    public["namespace"]["kind"] = json!("user");
    let linked = RecordedAnswer::json(json!([project(2), public, { "id": "odd" }]));
    server.put(&line(0), linked.header("Link", "<{url}/x>; rel=\"next\""));
    // A full page may have another one behind it, linked or not.
    server.put_json(&line(4), Value::from((5..105).map(small).collect::<Vec<_>>()));
    server.put_json(&line(104), json!([project(106)]));
    let mut forge = GitLab::new(&(server.url() + "/"), Vec::new(), api(&[]));
    let found = pages(&mut forge);
    let public = Listed {
        private: Some(false),
        fork: Some(false),
        parent_id: None,
        owner: Some(user("3", "g/s")),
        ..listed(4)
    };
    assert_eq!(found[0], ("0".to_owned(), page(vec![listed(2), public], Some("4"))));
    assert_eq!((found[1].1.repositories.len(), found[1].1.next.as_deref()), (100, Some("104")));
    let few = Listed {
        forge_id: "5".to_owned(),
        full_name: "5".to_owned(),
        clone_url: "u".to_owned(),
        ..Listed::default()
    };
    assert_eq!(found[1].1.repositories[0], few, "what it does not say stays unknown");
    assert_eq!(found[2], ("104".to_owned(), page(vec![listed(106)], None)));
    assert_eq!((found.len(), forge.usage().requests), (3, 3));
    // With each page in a row that fails, twice as many ids are skipped.
    for after in [1000, 1100] {
        server.put(&line(after), RecordedAnswer::new(500, "no"));
    }
    server.put(&line(1300), RecordedAnswer::new(422, "no"));
    let error = |after: u64, what: &str| {
        let url = line(after).replace("GET ", &server.url());
        format!("{url}: {what}")
    };
    let down = "500 Internal Server Error: no";
    assert_eq!(forge.page("1000").unwrap(), skipping("1000", &error(1000, down), Some("1100")));
    assert_eq!(forge.page("1100").unwrap(), skipping("1100", &error(1100, down), Some("1300")));
    let refused = error(1300, "request rejected: no");
    assert_eq!(forge.page("1300").unwrap(), skipping("1300", &refused, Some("1700")));
    forge.page("104").unwrap();
    assert_eq!(forge.page("1000").unwrap().next.as_deref(), Some("1100"));
    server.put(&line(7), RecordedAnswer::new(403, "no"));
    assert!(matches!(forge.page("7"), Err(Error::Forbidden { .. })), "there are no other owners");
    server.put_json(&line(8), json!({}));
    assert!(matches!(forge.page("8"), Err(Error::Unexpected { .. })));
    server.put_json(&line(9), json!([]));
    assert_eq!(forge.page("9").unwrap(), Page::default());
}

#[test]
fn gitlab_listing_of_groups_and_users() {
    let server = RecordedServer::start();
    let group = |name: &str, after: u64| {
        format!("GET /api/v4/groups/{name}/projects?include_subgroups=true&{ORDER}{after}")
    };
    let person = |name: &str| format!("GET /api/v4/users/{name}/projects?{ORDER}0");
    let owners = ["g/s", "person", "gone", "closed", "broken", "late"].map(str::to_owned).to_vec();
    let linked = RecordedAnswer::json(json!([project(2)])).header("Link", "<x>; rel=\"next\"");
    server.put(&group("g%2Fs", 0), linked.clone());
    server.put_json(&group("g%2Fs", 2), json!([]));
    server.put_json(&person("person"), json!([project(3)]));
    server.put(&group("closed", 0), RecordedAnswer::new(403, "no"));
    server.put(&group("broken", 0), RecordedAnswer::new(500, "no"));
    server.put(&group("late", 0), linked);
    server.put(&group("late", 2), RecordedAnswer::new(500, "no"));
    server.put_json(&group("late", 102), json!([project(103)]));
    let mut forge = GitLab::new(&server.url(), owners, api(&[]));
    let error = |line: String, what: &str| {
        let url = line.replace("GET ", &server.url());
        format!("{url}: {what}")
    };
    let forbidden = error(group("closed", 0), "403: no; look at the tokens of this forge");
    let left_out = Some(Skipped { position: "3:0".to_owned(), error: forbidden });
    let down = |name, after| error(group(name, after), "500 Internal Server Error: no");
    let expected = [
        ("0:0", page(vec![listed(2)], Some("0:2"))),
        ("0:2", page(vec![], Some("1:0"))),
        ("1:0", page(vec![listed(3)], Some("2:0"))),
        ("2:0", page(vec![], Some("3:0"))),
        ("3:0", Page { left_out, ..page(vec![], Some("4:0")) }),
        ("4:0", skipping("4:0", &down("broken", 0), Some("5:0"))),
        ("5:0", page(vec![listed(2)], Some("5:2"))),
        ("5:2", skipping("5:2", &down("late", 2), Some("5:102"))),
        ("5:102", page(vec![listed(103)], None)),
    ];
    assert_eq!(pages(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    assert_eq!(forge.page("6:0").unwrap(), Page::default());
    server.put(&group("late", 5), RecordedAnswer::new(401, "no"));
    assert!(matches!(forge.page("5:5"), Err(Error::Forbidden { status: 401, .. })));
}

#[test]
fn gitlab_one_project_is_found_by_its_id() {
    let server = RecordedServer::start();
    server.put_json("GET /api/v4/projects/2", project(2));
    server.put_json("GET /api/v4/projects/odd", json!({}));
    let mut forge = GitLab::new(&server.url(), Vec::new(), api(&["t", "u"]));
    assert_eq!(forge.one("2").unwrap(), Some(listed(2)));
    assert!(matches!(forge.one("odd"), Err(Error::Unexpected { .. })));
    server.asked();
    assert_eq!((forge.one("9").unwrap(), server.asked().len()), (None, 2), "by both tokens");
    forge.expect_public(true);
    assert_eq!((forge.one("9").unwrap(), server.asked().len()), (None, 1));
    assert_eq!(forge.usage().requests, 5);
}

#[test]
fn gitlab_streams_of_metadata_are_lists_of_a_project() {
    let server = RecordedServer::start();
    let mut forge = GitLab::new(&server.url(), Vec::new(), api(&[]));
    let all = [MetadataKind::Issues, MetadataKind::Pulls, MetadataKind::Releases];
    assert_eq!(forge.metadata_streams(&all), ["issues", "labels", "milestones", "pulls", "releases"]);
    let paths = [
        ("issues", "issues?scope=all&order_by=updated_at&sort=asc&per_page=20"),
        ("pulls", "merge_requests?scope=all&state=all&order_by=updated_at&sort=asc&per_page=20"),
        ("labels", "labels?&per_page=100"),
        ("milestones", "milestones?&per_page=100"),
        ("releases", "releases?&per_page=100"),
    ];
    for (stream, path) in paths {
        let item = json!({ "id": 1, "iid": 1, "user_notes_count": 3, "of": stream });
        server.put_json(&format!("GET /api/v4/projects/7/{path}&page=1"), json!([item]));
        let page = forge.metadata("7", stream, None, Timestamp(9)).unwrap();
        assert_eq!((page.items, page.is_last), (vec![(stream, item)], true));
    }
    // Lists of items by time go on from a time.
    for (stream, path) in &paths[..2] {
        let line = format!("GET /api/v4/projects/7/{path}&page=1&updated_after=1970-01-01T00%3A00%3A09Z");
        server.put_json(&line, json!([]));
        let page = forge.metadata("7", stream, Some(r#"{"since":9}"#), Timestamp(9)).unwrap();
        assert_eq!((page.items.len(), page.is_last), (0, true));
    }
}

#[test]
fn gitlab_notes_come_with_their_issues_to_those_who_have_a_token() {
    let server = RecordedServer::start();
    let mut forge = GitLab::new(&server.url(), Vec::new(), api(&["t"]));
    let base = "GET /api/v4/projects/7";
    for (stream, path, of, notes) in [
        ("issues", "issues?scope=all", "issues", "comments"),
        ("pulls", "merge_requests?scope=all&state=all", "merge_requests", "review_comments"),
    ] {
        let item = |iid: u64, count: u64| json!({ "iid": iid, "user_notes_count": count });
        let items = [item(1, 2), item(2, 0), item(3, 1), item(4, 1), json!({ "iid": 5 })];
        let list = format!("{base}/{path}&order_by=updated_at&sort=asc&per_page=20&page=1");
        server.put_json(&list, json!(items));
        let line = |iid: u64, page: u64| format!("{base}/{of}/{iid}/notes?sort=asc&per_page=100&page={page}");
        // The first page is full, the second is short and has a link, the third is the last.
        let first: Vec<Value> = (0..100).map(|n| json!({ "note": n })).collect();
        server.put_json(&line(1, 1), json!(first));
        let linked = RecordedAnswer::json(json!([{ "note": 100 }])).header("Link", "<x>; rel=\"next\"");
        server.put(&line(1, 2), linked);
        server.put_json(&line(1, 3), json!([{ "note": 101 }]));
        server.put_json(&line(1, 4), json!([{ "note": "of a page that is not asked for" }]));
        server.put_json(&line(4, 1), json!("no list"));
        let page = forge.metadata("7", stream, None, Timestamp(9)).unwrap();
        let items = items.into_iter().map(|item| (stream, item));
        let expected = items.chain((0..102).map(|n| (notes, json!({ "note": n })))).collect();
        assert_eq!(page, MetadataPage { items: expected, cursor: "{}".to_owned(), is_last: true });
        server.put(&line(3, 1), RecordedAnswer::new(403, "no"));
        let failed = forge.metadata("7", stream, None, Timestamp(9));
        assert!(matches!(failed, Err(Error::Unexpected { .. })), "not a list that is turned off");
        server.forget(&line(3, 1));
        server.put(&line(3, 1), RecordedAnswer::new(500, "no"));
        let failed = forge.metadata("7", stream, None, Timestamp(9));
        assert!(matches!(failed, Err(Error::Unavailable { .. })));
    }
}
