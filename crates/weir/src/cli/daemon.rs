//! Flags of the commands that stand in for git's programs, named as these name them.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::log_output::Log;

#[derive(Args)]
pub(crate) struct DaemonArgs {
    /// Serve only what lies below these
    #[arg(value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub(crate) directories: Vec<PathBuf>,
    /// Serve repositories without a file 'git-daemon-export-ok', and archives
    #[arg(long)]
    pub(crate) export_all: bool,
    /// Take requests as relative to PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub(crate) base_path: Option<PathBuf>,
    /// Look for what is not below the base path without it
    #[arg(long, requires = "base_path")]
    pub(crate) base_path_relaxed: bool,
    /// Make paths of virtual hosts: %H host, %CH canonical host, %IP address, %P port, %D directory, %%
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) interpolated_path: Option<String>,
    /// Match paths exactly: add no '.git', and serve only the directories given
    #[arg(long)]
    pub(crate) strict_paths: bool,
    /// Serve ~user/path from below a user's home, in this folder of it if one is given
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) user_path: Option<String>,
    /// Take paths from the rules in FILE, each a 'map' with host, path and to
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "interpolated_path")]
    pub(crate) map: Option<PathBuf>,
    /// Ask PROGRAM whether a client may: it gets service, path, host, canonical host, address and port
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub(crate) access_hook: Option<PathBuf>,
    /// Tell those who push where to: a template as for --interpolated-path
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) push_hint: Option<String>,
    /// Serve one client on standard input and output
    #[arg(long)]
    pub(crate) inetd: bool,
    /// Go on in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// Become this user once the sockets are open
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// And this group [default: the user's]
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Where to log [default: stderr; syslog with --inetd, --detach or --syslog]
    #[arg(long, value_enum, value_name = "WHERE")]
    pub(crate) log_destination: Option<Log>,
    /// Log to the system's log
    #[arg(long)]
    pub(crate) syslog: bool,
    /// Listen on this address or host, or unix:PATH; may be given several times [default: all]
    #[arg(long, value_name = "HOST")]
    pub(crate) listen: Vec<String>,
    /// Listen on this port [default: 9418]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Bind although old connections linger; always so
    #[arg(long)]
    pub(crate) reuseaddr: bool,
    /// Write the process's number to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pid_file: Option<PathBuf>,
    /// Seconds a client may take to ask [default: 10; 0 for no limit]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) init_timeout: Option<u64>,
    /// Seconds without progress [default: 60; 0 for no limit]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    /// Connections at once [default: 8192; 0 for no limit]
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<usize>,
    /// Turn a service on: upload-pack is; others stay off, for weir only serves
    #[arg(long, value_name = "SERVICE")]
    pub(crate) enable: Vec<String>,
    /// Turn a service off
    #[arg(long, value_name = "SERVICE")]
    pub(crate) disable: Vec<String>,
    /// Let repositories turn a service on or off (daemon.uploadpack); they may
    #[arg(long, value_name = "SERVICE")]
    pub(crate) allow_override: Vec<String>,
    /// Do not let them
    #[arg(long, value_name = "SERVICE")]
    pub(crate) forbid_override: Vec<String>,
    /// Tell clients why they are refused
    #[arg(long, overrides_with = "no_informative_errors")]
    pub(crate) informative_errors: bool,
    /// Do not tell them
    #[arg(long, overrides_with = "informative_errors")]
    pub(crate) no_informative_errors: bool,
}

#[derive(Args)]
pub(crate) struct UploadPackArgs {
    /// The archive or directory
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) directory: PathBuf,
    /// Do not look for DIRECTORY/.git and the like
    #[arg(long, overrides_with = "no_strict")]
    pub(crate) strict: bool,
    /// Look for them
    #[arg(long, overrides_with = "strict")]
    pub(crate) no_strict: bool,
    /// Show an archive as this git configuration says: uploadpack.*, uploadpackfilter.*, transfer.*
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) git_config: Option<PathBuf>,
    /// Give up after so many seconds without progress
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    /// Answer one request and end (for HTTP)
    #[arg(long)]
    pub(crate) stateless_rpc: bool,
    /// Only tell what there is, and end
    #[arg(long, alias = "advertise-refs")]
    pub(crate) http_backend_info_refs: bool,
}
