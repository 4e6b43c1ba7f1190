//! GitLab (docs.gitlab.com/api/projects; docs.gitlab.com/api/rest, "Keyset-based pagination").

use serde_json::Value;
use weir_ground::Timestamp;

use crate::api::{Api, Usage};
use crate::api_answer::escape;
use crate::deliveries::HookDeliveries;
use crate::github::text;
use crate::metadata::{MetadataList, Order, all, page_of, streams};
use crate::position::OwnerPosition;
use crate::{Account, AccountKind, Error, Forge, Listed, MetadataKind, MetadataPage, Page, Result};

const PER_PAGE: u64 = 100;
/// Items per page if their notes are fetched, too, and bytes of these notes.
const NOTED_PER_PAGE: u64 = 20;
const NOTES_BYTES_MAX: usize = 256 << 20;

/// The API of a GitLab instance.
pub struct GitLab {
    pub(crate) api: Api,
    pub(crate) base: String,
    /// The groups and users whose projects are listed; all projects if there are none.
    owners: Vec<String>,
    /// Ids that are skipped if the next page cannot be fetched.
    skipped_ids: u64,
}

impl GitLab {
    /// Returns a listing of the web site at `url`. `owners` are groups, which include their subgroups, or
    /// users; if there are none, everything is listed.
    pub fn new(url: &str, owners: Vec<String>, api: Api) -> GitLab {
        GitLab { api, base: format!("{}/api/v4", url.trim_end_matches('/')), owners, skipped_ids: PER_PAGE }
    }
}

impl Forge for GitLab {
    fn start(&self) -> &'static str {
        if self.owners.is_empty() { "0" } else { "0:0" }
    }

    fn page(&mut self, position: &str) -> Result<Page> {
        // A position is the last id before the page.
        let place = OwnerPosition::parse(position, 0u64);
        let OwnerPosition { owner, at: after } = place;
        let order = format!("pagination=keyset&order_by=id&sort=asc&per_page={PER_PAGE}&id_after={after}");
        let answer = match owner {
            None => self.api.get(&format!("{}/projects?{order}", self.base)),
            Some(n) => {
                let Some(name) = self.owners.get(n).map(|name| escape(name)) else {
                    return Ok(Page::default());
                };
                match self
                    .api
                    .get(&format!("{}/groups/{name}/projects?include_subgroups=true&{order}", self.base))
                {
                    Err(Error::NotFound(_)) => {
                        self.api.get(&format!("{}/users/{name}/projects?{order}", self.base))
                    }
                    answer => answer,
                }
            }
        };
        let next_owner = place.next_owner(self.owners.len(), 0);
        let answer = match answer {
            // Some pages always answer 500, but the projects behind them can be fetched.
            Err(e) if owner.is_some() && e.is_of_owner() => {
                return Ok(Page::leaving_out(position, &e, next_owner));
            }
            // A group whose list cannot be had at all does not hide the others.
            Err(e) if e.is_of_page() && owner.is_some() && after == 0 => {
                return Ok(Page::skipping(position, &e, next_owner));
            }
            Err(e) if e.is_of_page() => {
                // Twice as far with each such page in a row: ids are sparse.
                let next = place.go_to(after.saturating_add(self.skipped_ids)).text();
                self.skipped_ids = self.skipped_ids.saturating_mul(2);
                return Ok(Page::skipping(position, &e, Some(next)));
            }
            answer => answer?,
        };
        self.skipped_ids = PER_PAGE;
        let Some(items) = answer.value.as_array() else {
            return Err(Error::Unexpected { url: self.base.clone(), detail: "not a list".to_owned() });
        };
        let last = items.iter().filter_map(|i| i["id"].as_u64()).max();
        let next = match last {
            Some(last) if answer.next.is_some() || items.len() as u64 == PER_PAGE => {
                Some(place.go_to(last).text())
            }
            _ => next_owner,
        };
        Ok(Page { repositories: items.iter().filter_map(from_project).collect(), next, ..Page::default() })
    }

    fn expect_public(&mut self, is_public: bool) {
        self.api.expect_public(is_public);
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        let url = format!("{}/projects/{}", self.base, escape(forge_id));
        self.api.one(&url, from_project)
    }

    fn metadata_streams(&self, wanted: &[MetadataKind]) -> Vec<&'static str> {
        // Notes have no list of their own: they come with their issue or merge request.
        streams(wanted, &["comments", "review_comments"])
    }

    fn metadata(
        &mut self,
        forge_id: &str,
        stream: &str,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> Result<MetadataPage> {
        let project = format!("{}/projects/{}", self.base, escape(forge_id));
        let since = Order::OldestFirst("updated_after");
        let (path, order) = match stream {
            "issues" => ("issues?scope=all&order_by=updated_at&sort=asc", since),
            "pulls" => ("merge_requests?scope=all&state=all&order_by=updated_at&sort=asc", since),
            "labels" => ("labels?", Order::Whole),
            "milestones" => ("milestones?", Order::Whole),
            _ => ("releases?", Order::Whole),
        };
        let (of, notes_stream) = match stream {
            "issues" => ("issues", "comments"),
            "pulls" => ("merge_requests", "review_comments"),
            _ => {
                let list = MetadataList {
                    url: format!("{project}/{path}&per_page={PER_PAGE}"),
                    order,
                    per_page: PER_PAGE,
                };
                return page_of(&mut self.api, &list, stream, cursor, now);
            }
        };
        let list = MetadataList {
            url: format!("{project}/{path}&per_page={NOTED_PER_PAGE}"),
            order,
            per_page: NOTED_PER_PAGE,
        };
        let mut page = page_of(&mut self.api, &list, stream, cursor, now)?;
        // Notes are available only with a token.
        let noted: Vec<_> = page.items.iter().filter(|_| self.api.is_known()).collect();
        let (mut notes, mut room) = (Vec::new(), NOTES_BYTES_MAX);
        for (_, item) in noted {
            if let (Some(number), Some(1..)) = (item["iid"].as_u64(), item["user_notes_count"].as_u64()) {
                let url = format!("{project}/{of}/{number}/notes?sort=asc&per_page={PER_PAGE}");
                match all(&mut self.api, &url, PER_PAGE, &mut room) {
                    Ok(all) => notes.extend(all.into_iter().map(|note| (notes_stream, note))),
                    // The item is kept without its notes.
                    Err(e @ (Error::NotFound(_) | Error::Unexpected { .. })) => {
                        tracing::warn!("notes left out: {e}")
                    }
                    // The error `Forbidden` would be taken for a list that is turned off.
                    Err(Error::Forbidden { url, detail, .. }) => {
                        return Err(Error::Unexpected { url, detail });
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        page.items.extend(notes);
        Ok(page)
    }

    fn hook_deliveries(&mut self) -> Option<&mut dyn HookDeliveries> {
        Some(self)
    }

    fn usage(&self) -> Usage {
        self.api.usage()
    }
}

fn from_project(project: &Value) -> Option<Listed> {
    let namespace = &project["namespace"];
    Some(Listed {
        forge_id: project["id"].as_u64()?.to_string(),
        full_name: text(&project["path_with_namespace"])?,
        clone_url: text(&project["http_url_to_repo"])?,
        owner: namespace["id"].as_u64().zip(text(&namespace["full_path"])).map(|(id, login)| {
            let kind =
                if namespace["kind"] == "group" { AccountKind::Organization } else { AccountKind::User };
            Account { forge_id: id.to_string(), login, kind }
        }),
        description: text(&project["description"]),
        topics: project["topics"].as_array().map(|topics| topics.iter().filter_map(text).collect()),
        default_branch: text(&project["default_branch"]),
        fork: (project.get("visibility").is_some()).then(|| project["forked_from_project"].is_object()),
        parent_id: project["forked_from_project"]["id"].as_u64().map(|id| id.to_string()),
        archived: project["archived"].as_bool(),
        private: project["visibility"].as_str().map(|v| v != "public"),
        empty: project["empty_repo"].as_bool(),
        wiki: project["wiki_enabled"].as_bool(),
        stars: project["star_count"].as_u64(),
        forks: project["forks_count"].as_u64(),
        open_issues: project["open_issues_count"].as_u64(),
        created_at: text(&project["created_at"]),
        updated_at: text(&project["updated_at"]),
        // Pushes count as activity; so do other changes.
        pushed_at: text(&project["last_activity_at"]),
        ..Listed::default()
    })
}
