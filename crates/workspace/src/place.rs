//! The folders and links above commits, found in the refs of a repository.

use std::collections::BTreeMap;

use weir_git::Oid;
use weir_repo::{Repo, resolve_revision};

/// The shortest name of a commit in digits, as for git.
const ID_DIGITS_MIN: usize = 4;

/// A folder or link above commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ViewPlace {
    /// The repositories whose names begin with this and a slash; all, if it is empty.
    Names(String),
    Repository(String),
    /// The refs of a repository whose names begin with `prefix`, `depth` folders below that of the
    /// repository.
    Refs {
        repository: String,
        prefix: Vec<u8>,
        depth: usize,
    },
    Commits(String),
    Link(Vec<u8>),
    /// The files of a commit.
    Tree {
        repository: String,
        commit: Oid,
    },
    /// The files and the objects of a commit.
    Lower(Oid),
    Objects,
    Packs,
    /// The pack of this number, or its index.
    Pack {
        number: usize,
        is_index: bool,
    },
}

/// Returns what is in the folder of a repository besides repositories below it.
pub(crate) fn own_children(repository: &str, repo: &Repo) -> Vec<(Vec<u8>, ViewPlace)> {
    let refs = |prefix: &[u8]| {
        let (repository, prefix) = (repository.to_owned(), prefix.to_vec());
        ViewPlace::Refs { repository, prefix, depth: 1 }
    };
    let mut children = Vec::new();
    if let Some(head) = repo.refs().head_oid() {
        children.push((b"HEAD".to_vec(), ViewPlace::Link(format!("commits/{head}").into_bytes())));
    }
    children.push((b"branches".to_vec(), refs(b"refs/heads/")));
    children.push((b"commits".to_vec(), ViewPlace::Commits(repository.to_owned())));
    children.push((b"refs".to_vec(), refs(b"refs/")));
    children.push((b"tags".to_vec(), refs(b"refs/tags/")));
    children
}

/// Returns the refs whose names begin with `prefix`, as folders and links; only the one called `only`, if
/// that is given.
pub(crate) fn refs_below(
    repo: &Repo,
    repository: &str,
    prefix: &[u8],
    depth: usize,
    only: Option<&[u8]>,
) -> Vec<(Vec<u8>, ViewPlace)> {
    let list = repo.refs().list();
    let wanted = [prefix, only.unwrap_or_default()].concat();
    let from = list.partition_point(|r| r.name < wanted);
    let mut children: BTreeMap<&[u8], ViewPlace> = BTreeMap::new();
    for r in list[from..].iter().take_while(|r| r.name.starts_with(&wanted)) {
        let rest = &r.name[prefix.len()..];
        let slash = rest.iter().position(|byte| *byte == b'/');
        let name = &rest[..slash.unwrap_or(rest.len())];
        if name.is_empty() || only.is_some_and(|only| only != name) {
            continue;
        }
        if let Some(end) = slash {
            let (repository, prefix) = (repository.to_owned(), [prefix, &rest[..=end]].concat());
            children.insert(name, ViewPlace::Refs { repository, prefix, depth: depth + 1 });
            continue;
        }
        // A folder of refs shows more than the ref of its name.
        children.entry(name).or_insert_with(|| {
            let commit = r.peeled.unwrap_or(r.oid);
            ViewPlace::Link(format!("{}commits/{commit}", "../".repeat(depth)).into_bytes())
        });
    }
    children.into_iter().map(|(name, place)| (name.to_vec(), place)).collect()
}

/// Returns the files of the commit `name`, or a link to them, if the name is short.
pub(crate) fn commit_named(repo: &Repo, repository: &str, name: &str) -> Option<ViewPlace> {
    let is_id = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if name.len() < ID_DIGITS_MIN || !name.chars().all(is_id) {
        return None;
    }
    if let Some(commit) = Oid::from_hex(repo.hash(), name.as_bytes()) {
        let tree = ViewPlace::Tree { repository: repository.to_owned(), commit };
        return repo.contains(&commit).then_some(tree);
    }
    let commit = resolve_revision(repo, name).ok()?;
    Some(ViewPlace::Link(commit.to_string().into_bytes()))
}
