//! Names of repositories, and patterns of them.

use crate::error::{Error, Result};

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 1000;
/// The longest part of a name between slashes, in bytes: archives are files of that name.
const PART_BYTES_MAX: usize = 200;

/// Checks a repository's name: it becomes a path below the store and part of URLs.
///
/// # Errors
/// If it cannot be one.
pub fn check_name(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "'{name}' is not a valid name: parts between slashes must not be empty, start with a dot, end in \
        .tar, or contain spaces or any of \\*?@:"
    )))
}

/// Checks that `pattern` can match a name. An access rule that never matches hides nothing, for one.
///
/// # Errors
/// If it cannot. The error says so.
pub fn check_pattern(pattern: &str) -> std::result::Result<(), String> {
    // Parts of names from forges may start with a dot.
    let trimmed = pattern.trim_matches('/');
    let sample: Vec<&str> = trimmed.split('/').map(|part| part.strip_prefix('.').unwrap_or(part)).collect();
    if is_name(&sample.join("/").replace(['*', '?'], "x")) {
        return Ok(());
    }
    Err(format!("the pattern '{pattern}' matches no valid repository name"))
}

fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && !part.starts_with('.') && part.len() <= PART_BYTES_MAX && !part.ends_with(".tar")
    };
    let is_allowed =
        |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '\\' | '*' | '?' | '@' | ':');
    name.len() <= NAME_BYTES_MAX && name.chars().all(is_allowed) && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["github.com/git/git", "a", "a-b/c_d.e"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a//b", "../x", "a/.hidden", "a b", "a@1", "x.tar", "a\n"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_match_something() {
        for good in ["*", "a/*", "/a/", "*/b?", "a/**/c", "a/.github", "a*b/*.git"] {
            assert!(check_pattern(good).is_ok(), "{good}");
        }
        for bad in ["", "/", "a b", "a//b", "../x", "*.tar", "https://h/x", "a\tb", "!a b"] {
            assert!(check_pattern(bad).is_err(), "{bad:?}");
        }
    }
}
