//! Gitea, Forgejo and Gogs (docs.gitea.com/api: `repoSearch`, `userListRepos`, `repoGetByID`).

use serde_json::Value;
use weir_ground::Timestamp;

use crate::accounts::{MEMBERS_MAX, members};
use crate::api::{Api, Usage};
use crate::api_answer::escape;
use crate::github::text;
use crate::metadata::{MetadataList, Order, page_of, streams};
use crate::position::{AccountsPosition, FailedPages, OwnerPosition};
use crate::{
    Account, AccountKind, AccountsPage, Error, Forge, Listed, MetadataKind, MetadataPage, Page,
    RequestBudget, Result,
};

/// The most items that instances return per page, unless they say otherwise.
const PER_PAGE: u64 = 50;

/// The API of a Gitea, Forgejo or Gogs instance.
pub struct Gitea {
    api: Api,
    base: String,
    /// The owners whose repositories are listed; all repositories if there are none.
    owners: Vec<String>,
    /// Items per page, once the instance was asked.
    per_page: Option<u64>,
    /// The repository whose metadata was requested last: its id, and its current path.
    named: Option<(String, String)>,
    failed: FailedPages,
}

impl Gitea {
    /// Returns a listing of the web site at `url`. `owners` are users and organisations; all if there are
    /// none.
    pub fn new(url: &str, owners: Vec<String>, api: Api) -> Gitea {
        Gitea {
            api,
            base: format!("{}/api/v1", url.trim_end_matches('/')),
            owners,
            per_page: None,
            named: None,
            failed: FailedPages::default(),
        }
    }

    /// Returns the number of items per page. Positions are numbers of pages, so it must be the same in each
    /// crawl.
    fn per_page(&mut self) -> Result<u64> {
        if self.per_page.is_none() {
            let said = match self.api.get(&format!("{}/settings/api", self.base)) {
                Ok(answer) => answer.value["max_response_items"].as_u64().filter(|n| *n > 0),
                // Gogs does not have this page, and has the same default.
                Err(Error::NotFound(_) | Error::Unexpected { .. }) => None,
                Err(e) => return Err(e),
            };
            self.per_page = Some(said.unwrap_or(PER_PAGE));
        }
        Ok(self.per_page.unwrap_or(PER_PAGE))
    }
}

impl Gitea {
    /// Returns a page of `accounts`, with the members of the organisations among them.
    fn with_members(
        &mut self,
        accounts: Vec<Account>,
        limit: u64,
        next: Option<String>,
    ) -> Result<AccountsPage> {
        let (mut of_all, mut room) = (Vec::new(), MEMBERS_MAX);
        for organization in accounts.iter().filter(|a| a.kind == AccountKind::Organization) {
            let url = format!("{}/orgs/{}/members?limit={limit}", self.base, escape(&organization.login));
            if let Some(members) =
                members(&mut self.api, &url, limit, room, |item| account(item, AccountKind::User))?
            {
                room -= members.len();
                of_all.push((organization.forge_id.clone(), members));
            }
        }
        Ok(AccountsPage { accounts, members: of_all, next, skipped: None })
    }

    /// Returns the account of owner number `n`, with the members of an organization.
    fn account_of_owner(&mut self, n: usize, limit: u64) -> Result<AccountsPage> {
        let Some(name) = self.owners.get(n).map(|name| escape(name)) else {
            return Ok(AccountsPage::default());
        };
        let next = AccountsPosition::Owner(n).next_owner(self.owners.len());
        for (place, kind) in [("orgs", AccountKind::Organization), ("users", AccountKind::User)] {
            match self.api.get(&format!("{}/{place}/{name}", self.base)) {
                Ok(answer) => {
                    let accounts = account(&answer.value, kind).into_iter().collect();
                    return self.with_members(accounts, limit, next);
                }
                Err(Error::NotFound(_)) => {}
                Err(e) if e.is_of_page() => {
                    return Ok(AccountsPage {
                        next,
                        skipped: Some(e.to_string()),
                        ..AccountsPage::default()
                    });
                }
                Err(e) => return Err(e),
            }
        }
        Ok(AccountsPage { next, ..AccountsPage::default() })
    }
}

impl Forge for Gitea {
    fn start(&self) -> &'static str {
        if self.owners.is_empty() { "1" } else { "0:1" }
    }

    fn page(&mut self, position: &str) -> Result<Page> {
        let limit = self.per_page()?;
        let place = OwnerPosition::parse(position, 1u64);
        let OwnerPosition { owner, at: page } = place;
        let name = owner.map(|n| self.owners.get(n).map(|name| escape(name)));
        let url = match &name {
            // By id: new repositories come last and move no others. Gogs requires the parameter `q`.
            None => format!("{}/repos/search?q=&sort=id&order=asc&limit={limit}&page={page}", self.base),
            Some(Some(name)) => format!("{}/users/{name}/repos?limit={limit}&page={page}", self.base),
            Some(None) => return Ok(Page::default()),
        };
        let next_page = || Some(place.go_to(page.saturating_add(1)).text());
        let next_owner = place.next_owner(self.owners.len(), 1);
        let answer = match self.api.get(&url) {
            Err(e) if owner.is_some() && e.is_of_owner() => {
                return Ok(Page::leaving_out(position, &e, next_owner));
            }
            Err(e) if e.is_of_page() => {
                let next = if self.failed.again(&place, page == 1) { next_owner } else { next_page() };
                return Ok(Page::skipping(position, &e, next));
            }
            answer => answer?,
        };
        // Searches wrap their list, lists do not.
        let Some(items) = answer.value["data"].as_array().or_else(|| answer.value.as_array()) else {
            let e = Error::Unexpected { url, detail: "not a list".to_owned() };
            let next = if owner.is_some() { next_owner } else { next_page() };
            return Ok(Page::skipping(position, &e, next));
        };
        // Private repositories are left out after a page was cut: a short page is the last only without a
        // link.
        let is_last = answer.next.is_none() && (items.len() as u64) < limit;
        let next = if is_last { next_owner } else { next_page() };
        Ok(Page { repositories: items.iter().filter_map(from_repository).collect(), next, ..Page::default() })
    }

    fn expect_public(&mut self, is_public: bool) {
        self.api.expect_public(is_public);
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        let url = format!("{}/repositories/{}", self.base, escape(forge_id));
        self.api.one(&url, from_repository)
    }

    fn accounts_start(&self) -> Option<&'static str> {
        Some(if self.owners.is_empty() { "people:1" } else { "owner:0" })
    }

    fn accounts(&mut self, position: &str) -> Result<AccountsPage> {
        let limit = self.per_page()?;
        let start = match self.owners.is_empty() {
            true => AccountsPosition::People(1),
            false => AccountsPosition::Owner(0),
        };
        let position = AccountsPosition::parse(position, start);
        let (list, page, further, behind) = match position {
            AccountsPosition::Owner(n) => return self.account_of_owner(n, limit),
            AccountsPosition::Organizations(page) => {
                ("orgs?", page, AccountsPosition::Organizations(page.saturating_add(1)), None)
            }
            AccountsPosition::People(page) | AccountsPosition::After(page) => (
                "users/search?q=&",
                page,
                AccountsPosition::People(page.saturating_add(1)),
                Some(AccountsPosition::Organizations(1).text()),
            ),
        };
        let url = format!("{}/{list}limit={limit}&page={page}", self.base);
        let further = Some(further.text());
        let answer = match self.api.get(&url) {
            Err(e) if e.is_of_page() => {
                return Ok(AccountsPage {
                    next: further,
                    skipped: Some(e.to_string()),
                    ..AccountsPage::default()
                });
            }
            answer => answer?,
        };
        let Some(items) = answer.value["data"].as_array().or_else(|| answer.value.as_array()) else {
            return Err(Error::Unexpected { url, detail: "not a list".to_owned() });
        };
        let is_last = answer.next.is_none() && (items.len() as u64) < limit;
        let (kind, next) = match position {
            AccountsPosition::Organizations(_) => (AccountKind::Organization, further.filter(|_| !is_last)),
            _ => (AccountKind::User, if is_last { behind } else { further }),
        };
        self.with_members(items.iter().filter_map(|item| account(item, kind)).collect(), limit, next)
    }

    fn metadata_streams(&self, wanted: &[MetadataKind]) -> Vec<&'static str> {
        streams(wanted, &["review_comments"])
    }

    fn metadata(
        &mut self,
        forge_id: &str,
        stream: &str,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> Result<MetadataPage> {
        let limit = self.per_page()?;
        // Lists are requested by name, which may be another repository's by now.
        if self.named.as_ref().is_none_or(|(id, _)| id != forge_id) {
            let Some(listed) = self.one(forge_id)? else {
                return Err(Error::NotFound(format!("repository {forge_id}")));
            };
            let path: Vec<String> = listed.full_name.split('/').map(escape).collect();
            self.named = Some((forge_id.to_owned(), path.join("/")));
        }
        let repository = format!("{}/repos/{}", self.base, self.named.as_ref().map_or("", |(_, path)| path));
        let (path, order) = match stream {
            "issues" => ("issues?state=all&type=issues", Order::Any("since")),
            "comments" => ("issues/comments?", Order::Any("since")),
            "pulls" => ("pulls?state=all&sort=recentupdate", Order::NewestFirst),
            "milestones" => ("milestones?state=all", Order::Whole),
            "labels" => ("labels?", Order::Whole),
            _ => ("releases?", Order::Whole),
        };
        let url = format!("{repository}/{path}&limit={limit}");
        page_of(&mut self.api, &MetadataList { url, order, per_page: limit }, stream, cursor, now)
    }

    fn usage(&self) -> Usage {
        self.api.usage()
    }

    fn budgets(&self) -> Vec<RequestBudget> {
        self.api.budgets()
    }

    fn remember(&mut self, budgets: &[RequestBudget]) {
        self.api.remember(budgets);
    }
}

fn account(value: &Value, kind: AccountKind) -> Option<Account> {
    let login =
        text(&value["login"]).or_else(|| text(&value["username"])).or_else(|| text(&value["name"]))?;
    Some(Account { forge_id: value["id"].as_u64()?.to_string(), login, kind })
}

fn from_repository(repository: &Value) -> Option<Listed> {
    let owner = &repository["owner"];
    Some(Listed {
        forge_id: repository["id"].as_u64()?.to_string(),
        full_name: text(&repository["full_name"])?,
        clone_url: text(&repository["clone_url"])?,
        // Lists do not tell users from organisations; the listing of accounts does.
        owner: account(owner, AccountKind::User),
        description: text(&repository["description"]),
        homepage: text(&repository["website"]),
        language: text(&repository["language"]),
        topics: repository["topics"].as_array().map(|topics| topics.iter().filter_map(text).collect()),
        default_branch: text(&repository["default_branch"]),
        fork: repository["fork"].as_bool(),
        parent_id: repository["parent"]["id"].as_u64().map(|id| id.to_string()),
        archived: repository["archived"].as_bool(),
        private: repository["private"].as_bool(),
        empty: repository["empty"].as_bool(),
        wiki: repository["has_wiki"].as_bool(),
        kibibytes: repository["size"].as_u64(),
        stars: repository["stars_count"].as_u64(),
        forks: repository["forks_count"].as_u64(),
        open_issues: repository["open_issues_count"].as_u64(),
        created_at: text(&repository["created_at"]),
        updated_at: text(&repository["updated_at"]),
        // Pushes set it; so do edits.
        pushed_at: text(&repository["updated_at"]),
        ..Listed::default()
    })
}
