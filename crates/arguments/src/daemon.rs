//! Flags of the commands that stand in for git's programs, named as these name them.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use weir_terminal::Log;

#[derive(Args)]
pub struct DaemonArgs {
    /// Serve only repositories below these directories
    #[arg(value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub directories: Vec<PathBuf>,
    /// Also serve archives, and repositories without a file 'git-daemon-export-ok'
    #[arg(long)]
    pub export_all: bool,
    /// Interpret requested paths as relative to PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub base_path: Option<PathBuf>,
    /// If a repository is not found below the base path, look for it without the base path
    #[arg(long, requires = "base_path")]
    pub base_path_relaxed: bool,
    /// Build paths for virtual hosts: %H host, %CH canonical host, %IP address, %P port, %D requested path,
    /// %% percent sign
    #[arg(long, value_name = "TEMPLATE")]
    pub interpolated_path: Option<String>,
    /// Match paths exactly: do not append '.git', and serve only the directories given
    #[arg(long)]
    pub strict_paths: bool,
    /// Allow ~user/path requests, below the user's home directory or below its subdirectory PATH
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub user_path: Option<String>,
    /// Map requests to paths by the `[[map]]` rules in FILE, each with host, path and to
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "interpolated_path")]
    pub map: Option<PathBuf>,
    /// Run PROGRAM to allow or deny each request, with service, path, host, canonical host, address and port
    /// as arguments
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub access_hook: Option<PathBuf>,
    /// Tell clients that push where to push instead; a template as for --interpolated-path
    #[arg(long, value_name = "TEMPLATE")]
    pub push_hint: Option<String>,
    /// Serve one client on standard input and output
    #[arg(long)]
    pub inetd: bool,
    /// Run in the background
    #[arg(long)]
    pub detach: bool,
    /// Change to this user after opening the sockets
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Change to this group after opening the sockets [default: the user's group]
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Where to log [default: stderr; syslog with --inetd, --detach or --syslog]
    #[arg(long, value_enum, value_name = "WHERE")]
    pub log_destination: Option<Log>,
    /// Log to syslog
    #[arg(long)]
    pub syslog: bool,
    /// Listen on this address or host, or unix:PATH; may be given several times [default: all]
    #[arg(long, value_name = "HOST")]
    pub listen: Vec<String>,
    /// Listen on this port [default: 9418]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Set SO_REUSEADDR on the sockets; always on
    #[arg(long)]
    pub reuseaddr: bool,
    /// Write the process id to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pid_file: Option<PathBuf>,
    /// Seconds to wait for the request of a client [default: 10; 0 for no limit]
    #[arg(long, value_name = "SECONDS")]
    pub init_timeout: Option<u64>,
    /// Seconds without progress after which a client is dropped [default: 60; 0 for no limit]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Maximum number of simultaneous connections [default: 8192; 0 for no limit]
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,
    /// Enable a service; upload-pack is enabled by default, the others stay disabled because weir is
    /// read-only
    #[arg(long, value_name = "SERVICE")]
    pub enable: Vec<String>,
    /// Disable a service
    #[arg(long, value_name = "SERVICE")]
    pub disable: Vec<String>,
    /// Allow repositories to enable or disable a service (daemon.uploadpack); the default
    #[arg(long, value_name = "SERVICE")]
    pub allow_override: Vec<String>,
    /// Do not allow repositories to enable or disable a service
    #[arg(long, value_name = "SERVICE")]
    pub forbid_override: Vec<String>,
    /// Tell clients why they are refused
    #[arg(long, overrides_with = "no_informative_errors")]
    pub informative_errors: bool,
    /// Do not tell clients why they are refused; the default
    #[arg(long, overrides_with = "informative_errors")]
    pub no_informative_errors: bool,
}

#[derive(Args)]
pub struct UploadPackArgs {
    /// Archive or git directory to serve
    #[arg(value_hint = ValueHint::AnyPath)]
    pub directory: PathBuf,
    /// Do not try DIRECTORY/.git and the like
    #[arg(long, overrides_with = "no_strict")]
    pub strict: bool,
    /// Also try DIRECTORY/.git and the like; the default
    #[arg(long, overrides_with = "strict")]
    pub no_strict: bool,
    /// Serve an archive as this git configuration file says: uploadpack.*, uploadpackfilter.*, transfer.*
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub git_config: Option<PathBuf>,
    /// Give up after this many seconds without progress
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Answer a single request and exit (for HTTP)
    #[arg(long)]
    pub stateless_rpc: bool,
    /// Print the initial advertisement and exit (for HTTP)
    #[arg(long, alias = "advertise-refs")]
    pub http_backend_info_refs: bool,
}
