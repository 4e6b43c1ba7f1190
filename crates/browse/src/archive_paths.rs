//! The paths of which an archive is made, as `git archive TREE PATH...` takes them (gitglossary, "pathspec").

use gix_glob::wildmatch;
use weir_git::{Kind, Oid, TreeIter};
use weir_repo::{ObjectReader, Repo};

use crate::error::{Error, Result};

/// Trees nested deeper than this are refused; git's own limit is 2048 (core.maxTreeDepth).
pub(crate) const DEPTH_MAX: usize = 2048;

/// Paths and patterns; none stands for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchivePaths(Vec<PathPattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathPattern {
    /// Without a slash at the end.
    text: Vec<u8>,
    /// Whether it names a folder, with a slash at the end.
    is_folder: bool,
    /// The length of the part before the first character that stands for others, if there is one.
    literal: Option<usize>,
}

/// Whether paths and patterns name an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathMatch {
    No,
    /// Entries below may be named.
    Below,
    Yes,
}

impl ArchivePaths {
    /// Reads paths and patterns.
    ///
    /// # Errors
    /// If one has magic: a word that begins with a colon.
    pub fn new(words: &[Vec<u8>]) -> Result<ArchivePaths> {
        words.iter().map(|word| PathPattern::new(word)).collect::<Result<_>>().map(ArchivePaths)
    }

    /// Returns whether the entry at `path`, without a slash at its end, is named.
    pub(crate) fn name(&self, path: &[u8], is_folder: bool) -> PathMatch {
        if self.0.is_empty() {
            return PathMatch::Yes;
        }
        let all = self.0.iter().map(|pattern| pattern.names(path, is_folder));
        all.fold(PathMatch::No, |found, next| match (found, next) {
            (PathMatch::Yes, _) | (_, PathMatch::Yes) => PathMatch::Yes,
            (PathMatch::Below, _) | (_, PathMatch::Below) => PathMatch::Below,
            _ => PathMatch::No,
        })
    }

    /// Checks that each names an entry of the tree `top`.
    ///
    /// # Errors
    /// If one does not, or a tree cannot be read.
    pub(crate) fn check(&self, repo: &Repo, top: &Oid) -> Result<()> {
        for pattern in &self.0 {
            let mut reader = repo.reader();
            if !pattern.is_found(repo, &mut reader, top, &mut Vec::new(), 0)? {
                let text = String::from_utf8_lossy(&pattern.text).into_owned();
                return Err(Error::NotFound(format!("pathspec '{text}' did not match any files")));
            }
        }
        Ok(())
    }
}

impl PathPattern {
    fn new(word: &[u8]) -> Result<PathPattern> {
        if word.starts_with(b":") {
            let shown = String::from_utf8_lossy(word);
            return Err(Error::WrongKind(format!("pathspec magic is not supported here: '{shown}'")));
        }
        if word.is_empty() {
            return Err(Error::WrongKind("an empty string is no pathspec".to_owned()));
        }
        let mut text = word;
        while let Some(rest) = text.strip_prefix(b"./") {
            text = rest;
        }
        let is_folder = text.ends_with(b"/");
        while let Some(rest) = text.strip_suffix(b"/") {
            text = rest;
        }
        let text = if text == b"." { Vec::new() } else { text.to_vec() };
        let literal = text.iter().position(|byte| b"*?[\\".contains(byte));
        Ok(PathPattern { text, is_folder, literal })
    }

    fn names(&self, path: &[u8], is_folder: bool) -> PathMatch {
        let below = |whole: &[u8], part: &[u8]| {
            part.is_empty() || whole.strip_prefix(part).is_some_and(|rest| rest.starts_with(b"/"))
        };
        let is_it = path == self.text && (is_folder || !self.is_folder);
        if is_it || below(path, &self.text) {
            return PathMatch::Yes;
        }
        let Some(literal) = self.literal else {
            return if is_folder && below(&self.text, path) { PathMatch::Below } else { PathMatch::No };
        };
        if !is_folder
            && !self.is_folder
            && wildmatch(self.text.as_slice().into(), path.into(), wildmatch::Mode::empty())
        {
            return PathMatch::Yes;
        }
        let literal = &self.text[..literal];
        let may_be_below = literal.starts_with(path) || path.starts_with(literal);
        if is_folder && may_be_below { PathMatch::Below } else { PathMatch::No }
    }

    /// Returns whether it names an entry below the tree `oid`, whose path is `path`.
    fn is_found(
        &self,
        repo: &Repo,
        reader: &mut ObjectReader<'_>,
        oid: &Oid,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<bool> {
        if self.text.is_empty() {
            return Ok(true);
        }
        if depth > DEPTH_MAX {
            return Err(Error::WrongKind("the tree is too deep".to_owned()));
        }
        let object = reader.require(oid)?;
        if object.kind != Kind::Tree {
            return Err(Error::WrongKind(format!("object {oid} is no tree")));
        }
        let len = path.len();
        for entry in TreeIter::new(repo.hash(), &object.data) {
            let entry = entry.map_err(Error::of_object(oid))?;
            path.extend_from_slice(entry.name);
            let named = self.names(path, entry.is_tree());
            let is_found = match named {
                PathMatch::Yes => true,
                PathMatch::Below if entry.is_tree() => {
                    let below = Oid::from_bytes(repo.hash(), entry.id).expect("ids of entries are ids");
                    path.push(b'/');
                    self.is_found(repo, reader, &below, path, depth + 1)?
                }
                _ => false,
            };
            path.truncate(len);
            if is_found {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_pathspecs_name() {
        let named = |word: &str, path: &str, is_folder| {
            ArchivePaths::new(&[word.into()]).unwrap().name(path.as_bytes(), is_folder)
        };
        for (word, path, is_folder, expected) in [
            ("a", "a", false, PathMatch::Yes),
            ("a", "a", true, PathMatch::Yes),
            ("a/", "a", false, PathMatch::No),
            ("a/", "a", true, PathMatch::Yes),
            ("a", "a/b", false, PathMatch::Yes),
            ("a", "ab", false, PathMatch::No),
            ("a/b", "a", true, PathMatch::Below),
            ("a/b", "a", false, PathMatch::No),
            (".", "x/y", false, PathMatch::Yes),
            ("./a", "a", false, PathMatch::Yes),
            ("*.c", "x/y.c", false, PathMatch::Yes),
            ("*.c", "x", true, PathMatch::Below),
            ("*.c", "y.h", false, PathMatch::No),
            ("src/*.c", "doc", true, PathMatch::No),
            ("src/*.c", "src", true, PathMatch::Below),
            ("s?c", "src", false, PathMatch::Yes),
            ("s?c", "src/x", false, PathMatch::No),
            ("a[b", "a[b", false, PathMatch::Yes),
            ("\\a", "a", false, PathMatch::Yes),
        ] {
            assert_eq!(named(word, path, is_folder), expected, "{word} {path}");
        }
        assert_eq!(ArchivePaths::default().name(b"x", false), PathMatch::Yes);
        for wrong in [":!x", ""] {
            assert!(ArchivePaths::new(&[wrong.into()]).is_err(), "'{wrong}'");
        }
    }
}
