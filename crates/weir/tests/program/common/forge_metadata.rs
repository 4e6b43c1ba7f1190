//! The metadata of the fake forge: lists with the pages and the order of GitHub, GitLab and Gitea.

use serde_json::{Value, json};

use super::Reply;

/// Metadata, by the names of weir's streams. All repositories have the same.
#[derive(Default)]
pub struct Around {
    pub lists: std::collections::BTreeMap<&'static str, Vec<Value>>,
    /// Lists that fail, each with its status.
    pub broken: Vec<(&'static str, &'static str)>,
    /// The number of pages of a list that the forge serves, if not all.
    pub pages_max: Option<usize>,
    /// The number of requests before the one at which `then` changes something.
    pub calm: u32,
    pub then: Option<fn(&mut Around)>,
}

impl Around {
    /// Returns the answer to a request for a list of a repository, if it is one: status, headers, items.
    pub fn route(&mut self, path: &str, query: &str, is_known: bool) -> Option<Reply> {
        let (api, rest) =
            [("v3", "/api/v3/repositories/"), ("v4", "/api/v4/projects/"), ("v1", "/api/v1/repos/")]
                .into_iter()
                .find_map(|(api, prefix)| Some((api, path.strip_prefix(prefix)?)))?;
        let list = match api {
            "v1" => rest.splitn(3, '/').nth(2)?,
            _ => rest.split_once('/')?.1,
        };
        match self.then.take_if(|_| self.calm == 0) {
            Some(change) => change(self),
            None => self.calm = self.calm.saturating_sub(1),
        }
        let stream = match list {
            "issues/comments" => "comments",
            "pulls/comments" => "review_comments",
            "merge_requests" => "pulls",
            other => other,
        };
        if let Some((_, status)) = self.broken.iter().find(|(name, _)| *name == stream) {
            return Some((status, String::new(), json!({ "message": "no" })));
        }
        // GitLab's notes of one issue or merge request, which only a client with a token may read.
        let noted = list
            .split_once('/')
            .filter(|_| api == "v4")
            .and_then(|(_, rest)| rest.strip_suffix("/notes")?.parse::<u64>().ok());
        let mut items = match noted {
            Some(_) if !is_known => {
                return Some(("401 Unauthorized", String::new(), json!({ "message": "401 Unauthorized" })));
            }
            Some(number) => {
                let of = if list.starts_with("issues") { "comments" } else { "review_comments" };
                self.lists.get(of)?.iter().filter(|note| note["noteable_iid"] == number).cloned().collect()
            }
            None => match self.lists.get(stream) {
                Some(items) => items.clone(),
                None => return Some(("404 Not Found", String::new(), json!({ "message": "Not Found" }))),
            },
        };
        select(&mut items, api, query);
        let size = parameter(query, "per_page").or_else(|| parameter(query, "limit")).unwrap();
        let size: usize = size.parse().unwrap();
        let page: usize = parameter(query, "page").unwrap().parse().unwrap();
        if self.pages_max.is_some_and(|max| page > max) {
            return Some((
                "422 Unprocessable Entity",
                String::new(),
                json!({ "message": "Only the first results are available" }),
            ));
        }
        let more = items.len() > page * size;
        let link = if more {
            format!("Link: <http://x/?page={}>; rel=\"next\"\r\n", page + 1)
        } else {
            String::new()
        };
        Some(("200 OK", link, items.into_iter().skip((page - 1) * size).take(size).collect()))
    }
}

/// Returns the value of the query parameter `name`.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='))?;
    Some(percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned())
}

/// Keeps those of `items` that are as new as the query asks for, in the order that it asks for.
fn select(items: &mut Vec<Value>, api: &str, query: &str) {
    let time = |item: &Value| item["updated_at"].as_str().unwrap_or_default().to_owned();
    if let Some(since) = parameter(query, "since").or_else(|| parameter(query, "updated_after")) {
        items.retain(|item| time(item) >= since);
    }
    let by_time = query.contains("sort=updated") || query.contains("order_by=updated_at");
    if by_time {
        items.sort_by_key(time);
    }
    match api {
        "v1" if query.contains("sort=recentupdate") => {
            items.sort_by_key(time);
            items.reverse();
        }
        // Gitea sorts by creation, the latest first.
        "v1" => items.sort_by_key(|item| std::cmp::Reverse(item["id"].as_u64())),
        _ if query.contains("direction=desc") => items.reverse(),
        _ => {}
    }
}
