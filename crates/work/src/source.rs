//! Repositories as users name them that only read: by a name in the pool, or by a path; with `@REV`, one
//! commit of theirs.

use std::path::{Path, PathBuf};

use weir_git::Oid;
use weir_ground::OtherError;
use weir_pool::{Pool, open_local};
use weir_repo::{Head, Repo, resolve_revision};

use crate::error::{Error, Result};

/// Parts a name, a path or a URL from the revision behind it: `URL@REV`. An `@` before the path of a URL is
/// the user's.
pub(crate) fn parts_of(text: &str) -> (&str, Option<&str>) {
    let path = match text.split_once("://") {
        Some((scheme, rest)) => rest.find('/').map_or(text.len(), |at| scheme.len() + "://".len() + at),
        None => 0,
    };
    match text[path..].rfind('@') {
        Some(at) => (&text[..path + at], Some(&text[path + at + 1..])),
        None => (text, None),
    }
}

/// A repository, and maybe a revision of it.
pub struct NamedSource {
    /// Its name in the pool, or its path.
    pub name: String,
    /// The archive or git directory.
    pub path: PathBuf,
    /// The revision, if one is named.
    pub revision: Option<String>,
}

/// A commit, and the branch that names it, if one does.
pub struct NamedCommit {
    /// The commit.
    pub commit: Oid,
    /// The branch, without `refs/heads/`.
    pub branch: Option<String>,
}

impl NamedSource {
    /// Returns what `text` names: `REPO`, `PATH`, `REPO@REV` or `PATH@REV`. Calls `open_pool` if it is no
    /// path.
    ///
    /// # Errors
    /// If there is no such repository.
    pub fn parse(
        text: &str,
        open_pool: impl FnOnce() -> std::result::Result<Pool, OtherError>,
    ) -> Result<NamedSource> {
        let (name, revision) = if Path::new(text).exists() { (text, None) } else { parts_of(text) };
        if revision == Some("") {
            return Err(weir_workspace::Error::EmptyRevision.into());
        }
        let revision = revision.map(str::to_owned);
        if Path::new(name).exists() {
            let path = std::fs::canonicalize(name)?;
            // What is written down may be read elsewhere.
            return Ok(NamedSource { name: path.display().to_string(), path, revision });
        }
        if name.contains("://") && weir_transport::Url::parse(name).is_ok() {
            return Err(Error::Elsewhere(weir_ground::without_password(name).to_string()));
        }
        let pool = open_pool().map_err(Error::Other)?;
        let known = pool.get(name).map_err(|e| match e {
            // This may be a URL with a typing mistake. Its text is hidden correctly only as a whole.
            weir_pool::Error::NoMatch(_) if name.contains(':') => weir_pool::Error::NoMatch(text.to_owned()),
            e => e,
        })?;
        // It says what is wrong if there is no archive.
        drop(pool.open_repo(&known)?);
        let path = std::path::absolute(pool.archive_path(&known))?;
        Ok(NamedSource { name: known.name, path, revision })
    }

    /// Opens the repository.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(&self) -> Result<Repo> {
        open_local(&self.path).map_err(Error::in_repo(&self.name))
    }

    /// Returns the commit that the revision names, or HEAD. No object is read if that is the `known` commit.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn commit(&self, repo: &Repo, known: Option<&Oid>) -> Result<NamedCommit> {
        let revision = self.revision.as_deref().unwrap_or("HEAD");
        let in_repo = Error::in_repo(&self.name);
        let found = resolve_revision(repo, revision).map_err(&in_repo)?;
        let commit = match known {
            Some(known) if *known == found => found,
            _ => repo.objects().peel(&found).map_err(&in_repo)?.unwrap_or(found),
        };
        let branch = match &repo.refs().head {
            Head::Symbolic(name) if self.revision.is_none() => name.clone(),
            _ => format!("refs/heads/{revision}").into_bytes(),
        };
        let is_there = repo.refs().get(&branch).is_some_and(|r| r.oid == commit);
        let branch = branch.strip_prefix(b"refs/heads/").filter(|_| is_there);
        Ok(NamedCommit { commit, branch: branch.and_then(|name| String::from_utf8(name.to_vec()).ok()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_follows_the_path() {
        for (text, url, revision) in [
            ("http://host/a/b", "http://host/a/b", None),
            ("http://user:p@ss@host/a@main", "http://user:p@ss@host/a", Some("main")),
            ("https://user@host/a.git@feature/x", "https://user@host/a.git", Some("feature/x")),
            ("https://user@host", "https://user@host", None),
            ("/no/url@v1", "/no/url", Some("v1")),
            ("a/name@a@b", "a/name@a", Some("b")),
            ("name", "name", None),
        ] {
            assert_eq!(parts_of(text), (url, revision));
        }
    }
}
