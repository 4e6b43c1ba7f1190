//! A repository as the catalog knows it.

use serde::Serialize;
use weir_ground::{Epoch, FailureClass, Timestamp};
use weir_sql::{Database, Row, values};

use crate::settings::Settings;
use crate::{Error, Result};

/// Returns the path of the archive of a repository called `name`. No part of the path starts with a dot:
/// files that do belong to the store.
pub fn path_for(name: &str) -> String {
    let parts: Vec<String> = name
        .split('/')
        .map(|part| part.strip_prefix('.').map_or(part.to_owned(), |p| format!("%2E{p}")))
        .collect();
    format!("{}.tar", parts.join("/"))
}

/// Returns the name of the repository whose archive has the path `path`, as [`path_for`] gives it.
pub fn name_for(path: &str) -> String {
    let path = path.strip_suffix(".tar").unwrap_or(path);
    let part = |part: &str| part.strip_prefix("%2E").map_or(part.to_owned(), |rest| format!(".{rest}"));
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// A repository that is to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRepository {
    /// Its name.
    pub name: String,
    /// Its upstream.
    pub url: String,
    /// The path of its archive below the store.
    pub path: String,
}

impl NewRepository {
    /// Returns a repository whose archive has its name.
    pub fn new(name: &str, url: &str) -> NewRepository {
        NewRepository { name: name.to_owned(), url: url.to_owned(), path: path_for(name) }
    }
}

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
    pub added_at: Timestamp,
    /// When to visit the upstream next.
    pub next_due: Timestamp,
    /// When the upstream was last visited.
    pub last_attempt: Option<Timestamp>,
    /// When a visit last succeeded.
    pub last_success: Option<Timestamp>,
    /// When a visit last found a change.
    pub last_change: Option<Timestamp>,
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
    pub error_class: Option<FailureClass>,
    /// The last failure in words.
    pub error: Option<String>,
    /// Fencing number of the last lease.
    pub epoch: Epoch,
    /// The number of changes that visits have found, the latest counting most.
    #[serde(skip)]
    pub changes: f64,
    /// The seconds in which visits have looked for these changes, weighted in the same way.
    #[serde(skip)]
    pub watched_s: f64,
    /// How far it goes ahead of others when not all that are due can be visited, 0 to
    /// [`crate::PRIORITY_MAX`].
    pub priority: i64,
    /// Its own settings.
    pub settings: Settings,
    /// The forge that lists it, a space, and its id there.
    pub forge: Option<String>,
    /// Whether a user has paused it.
    pub is_paused: bool,
    /// Whether it is set back to an older state, and therefore not visited.
    pub is_pinned: bool,
    /// The number of Git LFS files that it should have and that could not be fetched.
    pub lfs_missing: i64,
    /// How often it was hinted at.
    #[serde(skip)]
    pub hints: i64,
}

/// Why a repository is not visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A user has paused it.
    Paused,
    /// It is set back to an older state, which a visit would undo.
    Pinned,
}

pub(crate) const COLUMNS: &str = "id, name, url, path, added_at, next_due, last_attempt, last_success, \
    last_change, fingerprint, seq, \
                       archive_bytes, ref_count, failures, error_class, error, epoch, changes, watched_s,
                       priority, settings, forge, forge_id, paused, pinned, lfs_missing, hints";

/// The number of [`COLUMNS`].
pub(crate) const COLUMN_COUNT: usize = 27;

impl Repository {
    pub(crate) fn from_row(row: &Row<'_>) -> weir_sql::Result<Repository> {
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
            lfs_missing: row.get(25)?,
            hints: row.get(26)?,
        })
    }
}

/// Removes the rows of repository `id` from other tables.
pub(crate) fn remove_what_belongs_to(db: &Database, id: i64) -> Result<()> {
    for table in
        ["metadata", "languages", "topics", "visits", "metadata_looks", "former_names", "forge_questions"]
    {
        db.execute(&format!("DELETE FROM {table} WHERE repository_id = ?1"), &values![id])?;
    }
    // The number may be used again.
    db.execute("UPDATE events SET repository_id = NULL WHERE repository_id = ?1", &values![id])?;
    Ok(())
}

/// Fails if others build on repository `id`.
pub(crate) fn refuse_if_built_on(db: &Database, id: i64) -> Result<()> {
    let sql = "SELECT count(*), min(name) FROM repositories WHERE base_id = ?1";
    match db.query_one(sql, &values![id], |row| Ok((row.get::<i64>(0)?, row.get::<Option<String>>(1)?)))? {
        Some((count, Some(first))) => Err(Error::BuiltOn { count, first }),
        _ => Ok(()),
    }
}
