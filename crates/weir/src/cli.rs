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
pub(crate) struct Global {
    /// The pool to work on [default: the XDG data folder's weir]
    #[arg(long, global = true, env = "WEIR_POOL", value_name = "POOL", value_hint = ValueHint::DirPath)]
    pub(crate) pool: Option<PathBuf>,
    /// Print JSON for programs to read
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print nothing but errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more; twice for still more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// When to colour
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
    /// Make a pool: configuration, catalog and a store of archives
    Init {
        /// Where [default: --pool]
        #[arg(value_hint = ValueHint::DirPath)]
        path: Option<PathBuf>,
        /// Keep the catalog in PostgreSQL: postgres://USER@HOST/DATABASE
        #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
        catalog: Option<String>,
    },
    /// Move the catalog to PostgreSQL, or back to SQLite
    #[command(
        after_help = "All of it or nothing; the old one is left as it is. End 'weir mirror', 'crawl' and \
            'serve' first: what they\n\
                            write meanwhile is not taken along."
    )]
    Migrate {
        /// postgres://USER@HOST/DATABASE, or 'sqlite'
        #[arg(value_name = "DESTINATION", value_hint = ValueHint::Url)]
        destination: String,
    },
    /// Register repositories to mirror
    #[command(
        after_help = "URLs are any git takes: git://, http(s)://, ssh://, host:path, file:// and plain paths."
    )]
    Add(AddArgs),
    /// Register what forges list
    #[command(
        after_help = "Forges are the [[forge]] sections of weir.toml. A crawl that was interrupted goes on \
            where it ended."
    )]
    Crawl(CrawlArgs),
    /// Register what dumps of GitHub, or clones of other tools, hold
    #[command(
        after_help = "An import that was interrupted goes on where it ended. Which repositories are wanted, \
            and what they are called, is said by the [[forge]] for https://github.com in weir.toml, if there \
            is one; clones are called by the URL of their origin."
    )]
    Import(ImportArgs),
    /// Clone what is new, update what is due
    Mirror(MirrorArgs),
    /// Fetch, list and print issues, pull requests and releases
    ///
    /// They are kept as JSON lines in the archive of each repository.
    #[command(subcommand)]
    Metadata(MetadataCommand),
    /// Serve all repositories of the pool over git:// and HTTP
    #[command(
        after_help = "Addresses are ADDR:PORT or unix:PATH. Sockets that systemd hands over (LISTEN_FDS) are \
            used instead; those named\nhttp and https speak that, others git://. SIGTERM lets running \
            conversations end; SIGUSR2 starts the program\nanew on the same sockets and then does the same."
    )]
    Serve(ServeArgs),
    /// Clone a repository, faster from a weir or an archive
    ///
    /// From a weir, the index is not made anew; from an archive, nothing is copied where that can be.
    Clone(CloneArgs),
    /// Serve directories and archives with git-daemon's options
    Daemon(Box<DaemonArgs>),
    /// Serve one repository as git-upload-pack does
    ///
    /// The repository is an archive or a git directory.
    UploadPack(UploadPackArgs),
    /// Answer one HTTP request as git-http-backend does
    #[command(
        after_help = "Reads GIT_PROJECT_ROOT and PATH_INFO (or PATH_TRANSLATED), GIT_HTTP_EXPORT_ALL, \
            REQUEST_METHOD and the like."
    )]
    HttpBackend,
    /// Serve an ssh client: a forced command, or a login shell
    #[command(
        after_help = "In authorized_keys: command=\"weir --pool POOL shell --as NAME\",restrict ssh-ed25519 \
            ..."
    )]
    Shell {
        /// The command [default: SSH_ORIGINAL_COMMAND]
        #[arg(short = 'c', value_name = "COMMAND")]
        command: Option<String>,
        /// Whom the client's key belongs to: the name of a token in access.tokens
        #[arg(long = "as", value_name = "NAME")]
        known_as: Option<String>,
    },
    /// Look for what is wrong in the pool, or soon will be
    ///
    /// Looks at configuration, modes, disk, clocks, limits, catalog, archives and each host.
    #[command(
        after_help = "Each host of an upstream and each forge is asked once. Nothing is changed. Ends with 1 \
            if anything is an error."
    )]
    Check {
        /// Ask no host
        #[arg(long)]
        offline: bool,
        /// Print at most N findings of each kind, and count the others
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        max_count: usize,
    },
    /// Show the state of the mirror: visits, failures, forges, space
    Status,
    /// List what is due next
    Due {
        /// Show at most so many
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        max_count: usize,
    },
    /// List repositories whose last visit failed, and what to do
    Errors {
        /// Only this class: network, server, gone, forbidden, protocol, bad-pack, incomplete, limit, damaged,
        /// ...; or 'listing' (of forges) or 'metadata'
        class: Option<String>,
        /// Show at most so many
        #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
        max_count: usize,
    },
    /// Stop visiting repositories; they are still served
    ///
    /// 'weir resume' ends it.
    Pause {
        /// Names, or patterns of them
        #[arg(required = true)]
        patterns: Vec<String>,
    },
    /// Visit paused repositories again
    Resume {
        /// Names, or patterns of them
        #[arg(required = true)]
        patterns: Vec<String>,
    },
    /// List users and organisations that forges have listed
    ///
    /// Each with its repositories, and with who belongs to which organisation.
    Accounts {
        /// Only the one called so
        login: Option<String>,
        /// Show at most so many
        #[arg(long, short = 'n', value_name = "N", default_value_t = 1000)]
        max_count: usize,
    },
    /// Change the settings of single repositories
    ///
    /// Without options, lists repositories that have settings of their own.
    #[command(after_help = "'default' takes back what was said: what weir.toml says holds again. Where not \
            everything that is due can be\nvisited in time, a higher priority goes first.")]
    Set(SetArgs),
    /// Have repositories visited next: they have changed upstream
    Hint {
        /// Names, patterns of them, or URLs
        #[arg(required_unless_present = "from", value_name = "REPO")]
        repos: Vec<String>,
        /// Read them from FILE, one a line ('-' for standard input)
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        from: Option<PathBuf>,
    },
    /// Show what the visits of a repository found
    ///
    /// Changes, failures, and what came back, with the id of each snapshot.
    Visits {
        /// Name of the repository
        repo: String,
        /// Show at most so many
        #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
        max_count: usize,
    },
    /// List repositories
    #[command(
        after_help = "Patterns of names, here and elsewhere: '*' stands for anything, slashes too, '?' for \
            one character; the name of a\nfolder for all that is below it."
    )]
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
        /// Show at most so many states
        #[arg(long, short = 'n', value_name = "N")]
        max_count: Option<usize>,
    },
    /// Show the space that repositories take
    Du {
        /// Only those whose name matches
        pattern: Option<String>,
    },
    /// Check archives: every checksum, every object, every link
    Fsck {
        /// Only those whose name matches
        pattern: Option<String>,
        /// Go on from the last commit that holds, or clone anew what is damaged; what was damaged is kept
        /// beside
        #[arg(long)]
        repair: bool,
    },
    /// Register archives in the store that the catalog does not know
    ///
    /// After a catalog was lost, say.
    #[command(
        after_help = "Archives say where they come from. Those that an older weir wrote last do not: they \
            are named, and\n'weir add --name NAME URL' registers them as they are."
    )]
    Adopt {
        /// Only say what would be registered
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Rewrite archives to take less space; older states are kept
    Compact {
        /// Only those whose name matches
        pattern: Option<String>,
    },
    /// Let archives of forks hold only what their parents lack
    #[command(
        after_help = "Without --reference forks build on what their forge says they were forked from; \
            store.share_forks\ndoes the same for new ones. What builds on another is lost \
            with it: 'weir rm' and 'weir purge' leave\nthat other alone, 'weir dissociate' makes archives \
            whole again, and 'weir export' gives whole copies."
    )]
    Share {
        /// Only those whose name matches
        pattern: Option<String>,
        /// Let them build on the archive of this repository
        #[arg(long, value_name = "REPO")]
        reference: Option<String>,
        /// Only say how many objects they have in common
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Make archives whole that build on others
    Dissociate {
        /// Those whose name matches
        #[arg(required_unless_present = "reference", value_name = "PATTERN")]
        patterns: Vec<String>,
        /// Those that build on the archive of this repository
        #[arg(long, value_name = "REPO")]
        reference: Option<String>,
    },
    /// Set a repository's refs back to an older state
    #[command(
        after_help = "'weir log REPO' lists the states. Without --name the repository itself is set back and \
            no longer\nmirrored until 'weir mirror REPO' is asked for by its name; with --name a copy \
            is made."
    )]
    Restore {
        /// The repository and the number of the state
        #[arg(value_name = "REPO@N")]
        state: String,
        /// Leave the repository alone and make a new one of that name
        #[arg(long)]
        name: Option<String>,
    },
    /// Write a repository as a sealed tar, a directory or a bundle
    Export {
        /// Name of the repository
        repo: String,
        /// Where to
        #[arg(value_hint = ValueHint::AnyPath)]
        target: PathBuf,
        /// As what [default: a bundle if TARGET ends in .bundle, a tar if in .tar, else a bare directory]
        #[arg(long, value_enum)]
        format: Option<ExportFormat>,
    },
    /// Write grokmirror's manifest of what is mirrored
    ///
    /// For those who mirror it from here.
    Manifest {
        /// The file; compressed if it ends in .gz
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Only those whose name matches
        pattern: Option<String>,
        /// What the holder of this token may have (access.tokens); the default is what everybody may
        #[arg(long = "as", value_name = "TOKEN_NAME")]
        known_as: Option<String>,
    },
    /// Rename a repository; archive, settings and history stay
    #[command(alias = "mv")]
    Rename {
        /// Its name
        repo: String,
        /// The new one
        new: String,
    },
    /// Forget repositories, with --delete their archives, too
    Rm {
        /// Names, or patterns of them with '*' or '?'
        #[arg(required = true)]
        repos: Vec<String>,
        /// Delete the archives too, for good
        #[arg(long)]
        delete: bool,
    },
    /// Delete archives of repositories long gone upstream, for good
    ///
    /// Nothing else ever deletes an archive unasked.
    Purge {
        /// Only those whose name matches
        pattern: Option<String>,
        /// Gone for so long: 90d, 1000h
        #[arg(long, value_name = "TIME", value_parser = crate::config::span_argument)]
        gone_for: std::time::Duration,
        /// Delete nothing if it would be more than so many per cent of all repositories
        #[arg(long, value_name = "PERCENT", default_value_t = 5,
        value_parser = clap::value_parser!(u8).range(0..=100))]
        purge_protect: u8,
        /// Only list what would be deleted
        #[arg(long, short = 'n')]
        dry_run: bool,
    },
    /// Print a file, or any object, of an archive
    Cat {
        /// Name of the repository
        repo: String,
        /// What: REV:PATH, or REV alone for the object itself
        #[arg(value_name = "REV:PATH")]
        object: String,
    },
    /// List a tree of an archive
    LsTree {
        /// Name of the repository
        repo: String,
        /// Which tree: REV or REV:PATH
        #[arg(value_name = "REV[:PATH]", default_value = "HEAD")]
        tree: String,
        /// List everything below, too
        #[arg(long, short)]
        recursive: bool,
    },
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages to a folder
    Man {
        /// Where to
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct AddArgs {
    /// Upstreams
    #[arg(value_name = "URL", required_unless_present = "from", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<String>,
    /// Read upstreams from FILE, one a line ('-' for standard input): a URL, or a URL, white space and a name
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) from: Option<PathBuf>,
    /// Name of the repository [default: host/path of the URL, without .git]
    #[arg(long, conflicts_with = "from")]
    pub(crate) name: Option<String>,
    /// Let their archives hold only what that of this repository lacks; see 'weir share'
    #[arg(long, value_name = "REPO")]
    pub(crate) reference: Option<String>,
    /// Register paths where nothing is, and pages of forges, too
    #[arg(long)]
    pub(crate) force: bool,
    /// Register the others where some cannot be; without it, all or none
    #[arg(long, short)]
    pub(crate) keep_going: bool,
}

#[derive(Args)]
pub(crate) struct SetArgs {
    /// Names, or patterns of them
    #[arg(value_name = "REPO")]
    pub(crate) patterns: Vec<String>,
    /// Where one repository is mirrored from from now on, with a new password, say; 'git remote set-url'
    /// elsewhere
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// From 0, as all are, to 3: who goes first
    #[arg(long, value_name = "N", value_parser = setting::or_default(setting::priority_argument))]
    pub(crate) priority: Option<Setting<i64>>,
    /// Time from one visit to the next, however often it changes (1h, 7d); or auto: by how often it changes
    #[arg(long, value_name = "TIME", value_parser = setting::or_default(crate::config::interval_argument))]
    pub(crate) interval: Option<Setting<crate::config::IntervalSetting>>,
    /// Which refs to mirror: all, heads-and-tags, or patterns between commas
    /// ('refs/heads/*,^refs/heads/tmp/*')
    #[arg(long, value_name = "PATTERNS", value_parser = setting::or_default(setting::refs_argument))]
    pub(crate) refs: Option<Setting<Vec<String>>>,
    /// Whether the files that Git LFS keeps beside it are mirrored: true or false
    #[arg(long, value_name = "BOOL", value_parser = setting::or_default(setting::bool_argument))]
    pub(crate) lfs: Option<Setting<bool>>,
    /// Whether issues, pull requests and releases are taken into the archive: true or false
    #[arg(long, value_name = "BOOL", value_parser = setting::or_default(setting::bool_argument))]
    pub(crate) metadata: Option<Setting<bool>>,
}

#[derive(Args)]
pub(crate) struct LsArgs {
    /// Only these: names, or patterns of them
    #[arg(value_name = "REPO")]
    pub(crate) patterns: Vec<String>,
    /// Only those in this state; may be said several times
    #[arg(long = "state", value_enum, value_name = "STATE")]
    pub(crate) states: Vec<RepositoryState>,
    /// Say what forges say of them, too
    #[arg(long, short)]
    pub(crate) long: bool,
    /// Only what is mostly written in this, as its forge says
    #[arg(long)]
    pub(crate) language: Option<String>,
    /// Only what has this topic at its forge
    #[arg(long)]
    pub(crate) topic: Option<String>,
    /// Only what has so many stars at its forge, or more
    #[arg(long, value_name = "N")]
    pub(crate) stars_min: Option<i64>,
    /// Only forks of this repository, as their forge says
    #[arg(long, value_name = "REPO")]
    pub(crate) fork_of: Option<String>,
    /// Sort by this
    #[arg(long, value_enum, value_name = "KEY", default_value_t = SortKey::Name)]
    pub(crate) sort: SortKey,
    /// Sort the other way round
    #[arg(long, short)]
    pub(crate) reverse: bool,
    /// Show at most so many
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) max_count: Option<usize>,
}

#[derive(Args)]
pub(crate) struct CrawlArgs {
    /// Only these forges, by their names
    pub(crate) forges: Vec<String>,
    /// Only print what would be registered
    #[arg(long, short = 'n', conflicts_with = "watch")]
    pub(crate) dry_run: bool,
    /// Go on for ever, each forge at its interval
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Subcommand)]
pub(crate) enum MetadataCommand {
    /// Take what is new into archives, of what is due; wanted of a forge with metadata = [...], of a
    /// repository with 'weir set'
    Update(MetadataUpdateArgs),
    /// List the streams of a repository
    Ls {
        /// Name of the repository
        repo: String,
    },
    /// Print a stream, a line of JSON an item as it was last
    Cat {
        /// Name of the repository
        repo: String,
        /// Which: issues, comments, labels, milestones, pulls, review_comments, releases
        stream: String,
    },
}

#[derive(Args)]
pub(crate) struct MetadataUpdateArgs {
    /// Only those whose name matches, whether due or not, and whatever was said of them
    pub(crate) pattern: Option<String>,
    /// Go on for ever
    #[arg(long, conflicts_with = "pattern")]
    pub(crate) watch: bool,
}

/// What a dump is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DumpFormat {
    /// The table `projects` of GHTorrent (projects.csv)
    Ghtorrent,
    /// GHTorrent's collections `repos`, `users` and `org_members` as mongodump writes them (repos.bson)
    GhtorrentBson,
    /// Hours of GH Archive (2015-01-01-15.json.gz)
    Gharchive,
    /// Repositories and accounts as GitHub's API gives them, one a line of JSON
    Github,
    /// The database of a crawld: its URL, postgres://USER@HOST/DATABASE
    Crawld,
    /// A folder of clones, bare or not, or tars of them: their objects are taken over, from a grokmirror or a
    /// crawld, say
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
    /// What the dumps are
    pub(crate) format: DumpFormat,
    /// Dumps, plain or gzip ('-' for standard input); a URL, or folders
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// The configured forge for github.com that is meant, by its name, if there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) forge: Option<String>,
    /// Only count what would be registered
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// From the start, though it was imported before
    #[arg(long)]
    pub(crate) again: bool,
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Address to serve git:// on; may be given several times [default: 127.0.0.1:9418 or serve.git]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) git: Vec<Address>,
    /// Address to serve http:// on; may be given several times [default: serve.http, which is none]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Vec<Address>,
    /// Address to serve https:// on; may be given several times [default: serve.https, which is none]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) https: Vec<Address>,
    /// Chain of certificates for https://, PEM [default: serve.tls_certificate]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Its private key, PEM [default: serve.tls_key]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Numbers for Prometheus at http://ADDR:PORT/metrics [default: serve.metrics]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Vec<Address>,
    /// Only serve: neither run the mirror loop nor crawl forges
    #[arg(long)]
    pub(crate) no_mirror: bool,
}

#[derive(Args)]
pub(crate) struct CloneArgs {
    /// What: a URL any git takes, or an archive
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) repository: String,
    /// Where to [default: the last part of the URL]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Make a bare repository
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
    /// Inflate and hash every object, as 'git clone' does, not only what refs name and what is checked out;
    /// always so over http://
    #[arg(long)]
    pub(crate) verify: bool,
}

#[derive(Args)]
pub(crate) struct MirrorArgs {
    /// Only those whose name matches
    pub(crate) pattern: Option<String>,
    /// Visits at once [default: mirror.jobs]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) jobs: Option<u16>,
    /// Everything, due or not
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Keep going: visit what becomes due until told to stop
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Follow upstreams that have no refs any more; else the last ones they had stay
    #[arg(long)]
    pub(crate) accept_empty: bool,
}

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration file; errors name the line. With URLs: say what each would get
    Check {
        /// URLs as clients would give them
        #[arg(value_name = "URL", value_hint = ValueHint::Url)]
        urls: Vec<String>,
    },
    /// Print the configuration in force
    Show,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Tar,
    Directory,
    Bundle,
}
