//! Texts of somebody else's choosing: names, messages, what servers say.

/// Whether `c` could steer a terminal, break a line, or show the text around it in another order (Unicode 9.0, bidirectional
/// formatting characters).
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
