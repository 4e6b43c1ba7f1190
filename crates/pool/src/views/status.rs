//! The state of a pool as a whole.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_catalog::clock::now;
use weir_catalog::{
    AccountCounts, CollectorCounts, Counts, Listing, MetadataCounts, PausedHost, ReceivedCounts,
    RequestBudget,
};
use weir_crawl::forge_of_accounts_listing;
use weir_ground::{FailureClass, Timestamp};
use weir_mirror::throttle::Cause;

use crate::error::Result;
use crate::running::{HookState, Pool, hook_states, pauses, shortage, space};

const DAY_S: i64 = 86_400;

/// The state of a pool.
#[derive(Clone, Debug, Serialize)]
pub struct PoolStatus {
    /// When it was read.
    #[serde(skip)]
    pub now: Timestamp,
    /// Numbers about all repositories.
    pub counts: Counts,
    /// How many repositories weir mirrors issues, pull requests and releases of.
    pub metadata: MetadataCounts,
    /// The number of repositories whose last visit failed, by the class of the failure.
    pub errors: BTreeMap<&'static str, i64>,
    /// The hosts that weir does not visit for a while.
    pub pauses: Vec<PausedHost>,
    /// The forges that list repositories.
    pub forges: Vec<ForgeStatus>,
    /// The forges that list people and organisations.
    pub accounts: Vec<AccountsStatus>,
    /// The requests that forges still grant.
    pub budgets: Vec<BudgetStatus>,
    /// The events from outside.
    pub events: EventsStatus,
    /// The programs and servers that weir tells of updates.
    pub hooks: Vec<HookState>,
    /// The disk of the store.
    pub space: SpaceStatus,
}

/// A forge's listing, and the numbers of its repositories in the catalog.
#[derive(Clone, Debug, Serialize)]
pub struct ForgeStatus {
    /// The last listing.
    pub listing: Listing,
    /// How many repositories of it are known.
    pub known: i64,
    /// How many of these it does not list any more.
    pub gone: i64,
    /// How many pages of the listing could not be fetched.
    pub skipped_pages: usize,
}

/// The people and organisations of a forge.
#[derive(Clone, Debug, Serialize)]
pub struct AccountsStatus {
    /// The forge.
    pub forge: String,
    /// Their numbers.
    pub counts: AccountCounts,
    /// The last listing.
    pub listing: Listing,
}

/// The requests that a forge still grants.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetStatus {
    /// The forge.
    pub forge: String,
    /// The requests that are left, and when the forge grants more.
    pub budget: RequestBudget,
}

/// The events that senders and webhooks sent.
#[derive(Clone, Debug, Serialize)]
pub struct EventsStatus {
    /// The number of the last one; 0, if there was none.
    pub last: i64,
    /// When it came.
    pub last_at: Option<Timestamp>,
    /// How many there were within a day.
    pub day: i64,
    /// The number of events that each table and worker has yet to take.
    pub collectors: Vec<CollectorCounts>,
}

/// The disk of the store.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SpaceStatus {
    /// The free bytes.
    pub free_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
    /// Why weir fetches nothing now: the name of the cause. Without one, it fetches.
    pub shortage: Option<&'static str>,
}

impl PoolStatus {
    /// Reads the state of `pool`.
    ///
    /// # Errors
    /// If the catalog fails, or the store cannot be looked at.
    pub fn read(pool: &Pool) -> Result<PoolStatus> {
        let now = now();
        let (mut forges, mut accounts) = (Vec::new(), Vec::new());
        for listing in pool.catalog.listings().all()? {
            if let Some(forge) = forge_of_accounts_listing(&listing.forge) {
                let forge = forge.to_owned();
                accounts.push(AccountsStatus {
                    counts: pool.catalog.accounts().counts(&forge)?,
                    listing,
                    forge,
                });
                continue;
            }
            let skipped_pages = pool.catalog.listings().skipped_pages(&listing.forge)?.len();
            let (known, gone) = pool.catalog.listings().counts(&listing.forge)?;
            forges.push(ForgeStatus { listing, known, gone, skipped_pages });
        }
        let room = pool.space();
        let (free_bytes, total_bytes) = space(&pool.store.path)?;
        let ReceivedCounts { last, last_at, lately } = pool.catalog.received().counts(now - DAY_S)?;
        let budgets = pool.catalog.accounts().budgets(now)?.into_iter();
        let errors = pool.catalog.status().errors_by_class()?.into_iter();
        Ok(PoolStatus {
            now,
            counts: pool.catalog.status().counts(now)?,
            metadata: pool.catalog.metadata().counts()?,
            errors: errors.map(|(class, count)| (FailureClass::name(class), count)).collect(),
            pauses: pauses(&pool.catalog, &room)?,
            forges,
            accounts,
            budgets: budgets.map(|(forge, budget)| BudgetStatus { forge, budget }).collect(),
            events: EventsStatus {
                last,
                last_at,
                day: lately,
                collectors: pool.catalog.received().collector_counts()?,
            },
            hooks: hook_states(pool)?,
            space: SpaceStatus {
                free_bytes,
                total_bytes,
                shortage: shortage(&pool.catalog, &room)?.map(Cause::name),
            },
        })
    }
}
