//! A server's answers about LFS objects.

use std::collections::HashMap;
use std::path::PathBuf;

/// The place of an object, or why there is none.
pub enum LfsAnswer {
    /// The object can be downloaded.
    Here(LfsDownload),
    /// The server does not have it, for this reason.
    Absent(String),
    /// It may be available later; the reason why it is not.
    Later(String),
}

/// An object that can be downloaded.
pub struct LfsDownload(pub(crate) LfsSource);

pub(crate) enum LfsSource {
    Href(String, HashMap<String, String>),
    /// Its id, and the arguments to send with it.
    Ssh(String, Vec<String>),
    File(PathBuf),
}

impl LfsAnswer {
    pub(crate) fn over_ssh(oid: &str, arguments: Vec<String>) -> LfsAnswer {
        LfsAnswer::Here(LfsDownload(LfsSource::Ssh(oid.to_owned(), arguments)))
    }
}
