//! Fills a spool of events, and opens one, to measure what opening costs.

use std::path::Path;
use std::time::Instant;

use weir_events::{EventSpool, FrameRecords, ReceivedLine, SpoolOptions};

use crate::Error;

/// The records of one frame: as many as a second brings.
const FRAME_RECORDS: usize = 8000;
const LINE: &[u8] = b"what an observer has to say about the weather in a line of ninety bytes, each second";

/// Writes a spool to `folder`, or opens the one there.
pub(crate) fn run(folder: &str, mebibytes: Option<String>) -> Result<(), Error> {
    match mebibytes {
        Some(mebibytes) => fill(folder, mebibytes.parse()?),
        None => open(folder),
    }
}

/// Writes records to the spool at `folder` until it holds `mebibytes` MiB.
fn fill(folder: &str, mebibytes: u64) -> Result<(), Error> {
    let options = SpoolOptions { bytes_max: u64::MAX, ..SpoolOptions::default() };
    let mut spool = EventSpool::open(Path::new(folder), options)?;
    let record = ReceivedLine { at_ms: 1, peer: "unix uid=0", line: LINE }.to_bytes();
    let (mut written, mut frame) = (0, FrameRecords::default());
    while written < mebibytes << 20 {
        frame.clear();
        while frame.len() < FRAME_RECORDS as u32 && frame.push(&[&record]) {}
        spool.append(&frame)?;
        written += (record.len() * FRAME_RECORDS) as u64;
    }
    Ok(())
}

/// Opens the spool at `folder`, and reads all of it. Prints how long opening took, how many records there
/// are, and the most memory of the process after opening, and after reading.
fn open(folder: &str) -> Result<(), Error> {
    let began = Instant::now();
    let options = SpoolOptions { bytes_max: u64::MAX, ..SpoolOptions::default() };
    let mut spool = EventSpool::open(Path::new(folder), options)?;
    let (seconds, opened_kib) = (began.elapsed().as_secs_f64(), peak_kib());
    let (mut reader, mut records) = (spool.reader(0), 0u64);
    while reader.read(10_000, &mut |_, _| records += 1)? > 0 {}
    let read_kib = peak_kib();
    let found = serde_json::json!({
        "seconds": seconds, "records": records, "opened_kib": opened_kib, "read_kib": read_kib,
    });
    println!("{found}");
    Ok(())
}

/// Returns the most memory that this process had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
