//! A new clone in the place of a damaged archive, which is kept.

use std::path::{Path, PathBuf};

use weir_repo::{ArchiveRepo, Refs, RefsChange, Repo};
use weir_transport::Url;

use crate::visit::{DAMAGED, Failure, Known, NOT_DAMAGED, VisitOptions, Visited, list, snapshot, take_in};

/// Damaged archives of one name that are kept. A disk that damages more than that is to be looked at first.
const KEPT_MAX: u32 = 9;

/// Whether the archive at `path` cannot be opened for what is in it, or not all of it is as it was written. Reads all of it.
fn is_damaged(path: &Path) -> bool {
    match Repo::open_archive(path).and_then(|repo| weir_repo::fsck(&repo)) {
        Ok(report) => !report.problems.is_empty(),
        Err(e) => e.is_damage(),
    }
}

/// Clones `url` anew beside the archive at `path`, if that is damaged, and lets the clone take its place once all of it is there
/// and verified. What stood there is kept as `<path>.damaged` (`.damaged-2` and on, if there is one already).
///
/// # Errors
/// If it is not damaged, the clone fails, the upstream is empty or too many damaged ones are kept already; then what stands there
/// stands.
pub fn replace(url: &Url, path: &Path, known: &Known<'_>, now: u64, options: &VisitOptions) -> Result<Visited, Failure> {
    // Nobody appends to it meanwhile, or replaces it.
    let lock = weir_repo::lock_archive(path)?;
    if !is_damaged(path) {
        let error = "the archive is not damaged: it stays as it is".to_owned();
        return Err(Failure { class: NOT_DAMAGED, error });
    }
    tracing::warn!(path = %path.display(), "the archive is damaged: it is put aside for a new clone");
    let aside = places_aside(path).find(|place| !place.exists()).ok_or_else(|| {
        let error = format!("the archive is damaged, and {KEPT_MAX} damaged ones are kept beside it: look at the disk, and remove them");
        Failure { class: DAMAGED, error }
    })?;
    let (mut session, advertised, mut visited) = list(url, options)?;
    let refs = snapshot(&advertised, None);
    if refs.list().is_empty() {
        let error = "the archive is damaged, and its upstream is empty: it stays as it is".to_owned();
        return Err(Failure { class: DAMAGED, error });
    }
    // Clients that saw the old one's numbers must not take new ones for older.
    let first_seq = known.seq.unwrap_or(0) + 1;
    let mut archive = ArchiveRepo::create_beside(path, session.hash(), first_seq)?;
    let report = take_in(&mut archive, &mut session, url, path, &refs, known.epoch, now, options)?;
    let failed = |e: std::io::Error| Failure { class: "local", error: format!("the damaged archive cannot be kept: {e}") };
    std::fs::hard_link(path, &aside).map_err(failed)?;
    archive.persist()?;
    drop(lock);
    visited.change = Some((RefsChange::between(&Refs::default(), &refs), report));
    visited.archive = archive.committed();
    visited.damaged = Some(aside);
    Ok(visited)
}

/// Where damaged archives of `path` are kept.
pub fn places_aside(path: &Path) -> impl Iterator<Item = PathBuf> {
    let path = path.as_os_str().to_owned();
    (1..=KEPT_MAX).map(move |n| {
        let mut name = path.clone();
        name.push(if n == 1 { ".damaged".to_owned() } else { format!(".damaged-{n}") });
        PathBuf::from(name)
    })
}
