//! Takes listings of forges into the catalog.
//!
//! A [`Crawl`] stores the position after each page of a [`weir_forge::Forge`] in the catalog, so that an
//! interrupted listing continues there. [`Rounds`] lists several forges at their intervals. An [`Import`]
//! reads dumps that others have made of a forge.
//!
//! ```
//! use weir_crawl::{FilterVerdict, ListingFilter};
//! use weir_listed::Listed;
//!
//! let filter = ListingFilter { skip_forks: true, stars_min: 10, ..ListingFilter::default() };
//! let known = Listed { fork: Some(false), stars: Some(12), ..Listed::default() };
//! assert_eq!(filter.verdict(&known), FilterVerdict::Wanted);
//! // What the forge does not say does not let a repository in.
//! assert_eq!(filter.verdict(&Listed { stars: None, ..known }), FilterVerdict::Unknown("its stars"));
//! ```

mod accounts;
mod asked;
mod crawl;
mod filter;
mod import;
mod no_name;
mod position;
mod questions;
mod rounds;
mod stored;

pub use accounts::{AccountsProgress, accounts_listing, crawl_accounts, forge_of_accounts_listing};
pub use crawl::{Crawl, CrawlError, CrawlProgress};
pub use filter::{FilterVerdict, ListingFilter};
pub use import::{Dump, Import, ImportError, Imported};
pub use no_name::NoName;
pub use rounds::{CrawlSource, OpenCatalog, RoundError, RoundEvent, Rounds, TellRound, preview};
pub use stored::{ListingScope, WantedRepositories};
