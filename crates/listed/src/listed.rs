//! Repositories as forges list them.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir_ground::Timestamp;

use crate::account::Account;

/// A repository as a forge lists it. What the forge does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its id at the forge, which stays when it is renamed or transferred.
    pub forge_id: String,
    /// Owner and name, as they are now.
    pub full_name: String,
    /// The URL to clone.
    pub clone_url: String,
    /// Its owner.
    pub owner: Option<Account>,
    /// Its description, by its owner.
    pub description: Option<String>,
    /// Its web site.
    pub homepage: Option<String>,
    /// The language most of it is in.
    pub language: Option<String>,
    /// All its languages with their bytes, largest first.
    pub languages: Option<Vec<(String, u64)>>,
    /// Its topics.
    pub topics: Option<Vec<String>>,
    /// The branch HEAD leads to.
    pub default_branch: Option<String>,
    /// Whether it is a fork.
    pub fork: Option<bool>,
    /// Id of the repository that it was forked from.
    pub parent_id: Option<String>,
    /// Whether it is read-only.
    pub archived: Option<bool>,
    /// Whether only some users may see it.
    pub private: Option<bool>,
    /// Whether it is empty.
    pub empty: Option<bool>,
    /// Whether it may have a wiki, a repository of its own.
    pub wiki: Option<bool>,
    /// Its size as the forge counts it.
    pub kibibytes: Option<u64>,
    /// The number of its stars.
    pub stars: Option<u64>,
    /// The number of its forks.
    pub forks: Option<u64>,
    /// Open issues.
    pub open_issues: Option<u64>,
    /// When it was created (RFC 3339).
    pub created_at: Option<String>,
    /// When something about it changed (RFC 3339).
    pub updated_at: Option<String>,
    /// When its content changed, as text that differs after each change.
    pub pushed_at: Option<String>,
}

/// Suffix that turns the name of a repository into the name of its wiki.
const WIKI: &str = ".wiki";
/// Suffix that turns the id of a repository into the id of its wiki.
const WIKI_ID: &str = ":wiki";

impl Listed {
    /// Returns when its content changed, if `pushed_at` is a time.
    pub fn pushed_time(&self) -> Option<Timestamp> {
        let time = OffsetDateTime::parse(self.pushed_at.as_deref()?, &Rfc3339).ok()?;
        Some(Timestamp(time.unix_timestamp()))
    }

    /// Returns the repository of its wiki, on forges that have wikis at `NAME.wiki.git`; `None` if it has
    /// none.
    pub fn wiki_repository(&self) -> Option<Listed> {
        (self.wiki == Some(true)).then(|| Listed {
            forge_id: self.forge_id.clone() + WIKI_ID,
            full_name: self.full_name.clone() + WIKI,
            clone_url: format!(
                "{}{WIKI}.git",
                self.clone_url.strip_suffix(".git").unwrap_or(&self.clone_url)
            ),
            owner: self.owner.clone(),
            private: self.private,
            ..Listed::default()
        })
    }

    /// Returns the id of the repository whose wiki has the id `forge_id`, if that is a wiki.
    pub fn of_wiki(forge_id: &str) -> Option<&str> {
        // Forges that call repositories by names have no wikis.
        forge_id.strip_suffix(WIKI_ID).filter(|id| id.bytes().all(|c| c.is_ascii_digit()))
    }
}
