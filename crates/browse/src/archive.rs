//! Archives of a tree, written file by file, equal to those of `git archive`.

use std::io::{self, Write};

use time::OffsetDateTime;
use weir_git::{Kind, Oid, TreeIter};
use weir_repo::{ObjectReader, Repo};
use zip::result::ZipError;
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::archive_paths::{ArchivePaths, DEPTH_MAX, PathMatch};
use crate::error::{Error, Result};
use crate::tar_header::{RECORD_BYTES, TarMember, global_header, headers};
use weir_worktree::{PathAttributes, TreeAttributes, is_path_part, with_ident, with_line_ends};

/// The longest name of a member of a zip in bytes: its whole header has at most 64 KiB.
const NAME_BYTES_MAX: usize = 65_000;
/// Bytes of a block of a tar: its end is padded with zeroes.
const BLOCK_BYTES: u64 = 10_240;
const _: () = assert!(BLOCK_BYTES.is_multiple_of(512), "a block has whole records");
/// The permissions that are taken away (git-config, `tar.umask`).
const UMASK: u32 = 0o002;

/// A tree of which an archive is made.
#[derive(Clone, Debug)]
pub struct TreeArchive {
    /// The tree.
    pub tree: Oid,
    /// The commit that it belongs to.
    pub commit: Option<Oid>,
    /// The prefix of all paths; a folder ends with a slash.
    pub prefix: Vec<u8>,
    /// The time of all files, in seconds since 1970.
    pub time: u64,
    /// The paths that it holds.
    pub paths: ArchivePaths,
    /// How hard it is compressed, from 0 to 9.
    pub level: Option<u32>,
}

/// Takes the members of an archive.
trait MemberWriter {
    /// Takes a folder, whose path ends with a slash.
    fn folder(&mut self, path: &[u8], oid: &Oid) -> Result<()>;
    /// Takes a file.
    fn file(&mut self, path: &[u8], oid: &Oid, is_executable: bool, data: &[u8]) -> Result<()>;
    /// Takes a symbolic link.
    fn link(&mut self, path: &[u8], oid: &Oid, target: &[u8]) -> Result<()>;
}

/// Writes a tar of `archive`, as `git archive --format=tar` does.
///
/// # Errors
/// If an object is missing or corrupt, or `out` fails.
pub(crate) fn write_tar(repo: &Repo, archive: &TreeArchive, out: &mut dyn Write) -> Result<()> {
    let mut tar = TarWriter { out, time: archive.time, written: 0 };
    if let Some(commit) = archive.commit {
        tar.put(&global_header(&commit.to_string(), archive.time))?;
    }
    write_members(repo, archive, &mut tar)?;
    tar.end()
}

/// Writes a zip file of `archive`, compressed as hard as `level` says.
///
/// # Errors
/// If an object is missing or corrupt, or `out` fails.
pub(crate) fn write_zip(repo: &Repo, archive: &TreeArchive, level: u32, out: &mut dyn Write) -> Result<()> {
    let time = zip_time(archive.time);
    let mut zip = ZipFileWriter { zip: ZipWriter::new_stream(out), time, level: level.into() };
    if let Some(commit) = archive.commit {
        zip.zip.set_comment(commit.to_string()).map_err(io::Error::other)?;
    }
    write_members(repo, archive, &mut zip)?;
    zip.zip.finish().map_err(io::Error::from)?.flush()?;
    Ok(())
}

fn write_members(repo: &Repo, archive: &TreeArchive, out: &mut dyn MemberWriter) -> Result<()> {
    if archive.prefix.ends_with(b"/") {
        out.folder(&archive.prefix, &archive.tree)?;
    }
    let mut walk = ArchiveWalk {
        repo,
        reader: repo.reader(),
        prefix: &archive.prefix,
        paths: &archive.paths,
        attributes: TreeAttributes::new(),
        waiting: Vec::new(),
        out,
    };
    walk.folder(&archive.tree, &mut Vec::new(), 0)
}

struct ArchiveWalk<'w> {
    repo: &'w Repo,
    reader: ObjectReader<'w>,
    prefix: &'w [u8],
    paths: &'w ArchivePaths,
    attributes: TreeAttributes,
    /// Folders that are written when a file in them is met: git leaves out those without any.
    waiting: Vec<(Vec<u8>, Oid)>,
    out: &'w mut dyn MemberWriter,
}

impl ArchiveWalk<'_> {
    fn folder(&mut self, oid: &Oid, path: &mut Vec<u8>, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(Error::WrongKind("the tree is too deep".to_owned()));
        }
        let hash = self.repo.hash();
        let object = self.reader.require(oid)?;
        if object.kind != Kind::Tree {
            return Err(Error::WrongKind(format!("object {oid} is no tree")));
        }
        let id = |entry: &weir_git::TreeEntry<'_>| {
            Oid::from_bytes(hash, entry.id).expect("ids of entries are ids")
        };
        let entries = || TreeIter::new(hash, &object.data);
        let attributes = entries().filter_map(std::result::Result::ok).find(|e| e.name == b".gitattributes");
        let attributes = attributes.filter(|entry| !entry.is_tree() && !entry.is_gitlink());
        let has_attributes = match attributes {
            Some(entry) => self.attributes.enter(path, &self.reader.require(&id(&entry))?.data),
            None => false,
        };
        let len = path.len();
        for entry in entries() {
            let entry = entry.map_err(Error::of_object(oid))?;
            path.extend_from_slice(entry.name);
            // Whoever unpacks the archive must not write elsewhere. git makes none of such a tree either.
            if !is_path_part(entry.name) {
                let path = String::from_utf8_lossy(path);
                return Err(Error::WrongKind(format!("no archive is made of a tree with '{path}' in it")));
            }
            let is_folder = entry.is_tree() || entry.is_gitlink();
            let attributes = self.attributes.of(path, is_folder);
            let is_named = self.paths.name(path, entry.is_tree()) != PathMatch::No;
            if is_named && !entry.is_tree() {
                // As git does, even if the file itself is left out.
                self.write_waiting()?;
            }
            if is_named && !attributes.is_left_out {
                self.entry(entry.mode, &id(&entry), attributes, path, depth)?;
            }
            path.truncate(len);
        }
        if has_attributes {
            self.attributes.leave();
        }
        Ok(())
    }

    fn entry(
        &mut self,
        mode: u32,
        oid: &Oid,
        attributes: PathAttributes,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<()> {
        let whole = |path: &[u8]| [self.prefix, path].concat();
        match mode & 0o170_000 {
            0o040_000 => {
                path.push(b'/');
                let waiting = self.waiting.len();
                self.waiting.push((whole(path), *oid));
                self.folder(oid, path, depth + 1)?;
                self.waiting.truncate(waiting);
                Ok(())
            }
            0o160_000 => {
                path.push(b'/');
                let path = whole(path);
                self.out.folder(&path, oid)
            }
            sort => {
                let path = whole(path);
                let object = self.reader.require(oid)?;
                match sort {
                    0o120_000 => self.out.link(&path, oid, &object.data),
                    _ => {
                        let ident = if attributes.has_ident { with_ident(&object.data, oid) } else { None };
                        let data = ident.as_deref().unwrap_or(&object.data);
                        let ends = with_line_ends(data, attributes.line_ends);
                        self.out.file(&path, oid, mode & 0o100 != 0, ends.as_deref().unwrap_or(data))
                    }
                }
            }
        }
    }

    fn write_waiting(&mut self) -> Result<()> {
        for (path, oid) in self.waiting.drain(..) {
            self.out.folder(&path, &oid)?;
        }
        Ok(())
    }
}

struct TarWriter<'o> {
    out: &'o mut dyn Write,
    time: u64,
    written: u64,
}

impl TarWriter<'_> {
    fn put(&mut self, data: &[u8]) -> Result<()> {
        self.out.write_all(data)?;
        self.written += data.len() as u64;
        Ok(())
    }

    fn member(&mut self, path: &[u8], oid: &Oid, kind: u8, mode: u32, data: &[u8]) -> Result<()> {
        let (size, target) = if kind == b'2' { (0, data) } else { (data.len() as u64, &b""[..]) };
        let id = oid.to_string();
        self.put(&headers(&TarMember { path, mode, kind, size, target, time: self.time, id: &id }))?;
        if kind == b'0' {
            self.put(data)?;
            self.put(&[0; RECORD_BYTES][..data.len().next_multiple_of(RECORD_BYTES) - data.len()])?;
        }
        Ok(())
    }

    /// Writes the end: zeroes up to a whole block, two records at least.
    fn end(mut self) -> Result<()> {
        let tail = BLOCK_BYTES - self.written % BLOCK_BYTES;
        let tail = if tail < 2 * RECORD_BYTES as u64 { tail + BLOCK_BYTES } else { tail };
        self.put(&vec![0; tail as usize])
    }
}

impl MemberWriter for TarWriter<'_> {
    fn folder(&mut self, path: &[u8], oid: &Oid) -> Result<()> {
        self.member(path, oid, b'5', 0o777 & !UMASK, b"")
    }

    fn file(&mut self, path: &[u8], oid: &Oid, is_executable: bool, data: &[u8]) -> Result<()> {
        let mode = if is_executable { 0o777 } else { 0o666 };
        self.member(path, oid, b'0', mode & !UMASK, data)
    }

    fn link(&mut self, path: &[u8], oid: &Oid, target: &[u8]) -> Result<()> {
        self.member(path, oid, b'2', 0o777, target)
    }
}

struct ZipFileWriter<'o> {
    zip: ZipWriter<StreamWriter<&'o mut dyn Write>>,
    time: DateTime,
    level: i64,
}

impl ZipFileWriter<'_> {
    fn options(&self, permissions: u32) -> SimpleFileOptions {
        SimpleFileOptions::default().last_modified_time(self.time).unix_permissions(permissions)
    }

    /// Begins a member, the name of which need not be UTF-8. `mode` has its kind, too (inode(7)).
    fn begin(&mut self, path: &[u8], mode: u32, options: SimpleFileOptions) -> Result<()> {
        if path.len() > NAME_BYTES_MAX {
            let name = String::from_utf8_lossy(&path[..80]);
            return Err(Error::WrongKind(format!(
                "a zip has no room for a name as long as that of '{name}...'"
            )));
        }
        let options = options.external_attributes(mode << 16).name(path);
        self.zip.start_file_with_options(options).map_err(|e| match e {
            // The tree has two entries of one name.
            ZipError::InvalidArchive(why) => {
                Error::WrongKind(format!("no zip can be made of the tree: {why}"))
            }
            e => io::Error::from(e).into(),
        })
    }
}

impl MemberWriter for ZipFileWriter<'_> {
    fn folder(&mut self, path: &[u8], _: &Oid) -> Result<()> {
        let options = self.options(0o777 & !UMASK);
        match std::str::from_utf8(path) {
            Ok(path) if path.len() <= NAME_BYTES_MAX => {
                Ok(self.zip.add_directory(path, options).map_err(io::Error::from)?)
            }
            // Its name alone says that it is a folder: the library would seek to tell the size of one.
            _ => self.begin(path, 0o777 & !UMASK, options.compression_method(CompressionMethod::Stored)),
        }
    }

    fn file(&mut self, path: &[u8], _: &Oid, is_executable: bool, data: &[u8]) -> Result<()> {
        let permissions = if is_executable { 0o755 } else { 0o644 };
        let (method, level) = match self.level {
            0 => (CompressionMethod::Stored, None),
            level => (CompressionMethod::Deflated, Some(level)),
        };
        let options = self.options(permissions).compression_method(method);
        let options = options.compression_level(level).large_file(data.len() as u64 > u64::from(u32::MAX));
        self.begin(path, 0o100_000 | permissions, options)?;
        Ok(self.zip.write_all(data)?)
    }

    fn link(&mut self, path: &[u8], _: &Oid, target: &[u8]) -> Result<()> {
        let options = self.options(0o777).compression_method(CompressionMethod::Stored);
        self.begin(path, 0o120_777, options)?;
        Ok(self.zip.write_all(target)?)
    }
}

/// Returns a time, in UTC, as zip files have it: they know those from 1980 to 2107.
fn zip_time(seconds: u64) -> DateTime {
    let time = i64::try_from(seconds).ok().and_then(|time| OffsetDateTime::from_unix_timestamp(time).ok());
    let time = time.and_then(|t| {
        let year = u16::try_from(t.year()).ok()?;
        DateTime::from_date_and_time(year, t.month().into(), t.day(), t.hour(), t.minute(), t.second()).ok()
    });
    time.unwrap_or_default()
}
