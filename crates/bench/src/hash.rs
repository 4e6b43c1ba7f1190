//! Measures how fast objects are hashed, with collision detection, on this processor.

use std::time::Instant;

use weir_git::{BatchHasher, HashKind, Kind, ObjectHasher};

use crate::Error;

/// Bytes hashed of each kind.
const TOTAL: usize = 1 << 30;

/// Hashes objects of `size` bytes, many at a time and one after the other. Prints bytes a second as one JSON
/// object.
pub fn run(size: usize) -> Result<(), Error> {
    let object: Vec<u8> =
        (0..size as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let count = TOTAL / size.max(1);
    let started = Instant::now();
    let mut batch = BatchHasher::new(HashKind::Sha1);
    for _ in 0..count {
        batch.push(Kind::Blob, object.as_slice());
        while let Some((_, id)) = batch.pop() {
            id?;
        }
    }
    batch.flush();
    while let Some((_, id)) = batch.pop() {
        id?;
    }
    let many = started.elapsed();
    let started = Instant::now();
    for _ in 0..count {
        ObjectHasher::hash(HashKind::Sha1, Kind::Blob, &object)?;
    }
    let rate = |time: std::time::Duration| (count * size) as f64 / time.as_secs_f64();
    println!(
        "{}",
        serde_json::json!({ "bytes_per_s": rate(many), "alone_bytes_per_s": rate(started.elapsed()) })
    );
    Ok(())
}
