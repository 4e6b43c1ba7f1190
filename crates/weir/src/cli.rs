//! Flags and subcommands.

mod daemon;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use weir_serve::Address;

use crate::listing::{RepositoryState, SortKey};
use crate::setting::{self, Setting};
pub(crate) use daemon::{DaemonArgs, UploadPackArgs};

/// Keep faithful, fresh copies of git repositories, one tar file each, and serve them.
#[derive(Parser)]
#[command(
    name = "weir",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(
    after_help = "First steps:\n  weir init\n  weir add https://example.org/project.git\n  weir mirror\n  \
        weir serve &\n  git clone git://localhost/example.org/project"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Clone)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Pool to work on [default: weir in the XDG data directory]
    #[arg(long, global = true, env = "WEIR_POOL", value_name = "POOL", value_hint = ValueHint::DirPath)]
    pub(crate) pool: Option<PathBuf>,
    /// Print output as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print nothing but errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more messages; give twice for even more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub(crate) color: ColorChoice,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a pool: configuration, catalog and a store of archives
    Init {
        /// Directory of the pool [default: --pool]
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
        after_help = "A URL can have any form that git accepts: git://, http(s)://, ssh://, host:path, \
            file:// or a plain path."
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
    Mirror(MirrorArgs),
    /// Fetch, list and print issues, pull requests and releases
    ///
    /// They are kept as JSON lines in the archive of each repository.
    #[command(subcommand)]
    Metadata(MetadataCommand),
    /// Serve all repositories of the pool over git:// and HTTP
    #[command(
        after_help = "An address is ADDR:PORT or unix:PATH.\nIf systemd passes sockets (LISTEN_FDS), weir \
            serves on those instead: HTTP, HTTPS or metrics on those named http, https or metrics, and \
            git:// on all others.\nOn SIGTERM, weir lets running connections finish, then exits. On SIGUSR2, \
            it starts a new process on the same sockets, and then does the same."
    )]
    Serve(ServeArgs),
    /// Clone a repository, faster from a weir server or an archive
    ///
    /// From a weir server, weir downloads the pack index instead of building it. From an archive, weir shares
    /// the packs instead of copying them, where the file system supports that.
    Clone(CloneArgs),
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
    Errors {
        /// Show only failures of this class: network, server, gone, forbidden, protocol, bad-pack,
        /// incomplete, limit, damaged, ...; or 'listing' (forge listings) or 'metadata'
        class: Option<String>,
        /// Show at most N failures
        #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
        max_count: usize,
    },
    /// Stop visiting repositories; they are still served
    ///
    /// Use 'weir resume' to visit them again.
    Pause {
        /// Names or patterns of the repositories
        #[arg(required = true)]
        patterns: Vec<String>,
    },
    /// Visit paused repositories again
    Resume {
        /// Names or patterns of the repositories
        #[arg(required = true)]
        patterns: Vec<String>,
    },
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
    Du {
        /// Show only repositories whose name matches
        pattern: Option<String>,
    },
    /// Check archives: every checksum, every object, every link
    Fsck {
        /// Check only repositories whose name matches
        pattern: Option<String>,
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
    Compact {
        /// Compact only repositories whose name matches
        pattern: Option<String>,
    },
    /// Make archives of forks store only what their parents lack
    #[command(after_help = "Without --reference, a fork builds on the repository that it was forked from, \
            according to its forge. store.share_forks does the same for new forks.\nAn archive is lost \
            together with the archive that it builds on. 'weir rm' and 'weir purge' therefore keep an \
            archive that others build on, 'weir dissociate' makes archives self-contained again, and 'weir \
            export' writes complete copies.")]
    Share {
        /// Rewrite only archives of repositories whose name matches
        pattern: Option<String>,
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
        #[arg(required_unless_present = "reference", value_name = "PATTERN")]
        patterns: Vec<String>,
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
        /// Name of the repository
        repo: String,
        /// File to write, or directory for a bare repository
        #[arg(value_hint = ValueHint::AnyPath)]
        target: PathBuf,
        /// Format of TARGET [default: bundle if it ends in .bundle, tar if in .tar, else directory]
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
        /// Include only repositories whose name matches
        pattern: Option<String>,
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
        #[arg(required = true)]
        repos: Vec<String>,
        /// Also delete the archives, permanently
        #[arg(long)]
        delete: bool,
    },
    /// Permanently delete archives of repositories long gone upstream
    ///
    /// Without this command, weir keeps every archive whose repository is gone upstream.
    Purge {
        /// Purge only repositories whose name matches
        pattern: Option<String>,
        /// Minimum time since the repository disappeared upstream, such as 90d or 1000h
        #[arg(long, value_name = "TIME", value_parser = crate::config::span_argument)]
        gone_for: std::time::Duration,
        /// Delete nothing if that would be more than PERCENT per cent of the repositories of a forge
        #[arg(long, value_name = "PERCENT", default_value_t = 5,
        value_parser = clap::value_parser!(u8).range(0..=100))]
        purge_protect: u8,
        /// Only list what would be deleted
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Print a file or any other object from an archive
    Cat {
        /// Name of the repository
        repo: String,
        /// Object to print: REV:PATH, or REV alone for the object that it names
        #[arg(value_name = "REV:PATH")]
        object: String,
    },
    /// List the contents of a tree in an archive
    LsTree {
        /// Name of the repository
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

#[derive(Args)]
pub(crate) struct AddArgs {
    /// URLs of the upstreams
    #[arg(value_name = "URL", required_unless_present = "from", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<String>,
    /// Read upstreams from FILE ('-' for standard input), one per line: a URL, optionally followed by a name
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) from: Option<PathBuf>,
    /// Name of the repository [default: host/path of the URL, without .git]
    #[arg(long, conflicts_with = "from")]
    pub(crate) name: Option<String>,
    /// Store only what the archive of this repository lacks; see 'weir share'
    #[arg(long, value_name = "REPO")]
    pub(crate) reference: Option<String>,
    /// Also register paths without a repository, and web pages of forges
    #[arg(long)]
    pub(crate) force: bool,
    /// Register the others if some cannot be registered; without this option, register all or none
    #[arg(long, short)]
    pub(crate) keep_going: bool,
}

#[derive(Args)]
pub(crate) struct SetArgs {
    /// Names or patterns of the repositories
    #[arg(value_name = "REPO")]
    pub(crate) patterns: Vec<String>,
    /// Mirror one repository from this URL from now on, for example to change the password; like 'git remote
    /// set-url'
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// Priority of visits, from 0 (the default) to 3 (visited first)
    #[arg(long, value_name = "N", value_parser = setting::or_default(setting::priority_argument))]
    pub(crate) priority: Option<Setting<i64>>,
    /// Time between visits, such as 1h or 7d, or 'auto' to adapt it to how often the upstream changes
    #[arg(long, value_name = "TIME", value_parser = setting::or_default(crate::config::interval_argument))]
    pub(crate) interval: Option<Setting<crate::config::IntervalSetting>>,
    /// Refs to mirror: all, heads-and-tags, or patterns separated by commas, such as
    /// 'refs/heads/*,^refs/heads/tmp/*'
    #[arg(long, value_name = "PATTERNS", value_parser = setting::or_default(setting::refs_argument))]
    pub(crate) refs: Option<Setting<Vec<String>>>,
    /// Mirror the Git LFS objects of the repository: true or false
    #[arg(long, value_name = "BOOL", value_parser = setting::or_default(setting::bool_argument))]
    pub(crate) lfs: Option<Setting<bool>>,
    /// Mirror issues, pull requests and releases into the archive: true or false
    #[arg(long, value_name = "BOOL", value_parser = setting::or_default(setting::bool_argument))]
    pub(crate) metadata: Option<Setting<bool>>,
}

#[derive(Args)]
pub(crate) struct LsArgs {
    /// List only repositories that match these names or patterns
    #[arg(value_name = "REPO")]
    pub(crate) patterns: Vec<String>,
    /// List only repositories in this state; may be given several times
    #[arg(long = "state", value_enum, value_name = "STATE")]
    pub(crate) states: Vec<RepositoryState>,
    /// Also show what forges report about the repositories
    #[arg(long, short)]
    pub(crate) long: bool,
    /// List only repositories mainly written in this language, according to their forge
    #[arg(long)]
    pub(crate) language: Option<String>,
    /// List only repositories with this topic at their forge
    #[arg(long)]
    pub(crate) topic: Option<String>,
    /// List only repositories with at least N stars at their forge
    #[arg(long, value_name = "N")]
    pub(crate) stars_min: Option<i64>,
    /// List only forks of this repository, according to their forge
    #[arg(long, value_name = "REPO")]
    pub(crate) fork_of: Option<String>,
    /// Sort by this key
    #[arg(long, value_enum, value_name = "KEY", default_value_t = SortKey::Name)]
    pub(crate) sort: SortKey,
    /// Reverse the order
    #[arg(long, short)]
    pub(crate) reverse: bool,
    /// Show at most N repositories
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) max_count: Option<usize>,
}

#[derive(Args)]
pub(crate) struct CrawlArgs {
    /// Names of the forges to crawl [default: all]
    pub(crate) forges: Vec<String>,
    /// Only print what would be registered
    #[arg(long, short = 'n', conflicts_with = "watch")]
    pub(crate) dry_run: bool,
    /// Keep running, and crawl each forge at its interval
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Subcommand)]
pub(crate) enum MetadataCommand {
    /// Fetch new metadata of repositories that are due
    ///
    /// weir fetches it for forges with metadata = [...] in weir.toml, and for repositories with 'weir set
    /// --metadata true'.
    Update(MetadataUpdateArgs),
    /// List the metadata streams of a repository
    Ls {
        /// Name of the repository
        repo: String,
    },
    /// Print the latest version of each item in a stream, one JSON object per line
    Cat {
        /// Name of the repository
        repo: String,
        /// Stream to print: issues, comments, labels, milestones, pulls, review_comments, releases
        stream: String,
    },
}

#[derive(Args)]
pub(crate) struct MetadataUpdateArgs {
    /// Update only repositories whose name matches, whether due or not, and whatever their settings
    pub(crate) pattern: Option<String>,
    /// Keep running, and update repositories as they become due
    #[arg(long, conflicts_with = "pattern")]
    pub(crate) watch: bool,
}

/// What a dump is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DumpFormat {
    /// Table `projects` of GHTorrent (projects.csv)
    Ghtorrent,
    /// Collections `repos`, `users` and `org_members` of GHTorrent, as written by mongodump (repos.bson)
    GhtorrentBson,
    /// Hourly files of GH Archive (2015-01-01-15.json.gz)
    Gharchive,
    /// Repositories and accounts as returned by GitHub's API, one JSON object per line
    Github,
    /// Database of a crawld, by its URL: postgres://USER@HOST/DATABASE
    Crawld,
    /// Clones, bare or not, or tar files of them (from grokmirror or crawld, for example), including their
    /// objects
    Clones,
}

impl DumpFormat {
    /// As it is said on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DumpFormat::Ghtorrent => "ghtorrent",
            DumpFormat::GhtorrentBson => "ghtorrent-bson",
            DumpFormat::Gharchive => "gharchive",
            DumpFormat::Github => "github",
            DumpFormat::Crawld => "crawld",
            DumpFormat::Clones => "clones",
        }
    }
}

#[derive(Args)]
pub(crate) struct ImportArgs {
    /// Format of the dumps
    pub(crate) format: DumpFormat,
    /// Dump files, plain or gzip ('-' for standard input); for crawld, a URL; for clones, directories
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Name of the `[[forge]]` for github.com to use, if there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) forge: Option<String>,
    /// Only count what would be registered
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Import again from the beginning, even if imported before
    #[arg(long)]
    pub(crate) again: bool,
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Address to serve git:// on; may be given several times [default: serve.git, or 127.0.0.1:9418]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) git: Vec<Address>,
    /// Address to serve http:// on; may be given several times [default: serve.http, or none]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Vec<Address>,
    /// Address to serve https:// on; may be given several times [default: serve.https, or none]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) https: Vec<Address>,
    /// Certificate chain for https://, in PEM [default: serve.tls_certificate]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM [default: serve.tls_key]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDR:PORT/metrics [default: serve.metrics]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Vec<Address>,
    /// Only serve: neither run the mirror loop nor crawl forges
    #[arg(long)]
    pub(crate) no_mirror: bool,
}

#[derive(Args)]
pub(crate) struct CloneArgs {
    /// Repository to clone: any URL that git accepts, or an archive
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) repository: String,
    /// Directory to clone into [default: the last part of the URL]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Create a bare repository
    #[arg(long)]
    pub(crate) bare: bool,
    /// Do not check anything out
    #[arg(long, short)]
    pub(crate) no_checkout: bool,
    /// Call the remote NAME
    #[arg(long, short, value_name = "NAME", default_value = "origin")]
    pub(crate) origin: String,
    /// Check out BRANCH instead of the remote's HEAD
    #[arg(long, short, value_name = "BRANCH")]
    pub(crate) branch: Option<String>,
    /// Verify the hash of every object, as 'git clone' does, not only of what refs name and what is checked
    /// out; always done over http:// from another machine
    #[arg(long)]
    pub(crate) verify: bool,
}

#[derive(Args)]
pub(crate) struct MirrorArgs {
    /// Visit only repositories whose name matches, whether due or not
    pub(crate) pattern: Option<String>,
    /// Number of visits to run in parallel [default: mirror.jobs]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) jobs: Option<u16>,
    /// Visit all repositories, due or not
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Keep running, and visit repositories as they become due
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Accept that an upstream has no refs any more; without this option, its last refs are kept
    #[arg(long)]
    pub(crate) accept_empty: bool,
}

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration file
    ///
    /// Error messages name the line. With URLs, also shows which repository each URL leads to.
    Check {
        /// URLs as clients would request them
        #[arg(value_name = "URL", value_hint = ValueHint::Url)]
        urls: Vec<String>,
    },
    /// Print the configuration in effect
    Show,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Tar,
    Directory,
    Bundle,
}
