//! Upstreams on this machine's disk: bare directories, work trees, bundles and weir archives, served
//! in-process over a socket pair.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;
use weir_ground::thread::spawn;
use weir_repo::Repo;
use weir_serve::{Presentation, serve_blocking};
use weir_transport::{LocalServer, LocalServerError, LocalStream};
use weir_upload::{UploadOptions, UploadPack, Version};

/// Serves the repository at a local path.
pub struct LocalUpstreams;

impl LocalServer for LocalUpstreams {
    fn connect(&self, path: &Path) -> Result<LocalStream, LocalServerError> {
        if weir_repo::is_bundle(path) {
            let folder = tempfile::tempdir().map_err(|e| {
                LocalServerError::of_this_process(format!("cannot make a temporary folder: {e}"))
            })?;
            let repo = weir_repo::open_bundle(path, folder.path()).map_err(failed)?;
            return serve(Arc::new(repo), Some(folder));
        }
        let repo = open_upstream(path).map_err(failed)?;
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

/// Opens the upstream at `path`. A git directory shows what git shows of it: not the refs that it hides
/// (git-config, `transfer.hideRefs`).
fn open_upstream(path: &Path) -> weir_repo::Result<Arc<Repo>> {
    let shown = |path: &Path| Ok(Presentation::default().open(path)?.repo);
    open_at(path, &|path| Repo::open_archive(path).map(Arc::new), &shown)
}

/// Returns why an upstream is not served. What the system refuses for another reason than the upstream's says
/// nothing about it.
fn failed(e: weir_repo::Error) -> LocalServerError {
    match &e {
        weir_repo::Error::Io(io)
            if !matches!(
                io.kind(),
                ErrorKind::NotFound
                    | ErrorKind::NotADirectory
                    | ErrorKind::PermissionDenied
                    | ErrorKind::InvalidData
                    | ErrorKind::UnexpectedEof
            ) =>
        {
            LocalServerError::of_this_process(e)
        }
        _ => LocalServerError::of(e),
    }
}

/// Opens the archive or the git directory at `path`, or at `path` with `.git`.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn open_local(path: &Path) -> weir_repo::Result<Repo> {
    open_at(path, &Repo::open_archive, &weir_repo::open_directory)
}

/// Opens what is at `path` with one of both functions: an archive, or a git directory there or at `path` with
/// `.git`.
fn open_at<R>(
    path: &Path,
    archive: &dyn Fn(&Path) -> weir_repo::Result<R>,
    directory: &dyn Fn(&Path) -> weir_repo::Result<R>,
) -> weir_repo::Result<R> {
    if path.is_file() && path.extension().is_some_and(|e| e == "tar") {
        return archive(path);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".git");
    directory(path).or_else(|e| match e {
        weir_repo::Error::NotFound(_) => directory(&path.with_file_name(name)).map_err(|_| e),
        e => Err(e),
    })
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
        let mut repo = weir_repo::open_directory(path).map_err(failed)?;
        repo.set_refs(repo.refs().of_origin());
        serve(Arc::new(repo), None)
    }
}

/// Serves `repo`, whose files may be in the temporary `folder`.
fn serve(repo: Arc<Repo>, folder: Option<TempDir>) -> Result<LocalStream, LocalServerError> {
    let (ours, theirs) = UnixStream::pair().map_err(LocalServerError::of_this_process)?;
    let reader = ours.try_clone().map_err(LocalServerError::of_this_process)?;
    spawn("local upstream", move || {
        let options = UploadOptions { tells_lost_folders: true, ..UploadOptions::default() };
        let mut machine = UploadPack::new(repo, Version::V2, options);
        let (mut input, mut output) = (&theirs, &theirs);
        // If the other end hangs up, that is no error here.
        let _ = serve_blocking(&mut machine, &mut input, &mut output, &AtomicBool::new(false), &|_| {});
        drop(folder);
    })
    .map_err(LocalServerError::of_this_process)?;
    Ok((Box::new(reader), Box::new(ours)))
}
