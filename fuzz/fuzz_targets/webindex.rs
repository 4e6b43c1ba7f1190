//! Indexes of cgit and gitweb: any answer of a server gives rows or an error, and pages that lead forward.
#![no_main]

use std::cell::OnceCell;

use libfuzzer_sys::fuzz_target;
use weir_forge::{Api, ApiOptions, WebIndex, WebIndexKind};

thread_local! {
    static FORGES: OnceCell<[WebIndex; 2]> = const { OnceCell::new() };
}

fuzz_target!(|data: &[u8]| {
    FORGES.with(|forges| {
        let make =
            |kind| WebIndex::new(kind, "https://h/cgit/", "https://h/", Api::new(ApiOptions::default()));
        for forge in forges.get_or_init(|| [make(WebIndexKind::Cgit), make(WebIndexKind::Gitweb)]) {
            if let Ok(page) = forge.read("7", data) {
                assert!(page.next.is_none_or(|next| next.parse::<u64>().unwrap() > 7));
                assert!(
                    page.repositories
                        .iter()
                        .all(|l| !l.full_name.is_empty() && l.clone_url.starts_with("https://h/"))
                );
            }
        }
    });
});
