//! A repository in the format of each of the APIs.

use serde_json::{Value, json};

use super::{Listed, State};

impl State {
    pub(super) fn has_wiki(&self, r: &Listed) -> bool {
        self.wikis && r.id.is_multiple_of(5)
    }

    /// Returns an item of GitHub's list of all repositories, which has few fields.
    pub(super) fn item(&self, r: &Listed) -> Value {
        json!({ "id": r.id, "node_id": format!("node{}", r.id), "full_name": format!("{}/{}", r.owner,
            r.name), "private": false,
                "html_url": format!("{}{}/{}", self.clone_base, r.owner, r.name), "fork": r.fork,
                "owner": { "id": 1, "login": r.owner, "type": "User" } })
    }

    pub(super) fn github(&self, r: &Listed) -> Value {
        let mut item = self.item(r);
        item["clone_url"] = json!(format!("{}{}/{}.git", self.clone_base, r.owner, r.name));
        item["pushed_at"] = json!(r.pushed_at);
        item["has_wiki"] = self.has_wiki(r).into();
        item
    }

    pub(super) fn node(&self, r: &Listed) -> Value {
        let topics =
            if r.id.is_multiple_of(3) { json!([{ "topic": { "name": "tools" } }]) } else { json!([]) };
        json!({ "databaseId": r.id, "nameWithOwner": format!("{}/{}", r.owner, r.name),
            "url": format!("{}{}/{}", self.clone_base, r.owner, r.name),
                "isFork": r.fork, "parent": if r.fork { json!({ "databaseId": 1 }) } else { Value::Null },
                "stargazerCount": r.id, "pushedAt": r.pushed_at, "primaryLanguage": { "name": "C" },
                "isEmpty": false, "hasWikiEnabled": self.has_wiki(r),
                "repositoryTopics": { "nodes": topics },
                "languages": { "edges": [{ "size": 7, "node": { "name": "C" } }] },
                "owner": { "__typename": "User", "login": r.owner, "databaseId": 1 } })
    }

    pub(super) fn gitlab(&self, r: &Listed) -> Value {
        json!({ "id": r.id, "visibility": "public",
            "forked_from_project": if r.fork { json!({ "id": 1 }) } else { Value::Null },
            "wiki_enabled": self.has_wiki(r), "path_with_namespace": format!("{}/{}", r.owner, r.name),
            "last_activity_at": r.pushed_at,
                "http_url_to_repo": format!("{}{}/{}.git", self.clone_base, r.owner, r.name),
                "namespace": { "id": 1, "full_path": r.owner, "kind": "group" } })
    }

    pub(super) fn bitbucket(&self, r: &Listed) -> Value {
        json!({ "uuid": format!("{{{}}}", r.id), "full_name": format!("{}/{}", r.owner, r.name), "scm": "git",
            "is_private": false,
                "parent": if r.fork { json!({ "uuid": "{1}" }) } else { Value::Null },
                "updated_on": r.pushed_at, "size": 4096,
                "links": { "clone": [{ "name": "https", "href": format!("{}{}/{}.git", self.clone_base,
                r.owner, r.name) }] },
                "owner": { "uuid": "{1}", "type": "team", "username": r.owner } })
    }

    pub(super) fn gerrit(&self, r: &Listed, more: bool) -> Value {
        let mut project = json!({ "id": format!("{}%2F{}", r.owner, r.name), "name": format!("{}/{}", r.owner,
            r.name), "state": "ACTIVE" });
        if more {
            project["_more_projects"] = true.into();
        }
        project
    }

    pub(super) fn sourcehut(&self, r: &Listed) -> Value {
        json!({ "id": r.id, "name": r.name, "visibility": "PUBLIC", "updated": r.pushed_at,
            "HEAD": { "name": "refs/heads/main" },
                "owner": { "canonicalName": format!("~{}", r.owner) } })
    }

    pub(super) fn gitea(&self, r: &Listed) -> Value {
        json!({ "id": r.id, "full_name": format!("{}/{}", r.owner, r.name), "fork": r.fork,
            "updated_at": r.pushed_at, "empty": false, "has_wiki": self.has_wiki(r),
                "clone_url": format!("{}{}/{}.git", self.clone_base, r.owner, r.name), "owner": { "id": 1,
                "login": r.owner } })
    }
}
