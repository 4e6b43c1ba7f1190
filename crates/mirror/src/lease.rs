//! Leases the repositories that a mirror visits, batch by batch: of millions, only some thousands are held at
//! a time.

use std::time::{Duration, Instant};

use weir_catalog::{Catalog, Which};
use weir_ground::Timestamp;

use crate::mirror::Leased;

/// The most repositories leased at once.
const LEASED_MAX: usize = 100_000;
/// The most repositories leased at once by one of several machines: the others need work, too.
const LEASED_MAX_SHARED: usize = 5_000;
/// The most repositories that go ahead of waiting tasks, leased at once.
const LEASED_AHEAD_MAX: usize = 1_000;
/// A repository that is due and free but cannot be leased is locked by another process. This is how long to
/// wait for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The repositories that are still to be visited whether due or not.
enum Remaining {
    /// All with a greater id.
    All { after: i64 },
    /// Those whose ids are at this index of the list or later.
    These { from: usize },
    /// None.
    Nothing,
}

/// An iterator-like source of batches of leased repositories.
pub struct Batches<'a> {
    owner: &'a str,
    lease_s: u64,
    max: usize,
    asked: Remaining,
    /// If set, only these repositories.
    ids: Option<Vec<i64>>,
    /// Which due repositories follow those in `asked`.
    due: Due,
    now: Now<'a>,
}

/// Returns the time: the catalog's, or one that a test sets.
pub type Now<'a> = &'a dyn Fn() -> Timestamp;

/// The repositories that are visited because they are due.
#[derive(Clone, Copy)]
enum Due {
    /// Those that are due at the time of each request.
    Always,
    /// Those that were due at this time: each comes once.
    By(Timestamp),
    /// None.
    Never,
}

impl<'a> Batches<'a> {
    /// Creates a source of all repositories that are or become due.
    pub fn due(catalog: &Catalog, owner: &'a str, lease_s: u64, now: Now<'a>) -> Batches<'a> {
        let max = if catalog.is_remote() { LEASED_MAX_SHARED } else { LEASED_MAX };
        Batches { owner, lease_s, max, asked: Remaining::Nothing, ids: None, due: Due::Always, now }
    }

    /// Restricts the batches to the repositories `ids`.
    pub fn only(self, ids: Option<Vec<i64>>) -> Batches<'a> {
        Batches { ids, ..self }
    }

    /// Starts with all repositories, or all of `ids`, whether due or not.
    pub fn all_first(self) -> Batches<'a> {
        let asked = if self.ids.is_some() {
            Remaining::These { from: 0 }
        } else {
            Remaining::All { after: i64::MIN }
        };
        Batches { asked, ..self }
    }

    /// Ends when each has come once: those that [`Batches::all_first`] adds, or else those due by now.
    pub fn once(self) -> Batches<'a> {
        let due = if matches!(self.asked, Remaining::Nothing) { Due::By((self.now)()) } else { Due::Never };
        Batches { due, ..self }
    }

    /// Leases the first batch.
    ///
    /// # Errors
    /// If the catalog fails.
    pub fn first(&mut self, catalog: &Catalog) -> weir_catalog::Result<Leased> {
        self.next(catalog, false)
    }

    /// Leases the next batch of repositories that are not being visited; if `ahead_only`, only due
    /// repositories that go ahead.
    ///
    /// # Errors
    /// If the catalog fails.
    pub fn more(&mut self, catalog: &Catalog, ahead_only: bool) -> weir_catalog::Result<Leased> {
        if ahead_only {
            let which = Which { due_only: true, ids: self.ids.as_deref(), free_only: true, ahead_only };
            return match self.due_at() {
                Some(at) => self.lease(catalog, &which, at, self.max.min(LEASED_AHEAD_MAX)),
                None => Ok(Leased::default()),
            };
        }
        self.next(catalog, true)
    }

    fn due_at(&self) -> Option<Timestamp> {
        match self.due {
            Due::Always => Some((self.now)()),
            Due::By(at) => Some(at),
            Due::Never => None,
        }
    }

    /// Returns the ids of the next batch that is visited whether due or not, and what remains after it.
    fn asked(&self, catalog: &Catalog) -> weir_catalog::Result<(Vec<i64>, Remaining)> {
        Ok(match (&self.asked, &self.ids) {
            (Remaining::All { after }, _) => {
                let ids = catalog.enabled_ids(*after, self.max)?;
                let rest = ids.last().map_or(Remaining::Nothing, |last| Remaining::All { after: *last });
                (ids, rest)
            }
            (Remaining::These { from }, Some(all)) => {
                let ids: Vec<i64> = all.iter().skip(*from).take(self.max).copied().collect();
                let rest = Remaining::These { from: from + ids.len() };
                (ids, rest)
            }
            _ => (Vec::new(), Remaining::Nothing),
        })
    }

    fn next(&mut self, catalog: &Catalog, free_only: bool) -> weir_catalog::Result<Leased> {
        loop {
            let (ids, rest) = self.asked(catalog)?;
            if ids.is_empty() {
                break;
            }
            let leased = self.lease(
                catalog,
                &Which { ids: Some(&ids), free_only, ..Which::default() },
                (self.now)(),
                self.max,
            )?;
            self.asked = rest;
            if !leased.repositories.is_empty() {
                return Ok(leased);
            }
        }
        let Some(at) = self.due_at() else { return Ok(Leased::default()) };
        let which = Which { due_only: true, ids: self.ids.as_deref(), free_only, ahead_only: false };
        let began = Instant::now();
        loop {
            let leased = self.lease(catalog, &which, at, self.max)?;
            let waits = matches!(self.due, Due::By(_)) && self.ids.is_none() && began.elapsed() < PATIENCE;
            if !leased.repositories.is_empty() || !waits || !catalog.visits().is_any_due(at)? {
                return Ok(leased);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn lease(
        &self,
        catalog: &Catalog,
        which: &Which<'_>,
        at: Timestamp,
        max: usize,
    ) -> weir_catalog::Result<Leased> {
        let until = (self.now)() + self.lease_s as i64;
        Ok(Leased { repositories: catalog.visits().lease(self.owner, at, until, which, max)?, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_catalog::{NewRepository, Outcome, Visit};
    use weir_ground::Clock;

    /// Returns the names in the order they are leased, a word for each batch. Each is visited, and due again
    /// one second later.
    fn names(clock: &Clock, catalog: &Catalog, mut batches: Batches<'_>, rounds_max: usize) -> String {
        batches.max = 2;
        let mut all = Vec::new();
        for n in 0..rounds_max {
            let leased = if n == 0 { batches.first(catalog) } else { batches.more(catalog, false) }.unwrap();
            if leased.repositories.is_empty() {
                break;
            }
            let visit = |r: &weir_catalog::Repository| Visit {
                id: r.id,
                epoch: r.epoch,
                began_at: clock.now(),
                at: clock.now(),
                next_due: clock.now() + 1,
                again_at: Timestamp(0),
                hints: 0,
                fingerprint: None,
                changes: 0.0,
                watched_s: 0.0,
                is_news: false,
                snapshot: None,
                lfs_missing: None,
                event: None,
                outcome: Outcome::Unchanged,
            };
            assert_eq!(
                catalog.visits().record(&leased.repositories.iter().map(visit).collect::<Vec<_>>()).unwrap(),
                leased.repositories.len()
            );
            all.push(leased.repositories.iter().map(|r| r.name.as_str()).collect::<String>());
        }
        all.join(" ")
    }

    #[test]
    fn each_once_however_many_and_what_is_paused_never() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::set_to(Timestamp(1_000_000));
        let now = || clock.now();
        let catalog = Catalog::open(&dir.path().join("catalog.sqlite")).unwrap();
        let entry = |name: &str| NewRepository::new(name, &format!("git://h/{name}"));
        catalog.add(&["a", "b", "c", "d", "e", "f"].map(entry), Timestamp(0)).unwrap();
        catalog.archives().set_hold("b", weir_catalog::Hold::Paused, true).unwrap();
        let batches = |catalog: &Catalog| Batches::due(catalog, "me", 100, &now);
        let all = batches(&catalog);
        assert_eq!(names(&clock, &catalog, all.once(), 9), "ac de f");
        // Nothing is due, but all are to be visited all the same, or some.
        let none = batches(&catalog);
        assert_eq!(names(&clock, &catalog, none.once(), 9), "");
        let all = batches(&catalog);
        assert_eq!(names(&clock, &catalog, all.all_first().once(), 9), "ac de f");
        let id = |name: &str| catalog.get(name).unwrap().unwrap().id;
        let (some, three) = (["f", "b", "c"].map(id).to_vec(), batches(&catalog));
        assert_eq!(names(&clock, &catalog, three.only(Some(some.clone())).all_first().once(), 9), "f c");
        // Without `once`, the repositories that are due follow.
        clock.advance(Duration::from_secs(2));
        let watching = batches(&catalog);
        assert_eq!(names(&clock, &catalog, watching.only(Some(some)).all_first(), 2), "f c");
        let ahead = batches(&catalog).more(&catalog, true).unwrap();
        assert!(ahead.repositories.is_empty());
    }
}
