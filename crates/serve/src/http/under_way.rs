//! Counts HTTP requests that are not answered yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::server::daemon::Counted;

/// A request whose answer is not made, or not sent in full, yet.
pub(crate) struct UnderWay {
    all: Arc<AtomicUsize>,
    /// The count of the client behind a proxy, if it is counted by request.
    _counted: Option<Counted>,
}

impl UnderWay {
    pub(crate) fn start(all: &Arc<AtomicUsize>, counted: Option<Counted>) -> UnderWay {
        all.fetch_add(1, Ordering::Relaxed);
        UnderWay { all: all.clone(), _counted: counted }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}
