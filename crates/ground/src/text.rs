//! Text from outside: names, messages, what servers say.

/// Returns whether `c` could steer a terminal, break a line, or show the text around it in another order
/// (Unicode 9.0, bidirectional formatting characters).
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns `text` with a question mark in place of each character that [`is_unprintable`].
pub fn printable(text: &str) -> String {
    printable_or(text, '?')
}

/// Returns `text` with `substitute` in place of each character that [`is_unprintable`].
pub fn printable_or(text: &str, substitute: char) -> String {
    text.chars().map(|c| if is_unprintable(c) { substitute } else { c }).collect()
}

/// Returns `text` with `***` in place of the password before a host. In a URL of HTTP, `***` replaces the
/// user's name, too: it may be a token. The text may be a URL with a typing mistake.
pub fn without_password(text: &str) -> String {
    let is_http = text.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
    let hide = |(n, part): (usize, &str)| match part.rsplit_once('@') {
        // `scheme://`, or one of its slashes, comes before.
        Some((user, host)) if n < 3 => match user.split_once(':') {
            _ if is_http => format!("***@{host}"),
            Some((user, _)) => format!("{user}:***@{host}"),
            None => part.to_owned(),
        },
        _ => part.to_owned(),
    };
    text.split('/').enumerate().map(hide).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_in_what_is_nearly_a_url() {
        for (text, shown) in [
            ("https://u:secret@h/x", "https://***@h/x"),
            ("https://secret:x-oauth-basic@h/x@v1", "https://***@h/x@v1"),
            ("HTTPS:/u:secret@h", "HTTPS:/***@h"),
            ("http//u:se@cret@h/x", "http//***@h/x"),
            ("htps://u:secret@h/x", "htps://u:***@h/x"),
            ("ssh://git:secret@h:22/x", "ssh://git:***@h:22/x"),
            ("ssh://git@h/x", "ssh://git@h/x"),
            ("git@h:a/b", "git@h:a/b"),
            ("u:secret@h/x", "u:***@h/x"),
            ("team/repo@v1", "team/repo@v1"),
            ("a/b/c/d@v1:e", "a/b/c/d@v1:e"),
            ("", ""),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }

    #[test]
    fn what_steers_a_terminal_is_replaced() {
        assert_eq!(printable("a\u{1b}[31m\nb\u{202e}c\u{9b}ä"), "a?[31m?b?c?ä");
        assert_eq!(printable_or("a\tb", ' '), "a b");
    }
}
