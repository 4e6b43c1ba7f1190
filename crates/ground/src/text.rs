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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_replaced() {
        assert_eq!(printable("a\u{1b}[31m\nb\u{202e}c\u{9b}ä"), "a?[31m?b?c?ä");
        assert_eq!(printable_or("a\tb", ' '), "a b");
    }
}
