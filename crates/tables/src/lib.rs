//! The tables that mining fills, and the files that hold them.
//!
//! [`TableSink`] makes batches of the rows of `mine`. A [`Dataset`] keeps them in a folder, as Parquet or as
//! JSON lines; a [`DatabaseStore`] loads them into PostgreSQL or SQLite; a [`JsonStream`] prints them.
//! [`mine_all`] mines many repositories in parallel. [`mine_present`] mines one as it is now for whoever
//! asks; [`write_table`] writes one of its tables in a format of the user's choice. A [`QueryDatabase`] runs
//! SQL. `schema` lists the tables and their columns.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weir_ground::{Stop, Timestamp};
//! use weir_tables::{PresentRepository, QueryDatabase, QueryLimits};
//!
//! let repo = weir_repo::open_directory("/srv/git/project.git".as_ref())?;
//! let sql = "select author_name, count(*) from revision group by author_name";
//!
//! let mut database = QueryDatabase::new(&std::env::temp_dir(), 1 << 30)?;
//! let columns = database.reads(sql)?;
//! let load = database.load(&columns)?;
//! let now = Timestamp(1_700_000_000);
//! let source = PresentRepository { repo: &repo, origin: "project", url: None, now };
//! load.mine(&source, 4, &Stop::default())?;
//! let limits = QueryLimits { rows_max: 1000, bytes_max: 1 << 20 };
//! for row in load.finish()?.run(sql, limits, &Stop::default())?.rows {
//!     println!("{row:?}");
//! }
//! # Ok(())
//! # }
//! ```

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
