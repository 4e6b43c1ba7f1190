//! The few calls an archive makes of a file, so that a simulated disk can stand in for one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::end::EndMark;

/// A file that is read and written at offsets.
pub trait Storage {
    /// Reads exactly `buf.len()` bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Of the system, a full disk among them; part may have been written.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// Of the system; what was written may then be lost.
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    ///
    /// # Errors
    /// Of the system.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or extends to `len` bytes.
    ///
    /// # Errors
    /// Of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The mark of where the committed part ended last, if one is kept.
    ///
    /// # Errors
    /// If a system call fails.
    fn end_mark(&self) -> io::Result<Option<EndMark>> {
        Ok(None)
    }
    /// Keeps that mark, as well as it can: it need not be durable.
    fn set_end_mark(&self, _mark: EndMark) {}
    /// Whether the file has no byte.
    ///
    /// # Errors
    /// Of the system.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

impl Storage for File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buf, offset)
    }
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, data, offset)
    }
    fn sync(&self) -> io::Result<()> {
        // fdatasync flushes the length too (POSIX: what is needed to read the data back).
        self.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }
    fn end_mark(&self) -> io::Result<Option<EndMark>> {
        EndMark::of(self)
    }
    fn set_end_mark(&self, mark: EndMark) {
        mark.set(self);
    }
}

impl<S: Storage + ?Sized> Storage for &S {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, offset)
    }
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        (**self).write_all_at(data, offset)
    }
    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        (**self).set_len(len)
    }
    fn end_mark(&self) -> io::Result<Option<EndMark>> {
        (**self).end_mark()
    }
    fn set_end_mark(&self, mark: EndMark) {
        (**self).set_end_mark(mark);
    }
}
