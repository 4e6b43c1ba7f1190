//! Archives that build on another: a fork holds what its base lacks (`docs/archive-format.md`, section 9).
//!
//! A base is whole by itself, and only grows: its objects stay reachable to the archives that build on it,
//! through its updates and compactions. An archive names its base by path, as git names alternates, and
//! recognizes it by its id.

use std::path::{Component, Path, PathBuf};

use weir_archive::Archive;

use crate::error::{Error, Result, corrupt};
use crate::repo::keys::{ALTERNATES, BASE_KEY, ID_KEY};
use crate::repo::lost::{LOST_KEY, is_lost};

/// The suffix of an archive's name.
pub(crate) const SUFFIX: &str = ".tar";
/// The longest line that is read.
const LINE_BYTES_MAX: usize = 8192;

/// Returns the path of the base of the archive at `path`, if it names one.
///
/// # Errors
/// If the line that names the base is malformed.
pub fn base_path(archive: &Archive, path: &Path) -> Result<Option<PathBuf>> {
    let Some(member) = archive.member(ALTERNATES) else { return Ok(None) };
    let line = (member.len() <= LINE_BYTES_MAX).then(|| std::str::from_utf8(&member).ok()).flatten();
    let place = line.and_then(|l| l.strip_suffix('\n')?.strip_prefix("../../")?.strip_suffix("/objects"));
    let is_place =
        |p: &&str| !p.contains('\n') && Path::new(p).is_relative() && Path::new(p).file_name().is_some();
    let Some(place) = place.filter(is_place) else {
        return corrupt(ALTERNATES, "it names no archive");
    };
    // The path has no "..", so that messages name a path that can be found.
    let mut base = std::path::absolute(path)?;
    base.pop();
    for part in Path::new(&format!("{place}{SUFFIX}")).components() {
        match part {
            Component::ParentDir => drop(base.pop()),
            other => base.push(other),
        }
    }
    Ok(Some(base))
}

/// Wraps damage of a base: it is no damage of the archive that builds on it.
pub(crate) fn unusable(base: &Path, e: Error) -> Error {
    if e.is_damage() { Error::Base { path: base.to_owned(), source: Box::new(e) } } else { e }
}

/// Checks that the base of the archive at `path`, if it has one, is there and is the one it was built on. The
/// objects of both are not checked.
///
/// # Errors
/// If the base is missing, is another than it was, or cannot be opened.
pub fn base_holds(path: &Path) -> Result<()> {
    let archive = Archive::open(path)?;
    match base_path(&archive, path)? {
        Some(base) => check_base(&archive, path, &base).map(|_| ()),
        None => Ok(()),
    }
}

pub(crate) fn check_base(archive: &Archive, path: &Path, base_path: &Path) -> Result<Archive> {
    let bad = |what: &str| {
        corrupt(path.display().to_string(), format!("its base '{}' {what}", base_path.display()))
    };
    let value = archive.attribute(BASE_KEY).and_then(|v| v.split_once(' '));
    let Some((id, seq)) = value.and_then(|(id, seq)| Some((id, seq.parse::<u64>().ok()?))) else {
        return corrupt("weir/commit", format!("attribute '{BASE_KEY}' is malformed"));
    };
    // Opening anything else might wait forever.
    match std::fs::metadata(base_path) {
        Ok(m) if m.is_file() => {}
        Ok(_) => return bad("is no file"),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return bad("is missing"),
        Err(e) => return Err(e.into()),
    }
    let base = Archive::open(base_path).map_err(|e| unusable(base_path, e.into()))?;
    if base.member(ALTERNATES).is_some() {
        return bad("has a base itself");
    }
    if base.attribute(ID_KEY) != Some(id) {
        return bad("has been replaced");
    }
    if base.state().record.seq < seq {
        return bad("is older than when this archive was built on it");
    }
    if base.attribute(LOST_KEY).is_some_and(|lost| is_lost(lost, seq)) {
        return bad("was damaged, and lost what this archive builds on");
    }
    Ok(base)
}
