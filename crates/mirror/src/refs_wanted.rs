//! Selects the refs of an upstream that are mirrored.

use weir_git::refname;
use weir_ground::glob_matches;

const HEADS: &str = "refs/heads/*";
const TAGS: &str = "refs/tags/*";
/// With more patterns than this, an upstream is asked for all refs.
const PREFIXES_MAX: usize = 100;

/// The refs of an upstream that are mirrored, by patterns of their names; `HEAD` always is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefsWanted {
    /// The patterns of refs to mirror; if there are none, all refs.
    include: Vec<String>,
    exclude: Vec<String>,
}

/// Why patterns select no refs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefPatternError {
    /// There are no patterns.
    #[error("no ref pattern given; use 'all' for all refs")]
    None,
    /// A text is no pattern.
    #[error(
        "'{}' is not a ref pattern: use all, heads-and-tags, refs/..., or ^refs/... to exclude; '*' matches \
         anything",
        .0.escape_debug()
    )]
    Form(String),
    /// A pattern matches no name that a ref may have.
    #[error("'{0}' matches no valid ref name; to match all refs below a folder, end it with '*'")]
    Nothing(String),
}

impl RefsWanted {
    /// Parses `patterns`: `all`, `heads-and-tags`, or names of refs with `*` for anything. As in git's
    /// negative refspecs, a `^` before a name excludes those refs.
    ///
    /// # Errors
    /// If a pattern is none of these or can match no ref, or if there are none.
    pub fn parse<S: AsRef<str>>(patterns: &[S]) -> Result<RefsWanted, RefPatternError> {
        if patterns.is_empty() {
            return Err(RefPatternError::None);
        }
        let mut wanted = RefsWanted::default();
        for pattern in patterns {
            let pattern = pattern.as_ref();
            match pattern {
                "all" => wanted.include.push("refs/*".to_owned()),
                "heads-and-tags" => wanted.include.extend([HEADS.to_owned(), TAGS.to_owned()]),
                _ => {
                    let (list, name) = match pattern.strip_prefix('^') {
                        Some(name) => (&mut wanted.exclude, name),
                        None => (&mut wanted.include, pattern),
                    };
                    if !name.starts_with("refs/") || name.chars().any(|c| c.is_whitespace() || c.is_control())
                    {
                        return Err(RefPatternError::Form(pattern.to_owned()));
                    }
                    if !refname::is_valid(name.replace(['*', '?'], "x").as_bytes()) {
                        return Err(RefPatternError::Nothing(pattern.to_owned()));
                    }
                    list.push(name.to_owned());
                }
            }
        }
        if wanted.include.iter().any(|pattern| pattern == "refs/*") {
            wanted.include.clear();
        }
        Ok(wanted)
    }

    /// Returns whether the ref called `name` is mirrored.
    pub fn wants(&self, name: &[u8]) -> bool {
        let is_in = |list: &[String]| list.iter().any(|pattern| glob_matches(pattern.as_bytes(), name));
        (self.include.is_empty() || is_in(&self.include)) && !is_in(&self.exclude)
    }

    /// Returns the prefixes of the wanted names to request from an upstream (gitprotocol-v2, `ref-prefix`);
    /// for all refs, returns none.
    pub(crate) fn prefixes(&self) -> Vec<&str> {
        if self.include.is_empty() || self.include.len() > PREFIXES_MAX {
            return Vec::new();
        }
        let literal = |pattern: &'_ String| pattern.find(['*', '?']).unwrap_or(pattern.len());
        std::iter::once("HEAD")
            .chain(self.include.iter().map(|pattern| &pattern[..literal(pattern)]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_take_in_and_leave_out() {
        let of = |patterns: &[&str]| RefsWanted::parse(patterns).unwrap();
        let all = of(&["all"]);
        assert!(all == RefsWanted::default() && all.wants(b"refs/pull/1/merge") && all.prefixes().is_empty());
        let few = of(&["heads-and-tags", "refs/notes/*", "^refs/heads/tmp/*"]);
        assert!(few.wants(b"refs/heads/a/b") && few.wants(b"refs/notes/commits"));
        assert!(!few.wants(b"refs/heads/tmp/x") && !few.wants(b"refs/pull/1/head"));
        assert_eq!(few.prefixes(), ["HEAD", "refs/heads/", "refs/tags/", "refs/notes/"]);
        let most = of(&["^refs/pull/*/merge"]);
        assert!(
            most.wants(b"refs/pull/1/head")
                && !most.wants(b"refs/pull/1/merge")
                && most.prefixes().is_empty()
        );
        for bad in
            ["", "heads", "^", "^heads", "refs heads", "HEAD", "refs/heads/", "refs/a..b", "^refs/pull//x"]
        {
            assert!(RefsWanted::parse(&[bad]).is_err(), "{bad}");
        }
        assert!(RefsWanted::parse::<&str>(&[]).is_err());
    }
}
