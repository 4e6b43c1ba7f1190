//! The content of views: a pool, a repository, or a commit of one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_catalog::Catalog;
use weir_clone::trees_in;
use weir_git::Oid;
use weir_pool::{Pool, open_local};
use weir_process::detach;
use weir_repo::Repo;
use weir_serve::{Found, OpenError, Presentation, RepoCache};
use weir_workspace::{
    FileTimes, LowerCommit, MountOptions, RemoteCommit, Reopen, Repositories, Shown, mount_guarded,
};

use crate::error::{Error, Result};
use crate::launcher::{attached_to, wait_for_times};
use crate::source::NamedSource;

/// Archives that are kept open.
const OPEN_MAX: usize = 256;
/// For how long the list of names, or a git directory, is taken as it was.
const AGE_MAX: Duration = Duration::from_secs(1);
/// A list of names that takes long to make is kept this many times as long.
const AGE_SHARE: u32 = 20;
/// How long a process may take to end after its view was unmounted, and how often it is looked.
const LOCK_MAX: Duration = Duration::from_secs(5);
const LOCK_TICK: Duration = Duration::from_millis(2);

/// A value, and until when it is taken for true.
type Kept<T> = Mutex<Option<(Instant, T)>>;

/// Returns the value of `kept`. Calls `make` for a new one if that is too old.
fn fresh<T: Clone>(
    kept: &Kept<T>,
    make: impl FnOnce() -> weir_workspace::Result<T>,
) -> weir_workspace::Result<T> {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    if let Some((until, value)) = &*kept
        && *until > start
    {
        return Ok(value.clone());
    }
    let value = make()?;
    *kept = Some((Instant::now() + AGE_MAX.max(start.elapsed() * AGE_SHARE), value.clone()));
    Ok(value)
}

fn failed(e: impl std::fmt::Display) -> weir_workspace::Error {
    weir_workspace::Error::Source(e.to_string())
}

/// The repositories of a pool.
struct PoolRepositories {
    catalog: Mutex<Catalog>,
    store: PathBuf,
    cache: RepoCache,
    names: Kept<Arc<Vec<String>>>,
}

impl PoolRepositories {
    fn new(pool: &Pool) -> Result<PoolRepositories> {
        Ok(PoolRepositories {
            catalog: Mutex::new(pool.another_catalog()?),
            store: pool.store.path.clone(),
            cache: RepoCache::new(OPEN_MAX, Presentation::default()),
            names: Mutex::default(),
        })
    }
}

impl Repositories for PoolRepositories {
    fn names(&self) -> weir_workspace::Result<Arc<Vec<String>>> {
        fresh(&self.names, || {
            let all = self.catalog.lock().unwrap_or_else(PoisonError::into_inner).list().map_err(failed)?;
            // What was never mirrored has nothing to show.
            let mirrored = all.into_iter().filter(|known| known.seq.is_some());
            let mut names: Vec<String> = mirrored.map(|known| known.name).collect();
            names.sort_unstable();
            Ok(Arc::new(names))
        })
    }

    fn open(&self, name: &str) -> weir_workspace::Result<Option<Arc<Repo>>> {
        let known = self.catalog.lock().unwrap_or_else(PoisonError::into_inner).get(name).map_err(failed)?;
        let Some(known) = known else { return Ok(None) };
        match self.cache.open(&Found::Archive(self.store.join(known.path))) {
            Ok(opened) => Ok(Some(opened.repo)),
            Err(OpenError::NotFound) => Ok(None),
            Err(OpenError::Broken(e)) => Err(e.into()),
            Err(OpenError::Busy) => Err(failed("too many archives are being opened")),
        }
    }
}

/// An archive or a git directory that is no pool's.
struct RepositoryAt {
    path: PathBuf,
    opened: Kept<Arc<Repo>>,
}

impl Repositories for RepositoryAt {
    fn names(&self) -> weir_workspace::Result<Arc<Vec<String>>> {
        Ok(Arc::default())
    }

    fn open(&self, _: &str) -> weir_workspace::Result<Option<Arc<Repo>>> {
        fresh(&self.opened, || Ok(Arc::new(open_local(&self.path)?))).map(Some)
    }
}

/// Waits for the lock of a view, which the process has that shows it: a process of another namespace may, the
/// workspaces of which must not be mounted twice.
fn lock_view(view: &Path) -> Result<File> {
    let path = view.with_extension("lock");
    let mut file = File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
    let end = Instant::now() + LOCK_MAX;
    while file.try_lock().is_err() {
        if Instant::now() > end {
            let mut process = String::new();
            let _ = file.read_to_string(&mut process);
            return Err(Error::ShownElsewhere(process));
        }
        std::thread::sleep(LOCK_TICK);
    }
    file.set_len(0)?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}

/// Returns what shows all repositories of `pool`.
///
/// # Errors
/// If the catalog cannot be opened again.
pub fn shown_pool(pool: &Pool) -> Result<Shown> {
    Ok(Shown::All(Box::new(PoolRepositories::new(pool)?)))
}

/// Returns what shows `source`: the repository with its refs, or the commit that it names.
///
/// # Errors
/// If it cannot be read.
pub fn shown_source(source: NamedSource) -> Result<Shown> {
    let repo = source.open()?;
    if source.revision.is_none() {
        let repositories = RepositoryAt { path: source.path, opened: Mutex::default() };
        return Ok(Shown::One(Box::new(repositories), String::new()));
    }
    let commit = source.commit(&repo, None)?.commit;
    Ok(Shown::Commit(Arc::new(repo), commit))
}

/// A commit that is shown below workspaces.
pub struct LowerView<'a> {
    /// The repository and the commit.
    pub source: NamedSource,
    /// The file with the times of its files, which the process that started this one writes.
    pub times: Option<&'a Path>,
    /// The folder on which the commit is mounted.
    pub folder: &'a Path,
}

impl LowerView<'_> {
    /// Shows it until it is unmounted. Calls `ready` when it is there. No other process shows it meanwhile.
    ///
    /// # Errors
    /// If it cannot be shown.
    pub fn serve(self, options: &MountOptions, ready: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let folder = self.folder;
        let _alone = lock_view(folder)?;
        let shown = self.shown()?;
        let ready = || {
            // It ends when it is unmounted.
            detach();
            ready()
        };
        Ok(mount_guarded(shown, folder, options, ready)?)
    }

    fn shown(self) -> Result<Shown> {
        let LowerView { source, times, .. } = self;
        let repo = source.open()?;
        // If the trees of an attached clone are here, weir asks the server for nothing.
        let listed = |commit: &Oid| attached_to(&source.path).and_then(|_| trees_in(&source.path, commit));
        let id =
            source.revision.as_deref().and_then(|revision| Oid::from_hex(repo.hash(), revision.as_bytes()));
        let trees = id.as_ref().and_then(listed);
        let commit = match &trees {
            Some(trees) => *trees.commit(),
            None => source.commit(&repo, None)?.commit,
        };
        let path = source.path;
        let reopen: Reopen = Box::new(move || Ok(open_local(&path)?));
        let remote = trees.map(|trees| Arc::new(RemoteCommit::new(trees, reopen)));
        let times = match times {
            Some(times) => {
                wait_for_times()?;
                Some(FileTimes::read(times)?)
            }
            None => None,
        };
        Ok(Shown::Lower(LowerCommit { repo: Arc::new(repo), commit, remote, times }))
    }
}
