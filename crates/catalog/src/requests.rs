//! What somebody asks for: settings of single repositories, and visits at once.

use weir_ground::Timestamp;

use crate::database::{TransactionKind, Type, Value, values};
use crate::due::{due, hinted};
use crate::repository::{COLUMNS, Repository};
use crate::settings::{PRIORITY_MAX, Settings};
use crate::{Catalog, Result};

/// Repositories whose settings are changed at once.
const CHANGED_AT_ONCE: usize = 5_000;

/// Number, priority, settings, when it is due at the latest, and how far it goes ahead by its priority alone.
/// Last, whether metadata is wanted.
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
    /// Changes the priority of the repositories with these numbers, and what is said of each alone, from what
    /// it is at that moment; they are due at `due` at the latest, also after a visit that is under way;
    /// [`Timestamp::NEVER`] leaves them as they are. What is leased and waits is visited as it was. Some
    /// thousands at a time, so that others come in between.
    ///
    /// # Errors
    /// If the database fails.
    pub fn change_settings(
        &mut self,
        ids: &[i64],
        due: Timestamp,
        change: &dyn Fn(&mut i64, &mut Settings),
    ) -> Result<()> {
        let mut ids = ids.to_vec();
        // In one order everywhere, so that nobody waits for each other.
        ids.sort_unstable();
        for ids in ids.chunks(CHANGED_AT_ONCE) {
            self.database.transaction(TransactionKind::Visits, |db| {
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

    /// Somebody says that the repositories with these numbers have changed upstream: they are due, before
    /// those that are only overdue. Returns how many are visited at all.
    ///
    /// # Errors
    /// If the database fails.
    pub fn hint(&mut self, ids: &[i64], now: Timestamp) -> Result<u64> {
        let sql = concat!("UPDATE repositories SET ", hinted!("?2"), " WHERE id = ANY(?1) AND enabled = 1");
        let parameters = [Value::Integers(ids.to_vec()), now.into()];
        self.database.transaction(TransactionKind::Visits, |db| db.execute(sql, &parameters))
    }

    /// Repositories with a priority, the highest first, or of which something is said alone.
    ///
    /// # Errors
    /// If the database fails.
    pub fn with_settings(&self) -> Result<Vec<Repository>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM repositories WHERE priority > 0 OR settings IS NOT NULL ORDER BY priority \
            DESC, name"
        );
        self.database.query(&sql, &[], Repository::from_row)
    }
}
