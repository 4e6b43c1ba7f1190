//! Subcommands of `weir events`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, value_parser};
use weir_pool::Verdict;
use weir_serve::ListenAddress;

#[derive(Subcommand)]
pub enum EventsCommand {
    /// Take events, and make the repositories that they name due
    ///
    /// Takes lines over TCP, Unix sockets and UDP. 'weir serve' and 'weir mirror --watch' do the same if
    /// weir.toml names addresses in its table 'events'.
    #[command(
        after_help = "A line is a repository's name or URL, 'push URL [REF OLD NEW]', or a JSON object with \
            a key name, url, clone_url or repository. A line that begins with id=TOKEN is answered with \
            'ok TOKEN' once it is on disk.\nAn address is ADDRESS:PORT, NAME:PORT, :PORT for all addresses \
            of this machine, PORT for this machine only, or unix:PATH."
    )]
    Serve(EventsServeArgs),
    /// List events, with the verdict on each
    Ls(EventsLsArgs),
    /// Show one event
    Show {
        /// The number of the event
        id: i64,
    },
    /// Print events as they come
    Tail {
        /// Begin with the last N events
        #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
        max_count: usize,
    },
    /// Take events again
    Replay(ReplayArgs),
    /// Ask forges for deliveries of webhooks that never arrived, and take them
    ///
    /// GitHub and GitLab keep deliveries for some days. This reads their lists back to where the last sweep
    /// began, and takes what failed and is not here. 'weir serve' does so at intervals.
    Sweep(SweepArgs),
    /// List lines that a table or a worker did not take; try them again, or drop them
    Rejected(RejectedArgs),
    /// Send lines at a steady rate, and tell how long acknowledgements take
    ///
    /// Without --line, they name repositories that are not there. Try it against doors of your own.
    Bench(EventsBenchArgs),
}

#[derive(Args)]
pub struct EventsServeArgs {
    /// Take lines over TCP or a Unix socket here, instead of where weir.toml says
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<ListenAddress>,
    /// Take lines in datagrams here, instead of where weir.toml says; they are not acknowledged
    #[arg(long, value_name = "ADDRESS")]
    pub udp: Vec<ListenAddress>,
}

#[derive(Args)]
pub struct EventsLsArgs {
    /// Show only events that became this
    #[arg(long, value_name = "VERDICT")]
    pub verdict: Option<VerdictArg>,
    /// Show at most the last N
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub max_count: usize,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct ReplayArgs {
    /// The events, as ID or FIRST-LAST
    #[arg(value_name = "ID|FIRST-LAST")]
    pub ids: Vec<String>,
    /// All that named no repository, or could not be understood
    #[arg(long)]
    pub failed: bool,
}

#[derive(Args)]
pub struct SweepArgs {
    /// The webhooks to sweep; all that have 'sweep' in weir.toml, without
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Look at all deliveries that the forge keeps, not only at those since the last sweep
    #[arg(long)]
    pub all: bool,
}

#[derive(Args)]
pub struct RejectedArgs {
    /// Only those of this table or worker
    #[arg(long, value_name = "NAME")]
    pub of: Option<String>,
    /// Show at most the last N
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub max_count: usize,
    /// Have them tried again, by the process that takes events
    #[arg(long)]
    pub retry: bool,
    /// Delete them from the list
    #[arg(long, conflicts_with = "retry")]
    pub drop: bool,
    /// With --retry or --drop: only the events with these numbers
    #[arg(value_name = "ID")]
    pub ids: Vec<i64>,
}

#[derive(Args)]
pub struct EventsBenchArgs {
    /// Where the doors are: ADDRESS:PORT or unix:PATH
    pub address: ListenAddress,
    /// Connections to open
    #[arg(long, short = 'c', value_name = "N", default_value_t = 1000, value_parser = at_least_one)]
    pub connections: usize,
    /// Lines a second on each connection
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub rate: f64,
    /// Send for so long
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub seconds: f64,
    /// Lines in each write
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1000))]
    pub lines_per_write: u32,
    /// Ask for an acknowledgement of each line
    #[arg(long)]
    pub acknowledged: bool,
    /// Say the token in this file first, on each connection
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Send this line; {i} stands for its number
    #[arg(long, value_name = "TEXT")]
    pub line: Option<String>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "a number of at least 1".to_owned())
}

#[derive(Clone, Copy, ValueEnum)]
pub enum VerdictArg {
    /// A repository is due because of it
    Due,
    /// It names no repository that is mirrored here
    Unknown,
    /// It cannot be understood
    Bad,
    /// A table or a worker takes it
    Collected,
    /// It names a repository that is mirrored from now on
    Added,
}

impl From<VerdictArg> for Verdict {
    fn from(arg: VerdictArg) -> Verdict {
        match arg {
            VerdictArg::Due => Verdict::Due,
            VerdictArg::Unknown => Verdict::Unknown,
            VerdictArg::Bad => Verdict::Bad,
            VerdictArg::Collected => Verdict::Collected,
            VerdictArg::Added => Verdict::Added,
        }
    }
}
