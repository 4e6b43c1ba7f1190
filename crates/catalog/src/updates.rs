//! Updates for hooks. They are kept with the visits that found them, until a hook has answered.

use weir_ground::Timestamp;

use crate::database::{Type, Value, values};
use crate::visit::{Outcome, Visit};
use crate::{Catalog, Result};

/// An update of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Its number: later updates have higher ones.
    pub id: i64,
    /// The number of the repository.
    pub repository_id: i64,
    /// The name of the repository.
    pub name: String,
    /// Its upstream.
    pub url: String,
    /// Where its archive lies, below the store.
    pub path: String,
    /// Number of the archive's last commit then.
    pub seq: i64,
    /// When it was recorded, in seconds since 1970.
    pub at: Timestamp,
}

/// Of `rows`, p1 is the repository, p2 the epoch, p3 the archive's commit, p4 the time, p5 the machine.
pub(crate) const KEEP_UPDATE: &str = "INSERT INTO updates (repository_id, seq, at, machine)
    SELECT rows.p1, rows.p3, rows.p4, rows.p5 FROM rows WHERE EXISTS
    (SELECT 1 FROM repositories WHERE id = rows.p1 AND epoch = rows.p2)";
pub(crate) const KEPT_UPDATE: [Type; 5] =
    [Type::Integer, Type::Integer, Type::Integer, Type::Integer, Type::Text];

impl Catalog {
    /// Keeps the updates that are recorded from now on for the hooks of `machine`.
    pub fn keep_updates_for(&mut self, machine: &str) {
        self.updates_for = Some(machine.to_owned());
    }

    /// Returns the rows for [`KEEP_UPDATE`].
    pub(crate) fn updates_of(&self, visits: &[Visit]) -> Vec<Vec<Value<'static>>> {
        let Some(machine) = &self.updates_for else { return Vec::new() };
        let row = |v: &Visit| match v.outcome {
            Outcome::Updated { seq, .. } => Some(values![v.id, v.epoch, seq, v.at, machine.clone()].to_vec()),
            _ => None,
        };
        visits.iter().filter_map(row).collect()
    }

    /// Returns at most `max` updates kept for `machine`, after number `after`, oldest first. Each of several
    /// workers takes the repositories whose number leaves `worker` when divided by `workers`, so that the
    /// updates of one repository stay in order.
    ///
    /// # Errors
    /// If the database fails.
    pub fn updates(
        &self,
        machine: &str,
        worker: usize,
        workers: usize,
        after: i64,
        max: usize,
    ) -> Result<Vec<Update>> {
        let sql = "SELECT u.id, r.id, r.name, r.url, r.path, u.seq, u.at FROM updates u JOIN repositories r \
            ON r.id = u.repository_id
                   WHERE u.machine = ?1 AND u.repository_id % ?3 = ?2 AND u.id > ?4 ORDER BY u.id LIMIT ?5";
        self.database.query(sql, &values![machine, worker, workers, after, max], |row| {
            Ok(Update {
                id: row.get(0)?,
                repository_id: row.get(1)?,
                name: row.get(2)?,
                url: row.get(3)?,
                path: row.get(4)?,
                seq: row.get(5)?,
                at: row.get(6)?,
            })
        })
    }

    /// Returns how many updates are kept for `machine`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn update_count(&self, machine: &str) -> Result<i64> {
        let sql = "SELECT count(*) FROM updates u JOIN repositories r ON r.id = u.repository_id WHERE \
            u.machine = ?1";
        Ok(self.database.query_one(sql, &values![machine], |row| row.get(0))?.unwrap_or(0))
    }

    /// Forgets an update, because a hook has received it.
    ///
    /// # Errors
    /// If the database fails.
    pub fn forget_update(&mut self, update: &Update) -> Result<()> {
        // The database may use the numbers of deleted rows again.
        let sql = "DELETE FROM updates WHERE id = ?1 AND repository_id = ?2 AND seq = ?3";
        self.database.execute(sql, &values![update.id, update.repository_id, update.seq]).map(|_| ())
    }

    /// Assigns all kept updates to the hooks of `machine`, because the catalog has moved.
    ///
    /// # Errors
    /// If the database fails.
    pub fn adopt_updates(&mut self, machine: &str) -> Result<()> {
        self.database.execute("UPDATE updates SET machine = ?1", &values![machine]).map(|_| ())
    }
}
