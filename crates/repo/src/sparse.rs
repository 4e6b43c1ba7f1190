//! Patterns of paths that a sparse clone takes (git-rev-list, `--filter=sparse:oid`; gitignore, for the patterns).

use gix_ignore::glob::Pattern;
use gix_ignore::glob::pattern::Case;
use gix_ignore::glob::wildmatch::Mode;
use weir_git::Kind;

use crate::error::{Error, Result};
use crate::inspect::{resolve_path, resolve_revision};
use crate::repo::Repo;
use crate::walk::are_reachable;

/// Bytes of a specification.
const SPECIFICATION_BYTES_MAX: u64 = 1 << 20;
/// Patterns in one. Each is tried on each path.
const PATTERNS_MAX: usize = 10_000;
/// Commits looked at before all that refs reach is worked out.
const REACHABLE_COMMITS_MAX: usize = 50_000;

/// A specification: paths that match are taken, those of negative patterns are not; the last pattern that matches counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patterns(Vec<Pattern>);

impl Patterns {
    /// Reads the specification that `expression` names: an id, a ref, or `REV:PATH`. What refs do not reach cannot be named.
    pub(crate) fn named(repo: &Repo, expression: &str) -> Result<Patterns> {
        let unable = || Error::NotFound(format!("unable to access sparse blob in '{expression}'"));
        let found = match expression.split_once(':') {
            Some((revision, path)) => resolve_path(repo, revision, path.as_bytes()).map(|(_, oid)| oid),
            None => resolve_revision(repo, expression),
        };
        let oid = match found {
            Ok(oid) => oid,
            Err(Error::NotFound(_) | Error::Missing(_)) => return Err(unable()),
            Err(e) => return Err(e),
        };
        if !are_reachable(repo, &[oid], REACHABLE_COMMITS_MAX)? {
            return Err(unable());
        }
        let mut reader = repo.reader();
        match reader.kind_and_size(&oid)? {
            Some((Kind::Blob, size)) if size <= SPECIFICATION_BYTES_MAX => Patterns::parse(&reader.require(&oid)?.data),
            _ => Err(Error::NotFound(format!("unable to parse sparse filter data in {oid}"))),
        }
    }

    fn parse(text: &[u8]) -> Result<Patterns> {
        let patterns: Vec<Pattern> = gix_ignore::parse(text, false).map(|(pattern, ..)| pattern).take(PATTERNS_MAX + 1).collect();
        if patterns.len() > PATTERNS_MAX {
            return Err(Error::Unsupported(format!("the sparse specification has more than {PATTERNS_MAX} patterns")));
        }
        Ok(Patterns(patterns))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether the path is taken; `None` if no pattern says.
    pub(crate) fn decide(&self, path: &[u8], is_folder: bool) -> Option<bool> {
        let basename = path.iter().rposition(|&c| c == b'/').map(|slash| slash + 1);
        let matches = |p: &&Pattern| {
            p.matches_repo_relative_path(path.into(), basename, Some(is_folder), Case::Sensitive, Mode::NO_MATCH_SLASH_LITERAL)
        };
        self.0.iter().rev().find(matches).map(|p| !p.is_negative())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_counts() {
        let patterns = Patterns::parse(b"# all files at the top, and docs\n/*\n!/*/\n/docs/\n*.md\n!secret.md\n\\#x\n").unwrap();
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
    }
}
