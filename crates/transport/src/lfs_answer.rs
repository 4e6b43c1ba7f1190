//! A server's answers about LFS objects.

use std::collections::HashMap;
use std::path::PathBuf;

/// Where an object is, or why it is nowhere.
pub enum LfsAnswer {
    /// It can be had.
    Here(LfsDownload),
    /// The server does not have it; in its words.
    Absent(String),
    /// It may be had another time.
    Later(String),
}

/// An object to be had.
pub struct LfsDownload(pub(crate) LfsSource);

pub(crate) enum LfsSource {
    Href(String, HashMap<String, String>),
    /// Its id, and what is said with it.
    Ssh(String, Vec<String>),
    File(PathBuf),
}

impl LfsAnswer {
    pub(crate) fn over_ssh(oid: &str, arguments: Vec<String>) -> LfsAnswer {
        LfsAnswer::Here(LfsDownload(LfsSource::Ssh(oid.to_owned(), arguments)))
    }
}
