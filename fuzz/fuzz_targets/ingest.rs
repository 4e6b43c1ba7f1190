//! Packs of any content. The trailer is corrected, so that the data before it is read.
#![no_main]
use libfuzzer_sys::fuzz_target;
use weir_git::{HashKind, OidSet, plain_sha};
use weir_repo::ingest::{IngestLimits, IngestOptions, SpillPlace, ingest};

fuzz_target!(|data: &[u8]| {
    let mut pack = data.to_vec();
    let mut sum = plain_sha(HashKind::Sha1);
    sum.update(&pack);
    pack.extend_from_slice(sum.finish().as_bytes());
    let none = OidSet::default();
    let options = IngestOptions {
        hash: HashKind::Sha1,
        limits: IngestLimits {
            pack_bytes_max: 1 << 20,
            objects_max: 1000,
            object_bytes_max: 1 << 20,
            held_bytes_max: 4 << 20,
            inflated_bytes_max: 16 << 20,
        },
        threads: 1,
        base: None,
        wanted: &[],
        shallow: &none,
        lost: &none,
        delta_bytes_max: 1 << 10,
        progress: &weir_repo::Progress::default(),
        arriving: None,
    };
    let spill = |_| Ok(SpillPlace::unlimited(tempfile::tempfile()?));
    let _ = ingest(&mut &pack[..], &spill, &options);
});
