//! A look at the metadata of one repository: it takes pages from the forge and writes lines into the archive.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use weir_catalog::clock::now;
use weir_catalog::{ArchiveEnd, Catalog, MetadataLook, MetadataTask, Result};
use weir_forge::{Error as ForgeError, Forge, MetadataKind, failed, resumed, sum_of_news};
use weir_ground::{Seq, Stop};
use weir_repo::{ArchiveRepo, MetadataAddition, Repo};

use crate::outcome::LookOutcome;
use crate::place::Place;

/// The length of a lease in seconds. Each page extends the lease, and it outlasts the wait for a rate limit.
/// Meanwhile no other process looks at the repository.
pub(crate) const LEASE_S: i64 = 3 * 3600;
/// Lines are written to the archive when there are so many bytes of them.
const COMMIT_BYTES: usize = 8 << 20;
/// A repository that seldom changes is looked at less often: after an eighth of the time in which nothing was
/// new, but after a month at the latest.
const QUIET_PART: i64 = 8;
const INTERVAL_MAX_S: i64 = 30 * 86_400;
/// The maximum factor of the interval after failures in a row.
const FAILURES_MAX: i64 = 7;
/// Seconds until the next look, if a visit was writing to the archive.
const BUSY_S: i64 = 300;
/// How long a look waits for a visit that may be nearly done.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);

/// Why a look ends early. What it has written stays.
enum LookFailure {
    Stopped,
    /// Another process writes to the archive, or has replaced it.
    Busy,
    Catalog(weir_catalog::Error),
    Look(String),
}

impl From<ForgeError> for LookFailure {
    fn from(e: ForgeError) -> LookFailure {
        if matches!(e, ForgeError::Stopped) { LookFailure::Stopped } else { LookFailure::Look(e.to_string()) }
    }
}

impl From<weir_catalog::Error> for LookFailure {
    fn from(e: weir_catalog::Error) -> LookFailure {
        LookFailure::Catalog(e)
    }
}

impl From<weir_repo::Error> for LookFailure {
    fn from(e: weir_repo::Error) -> LookFailure {
        LookFailure::Look(e.to_string())
    }
}

type Looked<T> = std::result::Result<T, LookFailure>;

/// Fetched items that are not in the archive yet, and the cursors that the archive has.
#[derive(Default)]
pub(crate) struct FetchedItems {
    lines: BTreeMap<&'static str, Vec<u8>>,
    cursors: BTreeMap<&'static str, String>,
    stored: BTreeMap<&'static str, Option<String>>,
}

/// A look at the metadata of one repository.
pub(crate) struct Look<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) place: &'a Place,
    pub(crate) forge: &'a mut dyn Forge,
    pub(crate) task: &'a MetadataTask,
    pub(crate) stop: &'a Stop,
    pub(crate) pages_max: u64,
    pub(crate) held: FetchedItems,
    pub(crate) brought: LookOutcome,
}

impl Look<'_> {
    /// Takes what is new, and records the result in the catalog.
    pub(crate) fn run(&mut self, wanted: &[MetadataKind]) -> Result<LookOutcome> {
        let result = self.take(wanted);
        // Items that came before an error are written all the same.
        let written = self.write();
        let result = result.and(written);
        let at = now();
        let interval = (self.place.interval.as_secs() as i64).max(1);
        let is_changed = self.brought.added.values().any(|n| *n > 0);
        let due_at = match &result {
            Ok(()) if self.brought.is_cut => at,
            Ok(()) => {
                let quiet = if is_changed { 0 } else { at - self.task.changed_at.unwrap_or(at) };
                at + interval.max((quiet / QUIET_PART).min(INTERVAL_MAX_S))
            }
            Err(LookFailure::Stopped) => at,
            Err(LookFailure::Busy) => at + BUSY_S,
            Err(LookFailure::Catalog(_) | LookFailure::Look(_)) => {
                at + interval * (self.task.failures + 1).min(FAILURES_MAX)
            }
        };
        match result {
            Err(LookFailure::Catalog(e)) => return Err(e),
            Err(LookFailure::Look(text)) => self.brought.error = Some(text),
            Err(LookFailure::Busy) => self.brought.is_cut = true,
            Ok(()) | Err(LookFailure::Stopped) => {}
        }
        let error = self.brought.error.clone();
        let look = MetadataLook {
            id: self.task.repository.id,
            epoch: self.task.epoch,
            at,
            due_at,
            is_changed,
            error,
        };
        if !self.catalog.metadata().end(&look)? {
            tracing::warn!("{}: the metadata update took longer than its lease", self.task.repository.name);
        }
        Ok(std::mem::take(&mut self.brought))
    }

    /// Takes one stream after the other. The first error of a stream is returned after all streams were
    /// tried.
    fn take(&mut self, wanted: &[MetadataKind]) -> Looked<()> {
        let repo = Repo::open_archive(&self.place.store.join(&self.task.repository.path))?;
        let streams = self.forge.metadata_streams(wanted);
        let (mut refused, mut first) = (0, None);
        for stream in &streams {
            match self.take_stream(&repo, stream) {
                Ok(()) => {}
                // The stream is turned off, or forbidden to this client. It is an error if that holds for all
                // streams.
                Err(StreamFailure::Forge(e @ (ForgeError::NotFound(_) | ForgeError::Forbidden { .. }))) => {
                    refused += 1;
                    tracing::debug!("{}: no {stream}: {e}", self.task.repository.name);
                    if refused == streams.len() {
                        return Err(e.into());
                    }
                }
                Err(StreamFailure::Forge(e @ ForgeError::Stopped)) => return Err(e.into()),
                Err(StreamFailure::Forge(e)) => first = first.or(Some(e)),
                Err(StreamFailure::Other(failure)) => return Err(failure),
            }
        }
        first.map_or(Ok(()), |e| Err(e.into()))
    }

    fn take_stream(&mut self, repo: &Repo, stream: &'static str) -> std::result::Result<(), StreamFailure> {
        let mut cursor = self
            .held
            .stored
            .entry(stream)
            .or_insert_with(|| repo.metadata_cursor(stream).map(str::to_owned))
            .clone();
        cursor = cursor.map(|cursor| resumed(&cursor));
        // The items that the archive already has, in this stream and in those that come with it.
        let mut known: BTreeMap<&'static str, HashSet<[u8; 16]>> = BTreeMap::new();
        for pages in 1.. {
            let page = match self.forge.metadata(&self.task.forge_id, stream, cursor.as_deref(), now()) {
                Ok(page) => page,
                Err(e) => {
                    if matches!(
                        e,
                        ForgeError::Unavailable { .. }
                            | ForgeError::Unexpected { .. }
                            | ForgeError::Refused { .. }
                    ) {
                        self.held.cursors.insert(stream, failed(cursor.as_deref()));
                    }
                    return Err(StreamFailure::Forge(e));
                }
            };
            for (stream, item) in page.items {
                let known = match known.entry(stream) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => place.insert(sums_of(repo, stream)?),
                };
                if !known.insert(sum_of_news(&item)) {
                    continue;
                }
                let lines = self.held.lines.entry(stream).or_default();
                serde_json::to_writer(&mut *lines, &item).expect("what was JSON is JSON");
                lines.push(b'\n');
                *self.brought.added.entry(stream).or_default() += 1;
            }
            match self.held.stored[stream].as_ref() == Some(&page.cursor) {
                true => self.held.cursors.remove(stream),
                false => self.held.cursors.insert(stream, page.cursor.clone()),
            };
            cursor = Some(page.cursor);
            if self.held.lines.values().map(Vec::len).sum::<usize>() >= COMMIT_BYTES {
                self.write()?;
            }
            if page.is_last {
                break;
            }
            if self.stop.is_stopped() {
                return Err(LookFailure::Stopped.into());
            }
            if !self
                .catalog
                .metadata()
                .extend_lease(self.task.repository.id, self.task.epoch, now() + LEASE_S)
                .map_err(LookFailure::from)?
            {
                return Err(LookFailure::Look(
                    "it took longer than its lease, which another process now holds".to_owned(),
                )
                .into());
            }
            if pages >= self.pages_max {
                self.brought.is_cut = true;
                break;
            }
        }
        Ok(())
    }

    /// Writes what is held into the archive, if there is anything. Fails if another process writes to the
    /// archive.
    fn write(&mut self) -> Looked<()> {
        let FetchedItems { lines, cursors, stored } = &mut self.held;
        if lines.is_empty() && cursors.is_empty() {
            return Ok(());
        }
        if let Some(cause) = self.place.space.shortage() {
            return Err(LookFailure::Look(format!("cannot store metadata: {}", cause.name())));
        }
        let path = self.place.store.join(&self.task.repository.path);
        let began = Instant::now();
        let mut archive = loop {
            match ArchiveRepo::try_open(&path)? {
                Some(archive) => break archive,
                None if began.elapsed() > BUSY_PATIENCE || self.stop.is_stopped() => {
                    return Err(LookFailure::Busy);
                }
                None => drop(self.stop.sleep(Duration::from_millis(100))),
            }
        };
        let streams: BTreeSet<&'static str> = lines.keys().chain(cursors.keys()).copied().collect();
        let addition = |stream: &&'static str| MetadataAddition {
            stream,
            begins_at: stored.get(stream).and_then(Option::as_deref),
            lines: lines.get(stream).map_or(&[], Vec::as_slice),
            cursor: cursors.get(stream).map(String::as_str),
        };
        let additions: Vec<_> = streams.iter().map(addition).collect();
        let Place { scratch, store, .. } = self.place;
        let spill = |bytes| scratch.place(bytes, store);
        let before = archive.committed();
        if !archive.add_metadata(&additions, &spill, now())? {
            return Err(LookFailure::Busy);
        }
        if let (Some((from, bytes_before)), Some((seq, bytes))) = (before, archive.committed()) {
            self.place.space.add_used(bytes.saturating_sub(bytes_before));
            self.catalog.archives().add_to_archive(
                self.task.repository.id,
                Seq(from),
                ArchiveEnd { seq: Seq(seq), bytes },
            )?;
        }
        lines.clear();
        stored.extend(std::mem::take(cursors).into_iter().map(|(stream, cursor)| (stream, Some(cursor))));
        Ok(())
    }
}

/// Why a stream ends early.
enum StreamFailure {
    Forge(ForgeError),
    Other(LookFailure),
}

impl From<LookFailure> for StreamFailure {
    fn from(failure: LookFailure) -> StreamFailure {
        StreamFailure::Other(failure)
    }
}

/// Returns the sums by which the items of a stream in the archive are compared.
fn sums_of(repo: &Repo, stream: &str) -> Looked<HashSet<[u8; 16]>> {
    let mut sums = HashSet::new();
    repo.metadata(stream, &mut |line| {
        sums.extend(serde_json::from_slice(line).ok().map(|item| sum_of_news(&item)));
        true
    })?;
    Ok(sums)
}
