//! Deliveries of GitLab: of projects, groups and the instance.
//!
//! <https://docs.gitlab.com/user/project/integrations/webhook_events/>,
//! <https://docs.gitlab.com/administration/system_hooks/>

use std::borrow::Cow;

use http::HeaderMap;
use serde::Deserialize;

use crate::error::EventError;
use crate::webhooks::delivery::{Delivery, MovedRef, group_url_at, header, json, url_at};

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GitlabPayload<'b> {
    #[serde(borrow)]
    object_kind: Option<Cow<'b, str>>,
    #[serde(borrow)]
    event_name: Option<Cow<'b, str>>,
    #[serde(borrow, rename = "ref")]
    ref_name: Option<Cow<'b, str>>,
    #[serde(borrow)]
    before: Option<Cow<'b, str>>,
    #[serde(borrow)]
    after: Option<Cow<'b, str>>,
    #[serde(borrow)]
    project: Option<GitlabProject<'b>>,
    #[serde(borrow)]
    wiki: Option<GitlabProject<'b>>,
    #[serde(borrow)]
    object_attributes: Option<GitlabAttributes<'b>>,
    /// Of events of the instance about a project.
    #[serde(borrow)]
    path_with_namespace: Option<Cow<'b, str>>,
    #[serde(borrow)]
    old_path_with_namespace: Option<Cow<'b, str>>,
    /// Of events of the instance about a group.
    #[serde(borrow)]
    old_full_path: Option<Cow<'b, str>>,
    /// Of events of the instance about a user.
    #[serde(borrow)]
    old_username: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GitlabProject<'b> {
    #[serde(borrow)]
    git_http_url: Option<Cow<'b, str>>,
    #[serde(borrow)]
    git_ssh_url: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GitlabAttributes<'b> {
    #[serde(borrow)]
    action: Option<Cow<'b, str>>,
    /// The commit before, if the action moved it.
    #[serde(borrow)]
    oldrev: Option<Cow<'b, str>>,
}

/// Reads a delivery. The instance is at `site`, if its deliveries do not say where.
pub(crate) fn read<'b>(
    headers: &'b HeaderMap,
    body: &'b [u8],
    site: Option<&str>,
) -> Result<Delivery<'b>, EventError> {
    if header(headers, "x-gitlab-event").is_none() {
        return Err(EventError::NoHeader("x-gitlab-event"));
    }
    // X-Gitlab-Webhook-UUID is the same in all deliveries of a webhook.
    let id = ["idempotency-key", "webhook-id", "x-gitlab-event-uuid"];
    let delivery = id.into_iter().find_map(|name| header(headers, name)).map(Cow::Borrowed);
    let payload: GitlabPayload<'b> = json(body)?;
    let event = payload.event_name.or(payload.object_kind).unwrap_or_default();
    let mut found = Delivery { delivery, ..Delivery::of(event) };
    let of_instance = || {
        let named = header(headers, "x-gitlab-instance").or(site);
        named.ok_or(EventError::NoSite)
    };
    let project = match found.event.as_ref() {
        "push" | "tag_push" | "repository_update" => payload.project,
        "merge_request" => {
            let GitlabAttributes { action, oldrev } =
                payload.object_attributes.unwrap_or(GitlabAttributes { action: None, oldrev: None });
            let moves =
                action.as_ref().is_some_and(|action| action != "update" && !action.contains("approv"));
            found.action = action;
            payload.project.filter(|_| moves || oldrev.is_some())
        }
        "wiki_page" => payload.wiki,
        "project_create" | "project_destroy" | "project_rename" | "project_transfer" | "project_update" => {
            let site = of_instance()?;
            found.repository_changed = true;
            found.repository_deleted = found.event == "project_destroy";
            let at = |path: Option<Cow<'b, str>>| path.map(|path| Cow::Owned(url_at(site, &path)));
            found.old_url = at(payload.old_path_with_namespace);
            let git_http_url = at(payload.path_with_namespace);
            Some(GitlabProject { git_http_url, git_ssh_url: None })
        }
        "group_rename" | "user_rename" => {
            let site = of_instance()?;
            let old = payload.old_full_path.or(payload.old_username);
            found.old_group_url = old.map(|path| group_url_at(site, &path).into());
            (found.is_change, found.repository_changed) = (true, true);
            return Ok(found);
        }
        _ => return Ok(found),
    };
    // Merge requests and wikis change much that is no repository.
    found.is_change = project.is_some() || !matches!(found.event.as_ref(), "merge_request" | "wiki_page");
    if let Some(project) = project {
        (found.clone_url, found.ssh_url) = (project.git_http_url, project.git_ssh_url);
    }
    if let (Some(name), Some(old), Some(new)) = (payload.ref_name, payload.before, payload.after) {
        found.update = Some(MovedRef { name, old, new });
    }
    Ok(found)
}
