//! The kinds of forges, and what each can do.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Forge;
use crate::api::Api;
use crate::bitbucket::Bitbucket;
use crate::folder::Folder;
use crate::gerrit::Gerrit;
use crate::gitea::Gitea;
use crate::github::GitHub;
use crate::gitlab::GitLab;
use crate::manifest::Manifest;
use crate::sourcehut::Sourcehut;
use crate::webindex::{WebIndex, WebIndexKind};

/// The software of a forge, or what lists repositories in its place.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ForgeKind {
    /// GitHub, or GitHub Enterprise Server.
    Github,
    /// GitLab.
    Gitlab,
    /// Gitea, Forgejo or Gogs.
    #[serde(alias = "forgejo", alias = "gogs")]
    Gitea,
    /// Bitbucket Cloud.
    Bitbucket,
    /// sourcehut.
    Sourcehut,
    /// Gerrit.
    Gerrit,
    /// The pages of cgit.
    Cgit,
    /// The pages of gitweb.
    Gitweb,
    /// A manifest of grokmirror.
    Manifest,
    /// A folder of repositories on this machine.
    Folder,
}

/// The abilities of forges of a kind, and the ways in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgeAbilities {
    /// The name of the kind in settings and in the catalog.
    pub name: &'static str,
    /// Whether repositories can be searched for, and an App can ask.
    pub has_search: bool,
    /// Whether people and organisations can be listed.
    pub has_accounts: bool,
    /// Whether repositories have wikis that can be cloned.
    pub has_wikis: bool,
    /// Whether repositories have issues, pull requests and releases that weir can read.
    pub has_metadata: bool,
    /// The user name that a clone sends with a token; `None` if clones send none.
    pub clone_user: Option<&'static str>,
    /// The scheme by which requests send a token (RFC 9110, section 11.1).
    pub token_scheme: &'static str,
    /// Whether it serves repositories at paths below its own URL, not below its host.
    pub serves_below_url: bool,
    /// Whether it is a folder of this machine, and not a server.
    pub is_folder: bool,
}

/// A forge that lists, and does nothing else.
const ONLY_LISTS: ForgeAbilities = ForgeAbilities {
    name: "",
    has_search: false,
    has_accounts: false,
    has_wikis: false,
    has_metadata: false,
    clone_user: None,
    token_scheme: "Bearer",
    serves_below_url: false,
    is_folder: false,
};

/// The place of a forge, and what is wanted of it.
#[derive(Clone, Debug, Default)]
pub struct ForgePlace<'p> {
    /// The URL of its web site or of a manifest, or the path of a folder.
    pub url: &'p str,
    /// The URL below which the paths of repositories are.
    pub site: &'p str,
    /// The owners whose repositories are listed; all, if there are none.
    pub owners: Vec<String>,
    /// Searches, in the forge's syntax, whose results are listed.
    pub search: Vec<String>,
}

impl ForgeKind {
    /// Every kind.
    pub const ALL: &[ForgeKind] = &[
        ForgeKind::Github,
        ForgeKind::Gitlab,
        ForgeKind::Gitea,
        ForgeKind::Bitbucket,
        ForgeKind::Sourcehut,
        ForgeKind::Gerrit,
        ForgeKind::Cgit,
        ForgeKind::Gitweb,
        ForgeKind::Manifest,
        ForgeKind::Folder,
    ];

    /// Returns what weir can have from forges of this kind.
    pub const fn abilities(self) -> ForgeAbilities {
        match self {
            ForgeKind::Github => ForgeAbilities {
                name: "github",
                has_search: true,
                has_accounts: true,
                has_wikis: true,
                has_metadata: true,
                clone_user: Some("x-access-token"),
                ..ONLY_LISTS
            },
            ForgeKind::Gitlab => ForgeAbilities {
                name: "gitlab",
                has_wikis: true,
                has_metadata: true,
                clone_user: Some("oauth2"),
                ..ONLY_LISTS
            },
            ForgeKind::Gitea => ForgeAbilities {
                name: "gitea",
                has_accounts: true,
                has_wikis: true,
                has_metadata: true,
                clone_user: Some("oauth2"),
                token_scheme: "token",
                ..ONLY_LISTS
            },
            ForgeKind::Bitbucket => {
                ForgeAbilities { name: "bitbucket", clone_user: Some("x-token-auth"), ..ONLY_LISTS }
            }
            ForgeKind::Sourcehut => ForgeAbilities { name: "sourcehut", ..ONLY_LISTS },
            ForgeKind::Gerrit => ForgeAbilities { name: "gerrit", serves_below_url: true, ..ONLY_LISTS },
            ForgeKind::Cgit => ForgeAbilities { name: "cgit", serves_below_url: true, ..ONLY_LISTS },
            ForgeKind::Gitweb => ForgeAbilities { name: "gitweb", ..ONLY_LISTS },
            ForgeKind::Manifest => ForgeAbilities { name: "manifest", ..ONLY_LISTS },
            ForgeKind::Folder => ForgeAbilities { name: "folder", is_folder: true, ..ONLY_LISTS },
        }
    }

    /// Returns the name of the kind in settings and in the catalog.
    pub const fn name(self) -> &'static str {
        self.abilities().name
    }

    /// Returns the forge of this kind at `place`, which is asked by `api`.
    pub fn open(self, place: ForgePlace<'_>, api: Api) -> Box<dyn Forge> {
        let ForgePlace { url, site, owners, search } = place;
        match self {
            ForgeKind::Github => Box::new(GitHub::new(url, owners, search, api)),
            ForgeKind::Gitlab => Box::new(GitLab::new(url, owners, api)),
            ForgeKind::Gitea => Box::new(Gitea::new(url, owners, api)),
            ForgeKind::Bitbucket => Box::new(Bitbucket::new(url, owners, api)),
            ForgeKind::Sourcehut => Box::new(Sourcehut::new(url, owners, api)),
            ForgeKind::Gerrit => Box::new(Gerrit::new(url, site, api)),
            ForgeKind::Cgit => Box::new(WebIndex::new(WebIndexKind::Cgit, url, site, api)),
            ForgeKind::Gitweb => Box::new(WebIndex::new(WebIndexKind::Gitweb, url, site, api)),
            ForgeKind::Manifest => Box::new(Manifest::new(url, site, api)),
            ForgeKind::Folder => Box::new(Folder::new(Path::new(url))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_names_that_settings_give_them() {
        for kind in ForgeKind::ALL {
            let name = serde_json::json!(kind.name());
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
            assert_eq!(serde_json::from_value::<ForgeKind>(name).unwrap(), *kind);
        }
        for other in ["forgejo", "gogs"] {
            let kind: ForgeKind = serde_json::from_value(other.into()).unwrap();
            assert_eq!(kind, ForgeKind::Gitea);
        }
    }

    #[test]
    fn kinds_can_what_the_book_says() {
        let names = |can: fn(ForgeAbilities) -> bool| -> Vec<&str> {
            let able = ForgeKind::ALL.iter().map(|kind| kind.abilities()).filter(|abilities| can(*abilities));
            able.map(|abilities| abilities.name).collect()
        };
        assert_eq!(names(|can| can.has_search), ["github"]);
        assert_eq!(names(|can| can.has_accounts), ["github", "gitea"]);
        assert_eq!(names(|can| can.has_wikis), ["github", "gitlab", "gitea"]);
        assert_eq!(names(|can| can.has_metadata), ["github", "gitlab", "gitea"]);
        assert_eq!(names(|can| can.clone_user.is_some()), ["github", "gitlab", "gitea", "bitbucket"]);
        assert_eq!(names(|can| can.token_scheme != "Bearer"), ["gitea"]);
        assert_eq!(names(|can| can.serves_below_url), ["gerrit", "cgit"]);
        assert_eq!(names(|can| can.is_folder), ["folder"]);
    }
}
