//! Notifications: a long-lived program receives new failures, recoveries, pauses and damage. Unlike updates,
//! they are sent once, by the process that finds them, and are not stored.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_catalog::{EventKind, EventSubject, PoolEvent, VisitFacts};
use weir_collect::{GOODBYE, LineProgram, error_of};
use weir_ground::thread::spawn;
use weir_ground::{FailureClass, Stop};

use crate::running::pool::Pool;

/// The number of notifications that wait for the program. Further ones are dropped, with a warning.
const WAITING_MAX: usize = 1000;
/// Time before a program that ended is started again.
const RETRY: Duration = Duration::from_secs(10);

/// Sends notifications to a program.
pub struct Notifier {
    sender: Option<SyncSender<Value>>,
    told: Mutex<ToldFailures>,
    stop: Stop,
    worker: Option<JoinHandle<()>>,
}

impl Notifier {
    /// Returns a notifier for the program that `hooks.notify` names, or `None` if it names none. The program
    /// starts with the first notification.
    pub fn of(pool: &Pool) -> Option<Notifier> {
        let hooks = &pool.config.hooks;
        if hooks.notify.is_empty() {
            return None;
        }
        let (sender, waiting) = sync_channel(WAITING_MAX);
        let stop = Stop::default();
        let teller = Teller {
            words: hooks.notify.clone(),
            folder: pool.store.path.clone(),
            timeout: hooks.timeout.0,
            stop: stop.clone(),
        };
        let worker = spawn("notify", move || teller.run(&waiting))
            .inspect_err(|e| tracing::error!("cannot start the thread of hooks.notify: {e}"))
            .ok()?;
        Some(Notifier { sender: Some(sender), told: Mutex::default(), stop, worker: Some(worker) })
    }

    /// Sends a notification of `event`, if it is worth one.
    pub fn tell(&self, event: &PoolEvent) {
        let is_news = self.is_news(event);
        let (Some(line), Some(sender)) = (line_of(event), &self.sender) else { return };
        if !is_news && matches!(line["event"].as_str(), Some("failed" | "recovered")) {
            return;
        }
        if let Err(TrySendError::Full(line)) = sender.try_send(line) {
            tracing::warn!("the program of hooks.notify is too slow; dropped: {line}");
        }
    }

    /// Returns whether a failure or a recovery is news, and remembers it.
    fn is_news(&self, event: &PoolEvent) -> bool {
        let Some(subject) = &event.subject else { return true };
        let (before, class) = match &event.kind {
            EventKind::Failed(failure) => (failure.failed_before, Some(failure.class)),
            kind => (kind.facts().and_then(|facts| facts.recovered_from), None),
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.is_news(subject.id, before, &host_of(subject), class)
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // Waiting notifications are still sent, as long as the program takes them.
        self.sender = None;
        self.stop.stop();
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// Returns the host of the upstream, with its port unless it is the usual one; empty if that is on this
/// machine.
fn host_of(subject: &EventSubject) -> String {
    weir_transport::Url::parse(&subject.url).map_or_else(|_| String::new(), |url| url.host_port())
}

/// The failures that the keeper knows of. One cause is told once: a host that is down fails all of its
/// repositories.
#[derive(Default)]
struct ToldFailures {
    /// The class of the last failure that was told of each place: a host, or this machine.
    places: HashMap<CausePlace, FailureClass>,
    /// Whether the last failure of a repository was told, by its id. So is its recovery.
    failed: HashMap<i64, bool>,
    /// The places where a recovery was told from a failure that an earlier process saw: that told one, too.
    recovered: HashSet<CausePlace>,
}

/// Where the cause of a failure is, if it is not in the repository.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CausePlace {
    Host(String),
    Machine,
}

impl CausePlace {
    /// Returns the place of a failure of `class` of a repository at `host`.
    fn of(class: FailureClass, host: &str) -> Option<CausePlace> {
        match class {
            // A host that answers with errors may do so for one repository.
            FailureClass::Network | FailureClass::Certificate => Some(CausePlace::Host(host.to_owned())),
            class if class.is_local() => Some(CausePlace::Machine),
            _ => None,
        }
    }
}

impl ToldFailures {
    /// Returns whether the end of a visit to the repository `id` at `host` is news, and remembers it.
    /// `before` is the class of its last failure, `class` that of this one; `None` if the visit went well.
    fn is_news(
        &mut self,
        id: i64,
        before: Option<FailureClass>,
        host: &str,
        class: Option<FailureClass>,
    ) -> bool {
        let Some(class) = class else {
            self.places.remove(&CausePlace::Host(host.to_owned()));
            self.places.remove(&CausePlace::Machine);
            return match (self.failed.remove(&id), before.and_then(|before| CausePlace::of(before, host))) {
                (Some(was_told), _) => was_told,
                (None, Some(place)) => self.recovered.insert(place),
                (None, None) => true,
            };
        };
        if before == Some(class) {
            return false;
        }
        let is_told = match CausePlace::of(class, host) {
            Some(place) => {
                self.recovered.remove(&place);
                self.places.insert(place, class) == Some(class)
            }
            None => false,
        };
        self.failed.insert(id, !is_told);
        !is_told
    }
}

/// Returns the notification of `event`, or `None` if nothing has changed.
fn line_of(event: &PoolEvent) -> Option<Value> {
    let as_it_is = || serde_json::to_value(event).ok();
    let Some(facts) = event.kind.facts() else {
        return as_it_is().filter(|_| event.kind.is_news());
    };
    let EventSubject { name, url, .. } = event.subject.as_ref()?;
    let (time, lost) = (event.time, facts.lost.as_ref());
    match facts {
        VisitFacts { damaged: Some(damaged), .. } => Some(json!({ "event": "replaced", "name": name,
            "url": url, "damaged": damaged, "time": time })),
        _ if lost.is_some() => {
            Some(json!({ "event": "lost", "name": name, "url": url, "lost": lost, "time": time }))
        }
        VisitFacts { recovered_from: Some(class), .. } => Some(json!({ "event": "recovered", "name": name,
            "url": url, "class": class, "time": time })),
        _ => None,
    }
}

struct Teller {
    words: Vec<String>,
    folder: PathBuf,
    timeout: Duration,
    stop: Stop,
}

impl Teller {
    fn run(&self, waiting: &Receiver<Value>) {
        let mut program: Option<LineProgram> = None;
        let mut stopped_since = None;
        for line in waiting {
            let is_stopped = || self.stop.is_stopped();
            if is_stopped() && stopped_since.get_or_insert_with(Instant::now).elapsed() > GOODBYE {
                tracing::warn!(
                    "'{}' of hooks.notify takes too long; {} lines dropped",
                    self.words[0],
                    1 + waiting.try_iter().count()
                );
                break;
            }
            let told = match program.take().map_or_else(|| LineProgram::start(&self.words, &self.folder), Ok)
            {
                Err(e) => Err(format!("cannot be started: {e}")),
                Ok(mut running) => {
                    let answer = running.ask(&line.to_string(), self.timeout, is_stopped);
                    program = Some(running).filter(|_| answer.is_ok());
                    answer.map_err(|e| e.to_string())
                }
            };
            match told {
                Ok(answer) => {
                    if let Some(error) = error_of(&answer) {
                        tracing::warn!("'{}' of hooks.notify: {error}", self.words[0]);
                    }
                }
                Err(why) => {
                    tracing::error!("'{}' of hooks.notify {why}; dropped: {line}", self.words[0]);
                    // This process is about to end: it does not wait for each of the others, too.
                    if is_stopped() {
                        return;
                    }
                    self.stop.sleep(RETRY);
                }
            }
        }
        if let Some(program) = program {
            program.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notify_tells_one_cause_once() {
        use FailureClass::{DiskFull, Gone, Network};
        let mut told = ToldFailures::default();
        // The host is down: the first repository is told of, and nothing more.
        assert!(told.is_news(1, None, "h", Some(Network)));
        assert!(!told.is_news(2, None, "h", Some(Network)));
        assert!(told.is_news(3, None, "other", Some(Network)));
        assert!(!told.is_news(1, Some(Network), "h", Some(Network)));
        // What is wrong with one repository is told of each.
        assert!(told.is_news(4, None, "h", Some(Gone)) && told.is_news(5, None, "h", Some(Gone)));
        // Whose failure was told of, its recovery is, too.
        assert!(!told.is_news(2, Some(Network), "h", None));
        assert!(told.is_news(1, Some(Network), "h", None));
        // After a visit that went well, the next failure is news.
        assert!(told.is_news(2, None, "h", Some(Network)));
        assert!(told.is_news(2, Some(Network), "h", Some(Gone)), "another class");
        // This machine is one place for all hosts.
        assert!(told.is_news(6, None, "a", Some(DiskFull)) && !told.is_news(7, None, "b", Some(DiskFull)));
    }

    #[test]
    fn notify_tells_one_recovery_of_what_an_earlier_run_told_once() {
        use FailureClass::{Gone, Network};
        let mut told = ToldFailures::default();
        assert!(told.is_news(1, Some(Network), "h", None) && !told.is_news(2, Some(Network), "h", None));
        assert!(told.is_news(3, Some(Network), "other", None));
        assert!(told.is_news(4, Some(Gone), "h", None) && told.is_news(5, Some(Gone), "h", None));
        // One that this run has told of is well again, and so is one of before.
        assert!(told.is_news(6, None, "h", Some(Network)) && !told.is_news(7, None, "h", Some(Network)));
        assert!(told.is_news(6, Some(Network), "h", None) && !told.is_news(7, Some(Network), "h", None));
        assert!(told.is_news(8, Some(Network), "h", None) && !told.is_news(9, Some(Network), "h", None));
    }
}
