//! A whole listing, for forges that cannot be asked about one repository.

use std::collections::HashMap;

use crate::{Error, Forge, Listed, Result};

/// The most pages of one listing: a forge with more leads in a circle.
const PAGES_MAX: usize = 1_000_000;

/// The repositories of a listing by id, once it was read.
#[derive(Default)]
pub(crate) struct WholeListing(Option<HashMap<String, Listed>>);

impl WholeListing {
    pub(crate) fn is_read(&self) -> bool {
        self.0.is_some()
    }

    /// Returns all repositories that `forge` lists.
    ///
    /// # Errors
    /// If a page cannot be fetched: a repository that is missing from the others may be on it.
    pub(crate) fn read(forge: &mut dyn Forge) -> Result<Vec<Listed>> {
        let mut list = Vec::new();
        let mut position = forge.start().to_owned();
        for _ in 0..PAGES_MAX {
            let page = forge.page(&position)?;
            if let Some(skipped) = page.skipped {
                return Err(Error::Unavailable { url: skipped.position, detail: skipped.error });
            }
            list.extend(page.repositories);
            match page.next {
                Some(next) => position = next,
                None => return Ok(list),
            }
        }
        Err(Error::Unexpected { url: position, detail: "its pages have no end".to_owned() })
    }

    pub(crate) fn set(&mut self, list: Vec<Listed>) {
        self.0 = Some(list.into_iter().map(|l| (l.forge_id.clone(), l)).collect());
    }

    pub(crate) fn get(&self, forge_id: &str) -> Option<Listed> {
        self.0.as_ref()?.get(forge_id).cloned()
    }
}
