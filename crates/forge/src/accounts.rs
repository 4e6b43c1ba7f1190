//! People and organisations of a forge taken into the catalog, page by page.

use weir_catalog::{Account, Catalog};
use weir_ground::Timestamp;

use crate::api::{Api, Usage};
use crate::crawl::{CrawlError, Places, keep_budgets, remember_budgets};
use crate::{Error, Forge, Result};

/// Members of one organisation; those of one that has more are not told.
pub(crate) const MEMBERS_MAX: usize = 100_000;
/// Pages that cannot be had in turn before the forge is taken to be down.
const SKIPPED_IN_TURN_MAX: usize = 5;

/// A part of a listing of accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountsPage {
    /// Accounts.
    pub accounts: Vec<Account>,
    /// Of organisations, by their ids, all who belong to them as far as that is told.
    pub members: Vec<(String, Vec<Account>)>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
    /// Why the page could not be had, if so; then it lists nothing.
    pub skipped: Option<String>,
}

/// What a listing of accounts has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountsProgress {
    /// Accounts.
    pub listed: u64,
    /// Who belongs to which organisation.
    pub memberships: u64,
    /// Pages that could not be had; the next listing has them.
    pub skipped: u64,
    /// What the forge was asked.
    pub usage: Usage,
    /// Whether it came to its end.
    pub finished: bool,
}

/// Behind a forge's name: the listing of its accounts.
const LISTING: &str = "/accounts";

/// The name that the listing of accounts of the forge called `name` has in the catalog.
pub fn accounts_listing(name: &str) -> String {
    format!("{name}{LISTING}")
}

/// Whose accounts the listing called `name` lists, if it is one of accounts.
pub fn forge_of_accounts_listing(name: &str) -> Option<&str> {
    name.strip_suffix(LISTING)
}

/// Goes on with the listing of the accounts of `forge`, which is called `name`, until it ends, or `observe`
/// says no; `None` if it tells of none. What a listing does not name stays.
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

/// All accounts in the list at `url`, however many pages it has, but `max` at most. `None` if they cannot be
/// had, for whatever reason: the others can.
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
