//! The clients of forges against answers in the forms of these forges. Whole values are compared, so that no
//! field goes missing unseen.

use std::time::Duration;

use weir_forge::{Account, AccountKind, AccountsPage, Api, ApiOptions, Forge, Listed, Page, Skipped};

mod apps;
mod bitbucket;
mod deliveries;
mod folders;
mod gerrit;
mod gitea;
mod github;
mod github_accounts;
mod github_search;
mod gitlab;
mod indexes;
mod limits;
mod requests;
mod sourcehut;
mod walks;

/// Returns options for tests: two tries, between which nothing waits. A wait for a limit ends everything.
fn options(tokens: &[&str]) -> ApiOptions {
    ApiOptions {
        tokens: tokens.iter().map(|&token| token.to_owned()).collect(),
        tries: 2,
        retry: Duration::from_millis(1),
        wait: Box::new(|time| time < Duration::from_secs(1)),
        ..ApiOptions::default()
    }
}

/// Returns an API with these tokens.
fn api(tokens: &[&str]) -> Api {
    Api::new(options(tokens))
}

/// Returns all pages of a listing, with their positions.
fn pages(forge: &mut dyn Forge) -> Vec<(String, Page)> {
    let (mut pages, mut position) = (Vec::new(), Some(forge.start().to_owned()));
    while let Some(at) = position.take() {
        assert!(pages.len() < 100, "the listing has no end");
        let page = forge.page(&at).unwrap();
        position.clone_from(&page.next);
        pages.push((at, page));
    }
    pages
}

/// Returns all pages of a listing of accounts, with their positions.
fn accounts(forge: &mut dyn Forge) -> Vec<(String, AccountsPage)> {
    let (mut pages, mut position) = (Vec::new(), forge.accounts_start().map(str::to_owned));
    while let Some(at) = position.take() {
        assert!(pages.len() < 100, "the listing has no end");
        let page = forge.accounts(&at).unwrap();
        position.clone_from(&page.next);
        pages.push((at, page));
    }
    pages
}

/// Returns a page with these repositories.
fn page(repositories: Vec<Listed>, next: Option<&str>) -> Page {
    Page { repositories, next: next.map(str::to_owned), ..Page::default() }
}

/// Returns a page that was skipped.
fn skipping(position: &str, error: &str, next: Option<&str>) -> Page {
    let skipped = Some(Skipped { position: position.to_owned(), error: error.to_owned() });
    Page { next: next.map(str::to_owned), skipped, ..Page::default() }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn user(id: &str, login: &str) -> Account {
    Account { forge_id: id.to_owned(), login: login.to_owned(), kind: AccountKind::User }
}

fn organization(id: &str, login: &str) -> Account {
    Account { kind: AccountKind::Organization, ..user(id, login) }
}
