//! Tells a service manager how a server is: that it is alive, what it does, and that it stops (sd_notify(3)).

use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;
use weir_pool::Counters;
use weir_process::systemd;
use weir_serve::Daemon;

/// Time between looks at the state.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A server whose state is told.
pub(crate) struct ServiceState<'s> {
    pub(crate) daemon: &'s Daemon,
    pub(crate) counters: &'s Counters,
    /// The thread of the mirror loop, if it runs.
    pub(crate) mirror: Option<&'s JoinHandle<()>>,
    /// The URLs on which it serves.
    pub(crate) urls: &'s [String],
    /// Becomes true when the server is to stop.
    pub(crate) asked_to_stop: watch::Receiver<bool>,
}

impl ServiceState<'_> {
    /// Tells the state until it is dropped. A watchdog hears nothing while a thread that accepts and serves
    /// connections does not answer.
    pub(crate) async fn tell(mut self) {
        if !systemd::is_there() {
            return std::future::pending().await;
        }
        let watchdog = systemd::watchdog_interval();
        let every = watchdog.map_or(LOOK_EVERY, |watchdog| watchdog.min(LOOK_EVERY));
        let (mut told, mut is_stopping) = (String::new(), false);
        loop {
            let mut notices = Vec::new();
            if watchdog.is_some() && self.is_alive(every, is_stopping).await {
                notices.push("WATCHDOG=1".to_owned());
            }
            let status = format!("STATUS={}", self.status(is_stopping));
            if status != told {
                notices.push(status.clone());
                told = status;
            }
            if !notices.is_empty() {
                systemd::notify(&notices.join("\n"));
            }
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                asked = self.asked_to_stop.wait_for(|asked| *asked), if !is_stopping => {
                    if asked.is_err() {
                        return std::future::pending().await;
                    }
                    is_stopping = true;
                }
            }
        }
    }

    /// Returns whether the threads that serve answer within `time`, and the mirror loop runs.
    async fn is_alive(&self, time: Duration, is_stopping: bool) -> bool {
        if !is_stopping && self.mirror.is_some_and(JoinHandle::is_finished) {
            tracing::error!("the mirror loop has ended");
            return false;
        }
        let responds = tokio::time::timeout(time, self.daemon.respond()).await.is_ok();
        if !responds {
            tracing::error!("a thread that serves has not answered for {} ms", time.as_millis());
        }
        responds
    }

    fn status(&self, is_stopping: bool) -> String {
        let connections = self.daemon.connections();
        let (visits, failed) = self.counters.visits();
        let what = match is_stopping {
            true => "stopping after the work in progress".to_owned(),
            false => format!("serving {}", self.urls.join(" ")),
        };
        let visited = match self.mirror {
            None => String::new(),
            Some(_) => format!("; {visits} visits, {failed} failed"),
        };
        format!("{what}; {connections} connections{visited}")
    }
}
