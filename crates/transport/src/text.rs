//! Text of upstreams, made fit to be shown.

use weir_ground::printable_or;

/// What an upstream says, without what could steer a terminal.
pub(crate) fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(1000)]);
    printable_or(text.trim(), ' ')
}
