//! Gerrit (gerrit-review.googlesource.com/Documentation/rest-api-projects.html: `GET /projects/`).

use serde_json::Value;

use crate::api::{Api, Usage};
use crate::api_answer::escape;
use crate::github::text;
use crate::{Error, Forge, Listed, Page, Result};

const PER_PAGE: u64 = 500;

/// A Gerrit server.
pub struct Gerrit {
    api: Api,
    url: String,
    site: String,
}

impl Gerrit {
    /// Returns a listing of the Gerrit at `url`; the clone URLs of its repositories are below `site`.
    pub fn new(url: &str, site: &str, api: Api) -> Gerrit {
        let cut = |url: &str| url.trim_end_matches('/').to_owned();
        Gerrit { api, url: cut(url), site: cut(site) }
    }

    fn listed(&self, name: &str, project: &Value) -> Option<Listed> {
        Some(Listed {
            // The name, escaped: there is no other id, and projects are not renamed.
            forge_id: text(&project["id"]).unwrap_or_else(|| escape(name)),
            full_name: name.to_owned(),
            clone_url: format!("{}/{}", self.site, name.split('/').map(escape).collect::<Vec<_>>().join("/")),
            description: text(&project["description"]),
            // `parent_id` stays unset: a project's parent only passes on access rights.
            archived: match project["state"].as_str() {
                Some("HIDDEN") => return None,
                state => state.map(|state| state == "READ_ONLY"),
            },
            ..Listed::default()
        })
    }
}

impl Forge for Gerrit {
    fn start(&self) -> &'static str {
        "0"
    }

    fn page(&mut self, position: &str) -> Result<Page> {
        let start: u64 = position.parse().unwrap_or(0);
        let url = format!("{}/projects/?d&n={PER_PAGE}&S={start}", self.url);
        let after = |count: u64| Some(start.saturating_add(count).to_string());
        let answer = match self.api.get(&url) {
            Err(e) if e.is_of_page() => return Ok(Page::skipping(position, &e, after(PER_PAGE))),
            answer => answer?,
        };
        let Some(projects) = answer.value.as_object() else {
            return Err(Error::Unexpected { url, detail: "no projects by their names".to_owned() });
        };
        // The last project says whether there are more; servers may return fewer than requested.
        let has_more = projects.values().any(|project| project["_more_projects"] == true);
        let next = if has_more && !projects.is_empty() { after(projects.len() as u64) } else { None };
        let repositories = projects.iter().filter_map(|(name, project)| self.listed(name, project)).collect();
        Ok(Page { repositories, next, ..Page::default() })
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        let url = format!("{}/projects/{forge_id}", self.url);
        let value = self.api.one(&url, |project| project["name"].is_string().then(|| project.clone()))?;
        // A hidden project is gone for all clients.
        Ok(value.and_then(|project| self.listed(project["name"].as_str()?, &project)))
    }

    fn usage(&self) -> Usage {
        self.api.usage()
    }
}
