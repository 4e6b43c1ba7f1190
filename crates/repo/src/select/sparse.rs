//! Patterns of paths that a sparse clone takes (git-rev-list, `--filter=sparse:oid`; gitignore, for the
//! patterns).

use gix_ignore::glob::Pattern;
use gix_ignore::glob::pattern::Case;
use gix_ignore::glob::wildmatch::Mode;
use weir_git::{Kind, Oid, TreeIter, commit_links};

use crate::error::{Error, Result};
use crate::objects::reader::ObjectReader;
use crate::reach::walk::{Budget, are_reachable, peel_through};
use crate::repo::repository::Repo;
use crate::repo::revision::resolve_ref;

/// Bytes of a specification.
const SPECIFICATION_BYTES_MAX: u64 = 1 << 20;
/// Patterns in all of a filter's. Each is tried on each path.
const PATTERNS_MAX: usize = 10_000;
/// Stars in one pattern. Matching backs up at each, and doubles its work at each `**`.
const STARS_MAX: usize = 8;
const PATTERNS_A_STEP: u64 = 64;

/// A specification: paths that match are taken, those of negative patterns are not; the last pattern that
/// matches counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patterns {
    list: Vec<Pattern>,
    /// Simple patterns that trying all of these costs as much as.
    cost: u64,
}

impl Patterns {
    /// Reads the specification that `expression` names: `REV` or `REV:PATH`, where REV is a ref, in full or
    /// short, or a full id that refs reach.
    pub(crate) fn named(repo: &Repo, expression: &str, budget: Budget<'_>) -> Result<Patterns> {
        let unable = || Error::NotFound(format!("unable to access sparse blob in '{expression}'"));
        let (revision, path) =
            expression.split_once(':').map_or((expression, None), |(revision, path)| (revision, Some(path)));
        let start = match resolve_ref(repo, revision) {
            Some(oid) => oid,
            None => {
                let oid = Oid::from_hex(repo.hash, revision.as_bytes())
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

    fn parse(text: &[u8]) -> Result<Patterns> {
        let refuse = |what: String| Err(Error::Unsupported(format!("the sparse specification has {what}")));
        let mut patterns = Patterns::default();
        for (pattern, line, _) in gix_ignore::parse(text, false) {
            let stars = pattern.text.iter().filter(|c| **c == b'*').count();
            if stars > STARS_MAX {
                return refuse(format!("more than {STARS_MAX} stars in line {line}"));
            }
            if patterns.list.len() == PATTERNS_MAX {
                return refuse(format!("more than {PATTERNS_MAX} patterns"));
            }
            patterns.cost += 1 + (stars * stars) as u64;
            patterns.list.push(pattern);
        }
        Ok(patterns)
    }

    /// Whether all of a filter's specifications together are small enough.
    ///
    /// # Errors
    /// If they are not.
    pub(crate) fn check_all(all: &[Patterns]) -> Result<()> {
        if all.iter().map(|p| p.list.len()).sum::<usize>() > PATTERNS_MAX {
            return Err(Error::Unsupported(format!(
                "the sparse specifications have more than {PATTERNS_MAX} patterns"
            )));
        }
        Ok(())
    }

    /// Steps that one path costs: a step is a tree looked at, in whose time so many simple patterns can be
    /// tried.
    pub(crate) fn cost(&self) -> u64 {
        self.cost.div_ceil(PATTERNS_A_STEP)
    }

    /// Whether the path is taken; `None` if no pattern says.
    pub(crate) fn decide(&self, path: &[u8], is_folder: bool) -> Option<bool> {
        let basename = path.iter().rposition(|&c| c == b'/').map(|slash| slash + 1);
        let matches = |p: &&Pattern| {
            p.matches_repo_relative_path(
                path.into(),
                basename,
                Some(is_folder),
                Case::Sensitive,
                Mode::NO_MATCH_SLASH_LITERAL,
            )
        };
        self.list.iter().rev().find(matches).map(|p| !p.is_negative())
    }
}

/// What stands at `path` in the tree of `start`, a commit, a tree or a tag of one.
fn at_path(reader: &mut ObjectReader<'_>, start: &Oid, path: &[u8]) -> Result<Option<Oid>> {
    let hash = reader.repo().hash;
    let Some((mut at, kind, _)) = peel_through(reader, start)? else { return Ok(None) };
    let mut is_tree = kind == Kind::Tree;
    if kind == Kind::Commit {
        let data = reader.require(&at)?.data;
        at = commit_links(hash, &data).map_err(|source| Error::Object { oid: at, source })?.tree;
        is_tree = true;
    }
    for part in path.split(|&c| c == b'/').filter(|p| !p.is_empty()) {
        // What is no tree may be as large as it likes: it is not read.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_counts() {
        let patterns =
            Patterns::parse(b"# all files at the top, and docs\n/*\n!/*/\n/docs/\n*.md\n!secret.md\n\\#x\n")
                .unwrap();
        for (path, is_folder, decided) in [
            ("Makefile", false, Some(true)),
            ("src", true, Some(false)),
            ("src/main.c", false, None),
            ("src/notes.md", false, Some(true)),
            ("docs", true, Some(true)),
            ("docs/secret.md", false, Some(false)),
            ("a/b/c", true, None),
            ("a/#x", false, Some(true)),
        ] {
            assert_eq!(patterns.decide(path.as_bytes(), is_folder), decided, "{path}");
        }
        assert!(Patterns::parse(&b"a\n".repeat(PATTERNS_MAX + 1)).is_err());
        let half = Patterns::parse(&b"a\n".repeat(PATTERNS_MAX / 2 + 1)).unwrap();
        assert!(
            Patterns::check_all(std::slice::from_ref(&half)).is_ok()
                && Patterns::check_all(&[half.clone(), half]).is_err()
        );
        // Each of these would double the work for a path that is deep enough.
        assert!(Patterns::parse(&[b"**/".repeat(60), b"b\n".to_vec()].concat()).is_err());
        let deep = Patterns::parse(b"**/**/**/**/nothing\n").unwrap();
        assert_eq!(deep.decide("a/".repeat(1000).as_bytes(), false), None);
    }
}
