//! The end of a process whose client is silent.

use std::time::Duration;

use weir_serve::SilentClient;
use weir_terminal::warn_line;

/// git's exit code for a fatal error.
pub(crate) const FATAL: u8 = 128;

/// Ends the process, as git's alarm does.
pub(crate) fn give_up(client: SilentClient, timeout: Duration) -> ! {
    let seconds = timeout.as_secs();
    match client {
        SilentClient::NeverAsked => {
            tracing::warn!("no request came in {seconds} s");
            std::process::exit(0);
        }
        SilentClient::Stopped => {
            warn_line!("fatal: the client was idle for {seconds} s");
            std::process::exit(FATAL.into());
        }
    }
}
