//! git's configuration files, and filters as clients spell them.
#![no_main]
use libfuzzer_sys::fuzz_target;
use weir_repo::{Filter, GitConfig};

fuzz_target!(|data: &[u8]| {
    if let Ok(config) = GitConfig::parse(data) {
        let _ = (
            config.truth("core.bare"),
            config.number("uploadpackfilter.tree.maxdepth"),
            config.truths_of("uploadpackfilter", "allow"),
        );
        let _ = config.all(&["transfer.hiderefs"]).count();
    }
    if let Ok(spec) = std::str::from_utf8(data) {
        let _ = Filter::parse(spec);
    }
});
