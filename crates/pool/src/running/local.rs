//! Upstreams on this machine's disk: bare directories, work trees, bundles and weir archives, served
//! in-process over a socket pair.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;
use weir_ground::thread::spawn;
use weir_repo::Repo;
use weir_serve::serve_blocking;
use weir_transport::{LocalServer, LocalServerError, LocalStream};
use weir_upload::{UploadOptions, UploadPack, Version};

/// Serves the repository at a local path.
pub struct LocalUpstreams;

impl LocalServer for LocalUpstreams {
    fn connect(&self, path: &Path) -> Result<LocalStream, LocalServerError> {
        if weir_repo::is_bundle(path) {
            let folder = tempfile::tempdir()
                .map_err(|e| LocalServerError::of(format!("cannot make a temporary folder: {e}")))?;
            let repo = weir_repo::open_bundle(path, folder.path()).map_err(LocalServerError::of)?;
            return serve(repo, Some(folder));
        }
        let repo = open_local(path).map_err(LocalServerError::of)?;
        // An alternate on a disk that is not mounted: its refs are as they were, but nothing can be fetched.
        if let [folder, ..] = repo.objects().lost_folders()
            && let Some(lost) = repo.refs().list().iter().find(|r| !repo.contains(&r.oid))
        {
            let name = weir_ground::printable(&String::from_utf8_lossy(&lost.name));
            let folder = folder.display();
            let why = format!("the object of '{name}' is missing: the alternate '{folder}' is not there");
            return Err(LocalServerError::of(why));
        }
        serve(repo, None)
    }
}

/// Opens the archive or the git directory at `path`, or at `path` with `.git`.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn open_local(path: &Path) -> weir_repo::Result<Repo> {
    if path.is_file() && path.extension().is_some_and(|e| e == "tar") {
        return Repo::open_archive(path);
    }
    let with_suffix =
        || path.with_file_name(format!("{}.git", path.file_name().unwrap_or_default().to_string_lossy()));
    weir_repo::open_directory(path).or_else(|e| weir_repo::open_directory(&with_suffix()).map_err(|_| e))
}

/// Returns roughly how many bytes the repository at `path` has: those of the archive, or of the packs.
pub fn bytes_of(path: &Path) -> u64 {
    if path.is_file() {
        return path.metadata().map_or(0, |m| m.len());
    }
    let folders = [path.join("objects/pack"), path.join(".git/objects/pack")];
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|m| m.len()).sum()
}

/// Serves clones as if they were their upstreams.
pub struct LocalClones;

impl LocalServer for LocalClones {
    fn connect(&self, path: &Path) -> Result<LocalStream, LocalServerError> {
        let mut repo = weir_repo::open_directory(path).map_err(LocalServerError::of)?;
        repo.set_refs(repo.refs().of_origin());
        serve(repo, None)
    }
}

/// Serves `repo`, whose files may be in the temporary `folder`.
fn serve(repo: Repo, folder: Option<TempDir>) -> Result<LocalStream, LocalServerError> {
    let repo = Arc::new(repo);
    let (ours, theirs) = UnixStream::pair().map_err(LocalServerError::of)?;
    let reader = ours.try_clone().map_err(LocalServerError::of)?;
    spawn("local upstream", move || {
        let options = UploadOptions { tells_lost_folders: true, ..UploadOptions::default() };
        let mut machine = UploadPack::new(repo, Version::V2, options);
        let (mut input, mut output) = (&theirs, &theirs);
        // If the other end hangs up, that is no error here.
        let _ = serve_blocking(&mut machine, &mut input, &mut output, &AtomicBool::new(false), &|_| {});
        drop(folder);
    })
    .map_err(LocalServerError::of)?;
    Ok((Box::new(reader), Box::new(ours)))
}
