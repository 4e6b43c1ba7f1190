//! Requests of users: settings of single repositories, and visits at once.

use weir_ground::Timestamp;
use weir_sql::{Type, Value, values};

use crate::due::{at_the_latest, due, hinted};
use crate::repository::{COLUMNS, Repository};
use crate::settings::{PRIORITY_MAX, Settings};
use crate::transactions::VISITS;
use crate::{Catalog, Result, Visits};

/// How many repositories are changed in one transaction.
const CHANGED_AT_ONCE: usize = 5_000;

/// Changes settings. Of `rows`, p1 is the number, p2 the priority, p3 the settings, p4 when it is due at the
/// latest, p5 how far it goes ahead by its priority alone, and p6 whether metadata is wanted.
const CHANGE: &str = concat!(
    "UPDATE repositories SET priority = rows.p2, settings = rows.p3, metadata_wanted = rows.p6, ",
    due!("rows.p4"),
    ", ahead = GREATEST(rows.p5, CASE WHEN ahead = 1 THEN 1 ELSE 0 END) FROM rows WHERE id = rows.p1"
);
const CHANGED: [Type; 6] = {
    use Type::{Integer, Text};
    [Integer, Integer, Text, Integer, Integer, Integer]
};

impl Catalog {
    /// Changes the priority and the settings of the repositories with these numbers. `change` gets the values
    /// as they are at that moment. The repositories are due at `due` at the latest, also after a visit that
    /// is under way; [`Timestamp::NEVER`] leaves them as they are. A repository that is leased and waits is
    /// visited with its old settings. Some thousands are changed at a time, so that other transactions come
    /// in between.
    ///
    /// # Errors
    /// If the database fails.
    pub fn change_settings(
        &self,
        ids: &[i64],
        due: Timestamp,
        change: &dyn Fn(&mut i64, &mut Settings),
    ) -> Result<()> {
        let mut ids = ids.to_vec();
        // In the same order everywhere, so that transactions do not wait for each other.
        ids.sort_unstable();
        for ids in ids.chunks(CHANGED_AT_ONCE) {
            self.database.transaction(VISITS, |db| {
                let sql = "SELECT id, priority, settings FROM repositories WHERE id = ANY(?1) ORDER BY id \
                    FOR UPDATE";
                let rows = db.query(sql, &[Value::Integers(ids.to_vec())], |row| {
                    let (id, mut priority, text) =
                        (row.get::<i64>(0)?, row.get::<i64>(1)?, row.get::<Option<String>>(2)?);
                    let mut settings = Settings::from_json(text.as_deref());
                    change(&mut priority, &mut settings);
                    let priority = priority.clamp(0, PRIORITY_MAX);
                    let text = (!settings.is_empty())
                        .then(|| serde_json::to_string(&settings).expect("numbers and words are JSON"));
                    let ahead = if priority > 0 { priority + 1 } else { 0 };
                    let metadata = settings.metadata.map(i64::from);
                    Ok(values![id, priority, text, due, ahead, metadata].to_vec())
                })?;
                db.execute_rows(CHANGE, &CHANGED, &rows).map(|_| ())
            })?;
        }
        Ok(())
    }

    /// Returns the repositories that have a priority or settings of their own, the highest priority first.
    ///
    /// # Errors
    /// If the database fails.
    pub fn with_settings(&self) -> Result<Vec<Repository>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM repositories WHERE priority > 0 OR settings IS NOT NULL ORDER BY priority \
            DESC, name"
        );
        Ok(self.database.query(&sql, &[], Repository::from_row)?)
    }
}

impl Visits<'_> {
    /// Makes the repositories with these numbers due, because they have changed upstream. They go before
    /// those that are only overdue. Returns how many of them are visited at all.
    ///
    /// # Errors
    /// If the database fails.
    pub fn hint(&self, ids: &[i64], now: Timestamp) -> Result<u64> {
        let sql = concat!("UPDATE repositories SET ", hinted!("?2"), " WHERE id = ANY(?1) AND enabled = 1");
        let parameters = [Value::Integers(ids.to_vec()), now.into()];
        Ok(self.catalog.database.transaction(VISITS, |db| db.execute(sql, &parameters))?)
    }

    /// Makes a repository due as [`Visits::hint`] does. Returns whether a visit is under way, which may have
    /// begun before; `None` if the repository is not visited at all.
    ///
    /// # Errors
    /// If the database fails.
    pub fn hint_one(&self, id: i64, now: Timestamp) -> Result<Option<bool>> {
        let sql = concat!(
            "UPDATE repositories SET ",
            hinted!("?2"),
            " WHERE id = ?1 AND enabled = 1 RETURNING CASE WHEN lease_until > ?2 THEN 1 ELSE 0 END"
        );
        Ok(self.catalog.database.transaction(VISITS, |db| {
            db.query_one(sql, &[Value::Integer(id), now.into()], |row| Ok(row.get::<i64>(0)? != 0))
        })?)
    }

    /// Returns whether a visit to a repository is under way.
    ///
    /// # Errors
    /// If the database fails.
    pub fn is_under_way(&self, id: i64, now: Timestamp) -> Result<bool> {
        let sql = "SELECT 1 FROM repositories WHERE id = ?1 AND lease_until > ?2";
        let found = self
            .catalog
            .database
            .query_one(sql, &[Value::Integer(id), now.into()], |row| row.get::<i64>(0))?;
        Ok(found.is_some())
    }

    /// Makes the repositories with these numbers due, as their intervals do: they go before no others. Those
    /// whose last visit failed stay as they are.
    ///
    /// # Errors
    /// If the database fails.
    pub fn make_due(&self, ids: &[i64], now: Timestamp) -> Result<()> {
        let sql = concat!(
            "UPDATE repositories SET ",
            at_the_latest!("?2"),
            " WHERE id = ANY(?1) AND enabled = 1 AND failures = 0"
        );
        for ids in ids.chunks(CHANGED_AT_ONCE) {
            let parameters = [Value::Integers(ids.to_vec()), now.into()];
            self.catalog.database.transaction(VISITS, |db| db.execute(sql, &parameters))?;
        }
        Ok(())
    }
}
