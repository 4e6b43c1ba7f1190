//! An output of one's own: counts the rows of each table of a git directory. `cargo run -p weir-tables
//! --example own_output DIR`

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use weir_ground::{Clock, Stop, Timestamp};
use weir_mine::{MineOptions, MineProgress, ReplacedRows};
use weir_tables::{BatchWriter, MineOutput, MineRun, MineSource, TableKind, mine_all};

/// The number of rows of each table.
#[derive(Clone, Default)]
struct RowCounts(Arc<Mutex<BTreeMap<TableKind, usize>>>);

impl MineOutput for RowCounts {
    type Writer = RowCounts;

    fn writers(&mut self, count: usize) -> Vec<RowCounts> {
        vec![self.clone(); count]
    }

    fn discard(&mut self, writer: &mut RowCounts) -> RowCounts {
        writer.clone()
    }
}

impl BatchWriter for RowCounts {
    fn write(&mut self, table: TableKind, batch: &RecordBatch) -> io::Result<()> {
        *self.0.lock().expect("no thread panics").entry(table).or_default() += batch.num_rows();
        Ok(())
    }

    fn remove(&mut self, _: &str, _: ReplacedRows) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::path::PathBuf::from(std::env::args_os().nth(1).ok_or("name a git directory")?);
    let counts = RowCounts::default();
    let source = MineSource {
        origin: path.display().to_string(),
        former: Vec::new(),
        url: None,
        bytes: 0,
        seq: None,
        open: Box::new(move || weir_repo::open_directory(&path).map_err(Into::into)),
    };
    let run = MineRun {
        options: &MineOptions { has_revisions: true, has_changes: true, ..MineOptions::default() },
        has_refs: true,
        threads: 2,
        clock: &Clock::set_to(Timestamp(0)),
        progress: &MineProgress::default(),
        tell: &|source, event| println!("{}: {event:?}", source.origin),
        time_max: None,
        stop: &Stop::default(),
    };
    mine_all(&[source], counts.clone(), &run)?;
    for (table, count) in counts.0.lock().expect("no thread panics").iter() {
        println!("{count:>8} {}", table.name());
    }
    Ok(())
}
