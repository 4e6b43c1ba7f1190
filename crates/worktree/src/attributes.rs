//! The effects of attributes on files of a tree (gitattributes): `export-ignore` leaves files out of
//! archives, `eol` and `ident` change their content.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gix_attributes::search::{MetadataCollection, Outcome};
use gix_attributes::{Search, StateRef};
use gix_glob::pattern::Case;

use crate::text::LineEnds;

const EXPORT_IGNORE: &str = "export-ignore";
const IDENT: &str = "ident";
const TEXT: &str = "text";
/// The old name of `text`.
const CRLF: &str = "crlf";
const EOL: &str = "eol";
/// The attributes that matter here.
const SELECTED: [&str; 5] = [EXPORT_IGNORE, IDENT, TEXT, CRLF, EOL];
/// The macro that git knows by itself.
const BUILT_IN: &[u8] = b"[attr]binary -diff -merge -text";

/// The attributes of the folders on the way to a file.
pub struct TreeAttributes {
    search: Search,
    collection: MetadataCollection,
    outcome: Outcome,
    /// Whether any file of attributes changes anything here.
    is_used: bool,
}

/// The attributes of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathAttributes {
    /// Whether it is left out.
    pub is_left_out: bool,
    /// Whether `$Id$` names the object.
    pub has_ident: bool,
    /// The line ends.
    pub line_ends: LineEnds,
}

impl Default for TreeAttributes {
    fn default() -> TreeAttributes {
        TreeAttributes::new()
    }
}

impl TreeAttributes {
    /// Returns the attributes of a tree without files of attributes.
    pub fn new() -> TreeAttributes {
        let (mut search, mut collection) = (Search::default(), MetadataCollection::default());
        let _ = search.add_patterns_buffer(BUILT_IN, "[builtin]".into(), None, &mut collection, true);
        TreeAttributes { search, collection, outcome: Outcome::default(), is_used: false }
    }

    /// Adds the file of attributes of the folder at `path`, which has a slash at its end if it is not the
    /// top. Returns whether that can be done.
    pub fn enter(&mut self, path: &[u8], attributes: &[u8]) -> bool {
        let folder = Path::new(OsStr::from_bytes(path));
        let names = |word: &str| attributes.windows(word.len()).any(|part| part == word.as_bytes());
        self.is_used |= [EXPORT_IGNORE, IDENT, EOL].into_iter().any(names);
        let source = folder.join(".gitattributes");
        let (collection, may_define) = (&mut self.collection, path.is_empty());
        self.search
            .add_patterns_buffer(attributes, source, Some(Path::new("")), collection, may_define)
            .is_ok()
    }

    /// Takes away the file that was added last.
    pub fn leave(&mut self) {
        self.search.pop_pattern_list();
    }

    /// Returns the attributes of `path`.
    pub fn of(&mut self, path: &[u8], is_folder: bool) -> PathAttributes {
        let mut of_path = PathAttributes::default();
        if !self.is_used {
            return of_path;
        }
        self.outcome.initialize_with_selection(&self.collection, SELECTED);
        let outcome = &mut self.outcome;
        self.search.pattern_matching_relative_path(path.into(), Case::Sensitive, Some(is_folder), outcome);
        // As git's convert_attrs: `crlf` counts if `text` is not specified.
        let (mut text, mut crlf, mut ends_in_crlf) = (StateRef::Unspecified, StateRef::Unspecified, false);
        for found in self.outcome.iter_selected() {
            let state = found.assignment.state;
            match found.assignment.name.as_str() {
                EXPORT_IGNORE => of_path.is_left_out = state == StateRef::Set,
                IDENT => of_path.has_ident = state == StateRef::Set,
                TEXT => text = state,
                CRLF => crlf = state,
                EOL => ends_in_crlf = matches!(state, StateRef::Value(value) if value.as_bstr() == "crlf"),
                _ => {}
            }
        }
        let text = if text == StateRef::Unspecified { crlf } else { text };
        of_path.line_ends = match text {
            _ if !ends_in_crlf => LineEnds::Stored,
            StateRef::Unset => LineEnds::Stored,
            StateRef::Value(value) if value.as_bstr() == "auto" => LineEnds::CrLfIfText,
            _ => LineEnds::CrLf,
        };
        of_path
    }
}
