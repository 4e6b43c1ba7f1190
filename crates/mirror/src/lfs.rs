//! The files that Git LFS keeps beside a repository: what pointers name is fetched into the archive.

use std::path::Path;

use weir_repo::{ArchiveRepo, LfsObject, LfsPointer};
use weir_transport::{Error, ErrorClass, LFS_BATCH_MAX, Lfs, LfsAnswer, Url};

use crate::visit::{Failure, VisitOptions};

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
}

/// Fetches what pointers in `archive` name and it lacks.
///
/// # Errors
/// If something may be had another time. What is here by then is kept.
pub(crate) fn fetch_lfs(archive: &mut ArchiveRepo, url: &Url, path: &Path, now: u64, options: &VisitOptions) -> Result<LfsReport, Failure> {
    let mut report = LfsReport::default();
    let missing = archive.lfs_missing(now)?;
    let limit = options.limits.object_bytes_max;
    let (missing, too_large): (Vec<_>, Vec<_>) = missing.into_iter().partition(|pointer| pointer.size <= limit);
    for LfsPointer { oid, size } in &too_large {
        tracing::warn!(path = %path.display(), "LFS object {oid} has {size} bytes, more than limits.object_bytes_max: left out");
    }
    report.absent += too_large.len() as u64;
    if missing.is_empty() {
        return Ok(report);
    }
    let store = path.parent().unwrap_or(Path::new("."));
    let spill = |bytes| options.scratch.place(bytes, store);
    let mut lfs = Lfs::of(url, &options.transport)?;
    let (mut here, mut here_bytes): (Vec<LfsObject>, u64) = (Vec::new(), 0);
    let (mut failure, mut failures_in_turn): (Option<Failure>, usize) = (None, 0);
    let keep = |archive: &mut ArchiveRepo, here: &mut Vec<LfsObject>, report: &mut LfsReport| -> Result<(), Failure> {
        let (count, sizes) = (here.len() as u64, here.iter().map(LfsObject::size).sum::<u64>());
        let wrong = archive.add_lfs_objects(std::mem::take(here), now)?;
        for LfsPointer { oid, .. } in &wrong {
            tracing::warn!(path = %path.display(), "the upstream gives something else for LFS object {oid}: left out");
        }
        report.absent += wrong.len() as u64;
        report.added += count - wrong.len() as u64;
        report.bytes += sizes - wrong.iter().map(|pointer| pointer.size).sum::<u64>();
        Ok(())
    };
    'all: for batch in missing.chunks(LFS_BATCH_MAX) {
        let asked: Vec<(&str, u64)> = batch.iter().map(|pointer| (pointer.oid.as_str(), pointer.size)).collect();
        let answers = match lfs.batch(&asked) {
            Ok(answers) => answers,
            // There is no LFS server, or not for us: the pointers are all there is.
            Err(e) if is_final(&e) => {
                tracing::warn!(path = %path.display(), "no LFS objects: {e}");
                report.absent += batch.len() as u64;
                continue;
            }
            Err(e) => {
                failure = Some(e.into());
                break;
            }
        };
        for (pointer, answer) in batch.iter().zip(answers) {
            let download = match answer {
                LfsAnswer::Here(download) => download,
                LfsAnswer::Absent(why) => {
                    tracing::warn!(path = %path.display(), "the upstream has no LFS object {}: {why}", pointer.oid);
                    report.absent += 1;
                    continue;
                }
            };
            let object = lfs.download(&download).map_err(|e| (is_final(&e), Failure::from(e))).and_then(|mut reader| {
                LfsObject::read(pointer.clone(), &mut reader, &spill).map_err(|e| (false, weir_repo::Error::Io(e).into()))
            });
            match object {
                Ok(object) => {
                    failures_in_turn = 0;
                    here_bytes += pointer.size;
                    here.push(object);
                }
                Err((true, e)) => {
                    tracing::warn!(path = %path.display(), "the upstream does not give LFS object {}: {e}", pointer.oid);
                    report.absent += 1;
                }
                Err((false, e)) => {
                    // One that fails must not keep the others away.
                    failures_in_turn += 1;
                    let is_ours = e.class == "disk-full" || e.class == ErrorClass::Local.name();
                    failure.get_or_insert(e);
                    if is_ours || failures_in_turn >= FAILURES_MAX {
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
    failure.map_or(Ok(report), Err)
}

/// Whether asking again would give the same.
fn is_final(e: &Error) -> bool {
    matches!(e.class(), ErrorClass::Gone | ErrorClass::Forbidden)
        || matches!(e, Error::Http { status: 400..=499, .. }) && e.class() != ErrorClass::Network
}
