//! The history of visits, and the log of events.

use weir_catalog::{
    ArchiveUpdate, Catalog, EventEffect, EventKind, EventReader, EventSubject, LoggedEvent, Outcome,
    PoolEvent, ReceivedBatch, RejectedEvent, SpoolPosition, Visit,
};
use weir_ground::{Epoch, FailureClass, Timestamp};

use super::{DUE, entry};

/// Returns an update of the archive of repository `id` to commit `seq`.
fn update(id: i64, seq: u64) -> PoolEvent {
    let subject = EventSubject { id, name: format!("n{id}"), url: "git://h/u".to_owned() };
    let kind = EventKind::Update(ArchiveUpdate { seq, ..ArchiveUpdate::default() });
    PoolEvent { time: Timestamp(2), subject: Some(subject), kind }
}

fn reader(name: &str, part: usize, parts: usize) -> EventReader {
    EventReader { name: name.to_owned(), part, parts, kinds: vec!["update".to_owned()] }
}

/// Returns the commits of the updates in `events`.
fn seqs(events: &[LoggedEvent]) -> Vec<u64> {
    let seq = |e: &LoggedEvent| match &e.event.kind {
        EventKind::Update(update) => update.seq,
        kind => panic!("{kind:?}"),
    };
    events.iter().map(seq).collect()
}

pub fn events_are_logged_with_the_visits_that_found_them(c: &mut Catalog) {
    c.set_machine("one/");
    c.add(&[entry("a", "u1"), entry("b", "u2"), entry("c", "u3")], Timestamp(0)).unwrap();
    let leased = c.visits().lease("one/1", Timestamp(1), Timestamp(100), &DUE, 10).unwrap();
    let visit = |n: usize, epoch, seq: Option<u64>| Visit {
        id: leased[n].id,
        epoch,
        began_at: Timestamp(1),
        at: Timestamp(2),
        next_due: Timestamp(3),
        again_at: Timestamp(0),
        hints: 0,
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        event: seq.map(|seq| update(leased[n].id, seq)),
        outcome: seq.map_or(Outcome::Unchanged, |seq| Outcome::Updated {
            seq,
            archive_bytes: 1,
            ref_count: 1,
        }),
    };
    c.visits().record(&[visit(0, Epoch(1), Some(1))]).unwrap();
    let one = reader("hooks", 0, 1);
    let began = c.events().open_reader(&one).unwrap();
    assert!(c.events().after(&one, began, 10).unwrap().is_empty(), "a new reader begins at the end");
    c.visits()
        .record(&[
            visit(0, Epoch(1), Some(2)),
            visit(1, Epoch(1), None),
            visit(2, Epoch(7), Some(9)),
            visit(1, Epoch(1), Some(3)),
        ])
        .unwrap();
    c.events().log(&PoolEvent { time: Timestamp(3), subject: None, kind: EventKind::Resumed }).unwrap();
    let kept = c.events().after(&one, began, 10).unwrap();
    assert!(kept.is_sorted_by_key(|e| e.id));
    assert_eq!(seqs(&kept), [2, 3], "not that of a lost lease, and no other kind");
    let first = &kept[0];
    assert_eq!(first.event, update(leased[0].id, 2));
    assert_eq!(first.path.as_deref(), Some(leased[0].path.as_str()));
    assert_eq!(c.events().waiting(&one).unwrap(), 2);
    // Readers of another name stand elsewhere, and those of another machine see other events.
    let every = EventReader { kinds: vec!["update".to_owned(), "resumed".to_owned()], ..reader("all", 0, 1) };
    assert_eq!(c.events().after(&every, 0, 10).unwrap().len(), 4);
    c.set_machine("two/");
    assert!(c.events().after(&every, 0, 10).unwrap().is_empty());
    c.set_machine("one/");
    // Several share the repositories, and begin where the one before them stood.
    c.events().set_position(&one, first.id).unwrap();
    let shares: Vec<EventReader> = (0..3).map(|n| reader("hooks", n, 3)).collect();
    for share in &shares {
        assert_eq!(c.events().open_reader(share).unwrap(), first.id);
    }
    let each: Vec<_> = shares.iter().flat_map(|s| c.events().after(s, first.id, 10).unwrap()).collect();
    assert_eq!(seqs(&each), [3]);
    // A repository that is removed takes its number along, but not what happened.
    c.remove("b").unwrap();
    let gone = c.events().after(&one, first.id, 10).unwrap();
    assert!(gone[0].event.subject.is_none() && gone[0].path.is_none());
}

pub fn events_are_deleted_once_they_are_old_and_read(c: &mut Catalog) {
    let resumed = |time| PoolEvent { time: Timestamp(time), subject: None, kind: EventKind::Resumed };
    let all = EventReader { kinds: vec!["resumed".to_owned()], ..reader("all", 0, 1) };
    assert_eq!(c.events().open_reader(&all).unwrap(), 0);
    for time in 1..=2500 {
        c.events().log(&resumed(time)).unwrap();
    }
    let last = c.events().last().unwrap();
    assert_eq!(c.events().trim(Timestamp(2000), Timestamp(0)).unwrap(), 0);
    assert_eq!(c.events().waiting(&all).unwrap(), 2500, "not read yet");
    c.events().set_position(&all, last - 1000).unwrap();
    assert_eq!(c.events().trim(Timestamp(2000), Timestamp(0)).unwrap(), 0);
    let kept = c.events().after(&all, 0, 5000).unwrap();
    assert_eq!((kept.len(), kept[0].event.time), (1000, Timestamp(1501)));
    assert_eq!(c.events().trim(Timestamp(2000), Timestamp(2000)).unwrap(), 499, "in the end, unread ones");
    // Numbers are never used again, even if all events are gone.
    assert_eq!(c.events().trim(Timestamp(9999), Timestamp(9999)).unwrap(), 501);
    c.events().log(&resumed(1)).unwrap();
    assert_eq!(c.events().last().unwrap(), last + 1);
    c.events().forget_readers("all").unwrap();
    assert_eq!(c.events().waiting(&all).unwrap(), 0);
}

pub fn events_from_outside_are_taken_once(c: &mut Catalog) {
    c.add(&[entry("a", "u1"), entry("b", "u2")], Timestamp(0)).unwrap();
    let ids = c.ids_of_names(&["b", "nobody"]).unwrap();
    assert_eq!((ids.len(), ids[0].0.as_str()), (1, "b"));
    let batch = |at: i64, texts: &[&str]| {
        let mut batch = ReceivedBatch { at: Timestamp(at), ..ReceivedBatch::default() };
        texts.iter().for_each(|text| batch.push(text.as_bytes(), 7));
        batch
    };
    let place = |position| SpoolPosition { spool: "s".to_owned(), position };
    let nothing = EventEffect::default();
    let effect = EventEffect { due: vec![ids[0].1], ..EventEffect::default() };
    assert_eq!(c.received().spool_position("s").unwrap(), 0);
    assert_eq!(c.received().take(Some(&place(3)), &batch(10, &["x", "", "y"]), &effect).unwrap(), Some(1));
    assert_eq!(c.received().take(Some(&place(4)), &batch(11, &["z"]), &nothing).unwrap(), Some(4));
    // A database that goes away may have committed, and not have said so.
    assert_eq!(c.received().take(Some(&place(4)), &batch(11, &["z"]), &nothing).unwrap(), None);
    c.received().sync(&place(4)).unwrap();
    assert_eq!(
        (c.received().spool_position("s").unwrap(), c.received().spool_position("t").unwrap()),
        (4, 0)
    );
    assert!(c.get("b").unwrap().unwrap().next_due <= Timestamp(10), "due at once");
    let batches = c.received().before(i64::MAX, 9).unwrap();
    let all: Vec<_> = batches.iter().rev().flat_map(ReceivedBatch::events).collect();
    assert_eq!(all, [(1, &b"x"[..], 7), (2, b"", 7), (3, b"y", 7), (4, b"z", 7)]);
    assert_eq!(c.received().before(4, 9).unwrap(), batches[1..]);
    assert_eq!(c.received().last().unwrap(), 4);
    for (after, expected) in [(0, &batches[..]), (2, &batches[..]), (3, &batches[..1]), (4, &[])] {
        let mut found = c.received().after(after, 9).unwrap();
        found.reverse();
        assert_eq!(found, expected, "{after}");
    }
    assert_eq!(c.received().after(0, 1).unwrap(), batches[1..]);
    // What a worker is not done with stays, for a while.
    c.received().set_collected("w", 2).unwrap();
    c.received().trim(Timestamp(99), Timestamp(0)).unwrap();
    assert_eq!(c.received().before(i64::MAX, 9).unwrap(), batches);
    c.received().set_collected("w", 3).unwrap();
    assert_eq!((c.received().collected("w").unwrap(), c.received().collected("x").unwrap()), (3, 0));
    c.received().set_collectors(&["w", "x"]).unwrap();
    assert_eq!((c.received().collected("w").unwrap(), c.received().collected("x").unwrap()), (3, 0));
    c.received().set_collectors(&["w"]).unwrap();
    // The last batch stays, so that no number comes again.
    c.received().trim(Timestamp(99), Timestamp(0)).unwrap();
    assert_eq!(c.received().before(i64::MAX, 9).unwrap(), batches[..1]);
    assert_eq!(c.received().take(None, &batch(100, &["late"]), &nothing).unwrap(), Some(5));
}

pub fn events_make_due_with_a_pause_between_visits(c: &mut Catalog) {
    c.add(&[entry("a", "u1"), entry("b", "u2")], Timestamp(0)).unwrap();
    let id = c.get("a").unwrap().unwrap().id;
    let visit = |began_at, again_at| Visit {
        id,
        epoch: Epoch::NONE,
        began_at: Timestamp(began_at),
        at: Timestamp(100),
        next_due: Timestamp(900),
        again_at: Timestamp(again_at),
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
    c.visits().record(&[visit(90, 110)]).unwrap();
    let mut batch = ReceivedBatch { at: Timestamp(102), ..ReceivedBatch::default() };
    batch.push(b"x", 1);
    let effect = EventEffect { due: vec![id], debounce_s: 10, asked: vec![id] };
    c.received().take(None, &batch, &effect).unwrap();
    let due = |c: &Catalog| c.get("a").unwrap().unwrap().next_due;
    assert_eq!(due(c), Timestamp(110), "ten seconds after the last visit");
    // An event during a visit: another one, and not at once.
    batch.at = Timestamp(130);
    c.received().take(None, &batch, &EventEffect { debounce_s: 0, ..effect }).unwrap();
    c.visits().record(&[Visit { at: Timestamp(140), ..visit(125, 150) }]).unwrap();
    assert_eq!(due(c), Timestamp(150));
    assert_eq!(c.listings().questions("f", 0, 9).unwrap(), [], "no forge knows it");
    assert_eq!(c.received().counts(Timestamp(120)).unwrap().lately, 1);
    c.received().set_collectors(&["w"]).unwrap();
    let counts = c.received().collector_counts().unwrap();
    assert_eq!((counts[0].name.as_str(), counts[0].waiting, counts[0].rejected), ("w", 2, 0));
}

pub fn rejected_events_are_tried_again(c: &mut Catalog) {
    let event = |collector: &str, event, reason: &str| RejectedEvent {
        collector: collector.to_owned(),
        event,
        record: vec![1, 0, 255],
        at: Timestamp(event),
        reason: reason.to_owned(),
    };
    let all = [event("t", 1, "a"), event("t", 2, "b"), event("u", 2, "c")];
    c.received().reject(&all).unwrap();
    let found = |c: &Catalog, of| {
        c.received()
            .rejected(of, 9)
            .unwrap()
            .iter()
            .map(|e| format!("{}{}{}", e.collector, e.event, e.reason))
            .collect()
    };
    let listed: Vec<String> = found(c, None);
    assert_eq!(listed, ["t2b", "u2c", "t1a"]);
    assert_eq!(c.received().rejected(Some("t"), 1).unwrap(), all[1..2]);
    assert_eq!(c.received().rejected_again("t", 9).unwrap(), []);
    assert_eq!(c.received().retry_rejected(Some("t"), &[2, 7]).unwrap(), 1);
    assert_eq!(c.received().rejected_again("t", 9).unwrap(), all[1..2]);
    c.received().reject(&[event("t", 2, "still")]).unwrap();
    assert_eq!(c.received().rejected_again("t", 9).unwrap(), [], "it was tried");
    assert_eq!(c.received().retry_rejected(None, &[]).unwrap(), 3);
    assert_eq!(
        (
            c.received().rejected_again("t", 9).unwrap().len(),
            c.received().rejected_again("t", 1).unwrap().len()
        ),
        (2, 1)
    );
    assert_eq!(c.received().drop_rejected(Some("t"), &[1]).unwrap(), 1);
    assert_eq!(c.received().drop_rejected(Some("t"), &[]).unwrap(), 1);
    let left: Vec<String> = found(c, None);
    assert_eq!(left, ["u2c"]);
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
        again_at: Timestamp(0),
        hints: 0,
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news,
        snapshot: matches!(outcome, Outcome::Updated { .. }).then_some([7; 20]),
        lfs_missing: None,
        event: None,
        outcome,
    };
    let updated = |seq| Outcome::Updated { seq, archive_bytes: 1, ref_count: 1 };
    let failed = || Outcome::Failed { class: FailureClass::Gone, error: "404\0".into() };
    c.visits()
        .record(&[
            visit(Timestamp(1), true, updated(1)),
            visit(Timestamp(2), false, Outcome::Unchanged),
            visit(Timestamp(3), true, failed()),
        ])
        .unwrap();
    c.visits()
        .record(&[
            visit(Timestamp(4), false, failed()),
            visit(Timestamp(5), true, Outcome::Unchanged),
            visit(Timestamp(6), true, Outcome::PutOff),
        ])
        .unwrap();
    // Two visits within one second become one entry, with the results of both.
    c.visits().record(&[visit(Timestamp(7), true, updated(2)), visit(Timestamp(7), true, failed())]).unwrap();
    c.visits().record(&[Visit { epoch: Epoch(9), ..visit(Timestamp(8), true, updated(3)) }]).unwrap();
    let visits = c.visits().past(id, 10).unwrap();
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
    assert_eq!(c.visits().past(id, 1).unwrap()[0].at, Timestamp(7));
    c.remove("a").unwrap();
    assert!(c.visits().past(id, 10).unwrap().is_empty());
}
