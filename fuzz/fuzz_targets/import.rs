//! Dumps made by others, plain and compressed. The first byte chooses the format.
#![no_main]
use std::cell::Cell;
use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use weir_crawl::{Dump, Import, ListingFilter};

fuzz_target!(|data: &[u8]| {
    let Some((first, data)) = data.split_first() else { return };
    let lines = data.iter().filter(|b| **b == b'\n').count() as u64 + 1;
    let last = Cell::new(0);
    let import = Import {
        dump: [Dump::GhTorrent, Dump::GhArchive, Dump::Objects, Dump::Documents][usize::from(first % 4)],
        source: "fuzz",
        forge: "github.com",
        filter: &ListingFilter::default(),
        name_of: &|listed| {
            assert!(listed.full_name.contains('/') && listed.clone_url.starts_with("https://github.com/"));
            Ok(Some(listed.full_name.clone()))
        },
        on_bad_row: &|line, _| {
            assert!(line > last.get(), "bad rows are told of in order, each once");
            last.set(line);
        },
        now: &|| weir_ground::Timestamp(0),
    };
    if let Ok(done) = import.run(Box::new(Cursor::new(data.to_vec())), None, &mut |_| true) {
        let is_compressed = data.starts_with(&[0x1f, 0x8b]);
        // A document has at least five bytes.
        let documents = data.len() as u64 / 5;
        assert!(
            done.is_finished
                && (is_compressed || done.lines <= if first % 4 == 3 { documents } else { lines })
        );
    }
});
