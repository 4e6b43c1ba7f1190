//! The views of commits that workspaces stand on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::overlay::{is_shown, unmount_dead};
use crate::replaced_file::LeftFiles;
use crate::workspaces::{Processes, StartingView, Workspace, Workspaces, id};

/// The folder of the views.
const VIEWS: &str = "views";

impl Workspaces {
    /// Returns the folder of all views.
    pub(crate) fn views_folder(&self) -> PathBuf {
        self.root.join(VIEWS)
    }

    /// Returns the folder of the view that `workspace` stands on.
    pub fn view(&self, workspace: &Workspace) -> PathBuf {
        match &workspace.times {
            Some(times) => self.views_folder().join(times),
            None => self.view_of(&workspace.source, &workspace.commit),
        }
    }

    pub(crate) fn view_of(&self, source: &Path, commit: &str) -> PathBuf {
        let source = source.as_os_str().as_encoded_bytes();
        self.views_folder().join(id(&[source, b"\0", commit.as_bytes()].concat()))
    }

    /// Returns the file of the times that the files of `workspace` have below what was written, if they have
    /// others than that of its commit.
    pub(crate) fn times_path(&self, workspace: &Workspace) -> Option<PathBuf> {
        workspace.times.as_ref().map(|name| self.views_folder().join(name).with_extension("times"))
    }

    /// Returns the folders of all views that `workspace` needs.
    pub(crate) fn views(&self, workspace: &Workspace) -> Vec<PathBuf> {
        let later = workspace.later.iter().map(|commit| self.view_of(&workspace.source, commit));
        std::iter::once(self.view(workspace)).chain(later).collect()
    }

    /// Starts the view that `workspace` stands on, unless it is there, and waits until it is.
    pub(crate) fn show(&self, workspace: &Workspace, processes: &dyn Processes) -> Result<()> {
        self.start_view(workspace, processes)?.map_or(Ok(()), |view| view.wait())
    }

    /// Starts the view that `workspace` stands on, unless it is there.
    pub(crate) fn start_view(
        &self,
        workspace: &Workspace,
        processes: &dyn Processes,
    ) -> Result<Option<Box<dyn StartingView>>> {
        let times = self.times_path(workspace);
        let view = self.view(workspace);
        self.start_on(&view, &workspace.source, &workspace.commit, times.as_deref(), processes)
    }

    fn start_on(
        &self,
        view: &Path,
        source: &Path,
        commit: &str,
        times: Option<&Path>,
        processes: &dyn Processes,
    ) -> Result<Option<Box<dyn StartingView>>> {
        if is_shown(view) {
            return Ok(None);
        }
        // What is left of views whose processes have ended.
        unmount_dead(view);
        fs::create_dir_all(view).map_err(Error::on(view))?;
        processes.show(source, commit, times, view).map(Some)
    }

    /// Starts the view of a later commit, the objects of which `workspace` needs, unless it is there.
    pub(crate) fn show_later(
        &self,
        workspace: &Workspace,
        commit: &str,
        processes: &dyn Processes,
    ) -> Result<PathBuf> {
        let view = self.view_of(&workspace.source, commit);
        if let Some(starting) = self.start_on(&view, &workspace.source, commit, None, processes)? {
            starting.wait()?;
        }
        Ok(view)
    }

    /// Ends the views that no workspace stands on, also those that a killed process has left. The caller has
    /// the lock.
    pub(crate) fn release_views(&self) {
        let Ok(workspaces) = self.list() else { return };
        if self.has_damaged_record() {
            return;
        }
        let needed: BTreeSet<PathBuf> = workspaces.iter().flat_map(|one| self.views(one)).collect();
        let entries = fs::read_dir(self.views_folder()).into_iter().flatten().flatten();
        let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        let mut left = LeftFiles::default();
        let is_view = |path: &Path| path.extension().is_none();
        for view in paths.iter().filter(|path| is_view(path) && !needed.contains(*path)) {
            unmount_dead(view);
            left.keep(view);
            let _ = fs::remove_dir(view);
        }
        for path in paths.iter().filter(|path| !is_view(path)) {
            let view = path.with_extension("");
            let is_locked = || {
                // Who still shows it, here or elsewhere, has its lock.
                path.extension().is_some_and(|end| end == "lock")
                    && fs::File::open(path).is_ok_and(|file| file.try_lock().is_err())
            };
            if !needed.contains(&view) && !is_locked() {
                left.keep(path);
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Returns the folder by way of which a workspace is mounted again.
    pub(crate) fn next_place(&self, workspace: &Workspace) -> PathBuf {
        self.place(&workspace.folder).join("next")
    }
}
