//! Opening, verifying and repairing any file as an archive, and reading the repository in it.
#![no_main]
use std::io::Write;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weir_archive::{Archive, Writer};
use weir_repo::Repo;

fuzz_target!(|data: &[u8]| {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(data).unwrap();
    let _ = weir_archive::verify(&file);
    if let Ok(archive) = Archive::from_file(Arc::new(file.try_clone().unwrap())) {
        let _ = archive.records().count();
        if let Ok(repo) = Repo::from_archive(archive, std::path::Path::new("fuzz")) {
            let _ = weir_repo::fsck(&repo);
            let _ = repo.tips_ever();
        }
    }
    let _ = Writer::open(file);
});
