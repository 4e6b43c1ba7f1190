//! git's configuration files, and filters as clients spell them.
#![no_main]
use libfuzzer_sys::fuzz_target;
use weir_repo::{Filter, GitConfig};

fuzz_target!(|data: &[u8]| {
    let config = GitConfig::parse(data);
    let _ =
        (config.truth("core.bare"), config.all(&["transfer.hiderefs"]).count(), config.subsections("uploadpackfilter", "allow").count());
    if let Ok(spec) = std::str::from_utf8(data) {
        let _ = Filter::parse(spec);
    }
});
