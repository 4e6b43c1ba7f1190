//! sourcehut (docs.sourcehut.org/git.sr.ht: `user`, `repositories`). There is no list of everything; a token is needed.

use serde_json::{Value, json};

use crate::api::{Api, Usage};
use crate::github::text;
use crate::whole::Whole;
use crate::{Account, AccountKind, Error, Forge, Listed, Page, Result};

const FIELDS: &str = "cursor results { id name description visibility created updated HEAD { name } owner { canonicalName } }";

/// The git service of a sourcehut.
pub struct Sourcehut {
    api: Api,
    url: String,
    /// Whose, without the tilde; the token's owner's if there are none.
    owners: Vec<String>,
    whole: Whole,
}

impl Sourcehut {
    /// `url` is the git service's (`https://git.sr.ht`).
    pub fn new(url: &str, owners: Vec<String>, api: Api) -> Sourcehut {
        let owners = owners.into_iter().map(|owner| owner.trim_start_matches('~').to_owned()).collect();
        Sourcehut { api, url: url.trim_end_matches('/').to_owned(), owners, whole: Whole::default() }
    }

    fn listed(&self, repository: &Value) -> Option<Listed> {
        let (owner, name) = (text(&repository["owner"]["canonicalName"])?, text(&repository["name"])?);
        Some(Listed {
            forge_id: repository["id"].as_u64()?.to_string(),
            full_name: format!("{owner}/{name}"),
            clone_url: format!("{}/{owner}/{name}", self.url),
            owner: Some(Account { forge_id: owner.clone(), login: owner, kind: AccountKind::User }),
            description: text(&repository["description"]),
            default_branch: text(&repository["HEAD"]["name"]).and_then(|head| head.strip_prefix("refs/heads/").map(str::to_owned)),
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
        // `OWNER:CURSOR`
        let (n, cursor) = position.split_once(':').unwrap_or((position, ""));
        let n: usize = n.parse().unwrap_or(0);
        let cursor = (!cursor.is_empty()).then_some(cursor);
        let question = match self.owners.get(n) {
            Some(owner) => json!({
                "query": format!("query($name: String!, $cursor: Cursor) {{ user(username: $name) {{ repositories(cursor: $cursor) {{ {FIELDS} }} }} }}"),
                "variables": { "name": owner, "cursor": cursor } }),
            None if self.owners.is_empty() => json!({
                "query": format!("query($cursor: Cursor) {{ repositories(cursor: $cursor) {{ {FIELDS} }} }}"),
                "variables": { "cursor": cursor } }),
            None => return Ok(Page::default()),
        };
        let url = format!("{}/query", self.url);
        let answer = self.api.post(&url, &question)?.value;
        let next_owner = (n + 1 < self.owners.len()).then(|| format!("{}:", n + 1));
        let data = &answer["data"];
        let found = if self.owners.is_empty() { &data["repositories"] } else { &data["user"]["repositories"] };
        let Some(results) = found["results"].as_array() else {
            if !self.owners.is_empty() && data["user"].is_null() && answer["errors"].is_null() {
                tracing::warn!("{url}: there is no user called '{}'", self.owners[n]);
                return Ok(Page { next: next_owner, ..Page::default() });
            }
            let detail = answer["errors"][0]["message"].as_str().unwrap_or("no repositories").to_owned();
            return Err(Error::Unexpected { url, detail });
        };
        let next = match found["cursor"].as_str() {
            Some(next) if Some(next) != cursor => Some(format!("{n}:{next}")),
            _ => next_owner,
        };
        Ok(Page { repositories: results.iter().filter_map(|r| self.listed(r)).collect(), next, skipped: None })
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        // It is asked for by owner and name only, which may be others by now.
        if !self.whole.is_read() {
            let list = Whole::read(self)?;
            self.whole.set(list);
        }
        Ok(self.whole.get(forge_id))
    }

    fn usage(&self) -> Usage {
        self.api.usage()
    }
}
