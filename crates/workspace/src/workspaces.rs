//! The workspaces of a user: where each is, of which commit, and what it needs to be mounted.
//!
//! ```text
//! ID/workspace.json   what it is
//! ID/files/           what was written, and .git
//! ID/overlayN/        for the kernel
//! ID/fsmonitor        the program by which git learns what has changed
//! ID/touched          what was touched
//! ID/stands-on        the device of the view that it is mounted on
//! fsmonitor.sock      the socket at which git 2.55 asks, about all workspaces
//! views/ID/           the view of a commit, for all of its workspaces
//! views/ID.times      the times of its files, for one that was switched, and its forks
//! layers/ID/          what was written before a fork
//! gone/ID/            what is being deleted of workspaces that were removed
//! indexes/ID          the index of a commit
//! remotes/ID/         a clone on another machine
//! ```

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use weir_git::{HashKind, Kind, Oid, plain_sha};
use weir_repo::{CommitTrees, Repo};

use crate::error::{Error, Result};
use crate::git_dir::{self, Checkout, FirstIndex, Monitor};
use crate::known_folders::KnownFolders;
use crate::monitor_socket;
use crate::overlay::{self, Layers, is_mounted, is_shown, unmount_dead};
use crate::replaced_file::replace_file;
use crate::touched;
use crate::tree::{CommitTree, top_of_commit};

/// The versions of `workspace.json`: the second has times.
const VERSION: u32 = 1;
pub(crate) const TIMES_VERSION: u32 = 2;
pub(crate) const RECORD: &str = "workspace.json";
const LAYERS: &str = "layers";
/// The folder of workspaces whose files weir is deleting.
const GONE: &str = "gone";
/// The device of the view that a workspace is mounted on.
pub(crate) const STANDS_ON: &str = "stands-on";
/// A file that is there while a program may be in a mount that a workspace had before.
const ENTERED: &str = "entered";

/// What is known of a workspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workspace {
    pub(crate) version: u32,
    /// Its folder.
    pub folder: PathBuf,
    /// The name of the repository, as the user gave it.
    pub repository: String,
    /// The archive or git directory that its commit is read from.
    pub source: PathBuf,
    /// The commit that it began with.
    pub commit: String,
    /// The branch that it began with, if any.
    pub branch: Option<String>,
    /// When it was made, in seconds since 1970.
    pub made_at: u64,
    /// Whether the program fuse-overlayfs mounts it, not the kernel.
    pub uses_fuse_overlayfs: bool,
    /// How git asks what has changed.
    #[serde(default)]
    pub monitor: Monitor,
    /// Later commits, the views of which have objects that it needs.
    pub later: Vec<String>,
    /// The name of the file with the times of its commit's files, if it was switched to that.
    #[serde(default)]
    pub(crate) times: Option<String>,
    /// What was written before forks, the last at the end.
    pub(crate) frozen: Vec<String>,
}

/// A process that starts, and is to show a view. If the caller drops this before it has told the process that
/// the view's times are written, the process ends.
pub trait StartingView: Send {
    /// Tells the process that the file of its times is written, which it reads then.
    fn times_are_written(&mut self);

    /// Tells the same, and waits until the files are there.
    ///
    /// # Errors
    /// If the process ends before.
    fn wait(self: Box<Self>) -> Result<()>;
}

/// Starts the processes that workspaces need.
pub trait Processes: Sync {
    /// Starts a process that shows the commit `commit` of `source` on the folder `view`. Its files have the
    /// `times` of a file that [`crate::FileTimes`] reads, or that of the commit.
    ///
    /// # Errors
    /// If it cannot be started.
    fn show(
        &self,
        source: &Path,
        commit: &str,
        times: Option<&Path>,
        view: &Path,
    ) -> Result<Box<dyn StartingView>>;

    /// Starts a process that calls [`crate::serve_monitor`] for the folder of records `root`, and waits until
    /// it is ready.
    ///
    /// # Errors
    /// If it ends before.
    fn answer(&self, root: &Path) -> Result<()>;
}

/// The workspaces that are recorded in a folder.
pub struct Workspaces {
    pub(crate) root: PathBuf,
    /// The upper folders that this process has read, by the folders of records.
    pub(crate) remembered: Mutex<HashMap<PathBuf, Arc<Mutex<KnownFolders>>>>,
}

/// What a new workspace is to be.
pub struct NewWorkspace<'a> {
    /// Its folder, an absolute path. It is empty, or not there.
    pub folder: &'a Path,
    /// The name of the repository, as the user gave it.
    pub repository: &'a str,
    /// The archive or git directory that the commit is read from.
    pub source: &'a Path,
    /// The same repository, open.
    pub repo: &'a Repo,
    /// The URL of its upstream, if the repository does not say.
    pub url: Option<&'a str>,
    /// The commit.
    pub commit: Oid,
    /// The trees of the commit, if the objects of the repository are on another machine.
    pub listed: Option<&'a CommitTrees>,
    /// The branch that HEAD is to be on.
    pub branch: Option<&'a str>,
    /// The time, in seconds since 1970.
    pub now: u64,
    /// Whether the program fuse-overlayfs is to mount it, not the kernel.
    pub uses_fuse_overlayfs: bool,
    /// The command of a shell that answers git's question what has changed: it is given the folder of
    /// records, and then git's arguments.
    pub monitor: &'a str,
    /// How git is to ask.
    pub asks: Monitor,
    /// Returns the content of the user's file of ignored names (gitignore(5)), if there is one.
    pub ignores: &'a dyn Fn() -> Option<Vec<u8>>,
}

/// A workspace that was made.
#[derive(Debug)]
pub struct Added {
    /// The workspace.
    pub workspace: Workspace,
    /// The first file of attributes by which git would check out other bytes than are stored, and shown.
    pub converts: Option<String>,
}

impl Workspaces {
    /// Returns those recorded in the folder `root`, which is made when it is needed.
    pub fn new(root: PathBuf) -> Workspaces {
        Workspaces { root, remembered: Mutex::default() }
    }

    /// Makes the folder, which others cannot look into, and waits until no other process makes, mounts or
    /// removes workspaces. They wait while the file that is returned is open.
    ///
    /// # Errors
    /// If the folder or the file cannot be written.
    pub fn lock(&self) -> Result<fs::File> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.root);
        made.map_err(Error::on(&self.root))?;
        let path = self.root.join("lock");
        let lock = fs::File::create(&path).map_err(Error::on(&path))?;
        lock.lock().map_err(Error::on(&path))?;
        Ok(lock)
    }

    /// Returns all records.
    fn records(&self) -> Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.root) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(Error::on(&self.root))?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.map_err(Error::on(&self.root))?.path().join(RECORD);
            records.extend(path.is_file().then_some(path));
        }
        Ok(records)
    }

    /// Returns whether any workspace is recorded, also in a damaged record.
    pub fn are_there(&self) -> bool {
        self.records().is_ok_and(|records| !records.is_empty())
    }

    /// Returns all workspaces, sorted by folder. Logs damaged records, and leaves them out.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Workspace>> {
        let log = |e: &Error| tracing::warn!("{e}");
        let records = self.records()?;
        let mut list: Vec<Workspace> =
            records.iter().filter_map(|path| read(path).inspect_err(log).ok()).collect();
        list.sort_by(|a, b| a.folder.cmp(&b.folder));
        Ok(list)
    }

    /// Returns the workspace that `folder` is, or is in.
    ///
    /// # Errors
    /// If there is none, or its record cannot be read.
    pub fn find(&self, folder: &Path) -> Result<Workspace> {
        for folder in folder.ancestors() {
            let path = self.place(folder).join(RECORD);
            if path.is_file() {
                return read(&path);
            }
        }
        Err(Error::NoWorkspace(folder.to_owned()))
    }

    /// Returns the folder of what was written in the workspace.
    pub fn written(&self, workspace: &Workspace) -> PathBuf {
        self.place(&workspace.folder).join("files")
    }

    pub(crate) fn place(&self, folder: &Path) -> PathBuf {
        self.root.join(id(folder.as_os_str().as_encoded_bytes()))
    }

    /// Returns the folder of a frozen layer.
    pub(crate) fn layer(&self, name: &str) -> PathBuf {
        self.root.join(LAYERS).join(name)
    }

    /// Returns a name for the next layer of a workspace.
    pub(crate) fn layer_name(&self, workspace: &Workspace, now: u64) -> String {
        let folder = workspace.folder.as_os_str().as_encoded_bytes();
        id(&[folder, format!("\0{now} {}", workspace.frozen.len()).as_bytes()].concat())
    }

    /// Returns the layers that were frozen, the last at the end. One that is not there was about to be.
    fn layers(&self, workspace: &Workspace) -> Vec<PathBuf> {
        let all = workspace.frozen.iter().map(|name| self.layer(name));
        all.filter(|layer| layer.is_dir()).collect()
    }

    /// Returns the files of the commit that `workspace` stands on.
    pub(crate) fn lower(&self, workspace: &Workspace) -> PathBuf {
        self.view(workspace).join("files")
    }

    /// Returns the folders of all that was written in a workspace, the last at the end.
    pub(crate) fn asked_layers(&self, workspace: &Workspace) -> Vec<PathBuf> {
        let mut layers = self.layers(workspace);
        layers.push(self.written(workspace));
        layers
    }

    /// Checks that `folder` can become a workspace. Returns whether it is not there yet. Deletes what was
    /// left when a process was killed that added or removed one. The caller has the lock.
    pub(crate) fn check_free(&self, folder: &Path) -> Result<bool> {
        if self.place(folder).join(RECORD).exists() {
            return Err(Error::Taken(folder.to_owned()));
        }
        for above in folder.ancestors().skip(1) {
            if self.place(above).join(RECORD).exists() {
                let (name, above) = (folder.display(), above.display());
                return Err(Error::Odd(format!(
                    "'{name}' is in the workspace '{above}'; choose another folder"
                )));
            }
        }
        if folder.to_str().is_none() {
            let name = folder.display();
            return Err(Error::Odd(format!("the name of '{name}' is not UTF-8; choose another folder")));
        }
        // git's configuration has it in a name of a section.
        if folder.as_os_str().as_encoded_bytes().contains(&b'\n') {
            let name = folder.display();
            return Err(Error::Odd(format!("the name of '{name}' has a line break; choose another folder")));
        }
        let is_new = !folder.exists();
        if !is_new && fs::read_dir(folder).map_err(Error::on(folder))?.next().is_some() {
            return Err(Error::NotEmpty(folder.to_owned()));
        }
        let place = self.place(folder);
        if place.join(STANDS_ON).exists() {
            let (name, folder) = (place.display(), folder.display());
            return Err(Error::Odd(format!(
                "'{name}' holds what was written in a workspace at '{folder}', the record of which is gone; \
                 move that folder away, or remove it"
            )));
        }
        // No user has written to what was never mounted.
        if place.exists() {
            fs::remove_dir_all(&place).map_err(Error::on(&place))?;
        }
        self.delete_gone().unwrap_or_else(|e| tracing::warn!("{e}"));
        self.release_left_remotes();
        Ok(is_new)
    }

    /// Makes a workspace, and mounts it. `start` mounts the view of a commit on a folder.
    ///
    /// # Errors
    /// If the folder is in use, git would not check the commit out, or the system does not mount. Then
    /// nothing is left of it.
    pub fn add(&self, new: &NewWorkspace<'_>, processes: &dyn Processes) -> Result<Added> {
        let workspace = Workspace {
            version: VERSION,
            folder: new.folder.to_owned(),
            repository: new.repository.to_owned(),
            source: new.source.to_owned(),
            commit: new.commit.to_string(),
            branch: new.branch.map(str::to_owned),
            made_at: new.now,
            uses_fuse_overlayfs: new.uses_fuse_overlayfs,
            monitor: new.asks,
            later: Vec::new(),
            times: None,
            frozen: Vec::new(),
        };
        // git keeps only commits at HEAD. A list of trees is always that of a commit.
        let is_commit = || {
            let found = new.repo.reader().kind_and_size(&new.commit)?;
            Ok::<_, Error>(matches!(found, Some((Kind::Commit, _)) | None))
        };
        if new.listed.is_none() && !is_commit()? {
            return Err(Error::NotACommit(new.commit.to_string()));
        }
        let _alone = self.lock()?;
        let place = self.place(new.folder);
        let is_new = self.check_free(new.folder)?;
        // The view starts while the index is written.
        let starting = self.start_view(&workspace, processes);
        let made = self.make(new, &workspace);
        let shown = starting.and_then(|view| view.map_or(Ok(()), |view| view.wait()));
        let made = made.and_then(|converts| {
            shown.and_then(|()| self.mount_alone(&workspace, processes))?;
            Ok(converts)
        });
        let converts = made.inspect_err(|_| {
            let _ = fs::remove_dir_all(&place);
            self.release_views();
            if is_new {
                let _ = fs::remove_dir(new.folder);
            }
        })?;
        Ok(Added { workspace, converts })
    }

    /// Writes the files of a workspace. Returns the file of attributes that asks for other files than are
    /// shown.
    fn make(&self, new: &NewWorkspace<'_>, workspace: &Workspace) -> Result<Option<String>> {
        let (top, time) = match new.listed {
            Some(listed) => top_of_commit(new.repo.hash(), &new.commit, listed.commit_data())?,
            None => CommitTree::top_of(new.repo, &new.commit)?,
        };
        let (place, written) = (self.place(new.folder), self.written(workspace));
        fs::create_dir_all(&written).map_err(Error::on(&written))?;
        // All workspaces of a commit begin alike.
        let epoch = new.commit.as_bytes().iter().take(8).fold(0, |epoch, byte| epoch << 8 | u64::from(*byte));
        let token = touched::begin(&place, epoch)?;
        let index = self.kept_index(new, &top, time, &token)?;
        let monitor = self.write_monitor(new.folder, new.monitor)?;
        let objects = match new.repo.archive() {
            Some(_) => self.view(workspace).join("objects"),
            None => new.repo.git_dir().join("objects"),
        };
        let checkout = Checkout {
            repo: new.repo,
            url: new.url,
            commit: new.commit,
            branch: new.branch,
            objects: &objects,
            index: index.own.as_deref().map_or(FirstIndex::Shared(&index.path), FirstIndex::Own),
            folder: new.folder,
            monitor: new.asks,
            hook: &monitor,
            socket: &monitor_socket::path(&self.root),
        };
        git_dir::write(&written, &checkout)?;
        self.record(workspace)?;
        Ok(index.converts)
    }

    pub(crate) fn record(&self, workspace: &Workspace) -> Result<()> {
        let path = self.place(&workspace.folder).join(RECORD);
        replace_file(&path, &serde_json::to_vec_pretty(workspace).expect("it has no odd keys"))
    }

    /// Gives a workspace, which is mounted, the objects that its source has as of `commit`, which came there
    /// later.
    ///
    /// # Errors
    /// If the view of the commit cannot be started, or a record cannot be written.
    pub fn add_objects(
        &self,
        workspace: &mut Workspace,
        commit: &Oid,
        processes: &dyn Processes,
    ) -> Result<()> {
        let _alone = self.lock()?;
        self.renew(workspace)?;
        self.add_objects_alone(workspace, commit, processes)
    }

    /// Does the work of [`Workspaces::add_objects`] for a caller that has the lock.
    pub(crate) fn add_objects_alone(
        &self,
        workspace: &mut Workspace,
        commit: &Oid,
        processes: &dyn Processes,
    ) -> Result<()> {
        let commit = commit.to_string();
        let objects = self.show_later(workspace, &commit, processes)?.join("objects");
        workspace.later.push(commit);
        self.record(workspace)?;
        let path = workspace.folder.join(".git/objects/info/alternates");
        let mut alternates = fs::read(&path).map_err(Error::on(&path))?;
        alternates.extend_from_slice(objects.as_os_str().as_encoded_bytes());
        alternates.push(b'\n');
        fs::write(&path, alternates).map_err(Error::on(&path))
    }

    /// Mounts a workspace, for example after the machine was started again.
    ///
    /// # Errors
    /// If the system does not mount, or the view cannot be started.
    pub fn mount(&self, workspace: &Workspace, processes: &dyn Processes) -> Result<()> {
        let _alone = self.lock()?;
        let mut workspace = workspace.clone();
        self.renew(&mut workspace)?;
        self.mount_alone(&workspace, processes)
    }

    /// Reads the record of a workspace again: before the caller had the lock, another process may have
    /// switched, forked or removed it.
    pub(crate) fn renew(&self, workspace: &mut Workspace) -> Result<()> {
        let path = self.place(&workspace.folder).join(RECORD);
        if !path.is_file() {
            return Err(Error::NoWorkspace(workspace.folder.clone()));
        }
        *workspace = read(&path)?;
        Ok(())
    }

    /// Mounts a workspace, and makes sure that git in it can ask at the socket. The caller holds the lock.
    pub(crate) fn mount_alone(&self, workspace: &Workspace, processes: &dyn Processes) -> Result<()> {
        self.mount_files(workspace, processes)?;
        self.mend_monitor(workspace, processes);
        Ok(())
    }

    fn mount_files(&self, workspace: &Workspace, processes: &dyn Processes) -> Result<()> {
        let folder = &workspace.folder;
        if is_mounted(folder) {
            if self.is_alive(workspace) {
                // A fork was killed.
                return match overlay::is_read_only(folder) {
                    true => overlay::set_read_only(folder, false),
                    false => Ok(()),
                };
            }
            // The process that showed its commit has ended, and all that is in it is gone with that.
            overlay::detach(folder)?;
        }
        if !self.has_remote(workspace) {
            // Nor can its views read any more.
            self.views(workspace).iter().for_each(|view| unmount_dead(view));
        }
        self.show(workspace, processes)?;
        for commit in &workspace.later {
            self.show_later(workspace, commit, processes)?;
        }
        fs::create_dir_all(folder).map_err(Error::on(folder))?;
        self.with_layers(workspace, |layers| match workspace.uses_fuse_overlayfs {
            true => overlay::mount_by_program(folder, layers),
            false => overlay::mount_by_kernel(folder, layers),
        })?;
        let _ = fs::remove_file(self.entered_path(workspace));
        self.note_mounted(workspace)
    }

    pub(crate) fn entered_path(&self, workspace: &Workspace) -> PathBuf {
        self.place(&workspace.folder).join(ENTERED)
    }

    /// Calls `mount` with what is mounted upon each other for a workspace.
    pub(crate) fn with_layers<T>(
        &self,
        workspace: &Workspace,
        mount: impl FnOnce(&Layers<'_>) -> Result<T>,
    ) -> Result<T> {
        let work = self.work(workspace);
        fs::create_dir_all(&work).map_err(Error::on(&work))?;
        let mut lower = vec![self.lower(workspace)];
        lower.extend(self.layers(workspace));
        mount(&Layers { lower: &lower, upper: &self.written(workspace), work: &work })
    }

    /// Returns the folder for the mount of a workspace. One before a fork or a switch may still use its own.
    pub(crate) fn work(&self, workspace: &Workspace) -> PathBuf {
        let mut name = format!("overlay{}", self.layers(workspace).len());
        if let Some(times) = &workspace.times {
            name = name + "-" + times;
        }
        self.place(&workspace.folder).join(name)
    }

    /// Notes which view a workspace is mounted on.
    pub(crate) fn note_mounted(&self, workspace: &Workspace) -> Result<()> {
        let path = self.place(&workspace.folder).join(STANDS_ON);
        replace_file(&path, self.device(workspace).as_bytes())
    }

    /// Returns the device of the view that a workspace is to stand on.
    fn device(&self, workspace: &Workspace) -> String {
        fs::symlink_metadata(self.view(workspace)).map(|about| about.dev()).unwrap_or_default().to_string()
    }

    /// Returns whether the views are there that a workspace stands on.
    pub fn is_alive(&self, workspace: &Workspace) -> bool {
        // The view may be another one than when it was mounted.
        let stands_on = fs::read_to_string(self.place(&workspace.folder).join(STANDS_ON));
        self.has_remote(workspace)
            && self.views(workspace).iter().all(|view| is_shown(view))
            && stands_on.is_ok_and(|device| device == self.device(workspace))
    }

    /// Removes a workspace with all that was written in it. The view goes, too, if no other workspace stands
    /// on it.
    ///
    /// # Errors
    /// If its folder is in use.
    pub fn remove(&self, workspace: &Workspace) -> Result<()> {
        let _alone = self.lock()?;
        let mut workspace = workspace.clone();
        self.renew(&mut workspace)?;
        self.remove_alone(&workspace)
    }

    /// Removes a workspace; the caller holds the lock.
    pub(crate) fn remove_alone(&self, workspace: &Workspace) -> Result<()> {
        if is_mounted(&workspace.folder) {
            overlay::unmount(&workspace.folder)?;
            overlay::unmount_left(&workspace.folder);
        }
        let (place, gone) = (self.place(&workspace.folder), self.root.join(GONE));
        unmount_dead(&self.next_place(workspace));
        // If this process is killed before all is deleted, it is no workspace any more.
        self.delete_gone().unwrap_or_else(|e| tracing::warn!("{e}"));
        fs::create_dir_all(&gone).map_err(Error::on(&gone))?;
        let name = place.file_name().unwrap_or_default();
        fs::rename(&place, gone.join(name)).map_err(Error::on(&place))?;
        let deleted = self.delete_gone();
        // It is empty, unless somebody wrote to it while it was not mounted.
        let _ = fs::remove_dir(&workspace.folder);
        let others = self.list()?;
        if self.has_damaged_record() {
            return deleted;
        }
        for name in &workspace.frozen {
            if !others.iter().any(|other| other.frozen.contains(name)) {
                // A fork that was killed may have recorded a layer that it never made.
                let _ = fs::remove_dir_all(self.layer(name));
            }
        }
        if !others.iter().any(|other| other.commit == workspace.commit) {
            self.remove_kept_index(&workspace.commit);
        }
        self.release_views();
        self.release_alone(&workspace.source);
        self.release_left_remotes();
        if others.is_empty() {
            monitor_socket::end(&self.root);
        }
        deleted
    }

    /// Deletes the files of workspaces that were removed.
    fn delete_gone(&self) -> Result<()> {
        let gone = self.root.join(GONE);
        match fs::remove_dir_all(&gone) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            deleted => deleted.map_err(Error::on(&gone)),
        }
    }

    /// Returns whether a record is damaged, or they cannot be read: what it needs is not known.
    pub(crate) fn has_damaged_record(&self) -> bool {
        let counts = self.records().and_then(|records| Ok((records.len(), self.list()?.len())));
        counts.map_or(true, |(records, sound)| records > sound)
    }
}

pub(crate) fn read(path: &Path) -> Result<Workspace> {
    let text = fs::read(path).map_err(Error::on(path))?;
    let damaged = |what: String| {
        let (path, place) = (path.display(), path.parent().unwrap_or(path).display());
        Error::Odd(format!("'{path}' is damaged: {what}; what was written is in '{place}/files'"))
    };
    let workspace: Workspace = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    if ![VERSION, TIMES_VERSION].contains(&workspace.version) {
        return Err(damaged(format!("it has version {}; use another weir", workspace.version)));
    }
    Ok(workspace)
}

/// Returns a name for what `bytes` say.
pub(crate) fn id(bytes: &[u8]) -> String {
    let mut sum = plain_sha(HashKind::Sha256);
    sum.update(bytes);
    sum.finish().to_string()[..16].to_owned()
}
