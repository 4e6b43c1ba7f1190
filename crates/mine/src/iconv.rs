//! Decodes text with iconv of the C library, as git does: both know the same encodings then.

use std::ffi::CString;
use std::ptr;

/// A conversion into UTF-8.
pub(crate) struct Iconv(libc::iconv_t);

// SAFETY: a conversion is used by one thread at a time: it is used through `&mut`.
unsafe impl Send for Iconv {}

impl Iconv {
    /// Opens a conversion from the encoding `name`; `None` if the C library does not know it.
    pub(crate) fn open(name: &[u8]) -> Option<Iconv> {
        // As git's utf8.c, `fallback_encoding`.
        let name = if name.eq_ignore_ascii_case(b"latin-1") { b"ISO-8859-1" } else { name };
        let name = CString::new(name).ok()?;
        // SAFETY: both are texts that end with NUL.
        let conversion = unsafe { libc::iconv_open(c"UTF-8".as_ptr(), name.as_ptr()) };
        (conversion as isize != -1).then_some(Iconv(conversion))
    }

    /// Returns `text` in UTF-8; `None` if it is not in the encoding.
    pub(crate) fn decode(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        let mut out: Vec<u8> = Vec::with_capacity(text.len() + text.len() / 2 + 16);
        // SAFETY: without input the state is set to the initial one.
        unsafe {
            libc::iconv(self.0, ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        }
        // `iconv` takes a pointer to bytes that it does not change.
        let mut input = text.as_ptr().cast_mut().cast::<libc::c_char>();
        let mut left = text.len();
        loop {
            let mut at = out.spare_capacity_mut().as_mut_ptr().cast::<libc::c_char>();
            let room = out.capacity() - out.len();
            let mut room_left = room;
            // SAFETY: `input` has `left` bytes, and `at` has room for `room_left`.
            let result = unsafe {
                libc::iconv(self.0, &raw mut input, &raw mut left, &raw mut at, &raw mut room_left)
            };
            let error = std::io::Error::last_os_error().raw_os_error();
            // SAFETY: so many bytes behind the length were written.
            unsafe { out.set_len(out.len() + room - room_left) };
            match result {
                usize::MAX if error == Some(libc::E2BIG) => out.reserve(left * 2 + 32),
                usize::MAX => return None,
                _ => return Some(out),
            }
        }
    }
}

impl Drop for Iconv {
    fn drop(&mut self) {
        // SAFETY: it was opened and not closed.
        unsafe {
            libc::iconv_close(self.0);
        }
    }
}
