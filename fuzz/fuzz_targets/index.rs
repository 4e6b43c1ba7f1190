//! Pack indices of any shape, looked up at every position and by every first byte; and pointers of Git LFS.
#![no_main]
use std::io::Write;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weir_archive::Region;
use weir_git::HashKind;
use weir_repo::{Index, LfsPointer};

fuzz_target!(|data: &[u8]| {
    let _ = LfsPointer::parse(data);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(data).unwrap();
    // SAFETY: no other process can open a file without a name, and nothing writes to it any more.
    let region = unsafe { Region::map(Arc::new(file), data.len() as u64) }.unwrap();
    for hash in [HashKind::Sha1, HashKind::Sha256] {
        let Ok(index) = Index::open("fuzz", region.clone(), hash) else { continue };
        for position in 0..index.count() {
            let _ = (index.offset(position), index.crc32(position), index.find(index.raw_id(position)));
        }
        for first in 0..=255u8 {
            let _ = index.find(&vec![first; hash.len()]);
            let _ = index.find_prefix(&format!("{first:02x}00"), 2);
        }
    }
});
