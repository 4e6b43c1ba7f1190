//! Makes text of upstreams fit to be shown.

use weir_ground::printable_or;

/// Returns the text without characters that could control a terminal.
pub(crate) fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(1000)]);
    printable_or(text.trim(), ' ')
}
