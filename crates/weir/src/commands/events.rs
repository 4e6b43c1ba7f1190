//! `events`: takes events from outside, and lists them with their verdicts.

mod bench;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_arguments::{
    EventsCommand, EventsLsArgs, EventsServeArgs, Global, RejectedArgs, ReplayArgs, SweepArgs,
};
use weir_ground::{Stop, Timestamp};
use weir_pool::{
    Collectors, DoorAddresses, KeptSockets, OpenDoors, Pool, ReceivedEvent, Sweeper, Verdict, failed_events,
    open_doors, received, received_one, rejected_lines, replay,
};
use weir_process::{has_terminal, on_reload_signal, stop_on_signal, systemd};
use weir_terminal::output;

use crate::error::{Error, Result};
use crate::pool::open_pool;

/// Time between looks for new events.
const TAIL_EVERY: Duration = Duration::from_millis(250);
/// The most characters of what an event is about, in a list.
const ABOUT_CHARACTERS_MAX: usize = 80;
/// The most events that are taken again at once.
const REPLAY_MAX: usize = 100_000;

pub(crate) fn events(global: &Global, command: EventsCommand) -> Result<ExitCode> {
    let mut pool = match &command {
        // It needs none.
        EventsCommand::Bench(args) => return bench::bench(global, args).map(|()| ExitCode::SUCCESS),
        _ => open_pool(global)?,
    };
    match command {
        EventsCommand::Bench(_) => {}
        EventsCommand::Serve(args) => serve(&pool, global, &args)?,
        EventsCommand::Ls(args) => ls(&pool, global, &args)?,
        EventsCommand::Show { id } => show(&pool, global, id)?,
        EventsCommand::Tail { max_count } => tail(&pool, global, max_count)?,
        EventsCommand::Rejected(args) => rejected(&pool, global, &args)?,
        EventsCommand::Sweep(args) => sweep(&mut pool, global, &args)?,
        EventsCommand::Replay(args) => return take_again(&mut pool, global, &args),
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes events until told to stop. On SIGHUP, it closes the doors, and opens those of the settings as they
/// are then.
fn serve(pool: &Pool, global: &Global, args: &EventsServeArgs) -> Result<()> {
    let terminal = has_terminal();
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let is_asked = Arc::new(AtomicBool::new(false));
    let (flag, wake) = (is_asked.clone(), stop.clone());
    on_reload_signal(terminal, move || {
        flag.store(true, Ordering::Relaxed);
        wake.nudge();
        true
    })?;
    let mut open = Some(open_all(pool, global, args, KeptSockets::default(), &stop)?);
    systemd::notify("READY=1");
    let mut nudges = 0;
    while !stop.is_stopped() {
        stop.sleep_until_nudged(Duration::from_secs(3600), &mut nudges);
        if !is_asked.swap(false, Ordering::Relaxed) || stop.is_stopped() {
            continue;
        }
        tracing::info!("reading the settings again");
        // Settings that are wrong change nothing.
        let reloaded = open_pool(global).and_then(|pool| {
            DoorAddresses::of(&pool, &args.listen, &args.udp)?;
            let kept = open.take().map(|(doors, _)| doors.close()).unwrap_or_default();
            open_all(&pool, global, args, kept, &stop)
        });
        match reloaded {
            Ok(reopened) => open = Some(reopened),
            Err(e) if open.is_some() => tracing::error!("{e}; going on with the settings of before"),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Opens the doors, some of which may be `kept`, and starts the tables and workers.
fn open_all(
    pool: &Pool,
    global: &Global,
    args: &EventsServeArgs,
    kept: KeptSockets,
    stop: &Stop,
) -> Result<(OpenDoors, Option<Collectors>)> {
    let addresses = DoorAddresses::of(pool, &args.listen, &args.udp)?;
    if addresses.is_empty() {
        let text = "no address to take events at: set 'listen' of [events] in weir.toml, or give --listen";
        return Err(Error::Message(text.to_owned()));
    }
    let mut told = |at: String| match global.json {
        true => {
            let line = serde_json::json!({ "listening": at, "pid": std::process::id() });
            output::write_json_line(&line)
        }
        false => {
            tracing::info!("taking events at {at}");
            Ok(())
        }
    };
    let Some(doors) = open_doors(pool, &addresses, kept, stop, &Arc::default(), &mut told)? else {
        let text = "another process of this pool takes events already: 'weir serve', 'weir mirror --watch' \
            or 'weir events serve'";
        return Err(Error::Message(text.to_owned()));
    };
    Ok((doors, Collectors::start(pool)?))
}

fn ls(pool: &Pool, global: &Global, args: &EventsLsArgs) -> Result<()> {
    let events = received(&pool.catalog, 0, args.verdict.map(Verdict::from), args.max_count)?;
    if global.json {
        return Ok(output::json(&events)?);
    }
    let mut rows = vec![["ID", "WHEN", "VERDICT", "ABOUT", "FROM"].map(str::to_owned).to_vec()];
    rows.extend(events.iter().map(|e| {
        vec![e.id.to_string(), when(e), e.verdict.name().to_owned(), short(&e.subject), e.peer.clone()]
    }));
    Ok(output::table(&rows, &[0])?)
}

fn show(pool: &Pool, global: &Global, id: i64) -> Result<()> {
    let Some(event) = received_one(&pool.catalog, id)? else {
        return Err(Error::Message(format!("no event has the number {id}; 'weir events ls' lists the last")));
    };
    if global.json {
        return Ok(output::json(&event)?);
    }
    let mut out = output::stdout();
    for (label, text) in [
        ("when", when(&event)),
        ("from", event.peer.clone()),
        ("verdict", event.verdict.name().to_owned()),
        ("about", event.subject.clone()),
        ("line", event.line.clone()),
    ] {
        writeln!(out, "{label:<8} {text}")?;
    }
    Ok(())
}

/// Prints the last events, and then those that come, until told to stop.
fn tail(pool: &Pool, global: &Global, max_count: usize) -> Result<()> {
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let mut last = pool.catalog.received().last()?;
    let mut events = received(&pool.catalog, 0, None, max_count)?;
    loop {
        for event in &events {
            match global.json {
                true => output::json_line(event)?,
                false => writeln!(
                    output::stdout(),
                    "{:<7} {}  {}  {}",
                    event.verdict.name(),
                    when(event),
                    short(&event.subject),
                    event.peer
                )?,
            }
            last = last.max(event.id);
        }
        output::stdout().flush()?;
        if !stop.sleep(TAIL_EVERY) {
            return Ok(());
        }
        events = received(&pool.catalog, last, None, REPLAY_MAX)?;
    }
}

/// Takes events again: those that came too early for their repository, or for a rule that is new.
fn take_again(pool: &mut Pool, global: &Global, args: &ReplayArgs) -> Result<ExitCode> {
    let mut events = Vec::new();
    if args.failed {
        events = failed_events(&pool.catalog, REPLAY_MAX)?;
    }
    for text in &args.ids {
        let (first, last) = range(text)?;
        for id in first..=last {
            match received_one(&pool.catalog, id)? {
                Some(event) => events.push(event),
                None if first == last => {
                    return Err(Error::Message(format!("no event has the number {id}")));
                }
                None => {}
            }
        }
    }
    events.sort_by_key(|event| event.id);
    let due = replay(pool, &events)?;
    if global.json {
        output::json(&serde_json::json!({ "replayed": events.len(), "due": due }))?;
    } else if !global.quiet {
        writeln!(output::stdout(), "{} events taken again, {due} name a repository", events.len())?;
    }
    Ok(ExitCode::from(u8::from(due == 0 && !events.is_empty())))
}

/// Takes deliveries of webhooks that never arrived.
fn sweep(pool: &mut Pool, global: &Global, args: &SweepArgs) -> Result<()> {
    let all: Vec<_> = pool.config.events.webhook.iter().filter(|w| !w.sweep().is_empty()).cloned().collect();
    if let Some(unknown) = args.names.iter().find(|name| all.iter().all(|webhook| webhook.name() != *name)) {
        return Err(Error::Message(format!("no webhook '{unknown}' with sweep is in weir.toml")));
    }
    if all.is_empty() {
        let text = "no webhook in weir.toml has 'sweep', which says where the forge lists its deliveries";
        return Err(Error::Message(text.to_owned()));
    }
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let is_wanted = |name: &str| args.names.is_empty() || args.names.iter().any(|wanted| wanted == name);
    for webhook in all.iter().filter(|webhook| is_wanted(webhook.name())) {
        let mut outcomes = Vec::new();
        let swept = Sweeper::new(pool, args.all, &stop).sweep(webhook, &mut |outcome| outcomes.push(outcome));
        // What was taken stays taken, whatever failed then.
        for outcome in &outcomes {
            match (global.json, global.quiet) {
                (true, _) => output::json_line(outcome)?,
                (false, true) => {}
                (false, false) => writeln!(output::stdout(), "{outcome}")?,
            }
        }
        if !swept? {
            return Err(Error::Message("another process of this pool sweeps: try again later".to_owned()));
        }
    }
    Ok(())
}

/// Lists the lines that tables and workers rejected, or marks them to be tried again, or deletes them.
fn rejected(pool: &Pool, global: &Global, args: &RejectedArgs) -> Result<()> {
    let of = args.of.as_deref();
    if let Some(name) = of
        && pool.catalog.received().collector_counts()?.iter().all(|counts| counts.name != name)
    {
        return Err(Error::Message(format!("no table or worker is called '{name}'")));
    }
    if args.retry || args.drop {
        let (count, what) = match args.retry {
            true => (pool.catalog.received().retry_rejected(of, &args.ids)?, "to be tried again"),
            false => (pool.catalog.received().drop_rejected(of, &args.ids)?, "dropped"),
        };
        return match (global.json, global.quiet) {
            (true, _) => Ok(output::json(&serde_json::json!({ "changed": count }))?),
            (false, true) => Ok(()),
            (false, false) => Ok(writeln!(output::stdout(), "{count} lines {what}")?),
        };
    }
    if !args.ids.is_empty() {
        return Err(Error::Message("numbers of events need --retry or --drop".to_owned()));
    }
    let lines = rejected_lines(&pool.catalog, of, args.max_count)?;
    if global.json {
        return Ok(output::json(&lines)?);
    }
    let mut rows = vec![["ID", "BY", "REASON", "LINE"].map(str::to_owned).to_vec()];
    rows.extend(lines.iter().map(|line| {
        vec![line.id.to_string(), line.collector.clone(), short(&line.reason), short(&line.line)]
    }));
    Ok(output::table(&rows, &[0])?)
}

/// Parses `ID` or `FIRST-LAST`.
fn range(text: &str) -> Result<(i64, i64)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse::<i64>(), last.parse::<i64>()) {
        (Ok(first), Ok(last)) if first <= last && last - first < REPLAY_MAX as i64 => Ok((first, last)),
        _ => Err(Error::Message(format!(
            "'{text}' is neither a number of an event nor a range of at most {REPLAY_MAX}, as 5-9"
        ))),
    }
}

/// Returns `text`, cut where a line of a terminal ends.
fn short(text: &str) -> String {
    match text.char_indices().nth(ABOUT_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn when(event: &ReceivedEvent) -> String {
    output::time(Timestamp::from(event.at_ms / 1000))
}
