//! Flags of `weir workspace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

#[derive(Subcommand)]
// clap builds the arguments of the command that the user calls, not those of all.
#[command(defer = true)]
pub enum WorkspaceCommand {
    /// Make a writable working tree of a commit, at once
    Add {
        /// A repository of the pool, an archive or a git directory; REV is a branch, a tag or an id
        /// [default: HEAD]
        #[arg(value_name = "REPO[@REV]")]
        source: String,
        /// The folder of the working tree; empty, or not there
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        /// Mount with the program fuse-overlayfs, so that all your programs see it without root
        #[arg(long)]
        fuse_overlayfs: bool,
    },
    /// Make a workspace of a repository that a weir serves elsewhere, without a clone
    #[command(
        after_help = "What is read is fetched then, and kept; the rest follows in the background. 'weir \
            workspace ls' says what readers wait for, if the server is away."
    )]
    Attach {
        /// The repository's URL (http or https); REV is a branch, a tag or an id [default: HEAD]
        #[arg(value_name = "URL[@REV]")]
        source: String,
        /// The folder of the working tree; empty, or not there
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        /// Mount with the program fuse-overlayfs, so that all your programs see it without root
        #[arg(long)]
        fuse_overlayfs: bool,
        /// Fetch only what is read
        #[arg(long)]
        no_background_fetch: bool,
    },
    /// Show another commit in a workspace: write the files that differ
    #[command(
        after_help = "Files that differ get the time of the switch, and others keep theirs. Other changes \
            stay; where they are in files that differ, nothing is switched. Remote branches and tags are \
            brought up to the repository first."
    )]
    Switch {
        /// The folder of the working tree
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        /// A branch, a tag or an id; '-' is what HEAD was at before
        #[arg(value_name = "REV")]
        revision: String,
        /// Mount the workspace again if few files differ, too
        #[arg(long, hide = true)]
        mount: bool,
    },
    /// Make a workspace with all that is in another, also what was built
    Fork {
        /// The folder of the working tree
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        from: PathBuf,
        /// The folder of the new one; empty, or not there
        #[arg(value_name = "NEWDIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Say what differs from HEAD, at the cost of what was touched
    #[command(
        after_help = "Files are compared with HEAD, not with the index: what is staged is a difference, too. \
            Files that git ignores are left out; a new folder with over a thousand files is named \
            without them."
    )]
    Status {
        /// The folders of working trees [default: the current directory]
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folders: Vec<PathBuf>,
        /// Of all workspaces
        #[arg(long, conflicts_with = "folders")]
        all: bool,
        /// Go on, and say it again when it has changed
        #[arg(long)]
        watch: bool,
        /// With --watch, how often to look
        #[arg(long, value_name = "SECONDS", default_value = "1", requires = "watch")]
        interval: f64,
    },
    /// List workspaces
    Ls,
    /// Remove workspaces with all that was written in them; go on after one that is not removed
    Rm {
        /// The folders of the working trees
        #[arg(value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
        folders: Vec<PathBuf>,
        /// Remove them even if they have changes or commits that are nowhere else
        #[arg(long, short)]
        force: bool,
    },
    /// Run a shell, or a command, in a workspace
    Shell {
        /// The folder of the working tree, or one in it
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        /// The command and its arguments [default: $SHELL]
        #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Say what this machine has for workspaces
    Doctor,
    /// Hold a namespace in which a user may mount; without a folder, only try to make one
    #[command(hide = true)]
    Hold { root: Option<PathBuf> },
    /// Show the pack of an attached clone
    #[command(hide = true)]
    Remote { place: PathBuf },
    /// Answer git's fsmonitor at a socket
    #[command(hide = true)]
    Monitor { root: PathBuf },
    /// Answer a question of git's fsmonitor
    #[command(hide = true)]
    Fsmonitor { place: PathBuf, protocol: u32, token: String },
    /// Mount workspaces again, for example after the machine was started
    Mount {
        /// The folders of the working trees [default: all workspaces]
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folders: Vec<PathBuf>,
    },
}
