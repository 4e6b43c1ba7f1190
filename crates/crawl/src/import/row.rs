//! Rows of a dump, parsed, and the names and URLs in them.

use weir_listed::{Account, Listed};

/// A row of a dump.
pub(super) enum DumpRow {
    /// A repository.
    Of(Box<Listed>),
    /// A user or an organisation.
    Account(Account),
    /// A member of the organisation with that name.
    Member(String, Account),
    /// Nothing of interest.
    Nothing,
}

/// Why a row of a dump cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct DumpRowError(String);

impl From<String> for DumpRowError {
    fn from(why: String) -> DumpRowError {
        DumpRowError(why)
    }
}

impl From<&str> for DumpRowError {
    fn from(why: &str) -> DumpRowError {
        DumpRowError(why.to_owned())
    }
}

/// Returns owner and name in a URL of GitHub's site or API.
pub(super) fn full_name_of(url: &str) -> Option<&str> {
    let path = url.split_once("://")?.1.split_once('/')?.1;
    let path = path.strip_prefix("repos/").unwrap_or(path);
    let (owner, name) = path.split_once('/')?;
    (!owner.is_empty() && !name.is_empty() && !name.contains('/')).then_some(path)
}

/// Returns the clone URL of a repository on GitHub.
pub(super) fn clone_url_of(full_name: &str) -> String {
    format!("https://github.com/{full_name}.git")
}
