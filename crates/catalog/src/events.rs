//! The log of events: what happened in a pool, in order. Several readers follow it, each at its own pace; the
//! catalog keeps the position of each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_ground::{FailureClass, Timestamp};
use weir_sql::{Row, Type, Value, values};

use crate::transactions::{EVENTS_LOCK, VISITS};
use crate::{Catalog, EventLog, Result};

/// The maximum number of changed refs that an update names.
pub const REFS_NAMED_MAX: usize = 100;

/// The number of old events that one statement deletes: others may write in between.
const DELETED_AT_ONCE: u64 = 1000;

/// An event in a pool: a visit that ended, a pause, a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolEvent {
    /// The time of the event, in seconds since 1970.
    pub time: Timestamp,
    /// The repository that the event concerns, if it concerns one.
    #[serde(flatten)]
    pub subject: Option<EventSubject>,
    /// The kind of event, with its details.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The repository that an event concerns, with the name that it had at the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSubject {
    /// Its number.
    #[serde(skip)]
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its upstream, without a password.
    pub url: String,
}

/// The kind of an event, with its details. The catalog stores it as JSON with the kind under `event`. A name
/// that is used here never gets another meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A visit has made or updated an archive.
    Update(ArchiveUpdate),
    /// A visit has found nothing new.
    Unchanged(VisitFacts),
    /// A visit has failed.
    Failed(VisitFailure),
    /// Visits pause.
    Paused {
        /// The host whose visits pause; `None` if all visits pause.
        host: Option<String>,
        /// The reason.
        cause: String,
        /// The end of the pause, in seconds since 1970.
        until: Timestamp,
    },
    /// The cause of a pause of all visits is gone.
    Resumed,
    /// A run has ended early, because all visits would pause.
    Left {
        /// The reason.
        cause: String,
        /// The number of repositories that the run did not visit.
        left: usize,
    },
    /// The repositories of a forge were listed.
    Listed {
        /// The forge.
        forge: String,
        /// The number of repositories that it lists.
        listed: u64,
        /// The number of them that weir registered.
        added: u64,
        /// The number of mirrored repositories that it no longer lists.
        gone: u64,
    },
    /// The repositories of a forge could not be listed.
    ListingFailed {
        /// The forge.
        forge: String,
        /// The failure in words.
        error: String,
    },
    /// weir fetched the issues, pull requests and releases of a repository: some were new, or it failed.
    Metadata {
        /// The number of new items, by stream.
        added: BTreeMap<String, u64>,
        /// The failure in words.
        error: Option<String>,
    },
    /// Repositories were mined.
    Mined {
        /// The number of repositories whose rows were written.
        mined: u64,
        /// The number of those that are unchanged.
        unchanged: u64,
        /// The number of those that could not be mined.
        failed: u64,
    },
}

/// The update of an archive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArchiveUpdate {
    /// The number of the archive's last commit.
    pub seq: u64,
    /// Whether it is the first clone.
    pub is_new: bool,
    /// The number of refs that are new.
    pub refs_added: usize,
    /// The number of refs that have another id.
    pub refs_updated: usize,
    /// The number of refs that the upstream deleted.
    pub refs_deleted: usize,
    /// The refs that changed; none of a first clone, and of others at most [`REFS_NAMED_MAX`].
    pub refs: Vec<RefUpdate>,
    /// The number of objects that were added.
    pub objects_added: u64,
    /// The number of bytes that were added.
    pub bytes_appended: u64,
    /// The details that every successful visit has.
    #[serde(flatten)]
    pub visit: VisitFacts,
}

/// A ref that has changed. Ids are in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefUpdate {
    /// Its name. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// The id that it had before; `None` if the ref is new.
    pub old: Option<String>,
    /// The id that it has now; `None` if the upstream deleted the ref.
    pub new: Option<String>,
}

/// The details of a successful visit, besides an update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VisitFacts {
    /// How long it took.
    pub seconds: f64,
    /// The class of the failure of the visit before, if that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered_from: Option<FailureClass>,
    /// Where the damaged archive is kept that was cloned again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<PathBuf>,
    /// The commits of the archive that were lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostFacts>,
    /// The files of Git LFS, if they are mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lfs: Option<LfsFacts>,
    /// The names of refs that git does not allow, and that were not taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

/// Commits of an archive that were lost to damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFacts {
    /// The number of the first.
    pub first: u64,
    /// The number of the last.
    pub last: u64,
    /// Whether they were surely finished; otherwise they may never have been.
    pub certain: bool,
    /// The file with the remains, if there are any.
    pub kept: Option<PathBuf>,
    /// Their refs that lead to objects no longer here: name and id.
    pub refs: Vec<String>,
    /// A description of the lost data, for a person.
    pub text: String,
}

/// The files of Git LFS that a visit has fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LfsFacts {
    /// The number of files that were added.
    pub added: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of files that could not be had.
    pub absent: u64,
    /// Whether the next visit tries again to fetch some.
    pub incomplete: bool,
}

/// The failure of a visit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VisitFailure {
    /// Its class.
    pub class: FailureClass,
    /// The failure in words.
    pub error: String,
    /// The host of the upstream, if the failure may be the host's.
    pub host: Option<String>,
    /// The class of the failure of the visit before, if that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_before: Option<FailureClass>,
    /// The setting of `[transport]` that limits the time the upstream took too long for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<String>,
    /// How long the visit took.
    pub seconds: f64,
}

impl EventKind {
    /// The names of all kinds.
    pub const NAMES: [&str; 10] = [
        "update",
        "unchanged",
        "failed",
        "paused",
        "resumed",
        "left",
        "listed",
        "listing_failed",
        "metadata",
        "mined",
    ];

    /// Returns its name, as the JSON has it.
    pub const fn name(&self) -> &'static str {
        match self {
            EventKind::Update(_) => "update",
            EventKind::Unchanged(_) => "unchanged",
            EventKind::Failed(_) => "failed",
            EventKind::Paused { .. } => "paused",
            EventKind::Resumed => "resumed",
            EventKind::Left { .. } => "left",
            EventKind::Listed { .. } => "listed",
            EventKind::ListingFailed { .. } => "listing_failed",
            EventKind::Metadata { .. } => "metadata",
            EventKind::Mined { .. } => "mined",
        }
    }

    /// Returns the details of the visit, if it was a successful one.
    pub fn facts(&self) -> Option<&VisitFacts> {
        match self {
            EventKind::Update(update) => Some(&update.visit),
            EventKind::Unchanged(facts) => Some(facts),
            _ => None,
        }
    }

    /// Returns whether the log keeps the event. It keeps no visit that ended as the one before.
    pub fn is_news(&self) -> bool {
        match self {
            EventKind::Unchanged(VisitFacts { recovered_from, damaged, lost, .. }) => {
                recovered_from.is_some() || damaged.is_some() || lost.is_some()
            }
            EventKind::Failed(failure) => failure.failed_before != Some(failure.class),
            _ => true,
        }
    }

    fn json(&self) -> String {
        serde_json::to_string(self).expect("an event has no maps with other keys than text")
    }
}

/// An event of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoggedEvent {
    /// Its number: later events have higher ones.
    pub id: i64,
    /// The event.
    #[serde(flatten)]
    pub event: PoolEvent,
    /// Where the archive of the repository lies below the store, if the catalog has the repository still.
    #[serde(skip)]
    pub path: Option<String>,
}

/// One of the readers that share a name: each takes the repositories whose number leaves `part` when divided
/// by `parts`, so that one of them reads all events of a repository in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventReader {
    /// The name.
    pub name: String,
    /// Which of them it is.
    pub part: usize,
    /// How many they are.
    pub parts: usize,
    /// The names of the kinds of events that it reads.
    pub kinds: Vec<String>,
}

/// Of `rows`, p1 is the repository, p2 the epoch, p3 the time, p4 the machine, p5 and p6 the repository's
/// name and URL, p7 the kind, p8 its JSON, and p9 its place among them: numbers follow it.
pub(crate) const KEEP_EVENT: &str = "INSERT INTO events (repository_id, at, machine, name, url, kind, body)
    SELECT rows.p1, rows.p3, rows.p4, rows.p5, rows.p6, rows.p7, rows.p8 FROM rows WHERE EXISTS
    (SELECT 1 FROM repositories WHERE id = rows.p1 AND epoch = rows.p2) ORDER BY rows.p9";
pub(crate) const KEPT_EVENT: [Type; 9] = {
    use Type::{Integer, Text};
    [Integer, Integer, Integer, Text, Text, Text, Text, Text, Integer]
};

/// The columns of an event, with the path of the repository's archive.
const COLUMNS: &str = "e.id, e.at, e.repository_id, e.name, e.url, e.body, r.path";

impl Catalog {
    /// Says which machine this is: the events that it records are its own.
    pub fn set_machine(&mut self, machine: &str) {
        machine.clone_into(&mut self.machine);
    }
}

impl EventLog<'_> {
    /// Returns the columns of `event`: the time, the machine, the repository's name and URL, kind and JSON.
    pub(crate) fn columns_of(&self, event: &PoolEvent) -> [Value<'static>; 6] {
        let PoolEvent { time, subject, kind } = event;
        let (name, url) = subject.as_ref().map(|s| (s.name.clone(), s.url.clone())).unzip();
        values![*time, self.catalog.machine.clone(), name, url, kind.name(), kind.json()]
    }

    /// Appends an event that is about no visit to the log.
    ///
    /// # Errors
    /// If the database fails.
    pub fn log(&self, event: &PoolEvent) -> Result<()> {
        let row = self.columns_of(event);
        let sql = "INSERT INTO events (at, machine, name, url, kind, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        self.catalog.database.transaction(VISITS, |db| {
            db.wait_for_others(EVENTS_LOCK)?;
            db.execute(sql, &row)
        })?;
        Ok(())
    }

    /// Keeps the log for `reader` from now on, and returns the number of the last event that it has read. A
    /// new reader begins at the end. If there were other `parts` before, each begins where the last of those
    /// stood, so that events may come again, but none is passed over.
    ///
    /// # Errors
    /// If the database fails.
    pub fn open_reader(&self, reader: &EventReader) -> Result<i64> {
        let EventReader { name, part, parts, .. } = reader;
        let machine = self.catalog.machine.clone();
        self.catalog.database.transaction(VISITS, |db| {
            db.wait_for_others(EVENTS_LOCK)?;
            let own = "SELECT position FROM event_readers \
                WHERE name = ?1 AND machine = ?2 AND part = ?3 AND parts = ?4";
            let of_own = values![name.as_str(), machine.as_str(), *part, *parts];
            if let Some(position) = db.query_one(own, &of_own, |row| row.get(0))? {
                return Ok(position);
            }
            let others = "SELECT min(position) FROM event_readers WHERE name = ?1 AND machine = ?2";
            let of_others = values![name.as_str(), machine.as_str()];
            let before: Option<i64> = db.query_one(others, &of_others, |row| row.get(0))?.flatten();
            let position = match before {
                Some(position) => position,
                None => db
                    .query_one("SELECT max(id) FROM events", &[], |row| row.get::<Option<i64>>(0))?
                    .flatten()
                    .unwrap_or(0),
            };
            let forget = "DELETE FROM event_readers WHERE name = ?1 AND machine = ?2 AND parts <> ?3";
            let add = "INSERT INTO event_readers (name, machine, part, parts, position) \
                VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
            for part in 0..*parts {
                db.execute(add, &values![name.as_str(), machine.as_str(), part, *parts, position])?;
            }
            db.execute(forget, &values![name.as_str(), machine.as_str(), *parts])?;
            Ok(position)
        })
    }

    /// Forgets all readers called `name`: the log is no longer kept for them.
    ///
    /// # Errors
    /// If the database fails.
    pub fn forget_readers(&self, name: &str) -> Result<()> {
        let sql = "DELETE FROM event_readers WHERE name = ?1 AND machine = ?2";
        Ok(self.catalog.database.execute(sql, &values![name, self.catalog.machine.as_str()]).map(|_| ())?)
    }

    /// Returns at most `max` events of this machine for `reader` after number `after`, oldest first.
    ///
    /// # Errors
    /// If the database fails, or an event in it cannot be read.
    pub fn after(&self, reader: &EventReader, after: i64, max: usize) -> Result<Vec<LoggedEvent>> {
        let EventReader { part, parts, kinds, .. } = reader;
        let sql = format!(
            "SELECT {COLUMNS} FROM events e LEFT JOIN repositories r ON r.id = e.repository_id \
            WHERE e.id > ?1 AND e.machine = ?2 AND coalesce(e.repository_id, 0) % ?4 = ?3 \
            AND e.kind = ANY(?5) ORDER BY e.id LIMIT ?6"
        );
        let kinds = Value::Texts(kinds.iter().map(String::as_str).collect());
        let given = values![after, self.catalog.machine.as_str(), *part, *parts, kinds, max];
        Ok(self.catalog.database.query(&sql, &given, logged)?.into_iter().flatten().collect())
    }

    /// Returns the number of events that wait for `reader`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn waiting(&self, reader: &EventReader) -> Result<i64> {
        let EventReader { name, part, parts, kinds } = reader;
        let sql = "SELECT count(*) FROM events e WHERE e.id > (SELECT position FROM event_readers \
            WHERE name = ?1 AND machine = ?2 AND part = ?3 AND parts = ?4) \
            AND e.machine = ?2 AND coalesce(e.repository_id, 0) % ?4 = ?3 AND e.kind = ANY(?5)";
        let kinds = Value::Texts(kinds.iter().map(String::as_str).collect());
        let given = values![name.as_str(), self.catalog.machine.as_str(), *part, *parts, kinds];
        Ok(self.catalog.database.query_one(sql, &given, |row| row.get(0))?.unwrap_or(0))
    }

    /// Records that `reader` is done with all events up to number `position`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn set_position(&self, reader: &EventReader, position: i64) -> Result<()> {
        let EventReader { name, part, parts, .. } = reader;
        let sql = "UPDATE event_readers SET position = ?5 \
            WHERE name = ?1 AND machine = ?2 AND part = ?3 AND parts = ?4 AND position < ?5";
        let given = values![name.as_str(), self.catalog.machine.as_str(), *part, *parts, position];
        Ok(self.catalog.database.execute(sql, &given).map(|_| ())?)
    }

    /// Returns the number of the last event; 0 if there was none.
    ///
    /// # Errors
    /// If the database fails.
    pub fn last(&self) -> Result<i64> {
        let sql = "SELECT max(id) FROM events";
        Ok(self.catalog.database.query_one(sql, &[], |row| row.get::<Option<i64>>(0))?.flatten().unwrap_or(0))
    }

    /// Deletes the events of this machine that are older than `before` and that all of its readers have read,
    /// and those older than `at_the_latest`, read or not. Returns how many were deleted unread.
    ///
    /// # Errors
    /// If the database fails.
    pub fn trim(&self, before: Timestamp, at_the_latest: Timestamp) -> Result<u64> {
        let read = " AND id <= coalesce((SELECT min(position) FROM event_readers WHERE machine = ?1), \
            9223372036854775807)";
        self.delete_oldest(before, read)?;
        self.delete_oldest(at_the_latest, "")
    }

    /// Deletes events older than `before` from the beginning of the log, if `condition` holds. Returns how
    /// many there were.
    fn delete_oldest(&self, before: Timestamp, condition: &str) -> Result<u64> {
        let sql = format!(
            "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE machine = ?1 ORDER BY id LIMIT ?3) \
            AND at < ?2{condition}"
        );
        let mut all = 0;
        loop {
            let deleted = self
                .catalog
                .database
                .execute(&sql, &values![self.catalog.machine.as_str(), before, DELETED_AT_ONCE])?;
            all += deleted;
            if deleted < DELETED_AT_ONCE {
                return Ok(all);
            }
        }
    }

    /// Makes all events and readers those of `machine`, because the catalog has moved.
    ///
    /// # Errors
    /// If the database fails.
    pub fn adopt(&self, machine: &str) -> Result<()> {
        self.catalog.database.transaction(VISITS, |db| {
            db.execute("UPDATE events SET machine = ?1", &values![machine])?;
            db.execute("UPDATE event_readers SET machine = ?1", &values![machine])
        })?;
        Ok(())
    }
}

/// Reads a row of [`COLUMNS`]; `None`, if it is no event that this version knows.
fn logged(row: &Row<'_>) -> weir_sql::Result<Option<LoggedEvent>> {
    let (id, time, repository): (i64, Timestamp, Option<i64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (name, url): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
    let body: String = row.get(5)?;
    let kind = match serde_json::from_str(&body) {
        Ok(kind) => kind,
        Err(e) => {
            tracing::error!("passing over event {id} of the catalog, which cannot be read: {e}");
            return Ok(None);
        }
    };
    let subject =
        repository.zip(name).map(|(id, name)| EventSubject { id, name, url: url.unwrap_or_default() });
    Ok(Some(LoggedEvent { id, event: PoolEvent { time, subject, kind }, path: row.get(6)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log holds these texts, and programs read them: they never change their meaning.
    #[test]
    fn events_are_stored_as_documented() {
        let visit = VisitFacts {
            seconds: 0.5,
            recovered_from: Some(FailureClass::Network),
            damaged: Some("/s/r.tar~1".into()),
            lost: Some(LostFacts {
                first: 3,
                last: 4,
                certain: true,
                kept: None,
                refs: vec!["refs/heads/a 1".to_owned()],
                text: "commits 3 to 4 are lost".to_owned(),
            }),
            lfs: Some(LfsFacts { added: 1, bytes: 2, absent: 3, incomplete: false }),
            refused: vec!["refs/heads/a..b".to_owned()],
        };
        let update = ArchiveUpdate {
            seq: 7,
            is_new: false,
            refs_added: 1,
            refs_updated: 2,
            refs_deleted: 3,
            refs: vec![RefUpdate { name: "refs/heads/m".to_owned(), old: None, new: Some("1f".to_owned()) }],
            objects_added: 4,
            bytes_appended: 5,
            visit,
        };
        let failure = VisitFailure {
            class: FailureClass::DiskFull,
            error: "no room".to_owned(),
            host: None,
            failed_before: Some(FailureClass::Gone),
            exceeded: Some("idle_timeout".to_owned()),
            seconds: 1.0,
        };
        let paused = EventKind::Paused { host: None, cause: "c".to_owned(), until: Timestamp(9) };
        let listed = EventKind::Listed { forge: "f".to_owned(), listed: 1, added: 2, gone: 3 };
        let kinds = [
            EventKind::Update(update),
            EventKind::Unchanged(VisitFacts { seconds: 0.25, ..VisitFacts::default() }),
            EventKind::Failed(failure),
            paused,
            EventKind::Resumed,
            EventKind::Left { cause: "c".to_owned(), left: 2 },
            listed,
            EventKind::ListingFailed { forge: "f".to_owned(), error: "e".to_owned() },
            EventKind::Metadata { added: [("issues".to_owned(), 2)].into(), error: None },
            EventKind::Mined { mined: 1, unchanged: 2, failed: 3 },
        ];
        let texts: Vec<&str> = include_str!("../tests/events.jsonl").lines().collect();
        assert_eq!(texts.len(), kinds.len());
        assert_eq!(kinds.each_ref().map(EventKind::name), EventKind::NAMES);
        for (kind, text) in kinds.into_iter().zip(texts) {
            assert_eq!(kind.json(), text);
            assert_eq!(serde_json::from_str::<EventKind>(text).unwrap(), kind);
            assert!(text.starts_with(&format!("{{\"event\":\"{}\"", kind.name())));
        }
        // An update of a version that named no more than the commit.
        let old = serde_json::from_str::<EventKind>(r#"{"event":"update","seq":3}"#).unwrap();
        assert_eq!(old, EventKind::Update(ArchiveUpdate { seq: 3, ..ArchiveUpdate::default() }));
    }
}
