//! The catalog: repositories, their upstreams, and when each visit is due.
//!
//! The catalog is the truth about intentions (which repositories, how often); archives are the truth about
//! content. A catalog that lags behind an archive costs one more visit, but no data: results are recorded in
//! batches, after the archives' own commits.
//!
//! ```
//! # fn main() -> weir_catalog::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("catalog.db");
//! use weir_catalog::{Catalog, NewRepository, Which};
//! use weir_ground::Timestamp;
//!
//! let (catalog, now) = (Catalog::open(&path)?, Timestamp(1_700_000_000));
//! catalog.add(&[NewRepository::new("example.org/project", "https://example.org/project.git")], now)?;
//!
//! let due = Which { due_only: true, ..Which::default() };
//! let leased = catalog.visits().lease("this process", now, now + 600, &due, 10)?;
//! assert_eq!(leased[0].name, "example.org/project");
//! assert_eq!(catalog.status().counts(now)?.repositories, 1);
//! # Ok(())
//! # }
//! ```

mod accounts;
mod archives;
mod catalog;
pub mod clock;
mod crawld;
mod due;
mod error;
mod etags;
mod events;
mod exposure;
mod failing_hooks;
mod forge_metadata;
mod history;
mod import;
mod inventory;
mod lease;
mod listing;
mod metadata_schedule;
mod migrate;
mod received;
mod record;
mod rejected;
mod repository;
mod requests;
mod schema;
mod search;
mod settings;
mod sharing;
mod status;
mod transactions;
mod upsert;
mod views;
mod visit;

pub use accounts::{AccountCounts, KnownAccount};
pub use archives::{Adopted, ArchiveEnd};
pub use catalog::Catalog;
pub use crawld::repositories_of_crawld;
pub use error::{Error, Result};
pub use etags::KeptPage;
pub use events::{
    ArchiveUpdate, EventKind, EventReader, EventSubject, LfsFacts, LoggedEvent, LostFacts, PoolEvent,
    REFS_NAMED_MAX, RefUpdate, VisitFacts, VisitFailure,
};
pub use exposure::Exposure;
pub use failing_hooks::FailingHook;
pub use forge_metadata::{ForgeMetadata, ForgeWish};
pub use history::PastVisit;
pub use import::ImportPosition;
pub use inventory::InventoryEntry;
pub use lease::Which;
pub use listing::{Listing, SkippedPage, Unseen};
pub use metadata_schedule::{MetadataCounts, MetadataLook, MetadataTask};
pub use received::{EventEffect, ReceivedBatch, ReceivedCounts, SpoolPosition};
pub use rejected::{CollectorCounts, RejectedEvent};
pub use repository::{Hold, NewRepository, Repository, name_for, path_for};
pub use search::{FoundRepositories, RepositorySearch, StateFilter};
pub use settings::{Interval, PRIORITY_MAX, Settings};
pub use sharing::{AccessNames, Base};
pub use status::{Counts, PausedHost};
pub use upsert::Taken;
pub use views::{
    Accounts, Archives, CatalogStatus, EventLog, Listings, MetadataLooks, ReceivedEvents, Visits,
};
pub use visit::{Outcome, Visit};
pub use weir_listed::{Account, AccountKind, Listed, RequestBudget};
