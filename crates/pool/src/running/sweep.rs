//! Asks forges for deliveries of webhooks that never arrived, and takes them.
//!
//! A sweep reads the list of a webhook's deliveries, the latest first, back to where the last one began, and
//! a little further: attempts come into the list when they have ended, and that is not the order in which
//! they began. It takes those of which no attempt succeeded, and which are not here. A sweep that is
//! interrupted begins again, and takes no delivery a second time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use weir_catalog::clock::now;
use weir_catalog::{Catalog, ReceivedBatch};
use weir_crawl::CrawlSource;
use weir_events::{Notice, ReceivedLine, WebhookDoors, WebhookOptions, now_ms};
use weir_forge::{DeliveryAttempt, DeliveryRequest, Error as ForgeError, HookDeliveries};
use weir_ground::{Stop, Timestamp};
use weir_settings::WebhookConfig;

use crate::error::{Error, Result};
use crate::running::pool::Pool;
use crate::running::receiver::take_lines;

/// How much further back than the last sweep the next one looks: seconds, or numbers of attempts.
const MARK_OVERLAP: i64 = 600;
/// The most attempts of one webhook that are looked at.
const ATTEMPTS_MAX: u64 = 500_000;
/// How many deliveries are taken in one transaction, and how long the first of them waits for others.
const TAKEN_AT_ONCE: usize = 100;
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// The number of deliveries in a row that cannot be read, after which the forge counts as down.
const FAILED_IN_ROW_MAX: usize = 5;
/// The most pages of a list.
const PAGES_MAX: usize = 20_000;
/// How many batches of events are read at once.
const BATCHES: usize = 32;
const _: () = assert!(TAKEN_AT_ONCE > 0 && TAKEN_AT_ONCE as u64 <= ATTEMPTS_MAX, "a sweep takes something");
/// How far the clock of a forge may be off.
const CLOCKS_S: i64 = 3600;
const LOCK_NAME: &str = "sweep.lock";

/// The result of a sweep of one webhook at a forge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SweepOutcome {
    /// The name of the webhook here.
    pub webhook: String,
    /// Its path in the API of the forge.
    pub hook: String,
    /// The number of attempts that were looked at.
    pub attempts: u64,
    /// The number of deliveries without a successful attempt that may change a repository.
    pub failed: u64,
    /// The number of those that were here nevertheless.
    pub here: u64,
    /// The number of those that were taken.
    pub taken: u64,
    /// The number of those that change no repository, or cannot be read.
    pub ignored: u64,
    /// The number of those that the forge keeps no longer.
    pub expired: u64,
    /// The number of those that could not be had: the next sweep asks for them again.
    pub unread: u64,
}

impl fmt::Display for SweepOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SweepOutcome { webhook, hook, attempts, failed, here, taken, ignored, expired, unread } = self;
        write!(f, "{webhook} at {hook}: {attempts} attempts, {failed} deliveries failed, {taken} taken")?;
        let counts = [
            (*here, "here already"),
            (*ignored, "of no repository"),
            (*expired, "no longer kept"),
            (*unread, "cannot be read now"),
        ];
        counts.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, what)| write!(f, ", {n} {what}"))
    }
}

/// Sweeps the webhooks of a pool.
pub struct Sweeper<'p> {
    pool: &'p mut Pool,
    stop: &'p Stop,
    /// Whether to look as far back as the forge keeps deliveries.
    is_whole: bool,
    /// The doors that learn of the deliveries that a sweep takes.
    doors: Option<Arc<WebhookDoors>>,
}

impl Sweeper<'_> {
    /// Returns a sweeper, which runs until `stop` is requested. If `is_whole`, it looks at all that the forge
    /// keeps.
    pub fn new<'p>(pool: &'p mut Pool, is_whole: bool, stop: &'p Stop) -> Sweeper<'p> {
        Sweeper { pool, stop, is_whole, doors: None }
    }

    /// Makes `doors` know the deliveries that a sweep takes: if the forge sends one again, it does nothing.
    pub fn telling(self, doors: Arc<WebhookDoors>) -> Self {
        Sweeper { doors: Some(doors), ..self }
    }

    /// Takes the deliveries to `webhook` that never arrived. Calls `tell` with the result of each of its
    /// webhooks at the forge. Returns false if another process sweeps.
    ///
    /// # Errors
    /// If the forge or the catalog fails, or the forge has no such webhook. Deliveries that were taken stay.
    pub fn sweep(&mut self, webhook: &WebhookConfig, tell: &mut dyn FnMut(SweepOutcome)) -> Result<bool> {
        let lock = self.pool.open_lock(LOCK_NAME)?;
        if lock.try_lock().is_err() {
            return Ok(false);
        }
        let options = webhook.options()?;
        let found = self.pool.config.forge.iter().find(|forge| forge.name() == webhook.sweep_forge());
        let Some(config) = found.cloned() else {
            return Err(Error::Refused(format!("there is no [[forge]] '{}'", webhook.sweep_forge())));
        };
        let fail = |e: ForgeError| Error::Refused(format!("cannot sweep '{}': {e}", options.name));
        let mut forge = config.open(self.stop).map_err(|e| Error::Refused(e.to_string()))?;
        let budgets = self.pool.catalog.accounts().budgets(now())?.into_iter();
        let own: Vec<_> = budgets.filter(|(of, _)| *of == config.name()).map(|(_, budget)| budget).collect();
        forge.remember(&own);
        let Some(deliveries) = forge.hook_deliveries() else {
            return Err(Error::Refused(format!("'{}' lists no deliveries", config.name())));
        };
        for place in webhook.sweep() {
            let end = format!("/webhooks/{}", options.name);
            let is_ours = |url: &str| url.split(['?', '#']).next().unwrap_or(url).ends_with(&end);
            let hooks = deliveries.hooks(place, &is_ours).map_err(fail)?;
            if hooks.is_empty() {
                let text = format!("at {place}, no webhook has a URL that ends with {end}");
                return Err(Error::Refused(text));
            }
            for hook in hooks {
                tell(self.sweep_hook(&options, &hook, deliveries)?);
            }
        }
        let budgets = forge.budgets();
        if !budgets.is_empty() {
            self.pool.catalog.accounts().set_budgets(&config.name(), &budgets, now())?;
        }
        Ok(true)
    }

    fn sweep_hook(
        &mut self,
        options: &WebhookOptions,
        hook: &str,
        deliveries: &mut dyn HookDeliveries,
    ) -> Result<SweepOutcome> {
        let fail = |e: ForgeError| Error::Refused(format!("cannot sweep '{}' at {hook}: {e}", options.name));
        let mark = match self.is_whole {
            true => None,
            false => self.pool.catalog.received().sweep_mark(&options.name, hook)?,
        };
        let mut listed = ListedAttempts::default();
        listed.read(hook, mark.map(|mark| mark - MARK_OVERLAP), deliveries).map_err(fail)?;
        let mut failed =
            listed.failed(|attempt| options.forge.may_change(&attempt.event, attempt.action.as_deref()));
        let mut outcome = SweepOutcome {
            webhook: options.name.clone(),
            hook: hook.to_owned(),
            attempts: listed.count,
            failed: failed.len() as u64,
            here: 0,
            taken: 0,
            ignored: 0,
            expired: 0,
            unread: 0,
        };
        let here = deliveries_here(&self.pool.catalog, &options.name, &failed)?;
        failed.retain(|attempt| !here.contains(&attempt.delivery));
        outcome.here = outcome.failed - failed.len() as u64;
        let mut failed_in_row = 0;
        let mut batch = SweptBatch::of(options, hook);
        // Of those that cannot be had now, the next sweep asks again.
        let mut first_unread = None;
        for attempt in &failed {
            if batch.is_full() {
                outcome.taken += self.take(&mut batch)?;
            }
            match deliveries.request(hook, attempt) {
                Ok(Some(request)) => batch.add(attempt, &request, &mut outcome),
                Ok(None) => outcome.expired += 1,
                Err(e) => {
                    failed_in_row += 1;
                    if e.is_of_all() || failed_in_row >= FAILED_IN_ROW_MAX {
                        outcome.taken += self.take(&mut batch)?;
                        return Err(fail(e));
                    }
                    tracing::warn!("cannot read the delivery {} to '{}': {e}", attempt.id, options.name);
                    first_unread = first_unread.or(Some(attempt.mark));
                    outcome.unread += 1;
                    continue;
                }
            }
            failed_in_row = 0;
        }
        outcome.taken += self.take(&mut batch)?;
        let latest = listed.latest.max(mark).map(|latest| first_unread.unwrap_or(latest).min(latest));
        if let Some(latest) = latest {
            self.pool.catalog.received().set_sweep_mark(&options.name, hook, latest, outcome.taken, now())?;
        }
        Ok(outcome)
    }

    /// Takes the deliveries in `batch`, and empties it. Returns their number.
    fn take(&mut self, batch: &mut SweptBatch<'_>) -> Result<u64> {
        let lines = std::mem::take(&mut batch.lines);
        let (at_ms, peer) = (now_ms(), &batch.peer);
        take_lines(self.pool, lines.iter().map(|line| ReceivedLine { at_ms, peer, line }))?;
        if let Some(doors) = &self.doors {
            doors.remember(lines.iter().map(Vec::as_slice));
        }
        Ok(lines.len() as u64)
    }
}

/// Deliveries that are to be taken together.
struct SweptBatch<'o> {
    options: &'o WebhookOptions,
    peer: String,
    lines: Vec<Vec<u8>>,
    /// When the first of them was added.
    since: Instant,
}

impl SweptBatch<'_> {
    fn of<'o>(options: &'o WebhookOptions, hook: &str) -> SweptBatch<'o> {
        let peer = format!("sweep webhook={} hook={hook}", options.name);
        SweptBatch { options, peer, lines: Vec::new(), since: Instant::now() }
    }

    fn is_full(&self) -> bool {
        let has_waited = !self.lines.is_empty() && self.since.elapsed() >= TAKEN_WITHIN;
        has_waited || self.lines.len() >= TAKEN_AT_ONCE
    }

    /// Adds the delivery that `attempt` sent with `request`, unless it changes nothing.
    fn add(&mut self, attempt: &DeliveryAttempt, request: &DeliveryRequest, outcome: &mut SweepOutcome) {
        match self.options.line_of(&headers_of(request, attempt), &request.body) {
            Ok(Some(line)) => {
                if self.lines.is_empty() {
                    self.since = Instant::now();
                }
                self.lines.push(line);
            }
            Ok(None) => outcome.ignored += 1,
            Err(why) => {
                outcome.ignored += 1;
                let (delivery, name) = (&attempt.delivery, &self.options.name);
                tracing::warn!("the delivery {delivery} to '{name}' is bad: {why}");
            }
        }
    }
}

/// The attempts of a webhook.
#[derive(Default)]
struct ListedAttempts {
    count: u64,
    /// The mark of the latest attempt.
    latest: Option<i64>,
    /// The ids of deliveries that succeeded.
    succeeded: HashSet<String>,
    /// The latest attempts of others.
    failed: HashMap<String, DeliveryAttempt>,
}

impl ListedAttempts {
    /// Reads the list of the attempts of `hook`, as far back as `until`.
    fn read(
        &mut self,
        hook: &str,
        until: Option<i64>,
        deliveries: &mut dyn HookDeliveries,
    ) -> std::result::Result<(), ForgeError> {
        let mut position: Option<String> = None;
        let mut visited = HashSet::new();
        loop {
            let page = deliveries.attempts(hook, position.as_deref())?;
            for attempt in page.attempts {
                if until.is_some_and(|until| attempt.mark < until) {
                    return Ok(());
                }
                self.count += 1;
                self.latest = self.latest.max(Some(attempt.mark));
                match attempt.has_succeeded {
                    true => drop(self.succeeded.insert(attempt.delivery)),
                    false => drop(self.failed.entry(attempt.delivery.clone()).or_insert(attempt)),
                }
            }
            let Some(next) = page.next else { return Ok(()) };
            let is_long = self.count >= ATTEMPTS_MAX || visited.len() >= PAGES_MAX;
            if is_long || !visited.insert(next.clone()) {
                let detail = format!("the list of deliveries does not end within {ATTEMPTS_MAX}");
                return Err(ForgeError::Unexpected { url: hook.to_owned(), detail });
            }
            position = Some(next);
        }
    }

    /// Removes and returns the attempts that failed and that `may_change` something, the first ones first.
    fn failed(&mut self, may_change: impl Fn(&DeliveryAttempt) -> bool) -> Vec<DeliveryAttempt> {
        let succeeded = &self.succeeded;
        let failed = std::mem::take(&mut self.failed).into_values();
        let mut failed: Vec<_> =
            failed.filter(|attempt| !succeeded.contains(&attempt.delivery) && may_change(attempt)).collect();
        failed.sort_by_key(|attempt| (attempt.mark, attempt.id));
        failed
    }
}

/// Returns the ids of those deliveries to `webhook` that are in the catalog.
fn deliveries_here(catalog: &Catalog, webhook: &str, failed: &[DeliveryAttempt]) -> Result<HashSet<String>> {
    let wanted: HashSet<&str> = failed.iter().map(|attempt| attempt.delivery.as_str()).collect();
    let mut here = HashSet::new();
    let first = failed.iter().map(|attempt| attempt.at.unwrap_or(0)).min();
    let Some(first) = first.map(|first| Timestamp(first - CLOCKS_S)) else { return Ok(here) };
    let of_webhook = format!("webhook={webhook}");
    let mut before = i64::MAX;
    loop {
        let batches = catalog.received().before(before, BATCHES)?;
        let Some(last) = batches.last() else { break };
        before = last.first;
        for (_, record, _) in batches.iter().flat_map(ReceivedBatch::events) {
            let line = ReceivedLine::parse(record);
            let line = line.filter(|line| line.peer.split(' ').any(|part| part == of_webhook));
            if let Some((_, delivery)) = line.and_then(|line| Notice::delivery(line.line))
                && wanted.contains(delivery.as_ref())
            {
                here.insert(delivery.into_owned());
            }
        }
        if last.at < first || here.len() == wanted.len() {
            break;
        }
    }
    Ok(here)
}

/// Returns the headers of a request. GitHub's event and id are in them, even if its API leaves them out.
fn headers_of(request: &DeliveryRequest, attempt: &DeliveryAttempt) -> HeaderMap {
    let of_github = [("x-github-event", &attempt.event), ("x-github-delivery", &attempt.delivery)];
    let mut all: BTreeMap<String, &str> =
        of_github.into_iter().map(|(name, value)| (name.to_owned(), value.as_str())).collect();
    all.extend(request.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.as_str())));
    let header = |(name, value): (String, &str)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
    };
    all.into_iter().filter_map(header).collect()
}
