//! GitHub (docs.github.com/rest/repos: "List public repositories"; GraphQL: `nodes`).
//!
//! The items of a list have few fields. With a token, their ids go into one GraphQL query, which returns all
//! fields of a hundred repositories for one point: two requests for a hundred repositories.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use weir_ground::Timestamp;

use crate::accounts::{MEMBERS_MAX, members};
use crate::api::{Api, Usage};
use crate::api_answer::{ApiAnswer, escape, parameter};
use crate::deliveries::HookDeliveries;
use crate::github_search::{self, SearchPlace};
use crate::metadata::{MetadataList, Order, page_of, streams};
use crate::position::{AccountsPosition, FailedPages, OwnerPosition};
use crate::{
    Account, AccountKind, AccountsPage, Error, Forge, Listed, MetadataKind, MetadataPage, Page,
    RequestBudget, Result, Skipped,
};

/// Ids in one `nodes` field, as documented.
const NODES_MAX: usize = 100;
const PER_PAGE: usize = 100;
/// Ids that are skipped for the first page that cannot be fetched. The number doubles for each further one in
/// a row, as ids are sparse.
const SKIPPED_IDS: u64 = 100;
/// How often in a row the range of a search is halved. If that does not help, GitHub is down, and the next
/// crawl goes on from there.
const NARROWED_MAX: u32 = 4;
/// After so many answers in a row that were not complete, a search is not narrowed any more.
const INCOMPLETE_MAX: u32 = 8;

const FIELDS: &str = "databaseId nameWithOwner url isFork isArchived isPrivate isEmpty diskUsage \
    stargazerCount forkCount description hasWikiEnabled homepageUrl createdAt updatedAt pushedAt \
    defaultBranchRef{name} primaryLanguage{name} parent{databaseId} issues(states:OPEN){totalCount} \
    owner{__typename login ...on User{databaseId} ...on Organization{databaseId}} \
    languages(first:20,orderBy:{field:SIZE,direction:DESC}){edges{size node{name}}} \
    repositoryTopics(first:20){nodes{topic{name}}}";

/// The API of github.com, or of an Enterprise Server.
pub struct GitHub {
    pub(crate) api: Api,
    /// `https://api.github.com`, or `https://HOST/api/v3`.
    pub(crate) rest: String,
    graphql: String,
    /// The owners whose repositories are listed; all repositories if there are none.
    owners: Vec<String>,
    /// The numbers of the owners that are known not to be organisations.
    people: HashSet<usize>,
    /// The searches whose results are listed instead.
    questions: Vec<String>,
    /// Where the listing went on after the last page that could not be fetched, and how many ids it skipped.
    skipped: Option<(u64, u64)>,
    /// How often in a row the range of a search was halved because it could not be fetched.
    narrowed: u32,
    /// How often in a row a search found not all.
    incomplete: u32,
    failed: FailedPages,
}

impl GitHub {
    /// Returns a listing of the web site at `url`, such as `https://github.com`. `owners` are users and
    /// organisations; if there are none, everything is listed. `questions` are queries of GitHub's search for
    /// repositories, and take precedence over owners.
    pub fn new(url: &str, owners: Vec<String>, questions: Vec<String>, api: Api) -> GitHub {
        let rest = GitHub::rest(url);
        let graphql = rest.strip_suffix("/v3").unwrap_or(&rest).to_owned() + "/graphql";
        GitHub {
            api,
            rest,
            graphql,
            owners,
            people: HashSet::new(),
            questions,
            skipped: None,
            narrowed: 0,
            incomplete: 0,
            failed: FailedPages::default(),
        }
    }

    /// Returns the URL of the REST API of the web site at `url`.
    pub fn rest(url: &str) -> String {
        let url = url.trim_end_matches('/');
        if url == "https://github.com" {
            "https://api.github.com".to_owned()
        } else {
            format!("{url}/api/v3")
        }
    }

    /// Returns a page of what a search finds, from `position` on.
    fn found(&mut self, position: &str) -> Result<Page> {
        let now = github_search::now();
        let place = SearchPlace::parse(position, now);
        let Some(question) = self.questions.get(place.question) else { return Ok(Page::default()) };
        let more = self.questions.len();
        let next = |place: SearchPlace| (place.question < more).then(|| place.text());
        let skipped = |error| Skipped { position: place.text(), error };
        let narrowed = std::mem::take(&mut self.narrowed);
        match github_search::search(&mut self.api, &self.rest, question, place, now) {
            Err(Error::Unavailable { url, detail }) => match place.halved() {
                // A search over all time may take too long where one over a part of it does not.
                Some(half) if narrowed < NARROWED_MAX => {
                    tracing::warn!("{url}: {detail}; asking for less");
                    self.narrowed = narrowed + 1;
                    Ok(Page { next: next(half), ..Page::default() })
                }
                Some(_) => Err(Error::Unavailable { url, detail }),
                None => Ok(Page {
                    next: next(place.skip_page(now)),
                    skipped: Some(skipped(detail)),
                    ..Page::default()
                }),
            },
            // GitHub refuses to search for an owner that is renamed, gone, or not visible to us.
            Err(Error::Refused { url, detail }) => {
                tracing::warn!("{url}: {detail}; the other searches go on");
                Ok(Page { next: next(SearchPlace::start(place.question + 1, now)), ..Page::default() })
            }
            Err(e) => Err(e),
            // What there is, is taken. A search over a part of the time may find the rest.
            Ok(found) if found.is_incomplete => {
                let repositories = self.in_full(&found.items)?.0;
                self.incomplete += 1;
                if let Some(half) = place.halved().filter(|_| self.incomplete < INCOMPLETE_MAX) {
                    return Ok(Page { repositories, next: next(half), ..Page::default() });
                }
                let left_out = Some(skipped("GitHub returned incomplete search results".to_owned()));
                if found.next.question != place.question {
                    self.incomplete = 0;
                }
                Ok(Page { repositories, next: next(found.next), left_out, ..Page::default() })
            }
            Ok(found) => {
                self.incomplete = 0;
                let repositories = self.in_full(&found.items)?.0;
                Ok(Page { repositories, next: next(found.next), ..Page::default() })
            }
        }
    }

    /// Returns a page of the repositories with ids above `since`.
    fn all(&mut self, since: u64) -> Result<Page> {
        let url = format!("{}/repositories?since={since}&per_page={PER_PAGE}", self.rest);
        let (answer, items) = match self.api.get(&url).and_then(|answer| list(&url, answer)) {
            Err(e) if e.is_of_page() => {
                // Ids are sparse: if the page after a skipped one cannot be fetched either, more are skipped.
                let ids = self
                    .skipped
                    .filter(|(next, _)| *next == since)
                    .map_or(SKIPPED_IDS, |(_, ids)| ids.saturating_mul(2));
                let next = since.saturating_add(ids);
                self.skipped = Some((next, ids));
                return Ok(Page::skipping(&since.to_string(), &e, Some(next.to_string())));
            }
            found => found?,
        };
        // The link is the documented way; without a link, the list has ended.
        let next = answer.next.as_deref().and_then(|next| parameter(next, "since")).map(str::to_owned);
        let last = items.iter().filter_map(|i| i["id"].as_u64()).max();
        let next = next.or_else(|| last.filter(|_| answer.next.is_some()).map(|id| id.to_string()));
        Ok(Page { repositories: self.in_full(&items)?.0, next, ..Page::default() })
    }

    /// Returns page number `page` of the repositories of `owners[owner]`.
    fn owned(&mut self, owner: usize, page: u64, etag: Option<&str>) -> Result<Page> {
        let place = OwnerPosition { owner: Some(owner), at: page };
        let next_page = || Some(place.go_to(page.saturating_add(1)).text());
        let next_owner = place.next_owner(self.owners.len(), 1);
        let Some(name) = self.owners.get(owner) else { return Ok(Page::default()) };
        let url = |kind| {
            format!(
                "{}/{kind}/{}/repos?per_page={PER_PAGE}&page={page}&sort=created&direction=asc",
                self.rest,
                escape(name)
            )
        };
        let position = place.text();
        // For an organisation, /users lists only public repositories, whatever the token.
        let mut found = Err(Error::NotFound(String::new()));
        if self.api.is_known() && !self.people.contains(&owner) {
            let url = url("orgs");
            found = self
                .api
                .get_unless(&url, etag)
                .and_then(|answer| answer.map(|answer| list(&url, answer)).transpose());
        }
        if matches!(found, Err(Error::NotFound(_))) {
            self.people.insert(owner);
            let url = url("users");
            found = self
                .api
                .get_unless(&url, etag)
                .and_then(|answer| answer.map(|answer| list(&url, answer)).transpose());
        }
        let found = match found {
            // An owner that is gone, or not visible to us, does not end the listing of the others.
            Err(e) if e.is_of_owner() => return Ok(Page::leaving_out(&position, &e, next_owner)),
            Err(e) if e.is_of_page() => {
                // If a page is no list at all, the next page is none either.
                let is_hopeless =
                    !matches!(e, Error::Unavailable { .. }) || self.failed.again(&place, page == 1);
                return Ok(Page::skipping(&position, &e, if is_hopeless { next_owner } else { next_page() }));
            }
            found => found?,
        };
        let Some((answer, items)) = found else { return Ok(Page { is_unchanged: true, ..Page::default() }) };
        let next = if answer.next.is_some() { next_page() } else { next_owner };
        let (repositories, is_full) = self.in_full(&items)?;
        // No ETag is kept if details are missing, because the page must be fetched again. Nor is one kept for
        // a full last page: it stays as it is when another page follows, and the ETag does not cover the
        // link.
        let may_grow = items.len() >= PER_PAGE && answer.next.is_none();
        let etag = answer.etag.filter(|_| is_full && !may_grow);
        Ok(Page { repositories, next, etag, ..Page::default() })
    }

    /// Returns a page of `accounts`, with the members of the organisations among them.
    fn with_members(&mut self, accounts: Vec<Account>, next: Option<String>) -> Result<AccountsPage> {
        let (mut of_all, mut room) = (Vec::new(), MEMBERS_MAX);
        for organization in accounts.iter().filter(|a| a.kind == AccountKind::Organization) {
            let url =
                format!("{}/orgs/{}/members?per_page={PER_PAGE}", self.rest, escape(&organization.login));
            if let Some(members) = members(&mut self.api, &url, PER_PAGE as u64, room, account)? {
                room -= members.len();
                of_all.push((organization.forge_id.clone(), members));
            }
        }
        Ok(AccountsPage { accounts, members: of_all, next, skipped: None })
    }

    /// Returns the account of owner number `n`, with the members of an organization.
    fn account_of_owner(&mut self, n: usize) -> Result<AccountsPage> {
        let Some(name) = self.owners.get(n) else { return Ok(AccountsPage::default()) };
        let next = AccountsPosition::Owner(n).next_owner(self.owners.len());
        let url = format!("{}/users/{}", self.rest, escape(name));
        let found = match self.api.get(&url) {
            Err(e) if e.is_of_owner() => None,
            Err(e) if e.is_of_page() => {
                return Ok(AccountsPage { next, skipped: Some(e.to_string()), ..AccountsPage::default() });
            }
            answer => account(&answer?.value),
        };
        self.with_members(found.into_iter().collect(), next)
    }

    /// Returns all fields of `items`, requested in batches if there is a token; and whether there was an
    /// answer for each of them.
    fn in_full(&mut self, items: &[Value]) -> Result<(Vec<Listed>, bool)> {
        // Lists have holes: repositories that are being deleted.
        let items: Vec<&Value> = items.iter().filter(|i| i["id"].is_u64()).collect();
        let mut full = HashMap::new();
        if self.api.is_known() {
            for batch in items.chunks(NODES_MAX) {
                let ids: Vec<&str> = batch.iter().filter_map(|i| i["node_id"].as_str()).collect();
                let query = format!("query($ids:[ID!]!){{nodes(ids:$ids){{...on Repository{{{FIELDS}}}}}}}");
                let question = json!({ "query": query, "variables": { "ids": ids } });
                let url = self.graphql.clone();
                let answer = match self.api.post(&url, &question) {
                    // The fields of the list must do until the next time.
                    Err(e) if e.is_of_page() => {
                        tracing::warn!("no details of {} repositories: {e}", ids.len());
                        continue;
                    }
                    answer => answer?.value,
                };
                // Errors about some nodes come along with the answers about others.
                let Some(nodes) = answer["data"]["nodes"].as_array() else {
                    let detail = answer["errors"][0]["message"].as_str().unwrap_or("no data");
                    tracing::warn!("{url}: no details of {} repositories: {detail}", ids.len());
                    continue;
                };
                full.extend(
                    nodes.iter().filter_map(|node| Some((node["databaseId"].as_u64()?, from_node(node)?))),
                );
            }
        }
        let is_full = !self.api.is_known()
            || items.iter().all(|item| item["id"].as_u64().is_some_and(|id| full.contains_key(&id)));
        let listed =
            items.iter().filter_map(|item| full.remove(&item["id"].as_u64()?).or_else(|| from_item(item)));
        Ok((listed.collect(), is_full))
    }
}

impl Forge for GitHub {
    fn start(&self) -> &'static str {
        match (self.questions.is_empty(), self.owners.is_empty()) {
            (false, _) => "0:0:0:1",
            (true, false) => "0:1",
            (true, true) => "0",
        }
    }

    fn page(&mut self, position: &str) -> Result<Page> {
        self.page_unless(position, None)
    }

    fn page_unless(&mut self, position: &str, etag: Option<&str>) -> Result<Page> {
        if !self.questions.is_empty() {
            return self.found(position);
        }
        match OwnerPosition::parse(position, if self.owners.is_empty() { 0 } else { 1 }) {
            OwnerPosition { owner: Some(owner), at: page } => self.owned(owner, page, etag),
            OwnerPosition { owner: None, at: since } => self.all(since),
        }
    }

    fn expect_public(&mut self, is_public: bool) {
        self.api.expect_public(is_public);
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        let url = format!("{}/repositories/{}", self.rest, escape(forge_id));
        self.api.one(&url, from_item)
    }

    fn accounts_start(&self) -> Option<&'static str> {
        Some(if self.owners.is_empty() { "0" } else { "owner:0" })
    }

    fn accounts(&mut self, position: &str) -> Result<AccountsPage> {
        let start = match self.owners.is_empty() {
            true => AccountsPosition::After(0),
            false => AccountsPosition::Owner(0),
        };
        let since = match AccountsPosition::parse(position, start) {
            AccountsPosition::Owner(n) => return self.account_of_owner(n),
            AccountsPosition::After(since) => since,
            AccountsPosition::Organizations(_) | AccountsPosition::People(_) => 0,
        };
        let url = format!("{}/users?since={since}&per_page={PER_PAGE}", self.rest);
        let (answer, items) = match self.api.get(&url).and_then(|answer| list(&url, answer)) {
            Err(e) if e.is_of_page() => {
                let next = Some(since.saturating_add(SKIPPED_IDS).to_string());
                return Ok(AccountsPage { next, skipped: Some(e.to_string()), ..AccountsPage::default() });
            }
            found => found?,
        };
        let accounts: Vec<Account> = items.iter().filter_map(account).collect();
        let next = answer.next.as_deref().and_then(|next| parameter(next, "since")).map(str::to_owned);
        self.with_members(accounts, next)
    }

    fn metadata_streams(&self, wanted: &[MetadataKind]) -> Vec<&'static str> {
        streams(wanted, &[])
    }

    fn metadata(
        &mut self,
        forge_id: &str,
        stream: &str,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> Result<MetadataPage> {
        let since = Order::OldestFirst("since");
        let (path, order) = match stream {
            "issues" => ("issues?state=all&sort=updated&direction=asc", since),
            "comments" => ("issues/comments?sort=updated&direction=asc", since),
            "review_comments" => ("pulls/comments?sort=updated&direction=asc", since),
            // Pull requests cannot be requested by time.
            "pulls" => ("pulls?state=all&sort=updated&direction=desc", Order::NewestFirst),
            "milestones" => ("milestones?state=all", Order::Whole),
            "labels" => ("labels?", Order::Whole),
            _ => ("releases?", Order::Whole),
        };
        // By its id, because another repository may have its name by now. GitHub's own links to further pages
        // lead there, too.
        let url = format!("{}/repositories/{}/{path}&per_page={PER_PAGE}", self.rest, escape(forge_id));
        let mut page = page_of(
            &mut self.api,
            &MetadataList { url, order, per_page: PER_PAGE as u64 },
            stream,
            cursor,
            now,
        )?;
        // Issues include pull requests, which have a stream of their own with more fields. On old servers, an
        // issue may have a `pull_request` whose links are all null.
        let is_pull = |item: &Value| {
            item["pull_request"].as_object().is_some_and(|links| links.values().any(|link| !link.is_null()))
        };
        page.items.retain(|(name, item)| *name != "issues" || !is_pull(item));
        Ok(page)
    }

    fn hook_deliveries(&mut self) -> Option<&mut dyn HookDeliveries> {
        Some(self)
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

/// Returns the items of an answer that is a list.
fn list(url: &str, mut answer: ApiAnswer) -> Result<(ApiAnswer, Vec<Value>)> {
    match answer.value.take() {
        Value::Array(items) => Ok((answer, items)),
        _ => Err(Error::Unexpected { url: url.to_owned(), detail: "not a list".to_owned() }),
    }
}

pub(crate) fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|t| !t.is_empty()).map(str::to_owned)
}

/// Reads a user or an organisation of the REST API.
pub fn account(value: &Value) -> Option<Account> {
    let kind = if value["type"] == "Organization" { AccountKind::Organization } else { AccountKind::User };
    Some(Account { forge_id: value["id"].as_u64()?.to_string(), login: text(&value["login"])?, kind })
}

/// Reads an item of a list, or a whole repository, of the REST API.
pub fn from_item(item: &Value) -> Option<Listed> {
    let full_name = text(&item["full_name"])?;
    let owner = &item["owner"];
    Some(Listed {
        forge_id: item["id"].as_u64()?.to_string(),
        // Lists leave `clone_url` out.
        clone_url: text(&item["clone_url"]).or_else(|| Some(format!("{}.git", text(&item["html_url"])?)))?,
        full_name,
        owner: account(owner),
        description: text(&item["description"]),
        homepage: text(&item["homepage"]),
        language: text(&item["language"]),
        languages: None,
        topics: item["topics"].as_array().map(|topics| topics.iter().filter_map(text).collect()),
        default_branch: text(&item["default_branch"]),
        fork: item["fork"].as_bool(),
        parent_id: item["parent"]["id"].as_u64().map(|id| id.to_string()),
        archived: item["archived"].as_bool(),
        private: item["private"].as_bool(),
        empty: None,
        wiki: item["has_wiki"].as_bool(),
        kibibytes: item["size"].as_u64(),
        stars: item["stargazers_count"].as_u64(),
        forks: item["forks_count"].as_u64(),
        open_issues: item["open_issues_count"].as_u64(),
        created_at: text(&item["created_at"]),
        updated_at: text(&item["updated_at"]),
        pushed_at: text(&item["pushed_at"]),
    })
}

/// Reads a repository of the GraphQL API.
fn from_node(node: &Value) -> Option<Listed> {
    let owner = &node["owner"];
    let edges = node["languages"]["edges"].as_array();
    Some(Listed {
        forge_id: node["databaseId"].as_u64()?.to_string(),
        full_name: text(&node["nameWithOwner"])?,
        clone_url: format!("{}.git", text(&node["url"])?),
        owner: owner["databaseId"].as_u64().zip(text(&owner["login"])).map(|(id, login)| {
            let kind = if owner["__typename"] == "Organization" {
                AccountKind::Organization
            } else {
                AccountKind::User
            };
            Account { forge_id: id.to_string(), login, kind }
        }),
        description: text(&node["description"]),
        homepage: text(&node["homepageUrl"]),
        language: text(&node["primaryLanguage"]["name"]),
        languages: edges.map(|edges| {
            edges.iter().filter_map(|e| Some((text(&e["node"]["name"])?, e["size"].as_u64()?))).collect()
        }),
        topics: node["repositoryTopics"]["nodes"]
            .as_array()
            .map(|topics| topics.iter().filter_map(|t| text(&t["topic"]["name"])).collect()),
        default_branch: text(&node["defaultBranchRef"]["name"]),
        fork: node["isFork"].as_bool(),
        parent_id: node["parent"]["databaseId"].as_u64().map(|id| id.to_string()),
        archived: node["isArchived"].as_bool(),
        private: node["isPrivate"].as_bool(),
        empty: node["isEmpty"].as_bool(),
        wiki: node["hasWikiEnabled"].as_bool(),
        kibibytes: node["diskUsage"].as_u64(),
        stars: node["stargazerCount"].as_u64(),
        forks: node["forkCount"].as_u64(),
        open_issues: node["issues"]["totalCount"].as_u64(),
        created_at: text(&node["createdAt"]),
        updated_at: text(&node["updatedAt"]),
        pushed_at: text(&node["pushedAt"]),
    })
}
