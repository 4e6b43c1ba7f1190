//! Listings of forges and dumps, taken into a catalog: clients of forges ask a server of recorded answers.

use std::time::Duration;

use serde_json::{Value, json};
use weir_catalog::Catalog;
use weir_crawl::{Crawl, CrawlError, CrawlProgress, ListingScope, NoName, WantedRepositories};
use weir_forge::{Api, ApiOptions, Forge, GitHub};
use weir_ground::Timestamp;
use weir_listed::Listed;
use weir_testing::{RecordedAnswer, RecordedServer};

mod accounts;
mod imports;
mod listings;
mod rounds;
mod skips;
mod unseen;

/// A catalog, and a forge that lists the repositories of the owner `o`.
struct CrawlStage {
    folder: tempfile::TempDir,
    catalog: Catalog,
    server: RecordedServer,
}

fn options() -> ApiOptions {
    ApiOptions {
        tries: 1,
        retry: Duration::from_millis(1),
        wait: Box::new(|time| time < Duration::from_secs(1)),
        ..ApiOptions::default()
    }
}

/// Returns an item of a list of GitHub.
fn item(id: u64) -> Value {
    json!({ "id": id, "full_name": format!("o/r{id}"), "clone_url": format!("https://h/o/r{id}.git"),
        "fork": false, "archived": false, "private": false, "has_wiki": false })
}

/// Returns the name that a repository gets: none with `nameless` in it, and `refused` is an error.
fn name_of(listed: &Listed) -> Result<Option<String>, NoName> {
    match listed.full_name.as_str() {
        name if name.contains("nameless") => Ok(None),
        name if name.contains("refused") => Err(NoName("no".to_owned())),
        name => Ok(Some(format!("f/{name}"))),
    }
}

fn line(owner: &str, page: u64) -> String {
    format!("GET /api/v3/users/{owner}/repos?per_page=100&page={page}&sort=created&direction=asc")
}

fn one(id: u64) -> String {
    format!("GET /api/v3/repositories/{id}")
}

fn linked(items: &[Value]) -> RecordedAnswer {
    RecordedAnswer::json(json!(items)).header("Link", "<x>; rel=\"next\"")
}

impl CrawlStage {
    fn new() -> CrawlStage {
        let folder = weir_testing::folder();
        let catalog = Catalog::open(&folder.path().join("catalog.db")).unwrap();
        CrawlStage { folder, catalog, server: RecordedServer::start() }
    }

    /// Makes the server answer with `answer` from now on.
    fn answer(&self, line: &str, answer: RecordedAnswer) {
        self.server.forget(line);
        self.server.put(line, answer);
    }

    /// Makes the listing of the owner `o` have these pages.
    fn pages(&self, pages: &[&[Value]]) {
        for (n, items) in (1..).zip(pages) {
            let is_last = n == pages.len();
            let answer = if is_last { RecordedAnswer::json(json!(items)) } else { linked(items) };
            self.answer(&line("o", n as u64), answer);
        }
    }

    fn github(&self, owners: &[&str]) -> GitHub {
        let owners = owners.iter().map(|&owner| owner.to_owned()).collect();
        GitHub::new(&self.server.url(), owners, Vec::new(), Api::new(options()))
    }

    /// Crawls `forge` until `pages` pages were taken.
    fn crawl_forge(
        &self,
        forge: &mut dyn Forge,
        wanted: &WantedRepositories,
        limit: u64,
        pages: u64,
    ) -> Result<CrawlProgress, CrawlError> {
        let scope = ListingScope::new("github", "https://h", &[], &[]);
        let crawl = Crawl {
            name: "f",
            scope: &scope,
            name_of: &name_of,
            wanted,
            limit,
            gone_s: 50,
            now: &|| Timestamp(1000),
        };
        let mut left = pages;
        crawl.run(&self.catalog, forge, &mut |_| {
            left -= 1;
            left > 0
        })
    }

    /// Crawls the owner `o`.
    fn crawl(&self) -> Result<CrawlProgress, CrawlError> {
        self.crawl_forge(&mut self.github(&["o"]), &WantedRepositories::default(), 0, u64::MAX)
    }

    /// Returns the names of the repositories that are known, by id, and whether they are gone.
    fn known(&self, ids: &[u64]) -> Vec<Option<bool>> {
        let gone = |id: &u64| {
            self.catalog.get(&format!("f/o/r{id}")).unwrap()?;
            Some(self.catalog.listings().has_gone("f", &[id.to_string()]).unwrap())
        };
        ids.iter().map(gone).collect()
    }

    fn position(&self) -> Option<String> {
        self.catalog.listings().get("f").unwrap().unwrap().position
    }
}
