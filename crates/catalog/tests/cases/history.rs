//! The history of visits, and the updates that hooks have not received yet.

use weir_catalog::{Catalog, Outcome, Visit};
use weir_ground::{Epoch, FailureClass, Timestamp};

use super::{DUE, entry};

pub fn updates_are_kept_for_hooks_with_the_visits_that_found_them(c: &mut Catalog) {
    c.add(&[entry("a", "u1"), entry("b", "u2"), entry("c", "u3")], Timestamp(0)).unwrap();
    let leased = c.lease("one/1", Timestamp(1), Timestamp(100), &DUE, 10).unwrap();
    let visit = |n: usize, epoch, outcome| Visit {
        id: leased[n].id,
        epoch,
        began_at: Timestamp(1),
        at: Timestamp(2),
        next_due: Timestamp(3),
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        outcome,
    };
    let updated = |seq| Outcome::Updated { seq, archive_bytes: 1, ref_count: 1 };
    c.record(&[visit(0, Epoch(1), updated(1))]).unwrap();
    assert_eq!(c.update_count("one/").unwrap(), 0, "nobody wanted to know");
    c.keep_updates_for("one/");
    c.record(&[
        visit(0, Epoch(1), updated(2)),
        visit(1, Epoch(1), Outcome::Unchanged),
        visit(2, Epoch(7), updated(9)),
        visit(1, Epoch(1), updated(3)),
    ])
    .unwrap();
    let mut kept = c.updates("one/", 0, 1, 0, 10).unwrap();
    assert!(kept.is_sorted_by_key(|u| u.id));
    kept.sort_by_key(|u| u.seq);
    assert_eq!(
        kept.iter().map(|u| (u.name.as_str(), u.seq)).collect::<Vec<_>>(),
        [("a", 2), ("b", 3)],
        "not that of a lost lease"
    );
    assert!(
        c.updates("two/", 0, 1, 0, 10).unwrap().is_empty()
            && c.updates("one/", 0, 1, kept[0].id.max(kept[1].id), 10).unwrap().is_empty()
    );
    let shares: usize = (0..3).map(|n| c.updates("one/", n, 3, 0, 10).unwrap().len()).sum();
    assert_eq!(shares, 2);
    c.forget_update(&kept[0]).unwrap();
    c.remove("b").unwrap();
    assert_eq!(c.update_count("one/").unwrap(), 0);
}

pub fn visits_that_are_news_are_kept(c: &mut Catalog) {
    c.add(&[entry("a", "u")], Timestamp(0)).unwrap();
    let id = c.get("a").unwrap().unwrap().id;
    let visit = |at, is_news, outcome| Visit {
        id,
        epoch: Epoch::NONE,
        began_at: at,
        at,
        next_due: Timestamp(0),
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news,
        snapshot: matches!(outcome, Outcome::Updated { .. }).then_some([7; 20]),
        lfs_missing: None,
        outcome,
    };
    let updated = |seq| Outcome::Updated { seq, archive_bytes: 1, ref_count: 1 };
    let failed = || Outcome::Failed { class: FailureClass::Gone, error: "404\0".into() };
    c.record(&[
        visit(Timestamp(1), true, updated(1)),
        visit(Timestamp(2), false, Outcome::Unchanged),
        visit(Timestamp(3), true, failed()),
    ])
    .unwrap();
    c.record(&[
        visit(Timestamp(4), false, failed()),
        visit(Timestamp(5), true, Outcome::Unchanged),
        visit(Timestamp(6), true, Outcome::PutOff),
    ])
    .unwrap();
    // Two visits within one second become one entry, with the results of both.
    c.record(&[visit(Timestamp(7), true, updated(2)), visit(Timestamp(7), true, failed())]).unwrap();
    c.record(&[Visit { epoch: Epoch(9), ..visit(Timestamp(8), true, updated(3)) }]).unwrap();
    let visits = c.past_visits(id, 10).unwrap();
    let told: Vec<_> = visits
        .iter()
        .rev()
        .map(|v| (v.at.0, v.seq, v.snapshot.is_some(), v.error_class.map(FailureClass::name)))
        .collect();
    assert_eq!(
        told,
        [
            (1, Some(1), true, None),
            (3, None, false, Some("gone")),
            (5, None, false, None),
            (7, Some(2), true, Some("gone"))
        ]
    );
    assert_eq!(c.past_visits(id, 1).unwrap()[0].at, Timestamp(7));
    c.remove("a").unwrap();
    assert!(c.past_visits(id, 10).unwrap().is_empty());
}
