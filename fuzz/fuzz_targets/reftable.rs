//! Ref tables of any shape, and the refs of a repository as a web server lists them.
#![no_main]
use libfuzzer_sys::fuzz_target;
use weir_git::HashKind;
use weir_repo::{RefValues, read_table};

fuzz_target!(|data: &[u8]| {
    for hash in [HashKind::Sha1, HashKind::Sha256] {
        let mut refs = RefValues::new();
        let _ = read_table(data, hash, "fuzz", &mut refs);
        // With a matching footer, so that blocks are read, too.
        for header in [24, 28] {
            let Some(start) = data.get(..header) else { continue };
            let mut table = data.to_vec();
            let footer = table.len();
            table.extend_from_slice(start);
            table.extend_from_slice(&[0; 40]);
            let sum = crc32fast::hash(&table[footer..]);
            table.extend_from_slice(&sum.to_be_bytes());
            let _ = read_table(&table, hash, "fuzz", &mut refs);
        }
    }
});
