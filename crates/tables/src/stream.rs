//! Rows as JSON lines in one stream, each with the name of its table.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use weir_mine::ReplacedRows;

use crate::output::MineOutput;
use crate::part::write_json_lines;
use crate::schema::TableKind;
use crate::sink::BatchWriter;

/// Writes JSON lines. Copies write to the same stream, a batch at a time.
pub struct JsonStream<W> {
    out: Arc<Mutex<W>>,
    buffer: Vec<u8>,
}

impl<W> Clone for JsonStream<W> {
    fn clone(&self) -> Self {
        JsonStream { out: Arc::clone(&self.out), buffer: Vec::new() }
    }
}

impl<W: Write + Send> JsonStream<W> {
    /// Makes a writer to `out`.
    pub fn new(out: W) -> JsonStream<W> {
        JsonStream { out: Arc::new(Mutex::new(out)), buffer: Vec::new() }
    }
}

impl<W: Write + Send> MineOutput for JsonStream<W> {
    type Writer = JsonStream<W>;

    fn writers(&mut self, count: usize) -> Vec<JsonStream<W>> {
        vec![self.clone(); count]
    }

    fn discard(&mut self, writer: &mut JsonStream<W>) -> JsonStream<W> {
        writer.clone()
    }
}

impl<W: Write + Send> BatchWriter for JsonStream<W> {
    fn write(&mut self, table: TableKind, batch: &RecordBatch) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        write_json_lines(table, batch, &mut self.buffer, &mut *out)?;
        out.flush()
    }

    /// Does nothing: nothing is known of what was printed before.
    fn remove(&mut self, _: &str, _: ReplacedRows) -> io::Result<()> {
        Ok(())
    }
}
