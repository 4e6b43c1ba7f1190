//! The schema, and the steps from older ones to it. A step is written for SQLite, and translated for
//! PostgreSQL. A step that is on main never changes.

use weir_sql::{Database, schema_for_postgres};

use crate::transactions::LISTING;
use crate::{Error, Result};

pub(crate) const STEPS: &[&str] = &[
    "
CREATE TABLE repositories (
    id              INTEGER PRIMARY KEY,
    name            TEXT NOT NULL UNIQUE,
    url             TEXT NOT NULL,
    -- of the archive, below the pool's store
    path            TEXT NOT NULL UNIQUE,
    added_at        INTEGER NOT NULL,
    enabled         INTEGER NOT NULL DEFAULT 1,
    -- schedule: seconds since 1970
    next_due        INTEGER NOT NULL DEFAULT 0,
    last_attempt    INTEGER,
    last_success    INTEGER,
    last_change     INTEGER,
    lease_owner     TEXT,
    lease_until     INTEGER,
    epoch           INTEGER NOT NULL DEFAULT 0,
    -- what the last successful visit saw
    fingerprint     BLOB,
    seq             INTEGER,
    archive_bytes   INTEGER,
    ref_count       INTEGER,
    -- the last failure, if the last visit failed
    failures        INTEGER NOT NULL DEFAULT 0,
    error_class     TEXT,
    error           TEXT
) STRICT;
CREATE INDEX repositories_due ON repositories (next_due) WHERE enabled = 1;
",
    "
-- Listings of forges: where each stands.
CREATE TABLE forges (
    name            TEXT PRIMARY KEY,
    -- what is listed; another scope begins anew
    scope           TEXT NOT NULL,
    pass            INTEGER NOT NULL,
    position        TEXT,
    listed          INTEGER NOT NULL,
    started_at      INTEGER NOT NULL,
    finished_at     INTEGER
) STRICT;
CREATE TABLE skipped_pages (
    forge           TEXT NOT NULL,
    position        TEXT NOT NULL,
    error           TEXT NOT NULL,
    tries           INTEGER NOT NULL,
    first_at        INTEGER NOT NULL,
    last_at         INTEGER NOT NULL,
    PRIMARY KEY (forge, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE accounts (
    id              INTEGER PRIMARY KEY,
    forge           TEXT NOT NULL,
    forge_id        TEXT NOT NULL,
    login           TEXT NOT NULL,
    kind            TEXT NOT NULL,
    UNIQUE (forge, forge_id)
) STRICT;
ALTER TABLE repositories ADD COLUMN forge TEXT;
ALTER TABLE repositories ADD COLUMN forge_id TEXT;
-- the last pass of its forge that listed it
ALTER TABLE repositories ADD COLUMN seen_pass INTEGER;
-- when its forge was found to have it no more
ALTER TABLE repositories ADD COLUMN gone_at INTEGER;
CREATE UNIQUE INDEX repositories_forge ON repositories (forge, forge_id) WHERE forge IS NOT NULL;
-- what forges say, as of listed_at
CREATE TABLE metadata (
    repository_id   INTEGER PRIMARY KEY,
    listed_at       INTEGER NOT NULL,
    full_name       TEXT NOT NULL,
    owner_id        INTEGER,
    description     TEXT,
    homepage        TEXT,
    language        TEXT,
    default_branch  TEXT,
    fork            INTEGER,
    parent_id       TEXT,
    archived        INTEGER,
    private         INTEGER,
    kibibytes       INTEGER,
    stars           INTEGER,
    forks           INTEGER,
    open_issues     INTEGER,
    created_at      TEXT,
    updated_at      TEXT,
    pushed_at       TEXT
) STRICT;
CREATE TABLE languages (
    repository_id   INTEGER NOT NULL,
    language        TEXT NOT NULL,
    bytes           INTEGER NOT NULL,
    PRIMARY KEY (repository_id, language)
) STRICT, WITHOUT ROWID;
CREATE TABLE topics (
    repository_id   INTEGER NOT NULL,
    topic           TEXT NOT NULL,
    PRIMARY KEY (repository_id, topic)
) STRICT, WITHOUT ROWID;
",
    "
-- what visits have found, the latest counting most: changes, and the seconds they were looked for in
ALTER TABLE repositories ADD COLUMN changes REAL NOT NULL DEFAULT 0;
ALTER TABLE repositories ADD COLUMN watched_s REAL NOT NULL DEFAULT 0;
-- when somebody said last that it has changed: a visit that began before does not count as one after
ALTER TABLE repositories ADD COLUMN hinted_at INTEGER NOT NULL DEFAULT 0;
-- pauses of visits, by host; '' for all
CREATE TABLE throttles (
    host            TEXT PRIMARY KEY,
    cause           TEXT NOT NULL,
    since           INTEGER NOT NULL,
    until           INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
",
    "
-- Dumps of others: how far each was read
CREATE TABLE imports (
    source          TEXT PRIMARY KEY,
    lines           INTEGER NOT NULL,
    started_at      INTEGER NOT NULL,
    finished_at     INTEGER
) STRICT, WITHOUT ROWID;
",
    "
-- What is so of the catalog as a whole: 'store', the store its archives are in
CREATE TABLE properties (
    name            TEXT PRIMARY KEY,
    value           TEXT NOT NULL
) STRICT, WITHOUT ROWID;
",
    "
-- What hooks have not been told yet
CREATE TABLE updates (
    id              INTEGER PRIMARY KEY,
    repository_id   INTEGER NOT NULL,
    -- of the archive's last commit
    seq             INTEGER NOT NULL,
    at              INTEGER NOT NULL,
    -- which machine's hooks
    machine         TEXT NOT NULL
) STRICT;
",
    "
-- since when all visits have found that the upstream has it no more
ALTER TABLE repositories ADD COLUMN missing_since INTEGER;
CREATE INDEX updates_machine ON updates (machine, id);
CREATE INDEX updates_repository ON updates (repository_id);
",
    "
-- the repository whose archive its own builds on
ALTER TABLE repositories ADD COLUMN base_id INTEGER;
CREATE INDEX repositories_base ON repositories (base_id) WHERE base_id IS NOT NULL;
",
    "
-- whom to visit first where not all that is due can be visited, 0 to 3; and what is said of this one alone,
-- as JSON
ALTER TABLE repositories ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repositories ADD COLUMN settings TEXT;
-- who goes first of all that is due: 0 nobody, 1 what somebody said has changed, from 2 on by priority
ALTER TABLE repositories ADD COLUMN ahead INTEGER NOT NULL DEFAULT 0;
CREATE INDEX repositories_ahead ON repositories (ahead, next_due) WHERE ahead > 0;
-- Visits that found something, or ended otherwise than the one before
CREATE TABLE visits (
    repository_id   INTEGER NOT NULL,
    -- when it ended
    at              INTEGER NOT NULL,
    -- of the archive's last commit, if it wrote one
    seq             INTEGER,
    -- SHA-1 of the snapshot, as in its SWHID
    snapshot        BLOB,
    -- if it failed
    error_class     TEXT,
    error           TEXT,
    PRIMARY KEY (repository_id, at)
) STRICT, WITHOUT ROWID;
",
    "
-- Who belongs to which organisation, both of accounts
CREATE TABLE memberships (
    organization_id INTEGER NOT NULL,
    account_id      INTEGER NOT NULL,
    PRIMARY KEY (organization_id, account_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX memberships_account ON memberships (account_id);
-- What is left of the limits of forges' APIs, for each credential
CREATE TABLE budgets (
    forge           TEXT NOT NULL,
    -- the start of its SHA-256
    credential      TEXT NOT NULL,
    request_limit   INTEGER,
    remaining       INTEGER NOT NULL,
    -- when it is whole again
    reset_at        INTEGER NOT NULL,
    at              INTEGER NOT NULL,
    PRIMARY KEY (forge, credential)
) STRICT, WITHOUT ROWID;
",
    "
-- Pages of listings that a forge can say have not changed
CREATE TABLE pages (
    forge           TEXT NOT NULL,
    position        TEXT NOT NULL,
    etag            TEXT NOT NULL,
    -- what was wanted of it
    wanted          TEXT NOT NULL,
    -- ids in it, as JSON
    ids             TEXT NOT NULL,
    next            TEXT,
    PRIMARY KEY (forge, position)
) STRICT, WITHOUT ROWID;
",
    "
-- When forges were asked what they say around a repository (issues, pull requests, releases),
-- and when they are again
CREATE TABLE metadata_looks (
    repository_id   INTEGER PRIMARY KEY,
    forge           TEXT NOT NULL,
    due_at          INTEGER NOT NULL DEFAULT 0,
    leased_until    INTEGER NOT NULL DEFAULT 0,
    looked_at       INTEGER,
    -- when something was last new
    changed_at      INTEGER,
    failures        INTEGER NOT NULL DEFAULT 0,
    error           TEXT
) STRICT;
CREATE INDEX metadata_looks_due ON metadata_looks (forge, due_at);
",
    "
-- Names that repositories had before,
-- and those that copies were made of: rules of access about them still hold
CREATE TABLE former_names (
    repository_id   INTEGER NOT NULL,
    name            TEXT NOT NULL,
    PRIMARY KEY (repository_id, name)
) STRICT, WITHOUT ROWID;
",
    "
-- Why one is not visited: enabled is 1 where neither is
ALTER TABLE repositories ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repositories ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
UPDATE repositories SET paused = 1 WHERE enabled = 0;
",
    "
-- Why the last listing of a forge ended early, until it goes on
ALTER TABLE forges ADD COLUMN failed_at INTEGER;
ALTER TABLE forges ADD COLUMN error TEXT;
",
    "
-- Files of Git LFS that pointers name and that could not be had, when somebody last looked
ALTER TABLE repositories ADD COLUMN lfs_missing INTEGER NOT NULL DEFAULT 0;
",
    "
-- Whether it is the wiki of another; and whether the settings of this one alone want what its forge says
-- around it, NULL where they do not say
ALTER TABLE repositories ADD COLUMN is_wiki INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repositories ADD COLUMN metadata_wanted INTEGER;
UPDATE repositories SET is_wiki = 1 WHERE forge_id LIKE '%:wiki';
UPDATE repositories SET metadata_wanted = CASE WHEN settings LIKE '%\"metadata\":true%' THEN 1 ELSE 0 END
    WHERE settings LIKE '%\"metadata\":%';
",
    "
-- Leases of looks as of visits: an owner, an end, and a number that is higher for each lease. Older programs
-- that still run use leased_until.
ALTER TABLE metadata_looks ADD COLUMN lease_owner TEXT;
ALTER TABLE metadata_looks ADD COLUMN lease_until INTEGER;
ALTER TABLE metadata_looks ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
",
    "
-- What happened, in order, and how far each reader of it is. A number is never used again
CREATE TABLE events (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    at              INTEGER NOT NULL,
    -- the machine that saw it
    machine         TEXT NOT NULL,
    -- the repository, its name and its URL then; NULL if it is about none, or the catalog has it no more
    repository_id   INTEGER,
    name            TEXT,
    url             TEXT,
    kind            TEXT NOT NULL,
    -- as JSON
    body            TEXT NOT NULL
) STRICT;
CREATE INDEX events_repository ON events (repository_id) WHERE repository_id IS NOT NULL;
CREATE TABLE event_readers (
    name            TEXT NOT NULL,
    machine         TEXT NOT NULL,
    part            INTEGER NOT NULL,
    parts           INTEGER NOT NULL,
    -- the last event that it is done with
    position        INTEGER NOT NULL,
    PRIMARY KEY (name, machine, part, parts)
) STRICT, WITHOUT ROWID;
INSERT INTO event_readers (name, machine, part, parts, position)
    SELECT DISTINCT 'hooks', machine, 0, 1, 0 FROM updates;
INSERT INTO events (at, machine, repository_id, name, url, kind, body)
    SELECT u.at, u.machine, r.id, r.name, r.url, 'update', '{\"event\":\"update\",\"seq\":' || u.seq || '}'
    FROM updates u JOIN repositories r ON r.id = u.repository_id ORDER BY u.id;
DROP TABLE updates;
",
    "
-- What senders told of, in batches as they were taken. The last one is never deleted: no number is used again
CREATE TABLE received (
    -- the number of the first event, and how many there are
    first           INTEGER PRIMARY KEY,
    count           INTEGER NOT NULL,
    at              INTEGER NOT NULL,
    -- as weir_catalog::ReceivedBatch says
    records         BLOB NOT NULL,
    verdicts        BLOB NOT NULL
) STRICT;
-- How much of each spool of events is here
CREATE TABLE spools (
    spool           TEXT PRIMARY KEY,
    position        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
",
    "
-- The last event from outside that each worker is done with
CREATE TABLE collected (
    collector       TEXT PRIMARY KEY,
    position        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- Events from outside that a table or a worker did not take
CREATE TABLE rejected (
    collector       TEXT NOT NULL,
    event           INTEGER NOT NULL,
    -- the record of the event, as it came
    record          BLOB NOT NULL,
    at              INTEGER NOT NULL,
    reason          TEXT NOT NULL,
    -- whether it is to be tried again
    again           INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (collector, event)
) STRICT, WITHOUT ROWID;
",
    "
-- Repositories that an event says were renamed, moved, hidden or deleted: weir asks their forges
CREATE TABLE forge_questions (
    repository_id   INTEGER PRIMARY KEY,
    asked_at        INTEGER NOT NULL
) STRICT;
-- How often it was hinted at: a lease knows how often that was before
ALTER TABLE repositories ADD COLUMN hints INTEGER NOT NULL DEFAULT 0;
-- How far the deliveries of webhooks were read that forges list
CREATE TABLE sweeps (
    webhook         TEXT NOT NULL,
    -- its path in the API of the forge; a webhook here may be several there
    hook            TEXT NOT NULL,
    -- of the latest attempt that was seen
    mark            INTEGER NOT NULL,
    swept_at        INTEGER NOT NULL,
    taken           INTEGER NOT NULL,
    PRIMARY KEY (webhook, hook)
) STRICT, WITHOUT ROWID;
-- Hooks whose receiver does not take events now; events wait for it
CREATE TABLE failing_hooks (
    hook            TEXT NOT NULL,
    machine         TEXT NOT NULL,
    failures        INTEGER NOT NULL,
    failing_since   INTEGER NOT NULL,
    retry_at        INTEGER NOT NULL,
    error           TEXT NOT NULL,
    PRIMARY KEY (hook, machine)
) STRICT, WITHOUT ROWID;
",
];

/// Runs all missing steps in one transaction. Fails if the database is newer than this program.
pub(crate) fn migrate(database: &Database) -> Result<()> {
    let newest = STEPS.len() as i64;
    let check = |version| if version > newest { Err(Error::TooNew(version)) } else { Ok(version < newest) };
    if !check(version(database)?)? {
        return Ok(());
    }
    database.transaction(LISTING, |db| {
        // Another process may have migrated while this one waited.
        let version = version(db)?;
        if !check(version)? {
            return Ok(());
        }
        for step in STEPS.iter().skip(usize::try_from(version).unwrap_or(0)) {
            match db.is_postgres() {
                true => db.batch(&schema_for_postgres(step))?,
                false => db.batch(step)?,
            }
        }
        match db.is_postgres() {
            // Rows are rewritten often: leave room beside them for the next version, and sweep dead rows
            // early.
            true => db.batch(&format!(
                "ALTER TABLE repositories SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
                 CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL); DELETE FROM
                 schema_version;
                 INSERT INTO schema_version VALUES ({newest})"
            ))?,
            false => db.batch(&format!("PRAGMA user_version = {newest}"))?,
        }
        Ok(())
    })
}

/// Returns how many steps a database has taken.
fn version(database: &Database) -> Result<i64> {
    let sql = match database.is_postgres() {
        false => "PRAGMA user_version",
        true if database
            .query_one("SELECT to_regclass('schema_version') IS NULL", &[], |row| row.get(0))?
            == Some(true) =>
        {
            return Ok(0);
        }
        true => "SELECT version FROM schema_version",
    };
    Ok(database.query_one(sql, &[], |row| row.get(0))?.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::{ArchiveUpdate, Catalog, EventKind, EventReader};
    use weir_ground::Timestamp;

    #[test]
    fn older_catalogs_are_brought_up_to_date_and_newer_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.db");
        {
            let old = Connection::open(&path).unwrap();
            old.execute_batch(STEPS[0]).unwrap();
            old.execute_batch(
                "INSERT INTO repositories (name, url, path, added_at) VALUES ('a', 'u', 'a.tar', 7); PRAGMA \
                user_version = 1",
            )
            .unwrap();
        }
        let a = Catalog::open(&path).unwrap().get("a").unwrap().unwrap();
        assert_eq!((a.added_at, a.changes), (Timestamp(7), 0.0));
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 999).unwrap();
        assert!(matches!(Catalog::open(&path), Err(Error::TooNew(999))));
    }

    #[test]
    fn updates_that_wait_for_hooks_become_events() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.db");
        {
            let old = Connection::open(&path).unwrap();
            let before = STEPS.iter().position(|step| step.contains("event_readers")).unwrap();
            STEPS[..before].iter().for_each(|step| old.execute_batch(step).unwrap());
            old.execute_batch(&format!(
                "INSERT INTO repositories (id, name, url, path, added_at) VALUES (4, 'a', 'u', 'a.tar', 7);
                 INSERT INTO updates (repository_id, seq, at, machine) VALUES (4, 2, 8, ''), (5, 1, 8, ''),
                 (4, 3, 9, ''); PRAGMA user_version = {before}"
            ))
            .unwrap();
        }
        let catalog = Catalog::open(&path).unwrap();
        let reader =
            |part| EventReader { name: "hooks".to_owned(), part, parts: 2, kinds: vec!["update".to_owned()] };
        let events = [0, 1].map(|part| {
            let position = catalog.events().open_reader(&reader(part)).unwrap();
            catalog.events().after(&reader(part), position, 10).unwrap()
        });
        let seqs: Vec<_> = events
            .iter()
            .flatten()
            .map(|e| (e.event.kind.clone(), e.event.time, e.path.as_deref()))
            .collect();
        let update = |seq| EventKind::Update(ArchiveUpdate { seq, ..ArchiveUpdate::default() });
        let expected = [(update(2), Timestamp(8), Some("a.tar")), (update(3), Timestamp(9), Some("a.tar"))];
        assert_eq!(seqs, expected);
    }

    #[test]
    fn what_was_said_in_text_becomes_columns() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.db");
        {
            let old = Connection::open(&path).unwrap();
            let before = STEPS.iter().position(|step| step.contains("is_wiki")).unwrap();
            STEPS[..before].iter().for_each(|step| old.execute_batch(step).unwrap());
            old.execute_batch(&format!(
                "INSERT INTO repositories (name, url, path, added_at, forge, forge_id, settings) VALUES
                 ('a', 'u', 'a.tar', 7, 'f', '1', '{{\"metadata\":true,\"lfs\":false}}'),
                 ('b', 'u', 'b.tar', 7, 'f', '1:wiki', NULL),
                 ('c', 'u', 'c.tar', 7, 'f', '2', '{{\"metadata\":false}}'); PRAGMA user_version = {before}"
            ))
            .unwrap();
        }
        drop(Catalog::open(&path).unwrap());
        let now = Connection::open(&path).unwrap();
        let mut rows =
            now.prepare("SELECT is_wiki, metadata_wanted FROM repositories ORDER BY name").unwrap();
        let rows: Vec<(i64, Option<i64>)> = rows
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .map(|row| row.unwrap())
            .collect();
        assert_eq!(rows, [(0, Some(1)), (1, None), (0, Some(0))]);
    }
}
