//! Subcommands of `weir events`.

use clap::{Args, Subcommand, ValueEnum};
use weir_catalog::Verdict;
use weir_serve::ListenAddress;

#[derive(Subcommand)]
pub(crate) enum EventsCommand {
    /// Take events, and make the repositories that they name due
    ///
    /// Takes lines over TCP, Unix sockets and UDP. 'weir serve' and 'weir mirror --watch' do the same if
    /// [events] in weir.toml names addresses.
    #[command(
        after_help = "A line is a repository's name or URL, 'push URL [REF OLD NEW]', or a JSON object with \
            a key name, url, clone_url or repository. A line that begins with id=TOKEN is answered with \
            'ok TOKEN' once it is on disk.\nAn address is ADDRESS:PORT, NAME:PORT, :PORT for all addresses \
            of this machine, PORT for this machine only, or unix:PATH."
    )]
    Serve(EventsServeArgs),
    /// List what came, and what became of it
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
}

#[derive(Args)]
pub(crate) struct EventsServeArgs {
    /// Take lines over TCP or a Unix socket here, instead of where weir.toml says
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<ListenAddress>,
    /// Take lines in datagrams here, instead of where weir.toml says; they are not acknowledged
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) udp: Vec<ListenAddress>,
}

#[derive(Args)]
pub(crate) struct EventsLsArgs {
    /// Show only events that became this
    #[arg(long, value_name = "VERDICT")]
    pub(crate) verdict: Option<VerdictArg>,
    /// Show at most the last N
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) max_count: usize,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ReplayArgs {
    /// The events, as ID or FIRST-LAST
    #[arg(value_name = "ID|FIRST-LAST")]
    pub(crate) ids: Vec<String>,
    /// All that named no repository, or could not be understood
    #[arg(long)]
    pub(crate) failed: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum VerdictArg {
    /// A repository is due because of it
    Due,
    /// It names no repository that is mirrored here
    Unknown,
    /// It cannot be understood
    Bad,
}

impl From<VerdictArg> for Verdict {
    fn from(arg: VerdictArg) -> Verdict {
        match arg {
            VerdictArg::Due => Verdict::Due,
            VerdictArg::Unknown => Verdict::Unknown,
            VerdictArg::Bad => Verdict::Bad,
        }
    }
}
