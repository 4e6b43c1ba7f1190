//! Commits as folders: a read-only view of repositories, mounted as a file system, and writable workspaces
//! that stand on it.
//!
//! A commit never changes, so the kernel keeps all of it that was asked for; nothing is read before. Mounting
//! costs the same, however many files there are; a workspace costs its index.
//!
//! ```no_run
//! # fn main() -> weir_workspace::Result<()> {
//! use weir_workspace::{Workspaces, is_mounted};
//!
//! for workspace in Workspaces::new("workspaces".into()).list()? {
//!     let state = if is_mounted(&workspace.folder) { "mounted" } else { "not mounted" };
//!     println!("{} of {}: {state}", workspace.folder.display(), workspace.repository);
//! }
//! # Ok(())
//! # }
//! ```

mod ask;
mod doctor;
mod error;
mod file_times;
mod folders_above;
mod fork;
mod git;
mod git_dir;
mod guard;
mod heeded;
mod hidden;
mod index;
mod index_lock;
mod kept_index;
mod known_files;
mod known_folders;
mod monitor;
mod monitor_socket;
mod mount;
mod mounts_elsewhere;
mod namespace;
mod numbers;
mod overlay;
mod place;
mod remote_commit;
mod remote_files;
mod remotes;
mod remount;
mod replaced_file;
mod revision;
mod short_path;
mod staged_in_way;
mod status;
mod switch;
mod touched;
mod touched_scan;
mod tree;
mod tree_changes;
mod unlisted;
mod unsaved;
mod view;
mod views;
mod workspaces;

pub use ask::changed_since;
pub use doctor::{Diagnosis, MountWay, Need, diagnosis};
pub use error::{Error, Result};
pub use file_times::FileTimes;
pub use fork::{Forked, NewFork};
pub use git::{GIT_THAT_ASKS, GitVersion, git, git_command};
pub use git_dir::Monitor;
pub use monitor::serve_monitor;
pub use mount::{Mount, MountOptions, mount, mount_guarded};
pub use mounts_elsewhere::UserSearch;
pub use namespace::{Namespace, NamespaceCommand, become_alone, may_mount};
pub use overlay::{is_mounted, is_shown, unmount_dead};
pub use remote_commit::{RemoteCommit, Reopen};
pub use remote_files::{RemoteFiles, mount_remote_files};
pub use remount::{CommitSwitch, Switched};
pub use revision::{
    HeadMove, SwitchTarget, bring_up, earlier_head, linked_tree_on, moved_refs, name_of_head,
};
pub use status::{PathChange, WorkspaceStatus, is_sparse};
pub use unsaved::Unsaved;
pub use view::{LowerCommit, Repositories, Shown};
pub use workspaces::{Added, NewWorkspace, Processes, StartingView, Workspace, Workspaces};
