//! Flags of `weir mine`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

/// The formats of `--to`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MineFormat {
    /// Files of Parquet in a folder for each table
    Parquet,
    /// JSON, a row on each line, printed or in files
    Jsonl,
    /// Tables of a PostgreSQL database
    Postgres,
    /// Tables of a SQLite database
    Sqlite,
}

/// What `--what` names.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MineWhat {
    /// Commits, their parents and extra headers, and annotated tags
    Commits,
    /// Files that commits change, with renames
    Changes,
    /// Changed files with the numbers of lines
    Numstat,
    /// States of the refs, and how they changed
    Refs,
}

/// The values of `--diff-merges`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiffMerges {
    /// Do not compare merges
    #[value(alias = "none")]
    Off,
    /// Compare merges with their first parent
    #[value(alias = "1")]
    FirstParent,
    /// Compare merges with each parent
    #[value(alias = "m")]
    Separate,
}

#[derive(Args)]
pub struct MineArgs {
    /// Names or patterns of repositories of the pool, or paths of archives and git directories [default: all
    /// repositories of the pool]
    #[arg(value_name = "REPO")]
    pub repos: Vec<String>,
    /// Format of the rows
    #[arg(long, value_enum, default_value_t = MineFormat::Parquet, value_name = "FORMAT")]
    pub to: MineFormat,
    /// Folder of the dataset, file of the SQLite database, or URL of the PostgreSQL database; for jsonl,
    /// '-' is standard output [default: mined or mined.sqlite in the pool]
    #[arg(long, short, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub output: Option<PathBuf>,
    /// Mine these kinds of rows; a comma stands between two
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_values_t = [MineWhat::Commits, MineWhat::Numstat, MineWhat::Refs],
        value_name = "WHAT"
    )]
    pub what: Vec<MineWhat>,
    /// How to compare merges
    #[arg(long, value_enum, default_value_t = DiffMerges::FirstParent, value_name = "MODE")]
    pub diff_merges: DiffMerges,
    /// Least similarity of renamed files in percent
    #[arg(
        long,
        short = 'M',
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = 50,
        default_missing_value = "50",
        value_parser = percent
    )]
    pub find_renames: u8,
    /// Detect copies of files that the same commit changes, too
    #[arg(long, short = 'C')]
    pub find_copies: bool,
    /// Do not detect renames
    #[arg(long, conflicts_with = "find_copies")]
    pub no_renames: bool,
    /// Skip the search for similar files where it would compare more than N times N pairs; 0 for no limit
    #[arg(short = 'l', value_name = "N", default_value_t = 1000)]
    pub rename_limit: u32,
    /// Measure similarity as git did before version 2.44, without the bytes behind the last line break
    #[arg(long)]
    pub old_similarity: bool,
    /// Remove all rows of REPO, and mine nothing: names or patterns of what was mined, or paths
    #[arg(long, requires = "repos")]
    pub forget: bool,
    /// Leave out changed files of a repository beyond this number [default: two million, and 20 for each of
    /// its objects]
    #[arg(long, value_name = "N")]
    pub max_changes: Option<u64>,
    /// Give a repository up after this time, such as 30m or 2h
    #[arg(long, value_name = "TIME", value_parser = weir_settings::span_argument)]
    pub timeout: Option<Duration>,
    /// Number of threads [default: one a core]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

#[derive(Args)]
pub struct QueryArgs {
    /// The query, in the SQL of SQLite; '-' to read it from standard input
    #[arg(value_name = "SQL")]
    pub sql: String,
    /// Names or patterns of repositories of the pool, or paths of archives and git directories
    #[arg(value_name = "REPO", required = true)]
    pub repos: Vec<String>,
    /// Print comma-separated values, each row as it comes
    #[arg(long)]
    pub csv: bool,
    /// Print at most this many rows
    #[arg(long, short = 'n', value_name = "N")]
    pub limit: Option<usize>,
    /// Give the query up after this time, such as 30s or 10m
    #[arg(long, value_name = "TIME", value_parser = weir_settings::span_argument)]
    pub timeout: Option<Duration>,
    /// The most room that the tables may take
    #[arg(long, value_name = "SIZE", default_value = "4 GiB", value_parser = weir_settings::size_argument)]
    pub max_size: u64,
    /// Number of threads [default: one a core]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    number
        .parse()
        .ok()
        .filter(|n| (1..=100).contains(n))
        .ok_or_else(|| "a similarity is a number from 1 to 100".to_owned())
}
