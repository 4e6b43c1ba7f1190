//! `mirror`: one pass, or for ever.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_catalog::{Catalog, Hold, Repository};
use weir_ground::Stop;
use weir_mirror::throttle::Pause;
use weir_mirror::{Event, Failure, LfsReport, Mirror, Summary, Visited};

use super::batches::Batches;
use crate::cli::{Global, MirrorArgs};
use crate::error::{Error, Result, SOME_FAILED};
use crate::hooks::Hooks;
use crate::metrics::Counters;
use crate::notify::Notifier;
use crate::output;
use crate::pool::{MIRROR_LOCK_NAME, Pool, now};
use crate::shared_store::check_locks;
use crate::visit_bars::VisitBars;

/// How long a mirror loop waits for a catalog that failed.
pub(crate) const CATALOG_RETRY: Duration = Duration::from_secs(30);
/// Time between looks for what a wrong clock has written.
const MEND_TIMES_EVERY: Duration = Duration::from_secs(3600);
/// Longest sleep between looks at the catalog while watching.
const WATCH_SLEEP_MAX: Duration = Duration::from_secs(5);

pub(crate) fn mirror(mut pool: Pool, global: &Global, args: &MirrorArgs) -> Result<ExitCode> {
    let mut mirror = pool.mirror(args.jobs);
    mirror.visit.accepts_empty = args.accept_empty;
    let guard = MirrorGuard::take(&pool)?;
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let notifier = Notifier::of(&pool);
    let hooks = guard.hooks(&pool)?;
    if hooks.is_some() {
        pool.catalog.keep_updates_for(&guard.machine);
    }
    let mut failed = 0;
    let mut first = true;
    let mut looked = Instant::now();
    loop {
        if looked.elapsed() >= MEND_TIMES_EVERY {
            looked = Instant::now();
            let mended =
                pool.catalog.follow_clock().map_err(Error::from).and_then(|_| mend_times(&mut pool.catalog));
            mended.unwrap_or_else(|e| tracing::warn!("whether times are right is not known: {e}"));
        }
        match pass(&mut pool, &mirror, &guard.owner, global, args, first, &stop, notifier.as_ref()) {
            Ok(summary) => failed += summary.failed,
            // A catalog on another machine may be away for a while, and one on this machine's disk find it
            // full.
            Err(Error::Catalog(e)) if args.watch => {
                let wait = CATALOG_RETRY.min(pool.config.mirror.throttle_pause.0);
                tracing::error!("the mirror loop: {e}; trying again in {} s", wait.as_secs());
                stop.sleep(wait);
            }
            Err(e) => return Err(e),
        }
        first = false;
        if !args.watch || stop.is_stopped() {
            break;
        }
    }
    if let Some(hooks) = hooks {
        hooks.finish(&pool.catalog, || stop.is_stopped())?;
    }
    pool.catalog.release(&guard.owner)?;
    Ok(if failed > 0 && !args.watch { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Visits what is due, and while watching waits for what will be.
#[allow(clippy::too_many_arguments)]
fn pass(
    pool: &mut Pool,
    mirror: &Mirror,
    owner: &str,
    global: &Global,
    args: &MirrorArgs,
    first: bool,
    stop: &Stop,
    notifier: Option<&Notifier>,
) -> Result<Summary> {
    let mut ids = None;
    if let Some(pattern) = &args.pattern {
        if let Ok(exact) = pool.get(pattern) {
            for (hold, is_held, was) in
                [(Hold::Paused, exact.is_paused, "paused"), (Hold::Pinned, exact.is_pinned, "set back")]
            {
                if is_held {
                    pool.catalog.set_hold(&exact.name, hold, false)?;
                    warn_line!("{} was {was}: it follows its upstream again", exact.name);
                }
            }
        }
        // Nothing else is leased, not even for a moment: another process may be about to visit it.
        ids = Some(pool.matching(Some(pattern))?.iter().map(|r| r.id).collect::<Vec<_>>());
    }
    let ids_are_all = ids.is_none();
    let mut batches = Batches::due(&pool.catalog, owner, mirror.options.lease_s).only(ids);
    // What a pattern names is visited whether due or not, as is everything with `--all`; afterwards what is
    // due.
    if first && (args.all || args.pattern.is_some()) {
        batches = batches.all_first();
    }
    if !args.watch {
        batches = batches.once();
    }
    let tasks = batches.first(&mut pool.catalog)?;
    let mut summary = Summary::default();
    if !tasks.repositories.is_empty() || first {
        let is_idle = tasks.repositories.is_empty() && ids_are_all && !args.watch && !args.all;
        let mut reporter = Reporter::new(global, tasks.repositories.len());
        let more = &mut |catalog: &mut Catalog, ahead_only| batches.more(catalog, ahead_only);
        summary = mirror.run(&mut pool.catalog, tasks, more, stop, &mut |event| {
            if let Some(notifier) = notifier {
                notifier.tell(&event);
            }
            reporter.event(event);
        })?;
        reporter.finish(&summary)?;
        if is_idle && summary == Summary::default() && !global.quiet && !global.json {
            tell_what_is_next(&pool.catalog)?;
        }
    }
    if args.watch && !stop.is_stopped() {
        sleep_until_due(&pool.catalog, stop)?;
    }
    Ok(summary)
}

/// Says when something will be due, where nothing is.
fn tell_what_is_next(catalog: &Catalog) -> Result<()> {
    let next = catalog.next_ones(1)?;
    let text = match next.first() {
        Some(next) => {
            format!(
                "nothing is due; the next is {} in {}; --all visits all",
                next.name,
                output::span((next.next_due - now()).max(0))
            )
        }
        None => "no repositories yet; 'weir add URL' registers some".to_owned(),
    };
    Ok(writeln!(output::stdout(), "{text}")?)
}

/// Runs the mirror loop until told to stop: what `serve` does beside serving.
pub(crate) fn watch(
    mirror: &Mirror,
    catalog: &mut Catalog,
    owner: &str,
    counters: &Counters,
    notifier: Option<&Notifier>,
    stop: &Stop,
) -> Result<()> {
    let mut looked = Instant::now();
    while !stop.is_stopped() {
        if looked.elapsed() >= MEND_TIMES_EVERY {
            looked = Instant::now();
            catalog.follow_clock()?;
            mend_times(catalog)?;
        }
        let mut batches = Batches::due(catalog, owner, mirror.options.lease_s);
        let tasks = batches.first(catalog)?;
        if !tasks.repositories.is_empty() {
            let more = &mut |catalog: &mut Catalog, ahead_only| batches.more(catalog, ahead_only);
            mirror.run(catalog, tasks, more, stop, &mut |event| {
                counters.count(&event);
                if let Some(notifier) = notifier {
                    notifier.tell(&event);
                }
                match event {
                    Event::Started(..) | Event::Leased(_) => {}
                    Event::Ended(repository, result, took) => log_line(repository, result, took),
                    Event::Paused(pause) => tracing::warn!("{}", pause_line(pause)),
                    Event::GoesOn => tracing::info!("{GOES_ON}"),
                }
            })?;
        }
        sleep_until_due(catalog, stop)?;
    }
    catalog.release(owner)?;
    Ok(())
}

/// What a clock that was ahead has put off is due again.
fn mend_times(catalog: &mut Catalog) -> Result<()> {
    let mended = catalog.mend_times(now())?;
    if mended > 0 {
        tracing::warn!(
            "{mended} repositories were visited or leased by a clock that was ahead: their times are mended"
        );
    }
    Ok(())
}

fn sleep_until_due(catalog: &Catalog, stop: &Stop) -> Result<()> {
    let wait =
        catalog.next_due()?.map_or(WATCH_SLEEP_MAX, |due| Duration::from_secs((due - now()).max(1) as u64));
    stop.sleep(wait.min(WATCH_SLEEP_MAX));
    Ok(())
}

fn log_line(repository: &Repository, result: &std::result::Result<Visited, Failure>, took: Duration) {
    match result {
        Ok(visited) => {
            match &visited.change {
                Some(_) => tracing::info!("{}", updated_line(repository, visited, took)),
                None => tracing::debug!("unchanged  {}", repository.name),
            }
            if let Some(line) = lfs_line(repository, visited) {
                tracing::info!("{line}");
            }
            if let Some(damaged) = &visited.damaged {
                tracing::warn!("{}", damaged_line(repository, damaged));
            }
            if let Some(lost) = &visited.lost {
                tracing::error!("{}", output::lost_line(repository, lost));
            }
        }
        Err(failure) => tracing::warn!("failed     {}: {failure}", repository.name),
    }
}

/// What this machine's processes call themselves in `catalog`: machines of a fleet know only of their own.
pub(crate) fn machine_of(catalog: &Catalog) -> Result<String> {
    Ok(match catalog.is_remote() {
        true => format!("{}/", nix::unistd::gethostname().map_err(std::io::Error::from)?.display()),
        false => String::new(),
    })
}

/// A process that mirrors: what it leases is known by a name of its own.
pub(crate) struct MirrorGuard {
    pub(crate) owner: String,
    /// What the owners of this machine begin with: nothing, if there is one machine only.
    pub(crate) machine: String,
    _lock: std::fs::File,
}

/// Removes what processes that were killed left half-written below `store`.
fn remove_stale(store: &Path) {
    match weir_archive::remove_stale(store) {
        Ok((removed, unread)) => {
            if removed > 0 {
                tracing::info!("removed {removed} half-written files of a process that was killed");
            }
            for (folder, e) in unread {
                tracing::warn!(folder = %folder.display(), "half-written files may be left there, it cannot \
                    be read: {e}");
            }
        }
        Err(e) => {
            tracing::warn!(folder = %store.display(), "half-written files may be left there, it cannot be \
                read: {e}")
        }
    }
}

impl MirrorGuard {
    /// Takes part. If nobody else does, leases that are still there belonged to a process that was killed.
    pub(crate) fn take(pool: &Pool) -> Result<MirrorGuard> {
        if pool.catalog.is_remote() {
            check_locks(&pool.store())?;
        }
        let path = pool.path.join(MIRROR_LOCK_NAME);
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = file.map_err(|source| Error::File { what: "open", path, source })?;
        let machine = machine_of(&pool.catalog)?;
        if lock.try_lock().is_ok() {
            let mut catalog = pool.another_catalog()?;
            catalog.release_all(&machine)?;
            mend_times(&mut catalog)?;
            // Nothing waits for it: the store may be large.
            let store = pool.store();
            std::thread::Builder::new().name("stale".to_owned()).spawn(move || remove_stale(&store))?;
        }
        lock.lock_shared()?;
        Ok(MirrorGuard { owner: format!("{machine}{}-{}", std::process::id(), now()), machine, _lock: lock })
    }

    /// The hooks that are told of what is mirrored.
    pub(crate) fn hooks(&self, pool: &Pool) -> Result<Option<Hooks>> {
        Hooks::start(pool, &self.machine)
    }
}

/// Asks `stop` on SIGINT and SIGTERM; a second signal ends the process at once.
/// What is returned becomes true then.
pub(crate) fn stop_on_signal(stop: &Stop) -> Result<tokio::sync::watch::Receiver<bool>> {
    let stop = stop.clone();
    let (told, asked) = tokio::sync::watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if stop.is_stopped() {
                    std::process::exit(130);
                }
                tracing::info!(
                    "stopping when what is under way is done; a second signal stops at once (nothing that \
                    was committed is lost)"
                );
                stop.stop();
                told.send_replace(true);
            }
        });
    });
    Ok(asked)
}

const GOES_ON: &str = "resumed    there is room again";

fn pause_line(pause: &Pause) -> String {
    let what = pause.host.as_ref().map_or("all visits".to_owned(), |host| format!("visits to {host}"));
    let seconds = (pause.until_ms / 1000).saturating_sub(now().as_u64());
    format!("paused     {what} for {}: {}", output::span(seconds as i64), pause.cause.name())
}

fn updated_line(repository: &Repository, visited: &Visited, took: Duration) -> String {
    let Some((change, report)) = &visited.change else { return String::new() };
    let what = if repository.seq.is_none() { "cloned " } else { "updated" };
    format!(
        "{what}    {}  +{} ~{} -{} refs, {} objects, {} in {:.1} s",
        repository.name,
        change.added,
        change.updated,
        change.deleted,
        report.objects_added,
        output::bytes(report.bytes_appended),
        took.as_secs_f64()
    )
}

/// What came of LFS objects, if there is something to tell.
fn lfs_line(repository: &Repository, visited: &Visited) -> Option<String> {
    let LfsReport { added, bytes, absent, is_incomplete, .. } = visited.lfs?;
    let absent = if absent > 0 { format!(", {absent} cannot be had") } else { String::new() };
    let later = if is_incomplete { ", the next visit looks again" } else { "" };
    let is_told = added > 0 || !absent.is_empty() || is_incomplete;
    is_told.then(|| {
        format!("lfs        {}  {added} objects, {}{absent}{later}", repository.name, output::bytes(bytes))
    })
}

fn damaged_line(repository: &Repository, damaged: &Path) -> String {
    format!(
        "warning    {}: its archive was damaged and is kept as '{}'; a new clone is in its place",
        repository.name,
        damaged.display()
    )
}

/// Tells what happens: bars on a terminal, lines in a log, JSON for programs.
struct Reporter {
    json: bool,
    quiet: bool,
    verbose: bool,
    bars: Option<VisitBars>,
}

impl Reporter {
    fn new(global: &Global, tasks: usize) -> Reporter {
        let shows_bars = std::io::stderr().is_terminal() && !global.quiet && !global.json && tasks > 0;
        let bars = shows_bars.then(|| VisitBars::new(tasks));
        Reporter { json: global.json, quiet: global.quiet, verbose: global.verbose > 0, bars }
    }

    fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.print(text),
            None => drop(writeln!(output::stdout(), "{text}")),
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Started(repository, progress) => {
                if let Some(bars) = &mut self.bars {
                    bars.started(repository, progress);
                }
            }
            Event::Ended(repository, result, took) => {
                if let Some(bars) = &mut self.bars {
                    bars.ended(repository);
                }
                self.ended(repository, result, took);
            }
            Event::Paused(pause) if self.json => {
                let value = serde_json::json!({ "result": "paused", "host": pause.host,
                    "cause": pause.cause.name(), "until": pause.until_ms / 1000 });
                let _ = output::json_line(&value);
            }
            Event::Paused(pause) => self.line(&pause_line(pause)),
            Event::GoesOn if self.json => {
                drop(output::json_line(&serde_json::json!({ "result": "resumed" })))
            }
            Event::GoesOn => self.line(GOES_ON),
            Event::Leased(more) => {
                if let Some(bars) = &self.bars {
                    bars.expect_more(more);
                }
            }
        }
    }

    fn ended(&self, repository: &Repository, result: &std::result::Result<Visited, Failure>, took: Duration) {
        if self.json {
            let value = match result {
                Ok(Visited { change: Some((change, report)), damaged, lfs, lost, .. }) => serde_json::json!({
                    "lost": lost.as_ref().map(output::lost_json),
                    "lfs_added": lfs.map(|lfs| lfs.added), "lfs_absent": lfs.map(|lfs| lfs.absent),
                    "name": repository.name,
                    "result": if repository.seq.is_none() { "cloned" } else { "updated" }, "seq": report.seq,
                    "refs_added": change.added, "refs_updated": change.updated,
                    "refs_deleted": change.deleted,
                    "objects_added": report.objects_added, "bytes_appended": report.bytes_appended,
                    "damaged": damaged, "seconds": took.as_secs_f64() }),
                Ok(visited) => serde_json::json!({
                    "name": repository.name, "result": "unchanged",
                    "lost": visited.lost.as_ref().map(output::lost_json), "seconds": took.as_secs_f64() }),
                Err(f) => {
                    serde_json::json!({ "name": repository.name, "result": "failed", "class": f.class,
                        "error": f.error, "seconds": took.as_secs_f64() })
                }
            };
            let _ = output::json_line(&value);
            return;
        }
        match result {
            Err(failure) => {
                let text = format!("failed     {}: {failure}", repository.name);
                match &self.bars {
                    Some(bars) => bars.print(&text),
                    None => warn_line!("{text}"),
                }
            }
            Ok(_) if self.quiet => {}
            Ok(visited) => {
                if visited.change.is_some() {
                    self.line(&updated_line(repository, visited, took));
                } else if self.verbose {
                    self.line(&format!("unchanged  {}", repository.name));
                }
                if let Some(line) = lfs_line(repository, visited) {
                    self.line(&line);
                }
                if let Some(damaged) = &visited.damaged {
                    self.line(&damaged_line(repository, damaged));
                }
                if let Some(lost) = &visited.lost {
                    self.line(&output::lost_line(repository, lost));
                }
                for name in &visited.refused {
                    self.line(&format!(
                        "warning    {}: ref '{}' left out: no git would create it",
                        repository.name,
                        output::printable(name)
                    ));
                }
            }
        }
    }

    fn finish(self, summary: &Summary) -> Result<()> {
        if let Some(bars) = &self.bars {
            bars.finish();
        }
        if self.json {
            return output::json_line(&serde_json::json!({
                "result": "summary", "updated": summary.updated, "unchanged": summary.unchanged,
                "failed": summary.failed,
                "put_off": summary.put_off, "bytes_appended": summary.bytes_appended }));
        }
        if !self.quiet {
            writeln!(
                output::stdout(),
                "{} updated, {} unchanged, {} failed{}, {} written",
                summary.updated,
                summary.unchanged,
                summary.failed,
                if summary.put_off > 0 { format!(", {} put off", summary.put_off) } else { String::new() },
                output::bytes(summary.bytes_appended)
            )?;
        }
        Ok(())
    }
}
