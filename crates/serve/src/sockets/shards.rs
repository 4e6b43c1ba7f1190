//! Threads that each run connections of their own.
//!
//! A thread takes all connections that came since it looked last: to spawn each on its runtime from outside
//! would wake it once for each.
//!
//! A runtime whose threads steal work from each other wakes one of them for each event of another, to check
//! whether there is work to take. Measured on full clones of git/git, that cost five system calls each time
//! the socket was full, a fifth of the server's time. Here a connection stays with the thread that it was
//! given to.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Walks of history go as deep as trees are nested. Only the part of a stack that is used takes memory.
pub(crate) const STACK_BYTES: usize = 32 << 20;

/// A connection that is served.
type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The threads; they end when this is dropped.
pub(crate) struct Shards {
    list: Vec<(Handle, UnboundedSender<Serving>)>,
    next: AtomicUsize,
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
            let (sender, mut connections) = unbounded_channel::<Serving>();
            let handle = runtime.handle().clone();
            let thread = std::thread::Builder::new().name(format!("serve-{n}")).stack_size(STACK_BYTES);
            thread.spawn(move || {
                runtime.block_on(async {
                    while let Some(connection) = connections.recv().await {
                        tokio::spawn(connection);
                    }
                });
            })?;
            Ok((handle, sender))
        };
        Ok(Shards {
            list: (0..count.max(1)).map(start).collect::<io::Result<_>>()?,
            next: AtomicUsize::new(0),
        })
    }

    /// Resolves when each thread has answered.
    pub(crate) async fn respond(&self) {
        let answers: Vec<_> = self.list.iter().map(|(thread, _)| thread.spawn(async {})).collect();
        for answer in answers {
            let _ = answer.await;
        }
    }

    /// Has the thread whose turn it is serve a connection.
    pub(crate) fn serve(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.list.len();
        // The thread ends only when this is dropped.
        let _ = self.list[turn].1.send(Box::pin(connection));
    }
}
