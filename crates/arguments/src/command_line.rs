//! Flags and subcommands.

use std::env::consts;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand, ValueHint};

use weir_pool::COMMIT;
use weir_terminal::ColorChoice;

use crate::args::{
    AddArgs, ConfigCommand, CrawlArgs, ErrorsArgs, ExportFormat, ImportArgs, LsArgs, MetadataCommand,
    MirrorArgs, PurgeArgs, RepoList, RepoSelection, ServeArgs, SetArgs,
};
use crate::clone::CloneArgs;
use crate::daemon::{DaemonArgs, UploadPackArgs};
use crate::events::EventsCommand;
use crate::hooks::HooksCommand;
use crate::mine::{MineArgs, QueryArgs};
use crate::mount::MountArgs;
use crate::workspace::WorkspaceCommand;

/// Keep faithful, fresh copies of git repositories, one tar file each, and serve them.
#[derive(Parser)]
#[command(
    name = "weir",
    version,
    long_version = long_version(),
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(
    after_help = "First steps:\n  weir init\n  weir add https://example.org/project.git\n  weir mirror\n  \
        weir serve &\n  git clone git://localhost/example.org/project"
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Returns the version, the commit and the machine that the program was built for.
fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let (version, commit) = (env!("CARGO_PKG_VERSION"), COMMIT.unwrap_or("unknown"));
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        format!("{version}\ncommit: {commit}\nbuild: {build}, for {} on {}", consts::ARCH, consts::OS)
    });
    &TEXT
}

#[derive(Args, Clone)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Pool to work on [default: the one that the current directory is in, or weir in the XDG data
    /// directory]
    #[arg(long, global = true, env = "WEIR_POOL", value_name = "POOL", value_hint = ValueHint::DirPath)]
    pub pool: Option<PathBuf>,
    /// Print output as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing but errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more messages; give twice for even more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub color: ColorChoice,
}

/// The groups of commands in the help. Each command is in one of them.
pub(crate) const GROUPS: [(&str, &[&str]); 9] = [
    ("Set up a pool", &["init", "add", "crawl", "import", "config", "migrate"]),
    ("Keep it up to date", &["mirror", "hint", "set", "pause", "resume", "metadata", "events", "hooks"]),
    ("Inspect it", &["status", "errors", "due", "check", "ls", "show", "log", "visits", "du", "accounts"]),
    ("Serve it", &["serve", "shell", "daemon", "upload-pack", "http-backend", "manifest"]),
    ("Work on it", &["workspace", "mount"]),
    ("Mine it", &["mine", "query"]),
    ("Get repositories out of it", &["clone", "export", "cat", "ls-tree"]),
    ("Maintain it", &["fsck", "compact", "share", "dissociate", "restore", "rename", "adopt", "rm", "purge"]),
    ("Helpers", &["completions", "man"]),
];

#[derive(Subcommand)]
// clap builds the arguments of the command that the user calls, not those of all.
#[command(defer = true)]
pub enum Command {
    /// Create a pool: configuration, catalog and a store of archives
    Init {
        /// Directory of the pool [default: --pool, or weir in the XDG data directory]
        #[arg(value_hint = ValueHint::DirPath)]
        path: Option<PathBuf>,
        /// Keep the catalog in PostgreSQL: postgres://USER@HOST/DATABASE
        #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
        catalog: Option<String>,
    },
    /// Move the catalog to PostgreSQL, or back to SQLite
    #[command(
        after_help = "The whole catalog is copied, or nothing; the old one stays as it is. Stop 'weir \
            mirror', 'weir crawl' and 'weir serve' first: what they write meanwhile is not copied."
    )]
    Migrate {
        /// postgres://USER@HOST/DATABASE, or 'sqlite'
        #[arg(value_name = "DESTINATION", value_hint = ValueHint::Url)]
        destination: String,
    },
    /// Register repositories to mirror
    #[command(
        after_help = "A URL has one of git's forms: git://, http(s)://, ssh://, host:path, file:// or a \
            plain path."
    )]
    Add(AddArgs),
    /// Register the repositories that forges list
    #[command(
        after_help = "Forges are the [[forge]] sections of weir.toml. A crawl that was interrupted resumes \
            where it stopped."
    )]
    Crawl(CrawlArgs),
    /// Register repositories from GitHub dumps or existing clones
    #[command(
        after_help = "An import that was interrupted resumes where it stopped.\nFor dumps of GitHub, the \
            [[forge]] for https://github.com in weir.toml, if there is one, selects which repositories to \
            register and how to name them. Clones are named after the URL of their origin."
    )]
    Import(ImportArgs),
    /// Clone new repositories and update those that are due
    #[command(
        after_help = "Where all visits would pause (no room, no network), a run without --watch ends. It \
            says what it left, which the next run visits, and exits with status 3."
    )]
    Mirror(MirrorArgs),
    /// Fetch, list and print issues, pull requests and releases
    ///
    /// They are kept as JSON lines in the archive of each repository.
    #[command(subcommand)]
    Metadata(MetadataCommand),
    /// Take events from senders, and list them
    ///
    /// A sender says that a repository has changed, and weir visits it at once. weir writes each event to
    /// disk before it acknowledges it.
    #[command(subcommand)]
    Events(EventsCommand),
    /// List the hooks that are told of events, and try them
    ///
    /// Hooks are the programs and webhooks in the table 'hooks' of weir.toml.
    #[command(subcommand)]
    Hooks(HooksCommand),
    /// Write commits, tags, changed files and refs as tables
    ///
    /// The rows equal what git log and git diff-tree print. A later run adds what is new.
    #[command(
        after_help = "A dataset has a folder of files for each table; DuckDB, Polars, Spark and ClickHouse \
            read those of Parquet. A database has the same tables. Stop a run when you like, and run it \
            again to go on.\nAn argument that is the path of a file or folder is no name. Exits with status \
            3 if a repository cannot be mined; what is damaged within one becomes rows of mining_error."
    )]
    Mine(Box<MineArgs>),
    /// Run SQL over commits, changed files, tags and refs
    ///
    /// The tables are those of weir mine. weir mines the columns that the query reads, and keeps nothing.
    #[command(
        after_help = "Ids are blobs: compare them with x'83ba...'; they are printed in hexadecimal. Times \
            are texts in UTC, such as 2024-05-01T12:00:00Z. 'text REGEXP pattern' works.\nThe tables hold \
            all that refs reach. To query many repositories often, load a database with weir mine."
    )]
    Query(QueryArgs),
    /// Show branches, tags and commits as folders
    ///
    /// Mounts a read-only file system (FUSE). Nothing is checked out: a file is read when it is opened, and
    /// mounting takes the same time whatever the size of the repository.
    #[command(
        after_help = "In the folder of a repository, HEAD, branches/NAME, tags/NAME and refs/NAME lead to \
            commits/ID, which has the files of that commit. commits/ lists the tips of branches and tags; \
            any other commit is there under its id, or the start of one. A commit never changes; branches \
            and tags follow the repository within a second or two.\nweir goes on until Ctrl-C, SIGTERM or \
            'umount DIR'. A user other than root needs fusermount3 (package fuse3). Without --allow-other, \
            nobody else may look, not even root."
    )]
    Mount(MountArgs),
    /// Make working trees that are mounted, not checked out
    ///
    /// A workspace is a writable working tree of a commit that is there at once, whatever the size of the
    /// repository. git, editors and build tools work in it as in a clone.
    #[command(
        subcommand,
        alias = "ws",
        after_help = "The commit below cannot move: what is written in a workspace lies above it, in the \
            user's state folder. All workspaces of a commit share one view of it. Needs FUSE and \
            overlayfs."
    )]
    Workspace(WorkspaceCommand),
    /// Serve all repositories of the pool over git:// and HTTP
    #[command(
        after_help = "An address is ADDRESS:PORT, NAME:PORT, :PORT for all addresses of this machine, PORT \
            for this machine only, or unix:PATH.\nIf systemd passes sockets (LISTEN_FDS), weir \
            serves on those instead: HTTP, HTTPS or metrics on those named http, https or metrics, and \
            git:// on all others.\nOn SIGTERM, weir lets running connections finish, then exits. On SIGUSR2, \
            it starts a new process on the same sockets, and then does the same."
    )]
    Serve(ServeArgs),
    /// Clone a repository, faster from a weir server or an archive
    ///
    /// From a weir server, weir downloads the pack index instead of building it. From an archive, weir shares
    /// the packs instead of copying them, where the file system supports that. From other servers, and with
    /// options that only git has, weir runs git clone.
    Clone(Box<CloneArgs>),
    /// Serve directories and archives with git-daemon's options
    Daemon(Box<DaemonArgs>),
    /// Serve one repository as git-upload-pack does
    ///
    /// The repository is an archive or a git directory.
    UploadPack(UploadPackArgs),
    /// Answer one HTTP request as git-http-backend does
    #[command(after_help = "Reads the CGI variables: GIT_PROJECT_ROOT and PATH_INFO (or PATH_TRANSLATED), \
            GIT_HTTP_EXPORT_ALL, REQUEST_METHOD and so on.")]
    HttpBackend,
    /// Serve an ssh client, as a forced command or a login shell
    #[command(
        after_help = "In authorized_keys: command=\"weir --pool POOL shell --as NAME\",restrict ssh-ed25519 \
            ..."
    )]
    Shell {
        /// Command that the client requests [default: SSH_ORIGINAL_COMMAND]
        #[arg(short = 'c', value_name = "COMMAND")]
        command: Option<String>,
        /// Treat the client as the holder of the token with this name in access.tokens
        #[arg(long = "as", value_name = "NAME")]
        known_as: Option<String>,
    },
    /// Check the pool for problems, present or imminent
    ///
    /// Checks the configuration, file permissions, disk space, clocks, limits, the catalog, archives and
    /// hosts.
    #[command(
        after_help = "Contacts each upstream host and each forge once. Changes nothing. Exits with status 1 \
            if there is any error."
    )]
    Check {
        /// Do not contact any host
        #[arg(long)]
        offline: bool,
        /// Print at most N findings of each kind, and count the others
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        max_count: usize,
    },
    /// Show the state of the mirror: visits, failures, forges, space
    Status,
    /// List the repositories that are due next
    Due {
        /// Show at most N repositories
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        max_count: usize,
    },
    /// List repositories whose last visit failed, and what to do
    #[command(
        after_help = "Classes are network, slow, server, gone, forbidden, protocol, bad-pack, incomplete, \
            limit, damaged and so on; 'listing' stands for listings of forges, 'metadata' for issues, pull \
            requests and releases.\nRepositories of one host that failed for one cause take one line."
    )]
    Errors(ErrorsArgs),
    /// Stop visiting repositories; they are still served
    ///
    /// Use 'weir resume' to visit them again.
    Pause(RepoList),
    /// Visit paused repositories again
    Resume(RepoList),
    /// List users and organisations that forges have listed
    ///
    /// For each, shows the number of its repositories and the organisations it belongs to.
    Accounts {
        /// Show only accounts with this login
        login: Option<String>,
        /// Show at most N accounts
        #[arg(long, short = 'n', value_name = "N", default_value_t = 1000)]
        max_count: usize,
    },
    /// Override settings for some repositories
    ///
    /// Without options, lists the repositories with overrides.
    #[command(
        after_help = "The value 'default' removes an override, so that weir.toml applies again.\nIf not \
            everything that is due can be visited in time, repositories with a higher priority are visited \
            first."
    )]
    Set(SetArgs),
    /// Mark repositories as changed upstream, to be visited next
    Hint {
        /// Names, patterns or URLs of the repositories
        #[arg(required_unless_present = "from", value_name = "REPO")]
        repos: Vec<String>,
        /// Read them from FILE, one per line ('-' for standard input)
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        from: Option<PathBuf>,
    },
    /// Show what visits to a repository found
    ///
    /// Lists changes, failures and recoveries, with the id of each snapshot.
    Visits {
        /// Name of the repository
        repo: String,
        /// Show at most N visits
        #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
        max_count: usize,
    },
    /// List repositories
    #[command(after_help = "In patterns, here and in other commands, '*' matches any characters, including \
            slashes, and '?' matches one character. The name of a directory matches everything below it.")]
    Ls(LsArgs),
    /// Show everything about a repository
    Show {
        /// Name of the repository
        repo: String,
    },
    /// Show every committed state of a repository's refs
    Log {
        /// Name of the repository
        repo: String,
        /// Show at most N states
        #[arg(long, short = 'n', value_name = "N")]
        max_count: Option<usize>,
    },
    /// Show the disk usage of repositories
    Du(RepoSelection),
    /// Check archives: every checksum, every object, every link
    Fsck {
        #[command(flatten)]
        selection: RepoSelection,
        /// Repair damaged archives: continue from the last intact commit, or clone again. The damaged data is
        /// kept beside the archive
        #[arg(long)]
        repair: bool,
    },
    /// Register archives in the store that the catalog does not list
    ///
    /// For example, after the catalog was lost.
    #[command(
        after_help = "Archives record where they come from. Those last written by an older version of weir \
            do not: 'weir adopt' lists them, and 'weir add --name NAME URL' registers them as they are."
    )]
    Adopt {
        /// Only print what would be registered
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Rewrite archives to take less space; older states are kept
    Compact(RepoSelection),
    /// Make archives of forks store only what their parents lack
    #[command(after_help = "Without --reference, a fork builds on the repository that it was forked from, \
            according to its forge. store.share_forks does the same for new forks.\nAn archive is lost \
            together with the archive that it builds on. 'weir rm' and 'weir purge' therefore keep an \
            archive that others build on, 'weir dissociate' makes archives self-contained again, and 'weir \
            export' writes complete copies.")]
    Share {
        #[command(flatten)]
        selection: RepoSelection,
        /// Make archives build on the archive of this repository
        #[arg(long, value_name = "REPO")]
        reference: Option<String>,
        /// Only print how many objects each archive has in common with its base
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Make archives that build on others self-contained
    Dissociate {
        /// Names or patterns of the repositories
        #[arg(required_unless_present = "reference", value_name = "REPO")]
        repos: Vec<String>,
        /// Dissociate all archives that build on the archive of this repository
        #[arg(long, value_name = "REPO")]
        reference: Option<String>,
    },
    /// Set a repository's refs back to an older state
    #[command(
        after_help = "'weir log REPO' lists the states.\nWithout --name, weir sets back the repository \
            itself and stops mirroring it, until you run 'weir mirror REPO' with its exact name. With \
            --name, weir makes a copy."
    )]
    Restore {
        /// Repository and number of the state
        #[arg(value_name = "REPO@N")]
        state: String,
        /// Create a new repository of that name and leave the original as it is
        #[arg(long)]
        name: Option<String>,
    },
    /// Export a repository as a tar file, a directory or a bundle
    Export {
        /// Name of the repository, or REPO@STATE for an older state
        repo: String,
        /// File to write, or directory for a bare repository
        #[arg(value_hint = ValueHint::AnyPath)]
        target: PathBuf,
        /// Format of TARGET [default: bundle if it ends in .bundle, tar if in .tar, else directory, unless it
        /// ends as other archives do (.zip, .gz)]
        #[arg(long, value_enum)]
        format: Option<ExportFormat>,
    },
    /// Write a grokmirror manifest of the mirrored repositories
    ///
    /// With it, others can mirror them from here.
    Manifest {
        /// File to write; compressed if its name ends in .gz
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        selection: RepoSelection,
        /// Include what the holder of the token with this name in access.tokens may access [default: what
        /// everybody may access]
        #[arg(long = "as", value_name = "TOKEN_NAME")]
        known_as: Option<String>,
    },
    /// Rename a repository; archive, settings and history stay
    #[command(alias = "mv")]
    Rename {
        /// Current name
        repo: String,
        /// New name
        new: String,
    },
    /// Unregister repositories; with --delete, delete their archives
    Rm {
        /// Names of the repositories, or patterns with '*' or '?'
        #[arg(required = true, value_name = "REPO")]
        repos: Vec<String>,
        /// Also delete the archives, permanently
        #[arg(long)]
        delete: bool,
    },
    /// Permanently delete archives of repositories long gone upstream
    ///
    /// Without this command, weir keeps every archive whose repository is gone upstream.
    Purge(PurgeArgs),
    /// Print a file or any other object from an archive
    Cat {
        /// Name of the repository, or REPO@STATE for an older state
        repo: String,
        /// Object to print: REV:PATH, or REV alone for the object that it names
        #[arg(value_name = "REV:PATH")]
        object: String,
    },
    /// List the contents of a tree in an archive
    LsTree {
        /// Name of the repository, or REPO@STATE for an older state
        repo: String,
        /// Tree to list: REV or REV:PATH
        #[arg(value_name = "REV[:PATH]", default_value = "HEAD")]
        tree: String,
        /// Recurse into subtrees
        #[arg(long, short)]
        recursive: bool,
    },
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    Completions {
        /// Shell to generate the script for
        shell: clap_complete::Shell,
    },
    /// Write manual pages to a directory
    Man {
        /// Directory to write to
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}
