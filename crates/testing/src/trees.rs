//! Trees that git itself would not write.

/// Returns the bytes of a tree object with `entries`: mode, name, and object name in hexadecimal digits.
/// Takes any name, in any order.
pub fn tree_data(entries: &[(&str, &[u8], &str)]) -> Vec<u8> {
    let mut data = Vec::new();
    for (mode, name, id) in entries {
        data.extend([mode.as_bytes(), b" ", name, b"\0"].concat());
        data.extend((0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap()));
    }
    data
}
