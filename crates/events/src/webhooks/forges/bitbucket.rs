//! Deliveries of Bitbucket Cloud and Bitbucket Data Center.
//!
//! <https://support.atlassian.com/bitbucket-cloud/docs/event-payloads/>,
//! <https://confluence.atlassian.com/bitbucketserver/event-payload-938025882.html>

use std::borrow::Cow;

use http::HeaderMap;
use serde::Deserialize;

use crate::error::EventError;
use crate::webhooks::delivery::{Delivery, MovedRef, header, json, url_at};

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketPayload<'b> {
    #[serde(borrow)]
    repository: Option<BitbucketRepository<'b>>,
    /// Of Data Center, where a repository was changed.
    #[serde(borrow)]
    new: Option<BitbucketRepository<'b>>,
    #[serde(borrow)]
    old: Option<BitbucketRepository<'b>>,
    #[serde(borrow)]
    push: Option<BitbucketPush<'b>>,
    /// Of Data Center, where refs have changed: a list. Of Cloud, where a repository has: an object.
    #[serde(borrow)]
    changes: Option<BitbucketChanges<'b>>,
    #[serde(rename = "pullRequest", borrow)]
    pull_request: Option<BitbucketPullRequest<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketRepository<'b> {
    /// Of Data Center.
    #[serde(borrow)]
    slug: Option<Cow<'b, str>>,
    #[serde(borrow)]
    project: Option<BitbucketProject<'b>>,
    #[serde(borrow)]
    links: Option<BitbucketLinks<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketProject<'b> {
    #[serde(borrow)]
    key: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketLinks<'b> {
    #[serde(borrow)]
    html: Option<BitbucketLink<'b>>,
    #[serde(borrow, default)]
    clone: Vec<BitbucketLink<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketLink<'b> {
    #[serde(borrow)]
    href: Cow<'b, str>,
    #[serde(borrow)]
    name: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketPush<'b> {
    #[serde(borrow)]
    changes: Vec<BitbucketPushChange<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketPushChange<'b> {
    #[serde(borrow)]
    old: Option<BitbucketTip<'b>>,
    #[serde(borrow)]
    new: Option<BitbucketTip<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketTip<'b> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'b, str>>,
    #[serde(borrow)]
    name: Cow<'b, str>,
    #[serde(borrow)]
    target: Option<BitbucketTarget<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketTarget<'b> {
    #[serde(borrow)]
    hash: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BitbucketChanges<'b> {
    Refs(#[serde(borrow)] Vec<BitbucketRefChange<'b>>),
    Repository {
        #[serde(borrow)]
        full_name: Option<BitbucketRenamed<'b>>,
    },
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketRefChange<'b> {
    #[serde(borrow, rename = "refId")]
    name: Option<Cow<'b, str>>,
    #[serde(borrow, rename = "fromHash")]
    old: Option<Cow<'b, str>>,
    #[serde(borrow, rename = "toHash")]
    new: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketRenamed<'b> {
    #[serde(borrow)]
    old: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketPullRequest<'b> {
    #[serde(borrow, rename = "toRef")]
    target: Option<BitbucketPullRequestRef<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct BitbucketPullRequestRef<'b> {
    #[serde(borrow)]
    repository: Option<BitbucketRepository<'b>>,
}

/// Reads a delivery. The instance of Data Center is at `site`, if its deliveries name no URL.
pub(crate) fn read<'b>(
    headers: &'b HeaderMap,
    body: &'b [u8],
    site: Option<&str>,
) -> Result<Delivery<'b>, EventError> {
    let event = header(headers, "x-event-key").ok_or(EventError::NoHeader("x-event-key"))?;
    let id = ["x-request-uuid", "x-request-id"].into_iter().find_map(|name| header(headers, name));
    let mut found = Delivery { delivery: id.map(Cow::Borrowed), ..Delivery::of(event) };
    found.is_change = matches!(
        event,
        "repo:push"
            | "repo:updated"
            | "repo:created"
            | "repo:imported"
            | "repo:transfer"
            | "repo:deleted"
            | "repo:refs_changed"
            | "repo:modified"
            | "mirror:repo_synchronized"
            | "pr:opened"
            | "pr:from_ref_updated"
            | "pr:merged"
            | "pr:declined"
            | "pr:deleted"
    );
    if !found.is_change {
        return Ok(found);
    }
    found.repository_changed =
        matches!(event, "repo:updated" | "repo:transfer" | "repo:deleted" | "repo:modified");
    found.repository_deleted = event == "repo:deleted";
    let payload: BitbucketPayload<'b> = json(body)?;
    let of_request = || payload.pull_request?.target?.repository;
    if let Some(repository) = payload.repository.or(payload.new).or_else(of_request) {
        (found.clone_url, found.ssh_url) = urls(repository, site)?;
    }
    found.old_url = payload.old.map(|old| urls(old, site)).transpose()?.and_then(|(http, _)| http);
    match payload.changes {
        Some(BitbucketChanges::Repository { full_name: Some(BitbucketRenamed { old: Some(old) }) }) => {
            // Cloud: https://bitbucket.org/TEAM/NAME.git
            let site = found.clone_url.as_deref().and_then(|url| url.rsplitn(3, '/').nth(2));
            found.old_url = site.map(|site| url_at(site, &old).into());
        }
        Some(BitbucketChanges::Refs(refs)) => {
            let update = |change: BitbucketRefChange<'b>| {
                Some(MovedRef { name: change.name?, old: change.old?, new: change.new? })
            };
            found.update = refs.into_iter().next().and_then(update);
        }
        _ => {}
    }
    if let Some(change) = payload.push.and_then(|push| push.changes.into_iter().next()) {
        found.update = Some(update_of(change));
    }
    Ok(found)
}

/// The URLs of a repository for HTTP and for ssh.
type CloneUrls<'b> = (Option<Cow<'b, str>>, Option<Cow<'b, str>>);

/// Returns the URLs of `repository`.
fn urls<'b>(repository: BitbucketRepository<'b>, site: Option<&str>) -> Result<CloneUrls<'b>, EventError> {
    let BitbucketRepository { slug, project, links } = repository;
    let Some(BitbucketLinks { html, clone }) = links else {
        let Some((slug, key)) = slug.zip(project.and_then(|project| project.key)) else {
            return Ok((None, None));
        };
        let site = site.ok_or(EventError::NoSite)?;
        return Ok((Some(url_at(site, &format!("scm/{}/{slug}", key.to_lowercase())).into()), None));
    };
    let (mut http, mut ssh) = (None, None);
    for link in clone {
        match link.name.as_deref() {
            Some("http" | "https") => http = Some(link.href),
            Some("ssh") => ssh = Some(link.href),
            _ => {}
        }
    }
    let of_page = |page: BitbucketLink<'b>| Cow::Owned(format!("{}.git", page.href.trim_end_matches('/')));
    Ok((http.or_else(|| html.map(of_page)), ssh))
}

fn update_of<'b>(change: BitbucketPushChange<'b>) -> MovedRef<'b> {
    let hash =
        |tip: Option<BitbucketTip<'b>>| tip.and_then(|tip| tip.target?.hash).unwrap_or(Cow::Borrowed("0"));
    let name = change.new.as_ref().or(change.old.as_ref()).map(|tip| {
        let folder = if tip.kind.as_deref() == Some("tag") { "tags" } else { "heads" };
        Cow::Owned(format!("refs/{folder}/{}", tip.name))
    });
    MovedRef { name: name.unwrap_or_default(), old: hash(change.old), new: hash(change.new) }
}
