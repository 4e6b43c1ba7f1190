//! The form in which git hands the values of `git -c` to the programs that it starts (git's `config.c`,
//! `CONFIG_DATA_ENVIRONMENT`).

/// Parses `'key'='value' 'key'='value'`, quoted as for a shell. Older gits write `'key=value'`. A key without
/// a value is `'key'=` or `'key'`.
pub fn quoted_pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = unquoted(rest)?;
        let (pair, after) = match after.strip_prefix('=') {
            Some(after) if after.starts_with('\'') => {
                let (value, after) = unquoted(after)?;
                ((key, value), after)
            }
            Some(after) => ((key, "true".to_owned()), after),
            None => (
                key.split_once('=')
                    .map_or_else(|| (key.clone(), "true".to_owned()), |(k, v)| (k.to_owned(), v.to_owned())),
                after,
            ),
        };
        if !after.is_empty() && !after.starts_with(' ') {
            return None;
        }
        pairs.push(pair);
        rest = after.trim_start();
    }
    Some(pairs)
}

/// Unquotes the word at the start of `text` (git's `sq_dequote`). Returns it with the text that follows.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text.strip_prefix('\'')?;
    loop {
        let (part, after) = rest.split_once('\'')?;
        word.push_str(part);
        // A quote or an exclamation mark stands outside the quotes: '\''.
        let escaped =
            after.strip_prefix('\\').and_then(|a| a.chars().next().filter(|c| matches!(c, '\'' | '!')));
        match escaped.and_then(|c| Some((c, after[2..].strip_prefix('\'')?))) {
            Some((c, next)) => {
                word.push(c);
                rest = next;
            }
            None => return Some((word, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_hands_on_is_read() {
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let text = r"'a.b'='it'\''s' 'c.d=e=f' 'g.h' 'i.j'= 'k.l'=''\!''";
        let expected = [
            pair("a.b", "it's"),
            pair("c.d", "e=f"),
            pair("g.h", "true"),
            pair("i.j", "true"),
            pair("k.l", "!"),
        ];
        assert_eq!(quoted_pairs(text).unwrap(), expected);
        for bad in ["a.b=c", "'a.b", "'a'x", "'a'='b"] {
            assert_eq!(quoted_pairs(bad), None, "{bad}");
        }
    }
}
