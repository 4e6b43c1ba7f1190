//! The schema and how older ones become it. `user_version` counts the steps taken; a step that stands on main is never changed again.

use rusqlite::Connection;

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
];

pub(crate) fn migrate(connection: &mut Connection) -> rusqlite::Result<Result<(), i64>> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version > STEPS.len() as i64 {
        return Ok(Err(version));
    }
    if version == STEPS.len() as i64 {
        return Ok(Ok(()));
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited.
    let version: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for step in STEPS.iter().skip(version.max(0) as usize) {
        transaction.execute_batch(step)?;
    }
    transaction.execute_batch(&format!("PRAGMA user_version = {}", STEPS.len()))?;
    transaction.commit()?;
    Ok(Ok(()))
}
