//! Lines of senders, put into tables of a database and given to long-lived programs.
//!
//! A [`LineParser`] makes cells of a line; an [`EventTable`] appends rows of them, in SQLite or PostgreSQL,
//! and notes in the same transaction how far it is. [`EventWorkers`] give lines to a fixed number of
//! programs, each of which answers a line with a line. What reads the lines, and keeps what is rejected, is
//! the caller's.
//!
//! ```
//! use weir_collect::{EventCell, EventColumn, LineFormat, LineParser};
//!
//! let columns = ["host text", "milliseconds integer from took not null"];
//! let columns = columns.iter().map(|column| EventColumn::parse(column)).collect::<Result<_, _>>().unwrap();
//! let parser = LineParser::new(LineFormat::Json, columns).unwrap();
//!
//! let cells = parser.parse(br#"{"host":"a","took":7}"#).unwrap();
//! assert!(matches!(cells[..], [EventCell::Text(_), EventCell::Integer(7)]));
//! let refused = parser.parse(br#"{"host":"a"}"#).unwrap_err();
//! assert_eq!(refused.to_string(), "it has no 'took'");
//! ```

mod column;
mod error;
mod filter;
mod parser;
mod process_group;
mod program;
mod table;
mod workers;

pub use column::{EventCell, EventColumn, EventColumnType};
pub use error::{ColumnError, LineError, ValueError};
pub use filter::LineFilter;
pub use parser::{LineFormat, LineParser};
pub use process_group::ProcessGroup;
pub use program::{GOODBYE, LineProgram, LineProgramError, error_of};
pub use table::{
    ConnectPostgres, EventRow, EventTable, EventTableSpec, RefusedRow, TableDatabase, TableError,
};
pub use workers::{EventWorkers, FinishedLine, WorkerLine, WorkerSpec};
