//! What a long-lived process of this program does, whatever its work is: it heeds signals, tells its service
//! manager how it is, and starts itself again in other processes.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! use weir_ground::Stop;
//! use weir_process::{stop_on_signal, tell_ready};
//!
//! let stop = Stop::default();
//! stop_on_signal(&stop)?;
//! tell_ready();
//! while stop.sleep(std::time::Duration::from_secs(1)) {}
//! # Ok(())
//! # }
//! ```

mod background;
mod restart;
mod signals;
pub mod systemd;

pub use background::{StartError, Starting, close_inherited, detach};
pub use restart::{RestartError, restart_on, start_in_place, tell_ready};
pub use signals::{has_terminal, on_reload_signal, stop_by_signal, stop_on_signal};
