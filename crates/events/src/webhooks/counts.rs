//! Counts of deliveries.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebhookResult {
    /// It is on disk.
    Taken,
    /// It came before, with the same id.
    Repeated,
    /// It changes no repository.
    Ignored,
    /// Its signature, token or time is wrong.
    Refused,
    /// It cannot be understood.
    Bad,
    /// It could not be written.
    Failed,
}

impl WebhookResult {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            WebhookResult::Taken => "taken",
            WebhookResult::Repeated => "repeated",
            WebhookResult::Ignored => "ignored",
            WebhookResult::Refused => "refused",
            WebhookResult::Bad => "bad",
            WebhookResult::Failed => "failed",
        }
    }
}

/// The deliveries since the start, by webhook and result. Any thread may read and add.
#[derive(Debug, Default)]
pub struct WebhookCounts(Mutex<BTreeMap<(String, WebhookResult), u64>>);

impl WebhookCounts {
    /// Counts a delivery.
    pub(crate) fn add(&self, webhook: &str, result: WebhookResult) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((webhook.to_owned(), result)).or_default() += 1;
    }

    /// Returns the number of deliveries of each webhook with each result.
    pub fn all(&self) -> Vec<(String, WebhookResult, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |((webhook, result), n): (&(String, WebhookResult), &u64)| (webhook.clone(), *result, *n);
        counts.iter().map(row).collect()
    }
}
