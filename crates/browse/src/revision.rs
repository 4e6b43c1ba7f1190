//! Revisions, as clients may name them.

use weir_git::{Kind, Oid};
use weir_repo::{Budget, Repo, are_reachable, resolve_ref, resolve_revision};

use crate::error::{Error, Result};

/// Commits and trees that are read at most to find out whether refs reach an object.
const STEPS_MAX: u64 = 20_000_000;

/// Returns the object that `revision` names (see [`resolve_revision`]), if a ref reaches it.
///
/// # Errors
/// If no object matches that a ref reaches.
pub fn readable(repo: &Repo, revision: &str) -> Result<Oid> {
    let name = &revision[..revision.find(['^', '~']).unwrap_or(revision.len())];
    if name == "HEAD" && repo.refs().head_oid().is_none() {
        let words =
            "HEAD names no commit: the repository is empty, or has no such branch; name another revision";
        return Err(Error::NotFound(words.to_owned()));
    }
    let oid = resolve_revision(repo, revision)?;
    // A whole id is the object's, even if a ref is called so.
    let is_of_ref = Oid::from_hex_any(name.to_ascii_lowercase().as_bytes()).is_none()
        && resolve_ref(repo, name).is_some();
    let budget = Budget { steps_max: STEPS_MAX, cancelled: None };
    if !is_of_ref && !are_reachable(repo, &[oid], budget)? {
        // The words are those for an object that is not there.
        return Err(Error::NotFound(format!("no such revision: '{revision}'")));
    }
    Ok(oid)
}

/// Returns the commit that `revision` names, tags taken off.
///
/// # Errors
/// If there is none, or it is no commit.
pub fn commit_of(repo: &Repo, revision: &str) -> Result<Oid> {
    let oid = peeled(repo, revision)?;
    match repo.reader().kind_and_size(&oid)? {
        Some((Kind::Commit, _)) => Ok(oid),
        _ => Err(Error::WrongKind(format!("'{revision}' is no commit"))),
    }
}

/// Returns the tree of what `revision` names, and the commit, if it is one.
///
/// # Errors
/// If there is none, or it is neither a commit nor a tree.
pub fn tree_of_revision(repo: &Repo, revision: &str) -> Result<(Oid, Option<Oid>)> {
    let oid = peeled(repo, revision)?;
    let mut reader = repo.reader();
    match reader.kind_and_size(&oid)? {
        Some((Kind::Tree, _)) => Ok((oid, None)),
        Some((Kind::Commit, _)) => Ok((repo.history().commit(&mut reader, &oid)?.tree, Some(oid))),
        _ => Err(Error::WrongKind(format!("'{revision}' is neither a commit nor a tree"))),
    }
}

fn peeled(repo: &Repo, revision: &str) -> Result<Oid> {
    let oid = readable(repo, revision)?;
    Ok(repo.objects().peel(&oid)?.unwrap_or(oid))
}
