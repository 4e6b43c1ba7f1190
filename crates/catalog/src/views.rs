//! Views of the catalog, one for each kind of caller. A caller that visits repositories takes [`Visits`], one
//! that reads forges takes [`Listings`].

use crate::Catalog;

/// Defines a view and the method of [`Catalog`] that returns it.
macro_rules! views {
    ($($(#[doc = $doc:literal])+ $method:ident: $view:ident;)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy)]
            pub struct $view<'a> {
                pub(crate) catalog: &'a Catalog,
            }
        )+

        impl Catalog {
            $(
                #[doc = concat!("Returns the view [`", stringify!($view), "`].")]
                #[must_use]
                pub fn $method(&self) -> $view<'_> {
                    $view { catalog: self }
                }
            )+
        }
    };
}

views! {
    /// Leases of repositories, their visits and what makes them due, and pauses of hosts.
    visits: Visits;
    /// Listings of forges and dumps: the pages that were taken, and where each listing goes on.
    listings: Listings;
    /// Owners of repositories, and the requests that credentials may make.
    accounts: Accounts;
    /// The log of events, and its readers.
    events: EventLog;
    /// Events that senders and webhooks delivered, and the collectors of them.
    received: ReceivedEvents;
    /// Descriptions and topics of repositories, and the schedule by which weir fetches issues, pull requests
    /// and releases.
    metadata: MetadataLooks;
    /// The archives of repositories, and which of them build on others.
    archives: Archives;
    /// Counts and lists for people who watch the pool.
    status: CatalogStatus;
}
