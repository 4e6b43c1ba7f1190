//! Flags of `weir mount`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

#[derive(Args)]
pub struct MountArgs {
    /// A repository of the pool, an archive, a git directory, or the folder of a pool; with @REV, only the
    /// files of that commit
    #[arg(value_name = "REPO[@REV]|POOL")]
    pub source: String,
    /// The folder to mount on; made if it is not there
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Let other users look, too
    #[arg(long)]
    pub allow_other: bool,
    /// Mount the lower layer of workspaces of the commit, and go to the background
    #[arg(long, hide = true)]
    pub lower: bool,
    /// The times of the files of the lower layer
    #[arg(long, hide = true, requires = "lower", value_name = "FILE")]
    pub times: Option<PathBuf>,
}
