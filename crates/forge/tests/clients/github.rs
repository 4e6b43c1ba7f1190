//! Listings of GitHub, and what it says around repositories.

use serde_json::{Value, json};
use weir_forge::{Error, Forge, GitHub, Listed, MetadataKind, Page, Skipped};
use weir_ground::Timestamp;
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::{api, organization, pages, skipping, text, user};

const GRAPHQL: &str = "POST /api/graphql";

/// Returns an item of a list, with all fields that a list may have.
pub fn item(id: u64) -> Value {
    json!({ "id": id, "node_id": format!("N{id}"), "full_name": format!("o/{id}"),
        "html_url": format!("https://h/o/{id}"), "owner": { "id": 9, "login": "o", "type": "User" },
        "description": "says", "homepage": "https://w", "language": "C", "topics": ["x", ""],
        "default_branch": "trunk", "fork": true, "parent": { "id": 5 }, "archived": true,
        "private": true, "has_wiki": true, "size": 11, "stargazers_count": 12, "forks_count": 13,
        "open_issues_count": 14, "created_at": "2020", "updated_at": "2021", "pushed_at": "2022" })
}

pub fn listed(id: u64) -> Listed {
    Listed {
        forge_id: id.to_string(),
        full_name: format!("o/{id}"),
        clone_url: format!("https://h/o/{id}.git"),
        owner: Some(user("9", "o")),
        description: text("says"),
        homepage: text("https://w"),
        language: text("C"),
        topics: Some(vec!["x".to_owned()]),
        default_branch: text("trunk"),
        fork: Some(true),
        parent_id: text("5"),
        archived: Some(true),
        private: Some(true),
        wiki: Some(true),
        kibibytes: Some(11),
        stars: Some(12),
        forks: Some(13),
        open_issues: Some(14),
        created_at: text("2020"),
        updated_at: text("2021"),
        pushed_at: text("2022"),
        ..Listed::default()
    }
}

fn node(id: u64) -> Value {
    json!({ "databaseId": id, "nameWithOwner": format!("o/{id}"), "url": format!("https://h/o/{id}"),
        "owner": { "databaseId": 9, "login": "o", "__typename": "Organization" },
        "description": "full", "homepageUrl": "https://w", "primaryLanguage": { "name": "C" },
        "languages": { "edges": [{ "size": 3, "node": { "name": "C" } }, {}] },
        "repositoryTopics": { "nodes": [{ "topic": { "name": "x" } }, {}] },
        "defaultBranchRef": { "name": "trunk" }, "isFork": true, "parent": { "databaseId": 5 },
        "isArchived": true, "isPrivate": true, "isEmpty": true, "hasWikiEnabled": true, "diskUsage": 11,
        "stargazerCount": 12, "forkCount": 13, "issues": { "totalCount": 14 }, "createdAt": "2020",
        "updatedAt": "2021", "pushedAt": "2022" })
}

fn full(id: u64) -> Listed {
    Listed {
        owner: Some(organization("9", "o")),
        description: text("full"),
        languages: Some(vec![("C".to_owned(), 3)]),
        empty: Some(true),
        ..listed(id)
    }
}

pub fn page(repositories: Vec<Listed>, next: Option<&str>) -> Page {
    Page { repositories, next: next.map(str::to_owned), ..Page::default() }
}

#[test]
fn github_listing_of_everything_goes_on_after_an_id() {
    let server = RecordedServer::start();
    let line = |since: u64| format!("GET /api/v3/repositories?since={since}&per_page=100");
    let small = json!({ "id": 2, "full_name": "o/2", "clone_url": "https://c" });
    let linked = RecordedAnswer::json(json!([item(1), null, small, { "id": 3 }]));
    server.put(&line(0), linked.header("Link", "<{url}/repositories?since=369>; rel=\"next\""));
    let unclear = RecordedAnswer::json(json!([item(371), item(370)]));
    server.put(&line(369), unclear.header("Link", "<x>; rel=\"next\""));
    server.put_json(&line(371), json!([item(400)]));
    let mut forge = GitHub::new(&(server.url() + "/"), Vec::new(), Vec::new(), api(&[]));
    let small = Listed {
        forge_id: "2".to_owned(),
        full_name: "o/2".to_owned(),
        clone_url: "https://c".to_owned(),
        ..Listed::default()
    };
    let expected = [
        ("0", page(vec![listed(1), small], Some("369"))),
        ("369", page(vec![listed(371), listed(370)], Some("371"))),
        ("371", page(vec![listed(400)], None)),
    ];
    assert_eq!(pages(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    assert_eq!(forge.usage().requests, 3, "without a token, no details are asked for");
    // With each page in a row that fails, twice as many ids are skipped.
    for since in [500, 600, 900] {
        server.put(&line(since), RecordedAnswer::new(500, "no"));
    }
    let error = |since: u64, what: &str| {
        let url = line(since).replace("GET ", &server.url());
        format!("{url}: {what}")
    };
    for (since, next) in [(500, "600"), (600, "800"), (900, "1000")] {
        let error = error(since, "500 Internal Server Error: no");
        let expected = skipping(&since.to_string(), &error, Some(next));
        assert_eq!(forge.page(&since.to_string()).unwrap(), expected);
    }
    server.put_json(&line(7), json!({}));
    let odd = skipping("7", &error(7, "unexpected answer: not a list"), Some("107"));
    assert_eq!(forge.page("7").unwrap(), odd);
    server.put(&line(8), RecordedAnswer::new(403, "no"));
    assert!(matches!(forge.page("8"), Err(Error::Forbidden { .. })));
}

#[test]
fn github_details_are_asked_for_with_a_token() {
    let server = RecordedServer::start();
    let line = "GET /api/v3/repositories?since=0&per_page=100";
    let many: Vec<Value> = (1..=101).map(item).collect();
    server.put_json(line, json!(many));
    // Of one there are no details, of another they cannot be had.
    let nodes: Vec<Value> = (1..=100).map(|id| if id == 2 { json!(null) } else { node(id) }).collect();
    let errors = json!([{ "message": "of one" }]);
    server.put_json(GRAPHQL, json!({ "data": { "nodes": nodes }, "errors": errors }));
    server.put_json(GRAPHQL, json!({ "data": null, "errors": [{ "message": "no" }] }));
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&["t"]));
    let mut expected: Vec<Listed> = (1..=101).map(full).collect();
    (expected[1], expected[100]) = (listed(2), listed(101));
    assert_eq!(forge.page("0").unwrap(), page(expected, None));
    let asked = server.asked();
    let of = |n: usize| serde_json::from_str::<Value>(&asked[n].body).unwrap()["variables"]["ids"].clone();
    let ids: Vec<String> = (1..=100).map(|id| format!("N{id}")).collect();
    assert_eq!((asked.len(), of(1), of(2)), (3, json!(ids), json!(["N101"])));
    assert!(asked.iter().all(|asked| asked.authorization() == Some("Bearer t")));
    // Users and owners without an id.
    let of_user = |owner: Value| {
        let mut node = node(1);
        node["owner"] = owner;
        json!({ "data": { "nodes": [node] } })
    };
    for (owner, expected) in [
        (json!({ "databaseId": 9, "login": "o", "__typename": "User" }), Some(user("9", "o"))),
        (json!({ "login": "o", "__typename": "User" }), None),
    ] {
        server.forget(GRAPHQL);
        server.forget(line);
        server.put_json(line, json!([item(1)]));
        server.put_json(GRAPHQL, of_user(owner));
        assert_eq!(forge.page("0").unwrap().repositories, [Listed { owner: expected, ..full(1) }]);
    }
    server.forget(GRAPHQL);
    server.put(GRAPHQL, RecordedAnswer::new(500, "no"));
    assert_eq!(forge.page("0").unwrap().repositories, [listed(1)]);
    server.forget(GRAPHQL);
    server.put(GRAPHQL, RecordedAnswer::new(403, "no"));
    assert!(matches!(forge.page("0"), Err(Error::Forbidden { .. })));
}

fn of(kind: &str, name: &str, page: u64) -> String {
    format!("GET /api/v3/{kind}/{name}/repos?per_page=100&page={page}&sort=created&direction=asc")
}

#[test]
fn github_listing_of_owners_goes_from_one_to_the_next() {
    let server = RecordedServer::start();
    server.put_json(GRAPHQL, json!({ "data": { "nodes": [node(1)] } }));
    let linked = RecordedAnswer::json(json!([item(1)])).header("Link", "<x>; rel=\"next\"");
    server.put(&of("orgs", "group", 1), linked.clone().header("ETag", "\"e1\""));
    server.put_json(&of("orgs", "group", 2), json!([]));
    server.put(&of("users", "a%20b", 1), linked.clone());
    server.put_json(&of("users", "a%20b", 2), json!([]));
    server.put(&of("orgs", "closed", 1), RecordedAnswer::new(403, "no"));
    server.put(&of("orgs", "broken", 1), RecordedAnswer::new(500, "no"));
    server.put(&of("orgs", "late", 1), linked.clone());
    server.put(&of("orgs", "late", 2), RecordedAnswer::new(500, "no"));
    server.put(&of("orgs", "late", 3), RecordedAnswer::new(500, "no"));
    server.put(&of("orgs", "odd", 1), linked);
    server.put_json(&of("orgs", "odd", 2), json!({}));
    server.put_json(&of("orgs", "last", 1), json!([item(1)]));
    let owners = ["group", "a b", "gone", "closed", "broken", "late", "odd", "last"];
    let owners = owners.map(str::to_owned).to_vec();
    let mut forge = GitHub::new(&server.url(), owners, Vec::new(), api(&["t"]));
    let error = |name, page, what: &str| {
        let url = of("orgs", name, page).replace("GET ", &server.url());
        format!("{url}: {what}")
    };
    let down = |name, page| error(name, page, "500 Internal Server Error: no");
    let forbidden = error("closed", 1, "403: no; look at the tokens of this forge");
    let left_out = Some(Skipped { position: "3:1".to_owned(), error: forbidden });
    let one = || vec![full(1)];
    let expected = [
        ("0:1", Page { etag: text("\"e1\""), ..page(one(), Some("0:2")) }),
        ("0:2", page(vec![], Some("1:1"))),
        ("1:1", page(one(), Some("1:2"))),
        ("1:2", page(vec![], Some("2:1"))),
        ("2:1", page(vec![], Some("3:1"))),
        ("3:1", Page { left_out, ..page(vec![], Some("4:1")) }),
        ("4:1", skipping("4:1", &down("broken", 1), Some("5:1"))),
        ("5:1", page(one(), Some("5:2"))),
        ("5:2", skipping("5:2", &down("late", 2), Some("5:3"))),
        ("5:3", skipping("5:3", &down("late", 3), Some("6:1"))),
        ("6:1", page(one(), Some("6:2"))),
        ("6:2", skipping("6:2", &error("odd", 2, "unexpected answer: not a list"), Some("7:1"))),
        ("7:1", page(one(), None)),
    ];
    assert_eq!(pages(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    let asked = server.lines();
    let of_person = asked.iter().filter(|line| line.contains("a%20b")).collect::<Vec<_>>();
    let known = [of("orgs", "a%20b", 1), of("users", "a%20b", 1), of("users", "a%20b", 2)];
    assert_eq!(of_person, known.iter().collect::<Vec<_>>(), "a person is asked for as one from then on");
    assert_eq!(forge.page("8:1").unwrap(), Page::default());
    server.put(&of("orgs", "last", 2), RecordedAnswer::new(401, "no"));
    assert!(matches!(forge.page("7:2"), Err(Error::Forbidden { status: 401, .. })));
    let mut unknown = GitHub::new(&server.url(), vec!["group".to_owned()], Vec::new(), api(&[]));
    server.put_json(&of("users", "group", 1), json!([item(1)]));
    assert_eq!(pages(&mut unknown), [("0:1".to_owned(), page(vec![listed(1)], None))]);
}

#[test]
fn github_page_keeps_its_etag_while_it_can_stay_the_same() {
    let server = RecordedServer::start();
    let owner = || vec!["o".to_owned()];
    let line = of("users", "o", 1);
    let tagged = |items: Vec<Value>| RecordedAnswer::json(json!(items)).header("ETag", "\"e\"");
    let all = |count: u64| (1..=count).map(item).collect::<Vec<_>>();
    let linked = tagged(all(100)).header("Link", "<x>; rel=\"next\"");
    let mut forge = GitHub::new(&server.url(), owner(), Vec::new(), api(&[]));
    for (answer, etag) in [(tagged(all(2)), true), (linked, true), (tagged(all(100)), false)] {
        server.forget(&line);
        server.put(&line, answer);
        assert_eq!(forge.page("0:1").unwrap().etag, etag.then(|| "\"e\"".to_owned()));
    }
    server.asked();
    server.forget(&line);
    server.put(&line, RecordedAnswer::new(304, ""));
    let unchanged = Page { is_unchanged: true, ..Page::default() };
    assert_eq!(forge.page_unless("0:1", Some("\"e\"")).unwrap(), unchanged);
    assert_eq!(server.asked()[0].headers["if-none-match"], "\"e\"");
    // A page of which details are missing is fetched again.
    let mut known = GitHub::new(&server.url(), owner(), Vec::new(), api(&["t"]));
    server.put(&of("orgs", "o", 1), tagged(all(2)));
    server.put_json(GRAPHQL, json!({ "data": { "nodes": [node(1)] } }));
    let expected = page(vec![full(1), listed(2)], None);
    assert_eq!(known.page_unless("0:1", Some("\"old\"")).unwrap(), expected);
    server.forget(GRAPHQL);
    server.put_json(GRAPHQL, json!({ "data": { "nodes": [node(1), node(2)] } }));
    let expected = Page { etag: text("\"e\""), ..page(vec![full(1), full(2)], None) };
    assert_eq!(known.page("0:1").unwrap(), expected);
}

#[test]
fn github_one_repository_is_found_by_its_id() {
    let server = RecordedServer::start();
    server.put_json("GET /api/v3/repositories/1", item(1));
    server.put_json("GET /api/v3/repositories/2", json!({}));
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&["t", "u"]));
    assert_eq!(forge.one("1").unwrap(), Some(listed(1)));
    assert!(matches!(forge.one("2"), Err(Error::Unexpected { .. })));
    server.asked();
    assert_eq!((forge.one("9").unwrap(), server.asked().len()), (None, 2), "by both tokens");
    forge.expect_public(true);
    assert_eq!((forge.one("9").unwrap(), server.asked().len()), (None, 1));
    assert_eq!(GitHub::rest("https://github.com/"), "https://api.github.com");
    assert_eq!(GitHub::rest("https://h/"), "https://h/api/v3");
}

#[test]
fn github_streams_of_metadata_are_lists_of_a_repository() {
    let server = RecordedServer::start();
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&["t"]));
    let kinds = [MetadataKind::Issues, MetadataKind::Pulls, MetadataKind::Releases];
    let all = ["issues", "comments", "labels", "milestones", "pulls", "review_comments", "releases"];
    assert_eq!(forge.metadata_streams(&kinds), all);
    assert_eq!(forge.metadata_streams(&kinds[1..2]), ["pulls", "review_comments"]);
    let paths = [
        ("issues", "issues?state=all&sort=updated&direction=asc"),
        ("comments", "issues/comments?sort=updated&direction=asc"),
        ("review_comments", "pulls/comments?sort=updated&direction=asc"),
        ("pulls", "pulls?state=all&sort=updated&direction=desc"),
        ("milestones", "milestones?state=all"),
        ("labels", "labels?"),
        ("releases", "releases?"),
    ];
    for (stream, path) in paths {
        // Only issues leave out what is a pull request.
        let items = [
            json!({ "of": stream }),
            json!({ "pull_request": { "url": null } }),
            json!({ "pull_request": { "url": null, "html_url": "x" } }),
        ];
        let line = format!("GET /api/v3/repositories/7/{path}&per_page=100&page=1");
        server.put_json(&line, json!(items));
        let count = if stream == "issues" { 2 } else { 3 };
        let expected: Vec<_> = items.into_iter().take(count).map(|item| (stream, item)).collect();
        let page = forge.metadata("7", stream, None, Timestamp(9)).unwrap();
        assert_eq!((page.items, page.is_last), (expected, true), "{stream}");
    }
    for (stream, path) in &paths[..3] {
        let since = "since=1970-01-01T00%3A00%3A09Z";
        let line = format!("GET /api/v3/repositories/7/{path}&per_page=100&page=1&{since}");
        server.put_json(&line, json!([]));
        let page = forge.metadata("7", stream, Some(r#"{"since":9}"#), Timestamp(9)).unwrap();
        assert_eq!((page.items.len(), page.is_last), (0, true));
    }
}
