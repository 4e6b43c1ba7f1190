//! Listings of Bitbucket.

use serde_json::{Value, json};
use weir_forge::{Account, Bitbucket, Error, Forge, Listed, Page, Skipped};
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::{api, organization, pages, skipping, text, user};

const COMMON: &str = "pagelen=100&fields=next%2Cvalues.uuid%2Cvalues.full_name%2Cvalues.scm%2C\
    values.description%2Cvalues.website%2Cvalues.language%2Cvalues.is_private%2Cvalues.size%2C\
    values.created_on%2Cvalues.updated_on%2Cvalues.mainbranch.name%2Cvalues.parent.uuid%2C\
    values.links.clone%2Cvalues.owner.uuid%2Cvalues.owner.type%2Cvalues.owner.username%2C\
    values.owner.nickname%2Cvalues.owner.display_name";

fn repository(id: &str, owner: Value) -> Value {
    json!({ "uuid": format!("{{{id}}}"), "full_name": format!("w/{id}"), "scm": "git",
        "description": "says", "website": "https://w", "language": "rust", "is_private": true,
        "size": 5000, "created_on": "2020", "updated_on": "2021", "mainbranch": { "name": "trunk" },
        "parent": { "uuid": "{up}" }, "owner": owner, "links": { "clone": [
            { "name": "ssh", "href": "ssh://x" },
            { "name": "https", "href": format!("https://me@h/w/{id}.git") },
        ] } })
}

fn listed(id: &str, owner: Option<Account>) -> Listed {
    Listed {
        forge_id: id.to_owned(),
        full_name: format!("w/{id}"),
        clone_url: format!("https://h/w/{id}.git"),
        owner,
        description: text("says"),
        homepage: text("https://w"),
        language: text("rust"),
        default_branch: text("trunk"),
        fork: Some(true),
        parent_id: text("up"),
        private: Some(true),
        kibibytes: Some(4),
        created_at: text("2020"),
        updated_at: text("2021"),
        pushed_at: text("2021"),
        ..Listed::default()
    }
}

fn of(workspace: &str, page: u64) -> String {
    format!("GET /2.0/repositories/{workspace}?{COMMON}&sort=created_on&page={page}")
}

#[test]
fn bitbucket_listing_of_workspaces_has_numbered_pages() {
    let server = RecordedServer::start();
    let names = ["team", "gone", "closed", "broken", "late", "odd"].map(str::to_owned).to_vec();
    let team = json!({ "uuid": "{t}", "type": "team", "username": "team", "nickname": "no" });
    let nick = json!({ "uuid": "{p}", "type": "user", "nickname": "nick", "display_name": "no" });
    let shown = json!({ "uuid": "{p}", "type": "user", "display_name": "shown" });
    let mut hg = repository("hg", json!(null));
    hg["scm"] = json!("hg");
    let bare = json!({ "uuid": "{bare}", "full_name": "w/bare", "parent": null, "links": { "clone": [
        { "name": "https", "href": "https://h/a@b/bare.git" },
    ] } });
    let values = vec![repository("a", team), repository("b", nick), repository("c", shown), hg, bare];
    server.put_json(&of("team", 1), json!({ "values": values, "next": "x" }));
    server.put_json(&of("team", 2), json!({ "values": [{ "uuid": "{x}", "full_name": "no clone" }] }));
    server.put(&of("closed", 1), RecordedAnswer::new(403, "no"));
    server.put(&of("broken", 1), RecordedAnswer::new(500, "no"));
    server.put_json(&of("late", 1), json!({ "values": [], "next": "x" }));
    server.put(&of("late", 2), RecordedAnswer::new(500, "no"));
    server.put(&of("late", 3), RecordedAnswer::new(422, "no"));
    server.put_json(&of("odd", 1), json!({ "values": [repository("z", json!({}))] }));
    let mut forge = Bitbucket::new(&(server.url() + "/"), names, api(&[]));
    let bare = Listed {
        forge_id: "bare".to_owned(),
        full_name: "w/bare".to_owned(),
        clone_url: "https://h/a@b/bare.git".to_owned(),
        fork: Some(false),
        ..Listed::default()
    };
    let first = vec![
        listed("a", Some(organization("t", "team"))),
        listed("b", Some(user("p", "nick"))),
        listed("c", Some(user("p", "shown"))),
        bare,
    ];
    let page = |repositories, next: Option<&str>| Page {
        repositories,
        next: next.map(str::to_owned),
        ..Page::default()
    };
    let said = |name, number, error: &str| {
        let url = of(name, number).replace("GET ", &server.url());
        format!("{url}: {error}")
    };
    let forbidden = said("closed", 1, "403: no; look at the tokens of this forge");
    let left_out = Some(Skipped { position: "2:1".to_owned(), error: forbidden });
    let unavailable = |name, n| said(name, n, "500 Internal Server Error: no");
    let expected = [
        ("0:1", page(first, Some("0:2"))),
        ("0:2", page(vec![], Some("1:1"))),
        ("1:1", page(vec![], Some("2:1"))),
        ("2:1", Page { left_out, ..page(vec![], Some("3:1")) }),
        ("3:1", skipping("3:1", &unavailable("broken", 1), Some("4:1"))),
        ("4:1", page(vec![], Some("4:2"))),
        ("4:2", skipping("4:2", &unavailable("late", 2), Some("4:3"))),
        ("4:3", skipping("4:3", &said("late", 3, "request rejected: no"), Some("5:1"))),
        ("5:1", page(vec![listed("z", None)], None)),
    ];
    assert_eq!(pages(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    assert_eq!(forge.page("9:1").unwrap(), Page::default());
    assert_eq!(forge.usage().requests, 11);
}

#[test]
fn bitbucket_listing_of_everything_goes_on_after_a_time() {
    let server = RecordedServer::start();
    let start = format!("GET /2.0/repositories?{COMMON}");
    let next = "https://h/2.0/repositories?pagelen=100&after=2020-01%3A02";
    server.put_json(&start, json!({ "values": [repository("a", json!({}))], "next": next }));
    let second = format!("{start}&after=2020-01%3A02");
    server.put_json(&second, json!({ "values": [], "next": "no parameter" }));
    let mut forge = Bitbucket::new(&server.url(), Vec::new(), api(&[]));
    assert_eq!(forge.start(), "");
    let page = |repositories, next| Page { repositories, next: text(next), ..Page::default() };
    assert_eq!(forge.page("").unwrap(), page(vec![listed("a", None)], "2020-01:02"));
    assert_eq!(forge.page("2020-01:02").unwrap(), page(vec![], "2020-01:02"), "it would not go on");
    server.put(&format!("{start}&after=x"), RecordedAnswer::new(500, "no"));
    assert!(matches!(forge.page("x"), Err(Error::Unavailable { .. })), "no page follows that is known");
    server.put_json(&format!("{start}&after=y"), json!({}));
    assert!(matches!(forge.page("y"), Err(Error::Unexpected { .. })));
    server.put(&format!("{start}&after=z"), RecordedAnswer::new(401, "no"));
    assert!(matches!(forge.page("z"), Err(Error::Forbidden { status: 401, .. })));
}

#[test]
fn bitbucket_workspaces_are_those_of_the_credentials() {
    let server = RecordedServer::start();
    let list = |page: u64| format!("GET /2.0/user/workspaces?pagelen=100&page={page}");
    let first = json!({ "values": [{ "workspace": { "slug": "z" } }, { "slug": "a" }], "next": "x" });
    server.put_json(&list(1), first);
    server.put_json(&list(2), json!({ "values": [{ "slug": "a" }, {}] }));
    server.put_json(&of("a", 1), json!({ "values": [repository("one", json!({}))] }));
    server.put_json(&of("z", 1), json!({ "values": [repository("two", json!({}))] }));
    let mut forge = Bitbucket::new(&server.url(), Vec::new(), api(&["t"]));
    assert_eq!(forge.start(), "0:1");
    let page = |id, next: Option<&str>| Page {
        repositories: vec![listed(id, None)],
        next: next.map(str::to_owned),
        ..Page::default()
    };
    let expected = [("0:1", page("one", Some("1:1"))), ("1:1", page("two", None))];
    assert_eq!(pages(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    assert_eq!(server.lines(), [list(1), list(2), of("a", 1), of("z", 1)]);
    server.put(&of("a", 2), RecordedAnswer::new(401, "no"));
    assert!(matches!(forge.page("0:2"), Err(Error::Forbidden { status: 401, .. })), "it ends all");
}

#[test]
fn bitbucket_one_repository_is_found_by_its_id() {
    let server = RecordedServer::start();
    let mut forge = Bitbucket::new(&server.url(), Vec::new(), api(&["t", "u"]));
    let line = |id: &str| format!("GET /2.0/repositories/%7B%7D/%7B{id}%7D");
    server.put_json(&line("a"), repository("a", json!({})));
    let mut odd = repository("odd", json!({}));
    odd["links"]["clone"] = json!([{ "name": "https", "href": "http://me@h/odd.git" }]);
    server.put_json(&line("odd"), odd);
    assert_eq!(forge.one("a").unwrap(), Some(listed("a", None)));
    assert_eq!(forge.one("odd").unwrap().unwrap().clone_url, "http://me@h/odd.git");
    server.asked();
    assert_eq!((forge.one("gone").unwrap(), server.asked().len()), (None, 2), "by both tokens");
    forge.expect_public(true);
    assert_eq!((forge.one("gone").unwrap(), server.asked().len()), (None, 1));
}
