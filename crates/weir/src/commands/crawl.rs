//! `crawl`: takes the listings of forges into the catalog, once or for ever.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use serde_json::json;
use weir_arguments::{CrawlArgs, Global};
use weir_catalog::Listed;
use weir_crawl::{CrawlProgress, CrawlSource, preview};
use weir_ground::Stop;
use weir_pool::Pool;
use weir_process::stop_on_signal;
use weir_settings::ForgeConfig;
use weir_terminal::output;

use crate::crawling::list_with_bars;
use crate::error::{Error, Result, SOME_FAILED};

pub(crate) fn crawl(pool: Pool, global: &Global, args: &CrawlArgs) -> Result<ExitCode> {
    let forges = chosen(&pool, &args.forges)?;
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    if args.dry_run {
        return dry_run(&forges, global, &stop);
    }
    let shows_bar = std::io::stderr().is_terminal() && !global.quiet && !global.json;
    let failed = list_with_bars(&pool, &forges, args.watch, shows_bar, &stop, &mut |name, progress| {
        report(name, progress, global)
    });
    Ok(if failed && !args.watch { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

/// Returns the forges called `names`; all, without names.
fn chosen(pool: &Pool, names: &[String]) -> Result<Vec<ForgeConfig>> {
    let all = &pool.config.forge;
    if all.is_empty() {
        return Err(Error::Message(
            "no forge is configured; add a [[forge]] to weir.toml (docs/weir.toml shows how)".to_owned(),
        ));
    }
    if names.is_empty() {
        return Ok(all.clone());
    }
    let find = |name: &String| {
        let known = || all.iter().map(ForgeConfig::name).collect::<Vec<_>>().join(", ");
        let found = all.iter().find(|f| f.name() == *name).cloned();
        found.ok_or_else(|| Error::Message(format!("no forge is called '{name}'; there are: {}", known())))
    };
    names.iter().map(find).collect()
}

fn report(name: &str, p: &CrawlProgress, global: &Global) -> Result<()> {
    if global.json {
        return Ok(output::json_line(&json!({
            "forge": name, "finished": p.finished, "pages": p.pages, "unchanged_pages": p.unchanged,
            "listed": p.listed, "wanted": p.wanted, "refused": p.refused, "unknown": p.unknown,
            "added": p.taken.added, "renamed": p.taken.renamed, "back": p.taken.back,
            "hinted": p.taken.hinted, "known": p.taken.known,
            "gone": p.gone, "skipped_pages": p.skipped, "recovered_pages": p.recovered,
            "requests": p.usage.requests,
            "rate_limit_waits": p.usage.waits, "rate_limit_seconds": p.usage.waited_s,
        }))?);
    }
    if !global.quiet {
        writeln!(output::stdout(), "{}", p.line(name))?;
    }
    Ok(())
}

/// Prints what would be added, without using the catalog.
fn dry_run(forges: &[ForgeConfig], global: &Global, stop: &Stop) -> Result<ExitCode> {
    for config in forges {
        let print = |name: &str, listed: &Listed| -> Result<()> {
            if global.json {
                let value = json!({ "name": name, "url": listed.clone_url, "listed": listed });
                return Ok(output::json_line(&value)?);
            }
            Ok(writeln!(output::stdout(), "{name}  <-  {}", listed.clone_url)?)
        };
        preview(config, stop, &mut |name, listed| Ok(print(name, listed)?))?;
    }
    Ok(ExitCode::SUCCESS)
}
