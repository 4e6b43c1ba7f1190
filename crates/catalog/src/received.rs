//! What senders told of: events from outside, with what became of each.

use serde::Serialize;
use weir_ground::Timestamp;

use crate::database::{Row, TransactionKind, Type, Value, values};
use crate::due::hinted;
use crate::{Catalog, Result};

/// What became of an event from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A repository is due because of it.
    Due,
    /// It names no repository that is mirrored here.
    Unknown,
    /// It cannot be understood.
    Bad,
}

impl Verdict {
    const ALL: [Verdict; 3] = [Verdict::Due, Verdict::Unknown, Verdict::Bad];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Due => "due",
            Verdict::Unknown => "unknown",
            Verdict::Bad => "bad",
        }
    }
}

/// An event from outside, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceivedEvent {
    /// Its number: later ones have higher numbers.
    pub id: i64,
    /// When it came, in milliseconds since 1970.
    pub at_ms: i64,
    /// Who sent it.
    pub peer: String,
    /// What came. Bytes that are not UTF-8 are replaced.
    pub line: String,
    /// What became of it.
    pub verdict: Verdict,
    /// The repository that it is about, or what it names in place of one; the reason, if it is bad.
    pub subject: String,
}

impl ReceivedEvent {
    /// Returns the row for [`KEEP`] of the event with number `n` of a batch.
    fn row(&self, n: usize) -> Vec<Value<'_>> {
        let ReceivedEvent { at_ms, peer, line, verdict, subject, .. } = self;
        values![*at_ms, peer.as_str(), line.as_str(), verdict.name(), subject.as_str(), n].into()
    }
}

/// A place in a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolPosition {
    /// The id of the spool.
    pub spool: String,
    /// The number of the last record that is in the catalog.
    pub position: u64,
}

/// Of `rows`, p1 is the time, p2 the peer, p3 the line, p4 the verdict, p5 the subject, and p6 its place.
const KEEP: &str = "INSERT INTO received (at_ms, peer, line, verdict, subject)
    SELECT rows.p1, rows.p2, rows.p3, rows.p4, rows.p5 FROM rows WHERE rows.p6 >= 0 ORDER BY rows.p6";
const KEPT: [Type; 6] = [Type::Integer, Type::Text, Type::Text, Type::Text, Type::Text, Type::Integer];

impl Catalog {
    /// Returns the number of the last record of `spool` that is in the catalog; 0 if there is none.
    ///
    /// # Errors
    /// If the database fails.
    pub fn spool_position(&self, spool: &str) -> Result<u64> {
        let sql = "SELECT position FROM spools WHERE spool = ?1";
        let position = self.database.query_one(sql, &values![spool], |row| row.get::<i64>(0))?;
        Ok(position.unwrap_or(0).unsigned_abs())
    }

    /// Takes events, makes the repositories `due` due, and notes the `place` in the spool that they come
    /// from: all or nothing, so that each event is taken once. A power failure may undo it, until
    /// [`Catalog::sync_received`]. The ids of `events` do not count.
    ///
    /// # Errors
    /// If the database fails.
    pub fn take_received(
        &mut self,
        place: Option<&SpoolPosition>,
        events: &[ReceivedEvent],
        due: &[i64],
        now: Timestamp,
    ) -> Result<()> {
        let rows: Vec<Vec<Value<'_>>> = events.iter().enumerate().map(|(n, event)| event.row(n)).collect();
        let make_due =
            concat!("UPDATE repositories SET ", hinted!("?2"), " WHERE id = ANY(?1) AND enabled = 1");
        let note = "INSERT INTO spools (spool, position) VALUES (?1, ?2)
            ON CONFLICT (spool) DO UPDATE SET position = excluded.position";
        self.database.transaction(TransactionKind::Visits, |db| {
            if !due.is_empty() {
                db.execute(make_due, &[Value::Integers(due.to_vec()), now.into()])?;
            }
            db.execute_rows(KEEP, &KEPT, &rows)?;
            match place {
                Some(place) => db.execute(note, &values![place.spool.as_str(), place.position]).map(drop),
                None => Ok(()),
            }
        })?;
        Ok(())
    }

    /// Syncs what was taken: not even a power failure undoes it.
    ///
    /// # Errors
    /// If the database fails.
    pub fn sync_received(&mut self, place: &SpoolPosition) -> Result<()> {
        let note = "UPDATE spools SET position = ?2 WHERE spool = ?1";
        self.database.durably(TransactionKind::Visits, |db| {
            db.execute(note, &values![place.spool.as_str(), place.position])
        })?;
        Ok(())
    }

    /// Returns the last `max` events from outside after number `after`, oldest first; of one verdict, if it
    /// is given.
    ///
    /// # Errors
    /// If the database fails.
    pub fn received(&self, after: i64, verdict: Option<Verdict>, max: usize) -> Result<Vec<ReceivedEvent>> {
        let sql = "SELECT id, at_ms, peer, line, verdict, subject FROM received
            WHERE id > ?1 AND (?2 = '' OR verdict = ?2) ORDER BY id DESC LIMIT ?3";
        let verdict = verdict.map_or("", Verdict::name);
        let mut found = self.database.query(sql, &values![after, verdict, max], received)?;
        found.reverse();
        Ok(found)
    }

    /// Returns the event from outside with number `id`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn received_one(&self, id: i64) -> Result<Option<ReceivedEvent>> {
        let sql = "SELECT id, at_ms, peer, line, verdict, subject FROM received WHERE id = ?1";
        self.database.query_one(sql, &values![id], received)
    }

    /// Returns the number of the last event from outside; 0 if there was none.
    ///
    /// # Errors
    /// If the database fails.
    pub fn last_received(&self) -> Result<i64> {
        let sql = "SELECT max(id) FROM received";
        Ok(self.database.query_one(sql, &[], |row| row.get::<Option<i64>>(0))?.flatten().unwrap_or(0))
    }

    /// Deletes events from outside that came before `before`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn trim_received(&self, before: Timestamp) -> Result<()> {
        let sql = "DELETE FROM received WHERE id IN (SELECT id FROM received ORDER BY id LIMIT ?2)
            AND at_ms < ?1";
        let before_ms = before.0.saturating_mul(1000);
        while self.database.execute(sql, &values![before_ms, DELETED_AT_ONCE])? == DELETED_AT_ONCE {}
        Ok(())
    }

    /// Returns the numbers of the repositories with these names.
    ///
    /// # Errors
    /// If the database fails.
    pub fn ids_of_names(&self, names: &[&str]) -> Result<Vec<(String, i64)>> {
        let sql = "SELECT name, id FROM repositories WHERE name = ANY(?1)";
        self.database.query(sql, &[Value::Texts(names.to_vec())], |row| Ok((row.get(0)?, row.get(1)?)))
    }
}

/// The number of old events that one statement deletes.
const DELETED_AT_ONCE: u64 = 1000;

fn received(row: &Row<'_>) -> Result<ReceivedEvent> {
    let verdict: String = row.get(4)?;
    let verdict = Verdict::ALL.into_iter().find(|known| known.name() == verdict);
    Ok(ReceivedEvent {
        id: row.get(0)?,
        at_ms: row.get(1)?,
        peer: row.get(2)?,
        line: row.get(3)?,
        verdict: verdict.unwrap_or(Verdict::Bad),
        subject: row.get(5)?,
    })
}
