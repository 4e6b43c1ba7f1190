//! Takes over repositories that others have cloned. Their upstreams then send only what is new.

use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

use weir_catalog::clock::now;
use weir_catalog::{ArchiveEnd, Catalog, Repository, Which};
use weir_ground::{FileError, Seq};
use weir_mirror::{Known, VisitOptions, WorkFolder, visit};
use weir_repo::{GitConfig, Repo, read_at_most};
use weir_transport::{Scheme, Url};

use crate::archives::find::get;
use crate::archives::store::Store;
use crate::archives::upstream::entry;
use crate::error::{Error, InRepo, Result};

/// The longest time that the import of one clone keeps its lease, in seconds.
const IMPORT_LEASE_S: i64 = 6 * 3600;
/// The greatest depth of folders that are searched.
const DEPTH_MAX: usize = 32;
/// The largest configuration of a clone that is read, in bytes.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// The result of importing one clone.
#[derive(Debug, PartialEq, Eq)]
pub enum ImportedClone {
    /// An archive of this many bytes was made of it.
    New(u64),
    /// An archive of that name exists.
    There,
    /// An archive would be made of it: this was a dry run.
    Would,
}

/// Imports clones.
pub struct CloneImport<'a> {
    /// Where repositories are registered.
    pub catalog: &'a Catalog,
    /// Where their archives go.
    pub store: &'a Store,
    /// The name of this process, for leases.
    pub owner: &'a str,
    /// How clones are read. Its `transport.local` serves a clone as if it were its upstream.
    pub options: &'a VisitOptions,
    /// Whether to change nothing.
    pub dry_run: bool,
}

/// Returns the clones at and below `root`: git directories, work trees and tars, sorted by name. Calls
/// `unread` with the error of each folder that cannot be read.
///
/// # Errors
/// If `root` itself cannot be read.
pub fn find_clones(root: &Path, unread: &mut dyn FnMut(&Error)) -> Result<Vec<PathBuf>> {
    // An absolute path, whatever characters its name contains.
    let root = std::path::absolute(root)?;
    let mut found = Vec::new();
    if root.is_file() {
        found.push(root);
    } else {
        find_below(&root, 0, &mut found, unread)?;
    }
    Ok(found)
}

fn is_git_dir(folder: &Path) -> bool {
    folder.join("objects").is_dir() && folder.join("HEAD").is_file()
}

/// Returns the git directory at `folder`, or the one of the work tree there.
fn git_dir_at(folder: &Path) -> Option<PathBuf> {
    [folder.to_owned(), folder.join(".git")].into_iter().find(|path| is_git_dir(path))
}

/// Finds git directories and tars below `folder`.
fn find_below(
    folder: &Path,
    depth: usize,
    found: &mut Vec<PathBuf>,
    unread: &mut dyn FnMut(&Error),
) -> Result<()> {
    let fail = FileError::on("read", folder);
    if let Some(git_dir) = git_dir_at(folder) {
        found.push(git_dir);
        return Ok(());
    }
    let mut entries =
        fs::read_dir(folder).map_err(fail)?.collect::<std::io::Result<Vec<_>>>().map_err(fail)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Symbolic links are not followed: they may lead in circles.
        let kind = entry.file_type().map_err(fail)?;
        let path = entry.path();
        if kind.is_dir() && depth < DEPTH_MAX {
            // A folder that cannot be read does not hide the others.
            if let Err(e) = find_below(&path, depth + 1, found, unread) {
                unread(&e);
            }
        } else if kind.is_file() && path.extension().is_some_and(|e| e == "tar") {
            found.push(path);
        }
    }
    Ok(())
}

impl CloneImport<'_> {
    /// Registers the upstream of the clone at `path`, a folder or a tar, and makes its archive from the
    /// clone. Returns the name of the repository and the result.
    ///
    /// # Errors
    /// If it is not a complete clone of an upstream that can be named.
    pub fn import(&mut self, path: &Path) -> Result<(String, ImportedClone)> {
        if path.is_dir() {
            return self.import_git_dir(path);
        }
        let folder = WorkFolder::new(&self.store.path)?;
        let git_dir = extract(path, &folder.path().join("tar"))?;
        let is_local = |url: &str| Url::parse(url).is_ok_and(|url| url.scheme == Scheme::Local);
        if config_at(&git_dir)?.get("remote.origin.url").is_some_and(is_local) {
            // The tar may come from anyone, and name a path that its author may not read.
            return Err(Error::Refused(
                "its upstream is a local path, which is not accepted from a tar; register it by itself"
                    .to_owned(),
            ));
        }
        self.import_git_dir(&git_dir)
    }

    fn import_git_dir(&mut self, git_dir: &Path) -> Result<(String, ImportedClone)> {
        let url = check_clone(git_dir)?;
        let entry = entry(&url, None)?;
        let name = entry.name.clone();
        if self.dry_run {
            let is_there = self.store.path.join(&entry.path).exists();
            return Ok((name, if is_there { ImportedClone::There } else { ImportedClone::Would }));
        }
        self.catalog.add(&[entry], now())?;
        let repository = get(self.catalog, &name)?;
        let archive = self.store.archive_path(&repository);
        if archive.exists() {
            return Ok((name, ImportedClone::There));
        }
        // No other process clones it meanwhile.
        let ids = [repository.id];
        let which = Which { ids: Some(&ids), ..Which::default() };
        if self.catalog.visits().lease(self.owner, now(), now() + IMPORT_LEASE_S, &which, 1)?.is_empty() {
            return Err(Error::Refused("it is being cloned, or paused".to_owned()));
        }
        // Another machine may have cloned it before.
        let made = (!archive.exists()).then(|| make(git_dir, &repository, &archive, self.options));
        if let Some(Ok((end, refs))) = &made {
            self.catalog.archives().set_imported(repository.id, *end, *refs)?;
        }
        self.catalog.visits().release(self.owner)?;
        Ok((name, made.transpose()?.map_or(ImportedClone::There, |(end, _)| ImportedClone::New(end.bytes))))
    }
}

/// Checks that the clone at `git_dir` is complete. Returns the URL of its upstream.
fn check_clone(git_dir: &Path) -> Result<String> {
    let Some(url) = config_at(git_dir)?.get("remote.origin.url").map(str::to_owned) else {
        let error = "its configuration has no remote.origin.url; register its upstream, and mirror it";
        return Err(Error::Refused(error.to_owned()));
    };
    let upstream = Url::parse(&url)?;
    if upstream.scheme == Scheme::Local && !upstream.local_path().is_absolute() {
        return Err(Error::Refused(format!("its upstream '{url}' is a relative path")));
    }
    let clone = weir_repo::open_directory(git_dir).in_repo("the clone")?;
    if clone.refs().list().is_empty() {
        return Err(Error::Refused("it has no refs".to_owned()));
    }
    if let Some(lost) = clone.refs().list().iter().find(|r| !clone.contains(&r.oid)) {
        let name = String::from_utf8_lossy(&lost.name);
        return Err(Error::Refused(format!("the object of '{}' is missing", name.escape_debug())));
    }
    if !clone.history().shallow().is_empty() {
        return Err(Error::Refused(
            "it is shallow: run 'git fetch --unshallow' first, or register its upstream, and mirror it"
                .to_owned(),
        ));
    }
    Ok(url)
}

/// Reads the configuration of a clone, without the files that it includes: those are not part of the clone.
fn config_at(git_dir: &Path) -> Result<GitConfig> {
    let path = git_dir.join("config");
    let text = read_at_most(&path, CONFIG_BYTES_MAX).map_err(FileError::on("read", &path))?;
    GitConfig::parse(&text).in_repo("the clone")
}

/// Makes the archive of a clone of `repository`. Returns where it ends, and the number of its refs.
fn make(
    git_dir: &Path,
    repository: &Repository,
    archive: &Path,
    options: &VisitOptions,
) -> Result<(ArchiveEnd, u64)> {
    let from = git_dir.to_str().ok_or_else(|| Error::Refused("its path is not UTF-8".to_owned()))?;
    // Record the URL that later visits get from the catalog.
    let upstream = Url::parse(&repository.url)?;
    let known = Known { upstream: Some(&upstream), forge: repository.forge.as_deref(), ..Known::default() };
    visit(&Url::parse(from)?, archive, &known, now(), options)
        .map_err(|failure| Error::Refused(failure.to_string()))?;
    weir_archive::sync_folder_of(archive).map_err(FileError::on("sync", archive))?;
    let made = Repo::open_archive(archive).in_repo("the new archive")?;
    let state = made.archive().map(weir_archive::Archive::state);
    let (seq, bytes) = state.map_or((Seq(0), 0), |state| (Seq(state.record.seq), state.end()));
    Ok((ArchiveEnd { seq, bytes }, made.refs().list().len() as u64))
}

/// Extracts the git directory in a tar into `folder`. Returns its path.
fn extract(path: &Path, folder: &Path) -> Result<PathBuf> {
    let fail = FileError::on("read", path);
    if weir_archive::Archive::open(path).is_ok() {
        let error = "it is a weir archive already: put it where the archive of that repository belongs";
        return Err(Error::Refused(error.to_owned()));
    }
    let is_of_git = |path: &Path| path.components().any(|c| c == Component::Normal(".git".as_ref()));
    let mut has_work_tree = false;
    for entry in tar::Archive::new(File::open(path).map_err(fail)?).entries().map_err(fail)? {
        has_work_tree |= is_of_git(&entry.map_err(fail)?.path().map_err(fail)?);
    }
    fs::create_dir(folder).map_err(FileError::on("make", folder))?;
    for entry in tar::Archive::new(File::open(path).map_err(fail)?).entries().map_err(fail)? {
        let mut entry = entry.map_err(fail)?;
        let (kind, inside) = (entry.header().entry_type(), entry.path().map_err(fail)?.into_owned());
        // Skip the files of the work tree: their content is in the objects. Also skip what leads elsewhere:
        // links, and files that name places of other objects.
        let leads_elsewhere =
            ["commondir", "info/alternates", "info/http-alternates"].iter().any(|end| inside.ends_with(end));
        let is_inside = inside.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if (has_work_tree && !is_of_git(&inside)) || leads_elsewhere || !is_inside {
            continue;
        }
        // The modes of the tar do not count: this process must be able to read and delete the files.
        let target = folder.join(&inside);
        let write = FileError::on("write", &target);
        if kind.is_dir() {
            fs::create_dir_all(&target).map_err(write)?;
        } else if kind.is_file() {
            fs::create_dir_all(target.parent().unwrap_or(folder)).map_err(write)?;
            let mut file = File::create(&target).map_err(write)?;
            std::io::copy(&mut entry, &mut file).map_err(fail)?;
        }
    }
    let mut found = Vec::new();
    // This process extracted the files a moment ago.
    find_below(folder, 0, &mut found, &mut |e| tracing::error!("{e}"))?;
    let mut found = found.into_iter().filter(|path| path.is_dir());
    let git_dir = found.next();
    if found.next().is_some() {
        return Err(Error::Refused(
            "there are several git directories in it: extract it, and import the folder".to_owned(),
        ));
    }
    let git_dir = git_dir.ok_or_else(|| Error::Refused("there is no git directory in it".to_owned()))?;
    Ok(git_dir)
}
