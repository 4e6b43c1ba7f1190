//! Counts requests, the bytes of their answers, and how long they take, for monitors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets of durations, in milliseconds.
const BOUNDS_MS: [u64; 9] = [1, 5, 25, 100, 500, 2500, 10_000, 60_000, 600_000];

/// Counts observations by size.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    /// The upper bounds of the buckets.
    bounds: [u64; N],
    buckets: [AtomicU64; N],
    /// The count above all bounds.
    above: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    /// Returns an empty histogram with these upper bounds, in milliseconds, which ascend.
    pub fn new(bounds_ms: [u64; N]) -> Histogram<N> {
        let buckets = bounds_ms.map(|_| AtomicU64::new(0));
        Histogram { bounds: bounds_ms, buckets, above: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    /// Counts an observation, in milliseconds.
    pub fn observe(&self, ms: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < ms);
        self.buckets.get(bucket).unwrap_or(&self.above).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(ms, Ordering::Relaxed);
    }

    /// Returns how many observations were at most each bound in seconds, which is infinite at last, and the
    /// sum of all in seconds.
    pub fn cumulative(&self) -> (Vec<(f64, u64)>, f64) {
        let mut count = 0;
        let bounds = self.bounds.iter().map(|bound| *bound as f64 / 1000.0).chain([f64::INFINITY]);
        let mut up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let buckets = bounds.zip(self.buckets.iter().chain([&self.above]).map(&mut up_to)).collect();
        (buckets, self.sum.load(Ordering::Relaxed) as f64 / 1000.0)
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A conversation over git://.
    Git,
    /// The list of refs, over HTTP.
    Refs,
    /// A pack, or what protocol version 2 asks for, over HTTP.
    Pack,
    /// A file of a repository.
    File,
    /// Git LFS.
    Lfs,
    /// A request that a handler answers, such as one of the API or a webhook.
    Handler,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [RequestKind; 6] = [
        RequestKind::Git,
        RequestKind::Refs,
        RequestKind::Pack,
        RequestKind::File,
        RequestKind::Lfs,
        RequestKind::Handler,
    ];

    /// Returns its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Git => "git",
            RequestKind::Refs => "refs",
            RequestKind::Pack => "pack",
            RequestKind::File => "file",
            RequestKind::Lfs => "lfs",
            RequestKind::Handler => "handler",
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestResult {
    /// All of the answer was sent.
    Answered,
    /// The client may not have it, or it does not exist.
    Refused,
    /// The server failed, or had too much to do.
    Failed,
    /// The client hung up, or the answer broke off.
    BrokenOff,
}

impl RequestResult {
    /// All results.
    pub const ALL: [RequestResult; 4] =
        [RequestResult::Answered, RequestResult::Refused, RequestResult::Failed, RequestResult::BrokenOff];

    /// Returns its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            RequestResult::Answered => "answered",
            RequestResult::Refused => "refused",
            RequestResult::Failed => "failed",
            RequestResult::BrokenOff => "broken_off",
        }
    }
}

/// The counts of requests of one kind.
#[derive(Debug)]
pub struct KindCounts {
    results: [AtomicU64; RequestResult::ALL.len()],
    bytes: AtomicU64,
    /// How long they took.
    pub durations: Histogram<{ BOUNDS_MS.len() }>,
}

impl Default for KindCounts {
    fn default() -> KindCounts {
        let (results, bytes) = Default::default();
        KindCounts { results, bytes, durations: Histogram::new(BOUNDS_MS) }
    }
}

impl KindCounts {
    /// Returns how many ended with `result`.
    pub fn with(&self, result: RequestResult) -> u64 {
        self.results[result as usize].load(Ordering::Relaxed)
    }

    /// Returns the bytes of all answers.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The counts since the server started.
#[derive(Debug, Default)]
pub struct ServingCounts {
    kinds: [KindCounts; RequestKind::ALL.len()],
    /// Connections that are open.
    pub(crate) connections: AtomicU64,
    /// Connections that there were.
    pub(crate) accepted: AtomicU64,
    /// Connections and requests that were too many.
    pub(crate) refused: AtomicU64,
}

impl ServingCounts {
    /// Returns the counts of one kind of requests.
    pub fn of(&self, kind: RequestKind) -> &KindCounts {
        &self.kinds[kind as usize]
    }

    /// Returns the number of connections that are open, that there were, and that were too many.
    pub fn connections(&self) -> [u64; 3] {
        [&self.connections, &self.accepted, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }

    /// Counts a request that has ended.
    pub(crate) fn count(&self, kind: RequestKind, result: RequestResult, bytes: u64, took: Duration) {
        let counts = self.of(kind);
        counts.results[result as usize].fetch_add(1, Ordering::Relaxed);
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        counts.durations.observe(took.as_millis() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_are_counted_below_their_bounds() {
        let histogram = Histogram::new([10, 100]);
        for ms in [0, 10, 11, 5000] {
            histogram.observe(ms);
        }
        assert_eq!(histogram.cumulative(), (vec![(0.01, 2), (0.1, 3), (f64::INFINITY, 4)], 5.021));
        let counts = ServingCounts::default();
        counts.count(RequestKind::Refs, RequestResult::Refused, 7, Duration::from_millis(2));
        let refs = counts.of(RequestKind::Refs);
        assert_eq!((refs.with(RequestResult::Refused), refs.bytes()), (1, 7));
        assert_eq!(counts.of(RequestKind::Pack).durations.cumulative().0.last(), Some(&(f64::INFINITY, 0)));
    }
}
