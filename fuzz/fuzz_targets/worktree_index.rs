//! Indexes of working trees, of any shape, as a workspace reads and writes them.
#![no_main]
use libfuzzer_sys::fuzz_target;
use weir_git::HashKind;
use weir_worktree::rewrite_index;

fuzz_target!(|data: &[u8]| {
    for hash in [HashKind::Sha1, HashKind::Sha256] {
        let _ = rewrite_index(hash, data);
    }
});
