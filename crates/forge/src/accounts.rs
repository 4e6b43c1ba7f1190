//! Crawls the people and organisations of a forge into the catalog, page by page.

use weir_catalog::{Account, Catalog};
use weir_ground::Timestamp;

use crate::api::{Api, Usage};
use crate::crawl::{CrawlError, Places, keep_budgets, remember_budgets};
use crate::{Error, Forge, Result};

/// The largest number of members of an organisation. Members of a larger one are not listed.
pub(crate) const MEMBERS_MAX: usize = 100_000;
/// The number of pages skipped in a row after which the forge counts as down.
const SKIPPED_IN_TURN_MAX: usize = 5;

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

/// The progress of a listing of accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountsProgress {
    /// Accounts listed.
    pub listed: u64,
    /// Memberships in organisations listed.
    pub memberships: u64,
    /// Pages that could not be fetched. The next listing tries them again.
    pub skipped: u64,
    /// The requests sent to the forge.
    pub usage: Usage,
    /// Whether the listing reached its end.
    pub finished: bool,
}

/// The suffix that turns a forge's name into the name of the listing of its accounts.
const LISTING: &str = "/accounts";

/// Returns the catalog's name for the listing of accounts of the forge called `name`.
pub fn accounts_listing(name: &str) -> String {
    format!("{name}{LISTING}")
}

/// Returns the forge whose accounts the listing called `name` lists, if it is a listing of accounts.
pub fn forge_of_accounts_listing(name: &str) -> Option<&str> {
    name.strip_suffix(LISTING)
}

/// Continues the listing of the accounts of `forge`, which is called `name`, until it ends or `observe`
/// returns false. Returns `None` if the forge lists none. Accounts that a listing does not name stay.
///
/// # Errors
/// If the forge or the catalog fails. What was taken stays taken.
pub fn crawl_accounts(
    name: &str,
    scope: &str,
    catalog: &mut Catalog,
    forge: &mut dyn Forge,
    now: &dyn Fn() -> Timestamp,
    observe: &mut dyn FnMut(&AccountsProgress) -> bool,
) -> std::result::Result<Option<AccountsProgress>, CrawlError> {
    let Some(start) = forge.accounts_start() else { return Ok(None) };
    remember_budgets(name, catalog, forge, now())?;
    let mut listing = catalog.begin_listing(&accounts_listing(name), scope, now())?;
    let (mut progress, mut skipped_in_turn, mut places) = (AccountsProgress::default(), 0, Places::default());
    loop {
        let position = listing.position.clone().unwrap_or_else(|| start.to_owned());
        places.visit(name, &position)?;
        let page = forge.accounts(&position)?;
        if let Some(error) = &page.skipped {
            tracing::warn!(forge = name, %position, "page of accounts skipped: {error}");
            (progress.skipped, skipped_in_turn) = (progress.skipped + 1, skipped_in_turn + 1);
            if skipped_in_turn >= SKIPPED_IN_TURN_MAX {
                return Err(Error::Unavailable { url: name.to_owned(), detail: error.clone() }.into());
            }
        } else {
            skipped_in_turn = 0;
        }
        catalog.take_accounts(
            &mut listing,
            name,
            &page.accounts,
            &page.members,
            page.next.as_deref(),
            now(),
        )?;
        keep_budgets(name, catalog, forge, now())?;
        progress.listed += page.accounts.len() as u64;
        progress.memberships += page.members.iter().map(|(_, members)| members.len() as u64).sum::<u64>();
        progress.usage = forge.usage();
        progress.finished = page.next.is_none();
        if progress.finished || !observe(&progress) {
            return Ok(Some(progress));
        }
    }
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
