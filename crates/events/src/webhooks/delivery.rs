//! The contents of a delivery that weir keeps: a line of JSON.

use std::borrow::Cow;

use http::HeaderMap;
use serde::{Deserialize, Serialize};

use crate::doors::LINE_BYTES_MAX;
use crate::error::EventError;

/// A delivery of a webhook. As JSON, it is a line as senders may send it ([`crate::Notice`]).
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Delivery<'b> {
    /// The name of the webhook.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) webhook: Cow<'b, str>,
    /// The event, as the forge calls it.
    pub(crate) event: Cow<'b, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<Cow<'b, str>>,
    /// The id of the delivery: the same when the forge sends it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delivery: Option<Cow<'b, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clone_url: Option<Cow<'b, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ssh_url: Option<Cow<'b, str>>,
    /// The URL before the repository was renamed or moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) old_url: Option<Cow<'b, str>>,
    /// The URL of a group, an organization or a user before it was renamed: all repositories below it have
    /// moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) old_group_url: Option<Cow<'b, str>>,
    #[serde(flatten)]
    pub(crate) update: Option<MovedRef<'b>>,
    /// Whether the repository itself was changed: its name, its owner, who may read it.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) repository_changed: bool,
    /// Whether the repository was deleted.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) repository_deleted: bool,
    /// Whether the repository has changed: its refs, its URL, or who may read it.
    #[serde(skip)]
    pub(crate) is_change: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// The first ref that a delivery says has changed.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct MovedRef<'b> {
    #[serde(rename = "ref", borrow)]
    pub(crate) name: Cow<'b, str>,
    #[serde(borrow)]
    pub(crate) old: Cow<'b, str>,
    #[serde(borrow)]
    pub(crate) new: Cow<'b, str>,
}

impl<'b> Delivery<'b> {
    /// Returns a delivery of `event` that changes nothing.
    pub(crate) fn of(event: impl Into<Cow<'b, str>>) -> Delivery<'b> {
        Delivery { event: event.into(), ..Delivery::default() }
    }

    /// Returns the line that is kept.
    ///
    /// # Errors
    /// If it names no repository, or one with too long a URL.
    pub(crate) fn line(&self) -> Result<Vec<u8>, EventError> {
        let has_url = |url: &Option<Cow<'_, str>>| url.as_ref().is_some_and(|url| !url.is_empty());
        if ![&self.clone_url, &self.ssh_url, &self.old_url, &self.old_group_url].into_iter().any(has_url) {
            return Err(EventError::EventWithoutRepository(self.event.to_string()));
        }
        let line = serde_json::to_vec(self).map_err(EventError::Json)?;
        if line.len() > LINE_BYTES_MAX {
            return Err(EventError::TooLong(self.event.to_string()));
        }
        Ok(line)
    }
}

/// Returns the text of a header.
pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim).filter(|text| !text.is_empty())
}

/// Reads JSON.
///
/// # Errors
/// If `body` is no JSON of the expected form.
pub(crate) fn json<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, EventError> {
    serde_json::from_slice(body).map_err(EventError::Body)
}

/// Returns the URL of the wiki of the repository at `clone_url`.
pub(crate) fn wiki_url(clone_url: &str) -> String {
    format!("{}.wiki.git", clone_url.trim_end_matches('/').trim_end_matches(".git"))
}

/// Returns the URL of the repository with `path` at `site`.
pub(crate) fn url_at(site: &str, path: &str) -> String {
    format!("{}.git", group_url_at(site, path))
}

/// Returns the URL of the group, the organization or the user with `path` at `site`.
pub(crate) fn group_url_at(site: &str, path: &str) -> String {
    format!("{}/{}", site.trim_end_matches('/'), path.trim_matches('/'))
}
