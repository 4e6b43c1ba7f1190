//! The end mark (section 5): where the committed part last ended. It is kept beside the file's data, so that
//! opening need not search.

use std::fs::File;
use std::io;

use crate::sum::{Sha256Sum, parse_sum};
use weir_ground::hex;

/// The extended attribute that holds the mark.
const NAME: &str = "user.weir.end";
/// The longest value that is read, in bytes.
const VALUE_BYTES_MAX: usize = 256;

/// Where the committed part of an archive ended at the last commit. The mark may be missing or lag behind: it
/// is written once a commit is durable, and lost when the file is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndMark {
    /// The offset behind the last commit record, in bytes.
    pub end: u64,
    /// The checksum in that record's `end` line: no other record has it.
    pub sum: Sha256Sum,
    /// The highest number that a commit of this archive was given, even if that commit was lost.
    pub seq_max: u64,
}

impl EndMark {
    fn to_text(self) -> String {
        format!("{} {} {}", self.end, hex(&self.sum), self.seq_max)
    }

    fn from_text(text: &[u8]) -> Option<EndMark> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let mark = EndMark {
            end: words.next()?.parse().ok()?,
            sum: parse_sum(words.next()?)?,
            seq_max: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(mark)
    }

    /// Reads the mark of `file`; `None` if there is none, or if the file system keeps none.
    pub(crate) fn of(file: &File) -> io::Result<Option<EndMark>> {
        use rustix::io::Errno;
        let mut value = [0u8; VALUE_BYTES_MAX];
        match rustix::fs::fgetxattr(file, NAME, &mut value[..]) {
            Ok(len) => Ok(EndMark::from_text(&value[..len])),
            Err(
                Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE | Errno::NOSYS | Errno::PERM | Errno::ACCESS,
            ) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Writes the mark to `file`. If that fails, opening takes longer, but nothing is lost.
    pub(crate) fn set(self, file: &File) {
        let _ = rustix::fs::fsetxattr(file, NAME, self.to_text().as_bytes(), rustix::fs::XattrFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_and_nothing_else_is_one() {
        let mark = EndMark { end: 4096, sum: [7; 32], seq_max: 9 };
        assert_eq!(EndMark::from_text(mark.to_text().as_bytes()), Some(mark));
        for bad in ["", "4096", "4096 07 9", &format!("{} x", mark.to_text()), "\u{fffd}"] {
            assert_eq!(EndMark::from_text(bad.as_bytes()), None, "{bad}");
        }
        let file = tempfile::tempfile().unwrap();
        assert_eq!(EndMark::of(&file).unwrap(), None);
    }
}
