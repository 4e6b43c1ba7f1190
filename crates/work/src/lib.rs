//! Workspaces and views of what a user names: a repository of a pool, a path, or one that a weir serves on
//! another machine. The crates below know only folders and open repositories.
//!
//! Much of the work is done by other processes of this program ([`Launcher`]), which outlive the command that
//! started them.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weir_work::{NamedSource, shown_source};
//! use weir_workspace::{MountOptions, mount};
//!
//! let source = NamedSource::parse("/srv/project.tar@v1.0", || Err("it is a path".into()))?;
//! let options = MountOptions { threads: 2, allow_other: false };
//! let mounted = mount(shown_source(source)?, "/mnt/project".as_ref(), &options)?;
//! mounted.wait(&weir_ground::Stop::default());
//! # Ok(())
//! # }
//! ```

mod attach;
mod background;
mod error;
mod launcher;
mod source;
mod switch;
mod view;

pub use attach::{AttachedSource, TransportFor, attach, serve_remote, waits_for};
pub use background::{answer_monitor, check_namespace, hold};
pub use error::{Error, Result};
pub use launcher::{Launcher, MOUNTED, OwnCommands, attached_to, has_namespace, mounted_in_namespace, whole};
pub use source::{NamedCommit, NamedSource};
pub use switch::{SwitchOutcome, Switcher};
pub use view::{LowerView, shown_pool, shown_source};
