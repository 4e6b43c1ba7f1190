//! Files below a store, whether the catalog knows them or not.

use std::fs::{self, FileType};
use std::io;
use std::path::{Path, PathBuf};

/// The suffix of the names of archives.
pub const SUFFIX: &str = ".tar";

/// Calls `each` with every file and folder below `folder`, the top folder of a store, except weir's own:
/// hidden ones at the top, and temporary ones. Returns the folders below that cannot be read (`lost+found`,
/// for one), and why.
///
/// # Errors
/// If `folder` itself cannot be read.
pub fn walk(folder: &Path, each: &mut dyn FnMut(&Path, FileType)) -> io::Result<Vec<(PathBuf, io::Error)>> {
    let mut unread = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        let entries = match fs::read_dir(&at) {
            Err(e) if at != folder => {
                unread.push((at, e));
                continue;
            }
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if is_of_store(entry.file_name().as_encoded_bytes(), at == folder) {
                continue;
            }
            let kind = entry.file_type()?;
            each(&entry.path(), kind);
            if kind.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(unread)
}

/// Returns whether a file or folder called `name` is the store's own. Names of repositories may begin with a
/// dot, but not at the top.
fn is_of_store(name: &[u8], is_at_top: bool) -> bool {
    let is_temporary = || {
        name.starts_with(weir_archive::WORK_PREFIX.as_bytes())
            || name.ends_with(weir_archive::TEMPORARY_SUFFIX.as_bytes())
    };
    name.starts_with(b".") && (is_at_top || is_temporary())
}

/// Returns whether the file at `path` has the name of an archive.
pub fn is_archive(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(SUFFIX.as_bytes())
}

/// Returns whether the file at `path` was kept when an archive was damaged: the archive itself, or commits
/// that were cut from it.
pub fn is_kept_aside(path: &Path) -> bool {
    let Some(text) = path.to_str() else { return false };
    let Some(at) = text.rfind(&format!("{SUFFIX}.")) else { return false };
    let archive = Path::new(&text[..at + SUFFIX.len()]);
    weir_mirror::places_aside(archive).chain(weir_repo::torn_places(archive)).any(|place| place == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_files_of_repositories_are_met() {
        let dir = weir_testing::folder();
        let store = dir.path();
        for path in [
            ".id",
            ".x/a.tar",
            "o/.github.tar",
            "o/.github/b.tar",
            "o/.c.tar.0f.weir-tmp",
            "o/.weir-work-1/d",
        ] {
            let path = store.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        let mut met = Vec::new();
        let unread = walk(store, &mut |path, kind| {
            if kind.is_file() {
                met.push(path.strip_prefix(store).unwrap().to_str().unwrap().to_owned());
            }
        });
        assert!(unread.unwrap().is_empty());
        met.sort();
        assert_eq!(met, ["o/.github.tar", "o/.github/b.tar"]);
    }

    #[test]
    fn names() {
        assert!(is_archive(Path::new("/s/a/b.tar")) && !is_archive(Path::new("/s/a/b.tar.damaged")));
        for (path, is_kept) in [
            ("/s/a.tar.damaged", true),
            ("/s/a.tar.damaged-2", true),
            ("/s/a.tar.torn", true),
            ("/s/a.tar.torn-9", true),
            ("/s/a.tar.damaged-x", false),
            ("/s/a.tar.gz", false),
            ("/s/a.tar", false),
        ] {
            assert_eq!(is_kept_aside(Path::new(path)), is_kept, "{path}");
        }
    }
}
