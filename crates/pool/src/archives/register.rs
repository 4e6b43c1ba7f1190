//! Checks upstreams to register against the catalog, the store and each other.

use std::collections::HashMap;

use weir_archive::Archive;
use weir_catalog::{Catalog, NewRepository};
use weir_ground::printable;
use weir_repo::Origin;
use weir_transport::Url;

use crate::archives::store::Store;
use crate::archives::upstream::{check_url, entry};
use crate::error::{Error, Result};

/// Upstreams that can be registered together.
#[derive(Default)]
pub struct SoundEntries {
    /// The entries that the catalog is to add.
    pub entries: Vec<NewRepository>,
    /// Names that the catalog does not have yet.
    pub new: Vec<String>,
    /// URLs by name.
    seen: HashMap<String, String>,
}

impl SoundEntries {
    /// Adds the upstream at `url`, under `name` or a name that its URL gives. With `force`, the URL may look
    /// like a mistake.
    ///
    /// # Errors
    /// If it cannot be registered, or not together with those added before.
    pub fn take(
        &mut self,
        catalog: &Catalog,
        store: &Store,
        url: &str,
        name: Option<&str>,
        force: bool,
    ) -> Result<()> {
        check_url(url).or_else(|e| match e {
            _ if force => Ok(()),
            Error::Refused(why) => Err(Error::Doubtful(why)),
            e => Err(e),
        })?;
        let one = entry(url, name)?;
        let known = catalog.get(&one.name)?.map(|r| r.url);
        let is_new = known.is_none() && !self.seen.contains_key(&one.name);
        let other = known.or_else(|| self.seen.get(&one.name).cloned()).filter(|other| *other != one.url);
        if let Some(other) = other {
            let other = Url::parse(&other)?;
            return Err(Error::Refused(format!(
                "'{}' is taken: it is mirrored from {other}; choose another name",
                one.name
            )));
        }
        if is_new {
            check_archive(catalog, store, &one)?;
            self.new.push(one.name.clone());
        }
        self.seen.insert(one.name.clone(), one.url.clone());
        self.entries.push(one);
        Ok(())
    }
}

/// Refuses a new repository whose archive exists and belongs to another upstream: it would be served under
/// that name.
fn check_archive(catalog: &Catalog, store: &Store, new: &NewRepository) -> Result<()> {
    // The archive belongs to a repository that had the name before. The new one gets another file.
    if catalog.archives().has_archive_at(&new.path)? {
        return Ok(());
    }
    let place = store.path.join(&new.path);
    let Some(found) = Archive::open(&place).ok().and_then(|archive| Origin::of(&archive)) else {
        return Ok(());
    };
    if found.url == Url::parse(&new.url)?.without_userinfo() {
        return Ok(());
    }
    Err(Error::OtherUpstream { path: place, url: printable(&found.url) })
}
