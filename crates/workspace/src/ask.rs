//! How the git of a workspace learns what has changed (`core.fsmonitor`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::git_dir::{Monitor, link_monitor};
use crate::known_folders::KnownFolders;
use crate::monitor_socket;
use crate::touched;
use crate::touched_scan::Asked;
use crate::workspaces::{Processes, RECORD, Workspace, Workspaces, read};

impl Workspaces {
    /// Writes the program by which git asks what has changed in the workspace `folder`. Returns its path.
    pub(crate) fn write_monitor(&self, folder: &Path, command: &str) -> Result<PathBuf> {
        let place = self.place(folder);
        let monitor = place.join("fsmonitor");
        let script = format!("#!/bin/sh\nexec {command} {} \"$@\"\n", shell_quoted(&place));
        fs::write(&monitor, script).map_err(Error::on(&monitor))?;
        fs::set_permissions(&monitor, fs::Permissions::from_mode(0o755)).map_err(Error::on(&monitor))?;
        Ok(monitor)
    }

    /// Makes sure that git in a mounted workspace can ask at the socket, if it is to: starts the process that
    /// answers, unless it runs, and ends git's own daemon, which git starts when nobody answers.
    pub fn mend_monitor(&self, workspace: &Workspace, processes: &dyn Processes) {
        if workspace.monitor != Monitor::Socket {
            return;
        }
        let mend = || {
            if !monitor_socket::is_answered(&self.root) {
                processes.answer(&self.root)?;
            }
            link_monitor(&workspace.folder.join(".git"), &monitor_socket::path(&self.root))
        };
        if let Err(e) = mend() {
            tracing::warn!("git cannot ask what has changed in '{}': {e}", workspace.folder.display());
        }
    }

    /// Answers as [`changed_since`] does, and reads no folder again that this process remembers unchanged.
    pub(crate) fn changed_since(&self, place: &Path, asked: &Path, token: &str) -> Result<Vec<u8>> {
        let workspace = read(&place.join(RECORD))?;
        let (lower, layers) = (self.lower(&workspace), self.asked_layers(&workspace));
        let asked = Asked { place, folder: &workspace.folder, tree: asked, lower: &lower, layers: &layers };
        let remembered = self.remembered(place);
        let mut remembered = remembered.lock().unwrap_or_else(PoisonError::into_inner);
        touched::changed_since(&asked, &mut remembered, token)
    }

    /// Returns the folders that this process remembers for the workspace whose records lie in `place`.
    pub(crate) fn remembered(&self, place: &Path) -> Arc<Mutex<KnownFolders>> {
        let mut all = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(place) {
            return Arc::clone(known);
        }
        // Others may have been removed.
        all.retain(|place, _| place.exists());
        Arc::clone(all.entry(place.to_owned()).or_default())
    }
}

/// Returns the answer to git's question (fsmonitor) what has changed since `token` in the working tree
/// `asked`, in a process that answers once. `place` is the folder of the records of the workspace whose git
/// asks.
///
/// # Errors
/// If a record or what was written cannot be read, or the list of it cannot be written. git then looks at
/// every file.
pub fn changed_since(place: &Path, asked: &Path, token: &str) -> Result<Vec<u8>> {
    Workspaces::new(place.parent().unwrap_or(place).to_owned()).changed_since(place, asked, token)
}

/// Returns a path as one word of a shell.
fn shell_quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}
