//! What is mirrored, from where, and when it is due. The only crate that speaks SQL.
//!
//! The catalog is the truth about intentions (which repositories, how often); archives are the truth about content. A
//! catalog that lags behind an archive costs a look, never a byte: results are written in batches after the archives'
//! own commits.

mod accounts;
mod catalog;
pub mod clock;
mod crawld;
mod database;
mod error;
mod exposure;
mod history;
mod import;
mod listed;
mod listing;
mod looks;
mod migrate;
mod pages;
mod schema;
mod settings;
mod sharing;
mod status;
mod take;
mod updates;

pub use accounts::{AccountCounts, Budget, KnownAccount};
pub use catalog::{Adopted, Catalog, Hold, Outcome, Repository, Visit, Which};
pub use crawld::repositories_of_crawld;
pub use database::redacted;
pub use error::{Error, Result};
pub use exposure::Exposure;
pub use history::PastVisit;
pub use import::ImportPosition;
pub use listed::{Account, AccountKind, Listed};
pub use listing::{Listing, Taken, Unseen};
pub use looks::{MetadataCounts, MetadataLook, MetadataTask};
pub use pages::KeptPage;
pub use settings::{PRIORITY_MAX, Settings};
pub use sharing::Base;
pub use status::{Counts, PausedHost};
pub use updates::Update;
