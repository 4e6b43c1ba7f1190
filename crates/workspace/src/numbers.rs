//! A log of the numbers that the folders of a commit got, for the process that answers the kernel next.
//!
//! It lies in memory that has no name and goes with the last process that has it open. A record has 12 bytes:
//! the folder's number, that of its first entry, and the next that is free, in the machine's order.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::error::{Error, Result};

const RECORD_BYTES: usize = 12;

/// The numbers of a folder and of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderNumber {
    pub(crate) folder: u32,
    /// The number of its first entry.
    pub(crate) first: u32,
    /// The number behind that of its last entry.
    pub(crate) next: u32,
}

/// The log.
pub(crate) struct NumberLog(File);

impl NumberLog {
    pub(crate) fn new() -> Result<NumberLog> {
        let made = memfd_create("weir-numbers", MemfdFlags::CLOEXEC);
        made.map(|fd| NumberLog(File::from(fd))).map_err(|e| log_error(e.into()))
    }

    /// Appends the numbers of a folder. They are there when this returns, also if the process dies.
    pub(crate) fn append(&self, numbers: FolderNumber) -> Result<()> {
        let FolderNumber { folder, first, next } = numbers;
        debug_assert!(folder < first && first <= next, "{numbers:?} is out of order");
        let record = [folder, first, next].map(u32::to_ne_bytes).concat();
        (&self.0).write_all(&record).map_err(log_error)
    }

    /// Returns all numbers, ascending, and takes away what a process could not finish.
    pub(crate) fn read(&self) -> Result<Vec<FolderNumber>> {
        let bytes = self.0.metadata().map_err(log_error)?.len() as usize;
        let mut data = vec![0; bytes - bytes % RECORD_BYTES];
        self.0.read_exact_at(&mut data, 0).map_err(log_error)?;
        self.0.set_len(data.len() as u64).map_err(log_error)?;
        // The next record is appended behind the last whole one.
        rustix::fs::seek(&self.0, rustix::fs::SeekFrom::Start(data.len() as u64))
            .map_err(|e| log_error(e.into()))?;
        let number = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("4 bytes"));
        let record = |of: &[u8]| FolderNumber {
            folder: number(&of[..4]),
            first: number(&of[4..8]),
            next: number(&of[8..]),
        };
        Ok(data.chunks_exact(RECORD_BYTES).map(record).collect())
    }
}

fn log_error(source: std::io::Error) -> Error {
    Error::on("the log of numbers".as_ref())(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_finished_is_taken_away() {
        let log = NumberLog::new().unwrap();
        assert_eq!(log.read().unwrap(), []);
        let top = FolderNumber { folder: 1, first: 2, next: 9 };
        let below = FolderNumber { folder: 3, first: 9, next: 10 };
        log.append(top).unwrap();
        (&log.0).write_all(b"torn").unwrap();
        assert_eq!(log.read().unwrap(), [top]);
        log.append(below).unwrap();
        assert_eq!(log.read().unwrap(), [top, below]);
    }
}
