//! Repositories and their schedule.

use std::path::Path;

use serde::Serialize;

use crate::database::{Database, Kind, Row, Type, Value, values};
use crate::history::{KEEP_VISIT, KEPT_VISIT, news_of};
use crate::settings::{AHEAD_MAX, Settings};
use crate::sharing::refuse_if_built_on;
use crate::updates::{KEEP_UPDATE, KEPT_UPDATE};
use crate::{Error, Result, schema};

/// A repository as the catalog knows it. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repository {
    /// Its number.
    pub id: i64,
    /// Its name: what clients ask for, without the leading slash.
    pub name: String,
    /// Its upstream.
    pub url: String,
    /// Where its archive lies, below the store.
    pub path: String,
    /// When it was added.
    pub added_at: i64,
    /// When to look at the upstream next.
    pub next_due: i64,
    /// When the upstream was last asked.
    pub last_attempt: Option<i64>,
    /// When that last went well.
    pub last_success: Option<i64>,
    /// When something was last found changed.
    pub last_change: Option<i64>,
    /// Fingerprint of the upstream's refs as of the last success.
    #[serde(skip)]
    pub fingerprint: Option<Vec<u8>>,
    /// Number of the archive's last commit.
    pub seq: Option<i64>,
    /// Bytes of the archive.
    pub archive_bytes: Option<i64>,
    /// Refs in it.
    pub ref_count: Option<i64>,
    /// Failures since the last success.
    pub failures: i64,
    /// Class of the last failure.
    pub error_class: Option<String>,
    /// The last failure in words.
    pub error: Option<String>,
    /// Fencing number of the last lease.
    pub epoch: i64,
    /// Changes that visits have found, the latest counting most...
    #[serde(skip)]
    pub changes: f64,
    /// ...and the seconds they were looked for in.
    #[serde(skip)]
    pub watched_s: f64,
    /// How far ahead of others it goes where not all that is due can be visited, 0 to [`crate::PRIORITY_MAX`].
    pub priority: i64,
    /// What is said of it alone.
    pub settings: Settings,
    /// The forge that lists it, a space, and its id there.
    pub forge: Option<String>,
    /// Whether somebody wants it not to be visited.
    pub is_paused: bool,
    /// Whether it was set back to an older state, and is not visited for that.
    pub is_pinned: bool,
}

/// Why a repository is not visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Somebody wants it so.
    Paused,
    /// It was set back to an older state, which a visit would undo.
    Pinned,
}

pub(crate) const COLUMNS: &str = "id, name, url, path, added_at, next_due, last_attempt, last_success, last_change, fingerprint, seq, \
                       archive_bytes, ref_count, failures, error_class, error, epoch, changes, watched_s, priority, settings, forge, forge_id, paused, pinned";

/// How many those are.
pub(crate) const COLUMN_COUNT: usize = 25;

impl Repository {
    pub(crate) fn from_row(row: &Row<'_>) -> Result<Repository> {
        Ok(Repository {
            id: row.get(0)?,
            name: row.get(1)?,
            url: row.get(2)?,
            path: row.get(3)?,
            added_at: row.get(4)?,
            next_due: row.get(5)?,
            last_attempt: row.get(6)?,
            last_success: row.get(7)?,
            last_change: row.get(8)?,
            fingerprint: row.get(9)?,
            seq: row.get(10)?,
            archive_bytes: row.get(11)?,
            ref_count: row.get(12)?,
            failures: row.get(13)?,
            error_class: row.get(14)?,
            error: row.get(15)?,
            epoch: row.get(16)?,
            changes: row.get(17)?,
            watched_s: row.get(18)?,
            priority: row.get(19)?,
            settings: Settings::from_json(row.get::<Option<String>>(20)?.as_deref()),
            forge: match (row.get::<Option<String>>(21)?, row.get::<Option<String>>(22)?) {
                (Some(forge), Some(id)) => Some(format!("{forge} {id}")),
                _ => None,
            },
            is_paused: row.get::<i64>(23)? != 0,
            is_pinned: row.get::<i64>(24)? != 0,
        })
    }
}

/// How a visit to an upstream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing there had changed.
    Unchanged,
    /// The archive was brought up to date.
    Updated {
        /// Number of the archive's last commit.
        seq: u64,
        /// Bytes of the archive.
        archive_bytes: u64,
        /// Refs in it.
        ref_count: u64,
    },
    /// It failed; the archive is as it was.
    Failed {
        /// Class of the failure.
        class: String,
        /// In words.
        error: String,
    },
    /// There was none: its host pauses.
    PutOff,
}

/// A visit to be written down.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Which repository.
    pub id: i64,
    /// The number of the lease it was made under ([`Repository::epoch`]): one that has passed to another counts no more.
    pub epoch: i64,
    /// When it began.
    pub began_at: i64,
    /// When it ended.
    pub at: i64,
    /// When to come again.
    pub next_due: i64,
    /// Fingerprint of the refs seen.
    pub fingerprint: Option<Vec<u8>>,
    /// As [`Repository::changes`], with this visit.
    pub changes: f64,
    /// As [`Repository::watched_s`], with this visit.
    pub watched_s: f64,
    /// Whether it ended otherwise than the one before, or found something: such visits are kept.
    pub is_news: bool,
    /// What the upstream had, if the archive was written to: the SHA-1 of its snapshot.
    pub snapshot: Option<[u8; 20]>,
    /// How it ended.
    pub outcome: Outcome,
}

/// An archive that was found in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Its name: what clients ask for.
    pub name: String,
    /// Its upstream.
    pub url: String,
    /// Where it lies, below the store.
    pub path: String,
    /// Number of its last commit.
    pub seq: i64,
    /// Its length in bytes.
    pub archive_bytes: i64,
    /// Refs in it.
    pub ref_count: i64,
    /// The highest number of a lease under which it was written.
    pub epoch: i64,
    /// As [`Repository::forge`].
    pub forge: Option<String>,
    /// Whether it was set back to an older state, and is not to be visited.
    pub is_pinned: bool,
}

/// Which repositories are meant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Which<'a> {
    /// Only those that are due.
    pub due_only: bool,
    /// Only those with these numbers.
    pub ids: Option<&'a [i64]>,
    /// Only those that nobody has leased, oneself included.
    pub free_only: bool,
    /// Only those that go ahead of what is only due.
    pub ahead_only: bool,
}

/// Columns of a visit as [`Catalog::record`] writes it.
const VISIT: [Type; 14] = {
    use Type::{Blob, Integer, Real, Text};
    [Integer, Integer, Integer, Integer, Integer, Integer, Blob, Real, Real, Integer, Integer, Integer, Text, Text]
};

/// What a visit sets. Of `rows`, p1 is the id, p2 the epoch, p3 the outcome (0 unchanged, 1 updated, 2 failed, 3 put off), p4
/// when it began, p5 when it ended, p6 when to come again; what was said to have changed meanwhile may not have been seen.
const RECORD: &str = "UPDATE repositories SET
    last_attempt = CASE WHEN rows.p3 < 3 THEN rows.p5 ELSE last_attempt END,
    last_success = CASE WHEN rows.p3 < 2 THEN rows.p5 ELSE last_success END,
    last_change = CASE WHEN rows.p3 = 1 AND last_success IS NOT NULL THEN rows.p5 ELSE last_change END,
    ahead = CASE WHEN ahead = 1 AND hinted_at < rows.p4 AND rows.p3 < 3 THEN 0 ELSE ahead END,
    next_due = CASE WHEN hinted_at >= rows.p4 THEN LEAST(rows.p6, hinted_at) ELSE rows.p6 END,
    fingerprint = CASE WHEN rows.p3 < 2 THEN rows.p7 WHEN rows.p3 = 2 THEN NULL ELSE fingerprint END,
    changes = CASE WHEN rows.p3 < 2 THEN rows.p8 ELSE changes END,
    watched_s = CASE WHEN rows.p3 < 2 THEN rows.p9 ELSE watched_s END,
    seq = CASE WHEN rows.p3 = 1 THEN rows.p10 ELSE seq END,
    archive_bytes = CASE WHEN rows.p3 = 1 THEN rows.p11 ELSE archive_bytes END,
    ref_count = CASE WHEN rows.p3 = 1 THEN rows.p12 ELSE ref_count END,
    failures = CASE WHEN rows.p3 < 2 THEN 0 WHEN rows.p3 = 2 THEN failures + 1 ELSE failures END,
    error_class = CASE WHEN rows.p3 < 3 THEN rows.p13 ELSE error_class END,
    error = CASE WHEN rows.p3 < 3 THEN rows.p14 ELSE error END,
    missing_since = CASE WHEN rows.p3 < 2 THEN NULL WHEN rows.p13 = 'gone' THEN coalesce(missing_since, rows.p5) ELSE missing_since END,
    lease_owner = NULL, lease_until = NULL
    FROM rows WHERE id = rows.p1 AND epoch = rows.p2";

/// Of visits whose lease has passed to another the archive may show what none that counts has seen: the next one looks. Of `rows`, p1 is
/// the id, p2 the epoch, p3 when the visit ended.
const SUPERSEDED: &str = "UPDATE repositories SET fingerprint = NULL, next_due = LEAST(next_due, rows.p3)
    FROM rows WHERE id = rows.p1 AND epoch > rows.p2";

impl Visit {
    fn row(&self) -> Vec<Value<'_>> {
        let (kind, seq, archive_bytes, ref_count, class, error) = match &self.outcome {
            Outcome::Unchanged => (0, None, None, None, None, None),
            Outcome::Updated { seq, archive_bytes, ref_count } => (1, Some(*seq), Some(*archive_bytes), Some(*ref_count), None, None),
            Outcome::Failed { class, error } => (2, None, None, None, Some(class), Some(error)),
            Outcome::PutOff => (3, None, None, None, None, None),
        };
        let kind: i64 = kind;
        values![
            self.id,
            self.epoch,
            kind,
            self.began_at,
            self.at,
            self.next_due,
            self.fingerprint.as_deref(),
            self.changes,
            self.watched_s,
            seq,
            archive_bytes,
            ref_count,
            class,
            error,
        ]
        .into()
    }
}

/// Removes what other tables have of repository `id`.
pub(crate) fn remove_what_belongs_to(db: &Database, id: i64) -> Result<()> {
    for table in ["metadata", "languages", "topics", "updates", "visits", "metadata_looks", "former_names"] {
        db.execute(&format!("DELETE FROM {table} WHERE repository_id = ?1"), &values![id])?;
    }
    Ok(())
}

/// The first text behind all that begin with `prefix`, if there is one.
fn after_all_with(prefix: &str) -> Option<String> {
    let mut text: Vec<char> = prefix.chars().collect();
    while let Some(last) = text.pop() {
        // Between the two lie surrogates, which are no characters.
        if let Some(next) = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32) {
            text.push(next);
            return Some(text.into_iter().collect());
        }
    }
    None
}

/// The catalog of a pool.
pub struct Catalog {
    pub(crate) database: Database,
    /// Whose hooks are to be told of updates, if anybody's.
    pub(crate) updates_for: Option<String>,
}

impl Catalog {
    /// Opens the catalog at `path`, creating it or bringing it up to date.
    ///
    /// # Errors
    /// If it cannot be opened, or is newer than this program.
    pub fn open(path: &Path) -> Result<Catalog> {
        Catalog::over(Database::open(path)?)
    }

    /// Opens the catalog in the PostgreSQL database at `url`, `postgres://user@host/database`, with options as libpq names them.
    ///
    /// # Errors
    /// If it cannot be connected to, or is newer than this program.
    pub fn connect(url: &str) -> Result<Catalog> {
        Catalog::over(Database::connect(url)?)
    }

    fn over(database: Database) -> Result<Catalog> {
        schema::migrate(&database)?;
        Ok(Catalog { database, updates_for: None })
    }

    /// Whether it is asked over a network, which may take its time or fail.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.database.is_postgres()
    }

    /// Says that archives are in the store called `store`; the first one that says so stays.
    ///
    /// # Errors
    /// If they are in another.
    pub fn claim_store(&mut self, store: &str) -> Result<()> {
        self.database
            .execute("INSERT INTO properties (name, value) VALUES ('store', ?1) ON CONFLICT (name) DO NOTHING", &values![store])?;
        let of = self.store()?;
        if of.as_deref() == Some(store) { Ok(()) } else { Err(Error::OtherStore(store.to_owned())) }
    }

    /// Takes the listing of `forge` for this process, until [`Catalog::unlock_listing`] or its end; false if another has it. One
    /// machine alone has no others.
    ///
    /// # Errors
    /// Of the database.
    pub fn try_lock_listing(&mut self, forge: &str) -> Result<bool> {
        if !self.database.is_postgres() {
            return Ok(true);
        }
        let sql = "SELECT pg_try_advisory_lock(hashtext('weir listing'), hashtext(current_schema() || '/' || ?1))";
        Ok(self.database.query_one(sql, &values![forge], |row| row.get(0))? == Some(true))
    }

    /// Gives it back.
    ///
    /// # Errors
    /// Of the database.
    pub fn unlock_listing(&mut self, forge: &str) -> Result<()> {
        if self.database.is_postgres() {
            let sql = "SELECT pg_advisory_unlock(hashtext('weir listing'), hashtext(current_schema() || '/' || ?1))";
            self.database.query(sql, &values![forge], |row| row.get::<bool>(0))?;
        }
        Ok(())
    }

    /// Adds repositories (name, URL, path of the archive) in one transaction; those with the same name and URL are left as
    /// they are. Returns how many are new.
    ///
    /// # Errors
    /// If a name is taken by another URL; then nothing is added.
    pub fn add(&mut self, list: &[(String, String, String)], now: i64) -> Result<usize> {
        self.database.transaction(Kind::Listing, |db| {
            let mut added = 0;
            for (name, url, path) in list {
                let there: Option<String> =
                    db.query_one("SELECT url FROM repositories WHERE name = ?1", &values![name], |row| row.get(0))?;
                match there {
                    Some(there) if there == *url => {}
                    Some(there) => return Err(Error::NameTaken { name: name.clone(), url: there }),
                    None => {
                        db.execute(
                            "INSERT INTO repositories (name, url, path, added_at) VALUES (?1, ?2, ?3, ?4)",
                            &values![name, url, path, now],
                        )?;
                        added += 1;
                    }
                }
            }
            Ok(added)
        })
    }

    /// All repositories by name.
    ///
    /// # Errors
    /// Of the database.
    pub fn list(&self) -> Result<Vec<Repository>> {
        self.database.query(&format!("SELECT {COLUMNS} FROM repositories ORDER BY name"), &[], Repository::from_row)
    }

    /// Repositories whose name begins with `prefix`, by name.
    ///
    /// # Errors
    /// Of the database.
    pub fn list_from(&self, prefix: &str) -> Result<Vec<Repository>> {
        let Some(end) = after_all_with(prefix) else {
            let mut list = self.list()?;
            list.retain(|r| r.name.starts_with(prefix));
            return Ok(list);
        };
        let sql = format!("SELECT {COLUMNS} FROM repositories WHERE name >= ?1 AND name < ?2 ORDER BY name");
        self.database.query(&sql, &values![prefix, end], Repository::from_row)
    }

    /// Numbers of those that are mirrored, `max` at most, by number, after `after`.
    ///
    /// # Errors
    /// Of the database.
    pub fn enabled_ids(&self, after: i64, max: usize) -> Result<Vec<i64>> {
        let sql = "SELECT id FROM repositories WHERE id > ?1 AND enabled = 1 ORDER BY id LIMIT ?2";
        self.database.query(sql, &values![after, max], |row| row.get(0))
    }

    /// The repository called `name`.
    ///
    /// # Errors
    /// Of the database.
    pub fn get(&self, name: &str) -> Result<Option<Repository>> {
        self.database.query_one(&format!("SELECT {COLUMNS} FROM repositories WHERE name = ?1"), &values![name], Repository::from_row)
    }

    /// Forgets the repository called `name`; says whether it was there.
    ///
    /// # Errors
    /// If the archives of others build on its own.
    pub fn remove(&mut self, name: &str) -> Result<bool> {
        self.database.transaction(Kind::Listing, |db| {
            if let Some(id) = db.query_one("SELECT id FROM repositories WHERE name = ?1", &values![name], |row| row.get(0))? {
                refuse_if_built_on(db, id)?;
            }
            // What its forge lists is looked through again: it may be wanted anew.
            db.execute("DELETE FROM pages WHERE forge IN (SELECT forge FROM repositories WHERE name = ?1)", &values![name])?;
            let removed: Vec<i64> = db.query("DELETE FROM repositories WHERE name = ?1 RETURNING id", &values![name], |row| row.get(0))?;
            for id in &removed {
                remove_what_belongs_to(db, *id)?;
            }
            Ok(!removed.is_empty())
        })
    }

    /// Leases repositories to `owner` until `until`, `max` at most: of what is due those with a priority first, then those that
    /// somebody said have changed, then the most overdue. Leases of others that have not run out at `now` are respected; one's own
    /// are renewed, unless only what is free is wanted.
    ///
    /// # Errors
    /// Of the database.
    pub fn lease(&mut self, owner: &str, now: i64, until: i64, which: &Which<'_>, max: usize) -> Result<Vec<Repository>> {
        if !which.due_only || (which.ids.is_some() && !which.ahead_only) {
            return self.lease_some(owner, now, until, which, max, "", &[]);
        }
        let mut leased = Vec::new();
        // Each is found by one look into an index, however many are due.
        for ahead in (1..=AHEAD_MAX).rev() {
            let ahead = format!("AND ahead > 0 AND ahead = {ahead}");
            leased.append(&mut self.lease_some(owner, now, until, which, max - leased.len(), &ahead, &[])?);
        }
        if which.ahead_only {
            return Ok(leased);
        }
        let has: Vec<i64> = leased.iter().map(|r| r.id).collect();
        leased.append(&mut self.lease_some(owner, now, until, which, max - leased.len(), "", &has)?);
        Ok(leased)
    }

    /// The same of those that `these` lets through, most overdue first, without those with the numbers `but`.
    #[allow(clippy::too_many_arguments)]
    fn lease_some(
        &self,
        owner: &str,
        now: i64,
        until: i64,
        which: &Which<'_>,
        max: usize,
        these: &str,
        but: &[i64],
    ) -> Result<Vec<Repository>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let due = if which.due_only { now } else { i64::MAX };
        let mut parameters = values![owner, until, due, now, max].to_vec();
        // Those that are asked for are waited for.
        let (ids, locked) = which.ids.map_or(("", "FOR UPDATE SKIP LOCKED"), |ids| {
            parameters.push(Value::Integers(ids.to_vec()));
            ("AND id = ANY(?6)", "FOR UPDATE")
        });
        // By numbers: what PostgreSQL cannot estimate keeps it from looking in the order of an index.
        let mut without = String::new();
        if !but.is_empty() {
            parameters.push(Value::Integers(but.to_vec()));
            without = format!("AND NOT (id = ANY(?{}))", parameters.len());
        }
        // Numbers are no lower than the time: a repository that is added again, or a catalog that was had back from a copy, gives higher
        // ones than those under which its archive was written.
        // One's own that has run out is still under way.
        let (lapsed, own) = if which.free_only { ("AND lease_owner <> ?1", "") } else { ("", "OR lease_owner = ?1") };
        let sql = format!(
            "UPDATE repositories SET lease_owner = ?1, lease_until = ?2, epoch = GREATEST(epoch + 1, ?4) WHERE id IN (
                 SELECT id FROM repositories WHERE enabled = 1 AND next_due <= ?3 {these} {ids} {without}
                 AND (lease_until IS NULL OR (lease_until <= ?4 {lapsed}) {own}) ORDER BY next_due LIMIT ?5
                 {locked})
             RETURNING {COLUMNS}"
        );
        let mut leased = self.database.transaction(Kind::Visits, |db| db.query(&sql, &parameters, Repository::from_row))?;
        leased.sort_by_key(|r| (r.next_due, r.id));
        Ok(leased)
    }

    /// Numbers of those, `max` at most, that are due at `now` and leased, and go ahead of what is only due: the first first.
    ///
    /// # Errors
    /// Of the database.
    pub fn leased_ahead(&self, now: i64, max: usize) -> Result<Vec<i64>> {
        let mut ids = Vec::new();
        // Each is found by one look into an index, as in `lease`.
        for ahead in (1..=AHEAD_MAX).rev() {
            let sql = format!(
                "SELECT id FROM repositories WHERE ahead > 0 AND ahead = {ahead} AND next_due <= ?1 AND lease_until > ?1 ORDER BY next_due LIMIT ?2"
            );
            ids.append(&mut self.database.query(&sql, &values![now, max - ids.len()], |row| row.get(0))?);
        }
        Ok(ids)
    }

    /// Makes leases hold until `until`: numbers of repositories with the epochs of the leases. Those that have passed to another stay
    /// that one's.
    ///
    /// # Errors
    /// Of the database.
    pub fn renew(&mut self, leases: &[(i64, i64)], until: i64) -> Result<()> {
        let mut rows: Vec<Vec<Value<'_>>> = leases.iter().map(|(id, epoch)| values![*id, *epoch, until].to_vec()).collect();
        // In one order everywhere, so that nobody waits for each other.
        rows.sort_by_key(|row| if let Value::Integer(id) = row[0] { id } else { 0 });
        let sql =
            "UPDATE repositories SET lease_until = rows.p3 FROM rows WHERE id = rows.p1 AND epoch = rows.p2 AND lease_owner IS NOT NULL";
        self.database.transaction(Kind::Visits, |db| db.execute_rows(sql, &[Type::Integer; 3], &rows)).map(|_| ())
    }

    /// Gives leases back without a visit.
    ///
    /// # Errors
    /// Of the database.
    pub fn release(&mut self, owner: &str) -> Result<()> {
        let sql = "UPDATE repositories SET lease_owner = NULL, lease_until = NULL WHERE lease_owner = ?1";
        self.database.transaction(Kind::Visits, |db| db.execute(sql, &values![owner])).map(|_| ())
    }

    /// Gives back the leases of all owners whose name begins with `prefix`: for when it is known that none of them lives.
    ///
    /// # Errors
    /// Of the database.
    pub fn release_all(&mut self, prefix: &str) -> Result<()> {
        let sql = "UPDATE repositories SET lease_owner = NULL, lease_until = NULL WHERE substr(lease_owner, 1, ?2) = ?1";
        let parameters = values![prefix, prefix.chars().count()];
        self.database.transaction(Kind::Visits, |db| db.execute(sql, &parameters)).map(|_| ())
    }

    /// Says whether `hold` keeps the repository called `name` from being visited; nothing else that does is changed.
    ///
    /// # Errors
    /// Of the database.
    pub fn set_hold(&mut self, name: &str, hold: Hold, is_held: bool) -> Result<()> {
        let (column, other) = match hold {
            Hold::Paused => ("paused", "pinned"),
            Hold::Pinned => ("pinned", "paused"),
        };
        // What is set back or resumed has other refs than the upstream was last seen with.
        let sql = format!(
            "UPDATE repositories SET {column} = ?2, enabled = CASE WHEN CAST(?2 AS BIGINT) = 0 AND {other} = 0 THEN 1 ELSE 0 END, fingerprint = NULL
             WHERE name = ?1"
        );
        self.database.execute(&sql, &values![name, is_held]).map(|_| ())
    }

    /// Writes down that the archive of the repository called `name` was set back to an older state, which is its last commit now, with
    /// its number, the archive's bytes, how many refs it has, and the highest number of a lease it was written under: it is not visited
    /// any more.
    ///
    /// # Errors
    /// Of the database.
    pub fn pin(&mut self, name: &str, seq: u64, bytes: u64, refs: u64, epoch: u64) -> Result<()> {
        let sql = "UPDATE repositories SET pinned = 1, enabled = 0, fingerprint = NULL, seq = ?2, archive_bytes = ?3, ref_count = ?4,
                   epoch = GREATEST(epoch, ?5) WHERE name = ?1";
        self.database.execute(sql, &values![name, seq, bytes, refs, epoch]).map(|_| ())
    }

    /// Writes down that the archive of repository `id` was written anew: the number of its last commit, and its bytes.
    ///
    /// # Errors
    /// Of the database.
    pub fn set_archive(&mut self, id: i64, seq: u64, bytes: u64) -> Result<()> {
        let sql = "UPDATE repositories SET seq = ?2, archive_bytes = ?3 WHERE id = ?1 AND seq <= ?2";
        self.database.execute(sql, &values![id, seq, bytes]).map(|_| ())
    }

    /// Writes down that something was added to the archive of repository `id` that is no change of its upstream: it had `from` for the
    /// number of its last commit. If that is not what is known here, a visit has still to be told of.
    ///
    /// # Errors
    /// Of the database.
    pub fn add_to_archive(&mut self, id: i64, from: u64, seq: u64, bytes: u64) -> Result<()> {
        let sql = "UPDATE repositories SET seq = ?3, archive_bytes = ?4 WHERE id = ?1 AND seq = ?2";
        self.database.execute(sql, &values![id, from, seq, bytes]).map(|_| ())
    }

    /// Somebody says that the repository called `name` is to be looked at, whatever its fingerprint.
    ///
    /// # Errors
    /// Of the database.
    pub fn look_again(&mut self, name: &str, now: i64) -> Result<()> {
        let sql = "UPDATE repositories SET fingerprint = NULL, next_due = LEAST(next_due, ?2), hinted_at = ?2,
                   ahead = GREATEST(ahead, 1) WHERE name = ?1";
        self.database.execute(sql, &values![name, now]).map(|_| ())
    }

    /// Registers archives that are in the store, and of which this catalog knows nothing, as they are; each is due. Gives how many that
    /// were: a name, a path or a forge's id that it knows already is left as it is.
    ///
    /// # Errors
    /// Of the database.
    pub fn adopt(&mut self, archives: &[Adopted], now: i64) -> Result<usize> {
        self.database.transaction(Kind::Listing, |db| {
            let mut added = 0;
            for a in archives {
                let (forge, id) = a.forge.as_deref().and_then(|forge| forge.split_once(' ')).unzip();
                let sql = "SELECT id FROM repositories WHERE name = ?1 OR path = ?2 LIMIT 1";
                let is_known = db.query_one(sql, &values![&a.name, &a.path], |row| row.get::<i64>(0))?.is_some();
                let sql = "SELECT id FROM repositories WHERE forge = ?1 AND forge_id = ?2";
                if is_known || db.query_one(sql, &values![forge, id], |row| row.get::<i64>(0))?.is_some() {
                    continue;
                }
                db.execute(
                    "INSERT INTO repositories (name, url, path, added_at, seq, archive_bytes, ref_count, epoch, forge, forge_id, pinned, enabled)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                    &values![
                        &a.name, &a.url, &a.path, now, a.seq, a.archive_bytes, a.ref_count, a.epoch, forge, id, a.is_pinned, !a.is_pinned
                    ],
                )?;
                added += 1;
            }
            Ok(added)
        })
    }

    /// Says that the archive of repository `id`, which is leased with the number `epoch`, was written under a later lease, number
    /// `written`, of which this catalog knows nothing: it gives higher numbers from now on, and the repository is due at `now`.
    ///
    /// # Errors
    /// Of the database.
    pub fn raise_epoch(&mut self, id: i64, epoch: i64, written: i64, now: i64) -> Result<()> {
        let sql = "UPDATE repositories SET epoch = ?3, lease_owner = NULL, lease_until = NULL, fingerprint = NULL, next_due = ?4
                   WHERE id = ?1 AND epoch = ?2 AND epoch < ?3";
        self.database.execute(sql, &values![id, epoch, written, now]).map(|_| ())
    }

    /// Says that the archive of repository `id` was found to be damaged: it is due at `now`, and whoever visits it looks at all of it.
    ///
    /// # Errors
    /// Of the database.
    pub fn set_damaged(&mut self, id: i64, what: &str, now: i64) -> Result<()> {
        let sql = "UPDATE repositories SET error_class = 'damaged', error = ?2, fingerprint = NULL, next_due = LEAST(next_due, ?3)
                   WHERE id = ?1";
        self.database.execute(sql, &values![id, what, now]).map(|_| ())
    }

    /// The store that archives are in, once somebody has said it.
    ///
    /// # Errors
    /// Of the database.
    pub fn store(&self) -> Result<Option<String>> {
        self.database.query_one("SELECT value FROM properties WHERE name = 'store'", &[], |row| row.get(0))
    }

    /// Writes visits down, in one transaction, and ends their leases. Returns how many counted: a visit whose lease has passed
    /// to another meanwhile does not, and what it did is looked at again.
    ///
    /// # Errors
    /// Of the database.
    pub fn record(&mut self, visits: &[Visit]) -> Result<usize> {
        let rows: Vec<_> = visits.iter().map(Visit::row).collect();
        let wrote = visits.iter().filter(|visit| matches!(visit.outcome, Outcome::Updated { .. }));
        let superseded: Vec<_> = wrote.map(|visit| values![visit.id, visit.epoch, visit.at].into()).collect();
        let updates = self.updates_of(visits);
        let news = news_of(visits);
        let written = self.database.transaction(Kind::Visits, |db| {
            // It holds the rows from here on: none of them is removed, or leased by another, before its update is kept.
            let written = db.execute_rows(RECORD, &VISIT, &rows)?;
            db.execute_rows(KEEP_UPDATE, &KEPT_UPDATE, &updates)?;
            db.execute_rows(KEEP_VISIT, &KEPT_VISIT, &news)?;
            if written < rows.len() as u64 {
                db.execute_rows(SUPERSEDED, &[Type::Integer; 3], &superseded)?;
            }
            Ok(written)
        })?;
        Ok(written as usize)
    }

    /// Whether something is due at `now` that nobody has leased. It may be so although a lease got nothing: what another is just
    /// writing down is passed over.
    ///
    /// # Errors
    /// Of the database.
    pub fn is_any_due(&self, now: i64) -> Result<bool> {
        let sql = "SELECT id FROM repositories WHERE enabled = 1 AND next_due <= ?1 AND (lease_until IS NULL OR lease_until <= ?1)
                   ORDER BY next_due LIMIT 1";
        Ok(self.database.query_one(sql, &values![now], |row| row.get::<i64>(0))?.is_some())
    }

    /// When the next repository is due.
    ///
    /// # Errors
    /// Of the database.
    pub fn next_due(&self) -> Result<Option<i64>> {
        let sql = "SELECT min(next_due) FROM repositories WHERE enabled = 1";
        Ok(self.database.query_one(sql, &[], |row| row.get(0))?.flatten())
    }
}
