//! Moving a catalog from one database to another.

use rusqlite::Connection;

use weir_sql::{Database, Type, Value};

use crate::lease::LEASED;
use crate::schema::STEPS;
use crate::transactions::{LISTING, LISTING_LOCK};
use crate::{Catalog, Error, Result};

/// How many rows are in memory at a time.
const BATCH: usize = 5_000;

/// A table and its columns.
struct Table {
    name: String,
    columns: Vec<String>,
    types: Vec<Type>,
}

/// Returns all tables, as the schema makes them.
fn tables() -> weir_sql::Result<Vec<Table>> {
    let model = Connection::open_in_memory()?;
    for step in STEPS {
        model.execute_batch(step)?;
    }
    let mut statement = model.prepare(
        "SELECT m.name, c.name, c.type FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = \
        'table' AND m.name <> 'sqlite_sequence' ORDER BY m.rowid, c.cid",
    )?;
    let mut rows = statement.query([])?;
    let mut tables: Vec<Table> = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let ty = match row.get::<_, String>(2)?.as_str() {
            "INTEGER" => Type::Integer,
            "REAL" => Type::Real,
            "BLOB" => Type::Blob,
            _ => Type::Text,
        };
        if tables.last().is_none_or(|table| table.name != name) {
            tables.push(Table { name, columns: Vec::new(), types: Vec::new() });
        }
        let table = tables.last_mut().expect("pushed above");
        table.columns.push(row.get(1)?);
        table.types.push(ty);
    }
    Ok(tables)
}

impl Catalog {
    /// Moves all that was written into the file itself, which may be renamed once this catalog is closed.
    ///
    /// # Errors
    /// If not everything could be moved.
    pub fn settle(&self) -> Result<()> {
        if !self.database.is_postgres() {
            let is_busy =
                self.database.query_one("PRAGMA wal_checkpoint(TRUNCATE)", &[], |row| row.get::<i64>(0))?;
            if is_busy != Some(0) {
                return Err(Error::Unsettled);
            }
        }
        Ok(())
    }

    /// Copies everything into `destination`, which must be empty: all or nothing. `observe` gets each table
    /// and how many of its rows are copied, every few thousand rows and at its end.
    ///
    /// # Errors
    /// If `destination` has repositories, or one of the databases fails.
    pub fn migrate(&self, destination: &Catalog, observe: &mut dyn FnMut(&str, u64)) -> Result<()> {
        let tables = tables()?;
        let source = &self.database;
        let count = |db: &Database| -> Result<i64> {
            Ok(db.query_one("SELECT count(*) FROM repositories", &[], |row| row.get(0))?.unwrap_or(0))
        };
        // Check before anything is locked: it may be the same database.
        match count(&destination.database)? {
            0 => {}
            there => return Err(Error::NotEmpty(there)),
        }
        // Read everything as of one moment. No other process adds repositories meanwhile. On PostgreSQL,
        // visits may still be recorded.
        let begin = match source.is_postgres() {
            true => format!(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = '60s'; \
                {LISTING_LOCK}"
            ),
            false => "BEGIN IMMEDIATE".to_owned(),
        };
        source.batch(&begin)?;
        let result = destination.database.transaction(LISTING, |db| {
            match count(db)? {
                0 => {}
                there => return Err(Error::NotEmpty(there)),
            }
            // `destination` already has its own properties, such as its store.
            tables
                .iter()
                .filter(|table| table.name != "properties")
                .try_for_each(|table| copy(source, db, table, observe))?;
            LEASED.iter().try_for_each(|table| {
                db.batch(&format!(
                    "UPDATE {table} SET lease_owner = NULL, lease_until = NULL WHERE lease_owner IS NOT NULL"
                ))?;
                Ok(())
            })
        });
        let ended = source.batch("COMMIT");
        result.and(ended.map_err(Error::from))
    }
}

fn copy(source: &Database, db: &Database, table: &Table, observe: &mut dyn FnMut(&str, u64)) -> Result<()> {
    let Table { name, columns, types } = table;
    db.batch(&format!("DELETE FROM {name}"))?;
    let (mut rows, mut copied): (Vec<Vec<Value<'static>>>, i64) = (Vec::with_capacity(BATCH), 0);
    source.stream(&format!("SELECT {} FROM {name}", columns.join(", ")), &mut |row| {
        rows.push((0..columns.len()).map(|n| row.value(n)).collect::<weir_sql::Result<_>>()?);
        if rows.len() == BATCH {
            db.fill(name, columns, types, &rows)?;
            copied += rows.len() as i64;
            rows.clear();
            observe(name, copied.unsigned_abs());
        }
        Ok(())
    })?;
    db.fill(name, columns, types, &rows)?;
    copied += rows.len() as i64;
    observe(name, copied.unsigned_abs());
    let there: i64 =
        db.query_one(&format!("SELECT count(*) FROM {name}"), &[], |row| row.get(0))?.unwrap_or(0);
    if there != copied {
        return Err(Error::NotTheSame { table: name.clone(), source_rows: copied, copied_rows: there });
    }
    if db.is_postgres() && columns[0] == "id" {
        // New numbers follow those that are in use.
        let sql = format!(
            "SELECT setval(pg_get_serial_sequence('{name}', 'id'), (SELECT coalesce(max(id), 0) + 1 FROM \
            {name}), false)"
        );
        db.batch(&sql)?;
    }
    Ok(())
}
