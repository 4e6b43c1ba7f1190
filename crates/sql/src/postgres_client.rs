//! A connection to PostgreSQL that keeps its statements, and reconnects when it was lost.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;

use postgres::fallible_iterator::FallibleIterator;
use postgres::types::ToSql;
use postgres::{Client, Statement};

use crate::address::DatabaseAddress;
use crate::dialect::{self, Type};
use crate::error::{Error, Result};
use crate::value::{Row, Value, without_nul};

pub(crate) struct Postgres {
    address: DatabaseAddress,
    connection: RefCell<Connected>,
    /// The locks that the session holds, by kind and name.
    locks: RefCell<Vec<(&'static str, String)>>,
}

const TRY_LOCK: &str = "SELECT pg_try_advisory_lock(hashtext($1), hashtext(current_schema() || '/' || $2))";
const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtext($1), hashtext(current_schema() || '/' || $2))";

struct Connected {
    client: Client,
    /// Prepared statements, by their text before it was translated.
    statements: HashMap<String, Statement>,
}

impl Connected {
    fn new(address: &DatabaseAddress) -> Result<Connected> {
        Ok(Connected { client: address.connect()?, statements: HashMap::new() })
    }

    fn statement(&mut self, sql: &str, translate: impl FnOnce(&str) -> String) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&translate(sql))?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

fn references<'a>(parameters: &'a [Value<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

impl Postgres {
    pub(crate) fn connect(url: &str) -> Result<Postgres> {
        let address = DatabaseAddress::parse(url)?;
        let connection = RefCell::new(Connected::new(&address)?);
        Ok(Postgres { address, connection, locks: RefCell::default() })
    }

    /// Takes the lock called `name` among those of `kind` for the session. Returns false if another session
    /// has it, or this one already.
    pub(crate) fn try_lock(&self, kind: &'static str, name: &str) -> Result<bool> {
        let lock = (kind, name.to_owned());
        if self.locks.borrow().contains(&lock) {
            return Ok(false);
        }
        let is_taken =
            self.with(true, |c| Ok(c.client.query_one(TRY_LOCK, &[&kind, &name])?.get::<_, bool>(0)))?;
        if is_taken {
            self.locks.borrow_mut().push(lock);
        }
        Ok(is_taken)
    }

    /// Releases the lock.
    pub(crate) fn unlock(&self, kind: &'static str, name: &str) -> Result<()> {
        let lock = (kind, name.to_owned());
        if !self.locks.borrow().contains(&lock) {
            return Ok(());
        }
        self.locks.borrow_mut().retain(|held| *held != lock);
        self.with(true, |c| Ok(c.client.query(UNLOCK, &[&kind, &name]).map(|_| ())?))
    }

    /// Opens a new connection in place of a lost one, and takes its locks again, which were lost with it. If
    /// another session has taken one meanwhile, returns an error once.
    fn reconnect(&self, connection: &mut Connected) -> Result<()> {
        *connection = Connected::new(&self.address)?;
        let mut lost = None;
        self.locks.borrow_mut().retain(|(kind, name)| {
            let taken =
                connection.client.query_one(TRY_LOCK, &[kind, name]).is_ok_and(|row| row.get::<_, bool>(0));
            if !taken {
                lost.get_or_insert_with(|| name.clone());
            }
            taken
        });
        lost.map_or(Ok(()), |name| Err(Error::LockLost(name)))
    }

    /// Does `work`, and once more on a new connection if this one turns out to be lost.
    fn with<T>(&self, may_reconnect: bool, work: impl Fn(&mut Connected) -> Result<T>) -> Result<T> {
        let mut connection = self.connection.borrow_mut();
        if may_reconnect && connection.client.is_closed() {
            self.reconnect(&mut connection)?;
        }
        match work(&mut connection) {
            Err(_) if may_reconnect && connection.client.is_closed() => {
                self.reconnect(&mut connection)?;
                work(&mut connection)
            }
            result => result,
        }
    }

    pub(crate) fn batch(&self, sql: &str, may_reconnect: bool) -> Result<()> {
        self.with(may_reconnect, |c| Ok(c.client.batch_execute(sql)?))
    }

    pub(crate) fn execute(&self, sql: &str, parameters: &[Value<'_>], may_reconnect: bool) -> Result<u64> {
        self.with(may_reconnect, |c| {
            let statement = c.statement(sql, dialect::for_postgres)?;
            Ok(c.client.execute(&statement, &references(parameters))?)
        })
    }

    pub(crate) fn query(
        &self,
        sql: &str,
        parameters: &[Value<'_>],
        may_reconnect: bool,
    ) -> Result<Vec<postgres::Row>> {
        self.with(may_reconnect, |c| {
            let statement = c.statement(sql, dialect::for_postgres)?;
            Ok(c.client.query(&statement, &references(parameters))?)
        })
    }

    pub(crate) fn stream(&self, sql: &str, each: &mut dyn FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        let mut connection = self.connection.borrow_mut();
        let mut rows = connection.client.query_raw(sql, std::iter::empty::<&(dyn ToSql + Sync)>())?;
        while let Some(row) = rows.next()? {
            each(&Row::Postgres(&row))?;
        }
        Ok(())
    }

    pub(crate) fn execute_rows(&self, sql: &str, types: &[Type], rows: &[Vec<Value<'_>>]) -> Result<u64> {
        let columns = columns(types, rows);
        let parameters: Vec<&(dyn ToSql + Sync)> = columns.iter().map(|column| &**column).collect();
        self.with(false, |c| {
            let statement = c.statement(sql, |sql| dialect::for_rows_of_postgres(sql, types))?;
            Ok(c.client.execute(&statement, &parameters)?)
        })
    }

    pub(crate) fn query_rows(
        &self,
        sql: &str,
        types: &[Type],
        rows: &[Vec<Value<'_>>],
    ) -> Result<Vec<postgres::Row>> {
        let columns = columns(types, rows);
        let parameters: Vec<&(dyn ToSql + Sync)> = columns.iter().map(|column| &**column).collect();
        self.with(false, |c| {
            let statement = c.statement(sql, |sql| dialect::for_rows_of_postgres(sql, types))?;
            Ok(c.client.query(&statement, &parameters)?)
        })
    }

    /// Runs `COPY ... FROM STDIN`, in its text format.
    pub(crate) fn copy(&self, sql: &str, rows: &[Vec<Value<'_>>]) -> Result<()> {
        let mut text = Vec::new();
        for row in rows {
            for (n, value) in row.iter().enumerate() {
                if n > 0 {
                    text.push(b'\t');
                }
                write_field(&mut text, value);
            }
            text.push(b'\n');
        }
        self.with(false, |c| {
            let mut writer = c.client.copy_in(sql)?;
            writer.write_all(&text).map_err(Error::Copy)?;
            writer.finish()?;
            Ok(())
        })
    }
}

/// Writes a value as `COPY` reads it: <https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.2>
fn write_field(text: &mut Vec<u8>, value: &Value<'_>) {
    let _ = match value {
        Value::Integer(n) => write!(text, "{n}"),
        Value::Real(n) => write!(text, "{n}"),
        Value::Text(t) => {
            for byte in without_nul(t).bytes() {
                match byte {
                    b'\\' => text.extend_from_slice(b"\\\\"),
                    b'\t' => text.extend_from_slice(b"\\t"),
                    b'\n' => text.extend_from_slice(b"\\n"),
                    b'\r' => text.extend_from_slice(b"\\r"),
                    byte => text.push(byte),
                }
            }
            Ok(())
        }
        Value::Blob(bytes) => {
            text.extend_from_slice(b"\\\\x");
            bytes.iter().try_for_each(|byte| write!(text, "{byte:02x}"))
        }
        Value::Null | Value::Texts(_) | Value::Integers(_) => write!(text, "\\N"),
    };
}

/// Returns rows of parameters as an array for each column.
fn columns<'a>(types: &[Type], rows: &'a [Vec<Value<'a>>]) -> Vec<Box<dyn ToSql + Sync + 'a>> {
    let column = |(n, ty): (usize, &Type)| -> Box<dyn ToSql + Sync + 'a> {
        let values = rows.iter().map(move |row| &row[n]);
        match ty {
            Type::Integer => Box::new(
                values.map(|v| if let Value::Integer(n) = v { Some(*n) } else { None }).collect::<Vec<_>>(),
            ),
            Type::Real => Box::new(
                values.map(|v| if let Value::Real(n) = v { Some(*n) } else { None }).collect::<Vec<_>>(),
            ),
            Type::Text => Box::new(
                values
                    .map(|v| if let Value::Text(t) = v { Some(without_nul(t)) } else { None })
                    .collect::<Vec<_>>(),
            ),
            Type::Blob => Box::new(
                values
                    .map(|v| if let Value::Blob(b) = v { Some(b.as_ref()) } else { None })
                    .collect::<Vec<_>>(),
            ),
        }
    };
    types.iter().enumerate().map(column).collect()
}

impl From<postgres::Error> for Error {
    fn from(e: postgres::Error) -> Error {
        let code = e.code().map(|code| code.code().to_owned());
        if let Some(said) = e.as_db_error() {
            return Error::Postgres { message: said.message().to_owned(), code };
        }
        // Its sources say what happened.
        let mut message = e.to_string();
        let mut source = std::error::Error::source(&e);
        while let Some(e) = source {
            message = format!("{message}: {e}");
            source = e.source();
        }
        Error::Postgres { message, code }
    }
}
