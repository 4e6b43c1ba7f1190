//! The views of a pool: its status, lists of repositories, one repository with its archive, and its past.
//! Each is a type, so that a command prints, and an API sends, the same thing.

mod archive_facts;
mod failures;
mod manifest;
mod ref_log;
mod repository_state;
mod repository_view;
mod status;
mod url_meaning;
mod visit_log;

pub use archive_facts::{ArchiveFacts, ArchiveLfs, PackFacts, StoredClones};
pub use failures::{FailureGroup, FailureView, failing};
pub use manifest::{MirroredRepository, manifest};
pub use ref_log::{RefChange, RefLogEntry, ref_log};
pub use repository_state::RepositoryState;
pub use repository_view::{
    ArchiveSize, DueRepository, RepositoryDetails, RepositoryList, RepositoryView, SettingsView, SortKey,
    archive_sizes, due_repositories, listed, shown_url,
};
pub use status::{AccountsStatus, BudgetStatus, EventsStatus, ForgeStatus, PoolStatus, SpaceStatus};
pub use url_meaning::UrlMeaning;
pub use visit_log::{VisitEntry, VisitResult, visit_log};
