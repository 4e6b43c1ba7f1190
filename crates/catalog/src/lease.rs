//! Which machine works on which repository, and until when. Leases of visits are here, leases of looks at
//! what forges say around repositories in [`crate::metadata_schedule`]. A repository may have one lease of
//! each kind.
//!
//! Invariants of leases:
//! - Each lease of a kind gets a higher number, `epoch`, than all earlier ones of that repository. The
//!   number is never lower than the time of the lease, in seconds since 1970.
//! - A repository has both an owner and an end of its lease, or neither.
//! - The catalog accepts results of a visit (`renew`, `raise_epoch`, `record`, `history`, `events`) or a
//!   look (`extend_metadata_lease`, `end_metadata_look`) only if it names the current number. An archive
//!   refuses a writer with a lower number than the last one had (`weir_archive::Error::Fenced`).

use weir_ground::{Epoch, Timestamp};
use weir_sql::{Type, Value, values};

use crate::repository::{COLUMNS, Repository};
use crate::settings::AHEAD_MAX;
use crate::transactions::VISITS;
use crate::{Catalog, MetadataLooks, Result, Visits};

/// Tables with leases.
pub(crate) const LEASED: [&str; 2] = ["repositories", "metadata_looks"];

/// Which repositories to lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Which<'a> {
    /// Only those that are due.
    pub due_only: bool,
    /// Only those with these numbers.
    pub ids: Option<&'a [i64]>,
    /// Only those that no process has leased, the owner itself included.
    pub free_only: bool,
    /// Only those that go ahead of repositories that are only due.
    pub ahead_only: bool,
}

impl Visits<'_> {
    /// Leases at most `max` repositories to `owner` until `until`. Of those that are due, those with a
    /// priority come first, then those with a hint, then the most overdue. Leases of others that have not run
    /// out at `now` are respected. Leases of `owner` are renewed, unless `which` wants only free
    /// repositories.
    ///
    /// # Errors
    /// If the database fails.
    pub fn lease(
        &self,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
        which: &Which<'_>,
        max: usize,
    ) -> Result<Vec<Repository>> {
        if !which.due_only || (which.ids.is_some() && !which.ahead_only) {
            return self.lease_some(owner, now, until, which, max, "", &[]);
        }
        let mut leased = Vec::new();
        // Each is found by one lookup in an index, however many are due.
        for ahead in (1..=AHEAD_MAX).rev() {
            let ahead = format!("AND ahead > 0 AND ahead = {ahead}");
            leased.append(&mut self.lease_some(owner, now, until, which, max - leased.len(), &ahead, &[])?);
        }
        if which.ahead_only {
            return Ok(leased);
        }
        debug_assert!(leased.len() <= max, "{} were leased, {max} wanted", leased.len());
        let has: Vec<i64> = leased.iter().map(|r| r.id).collect();
        leased.append(&mut self.lease_some(owner, now, until, which, max - leased.len(), "", &has)?);
        Ok(leased)
    }

    /// Leases repositories that match `which` and the SQL condition `these`, the most overdue first. It
    /// leaves out those with the numbers `but`.
    #[allow(clippy::too_many_arguments)]
    fn lease_some(
        &self,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
        which: &Which<'_>,
        max: usize,
        these: &str,
        but: &[i64],
    ) -> Result<Vec<Repository>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        debug_assert!(now < until, "a lease from {now} until {until}");
        let due = if which.due_only { now } else { Timestamp::NEVER };
        let mut parameters = values![owner, until, due, now, max].to_vec();
        // Wait for repositories that are asked for by number.
        let (ids, locked) = which.ids.map_or(("", "FOR UPDATE SKIP LOCKED"), |ids| {
            parameters.push(Value::Integers(ids.to_vec()));
            ("AND id = ANY(?6)", "FOR UPDATE")
        });
        // Exclude by number: a condition that PostgreSQL cannot estimate keeps it from using the order of an
        // index.
        let mut without = String::new();
        if !but.is_empty() {
            parameters.push(Value::Integers(but.to_vec()));
            without = format!("AND NOT (id = ANY(?{}))", parameters.len());
        }
        // Epochs are no lower than the time. So if a repository is added again, or a catalog is restored from
        // a copy, leases get higher epochs than those that wrote the archive. With `free_only`, a lease of
        // `owner` that has run out counts as still under way.
        let (lapsed, own) =
            if which.free_only { ("AND lease_owner <> ?1", "") } else { ("", "OR lease_owner = ?1") };
        let sql = format!(
            "UPDATE repositories SET lease_owner = ?1, lease_until = ?2, epoch = GREATEST(epoch + 1, ?4) \
            WHERE id IN (
                 SELECT id FROM repositories WHERE enabled = 1 AND next_due <= ?3 {these} {ids} {without}
                 AND (lease_until IS NULL OR (lease_until <= ?4 {lapsed}) {own}) ORDER BY next_due LIMIT ?5
                 {locked})
             RETURNING {COLUMNS}"
        );
        let mut leased = self
            .catalog
            .database
            .transaction(VISITS, |db| db.query(&sql, &parameters, Repository::from_row))?;
        debug_assert!(
            leased.iter().all(|r| r.epoch.0 >= now.as_u64()),
            "an epoch is at least the time of the lease"
        );
        debug_assert!(leased.len() <= max, "{} were leased, {max} wanted", leased.len());
        leased.sort_by_key(|r| (r.next_due, r.id));
        Ok(leased)
    }

    /// Returns those of the repositories `ids` that are leased at `now` to others than `owner`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn leased_by_others(&self, ids: &[i64], owner: &str, now: Timestamp) -> Result<Vec<i64>> {
        let sql = "SELECT id FROM repositories WHERE id = ANY(?1) AND lease_owner <> ?2 AND lease_until > ?3";
        let values = [Value::Integers(ids.to_vec()), owner.into(), now.into()];
        Ok(self.catalog.database.query(sql, &values, |row| row.get(0))?)
    }

    /// Returns the numbers of at most `max` repositories that are due at `now`, leased, and ahead of what is
    /// only due, in the order in which they go.
    ///
    /// # Errors
    /// If the database fails.
    pub fn leased_ahead(&self, now: Timestamp, max: usize) -> Result<Vec<i64>> {
        let mut ids = Vec::new();
        // Each is found by one lookup in an index, as in `lease`.
        for ahead in (1..=AHEAD_MAX).rev() {
            let sql = format!(
                "SELECT id FROM repositories WHERE ahead > 0 AND ahead = {ahead} AND next_due <= ?1 AND \
                lease_until > ?1 ORDER BY next_due LIMIT ?2"
            );
            ids.append(
                &mut self.catalog.database.query(&sql, &values![now, max - ids.len()], |row| row.get(0))?,
            );
        }
        Ok(ids)
    }

    /// Extends leases until `until`. Each is the number of a repository and an epoch. Leases that have passed
    /// to another process stay with it.
    ///
    /// # Errors
    /// If the database fails.
    pub fn renew(&self, leases: &[(i64, Epoch)], until: Timestamp) -> Result<()> {
        let mut rows: Vec<Vec<Value<'_>>> =
            leases.iter().map(|(id, epoch)| values![*id, *epoch, until].to_vec()).collect();
        // In the same order everywhere, so that transactions do not wait for each other.
        rows.sort_by_key(|row| if let Value::Integer(id) = row[0] { id } else { 0 });
        let sql = "UPDATE repositories SET lease_until = rows.p3 FROM rows WHERE id = rows.p1 AND epoch = \
            rows.p2 AND lease_owner IS NOT NULL";
        Ok(self
            .catalog
            .database
            .transaction(VISITS, |db| db.execute_rows(sql, &[Type::Integer; 3], &rows))
            .map(|_| ())?)
    }

    /// Releases the leases of visits that `owner` has, without results.
    ///
    /// # Errors
    /// If the database fails.
    pub fn release(&self, owner: &str) -> Result<()> {
        self.catalog.end_leases("repositories", "lease_owner = ?1", &values![owner])
    }

    /// Releases the leases of visits of all owners whose name begins with `prefix`. The caller knows that
    /// none of them is alive.
    ///
    /// # Errors
    /// If the database fails.
    pub fn release_all(&self, prefix: &str) -> Result<()> {
        let parameters = values![prefix, prefix.chars().count()];
        self.catalog.end_leases("repositories", "substr(lease_owner, 1, ?2) = ?1", &parameters)
    }

    /// Records that the archive of repository `id`, which is leased with the number `epoch`, was written
    /// under a later lease, number `written`, that the catalog does not know. From now on the catalog gives
    /// higher numbers, and the repository is due at `now`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn raise_epoch(&self, id: i64, epoch: Epoch, written: Epoch, now: Timestamp) -> Result<()> {
        let sql =
            "UPDATE repositories SET epoch = ?3, lease_owner = NULL, lease_until = NULL, fingerprint = \
            NULL, next_due = ?4
                   WHERE id = ?1 AND epoch = ?2 AND epoch < ?3";
        Ok(self.catalog.database.execute(sql, &values![id, epoch, written, now]).map(|_| ())?)
    }

    /// Returns whether a repository is due at `now` that no process has leased. It may do so although a lease
    /// got nothing, because a lease skips rows that another process is writing.
    ///
    /// # Errors
    /// If the database fails.
    pub fn is_any_due(&self, now: Timestamp) -> Result<bool> {
        let sql =
            "SELECT id FROM repositories WHERE enabled = 1 AND next_due <= ?1 AND (lease_until IS NULL \
            OR lease_until <= ?1)
                   ORDER BY next_due LIMIT 1";
        Ok(self.catalog.database.query_one(sql, &values![now], |row| row.get::<i64>(0))?.is_some())
    }

    /// Returns when the next repository is due.
    ///
    /// # Errors
    /// If the database fails.
    pub fn next_due(&self) -> Result<Option<Timestamp>> {
        let sql = "SELECT min(next_due) FROM repositories WHERE enabled = 1";
        Ok(self.catalog.database.query_one(sql, &[], |row| row.get(0))?.flatten())
    }
}

impl MetadataLooks<'_> {
    /// Releases the leases of looks, as [`Visits::release_all`] does those of visits.
    ///
    /// # Errors
    /// If the database fails.
    pub fn release_all(&self, prefix: &str) -> Result<()> {
        let parameters = values![prefix, prefix.chars().count()];
        self.catalog.end_leases("metadata_looks", "substr(lease_owner, 1, ?2) = ?1", &parameters)
    }
}

impl Catalog {
    /// Ends the leases in `table` that match the SQL condition `these`.
    fn end_leases(&self, table: &str, these: &str, parameters: &[Value<'_>]) -> Result<()> {
        let sql = format!("UPDATE {table} SET lease_owner = NULL, lease_until = NULL WHERE {these}");
        Ok(self.database.transaction(VISITS, |db| db.execute(&sql, parameters)).map(|_| ())?)
    }
}
