//! A new clone in the place of a damaged archive, which is kept.

use std::path::{Path, PathBuf};

use weir_repo::{ArchiveRepo, Refs, RefsChange, Repo};
use weir_transport::Url;

use crate::visit::{Failure, Known, VisitOptions, Visited, list, snapshot, take_in};

/// Damaged archives of one name that are kept. A disk that damages more than that is to be looked at first.
const KEPT_MAX: u32 = 9;

/// Whether the archive at `path` cannot be opened for what is in it, or not all of it is as it was written. Reads all of it.
pub(crate) fn is_damaged(path: &Path) -> bool {
    match Repo::open_archive(path).and_then(|repo| weir_repo::fsck(&repo)) {
        Ok(report) => !report.problems.is_empty(),
        Err(e) => e.is_damage(),
    }
}

/// Clones `url` anew beside the archive at `path`, and lets the clone take its place once all of it is there and verified. What
/// stood there is kept as `<path>.damaged` (`.damaged-2` and on, if there is one already).
///
/// # Errors
/// If the clone fails, the upstream is empty or too many damaged ones are kept already; then what stands there stands.
pub fn replace(url: &Url, path: &Path, known: &Known<'_>, now: u64, options: &VisitOptions) -> Result<Visited, Failure> {
    let aside = place_aside(path)?;
    let (mut session, advertised, mut visited) = list(url, options)?;
    let refs = snapshot(&advertised, None);
    if refs.list().is_empty() {
        let error = "the archive is damaged, and its upstream is empty: it stays as it is".to_owned();
        return Err(Failure { class: "damaged", error });
    }
    // Clients that saw the old one's numbers must not take new ones for older.
    let first_seq = known.seq.unwrap_or(0) + 1;
    let mut archive = ArchiveRepo::create_beside(path, session.hash(), first_seq)?;
    let report = take_in(&mut archive, &mut session, url, path, &refs, known.epoch, now, options)?;
    let failed = |e: std::io::Error| Failure { class: "local", error: format!("the damaged archive cannot be kept: {e}") };
    std::fs::hard_link(path, &aside).map_err(failed)?;
    archive.persist()?;
    visited.change = Some((RefsChange::between(&Refs::default(), &refs), report));
    visited.archive = archive.committed();
    visited.damaged = Some(aside);
    Ok(visited)
}

fn place_aside(path: &Path) -> Result<PathBuf, Failure> {
    let name = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if n == 1 { ".damaged".to_owned() } else { format!(".damaged-{n}") });
        PathBuf::from(name)
    };
    (1..=KEPT_MAX).map(name).find(|place| !place.exists()).ok_or_else(|| {
        let error = format!("the archive is damaged, and {KEPT_MAX} damaged ones are kept beside it: look at the disk, and remove them");
        Failure { class: "damaged", error }
    })
}
