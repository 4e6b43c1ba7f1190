//! sourcehut (docs.sourcehut.org/git.sr.ht: `user`, `repositories`). There is no list of everything; a token
//! is needed.

use serde_json::{Value, json};

use crate::api::{Api, Usage};
use crate::github::text;
use crate::position::OwnerPosition;
use crate::{Account, AccountKind, Error, Forge, Listed, Page, Result};

const FIELDS: &str = "name description visibility created updated HEAD { name } owner { canonicalName }";

/// The git service of a sourcehut instance.
pub struct Sourcehut {
    api: Api,
    url: String,
    /// The owners, without the tilde; the token's owner if there are none.
    owners: Vec<String>,
}

impl Sourcehut {
    /// Returns a listing of the git service at `url` (`https://git.sr.ht`).
    pub fn new(url: &str, owners: Vec<String>, api: Api) -> Sourcehut {
        let owners = owners.into_iter().map(|owner| owner.trim_start_matches('~').to_owned()).collect();
        Sourcehut { api, url: url.trim_end_matches('/').to_owned(), owners }
    }

    fn listed(&self, repository: &Value) -> Option<Listed> {
        let (owner, name) = (text(&repository["owner"]["canonicalName"])?, text(&repository["name"])?);
        Some(Listed {
            // It can be requested by its name only: a renamed repository is a new one, and the copy of the
            // old one stays.
            forge_id: format!("{owner}/{name}"),
            full_name: format!("{owner}/{name}"),
            clone_url: format!("{}/{owner}/{name}", self.url),
            owner: Some(Account { forge_id: owner.clone(), login: owner, kind: AccountKind::User }),
            description: text(&repository["description"]),
            default_branch: text(&repository["HEAD"]["name"])
                .and_then(|head| head.strip_prefix("refs/heads/").map(str::to_owned)),
            private: repository["visibility"].as_str().map(|visibility| visibility == "PRIVATE"),
            created_at: text(&repository["created"]),
            updated_at: text(&repository["updated"]),
            pushed_at: text(&repository["updated"]),
            ..Listed::default()
        })
    }
}

impl Forge for Sourcehut {
    fn start(&self) -> &'static str {
        "0:"
    }

    fn page(&mut self, position: &str) -> Result<Page> {
        // A position is the forge's cursor. The token's owner counts as one owner without a name.
        let place = OwnerPosition::parse(position, String::new());
        let n = place.owner.unwrap_or(0);
        let cursor = Some(&place.at).filter(|cursor| !cursor.is_empty());
        let question = match self.owners.get(n) {
            Some(owner) => json!({
                "query": format!("query($name: String!, $cursor: Cursor) {{ user(username: $name) \
                {{ repositories(cursor: $cursor) {{ cursor results {{ {FIELDS} }} }} }} }}"),
                "variables": { "name": owner, "cursor": cursor } }),
            None if self.owners.is_empty() => json!({
                "query": format!("query($cursor: Cursor) {{ repositories(cursor: $cursor) \
                {{ cursor results {{ {FIELDS} }} }} }}"),
                "variables": { "cursor": cursor } }),
            None => return Ok(Page::default()),
        };
        let url = format!("{}/query", self.url);
        let answer = self.api.post(&url, &question)?.value;
        let next_owner = place.next_owner(self.owners.len(), String::new());
        let data = &answer["data"];
        let found =
            if self.owners.is_empty() { &data["repositories"] } else { &data["user"]["repositories"] };
        let Some(results) = found["results"].as_array() else {
            if !self.owners.is_empty() && data["user"].is_null() && answer["errors"].is_null() {
                tracing::warn!("{url}: there is no user called '{}'", self.owners[n]);
                return Ok(Page { next: next_owner, ..Page::default() });
            }
            let detail = answer["errors"][0]["message"].as_str().unwrap_or("no repositories").to_owned();
            return Err(Error::Unexpected { url, detail });
        };
        let next = match found["cursor"].as_str() {
            Some(next) => Some(place.go_to(next.to_owned()).text()),
            None => next_owner,
        };
        Ok(Page {
            repositories: results.iter().filter_map(|r| self.listed(r)).collect(),
            next,
            ..Page::default()
        })
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        let url = format!("{}/query", self.url);
        let unexpected = |detail: &str| Error::Unexpected { url: url.clone(), detail: detail.to_owned() };
        let (owner, name) = forge_id
            .trim_start_matches('~')
            .split_once('/')
            .ok_or_else(|| unexpected("no owner and name"))?;
        let question = json!({
            "query": format!("query($owner: String!, $name: String!) {{ user(username: $owner) \
            {{ repository(name: $name) {{ {FIELDS} }} }} }}"),
            "variables": { "owner": owner, "name": name } });
        let answer = self.api.post(&url, &question)?.value;
        match &answer["data"]["user"] {
            // No data and no error: the user or the repository does not exist.
            user if answer["errors"].is_null()
                && (user.is_null() || user["repository"].is_null())
                && answer["data"].is_object() =>
            {
                Ok(None)
            }
            user => self
                .listed(&user["repository"])
                .map(Some)
                .ok_or_else(|| unexpected("not what a repository looks like")),
        }
    }

    fn usage(&self) -> Usage {
        self.api.usage()
    }
}
