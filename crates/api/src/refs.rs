//! The refs of a repository.

use std::sync::Arc;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_repo::Head;

use crate::answer::{ApiResult, json};
use crate::page::{EntryPage, WantedPage};
use crate::problem::{NotModified, Problems};
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// A ref.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RefEntry {
    /// Its full name.
    name: String,
    /// The id of its object.
    oid: String,
    /// The id of the object that the tag leads to, if it is one.
    peeled: Option<String>,
    /// Whether HEAD is this branch.
    head: bool,
}

/// Refs that a client wants.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct RefFilter {
    /// A prefix of their full names, such as `refs/heads/`.
    prefix: Option<String>,
}

/// Lists the refs of a repository by name.
#[utoipa::path(
    get, operation_id = "listRefs",
    path = "/api/v1/repositories/{repository}/refs", tag = "history",
    params(
        NamedRepository, RefFilter, WantedPage
    ),
    responses(
        (status = 200, description = "A page of refs.", body = EntryPage<RefEntry>),
        NotModified, Problems
    )
)]
pub(crate) async fn list(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let page = WantedPage::take(&mut request)?;
    let prefix = request.parameters.bytes("prefix").unwrap_or_default();
    request.parameters.end()?;
    let (_, repo) = state.open(&request).await?;
    let listed = move || {
        let head = match &repo.refs().head {
            Head::Symbolic(name) => Some(name),
            Head::Detached(_) => None,
        };
        let after = page.cursor.as_deref().unwrap_or_default();
        let mut wanted =
            repo.refs().list().iter().filter(|r| r.name.starts_with(&prefix) && *r.name > *after).peekable();
        let (mut items, mut last) = (Vec::new(), None);
        for r in wanted.by_ref().take(page.limit) {
            last = Some(&r.name);
            items.push(RefEntry {
                name: String::from_utf8_lossy(&r.name).into_owned(),
                oid: r.oid.to_string(),
                peeled: r.peeled.map(|oid| oid.to_string()),
                head: head.is_some_and(|head| **head == *r.name),
            });
        }
        // Names need not be UTF-8.
        let next = last.filter(|_| wanted.peek().is_some()).map(|last| page.list.cursor_at(last));
        EntryPage { items, next }
    };
    json(&request.headers, &request.client.run(listed).await?)
}
