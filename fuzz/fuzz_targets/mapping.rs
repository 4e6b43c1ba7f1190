//! Mapping rules, and URLs under them: host, pattern, template, host and path, a line each.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_serve::{MapRule, map};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let mut line = || lines.next().unwrap_or_default();
    let Ok(rule) = MapRule::new(line(), line(), line()) else { return };
    if let Some(Ok(name)) = map(&[rule], Some(line()), line()) {
        assert!(
            name.trim_start_matches('/').split('/').all(|part| !matches!(part, "" | "." | "..")),
            "{name}"
        );
    }
});
