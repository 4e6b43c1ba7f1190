//! Listings of Gitea, its accounts, and what it says around repositories.

use serde_json::{Value, json};
use weir_forge::{Account, AccountKind, AccountsPage, Error, Forge, Gitea, Listed, MetadataKind};
use weir_forge::{Page, RequestBudget, Skipped};
use weir_ground::Timestamp;
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::{accounts, api, github, organization, page, pages, skipping, text, user};

const SETTINGS: &str = "GET /api/v1/settings/api";

fn repository(id: u64) -> Value {
    json!({ "id": id, "full_name": format!("o/r {id}"), "clone_url": format!("https://h/o/{id}.git"),
        "owner": { "id": 9, "username": "o" }, "description": "says", "website": "https://w",
        "language": "Go", "topics": ["x", ""], "default_branch": "trunk", "fork": true,
        "parent": { "id": 5 }, "archived": true, "private": true, "empty": true, "has_wiki": true,
        "size": 11, "stars_count": 12, "forks_count": 13, "open_issues_count": 14, "created_at": "2020",
        "updated_at": "2021" })
}

fn listed(id: u64) -> Listed {
    Listed {
        full_name: format!("o/r {id}"),
        language: text("Go"),
        empty: Some(true),
        pushed_at: text("2021"),
        ..github::listed(id)
    }
}

/// Returns a server that gives two items a page.
fn server() -> RecordedServer {
    let server = RecordedServer::start();
    server.put_json(SETTINGS, json!({ "max_response_items": 2 }));
    server
}

#[test]
fn gitea_listing_of_everything_has_numbered_pages() {
    let server = server();
    let line = |page: u64| format!("GET /api/v1/repos/search?q=&sort=id&order=asc&limit=2&page={page}");
    server.put_json(&line(1), json!({ "data": [repository(1), repository(2)] }));
    // A short page with a link is not the last: private repositories are left out of it.
    let linked = RecordedAnswer::json(json!({ "data": [repository(3), { "id": 4 }] }));
    server.put(&line(2), linked);
    let short = RecordedAnswer::json(json!({ "data": [repository(5)] }));
    server.put(&line(3), short.header("Link", "<x>; rel=\"next\""));
    server.put(&line(4), RecordedAnswer::new(500, "no"));
    server.put_json(&line(5), json!({}));
    server.put_json(&line(6), json!([repository(6)]));
    let mut forge = Gitea::new(&(server.url() + "/"), Vec::new(), api(&[]));
    let error = |page: u64, what: &str| {
        let url = line(page).replace("GET ", &server.url());
        format!("{url}: {what}")
    };
    let down = error(4, "500 Internal Server Error: no");
    let expected = [
        ("1", page(vec![listed(1), listed(2)], Some("2"))),
        ("2", page(vec![listed(3)], Some("3"))),
        ("3", page(vec![listed(5)], Some("4"))),
        ("4", skipping("4", &down, Some("5"))),
        ("5", skipping("5", &error(5, "unexpected answer: not a list"), Some("6"))),
        ("6", page(vec![listed(6)], None)),
    ];
    assert_eq!(pages(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    assert_eq!(forge.usage().requests, 8);
    server.put(&line(8), RecordedAnswer::new(403, "no"));
    assert!(matches!(forge.page("8"), Err(Error::Forbidden { .. })), "there are no other owners");
}

#[test]
fn gitea_listing_of_owners_goes_from_one_to_the_next() {
    let server = RecordedServer::start();
    // Gogs has no such settings: the page has fifty items.
    let line = |name: &str, page: u64| format!("GET /api/v1/users/{name}/repos?limit=50&page={page}");
    let full: Vec<Value> = (1..=50).map(repository).collect();
    server.put_json(&line("a%20b", 1), json!(full));
    server.put_json(&line("a%20b", 2), json!([repository(51)]));
    server.put(&line("closed", 1), RecordedAnswer::new(403, "no"));
    server.put(&line("broken", 1), RecordedAnswer::new(500, "no"));
    server.put_json(&line("odd", 1), json!({ "message": "no list" }));
    let full: Vec<Value> = (1..=50).map(repository).collect();
    server.put_json(&line("late", 1), json!(full));
    server.put(&line("late", 2), RecordedAnswer::new(500, "no"));
    server.put(&line("late", 3), RecordedAnswer::new(500, "no"));
    server.put_json(&line("last", 1), json!([repository(7)]));
    let owners = ["a b", "gone", "closed", "broken", "odd", "late", "last"].map(str::to_owned).to_vec();
    let mut forge = Gitea::new(&server.url(), owners, api(&[]));
    let error = |name, page, what: &str| {
        let url = line(name, page).replace("GET ", &server.url());
        format!("{url}: {what}")
    };
    let forbidden = error("closed", 1, "403: no; look at the tokens of this forge");
    let left_out = Some(Skipped { position: "2:1".to_owned(), error: forbidden });
    let down = |name, page| error(name, page, "500 Internal Server Error: no");
    let all = || (1..=50).map(listed).collect();
    let odd = error("odd", 1, "unexpected answer: not a list");
    let expected = [
        ("0:1", page(all(), Some("0:2"))),
        ("0:2", page(vec![listed(51)], Some("1:1"))),
        ("1:1", page(vec![], Some("2:1"))),
        ("2:1", Page { left_out, ..page(vec![], Some("3:1")) }),
        ("3:1", skipping("3:1", &down("broken", 1), Some("4:1"))),
        ("4:1", skipping("4:1", &odd, Some("5:1"))),
        ("5:1", page(all(), Some("5:2"))),
        ("5:2", skipping("5:2", &down("late", 2), Some("5:3"))),
        ("5:3", skipping("5:3", &down("late", 3), Some("6:1"))),
        ("6:1", page(vec![listed(7)], None)),
    ];
    assert_eq!(pages(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    assert_eq!(forge.page("7:1").unwrap(), Page::default());
    server.put(&line("last", 2), RecordedAnswer::new(401, "no"));
    assert!(matches!(forge.page("6:2"), Err(Error::Forbidden { status: 401, .. })));
}

#[test]
fn gitea_number_of_items_a_page_is_asked_for_once() {
    for (answer, items) in [
        (RecordedAnswer::json(json!({ "max_response_items": 30 })), Some(30)),
        (RecordedAnswer::json(json!({ "max_response_items": 0 })), Some(50)),
        (RecordedAnswer::new(200, "<html>"), Some(50)),
        (RecordedAnswer::new(403, "no"), None),
    ] {
        let server = RecordedServer::start();
        server.put(SETTINGS, answer);
        let mut forge = Gitea::new(&server.url(), Vec::new(), api(&[]));
        let line = |items| format!("GET /api/v1/repos/search?q=&sort=id&order=asc&limit={items}&page=1");
        let Some(items) = items else {
            assert!(matches!(forge.page("1"), Err(Error::Forbidden { .. })));
            continue;
        };
        server.put_json(&line(items), json!({ "data": [] }));
        assert_eq!((forge.page("1").unwrap(), forge.page("1").unwrap()), Default::default());
        assert_eq!(server.lines(), [SETTINGS, &line(items), &line(items)]);
    }
}

#[test]
fn gitea_one_repository_is_found_by_its_id_and_limits_are_told() {
    let server = server();
    let limited = RecordedAnswer::json(repository(1));
    let limited = limited.header("X-RateLimit-Remaining", "7").header("X-RateLimit-Reset", "2000000000");
    server.put("GET /api/v1/repositories/1", limited);
    let mut forge = Gitea::new(&server.url(), Vec::new(), api(&["t", "u"]));
    assert_eq!(forge.one("1").unwrap(), Some(listed(1)));
    let said: Vec<_> = forge.budgets().into_iter().map(|b| (b.limit, b.remaining, b.reset_at)).collect();
    assert_eq!(said, [(None, 7, Timestamp(2_000_000_001))]);
    server.asked();
    assert_eq!((forge.one("9").unwrap(), server.asked().len()), (None, 2), "by both tokens");
    forge.expect_public(true);
    let spent = forge.budgets().remove(0);
    forge.remember(&[RequestBudget { remaining: 0, ..spent }]);
    assert_eq!(forge.one("1").unwrap(), Some(listed(1)));
    let asked = server.asked();
    assert_eq!(asked[0].authorization(), Some("Bearer u"), "the limit of the other is used up");
}

fn account(id: u64, login: &str) -> Value {
    json!({ "id": id, "login": login })
}

fn listing(accounts: Vec<Account>, members: Vec<(&str, Vec<Account>)>, next: Option<&str>) -> AccountsPage {
    let members = members.into_iter().map(|(id, members)| (id.to_owned(), members)).collect();
    AccountsPage { accounts, members, next: next.map(str::to_owned), skipped: None }
}

#[test]
fn gitea_accounts_are_people_and_then_organizations() {
    let server = server();
    let people = |page: u64| format!("GET /api/v1/users/search?q=&limit=2&page={page}");
    let groups = |page: u64| format!("GET /api/v1/orgs?limit=2&page={page}");
    let members = |name: &str, page: u64| format!("GET /api/v1/orgs/{name}/members?limit=2&page={page}");
    server.put_json(&people(1), json!({ "data": [account(1, "a"), { "id": 2, "username": "b" }] }));
    server.put(&people(2), RecordedAnswer::new(500, "no"));
    let short = RecordedAnswer::json(json!({ "data": [account(3, "c")] }));
    server.put(&people(3), short.header("Link", "<x>; rel=\"next\""));
    server.put_json(&people(4), json!({ "data": [{ "id": 4 }] }));
    server.put_json(&groups(1), json!([{ "id": 5, "name": "d" }, account(6, "e f")]));
    server.put_json(&members("d", 1), json!([account(1, "a"), account(2, "b")]));
    server.put_json(&members("d", 2), json!([account(3, "c")]));
    server.put(&members("e%20f", 1), RecordedAnswer::new(403, "no"));
    server.put_json(&groups(2), json!([account(7, "g")]));
    let short = RecordedAnswer::json(json!([account(1, "a")]));
    server.put(&members("g", 1), short.header("Link", "<x>; rel=\"next\""));
    server.put_json(&members("g", 2), json!([]));
    let mut forge = Gitea::new(&server.url(), Vec::new(), api(&[]));
    let (a, b, c) = (user("1", "a"), user("2", "b"), user("3", "c"));
    let url = people(2).replace("GET ", &server.url());
    let skipped = Some(format!("{url}: 500 Internal Server Error: no"));
    let of_d = ("5", vec![a.clone(), b.clone(), c.clone()]);
    let both = vec![organization("5", "d"), organization("6", "e f")];
    let expected = [
        ("people:1", listing(vec![a.clone(), b], vec![], Some("people:2"))),
        ("people:2", AccountsPage { skipped, ..listing(vec![], vec![], Some("people:3")) }),
        ("people:3", listing(vec![c], vec![], Some("people:4"))),
        ("people:4", listing(vec![], vec![], Some("organisations:1"))),
        ("organisations:1", listing(both, vec![of_d], Some("organisations:2"))),
        ("organisations:2", listing(vec![organization("7", "g")], vec![("7", vec![a])], None)),
    ];
    assert_eq!(accounts(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    server.put(&people(8), RecordedAnswer::new(403, "no"));
    assert!(matches!(forge.accounts("people:8"), Err(Error::Forbidden { .. })));
    server.put_json(&people(9), json!({}));
    assert!(matches!(forge.accounts("people:9"), Err(Error::Unexpected { .. })));
}

#[test]
fn gitea_accounts_of_owners() {
    let server = server();
    server.put_json("GET /api/v1/orgs/group", account(5, "group"));
    server.put_json("GET /api/v1/orgs/group/members?limit=2&page=1", json!([account(1, "a")]));
    server.put_json("GET /api/v1/users/a", account(1, "a"));
    server.put("GET /api/v1/orgs/broken", RecordedAnswer::new(500, "no"));
    let owners = ["group", "a", "gone", "broken", "a"].map(str::to_owned).to_vec();
    let mut forge = Gitea::new(&server.url(), owners, api(&[]));
    let a = user("1", "a");
    let of_group = vec![("5", vec![a.clone()])];
    let skipped = Some(format!("{}/api/v1/orgs/broken: 500 Internal Server Error: no", server.url()));
    let expected = [
        ("owner:0", listing(vec![organization("5", "group")], of_group, Some("owner:1"))),
        ("owner:1", listing(vec![a.clone()], vec![], Some("owner:2"))),
        ("owner:2", listing(vec![], vec![], Some("owner:3"))),
        ("owner:3", AccountsPage { skipped, ..listing(vec![], vec![], Some("owner:4")) }),
        ("owner:4", listing(vec![a], vec![], None)),
    ];
    assert_eq!(accounts(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    assert_eq!(forge.accounts("owner:5").unwrap(), AccountsPage::default());
    server.put("GET /api/v1/orgs/a", RecordedAnswer::new(403, "no"));
    assert!(matches!(forge.accounts("owner:1"), Err(Error::Forbidden { .. })));
}

#[test]
fn gitea_members_of_too_many_organizations_are_left_out() {
    let server = RecordedServer::start();
    server.put_json(SETTINGS, json!({ "max_response_items": 60_000 }));
    let many: Vec<Value> = (0..60_000).map(|n| json!({ "id": n, "login": "m" })).collect();
    server.put_json("GET /api/v1/orgs?limit=60000&page=1", json!([account(1, "a"), account(2, "b")]));
    let members = |name: &str, page: u64| format!("GET /api/v1/orgs/{name}/members?limit=60000&page={page}");
    server.put_json(&members("a", 1), json!(many));
    server.put_json(&members("a", 2), json!([]));
    server.put_json(&members("b", 1), json!(many[..40_001]));
    let mut forge = Gitea::new(&server.url(), Vec::new(), api(&[]));
    let page = forge.accounts("organisations:1").unwrap();
    let of: Vec<_> = page.members.iter().map(|(id, members)| (id.as_str(), members.len())).collect();
    assert_eq!(of, [("1", 60_000)]);
    // The members of one organization count from all its pages.
    server.forget(&members("a", 2));
    server.put_json(&members("a", 2), json!(many[..40_001]));
    assert!(forge.accounts("organisations:1").unwrap().members.iter().all(|(id, _)| id == "2"));
    server.forget(&members("a", 2));
    server.put_json(&members("a", 2), json!(many[..40_000]));
    let page = forge.accounts("organisations:1").unwrap();
    assert_eq!(page.members.iter().map(|(_, members)| members.len()).collect::<Vec<_>>(), [100_000]);
    assert_eq!(page.accounts[0].kind, AccountKind::Organization);
}

#[test]
fn gitea_streams_of_metadata_are_lists_of_a_repository() {
    let server = server();
    let mut forge = Gitea::new(&server.url(), Vec::new(), api(&[]));
    let all = [MetadataKind::Issues, MetadataKind::Pulls, MetadataKind::Releases];
    let streams = ["issues", "comments", "labels", "milestones", "pulls", "releases"];
    assert_eq!(forge.metadata_streams(&all), streams);
    server.put_json("GET /api/v1/repositories/7", repository(7));
    server.put_json("GET /api/v1/repositories/8", repository(8));
    for (stream, path) in [
        ("issues", "issues?state=all&type=issues"),
        ("comments", "issues/comments?"),
        ("pulls", "pulls?state=all&sort=recentupdate"),
        ("milestones", "milestones?state=all"),
        ("labels", "labels?"),
        ("releases", "releases?"),
    ] {
        let line = format!("GET /api/v1/repos/o/r%207/{path}&limit=2&page=1");
        server.put_json(&line, json!([{ "of": stream }]));
        let page = forge.metadata("7", stream, None, Timestamp(9)).unwrap();
        assert_eq!((page.items, page.is_last), (vec![(stream, json!({ "of": stream }))], true));
    }
    // Those that can be asked for by time are.
    for path in ["issues?state=all&type=issues", "issues/comments?"] {
        let since = "since=1970-01-01T00%3A00%3A09Z";
        server.put_json(&format!("GET /api/v1/repos/o/r%208/{path}&limit=2&page=1&{since}"), json!([]));
    }
    for stream in ["issues", "comments"] {
        let page = forge.metadata("8", stream, Some(r#"{"since":9}"#), Timestamp(9)).unwrap();
        assert_eq!((page.items.len(), page.is_last), (0, true));
    }
    let names = server.lines().into_iter().filter(|line| line.contains("/repositories/"));
    assert_eq!(names.count(), 2, "its name is asked for once");
    assert!(matches!(forge.metadata("9", "issues", None, Timestamp(9)), Err(Error::NotFound(_))));
}
