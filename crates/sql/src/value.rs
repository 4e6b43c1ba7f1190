//! Parameters and results, for both databases.

use std::borrow::Cow;
use std::error::Error as StdError;

use bytes::BytesMut;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use rusqlite::types::{ToSqlOutput, ValueRef};
use weir_ground::{Epoch, FailureClass, Seq, Timestamp};

use crate::error::{Error, Result};

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A number, a time or a flag.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes.
    Blob(Cow<'a, [u8]>),
    /// For `= ANY(?1)`.
    Texts(Vec<&'a str>),
    /// For `= ANY(?1)`.
    Integers(Vec<i64>),
}

impl From<i64> for Value<'_> {
    fn from(n: i64) -> Self {
        Value::Integer(n)
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(at: Timestamp) -> Self {
        Value::Integer(at.0)
    }
}

impl From<FailureClass> for Value<'_> {
    fn from(class: FailureClass) -> Self {
        Value::Text(class.name().into())
    }
}

impl From<Seq> for Value<'_> {
    fn from(seq: Seq) -> Self {
        seq.0.into()
    }
}

impl From<Epoch> for Value<'_> {
    fn from(epoch: Epoch) -> Self {
        epoch.0.into()
    }
}

impl From<usize> for Value<'_> {
    fn from(n: usize) -> Self {
        Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl From<u64> for Value<'_> {
    fn from(n: u64) -> Self {
        Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value<'_> {
    fn from(is: bool) -> Self {
        Value::Integer(is.into())
    }
}

impl From<f64> for Value<'_> {
    fn from(n: f64) -> Self {
        Value::Real(n)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text.into())
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value::Text(text.into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(text.into())
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Blob(bytes.into())
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Makes parameters from values of any types.
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::Value::from($value)),*] };
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let json = |list: serde_json::Result<String>| {
            list.map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
        };
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Integer(n) => ToSqlOutput::Borrowed(ValueRef::Integer(*n)),
            Value::Real(n) => ToSqlOutput::Borrowed(ValueRef::Real(*n)),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Value::Texts(list) => ToSqlOutput::from(json(serde_json::to_string(list))?),
            Value::Integers(list) => ToSqlOutput::from(json(serde_json::to_string(list))?),
        })
    }
}

/// Replaces NUL, which PostgreSQL does not allow in text.
pub fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match (self, ty) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Integer(n), &Type::BOOL) => (*n != 0).to_sql(ty, out),
            (Value::Integer(n), &Type::INT4) => i32::try_from(*n)?.to_sql(ty, out),
            (Value::Integer(n), &Type::FLOAT8) => (*n as f64).to_sql(ty, out),
            (Value::Integer(n), _) => n.to_sql_checked(ty, out),
            (Value::Real(n), _) => n.to_sql_checked(ty, out),
            (Value::Text(text), _) => without_nul(text).as_ref().to_sql_checked(ty, out),
            (Value::Blob(bytes), _) => bytes.as_ref().to_sql_checked(ty, out),
            (Value::Texts(list), _) => {
                list.iter().map(|text| without_nul(text)).collect::<Vec<_>>().to_sql_checked(ty, out)
            }
            (Value::Integers(list), _) => list.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        // It depends on the value, and is checked when the value is written.
        true
    }

    to_sql_checked!();
}

/// A type that can be read from a column.
pub trait Field: Sized {
    /// Returns what column `n` of `row` holds.
    fn read(row: &Row<'_>, n: usize) -> Result<Self>;
}

/// Implements [`Field`] for types that both databases read, also for those that may be NULL.
macro_rules! field {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn read(row: &Row<'_>, n: usize) -> Result<Self> {
                match row {
                    Row::Sqlite(row) => Ok(row.get(n)?),
                    Row::Postgres(row) => row.try_get(n).map_err(Error::from),
                }
            }
        }
    )*};
}

/// Implements [`Field`] for types that are integers in a column.
macro_rules! integer_field {
    ($($type:ty, $from:expr);*) => {$(
        impl Field for $type {
            fn read(row: &Row<'_>, n: usize) -> Result<Self> {
                i64::read(row, n).map($from)
            }
        }

        impl Field for Option<$type> {
            fn read(row: &Row<'_>, n: usize) -> Result<Self> {
                Ok(Option::<i64>::read(row, n)?.map($from))
            }
        }
    )*};
}

field!(
    bool,
    Option<bool>,
    i64,
    Option<i64>,
    f64,
    Option<f64>,
    String,
    Option<String>,
    Vec<u8>,
    Option<Vec<u8>>
);
integer_field!(Timestamp, Timestamp; Epoch, |n| Epoch(u64::try_from(n).unwrap_or(0)));

impl Field for Option<FailureClass> {
    fn read(row: &Row<'_>, n: usize) -> Result<Self> {
        // The error message describes a class that only a later weir knows.
        let class = |name: String| FailureClass::from_name(&name).unwrap_or(FailureClass::Local);
        Ok(Option::<String>::read(row, n)?.map(class))
    }
}

/// A row of a result.
pub enum Row<'a> {
    /// Of SQLite.
    Sqlite(&'a rusqlite::Row<'a>),
    /// Of PostgreSQL.
    Postgres(&'a postgres::Row),
}

impl Row<'_> {
    /// Returns column `n`, from 0.
    pub fn get<T: Field>(&self, n: usize) -> Result<T> {
        T::read(self, n)
    }

    /// Returns column `n`, whatever its type.
    pub fn value(&self, n: usize) -> Result<Value<'static>> {
        match self {
            Row::Sqlite(row) => Ok(match row.get_ref(n)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(n) => Value::Integer(n),
                ValueRef::Real(n) => Value::Real(n),
                ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned().into()),
                ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec().into()),
            }),
            Row::Postgres(row) => Ok(match *row.columns()[n].type_() {
                Type::INT8 => Value::from(row.try_get::<_, Option<i64>>(n)?),
                Type::FLOAT8 => Value::from(row.try_get::<_, Option<f64>>(n)?),
                Type::BYTEA => row
                    .try_get::<_, Option<Vec<u8>>>(n)?
                    .map_or(Value::Null, |bytes| Value::Blob(bytes.into())),
                _ => Value::from(row.try_get::<_, Option<String>>(n)?),
            }),
        }
    }
}
