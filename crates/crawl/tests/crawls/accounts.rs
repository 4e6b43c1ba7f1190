//! Listings of accounts.

use serde_json::{Value, json};
use weir_catalog::AccountCounts;
use weir_crawl::{
    AccountsProgress, CrawlError, ListingScope, accounts_listing, crawl_accounts, forge_of_accounts_listing,
};
use weir_forge::{Api, Error, Gerrit, Usage};
use weir_ground::Timestamp;
use weir_testing::RecordedAnswer;

use crate::{CrawlStage, options};

fn line(since: u64) -> String {
    format!("GET /api/v3/users?since={since}&per_page=100")
}

fn account(id: u64, kind: &str) -> Value {
    json!({ "id": id, "login": format!("a{id}"), "type": kind })
}

fn crawl(stage: &CrawlStage, pages: u64) -> (Result<Option<AccountsProgress>, CrawlError>, u64) {
    let scope = ListingScope::new("github", "https://h", &[], &[]);
    let (mut forge, mut left, mut seen) = (stage.github(&[]), pages, 0);
    let mut observe = |_: &AccountsProgress| {
        (left, seen) = (left - 1, seen + 1);
        left > 0
    };
    let now = || Timestamp(1000);
    (crawl_accounts("f", &scope, &stage.catalog, &mut forge, &now, &mut observe), seen)
}

#[test]
fn accounts_crawl_takes_pages_and_goes_on_where_it_was() {
    let stage = CrawlStage::new();
    let first = json!([account(1, "User"), account(2, "Organization"), account(3, "Organization")]);
    let next =
        |answer: RecordedAnswer, id: u64| answer.header("Link", &format!("<x?since={id}>; rel=\"next\""));
    stage.answer(&line(0), next(RecordedAnswer::json(first), 3));
    let members = |name: &str| format!("GET /api/v3/orgs/{name}/members?per_page=100&page=1");
    stage.answer(&members("a2"), RecordedAnswer::json(json!([account(1, "User"), account(9, "User")])));
    stage.answer(&members("a3"), RecordedAnswer::json(json!([account(1, "User")])));
    stage.answer(&line(3), RecordedAnswer::new(500, "no"));
    stage.answer(&line(103), next(RecordedAnswer::json(json!([account(104, "User")])), 200));
    stage.answer(&line(200), RecordedAnswer::json(json!([account(201, "User"), account(202, "User")])));
    let (first, seen) = crawl(&stage, 1);
    let usage = |requests| Usage { requests, ..Usage::default() };
    let expected =
        AccountsProgress { listed: 3, memberships: 3, skipped: 0, usage: usage(3), finished: false };
    assert_eq!((first.unwrap(), seen), (Some(expected), 1));
    let position = || stage.catalog.listings().get("f/accounts").unwrap().unwrap().position;
    assert_eq!(position().as_deref(), Some("3"));
    let (rest, seen) = crawl(&stage, 99);
    let expected =
        AccountsProgress { listed: 3, memberships: 0, skipped: 1, usage: usage(3), finished: true };
    assert_eq!((rest.unwrap(), seen, position()), (Some(expected), 2, None));
    let counts = stage.catalog.accounts().counts("f").unwrap();
    assert_eq!(counts, AccountCounts { users: 5, organizations: 2, memberships: 3 });
    let scope = ListingScope::new("gerrit", "https://h", &[], &[]);
    let mut none = Gerrit::new(&stage.server.url(), "s", Api::new(options()));
    let now = || Timestamp(1000);
    let found = crawl_accounts("g", &scope, &stage.catalog, &mut none, &now, &mut |_| true);
    assert_eq!(found.unwrap(), None);
}

#[test]
fn accounts_crawl_ends_when_many_pages_in_a_row_fail() {
    let stage = CrawlStage::new();
    for since in [0, 100, 200, 300, 500, 600, 700, 800, 900] {
        stage.answer(&line(since), RecordedAnswer::new(500, "no"));
    }
    let linked = RecordedAnswer::json(json!([account(401, "User")]));
    stage.answer(&line(400), linked.header("Link", "<x?since=500>; rel=\"next\""));
    let (result, seen) = crawl(&stage, 99);
    assert!(matches!(result, Err(CrawlError::Forge(Error::Unavailable { .. }))));
    assert_eq!((seen, stage.server.lines().len()), (9, 10), "five in a row, not in all");
}

#[test]
fn accounts_listing_has_a_name_of_its_own() {
    assert_eq!(accounts_listing("f"), "f/accounts");
    assert_eq!(forge_of_accounts_listing("f/accounts"), Some("f"));
    assert_eq!(forge_of_accounts_listing("f"), None);
}
