//! The failures of a hook, in the catalog.

use std::time::Duration;

use weir_catalog::clock::now;
use weir_catalog::{Catalog, FailingHook};

/// The failures of a hook, as far as this worker knows them.
pub(super) struct HookFailures {
    /// The name of the hook in the catalog.
    pub(super) hook: String,
    /// The failures, or `None` if the catalog has none; unknown at first.
    known: Option<Option<FailingHook>>,
}

impl HookFailures {
    pub(super) fn of(hook: &str) -> HookFailures {
        HookFailures { hook: hook.to_owned(), known: None }
    }

    /// Notes that the hook has taken an event.
    pub(super) fn worked(&mut self, catalog: &Catalog) {
        if self.known != Some(None) {
            self.write(catalog, None);
        }
    }

    /// Notes a failure, with its reason, and when the next attempt follows.
    pub(super) fn failed(&mut self, catalog: &Catalog, error: String, wait: Duration) {
        let before = match self.known.take() {
            Some(known) => known,
            None => catalog.events().failing_hook(&self.hook).ok().flatten(),
        };
        let now = now();
        let (failures, failing_since) =
            before.map_or((0, now), |before| (before.failures, before.failing_since));
        let retry_at = now + wait.as_secs() as i64;
        self.write(catalog, Some(FailingHook { failures: failures + 1, failing_since, retry_at, error }));
    }

    fn write(&mut self, catalog: &Catalog, failing: Option<FailingHook>) {
        match catalog.events().set_failing_hook(&self.hook, failing.as_ref()) {
            Ok(()) => self.known = Some(failing),
            Err(e) => tracing::warn!("cannot note how the hook '{}' is: {e}", self.hook),
        }
    }
}
