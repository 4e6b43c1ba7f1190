//! `metadata`: what forges say around repositories (issues, pull requests, releases), taken into their
//! archives.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_catalog::{ArchiveEnd, MetadataLook, MetadataTask};
use weir_forge::{Error as ForgeError, Forge, MetadataKind, failed, resumed, sum_of_news};
use weir_ground::{Seq, Stop, Timestamp};
use weir_mirror::Space;
use weir_repo::{ArchiveRepo, MetadataAddition, Repo};

use super::mirror::stop_on_signal;
use crate::cli::{Global, MetadataCommand, MetadataUpdateArgs};
use crate::error::{Error, InRepo, Result, SOME_FAILED};
use crate::forges::ForgeConfig;
use crate::output;
use crate::pool::{Pool, now};

/// A lease is made longer with each page, and outlasts the wait for a limit; nobody else looks at the same
/// meanwhile.
const LEASE_S: i64 = 3 * 3600;
/// Lines are written when so many bytes of them are here.
const COMMIT_BYTES: usize = 8 << 20;
/// Pages of one stream at a time: the rest waits until others had their turn.
const PAGES_MAX: u64 = 1000;
/// What changes seldom is looked at less often: after an eighth of the time nothing was new, but after a
/// month at the latest.
const QUIET_PART: i64 = 8;
const INTERVAL_MAX_S: i64 = 30 * 86_400;
/// Times the interval, after failures in turn.
const FAILURES_MAX: i64 = 7;
/// Time until an archive that a visit writes to is looked at again.
const BUSY_S: i64 = 300;
/// How long a look waits for one that is nearly done.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);
/// Time between looks at which repositories are wanted, and for what is due.
const NOTED_EVERY: Duration = Duration::from_secs(900);
const DUE_EVERY: Duration = Duration::from_secs(10);

pub(crate) fn metadata(pool: Pool, global: &Global, command: MetadataCommand) -> Result<ExitCode> {
    match command {
        MetadataCommand::Update(args) => update(pool, global, &args),
        MetadataCommand::Ls { repo } => ls(&pool, global, &repo).map(|()| ExitCode::SUCCESS),
        MetadataCommand::Cat { repo, stream } => cat(&pool, &repo, &stream).map(|()| ExitCode::SUCCESS),
    }
}

fn update(mut pool: Pool, global: &Global, args: &MetadataUpdateArgs) -> Result<ExitCode> {
    let forges = with_metadata(&pool);
    if forges.is_empty() {
        let text = "no GitHub, GitLab or Gitea is configured; add a [[forge]] to weir.toml (docs/weir.toml \
            shows how)";
        return Err(Error::Message(text.to_owned()));
    }
    let ids = match &args.pattern {
        Some(pattern) => {
            let ids: Vec<i64> = pool.matching(Some(pattern))?.iter().map(|r| r.id).collect();
            let mut known = 0;
            for forge in &forges {
                known += pool.catalog.note_metadata_of(&forge.name(), &ids)?.len();
            }
            if known == 0 {
                let text = format!(
                    "nothing that matches '{pattern}' is listed by a GitHub, GitLab or Gitea, mirrored, and \
                    still there"
                );
                return Err(Error::Message(text));
            }
            Some(ids)
        }
        None => None,
    };
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let failed = on_all(&pool, &forges, &stop, &|pool, forge| {
        let report = &|name: &str, said: &Said| report(name, said, global);
        rounds(pool, forge, ids.as_deref(), args.watch, &stop, report)
    })?;
    Ok(if failed && !args.watch { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Looks at what is due of a forge until told to stop: what `serve` does beside serving.
pub(crate) fn watch(pool: &mut Pool, forge: &ForgeConfig, stop: &Stop) -> Result<()> {
    let report = |name: &str, said: &Said| {
        tracing::info!("{}", line(name, said));
        Ok(())
    };
    rounds(pool, forge, None, true, stop, &report).map(|_| ())
}

/// Forges that tell of such things.
pub(crate) fn with_metadata(pool: &Pool) -> Vec<ForgeConfig> {
    pool.config.forge.iter().filter(|forge| forge.has_metadata()).cloned().collect()
}

/// Does `work` for each forge, all at once: each has limits of its own to wait for. Says whether anything
/// failed.
fn on_all(
    pool: &Pool,
    forges: &[ForgeConfig],
    stop: &Stop,
    work: &(dyn Fn(&mut Pool, &ForgeConfig) -> Result<bool> + Sync),
) -> Result<bool> {
    std::thread::scope(|scope| {
        let start = |forge| {
            let mut own = pool.again()?;
            Ok(scope.spawn(move || {
                let result = work(&mut own, forge);
                if result.is_err() {
                    stop.stop();
                }
                result
            }))
        };
        let threads = forges.iter().map(start).collect::<Result<Vec<_>>>()?;
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect::<Result<Vec<bool>>>().map(|failed| failed.contains(&true))
    })
}

/// What a look has brought.
#[derive(Default)]
struct Said {
    /// Lines, by stream.
    added: BTreeMap<&'static str, u64>,
    error: Option<String>,
    /// Whether there is more.
    is_cut: bool,
}

/// Looks at what is due of a forge, or at `ids`, once or for ever; says whether a look failed.
fn rounds(
    pool: &mut Pool,
    config: &ForgeConfig,
    ids: Option<&[i64]>,
    watch: bool,
    stop: &Stop,
    report: &dyn Fn(&str, &Said) -> Result<()>,
) -> Result<bool> {
    let name = config.name();
    let (by_default, wanted) = config.metadata();
    let mut failed = false;
    loop {
        let (noted, began_at) = (Instant::now(), now());
        let mut named = match ids {
            Some(ids) => pool.catalog.note_metadata_of(&name, ids)?.into_iter(),
            None => {
                let mut after = Some(0);
                while let Some(place) = after.filter(|_| !stop.is_stopped()) {
                    after = pool.catalog.note_metadata(&name, by_default, place, now())?;
                }
                Vec::new().into_iter()
            }
        };
        let mut forge = config.open(stop)?;
        let known: Vec<_> = pool
            .catalog
            .budgets(now())?
            .into_iter()
            .filter(|(of, _)| *of == name)
            .map(|(_, budget)| budget)
            .collect();
        forge.remember(&known);
        let space = pool.space();
        if pool.config.store.bytes_max.is_some() {
            space.set_used(pool.catalog.archive_bytes()?);
        }
        // Those that are named; else what is due, and while watching what will be, until it is time to see
        // what is wanted.
        while !stop.is_stopped() && (!watch || noted.elapsed() < NOTED_EVERY) {
            let only = match ids {
                Some(_) => match named.next() {
                    Some(id) => Some(id),
                    None => break,
                },
                None => None,
            };
            if let Some(cause) = space.shortage() {
                let text = format!("nothing is taken while there is no room: {}", cause.name());
                if !watch {
                    return Err(Error::Message(text));
                }
                tracing::warn!("{name}: {text}");
                stop.sleep(NOTED_EVERY.saturating_sub(noted.elapsed()));
                continue;
            }
            let due = if watch { now() } else { began_at };
            let Some(task) = pool.catalog.lease_metadata(&name, only, due, (now(), now() + LEASE_S))? else {
                match (only, watch) {
                    (Some(_), _) => continue,
                    (None, true) => drop(stop.sleep(DUE_EVERY)),
                    (None, false) => break,
                }
                continue;
            };
            let mut look = Look {
                leased_until: task.leased_until,
                pool,
                forge: forge.as_mut(),
                task: &task,
                space: &space,
                stop,
                pages_max: if watch { PAGES_MAX } else { u64::MAX },
                held: FetchedItems::default(),
                said: Said::default(),
            };
            let said = look.run(&wanted)?;
            pool.catalog.set_budgets(&name, &forge.budgets(), now())?;
            failed |= said.error.is_some();
            report(&task.repository.name, &said)?;
        }
        if !watch || stop.is_stopped() {
            return Ok(failed);
        }
    }
}

/// Why a look ends early. What was written down stays.
enum LookFailure {
    Stopped,
    /// Another writes to the archive, or has replaced it.
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

/// What was had and is not in the archive yet, and what the archive says.
#[derive(Default)]
struct FetchedItems {
    lines: BTreeMap<&'static str, Vec<u8>>,
    cursors: BTreeMap<&'static str, String>,
    stored: BTreeMap<&'static str, Option<String>>,
}

/// A look at what is said around one repository.
struct Look<'a> {
    pool: &'a mut Pool,
    forge: &'a mut dyn Forge,
    task: &'a MetadataTask,
    /// As it was last extended.
    leased_until: Timestamp,
    space: &'a Space,
    stop: &'a Stop,
    pages_max: u64,
    held: FetchedItems,
    said: Said,
}

impl Look<'_> {
    /// Takes what is new, and writes down how that went.
    fn run(&mut self, wanted: &[MetadataKind]) -> Result<Said> {
        let result = self.take(wanted);
        // What came before an error is as good as if there had been none.
        let written = self.write();
        let result = result.and(written);
        let at = now();
        let interval = (self.pool.config.mirror.metadata_interval.0.as_secs() as i64).max(1);
        let is_changed = self.said.added.values().any(|n| *n > 0);
        let due_at = match &result {
            Ok(()) if self.said.is_cut => at,
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
            Err(LookFailure::Catalog(e)) => return Err(e.into()),
            Err(LookFailure::Look(text)) => self.said.error = Some(text),
            Err(LookFailure::Busy) => self.said.is_cut = true,
            Ok(()) | Err(LookFailure::Stopped) => {}
        }
        let error = self.said.error.clone();
        let look = MetadataLook {
            id: self.task.repository.id,
            leased_until: self.leased_until,
            at,
            due_at,
            is_changed,
            error,
        };
        if !self.pool.catalog.end_metadata_look(&look)? {
            tracing::warn!(
                "{}: what its forge says was asked for longer than the lease holds",
                self.task.repository.name
            );
        }
        Ok(std::mem::take(&mut self.said))
    }

    /// Takes one stream after the other. What fails of one is told when the others were asked for.
    fn take(&mut self, wanted: &[MetadataKind]) -> Looked<()> {
        let repo = Repo::open_archive(&self.pool.archive_path(&self.task.repository))?;
        let streams = self.forge.metadata_streams(wanted);
        let (mut refused, mut first) = (0, None);
        for stream in &streams {
            match self.take_stream(&repo, stream) {
                Ok(()) => {}
                // Turned off, or not for us: of all of them that is an error.
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
        // What is here already, of this stream and of others that come with it.
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
                *self.said.added.entry(stream).or_default() += 1;
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
            let until = now() + LEASE_S;
            if !self
                .pool
                .catalog
                .extend_metadata_lease(self.task.repository.id, self.leased_until, until)
                .map_err(LookFailure::from)?
            {
                return Err(LookFailure::Look(
                    "it took longer than its lease, and is another's now".to_owned(),
                )
                .into());
            }
            self.leased_until = until;
            if pages >= self.pages_max {
                self.said.is_cut = true;
                break;
            }
        }
        Ok(())
    }

    /// Writes what is held into the archive, if there is something: unless another writes to it.
    fn write(&mut self) -> Looked<()> {
        let FetchedItems { lines, cursors, stored } = &mut self.held;
        if lines.is_empty() && cursors.is_empty() {
            return Ok(());
        }
        if let Some(cause) = self.space.shortage() {
            return Err(LookFailure::Look(format!(
                "nothing is taken while there is no room: {}",
                cause.name()
            )));
        }
        let path = self.pool.archive_path(&self.task.repository);
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
        let (scratch, store) = (self.pool.scratch(), self.pool.store());
        let spill = |bytes| scratch.place(bytes, &store);
        let before = archive.committed();
        if !archive.add_metadata(&additions, &spill, now())? {
            return Err(LookFailure::Busy);
        }
        if let (Some((from, bytes_before)), Some((seq, bytes))) = (before, archive.committed()) {
            self.space.add_used(bytes.saturating_sub(bytes_before));
            self.pool.catalog.add_to_archive(
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

/// What is here of a stream, as it is compared.
fn sums_of(repo: &Repo, stream: &str) -> Looked<HashSet<[u8; 16]>> {
    let mut sums = HashSet::new();
    repo.metadata(stream, &mut |line| {
        sums.extend(serde_json::from_slice(line).ok().map(|item| sum_of_news(&item)));
        true
    })?;
    Ok(sums)
}

fn line(name: &str, said: &Said) -> String {
    let mut parts: Vec<String> = said
        .added
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(stream, n)| format!("+{n} {}", stream.replace('_', " ")))
        .collect();
    if parts.is_empty() && said.error.is_none() {
        parts.push("as before".to_owned());
    }
    parts.extend(said.is_cut.then(|| "more to come".to_owned()));
    parts.extend(said.error.iter().map(|error| format!("failed: {error}")));
    format!("metadata   {name}  {}", parts.join(", "))
}

fn report(name: &str, said: &Said, global: &Global) -> Result<()> {
    if global.json {
        return output::json_line(
            &serde_json::json!({ "name": name, "added": said.added, "error": said.error,
                "more": said.is_cut }),
        );
    }
    match said.error {
        Some(_) => warn_line!("{}", line(name, said)),
        None if global.quiet => {}
        None => writeln!(output::stdout(), "{}", line(name, said))?,
    }
    Ok(())
}

fn ls(pool: &Pool, global: &Global, name: &str) -> Result<()> {
    let repo = pool.open_repo(&pool.get(name)?)?;
    let mut rows = vec![["ITEMS", "SIZE", "STREAM"].map(str::to_owned).to_vec()];
    let mut list = Vec::new();
    for stream in repo.metadata_streams() {
        let mut items = 0u64;
        repo.metadata(&stream, &mut |_| {
            items += 1;
            true
        })
        .in_repo(name)?;
        let bytes = repo.metadata_bytes(&stream);
        rows.push(vec![items.to_string(), output::bytes(bytes), stream.clone()]);
        list.push(serde_json::json!({ "stream": stream, "items": items, "bytes": bytes }));
    }
    match global.json {
        true => output::json(&list),
        false if list.is_empty() => {
            warn_line!(
                "there is none; 'weir metadata update {name}' takes it, where the repository is one of a \
                forge's"
            );
            Ok(())
        }
        false => output::table(&rows, &[0, 1]),
    }
}

fn cat(pool: &Pool, name: &str, stream: &str) -> Result<()> {
    let repo = pool.open_repo(&pool.get(name)?)?;
    let streams = repo.metadata_streams();
    if !streams.iter().any(|known| known == stream) {
        let known = if streams.is_empty() { "none".to_owned() } else { streams.join(", ") };
        return Err(Error::Message(format!("'{name}' has no {stream}; there are: {known}")));
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut result = Ok(());
    repo.metadata(stream, &mut |line| {
        result = out.write_all(line).and_then(|()| out.write_all(b"\n"));
        result.is_ok()
    })
    .in_repo(name)?;
    result.and_then(|()| out.flush())?;
    Ok(())
}
