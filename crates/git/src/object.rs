//! The links of an object: just enough parsing for reachability, on untrusted bytes.

use memchr::memchr;

use crate::{HashKind, Oid};

/// The four kinds of object, with their numbers in a pack entry (gitformat-pack).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A commit.
    Commit = 1,
    /// A tree.
    Tree = 2,
    /// A blob.
    Blob = 3,
    /// An annotated tag.
    Tag = 4,
}

impl Kind {
    /// `commit`, `tree`, `blob` or `tag`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Commit => "commit",
            Kind::Tree => "tree",
            Kind::Blob => "blob",
            Kind::Tag => "tag",
        }
    }

    /// Returns the kind called `name`.
    pub fn from_name(name: &[u8]) -> Option<Kind> {
        match name {
            b"commit" => Some(Kind::Commit),
            b"tree" => Some(Kind::Tree),
            b"blob" => Some(Kind::Blob),
            b"tag" => Some(Kind::Tag),
            _ => None,
        }
    }

    /// Returns the kind with this number in a pack entry; deltas (6 and 7) are not kinds.
    pub const fn from_pack_type(n: u8) -> Option<Kind> {
        match n {
            1 => Some(Kind::Commit),
            2 => Some(Kind::Tree),
            3 => Some(Kind::Blob),
            4 => Some(Kind::Tag),
            _ => None,
        }
    }
}

/// An object that cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// A commit without a well-formed `tree` line.
    #[error("malformed commit: no valid 'tree' line")]
    CommitTree,
    /// A commit with a malformed `parent` line.
    #[error("malformed commit: bad 'parent' line")]
    CommitParent,
    /// A tree cut off inside an entry, or with a malformed mode.
    #[error("malformed tree entry")]
    TreeEntry,
    /// A tag without well-formed `object` and `type` lines.
    #[error("malformed tag: no valid 'object' and 'type' lines")]
    Tag,
}

/// The ids a commit names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitLinks {
    /// Its tree.
    pub tree: Oid,
    /// Its parents, in order.
    pub parents: Vec<Oid>,
}

/// Parses the head of a commit.
///
/// # Errors
/// If the `tree` line or a `parent` line is malformed.
pub fn commit_links(hash: HashKind, data: &[u8]) -> Result<CommitLinks, ObjectError> {
    let hex = hash.hex_len();
    let tree = data
        .strip_prefix(b"tree ")
        .filter(|d| d.get(hex) == Some(&b'\n'))
        .and_then(|d| Oid::from_hex(hash, &d[..hex]))
        .ok_or(ObjectError::CommitTree)?;
    let mut rest = &data[5 + hex + 1..];
    let mut parents = Vec::new();
    while let Some(line) = rest.strip_prefix(b"parent ") {
        if line.get(hex) != Some(&b'\n') {
            return Err(ObjectError::CommitParent);
        }
        parents.push(Oid::from_hex(hash, &line[..hex]).ok_or(ObjectError::CommitParent)?);
        rest = &line[hex + 1..];
    }
    Ok(CommitLinks { tree, parents })
}

/// Returns the committer's time of a commit in seconds since 1970, or 0, as git does, if it cannot be read.
pub fn commit_time(data: &[u8]) -> u64 {
    let mut rest = data;
    while let Some(end) = memchr(b'\n', rest) {
        let line = &rest[..end];
        if line.is_empty() {
            break;
        }
        if let Some(who) = line.strip_prefix(b"committer ") {
            let after = who.iter().rposition(|&c| c == b'>').map_or(&b""[..], |p| &who[p + 1..]);
            let digits = after.trim_ascii_start();
            let mut time = 0u64;
            for c in digits.iter().take_while(|c| c.is_ascii_digit()) {
                time = time.saturating_mul(10).saturating_add(u64::from(c - b'0'));
            }
            return time;
        }
        rest = &rest[end + 1..];
    }
    0
}

/// One entry of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeEntry<'a> {
    /// The mode as its octal number, for example `0o100644`.
    pub mode: u32,
    /// The file name's bytes; any but `/` and NUL.
    pub name: &'a [u8],
    /// The raw id.
    pub id: &'a [u8],
}

impl TreeEntry<'_> {
    /// Whether this names a subtree.
    pub fn is_tree(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    /// Whether this names a commit of another repository (a submodule), which is never in this one.
    pub fn is_gitlink(&self) -> bool {
        self.mode & 0o170_000 == 0o160_000
    }
}

/// Iterates over the entries of a tree; ends after the first error.
pub struct TreeIter<'a> {
    rest: &'a [u8],
    id_len: usize,
}

impl<'a> TreeIter<'a> {
    /// Iterates over `data`, the content of a tree.
    pub fn new(hash: HashKind, data: &'a [u8]) -> TreeIter<'a> {
        TreeIter { rest: data, id_len: hash.len() }
    }

    /// Returns what follows the entries that were iterated over; nothing after an error.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for TreeIter<'a> {
    type Item = Result<TreeEntry<'a>, ObjectError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let d = self.rest;
        self.rest = &[];
        let mut mode = 0u32;
        let mut p = 0;
        loop {
            match d.get(p) {
                Some(c @ b'0'..=b'7') if p < 8 => mode = (mode << 3) | u32::from(c - b'0'),
                Some(b' ') if p > 0 => break,
                _ => return Some(Err(ObjectError::TreeEntry)),
            }
            p += 1;
        }
        let name_start = p + 1;
        let Some(name_len) = first_nul(&d[name_start..]) else { return Some(Err(ObjectError::TreeEntry)) };
        let id_start = name_start + name_len + 1;
        let id_end = id_start + self.id_len;
        if id_end > d.len() || name_len == 0 {
            return Some(Err(ObjectError::TreeEntry));
        }
        self.rest = &d[id_end..];
        Some(Ok(TreeEntry { mode, name: &d[name_start..name_start + name_len], id: &d[id_start..id_end] }))
    }
}

/// Returns the length of the entry at the start of a tree's content; `None` if the entry is cut off.
#[inline]
pub fn tree_entry_len(hash: HashKind, data: &[u8]) -> Option<usize> {
    Some(first_nul(data)? + 1 + hash.len()).filter(|n| *n <= data.len())
}

/// Returns where the first NUL is. Names are short: eight bytes at a time, inlined, beat a vectorised search.
#[inline]
fn first_nul(data: &[u8]) -> Option<usize> {
    for (n, eight) in data.as_chunks::<8>().0.iter().enumerate() {
        let word = u64::from_le_bytes(*eight);
        // The lowest bit that is set here belongs to the first zero byte.
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        if zeros != 0 {
            return Some(n * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    let tail = data.len() - data.len() % 8;
    Some(tail + data[tail..].iter().position(|&b| b == 0)?)
}

/// Returns the object that an annotated tag points at, and its kind.
///
/// # Errors
/// If the `object` or the `type` line is malformed.
pub fn tag_target(hash: HashKind, data: &[u8]) -> Result<(Oid, Kind), ObjectError> {
    let hex = hash.hex_len();
    let rest =
        data.strip_prefix(b"object ").filter(|d| d.get(hex) == Some(&b'\n')).ok_or(ObjectError::Tag)?;
    let oid = Oid::from_hex(hash, &rest[..hex]).ok_or(ObjectError::Tag)?;
    let line = rest[hex + 1..].strip_prefix(b"type ").ok_or(ObjectError::Tag)?;
    let end = memchr(b'\n', line).ok_or(ObjectError::Tag)?;
    Ok((oid, Kind::from_name(&line[..end]).ok_or(ObjectError::Tag)?))
}

/// Calls `link` with every raw id that an object names and that must be in the same repository.
///
/// # Errors
/// If the object cannot be parsed.
pub fn link_targets(
    hash: HashKind,
    kind: Kind,
    data: &[u8],
    mut link: impl FnMut(&[u8]),
) -> Result<(), ObjectError> {
    match kind {
        Kind::Blob => {}
        Kind::Tree => {
            for entry in TreeIter::new(hash, data) {
                let entry = entry?;
                if !entry.is_gitlink() {
                    link(entry.id);
                }
            }
        }
        Kind::Commit => {
            let links = commit_links(hash, data)?;
            link(links.tree.as_bytes());
            for p in &links.parents {
                link(p.as_bytes());
            }
        }
        Kind::Tag => link(tag_target(hash, data)?.0.as_bytes()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_any_bytes_end() {
        let mut ok = b"100644 a\0".to_vec();
        ok.extend([7; 20]);
        let entries: Vec<_> = TreeIter::new(HashKind::Sha1, &ok).collect();
        assert_eq!(entries, [Ok(TreeEntry { mode: 0o100_644, name: b"a", id: &[7; 20] })]);
        for bad in [&ok[..ok.len() - 1], b"100644 a", b"9 a\0", b" a\0", b"777777777 a\0", b"100644"] {
            assert!(TreeIter::new(HashKind::Sha1, bad).any(|e| e.is_err()), "{bad:?}");
        }
    }

    #[test]
    fn the_first_nul_is_found() {
        for len in 0..40 {
            assert_eq!(first_nul(&vec![1; len]), None);
            for at in 0..len {
                let mut data = vec![0x80u8; len];
                data[at..].fill(1);
                data[at] = 0;
                data[len - 1] = 0;
                assert_eq!(first_nul(&data), Some(at), "{at} of {len}");
            }
        }
    }

    #[test]
    fn commit_heads() {
        let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let text =
            format!("tree {tree}\nparent {tree}\nauthor a <b> 1 +0000\ncommitter x > <y> 123 +0200\n\nm");
        let links = commit_links(HashKind::Sha1, text.as_bytes()).unwrap();
        assert_eq!((links.tree.to_hex().as_str(), links.parents.len()), (tree, 1));
        assert_eq!(commit_time(text.as_bytes()), 123);
        assert_eq!(commit_links(HashKind::Sha1, b"tree 12"), Err(ObjectError::CommitTree));
        let cut = format!("tree {tree}\nparent {}\n", &tree[1..]);
        assert_eq!(commit_links(HashKind::Sha1, cut.as_bytes()), Err(ObjectError::CommitParent));
    }
}
