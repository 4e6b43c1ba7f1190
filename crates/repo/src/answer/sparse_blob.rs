//! Reads the specifications of paths that filters name (git-rev-list, `--filter=sparse:oid`) from a
//! repository.

use weir_git::{Kind, Oid, TreeIter, commit_links};

use crate::error::{Error, Result};
use crate::objects::reader::{ObjectReader, peel_through};
use crate::reach::steps::Budget;
use crate::repo::reached::are_reachable;
use crate::repo::repository::Repo;
use crate::repo::revision::resolve_ref;
use crate::select::filter::Filter;
use crate::select::sparse::Patterns;

/// The most bytes of a specification.
const SPECIFICATION_BYTES_MAX: u64 = 1 << 20;

impl Filter {
    /// Reads the specifications of paths that the filter names. Until then they let everything through.
    ///
    /// # Errors
    /// If the refs reach no such blob, it has too many patterns, or the search takes more steps than `budget`
    /// has.
    pub fn resolve(&mut self, repo: &Repo, budget: Budget<'_>) -> Result<()> {
        self.sparse =
            self.sparse_names.iter().map(|name| named(repo, name, budget)).collect::<Result<_>>()?;
        Patterns::check_all(&self.sparse)
    }
}

/// Reads the specification that `expression` names: `REV` or `REV:PATH`, where REV is a ref, in full or
/// short, or a full id that refs reach.
fn named(repo: &Repo, expression: &str, budget: Budget<'_>) -> Result<Patterns> {
    let unable = || Error::NotFound(format!("unable to access sparse blob in '{expression}'"));
    let (revision, path) =
        expression.split_once(':').map_or((expression, None), |(revision, path)| (revision, Some(path)));
    let start = match resolve_ref(repo, revision) {
        Some(oid) => oid,
        None => {
            let oid = Oid::from_hex(repo.hash(), revision.as_bytes())
                .filter(|oid| repo.contains(oid))
                .ok_or_else(unable)?;
            if !are_reachable(repo, &[oid], budget)? {
                return Err(unable());
            }
            oid
        }
    };
    let mut reader = repo.reader();
    let oid = match path {
        None => start,
        Some(path) => at_path(&mut reader, &start, path.as_bytes())?.ok_or_else(unable)?,
    };
    match reader.kind_and_size(&oid)? {
        Some((Kind::Blob, size)) if size <= SPECIFICATION_BYTES_MAX => {
            Patterns::parse(&reader.require(&oid)?.data)
        }
        Some(_) => Err(Error::NotFound(format!("unable to parse sparse filter data in {oid}"))),
        None => Err(unable()),
    }
}

/// Returns the object at `path` in the tree of `start`, which is a commit, a tree or a tag of one.
fn at_path(reader: &mut ObjectReader<'_>, start: &Oid, path: &[u8]) -> Result<Option<Oid>> {
    let hash = reader.objects().hash;
    let Some((mut at, kind, _)) = peel_through(reader, start)? else { return Ok(None) };
    let mut is_tree = kind == Kind::Tree;
    if kind == Kind::Commit {
        let data = reader.require(&at)?.data;
        at = commit_links(hash, &data).map_err(|source| Error::Object { oid: at, source })?.tree;
        is_tree = true;
    }
    for part in path.split(|&c| c == b'/').filter(|p| !p.is_empty()) {
        // An object that is no tree may be of any size: it is not read.
        if !is_tree || !matches!(reader.kind_and_size(&at)?, Some((Kind::Tree, _))) {
            return Ok(None);
        }
        let object = reader.require(&at)?;
        let found =
            TreeIter::new(hash, &object.data).filter_map(std::result::Result::ok).find(|e| e.name == part);
        let Some(entry) = found.filter(|e| !e.is_gitlink()) else { return Ok(None) };
        (is_tree, at) = (entry.is_tree(), Oid::from_bytes(hash, entry.id).expect("of its length"));
    }
    Ok(Some(at))
}
