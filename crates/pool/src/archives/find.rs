//! Finds repositories by name and by pattern.

use weir_catalog::{Catalog, Repository};

use crate::error::{Error, Result};

/// Returns the repositories whose name matches `pattern`, or all without one, sorted by name.
///
/// # Errors
/// If there is a pattern and it matches nothing.
pub fn matching(catalog: &Catalog, pattern: Option<&str>) -> Result<Vec<Repository>> {
    // There may be millions: only those that can match are read.
    let literal = pattern.map_or("", |p| p.trim_matches('/').split(['*', '?']).next().unwrap_or_default());
    let mut list = catalog.list_from(literal)?;
    if let Some(pattern) = pattern {
        list.retain(|r| weir_ground::name_matches(pattern, &r.name));
        if list.is_empty() {
            return Err(Error::NoMatch(pattern.to_owned()));
        }
    }
    Ok(list)
}

/// Returns the repositories that any of `patterns` names, each once, sorted by name.
///
/// # Errors
/// If one of them names nothing.
pub fn matching_any(catalog: &Catalog, patterns: &[String]) -> Result<Vec<Repository>> {
    let mut list = Vec::new();
    for pattern in patterns {
        match matching(catalog, Some(pattern)) {
            // The name may end with `.git`.
            Err(Error::NoMatch(_)) => list.push(get(catalog, pattern)?),
            found => list.extend(found?),
        }
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list.dedup_by_key(|r| r.id);
    Ok(list)
}

/// Returns the repository called `name`, with or without `.git`.
///
/// # Errors
/// If there is none.
pub fn get(catalog: &Catalog, name: &str) -> Result<Repository> {
    let name = name.trim_matches('/');
    let found = match catalog.get(name)? {
        Some(found) => Some(found),
        None => catalog.get(name.strip_suffix(".git").unwrap_or(name))?,
    };
    match found {
        Some(found) => Ok(found),
        None => Err(Error::NotOne { count: matching(catalog, Some(name))?.len(), name: name.to_owned() }),
    }
}
