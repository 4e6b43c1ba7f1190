//! The patterns of paths that a sparse clone takes (git-rev-list, `--filter=sparse:oid`; gitignore, for the
//! patterns).

use gix_ignore::glob::Pattern;
use gix_ignore::glob::pattern::Case;
use gix_ignore::glob::wildmatch::Mode;

use crate::error::{Error, Result};

/// The most patterns in all specifications of a filter. Each is tried on each path.
const PATTERNS_MAX: usize = 10_000;
/// The most stars in one pattern. Matching backtracks at each star, and doubles its work at each `**`.
const STARS_MAX: usize = 8;
const PATTERNS_A_STEP: u64 = 64;

/// A specification. Paths that match are taken, except those of negative patterns; the last pattern that
/// matches counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patterns {
    list: Vec<Pattern>,
    /// The number of simple patterns that cost as much to try as all of these.
    cost: u64,
}

impl Patterns {
    /// Parses a specification: a pattern per line, as in `.gitignore`.
    ///
    /// # Errors
    /// If matching its patterns could cost too much.
    pub(crate) fn parse(text: &[u8]) -> Result<Patterns> {
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

    /// Checks whether all specifications of a filter together are small enough.
    ///
    /// # Errors
    /// If they have too many patterns.
    pub(crate) fn check_all(all: &[Patterns]) -> Result<()> {
        if all.iter().map(|p| p.list.len()).sum::<usize>() > PATTERNS_MAX {
            return Err(Error::Unsupported(format!(
                "the sparse specifications have more than {PATTERNS_MAX} patterns"
            )));
        }
        Ok(())
    }

    /// Returns the steps that one path costs. A step is the time to read a tree, in which 64 simple patterns
    /// can be tried.
    pub(crate) fn cost(&self) -> u64 {
        self.cost.div_ceil(PATTERNS_A_STEP)
    }

    /// Returns whether the path is taken; `None` if no pattern matches.
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
        // Each of these stars would double the work for a path that is deep enough.
        assert!(Patterns::parse(&[b"**/".repeat(60), b"b\n".to_vec()].concat()).is_err());
        let deep = Patterns::parse(b"**/**/**/**/nothing\n").unwrap();
        assert_eq!(deep.decide("a/".repeat(1000).as_bytes(), false), None);
    }
}
