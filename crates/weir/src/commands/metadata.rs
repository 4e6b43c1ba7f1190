//! `metadata`: stores issues, pull requests and releases from forges in the archives of their repositories.

use std::io::Write;
use std::process::ExitCode;

use weir_arguments::{Global, MetadataCommand, MetadataUpdateArgs};
use weir_crawl::CrawlSource;
use weir_ground::Stop;
use weir_ground::thread::spawn_scoped;
use weir_metadata::LookOutcome;
use weir_pool::{InRepo, LookGuard, Pool, look_at_metadata, with_metadata};
use weir_process::stop_on_signal;
use weir_settings::ForgeConfig;
use weir_terminal::{output, warn_line};

use crate::error::{Error, Result, SOME_FAILED};

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
        let text = "no GitHub, GitLab or Gitea is configured; add a [[forge]] to weir.toml (docs/weir.toml \
            shows how)";
        return Err(Error::Message(text.to_owned()));
    }
    let ids = match args.repos.as_slice() {
        [] => None,
        repos => {
            let ids: Vec<i64> = pool.matching_any(repos)?.iter().map(|r| r.id).collect();
            let mut known = 0;
            for forge in &forges {
                known += pool.catalog.metadata().note_of(&forge.name(), &ids)?.len();
            }
            if known == 0 {
                let text = format!(
                    "no repository that matches '{}' is listed by a GitHub, GitLab or Gitea forge, \
                    mirrored, and not gone",
                    repos.join("' or '")
                );
                return Err(Error::Message(text));
            }
            Some(ids)
        }
    };
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let guard = LookGuard::take(&pool)?;
    let failed = on_all(&pool, &forges, &stop, &|pool, forge| {
        let report = &|name: &str, brought: &LookOutcome| Ok(report(name, brought, global)?);
        Ok(look_at_metadata(pool, &guard.owner, forge, ids.as_deref(), args.watch, &stop, report)?)
    })?;
    Ok(if failed && !args.watch { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Does `work` for all forges at once: each has limits of its own to wait for. Returns whether anything
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
            let thread = spawn_scoped("metadata", scope, move || {
                let result = work(&mut own, forge);
                if result.is_err() {
                    stop.stop();
                }
                result
            });
            Ok(thread?)
        };
        let threads = forges.iter().map(start).collect::<Result<Vec<_>>>()?;
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect::<Result<Vec<bool>>>().map(|failed| failed.contains(&true))
    })
}

fn report(name: &str, brought: &LookOutcome, global: &Global) -> Result<()> {
    if global.json {
        return Ok(output::json_line(
            &serde_json::json!({ "name": name, "added": brought.added, "error": brought.error,
                "more": brought.is_cut }),
        )?);
    }
    match brought.error {
        Some(_) => warn_line!("{}", brought.line(name)),
        None if global.quiet => {}
        None => writeln!(output::stdout(), "{}", brought.line(name))?,
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
        true => Ok(output::json(&list)?),
        false if list.is_empty() => {
            warn_line!(
                "no metadata stored; if a forge lists the repository, run 'weir metadata update {name}'"
            );
            Ok(())
        }
        false => Ok(output::table(&rows, &[0, 1])?),
    }
}

fn cat(pool: &Pool, name: &str, stream: &str) -> Result<()> {
    let repo = pool.open_repo(&pool.get(name)?)?;
    let streams = repo.metadata_streams();
    if !streams.iter().any(|known| known == stream) {
        let known = if streams.is_empty() { "none".to_owned() } else { streams.join(", ") };
        return Err(Error::Message(format!("'{name}' has no {stream}; available: {known}")));
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
