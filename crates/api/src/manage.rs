//! The endpoints for managers: they show the state of the pool, and add, pause, resume, update and remove
//! repositories.

use std::sync::Arc;

use hyper::Response;
use hyper::StatusCode;
use hyper::header::LOCATION;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use weir_catalog::Hold;
use weir_catalog::clock::now;
use weir_pool::{Error, PoolStatus, SoundEntries, check_removal, check_url, forget};
use weir_serve::HandlerBody;
use weir_transport::{Scheme, Url};

use crate::answer::{ApiResult, json, set};
use crate::problem::{NotModified, Problem, Problems};
use crate::repositories::RepositoryEntry;
use crate::request::{ApiRequest, NamedRepository};
use crate::state::ApiState;

/// Checks that the client may manage the pool.
pub(crate) fn check_manager(state: &ApiState, request: &ApiRequest) -> Result<(), Problem> {
    if state.may_manage(request) {
        return Ok(());
    }
    let has_token = request.client.client.token.is_some();
    if state.locator.has_managers() && !has_token {
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "a token is needed that may manage the pool"));
    }
    let words = "only a token with the scope 'manage' (access.tokens) may do that";
    Err(Problem::new(StatusCode::FORBIDDEN, words))
}

/// Shows the state of the pool, as `weir status --json` does. For managers.
#[utoipa::path(
    get, operation_id = "getStatus",
    path = "/api/v1/status", tag = "management", security(("token" = [])),
    responses((status = 200, description = "The state.", body = Object), NotModified, Problems)
)]
pub(crate) async fn status(state: Arc<ApiState>, request: ApiRequest) -> ApiResult {
    request.parameters.end()?;
    check_manager(&state, &request)?;
    let status = state.with_pool(&request, |pool| Ok(PoolStatus::read(pool)?));
    json(&request.headers, &status.await?)
}

/// A repository to add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEntry {
    /// The URL of the upstream.
    #[schema(format = "uri")]
    url: String,
    /// Its name; one made of the URL, if it is not there.
    name: Option<String>,
}

/// Checks the URL of a repository to add. It must be of another machine: clients open nothing on the disk
/// of the server.
fn check_new(url: &str) -> Result<(), Problem> {
    let refuse = |words: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, words);
    // git takes what comes before `::` for a program. An address has brackets around it.
    let names_program = url.split(['/', '[']).next().is_some_and(|start| start.contains("::"));
    match Url::parse(url) {
        Ok(parsed) if parsed.scheme == Scheme::Local || names_program => {
            let words =
                "the URL must be one of http, https, git or ssh; a path is added on the server itself";
            Err(refuse(words.to_owned()))
        }
        Ok(_) => check_url(url).map_err(|e| refuse(e.to_string())),
        Err(e) => Err(refuse(e.to_string())),
    }
}

/// Adds a repository, which is mirrored as soon as there is time. For managers.
#[utoipa::path(
    post, operation_id = "addRepository",
    path = "/api/v1/repositories", tag = "management", security(("token" = [])),
    request_body = NewEntry,
    responses(
        (status = 200, description = "It was there already.", body = RepositoryEntry),
        (status = 201, description = "It was added.", body = RepositoryEntry),
        (status = 409, description = "Its name is taken.", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "There can be no repository at its URL.", body = Problem,
            content_type = "application/problem+json"),
        Problems
    )
)]
pub(crate) async fn add(state: Arc<ApiState>, request: ApiRequest) -> ApiResult {
    request.parameters.end()?;
    check_manager(&state, &request)?;
    let NewEntry { url, name } = request.json()?;
    let added = state.with_pool(&request, move |pool| {
        check_new(&url)?;
        let mut sound = SoundEntries::default();
        sound.take(&pool.catalog, &pool.store, &url, name.as_deref(), true).map_err(|e| match e {
            e @ (Error::Catalog(_) | Error::Io(_) | Error::File(_) | Error::Repo { .. }) => e.into(),
            e => Problem::new(StatusCode::CONFLICT, e.to_string()),
        })?;
        let added = pool.catalog.add(&sound.entries, now())?;
        let name = sound.entries.first().map(|entry| entry.name.clone()).unwrap_or_default();
        Ok((added > 0, RepositoryEntry::of(pool, &pool.get(&name)?, true)))
    });
    let (is_new, entry) = added.await?;
    let mut response = json(&request.headers, &entry)?;
    if is_new {
        *response.status_mut() = StatusCode::CREATED;
        set(response.headers_mut(), LOCATION, &format!("/api/v1/repositories/{}", entry.id));
    }
    Ok(response)
}

/// A change of a repository.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryChange {
    /// Whether it is not visited until somebody resumes it.
    paused: bool,
}

/// Pauses or resumes a repository. For managers.
#[utoipa::path(
    patch, operation_id = "changeRepository",
    path = "/api/v1/repositories/{repository}", tag = "management", security(("token" = [])),
    params(NamedRepository),
    request_body = EntryChange,
    responses((status = 200, description = "The repository.", body = RepositoryEntry), Problems)
)]
pub(crate) async fn change(state: Arc<ApiState>, request: ApiRequest) -> ApiResult {
    request.parameters.end()?;
    check_manager(&state, &request)?;
    let EntryChange { paused } = request.json()?;
    let known = state.repository(&request).await?;
    let changed = state.with_pool(&request, move |pool| {
        let name = &known.repository.name;
        pool.catalog.archives().set_hold(name, Hold::Paused, paused)?;
        Ok(RepositoryEntry::of(pool, &pool.get(name)?, true))
    });
    json(&request.headers, &changed.await?)
}

/// Makes a repository due now, before those that are due by their intervals. For managers.
#[utoipa::path(
    post, operation_id = "visitRepository",
    path = "/api/v1/repositories/{repository}/visits", tag = "management", security(("token" = [])),
    params(NamedRepository),
    responses(
        (status = 202, description = "It is due.", body = RepositoryEntry),
        (status = 409, description = "It is paused or pinned, and not visited.", body = Problem,
            content_type = "application/problem+json"),
        Problems
    )
)]
pub(crate) async fn visit(state: Arc<ApiState>, request: ApiRequest) -> ApiResult {
    request.parameters.end()?;
    check_manager(&state, &request)?;
    let known = state.repository(&request).await?;
    let due = state.with_pool(&request, move |pool| {
        let name = &known.repository.name;
        if pool.catalog.visits().hint(&[known.repository.id], now())? == 0 {
            let words = format!("'{name}' is paused or pinned, and not visited");
            return Err(Problem::new(StatusCode::CONFLICT, words));
        }
        Ok(RepositoryEntry::of(pool, &pool.get(name)?, true))
    });
    let mut response = json(&request.headers, &due.await?)?;
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// How a repository is removed.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct Removal {
    /// Whether its archive is deleted, too.
    delete_archive: Option<bool>,
}

/// Removes a repository from the catalog. Its archive stays, unless the client asks to delete
/// it. For managers.
#[utoipa::path(
    delete, operation_id = "removeRepository",
    path = "/api/v1/repositories/{repository}", tag = "management", security(("token" = [])),
    params(NamedRepository, Removal),
    responses(
        (status = 204, description = "It is gone."),
        (status = 409, description = "The archive of another builds on its own, or a workspace stands on it.",
            body = Problem, content_type = "application/problem+json"),
        Problems
    )
)]
pub(crate) async fn remove(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let deletes = request.parameters.flag("delete_archive")?;
    request.parameters.end()?;
    check_manager(&state, &request)?;
    let known = state.repository(&request).await?;
    let shared = state.clone();
    let removed = state.with_pool(&request, move |pool| {
        let mut all = [known.repository];
        let archive = pool.archive_path(&all[0]);
        if deletes && (shared.is_needed)(&archive).map_err(|e| Problem::failed(&e))? {
            let words = format!("{}: a workspace on the server stands on its archive", all[0].name);
            return Err(Problem::new(StatusCode::CONFLICT, words));
        }
        check_removal(&pool.catalog, &pool.store, &mut all, deletes).map_err(|e| match e {
            Error::Catalog(e @ weir_catalog::Error::BuiltOn { .. }) => {
                Problem::new(StatusCode::CONFLICT, e.to_string())
            }
            e => e.into(),
        })?;
        forget(&pool.catalog, &pool.store, &all[0], deletes)?;
        Ok(())
    });
    removed.await?;
    let mut response = Response::new(HandlerBody::from(Vec::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
