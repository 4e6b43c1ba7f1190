//! The settings `[[events.table]]` and `[[events.worker]]`: where weir puts the lines of senders.

use std::path::Path;
use std::sync::Arc;

use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use weir_collect::{
    EventColumn, EventTable, EventTableSpec, LineFilter, LineFormat, LineParser, TableDatabase, WorkerSpec,
};
use weir_ground::check_name;

use crate::config_values::{Span, shown_database};
use crate::error::SettingError;

/// The database file for tables without a `database`, in the pool.
const DATABASE_NAME: &str = "events.db";

/// The form of the lines of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum TableFormat {
    #[default]
    Json,
    Pattern,
    Separated,
}

/// A table `[[events.table]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TableConfig {
    /// Its name.
    pub name: String,
    #[serde(rename = "match")]
    matching: Option<String>,
    #[serde(default)]
    format: TableFormat,
    pattern: Option<String>,
    separator: Option<String>,
    columns: Vec<String>,
    /// It is shown without its password.
    #[serde(serialize_with = "shown_database")]
    database: Option<String>,
}

/// A table, ready to be filled.
pub struct TableCollector {
    /// Which lines it takes.
    pub filter: LineFilter,
    /// What makes rows of them.
    pub parser: LineParser,
    /// The table.
    pub table: EventTable,
}

impl TableConfig {
    /// Returns which lines it takes.
    ///
    /// # Errors
    /// If `match` is no regular expression.
    pub fn filter(&self) -> Result<LineFilter, SettingError> {
        LineFilter::new(self.matching.as_deref()).map_err(|e| SettingError::of(format!("match: {e}")))
    }

    /// Returns the table for the pool at `pool`, whose events are those of `owner`.
    ///
    /// # Errors
    /// If a setting is wrong. The error says which.
    pub fn open(&self, pool: &Path, owner: &str) -> Result<TableCollector, SettingError> {
        let format = match (self.format, &self.pattern, &self.separator) {
            (TableFormat::Json, None, None) => LineFormat::Json,
            (TableFormat::Pattern, Some(pattern), None) => LineFormat::Pattern(
                Regex::new(pattern).map_err(|e| SettingError::of(format!("pattern: {e}")))?,
            ),
            (TableFormat::Separated, None, separator) => {
                let separator = separator.clone().unwrap_or_else(|| "\t".to_owned());
                if separator.is_empty() {
                    return Err("separator is empty".into());
                }
                LineFormat::Separated(separator)
            }
            (TableFormat::Pattern, None, None) => return Err("format 'pattern' needs a pattern".into()),
            _ => {
                let text = "pattern is for the format 'pattern', and separator for the format 'separated'";
                return Err(text.into());
            }
        };
        let columns: Vec<_> = self
            .columns
            .iter()
            .map(|text| EventColumn::parse(text).map_err(SettingError::of))
            .collect::<Result<_, _>>()?;
        let mut names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("it has two columns named '{}'", twice[0]).into());
        }
        let database = self.database(pool)?;
        let spec = EventTableSpec {
            name: self.name.clone(),
            database,
            columns: columns.clone(),
            owner: owner.to_owned(),
        };
        let (filter, parser) = (self.filter()?, LineParser::new(format, columns).map_err(SettingError::of)?);
        Ok(TableCollector { filter, parser, table: EventTable::new(spec).map_err(SettingError::of)? })
    }

    fn database(&self, pool: &Path) -> Result<TableDatabase, SettingError> {
        match self.database.as_deref() {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                weir_sql::check_url(url).map_err(SettingError::of)?;
                let url = url.to_owned();
                let connect = move || weir_sql::connect_postgres(&url);
                Ok(TableDatabase::Postgres(Arc::new(connect)))
            }
            Some(url) if url.contains("://") => {
                Err("database is neither a file nor begins with postgres://".into())
            }
            Some(path)
                if path.trim().is_empty()
                    || Path::new(path).file_name().is_some_and(|n| n == "catalog.db") =>
            {
                Err(format!("database '{path}' cannot be one of yours: choose another file").into())
            }
            path => Ok(TableDatabase::Sqlite(pool.join(path.unwrap_or(DATABASE_NAME)))),
        }
    }
}

/// A table `[[events.worker]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    /// Its name.
    pub name: String,
    command: Vec<String>,
    #[serde(default = "one")]
    count: u16,
    #[serde(rename = "match")]
    matching: Option<String>,
    key: Option<String>,
    #[serde(default = "a_minute")]
    timeout: Span,
}

fn one() -> u16 {
    1
}

fn a_minute() -> Span {
    Span::seconds(60)
}

impl WorkerConfig {
    /// Returns the programs, which run in `folder`.
    ///
    /// # Errors
    /// If a setting is wrong. The error says which.
    pub fn spec(&self, folder: &Path) -> Result<WorkerSpec, SettingError> {
        check_name(&self.name)?;
        if self.command.first().is_none_or(String::is_empty) {
            return Err("command is empty".into());
        }
        if self.timeout.0.is_zero() {
            return Err("timeout must be at least 1s".into());
        }
        if self.count == 0 {
            return Err("count must be at least 1".into());
        }
        Ok(WorkerSpec {
            name: self.name.clone(),
            command: self.command.clone(),
            folder: folder.to_owned(),
            count: self.count.into(),
            key: self.key.clone(),
            filter: LineFilter::new(self.matching.as_deref())
                .map_err(|e| SettingError::of(format!("match: {e}")))?,
            timeout: self.timeout.0,
        })
    }

    /// Returns the program.
    pub(crate) fn program(&self) -> Option<&String> {
        self.command.first()
    }
}
