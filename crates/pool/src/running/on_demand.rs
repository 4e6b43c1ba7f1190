//! Mirrors repositories when clients ask for them, and visits upstreams before clients read old copies.
//!
//! One thread registers what is asked for and makes it due; the mirror loop visits it, of this process or
//! another. The thread looks at the catalog until the visit has ended, and then tells all who wait. However
//! many ask for a repository, there is one visit.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use weir_catalog::Repository;
use weir_catalog::clock::now;
use weir_ground::thread::spawn;
use weir_ground::{FailureClass, Stop, Timestamp, printable};
use weir_serve::Refusal;
use weir_settings::OnDemandConfig;

use crate::archives::{SoundEntries, forget};
use crate::error::{Error, Result};
use crate::running::pool::Pool;

/// Time between looks at the catalog while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Repositories for which clients may wait at once.
const REPOSITORIES_MAX: usize = 256;
/// How long weir remembers that there is no such repository upstream, and how many of these it remembers.
const ABSENT_AGE_MAX: Duration = Duration::from_secs(60);
const ABSENT_MAX: usize = 10_000;

/// Why a client gets what is here although its upstream could not be visited.
pub(crate) type Stale = Option<String>;

/// The rules about what is fetched on demand, and the way to the thread that has it fetched.
pub struct OnDemand {
    rules: Vec<OnDemandConfig>,
    asks: Sender<Ask>,
}

/// A client that waits for a repository.
struct Ask {
    name: String,
    url: String,
    timeout: Duration,
    answer: oneshot::Sender<std::result::Result<Stale, Refusal>>,
}

impl OnDemand {
    /// Starts what fetches on demand, if the pool's settings have rules for that. `stop` is nudged when
    /// something is due.
    ///
    /// # Errors
    /// If the catalog cannot be opened again, or the thread cannot be started.
    pub fn start(pool: &Pool, stop: &Stop) -> Result<Option<OnDemand>> {
        let rules = pool.config.serve.fetch_on_demand.clone();
        if rules.is_empty() {
            return Ok(None);
        }
        let (asks, asked) = channel();
        let mut waiting = Waiting {
            pool: pool.again()?,
            stop: stop.clone(),
            repositories: HashMap::new(),
            absent: HashMap::new(),
        };
        spawn("on demand", move || waiting.run(&asked))?;
        Ok(Some(OnDemand { rules, asks }))
    }

    /// Returns the rule about the repository called `name`, and the URL of its upstream.
    pub(crate) fn rule(&self, name: &str) -> Option<(&OnDemandConfig, String)> {
        self.rules.iter().find_map(|rule| Some((rule, rule.url_of(name)?)))
    }

    /// Has a repository visited. The receiver gets the result when the visit has ended.
    pub(crate) fn ask(
        &self,
        name: &str,
        url: String,
        timeout: Duration,
    ) -> oneshot::Receiver<std::result::Result<Stale, Refusal>> {
        let (answer, answered) = oneshot::channel();
        // If the thread is gone, the receiver says so.
        let _ = self.asks.send(Ask { name: name.to_owned(), url, timeout, answer });
        answered
    }
}

/// What clients wait for.
struct Waiting {
    pool: Pool,
    stop: Stop,
    /// By the numbers of the repositories.
    repositories: HashMap<i64, Awaited>,
    /// What is not there upstream, since when.
    absent: HashMap<String, (Instant, Refusal)>,
}

/// A repository for which clients wait.
#[derive(Default)]
struct Awaited {
    /// Whether it was added for them: it is removed if it cannot be mirrored.
    is_new: bool,
    waiters: Vec<Waiter>,
}

struct Waiter {
    /// When it asked: a visit must have begun after that.
    asked: Timestamp,
    until: Instant,
    answer: oneshot::Sender<std::result::Result<Stale, Refusal>>,
}

impl Waiting {
    /// Answers those who ask until nobody can ask any more.
    fn run(&mut self, asked: &Receiver<Ask>) {
        loop {
            let first = match self.repositories.is_empty() {
                true => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => asked.recv_timeout(LOOK_EVERY),
            };
            let mut asks = match first {
                Ok(ask) => vec![ask],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            asks.extend(asked.try_iter());
            let mut by_name: HashMap<String, Vec<Ask>> = HashMap::new();
            for ask in asks {
                by_name.entry(ask.name.clone()).or_default().push(ask);
            }
            for (name, asks) in by_name {
                if let Err(e) = self.begin(&name, asks) {
                    tracing::error!("cannot fetch '{}' on demand: {e}", printable(&name));
                }
            }
            if let Err(e) = self.look() {
                tracing::error!("cannot look at what is fetched on demand: {e}");
            }
        }
    }

    /// Makes a repository due for those who ask for it. If that fails, they learn so: nobody answers them.
    fn begin(&mut self, name: &str, asks: Vec<Ask>) -> Result<()> {
        self.absent.retain(|_, (since, _)| since.elapsed() < ABSENT_AGE_MAX);
        if let Some((_, refusal)) = self.absent.get(name) {
            return answer_all(asks, &Err(refusal.clone()));
        }
        let Some(url) = asks.first().map(|ask| ask.url.clone()) else { return Ok(()) };
        let known = self.pool.catalog.get(name)?;
        let is_new = known.is_none();
        if self.repositories.len() >= REPOSITORIES_MAX {
            return answer_all(asks, &Err(busy("too many repositories are being fetched")));
        }
        let repository = match known {
            Some(known) => known,
            None => match self.add(name, &url) {
                Ok(added) => added,
                Err(Error::Refused(why)) => return answer_all(asks, &Err(Refusal::NotFound(why))),
                Err(e) => return Err(e),
            },
        };
        let asked_at = now();
        // Those who wait for the first clone get it, whenever they came.
        let is_under_way = repository.seq.is_none() && self.repositories.contains_key(&repository.id);
        if !is_under_way && self.pool.catalog.hint(&[repository.id], asked_at)? == 0 {
            let words = "it is paused or set back, and not visited".to_owned();
            return answer_all(asks, &Ok(Some(words)));
        }
        let awaited = self.repositories.entry(repository.id).or_default();
        awaited.is_new |= is_new;
        awaited.waiters.extend(asks.into_iter().map(|ask| Waiter {
            asked: asked_at,
            until: Instant::now() + ask.timeout,
            answer: ask.answer,
        }));
        self.stop.nudge();
        Ok(())
    }

    /// Registers the repository called `name`, which a client has chosen.
    fn add(&mut self, name: &str, url: &str) -> Result<Repository> {
        let mut sound = SoundEntries::default();
        sound.take(&self.pool.catalog, &self.pool.store, url, Some(name), true)?;
        self.pool.catalog.add(&sound.entries, now())?;
        tracing::info!("a client asked for '{name}': mirroring it from {url}");
        self.pool.get(name)
    }

    /// Tells those whose repository has been visited.
    fn look(&mut self) -> Result<()> {
        let ids: Vec<i64> = self.repositories.keys().copied().collect();
        for id in ids {
            let Some(awaited) = self.repositories.get_mut(&id) else { continue };
            let found = self.pool.catalog.get_by_id(id)?;
            // Whoever asks makes it due; a visit, or a pause of its host, puts its next time into the future.
            let has_ended = |waiter: &Waiter| found.as_ref().is_none_or(|r| r.next_due > waiter.asked);
            let (ended, rest): (Vec<Waiter>, Vec<Waiter>) = awaited.waiters.drain(..).partition(has_ended);
            let (late, rest): (Vec<Waiter>, Vec<Waiter>) =
                rest.into_iter().partition(|waiter: &Waiter| waiter.until <= Instant::now());
            awaited.waiters = rest;
            answer_waiters(late, &Err(busy("it is being fetched from its upstream")));
            let is_new = awaited.is_new;
            if awaited.waiters.is_empty() {
                self.repositories.remove(&id);
            }
            if !ended.is_empty() {
                let outcome = self.outcome(found, is_new)?;
                answer_waiters(ended, &outcome);
            }
        }
        Ok(())
    }

    /// Returns the result of a visit to a repository. Removes it if it was added for those who asked, and
    /// cannot be mirrored.
    fn outcome(
        &mut self,
        found: Option<Repository>,
        is_new: bool,
    ) -> Result<std::result::Result<Stale, Refusal>> {
        let Some(r) = found else { return Ok(Err(Refusal::NotFound("it was removed".to_owned()))) };
        if r.seq.is_some() {
            return Ok(Ok(r.error.filter(|_| r.failures > 0)));
        }
        let why = r.error.clone().unwrap_or_else(|| "its host is not visited now".to_owned());
        if is_new && r.failures > 0 {
            forget(&mut self.pool.catalog, &self.pool.store, &r, false)?;
        }
        let refusal = match r.error_class {
            Some(FailureClass::Gone | FailureClass::Forbidden) => {
                Refusal::NotFound(format!("no such repository: {}", r.name))
            }
            _ => busy(&format!("it cannot be fetched from its upstream: {why}")),
        };
        if self.absent.len() >= ABSENT_MAX {
            self.absent.clear();
        }
        if r.failures > 0 {
            self.absent.insert(r.name.clone(), (Instant::now(), refusal.clone()));
        }
        Ok(Err(refusal))
    }
}

fn busy(why: &str) -> Refusal {
    Refusal::Busy(format!("weir: {why}; try again in a minute"))
}

fn answer_all(asks: Vec<Ask>, answer: &std::result::Result<Stale, Refusal>) -> Result<()> {
    for ask in asks {
        let _ = ask.answer.send(answer.clone());
    }
    Ok(())
}

fn answer_waiters(waiters: Vec<Waiter>, answer: &std::result::Result<Stale, Refusal>) {
    for waiter in waiters {
        // A client that has left needs no answer.
        let _ = waiter.answer.send(answer.clone());
    }
}
