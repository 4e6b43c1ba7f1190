//! The meaning of a URL to the server of a pool.

use std::fmt;

use serde::Serialize;
use weir_serve::Client;
use weir_transport::{Scheme, Url, UrlError};

use crate::running::CatalogLocator;

/// The repository that a client's URL names on this server, and who may read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UrlMeaning {
    /// The URL.
    pub url: String,
    /// The name that it stands for, if the rules of mapping give one.
    pub name: Option<String>,
    /// Whether the pool has a repository of that name.
    pub found: bool,
    /// Whether everybody may read it.
    pub public: bool,
    /// The reason if it stands for no name.
    pub error: Option<String>,
}

impl UrlMeaning {
    /// Finds what `url` means to the server of a pool.
    ///
    /// # Errors
    /// If it is no URL.
    pub fn of(url: &str, locator: &CatalogLocator) -> Result<UrlMeaning, UrlError> {
        let (host, path) = match Url::parse(url)? {
            url if url.scheme == Scheme::Local => (None, url.path),
            url => (Some(url.host), url.path),
        };
        // Paths in ssh's short form have no leading slash.
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let named = locator.name_of(host.as_deref(), &path);
        let (name, repository) = named.as_ref().map_or((String::new(), None), |name| locator.look_up(name));
        let public = named.is_ok() && locator.check(&name, repository.as_ref(), &Client::default()).is_ok();
        let error = named.as_ref().err().map(ToString::to_string);
        Ok(UrlMeaning {
            url: url.to_owned(),
            name: named.is_ok().then_some(name),
            found: repository.is_some(),
            public,
            error,
        })
    }
}

impl fmt::Display for UrlMeaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.url)?;
        match (&self.name, self.found) {
            (None, _) => f.write_str(self.error.as_deref().unwrap_or_default()),
            (Some(name), false) => write!(f, "{name}, which is not in the pool"),
            (Some(name), true) => {
                write!(f, "{name}, {}", if self.public { "for everybody" } else { "not for everybody" })
            }
        }
    }
}
