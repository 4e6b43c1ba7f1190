//! Mining into nothing.

use std::path::Path;
use std::sync::Mutex;

use weir_ground::Stop;
use weir_mine::{MergeMode, MineOptions, MineProgress, NoRows, RenameOptions, Tips, mine};

use crate::Error;

/// Mines the git directory `folder` on `threads` threads and drops the rows: only the mining itself is
/// measured. `what` is `commits`, `changes` or `numstat`; merges are left out, as git does by itself.
pub fn run(folder: &str, what: &str, threads: usize) -> Result<(), Error> {
    let repo = weir_repo::open_directory(Path::new(folder))?;
    let tips: Vec<_> = repo.refs().tips().collect();
    let options = MineOptions {
        has_revisions: what == "commits",
        has_changes: what != "commits",
        has_lines: what == "numstat",
        merges: MergeMode::Off,
        renames: RenameOptions { counts_last_line: false, ..RenameOptions::default() },
        ..MineOptions::default()
    };
    let sinks: Vec<_> = (0..threads).map(|_| Mutex::new(NoRows)).collect();
    let tips = Tips { wanted: &tips, ..Tips::default() };
    let report = mine(&repo, tips, &options, &sinks, &MineProgress::default(), &Stop::default())?;
    println!("{}", serde_json::json!({ "revisions": report.revisions, "changes": report.changes }));
    Ok(())
}
