//! The files that Git LFS keeps beside a repository: what pointers name is fetched into the archive.

use std::path::Path;

use weir_ground::{FailureClass, Timestamp};
use weir_repo::{ArchiveRepo, LfsObject, LfsPointer, Phase};
use weir_transport::{Error, LFS_BATCH_MAX, Lfs, LfsAnswer, Url};

use crate::failure::Failure;
use crate::options::VisitOptions;

/// Objects are committed when so many bytes of them are here.
const COMMIT_BYTES: u64 = 64 << 20;
/// After so many downloads in turn that fail for what may pass the others wait for the next visit.
const FAILURES_MAX: usize = 3;

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LfsReport {
    /// Objects that are new here, and their bytes.
    pub added: u64,
    /// The bytes.
    pub bytes: u64,
    /// Objects that the upstream does not have, or gave wrongly.
    pub absent: u64,
    /// Objects that are not here for whatever reason.
    pub missing: u64,
    /// Something may be had another time: the next visit is to look again.
    pub is_incomplete: bool,
}

/// Objects of one archive: its records list each, and have an end.
const OBJECTS_MAX: usize = 250_000;

/// Fetches what pointers in `archive` name and it lacks. What a server fails to give is told of in the
/// report: the repository itself is well without.
///
/// # Errors
/// If the archive is damaged, or this machine's disk fails.
pub(crate) fn fetch_lfs(
    archive: &mut ArchiveRepo,
    url: &Url,
    path: &Path,
    now: Timestamp,
    options: &VisitOptions,
) -> Result<LfsReport, Failure> {
    let mut report = LfsReport::default();
    let missing = archive.lfs_missing(now)?;
    report.missing = missing.len() as u64;
    let limit = options.limits.object_bytes_max;
    let (mut missing, too_large): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|pointer| pointer.size <= limit);
    for LfsPointer { oid, size } in &too_large {
        tracing::warn!(path = %path.display(), "LFS object {oid} has {size} bytes, more than \
            limits.object_bytes_max: left out");
    }
    report.absent += too_large.len() as u64;
    let room = OBJECTS_MAX.saturating_sub(archive.repo()?.map_or(0, |repo| repo.lfs_count().0 as usize));
    if missing.len() > room {
        tracing::warn!(path = %path.display(), "more than {OBJECTS_MAX} LFS objects: {} are left out",
            missing.len() - room);
        report.absent += (missing.len() - room) as u64;
        missing.truncate(room);
    }
    if missing.is_empty() {
        return Ok(report);
    }
    options.progress.begin(Phase::Lfs, missing.len() as u64);
    // Another one first each time: some that always fail do not keep the others away.
    let first = (now.as_u64() % missing.len() as u64) as usize;
    missing.rotate_left(first);
    let store = path.parent().unwrap_or(Path::new("."));
    let spill = |bytes| options.scratch.place(bytes, store);
    let mut lfs = match Lfs::of(url, &options.transport) {
        Ok(lfs) => lfs,
        // The repository was had this way just now: where ssh fails here there is no LFS server, as far as
        // anybody can tell.
        Err(e) => {
            tracing::warn!(path = %path.display(), "no LFS objects: {e}");
            return Ok(LfsReport {
                absent: report.absent + missing.len() as u64,
                is_incomplete: true,
                ..report
            });
        }
    };
    let (mut here, mut here_bytes): (Vec<LfsObject>, u64) = (Vec::new(), 0);
    let mut failures_in_turn = 0;
    let keep = |archive: &mut ArchiveRepo,
                here: &mut Vec<LfsObject>,
                report: &mut LfsReport|
     -> Result<(), Failure> {
        let (count, sizes) = (here.len() as u64, here.iter().map(LfsObject::size).sum::<u64>());
        let wrong = archive.add_lfs_objects(std::mem::take(here), now)?;
        for LfsPointer { oid, .. } in &wrong {
            tracing::warn!(path = %path.display(), "the upstream gives something else for LFS object {oid}: \
                left out");
        }
        report.absent += wrong.len() as u64;
        report.added += count - wrong.len() as u64;
        report.missing -= count - wrong.len() as u64;
        let bytes = sizes - wrong.iter().map(|pointer| pointer.size).sum::<u64>();
        report.bytes += bytes;
        options.space.add_used(bytes);
        Ok(())
    };
    'all: for batch in missing.chunks(LFS_BATCH_MAX) {
        let asked: Vec<(&str, u64)> =
            batch.iter().map(|pointer| (pointer.oid.as_str(), pointer.size)).collect();
        let answers = match lfs.batch(&asked) {
            Ok(answers) => answers,
            // There is no LFS server: the pointers are all there is.
            Err(e) if is_final(&e) => {
                tracing::warn!(path = %path.display(), "no LFS objects: {e}");
                report.absent += batch.len() as u64;
                continue;
            }
            Err(e) => {
                tracing::warn!(path = %path.display(), "LFS objects wait for the next visit: {e}");
                report.is_incomplete = true;
                break;
            }
        };
        for (pointer, answer) in batch.iter().zip(answers) {
            let download = match answer {
                LfsAnswer::Here(download) => download,
                LfsAnswer::Later(why) => {
                    tracing::warn!(path = %path.display(), "LFS object {} waits for the next visit: {why}",
                        pointer.oid);
                    report.is_incomplete = true;
                    continue;
                }
                LfsAnswer::Absent(why) => {
                    tracing::warn!(path = %path.display(), "the upstream has no LFS object {}: {why}",
                        pointer.oid);
                    report.absent += 1;
                    continue;
                }
            };
            if let Some(cause) = options.space.shortage() {
                tracing::warn!(path = %path.display(), "LFS objects wait for the next visit: {}",
                    cause.name());
                report.is_incomplete = true;
                break 'all;
            }
            let object = lfs.download(&download).map_err(|e| (is_final(&e), Failure::from(e))).and_then(
                |mut reader| {
                    LfsObject::read(pointer.clone(), &mut reader, &spill)
                        .map_err(|e| (false, weir_repo::Error::Io(e).into()))
                },
            );
            match object {
                Ok(object) => {
                    failures_in_turn = 0;
                    here_bytes += pointer.size;
                    options.progress.add(1);
                    options.progress.add_bytes(pointer.size);
                    here.push(object);
                }
                Err((true, e)) => {
                    tracing::warn!(path = %path.display(), "the upstream does not give LFS object {}: {e}",
                        pointer.oid);
                    report.absent += 1;
                }
                Err((false, e)) => {
                    // One that fails must not keep the others away.
                    if e.class == FailureClass::DiskFull {
                        keep(archive, &mut here, &mut report)?;
                        return Err(e);
                    }
                    tracing::warn!(path = %path.display(), "LFS object {} waits for the next visit: {e}",
                        pointer.oid);
                    report.is_incomplete = true;
                    failures_in_turn += 1;
                    if failures_in_turn >= FAILURES_MAX {
                        break 'all;
                    }
                }
            }
            if here_bytes >= COMMIT_BYTES {
                keep(archive, &mut here, &mut report)?;
                here_bytes = 0;
            }
        }
    }
    keep(archive, &mut here, &mut report)?;
    Ok(report)
}

/// Whether asking again would give the same. Refusals may be of a URL that has run out, or of a quota.
fn is_final(e: &Error) -> bool {
    matches!(e, Error::Http { status: 404 | 405 | 410 | 422 | 501, .. })
}
