//! Lines of the files of a tree that match a pattern, as `git grep` finds them in a revision.

use regex::bytes::{Regex, RegexBuilder};
use weir_git::{Kind, Oid, TreeIter};
use weir_mine::is_binary;
use weir_repo::{ObjectReader, Repo};

use crate::error::{Error, Result};
use crate::folder::{clean_path, entry_at};

/// Bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Trees nested deeper than this are not searched; git's own limit is 2048 (core.maxTreeDepth).
const DEPTH_MAX: usize = 2048;
/// Larger files are not searched.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a line that are told.
const LINE_BYTES_MAX: usize = 1024;

/// A search in files.
#[derive(Clone, Debug)]
pub struct GrepQuery {
    /// The pattern.
    pub pattern: Regex,
    /// The path of the file or the folder that is searched.
    pub path: Vec<u8>,
    /// The place after which the search begins.
    pub after: Option<GrepPlace>,
    /// The lines of a page.
    pub count_max: usize,
    /// The bytes of files at which a page ends.
    pub bytes_max: u64,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrepLine {
    /// The path of the file.
    pub path: Vec<u8>,
    /// The number of the line, from 1 on.
    pub number: u64,
    /// The line, or the beginning of a long one, without its end.
    pub text: Vec<u8>,
}

/// A place in a search: a file, and a line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrepPlace {
    /// The path of the file.
    pub path: Vec<u8>,
    /// The number of the line; [`u64::MAX`] for the end.
    pub line: u64,
}

/// A page of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrepPage {
    /// The lines.
    pub lines: Vec<GrepLine>,
    /// How far the search has come, if there is more to search.
    pub next: Option<GrepPlace>,
}

/// Why a text is no pattern: it is no regular expression, or one that takes too much.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PatternError(regex::Error);

/// Returns the pattern `text`: a regular expression, or the text itself, if it `is_literal`.
///
/// # Errors
/// If it is no regular expression, or one that takes too much.
pub fn grep_pattern(
    text: &str,
    is_literal: bool,
    ignores_case: bool,
) -> std::result::Result<Regex, PatternError> {
    let text = if is_literal { regex::escape(text) } else { text.to_owned() };
    let mut builder = RegexBuilder::new(&text);
    builder.multi_line(true).case_insensitive(ignores_case).size_limit(PATTERN_BYTES_MAX).unicode(false);
    builder.build().map_err(PatternError)
}

struct Searcher<'q> {
    repo: &'q Repo,
    reader: ObjectReader<'q>,
    query: &'q GrepQuery,
    page: GrepPage,
    bytes: u64,
    /// How far the search has come.
    place: Option<GrepPlace>,
}

/// Returns the lines in files of the tree `top` that match. Links, submodules and binary files are left out.
///
/// # Errors
/// If there is no such path, or an object is missing or corrupt.
pub fn grep(repo: &Repo, top: &Oid, query: &GrepQuery) -> Result<GrepPage> {
    let (mode, oid) = entry_at(repo, top, &query.path)?;
    let mut path = clean_path(&query.path);
    let reader = repo.reader();
    let mut searcher = Searcher { repo, reader, query, page: GrepPage::default(), bytes: 0, place: None };
    let is_whole = if mode & 0o170_000 == 0o040_000 {
        if !path.is_empty() {
            path.push(b'/');
        }
        searcher.folder(&oid, &mut path, 0)?
    } else {
        searcher.entry(mode, &oid, &mut path, 0)?
    };
    let Searcher { mut page, place, .. } = searcher;
    page.next = place.filter(|_| !is_whole);
    Ok(page)
}

impl Searcher<'_> {
    /// Searches a folder. Returns whether all of it was searched.
    fn folder(&mut self, oid: &Oid, path: &mut Vec<u8>, depth: usize) -> Result<bool> {
        let object = self.reader.require(oid)?;
        let len = path.len();
        for entry in TreeIter::new(self.repo.hash(), &object.data) {
            let entry = entry.map_err(Error::of_object(oid))?;
            let id = Oid::from_bytes(self.repo.hash(), entry.id).expect("ids of entries are ids");
            path.extend_from_slice(entry.name);
            let is_whole = self.entry(entry.mode, &id, path, depth)?;
            path.truncate(len);
            if !is_whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn entry(&mut self, mode: u32, oid: &Oid, path: &mut Vec<u8>, depth: usize) -> Result<bool> {
        let after = self.query.after.as_ref();
        match mode & 0o170_000 {
            0o040_000 if depth < DEPTH_MAX => {
                path.push(b'/');
                let is_passed = |after: &GrepPlace| *path < after.path && !after.path.starts_with(path);
                if after.is_some_and(is_passed) { Ok(true) } else { self.folder(oid, path, depth + 1) }
            }
            0o100_000 if after.is_none_or(|after| (&*path, u64::MAX) > (&after.path, after.line)) => {
                self.file(oid, path)
            }
            _ => Ok(true),
        }
    }

    /// Searches a file. Returns false if there is no room for all of it.
    fn file(&mut self, oid: &Oid, path: &[u8]) -> Result<bool> {
        if self.page.lines.len() >= self.query.count_max || self.bytes >= self.query.bytes_max {
            return Ok(false);
        }
        match self.reader.kind_and_size(oid)? {
            Some((Kind::Blob, bytes)) if bytes <= FILE_BYTES_MAX => self.bytes += bytes.max(1),
            Some(_) => return Ok(true),
            None => return Err(Error::Repo(weir_repo::Error::Missing(*oid))),
        }
        let object = self.reader.require(oid)?;
        let line = if is_binary(&object.data) { None } else { self.lines(path, &object.data) };
        self.place = Some(GrepPlace { path: path.to_vec(), line: line.unwrap_or(u64::MAX) });
        Ok(line.is_none())
    }

    /// Adds the lines of a file that match. Returns the number of the last one, if there is no room for more.
    fn lines(&mut self, path: &[u8], data: &[u8]) -> Option<u64> {
        let passed =
            self.query.after.as_ref().filter(|after| after.path == path).map_or(0, |after| after.line);
        let (mut at, mut number, mut counted) = (0, 1, 0);
        while let Some(found) = self.query.pattern.find_at(data, at) {
            let is_break = |byte: &u8| *byte == b'\n';
            let start = data[..found.start()].iter().rposition(is_break).map_or(0, |at| at + 1);
            let end = data[start..].iter().position(is_break).map_or(data.len(), |at| start + at);
            // There is no line behind the last line break.
            if start == data.len() {
                break;
            }
            number += data[counted..start].iter().filter(|byte| is_break(byte)).count() as u64;
            counted = start;
            let line = &data[start..end];
            // A match may begin in this line and end in another.
            if number > passed && self.query.pattern.is_match(line) {
                if self.page.lines.len() >= self.query.count_max {
                    return Some(number - 1);
                }
                let text = line.strip_suffix(b"\r").unwrap_or(line);
                let text = text[..text.len().min(LINE_BYTES_MAX)].to_vec();
                self.page.lines.push(GrepLine { path: path.to_vec(), number, text });
            }
            at = end + 1;
            if at > data.len() {
                break;
            }
        }
        None
    }
}
