//! The content of a file as git writes it to a work tree (convert.c): line ends, and `$Id$`.

use weir_git::Oid;

/// The line ends in a work tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnds {
    /// The stored ones.
    #[default]
    Stored,
    /// CR and LF.
    CrLf,
    /// CR and LF, if the file is text and has no CR.
    CrLfIfText,
}

/// Counts by which git tells text from other bytes.
#[derive(Default)]
struct TextStats {
    nul: usize,
    lone_cr: usize,
    lone_lf: usize,
    cr_lf: usize,
    printable: usize,
    not_printable: usize,
}

impl TextStats {
    fn of(data: &[u8]) -> TextStats {
        let mut stats = TextStats::default();
        let mut before = 0;
        for (at, &byte) in data.iter().enumerate() {
            match byte {
                b'\r' if data.get(at + 1) == Some(&b'\n') => stats.cr_lf += 1,
                b'\r' => stats.lone_cr += 1,
                b'\n' if before != b'\r' => stats.lone_lf += 1,
                b'\n' => {}
                0 => (stats.nul, stats.not_printable) = (stats.nul + 1, stats.not_printable + 1),
                b'\x08' | b'\t' | b'\x1b' | b'\x0c' => stats.printable += 1,
                1..32 | 127 => stats.not_printable += 1,
                _ => stats.printable += 1,
            }
            before = byte;
        }
        // The end of files of DOS.
        if data.last() == Some(&b'\x1a') {
            stats.not_printable -= 1;
        }
        stats
    }

    fn is_binary(&self) -> bool {
        self.lone_cr > 0 || self.nul > 0 || self.printable >> 7 < self.not_printable
    }
}

/// Returns `data` with the line ends that are wanted; `None` if it has them.
pub fn with_line_ends(data: &[u8], wanted: LineEnds) -> Option<Vec<u8>> {
    if wanted == LineEnds::Stored {
        return None;
    }
    let stats = TextStats::of(data);
    let is_kept =
        wanted == LineEnds::CrLfIfText && (stats.lone_cr > 0 || stats.cr_lf > 0 || stats.is_binary());
    if stats.lone_lf == 0 || is_kept {
        return None;
    }
    let mut out = Vec::with_capacity(data.len() + stats.lone_lf);
    for &byte in data {
        if byte == b'\n' && out.last() != Some(&b'\r') {
            out.push(b'\r');
        }
        out.push(byte);
    }
    Some(out)
}

/// Returns `data`, the object `oid`, with its id in each `$Id$`; `None` if there is none.
pub fn with_ident(data: &[u8], oid: &Oid) -> Option<Vec<u8>> {
    let find = |data: &[u8], byte: u8| data.iter().position(|found| *found == byte);
    let (mut out, mut rest, mut is_changed) = (Vec::with_capacity(data.len()), data, false);
    while let Some(dollar) = find(rest, b'$') {
        out.extend_from_slice(&rest[..=dollar]);
        rest = &rest[dollar + 1..];
        let Some(behind) = rest.strip_prefix(b"Id") else { continue };
        match behind.first() {
            Some(b'$') => rest = &behind[1..],
            // An id that was written before is replaced, one of another system is not.
            Some(b':') => {
                let Some(end) = find(&behind[1..], b'$').map(|end| end + 1) else { break };
                let old = &behind[1..end];
                let space = old.get(1..).and_then(|old| find(old, b' ')).map(|at| at + 1);
                if old.contains(&b'\n') || space.is_some_and(|at| at + 1 < old.len()) {
                    continue;
                }
                rest = &behind[end + 1..];
            }
            _ => continue,
        }
        out.extend_from_slice(format!("Id: {oid} $").as_bytes());
        is_changed = true;
    }
    out.extend_from_slice(rest);
    is_changed.then_some(out)
}
