//! Where this user's workspaces are recorded, and which of them stand on an archive.

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

/// Says which workspaces of this user would be lost with the archive at `path`, if any would.
pub(crate) fn workspaces_on(path: &Path) -> Result<Option<String>> {
    let Ok(root) = state_folder() else { return Ok(None) };
    let standing = Workspaces::new(root).standing_on(path)?;
    let Some(first) = standing.first() else { return Ok(None) };
    let (stand, first) = (" on its archive; 'weir workspace rm' removes one", first.display());
    Ok(Some(match standing.len() {
        1 => format!("the workspace '{first}' stands{stand}"),
        n => format!("the workspace '{first}' and {} more stand{stand}", n - 1),
    }))
}
