//! The schema and how older ones become it. `user_version` counts the steps taken.

use rusqlite::Connection;

const STEPS: &[&str] = &["
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
"];

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
