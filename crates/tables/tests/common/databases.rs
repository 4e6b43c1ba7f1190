//! Databases that are mined into, and their rows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use postgres::{Client, NoTls};
use rusqlite::Connection;
use rusqlite::types::Value;
use weir_tables::{DatabaseStore, Error, MineSettings, MineSource, MineTotals, TableKind};

use super::{mined_into, rows};

/// A row without the columns that are null. Bytes are hexadecimal.
pub type Row = BTreeMap<String, String>;

/// A database that is not open.
pub enum Place {
    Postgres(String),
    Sqlite(PathBuf),
}

impl Place {
    pub fn try_open(&self, settings: &MineSettings) -> Result<DatabaseStore, Error> {
        match self {
            Place::Postgres(url) => DatabaseStore::postgres(client(url), "the server", settings),
            Place::Sqlite(path) => DatabaseStore::sqlite(path, settings),
        }
    }

    pub fn mined(&self, sources: &[MineSource<'_>]) -> MineTotals {
        let database = self.try_open(&MineSettings::default()).unwrap();
        mined_into(database, sources).0.unwrap()
    }

    /// Returns the number of rows of a table or view.
    pub fn count(&self, name: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {name}");
        match self {
            Place::Postgres(url) => client(url).query_one(&sql, &[]).unwrap().get(0),
            Place::Sqlite(path) => {
                Connection::open(path).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap()
            }
        }
    }

    pub fn rows(&self, table: TableKind) -> Vec<Row> {
        let mut rows = match self {
            Place::Postgres(url) => postgres_rows(&mut client(url), table),
            Place::Sqlite(path) => sqlite_rows(path, table),
        };
        rows.sort();
        rows
    }
}

pub fn client(url: &str) -> Client {
    Client::connect(url, NoTls).unwrap()
}

fn postgres_rows(client: &mut Client, table: TableKind) -> Vec<Row> {
    let sql = format!("SELECT row_to_json(t)::text FROM {} AS t", table.name());
    let row = |row: postgres::Row| {
        let row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(row.get(0)).unwrap();
        let text = |value: serde_json::Value| match value {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => match text.strip_prefix("\\x") {
                Some(hex) => Some(hex.to_owned()),
                None => Some(text.replace("+00:00", "Z")),
            },
            other => Some(other.to_string()),
        };
        row.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect()
    };
    client.query(&sql, &[]).unwrap().into_iter().map(row).collect()
}

fn sqlite_rows(path: &Path, table: TableKind) -> Vec<Row> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(&format!("SELECT * FROM {}", table.name())).unwrap();
    let schema = table.schema();
    let rows = statement.query_map([], |row| {
        let text = |at: usize| match row.get(at).unwrap() {
            Value::Null => None,
            Value::Integer(n) if *schema.field(at).data_type() == arrow_schema::DataType::Boolean => {
                Some((n != 0).to_string())
            }
            Value::Integer(n) => Some(n.to_string()),
            Value::Text(text) => Some(text),
            Value::Blob(bytes) => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            Value::Real(_) => panic!("no column has fractions"),
        };
        Ok((0..schema.fields().len())
            .filter_map(|at| Some((schema.field(at).name().clone(), text(at)?)))
            .collect())
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Returns the rows of a dataset of JSON lines.
pub fn json_rows(folder: &Path, table: TableKind) -> Vec<Row> {
    let row = |line: String| {
        let row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        row.into_iter().map(|(name, value)| (name, text(value))).collect()
    };
    let mut rows: Vec<Row> = rows(folder, table).into_iter().map(row).collect();
    rows.sort();
    rows
}
