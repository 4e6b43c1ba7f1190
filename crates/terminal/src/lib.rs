//! Output for people and for other programs: tables, lines, JSON, colours, progress bars, log lines.
//!
//! Text from outside cannot control the terminal, or forge a line ([`output::Screen`]).
//!
//! ```
//! use weir_terminal::output;
//!
//! let rows = [["NAME", "SIZE"], ["git/git", "1 GiB"]].map(|row| row.map(str::to_owned).to_vec());
//! output::table(&rows, &[1])?;
//! # Ok::<(), std::io::Error>(())
//! ```

/// Writes a line to standard error, which is JSON with `--json`. A failure is ignored: it is no reason to
/// end.
#[macro_export]
macro_rules! warn_line {
    ($($text:tt)*) => {
        $crate::output::warn($crate::Level::WARN, format_args!($($text)*))
    };
}

pub mod colors;
pub mod hook_lines;
mod listing_bars;
mod log_output;
pub mod output;
mod visit_bars;
pub mod visit_lines;

pub use colors::ColorChoice;
pub use listing_bars::ListingBars;
pub use log_output::{Log, LogWriter};
pub use tracing::Level;
pub use visit_bars::VisitBars;
