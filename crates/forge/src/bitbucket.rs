//! Bitbucket Cloud (developer.atlassian.com/cloud/bitbucket/rest: `GET /repositories/{workspace}`, `GET
//! /user/workspaces`).
//!
//! The list of all public repositories, `GET /repositories`, is gone from bitbucket.org since 2026
//! (CHANGE-2770). If no workspaces are named, those of the credentials are listed.

use serde_json::Value;

use crate::api::{Api, Usage};
use crate::api_answer::{escape, parameter};
use crate::github::text;
use crate::position::{FailedPages, OwnerPosition};
use crate::{Account, AccountKind, Error, Forge, Listed, Page, Result};

const PER_PAGE: u64 = 100;
const WORKSPACE_PAGES_MAX: u64 = 100;
/// The fields that are requested: a full answer is ten times as large.
const FIELDS: &str = "uuid,full_name,scm,description,website,language,is_private,size,created_on,\
    updated_on,mainbranch.name,parent.uuid,links.clone,owner.uuid,owner.type,\
    owner.username,owner.nickname,owner.display_name";

/// The API of Bitbucket Cloud.
pub struct Bitbucket {
    api: Api,
    base: String,
    /// The workspaces whose repositories are listed.
    workspaces: Vec<String>,
    /// Whether none were named, so that they are those of which the credentials are a member.
    are_found: bool,
    failed: FailedPages,
}

impl Bitbucket {
    /// Returns a listing of the web site at `url`. `workspaces` are slugs. If there are none, those of the
    /// credentials are listed; without credentials, everything that is public, if the server lists that.
    pub fn new(url: &str, workspaces: Vec<String>, api: Api) -> Bitbucket {
        let url = url.trim_end_matches('/');
        let base = if url == "https://bitbucket.org" {
            "https://api.bitbucket.org/2.0".to_owned()
        } else {
            format!("{url}/2.0")
        };
        let are_found = workspaces.is_empty() && api.is_known();
        Bitbucket { api, base, workspaces, are_found, failed: FailedPages::default() }
    }

    /// Requests the workspaces of the credentials, and sorts them by name: a position then means the same the
    /// next time, if no workspace came or went.
    fn find_workspaces(&mut self) -> Result<()> {
        let mut found = Vec::new();
        for page in 1..=WORKSPACE_PAGES_MAX {
            let answer =
                self.api.get(&format!("{}/user/workspaces?pagelen={PER_PAGE}&page={page}", self.base))?.value;
            let list = answer["values"].as_array().map_or(&[][..], Vec::as_slice);
            found.extend(
                list.iter().filter_map(|access| {
                    text(&access["workspace"]["slug"]).or_else(|| text(&access["slug"]))
                }),
            );
            if answer["next"].is_null() {
                break;
            }
        }
        found.sort_unstable();
        found.dedup();
        self.workspaces = found;
        Ok(())
    }
}

impl Forge for Bitbucket {
    fn start(&self) -> &'static str {
        if self.workspaces.is_empty() && !self.are_found { "" } else { "0:1" }
    }

    fn page(&mut self, position: &str) -> Result<Page> {
        if self.are_found && self.workspaces.is_empty() {
            self.find_workspaces()?;
        }
        // In the list of everything, a position is a time; in that of a workspace, a page.
        let fields: Vec<String> = FIELDS.split(',').map(|field| format!("values.{}", field.trim())).collect();
        let common = format!("pagelen={PER_PAGE}&fields=next%2C{}", fields.join("%2C"));
        let of_workspace = (self.are_found || !self.workspaces.is_empty())
            .then(|| OwnerPosition::parse(position, 1u64))
            .map(|place| OwnerPosition { owner: Some(place.owner.unwrap_or(0)), at: place.at });
        let next_page = |place: &OwnerPosition<u64>| Some(place.go_to(place.at.saturating_add(1)).text());
        let url = match of_workspace {
            None if position.is_empty() => format!("{}/repositories?{common}", self.base),
            None => format!("{}/repositories?{common}&after={}", self.base, escape(position)),
            Some(OwnerPosition { owner, at: page }) => match owner.and_then(|n| self.workspaces.get(n)) {
                None => return Ok(Page::default()),
                // By time of creation: new repositories come last and move no others.
                Some(name) => format!(
                    "{}/repositories/{}?{common}&sort=created_on&page={page}",
                    self.base,
                    escape(name)
                ),
            },
        };
        let next_workspace =
            of_workspace.as_ref().and_then(|place| place.next_owner(self.workspaces.len(), 1));
        let answer = match (self.api.get(&url), &of_workspace) {
            // Only numbered pages can be skipped: the time at which the next page starts is in the page
            // itself.
            (Err(e), Some(_)) if e.is_of_owner() => {
                return Ok(Page::leaving_out(position, &e, next_workspace));
            }
            (Err(e), Some(place)) if e.is_of_page() => {
                let is_hopeless = self.failed.again(place, place.at == 1);
                return Ok(Page::skipping(
                    position,
                    &e,
                    if is_hopeless { next_workspace } else { next_page(place) },
                ));
            }
            (answer, _) => answer?,
        };
        let Some(items) = answer.value["values"].as_array() else {
            return Err(Error::Unexpected { url, detail: "no list of values".to_owned() });
        };
        let next = match (answer.value["next"].as_str(), &of_workspace) {
            (None, _) => next_workspace,
            (Some(_), Some(place)) => next_page(place),
            // If the position stays the same, the crawl fails: it would request the page without end.
            (Some(next), None) => Some(unescape(parameter(next, "after").unwrap_or(position))),
        };
        Ok(Page { repositories: items.iter().filter_map(from_repository).collect(), next, ..Page::default() })
    }

    fn expect_public(&mut self, is_public: bool) {
        self.api.expect_public(is_public);
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        // By its id, whatever workspace it is in.
        let url = format!("{}/repositories/%7B%7D/%7B{}%7D", self.base, escape(forge_id));
        self.api.one(&url, from_repository)
    }

    fn usage(&self) -> Usage {
        self.api.usage()
    }
}

fn unescape(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns `url` without a user: answers to requests with credentials name the user in their URLs.
fn without_user(url: String) -> String {
    match url.strip_prefix("https://").and_then(|rest| rest.split_once('@')) {
        Some((user, rest)) if !user.contains('/') => format!("https://{rest}"),
        _ => url,
    }
}

/// Returns a UUID without its braces.
fn uuid(value: &Value) -> Option<String> {
    text(value).map(|id| id.trim_matches(['{', '}']).to_owned())
}

fn from_repository(repository: &Value) -> Option<Listed> {
    if repository["scm"].as_str().is_some_and(|scm| scm != "git") {
        return None;
    }
    let owner = &repository["owner"];
    let login = text(&owner["username"])
        .or_else(|| text(&owner["nickname"]))
        .or_else(|| text(&owner["display_name"]));
    let clones = repository["links"]["clone"].as_array()?;
    Some(Listed {
        forge_id: uuid(&repository["uuid"])?,
        full_name: text(&repository["full_name"])?,
        clone_url: clones
            .iter()
            .find(|clone| clone["name"] == "https")
            .and_then(|clone| text(&clone["href"]))
            .map(without_user)?,
        owner: uuid(&owner["uuid"]).zip(login).map(|(forge_id, login)| Account {
            forge_id,
            login,
            kind: if owner["type"] == "team" { AccountKind::Organization } else { AccountKind::User },
        }),
        description: text(&repository["description"]),
        homepage: text(&repository["website"]),
        language: text(&repository["language"]),
        default_branch: text(&repository["mainbranch"]["name"]),
        fork: Some(!repository["parent"].is_null()),
        parent_id: uuid(&repository["parent"]["uuid"]),
        private: repository["is_private"].as_bool(),
        kibibytes: repository["size"].as_u64().map(|bytes| bytes / 1024),
        created_at: text(&repository["created_on"]),
        updated_at: text(&repository["updated_on"]),
        // Pushes set it; so do edits.
        pushed_at: text(&repository["updated_on"]),
        ..Listed::default()
    })
}
