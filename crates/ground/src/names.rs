//! Names of repositories, and patterns of them.

use std::fmt::{Display, Formatter};

use crate::text::without_password;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 1000;
/// The longest part of a name between slashes, in bytes: archives are files of that name.
const PART_BYTES_MAX: usize = 200;

/// How the names of files begin that a store keeps beside archives.
const OWN_FILES: &str = ".weir-";

/// Why a text is no name of a repository, or no pattern of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// It cannot be a name.
    Name(String),
    /// It matches no name.
    Pattern(String),
}

impl Display for NameError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            NameError::Name(name) => write!(
                f,
                "'{}' is not a valid name: parts between slashes must not be empty, '.' or '..', longer \
                 than {PART_BYTES_MAX} bytes, begin \
                 or end with a blank, end in .tar, or contain any of \\*?@:, and the first must not begin \
                 with a dot",
                without_password(name)
            ),
            NameError::Pattern(pattern) => {
                write!(f, "the pattern '{pattern}' matches no valid repository name")
            }
        }
    }
}

impl std::error::Error for NameError {}

/// Checks a repository's name: it becomes a path below the store and part of URLs.
///
/// # Errors
/// If it cannot be one.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if is_name(name) { Ok(()) } else { Err(NameError::Name(name.to_owned())) }
}

/// Checks that `pattern` can match a name. An access rule that never matches hides nothing, for one.
///
/// # Errors
/// If it cannot.
pub fn check_pattern(pattern: &str) -> Result<(), NameError> {
    let is_right = is_name(&pattern.trim_matches('/').replace(['*', '?'], "x"));
    if is_right { Ok(()) } else { Err(NameError::Pattern(pattern.to_owned())) }
}

fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part.trim() == part
            && part.len() <= PART_BYTES_MAX
            && !part.ends_with(".tar")
            && !part.starts_with(OWN_FILES)
    };
    let is_allowed = |c: char| {
        !c.is_control() && (c == ' ' || !c.is_whitespace()) && !matches!(c, '\\' | '*' | '?' | '@' | ':')
    };
    // Files of the store itself begin with a dot.
    let is_whole = name.len() <= NAME_BYTES_MAX && !name.starts_with('.');
    is_whole && name.chars().all(is_allowed) && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["github.com/git/git", "a", "a-b/c_d.e", "a/.hidden", "a b/c  d", "a/~b", "\u{fc}/x"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a//b", "../x", ".a/b", " a", "a /b", "a@1", "x.tar", "a\n"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_match_something() {
        for good in ["*", "a/*", "/a/", "*/b?", "a/**/c", "a/.github", "a*b/*.git"] {
            assert!(check_pattern(good).is_ok(), "{good}");
        }
        for bad in ["", "/", "a//b", "../x", "*.tar", "https://h/x", "a\tb"] {
            assert!(check_pattern(bad).is_err(), "{bad:?}");
        }
    }
}
