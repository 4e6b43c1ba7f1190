//! Passes over the repositories of a catalog: one, or one after the other until the process is to stop.

use std::time::{Duration, Instant};

use weir_catalog::Catalog;
use weir_ground::{Stop, Timestamp};

use crate::lease::Batches;
use crate::mirror::{Event, Mirror, Summary};
use crate::run::RunError;

/// Time between checks for times that a wrong clock has written.
const MEND_TIMES_EVERY: Duration = Duration::from_secs(3600);
/// How many times longer the log keeps what a reader has not read.
const UNREAD_KEPT_TIMES: i64 = 4;
/// The sleep between checks whether other processes still visit what is to be visited.
const HELD_SLEEP: Duration = Duration::from_millis(200);
/// The longest sleep between checks of the catalog while watching.
const WATCH_SLEEP_MAX: Duration = Duration::from_secs(5);

/// Returns the ids of the repositories that a pass visits; `None` for all.
pub type Select<'s> = &'s mut dyn FnMut(&Catalog) -> Result<Option<Vec<i64>>, RunError>;

/// The mirror loop of a process.
pub struct MirrorLoop<'l> {
    /// Makes the visits.
    pub mirror: &'l Mirror,
    /// The name under which repositories are leased.
    pub owner: &'l str,
    /// Whether to visit what becomes due, until told to stop. Otherwise there is one pass.
    pub watch: bool,
    /// Whether the first pass begins with all repositories, or all selected ones, due or not.
    pub all_first: bool,
    /// While watching: how long to wait for a catalog that failed.
    pub retry: Duration,
}

impl MirrorLoop<'_> {
    /// Visits what is due and selected, and gives all leases back. Returns the sums of all passes.
    ///
    /// # Errors
    /// If the catalog fails; while watching, the loop tries again instead. If no thread can be started, or
    /// `select` fails otherwise.
    pub fn run(
        &self,
        catalog: &Catalog,
        select: Select<'_>,
        stop: &Stop,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<Summary, RunError> {
        let (mut sum, mut is_first, mut mended) = (Summary::default(), true, Instant::now());
        let mut nudges = 0;
        self.trim_events(catalog);
        loop {
            if mended.elapsed() >= MEND_TIMES_EVERY {
                mended = Instant::now();
                let done = catalog.follow_clock().and_then(|_| mend_times(catalog, self.mirror.now()));
                done.unwrap_or_else(|e| tracing::warn!("cannot check the times in the catalog: {e}"));
                self.trim_events(catalog);
            }
            let passed = self.pass(catalog, select, is_first, stop, observe);
            match passed.and_then(|passed| self.sleep_until_due(catalog, stop, &mut nudges).map(|()| passed))
            {
                Ok(passed) => sum = sum.and(&passed),
                // A catalog on another machine may be unavailable for a while, and one on this machine's disk
                // may find it full.
                Err(RunError::Catalog(e)) if self.watch && !stop.is_stopped() => {
                    let seconds = self.retry.as_secs();
                    tracing::error!("the mirror loop: {e}; trying again in {seconds} s");
                    stop.sleep(self.retry);
                }
                Err(e) => return Err(e),
            }
            is_first = false;
            if !self.watch || stop.is_stopped() {
                break;
            }
        }
        catalog.visits().release(self.owner)?;
        Ok(sum)
    }

    fn pass(
        &self,
        catalog: &Catalog,
        select: Select<'_>,
        is_first: bool,
        stop: &Stop,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<Summary, RunError> {
        let now = || self.mirror.now();
        let lease_s = self.mirror.options.lease_s;
        // Nothing else is leased, not even for a moment: another process may be about to visit it.
        let ids = select(catalog)?;
        let mut held = Vec::new();
        if let Some(ids) = ids.as_ref().filter(|_| self.all_first && !self.watch) {
            held = catalog.visits().leased_by_others(ids, self.owner, now())?;
        }
        let mut batches = Batches::due(catalog, self.owner, lease_s, &now).only(ids);
        if is_first && self.all_first {
            batches = batches.all_first();
        }
        if !self.watch {
            batches = batches.once();
        }
        let tasks = batches.first(catalog)?;
        if tasks.repositories.is_empty() && !is_first {
            return Ok(Summary::default());
        }
        observe(Event::PassStarted(tasks.repositories.len()));
        let more = &mut |catalog: &Catalog, ahead_only: bool| batches.more(catalog, ahead_only);
        let mut summary = self.mirror.run(catalog, tasks, more, stop, observe)?;
        if !held.is_empty() && !stop.is_stopped() {
            summary = summary.and(&self.visit_held(catalog, &held, stop, observe)?);
        }
        observe(Event::PassEnded(&summary));
        Ok(summary)
    }

    /// Waits until no other process visits the repositories `held`, and visits them: a visit that had begun
    /// before may have missed what the caller knows of.
    fn visit_held(
        &self,
        catalog: &Catalog,
        held: &[i64],
        stop: &Stop,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<Summary, RunError> {
        observe(Event::Waiting(held.len()));
        let now = || self.mirror.now();
        while !catalog.visits().leased_by_others(held, self.owner, now())?.is_empty() {
            if !stop.sleep(HELD_SLEEP) {
                return Ok(Summary::default());
            }
        }
        let batches = Batches::due(catalog, self.owner, self.mirror.options.lease_s, &now);
        let mut batches = batches.only(Some(held.to_vec())).all_first().once();
        let tasks = batches.first(catalog)?;
        observe(Event::Leased(tasks.repositories.len()));
        let more = &mut |catalog: &Catalog, ahead_only: bool| batches.more(catalog, ahead_only);
        self.mirror.run(catalog, tasks, more, stop, observe)
    }

    /// Deletes old events from the log.
    fn trim_events(&self, catalog: &Catalog) {
        let (now, keep_s) = (self.mirror.now(), self.mirror.options.events_keep_s as i64);
        let (before, all_before) = (now - keep_s, now - keep_s.saturating_mul(UNREAD_KEPT_TIMES));
        if let Err(e) = catalog.received().trim(before, all_before) {
            tracing::warn!("cannot delete what senders told of from the catalog: {e}");
        }
        match catalog.events().trim(before, all_before) {
            Ok(0) => {}
            Ok(unread) => tracing::error!("{unread} old events were deleted that a hook has not been told"),
            Err(e) => tracing::warn!("cannot delete old events from the catalog: {e}"),
        }
    }

    /// While watching, sleeps until something will be due, or somebody says that something is.
    fn sleep_until_due(&self, catalog: &Catalog, stop: &Stop, nudges: &mut u64) -> Result<(), RunError> {
        if self.watch && !stop.is_stopped() {
            let wait = |due: Timestamp| Duration::from_secs((due - self.mirror.now()).max(1) as u64);
            let time = catalog.visits().next_due()?.map_or(WATCH_SLEEP_MAX, wait).min(WATCH_SLEEP_MAX);
            stop.sleep_until_nudged(time, nudges);
        }
        Ok(())
    }
}

/// Makes due again what a clock that was ahead has put off.
///
/// # Errors
/// If the catalog fails.
pub fn mend_times(catalog: &Catalog, now: Timestamp) -> weir_catalog::Result<()> {
    let mended = catalog.mend_times(now)?;
    if mended > 0 {
        tracing::warn!(
            "corrected the times of {mended} repositories, visited or leased while the clock was ahead"
        );
    }
    Ok(())
}
