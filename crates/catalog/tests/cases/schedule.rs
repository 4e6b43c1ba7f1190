//! The schedule of visits: leases, due times, priorities.

use weir_catalog::{Catalog, Interval, Outcome, PRIORITY_MAX, Repository, Settings, Visit, Which};
use weir_ground::{Epoch, FailureClass, Timestamp};

use super::{DUE, entry, listed, pass};

pub fn leases_are_exclusive_until_they_run_out(c: &mut Catalog) {
    c.add(&[entry("a", "u1"), entry("b", "u2"), entry("c", "u3")], Timestamp(0)).unwrap();
    let first = c.visits().lease("one", Timestamp(100), Timestamp(200), &DUE, 2).unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(c.visits().lease("two", Timestamp(100), Timestamp(200), &DUE, 10).unwrap().len(), 1);
    assert!(c.visits().lease("three", Timestamp(150), Timestamp(300), &DUE, 10).unwrap().is_empty());
    let only = |ids: &'static [i64]| Which { due_only: false, ids: Some(ids), ..DUE };
    assert!(c.visits().lease("three", Timestamp(150), Timestamp(300), &only(&[]), 10).unwrap().is_empty());
    let again = c.visits().lease("three", Timestamp(200), Timestamp(300), &DUE, 10).unwrap();
    assert_eq!(again.len(), 3, "run out");
    assert!(
        again.iter().all(|r| first.iter().all(|before| r.epoch > before.epoch)),
        "each lease has a number of its own"
    );
    let free = Which { free_only: true, ..DUE };
    assert!(
        c.visits().lease("three", Timestamp(250), Timestamp(400), &free, 10).unwrap().is_empty(),
        "not its own, which it visits"
    );
    assert!(
        c.visits().lease("three", Timestamp(350), Timestamp(400), &free, 10).unwrap().is_empty(),
        "not even if that takes longer than its lease"
    );
    assert_eq!(
        c.visits().lease("three", Timestamp(250), Timestamp(400), &DUE, 10).unwrap().len(),
        3,
        "unless they are to be renewed"
    );
    assert_eq!(
        c.visits().lease("four", Timestamp(450), Timestamp(500), &free, 10).unwrap().len(),
        3,
        "what another has let lapse is free"
    );
}

pub fn visits_set_the_schedule(c: &mut Catalog) {
    c.add(&[entry("a", "u1")], Timestamp(0)).unwrap();
    let id = c.get("a").unwrap().unwrap().id;
    let visit = |at, next_due, outcome| Visit {
        id,
        epoch: Epoch::NONE,
        began_at: at,
        at,
        next_due,
        again_at: Timestamp(0),
        hints: 0,
        fingerprint: Some(vec![1]),
        changes: 1.0,
        watched_s: 2.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        event: None,
        outcome,
    };
    c.visits()
        .record(&[visit(
            Timestamp(10),
            Timestamp(20),
            Outcome::Failed { class: FailureClass::Network, error: "no".into() },
        )])
        .unwrap();
    let a = c.get("a").unwrap().unwrap();
    assert_eq!(
        (a.failures, a.last_success, a.error_class.map(FailureClass::name), a.fingerprint),
        (1, None, Some("network"), None)
    );
    c.visits()
        .record(&[visit(
            Timestamp(30),
            Timestamp(40),
            Outcome::Updated { seq: 1, archive_bytes: 2, ref_count: 3 },
        )])
        .unwrap();
    let a = c.get("a").unwrap().unwrap();
    assert_eq!(
        (a.failures, a.last_success, a.error, a.seq, a.next_due),
        (0, Some(Timestamp(30)), None, Some(1), Timestamp(40))
    );
    assert!(c.visits().lease("x", Timestamp(39), Timestamp(50), &DUE, 10).unwrap().is_empty(), "not due");
    assert_eq!(
        c.visits().lease("x", Timestamp(39), Timestamp(50), &Which::default(), 10).unwrap().len(),
        1,
        "but asked for"
    );
}

pub fn a_push_during_a_visit_is_not_forgotten(c: &mut Catalog) {
    pass(c, &[listed(1, "o/a")], Timestamp(10));
    let id = c.get("h/o/a").unwrap().unwrap().id;
    let mut pushed = listed(1, "o/a");
    pushed.1.pushed_at = Some("2".into());
    pass(c, &[pushed], Timestamp(50));
    let visit = |began_at| Visit {
        id,
        epoch: Epoch::NONE,
        began_at,
        at: Timestamp(100),
        next_due: Timestamp(9000),
        again_at: Timestamp(0),
        hints: 0,
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        event: None,
        outcome: Outcome::Unchanged,
    };
    c.visits().record(&[visit(Timestamp(40))]).unwrap();
    assert_eq!(
        c.get("h/o/a").unwrap().unwrap().next_due,
        Timestamp(50),
        "it may have come too late to be seen"
    );
    c.visits().record(&[visit(Timestamp(60))]).unwrap();
    assert_eq!(c.get("h/o/a").unwrap().unwrap().next_due, Timestamp(9000));
}

pub fn a_lost_lease_writes_nothing_and_others_are_left_alone(c: &mut Catalog) {
    c.add(&[entry("a", "u1"), entry("b", "u2")], Timestamp(0)).unwrap();
    let first = c.visits().lease("one/1", Timestamp(100), Timestamp(200), &DUE, 10).unwrap();
    let visit = |epoch, id, next_due| Visit {
        id,
        epoch,
        began_at: Timestamp(100),
        at: Timestamp(150),
        next_due,
        again_at: Timestamp(0),
        hints: 0,
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        event: None,
        outcome: Outcome::Unchanged,
    };
    // The visit took too long: another process has the lease now.
    let second = c.visits().lease("two/1", Timestamp(200), Timestamp(300), &DUE, 1).unwrap();
    assert_eq!(
        c.visits()
            .record(&[
                visit(first[0].epoch, first[0].id, Timestamp(1)),
                visit(first[1].epoch, first[1].id, Timestamp(2))
            ])
            .unwrap(),
        1
    );
    assert_eq!(
        (c.get("a").unwrap().unwrap().next_due, c.get("b").unwrap().unwrap().next_due),
        (Timestamp(0), Timestamp(2))
    );
    c.visits().release_all("one/").unwrap();
    assert_eq!(
        c.visits().lease("three/1", Timestamp(210), Timestamp(300), &DUE, 10).unwrap().len(),
        1,
        "the lease of two/1 stands"
    );
    c.visits().release_all("two/").unwrap();
    let third = c.visits().lease("three/1", Timestamp(210), Timestamp(300), &DUE, 10).unwrap();
    assert_eq!(third.len(), 2);
    assert_eq!(c.visits().record(&[visit(second[0].epoch, second[0].id, Timestamp(9))]).unwrap(), 0);
    assert_eq!(
        c.visits()
            .record(&[
                visit(third[0].epoch, third[0].id, Timestamp(9)),
                visit(third[1].epoch, third[1].id, Timestamp(9))
            ])
            .unwrap(),
        2
    );
    assert_eq!(c.visits().next_due().unwrap(), Some(Timestamp(9)));
}

pub fn a_clock_that_was_ahead_puts_nothing_off(c: &mut Catalog) {
    c.add(&["a", "b", "c"].map(|name| entry(name, "u")), Timestamp(0)).unwrap();
    let later = 1_000_000_000;
    // A process whose clock is thirty years ahead visits two repositories and leases a third.
    let leased = c.visits().lease("there", Timestamp(later), Timestamp(later + 1800), &DUE, 2).unwrap();
    let visit = |r: &Repository| Visit {
        id: r.id,
        epoch: r.epoch,
        began_at: Timestamp(later - 1),
        at: Timestamp(later),
        next_due: Timestamp(later + 60),
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
    let visits: Vec<Visit> = leased.iter().map(visit).collect();
    c.visits().record(&visits).unwrap();
    c.visits().lease("there", Timestamp(later), Timestamp(later + 1800), &DUE, 1).unwrap();
    assert!(c.visits().lease("here", Timestamp(5000), Timestamp(6800), &DUE, 9).unwrap().is_empty());
    assert_eq!(c.mend_times(Timestamp(5000)).unwrap(), 3);
    assert_eq!(c.mend_times(Timestamp(5000)).unwrap(), 0);
    assert_eq!(c.visits().lease("here", Timestamp(5000), Timestamp(6800), &DUE, 9).unwrap().len(), 3);
    assert!(c.list().unwrap().iter().all(|r| r.last_attempt.is_none_or(|at| at == Timestamp(5000))));
    // A small difference between two clocks is no reason to mend times.
    assert_eq!(c.mend_times(Timestamp(4000)).unwrap(), 0);
    let ahead = c.follow_clock().unwrap();
    assert!(ahead.abs() <= 1, "{ahead}");
}

pub fn priorities_go_first_then_hints_then_the_most_overdue(c: &mut Catalog) {
    let names = ["a", "b", "c", "d", "e", "f"];
    c.add(&names.map(|name| entry(name, name)), Timestamp(0)).unwrap();
    let id = |c: &Catalog, name: &str| c.get(name).unwrap().unwrap().id;
    let visit = |id, epoch: u64, at: i64, next_due: i64| Visit {
        id,
        epoch: Epoch(epoch),
        began_at: Timestamp(at),
        at: Timestamp(at),
        next_due: Timestamp(next_due),
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
    let visits: Vec<Visit> =
        names.iter().zip(10..).map(|(name, due)| visit(id(c, name), 0, 5, due)).collect();
    c.visits().record(&visits).unwrap();
    let settings = Settings { interval: Some(Interval::Seconds(60)), ..Settings::default() };
    let (e, set) = (id(c, "e"), [id(c, "f"), id(c, "e"), id(c, "b"), -1]);
    c.change_settings(&set, Timestamp(i64::MAX), &|priority, _| *priority += 1).unwrap();
    // A change keeps what another process has set meanwhile.
    c.change_settings(&[e], Timestamp(i64::MAX), &|priority, _| *priority += 8).unwrap();
    c.change_settings(&[e], Timestamp(i64::MAX), &|_, settings| {
        settings.interval = Some(Interval::Seconds(60))
    })
    .unwrap();
    let said = c.get("e").unwrap().unwrap();
    assert_eq!((said.priority, said.settings), (PRIORITY_MAX, settings));
    assert_eq!(c.visits().hint(&[id(c, "d"), id(c, "c"), -1], Timestamp(20)).unwrap(), 2);
    let leased = |c: &mut Catalog, who: &str, now, max| -> String {
        c.visits().lease(who, now, now + 100, &DUE, max).unwrap().iter().map(|r| r.name.clone()).collect()
    };
    assert_eq!(leased(c, "x", Timestamp(9), 9), "", "nobody goes before it is due");
    assert_eq!(leased(c, "x", Timestamp(20), 2), "eb", "priority, then who is due first");
    assert_eq!(
        leased(c, "y", Timestamp(20), 9),
        "fcda",
        "then hints in the order they were due, then the rest"
    );
    let epochs: Vec<u64> = c.list().unwrap().iter().map(|r| r.epoch.0).collect();
    assert_eq!(epochs, [20; 6], "each was leased once, and then");
    // A visit ends a hint.
    c.visits().record(&[visit(id(c, "c"), 20, 30, 40), visit(id(c, "a"), 20, 30, 39)]).unwrap();
    assert_eq!(leased(c, "z", Timestamp(50), 9), "ac");
    let listed: String = c.with_settings().unwrap().iter().map(|r| r.name.clone()).collect();
    assert_eq!(listed, "ebf");
    c.change_settings(&[id(c, "e")], Timestamp(7), &|priority, settings| {
        (*priority, *settings) = Default::default()
    })
    .unwrap();
    assert_eq!((c.with_settings().unwrap().len(), c.get("e").unwrap().unwrap().next_due), (2, Timestamp(7)));
    // A visit that was under way during a change did not use the new settings: the repository stays due. A
    // visit that begins after the change used them.
    let set = |c: &mut Catalog, due| {
        c.change_settings(&[e], due, &|_, settings| settings.lfs = Some(true)).unwrap()
    };
    for (before, meanwhile, next_due) in
        [(i64::MAX, i64::MAX, 900), (300, i64::MAX, 900), (i64::MAX, 310, 310)]
    {
        set(c, Timestamp(before));
        let leased = c
            .visits()
            .lease("z", Timestamp(300), Timestamp(400), &Which { ids: Some(&[e]), ..Which::default() }, 1)
            .unwrap();
        set(c, Timestamp(meanwhile));
        c.visits().record(&[visit(e, leased[0].epoch.0, 300, 900)]).unwrap();
        assert_eq!(c.get("e").unwrap().unwrap().next_due, Timestamp(next_due), "{before} {meanwhile}");
    }
}
