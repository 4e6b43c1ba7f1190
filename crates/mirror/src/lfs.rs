//! Fetches Git LFS objects, which pointers in a repository name, into the archive.

use std::path::Path;

use weir_ground::{FailureClass, Timestamp};
use weir_repo::{ArchiveRepo, LfsObject, LfsPointer, Phase};
use weir_transport::{Error, LFS_BATCH_MAX, Lfs, LfsAnswer, LfsDownload, Url};

use crate::failure::Failure;
use crate::options::VisitOptions;

/// Objects are committed whenever this many bytes of them have arrived.
const COMMIT_BYTES: u64 = 64 << 20;
/// After this many consecutive downloads that failed temporarily, the others wait for the next visit.
const FAILURES_MAX: usize = 3;

/// The result of fetching LFS objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LfsReport {
    /// The number of objects that were added.
    pub added: u64,
    /// The bytes of the objects that were added.
    pub bytes: u64,
    /// The objects that the upstream does not have or sent with wrong content, and those that exceed a limit.
    pub absent: u64,
    /// The objects that exceed a limit. They are not asked for.
    pub over_limits: u64,
    /// The objects that are not in the archive, for any reason.
    pub missing: u64,
    /// Some objects may be available later: the next visit must try again.
    pub is_incomplete: bool,
}

/// The most LFS objects of one archive: each is listed in its records, whose size is bounded.
const OBJECTS_MAX: usize = 250_000;

/// Fetches the LFS objects that `archive` has pointers to and lacks. An object that the server fails to give
/// is only reported: the repository itself is complete without it.
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
    let mut fetch = LfsFetch {
        archive,
        path,
        now,
        options,
        report: LfsReport::default(),
        here: Vec::new(),
        here_bytes: 0,
        failures_in_turn: 0,
    };
    let missing = fetch.missing()?;
    if missing.is_empty() {
        return Ok(fetch.report);
    }
    options.progress.begin(Phase::Lfs, missing.len() as u64);
    let mut lfs = match Lfs::of(url, &options.transport) {
        Ok(lfs) => lfs,
        // The repository was just fetched from this host. So if ssh fails here, it seems to have no LFS
        // server.
        Err(e) => {
            tracing::warn!(path = %path.display(), "cannot get LFS objects: {e}");
            fetch.report.absent += missing.len() as u64;
            fetch.report.is_incomplete = true;
            return Ok(fetch.report);
        }
    };
    for batch in missing.chunks(LFS_BATCH_MAX) {
        if !fetch.batch(&mut lfs, batch)? {
            break;
        }
    }
    fetch.keep()?;
    Ok(fetch.report)
}

/// LFS objects on their way into an archive.
struct LfsFetch<'a> {
    archive: &'a mut ArchiveRepo,
    path: &'a Path,
    now: Timestamp,
    options: &'a VisitOptions,
    report: LfsReport,
    /// The objects that have arrived and are not in the archive yet.
    here: Vec<LfsObject>,
    here_bytes: u64,
    failures_in_turn: usize,
}

impl LfsFetch<'_> {
    /// Returns the objects to fetch; logs those that are left out.
    fn missing(&mut self) -> Result<Vec<LfsPointer>, Failure> {
        let path = self.path.display();
        let missing = self.archive.lfs_missing(self.now)?;
        self.report.missing = missing.len() as u64;
        let limit = self.options.limits.object_bytes_max;
        let (mut missing, too_large): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|pointer| pointer.size <= limit);
        for LfsPointer { oid, size } in &too_large {
            let why = format!("it has {size} bytes, more than limits.object_bytes_max");
            tracing::warn!(%path, "LFS object {oid} is left out: {why}");
        }
        self.report.absent += too_large.len() as u64;
        self.report.over_limits += too_large.len() as u64;
        let kept = self.archive.repo()?.map_or(0, |repo| repo.lfs_count().0 as usize);
        let room = OBJECTS_MAX.saturating_sub(kept);
        if missing.len() > room {
            let left_out = missing.len() - room;
            tracing::warn!(%path, "more than {OBJECTS_MAX} LFS objects: {left_out} are left out");
            self.report.absent += left_out as u64;
            self.report.over_limits += left_out as u64;
            missing.truncate(room);
        }
        if !missing.is_empty() {
            // Starts with another object each time, so that some that always fail do not keep the others
            // away.
            let first = (self.now.as_u64() % missing.len() as u64) as usize;
            missing.rotate_left(first);
        }
        Ok(missing)
    }

    /// Fetches the objects of one batch request; returns whether to continue with the next.
    fn batch(&mut self, lfs: &mut Lfs, batch: &[LfsPointer]) -> Result<bool, Failure> {
        let path = self.path.display();
        let asked: Vec<(&str, u64)> =
            batch.iter().map(|pointer| (pointer.oid.as_str(), pointer.size)).collect();
        let answers = match lfs.batch(&asked) {
            Ok(answers) => answers,
            // There is no LFS server: only the pointers exist.
            Err(e) if is_final(&e) => {
                tracing::warn!(%path, "cannot get LFS objects: {e}");
                self.report.absent += batch.len() as u64;
                return Ok(true);
            }
            Err(e) => {
                tracing::warn!(%path, "LFS objects put off until the next visit: {e}");
                self.report.is_incomplete = true;
                return Ok(false);
            }
        };
        for (pointer, answer) in batch.iter().zip(answers) {
            let download = match answer {
                LfsAnswer::Here(download) => download,
                LfsAnswer::Later(why) => {
                    self.put_off(pointer, &why);
                    continue;
                }
                LfsAnswer::Absent(why) => {
                    tracing::warn!(%path, "the upstream has no LFS object {}: {why}", pointer.oid);
                    self.report.absent += 1;
                    continue;
                }
            };
            if let Some(cause) = self.options.space.shortage() {
                tracing::warn!(%path, "LFS objects put off until the next visit: {}", cause.name());
                self.report.is_incomplete = true;
                return Ok(false);
            }
            if !self.download(lfs, pointer, &download)? {
                return Ok(false);
            }
            if self.here_bytes >= COMMIT_BYTES {
                self.keep()?;
            }
        }
        Ok(true)
    }

    /// Fetches one object; returns whether to continue with the next.
    fn download(
        &mut self,
        lfs: &mut Lfs,
        pointer: &LfsPointer,
        download: &LfsDownload,
    ) -> Result<bool, Failure> {
        let store = self.path.parent().unwrap_or(Path::new("."));
        let spill = |bytes| self.options.scratch.place(bytes, store);
        let object =
            lfs.download(download).map_err(|e| (is_final(&e), Failure::from(e))).and_then(|mut reader| {
                LfsObject::read(pointer.clone(), &mut reader, &spill)
                    .map_err(|e| (false, weir_repo::Error::Io(e).into()))
            });
        match object {
            Ok(object) => {
                self.failures_in_turn = 0;
                self.here_bytes += pointer.size;
                self.options.progress.add(1);
                self.options.progress.add_bytes(pointer.size);
                self.here.push(object);
            }
            Err((true, e)) => {
                let path = self.path.display();
                tracing::warn!(%path, "cannot get LFS object {}: {e}", pointer.oid);
                self.report.absent += 1;
            }
            Err((false, e)) => {
                // One object that fails must not keep the others away.
                if e.class == FailureClass::DiskFull {
                    self.keep()?;
                    return Err(e);
                }
                self.put_off(pointer, &e.to_string());
                self.failures_in_turn += 1;
                return Ok(self.failures_in_turn < FAILURES_MAX);
            }
        }
        Ok(true)
    }

    fn put_off(&mut self, pointer: &LfsPointer, why: &str) {
        let path = self.path.display();
        tracing::warn!(%path, "LFS object {} put off until the next visit: {why}", pointer.oid);
        self.report.is_incomplete = true;
    }

    /// Commits the objects that have arrived.
    fn keep(&mut self) -> Result<(), Failure> {
        let (count, sizes) = (self.here.len() as u64, self.here.iter().map(LfsObject::size).sum::<u64>());
        self.here_bytes = 0;
        let wrong = self.archive.add_lfs_objects(std::mem::take(&mut self.here), self.now)?;
        for LfsPointer { oid, .. } in &wrong {
            let path = self.path.display();
            tracing::warn!(%path, "the upstream sent wrong content for LFS object {oid}: skipped");
        }
        self.report.absent += wrong.len() as u64;
        self.report.added += count - wrong.len() as u64;
        self.report.missing -= count - wrong.len() as u64;
        let bytes = sizes - wrong.iter().map(|pointer| pointer.size).sum::<u64>();
        self.report.bytes += bytes;
        self.options.space.add_used(bytes);
        Ok(())
    }
}

/// Returns whether a later request would fail in the same way. A refusal (401, 403) may be due to an expired
/// URL or a quota.
fn is_final(e: &Error) -> bool {
    matches!(e, Error::Http { status: 404 | 405 | 410 | 422 | 501, .. })
}
