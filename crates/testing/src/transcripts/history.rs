//! The repository of all transcripts, and short names for its objects.
//!
//! Branch `main` has the commits A, B, C and D. Branch `side` has X, whose parent is A. T is the annotated
//! tag `v1` of B. No ref reaches U, whose parent is D. The blobs are a and b. `unknown` is an id of no
//! object.

use std::path::Path;

use crate::child::run_git;

/// Names of the objects, in the order of their marks in the stream.
const MARKED: [&str; 9] = ["a", "b", "A", "B", "T", "C", "D", "X", "U"];
const UNKNOWN: &str = "1234567812345678123456781234567812345678";

/// Pairs of a name in transcripts and an object id.
pub struct ObjectNames(Vec<(String, String)>);

impl ObjectNames {
    /// Replaces names by ids.
    pub fn to_ids(&self, line: &str) -> String {
        self.0.iter().fold(line.to_owned(), |line, (name, id)| line.replace(name, id))
    }

    /// Replaces ids by names.
    pub fn of_ids(&self, line: &str) -> String {
        self.0.iter().fold(line.to_owned(), |line, (name, id)| line.replace(id, name))
    }
}

/// Creates the repository in `folder`. Returns the names of its objects.
pub fn create_history(folder: &Path) -> ObjectNames {
    run_git(folder, &["init", "-q", "--bare", "-b", "main"], b"");
    let stream = include_bytes!("history.fast-import");
    run_git(folder, &["fast-import", "--quiet", "--export-marks=marks"], stream);
    run_git(folder, &["update-ref", "-d", "refs/heads/gone"], b"");
    run_git(folder, &["repack", "-adkq"], b"");
    let marks = std::fs::read_to_string(folder.join("marks")).unwrap();
    let id_of = |mark: usize| {
        let prefix = format!(":{mark} ");
        marks.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().to_owned()
    };
    let mut names: Vec<(String, String)> =
        MARKED.iter().zip(1..).map(|(name, mark)| (format!("<{name}>"), id_of(mark))).collect();
    names.push(("<unknown>".to_owned(), UNKNOWN.to_owned()));
    ObjectNames(names)
}
