//! Makes cells of lines.

use std::borrow::Cow;
use std::collections::HashMap;

use regex_lite::Regex;
use serde_json::value::RawValue;

use crate::column::{EventCell, EventColumn, EventColumnType, cell_of_text};
use crate::error::{ColumnError, LineError, ValueError};

/// The form of lines.
#[derive(Clone, Debug)]
pub enum LineFormat {
    /// A JSON object; a column is a key, or keys with dots between.
    Json,
    /// A regular expression; a column is a named group.
    Pattern(Regex),
    /// Fields with this between them; a blank stands for any number of them.
    Separated(String),
}

/// A parser of lines.
#[derive(Clone, Debug)]
pub struct LineParser {
    format: LineFormat,
    columns: Vec<EventColumn>,
}

impl LineParser {
    /// Returns a parser of lines in `format` with these columns.
    ///
    /// # Errors
    /// If a column has no place in a line.
    pub fn new(format: LineFormat, columns: Vec<EventColumn>) -> Result<LineParser, ColumnError> {
        if columns.is_empty() {
            return Err(ColumnError::None);
        }
        for column in &columns {
            let source = column.source.as_ref().unwrap_or(&column.name);
            match &format {
                LineFormat::Pattern(pattern) if !pattern.capture_names().flatten().any(|n| n == source) => {
                    return Err(ColumnError::NoGroup(source.clone()));
                }
                LineFormat::Separated(_)
                    if column.source.as_ref().is_some_and(|s| !s.parse().is_ok_and(|n: usize| n > 0)) =>
                {
                    return Err(ColumnError::NoField(source.clone()));
                }
                _ => {}
            }
        }
        Ok(LineParser { format, columns })
    }

    /// Returns the columns.
    pub fn columns(&self) -> &[EventColumn] {
        &self.columns
    }

    /// Makes a cell for each column.
    ///
    /// # Errors
    /// If the line has not this form. The error says why.
    pub fn parse<'l>(&self, line: &'l [u8]) -> Result<Vec<EventCell<'l>>, LineError> {
        let text = std::str::from_utf8(line).map_err(|_| LineError::NotUtf8)?;
        match &self.format {
            LineFormat::Json => self.of_json(text),
            LineFormat::Pattern(pattern) => {
                let found = pattern.captures(text).ok_or(LineError::NoMatch)?;
                let group = |column: &EventColumn, _| {
                    found.name(column.source.as_ref().unwrap_or(&column.name)).map(|group| group.as_str())
                };
                self.of_fields(group)
            }
            LineFormat::Separated(separator) => {
                let fields: Vec<&str> = match separator.as_str() {
                    " " => text.split_whitespace().collect(),
                    separator => text.split(separator).collect(),
                };
                let is_whole = self.columns.iter().all(|column| column.source.is_none());
                if is_whole && fields.len() != self.columns.len() {
                    return Err(LineError::Fields { found: fields.len(), wanted: self.columns.len() });
                }
                let field = |column: &EventColumn, n: usize| {
                    let number = column.source.as_ref().and_then(|source| source.parse::<usize>().ok());
                    fields.get(number.map_or(n, |number| number - 1)).copied()
                };
                self.of_fields(field)
            }
        }
    }

    fn of_fields<'l>(
        &self,
        field: impl Fn(&EventColumn, usize) -> Option<&'l str>,
    ) -> Result<Vec<EventCell<'l>>, LineError> {
        let cell = |(n, column): (usize, &EventColumn)| match field(column, n) {
            // An empty field is no number and no time.
            Some("") if column.kind != EventColumnType::Text => missing(column),
            Some(text) => cell_of_text(text, column.kind).map_err(in_column(column)),
            None => missing(column),
        };
        self.columns.iter().enumerate().map(cell).collect()
    }

    fn of_json<'l>(&self, text: &'l str) -> Result<Vec<EventCell<'l>>, LineError> {
        let whole = JsonObject::parse(text)?;
        let cell = |column: &EventColumn| {
            let key = column.source.as_ref().unwrap_or(&column.name);
            match whole.find(key).map(RawValue::get) {
                None | Some("null") if column.is_required => Err(LineError::Missing(key.clone())),
                None | Some("null") => Ok(EventCell::Null),
                Some(value) => cell_of_json(value, column.kind).map_err(in_column(column)),
            }
        };
        self.columns.iter().map(cell).collect()
    }
}

/// A JSON object, whose values stay as they were written: no number loses a digit.
pub(crate) struct JsonObject<'l>(HashMap<Cow<'l, str>, &'l RawValue>);

impl<'l> JsonObject<'l> {
    /// Reads an object.
    ///
    /// # Errors
    /// If `text` is none.
    pub(crate) fn parse(text: &'l str) -> Result<JsonObject<'l>, LineError> {
        serde_json::from_str(text).map(JsonObject).map_err(|e| match text.trim_start().starts_with('{') {
            true => LineError::Json(e.to_string()),
            false => LineError::NoObject,
        })
    }

    /// Returns the value at `path`: that of the key, or of keys with dots between.
    pub(crate) fn find(&self, path: &str) -> Option<&'l RawValue> {
        if let Some(value) = self.0.get(path) {
            return Some(value);
        }
        let (key, rest) = path.split_once('.')?;
        JsonObject::parse(self.0.get(key)?.get()).ok()?.find(rest)
    }
}

/// Returns the cell of a line that has no value for `column`.
fn missing<'l>(column: &EventColumn) -> Result<EventCell<'l>, LineError> {
    if column.is_required { Err(LineError::Missing(column.name.clone())) } else { Ok(EventCell::Null) }
}

fn in_column(column: &EventColumn) -> impl Fn(ValueError) -> LineError {
    |why| LineError::Value { column: column.name.clone(), why }
}

fn cell_of_json<'l>(value: &str, kind: EventColumnType) -> Result<EventCell<'l>, ValueError> {
    let text: Cow<'_, str> = match value.starts_with('"') && kind != EventColumnType::Json {
        true => serde_json::from_str::<String>(value).map_err(|e| ValueError::Text(e.to_string()))?.into(),
        false => value.into(),
    };
    Ok(match cell_of_text(&text, kind)? {
        EventCell::Text(text) => EventCell::Text(text.into_owned().into()),
        EventCell::Integer(number) => EventCell::Integer(number),
        EventCell::Real(number) => EventCell::Real(number),
        EventCell::Boolean(is) => EventCell::Boolean(is),
        EventCell::Null => EventCell::Null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parser(format: LineFormat, columns: &[&str]) -> Result<LineParser, ColumnError> {
        LineParser::new(format, columns.iter().map(|text| EventColumn::parse(text).unwrap()).collect())
    }

    fn shown(parser: &LineParser, line: &str) -> String {
        match parser.parse(line.as_bytes()) {
            Ok(cells) => cells
                .iter()
                .map(|cell| match cell {
                    EventCell::Null => "-".to_owned(),
                    EventCell::Text(text) => text.to_string(),
                    EventCell::Integer(number) => number.to_string(),
                    EventCell::Real(number) => number.to_string(),
                    EventCell::Boolean(is) => is.to_string(),
                })
                .collect::<Vec<_>>()
                .join("|"),
            Err(why) => format!("error: {why}"),
        }
    }

    #[test]
    fn json_by_keys() {
        let columns = ["host text not null", "load real from system.load", "up boolean", "tags json"];
        let parser = parser(LineFormat::Json, &columns).unwrap();
        for (line, expected) in [
            (r#"{"host":"a","system":{"load":1.5},"up":true,"tags":["x", 1]}"#, r#"a|1.5|true|["x", 1]"#),
            (r#"{"host":"a","system.load":2,"up":"no","tags":"x"}"#, r#"a|2|false|"x""#),
            (r#"{"host":7,"other":[]}"#, "7|-|-|-"),
            (r#"{"host":12345678901234567890123,"tags":1.10}"#, "12345678901234567890123|-|-|1.10"),
            (r#"{"host":null}"#, "error: it has no 'host'"),
            (r#"{"host":"a","system":{"load":"high"}}"#, "error: 'load': 'high' is no number"),
            ("[]", "error: it is no JSON object"),
        ] {
            assert_eq!(shown(&parser, line), expected, "{line}");
        }
        assert!(shown(&parser, "{").starts_with("error: it is no JSON: "));
        assert_eq!(parser.parse(b"\xff").unwrap_err(), LineError::NotUtf8);
    }

    #[test]
    fn groups_of_a_pattern() {
        let pattern = Regex::new(r"^(?<host>\S+) took (?<ms>\d+)ms(?: by (?<who>\w+))?$").unwrap();
        let format = LineFormat::Pattern(pattern);
        let parsed = parser(format.clone(), &["took_ms integer from ms", "host text", "who text"]).unwrap();
        assert_eq!(shown(&parsed, "a took 12ms"), "12|a|-");
        assert_eq!(shown(&parsed, "a took 12ms by bob"), "12|a|bob");
        assert_eq!(shown(&parsed, "other"), "error: the pattern is not found in it");
        let error = parser(format, &["other text"]).unwrap_err().to_string();
        assert_eq!(error, "the pattern has no group 'other': (?<other>...)");
    }

    #[test]
    fn fields_by_separator() {
        let tab = LineFormat::Separated("\t".to_owned());
        let parsed = parser(tab.clone(), &["a text", "b integer"]).unwrap();
        assert_eq!(shown(&parsed, "x y\t3"), "x y|3");
        assert_eq!(shown(&parsed, "\t"), "|-");
        assert_eq!(shown(&parsed, "x"), "error: it has 1 fields, not 2");
        let blank = LineFormat::Separated(" ".to_owned());
        let parsed = parser(blank, &["last integer from 3", "first text from 1"]).unwrap();
        assert_eq!(shown(&parsed, "  a   b  7 more"), "7|a");
        assert_eq!(shown(&parsed, "a b"), "-|a");
        let none = parser(tab.clone(), &["a text from 0"]);
        assert!(matches!(none, Err(ColumnError::NoField(source)) if source == "0"));
        assert!(parser(tab, &[]).is_err());
    }
}
