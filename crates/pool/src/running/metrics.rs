//! Metrics in Prometheus's text format (prometheus.io/docs/instrumenting/exposition_formats).

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_catalog::clock::now;
use weir_catalog::{Catalog, CollectorCounts, EventKind, PoolEvent};
use weir_events::{IntakeCounts, WebhookCounts};
use weir_mirror::Space;
use weir_serve::ServingCounts;

use crate::error::Result;
use crate::running::delays::EventDelays;
use crate::running::hooks::{HookState, hook_states};
use crate::running::metrics_text::{escaped, head, one, write_histogram};
use crate::running::pauses::pauses;
use crate::running::pool::{Pool, space};
use crate::running::process_metrics::{write_process, write_serving};
use crate::running::traces::TraceExporter;

/// The least time between queries of the catalog: with millions of repositories they take seconds.
const AGE_MAX: Duration = Duration::from_secs(60);

/// The results of the mirror loop of this process.
#[derive(Default)]
pub struct Counters {
    unchanged: AtomicU64,
    updated: AtomicU64,
    failed: AtomicU64,
    bytes_appended: AtomicU64,
    /// What came at the doors for events.
    pub events: Arc<IntakeCounts>,
    /// The delays from events to the ends of the visits that they caused.
    pub delays: Arc<EventDelays>,
    /// The deliveries of webhooks.
    pub webhooks: Arc<WebhookCounts>,
    /// The requests of clients.
    pub serving: Arc<ServingCounts>,
    /// Takes spans of requests and visits.
    pub traces: Option<Arc<TraceExporter>>,
}

impl Counters {
    /// Counts the result of a visit, and traces it.
    pub fn count(&self, event: &PoolEvent) {
        self.delays.happened(event);
        if let Some(traces) = &self.traces {
            traces.visited(event);
        }
        let counter = match &event.kind {
            EventKind::Failed(_) => &self.failed,
            EventKind::Unchanged(_) => &self.unchanged,
            EventKind::Update(update) => {
                self.bytes_appended.fetch_add(update.bytes_appended, Ordering::Relaxed);
                &self.updated
            }
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many visits there were, and how many of them failed.
    pub fn visits(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let failed = load(&self.failed);
        (load(&self.unchanged) + load(&self.updated) + failed, failed)
    }
}

/// Writes the metrics.
pub struct Metrics {
    pool: Mutex<(Pool, Option<(Instant, String)>)>,
    store: std::path::PathBuf,
    room: Space,
    counters: Arc<Counters>,
}

impl Metrics {
    /// Creates a writer of the metrics of `pool` and of `counters`.
    ///
    /// # Errors
    /// If the catalog cannot be opened.
    pub fn new(pool: &Pool, counters: Arc<Counters>) -> Result<Metrics> {
        Ok(Metrics {
            pool: Mutex::new((pool.again()?, None)),
            store: pool.store.path.clone(),
            room: pool.space(),
            counters,
        })
    }

    /// Returns the metrics.
    pub fn text(&self) -> String {
        let mut text = self.of_catalog();
        let c = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        head(&mut text, "weir_visits_total", "counter", "Visits to upstreams of this process");
        for (result, counter) in [("unchanged", &c.unchanged), ("updated", &c.updated), ("failed", &c.failed)]
        {
            let _ = writeln!(text, "weir_visits_total{{result=\"{result}\"}} {}", load(counter));
        }
        one(
            &mut text,
            "weir_appended_bytes_total",
            "counter",
            "Bytes appended to archives by this process",
            load(&c.bytes_appended),
        );
        let e = &c.events;
        head(&mut text, "weir_event_lines_total", "counter", "Lines of senders that came to this process");
        for (result, counter) in [("kept", &e.committed), ("bad", &e.bad), ("dropped", &e.dropped)] {
            let _ = writeln!(text, "weir_event_lines_total{{result=\"{result}\"}} {}", load(counter));
        }
        for (name, kind, help, counter) in [
            ("weir_event_connections", "gauge", "Connections of senders", &e.connections),
            ("weir_event_refused_total", "counter", "Connections of senders that were too many", &e.refused),
            ("weir_event_commits_total", "counter", "Times that lines of senders were synced", &e.commits),
        ] {
            one(&mut text, name, kind, help, load(counter));
        }
        let deliveries = c.webhooks.all();
        if !deliveries.is_empty() {
            let help = "Deliveries of webhooks that came to this process";
            head(&mut text, "weir_webhook_deliveries_total", "counter", help);
        }
        for (webhook, result, count) in deliveries {
            let _ = writeln!(
                text,
                "weir_webhook_deliveries_total{{webhook=\"{}\",result=\"{}\"}} {count}",
                escaped(&webhook),
                result.name()
            );
        }
        let name = "weir_event_delay_seconds";
        head(&mut text, name, "histogram", "Time from an event to the end of the visit that it caused");
        write_histogram(&mut text, name, "", &c.delays.delays.cumulative());
        write_serving(&mut text, &c.serving);
        write_process(&mut text);
        if let Ok((free, total)) = space(&self.store) {
            one(&mut text, "weir_store_free_bytes", "gauge", "Free bytes on the disk of the archives", free);
            one(&mut text, "weir_store_size_bytes", "gauge", "Size of the disk of the archives", total);
        }
        text
    }

    fn of_catalog(&self) -> String {
        let mut kept = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let (pool, last) = &mut *kept;
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < AGE_MAX) {
            return text.clone();
        }
        match write_catalog(pool, &self.room) {
            Ok(text) => {
                *last = Some((Instant::now(), text.clone()));
                text
            }
            // The last answer would pass for the current state.
            Err(e) => {
                tracing::error!("metrics: {e}");
                let mut text = String::new();
                one(&mut text, "weir_catalog_up", "gauge", "Whether the catalog answers", 0);
                text
            }
        }
    }
}

fn write_catalog(pool: &Pool, room: &Space) -> Result<String> {
    let (catalog, mut text) = (&pool.catalog, String::new());
    let now = now();
    let c = catalog.status().counts(now)?;
    one(&mut text, "weir_catalog_up", "gauge", "Whether the catalog answers", 1);
    for (name, help, value) in [
        ("weir_repositories", "Repositories that are known", c.repositories),
        ("weir_repositories_mirrored", "Those that have an archive", c.mirrored),
        ("weir_repositories_disabled", "Those that are not visited until somebody says so", c.disabled),
        ("weir_repositories_paused", "Those that somebody wants not to be visited", c.paused),
        ("weir_repositories_pinned", "Those that are set back to an older state, and not visited", c.pinned),
        (
            "weir_repositories_incomplete",
            "Those that lack files of Git LFS which could not be had",
            c.incomplete,
        ),
        (
            "weir_repositories_gone",
            "Those that the listing of their forge no longer has, whatever visits found",
            c.gone,
        ),
        ("weir_repositories_due", "Those that are due", c.due),
        ("weir_repositories_leased", "Those that are being visited", c.leased),
        ("weir_lag_seconds", "Time the most overdue one has waited", c.lag_s),
        ("weir_archive_bytes", "Bytes of all archives", c.archive_bytes),
    ] {
        one(&mut text, name, "gauge", help, value.unsigned_abs());
    }
    head(&mut text, "weir_repositories_failing", "gauge", "Those whose last visit failed");
    for (class, count) in catalog.status().errors_by_class()? {
        let _ = writeln!(text, "weir_repositories_failing{{class=\"{}\"}} {count}", class);
    }
    head(&mut text, "weir_pause_seconds", "gauge", "Pauses of visits, by host: what is left of them");
    for pause in pauses(catalog, room)? {
        let _ = writeln!(
            text,
            "weir_pause_seconds{{host=\"{}\",cause=\"{}\"}} {}",
            escaped(&pause.host),
            escaped(&pause.cause),
            pause.until - now
        );
    }
    write_collectors(&mut text, catalog)?;
    write_hooks(&mut text, pool)?;
    head(
        &mut text,
        "weir_forge_finished_seconds",
        "gauge",
        "When each forge was last listed whole, in seconds since 1970",
    );
    for listing in catalog.listings().all()? {
        if let Some(at) = listing.finished_at {
            let _ =
                writeln!(text, "weir_forge_finished_seconds{{forge=\"{}\"}} {at}", escaped(&listing.forge));
        }
    }
    Ok(text)
}

fn write_collectors(text: &mut String, catalog: &Catalog) -> weir_catalog::Result<()> {
    one(
        text,
        "weir_events_received",
        "gauge",
        "The number of the last event from outside",
        catalog.received().last()?.unsigned_abs(),
    );
    let collectors = catalog.received().collector_counts()?;
    let waiting = ("weir_events_waiting", "Events that a table or a worker has yet to look at");
    let rejected = ("weir_events_rejected", "Events that a table or a worker did not take");
    for ((name, help), value) in [
        (waiting, (|c| c.waiting) as fn(&CollectorCounts) -> i64),
        (rejected, |c: &CollectorCounts| c.rejected),
    ] {
        if !collectors.is_empty() {
            head(text, name, "gauge", help);
        }
        for c in &collectors {
            let _ = writeln!(text, "{name}{{collector=\"{}\"}} {}", escaped(&c.name), value(c));
        }
    }
    Ok(())
}

fn write_hooks(text: &mut String, pool: &Pool) -> Result<()> {
    let hooks = hook_states(pool)?;
    let waiting = ("weir_hook_waiting", "Events that wait for a hook");
    let failures = ("weir_hook_failures", "Attempts in a row at which the receiver of a hook took no event");
    for ((name, help), value) in [
        (waiting, (|hook| hook.waiting) as fn(&HookState) -> i64),
        (failures, |hook: &HookState| hook.failing.as_ref().map_or(0, |failing| failing.failures)),
    ] {
        if !hooks.is_empty() {
            head(text, name, "gauge", help);
        }
        for hook in &hooks {
            let _ = writeln!(text, "{name}{{hook=\"{}\"}} {}", escaped(&hook.name), value(hook));
        }
    }
    Ok(())
}
