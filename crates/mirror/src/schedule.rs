//! Decides when to visit an upstream again.
//!
//! If an upstream changes with rate λ and is visited every T, its copy is behind by λT²/6 on average while λT
//! is small (Cho and Garcia-Molina, "Effective page refresh policies for web crawlers", 2003, for Poisson
//! changes). The sum of that over many upstreams, for a given total number of visits, is least if T is
//! proportional to λ^(-1/3): an upstream that changes a thousand times as often is visited ten times as
//! often, not a thousand times. λ is estimated from the changes that visits have found, with the latest
//! counting most. A new upstream is assumed to go on as before: one that last changed a year ago will hardly
//! change today.

use weir_ground::FailureClass;

const DAY_S: f64 = 86_400.0;
/// The time after which observations count half: projects wake up and fall asleep.
const HALF_LIFE_S: f64 = 10.0 * DAY_S;
/// The prior estimate for an upstream: this part of one change in the time since its last change.
const PRIOR_CHANGES: f64 = 0.3;
/// The time since the last change where it is unknown, and its bounds.
const QUIET_UNKNOWN_S: f64 = 30.0 * DAY_S;
const QUIET_MIN_S: f64 = 3600.0;
const QUIET_MAX_S: f64 = 3.0 * 365.0 * DAY_S;
/// The longest time from the first visit to the second.
const SECOND_MAX_S: u64 = 3600;
/// The wait after an upstream was gone or forbidden for the first time: it may be a mistake of its host.
const REFUSED_FIRST_S: u64 = 86_400;

/// The bounds of the intervals between visits. All are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The time between visits, however often an upstream changes; `None` if it depends on the changes.
    pub interval_s: Option<u64>,
    /// The time between visits to an upstream that changes once a day.
    pub interval_daily_s: u64,
    /// The shortest interval, for upstreams that change more often.
    pub interval_min_s: u64,
    /// The longest interval, for upstreams that change less often.
    pub interval_max_s: u64,
    /// The wait after the first temporary failure; it doubles with each further one.
    pub retry_s: u64,
    /// The longest wait after such failures.
    pub retry_max_s: u64,
    /// The longest wait after an upstream was found to be gone: a day the first time, four times as long with
    /// each further one.
    pub gone_s: u64,
    /// The longest wait after an upstream refused access; it grows in the same way.
    pub forbidden_s: u64,
}

/// The changes that visits have found, and the time over which they were observed, with the latest counting
/// most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// The weighted number of changes.
    pub changes: f64,
    /// The weighted time, in seconds.
    pub watched_s: f64,
}

impl Observed {
    /// Adds a visit that came `gap_s` seconds after the previous one.
    pub fn visited(&mut self, gap_s: u64, is_changed: bool) {
        let gap_s = gap_s as f64;
        let left = 0.5f64.powf(gap_s / HALF_LIFE_S);
        self.changes = self.changes * left + f64::from(u8::from(is_changed));
        self.watched_s = self.watched_s * left + gap_s;
        debug_assert!(self.changes.is_finite() && self.watched_s.is_finite(), "{self:?}");
    }

    /// Returns the changes per second of an upstream that last changed `quiet_s` ago (`None` if that is
    /// unknown).
    fn rate(&self, quiet_s: Option<u64>) -> f64 {
        let quiet_s = quiet_s.map_or(QUIET_UNKNOWN_S, |s| (s as f64).clamp(QUIET_MIN_S, QUIET_MAX_S));
        // Several changes between two visits look like one: if nearly every visit finds a change, there were
        // more.
        let more = 1.0 + self.changes / 8.0;
        (self.changes * more + PRIOR_CHANGES) / (self.watched_s + PRIOR_CHANGES * quiet_s)
    }
}

impl Policy {
    /// Returns the seconds until the second visit: a user who has just added a repository wants to see it
    /// followed.
    pub fn second_s(&self) -> u64 {
        self.next_s(&Observed::default(), None).min(SECOND_MAX_S.max(self.interval_min_s))
    }

    /// Returns the seconds until the next visit after a successful one.
    pub fn next_s(&self, observed: &Observed, quiet_s: Option<u64>) -> u64 {
        if let Some(interval_s) = self.interval_s {
            return interval_s;
        }
        let a_day = observed.rate(quiet_s) * DAY_S;
        let interval = self.interval_daily_s as f64 * a_day.powf(-1.0 / 3.0);
        (interval as u64).clamp(self.interval_min_s.min(self.interval_max_s), self.interval_max_s)
    }

    /// Returns the seconds until the next visit after a failure of `class`, which `failures` failures in a
    /// row preceded. For gone and forbidden, only failures of that class count.
    pub fn retry_s(&self, class: FailureClass, failures: u32) -> u64 {
        match class {
            FailureClass::Gone => {
                REFUSED_FIRST_S.saturating_mul(1 << (2 * failures.min(20))).min(self.gone_s)
            }
            FailureClass::Forbidden => {
                REFUSED_FIRST_S.saturating_mul(1 << (2 * failures.min(20))).min(self.forbidden_s)
            }
            _ => self.retry_s.saturating_mul(1 << failures.min(20)).min(self.retry_max_s),
        }
    }
}

/// Returns `wait_s` and up to a tenth more, so that repositories that were added together do not stay due
/// together.
pub fn spread(wait_s: u64, id: i64) -> u64 {
    wait_s + (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (wait_s / 10 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_S: u64 = 3600;

    fn policy() -> Policy {
        Policy {
            interval_s: None,
            interval_daily_s: 6 * HOUR_S,
            interval_min_s: 600,
            interval_max_s: 30 * 24 * HOUR_S,
            retry_s: 300,
            retry_max_s: 24 * HOUR_S,
            gone_s: 31 * 24 * HOUR_S,
            forbidden_s: 7 * 24 * HOUR_S,
        }
    }

    #[test]
    fn what_changes_often_is_visited_often_but_not_as_often() {
        let p = policy();
        let settled = |changes_each: u32| {
            let mut observed = Observed::default();
            let (mut last, mut now) = (0, 0);
            for n in 0..200u32 {
                let is_changed = n % changes_each == 0;
                let gap = p.next_s(&observed, Some(now - last));
                now += gap;
                observed.visited(gap, is_changed);
                if is_changed {
                    last = now;
                }
            }
            p.next_s(&observed, Some(now - last))
        };
        let (always, seldom) = (settled(1), settled(20));
        assert!(always >= p.interval_min_s && always < 3 * HOUR_S, "{always}");
        assert!(seldom > 3 * always && seldom < 100 * always, "{seldom} {always}");
        let fresh = Observed::default();
        assert!(p.next_s(&fresh, Some(HOUR_S)) < p.next_s(&fresh, None));
        assert!(p.next_s(&fresh, None) < p.next_s(&fresh, Some(2 * 365 * 24 * HOUR_S)));
    }

    #[test]
    fn an_interval_is_an_interval() {
        let p = Policy { interval_s: Some(300), ..policy() };
        let busy = Observed { changes: 50.0, watched_s: 86_400.0 };
        assert_eq!(
            (p.second_s(), p.next_s(&busy, Some(0)), p.next_s(&Observed::default(), None)),
            (300, 300, 300)
        );
        assert_eq!(
            (policy().second_s(), Policy { interval_min_s: 7200, ..policy() }.second_s()),
            (HOUR_S, 7200)
        );
    }

    #[test]
    fn failures_by_their_class() {
        let p = policy();
        assert_eq!(
            (
                p.retry_s(FailureClass::Network, 0),
                p.retry_s(FailureClass::Network, 3),
                p.retry_s(FailureClass::Server, 40)
            ),
            (300, 2400, 24 * HOUR_S)
        );
        let day = 24 * HOUR_S;
        assert_eq!(
            [0, 1, 2, 3, 40].map(|n| p.retry_s(FailureClass::Gone, n)),
            [day, 4 * day, 16 * day, p.gone_s, p.gone_s]
        );
        assert_eq!([0, 1, 2].map(|n| p.retry_s(FailureClass::Forbidden, n)), [day, 4 * day, p.forbidden_s]);
        assert_eq!(Policy { gone_s: 60, ..p }.retry_s(FailureClass::Gone, 0), 60);
        assert!((1000..=1100).contains(&spread(1000, 7)) && spread(0, 3) == 0);
    }
}
