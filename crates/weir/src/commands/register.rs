//! `init`, `add`, `rm`.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use weir_catalog::{Base, Hold, Repository};
use weir_repo::Origin;
use weir_transport::Url;

use crate::cli::{AddArgs, Global};
use crate::error::{Error, Result, SOME_FAILED};
use crate::names::check_name;
use crate::output;
use crate::pool::{Made, Pool, now, path_of};
use crate::registry::{delete_archives, entry, lock, look_at};

pub(crate) fn init(global: &Global, path: Option<PathBuf>, catalog_url: Option<&str>) -> Result<()> {
    let path = match path {
        Some(path) => path,
        None => path_of(global)?,
    };
    let made = Pool::init(&path, catalog_url)?;
    if let (false, Some(url)) = (made == Made::Pool, catalog_url) {
        let message = format!(
            "there is already a pool at '{}'; migrate its catalog to PostgreSQL with 'weir migrate {}'",
            path.display(),
            weir_catalog::redacted(url)
        );
        return Err(Error::Message(message));
    }
    if global.json {
        output::json(&serde_json::json!({ "pool": path, "new": made == Made::Pool }))?;
    } else if !global.quiet {
        let path = path.display();
        match made {
            Made::Pool => writeln!(output::stdout(), "made a pool at {path}")?,
            Made::Catalog => writeln!(
                output::stdout(),
                "made an empty catalog for the pool at {path}; run 'weir adopt' to register its archives \
                again"
            )?,
            Made::Nothing => writeln!(output::stdout(), "there is a pool already at {path}")?,
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
        if let Err(e) = sound.take(pool, &wanted, args.force) {
            problems.push(format!("{}{e}", wanted.at));
        }
    }
    let SoundEntries { entries, new, .. } = sound;
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
        for (name, ..) in &entries {
            let r = pool.get(name)?;
            // What is mirrored already is shared by its own command.
            if r.seq.is_none() {
                pool.catalog.set_base(r.id, base.id)?;
            }
        }
    }
    if global.json {
        let names: Vec<&str> = entries.iter().map(|e| e.0.as_str()).collect();
        output::json(
            &serde_json::json!({ "added": added, "names": names, "new": new, "refused": problems }),
        )?;
    } else if !global.quiet {
        let mut out = output::stdout();
        if entries.len() <= 20 {
            for (name, url, _) in &entries {
                writeln!(out, "{name}  <-  {}", Url::parse(url)?)?;
            }
        }
        let refused =
            if problems.is_empty() { String::new() } else { format!(", {} refused", problems.len()) };
        writeln!(out, "{added} added, {} there already{refused}", entries.len() - added)?;
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}

/// What is to be registered: the URLs of the command line, then those of its list. What is wrong with lines
/// of the list goes to `problems`.
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

/// What can be registered.
#[derive(Default)]
struct SoundEntries {
    entries: Vec<(String, String, String)>,
    /// Names that the catalog does not have yet.
    new: Vec<String>,
    /// URLs by name.
    seen: HashMap<String, String>,
}

impl SoundEntries {
    fn take(&mut self, pool: &Pool, wanted: &Wanted, force: bool) -> Result<()> {
        look_at(&wanted.url).or_else(|e| match e {
            _ if force => Ok(()),
            Error::Message(why) => {
                Err(Error::Message(format!("{why} (use 'weir add --force' to register it anyway)")))
            }
            e => Err(e),
        })?;
        let one = entry(&wanted.url, wanted.name.as_deref())?;
        let known = pool.catalog.get(&one.0)?.map(|r| r.url);
        let is_new = known.is_none() && !self.seen.contains_key(&one.0);
        let other = known.or_else(|| self.seen.get(&one.0).cloned()).filter(|other| *other != one.1);
        if let Some(other) = other {
            let other = Url::parse(&other)?;
            return Err(Error::Message(format!(
                "'{}' is taken: it is mirrored from {other}; choose another name",
                one.0
            )));
        }
        if is_new {
            check_archive(pool, &one)?;
            self.new.push(one.0.clone());
        }
        self.seen.insert(one.0.clone(), one.1.clone());
        self.entries.push(one);
        Ok(())
    }
}

/// Lines of a list that are said to be wrong one by one.
const PROBLEMS_SHOWN: usize = 20;

/// An upstream that is to be registered.
struct Wanted {
    url: String,
    name: Option<String>,
    /// Where that is said, before a message about it.
    at: String,
}

/// URL and name of a line of a list; a word that begins with # begins a comment.
fn listed(line: &str) -> std::result::Result<Option<(String, Option<String>)>, String> {
    let mut words = line.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
    let Some(url) = words.next() else { return Ok(None) };
    let name = words.next().map(str::to_owned);
    match words.next() {
        None => Ok(Some((url.to_owned(), name))),
        Some(word) => Err(format!("unexpected '{word}': a line is a URL, or a URL and a name")),
    }
}

/// Refuses a new repository whose archive is there and is of another upstream: it would be served under that
/// name.
fn check_archive(pool: &Pool, (_, url, path): &(String, String, String)) -> Result<()> {
    // That of one which had the name before: the new one gets another file.
    if pool.catalog.has_archive_at(path)? {
        return Ok(());
    }
    let place = pool.store().join(path);
    let Some(found) = weir_archive::Archive::open(&place).ok().and_then(|archive| Origin::of(&archive))
    else {
        return Ok(());
    };
    if found.url == Url::parse(url)?.without_userinfo() {
        return Ok(());
    }
    Err(Error::Message(format!(
        "'{}' already holds a copy of {}; choose another name with --name, or delete that file",
        place.display(),
        output::printable(found.url.as_bytes())
    )))
}

/// `pause` and `resume`.
pub(crate) fn pause(pool: &mut Pool, global: &Global, patterns: &[String], is_paused: bool) -> Result<()> {
    let mut repositories = pool.matching_any(patterns)?;
    repositories.retain(|r| r.is_paused != is_paused);
    let (mut names, mut pinned) = (Vec::new(), Vec::new());
    for r in &repositories {
        pool.catalog.set_hold(&r.name, Hold::Paused, is_paused)?;
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
    check_name(new)?;
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
        // A folder's name alone does not mean all that is below it here.
        match pattern.contains(['*', '?']) {
            true => repositories.extend(pool.matching(Some(pattern))?),
            false => repositories.push(pool.get(pattern)?),
        }
    }
    repositories.sort_by(|a, b| a.name.cmp(&b.name));
    repositories.dedup_by_key(|r| r.id);
    let ids: HashSet<i64> = repositories.iter().map(|r| r.id).collect();
    // All or nothing: what others build on stays, and an archive that is kept keeps what it builds on.
    for r in &repositories {
        let needing = pool.catalog.built_on(r.id)?;
        if let Some(first) = needing.iter().find(|fork| !ids.contains(&fork.id)) {
            return Err(weir_catalog::Error::BuiltOn {
                count: needing.len() as i64,
                first: first.name.clone(),
            }
            .into());
        }
    }
    let forks = pool.catalog.bases(&ids.iter().copied().collect::<Vec<_>>())?;
    let has_archive =
        |fork: &&Base| repositories.iter().any(|r| r.id == fork.id && pool.archive_path(r).exists());
    if let Some(fork) = forks.iter().find(|fork| !delete && has_archive(fork)) {
        let name = repositories.iter().find(|r| r.id == fork.id).map_or("", |r| &r.name);
        return Err(Error::Message(format!(
            "the archive of '{name}' builds on that of '{}': run 'weir dissociate {name}' first, or delete \
            it with --delete",
            fork.name
        )));
    }
    // Forks before what they build on.
    repositories.sort_by_key(|r| !forks.iter().any(|fork| fork.id == r.id));
    for r in &repositories {
        let path = pool.archive_path(r);
        let what = if forget(pool, r, delete)? { "deleted" } else { "forgotten" };
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

/// Forgets a repository, and deletes its archive if that is said and there is one; says whether there was.
fn forget(pool: &mut Pool, r: &Repository, delete: bool) -> Result<bool> {
    let path = pool.archive_path(r);
    pool.catalog.remove(&r.name)?;
    if !delete || !path.exists() {
        return Ok(false);
    }
    let lock = lock(&path)?;
    delete_archives(&path)?;
    drop(lock);
    Ok(true)
}
