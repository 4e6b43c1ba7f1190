//! Finds objects by name (`REV`, `REV:PATH`), as git-rev-parse does for its common forms.

use weir_git::{Kind, Oid, TreeIter, commit_links};

use crate::error::{Error, Result};
use crate::objects::reader::{Object, ObjectReader};
use crate::repo::repository::Repo;

/// Objects that begin with the same digits that are looked at: a repository of ten million has about 150 with
/// the same four.
const ALIKE_MAX: usize = 1024;

/// An entry of a tree, as `git ls-tree` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeListing {
    /// The mode.
    pub mode: u32,
    /// `blob`, `tree` or `commit`.
    pub kind: &'static str,
    /// The id.
    pub oid: Oid,
    /// The path from the tree that was asked for, in bytes.
    pub path: Vec<u8>,
}

/// Returns the object that `revision` names: a ref in full or short (by git's rules), `HEAD`, or an id of at
/// least 4 digits, followed by any number of `^`, `^N`, `^{}`, `^{tree}`, `^{commit}` and `~N`. A whole id is
/// that of the object, even if a ref is called so. Of several objects with the same first digits, the only
/// commit is meant.
///
/// # Errors
/// If no object matches, or several do.
pub fn resolve_revision(repo: &Repo, revision: &str) -> Result<Oid> {
    let end = revision.find(['^', '~']).unwrap_or(revision.len());
    let (name, mut rest) = revision.split_at(end);
    let not_found = || Error::NotFound(format!("no such revision: '{revision}'"));
    let mut oid = resolve_name(repo, name)?.ok_or_else(not_found)?;
    let mut reader = repo.reader();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("^{") {
            let (kind, after) = after.split_once('}').ok_or_else(not_found)?;
            let peeled = repo.objects().peel(&oid)?.unwrap_or(oid);
            oid = match kind {
                "" | "commit" | "object" => peeled,
                "tree" => tree_of(&mut reader, &peeled)?,
                _ => return Err(not_found()),
            };
            rest = after;
            continue;
        }
        let Some((operator, after)) = rest.split_at_checked(1).filter(|(o, _)| matches!(*o, "^" | "~"))
        else {
            return Err(not_found());
        };
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let n: usize = if digits == 0 { 1 } else { after[..digits].parse().map_err(|_| not_found())? };
        rest = &after[digits..];
        let peeled = repo.objects().peel(&oid)?.unwrap_or(oid);
        oid = match operator {
            "^" if n == 0 => peeled,
            "^" => *parents_of(repo, &mut reader, &peeled)?.get(n - 1).ok_or_else(not_found)?,
            _ => {
                let mut at = peeled;
                for _ in 0..n {
                    at = *parents_of(repo, &mut reader, &at)?.first().ok_or_else(not_found)?;
                }
                at
            }
        };
    }
    Ok(oid)
}

/// Returns the parents of the commit `oid`; none where history is cut off, or if it is no commit.
fn parents_of(repo: &Repo, reader: &mut ObjectReader<'_>, oid: &Oid) -> Result<Vec<Oid>> {
    let object = reader.require(oid)?;
    if object.kind != Kind::Commit || repo.history().shallow().contains(oid) {
        return Ok(Vec::new());
    }
    commit_links(reader.objects().hash(), &object.data)
        .map(|l| l.parents)
        .map_err(|source| Error::Object { oid: *oid, source })
}

fn tree_of(reader: &mut ObjectReader<'_>, oid: &Oid) -> Result<Oid> {
    let object = reader.require(oid)?;
    match object.kind {
        Kind::Tree => Ok(*oid),
        Kind::Commit => commit_links(reader.objects().hash(), &object.data)
            .map(|l| l.tree)
            .map_err(|source| Error::Object { oid: *oid, source }),
        kind => Err(Error::NotFound(format!("object {oid} is a {}, not a tree", kind.name()))),
    }
}

/// Returns the id that the ref called `name`, in full or short, points at.
pub fn resolve_ref(repo: &Repo, name: &str) -> Option<Oid> {
    if matches!(name, "" | "@" | "HEAD") {
        return repo.refs().head_oid();
    }
    let places = ["", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"];
    places.iter().find_map(|place| repo.refs().get(format!("{place}{name}").as_bytes())).map(|r| r.oid)
}

fn resolve_name(repo: &Repo, name: &str) -> Result<Option<Oid>> {
    // As git does: a ref of that name could be made to pass for the object (`get_oid_basic`).
    if let Some(oid) = Oid::from_hex(repo.hash(), name.to_ascii_lowercase().as_bytes()) {
        return Ok(Some(oid).filter(|oid| repo.contains(oid)));
    }
    if let Some(oid) = resolve_ref(repo, name) {
        return Ok(Some(oid));
    }
    let is_hex = name.bytes().all(|c| c.is_ascii_hexdigit());
    if !is_hex || name.len() < 4 || name.len() >= repo.hash().hex_len() {
        return Ok(None);
    }
    let prefix = name.to_ascii_lowercase();
    let mut found: Vec<Oid> = Vec::new();
    for pack in repo.objects().packs() {
        found.extend(pack.index().find_prefix(&prefix, ALIKE_MAX).into_iter().map(|p| pack.index().oid(p)));
    }
    let loose = repo.objects().loose_only()?.into_iter().map(|(oid, _)| oid);
    found.extend(loose.filter(|oid| oid.to_string().starts_with(&prefix)));
    found.sort_unstable();
    found.dedup();
    if found.len() > 1 {
        let mut reader = repo.reader();
        let mut is_commit = |oid: &Oid| {
            let peeled = repo.objects().peel(oid).ok().flatten().unwrap_or(*oid);
            matches!(reader.kind_and_size(&peeled), Ok(Some((Kind::Commit, _))))
        };
        let commits: Vec<Oid> = found.iter().copied().filter(&mut is_commit).collect();
        if commits.len() == 1 && found.len() < ALIKE_MAX {
            return Ok(Some(commits[0]));
        }
        return Err(Error::NotFound(format!("'{name}' is ambiguous: several objects start with it")));
    }
    Ok(found.first().copied())
}

/// Returns the object at `path` in the tree of `revision`, with its mode (0 for the tree of the revision
/// itself).
///
/// # Errors
/// If there is no such object.
pub fn resolve_path(repo: &Repo, revision: &str, path: &[u8]) -> Result<(u32, Oid)> {
    let oid = resolve_revision(repo, revision)?;
    let mut reader = repo.reader();
    let peeled = repo.objects().peel(&oid)?.unwrap_or(oid);
    let mut at = tree_of(&mut reader, &peeled)?;
    let mut mode = 0;
    for part in path.split(|&c| c == b'/').filter(|p| !p.is_empty() && *p != b".") {
        let not_found = || {
            Error::NotFound(format!(
                "path '{}' does not exist in '{revision}'",
                String::from_utf8_lossy(path)
            ))
        };
        let object = reader.require(&at)?;
        if object.kind != Kind::Tree {
            return Err(not_found());
        }
        let entry = TreeIter::new(repo.hash(), &object.data)
            .filter_map(std::result::Result::ok)
            .find(|e| e.name == part);
        let entry = entry.ok_or_else(not_found)?;
        (mode, at) = (entry.mode, Oid::from_bytes(repo.hash(), entry.id).expect("of its length"));
    }
    Ok((mode, at))
}

impl TreeListing {
    /// Lists a tree, with everything below it if `recursive`.
    ///
    /// # Errors
    /// If a tree is missing or corrupt.
    pub fn list(repo: &Repo, tree: &Oid, recursive: bool) -> Result<Vec<TreeListing>> {
        let mut reader = repo.reader();
        let mut out = Vec::new();
        Self::list_into(&mut reader, tree, b"", recursive, 0, &mut out)?;
        Ok(out)
    }

    fn list_into(
        reader: &mut ObjectReader<'_>,
        tree: &Oid,
        prefix: &[u8],
        recursive: bool,
        depth: usize,
        out: &mut Vec<TreeListing>,
    ) -> Result<()> {
        let hash = reader.objects().hash();
        let object: Object = reader.require(tree)?;
        if object.kind != Kind::Tree {
            return Err(Error::NotFound(format!("object {tree} is a {}, not a tree", object.kind.name())));
        }
        for entry in TreeIter::new(hash, &object.data) {
            let entry = entry.map_err(|source| Error::Object { oid: *tree, source })?;
            let oid = Oid::from_bytes(hash, entry.id).expect("of its length");
            let path = [prefix, entry.name].concat();
            if entry.is_tree() && recursive && depth < 2048 {
                Self::list_into(reader, &oid, &[path.as_slice(), b"/"].concat(), recursive, depth + 1, out)?;
                continue;
            }
            let kind = if entry.is_tree() {
                "tree"
            } else if entry.is_gitlink() {
                "commit"
            } else {
                "blob"
            };
            out.push(TreeListing { mode: entry.mode, kind, oid, path });
        }
        Ok(())
    }
}
