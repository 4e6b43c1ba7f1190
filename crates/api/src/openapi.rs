//! The description of the API (OpenAPI 3.1), made from the code.

use std::sync::Arc;

use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi as Describe};

use crate::answer::{ApiResult, json};
use crate::problem::{NotModified, Problems};
use crate::request::ApiRequest;
use crate::state::ApiState;
use crate::{
    accounts, blame, commits, diff, files, manage, owners, query, refs, repositories, search, tables,
    tree_archive,
};

#[derive(Describe)]
#[openapi(
    info(title = "weir", license(name = "Apache-2.0 OR MIT")),
    paths(
        repositories::list, repositories::show, repositories::visits, repositories::states,
        owners::list, refs::list,
        commits::list, commits::show, diff::files, diff::patch, blame::lines, files::tree, files::raw,
        search::lines,
        tree_archive::archive, tables::list, tables::content, query::rows,
        accounts::list, manage::status, manage::add,
        manage::change, manage::visit, manage::remove, description
    ),
    servers((url = "/", description = "the server that sends this")),
    modifiers(&Tokens),
    security((), ("token" = []))
)]
struct ApiDescription;

const ABOUT: &str = "Repositories that a weir mirrors, as clients may read them. Times are in seconds since \
    1970. A list that has more to tell names the `cursor` of its next page. A repository that a client may \
    not read looks to it as if it were not there.";

struct Tokens;

impl Modify for Tokens {
    fn modify(&self, openapi: &mut OpenApi) {
        openapi.info.description = Some(ABOUT.to_owned());
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
        let bearer = bearer.description(Some("A token of `access.tokens`.")).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

/// Returns the description of all requests and answers.
pub fn openapi() -> OpenApi {
    ApiDescription::openapi()
}

/// Sends this description.
#[utoipa::path(
    get, operation_id = "getDescription",
    path = "/api/v1/openapi.json", tag = "description",
    responses((status = 200, description = "The description.", body = Object), NotModified, Problems)
)]
pub(crate) async fn description(_: Arc<ApiState>, request: ApiRequest) -> ApiResult {
    request.parameters.end()?;
    json(&request.headers, &openapi())
}
