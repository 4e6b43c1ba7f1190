//! Files that an archive of a tree leaves out (gitattributes, `export-ignore`).

use std::path::Path;

use gix_attributes::search::{MetadataCollection, Outcome};
use gix_attributes::{Search, StateRef};
use gix_glob::pattern::Case;

/// The attribute.
const EXPORT_IGNORE: &str = "export-ignore";

/// The attributes of the folders on the way to a file.
pub(crate) struct ExportAttributes {
    search: Search,
    collection: MetadataCollection,
    outcome: Outcome,
    /// Whether any file of attributes names the attribute.
    is_used: bool,
}

impl ExportAttributes {
    pub(crate) fn new() -> ExportAttributes {
        let mut outcome = Outcome::default();
        let collection = MetadataCollection::default();
        outcome.initialize_with_selection(&collection, Some(EXPORT_IGNORE));
        ExportAttributes { search: Search::default(), collection, outcome, is_used: false }
    }

    /// Adds the file of attributes of the folder at `path`, which has a slash at its end if it is not the
    /// top. Returns whether that can be done.
    pub(crate) fn enter(&mut self, path: &[u8], attributes: &[u8]) -> bool {
        let folder = String::from_utf8_lossy(path);
        self.is_used |= attributes.windows(EXPORT_IGNORE.len()).any(|part| part == EXPORT_IGNORE.as_bytes());
        let source = Path::new(&*folder).join(".gitattributes");
        let collection = &mut self.collection;
        let may_define = path.is_empty();
        let root = Some(Path::new(""));
        self.search.add_patterns_buffer(attributes, source, root, collection, may_define).is_ok()
    }

    /// Takes away the file that was added last.
    pub(crate) fn leave(&mut self) {
        self.search.pop_pattern_list();
    }

    /// Returns whether what is at `path` is left out.
    pub(crate) fn is_left_out(&mut self, path: &[u8], is_folder: bool) -> bool {
        if !self.is_used {
            return false;
        }
        self.outcome.initialize_with_selection(&self.collection, Some(EXPORT_IGNORE));
        self.search.pattern_matching_relative_path(
            path.into(),
            Case::Sensitive,
            Some(is_folder),
            &mut self.outcome,
        );
        self.outcome.iter_selected().any(|found| found.assignment.state == StateRef::Set)
    }
}
