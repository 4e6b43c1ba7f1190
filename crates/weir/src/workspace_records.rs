//! Records of this user's workspaces, and the archives that these stand on.

use std::path::{Path, PathBuf};

use weir_workspace::Workspaces;

use crate::error::{Error, Result};

/// Returns the folder in which workspaces are recorded (XDG Base Directory Specification).
pub(crate) fn state_folder() -> Result<PathBuf> {
    // A relative one is to be ignored.
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    let state = state
        .ok_or_else(|| Error::Message("neither HOME nor XDG_STATE_HOME is an absolute path".to_owned()))?;
    Ok(state.join("weir/workspaces"))
}

/// The workspaces of this user, by what their commits are read from.
pub(crate) struct OwnWorkspaces(Vec<(PathBuf, PathBuf)>);

impl OwnWorkspaces {
    /// Lists them.
    ///
    /// # Errors
    /// If the folder of records cannot be read.
    pub(crate) fn list() -> Result<OwnWorkspaces> {
        // Without a folder of records there are none.
        let Ok(root) = state_folder() else { return Ok(OwnWorkspaces(Vec::new())) };
        let list = Workspaces::new(root).list()?;
        Ok(OwnWorkspaces(list.into_iter().map(|it| (resolved(&it.source), it.folder)).collect()))
    }

    /// Says which of them would be lost with the archive at `path`, if any would.
    pub(crate) fn lost_with(&self, path: &Path) -> Option<String> {
        let path = resolved(path);
        let mut standing = self.0.iter().filter(|(source, _)| *source == path).map(|(_, folder)| folder);
        let (first, others) = (standing.next()?.display(), standing.count());
        let rest = "on its archive; 'weir workspace rm' removes one";
        Some(match others {
            0 => format!("the workspace '{first}' stands {rest}"),
            n => format!("the workspace '{first}' and {n} more stand {rest}"),
        })
    }
}

fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
