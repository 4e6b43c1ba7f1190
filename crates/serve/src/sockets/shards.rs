//! Threads that each accept connections and serve them.
//!
//! All threads watch the same listening sockets. Whichever is awake first takes a connection and keeps it:
//! nothing crosses from thread to thread, and no thread waits for another to hand it work. Only if a thread
//! has more connections than another has by [`LEAD_MAX`], it hands the new one over.
//!
//! A runtime whose threads steal work from each other wakes one of them for each event of another, to check
//! whether there is work to take. Measured on full clones of git/git, that cost five system calls each time
//! the socket was full, a fifth of the server's time. Here a connection stays with the thread that it was
//! given to.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// Walks of history go as deep as trees are nested. Only the part of a stack that is used takes memory.
pub(crate) const STACK_BYTES: usize = 32 << 20;
/// The lead in connections that a thread may have over another before it hands over new ones.
const LEAD_MAX: usize = 2;

/// A connection that is served.
type ServedConnection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The threads; they end when this is dropped.
pub(crate) struct Shards(Vec<Shard>);

struct Shard {
    handle: Handle,
    handed_over: UnboundedSender<ServedConnection>,
    connections: Arc<AtomicUsize>,
}

/// A connection that counts for a thread until this is dropped.
struct ShardLoad(Arc<AtomicUsize>);

impl ShardLoad {
    fn new(connections: &Arc<AtomicUsize>) -> ShardLoad {
        connections.fetch_add(1, Ordering::Relaxed);
        ShardLoad(connections.clone())
    }
}

impl Drop for ShardLoad {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a connection ends that was not counted");
    }
}

impl Shards {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// If a thread or its runtime cannot be started.
    pub(crate) fn start(count: usize) -> io::Result<Shards> {
        let start = |n| {
            let runtime =
                Builder::new_current_thread().enable_all().thread_stack_size(STACK_BYTES).build()?;
            let (handed_over, mut connections) = unbounded_channel::<ServedConnection>();
            let handle = runtime.handle().clone();
            let thread = std::thread::Builder::new().name(format!("serve-{n}")).stack_size(STACK_BYTES);
            thread.spawn(move || {
                runtime.block_on(async {
                    while let Some(connection) = connections.recv().await {
                        tokio::spawn(connection);
                    }
                });
            })?;
            Ok(Shard { handle, handed_over, connections: Arc::default() })
        };
        Ok(Shards((0..count.max(1)).map(start).collect::<io::Result<_>>()?))
    }

    /// Resolves when each thread has answered.
    pub(crate) async fn respond(&self) {
        let answers: Vec<_> = self.0.iter().map(|shard| shard.handle.spawn(async {})).collect();
        for answer in answers {
            let _ = answer.await;
        }
    }

    /// Has each thread run what `work` returns for its number, until that ends or the returned set is
    /// dropped.
    pub(crate) fn on_each<F: Future<Output = ()> + Send + 'static>(
        &self,
        work: impl Fn(usize) -> F,
    ) -> JoinSet<()> {
        let mut running = JoinSet::new();
        for (number, shard) in self.0.iter().enumerate() {
            running.spawn_on(work(number), &shard.handle);
        }
        running
    }

    /// Serves a connection on thread `number`, which calls this; on the one that has the fewest, if that has
    /// far fewer.
    pub(crate) fn serve(&self, number: usize, connection: impl Future<Output = ()> + Send + 'static) {
        let load = |shard: &Shard| shard.connections.load(Ordering::Relaxed);
        let own = &self.0[number];
        let idlest = self.0.iter().min_by_key(|shard| load(shard)).unwrap_or(own);
        let is_kept = load(own) <= load(idlest) + LEAD_MAX;
        let shard = if is_kept { own } else { idlest };
        let load = ShardLoad::new(&shard.connections);
        let serving = async move {
            let _load = load;
            connection.await;
        };
        if is_kept {
            tokio::spawn(serving);
        } else {
            // The thread ends only when this is dropped.
            let _ = shard.handed_over.send(Box::pin(serving));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_thread_that_is_ahead_hands_connections_over() {
        let shards = Arc::new(Shards::start(2).unwrap());
        let accepting = |number| {
            let shards = shards.clone();
            async move {
                for _ in 0..if number == 0 { 20 } else { 0 } {
                    shards.serve(number, std::future::pending());
                }
            }
        };
        shards.on_each(accepting).join_all().await;
        let loads: Vec<usize> =
            shards.0.iter().map(|shard| shard.connections.load(Ordering::Relaxed)).collect();
        assert_eq!(loads.iter().sum::<usize>(), 20);
        assert!(loads[0].abs_diff(loads[1]) <= LEAD_MAX + 1, "{loads:?}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_connection_that_has_ended_counts_no_more() {
        let shards = Arc::new(Shards::start(1).unwrap());
        let accepting = |number| {
            let shards = shards.clone();
            async move { shards.serve(number, async {}) }
        };
        shards.on_each(accepting).join_all().await;
        shards.respond().await;
        assert_eq!(shards.0[0].connections.load(Ordering::Relaxed), 0);
    }
}
