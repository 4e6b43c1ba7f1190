//! Which ref names are acceptable (git-check-ref-format(1)), with the bound weir adds.

/// Longest ref name weir accepts, in bytes: it fits a pkt-line beside an id and a symref target, with room to
/// spare.
pub const NAME_BYTES_MAX: usize = 4096;

/// Returns whether `name` is a full ref name that git would create: below `refs/`, well-formed.
pub fn is_valid(name: &[u8]) -> bool {
    name.starts_with(b"refs/") && name.len() <= NAME_BYTES_MAX && is_well_formed(name)
}

fn is_well_formed(name: &[u8]) -> bool {
    let bad_byte =
        |&c: &u8| c <= b' ' || c == 0x7f || matches!(c, b'~' | b'^' | b':' | b'?' | b'*' | b'[' | b'\\');
    if name.iter().any(bad_byte) || name.ends_with(b".") {
        return false;
    }
    if name.windows(2).any(|w| w == b".." || w == b"@{") {
        return false;
    }
    name.split(|&c| c == b'/')
        .all(|part| !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock"))
}

/// Returns whether a ref belongs to the first class of bodies: the refs that an ordinary clone fetches.
pub fn is_head_or_tag(name: &[u8]) -> bool {
    name == b"HEAD" || name.starts_with(b"refs/heads/") || name.starts_with(b"refs/tags/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_git_check_ref_format() {
        for good in [
            "refs/heads/main",
            "refs/heads/a/b",
            "refs/tags/v1.0",
            "refs/pull/1/head",
            "refs/heads/@",
            "refs/x",
        ] {
            assert!(is_valid(good.as_bytes()), "{good}");
        }
        for bad in [
            "HEAD",
            "refs",
            "refs/",
            "refs//a",
            "refs/heads/",
            "refs/heads/.a",
            "refs/heads/a..b",
            "refs/heads/a.lock",
            "refs/heads/a b",
            "refs/heads/a\n",
            "refs/heads/a^",
            "refs/heads/a.",
            "refs/../../etc/passwd",
            "refs/heads/a@{1}",
            "refs/heads/a.lock/b",
            "refs/heads/\u{1}",
        ] {
            assert!(!is_valid(bad.as_bytes()), "{bad:?}");
        }
        assert!(is_valid(b"refs/heads/\xff\xfe"), "names need not be UTF-8");
    }
}
