//! What forges say of repositories and their owners.

use serde::{Deserialize, Serialize};

/// What an account is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountKind {
    /// A person.
    User,
    /// An organisation or group.
    Organization,
}

impl AccountKind {
    /// As the catalog writes it.
    pub fn name(self) -> &'static str {
        match self {
            AccountKind::User => "user",
            AccountKind::Organization => "organization",
        }
    }
}

/// The owner of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its id at the forge.
    pub forge_id: String,
    /// The name it has now.
    pub login: String,
    /// What it is.
    pub kind: AccountKind,
}

/// A repository as a forge lists it. What the forge does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its id at the forge: stays when it is renamed or transferred.
    pub forge_id: String,
    /// Owner and name, as they are now.
    pub full_name: String,
    /// What to clone.
    pub clone_url: String,
    /// Whose it is.
    pub owner: Option<Account>,
    /// What its owner says it is.
    pub description: Option<String>,
    /// Its web site.
    pub homepage: Option<String>,
    /// The language most of it is in.
    pub language: Option<String>,
    /// All its languages with their bytes, largest first.
    pub languages: Vec<(String, u64)>,
    /// Its topics.
    pub topics: Vec<String>,
    /// The branch HEAD leads to.
    pub default_branch: Option<String>,
    /// Whether it is a fork.
    pub fork: Option<bool>,
    /// Id of what it was forked from.
    pub parent_id: Option<String>,
    /// Whether it is read-only.
    pub archived: Option<bool>,
    /// Whether only some may see it.
    pub private: Option<bool>,
    /// Whether there is nothing in it.
    pub empty: Option<bool>,
    /// Whether it may have a wiki, a repository of its own.
    pub wiki: Option<bool>,
    /// Its size as the forge counts it.
    pub kibibytes: Option<u64>,
    /// People who marked it.
    pub stars: Option<u64>,
    /// Forks of it.
    pub forks: Option<u64>,
    /// Open issues.
    pub open_issues: Option<u64>,
    /// When it was made (RFC 3339).
    pub created_at: Option<String>,
    /// When something about it changed (RFC 3339).
    pub updated_at: Option<String>,
    /// When its content changed, as text that differs when it has.
    pub pushed_at: Option<String>,
}

/// Suffix that makes the name of a wiki from that of its repository.
const WIKI: &str = ".wiki";
/// Suffix that makes the id of a wiki from that of its repository.
const WIKI_ID: &str = ":wiki";

impl Listed {
    /// The repository that its wiki is, on the forges that have one at `NAME.wiki.git`; `None` if it has
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

    /// Whose wiki it is that has the id `forge_id`, if it is one.
    pub fn of_wiki(forge_id: &str) -> Option<&str> {
        // Forges that call repositories by names have none.
        forge_id.strip_suffix(WIKI_ID).filter(|id| id.bytes().all(|c| c.is_ascii_digit()))
    }
}
