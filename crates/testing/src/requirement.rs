//! Programs and rights that a machine lacks. A test that needs one is skipped, and the skip is counted, with
//! its reason; where all of them should be there, as in CI, the test fails.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use crate::child::search_path;

/// The file to which skips are appended, a line each.
const SKIPPED: &str = "WEIR_TEST_SKIPPED";
/// The names of the requirements that must be there, with spaces between them, or `all`.
const REQUIRED: &str = "WEIR_TEST_REQUIRE";

/// Tells that the test does not try what needs `requirement`, and why. Panics if `WEIR_TEST_REQUIRE` has the
/// name or `all`, as git's own `GIT_TEST_REQUIRE_PREREQ` does.
pub fn skip(requirement: &str, why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("skipped {test} ({requirement}): {why}\n");
    let required = std::env::var(REQUIRED).unwrap_or_default();
    let is_required = required.split_whitespace().any(|name| name == requirement || name == "all");
    assert!(!is_required, "{line}{REQUIRED} is '{required}'");
    // Not `eprint`, of which a test that succeeds shows nothing.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(SKIPPED) {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list of skips");
    }
}

/// Returns the path of the program `name`. Where it is not installed, returns `None` and tells of the skip.
pub fn program(name: &str) -> Option<PathBuf> {
    let found =
        std::env::split_paths(&search_path()).map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        skip(name, &format!("{name} is not installed ('make packages' installs what tests use)"));
    }
    found
}
