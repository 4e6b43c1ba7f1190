//! Patterns of names and refs.

/// Returns whether `text` matches `pattern`: `*` stands for any bytes, slashes too, `?` for one byte.
pub fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut i, mut j) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while j < text.len() {
        match pattern.get(i) {
            Some(b'*') => {
                star = Some((i, j));
                i += 1;
            }
            Some(&c) if c == b'?' || c == text[j] => (i, j) = (i + 1, j + 1),
            _ => match star {
                Some((at, from)) => {
                    (i, j) = (at + 1, from + 1);
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[i..].iter().all(|&c| c == b'*')
}

/// Returns whether a name matches a pattern: `*` and `?` as in a shell (but `*` also matches slashes), or a
/// folder of names, or the name itself.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let pattern = pattern.trim_matches('/');
    if pattern == name || name.strip_prefix(pattern).is_some_and(|rest| rest.starts_with('/')) {
        return true;
    }
    glob_matches(pattern.as_bytes(), name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, yes) in [
            ("a/b", "a/b", true),
            ("a", "a/b", true),
            ("a/", "a/b", true),
            ("*", "a/b", true),
            ("*/b", "a/b", true),
            ("a/?", "a/b", true),
            ("a/?", "a/bc", false),
            ("b", "a/b", false),
            ("*b*c", "abxc", true),
            ("ab", "abc", false),
        ] {
            assert_eq!(name_matches(pattern, name), yes, "{pattern} {name}");
        }
    }
}
