//! Settings as files have them: which are refused, with the key that is wrong, and what the others mean.

mod checks;
mod files;
mod forges;

use std::ffi::OsString;
use std::fs;

use weir_settings::{Config, Environment, Error, load};

const ENVIRONMENT: Environment = Environment { variable, extra_headers: Vec::new };

fn variable(name: &str) -> Option<OsString> {
    match name {
        "PATH" => Some("/usr/bin:/bin".into()),
        "GIT_SSH" => Some("/x/ssh program".into()),
        "no_proxy" => Some("here".into()),
        "HTTPS_PROXY" => Some("http://proxy".into()),
        _ => None,
    }
}

fn try_load(text: &str) -> Result<Config, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.toml");
    fs::write(&path, text).unwrap();
    load(&path, ENVIRONMENT)
}

fn of(text: &str) -> Config {
    try_load(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Returns the line and the key that are said to be wrong; line 0, if none is said.
fn wrong_key(text: &str) -> (usize, String) {
    let Err(Error::Wrong(said)) = try_load(text) else { panic!("it is taken: {text}") };
    let (_, rest) = said.split_once("weir.toml:").unwrap_or_else(|| panic!("{text}: {said}"));
    let (line, rest) = rest.split_once(' ').unwrap();
    let line = line.split(':').next().unwrap_or_default();
    (line.parse().unwrap_or(0), rest.split(' ').next().unwrap().to_owned())
}
