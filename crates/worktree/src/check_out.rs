//! Writes the files of a tree into a folder, and the index of them, as git's first checkout does.
//!
//! It follows no link: all folders are made before the first file, and a file is never written over another
//! one. What git may check out otherwise than it is stored, or not at all, is left to git.

use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_git::{Kind, Oid, TreeIter};
use weir_ground::thread::on_threads;
use weir_repo::{ObjectReader, Repo};

use crate::attributes::{PathAttributes, TreeAttributes};
use crate::cached_trees::cached_tree;
use crate::error::{Error, Result};
use crate::index_file::{CacheEntry, EntryStat, IndexWriter, PathForm};
use crate::names::{DEPTH_MAX, is_like_dot_git, is_name};
use crate::text::{with_ident, with_line_ends};
use crate::tree_file::{LINK, SUBMODULE, TreeFile, index_mode};

/// Files that a thread takes at a time.
const FILES_TAKEN: usize = 32;
/// The name of files of attributes.
const ATTRIBUTES: &[u8] = b".gitattributes";
/// A larger file of attributes is left to git, which reads none of 100 MiB.
const ATTRIBUTES_BYTES_MAX: usize = 1 << 20;
/// Files of git that it reads from a working tree, but never through a link there.
const NEVER_LINKS: [&[u8]; 4] = [b".gitmodules", ATTRIBUTES, b".gitignore", b".mailmap"];

/// A tree to be checked out.
pub struct CheckOut<'r> {
    /// The repository.
    pub repo: &'r Repo,
    /// The tree.
    pub tree: Oid,
    /// The top folder of the working tree, in which nothing is but `.git`.
    pub folder: &'r Path,
    /// The number of threads that write files.
    pub threads: usize,
    /// How the index writes paths: as version 2 does, or as version 4.
    pub form: PathForm,
}

/// The result of a checkout that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub enum CheckedOut {
    /// All files are written. This is the index.
    Done(Vec<u8>),
    /// Only git knows how to check the tree out: the file of attributes at this path names programs or
    /// encodings, a file there has an unusual name, or the tree is malformed. Nothing is written.
    LeftToGit(String),
}

/// A file to be written.
struct PlannedFile {
    path: Vec<u8>,
    file: TreeFile,
    attributes: PathAttributes,
}

/// The files and folders of a tree.
#[derive(Default)]
struct CheckOutPlan {
    /// Paths of folders, each behind the one that it is in.
    folders: Vec<Vec<u8>>,
    /// In the order of an index.
    files: Vec<PlannedFile>,
    /// The files of attributes on the way to a folder.
    attributes: TreeAttributes,
    /// A path that is left to git.
    odd: Option<Vec<u8>>,
}

impl CheckOut<'_> {
    /// Writes the files.
    ///
    /// # Errors
    /// If an object is missing or corrupt, or a file cannot be written. Files that were written stay.
    pub fn run(&self) -> Result<CheckedOut> {
        let mut plan = CheckOutPlan::default();
        let trees = self.plan(&mut self.repo.reader(), &mut plan, FolderToList::top(self.tree))?;
        if let Some(path) = plan.odd {
            return Ok(CheckedOut::LeftToGit(String::from_utf8_lossy(&path).into_owned()));
        }
        for folder in &plan.folders {
            let path = self.at(folder);
            fs::create_dir(&path).map_err(Error::on(&path))?;
        }
        let stats = self.write_files(&plan.files)?;
        let mut index = IndexWriter::new(self.repo.hash(), self.form);
        index.reserve(plan.files.len());
        for (planned, stat) in plan.files.iter().zip(stats) {
            index.push(&planned.path, &CacheEntry::new(stat, planned.file.oid), false)?;
        }
        Ok(CheckedOut::Done(index.finish(&trees, None, None)?))
    }

    /// Adds what is in a folder to `plan`. Returns its part of the extension "TREE". Ends early if something
    /// is left to git.
    fn plan(
        &self,
        reader: &mut ObjectReader<'_>,
        plan: &mut CheckOutPlan,
        folder: FolderToList<'_>,
    ) -> Result<Vec<u8>> {
        let FolderToList { oid, name, mut path, depth } = folder;
        let object = reader.require(&oid)?;
        if object.kind != Kind::Tree {
            return Err(Error::OtherKind(oid));
        }
        let (before, len) = (plan.files.len(), path.len());
        let has_attributes = self.enter(reader, plan, &path, &object.data)?;
        let mut children: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for entry in TreeIter::new(self.repo.hash(), &object.data) {
            let entry = entry.map_err(|source| weir_repo::Error::Object { oid, source })?;
            path.truncate(len);
            path.extend_from_slice(entry.name);
            let id = Oid::from_bytes(self.repo.hash(), entry.id).expect("entries have ids of the hash");
            let file = TreeFile { mode: index_mode(entry.mode), oid: id };
            let is_odd = !is_name(entry.name) || is_like_dot_git(entry.name) || depth > DEPTH_MAX;
            if is_odd || (file.mode == LINK && NEVER_LINKS.contains(&entry.name)) {
                plan.odd = Some(path.clone());
            }
            if plan.odd.is_some() {
                return Ok(Vec::new());
            }
            if entry.is_tree() {
                plan.folders.push(path.clone());
                path.push(b'/');
                let below = FolderToList { oid: id, name: entry.name, path: path.clone(), depth: depth + 1 };
                children.push((entry.name.to_vec(), self.plan(reader, plan, below)?));
                continue;
            }
            if plan.files.last().is_some_and(|last| last.path >= path) {
                plan.odd = Some(path.clone());
                return Ok(Vec::new());
            }
            let attributes = plan.attributes.of(&path, false);
            plan.files.push(PlannedFile { path: path.clone(), file, attributes });
        }
        if has_attributes {
            plan.attributes.leave();
        }
        Ok(cached_tree(name, &oid, plan.files.len() - before, children))
    }

    /// Adds the file of attributes in the folder at `path`, the tree of which is `tree`. Returns whether
    /// there is one. If only git can follow it, that is left to git.
    fn enter(
        &self,
        reader: &mut ObjectReader<'_>,
        plan: &mut CheckOutPlan,
        path: &[u8],
        tree: &[u8],
    ) -> Result<bool> {
        let mut entries = TreeIter::new(self.repo.hash(), tree).map_while(std::result::Result::ok);
        let Some(entry) = entries.find(|entry| entry.name == ATTRIBUTES && !entry.is_tree()) else {
            return Ok(false);
        };
        let id = Oid::from_bytes(self.repo.hash(), entry.id).expect("entries have ids of the hash");
        let data = reader.require(&id)?.data;
        if data.len() > ATTRIBUTES_BYTES_MAX || asks_to_filter(&data) {
            plan.odd = Some([path, ATTRIBUTES].concat());
            return Ok(false);
        }
        Ok(plan.attributes.enter(path, &data))
    }

    fn at(&self, path: &[u8]) -> PathBuf {
        self.folder.join(OsStr::from_bytes(path))
    }

    /// Writes `files` in several threads. Returns what an index says of them.
    fn write_files(&self, files: &[PlannedFile]) -> Result<Vec<EntryStat>> {
        let next = AtomicUsize::new(0);
        let write_some = || -> Result<Vec<(usize, Vec<EntryStat>)>> {
            let mut reader = self.repo.reader();
            let mut written = Vec::new();
            loop {
                let from = next.fetch_add(FILES_TAKEN, Ordering::Relaxed);
                let Some(rest) = files.get(from..).filter(|rest| !rest.is_empty()) else {
                    return Ok(written);
                };
                let mut stats = Vec::with_capacity(FILES_TAKEN);
                for planned in rest.iter().take(FILES_TAKEN) {
                    let stat = self.write_file(&mut reader, planned).inspect_err(|_| {
                        // The others need not go on.
                        next.store(files.len(), Ordering::Relaxed);
                    })?;
                    stats.push(stat);
                }
                written.push((from, stats));
            }
        };
        let threads = self.threads.clamp(1, files.len().div_ceil(FILES_TAKEN).max(1));
        let written: Result<Vec<_>> = on_threads("check out", threads, write_some).into_iter().collect();
        let mut written: Vec<(usize, Vec<EntryStat>)> = written?.into_iter().flatten().collect();
        written.sort_unstable_by_key(|(from, _)| *from);
        Ok(written.into_iter().flat_map(|(_, stats)| stats).collect())
    }

    fn write_file(&self, reader: &mut ObjectReader<'_>, planned: &PlannedFile) -> Result<EntryStat> {
        let PlannedFile { path, file, attributes } = planned;
        let at = self.at(path);
        let failed = Error::on(&at);
        if file.mode == SUBMODULE {
            fs::create_dir(&at).map_err(&failed)?;
            return Ok(stat_of(&fs::symlink_metadata(&at).map_err(&failed)?, file.mode));
        }
        let object = reader.require(&file.oid)?;
        if object.kind != Kind::Blob {
            return Err(Error::OtherKind(file.oid));
        }
        if file.mode == LINK {
            symlink(OsStr::from_bytes(&object.data), &at).map_err(&failed)?;
            return Ok(stat_of(&fs::symlink_metadata(&at).map_err(&failed)?, file.mode));
        }
        let ident = if attributes.has_ident { with_ident(&object.data, &file.oid) } else { None };
        let stored = ident.as_deref().unwrap_or(&object.data);
        let ends = with_line_ends(stored, attributes.line_ends);
        let data = ends.as_deref().unwrap_or(stored);
        let mode = if file.mode & 0o100 != 0 { 0o777 } else { 0o666 };
        // A new file: nothing is written through a link.
        let created = OpenOptions::new().write(true).create_new(true).mode(mode).open(&at);
        let written = created.and_then(|mut file| file.write_all(data).and_then(|()| file.metadata()));
        Ok(stat_of(&written.map_err(&failed)?, file.mode))
    }
}

/// A folder of a tree.
struct FolderToList<'n> {
    oid: Oid,
    name: &'n [u8],
    /// Its path, with a slash at its end.
    path: Vec<u8>,
    depth: usize,
}

impl FolderToList<'_> {
    fn top(oid: Oid) -> FolderToList<'static> {
        FolderToList { oid, name: b"", path: Vec::new(), depth: 0 }
    }
}

/// Returns what an index says of a file that has the mode `mode` there.
pub fn stat_of(about: &Metadata, mode: u32) -> EntryStat {
    [
        about.ctime() as u32,
        about.ctime_nsec() as u32,
        about.mtime() as u32,
        about.mtime_nsec() as u32,
        about.dev() as u32,
        about.ino() as u32,
        mode,
        about.uid(),
        about.gid(),
        about.size() as u32,
    ]
}

/// Returns whether a file of attributes (gitattributes(5)) asks git to check out other bytes than are stored,
/// if the settings of git do not.
pub fn asks_to_convert(attributes: &[u8]) -> bool {
    words_of(attributes).any(|word| matches!(word, b"eol=crlf" | b"ident" | b"crlf=input"))
        || asks_to_filter(attributes)
}

/// Returns whether a file of attributes names a program that git runs, or an encoding.
pub fn asks_to_filter(attributes: &[u8]) -> bool {
    words_of(attributes)
        .any(|word| word.starts_with(b"working-tree-encoding=") || word.starts_with(b"filter="))
}

/// Returns the words behind the patterns in a file of attributes.
fn words_of(attributes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = attributes.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
    lines.flat_map(|line| line.split(u8::is_ascii_whitespace).skip(1))
}
