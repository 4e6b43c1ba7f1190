//! Deliveries of sourcehut: the answer to the GraphQL query that the webhook was made with.
//!
//! The query must ask for the repository:
//! `query { webhook { uuid event ... on GitEvent { repository { name owner { canonicalName } }
//! updates { ref { name } old { id } new { id } } } ... on RepositoryEvent { repository { name owner {
//! canonicalName } } } } }`. <https://man.sr.ht/graphql.md#webhooks>

use std::borrow::Cow;

use http::HeaderMap;
use serde::Deserialize;

use crate::error::EventError;
use crate::webhooks::delivery::{Delivery, MovedRef, header, json};

/// The site whose key is known.
const SITE: &str = "https://git.sr.ht";

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourcehutAnswer<'b> {
    #[serde(borrow)]
    data: SourcehutData<'b>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourcehutData<'b> {
    #[serde(borrow)]
    webhook: SourcehutPayload<'b>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourcehutPayload<'b> {
    #[serde(borrow)]
    uuid: Option<Cow<'b, str>>,
    #[serde(borrow)]
    event: Option<Cow<'b, str>>,
    #[serde(borrow)]
    repository: Option<SourcehutRepository<'b>>,
    #[serde(borrow, default)]
    updates: Vec<SourcehutUpdate<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourcehutRepository<'b> {
    #[serde(borrow)]
    name: Cow<'b, str>,
    #[serde(borrow)]
    owner: SourcehutOwner<'b>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourcehutOwner<'b> {
    #[serde(borrow, rename = "canonicalName")]
    canonical_name: Cow<'b, str>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourcehutUpdate<'b> {
    #[serde(borrow, rename = "ref")]
    reference: Option<SourcehutReference<'b>>,
    #[serde(borrow)]
    old: Option<SourcehutObjectId<'b>>,
    #[serde(borrow)]
    new: Option<SourcehutObjectId<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourcehutReference<'b> {
    #[serde(borrow)]
    name: Cow<'b, str>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourcehutObjectId<'b> {
    #[serde(borrow)]
    id: Cow<'b, str>,
}

/// Reads a delivery of the instance at `site`.
pub(crate) fn read<'b>(
    headers: &'b HeaderMap,
    body: &'b [u8],
    site: Option<&str>,
) -> Result<Delivery<'b>, EventError> {
    let SourcehutAnswer { data: SourcehutData { webhook } } = json(body)?;
    let event = webhook.event.or_else(|| header(headers, "x-webhook-event").map(Cow::Borrowed));
    let delivery = webhook.uuid.or_else(|| header(headers, "x-webhook-delivery").map(Cow::Borrowed));
    let mut found = Delivery { delivery, ..Delivery::of(event.unwrap_or_default()) };
    found.is_change = matches!(
        found.event.as_ref(),
        "GIT_POST_RECEIVE" | "GIT_PRE_RECEIVE" | "REPO_CREATED" | "REPO_UPDATE" | "REPO_DELETED"
    );
    found.repository_changed = matches!(found.event.as_ref(), "REPO_UPDATE" | "REPO_DELETED");
    found.repository_deleted = found.event == "REPO_DELETED";
    if let Some(SourcehutRepository { name, owner }) = webhook.repository {
        let site = site.unwrap_or(SITE).trim_end_matches('/');
        found.clone_url = Some(format!("{site}/{}/{name}", owner.canonical_name).into());
    }
    if let Some(SourcehutUpdate { reference: Some(reference), old, new }) = webhook.updates.into_iter().next()
    {
        let id = |id: Option<SourcehutObjectId<'b>>| id.map_or(Cow::Borrowed("0"), |id| id.id);
        found.update = Some(MovedRef { name: reference.name, old: id(old), new: id(new) });
    }
    Ok(found)
}
