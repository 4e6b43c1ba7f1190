//! A pool: settings, a catalog and a store of archives in one folder.
//!
//! - [`Pool::open`] opens one with the [`weir_settings::Config`] of its `weir.toml`, and [`Pool::mirror`]
//!   returns what makes its visits. A process that does so has a [`MirrorGuard`], and may have [`Hooks`], a
//!   [`Notifier`] and [`Metrics`].
//! - The functions that take a [`weir_catalog::Catalog`] and a [`Store`] work on archives, besides visits to
//!   their upstreams. Each keeps the two in step: it updates the catalog before anything depends on the
//!   change, and deletes an archive only once the catalog has forgotten it.
//!
//! - [`PoolStatus`], [`RepositoryView`] and their kin are what a pool shows, ready to print or to send as
//!   JSON.
//!
//! Functions return what they did, and print nothing.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weir_pool::{CONFIG_NAME, Pool};
//! use weir_settings::{Environment, load};
//!
//! let folder = "/srv/pool".as_ref();
//! let pool = Pool::open(folder, load(&folder.join(CONFIG_NAME), Environment::default())?)?;
//! let repo = pool.open_repo(&pool.get("example.org/project")?)?;
//! println!("{} refs", repo.refs().list().len());
//! # Ok(())
//! # }
//! ```

mod archives;
mod checks;
mod error;
mod fronts;
mod running;
mod views;
pub mod words;

pub use archives::{
    AdoptError, Checked, CloneImport, FoundArchives, ImportedClone, LeftOut, PurgeOutcome, Repair, Restored,
    Rewritten, STORE_ID_NAME, SUFFIX, ShareOutcome, Sharer, SoundEntries, Store, adopt, bases_for, check,
    check_locks, check_purge, check_removal, check_url, claim, compact, dissociate, end_of, entry,
    find_archives, find_clones, forget, get, gone_since, is_archive, is_kept_aside, matching, matching_any,
    note, purge_one, read_or_make, repair, restore, walk,
};
pub use checks::{CheckFinding, CheckLevel, CheckRemedy, CheckReport, TellFinding, check_owner, check_pool};
pub use error::{Error, InRepo, Result};
pub use fronts::{
    CATALOG_RETRY, DoorAddresses, HealthFront, IntakeSender, KeptSockets, OpenDoors, WebhookFront,
    keep_doors, keep_mirroring, keep_sweeping, keep_webhooks, open_doors, tell_door,
};
pub use running::{
    CATALOG_NAME, CLOCK_SKEW_TOLD_S, COMMIT, CONFIG_NAME, CatalogLocator, Collectors, Counters, EventDelays,
    EventReceiver, EventStreams, HintFinder, HookState, HookTest, Hooks, InitOutcome, KnownRepository,
    LocalClones, LocalUpstreams, LookGuard, MIRROR_LOCK_NAME, Metrics, MirrorGuard, Notifier, OnDemand, Pool,
    ReceivedEvent, RejectedLine, STORE_NAME, SweepOutcome, Sweeper, TraceExporter, Verdict, asked, bytes_of,
    failed_events, hook_states, is_pool_folder, list_forges, look_at_metadata, machine_of,
    open_catalog_again, open_local, pauses, received, received_one, recent_deliveries, rejected_lines,
    replay, shortage, space, test_hook, transport_options, with_metadata,
};
pub use views::{
    AccountsStatus, ArchiveFacts, ArchiveLfs, ArchiveSize, BudgetStatus, DueRepository, EventsStatus,
    FailureGroup, FailureView, ForgeStatus, MirroredRepository, PackFacts, PoolStatus, RefChange,
    RefLogEntry, RepositoryDetails, RepositoryList, RepositoryState, RepositoryView, SettingsView, SortKey,
    SpaceStatus, StoredClones, UrlMeaning, VisitEntry, VisitResult, archive_sizes, due_repositories, failing,
    listed, manifest, ref_log, shown_url, visit_log,
};
