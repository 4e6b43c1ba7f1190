//! Remembers the capabilities of servers from one session to the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The capabilities of git:// servers, by host. The next session with a server sends its first request
/// together with its first line, which saves a round trip. If the capabilities have changed, the session
/// starts again in the ordinary way. If the server does not accept that, it is not done again.
#[derive(Clone, Default)]
pub struct Met(Arc<Mutex<HashMap<String, Acquaintance>>>);

/// The knowledge about a server.
#[derive(Clone)]
pub(crate) enum Acquaintance {
    /// It has these capabilities.
    Capable(Arc<[String]>),
    /// It needs one request at a time.
    Slow,
}

/// The maximum number of remembered hosts.
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
