//! Where a repository comes from, as its archive says.

use weir_archive::Archive;

/// What a repository is a copy of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Where it comes from; what only its keeper has to know (a password) is left out.
    pub url: String,
    /// What its forge knows it by, if it was listed by one: the forge's URL, a space, its id there.
    pub forge: Option<String>,
}

/// The attributes that hold it.
pub(crate) const URL_KEY: &str = "url";
pub(crate) const FORGE_KEY: &str = "forge";

impl Origin {
    /// What `archive` says of itself.
    pub fn of(archive: &Archive) -> Option<Origin> {
        let url = archive.attribute(URL_KEY)?.to_owned();
        Some(Origin { url, forge: archive.attribute(FORGE_KEY).map(str::to_owned) })
    }
}
