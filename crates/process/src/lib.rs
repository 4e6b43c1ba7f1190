//! Long-lived processes of this program, whatever their work is: they heed signals, tell their service
//! manager how they are, and start this program again.
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
mod privileges;
mod restart;
mod signals;
pub mod systemd;

pub use background::{StartError, Starting, close_inherited, detach};
pub use privileges::{PrivilegeError, drop_privileges};
pub use restart::{RestartError, restart_on, start_in_place, tell_ready};
pub use signals::{has_terminal, on_reload_signal, stop_by_signal, stop_on_signal};
