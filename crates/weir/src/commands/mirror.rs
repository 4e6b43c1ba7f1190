//! `mirror`: makes one pass, or passes until stopped.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_arguments::{Global, MirrorArgs};
use weir_catalog::clock::now;
use weir_catalog::{Catalog, EventKind, Hold, PoolEvent};
use weir_ground::Stop;
use weir_mirror::{Event, MirrorLoop, RunError, Summary};
use weir_pool::{
    CATALOG_RETRY, Collectors, EventStreams, Hooks, MirrorGuard, Notifier, Pool, TraceExporter, keep_doors,
};
use weir_process::{has_terminal, on_reload_signal, start_in_place, stop_on_signal};
use weir_terminal::{
    VisitBars, output,
    visit_lines::{RESUMED, damaged_line, failed_line, left_line, lfs_line, pause_line, updated_line},
    warn_line,
};

use crate::error::{Error, Result, SOME_FAILED};
use crate::remedies;

/// Mirrors. While watching, starts anew on SIGHUP, with the settings as they are then.
pub(crate) fn mirror(pool: Pool, global: &Global, args: &MirrorArgs) -> Result<ExitCode> {
    let is_asked = Arc::new(AtomicBool::new(false));
    let ended = run(pool, global, args, &is_asked)?;
    match is_asked.load(Ordering::Relaxed) {
        true => Err(start_in_place().into()),
        false => Ok(ended),
    }
}

fn run(pool: Pool, global: &Global, args: &MirrorArgs, is_asked: &Arc<AtomicBool>) -> Result<ExitCode> {
    let mut mirror = pool.mirror(args.jobs);
    mirror.visit.accepts_empty = args.accept_empty;
    // A run of cron must not wait for half an hour, until the next one waits beside it.
    mirror.options.waits_out_pauses = args.watch;
    let guard = MirrorGuard::take(&pool)?;
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    if args.watch {
        let (flag, stop) = (is_asked.clone(), stop.clone());
        on_reload_signal(has_terminal(), move || {
            flag.store(true, Ordering::Relaxed);
            stop.stop();
            false
        })?;
    }
    let notifier = Notifier::of(&pool);
    let traces = TraceExporter::start(&pool.config.traces)?;
    let hooks = Hooks::start(&pool)?;
    let mirror_loop = MirrorLoop {
        mirror: &mirror,
        owner: &guard.owner,
        watch: args.watch,
        // The repositories that a pattern names, or all of them with `--all`, are visited first, due or not.
        // Then those that are due.
        all_first: args.all || !args.repos.is_empty(),
        retry: CATALOG_RETRY.min(pool.config.mirror.throttle_pause.0),
    };
    let doors = if args.watch { keep_doors(&pool, &Arc::default(), &stop)? } else { None };
    let _collectors = if args.watch { Collectors::start(&pool)? } else { None };
    let _streams = if args.watch { EventStreams::start(&pool, &stop)? } else { None };
    let mut reporter = Reporter::new(global);
    let mut select = |catalog: &Catalog| {
        selected(catalog, args).map_err(|e| match e {
            Error::Catalog(e) => RunError::Catalog(e),
            e => RunError::Select(Box::new(e)),
        })
    };
    let summary = mirror_loop.run(&pool.catalog, &mut select, &stop, &mut |event| {
        if let Event::Happened(event) = &event {
            notifier.iter().for_each(|notifier| notifier.tell(event));
            traces.iter().for_each(|traces| traces.visited(event));
        }
        reporter.event(event);
        if reporter.failed.is_some() {
            stop.stop();
        }
    })?;
    if let Some(doors) = doors {
        let _ = doors.join();
    }
    let is_idle = reporter.tasks == 0 && args.repos.is_empty() && !args.watch && !args.all;
    if let Some(e) = reporter.failed {
        return Err(e);
    }
    if is_idle && summary == Summary::default() && !global.quiet && !global.json {
        tell_what_is_next(&pool.catalog)?;
    }
    if let Some(hooks) = hooks {
        hooks.finish(&pool.catalog, || stop.is_stopped())?;
    }
    let undone = summary.failed + summary.left;
    Ok(if undone > 0 && !args.watch { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Returns the ids of the repositories that `args` name; `None` for all. One that is named by its whole name
/// is no longer held.
fn selected(catalog: &Catalog, args: &MirrorArgs) -> Result<Option<Vec<i64>>> {
    if args.repos.is_empty() {
        return Ok(None);
    }
    for exact in args.repos.iter().filter_map(|name| weir_pool::get(catalog, name).ok()).collect::<Vec<_>>() {
        for (hold, is_held, was) in
            [(Hold::Paused, exact.is_paused, "paused"), (Hold::Pinned, exact.is_pinned, "set back")]
        {
            if is_held {
                catalog.archives().set_hold(&exact.name, hold, false)?;
                warn_line!("{} was {was}; it is mirrored again", exact.name);
            }
        }
    }
    Ok(Some(weir_pool::matching_any(catalog, &args.repos)?.iter().map(|r| r.id).collect()))
}

/// Says when the next repository will be due.
fn tell_what_is_next(catalog: &Catalog) -> Result<()> {
    let next = catalog.status().next_ones(1)?;
    let text = match next.first() {
        Some(next) => {
            format!(
                "nothing is due; the next is {} in {}; use --all to visit all",
                next.name,
                output::span((next.next_due - now()).max(0))
            )
        }
        None => "no repositories yet; add some with 'weir add URL'".to_owned(),
    };
    Ok(writeln!(output::stdout(), "{text}")?)
}

/// Reports events: bars on a terminal, lines in a log, JSON for programs.
struct Reporter {
    json: bool,
    quiet: bool,
    verbose: bool,
    has_terminal: bool,
    bars: Option<VisitBars>,
    /// The number of repositories that the last pass began with.
    tasks: usize,
    /// Why standard output cannot be written.
    failed: Option<Error>,
}

impl Reporter {
    fn new(global: &Global) -> Reporter {
        Reporter {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose > 0,
            has_terminal: std::io::stderr().is_terminal() && !global.quiet && !global.json,
            bars: None,
            tasks: 0,
            failed: None,
        }
    }

    fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.print(text),
            None => drop(writeln!(output::stdout(), "{text}")),
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::PassStarted(tasks) => {
                self.tasks = tasks;
                self.bars = (self.has_terminal && tasks > 0).then(|| VisitBars::new(tasks));
            }
            Event::PassEnded(summary) => self.failed = self.finish(summary).err(),
            Event::Started(repository, progress) => {
                if let Some(bars) = &mut self.bars {
                    bars.started(repository, progress);
                }
            }
            Event::Waiting(count) if !self.quiet && !self.json => self.line(&format!(
                "waiting    another weir process is visiting {count} of them; they are visited after that"
            )),
            Event::Waiting(_) => {}
            Event::Leased(more) => {
                if let Some(bars) = &self.bars {
                    bars.expect_more(more);
                }
            }
            Event::Happened(event) => {
                if let (Some(bars), Some(subject)) = (&mut self.bars, &event.subject) {
                    bars.ended(subject.id);
                }
                match self.json {
                    true => drop(output::json_line(event)),
                    false => self.tell(event),
                }
            }
        }
    }

    /// Tells people of an event.
    fn tell(&self, event: &PoolEvent) {
        let name = event.subject.as_ref().map_or("", |subject| subject.name.as_str());
        match &event.kind {
            EventKind::Failed(failure) => {
                return self.warn(&failed_line(name, failure, remedies::of_failure));
            }
            EventKind::Left { cause, left } => return self.warn(&left_line(cause, *left)),
            EventKind::Paused { host, cause, until } => {
                return self.line(&pause_line(host.as_deref(), cause, *until));
            }
            EventKind::Resumed => return self.line(RESUMED),
            _ if self.quiet => return,
            EventKind::Update(update) => self.line(&updated_line(name, update)),
            EventKind::Unchanged(_) if self.verbose => self.line(&format!("unchanged  {name}")),
            _ => {}
        }
        let Some(facts) = event.kind.facts() else { return };
        if let Some(line) = lfs_line(name, facts) {
            self.line(&line);
        }
        if let Some(damaged) = &facts.damaged {
            self.line(&damaged_line(name, damaged));
        }
        if let Some(lost) = &facts.lost {
            self.line(&output::lost_line(name, lost));
        }
        for refused in &facts.refused {
            let refused = output::printable(refused.as_bytes());
            self.line(&format!("warning    {name}: ref '{refused}' skipped: not a name that git allows"));
        }
    }

    /// Writes a line that is no result.
    fn warn(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.print(text),
            None => warn_line!("{text}"),
        }
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        if let Some(bars) = self.bars.take() {
            bars.finish();
        }
        if self.json {
            return Ok(output::json_line(&serde_json::json!({
                "event": "summary", "updated": summary.updated, "unchanged": summary.unchanged,
                "failed": summary.failed,
                "put_off": summary.put_off, "left": summary.left,
                "bytes_appended": summary.bytes_appended }))?);
        }
        if !self.quiet {
            writeln!(
                output::stdout(),
                "{} updated, {} unchanged, {} failed{}{}, {} written",
                summary.updated,
                summary.unchanged,
                summary.failed,
                if summary.put_off > 0 { format!(", {} put off", summary.put_off) } else { String::new() },
                if summary.left > 0 { format!(", {} left", summary.left) } else { String::new() },
                output::bytes(summary.bytes_appended)
            )?;
        }
        Ok(())
    }
}
