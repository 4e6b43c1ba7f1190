//! Which endpoint a request is for.

use std::pin::Pin;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;

use crate::answer::ApiResult;
use crate::problem::Problem;
use crate::request::ApiRequest;
use crate::state::ApiState;
use crate::{
    accounts, blame, commits, diff, files, manage, openapi, owners, query, refs, repositories, search,
    tables, tree_archive,
};

/// The beginning of all paths.
pub(crate) const PREFIX: &str = "/api/v1";

/// An answer that is being made.
pub(crate) type Answering = Pin<Box<dyn Future<Output = ApiResult> + Send>>;

/// An endpoint.
pub(crate) struct ApiRoute {
    pub(crate) method: Method,
    /// The path below the prefix; a part in braces stands for any.
    pub(crate) path: &'static str,
    pub(crate) answer: fn(Arc<ApiState>, ApiRequest) -> Answering,
}

macro_rules! routes {
    ($($method:ident $path:literal => $answer:path;)*) => {
        /// All endpoints.
        pub(crate) const ROUTES: &[ApiRoute] = &[$(ApiRoute {
            method: Method::$method,
            path: $path,
            answer: |state, request| Box::pin($answer(state, request)),
        }),*];
    };
}

routes! {
    GET "/repositories" => repositories::list;
    POST "/repositories" => manage::add;
    GET "/repositories/{repository}" => repositories::show;
    PATCH "/repositories/{repository}" => manage::change;
    DELETE "/repositories/{repository}" => manage::remove;
    GET "/repositories/{repository}/visits" => repositories::visits;
    POST "/repositories/{repository}/visits" => manage::visit;
    GET "/repositories/{repository}/states" => repositories::states;
    GET "/repositories/{repository}/refs" => refs::list;
    GET "/repositories/{repository}/commits" => commits::list;
    GET "/repositories/{repository}/commits/{revision}" => commits::show;
    GET "/repositories/{repository}/diff" => diff::files;
    GET "/repositories/{repository}/patch" => diff::patch;
    GET "/repositories/{repository}/blame" => blame::lines;
    GET "/repositories/{repository}/tree" => files::tree;
    GET "/repositories/{repository}/file" => files::raw;
    GET "/repositories/{repository}/grep" => search::lines;
    GET "/repositories/{repository}/archive" => tree_archive::archive;
    GET "/repositories/{repository}/tables/{table}" => tables::content;
    GET "/tables" => tables::list;
    GET "/query" => query::rows;
    GET "/owners" => owners::list;
    GET "/accounts" => accounts::list;
    GET "/status" => manage::status;
    GET "/openapi.json" => openapi::description;
}

/// Returns the endpoint for a request, and the values of the parts in braces.
///
/// # Errors
/// If there is none for the path, or none for the method.
pub(crate) fn find(method: &Method, path: &str) -> Result<(&'static ApiRoute, Vec<Vec<u8>>), Problem> {
    // Every answer to GET has a head.
    let wanted = if method == Method::HEAD { &Method::GET } else { method };
    if let Some(found) = of_path(path).find(|(route, _)| route.method == *wanted) {
        return Ok(found);
    }
    let allow = allowed(path)?;
    let words = format!("this path takes {allow}");
    Err(Problem { allow: Some(allow), ..Problem::new(StatusCode::METHOD_NOT_ALLOWED, words) })
}

/// Returns the methods that a path takes.
///
/// # Errors
/// If there is no endpoint for it.
pub(crate) fn allowed(path: &str) -> Result<String, Problem> {
    let mut allow: Vec<&str> = of_path(path).map(|(route, _)| route.method.as_str()).collect();
    if allow.is_empty() {
        let is_named = path.starts_with("/api/v1/repositories/");
        let hint = if is_named { " (write %2F for each / in the name of a repository)" } else { "" };
        let words = format!("there is nothing at this path{hint}; see {PREFIX}/openapi.json");
        return Err(Problem::not_found(words));
    }
    if allow.contains(&"GET") {
        allow.push("HEAD");
    }
    allow.push("OPTIONS");
    Ok(allow.join(", "))
}

/// Returns the endpoints for a path, with the values of the parts in braces.
fn of_path(path: &str) -> impl Iterator<Item = (&'static ApiRoute, Vec<Vec<u8>>)> {
    let below = path.strip_prefix(PREFIX).unwrap_or_default();
    ROUTES.iter().filter_map(move |route| Some((route, parts(route.path, below)?)))
}

/// Returns the values of the parts in braces of `template`, if `path` is like it.
fn parts(template: &str, path: &str) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    let mut given = path.split('/');
    for part in template.split('/') {
        let is_any = part.starts_with('{');
        let given = given.next().filter(|given| if is_any { !given.is_empty() } else { *given == part })?;
        if is_any {
            parts.push(percent_decode_str(given).collect());
        }
    }
    given.next().is_none().then_some(parts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_endpoint_is_described() {
        let mut described = BTreeSet::new();
        for (path, item) in openapi::openapi().paths.paths {
            let all =
                [("GET", item.get), ("POST", item.post), ("PATCH", item.patch), ("DELETE", item.delete)];
            let all = all.into_iter().filter(|(_, operation)| operation.is_some());
            described.extend(all.map(|(method, _)| format!("{method} {path}")));
        }
        let routes = ROUTES.iter().map(|route| format!("{} {PREFIX}{}", route.method, route.path));
        assert_eq!(described, routes.collect());
    }

    #[test]
    fn paths_lead_to_endpoints() {
        let found = |method: Method, path: &str| match find(&method, path) {
            Ok((route, parts)) => {
                let parts: Vec<String> =
                    parts.into_iter().map(|part| String::from_utf8(part).unwrap()).collect();
                format!("{} {}", route.path, parts.join(" "))
            }
            Err(problem) => format!("{} {}", problem.status.as_u16(), problem.allow.unwrap_or_default()),
        };
        let all = "/repositories/{repository}/commits/{revision}";
        assert_eq!(found(Method::GET, "/api/v1/repositories/a%2Fb/commits/x%2fy"), format!("{all} a/b x/y"));
        assert_eq!(found(Method::HEAD, "/api/v1/status"), "/status ");
        assert_eq!(found(Method::PUT, "/api/v1/repositories/a"), "405 GET, PATCH, DELETE, HEAD, OPTIONS");
        for path in
            ["/api/v1", "/api/v1/", "/api/v1/repositories/", "/api/v1/status/", "/api/v1/repositories//refs"]
        {
            assert_eq!(found(Method::GET, path), "404 ", "{path}");
        }
    }
}
