//! The clones on other machines that workspaces stand on: `remotes/ID/git` is the git directory of one, and
//! what another machine has is mounted on its folder of packs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::overlay::{is_shown, unmount_dead};
use crate::workspaces::{Workspace, Workspaces, id};

const REMOTES: &str = "remotes";
/// The git directory in a clone's folder.
const GIT_DIR: &str = "git";

impl Workspaces {
    /// Returns the folder of the clone that is called `name`.
    pub fn remote_place(&self, name: &str) -> PathBuf {
        self.root.join(REMOTES).join(id(name.as_bytes()))
    }

    /// Returns the folder of the clone that `source` is the git directory of, if it is on another machine.
    fn remote_of<'s>(&self, source: &'s Path) -> Option<&'s Path> {
        source.parent().filter(|place| place.parent().is_some_and(|above| above == self.root.join(REMOTES)))
    }

    /// Returns whether what `workspace` reads from another machine is mounted, if it does so.
    pub(crate) fn has_remote(&self, workspace: &Workspace) -> bool {
        self.remote_of(&workspace.source).is_none() || is_shown(&packs_of(&workspace.source))
    }

    /// Lets go of the clone that `source` is the git directory of, if no workspace stands on it.
    pub fn release(&self, source: &Path) {
        if let Ok(_alone) = self.lock() {
            self.release_alone(source);
        }
    }

    /// Lets go of a clone; the caller holds the lock.
    pub(crate) fn release_alone(&self, source: &Path) {
        let Some(place) = self.remote_of(source) else { return };
        let is_used = |others: Vec<Workspace>| others.iter().any(|other| other.source == source);
        if self.has_damaged_record() || self.list().map_or(true, is_used) {
            return;
        }
        // This process may serve the packs, and end when they are unmounted: it deletes all else before.
        let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries(place).chain(entries(source)).map(|entry| entry.path()) {
            if !packs_of(source).starts_with(&path) {
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        }
        unmount_dead(&packs_of(source));
        let _ = fs::remove_dir_all(place);
    }

    /// Removes the clones that killed processes have left; the caller holds the lock.
    pub(crate) fn release_left_remotes(&self) {
        let places = fs::read_dir(self.root.join(REMOTES)).into_iter().flatten().flatten();
        for source in places.map(|place| place.path().join(GIT_DIR)) {
            // While another weir makes a workspace of a clone, a process shows the clone's packs.
            if !is_shown(&packs_of(&source)) {
                self.release_alone(&source);
            }
        }
    }
}

fn packs_of(source: &Path) -> PathBuf {
    source.join("objects/pack")
}
