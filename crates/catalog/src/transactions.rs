//! The kinds of transactions of the catalog, and their locks on PostgreSQL.

use weir_sql::TransactionKind;

/// Records visits, in rows that other transactions leave alone meanwhile.
pub(crate) const VISITS: TransactionKind = TransactionKind::Shared;

/// Adds, names and removes repositories: one transaction at a time.
pub(crate) const LISTING: TransactionKind = TransactionKind::Alone(LISTING_LOCK);

pub(crate) const LISTING_LOCK: &str =
    "SELECT pg_advisory_xact_lock(hashtext('weir catalog'), hashtext(current_schema()))";

/// Lets transactions that append events commit one after the other, so that a reader that has seen an event
/// has seen all with lower numbers. A transaction takes it last, so that who holds it waits for nobody.
pub(crate) const EVENTS_LOCK: &str =
    "SELECT pg_advisory_xact_lock(hashtext('weir events'), hashtext(current_schema()))";

/// Separates the locks of listings from others.
pub(crate) const LISTING_LOCKS: &str = "weir listing";
