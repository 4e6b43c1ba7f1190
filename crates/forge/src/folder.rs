//! A folder of git directories, at any depth.

use std::fs;
use std::path::{Path, PathBuf};

use crate::api::Usage;
use crate::{Error, Forge, Listed, Page, Result};

/// Levels of folders that are searched.
const DEPTH_MAX: usize = 32;
/// How the default description of a bare repository begins.
const NO_DESCRIPTION: &str = "Unnamed repository";

/// A folder of git directories.
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// Returns a listing of all git directories below `root`.
    pub fn new(root: &Path) -> Folder {
        Folder { root: root.to_owned() }
    }

    fn look(&self, folder: &Path, depth: usize, out: &mut Vec<Listed>) -> Result<()> {
        let fail = |source| Error::Io { path: folder.display().to_string(), source };
        if folder.join("objects").is_dir() && folder.join("HEAD").is_file() {
            out.extend(self.entry(folder));
            return Ok(());
        }
        if depth >= DEPTH_MAX {
            return Ok(());
        }
        let mut entries =
            fs::read_dir(folder).map_err(fail)?.collect::<std::io::Result<Vec<_>>>().map_err(fail)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            // Symbolic links are not followed: they may lead in circles.
            if entry.file_type().map_err(fail)?.is_dir() {
                self.look(&entry.path(), depth + 1, out)?;
            }
        }
        Ok(())
    }

    fn entry(&self, folder: &Path) -> Option<Listed> {
        let work_tree = folder.file_name().filter(|n| *n == ".git").and(folder.parent());
        let path = work_tree.unwrap_or(folder).strip_prefix(&self.root).ok()?.to_str()?;
        let full_name = path.strip_suffix(".git").unwrap_or(path);
        let description = fs::read_to_string(folder.join("description")).ok().map(|t| t.trim().to_owned());
        let head = fs::read_to_string(folder.join("HEAD")).ok()?;
        (!full_name.is_empty()).then(|| Listed {
            forge_id: path.to_owned(),
            full_name: full_name.to_owned(),
            clone_url: folder.to_string_lossy().into_owned(),
            description: description.filter(|d| !d.is_empty() && !d.starts_with(NO_DESCRIPTION)),
            default_branch: head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned),
            ..Listed::default()
        })
    }
}

impl Forge for Folder {
    fn start(&self) -> &'static str {
        ""
    }

    fn page(&mut self, _: &str) -> Result<Page> {
        let mut repositories = Vec::new();
        self.look(&self.root, 0, &mut repositories)?;
        Ok(Page { repositories, next: None, ..Page::default() })
    }

    fn is_one_list(&self) -> bool {
        true
    }

    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>> {
        let path = self.root.join(forge_id);
        Ok([path.join(".git"), path].iter().find(|p| p.join("HEAD").is_file()).and_then(|p| self.entry(p)))
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}
