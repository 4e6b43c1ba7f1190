//! Columns of tables, and the values in them.

use std::borrow::Cow;

use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

use crate::error::{ColumnError, ValueError};

/// The longest name of a table or column: PostgreSQL cuts longer ones.
const NAME_BYTES_MAX: usize = 50;
/// Below this, a float has all integers.
const EXACT_INTEGERS: f64 = (1u64 << 53) as f64;
/// Numbers from here on are milliseconds since 1970, not seconds.
const MILLISECONDS_FROM: f64 = 1e11;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventColumnType {
    /// Any text.
    Text,
    /// An integer of 64 bits.
    Integer,
    /// A floating-point number.
    Real,
    /// `true` or `false`, also as 1, 0, yes, no, on and off.
    Boolean,
    /// A time: as RFC 3339 writes it, or a number of seconds or milliseconds since 1970.
    Timestamp,
    /// JSON of any form.
    Json,
}

impl EventColumnType {
    fn parse(name: &str) -> Option<EventColumnType> {
        Some(match name {
            "text" => EventColumnType::Text,
            "integer" => EventColumnType::Integer,
            "real" => EventColumnType::Real,
            "boolean" => EventColumnType::Boolean,
            "timestamp" => EventColumnType::Timestamp,
            "json" => EventColumnType::Json,
            _ => return None,
        })
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: EventColumnType,
    /// Where its value is in a line: a key of JSON, the name of a group, or the number of a field, from 1.
    pub source: Option<String>,
    /// Whether a line without a value for it is refused.
    pub is_required: bool,
}

impl EventColumn {
    /// Reads `NAME TYPE [from SOURCE] [not null]`.
    ///
    /// # Errors
    /// If it is anything else. The error says what is wrong.
    pub fn parse(text: &str) -> Result<EventColumn, ColumnError> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let is_required = words.ends_with(&["not", "null"]);
        if is_required {
            words.truncate(words.len() - 2);
        }
        let (name, kind, source) = match words[..] {
            [name, kind] => (name, kind, None),
            [name, kind, "from", source] => (name, kind, Some(source.to_owned())),
            _ => return Err(ColumnError::Form(text.to_owned())),
        };
        check_identifier(name)?;
        if ["event_id", "received_at", "peer"].contains(&name) {
            return Err(ColumnError::Reserved(name.to_owned()));
        }
        let kind = EventColumnType::parse(kind).ok_or_else(|| ColumnError::Type(kind.to_owned()))?;
        Ok(EventColumn { name: name.to_owned(), kind, source, is_required })
    }
}

/// Checks the name of a table or column: letters, digits and underscores, and no digit first.
///
/// # Errors
/// If it is another one.
pub(crate) fn check_identifier(name: &str) -> Result<(), ColumnError> {
    let is_right =
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let starts_right = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    match is_right && starts_right && name.len() <= NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(ColumnError::Name { name: name.to_owned(), max: NAME_BYTES_MAX }),
    }
}

/// A value in a column.
#[derive(Clone, Debug, PartialEq)]
pub enum EventCell<'l> {
    /// None.
    Null,
    /// A text, a time in RFC 3339, or JSON.
    Text(Cow<'l, str>),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A boolean.
    Boolean(bool),
}

/// Returns the value that `text` means in a column of type `kind`.
///
/// # Errors
/// If it means none.
pub(crate) fn cell_of_text(text: &str, kind: EventColumnType) -> Result<EventCell<'_>, ValueError> {
    let bad = |kind| Err(ValueError::Kind { text: text.chars().take(80).collect(), kind });
    // No database takes a NUL in a text.
    if text.contains('\0') {
        return Err(ValueError::Nul);
    }
    let trimmed = text.trim();
    match kind {
        EventColumnType::Text => Ok(EventCell::Text(text.into())),
        EventColumnType::Integer => match (trimmed.parse(), trimmed.parse::<f64>()) {
            (Ok(number), _) => Ok(EventCell::Integer(number)),
            // Some programs write integers so.
            (_, Ok(number)) if number.fract() == 0.0 && number.abs() < EXACT_INTEGERS => {
                Ok(EventCell::Integer(number as i64))
            }
            _ => bad("integer"),
        },
        EventColumnType::Real => match trimmed.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(EventCell::Real(number)),
            _ => bad("number"),
        },
        EventColumnType::Boolean => match trimmed.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "on" | "1" => Ok(EventCell::Boolean(true)),
            "false" | "f" | "no" | "off" | "0" => Ok(EventCell::Boolean(false)),
            _ => bad("boolean"),
        },
        EventColumnType::Timestamp => match timestamp(trimmed) {
            Some(time) => Ok(EventCell::Text(time.into())),
            None => bad("time"),
        },
        EventColumnType::Json => match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            // PostgreSQL's jsonb takes no NUL, in whatever form.
            Ok(_) if !text.contains("\\u0000") => Ok(EventCell::Text(text.into())),
            _ => bad("JSON"),
        },
    }
}

/// Returns a time in UTC as RFC 3339 writes it.
fn timestamp(text: &str) -> Option<String> {
    let time = match text.parse::<f64>() {
        Ok(number) => {
            let seconds = if number.abs() >= MILLISECONDS_FROM { number / 1000.0 } else { number };
            // To the microsecond: more has no room in a float, or in PostgreSQL.
            let micros = (seconds * 1e6).round();
            OffsetDateTime::from_unix_timestamp_nanos((micros as i128).checked_mul(1000)?).ok()?
        }
        Err(_) => parse_time(text)?,
    };
    let time = time.to_offset(UtcOffset::UTC);
    // Years of four digits: both databases and RFC 3339 have them.
    (0..=9999).contains(&time.year()).then(|| written(time))
}

/// Returns a time in UTC as RFC 3339 writes it, to the microsecond: such texts sort as the times do.
pub(crate) fn written(time: OffsetDateTime) -> String {
    let (hour, minute, second, micros) = time.to_hms_micro();
    let (year, month, day) = time.to_calendar_date();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z", u8::from(month))
}

fn parse_time(text: &str) -> Option<OffsetDateTime> {
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
        return Some(time);
    }
    // Many programs write a blank, and no zone for UTC.
    let with_t = text.replacen(' ', "T", 1);
    [format!("{with_t}Z"), with_t].iter().find_map(|text| OffsetDateTime::parse(text, &Rfc3339).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read() {
        let column = EventColumn::parse("load real from system.load not null").unwrap();
        assert_eq!((column.name.as_str(), column.kind), ("load", EventColumnType::Real));
        assert!(column.source.as_deref() == Some("system.load") && column.is_required);
        assert!(!EventColumn::parse(" a  text ").unwrap().is_required);
        for (bad, why) in [
            ("a", "is no column"),
            ("a text of b", "is no column"),
            ("a string", "the type 'string' is not text"),
            ("peer text", "already"),
            ("A text", "is not made of"),
            ("1a text", "is not made of"),
            ("a\"b text", "is not made of"),
        ] {
            let error = EventColumn::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn texts_become_values() {
        let cell = |text, kind| cell_of_text(text, kind).ok();
        let text = |text: &str| Some(EventCell::Text(text.to_owned().into()));
        assert_eq!(cell("-7", EventColumnType::Integer), Some(EventCell::Integer(-7)));
        assert_eq!(cell("1e3", EventColumnType::Integer), Some(EventCell::Integer(1000)));
        assert_eq!(cell("1.5", EventColumnType::Integer), None);
        assert_eq!(cell(" 1.5e3 ", EventColumnType::Real), Some(EventCell::Real(1500.0)));
        assert_eq!(cell("Yes", EventColumnType::Boolean), Some(EventCell::Boolean(true)));
        assert_eq!(cell("{\"a\" : 1}", EventColumnType::Json), text("{\"a\" : 1}"));
        for (time, expected) in [
            ("2026-11-28T12:00:00.25+02:00", "2026-11-28T10:00:00.250000Z"),
            ("2026-11-28 12:00:00", "2026-11-28T12:00:00.000000Z"),
            ("0", "1970-01-01T00:00:00.000000Z"),
            ("1700000000.5", "2023-11-14T22:13:20.500000Z"),
            ("1700000000500", "2023-11-14T22:13:20.500000Z"),
        ] {
            assert_eq!(cell(time, EventColumnType::Timestamp), text(expected), "{time}");
        }
        for (bad, kind) in [
            ("", EventColumnType::Integer),
            ("99999999999999999999", EventColumnType::Integer),
            ("nan", EventColumnType::Real),
            ("maybe", EventColumnType::Boolean),
            ("yesterday", EventColumnType::Timestamp),
            ("1e300", EventColumnType::Timestamp),
            ("{", EventColumnType::Json),
            ("\"\\u0000\"", EventColumnType::Json),
            ("a\0b", EventColumnType::Text),
        ] {
            assert_eq!(cell(bad, kind), None, "{bad}");
        }
    }
}
