//! The index (gitformat-index): reads one that git or weir wrote, and writes versions 2 to 4.

use std::collections::BTreeMap;
use std::path::Path;

use weir_git::{HashKind, Oid, plain_sha};

use crate::cached_trees::IndexChanges;
use crate::error::{Error, Result};
use crate::ewah::ewah;
use crate::memory::populate;
use crate::untracked;
use crate::varint::{push_varint, varint};

/// The numbers of an entry before its id: seconds and nanoseconds of the changes of inode and content;
/// device, which git does not compare, and inode; mode; owner, group; size.
pub type EntryStat = [u32; 10];
/// Where the mode is in them.
pub const MODE: usize = 6;
/// Where the size is in them.
pub const SIZE: usize = 9;
/// The seconds of the time at which a file was written last.
pub const MODIFIED: usize = 2;
/// How paths are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathForm {
    /// Whole, as before version 4: every program reads them.
    Whole,
    /// Without the part that a path shares with the one before (version 4): the index is half as large.
    Shared,
}

/// About the bytes of an entry.
const ENTRY_BYTES: usize = 80;
/// Where the version and the number of entries are in the file.
const VERSION_AT: usize = 4;
const COUNT_AT: usize = 8;
/// The place of the first entry.
const ENTRIES_AT: usize = 12;
/// The bytes of the numbers of an entry.
const FIELDS_BYTES: usize = size_of::<EntryStat>();
/// The longest length that the flags of an entry tell.
const NAME_LEN_MAX: usize = 0xfff;
const IS_EXTENDED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
/// Of the extended flags: the file is not there by intention (sparse checkout).
const SKIP_WORKTREE: u16 = 0x4000;

/// An entry of an index (of git's cache), but its path.
#[derive(Clone, Copy, Debug)]
pub struct CacheEntry {
    /// The numbers before its id.
    pub stat: EntryStat,
    /// Its id.
    pub oid: Oid,
    flags: u16,
    extended: u16,
}

impl CacheEntry {
    /// Returns an entry without flags.
    pub fn new(stat: EntryStat, oid: Oid) -> CacheEntry {
        CacheEntry { stat, oid, flags: 0, extended: 0 }
    }

    /// Returns whether it is one side of an unfinished merge.
    pub fn is_unmerged(&self) -> bool {
        self.flags & STAGE != 0
    }

    /// Returns whether the file is not there by intention (sparse checkout).
    pub fn is_skipped(&self) -> bool {
        self.extended & SKIP_WORKTREE != 0
    }
}

/// An index that is read entry by entry.
pub struct IndexReader<'d> {
    hash: HashKind,
    version: u32,
    rest: &'d [u8],
    left: u32,
    /// The path of the entry that was read last.
    pub path: Vec<u8>,
    /// The bytes of that entry in the file.
    bytes: &'d [u8],
}

fn damaged(what: &'static str) -> Error {
    Error::DamagedIndex(what)
}

impl<'d> IndexReader<'d> {
    /// Returns how the paths are written.
    pub fn form(&self) -> PathForm {
        if self.version == 4 { PathForm::Shared } else { PathForm::Whole }
    }

    /// Begins to read the index `data`.
    ///
    /// # Errors
    /// If it is none, or of a version that git does not write.
    pub fn new(hash: HashKind, data: &'d [u8]) -> Result<IndexReader<'d>> {
        let mut rest = data.strip_prefix(b"DIRC").ok_or_else(|| damaged("it does not begin as one"))?;
        let version = number(&mut rest).ok_or_else(|| damaged("it is cut"))?;
        let left = number(&mut rest).ok_or_else(|| damaged("it is cut"))?;
        if !(2..=4).contains(&version) {
            return Err(damaged("its version is not known"));
        }
        let end = rest.len().checked_sub(hash.len()).ok_or_else(|| damaged("it is cut"))?;
        Ok(IndexReader { hash, version, rest: &rest[..end], left, path: Vec::new(), bytes: &[] })
    }

    /// Reads the next entry, and its path.
    ///
    /// # Errors
    /// If it is cut.
    pub fn next_entry(&mut self) -> Result<Option<CacheEntry>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.entry().ok_or_else(|| damaged("an entry is cut")).map(Some)
    }

    fn entry(&mut self) -> Option<CacheEntry> {
        let whole = self.rest;
        let (fields, rest) = self.rest.split_first_chunk::<FIELDS_BYTES>()?;
        let mut stat = [0; 10];
        for (field, bytes) in stat.iter_mut().zip(fields.as_chunks().0) {
            *field = u32::from_be_bytes(*bytes);
        }
        let (id, rest) = rest.split_at_checked(self.hash.len())?;
        self.rest = rest;
        let flags = short(&mut self.rest)?;
        let is_extended = flags & IS_EXTENDED != 0;
        let extended = if is_extended && self.version > 2 { short(&mut self.rest)? } else { 0 };
        let kept = match self.version {
            4 => self.path.len().checked_sub(varint(&mut self.rest)?)?,
            _ => 0,
        };
        let len = self.rest.iter().position(|byte| *byte == 0)?;
        self.path.truncate(kept);
        self.path.extend_from_slice(&self.rest[..len]);
        // Up to 8 NULs follow in old versions, so that entries are multiples of 8 bytes long.
        let used = whole.len() - self.rest.len() + len;
        let padding = if self.version == 4 { 1 } else { 8 - used % 8 };
        (self.bytes, self.rest) = whole.split_at_checked(used + padding)?;
        Some(CacheEntry { stat, oid: Oid::from_bytes(self.hash, id)?, flags, extended })
    }

    /// Returns the extensions behind the last entry that weir knows.
    ///
    /// # Errors
    /// If entries are elsewhere (split index), or stand for folders (sparse index).
    pub fn extensions(mut self) -> Result<IndexExtensions<'d>> {
        let mut known = IndexExtensions { trees: None, untracked: None, behind_untracked: 0 };
        while let Some((name, rest)) = self.rest.split_first_chunk::<4>() {
            self.rest = rest;
            let len = number(&mut self.rest).ok_or_else(|| damaged("an extension is cut"))? as usize;
            let (data, rest) =
                self.rest.split_at_checked(len).ok_or_else(|| damaged("an extension is cut"))?;
            self.rest = rest;
            match name {
                b"TREE" => known.trees = Some(data),
                b"UNTR" => (known.untracked, known.behind_untracked) = (Some(data), rest.len()),
                // One that must be understood has a small letter.
                [b'a'..=b'z', ..] => {
                    return Err(Error::SplitIndex);
                }
                _ => {}
            }
        }
        Ok(known)
    }
}

/// The extensions of an index that weir reads.
pub struct IndexExtensions<'d> {
    /// The cached trees.
    pub trees: Option<&'d [u8]>,
    /// The untracked cache.
    pub untracked: Option<&'d [u8]>,
    /// The bytes of extensions behind it.
    behind_untracked: usize,
}

/// Returns the whole index `data` for a workspace in another folder, where all is as the index says; `None`
/// if it cannot be read.
pub fn index_moved_to(hash: HashKind, data: &[u8], folder: &Path) -> Option<Vec<u8>> {
    let mut entries = IndexReader::new(hash, data).ok()?;
    while entries.next_entry().ok()?.is_some() {}
    let IndexExtensions { untracked, behind_untracked, .. } = entries.extensions().ok()?;
    let (untracked, content) = (untracked?, &data[..data.len() - hash.len()]);
    let (before, behind) = content.split_at(content.len() - behind_untracked);
    let before = &before[..before.len() - untracked.len() - 4];
    let moved = untracked::moved_to(folder, untracked)?;
    let mut index = Vec::with_capacity(data.len() + moved.len());
    let len = u32::try_from(moved.len()).ok()?.to_be_bytes();
    [before, &len, &moved, behind].iter().for_each(|part| index.extend_from_slice(part));
    let sum = checksum(hash, &index);
    index.extend_from_slice(sum.as_bytes());
    Some(index)
}

/// Returns whether `data` is an index that is not damaged.
pub fn is_whole_index(hash: HashKind, data: &[u8]) -> bool {
    let Some(end) = data.len().checked_sub(hash.len()) else { return false };
    let (content, told) = data.split_at(end);
    content.starts_with(b"DIRC") && checksum(hash, content).as_bytes() == told
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(u32::from_be_bytes(*bytes))
}

fn short(rest: &mut &[u8]) -> Option<u16> {
    let (bytes, after) = rest.split_first_chunk::<2>()?;
    *rest = after;
    Some(u16::from_be_bytes(*bytes))
}

/// An index that is being written.
pub struct IndexWriter {
    hash: HashKind,
    form: PathForm,
    /// Whether an entry has extended flags, which version 2 has not.
    is_extended: bool,
    /// The file so far, but for what was taken.
    index: Vec<u8>,
    /// Whether the number of entries was announced.
    is_announced: bool,
    /// The number of entries so far.
    pub count: u32,
    /// The path of the entry before.
    pub last: Vec<u8>,
    /// If that was copied: how many entries its reader had left.
    copied: Option<u32>,
    /// The numbers of the entries that may have changed.
    changed: Vec<u32>,
}

impl IndexWriter {
    /// Returns an index without entries.
    pub fn new(hash: HashKind, form: PathForm) -> IndexWriter {
        IndexWriter::new_in(hash, form, Vec::new())
    }

    /// Returns an index without entries, which is written to `buffer` in place of what is there.
    pub fn new_in(hash: HashKind, form: PathForm, buffer: Vec<u8>) -> IndexWriter {
        let mut index = buffer;
        index.clear();
        index.extend_from_slice(b"DIRC");
        // The version and the number of entries follow.
        index.extend_from_slice(&[0; 8]);
        let (last, changed) = (Vec::new(), Vec::new());
        IndexWriter {
            hash,
            form,
            is_extended: false,
            index,
            is_announced: false,
            count: 0,
            last,
            copied: None,
            changed,
        }
    }

    /// Returns the same entries with whole paths.
    pub fn with_whole_paths(self) -> Result<IndexWriter> {
        debug_assert_eq!(self.form, PathForm::Shared, "the paths are whole already");
        let rest = &self.index[ENTRIES_AT..];
        let mut entries =
            IndexReader { hash: self.hash, version: 4, rest, left: self.count, path: Vec::new(), bytes: &[] };
        let mut whole = IndexWriter::new(self.hash, PathForm::Whole);
        while let Some(entry) = entries.next_entry()? {
            whole.push(&entries.path, &entry, false)?;
        }
        Ok(IndexWriter { changed: self.changed, ..whole })
    }

    /// Says that there will be `count` entries, of which none has extended flags. What is written does not
    /// change any more then.
    pub fn announce(&mut self, count: u32) {
        self.write_head(count);
        self.is_announced = true;
    }

    fn write_head(&mut self, count: u32) {
        let version: u32 = match self.form {
            PathForm::Shared => 4,
            PathForm::Whole if self.is_extended => 3,
            PathForm::Whole => 2,
        };
        self.index[VERSION_AT..COUNT_AT].copy_from_slice(&version.to_be_bytes());
        self.index[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_be_bytes());
    }

    /// Returns the file so far, but for what was taken.
    pub fn content(&self) -> &[u8] {
        &self.index
    }

    /// Takes the file so far, after the number of entries was announced. What follows is written to `buffer`.
    pub(crate) fn take_content(&mut self, buffer: Vec<u8>) -> Vec<u8> {
        debug_assert!(self.is_announced, "the number of entries is in what is taken");
        debug_assert!(buffer.is_empty(), "it is the end of the file");
        std::mem::replace(&mut self.index, buffer)
    }

    /// Returns the file so far.
    pub(crate) fn into_content(self) -> Vec<u8> {
        self.index
    }

    /// Makes room for `count` entries.
    pub fn reserve(&mut self, count: usize) {
        self.reserve_bytes(count * ENTRY_BYTES);
    }

    /// Reserves memory for `bytes` more bytes of entries.
    pub fn reserve_bytes(&mut self, bytes: usize) {
        if self.index.capacity() - self.index.len() < bytes {
            self.index.reserve(bytes);
            populate(self.index.spare_capacity_mut());
        }
    }

    /// Adds an entry, the path of which is behind all others. `may_differ` says whether git is to look at the
    /// file.
    pub fn push(&mut self, path: &[u8], entry: &CacheEntry, may_differ: bool) -> Result<()> {
        if may_differ {
            self.changed.push(self.count);
        }
        let start = self.index.len();
        self.index.extend_from_slice(entry.stat.map(u32::to_be_bytes).as_flattened());
        self.index.extend_from_slice(entry.oid.as_bytes());
        let is_extended = entry.extended != 0;
        let kept = entry.flags & !(NAME_LEN_MAX as u16 | IS_EXTENDED);
        let flags = kept | path.len().min(NAME_LEN_MAX) as u16 | u16::from(is_extended) << 14;
        self.index.extend_from_slice(&flags.to_be_bytes());
        if is_extended {
            self.index.extend_from_slice(&entry.extended.to_be_bytes());
            self.is_extended = true;
        }
        match self.form {
            PathForm::Shared => {
                let shared = shared_len(path, &self.last);
                push_varint(&mut self.index, self.last.len() - shared);
                self.index.extend_from_slice(&path[shared..]);
                self.index.push(0);
            }
            PathForm::Whole => {
                self.index.extend_from_slice(path);
                // Up to 8 NULs.
                let used = self.index.len() - start;
                self.index.extend_from_slice(&[0; 8][used % 8..]);
            }
        }
        self.copied = None;
        self.end_entry(path)
    }

    /// Adds the `entry` that `entries` read last, which is of the same hash and form. The paths of all that
    /// are copied come from one reader.
    pub fn copy(&mut self, entries: &IndexReader<'_>, entry: &CacheEntry, may_differ: bool) -> Result<()> {
        debug_assert_eq!((entries.hash, entries.form()), (self.hash, self.form), "another form of index");
        let follows = match self.form {
            PathForm::Shared => self.copied == entries.left.checked_add(1),
            PathForm::Whole => true,
        };
        if !follows || entry.flags & IS_EXTENDED != 0 {
            self.push(&entries.path, entry, may_differ)?;
        } else {
            if may_differ {
                self.changed.push(self.count);
            }
            self.index.extend_from_slice(entries.bytes);
            self.end_entry(&entries.path)?;
        }
        self.copied = Some(entries.left);
        Ok(())
    }

    fn end_entry(&mut self, path: &[u8]) -> Result<()> {
        self.last.clear();
        self.last.extend_from_slice(path);
        self.count = self.count.checked_add(1).ok_or(Error::Full)?;
        Ok(())
    }

    /// Adds the entries of `other`, which are behind all others and have no extended flags. Both share paths.
    ///
    /// # Errors
    /// If the first of them is not behind the last.
    pub fn append(&mut self, other: &IndexWriter) -> Result<()> {
        let rest_at = self.append_path(other)?;
        self.index.extend_from_slice(&other.index[rest_at..]);
        Ok(())
    }

    /// Adds the first entry of `other` but for its end, and notes the others. Returns where the rest begins
    /// in the content of `other`, which is to follow as it is. As to the rest, it does as
    /// [`IndexWriter::append`].
    pub(crate) fn append_path(&mut self, other: &IndexWriter) -> Result<usize> {
        debug_assert_eq!([self.form, other.form], [PathForm::Shared; 2], "a path is whole");
        debug_assert!(!other.is_extended && self.hash == other.hash, "another form of entries");
        let entries = &other.index[ENTRIES_AT..];
        // The path of the first is whole there.
        let path_at = FIELDS_BYTES + self.hash.len() + size_of::<u16>() + 1;
        let Some((fields, path)) = entries.split_at_checked(path_at) else { return Ok(other.index.len()) };
        let len = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
        let path = &path[..len];
        if path <= &*self.last {
            return Err(Error::unusable(path, "is out of order"));
        }
        let shared = shared_len(path, &self.last);
        self.index.extend_from_slice(&fields[..path_at - 1]);
        push_varint(&mut self.index, self.last.len() - shared);
        self.index.extend_from_slice(&path[shared..]);
        self.changed.extend(other.changed.iter().map(|number| self.count + number));
        self.count = self.count.checked_add(other.count).ok_or(Error::Full)?;
        self.last.clone_from(&other.last);
        self.copied = None;
        Ok(ENTRIES_AT + path_at + len)
    }

    /// Returns the file, with the extensions of cached trees and of what is not tracked. With a `token`, git
    /// asks a monitor what has changed since then (fsmonitor), and looks at what may differ.
    ///
    /// # Errors
    /// If an extension is too long.
    pub fn finish(self, trees: &[u8], untracked: Option<&[u8]>, token: Option<&str>) -> Result<Vec<u8>> {
        let hash = self.hash;
        let mut index = self.finish_content(trees, untracked, token)?;
        let sum = checksum(hash, &index);
        index.extend_from_slice(sum.as_bytes());
        Ok(index)
    }

    /// Returns the file as [`IndexWriter::finish`] does, but without its checksum and what was taken.
    pub fn finish_content(
        mut self,
        trees: &[u8],
        untracked: Option<&[u8]>,
        token: Option<&str>,
    ) -> Result<Vec<u8>> {
        if !self.is_announced {
            self.write_head(self.count);
        }
        let mut index = self.index;
        let mut extension = |name: &[u8; 4], data: &[u8]| -> Result<()> {
            index.extend_from_slice(name);
            index.extend_from_slice(&u32::try_from(data.len()).map_err(|_| Error::Full)?.to_be_bytes());
            index.extend_from_slice(data);
            Ok(())
        };
        extension(b"TREE", trees)?;
        if let Some(untracked) = untracked {
            extension(b"UNTR", untracked)?;
        }
        if let Some(token) = token {
            let bitmap = ewah(&self.changed);
            let size = (bitmap.len() as u32).to_be_bytes();
            extension(b"FSMN", &[&2u32.to_be_bytes()[..], token.as_bytes(), b"\0", &size, &bitmap].concat())?;
        }
        Ok(index)
    }
}

/// Returns the checksum of the index `content`.
pub(crate) fn checksum(hash: HashKind, content: &[u8]) -> Oid {
    let mut sum = plain_sha(hash);
    sum.update(content);
    sum.finish()
}

/// Returns how many bytes both begin with alike.
fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).take_while(|(a, b)| a == b).count();
    let from = blocks * 8;
    from + a[from..].iter().zip(&b[from..]).take_while(|(a, b)| a == b).count()
}

/// Reads the index `data`, writes it as a switch does, and reads the result. The fuzzers call it.
///
/// # Panics
/// If what was written is not what was read.
#[doc(hidden)]
pub fn rewrite_index(hash: HashKind, data: &[u8]) -> Result<Vec<u8>> {
    let mut entries = IndexReader::new(hash, data)?;
    let mut writer = IndexWriter::new(hash, entries.form());
    let mut paths = Vec::new();
    for n in 0_u32.. {
        let Some(entry) = entries.next_entry()? else { break };
        let may_differ = entry.stat[MODE] % 2 == 1;
        match n % 5 {
            4 => continue,
            2 => writer.push(&entries.path, &entry, may_differ)?,
            _ => writer.copy(&entries, &entry, may_differ)?,
        }
        paths.push(entries.path.clone());
    }
    let known = entries.extensions()?;
    let mut files: Vec<(&[u8], i64)> = paths.iter().step_by(2).map(|path| (path.as_slice(), -1)).collect();
    files.sort_unstable();
    let changes = IndexChanges { files: &files, folders: &BTreeMap::new() };
    let trees = changes.apply(hash, known.trees.unwrap_or_default()).unwrap_or_default();
    let written = writer.finish(&trees, known.untracked, Some("weir:1:2"))?;
    assert!(is_whole_index(hash, &written));
    let mut again = IndexReader::new(hash, &written)?;
    for path in &paths {
        assert!(again.next_entry()?.is_some());
        assert_eq!(&again.path, path);
    }
    assert!(again.next_entry()?.is_none());
    assert_eq!(again.extensions()?.untracked, known.untracked);
    if let Some(moved) = index_moved_to(hash, &written, Path::new("/elsewhere")) {
        assert!(is_whole_index(hash, &moved));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::untracked::UntrackedFolders;

    #[test]
    fn copied_entries_are_as_if_they_were_added() {
        let oid = Oid::from_bytes(HashKind::Sha1, &[7; 20]).unwrap();
        let paths = ["a", "a/b", "a/bc/d", "a/bc/e", "a/bd", "b", "b/c", "b/cd"];
        for (form, is_extended) in
            [(PathForm::Shared, false), (PathForm::Whole, false), (PathForm::Whole, true)]
        {
            let extended = if is_extended { 0x2000 } else { 0 };
            let entry = CacheEntry { extended, ..CacheEntry::new([5; 10], oid) };
            let mut writer = IndexWriter::new(HashKind::Sha1, form);
            paths.iter().for_each(|path| writer.push(path.as_bytes(), &entry, false).unwrap());
            let whole = writer.finish(b"", None, None).unwrap();
            // Each bit says whether an entry is copied, added or left out.
            for (copied, left) in
                (0..1 << paths.len()).flat_map(|bits| [(bits, 0), (bits, !bits), (!0, bits)])
            {
                let mut entries = IndexReader::new(HashKind::Sha1, &whole).unwrap();
                let [mut copies, mut added] = [(); 2].map(|()| IndexWriter::new(HashKind::Sha1, form));
                for n in 0..paths.len() {
                    let entry = entries.next_entry().unwrap().unwrap();
                    if left & (1 << n) != 0 {
                        continue;
                    }
                    added.push(&entries.path, &entry, n % 2 == 0).unwrap();
                    match copied & (1 << n) {
                        0 => copies.push(&entries.path, &entry, n % 2 == 0).unwrap(),
                        _ => copies.copy(&entries, &entry, n % 2 == 0).unwrap(),
                    }
                }
                let [copies, added] =
                    [copies, added].map(|writer| writer.finish(b"", None, Some("t")).unwrap());
                assert_eq!(copies, added, "{copied:b} {left:b}");
            }
        }
    }

    #[test]
    fn appended_entries_are_as_if_they_were_added_one_by_one() {
        let oid = Oid::from_bytes(HashKind::Sha256, &[7; 32]).unwrap();
        let written = |paths: &[&str]| {
            let mut writer = IndexWriter::new(HashKind::Sha256, PathForm::Shared);
            for path in paths {
                writer.push(path.as_bytes(), &CacheEntry::new([5; 10], oid), path.ends_with('!')).unwrap();
            }
            writer
        };
        let mut parts = written(&["a", "b/c!"]);
        for part in [&["b/d/e", "b/d/f!", "b/d/g/h"][..], &[], &["b/dd/e!"]] {
            parts.append(&written(part)).unwrap();
        }
        assert!(parts.append(&written(&["b/dd/e!"])).is_err());
        let whole = written(&["a", "b/c!", "b/d/e", "b/d/f!", "b/d/g/h", "b/dd/e!"]);
        assert_eq!(
            parts.finish(b"", None, Some("weir:1:2")).unwrap(),
            whole.finish(b"", None, Some("weir:1:2")).unwrap()
        );
        let mut none = written(&[]);
        none.append(&written(&["a!", "b"])).unwrap();
        let whole = written(&["a!", "b"]).finish(b"", None, Some("weir:1:2")).unwrap();
        assert_eq!(none.finish(b"", None, Some("weir:1:2")).unwrap(), whole);
    }

    #[test]
    fn a_cut_index_is_an_error() {
        let oid = Oid::from_bytes(HashKind::Sha1, &[7; 20]).unwrap();
        let mut writer = IndexWriter::new(HashKind::Sha1, PathForm::Shared);
        for path in ["a", "b/c", "b/d"] {
            writer.push(path.as_bytes(), &CacheEntry::new([5; 10], oid), path == "b/c").unwrap();
        }
        let trees = [&b"\x003 1\n"[..], &[1; 20], b"b\x002 0\n", &[2; 20]].concat();
        let folder = Path::new("/a/workspace");
        let stat = [3; 9];
        let below = UntrackedFolders::of(b"b", &stat, Some(oid), Vec::new());
        let untracked = UntrackedFolders::of(b"", &stat, None, vec![below]);
        let untracked = untracked.extension(HashKind::Sha1, folder, Some(b"*.o\n"));
        let index = writer.finish(&trees, Some(&untracked), Some("weir:1:2")).unwrap();
        type Read = (Vec<Vec<u8>>, Option<Vec<u8>>);
        let read = |data: &[u8]| -> Result<Read> {
            let mut reader = IndexReader::new(HashKind::Sha1, data)?;
            let mut paths = Vec::new();
            while reader.next_entry()?.is_some() {
                paths.push(reader.path.clone());
            }
            Ok((paths, reader.extensions()?.trees.map(<[u8]>::to_vec)))
        };
        let (paths, kept) = read(&index).unwrap();
        assert_eq!(paths, [&b"a"[..], b"b/c", b"b/d"]);
        assert_eq!(kept.unwrap(), trees);
        let other = Path::new("/other");
        let moved = index_moved_to(HashKind::Sha1, &index, other).unwrap();
        assert!(is_whole_index(HashKind::Sha1, &moved));
        assert!(moved.windows(32).any(|part| part == b"Location /other, system Linux\0\0\0"));
        assert_eq!(index_moved_to(HashKind::Sha1, &moved, folder).unwrap(), index);
        assert_eq!(read(&moved).unwrap(), read(&index).unwrap());
        let again = rewrite_index(HashKind::Sha1, &index).unwrap();
        assert_eq!(read(&again).unwrap().0, paths);
        let mut whole = IndexWriter::new(HashKind::Sha1, PathForm::Shared);
        for path in ["a", "b/c", "b/d"] {
            whole.push(path.as_bytes(), &CacheEntry::new([5; 10], oid), path == "b/c").unwrap();
        }
        let whole =
            whole.with_whole_paths().unwrap().finish(&trees, Some(&untracked), Some("weir:1:2")).unwrap();
        assert_eq!(whole[VERSION_AT..COUNT_AT], 2_u32.to_be_bytes());
        // An entry has 62 bytes before its path; it is padded, or tells what is shared and ends with a NUL.
        assert_eq!(whole.len() - index.len(), (64 + 72 + 72) - (65 + 67 + 65));
        assert_eq!(read(&whole).unwrap(), read(&index).unwrap());
        assert_eq!(rewrite_index(HashKind::Sha1, &whole).unwrap()[..COUNT_AT], whole[..COUNT_AT]);
        let moved = index_moved_to(HashKind::Sha1, &whole, other).unwrap();
        assert_eq!(index_moved_to(HashKind::Sha1, &moved, folder).unwrap(), whole);
        for end in 0..index.len() {
            let _ = (read(&index[..end]), index_moved_to(HashKind::Sha1, &index[..end], other));
            let _ = rewrite_index(HashKind::Sha1, &index[..end]);
        }
    }
}
