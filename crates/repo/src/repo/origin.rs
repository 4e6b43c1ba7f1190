//! The origin of a repository, as its archive records it.

use weir_archive::Archive;

/// The origin of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The URL of the upstream, without secrets such as a password.
    pub url: String,
    /// The forge's name for the repository, if a forge listed it: the forge's URL, a space, its id there.
    pub forge: Option<String>,
}

/// The attributes that hold the origin.
pub(crate) const URL_KEY: &str = "url";
pub(crate) const FORGE_KEY: &str = "forge";

impl Origin {
    /// Returns the origin that `archive` records.
    pub fn of(archive: &Archive) -> Option<Origin> {
        let url = archive.attribute(URL_KEY)?.to_owned();
        Some(Origin { url, forge: archive.attribute(FORGE_KEY).map(str::to_owned) })
    }
}
