//! The settings of a listing, as the catalog stores them: JSON with a version. Later versions of weir read
//! the same text.

use serde::Serialize;
use weir_catalog::{Catalog, Listing, Result};
use weir_ground::Timestamp;

use crate::filter::ListingFilter;

/// The version of what is stored.
const VERSION: u32 = 1;

/// The repositories that weir asks a forge to list. A listing with another scope begins again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListingScope {
    version: u32,
    /// The software of the forge, as settings spell it.
    #[serde(rename = "type")]
    kind: String,
    url: String,
    owners: Vec<String>,
    search: Vec<String>,
}

impl ListingScope {
    /// Returns the scope of the forge at `url`: all that it lists, or what is of `owners` or answers
    /// `search`. `kind` is what settings call its software.
    pub fn new(kind: &str, url: &str, owners: &[String], search: &[String]) -> ListingScope {
        ListingScope {
            version: VERSION,
            kind: kind.to_owned(),
            url: url.to_owned(),
            owners: owners.to_vec(),
            search: search.to_vec(),
        }
    }

    /// Returns the text for the catalog.
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("maps with texts as keys")
    }

    /// Returns the listing called `name` to go on with, if it has this scope, else a new one.
    pub(crate) fn begin(&self, catalog: &Catalog, name: &str, now: Timestamp) -> Result<Listing> {
        let scope = self.to_text();
        catalog.listings().respell_scope(name, &self.to_unversioned_text(), &scope)?;
        catalog.listings().begin(name, &scope, now)
    }

    /// Returns the text that weir wrote before scopes had versions.
    fn to_unversioned_text(&self) -> String {
        let kind = self.kind[..1].to_uppercase() + &self.kind[1..];
        let search =
            if self.search.is_empty() { String::new() } else { format!(" search {:?}", self.search) };
        format!("{kind} {} {}{search}", self.url, self.owners.join(","))
    }
}

/// Everything that decides which of the listed repositories are wanted. An unchanged page is skipped only
/// while this is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WantedRepositories {
    /// Conditions that a repository must meet.
    pub filter: ListingFilter,
    /// Patterns of names; empty for all.
    pub include: Vec<String>,
    /// Patterns of names that are left out.
    pub exclude: Vec<String>,
    /// Whether wikis are wanted, too.
    pub wikis: bool,
    /// The first part of the names of the repositories.
    pub prefix: String,
    /// The base of the paths of repositories.
    pub site: Option<String>,
    /// Hosts that clone URLs may lead to.
    pub clone_from: Vec<String>,
}

impl WantedRepositories {
    /// Returns the text for the catalog.
    pub(crate) fn to_text(&self) -> String {
        #[derive(Serialize)]
        struct Versioned<'a> {
            version: u32,
            #[serde(flatten)]
            wanted: &'a WantedRepositories,
        }
        serde_json::to_string(&Versioned { version: VERSION, wanted: self }).expect("maps with texts as keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_stays_as_it_is() {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let scope = ListingScope::new("gitea", "https://g.org", &list(&["a", "b"]), &[]);
        let text = r#"{"version":1,"type":"gitea","url":"https://g.org","owners":["a","b"],"search":[]}"#;
        assert_eq!(scope.to_text(), text);
        assert_eq!(scope.to_unversioned_text(), "Gitea https://g.org a,b");
        let search = ListingScope::new("github", "https://github.com", &[], &list(&["is:public \"x\""]));
        assert_eq!(search.to_unversioned_text(), r#"Github https://github.com  search ["is:public \"x\""]"#);
        let filter = ListingFilter { languages: list(&["C"]), stars_min: 3, ..ListingFilter::default() };
        let wanted = WantedRepositories {
            filter,
            exclude: list(&["*/old"]),
            prefix: "g.org".into(),
            ..WantedRepositories::default()
        };
        let text = r#"{"version":1,"filter":{"languages":["C"],"skip_forks":false,"skip_archived":false,"#
            .to_owned()
            + r#""skip_private":false,"stars_min":3,"kibibytes_max":null,"active_since":null},"include":[],"#
            + r#""exclude":["*/old"],"wikis":false,"prefix":"g.org","site":null,"clone_from":[]}"#;
        assert_eq!(wanted.to_text(), text);
    }

    #[test]
    fn a_listing_of_a_weir_without_versions_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        let scope = ListingScope::new("gitlab", "https://g", &["a".into()], &[]);
        let mut listing = catalog.listings().begin("g", &scope.to_unversioned_text(), Timestamp(1)).unwrap();
        catalog.listings().take_page(&mut listing, &[], Some("7"), Timestamp(2)).unwrap();
        let position = |scope: &ListingScope| scope.begin(&catalog, "g", Timestamp(3)).unwrap().position;
        assert_eq!(position(&scope).as_deref(), Some("7"));
        assert_eq!(position(&scope).as_deref(), Some("7"));
        assert_eq!(position(&ListingScope::new("gitlab", "https://g", &[], &[])), None);
    }
}
