//! Views of the catalog: what one kind of caller needs of it. A caller that visits repositories takes
//! [`Visits`], one that reads forges takes [`Listings`].

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
                $(#[doc = $doc])+
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
    /// What forges and dumps list, page by page.
    listings: Listings;
    /// Owners of repositories, and the requests that credentials may make.
    accounts: Accounts;
    /// The log of events, and those who read it.
    events: EventLog;
    /// Events that others have sent, and the collectors of those.
    received: ReceivedEvents;
    /// What forges say around repositories, and when it is asked for again.
    metadata: MetadataLooks;
    /// The archives of repositories, and which of them build on others.
    archives: Archives;
    /// Numbers and lists that say how the pool is.
    status: CatalogStatus;
}
