//! Listings of the accounts of GitHub.

use serde_json::{Value, json};
use weir_forge::{Account, AccountsPage, Error, Forge, GitHub};
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::{accounts, api, organization, user};

fn person(id: u64) -> Value {
    json!({ "id": id, "login": format!("p{id}"), "type": "User" })
}

fn group(id: u64) -> Value {
    json!({ "id": id, "login": format!("g{id}"), "type": "Organization" })
}

fn p(id: u64) -> Account {
    user(&id.to_string(), &format!("p{id}"))
}

fn g(id: u64) -> Account {
    organization(&id.to_string(), &format!("g{id}"))
}

fn members(name: &str, page: u64) -> String {
    format!("GET /api/v3/orgs/{name}/members?per_page=100&page={page}")
}

fn listing(accounts: Vec<Account>, members: Vec<(&str, Vec<Account>)>, next: Option<&str>) -> AccountsPage {
    let members = members.into_iter().map(|(id, members)| (id.to_owned(), members)).collect();
    AccountsPage { accounts, members, next: next.map(str::to_owned), skipped: None }
}

#[test]
fn github_accounts_come_with_the_members_of_organizations() {
    let server = RecordedServer::start();
    let line = |since: u64| format!("GET /api/v3/users?since={since}&per_page=100");
    let all = json!([person(1), group(2), group(3), group(4), group(5), group(6), { "id": 7 }]);
    server.put(&line(0), RecordedAnswer::json(all).header("Link", "<{url}/users?since=46>; rel=\"next\""));
    server.put_json(&line(46), json!([person(47)]));
    let full: Vec<Value> = (100..200).map(person).collect();
    server.put_json(&members("g2", 1), json!(full));
    server.put_json(&members("g2", 2), json!([person(200), {}]));
    server.put(&members("g3", 1), RecordedAnswer::new(403, "no"));
    server.put(&members("g4", 1), RecordedAnswer::new(500, "no"));
    server.put_json(&members("g5", 1), json!({}));
    server.put_json(&members("g6", 1), json!([]));
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&[]));
    let first = vec![p(1), g(2), g(3), g(4), g(5), g(6)];
    let of_first = vec![("2", (100..=200).map(p).collect()), ("6", Vec::new())];
    let expected = [
        ("0".to_owned(), listing(first, of_first, Some("46"))),
        ("46".to_owned(), listing(vec![p(47)], vec![], None)),
    ];
    assert_eq!(accounts(&mut forge), expected);
    server.put(&line(50), RecordedAnswer::new(500, "no"));
    let url = line(50).replace("GET ", &server.url());
    let skipped = Some(format!("{url}: 500 Internal Server Error: no"));
    let expected = AccountsPage { skipped, ..listing(vec![], vec![], Some("150")) };
    assert_eq!(forge.accounts("50").unwrap(), expected);
    server.put(&line(51), RecordedAnswer::new(403, "no"));
    assert!(matches!(forge.accounts("51"), Err(Error::Forbidden { .. })));
}

#[test]
fn github_accounts_of_owners() {
    let server = RecordedServer::start();
    server.put_json("GET /api/v3/users/g2", group(2));
    server.put_json(&members("g2", 1), json!([person(1)]));
    server.put_json("GET /api/v3/users/p1", person(1));
    server.put("GET /api/v3/users/broken", RecordedAnswer::new(500, "no"));
    server.put("GET /api/v3/users/closed", RecordedAnswer::new(403, "no"));
    let owners = ["g2", "gone", "broken", "closed", "p1"].map(str::to_owned).to_vec();
    let mut forge = GitHub::new(&server.url(), owners, Vec::new(), api(&[]));
    let skipped = Some(format!("{}/api/v3/users/broken: 500 Internal Server Error: no", server.url()));
    let expected = [
        ("owner:0", listing(vec![g(2)], vec![("2", vec![p(1)])], Some("owner:1"))),
        ("owner:1", listing(vec![], vec![], Some("owner:2"))),
        ("owner:2", AccountsPage { skipped, ..listing(vec![], vec![], Some("owner:3")) }),
        ("owner:3", listing(vec![], vec![], Some("owner:4"))),
        ("owner:4", listing(vec![p(1)], vec![], None)),
    ];
    assert_eq!(accounts(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    assert_eq!(forge.accounts("owner:5").unwrap(), AccountsPage::default());
    server.forget("GET /api/v3/users/p1");
    server.put("GET /api/v3/users/p1", RecordedAnswer::new(401, "no"));
    assert!(matches!(forge.accounts("owner:4"), Err(Error::Forbidden { status: 401, .. })));
}

#[test]
fn github_members_have_room_for_so_many_in_a_page() {
    let server = RecordedServer::start();
    server.put_json("GET /api/v3/users?since=0&per_page=100", json!([group(1), group(2), group(3)]));
    let many: Vec<Value> = (0..99_999).map(person).collect();
    server.put_json(&members("g1", 1), json!(many));
    server.put_json(&members("g1", 2), json!([]));
    server.put_json(&members("g2", 1), json!([person(1), person(2)]));
    server.put_json(&members("g3", 1), json!([person(1)]));
    let mut forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&[]));
    let page = forge.accounts("0").unwrap();
    let of: Vec<_> = page.members.iter().map(|(id, members)| (id.as_str(), members.len())).collect();
    assert_eq!(of, [("1", 99_999), ("3", 1)]);
}
