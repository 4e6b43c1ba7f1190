//! What is remembered of servers from one conversation to the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The capabilities of git:// servers met, by host. The next conversation with one starts with a question in
/// the same packet as its first line: a round trip less. If the server is not as remembered, all is asked
/// again in the ordinary way; if it takes the question amiss, it is not asked so again.
#[derive(Clone, Default)]
pub struct Met(Arc<Mutex<HashMap<String, Acquaintance>>>);

/// What is known of a server.
#[derive(Clone)]
pub(crate) enum Acquaintance {
    /// It has these capabilities.
    Capable(Arc<[String]>),
    /// Asks for one thing at a time.
    Slow,
}

/// Hosts remembered at most.
const MET_MAX: usize = 10_000;

impl Met {
    pub(crate) fn get(&self, host: &str) -> Option<Acquaintance> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }

    pub(crate) fn set(&self, host: String, acquaintance: Acquaintance) {
        let mut met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if met.len() < MET_MAX || met.contains_key(&host) {
            met.insert(host, acquaintance);
        }
    }
}
