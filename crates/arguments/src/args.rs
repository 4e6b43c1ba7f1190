//! Flags of the commands that have many.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use weir_catalog::ForgeWish;
use weir_pool::{RepositoryList, RepositoryState, SortKey};
use weir_serve::ListenAddress;

use crate::lists;
use crate::setting::{self, Setting};

// The repositories that a command works on: all, unless some are named. (clap would print a '///' comment as
// that of the command.)
#[derive(Args)]
pub struct RepoSelection {
    /// Names or patterns of the repositories [default: all]
    #[arg(value_name = "REPO")]
    pub repos: Vec<String>,
}

// The repositories that a command works on, of which at least one must be named.
#[derive(Args)]
pub struct RepoList {
    /// Names or patterns of the repositories
    #[arg(value_name = "REPO", required = true)]
    pub repos: Vec<String>,
}

#[derive(Args)]
pub struct AddArgs {
    /// URLs of the upstreams
    #[arg(value_name = "URL", required_unless_present = "from", value_hint = ValueHint::Url)]
    pub urls: Vec<String>,
    /// Read upstreams from FILE ('-' for standard input), one per line: a URL, optionally followed by a name
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub from: Option<PathBuf>,
    /// Name of the repository [default: host/path of the URL, without .git]
    #[arg(long, conflicts_with = "from")]
    pub name: Option<String>,
    /// Store only what the archive of this repository lacks; see 'weir share'
    #[arg(long, value_name = "REPO")]
    pub reference: Option<String>,
    /// Also register paths without a repository, and web pages of forges
    #[arg(long)]
    pub force: bool,
    /// Register the others if some cannot be registered; without this option, register all or none
    #[arg(long, short)]
    pub keep_going: bool,
}

#[derive(Args)]
pub struct SetArgs {
    /// Names or patterns of the repositories
    #[arg(value_name = "REPO")]
    pub patterns: Vec<String>,
    /// Mirror one repository from this URL from now on, for example to change the password; like 'git remote
    /// set-url'
    #[arg(long)]
    pub url: Option<String>,
    /// Priority of visits, from 0 (the default) to 3 (visited first)
    #[arg(long, value_name = "N", value_parser = setting::or_default(setting::priority_argument))]
    pub priority: Option<Setting<i64>>,
    /// Time between visits, such as 1h or 7d, or 'auto' to adapt it to how often the upstream changes
    #[arg(long, value_name = "TIME", value_parser = setting::or_default(weir_settings::interval_argument))]
    pub interval: Option<Setting<weir_settings::IntervalSetting>>,
    /// Refs to mirror: all, heads-and-tags, or patterns separated by commas, such as
    /// 'refs/heads/*,^refs/heads/tmp/*'
    #[arg(long, value_name = "PATTERNS", value_parser = setting::or_default(setting::refs_argument))]
    pub refs: Option<Setting<Vec<String>>>,
    /// Mirror the Git LFS objects of the repository: true or false
    #[arg(long, value_name = "BOOL", value_parser = setting::or_default(setting::bool_argument))]
    pub lfs: Option<Setting<bool>>,
    /// Mirror issues, pull requests and releases into the archive: true or false
    #[arg(long, value_name = "BOOL", value_parser = setting::or_default(setting::bool_argument))]
    pub metadata: Option<Setting<bool>>,
}

#[derive(Args)]
pub struct LsArgs {
    #[command(flatten)]
    pub selection: RepoSelection,
    /// List only repositories in this state; may be given several times
    #[arg(long = "state", value_parser = lists::states(), value_name = "STATE")]
    pub states: Vec<RepositoryState>,
    /// Also show what forges report about the repositories
    #[arg(long, short)]
    pub long: bool,
    /// List only repositories mainly written in this language, according to their forge
    #[arg(long)]
    pub language: Option<String>,
    /// List only repositories with this topic at their forge
    #[arg(long)]
    pub topic: Option<String>,
    /// List only repositories with at least N stars at their forge
    #[arg(long, value_name = "N")]
    pub stars_min: Option<i64>,
    /// List only forks of this repository, according to their forge
    #[arg(long, value_name = "REPO")]
    pub fork_of: Option<String>,
    /// Sort by this key
    #[arg(long, value_parser = lists::sort_keys(), value_name = "KEY", default_value = "name")]
    pub sort: SortKey,
    /// Reverse the order
    #[arg(long, short)]
    pub reverse: bool,
    /// Show at most N repositories
    #[arg(long, short = 'n', value_name = "N")]
    pub max_count: Option<usize>,
}

impl LsArgs {
    /// Returns the list that is asked for.
    pub fn wanted(&self) -> RepositoryList {
        RepositoryList {
            patterns: self.selection.repos.clone(),
            states: self.states.clone(),
            wish: ForgeWish {
                language: self.language.clone(),
                topic: self.topic.clone(),
                stars_min: self.stars_min,
                fork_of: self.fork_of.clone(),
            },
            sort: self.sort,
            is_reversed: self.reverse,
            max_count: self.max_count,
        }
    }
}

#[derive(Args)]
pub struct ErrorsArgs {
    /// Classes of failures, and names or patterns of the repositories [default: all]
    #[arg(value_name = "CLASS|REPO")]
    pub filters: Vec<String>,
    /// List each repository
    #[arg(long, short)]
    pub all: bool,
    /// Show at most N lines
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub max_count: usize,
}

#[derive(Args)]
pub struct CrawlArgs {
    /// Names of the forges to crawl [default: all]
    pub forges: Vec<String>,
    /// Only print what would be registered
    #[arg(long, short = 'n', conflicts_with = "watch")]
    pub dry_run: bool,
    /// Keep running, and crawl each forge at its interval
    #[arg(long)]
    pub watch: bool,
}

#[derive(Subcommand)]
pub enum MetadataCommand {
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
pub struct MetadataUpdateArgs {
    /// Names or patterns of the repositories, due or not, and whatever their settings [default: those that
    /// are due]
    #[arg(value_name = "REPO")]
    pub repos: Vec<String>,
    /// Keep running, and update repositories as they become due
    #[arg(long, conflicts_with = "repos")]
    pub watch: bool,
}

/// What a dump is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DumpFormat {
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
    pub fn name(self) -> &'static str {
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
pub struct ImportArgs {
    /// Format of the dumps
    pub format: DumpFormat,
    /// Dump files, plain or gzip ('-' for standard input); for crawld, a URL; for clones, directories
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// Name of the `[[forge]]` for github.com to use, if there are several
    #[arg(long, value_name = "NAME")]
    pub forge: Option<String>,
    /// Only count what would be registered
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Import again from the beginning, even if imported before
    #[arg(long)]
    pub again: bool,
}

#[derive(Args)]
pub struct ServeArgs {
    /// Address to serve git:// on; may be given several times [default: serve.git, or 127.0.0.1:9418]
    #[arg(long, value_name = "ADDRESS")]
    pub git: Vec<ListenAddress>,
    /// Address to serve http:// on; may be given several times [default: serve.http, or none]
    #[arg(long, value_name = "ADDRESS")]
    pub http: Vec<ListenAddress>,
    /// Address to serve https:// on; may be given several times [default: serve.https, or none]
    #[arg(long, value_name = "ADDRESS")]
    pub https: Vec<ListenAddress>,
    /// Certificate chain for https://, in PEM [default: serve.tls_certificate]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM [default: serve.tls_key]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDRESS/metrics [default: serve.metrics]
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Vec<ListenAddress>,
    /// Only serve: neither run the mirror loop nor crawl forges
    #[arg(long)]
    pub no_mirror: bool,
}

#[derive(Args)]
pub struct MirrorArgs {
    /// Names or patterns of the repositories, due or not [default: those that are due]
    #[arg(value_name = "REPO")]
    pub repos: Vec<String>,
    /// Number of visits to run in parallel [default: mirror.jobs]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub jobs: Option<u16>,
    /// Visit all repositories, due or not
    #[arg(long, short)]
    pub all: bool,
    /// Keep running, and visit repositories as they become due
    #[arg(long, short)]
    pub watch: bool,
    /// Accept that an upstream has no refs any more; without this option, its last refs are kept
    #[arg(long)]
    pub accept_empty: bool,
}

#[derive(Args)]
pub struct PurgeArgs {
    #[command(flatten)]
    pub selection: RepoSelection,
    /// Minimum time since the repository disappeared upstream, such as 90d or 1000h
    #[arg(long, value_name = "TIME", value_parser = weir_settings::span_argument)]
    pub gone_for: Duration,
    /// Delete nothing if that would be more than PERCENT per cent of the repositories of a forge
    #[arg(long, value_name = "PERCENT", default_value_t = 5,
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub purge_protect: u8,
    /// Only list what would be deleted
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

#[derive(Subcommand)]
pub enum ConfigCommand {
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
pub enum ExportFormat {
    Tar,
    Directory,
    Bundle,
}
