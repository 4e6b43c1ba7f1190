//! `metadata`: what forges say around repositories (issues, pull requests, releases), taken into their archives.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_catalog::{MetadataLook, MetadataTask};
use weir_forge::{Error as ForgeError, Forge, MetadataKind, sum_of_news};
use weir_mirror::Stop;
use weir_repo::{ArchiveRepo, MetadataAddition, Repo};

use super::mirror::{nap, stop_on_signal};
use crate::cli::{Global, MetadataCommand, MetadataUpdateArgs};
use crate::error::{Error, InRepo, Result};
use crate::forges::ForgeConfig;
use crate::output;
use crate::pool::{Pool, now};

/// A lease is made longer with each page; nobody else looks at the same meanwhile.
const LEASE_S: i64 = 600;
/// Lines are written when so many bytes of them are here.
const COMMIT_BYTES: usize = 8 << 20;
/// Pages of one stream at a time: the rest waits until others had their turn.
const PAGES_MAX: u64 = 1000;
/// What changes seldom is looked at less often: after an eighth of the time nothing was new, but after a month at the latest.
const QUIET_PART: i64 = 8;
const INTERVAL_MAX_S: i64 = 30 * 86_400;
/// Times the interval, after failures in turn.
const FAILURES_MAX: i64 = 7;
/// Rest between two rounds while watching; longer where looking for what is due takes long.
const WATCH_SLEEP: Duration = Duration::from_secs(60);
const WATCH_SLEEP_ROUNDS: u32 = 20;

pub(crate) fn metadata(pool: Pool, global: &Global, command: MetadataCommand) -> Result<ExitCode> {
    match command {
        MetadataCommand::Update(args) => update(pool, global, &args),
        MetadataCommand::Ls { repo } => ls(&pool, global, &repo).map(|()| ExitCode::SUCCESS),
        MetadataCommand::Cat { repo, stream } => cat(&pool, &repo, &stream).map(|()| ExitCode::SUCCESS),
    }
}

fn update(pool: Pool, global: &Global, args: &MetadataUpdateArgs) -> Result<ExitCode> {
    let forges = with_metadata(&pool);
    if forges.is_empty() {
        let text = "no GitHub, GitLab or Gitea is configured; add a [[forge]] to weir.toml (docs/weir.toml shows how)";
        return Err(Error::Message(text.to_owned()));
    }
    let ids = match &args.pattern {
        Some(pattern) => Some(pool.matching(Some(pattern))?.iter().map(|r| r.id).collect::<Vec<_>>()),
        None => None,
    };
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let failed = on_all(&pool, &forges, &stop, &|pool, forge| {
        let report = &|name: &str, said: &Said| report(name, said, global);
        rounds(pool, forge, ids.as_deref(), args.watch, &stop, report)
    })?;
    Ok(if failed && !args.watch { ExitCode::from(1) } else { ExitCode::SUCCESS })
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

/// Does `work` for each forge, all at once: each has limits of its own to wait for. Says whether anything failed.
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
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
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
        let began = Instant::now();
        let mut forge = config.open(stop)?;
        let known: Vec<_> = pool.catalog.budgets(now())?.into_iter().filter(|(of, _)| *of == name).map(|(_, budget)| budget).collect();
        forge.remember(&known);
        let space = pool.space();
        if pool.config.store.bytes_max.is_some() {
            space.set_used(pool.catalog.archive_bytes()?);
        }
        let (mut after, mut looked_at) = (0, 0);
        while !stop.is_stopped() {
            if let Some(cause) = space.shortage() {
                let text = format!("nothing is taken while there is no room: {}", cause.name());
                if !watch {
                    return Err(Error::Message(text));
                }
                tracing::warn!("{name}: {text}");
                looked_at = 0;
                break;
            }
            let Some(task) = pool.catalog.lease_metadata(&name, by_default, ids, after, (now(), now() + LEASE_S), 1)?.pop() else { break };
            after = task.repository.id;
            looked_at += 1;
            let said = look(pool, forge.as_mut(), &task, &wanted)?;
            pool.catalog.set_budgets(&name, &forge.budgets(), now())?;
            failed |= said.error.is_some();
            report(&task.repository.name, &said)?;
        }
        if !watch || stop.is_stopped() {
            return Ok(failed);
        }
        if looked_at == 0 {
            nap(WATCH_SLEEP.max(began.elapsed() * WATCH_SLEEP_ROUNDS), stop);
        }
    }
}

/// Takes what is new around one repository, and writes down how that went.
fn look(pool: &mut Pool, forge: &mut dyn Forge, task: &MetadataTask, wanted: &[MetadataKind]) -> Result<Said> {
    let mut said = Said::default();
    let result = take(pool, forge, task, wanted, &mut said);
    let at = now();
    let interval = pool.config.mirror.metadata_interval.0.as_secs() as i64;
    let is_changed = said.added.values().any(|n| *n > 0);
    let due_at = match &result {
        Ok(()) if said.is_cut => at,
        Ok(()) => {
            let quiet = if is_changed { 0 } else { at - task.changed_at.unwrap_or(at) };
            at + interval.max((quiet / QUIET_PART).min(INTERVAL_MAX_S))
        }
        Err(Failure::Stopped) => at,
        Err(Failure::Catalog(_) | Failure::Look(_)) => at + interval * (task.failures + 1).min(FAILURES_MAX),
    };
    match result {
        Err(Failure::Catalog(e)) => return Err(e.into()),
        Err(Failure::Look(text)) => said.error = Some(text),
        Ok(()) | Err(Failure::Stopped) => {}
    }
    let look = MetadataLook { id: task.repository.id, at, due_at, is_changed, error: said.error.clone() };
    pool.catalog.end_metadata_look(&look)?;
    Ok(said)
}

/// Why a look ends early. What was written down stays.
enum Failure {
    Stopped,
    Catalog(weir_catalog::Error),
    Look(String),
}

impl From<ForgeError> for Failure {
    fn from(e: ForgeError) -> Failure {
        if matches!(e, ForgeError::Stopped) { Failure::Stopped } else { Failure::Look(e.to_string()) }
    }
}

impl From<weir_catalog::Error> for Failure {
    fn from(e: weir_catalog::Error) -> Failure {
        Failure::Catalog(e)
    }
}

impl From<weir_repo::Error> for Failure {
    fn from(e: weir_repo::Error) -> Failure {
        Failure::Look(e.to_string())
    }
}

/// What was had and is not in the archive yet.
#[derive(Default)]
struct Held {
    lines: BTreeMap<&'static str, Vec<u8>>,
    cursors: BTreeMap<&'static str, String>,
}

impl Held {
    fn bytes(&self) -> usize {
        self.lines.values().map(Vec::len).sum()
    }

    /// Writes it into the archive of `task`, if there is something.
    fn write(&mut self, pool: &Pool, task: &MetadataTask) -> std::result::Result<(), Failure> {
        if self.lines.is_empty() && self.cursors.is_empty() {
            return Ok(());
        }
        let streams: BTreeSet<&'static str> = self.lines.keys().chain(self.cursors.keys()).copied().collect();
        let addition = |stream: &&'static str| MetadataAddition {
            stream,
            lines: self.lines.get(stream).map_or(&[], Vec::as_slice),
            cursor: self.cursors.get(stream).map(String::as_str),
        };
        let additions: Vec<_> = streams.iter().map(addition).collect();
        let (scratch, store) = (pool.scratch(), pool.store());
        let spill = |bytes| scratch.place(bytes, &store);
        ArchiveRepo::open(&pool.archive_path(&task.repository))?.add_metadata(&additions, &spill, now() as u64)?;
        (self.lines, self.cursors) = Default::default();
        Ok(())
    }
}

fn take(
    pool: &mut Pool,
    forge: &mut dyn Forge,
    task: &MetadataTask,
    wanted: &[MetadataKind],
    said: &mut Said,
) -> std::result::Result<(), Failure> {
    let repo = Repo::open_archive(&pool.archive_path(&task.repository))?;
    let mut held = Held::default();
    let result = take_streams(pool, forge, task, wanted, said, &repo, &mut held);
    // What came before an error is as good as if there had been none.
    let written = held.write(pool, task);
    result.and(written)
}

fn take_streams(
    pool: &mut Pool,
    forge: &mut dyn Forge,
    task: &MetadataTask,
    wanted: &[MetadataKind],
    said: &mut Said,
    repo: &Repo,
    held: &mut Held,
) -> std::result::Result<(), Failure> {
    for stream in forge.metadata_streams(wanted) {
        let mut stored = repo.metadata_cursor(stream).map(str::to_owned);
        let mut cursor = stored.clone();
        // What is here of a list that may give it again.
        let mut known: Option<HashSet<[u8; 16]>> = None;
        for pages in 1.. {
            let page = forge.metadata(&task.forge_id, stream, cursor.as_deref(), now())?;
            for (stream, item) in page.items {
                if page.repeats {
                    let known = match &mut known {
                        Some(known) => known,
                        None => known.insert(sums_of(repo, stream)?),
                    };
                    if !known.insert(sum_of_news(&item)) {
                        continue;
                    }
                }
                let lines = held.lines.entry(stream).or_default();
                serde_json::to_writer(&mut *lines, &item).expect("what was JSON is JSON");
                lines.push(b'\n');
                *said.added.entry(stream).or_default() += 1;
            }
            match stored.as_ref() == Some(&page.cursor) {
                true => held.cursors.remove(stream),
                false => held.cursors.insert(stream, page.cursor.clone()),
            };
            cursor = Some(page.cursor);
            if held.bytes() >= COMMIT_BYTES {
                held.write(pool, task)?;
                stored.clone_from(&cursor);
            }
            if page.is_last {
                break;
            }
            pool.catalog.extend_metadata_lease(task.repository.id, now() + LEASE_S)?;
            if pages >= PAGES_MAX {
                said.is_cut = true;
                break;
            }
        }
    }
    Ok(())
}

/// What is here of a stream, as it is compared.
fn sums_of(repo: &Repo, stream: &str) -> std::result::Result<HashSet<[u8; 16]>, Failure> {
    let mut sums = HashSet::new();
    repo.metadata(stream, &mut |line| {
        sums.extend(serde_json::from_slice(line).ok().map(|item| sum_of_news(&item)));
        true
    })?;
    Ok(sums)
}

fn line(name: &str, said: &Said) -> String {
    let mut parts: Vec<String> =
        said.added.iter().filter(|(_, n)| **n > 0).map(|(stream, n)| format!("+{n} {}", stream.replace('_', " "))).collect();
    if parts.is_empty() && said.error.is_none() {
        parts.push("as before".to_owned());
    }
    parts.extend(said.is_cut.then(|| "more to come".to_owned()));
    parts.extend(said.error.iter().map(|error| format!("failed: {error}")));
    format!("metadata   {name}  {}", parts.join(", "))
}

fn report(name: &str, said: &Said, global: &Global) -> Result<()> {
    if global.json {
        return output::json_line(&serde_json::json!({ "name": name, "added": said.added, "error": said.error, "more": said.is_cut }));
    }
    match said.error {
        Some(_) => eprintln!("{}", line(name, said)),
        None if global.quiet => {}
        None => writeln!(std::io::stdout(), "{}", line(name, said))?,
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
            eprintln!("there is none; 'weir metadata update {name}' takes it, where the repository is one of a forge's");
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
