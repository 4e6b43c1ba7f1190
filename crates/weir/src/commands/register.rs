//! `init`, `add`, `pause`, `resume`, `rename`, `rm`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_arguments::{AddArgs, Global};
use weir_catalog::Hold;
use weir_catalog::clock::now;
use weir_ground::check_name;
use weir_pool::{InitOutcome, Pool, SoundEntries, is_pool_folder};
use weir_terminal::{output, warn_line};
use weir_transport::Url;

use crate::environment::environment;
use crate::error::{Error, Result, SOME_FAILED};
use crate::pool_path::default_path;
use crate::remedies::Remediable;
use crate::workspace_records::OwnWorkspaces;

pub(crate) fn init(global: &Global, path: Option<PathBuf>, catalog_url: Option<&str>) -> Result<()> {
    let path = match path {
        Some(path) => path,
        // A pool that lost its catalog is made whole where it is; a new one may lie below another.
        None if global.pool.is_none() && is_pool_folder(Path::new(".")) => std::env::current_dir()?,
        None => global.pool.clone().map_or_else(default_path, Ok).map_err(Error::of)?,
    };
    let made = Pool::init(&path, catalog_url, environment())?;
    let is_new = matches!(made, InitOutcome::Pool | InitOutcome::AroundStore);
    if let (false, Some(url)) = (is_new, catalog_url) {
        let message = format!(
            "there is already a pool at '{}'; migrate its catalog to PostgreSQL with 'weir migrate {}'",
            path.display(),
            weir_sql::redacted(url)
        );
        return Err(Error::Message(message));
    }
    if global.json {
        output::json(&serde_json::json!({ "pool": path, "new": is_new }))?;
    } else if !global.quiet {
        let path = path.display();
        match made {
            InitOutcome::Pool => writeln!(output::stdout(), "made a pool at {path}")?,
            InitOutcome::AroundStore => writeln!(
                output::stdout(),
                "made a pool at {path}; run 'weir adopt' to register the archives in its store"
            )?,
            InitOutcome::Catalog => writeln!(
                output::stdout(),
                "made an empty catalog for the pool at {path}; run 'weir adopt' to register its archives \
                again"
            )?,
            InitOutcome::Nothing => writeln!(output::stdout(), "there is a pool already at {path}")?,
        }
    }
    Ok(())
}

pub(crate) fn add(pool: &mut Pool, global: &Global, args: AddArgs) -> Result<ExitCode> {
    let base = args.reference.as_ref().map(|name| pool.get(name)).transpose()?;
    if args.name.is_some() && args.urls.len() != 1 {
        return Err(Error::Message("--name needs exactly one URL".to_owned()));
    }
    let (mut sound, mut problems) = (SoundEntries::default(), Vec::new());
    for wanted in wanted(&args, &mut problems)? {
        let name = wanted.name.as_deref();
        if let Err(e) = sound.take(&pool.catalog, &pool.store, &wanted.url, name, args.force) {
            problems.push(format!("{}{}", wanted.at, e.with_remedy()));
        }
    }
    let SoundEntries { entries, new, .. } = sound;
    if let Some(base) = &base
        && let access = pool.config.access.names()
        && let Some(shown) = entries.iter().find(|e| access.hide_more(&base.name, &e.name))
    {
        return Err(Error::Message(format!(
            "an access rule hides '{}' from some who could read '{}', and with it all objects of the base: \
            name it below the same rule, or leave out --reference",
            base.name, shown.name
        )));
    }
    if let Some((last, first)) = problems.split_last() {
        first.iter().take(PROBLEMS_SHOWN).for_each(|problem| warn_line!("error: {problem}"));
        let unsaid = first.len().saturating_sub(PROBLEMS_SHOWN);
        let more = if unsaid > 0 { format!("; and {unsaid} more") } else { String::new() };
        if !args.keep_going {
            return Err(Error::Message(format!(
                "{last}{more}; nothing was registered (use --keep-going to register the others)"
            )));
        }
        warn_line!("error: {last}{more}");
    }
    let added = pool.catalog.add(&entries, now())?;
    if let Some(base) = base {
        for entry in &entries {
            let r = pool.get(&entry.name)?;
            // Repositories that are mirrored already are shared with `weir share`.
            if r.seq.is_none() {
                pool.catalog.archives().set_base(r.id, base.id)?;
            }
        }
    }
    if global.json {
        let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
        output::json(
            &serde_json::json!({ "added": added, "names": names, "new": new, "refused": problems }),
        )?;
    } else if !global.quiet {
        let mut out = output::stdout();
        if entries.len() <= 20 {
            for entry in &entries {
                writeln!(out, "{}  <-  {}", entry.name, Url::parse(&entry.url)?)?;
            }
        }
        let refused =
            if problems.is_empty() { String::new() } else { format!(", {} refused", problems.len()) };
        writeln!(out, "{added} added, {} there already{refused}", entries.len() - added)?;
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}

/// Returns the upstreams to register: the URLs of the command line, then those of its list. Errors in lines
/// of the list go to `problems`.
fn wanted(args: &AddArgs, problems: &mut Vec<String>) -> Result<Vec<Wanted>> {
    let of_url = |url: &String| Wanted { url: url.clone(), name: args.name.clone(), at: String::new() };
    let mut wanted: Vec<Wanted> = args.urls.iter().map(of_url).collect();
    let Some(from) = &args.from else { return Ok(wanted) };
    for (number, line) in output::read_lines(from)?.iter().enumerate() {
        let at = format!("{}:{}: ", from.display(), number + 1);
        match line.as_deref().map_or(Err("it is not UTF-8".to_owned()), listed) {
            Ok(Some((url, name))) => wanted.push(Wanted { url, name, at }),
            Ok(None) => {}
            Err(why) => problems.push(format!("{at}{why}")),
        }
    }
    Ok(wanted)
}

/// The number of bad lines of a list that are reported one by one.
const PROBLEMS_SHOWN: usize = 20;

/// An upstream to register.
struct Wanted {
    url: String,
    name: Option<String>,
    /// Its place in the list, as the prefix of messages.
    at: String,
}

/// Parses a line of a list into URL and name. A word that begins with # begins a comment.
fn listed(line: &str) -> std::result::Result<Option<(String, Option<String>)>, String> {
    let mut words = line.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
    let Some(url) = words.next() else { return Ok(None) };
    let name = words.next().map(str::to_owned);
    match words.next() {
        None => Ok(Some((url.to_owned(), name))),
        Some(word) => Err(format!("unexpected '{word}': a line is a URL, or a URL and a name")),
    }
}

/// `pause` and `resume`.
pub(crate) fn pause(pool: &mut Pool, global: &Global, patterns: &[String], is_paused: bool) -> Result<()> {
    let mut repositories = pool.matching_any(patterns)?;
    repositories.retain(|r| r.is_paused != is_paused);
    let (mut names, mut pinned) = (Vec::new(), Vec::new());
    for r in &repositories {
        pool.catalog.archives().set_hold(&r.name, Hold::Paused, is_paused)?;
        names.push(&r.name);
        if r.is_pinned {
            pinned.push(&r.name);
        }
    }
    let what = if is_paused { "paused" } else { "resumed" };
    if global.json {
        output::json(&serde_json::json!({ what: names, "pinned": pinned }))?;
    } else if !global.quiet {
        writeln!(output::stdout(), "{} {what}", names.len())?;
        for name in pinned.iter().filter(|_| !is_paused) {
            warn_line!(
                "{name} is set back to an older state and is not visited until you run 'weir mirror {name}'"
            );
        }
    }
    Ok(())
}

pub(crate) fn rename(pool: &mut Pool, global: &Global, name: &str, new: &str) -> Result<()> {
    let new = new.trim_matches('/');
    check_name(new).map_err(Error::of)?;
    let repository = pool.get(name)?;
    pool.catalog.rename(&repository.name, new)?;
    if global.json {
        output::json(&serde_json::json!({ "renamed": repository.name, "to": new }))?;
    } else if !global.quiet {
        writeln!(output::stdout(), "{}  ->  {new}", repository.name)?;
    }
    Ok(())
}

pub(crate) fn rm(pool: &mut Pool, global: &Global, patterns: &[String], delete: bool) -> Result<()> {
    let mut repositories = Vec::new();
    for pattern in patterns {
        // Here, the name of a folder alone does not stand for everything below it.
        match pattern.contains(['*', '?']) {
            true => repositories.extend(pool.matching(pattern)?),
            false => repositories.push(pool.get(pattern)?),
        }
    }
    repositories.sort_by(|a, b| a.name.cmp(&b.name));
    repositories.dedup_by_key(|r| r.id);
    if delete {
        let workspaces = OwnWorkspaces::list()?;
        for r in &repositories {
            if let Some(why) = workspaces.lost_with(&pool.archive_path(r)) {
                return Err(Error::Message(format!("{}: {why}; nothing was deleted", r.name)));
            }
        }
    }
    weir_pool::check_removal(&pool.catalog, &pool.store, &mut repositories, delete)?;
    for r in &repositories {
        let path = pool.archive_path(r);
        let is_deleted = weir_pool::forget(&pool.catalog, &pool.store, r, delete)?;
        let what = if is_deleted { "deleted" } else { "forgotten" };
        if !global.quiet && !global.json {
            let kept = if !delete && path.exists() {
                format!("; its archive stays at {}", path.display())
            } else {
                String::new()
            };
            writeln!(output::stdout(), "{what} {}{kept}", r.name)?;
        }
    }
    if global.json {
        output::json(
            &serde_json::json!({ "removed": repositories.iter().map(|r| &r.name).collect::<Vec<_>>(),
                "deleted": delete }),
        )?;
    }
    Ok(())
}
