//! The few operations that an archive needs of a file, so that a simulated disk can stand in for one.

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
    /// If a system call fails, for example because the disk is full. Part of the data may have been written.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// If a system call fails. Then data that was written may be lost.
    fn sync(&self) -> io::Result<()>;
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// If a system call fails.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or extends the file to `len` bytes.
    ///
    /// # Errors
    /// If a system call fails.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Returns the mark of where the committed part last ended, if one is kept.
    ///
    /// # Errors
    /// If a system call fails.
    fn end_mark(&self) -> io::Result<Option<EndMark>> {
        Ok(None)
    }
    /// Keeps that mark if it can. The mark need not be durable.
    fn set_end_mark(&self, _mark: EndMark) {}
    /// Returns whether the file is empty.
    ///
    /// # Errors
    /// If a system call fails.
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
