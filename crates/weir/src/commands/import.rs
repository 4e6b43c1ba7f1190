//! `import`: registers the repositories that dumps made by others list.

use std::cell::Cell;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use weir_arguments::{DumpFormat, Global, ImportArgs};
use weir_catalog::clock::now;
use weir_crawl::{CrawlSource, Dump, Import, ImportError, Imported};
use weir_ground::{FileError, Stop};
use weir_pool::{CloneImport, ImportedClone, LocalClones, MirrorGuard, Pool, find_clones};
use weir_process::stop_on_signal;
use weir_settings::ForgeConfig;
use weir_terminal::output;

use crate::error::{Error, Result, SOME_FAILED};
use crate::remedies::Remediable;

/// The number of bad rows that are reported one by one.
const BAD_ROWS_TOLD: u64 = 20;

pub(crate) fn import(mut pool: Pool, global: &Global, args: &ImportArgs) -> Result<ExitCode> {
    if let DumpFormat::Clones = args.format {
        return import_clones(&mut pool, global, args);
    }
    let forge = pool.config.github(args.forge.as_deref()).map_err(Error::of)?;
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let mut failed = false;
    for path in &args.files {
        if stop.is_stopped() {
            break;
        }
        match one(&mut pool, global, args, &forge, path, &stop) {
            Ok(imported) => report(path, &imported, args.dry_run, global)?,
            Err(Error::Catalog(e)) => return Err(e.into()),
            Err(e) => {
                failed = true;
                tracing::error!("{e}");
            }
        }
    }
    Ok(if failed || stop.is_stopped() { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Opens the dump at `path`. Returns it with the name under which the catalog knows it.
fn open_dump(args: &ImportArgs, forge: &ForgeConfig, path: &Path) -> Result<(Box<dyn Read>, String)> {
    let io = FileError::on("read", path);
    if let DumpFormat::Crawld = args.format {
        let url = path.to_str().filter(|url| url.contains("://")).ok_or_else(|| {
            Error::Message(format!(
                "'{}' is not a database: use postgres://USER@HOST/DATABASE, as in crawld's configuration",
                path.display()
            ))
        })?;
        let source = format!("{} crawld {}", forge.name(), weir_sql::redacted(url));
        return Ok((weir_catalog::repositories_of_crawld(url)?, source));
    }
    if path.as_os_str() == "-" {
        return Ok((Box::new(std::io::stdin()), "-".to_owned()));
    }
    let file = File::open(path).map_err(io)?;
    // A file of another length is another dump, even under the same name.
    let bytes = file.metadata().map_err(io)?.len();
    let path = std::fs::canonicalize(path).map_err(io)?;
    let source = format!("{} {} {bytes} {}", forge.name(), args.format.name(), path.display());
    Ok((Box::new(file), source))
}

fn one(
    pool: &mut Pool,
    global: &Global,
    args: &ImportArgs,
    forge: &ForgeConfig,
    path: &Path,
    stop: &Stop,
) -> Result<Imported> {
    let is_stdin = path.as_os_str() == "-";
    let (input, source) = open_dump(args, forge, path)?;
    // Standard input may have been another dump the last time.
    if !args.dry_run && (args.again || is_stdin) {
        pool.catalog.listings().forget_import(&source)?;
    }
    let bar = (std::io::stderr().is_terminal() && !global.quiet && !global.json).then(|| {
        let style = ProgressStyle::with_template("{spinner} {prefix}: {msg}, {elapsed} gone")
            .expect("a valid template");
        let bar = ProgressBar::new_spinner().with_style(style).with_prefix(path.display().to_string());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    });
    let told = Cell::new(0);
    let started = Instant::now();
    let import = Import {
        dump: match args.format {
            DumpFormat::Ghtorrent => Dump::GhTorrent,
            DumpFormat::Gharchive => Dump::GhArchive,
            DumpFormat::GhtorrentBson => Dump::Documents,
            DumpFormat::Github | DumpFormat::Crawld | DumpFormat::Clones => Dump::Objects,
        },
        source: &source,
        forge: &forge.name(),
        filter: &forge.wanted().filter,
        name_of: &|listed| if forge.is_of_owners(listed) { forge.name_of(listed) } else { Ok(None) },
        on_bad_row: &|line, what| {
            told.set(told.get() + 1);
            if told.get() <= BAD_ROWS_TOLD {
                tracing::warn!("{}:{line}: {what}", path.display());
            } else if told.get() == BAD_ROWS_TOLD + 1 {
                tracing::warn!("{}: more bad rows are counted only", path.display());
            }
        },
        now: &now,
    };
    let catalog = (!args.dry_run).then_some(&pool.catalog);
    let result = import.run(input, catalog, &mut |done| {
        if let Some(bar) = &bar {
            let rate = done.rows as f64 / started.elapsed().as_secs_f64().max(0.001);
            bar.set_message(format!(
                "{} lines, {} repositories ({rate:.0}/s), {} new",
                done.lines, done.rows, done.taken.added
            ));
        }
        !stop.is_stopped()
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    result.map_err(|e| match e {
        ImportError::Catalog(e) => e.into(),
        e if is_stdin || args.dry_run => Error::Message(e.to_string()),
        e => Error::Message(format!("{e}; the next import of it resumes after what was imported")),
    })
}

fn report(path: &Path, done: &Imported, is_dry_run: bool, global: &Global) -> Result<()> {
    let Imported {
        lines,
        rows,
        accounts,
        bad,
        unwanted,
        unknown,
        unknown_of,
        taken,
        is_finished,
        was_finished,
    } = *done;
    let unknown_words = format!("skipped (it does not say {})", unknown_of.unwrap_or_default());
    if global.json {
        return Ok(output::json_line(&serde_json::json!({
            "file": path, "finished": is_finished, "lines": lines, "rows": rows, "accounts": accounts,
            "bad": bad, "unwanted": unwanted, "unknown": unknown,
            "added": taken.added, "renamed": taken.renamed, "hinted": taken.hinted,
            "known": taken.known,
        }))?);
    }
    if global.quiet {
        return Ok(());
    }
    let mut out = output::stdout();
    if is_dry_run {
        writeln!(
            out,
            "{}: {rows} rows of repositories, {accounts} of accounts, {unwanted} not wanted, {unknown} with \
            too little data, {bad} bad; nothing was written",
            path.display()
        )?;
        return Ok(());
    }
    let counts = [
        (accounts, "of accounts"),
        (taken.added as u64, "new"),
        (taken.renamed as u64, "renamed"),
        (taken.hinted as u64, "changed"),
        (taken.known as u64, "known"),
        (unwanted, "not wanted"),
        (unknown, &unknown_words),
        (bad, "bad"),
    ];
    let mut parts = vec![format!("{rows} rows")];
    parts.extend(counts.iter().filter(|c| c.0 > 0).map(|(n, what)| format!("{n} {what}")));
    let end = match (was_finished, is_finished, path.as_os_str() == "-") {
        (true, ..) => " (imported before; use --again to read it again)".to_owned(),
        (_, true, _) => String::new(),
        (_, _, true) => format!("; stopped after line {lines}"),
        _ => format!("; stopped after line {lines}, the next import resumes there"),
    };
    writeln!(out, "{}: {}{end}", path.display(), parts.join(", "))?;
    Ok(())
}

/// `import clones`: takes over repositories that others have cloned.
fn import_clones(pool: &mut Pool, global: &Global, args: &ImportArgs) -> Result<ExitCode> {
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let guard = MirrorGuard::take(pool)?;
    let mut options = pool.mirror(None).visit;
    options.transport.local = Some(Arc::new(LocalClones));
    let mut import = CloneImport {
        catalog: &pool.catalog,
        store: &pool.store,
        owner: &guard.owner,
        options: &options,
        dry_run: args.dry_run,
    };
    let (mut new, mut there, mut bad) = (0u64, 0u64, 0u64);
    for root in &args.files {
        for path in find_clones(root, &mut |e| tracing::error!("{e}"))? {
            if stop.is_stopped() {
                break;
            }
            match import.import(&path) {
                Ok((name, imported)) => {
                    match imported {
                        ImportedClone::There => there += 1,
                        ImportedClone::New(_) | ImportedClone::Would => new += 1,
                    }
                    report_clone(global, &name, &path, &imported)?;
                }
                Err(weir_pool::Error::Catalog(e)) if !matches!(e, weir_catalog::Error::NameTaken { .. }) => {
                    return Err(e.into());
                }
                Err(e) => {
                    bad += 1;
                    tracing::error!("{}: not imported: {}", path.display(), e.with_remedy());
                }
            }
        }
    }
    if global.json {
        output::json_line(&json!({ "result": "summary", "taken": new, "there": there, "bad": bad }))?;
    } else if !global.quiet {
        let what = if args.dry_run { "to be imported" } else { "imported" };
        writeln!(output::stdout(), "{new} {what}, {there} already there, {bad} not imported")?;
    }
    Ok(if bad > 0 || stop.is_stopped() { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

fn report_clone(global: &Global, name: &str, path: &Path, imported: &ImportedClone) -> Result<()> {
    if global.json {
        let (result, bytes) = match imported {
            ImportedClone::New(bytes) => ("taken", Some(bytes)),
            ImportedClone::There => ("there", None),
            ImportedClone::Would => ("to be taken", None),
        };
        return Ok(output::json_line(
            &json!({ "name": name, "path": path, "result": result, "archive_bytes": bytes }),
        )?);
    }
    let mut out = output::stdout();
    match imported {
        _ if global.quiet => {}
        ImportedClone::New(bytes) => {
            writeln!(out, "{name}  <-  {}, {}", path.display(), output::bytes(*bytes))?;
        }
        ImportedClone::Would => writeln!(out, "{name}  <-  {}", path.display())?,
        ImportedClone::There => {}
    }
    Ok(())
}
