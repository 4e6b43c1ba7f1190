//! Lists of people and organisations.

use weir_listed::Account;

use crate::api::Api;
use crate::{Error, Result};

/// The largest number of members of an organisation. Members of a larger one are not listed.
pub(crate) const MEMBERS_MAX: usize = 100_000;
/// A page of a listing of accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountsPage {
    /// The accounts.
    pub accounts: Vec<Account>,
    /// The ids of organisations, each with all of its members that the forge lists.
    pub members: Vec<(String, Vec<Account>)>,
    /// The position of the next page; `None` at the end.
    pub next: Option<String>,
    /// Why the page could not be fetched, if it was skipped. Then it lists nothing.
    pub skipped: Option<String>,
}

/// Returns all accounts in the list at `url`, from all of its pages. Returns `None` if there are more than
/// `max`, or if they cannot be fetched for any reason: other lists may be available.
pub(crate) fn members(
    api: &mut Api,
    url: &str,
    per_page: u64,
    max: usize,
    read: impl Fn(&serde_json::Value) -> Option<Account>,
) -> Result<Option<Vec<Account>>> {
    let mut all = Vec::new();
    for page in 1.. {
        let answer = match api.get(&format!("{url}&page={page}")) {
            Ok(answer) => answer,
            Err(Error::NotFound(_) | Error::Forbidden { .. }) => return Ok(None),
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(e) => {
                tracing::warn!("the members of an organisation cannot be had: {e}");
                return Ok(None);
            }
        };
        let Some(items) = answer.value.as_array().filter(|items| all.len() + items.len() <= max) else {
            tracing::warn!("{url}: no list, or one of too many");
            return Ok(None);
        };
        all.extend(items.iter().filter_map(&read));
        if items.is_empty() || (answer.next.is_none() && (items.len() as u64) < per_page) {
            break;
        }
    }
    Ok(Some(all))
}
