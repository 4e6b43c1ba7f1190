//! The index of a commit's files (gitformat-index, version 4), made without looking at a work tree: what git
//! would write after a checkout, since the times and sizes of a view are known.

use nix::unistd::{Gid, Uid};
use weir_git::{HashKind, Kind, Oid, TreeIter, plain_sha};
use weir_repo::{ObjectReader, Repo};

use crate::error::{Error, Result};
use crate::tree::{PATH_HASH_START, is_name, path_hash};

/// Trees in each other. git's own limit (core.maxTreeDepth) is 2048.
const DEPTH_MAX: usize = 2048;
/// The longest length that the flags of an entry tell.
const NAME_LEN_MAX: usize = 0xfff;

/// An index that is being written.
struct IndexWriter<'r> {
    hash: HashKind,
    reader: ObjectReader<'r>,
    /// The time of all files, in seconds since 1970; the field has 32 bits.
    time: u32,
    /// The user and the group of all files.
    owner: [u32; 2],
    entries: Vec<u8>,
    count: u32,
    /// The path of the entry before.
    last: Vec<u8>,
    /// The first file of attributes by which git would check out other bytes than are stored.
    converts: Option<Vec<u8>>,
}

/// The index of a commit.
pub(crate) struct CommitIndex {
    /// The file.
    pub(crate) data: Vec<u8>,
    /// The first file of attributes by which git would check out other bytes than are stored.
    pub(crate) converts: Option<String>,
}

/// Returns the index of the files below the tree `top`, all of which have the time `time`, in seconds since
/// 1970. None has changed as of `token` (fsmonitor).
///
/// # Errors
/// If an object is missing or corrupt, or git would not check the tree out.
pub(crate) fn index_of(repo: &Repo, top: &Oid, time: u64, token: &str) -> Result<CommitIndex> {
    let mut writer = IndexWriter {
        hash: repo.hash(),
        reader: repo.reader(),
        time: time as u32,
        owner: [Uid::current().as_raw(), Gid::current().as_raw()],
        entries: Vec::new(),
        count: 0,
        last: Vec::new(),
        converts: None,
    };
    let trees = writer.tree(top, b"", &mut Vec::new(), 0)?;
    let mut index = [&b"DIRC"[..], &4u32.to_be_bytes(), &writer.count.to_be_bytes()].concat();
    index.append(&mut writer.entries);
    index.extend_from_slice(b"TREE");
    index.extend_from_slice(&u32::try_from(trees.len()).map_err(|_| Error::Full)?.to_be_bytes());
    index.extend_from_slice(&trees);
    // Version 2, the token, and an empty bitmap of files that may have changed: of 0 bits in 1 word.
    let monitored =
        [&2u32.to_be_bytes()[..], token.as_bytes(), b"\0", &20u32.to_be_bytes(), &[0; 7], &[1], &[0; 12]];
    let monitored = monitored.concat();
    index.extend_from_slice(b"FSMN");
    index.extend_from_slice(&(monitored.len() as u32).to_be_bytes());
    index.extend_from_slice(&monitored);
    let mut sum = plain_sha(repo.hash());
    sum.update(&index);
    index.extend_from_slice(sum.finish().as_bytes());
    let converts = writer.converts.map(|path| String::from_utf8_lossy(&path).into_owned());
    Ok(CommitIndex { data: index, converts })
}

impl IndexWriter<'_> {
    /// Adds all files below the tree `oid`, which is called `name` and is at `path` (with a slash at its
    /// end). Returns its part of the extension "TREE".
    fn tree(&mut self, oid: &Oid, name: &[u8], path: &mut Vec<u8>, depth: usize) -> Result<Vec<u8>> {
        let odd = |path: &[u8], what: &str| {
            Error::Odd(format!("git checks out no tree in which '{}' {what}", String::from_utf8_lossy(path)))
        };
        if depth > DEPTH_MAX {
            return Err(odd(path, "is so deep"));
        }
        let object = self.reader.require(oid)?;
        if object.kind != Kind::Tree {
            return Err(Error::NotAFolder);
        }
        let (before, len) = (self.count, path.len());
        let mut children: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for entry in TreeIter::new(self.hash, &object.data) {
            let entry = entry.map_err(|source| weir_repo::Error::Object { oid: *oid, source })?;
            path.extend_from_slice(entry.name);
            if !is_name(entry.name) {
                return Err(odd(path, "is a name"));
            }
            let id = Oid::from_bytes(self.hash, entry.id).expect("entries have ids of the hash");
            if entry.is_tree() {
                path.push(b'/');
                let child = self.tree(&id, entry.name, path, depth + 1)?;
                children.push((entry.name.to_vec(), child));
            } else {
                if *path <= self.last {
                    return Err(odd(path, "is out of order"));
                }
                if entry.name == b".gitattributes" && self.converts.is_none() {
                    let asks = self.reader.read(&id)?.is_some_and(|object| asks_to_convert(&object.data));
                    self.converts = asks.then(|| path.clone());
                }
                self.file(path, entry.mode, &id)?;
            }
            path.truncate(len);
        }
        // As git sorts them (subtree_name_cmp): the shorter name first.
        children.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
        let counts = format!("{} {}\n", self.count - before, children.len());
        let mut part = [name, b"\0", counts.as_bytes(), oid.as_bytes()].concat();
        children.iter().for_each(|(_, child)| part.extend_from_slice(child));
        Ok(part)
    }

    fn file(&mut self, path: &[u8], mode: u32, oid: &Oid) -> Result<()> {
        let (mode, size) = match mode & 0o170_000 {
            0o160_000 => (0o160_000, 0),
            kind => {
                let (of, size) = self.reader.kind_and_size(oid)?.ok_or(weir_repo::Error::Missing(*oid))?;
                if of != Kind::Blob {
                    return Err(Error::NotAFile);
                }
                let executable = if mode & 0o100 != 0 { 0o100_755 } else { 0o100_644 };
                (if kind == 0o120_000 { kind } else { executable }, size)
            }
        };
        // Seconds and nanoseconds of the changes of inode and content; device, which git does not compare,
        // and inode; mode; owner, group; size.
        let (inode, [user, group]) = (path_hash(PATH_HASH_START, path), self.owner);
        for field in [self.time, 0, self.time, 0, 0, inode, mode, user, group, size as u32] {
            self.entries.extend_from_slice(&field.to_be_bytes());
        }
        self.entries.extend_from_slice(oid.as_bytes());
        self.entries.extend_from_slice(&(path.len().min(NAME_LEN_MAX) as u16).to_be_bytes());
        let shared = path.iter().zip(&self.last).take_while(|(a, b)| a == b).count();
        push_varint(&mut self.entries, self.last.len() - shared);
        self.entries.extend_from_slice(&path[shared..]);
        self.entries.push(0);
        self.last.clear();
        self.last.extend_from_slice(path);
        self.count = self.count.checked_add(1).ok_or(Error::Full)?;
        Ok(())
    }
}

/// Returns whether a file of attributes (gitattributes(5)) asks git to check out other bytes than are stored.
fn asks_to_convert(attributes: &[u8]) -> bool {
    let lines = attributes.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
    let words = lines.flat_map(|line| line.split(u8::is_ascii_whitespace).skip(1));
    let mut asking = words.filter(|word| {
        matches!(*word, b"eol=crlf" | b"ident" | b"crlf=input")
            || word.starts_with(b"working-tree-encoding=")
            || word.starts_with(b"filter=")
    });
    asking.next().is_some()
}

/// Appends a number as the index has it (varint.c of git: as the offsets of deltas).
fn push_varint(out: &mut Vec<u8>, number: usize) {
    let mut bytes = vec![(number & 0x7f) as u8];
    let mut rest = number >> 7;
    while rest > 0 {
        rest -= 1;
        bytes.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.extend(bytes.iter().rev());
}
