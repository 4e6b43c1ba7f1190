//! Handles signals.

use weir_ground::Stop;
use weir_ground::thread::spawn;

use crate::error::Result;
use crate::systemd;

/// Requests `stop` on SIGINT and SIGTERM. A second signal ends the process at once. The returned
/// receiver becomes true at the first.
pub(crate) fn stop_on_signal(stop: &Stop) -> Result<tokio::sync::watch::Receiver<bool>> {
    let stop = stop.clone();
    let (told, asked) = tokio::sync::watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Before this function returns: a signal without a handler would end the process.
    let (mut interrupt, mut terminate) = runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        Ok::<_, std::io::Error>((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    })?;
    spawn("signals", move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if stop.is_stopped() {
                    std::process::exit(130);
                }
                tracing::info!(
                    "stopping after the work in progress; a second signal stops at once (nothing committed \
                    is lost)"
                );
                systemd::notify("STOPPING=1");
                stop.stop();
                told.send_replace(true);
            }
        });
    })?;
    Ok(asked)
}
