//! Accounts of forges: who owns repositories, and who belongs to which organization. For managers.

use std::sync::Arc;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use weir_catalog::KnownAccount;

use crate::answer::{ApiResult, json};
use crate::manage::check_manager;
use crate::page::{EntryPage, WantedPage, not_a_cursor};
use crate::problem::{NotModified, Problem, Problems};
use crate::request::ApiRequest;
use crate::state::ApiState;

/// An account of a forge.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct AccountEntry {
    /// The forge, by its name in the configuration.
    forge: String,
    /// Its id at the forge, which stays when it is renamed.
    forge_id: String,
    /// The name that it has now.
    login: String,
    /// `user` or `organization`.
    kind: &'static str,
    /// The organizations that it is known to belong to.
    organizations: Vec<String>,
    /// The number of its repositories that are known.
    repositories: i64,
}

impl From<KnownAccount> for AccountEntry {
    fn from(known: KnownAccount) -> AccountEntry {
        let KnownAccount { forge, account, organizations, repositories } = known;
        let kind = account.kind.name();
        AccountEntry {
            forge,
            forge_id: account.forge_id,
            login: account.login,
            kind,
            organizations,
            repositories,
        }
    }
}

/// The accounts that a client wants.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct AccountFilter {
    /// The name of an account, at whatever forge; all accounts, if it is not there.
    login: Option<String>,
}

/// Lists accounts of forges by their names, with the organizations that they belong to and the number of
/// their repositories, as `weir accounts` does. For managers.
#[utoipa::path(
    get, operation_id = "listAccounts",
    path = "/api/v1/accounts", tag = "management", security(("token" = [])),
    params(AccountFilter, WantedPage),
    responses(
        (status = 200, description = "A page of accounts.", body = EntryPage<AccountEntry>),
        NotModified,
        Problems
    )
)]
pub(crate) async fn list(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let page = WantedPage::take(&mut request)?;
    let parameters = &mut request.parameters;
    let login = parameters.text("login")?;
    parameters.end()?;
    check_manager(&state, &request)?;
    let after = page.cursor_text()?.map(|cursor| cursor.split_once('\n').ok_or_else(not_a_cursor));
    let after = after.transpose()?.map(|(login, forge)| (login.to_owned(), forge.to_owned()));
    let limit = page.limit;
    let listed = state.with_pool(&request, move |pool| {
        let after = after.as_ref().map(|(login, forge)| (login.as_str(), forge.as_str()));
        let mut found = pool.catalog.accounts().known(login.as_deref(), after, limit + 1)?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| has_more);
        let next = last.map(|last| page.list.cursor_at(format!("{}\n{}", last.account.login, last.forge)));
        Ok::<_, Problem>(EntryPage { items: found.into_iter().map(AccountEntry::from).collect(), next })
    });
    json(&request.headers, &listed.await?)
}
