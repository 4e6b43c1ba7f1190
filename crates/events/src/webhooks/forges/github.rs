//! Deliveries of GitHub, Gitea, Forgejo and Gogs.
//!
//! <https://docs.github.com/en/webhooks/webhook-events-and-payloads>,
//! <https://forgejo.org/docs/latest/user/webhooks/>

use std::borrow::Cow;

use http::HeaderMap;
use serde::Deserialize;

use crate::error::EventError;
use crate::webhooks::delivery::{Delivery, MovedRef, group_url_at, header, json, wiki_url};

/// The headers of a forge.
pub(crate) struct HeaderNames {
    event: &'static str,
    delivery: &'static str,
}

pub(crate) const GITHUB: HeaderNames = HeaderNames { event: "x-github-event", delivery: "x-github-delivery" };
pub(crate) const GITEA: HeaderNames = HeaderNames { event: "x-gitea-event", delivery: "x-gitea-delivery" };
pub(crate) const FORGEJO: HeaderNames =
    HeaderNames { event: "x-forgejo-event", delivery: "x-forgejo-delivery" };
pub(crate) const GOGS: HeaderNames = HeaderNames { event: "x-gogs-event", delivery: "x-gogs-delivery" };

/// The actions on a pull request that move its refs.
const MOVING: [&str; 5] = ["opened", "reopened", "synchronize", "synchronized", "closed"];

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GithubPayload<'b> {
    #[serde(borrow)]
    action: Option<Cow<'b, str>>,
    #[serde(borrow, rename = "ref")]
    ref_name: Option<Cow<'b, str>>,
    #[serde(borrow)]
    before: Option<Cow<'b, str>>,
    #[serde(borrow)]
    after: Option<Cow<'b, str>>,
    #[serde(borrow)]
    repository: Option<GithubRepository<'b>>,
    #[serde(borrow)]
    changes: Option<GithubChanges<'b>>,
    #[serde(borrow)]
    organization: Option<GithubOrganization<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GithubRepository<'b> {
    #[serde(borrow)]
    clone_url: Option<Cow<'b, str>>,
    #[serde(borrow)]
    ssh_url: Option<Cow<'b, str>>,
    #[serde(borrow)]
    html_url: Option<Cow<'b, str>>,
    #[serde(borrow)]
    name: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GithubOrganization<'b> {
    /// Where the API has it.
    #[serde(borrow)]
    url: Option<Cow<'b, str>>,
}

/// What was changed, with the values before.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GithubChanges<'b> {
    #[serde(borrow)]
    repository: Option<GithubRepositoryChanges<'b>>,
    #[serde(borrow)]
    owner: Option<GithubBefore<GithubOwnerBefore<'b>>>,
    /// Of an organization.
    #[serde(borrow)]
    login: Option<GithubBefore<Cow<'b, str>>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GithubRepositoryChanges<'b> {
    #[serde(borrow)]
    name: Option<GithubBefore<Cow<'b, str>>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GithubBefore<T> {
    from: Option<T>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GithubOwnerBefore<'b> {
    #[serde(borrow)]
    user: Option<GithubLogin<'b>>,
    #[serde(borrow)]
    organization: Option<GithubLogin<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GithubLogin<'b> {
    #[serde(borrow)]
    login: Cow<'b, str>,
}

/// Returns whether an event is about repositories.
fn is_of_repository(event: &str) -> bool {
    matches!(
        event,
        "push"
            | "create"
            | "delete"
            | "repository"
            | "organization"
            | "repository_import"
            | "public"
            | "pull_request"
            | "pull_request_sync"
            | "gollum"
            | "wiki"
    )
}

/// Returns whether an event with an action changes a repository.
pub(crate) fn may_change(event: &str, action: Option<&str>) -> bool {
    match event {
        "pull_request" => action.is_some_and(|action| MOVING.contains(&action)),
        "organization" => action == Some("renamed"),
        event => is_of_repository(event),
    }
}

/// Reads a delivery with the headers `names`.
pub(crate) fn read<'b>(
    headers: &'b HeaderMap,
    body: &'b [u8],
    names: &HeaderNames,
) -> Result<Delivery<'b>, EventError> {
    let event = header(headers, names.event).ok_or(EventError::NoHeader(names.event))?;
    let delivery = header(headers, names.delivery).map(Cow::Borrowed);
    if !is_of_repository(event) {
        return Ok(Delivery { delivery, ..Delivery::of(event) });
    }
    let GithubPayload { action, ref_name, before, after, repository, changes, organization } = json(body)?;
    let mut found = Delivery { action, delivery, ..Delivery::of(event) };
    found.is_change = may_change(event, found.action.as_deref());
    if event == "organization" {
        let old = changes.and_then(|changes| changes.login).and_then(|login| login.from);
        let url = organization.and_then(|organization| organization.url);
        found.old_group_url = url.as_deref().zip(old).and_then(|(url, old)| old_organization(url, &old));
        found.repository_changed = found.is_change;
        return Ok(found);
    }
    found.repository_changed = matches!(event, "repository" | "public");
    found.repository_deleted = event == "repository" && found.action.as_deref() == Some("deleted");
    if let Some(GithubRepository { clone_url, ssh_url, html_url, name }) = repository {
        let url = clone_url.or(html_url);
        found.old_url = url.as_deref().zip(changes).and_then(|(url, changes)| old_url(url, name, changes));
        (found.clone_url, found.ssh_url) = (url, ssh_url);
    }
    if matches!(event, "gollum" | "wiki") {
        found.clone_url = found.clone_url.map(|url| wiki_url(&url).into());
        found.ssh_url = found.ssh_url.map(|url| wiki_url(&url).into());
    }
    if let (Some(name), Some(old), Some(new)) = (ref_name, before, after) {
        found.update = Some(MovedRef { name, old, new });
    }
    Ok(found)
}

/// Returns the URL that the organization at `api_url` had when it was called `old`.
fn old_organization<'b>(api_url: &str, old: &str) -> Option<Cow<'b, str>> {
    let (api, _) = api_url.split_once("/orgs/")?;
    // GitHub Enterprise Server has its API in a folder, GitHub on a host.
    let site = match (api.strip_suffix("/api/v3"), api.strip_prefix("https://api.")) {
        (Some(site), _) => site.to_owned(),
        (None, Some(host)) => format!("https://{host}"),
        (None, None) => return None,
    };
    Some(group_url_at(&site, old).into())
}

/// Returns the URL that the repository at `url` had before `changes`.
fn old_url<'b>(url: &str, name: Option<Cow<'b, str>>, changes: GithubChanges<'b>) -> Option<Cow<'b, str>> {
    let old_name = changes.repository.and_then(|changes| changes.name).and_then(|name| name.from);
    let old_owner =
        changes.owner.and_then(|owner| owner.from).and_then(|from| from.user.or(from.organization));
    if old_name.is_none() && old_owner.is_none() {
        return None;
    }
    let (site, owner) = url.rsplit_once('/')?.0.rsplit_once('/')?;
    let owner = old_owner.map_or(Cow::Borrowed(owner), |owner| owner.login);
    Some(format!("{site}/{owner}/{}.git", old_name.or(name)?).into())
}
