//! Looks for issues, pull requests and releases.

use std::collections::HashMap;

use weir_catalog::{Catalog, MetadataCounts, MetadataLook, MetadataTask, Outcome, Repository, Visit, Which};
use weir_ground::{Epoch, Timestamp};

use super::{pass, row};

/// A catalog with looks to be leased.
struct Looks<'a> {
    c: &'a Catalog,
    /// The ids of its repositories by name: `a`, whose metadata is not wanted; `b`, which has no setting;
    /// `b.wiki`; `c`, whose metadata is wanted; `d`, which is not mirrored.
    ids: HashMap<String, i64>,
}

impl<'a> Looks<'a> {
    /// Registers the repositories at forge `f`, mirrors them, and notes that metadata is wanted by default.
    fn new(c: &'a Catalog) -> Looks<'a> {
        let page = [row("1", "a"), row("2", "b"), row("2:wiki", "b.wiki"), row("3", "c"), row("4", "d")];
        pass(c, &page, Timestamp(5));
        let mut looks = Looks { c, ids: HashMap::new() };
        looks.note("f", true);
        assert!(looks.all(Timestamp(10), Timestamp(100)).is_empty(), "nothing is mirrored yet");
        let leased =
            looks.c.visits().lease("o", Timestamp(10), Timestamp(1000), &Which::default(), 9).unwrap();
        let visits: Vec<Visit> = leased.iter().filter(|r| r.name != "h/d").map(visit).collect();
        looks.c.visits().record(&visits).unwrap();
        looks.ids = leased.iter().map(|r| (r.name.trim_start_matches("h/").to_owned(), r.id)).collect();
        for (name, wanted) in [("a", false), ("c", true)] {
            let id = looks.ids[name];
            looks
                .c
                .change_settings(&[id], Timestamp(i64::MAX), &|_, settings| settings.metadata = Some(wanted))
                .unwrap();
        }
        looks.note("g", true);
        looks.note("f", true);
        looks
    }

    /// Notes which repositories of `forge` are to be looked at.
    fn note(&mut self, forge: &str, by_default: bool) {
        let mut after = Some(0);
        while let Some(place) = after {
            after = self.c.metadata().note(forge, by_default, place, Timestamp(1000)).unwrap();
        }
    }

    /// Leases all looks that are due, from `now` until `until`.
    fn all(&mut self, now: Timestamp, until: Timestamp) -> Vec<MetadataTask> {
        std::iter::from_fn(|| self.c.metadata().lease("o", "f", None, now, (now, until)).unwrap()).collect()
    }

    /// Ends the look at the repository called `name`. Returns whether its lease was the last one.
    fn end(
        &mut self,
        (name, epoch): (&str, Epoch),
        due_at: Timestamp,
        is_changed: bool,
        error: Option<&str>,
    ) -> bool {
        let (id, error) = (self.ids[name], error.map(str::to_owned));
        let look = MetadataLook { id, epoch, at: Timestamp(30), due_at, is_changed, error };
        self.c.metadata().end(&look).unwrap()
    }

    /// Looks at `b` and `c`, which are due again at 101 and at 1000.
    fn look(&mut self) {
        let tasks = self.all(Timestamp(20), Timestamp(100));
        assert_eq!(tasks.len(), 2);
        for task in &tasks {
            let name = task.repository.name.trim_start_matches("h/");
            let due_at = Timestamp(if name == "b" { 101 } else { 1000 });
            assert!(self.end((name, task.epoch), due_at, false, None));
        }
    }
}

/// Returns a visit that leaves an archive behind.
fn visit(r: &Repository) -> Visit {
    Visit {
        id: r.id,
        epoch: r.epoch,
        began_at: Timestamp(10),
        at: Timestamp(11),
        next_due: Timestamp(0),
        again_at: Timestamp(0),
        hints: 0,
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: false,
        snapshot: None,
        lfs_missing: None,
        event: None,
        outcome: Outcome::Updated { seq: 1, archive_bytes: 1, ref_count: 1 },
    }
}

/// Returns the names of the repositories in `tasks`.
fn names(tasks: &[MetadataTask]) -> Vec<String> {
    tasks.iter().map(|t| t.repository.name.trim_start_matches("h/").to_owned()).collect()
}

pub fn looks_for_metadata_are_leased_in_turn(c: &mut Catalog) {
    let mut looks = Looks::new(c);
    let lease = (Timestamp(20), Timestamp(100));
    assert!(
        looks.c.metadata().lease("o", "g", None, Timestamp(20), lease).unwrap().is_none(),
        "another forge"
    );
    let first = looks.c.metadata().lease("o", "f", None, Timestamp(20), lease).unwrap().unwrap();
    assert_eq!((first.forge_id.as_str(), first.changed_at, first.failures), ("2", None, 0));
    let second = looks.all(Timestamp(20), Timestamp(100));
    assert_eq!(names(&second), ["c"], "what is leased is left alone, and wikis have none");
    assert!(looks.end(("b", first.epoch), Timestamp(50), true, None));
    assert!(looks.end(("c", second[0].epoch), Timestamp(40), false, Some("oops")));
    assert_eq!(looks.c.metadata().counts().unwrap(), MetadataCounts { looked_at: 2, failing: 1 });
    assert_eq!(looks.c.metadata().errors(5).unwrap(), [("h/c".to_owned(), "oops".to_owned())]);
    // The look that has been due for longest comes first. A lease that has run out can be taken again.
    let due = looks.all(Timestamp(60), Timestamp(100));
    assert_eq!(
        (names(&due), due[0].failures, due[1].changed_at),
        (vec!["c".to_owned(), "b".to_owned()], 1, Some(Timestamp(30)))
    );
    let (b, c) = (looks.ids["b"], looks.ids["c"]);
    assert!(looks.c.metadata().extend_lease(c, due[0].epoch, Timestamp(300)).unwrap());
    let later = looks.all(Timestamp(101), Timestamp(200));
    assert_eq!(names(&later), ["b"]);
    // The earlier lease no longer holds.
    assert!(
        !looks.c.metadata().extend_lease(b, due[1].epoch, Timestamp(400)).unwrap()
            && !looks.end(("b", due[1].epoch), Timestamp(7), true, Some("late"))
    );
    assert!(
        looks.end(("b", later[0].epoch), Timestamp(101), false, None)
            && looks.end(("c", due[0].epoch), Timestamp(1000), false, None)
    );
}

pub fn looks_of_a_killed_process_are_leased_again(c: &mut Catalog) {
    let mut looks = Looks::new(c);
    looks.look();
    // The next process releases the leases of a killed process, which then can record nothing.
    let killed = looks.all(Timestamp(102), Timestamp(200));
    assert_eq!(names(&killed), ["b"]);
    looks.c.metadata().release_all("p").unwrap();
    assert!(looks.all(Timestamp(102), Timestamp(200)).is_empty(), "of another machine");
    looks.c.metadata().release_all("o").unwrap();
    let b = looks.ids["b"];
    assert!(!looks.c.metadata().extend_lease(b, killed[0].epoch, Timestamp(400)).unwrap());
    let next = looks.all(Timestamp(102), Timestamp(200));
    assert_eq!(names(&next), ["b"]);
    assert!(!looks.end(("b", killed[0].epoch), Timestamp(7), true, None));
    assert!(looks.end(("b", next[0].epoch), Timestamp(1000), false, None));
}

pub fn metadata_is_looked_for_where_it_is_named_or_wanted(c: &mut Catalog) {
    let mut looks = Looks::new(c);
    looks.look();
    // A look at repositories that are named ignores their settings.
    let (a, b, d) = (looks.ids["a"], looks.ids["b"], looks.ids["d"]);
    let named = looks.c.metadata().note_of("f", &[a, b, d]).unwrap();
    assert_eq!(named, [a, b]);
    let lease = (Timestamp(401), Timestamp(500));
    let tasks: Vec<_> = named
        .iter()
        .map(|id| looks.c.metadata().lease("o", "f", Some(*id), Timestamp(0), lease).unwrap().unwrap())
        .collect();
    assert_eq!(names(&tasks), ["a", "b"]);
    for (name, task) in ["a", "b"].iter().zip(&tasks) {
        assert!(looks.end((name, task.epoch), Timestamp(0), false, None));
    }
    // Repositories whose metadata is no longer wanted get no looks.
    looks.note("f", false);
    assert_eq!(names(&looks.all(Timestamp(1001), Timestamp(2000))), ["c"], "only what says so itself");
    looks.c.remove("h/c").unwrap();
    assert_eq!(looks.c.metadata().counts().unwrap().looked_at, 0);
}
