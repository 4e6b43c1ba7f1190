//! No line of code is longer than a screen is wide.

use std::fs;
use std::path::{Path, PathBuf};

/// The maximum number of columns of a line of code. rustfmt.toml says the same, but lets long strings and
/// comments pass.
const COLUMNS_MAX: usize = 110;
/// Folders of the workspace that hold code.
const FOLDERS: &[&str] = &["crates", "fuzz", "conformance", "bench"];
/// Extensions of files with code; ruff.toml says the same of Python.
const EXTENSIONS: &[&str] = &["rs", "py"];

/// Finds every file with code below `folder`.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known)) {
            found.push(path);
        }
    }
}

#[test]
fn no_line_is_longer_than_110_columns() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| sources(&workspace.join(folder), &mut files));
    assert!(files.len() > 200, "{files:?}");
    let mut wrong = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let long = text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
        wrong.extend(long.map(|(n, line)| format!("{}:{}: {}", path.display(), n + 1, line.trim())));
    }
    assert!(wrong.is_empty(), "lines over {COLUMNS_MAX} columns:\n{}", wrong.join("\n"));
}
