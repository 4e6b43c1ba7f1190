//! Pauses visits where errors accumulate: of one host, of all hosts if many fail at once, and of all hosts at
//! once if this machine is at fault.
//!
//! Each kind of error has a bag with room for a number of errors (crawld's and errbag's idea). One error
//! leaks out in each interval and with each successful visit; when the bag is full, visits pause. Errors that
//! concern one repository alone (a bad pack, or a repository that is gone or forbidden) do not count. But a
//! host that says of one repository after the other that it is not there has itself lost something.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use weir_ground::FailureClass;

/// When visits pause, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottlePolicy {
    /// The errors that fill a bag; 0 for no pauses except for a full disk.
    pub window: u32,
    /// The time in which one error leaks out, in milliseconds.
    pub leak_ms: u64,
    /// The length of a pause, in milliseconds.
    pub pause_ms: u64,
}

/// The cause of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A host fails, or the network to it.
    Host,
    /// A host says of every repository that it is gone or forbidden.
    Refusals,
    /// A host says when to come again.
    Asked,
    /// Many hosts fail at once: the local network is at fault.
    Network,
    /// The disk is full.
    DiskFull,
    /// The store is not there.
    Store,
    /// The disk will be full soon.
    LowSpace,
    /// The archives take all the space that they may.
    Quota,
    /// Another error of this machine.
    Local,
}

impl Cause {
    /// Returns whether a successful visit shows that the pause called `cause` is over: a visit to a `remote`
    /// host, or one that has written something here.
    pub(crate) fn is_disproved(cause: &str, remote: bool, has_written: bool) -> bool {
        let on_disk = [Cause::DiskFull, Cause::LowSpace, Cause::Quota, Cause::Local];
        match cause {
            _ if on_disk.iter().any(|on_disk| on_disk.name() == cause) => has_written,
            _ => remote || cause == Cause::Store.name(),
        }
    }

    /// Returns whether archives may not grow, although upstreams can be asked.
    pub(crate) fn is_shortage(self) -> bool {
        matches!(self, Cause::LowSpace | Cause::Quota)
    }

    /// Returns the cause in words.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Host => "the host fails",
            Cause::Refusals => "the host refuses all that is asked for",
            Cause::Asked => "the host asks for it (Retry-After)",
            Cause::Network => "many hosts fail: the network",
            Cause::DiskFull => "the disk is full",
            Cause::Store => "the store is not there",
            Cause::LowSpace => "less space is free than store.free_bytes_min",
            Cause::Quota => "archives take store.bytes_max or more",
            Cause::Local => "errors of this machine",
        }
    }
}

/// A pause that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The host; `None` for all hosts.
    pub host: Option<String>,
    /// The cause.
    pub cause: Cause,
    /// The end of the pause, in milliseconds of the caller's clock.
    pub until_ms: u64,
}

/// The number of different hosts among the latest errors from which on the network is at fault.
const HOSTS_MIN: usize = 3;
/// The number of hosts from which on those with few recent errors are forgotten.
const HOSTS_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug, Default)]
struct Bag {
    level: f64,
    at_ms: u64,
    paused_until_ms: u64,
    /// The cause of the latest pause of the host.
    cause: Option<Cause>,
    /// The consecutive repositories that were gone or forbidden.
    refused: u32,
}

impl Bag {
    fn leak(&mut self, policy: &ThrottlePolicy, now_ms: u64) {
        let gone = now_ms.saturating_sub(self.at_ms) as f64 / policy.leak_ms.max(1) as f64;
        self.level = (self.level - gone).max(0.0);
        self.at_ms = now_ms;
    }

    /// Adds an error; returns true if that fills the bag.
    fn take(&mut self, policy: &ThrottlePolicy, now_ms: u64) -> bool {
        self.leak(policy, now_ms);
        debug_assert!(self.level >= 0.0, "{} errors", self.level);
        self.level += 1.0;
        let is_full =
            policy.window > 0 && self.level >= f64::from(policy.window) && self.paused_until_ms <= now_ms;
        if is_full {
            // After the pause half a bag of errors is enough for the next one.
            self.level /= 2.0;
            self.paused_until_ms = now_ms + policy.pause_ms;
            self.cause = Some(Cause::Host);
        }
        is_full
    }
}

/// The bags of all hosts. Times are the caller's, in milliseconds.
#[derive(Debug)]
pub struct Throttle {
    policy: ThrottlePolicy,
    hosts: HashMap<String, Bag>,
    network: Bag,
    local: Bag,
    /// The cause of the latest pause because of this machine.
    local_cause: Cause,
    /// The hosts of the latest network errors.
    latest: VecDeque<String>,
}

impl Throttle {
    /// Creates a throttle without errors.
    pub fn new(policy: ThrottlePolicy) -> Throttle {
        Throttle {
            policy,
            hosts: HashMap::new(),
            network: Bag::default(),
            local: Bag::default(),
            local_cause: Cause::Local,
            latest: VecDeque::new(),
        }
    }

    /// Records a successful visit to `host`, which is empty for local paths. Returns whether that ends a
    /// pause of all visits: the network is there.
    pub fn went_well(&mut self, host: &str, now_ms: u64) -> bool {
        let policy = self.policy;
        for bag in
            [Some(&mut self.network), Some(&mut self.local), self.hosts.get_mut(host)].into_iter().flatten()
        {
            bag.leak(&policy, now_ms);
            bag.level = (bag.level - 1.0).max(0.0);
            bag.refused = 0;
        }
        if host.is_empty() || self.network.paused_until_ms <= now_ms {
            return false;
        }
        self.network.paused_until_ms = 0;
        self.all_paused(now_ms).is_none()
    }

    /// Ends the pause of all visits, if there is one: another process has found that its cause is gone.
    pub fn go_on(&mut self) {
        self.network.paused_until_ms = 0;
        self.local.paused_until_ms = 0;
    }

    /// Records a failed visit to `host`; returns the pause that begins with it, if any.
    pub fn failed(&mut self, host: &str, class: FailureClass, now_ms: u64) -> Option<Pause> {
        let policy = self.policy;
        let pause = |host: Option<&str>, cause| Pause {
            host: host.map(str::to_owned),
            cause,
            until_ms: now_ms + policy.pause_ms,
        };
        match class {
            FailureClass::DiskFull | FailureClass::Store => {
                // Every further visit would fail as well.
                let is_new = self.local.paused_until_ms <= now_ms;
                self.local.paused_until_ms = now_ms + policy.pause_ms;
                self.local_cause = if class == FailureClass::Store { Cause::Store } else { Cause::DiskFull };
                is_new.then(|| pause(None, self.local_cause))
            }
            FailureClass::Local => self.local.take(&policy, now_ms).then(|| {
                self.local_cause = Cause::Local;
                pause(None, Cause::Local)
            }),
            FailureClass::Gone | FailureClass::Forbidden => {
                let bag = self.host(host, now_ms);
                bag.refused += 1;
                let is_too_much =
                    policy.window > 0 && bag.refused >= policy.window && bag.paused_until_ms <= now_ms;
                is_too_much.then(|| {
                    // After the pause half as many refusals are enough for the next one.
                    bag.refused /= 2;
                    bag.paused_until_ms = now_ms + policy.pause_ms;
                    bag.cause = Some(Cause::Refusals);
                    pause(Some(host), Cause::Refusals)
                })
            }
            // All of a host's repositories have its certificate.
            FailureClass::Certificate => {
                self.host(host, now_ms).take(&policy, now_ms).then(|| pause(Some(host), Cause::Host))
            }
            FailureClass::Network | FailureClass::Slow | FailureClass::Server => {
                self.latest.push_back(host.to_owned());
                if self.latest.len() > policy.window as usize {
                    self.latest.pop_front();
                }
                debug_assert!(self.latest.len() <= policy.window as usize, "more errors than count");
                let host_is_full = self.host(host, now_ms).take(&policy, now_ms);
                let mut different: Vec<&String> = self.latest.iter().collect();
                different.sort_unstable();
                different.dedup();
                if different.len() >= HOSTS_MIN && self.network.take(&policy, now_ms) {
                    return Some(pause(None, Cause::Network));
                }
                host_is_full.then(|| pause(Some(host), Cause::Host))
            }
            _ => None,
        }
    }

    /// Records that `host` asks for a pause of `seconds`; returns that pause, unless the host already pauses
    /// for that long.
    pub fn asked_to_wait(&mut self, host: &str, wait: Duration, now_ms: u64) -> Option<Pause> {
        let until_ms = now_ms.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let bag = self.host(host, now_ms);
        let is_new = bag.paused_until_ms < until_ms && !wait.is_zero();
        if is_new {
            (bag.paused_until_ms, bag.cause) = (until_ms, Some(Cause::Asked));
        }
        is_new.then(|| Pause { host: Some(host.to_owned()), cause: Cause::Asked, until_ms })
    }

    fn host(&mut self, host: &str, now_ms: u64) -> &mut Bag {
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(host) {
            self.hosts.retain(|_, bag| bag.paused_until_ms > now_ms || bag.level > 1.0 || bag.refused > 1);
        }
        self.hosts.entry(host.to_owned()).or_default()
    }

    /// Returns why all visits pause, if they do.
    pub fn all_paused(&self, now_ms: u64) -> Option<Cause> {
        let by_local = (self.local.paused_until_ms > now_ms).then_some(self.local_cause);
        by_local.or_else(|| (self.network.paused_until_ms > now_ms).then_some(Cause::Network))
    }

    /// Returns the length of a pause, in milliseconds.
    pub fn pause_ms(&self) -> u64 {
        self.policy.pause_ms
    }

    /// Returns until when visits to `host` pause, if they do.
    pub fn paused_until(&self, host: &str, now_ms: u64) -> Option<u64> {
        self.hosts.get(host).map(|bag| bag.paused_until_ms).filter(|until| *until > now_ms)
    }

    /// Returns whether visits to `host` pause because it fails, and not because it asks for that.
    pub(crate) fn pauses_for_failures(&self, host: &str, now_ms: u64) -> bool {
        let bag = self.hosts.get(host).filter(|bag| bag.paused_until_ms > now_ms);
        bag.is_some_and(|bag| bag.cause == Some(Cause::Host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: ThrottlePolicy = ThrottlePolicy { window: 60, leak_ms: 1000, pause_ms: 1_800_000 };
    const HOUR_MS: u64 = 3_600_000;

    /// Simulates an hour of visits to a hundred hosts, ten a second, that end as `class` says for a second
    /// and a host. Returns the number of visits and the pauses.
    fn an_hour(mut class: impl FnMut(u64, usize) -> Option<FailureClass>) -> (usize, Vec<Pause>, Throttle) {
        let mut throttle = Throttle::new(POLICY);
        let (mut visits, mut pauses, mut turn) = (0, Vec::new(), 0usize);
        for now_ms in (0..HOUR_MS).step_by(100) {
            if throttle.all_paused(now_ms).is_some() {
                continue;
            }
            turn += 1;
            let host = format!("h{}", turn % 100);
            if throttle.paused_until(&host, now_ms).is_some() {
                continue;
            }
            visits += 1;
            match class(now_ms / 1000, turn % 100) {
                None => drop(throttle.went_well(&host, now_ms)),
                Some(class) => pauses.extend(throttle.failed(&host, class, now_ms)),
            }
        }
        (visits, pauses, throttle)
    }

    #[test]
    fn a_network_that_is_down_costs_a_few_visits_and_comes_back_within_a_pause() {
        let (visits, pauses, _) = an_hour(|second, _| (second < 600).then_some(FailureClass::Network));
        assert_eq!(
            pauses.iter().map(|p| (p.host.is_none(), p.cause)).collect::<Vec<_>>(),
            [(true, Cause::Network)]
        );
        assert!(pauses[0].until_ms < 10_000 + POLICY.pause_ms && visits > 17_000, "{visits} {pauses:?}");
    }

    #[test]
    fn network_that_answers_again_ends_its_pause() {
        let mut throttle = Throttle::new(POLICY);
        let failed = |throttle: &mut Throttle, n: u64| {
            throttle.failed(&format!("h{}", n % 5), FailureClass::Network, n)
        };
        let pause = (0..100).find_map(|n| failed(&mut throttle, n)).unwrap();
        assert_eq!((pause.host, throttle.all_paused(100)), (None, Some(Cause::Network)));
        assert!(!throttle.went_well("", 101), "a local path says nothing of the network");
        assert!(throttle.went_well("h9", 101) && throttle.all_paused(101).is_none());
        assert!(!throttle.went_well("h9", 102), "it is over already");
        // A visit that writes nothing does not show that the disk has room.
        throttle.failed("h9", FailureClass::DiskFull, 103);
        assert!(!throttle.went_well("h9", 104));
        assert_eq!(throttle.all_paused(104), Some(Cause::DiskFull));
        throttle.go_on();
        assert_eq!(throttle.all_paused(104), None);
    }

    #[test]
    fn one_host_does_not_stop_the_others_and_upstreams_own_faults_stop_nobody() {
        let (visits, pauses, throttle) = an_hour(|_, host| (host == 7).then_some(FailureClass::Server));
        assert!(visits > 35_000 && pauses.is_empty(), "at this pace it leaks: {visits} {pauses:?}");
        assert_eq!(throttle.all_paused(HOUR_MS), None);
        let mut throttle = Throttle::new(POLICY);
        let pause = (0..100).find_map(|n| throttle.failed("h", FailureClass::Server, n * 10)).unwrap();
        assert_eq!((pause.host.as_deref(), pause.cause), (Some("h"), Cause::Host));
        assert!(
            throttle.paused_until("h", 10_000).is_some() && throttle.paused_until("other", 10_000).is_none()
        );
        for class in [
            FailureClass::BadPack,
            FailureClass::Incomplete,
            FailureClass::Limit,
            FailureClass::Damaged,
            FailureClass::Protocol,
        ] {
            let (visits, pauses, _) = an_hour(|_, _| Some(class));
            assert!(visits == 36_000 && pauses.is_empty(), "{class}");
        }
    }

    #[test]
    fn a_host_that_has_nothing_any_more_is_asked_again_later() {
        for class in [FailureClass::Gone, FailureClass::Forbidden] {
            let mut throttle = Throttle::new(POLICY);
            let pause = (0..1000).find_map(|n| throttle.failed("h", class, n * 1000).map(|pause| (n, pause)));
            let (asked, pause) = pause.unwrap();
            assert_eq!(
                (asked, pause.host.as_deref(), pause.cause),
                (59, Some("h"), Cause::Refusals),
                "{class}"
            );
            assert!(
                throttle.paused_until("other", 60_000).is_none() && throttle.all_paused(60_000).is_none()
            );
            let after = pause.until_ms;
            assert!(
                (0..29).all(|n| throttle.failed("h", class, after + n).is_none())
                    && throttle.failed("h", class, after + 30).is_some()
            );
            // One repository in sixty that is there is enough: old lists are like that.
            let mut throttle = Throttle::new(POLICY);
            for n in 0..10_000 {
                match n % 60 {
                    0 => drop(throttle.went_well("h", n)),
                    _ => assert_eq!(throttle.failed("h", class, n), None),
                }
            }
        }
    }

    #[test]
    fn a_few_errors_among_many_visits_are_no_trouble() {
        let mut n = 0;
        let (_, pauses, _) = an_hour(|_, _| {
            n += 1;
            (n % 4 == 0).then_some(FailureClass::Network)
        });
        assert!(pauses.is_empty(), "{pauses:?}");
    }

    #[test]
    fn a_full_disk_pauses_everything_at_once() {
        let (visits, pauses, _) = an_hour(|second, _| (second < 2000).then_some(FailureClass::DiskFull));
        assert_eq!(pauses.len(), 2, "one at the start, one when the first pause was over: {pauses:?}");
        assert!(pauses.iter().all(|p| p.cause == Cause::DiskFull) && visits <= 2, "{visits}");
    }
}
