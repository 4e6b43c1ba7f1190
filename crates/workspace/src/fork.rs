//! Forks a workspace: makes the files that were written in it a read-only layer below it and its fork.
//!
//! The kernel takes no change of what lies below a mount, so the workspace is mounted again. Whoever is in it
//! then goes on in the old mount, which is read-only.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::git_dir::include_monitor;
use crate::overlay;
use crate::touched;
use crate::workspaces::{Processes, Workspace, Workspaces};

/// Frozen layers of a workspace. Their names must fit into a page (mount(2)).
const LAYERS_MAX: usize = 48;

/// What a fork is to be.
pub struct NewFork<'a> {
    /// Its folder, an absolute path. It is empty, or not there.
    pub folder: &'a Path,
    /// The time, in seconds since 1970.
    pub now: u64,
    /// The shell command by which git asks what has changed; see [`crate::NewWorkspace`].
    pub monitor: &'a str,
}

/// A fork that was made.
#[derive(Debug)]
pub struct Forked {
    /// The new workspace.
    pub workspace: Workspace,
    /// Whether programs were in the one it was made of.
    pub was_in_use: bool,
}

impl Workspaces {
    /// Makes a workspace with all that is in `from`, also what git ignores, and mounts both.
    ///
    /// # Errors
    /// If a program has a file of `from` open to write, the folder is in use, or the system does not mount.
    pub fn fork(&self, mut from: Workspace, new: &NewFork<'_>, processes: &dyn Processes) -> Result<Forked> {
        if from.uses_fuse_overlayfs {
            return Err(Error::Odd("a workspace that fuse-overlayfs mounts cannot be forked".to_owned()));
        }
        if from.frozen.len() >= LAYERS_MAX {
            return Err(Error::Odd(format!(
                "'{}' was forked {LAYERS_MAX} times, one upon another; commit, and add a new workspace",
                from.folder.display()
            )));
        }
        let _alone = self.lock()?;
        self.renew(&mut from)?;
        self.check_free(new.folder)?;
        self.mount_alone(&from, processes)?;
        let linked = from.folder.join(".git/worktrees");
        if fs::read_dir(&linked).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::Odd(format!(
                "'{}' has linked working trees, which cannot be forked: 'git worktree remove' them",
                from.folder.display()
            )));
        }
        let is_written = fs::read_dir(self.written(&from)).is_ok_and(|mut entries| entries.next().is_some());
        let was_in_use = if is_written { self.freeze(&mut from, new.now, processes)? } else { false };
        let config_path = from.folder.join(".git/config");
        let config = fs::read_to_string(&config_path).map_err(Error::on(&config_path))?;
        let workspace = Workspace { folder: new.folder.to_owned(), made_at: new.now, ..from.clone() };
        let made = self.make_fork(&from, &workspace, &config, new.monitor);
        made.and_then(|()| self.mount_alone(&workspace, processes)).inspect_err(|_| {
            let _ = self.remove_alone(&workspace);
        })?;
        Ok(Forked { workspace, was_in_use })
    }

    /// Makes what was written in a workspace a layer of its own, which nobody writes to any more, and mounts
    /// the workspace upon it. Returns whether programs were in it.
    fn freeze(&self, workspace: &mut Workspace, now: u64, processes: &dyn Processes) -> Result<bool> {
        overlay::set_read_only(&workspace.folder, true)?;
        if let Err(e) = self.freeze_files(workspace, now) {
            overlay::set_read_only(&workspace.folder, false)?;
            return Err(e);
        }
        let was_in_use = overlay::unmount(&workspace.folder).is_err();
        if was_in_use {
            overlay::detach(&workspace.folder)?;
        }
        self.mount_alone(workspace, processes)?;
        Ok(was_in_use)
    }

    fn freeze_files(&self, workspace: &mut Workspace, now: u64) -> Result<()> {
        let written = self.written(workspace);
        let name = self.layer_name(workspace, now);
        let layer = self.layer(&name);
        let above = layer.parent().unwrap_or(&layer);
        fs::create_dir_all(above).map_err(Error::on(above))?;
        let mode = fs::metadata(&written).map_err(Error::on(&written))?.permissions();
        // A layer of the record that is not there yet is what is still written to.
        workspace.frozen.push(name);
        self.record(workspace)?;
        fs::rename(&written, &layer).map_err(Error::on(&written))?;
        fs::create_dir(&written).map_err(Error::on(&written))?;
        fs::set_permissions(&written, mode).map_err(Error::on(&written))
    }

    /// Writes the files of a fork: what git asks what has changed is its own.
    fn make_fork(&self, from: &Workspace, fork: &Workspace, config: &str, monitor: &str) -> Result<()> {
        let (old, place) = (self.place(&from.folder), self.place(&fork.folder));
        let git_dir = self.written(fork).join(".git");
        fs::create_dir_all(&git_dir).map_err(Error::on(&git_dir))?;
        let config = config.replace(&*old.to_string_lossy(), &place.to_string_lossy());
        let config = config.replace(&include_monitor(&from.folder), &include_monitor(&fork.folder));
        let path = git_dir.join("config");
        fs::write(&path, config).map_err(Error::on(&path))?;
        touched::copy(&old, &place)?;
        self.write_monitor(&fork.folder, monitor)?;
        self.record(fork)
    }
}
