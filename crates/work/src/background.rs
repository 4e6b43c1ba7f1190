//! The work of the processes that a [`Launcher`](crate::Launcher) starts, but for views.

use std::io;
use std::path::Path;

use weir_process::detach;
use weir_workspace::{Namespace, Workspaces, become_alone, serve_monitor};

use crate::error::Result;

/// Answers git's fsmonitor about the workspaces that are recorded in `root`, until there are none. Calls
/// `ready` when it does.
///
/// # Errors
/// If it cannot, or `ready` fails.
pub fn answer_monitor(root: &Path, ready: impl FnOnce() -> io::Result<()>) -> Result<()> {
    let ready = || {
        detach();
        ready()
    };
    Ok(serve_monitor(root, ready)?)
}

/// Holds the namespace of the user whose records lie in `root`, until there are no workspaces any more. Calls
/// `ready` when others may enter it.
///
/// # Errors
/// If the kernel makes none.
pub fn hold(root: &Path, ready: impl FnOnce()) -> Result<()> {
    let all = root.to_owned();
    let is_needed = move || Workspaces::new(all.clone()).are_there();
    let ready = || {
        detach();
        ready();
    };
    Namespace::new(root).hold(ready, is_needed).map_err(|e| match e {
        // Whoever started this process says what it was for.
        weir_workspace::Error::NoNamespace(e) => e.into(),
        e => e.into(),
    })
}

/// Makes a namespace and leaves it, to find whether the kernel allows it.
///
/// # Errors
/// If it does not.
pub fn check_namespace() -> Result<()> {
    Ok(become_alone()?)
}
