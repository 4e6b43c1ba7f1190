//! Databases that are kept for the next queries about the same repositories.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::query::database::QueryDatabase;

/// The most files.
const COUNT_MAX: usize = 8;
/// How long a file is kept that nobody asks for.
const TIME_MAX: Duration = Duration::from_secs(600);

/// The repositories of a database, each with a sum of its state.
pub type QueryKey = Vec<(String, [u8; 32])>;

/// Databases that no query uses now.
pub struct KeptDatabases {
    /// The most bytes of all files.
    bytes_max: u64,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    /// The one that was used last is the last.
    list: Vec<KeptDatabase>,
    has_sweeper: bool,
}

struct KeptDatabase {
    key: QueryKey,
    database: QueryDatabase,
    bytes: u64,
    used_at: Instant,
}

impl KeptDatabases {
    /// Returns a collection that keeps at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> KeptDatabases {
        KeptDatabases { bytes_max, shelf: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a database of `key`, if there is one.
    pub fn take(&self, key: &QueryKey) -> Option<QueryDatabase> {
        let list = &mut self.lock().list;
        let at = list.iter().position(|kept| kept.key == *key)?;
        Some(list.remove(at).database)
    }

    /// Keeps a database. Those that were not used for the longest time are dropped for it. Returns whether
    /// nobody calls [`KeptDatabases::sweep`] from time to time: the caller is to, until that returns false.
    pub fn put(&self, key: QueryKey, database: QueryDatabase) -> bool {
        let (bytes, used_at) = (database.bytes(), Instant::now());
        let shelf = &mut *self.lock();
        shelf.list.push(KeptDatabase { key, database, bytes, used_at });
        let sum = |list: &[KeptDatabase]| list.iter().map(|kept| kept.bytes).sum::<u64>();
        while shelf.list.len() > COUNT_MAX || sum(&shelf.list) > self.bytes_max {
            shelf.list.remove(0);
        }
        !std::mem::replace(&mut shelf.has_sweeper, true)
    }

    /// Drops what nobody has used for a while. Returns whether anything is left.
    pub fn sweep(&self) -> bool {
        let shelf = &mut *self.lock();
        shelf.list.retain(|kept| kept.used_at.elapsed() < TIME_MAX);
        shelf.has_sweeper = !shelf.list.is_empty();
        shelf.has_sweeper
    }
}
