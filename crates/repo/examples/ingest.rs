//! Times the ingest of a pack file alone: `ingest PACK [THREADS]`, beside `git index-pack --strict`.

use std::time::Instant;

use weir_git::{HashKind, OidSet};
use weir_repo::ingest::{IngestLimits, IngestOptions, SpillPlace, ingest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: ingest PACK [THREADS]")?;
    let threads = args.next().map_or(Ok(2), |t| t.parse())?;
    let none = OidSet::default();
    let options = IngestOptions {
        hash: HashKind::Sha1,
        limits: IngestLimits::default(),
        threads,
        base: None,
        wanted: &[],
        shallow: &none,
        lost: &none,
        delta_bytes_max: 256 << 20,
        progress: &weir_repo::Progress::default(),
        arriving: None,
    };
    let started = Instant::now();
    let mut file = std::fs::File::open(path)?;
    let done =
        ingest(&mut file, &|_| Ok(SpillPlace::unlimited(tempfile::tempfile()?)), &options)?.ok_or("empty")?;
    println!(
        "{} objects, {} unreferenced, {:?}",
        done.sent_count,
        done.unreferenced.len(),
        started.elapsed()
    );
    Ok(())
}
