//! `init`, `add`, `rm`.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use weir_catalog::{Base, Repository};
use weir_repo::Origin;
use weir_transport::{Scheme, Url};

use crate::cli::{AddArgs, Global};
use crate::error::{Error, Result};
use crate::output;
use crate::pool::{Pool, check_name, now, path_of};

pub(crate) fn init(global: &Global, path: Option<PathBuf>, catalog_url: Option<&str>) -> Result<()> {
    let path = match path {
        Some(path) => path,
        None => path_of(global)?,
    };
    let is_new = Pool::init(&path, catalog_url)?;
    if let (false, Some(url)) = (is_new, catalog_url) {
        let message = format!(
            "there is a pool already at '{}': take its catalog to PostgreSQL with 'weir migrate {}'",
            path.display(),
            weir_catalog::redacted(url)
        );
        return Err(Error::Message(message));
    }
    if global.json {
        output::json(&serde_json::json!({ "pool": path, "new": is_new }))?;
    } else if !global.quiet {
        let what = if is_new { "made a pool at" } else { "there is a pool already at" };
        writeln!(output::stdout(), "{what} {}", path.display())?;
    }
    Ok(())
}

pub(crate) fn add(pool: &mut Pool, global: &Global, args: AddArgs) -> Result<()> {
    let AddArgs { urls, from, name, reference } = args;
    let base = reference.map(|name| pool.get(&name)).transpose()?;
    if name.is_some() && urls.len() != 1 {
        return Err(Error::Message("--name needs exactly one URL".to_owned()));
    }
    let mut entries = Vec::new();
    for url in urls {
        entries.push(entry(&url, name.as_deref())?);
    }
    if let Some(from) = from {
        let text = if from.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        } else {
            std::fs::read_to_string(&from).map_err(|source| Error::File { what: "read", path: from.clone(), source })?
        };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            let (url, name) = (words.next().unwrap_or_default(), words.next());
            let one = entry(url, name).map_err(|e| Error::Message(format!("{}:{}: {e}", from.display(), number + 1)))?;
            entries.push(one);
        }
    }
    for entry in &entries {
        check_archive(pool, entry)?;
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
        output::json(&serde_json::json!({ "added": added, "names": names }))?;
    } else if !global.quiet {
        let mut out = output::stdout();
        if entries.len() <= 20 {
            for (name, url, _) in &entries {
                writeln!(out, "{name}  <-  {}", Url::parse(url)?)?;
            }
        }
        writeln!(out, "{added} added, {} there already", entries.len() - added)?;
    }
    Ok(())
}

/// Refuses a new repository whose archive is there and is of another upstream: it would be served under that name.
fn check_archive(pool: &mut Pool, (name, url, path): &(String, String, String)) -> Result<()> {
    let place = pool.store().join(path);
    let Some(found) = weir_archive::Archive::open(&place).ok().and_then(|archive| Origin::of(&archive)) else { return Ok(()) };
    if found.url == Url::parse(url)?.without_userinfo() || pool.catalog.get(name)?.is_some() {
        return Ok(());
    }
    Err(Error::Message(format!(
        "'{}' is there already, a copy of {}: choose another name with --name, or delete that",
        place.display(),
        output::printable(found.url.as_bytes())
    )))
}

/// Name, URL and archive of one upstream.
pub(crate) fn entry(url: &str, name: Option<&str>) -> Result<(String, String, String)> {
    let parsed = Url::parse(url)?;
    let mut kept = url.to_owned();
    let mut default = parsed.default_name();
    if parsed.scheme == Scheme::Local {
        // Relative to where the command was run; the mirror runs elsewhere.
        let absolute = std::path::absolute(parsed.local_path())?;
        kept = absolute.to_str().ok_or_else(|| Error::Message(format!("'{url}' is not UTF-8")))?.to_owned();
        default = Url::parse(&kept)?.default_name();
    }
    let name = name.map_or(default, |n| n.trim_matches('/').to_owned());
    check_name(&name)?;
    let path = format!("{name}.tar");
    Ok((name, kept, path))
}

/// `pause` and `resume`.
pub(crate) fn set_enabled(pool: &mut Pool, global: &Global, patterns: &[String], enabled: bool) -> Result<()> {
    let mut names = Vec::new();
    for pattern in patterns {
        names.extend(pool.matching(Some(pattern))?.into_iter().map(|r| r.name));
    }
    names.sort();
    names.dedup();
    for name in &names {
        pool.catalog.set_enabled(name, enabled)?;
    }
    let what = if enabled { "resumed" } else { "paused" };
    if global.json {
        output::json(&serde_json::json!({ what: names }))?;
    } else if !global.quiet {
        writeln!(output::stdout(), "{} {what}", names.len())?;
    }
    Ok(())
}

pub(crate) fn rm(pool: &mut Pool, global: &Global, names: &[String], delete: bool) -> Result<()> {
    let mut repositories = names.iter().map(|n| pool.get(n)).collect::<Result<Vec<_>>>()?;
    let ids: HashSet<i64> = repositories.iter().map(|r| r.id).collect();
    // All or nothing: what others build on stays, and an archive that is kept keeps what it builds on.
    for r in &repositories {
        let needing = pool.catalog.built_on(r.id)?;
        if let Some(first) = needing.iter().find(|fork| !ids.contains(&fork.id)) {
            return Err(weir_catalog::Error::BuiltOn { count: needing.len() as i64, first: first.name.clone() }.into());
        }
    }
    let forks = pool.catalog.bases(&ids.iter().copied().collect::<Vec<_>>())?;
    let has_archive = |fork: &&Base| repositories.iter().any(|r| r.id == fork.id && pool.archive_path(r).exists());
    if let Some(fork) = forks.iter().find(|fork| !delete && has_archive(fork)) {
        let name = repositories.iter().find(|r| r.id == fork.id).map_or("", |r| &r.name);
        return Err(Error::Message(format!(
            "the archive of '{name}' builds on that of '{}': 'weir dissociate {name}' makes it whole first, --delete deletes it",
            fork.name
        )));
    }
    // Forks before what they build on.
    repositories.sort_by_key(|r| !forks.iter().any(|fork| fork.id == r.id));
    for r in &repositories {
        let path = pool.archive_path(r);
        let what = if forget(pool, r, delete)? { "deleted" } else { "forgotten" };
        if !global.quiet && !global.json {
            let kept = if !delete && path.exists() { format!("; its archive stays at {}", path.display()) } else { String::new() };
            writeln!(output::stdout(), "{what} {}{kept}", r.name)?;
        }
    }
    if global.json {
        output::json(&serde_json::json!({ "removed": repositories.iter().map(|r| &r.name).collect::<Vec<_>>(), "deleted": delete }))?;
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

/// Locks the archive at `path` if there is one: whoever reads it goes on reading, whoever writes to it is waited for.
pub(crate) fn lock(path: &Path) -> Result<Option<weir_archive::LockedFile>> {
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(source) => return Err(Error::File { what: "look at", path: path.to_owned(), source }),
    }
    weir_archive::lock_existing(path).map(Some).map_err(|e| Error::Message(format!("cannot lock '{}': {e}", path.display())))
}

/// Deletes the archive at `path`, and what was put aside of it as damaged.
pub(crate) fn delete_archives(path: &Path) -> Result<()> {
    for path in std::iter::once(path.to_owned()).chain(weir_mirror::places_aside(path)).chain(weir_repo::torn_places(path)) {
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => return Err(Error::File { what: "delete", path, source }),
            _ => {}
        }
    }
    Ok(())
}
