//! A pool that is open, and what runs on it: visits, and the programs and metrics that tell of them.

mod collectors;
mod delays;
mod guards;
mod hint_finder;
mod hooks;
mod judge;
mod listings;
mod local;
mod locator;
mod metrics;
mod metrics_text;
mod notify;
mod on_demand;
mod pauses;
mod pool;
mod process_metrics;
mod received;
mod receiver;
mod streams;
mod sweep;
mod traces;

pub use collectors::{Collectors, RejectedLine, rejected_lines};
pub use delays::EventDelays;
pub use guards::{LookGuard, MIRROR_LOCK_NAME, MirrorGuard};
pub use hint_finder::HintFinder;
pub use hooks::{HookState, HookTest, Hooks, hook_states, test_hook};
pub use listings::{list_forges, look_at_metadata, with_metadata};
pub use local::{LocalClones, LocalUpstreams, bytes_of, open_local};
pub use locator::{CatalogLocator, KnownRepository, asked};
pub use metrics::{Counters, Metrics};
pub use notify::Notifier;
pub use on_demand::OnDemand;
pub use pauses::{pauses, shortage};
pub use pool::{
    CATALOG_NAME, CLOCK_SKEW_TOLD_S, CONFIG_NAME, InitOutcome, Pool, STORE_NAME, is_pool_folder, machine_of,
    open_catalog_again, space, transport_options,
};
pub use process_metrics::COMMIT;
pub use received::{ReceivedEvent, Verdict, failed_events, received, received_one, recent_deliveries};
pub use receiver::{EventReceiver, replay};
pub use streams::EventStreams;
pub use sweep::{SweepOutcome, Sweeper};
pub use traces::TraceExporter;
