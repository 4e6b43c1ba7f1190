//! Workspaces of repositories that a weir serves on another machine.

use std::fs::{self, File};
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use weir_clone::{Attached, AttachedFiles, RemoteReading};
use weir_ground::thread::spawn;
use weir_ground::{FileError, OtherError, without_password};
use weir_process::detach;
use weir_repo::{CommitTrees, Repo};
use weir_transport::{Scheme, TransportOptions, Url};
use weir_workspace::{MountOptions, RemoteFiles, Workspaces, mount_remote_files};

use crate::error::{Error, Result};
use crate::launcher::{Launcher, packs_of};
use crate::source::{NamedCommit, NamedSource, parts_of};

/// Threads that answer the kernel: each may wait for the network.
const THREADS: usize = 16;
/// In the folder of an attached clone: what its readers wait for, if they do.
const WAITS: &str = "waits";
/// There: that only what is read is fetched.
const LAZY: &str = "lazy";
/// There: why something could not be read.
const FAILED: &str = "failed";
/// How often the process that serves an attached clone looks whether a workspace stands on it. An attach that
/// was interrupted leaves none.
const OWNER_TICK: Duration = Duration::from_secs(60);

/// Returns what readers of the attached clone in the folder `place` wait for.
pub fn waits_for(place: &Path) -> Option<String> {
    let said = fs::read_to_string(place.join(WAITS)).ok()?;
    Some(said.trim().to_owned()).filter(|said| !said.is_empty())
}

/// A clone that was attached.
pub struct AttachedSource {
    /// Its git directory, as the source of a workspace.
    pub source: NamedSource,
    attached: Attached,
    options: TransportOptions,
    /// The trees of the commit that is wanted, if its id is known already.
    trees: Option<JoinHandle<weir_clone::Result<CommitTrees>>>,
}

impl AttachedSource {
    /// Returns the URL of the server's repository.
    ///
    /// # Errors
    /// If what was written down of it is damaged.
    pub fn url(&self) -> Result<String> {
        Ok(self.attached.url()?.as_str().to_owned())
    }

    /// Returns why the server's files could not be read, if they could not.
    pub fn explain(&self) -> Option<Error> {
        let place = self.source.path.parent().unwrap_or(&self.source.path);
        fs::read_to_string(place.join(FAILED)).ok().map(Error::Unread)
    }

    /// Returns the commit that is wanted, and its trees. `repo` is the clone.
    ///
    /// # Errors
    /// If there is none, or the server cannot be read.
    pub fn commit(&mut self, repo: &Repo) -> Result<(NamedCommit, CommitTrees)> {
        let fetched =
            self.trees.take().map(|trees| trees.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let fetched = fetched.transpose()?;
        let named = self.source.commit(repo, fetched.as_ref().map(CommitTrees::commit))?;
        if let Some(trees) = fetched.filter(|trees| *trees.commit() == named.commit) {
            return Ok((named, trees));
        }
        let place = self.source.path.parent().unwrap_or(&self.source.path);
        let trees = self.attached.trees(place, &named.commit, &self.options)?;
        Ok((named, trees))
    }
}

/// Returns how to talk to the server of a repository, by its URL.
pub type TransportFor<'a> = &'a dyn Fn(&str) -> std::result::Result<TransportOptions, OtherError>;

/// Attaches the clone that `text`, a URL with or without a revision, names. If it `is_lazy`, only what is
/// read is fetched.
///
/// # Errors
/// If no weir serves it as one pack, or a process cannot be started.
pub fn attach(
    launcher: &Launcher,
    transport: TransportFor<'_>,
    workspaces: &Workspaces,
    text: &str,
    is_lazy: bool,
) -> Result<AttachedSource> {
    let (url, revision) = parts_of(text);
    let parsed = Url::parse(url)?;
    if !matches!(parsed.scheme, Scheme::Http { .. }) {
        return Err(Error::NoUrl(without_password(text).to_string()));
    }
    let options = transport(url).map_err(Error::Other)?;
    let Some(attached) = Attached::find(&parsed, &options)? else {
        return Err(Error::NotServed(parsed.to_string()));
    };
    // A server finds a repository by each of these.
    let key = url.trim_end_matches('/');
    let key = key.strip_suffix(".git").unwrap_or(key);
    let place = workspaces.remote_place(&format!("{key}\0{}", attached.checksum()));
    let alone = workspaces.lock()?;
    if !Attached::is_at(&place) {
        attached.write(&place)?;
        if is_lazy {
            let path = place.join(LAZY);
            fs::write(&path, "").map_err(FileError::on("write", &path))?;
        }
    }
    let source = NamedSource {
        name: parsed.to_string(),
        path: Attached::git_dir(&place),
        revision: revision.map(str::to_owned),
    };
    // They come while a process starts.
    let trees = attached.commit_of(revision).map(|commit| {
        let (attached, place, options) = (attached.clone(), place.clone(), options.clone());
        spawn("trees", move || attached.trees(&place, &commit, &options))
    });
    // It may tell of an earlier failure.
    let _ = fs::remove_file(place.join(FAILED));
    let started = launcher.start_remote(&place);
    drop(alone);
    started.inspect_err(|_| workspaces.release(&source.path))?;
    Ok(AttachedSource { source, attached, options, trees: trees.transpose()? })
}

/// Shows the pack and the index of the attached clone in the folder `place` until they are unmounted. Calls
/// `ready` when they are there.
///
/// # Errors
/// If they cannot be shown.
pub fn serve_remote(
    place: &Path,
    transport: TransportFor<'_>,
    ready: impl FnOnce() -> io::Result<()>,
) -> Result<()> {
    let attached = Attached::read(place)?;
    let path = place.join("lock");
    let lock = File::create(&path).map_err(FileError::on("write", &path))?;
    lock.lock().map_err(FileError::on("lock", &path))?;
    let options = transport(attached.url()?.as_str()).map_err(Error::Other)?;
    let ready = || {
        // It ends when it is unmounted.
        detach();
        ready()
    };
    let (waits, place) = (place.join(WAITS), place.to_owned());
    let _ = fs::remove_file(&waits);
    let _ = fs::remove_file(place.join(FAILED));
    let open = || {
        let tell = move |what: Option<&str>| {
            if let Some(what) = what {
                tracing::warn!("{what}");
            }
            let _ = match what {
                Some(what) => fs::write(&waits, what),
                None => fs::remove_file(&waits),
            };
        };
        let reading = RemoteReading { options, fills: !place.join(LAZY).exists(), tell: Box::new(tell) };
        let files = attached.open(&place, reading).map_err(io::Error::other)?;
        spawn("owner", {
            let place = place.clone();
            move || end_without_owner(&place)
        })?;
        Ok(Box::new(FilesOf { files, failed: place.join(FAILED) }) as Box<dyn RemoteFiles>)
    };
    let mount = MountOptions { threads: THREADS, allow_other: false };
    let names = attached.files().to_vec();
    Ok(mount_remote_files(names, &packs_of(&place), &mount, ready, open)?)
}

/// Lets go of the attached clone in the folder `place` when no workspace stands on it.
fn end_without_owner(place: &Path) {
    let (source, root) = (Attached::git_dir(place), place.ancestors().nth(2).unwrap_or(place));
    let workspaces = Workspaces::new(root.to_owned());
    let is_owned = || workspaces.list().is_ok_and(|all| all.iter().any(|it| it.source == source));
    loop {
        // Twice: one may be about to be made.
        sleep(OWNER_TICK);
        if !is_owned() {
            sleep(OWNER_TICK);
            workspaces.release(&source);
        }
    }
}

/// The files of an attached clone, for the kernel.
struct FilesOf {
    files: AttachedFiles,
    /// The file that says why something could not be read.
    failed: PathBuf,
}

impl RemoteFiles for FilesOf {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.files.read(file, offset, buffer).inspect_err(|e| {
            let _ = fs::write(&self.failed, e.to_string());
        })
    }
}
