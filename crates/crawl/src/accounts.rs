//! Crawls the people and organisations of a forge into the catalog, page by page.

use weir_catalog::Catalog;
use weir_forge::{Error, Forge, Usage};
use weir_ground::Timestamp;

use crate::crawl::{CrawlError, Places, keep_budgets, remember_budgets};
use crate::stored::ListingScope;

/// The number of pages skipped in a row after which the forge counts as down.
const SKIPPED_IN_TURN_MAX: usize = 5;

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
    scope: &ListingScope,
    catalog: &Catalog,
    forge: &mut dyn Forge,
    now: &dyn Fn() -> Timestamp,
    observe: &mut dyn FnMut(&AccountsProgress) -> bool,
) -> Result<Option<AccountsProgress>, CrawlError> {
    let Some(start) = forge.accounts_start() else { return Ok(None) };
    remember_budgets(name, catalog, forge, now())?;
    let mut listing = scope.begin(catalog, &accounts_listing(name), now())?;
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
        catalog.accounts().take(
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
