//! Mirrors repositories when clients ask for them, and visits upstreams before clients read old copies.
//!
//! One thread makes due what is asked for; the mirror loop visits it, of this process or another. The thread
//! looks at the catalog until the visit has ended, and then tells all who wait. However many ask for a
//! repository, there is one visit, or two if the first had begun before.
//!
//! Clients may ask for names that nobody has. So the upstream is asked for a repository first (a *probe*),
//! and only what is there is registered: names that are not there fill no catalog, and count neither as
//! failures of their host nor of anything else.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use weir_catalog::Repository;
use weir_catalog::clock::now;
use weir_ground::thread::spawn;
use weir_ground::{FailureClass, Stop, Timestamp, printable};
use weir_serve::Refusal;
use weir_settings::OnDemandConfig;
use weir_transport::{Session, TransportOptions, Url};

use crate::archives::{SoundEntries, forget};
use crate::error::{Error, Result};
use crate::running::pool::{Pool, transport_options};

/// Upstreams that are asked at once whether they have a repository.
const PROBES_MAX: usize = 32;
/// The names that a host may not have in a minute before it is asked for no more.
const ABSENT_A_MINUTE_MAX: usize = 60;
/// Time between looks at the catalog while somebody waits, and after all have left.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_SELDOM: Duration = Duration::from_secs(2);
const _: () = assert!(LOOK_EVERY.as_millis() < LOOK_SELDOM.as_millis(), "looks become seldom");
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
    asks: Sender<OnDemandAsk>,
}

/// A client that waits for a repository.
struct OnDemandAsk {
    name: String,
    url: String,
    /// Whether it takes what is arriving.
    takes_arriving: bool,
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
        let (answers, probed) = channel();
        let mut waiting = OnDemandWork {
            pool: pool.again()?,
            transport: transport_options(&pool.config),
            stop: stop.clone(),
            repositories: HashMap::new(),
            probes: HashMap::new(),
            answers,
            absent: HashMap::new(),
        };
        spawn("on demand", move || waiting.run(&asked, &probed))?;
        Ok(Some(OnDemand { rules, asks }))
    }

    /// Returns the rule about the repository called `name`, and the URL of its upstream.
    pub(crate) fn rule(&self, name: &str) -> Option<(&OnDemandConfig, String)> {
        self.rules.iter().find_map(|rule| Some((rule, rule.url_of(name)?)))
    }

    /// Has a repository visited. The receiver gets the result when the visit has ended, or, if it
    /// `takes_arriving`, when its first copy begins to arrive.
    pub(crate) fn ask(
        &self,
        name: &str,
        url: String,
        takes_arriving: bool,
    ) -> oneshot::Receiver<std::result::Result<Stale, Refusal>> {
        let (answer, answered) = oneshot::channel();
        // If the thread is gone, the receiver says so.
        let _ = self.asks.send(OnDemandAsk { name: name.to_owned(), url, takes_arriving, answer });
        answered
    }
}

/// The repositories for which clients wait, and the thread's handles.
struct OnDemandWork {
    pool: Pool,
    transport: TransportOptions,
    stop: Stop,
    /// By the numbers of the repositories.
    repositories: HashMap<i64, AwaitedRepository>,
    /// Those who wait until an upstream says whether it has a repository, by its name.
    probes: HashMap<String, Vec<OnDemandAsk>>,
    answers: Sender<ProbeAnswer>,
    /// Repositories that could not be had lately, by name.
    absent: HashMap<String, AbsentUpstream>,
}

/// The answer of an upstream to a probe.
struct ProbeAnswer {
    name: String,
    /// Why it does not give it.
    failure: Option<(FailureClass, String)>,
}

/// A repository that could not be had.
struct AbsentUpstream {
    since: Instant,
    /// The host that was asked.
    host: String,
    refusal: Refusal,
}

/// A repository for which clients wait.
#[derive(Default)]
struct AwaitedRepository {
    /// Whether it was added for them: it is removed if it cannot be mirrored.
    is_new: bool,
    waiters: Vec<Waiter>,
}

struct Waiter {
    /// When it asked: a visit must have begun after that.
    asked: Timestamp,
    /// Whether a visit was under way then, after which another must come.
    is_early: bool,
    /// Whether it takes what is arriving.
    takes_arriving: bool,
    answer: oneshot::Sender<std::result::Result<Stale, Refusal>>,
}

impl OnDemandWork {
    /// Answers those who ask until nobody can ask any more.
    fn run(&mut self, asked: &Receiver<OnDemandAsk>, probed: &Receiver<ProbeAnswer>) {
        loop {
            let is_awaited = |awaited: &AwaitedRepository| !awaited.waiters.is_empty();
            let somebody_waits = !self.probes.is_empty() || self.repositories.values().any(is_awaited);
            let first = match (somebody_waits, self.repositories.is_empty()) {
                (true, _) => asked.recv_timeout(LOOK_EVERY),
                (false, false) => asked.recv_timeout(LOOK_SELDOM),
                (false, true) => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let mut asks = match first {
                Ok(ask) => vec![ask],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            asks.extend(asked.try_iter());
            let mut by_name: HashMap<String, Vec<OnDemandAsk>> = HashMap::new();
            for ask in asks {
                by_name.entry(ask.name.clone()).or_default().push(ask);
            }
            let told = |name: &str, begun: Result<()>| {
                if let Err(e) = begun {
                    tracing::error!("cannot fetch '{}' on demand: {e}", printable(name));
                }
            };
            for (name, asks) in by_name {
                told(&name, self.begin(&name, asks));
            }
            for answer in probed.try_iter() {
                let name = answer.name.clone();
                told(&name, self.heard(answer));
            }
            if let Err(e) = self.look() {
                tracing::error!("cannot look at what is fetched on demand: {e}");
            }
        }
    }

    /// Makes a repository due for those who ask for it, or asks its upstream whether it is there. If that
    /// fails, they learn so: nobody answers them.
    fn begin(&mut self, name: &str, asks: Vec<OnDemandAsk>) -> Result<()> {
        self.absent.retain(|_, absent| absent.since.elapsed() < ABSENT_AGE_MAX);
        let known = self.pool.catalog.get(name)?;
        let is_here = known.as_ref().is_some_and(|known| known.seq.is_some());
        if let Some(absent) = self.absent.get(name).filter(|_| !is_here) {
            return answer_all(asks, &Err(absent.refusal.clone()));
        }
        if let Some(known) = known {
            return self.make_due(&known, asks, false);
        }
        if let Some(waiting) = self.probes.get_mut(name) {
            waiting.extend(asks);
            return Ok(());
        }
        let Some(url) = asks.first().and_then(|ask| Url::parse(&ask.url).ok()) else {
            return answer_all(asks, &Err(not_there(name)));
        };
        let host = url.host_port();
        let absent = self.absent.values().filter(|absent| absent.host == host).count();
        if absent >= ABSENT_A_MINUTE_MAX || self.probes.len() >= PROBES_MAX {
            return answer_all(asks, &Err(busy("too many repositories are being looked for")));
        }
        let (options, answers, name) = (self.transport.clone(), self.answers.clone(), name.to_owned());
        let probed = name.clone();
        let probe = move || {
            let opened = catch_unwind(AssertUnwindSafe(|| Session::open(&url, &options).map(drop)));
            let failure = match opened {
                Ok(Ok(())) => None,
                Ok(Err(e)) => Some((e.class(), e.to_string())),
                Err(_) => Some((FailureClass::Defect, "internal error (a bug in weir)".to_owned())),
            };
            let _ = answers.send(ProbeAnswer { name, failure });
        };
        spawn("probe", probe)?;
        self.probes.insert(probed, asks);
        Ok(())
    }

    /// Registers a repository that its upstream has, and makes it due; otherwise refuses it.
    fn heard(&mut self, ProbeAnswer { name, failure }: ProbeAnswer) -> Result<()> {
        let Some(asks) = self.probes.remove(&name) else { return Ok(()) };
        let Some(url) = asks.first().map(|ask| ask.url.clone()) else { return Ok(()) };
        if let Some((class, why)) = failure {
            let refusal = self.refuse(&name, &url, class, &why);
            return answer_all(asks, &Err(refusal));
        }
        match self.add(&name, &url) {
            Ok(added) => self.make_due(&added, asks, true),
            Err(Error::Refused(why)) => {
                tracing::info!("'{name}' is not fetched on demand: {why}");
                answer_all(asks, &Err(not_there(&name)))
            }
            Err(e) => Err(e),
        }
    }

    /// Remembers that a repository could not be had. Returns what clients are told: the words of the upstream
    /// and the names of hosts are for the log.
    fn refuse(&mut self, name: &str, url: &str, class: FailureClass, why: &str) -> Refusal {
        tracing::info!("a client asked for '{name}', which cannot be fetched: {} ({class})", printable(why));
        let refusal = match class {
            FailureClass::Gone | FailureClass::Forbidden => not_there(name),
            _ => busy("it cannot be fetched from its upstream now"),
        };
        if self.absent.len() >= ABSENT_MAX {
            self.absent.clear();
        }
        let host = Url::parse(url).map(|url| url.host_port()).unwrap_or_default();
        let absent = AbsentUpstream { since: Instant::now(), host, refusal: refusal.clone() };
        self.absent.insert(name.to_owned(), absent);
        refusal
    }

    /// Makes a repository due for those who ask for it.
    fn make_due(&mut self, repository: &Repository, asks: Vec<OnDemandAsk>, is_new: bool) -> Result<()> {
        if self.repositories.len() >= REPOSITORIES_MAX {
            return answer_all(asks, &Err(busy("too many repositories are being fetched")));
        }
        let asked_at = now();
        // Those who wait for the first clone get it, whenever they came.
        let joins = repository.seq.is_none() && self.repositories.contains_key(&repository.id);
        let mut is_early = false;
        if !joins {
            let Some(is_under_way) = self.pool.catalog.visits().hint_one(repository.id, asked_at)? else {
                let words = "it is paused or set back, and not visited".to_owned();
                return answer_all(asks, &Ok(Some(words)));
            };
            is_early = is_under_way && repository.seq.is_some();
        }
        let awaited = self.repositories.entry(repository.id).or_default();
        awaited.is_new |= is_new;
        awaited.waiters.extend(asks.into_iter().map(|ask| Waiter {
            asked: asked_at,
            is_early,
            takes_arriving: ask.takes_arriving,
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
        let shown = Url::parse(url).map(|url| url.without_userinfo()).unwrap_or_default();
        tracing::info!("a client asked for '{name}': mirroring it from {shown}");
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
            let (mut ended, mut rest): (Vec<Waiter>, Vec<Waiter>) =
                awaited.waiters.drain(..).partition(has_ended);
            let path = found.as_ref().map(|r| self.pool.store.path.join(&r.path));
            if path.is_some_and(|path| self.pool.arrivals.get(&path).is_some()) {
                let begun = rest.extract_if(.., |waiter| waiter.takes_arriving).collect();
                answer_waiters(begun, &Ok(None));
            }
            // That visit may have begun before they asked.
            let is_again = ended.iter().any(|waiter| waiter.is_early) && found.is_some();
            if is_again && self.pool.catalog.visits().hint_one(id, now())?.is_some() {
                let asked = now();
                let early = ended.extract_if(.., |waiter| waiter.is_early);
                rest.extend(early.map(|waiter| Waiter { asked, is_early: false, ..waiter }));
                self.stop.nudge();
            }
            // Those who have left, or wait no longer, need no answer.
            rest.retain(|waiter| !waiter.answer.is_closed());
            awaited.waiters = rest;
            let is_new = awaited.is_new;
            let is_coming = found.as_ref().is_some_and(|r| r.seq.is_none() && r.failures == 0);
            // One that cannot be mirrored is removed, whoever has left meanwhile.
            let is_done = awaited.waiters.is_empty() && !(is_new && is_coming);
            if is_done {
                self.repositories.remove(&id);
            }
            if !ended.is_empty() || (is_done && is_new) {
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
        let Some(r) = found else {
            return Ok(Err(Refusal::NotFound("the repository was removed meanwhile".to_owned())));
        };
        if r.seq.is_some() {
            return Ok(Ok(r.error.filter(|_| r.failures > 0)));
        }
        if r.failures == 0 {
            return Ok(Err(busy("its host is not visited now")));
        }
        if is_new {
            forget(&self.pool.catalog, &self.pool.store, &r, false)?;
        }
        let class = r.error_class.unwrap_or(FailureClass::Local);
        let why = r.error.clone().unwrap_or_default();
        Ok(Err(self.refuse(&r.name, &r.url, class, &why)))
    }
}

fn not_there(name: &str) -> Refusal {
    Refusal::NotFound(format!("no such repository: {name}"))
}

fn busy(why: &str) -> Refusal {
    Refusal::Busy(format!("weir: {why}; try again in a minute"))
}

fn answer_all(asks: Vec<OnDemandAsk>, answer: &std::result::Result<Stale, Refusal>) -> Result<()> {
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
