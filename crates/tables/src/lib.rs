//! The tables that mining fills, and the files that hold them.
//!
//! [`TableSink`] makes batches of the rows of `mine`. A [`Dataset`] keeps them in a folder, as Parquet or as
//! JSON lines; a [`DatabaseStore`] loads them into PostgreSQL or SQLite; a [`JsonStream`] prints them.
//! [`mine_all`] mines many repositories in parallel. [`mine_present`] mines one as it is now for whoever
//! asks; [`write_table`] writes one of its tables in a format of the user's choice. A [`QueryDatabase`] runs
//! SQL. `schema` lists the tables and their columns.

mod column;
mod database;
mod dataset;
mod error;
mod format;
mod json_lines;
mod lock;
mod mining;
mod output;
mod part;
mod present;
mod query;
mod removal;
mod schema;
mod settings;
mod sink;
mod state;
mod stream;

pub use database::{DatabaseStore, DatabaseWriter};
pub use dataset::{Dataset, PartWriter};
pub use error::{Error, Result};
pub use format::{RowFormat, TableWriter};
pub use mining::{MineEvent, MineRun, MineSource, MineTotals, SourceError, forget, mine_all};
pub use output::MineOutput;
pub use part::FileFormat;
pub use present::{PresentRepository, WantedColumns, mine_present, write_table};
pub use query::{
    CsvRows, KeptDatabases, QueryAnswer, QueryDatabase, QueryError, QueryKey, QueryLimits, QueryLoad,
    QueryRow, QueryValue,
};
pub use removal::{OriginEdit, RowEdit};
pub use schema::TableKind;
pub use settings::MineSettings;
pub use sink::{BatchWriter, MiningRow, TableSink};
pub use stream::JsonStream;
