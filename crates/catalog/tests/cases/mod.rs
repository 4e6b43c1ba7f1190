//! What a catalog promises, over whichever database it is.

use weir_catalog::{
    Account, AccountKind, ArchiveEnd, Catalog, Error, Hold, ImportPosition, Interval, Listed, Listing,
    MetadataCounts, MetadataLook, MetadataTask, Outcome, PRIORITY_MAX, Repository, RequestBudget, Settings,
    Taken, Visit, Which,
};
use weir_ground::{Epoch, FailureClass, Seq, Timestamp};

const DUE: Which<'_> = Which { due_only: true, ids: None, free_only: false, ahead_only: false };

fn entry(name: &str, url: &str) -> (String, String, String) {
    (name.into(), url.into(), format!("{name}.tar"))
}

fn listed(id: u32, name: &str) -> (String, Listed) {
    let listed = Listed {
        forge_id: id.to_string(),
        full_name: name.to_owned(),
        clone_url: format!("https://h/{name}.git"),
        pushed_at: Some("1".into()),
        ..Listed::default()
    };
    (format!("h/{name}"), listed)
}

fn pass(c: &mut Catalog, page: &[(String, Listed)], now: Timestamp) -> (Listing, Taken) {
    let mut listing = c.begin_listing("f", "all", now).unwrap();
    let taken = c.take_page(&mut listing, page, None, now).unwrap();
    (listing, taken)
}

fn row(id: &str, name: &str) -> (String, Listed) {
    let clone_url = format!("https://h/{name}.git");
    (
        format!("h/{name}"),
        Listed { forge_id: id.to_owned(), full_name: name.to_owned(), clone_url, ..Listed::default() },
    )
}

pub fn names_are_unique_and_adding_twice_is_harmless(c: &mut Catalog) {
    assert_eq!(c.add(&[entry("a", "git://h/a"), entry("b", "git://h/b")], Timestamp(1)).unwrap(), 2);
    assert_eq!(c.add(&[entry("a", "git://h/a")], Timestamp(2)).unwrap(), 0);
    let taken = c.add(&[entry("c", "git://h/c"), entry("a", "git://other/a")], Timestamp(3)).unwrap_err();
    assert!(matches!(taken, Error::NameTaken { .. }));
    assert_eq!(c.list().unwrap().len(), 2, "all or nothing");
    assert!(c.remove("a").unwrap() && !c.remove("a").unwrap());
}

pub fn leases_are_exclusive_until_they_run_out(c: &mut Catalog) {
    c.add(&[entry("a", "u1"), entry("b", "u2"), entry("c", "u3")], Timestamp(0)).unwrap();
    let first = c.lease("one", Timestamp(100), Timestamp(200), &DUE, 2).unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(c.lease("two", Timestamp(100), Timestamp(200), &DUE, 10).unwrap().len(), 1);
    assert!(c.lease("three", Timestamp(150), Timestamp(300), &DUE, 10).unwrap().is_empty());
    let only = |ids: &'static [i64]| Which { due_only: false, ids: Some(ids), ..DUE };
    assert!(c.lease("three", Timestamp(150), Timestamp(300), &only(&[]), 10).unwrap().is_empty());
    let again = c.lease("three", Timestamp(200), Timestamp(300), &DUE, 10).unwrap();
    assert_eq!(again.len(), 3, "run out");
    assert!(
        again.iter().all(|r| first.iter().all(|before| r.epoch > before.epoch)),
        "each lease has a number of its own"
    );
    let free = Which { free_only: true, ..DUE };
    assert!(
        c.lease("three", Timestamp(250), Timestamp(400), &free, 10).unwrap().is_empty(),
        "not its own, which it visits"
    );
    assert!(
        c.lease("three", Timestamp(350), Timestamp(400), &free, 10).unwrap().is_empty(),
        "not even if that takes longer than its lease"
    );
    assert_eq!(
        c.lease("three", Timestamp(250), Timestamp(400), &DUE, 10).unwrap().len(),
        3,
        "unless they are to be renewed"
    );
    assert_eq!(
        c.lease("four", Timestamp(450), Timestamp(500), &free, 10).unwrap().len(),
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
        fingerprint: Some(vec![1]),
        changes: 1.0,
        watched_s: 2.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        outcome,
    };
    c.record(&[visit(
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
    c.record(&[visit(
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
    assert!(c.lease("x", Timestamp(39), Timestamp(50), &DUE, 10).unwrap().is_empty(), "not due");
    assert_eq!(
        c.lease("x", Timestamp(39), Timestamp(50), &Which::default(), 10).unwrap().len(),
        1,
        "but asked for"
    );
}

pub fn renames_keep_the_archive_and_names_move_on(c: &mut Catalog) {
    let (_, taken) = pass(c, &[listed(1, "o/a"), listed(2, "o/.github")], Timestamp(10));
    assert_eq!(taken, Taken { added: 2, ..Taken::default() });
    assert_eq!(c.get("h/o/.github").unwrap().unwrap().path, "h/o/%2Egithub.tar");
    // 1 is called b now, and 3 has its old name; 3 is told of first.
    let (_, taken) = pass(c, &[listed(3, "o/a"), listed(1, "o/b"), listed(2, "o/.github")], Timestamp(20));
    assert_eq!(taken, Taken { added: 1, renamed: 1, known: 1, ..Taken::default() });
    let (a, b) = (c.get("h/o/a").unwrap().unwrap(), c.get("h/o/b").unwrap().unwrap());
    assert_eq!((a.path.as_str(), a.url.as_str()), ("h/o/a~3.tar", "https://h/o/a.git"));
    assert_eq!((b.path.as_str(), b.url.as_str()), ("h/o/a.tar", "https://h/o/b.git"));
    // Two that swap their names.
    let (_, taken) = pass(c, &[listed(3, "o/b"), listed(1, "o/a"), listed(2, "o/.github")], Timestamp(30));
    assert_eq!(taken.renamed, 2);
    assert_eq!((c.get("h/o/a").unwrap().unwrap().id, c.get("h/o/b").unwrap().unwrap().id), (b.id, a.id));
}

pub fn names_of_others_are_not_taken(c: &mut Catalog) {
    let entry = |name: &str, url: &str| (name.to_owned(), url.to_owned(), format!("{name}.tar"));
    c.add(&[entry("h/o/a", "git://elsewhere/a"), entry("h/o/b", "https://h/o/b.git")], Timestamp(1)).unwrap();
    pass(c, &[listed(1, "o/a"), listed(2, "o/b")], Timestamp(10));
    assert_eq!(c.get("h/o/a").unwrap().unwrap().url, "git://elsewhere/a");
    assert_eq!(c.get("h/o/a~1").unwrap().unwrap().url, "https://h/o/a.git");
    assert_eq!(c.list().unwrap().len(), 3, "what was added by its URL is the same one");
    let (_, taken) = pass(c, &[listed(1, "o/a"), listed(2, "o/b")], Timestamp(20));
    assert_eq!(taken, Taken { known: 2, ..Taken::default() }, "and it stays so");
}

pub fn a_listing_goes_on_where_it_was(c: &mut Catalog) {
    let mut listing = c.begin_listing("f", "all", Timestamp(10)).unwrap();
    c.take_page(&mut listing, &[listed(1, "o/a")], Some("7"), Timestamp(11)).unwrap();
    let again = c.begin_listing("f", "all", Timestamp(20)).unwrap();
    assert_eq!(
        (again.pass, again.position.as_deref(), again.listed, again.started_at),
        (1, Some("7"), 1, Timestamp(10))
    );
    assert_eq!(
        c.begin_listing("f", "owners", Timestamp(30)).unwrap().position,
        None,
        "another scope begins anew"
    );
    let mut listing = c.begin_listing("f", "owners", Timestamp(30)).unwrap();
    c.take_page(&mut listing, &[], None, Timestamp(31)).unwrap();
    assert_eq!(c.begin_listing("f", "owners", Timestamp(40)).unwrap().pass, 3);
    c.skip_page("f", "7", "500", Timestamp(1)).unwrap();
    c.skip_page("f", "7", "502", Timestamp(2)).unwrap();
    let skipped = c.skipped_pages("f").unwrap();
    assert_eq!((skipped.len(), skipped[0].position.as_str(), skipped[0].tries), (1, "7", 2));
    c.forget_skipped("f", "7").unwrap();
    assert!(c.skipped_pages("f").unwrap().is_empty());
}

pub fn what_is_gone_comes_back_and_what_was_pushed_is_due(c: &mut Catalog) {
    pass(c, &[listed(1, "o/a"), listed(2, "o/b")], Timestamp(10));
    let (listing, _) = pass(c, &[listed(2, "o/b")], Timestamp(20));
    let unseen = c.unseen(&listing, 0, 10).unwrap();
    assert_eq!(unseen.iter().map(|u| u.forge_id.as_str()).collect::<Vec<_>>(), ["1"]);
    c.set_gone(&[unseen[0].id], Timestamp(20), Timestamp(1000)).unwrap();
    assert_eq!(
        (c.get("h/o/a").unwrap().unwrap().next_due, c.forge_counts("f").unwrap()),
        (Timestamp(1000), (2, 1))
    );
    assert!(c.unseen(&listing, 0, 10).unwrap().is_empty());
    let mut pushed = listed(2, "o/b");
    pushed.1.pushed_at = Some("2".into());
    let (_, taken) = pass(c, &[listed(1, "o/a"), pushed], Timestamp(30));
    assert_eq!(taken, Taken { back: 1, hinted: 1, ..Taken::default() });
    assert_eq!(c.get("h/o/a").unwrap().unwrap().next_due, Timestamp(30));
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
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        outcome: Outcome::Unchanged,
    };
    c.record(&[visit(Timestamp(40))]).unwrap();
    assert_eq!(
        c.get("h/o/a").unwrap().unwrap().next_due,
        Timestamp(50),
        "it may have come too late to be seen"
    );
    c.record(&[visit(Timestamp(60))]).unwrap();
    assert_eq!(c.get("h/o/a").unwrap().unwrap().next_due, Timestamp(9000));
}

pub fn what_was_skipped_belongs_to_its_scope_and_what_is_not_wanted_is_seen(c: &mut Catalog) {
    pass(c, &[listed(1, "o/a"), listed(2, "o/b")], Timestamp(10));
    let mut listing = c.begin_listing("f", "all", Timestamp(20)).unwrap();
    c.mark_seen(&listing, &["1", "77"]).unwrap();
    c.take_page(&mut listing, &[], None, Timestamp(20)).unwrap();
    assert_eq!(
        c.unseen(&listing, 0, 10).unwrap().iter().map(|u| u.forge_id.as_str()).collect::<Vec<_>>(),
        ["2"]
    );
    c.skip_page("f", "7", "500", Timestamp(1)).unwrap();
    c.begin_listing("f", "all", Timestamp(30)).unwrap();
    assert_eq!(c.skipped_pages("f").unwrap().len(), 1);
    c.begin_listing("f", "owners", Timestamp(40)).unwrap();
    assert!(c.skipped_pages("f").unwrap().is_empty());
}

pub fn a_dump_adds_and_a_listing_knows_better(c: &mut Catalog) {
    let at = |lines, is_finished| ImportPosition { lines, is_finished };
    assert_eq!(c.import_position("d").unwrap(), at(0, false));
    // Without ids, then with: the same ones.
    assert_eq!(
        c.take_import(
            "h",
            "d",
            at(2, false),
            &[row("", "o/a"), row("", "o/b"), row("", "o/a")],
            Timestamp(5)
        )
        .unwrap()
        .added,
        2
    );
    assert_eq!(
        c.take_import("h", "d", at(5, true), &[row("1", "o/a"), row("3", "o/c")], Timestamp(6))
            .unwrap()
            .added,
        2
    );
    assert_eq!(
        (c.import_position("d").unwrap(), c.list().unwrap().len()),
        (at(5, true), 3),
        "o/a was adopted"
    );
    // A later dump renames, a listing renames, and then the dump says nothing new.
    assert_eq!(c.take_import("h", "e", at(1, true), &[row("3", "o/d")], Timestamp(7)).unwrap().renamed, 1);
    let mut listing = c.begin_listing("h", "all", Timestamp(8)).unwrap();
    let taken = c.take_page(&mut listing, &[row("3", "o/e"), row("2", "o/b")], None, Timestamp(8)).unwrap();
    assert_eq!((taken.renamed, taken.added), (1, 1));
    assert_eq!(c.take_import("h", "f", at(1, true), &[row("3", "o/d")], Timestamp(9)).unwrap().known, 1);
    assert_eq!(
        c.take_import("h", "f", at(2, true), &[row("99", "o/e")], Timestamp(9)).unwrap().known,
        1,
        "one that had this name before"
    );
    let e = c.get("h/o/e").unwrap().unwrap();
    assert_eq!((e.path.as_str(), c.list().unwrap().len()), ("h/o/c.tar", 3));
    // What the forge has no more is not brought back by what is older.
    let unseen = c.unseen(&listing, 0, 10).unwrap();
    assert_eq!(unseen.len(), 1);
    c.set_gone(&[unseen[0].id], Timestamp(9), Timestamp(9)).unwrap();
    assert_eq!(c.take_import("h", "g", at(1, true), &[row("1", "o/a")], Timestamp(10)).unwrap().known, 1);
    c.forget_import("d").unwrap();
    assert_eq!(c.import_position("d").unwrap(), at(0, false));
}

pub fn a_lost_lease_writes_nothing_and_others_are_left_alone(c: &mut Catalog) {
    c.add(&[entry("a", "u1"), entry("b", "u2")], Timestamp(0)).unwrap();
    let first = c.lease("one/1", Timestamp(100), Timestamp(200), &DUE, 10).unwrap();
    let visit = |epoch, id, next_due| Visit {
        id,
        epoch,
        began_at: Timestamp(100),
        at: Timestamp(150),
        next_due,
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        outcome: Outcome::Unchanged,
    };
    // It took too long: another has it now.
    let second = c.lease("two/1", Timestamp(200), Timestamp(300), &DUE, 1).unwrap();
    assert_eq!(
        c.record(&[
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
    c.release_all("one/").unwrap();
    assert_eq!(
        c.lease("three/1", Timestamp(210), Timestamp(300), &DUE, 10).unwrap().len(),
        1,
        "the lease of two/1 stands"
    );
    c.release_all("two/").unwrap();
    let third = c.lease("three/1", Timestamp(210), Timestamp(300), &DUE, 10).unwrap();
    assert_eq!(third.len(), 2);
    assert_eq!(c.record(&[visit(second[0].epoch, second[0].id, Timestamp(9))]).unwrap(), 0);
    assert_eq!(
        c.record(&[
            visit(third[0].epoch, third[0].id, Timestamp(9)),
            visit(third[1].epoch, third[1].id, Timestamp(9))
        ])
        .unwrap(),
        2
    );
    assert_eq!(c.next_due().unwrap(), Some(Timestamp(9)));
}

pub fn all_that_a_forge_tells_is_kept_and_counted(c: &mut Catalog) {
    let owner = |login: &str| weir_catalog::Account {
        forge_id: "7".into(),
        login: login.into(),
        kind: weir_catalog::AccountKind::User,
    };
    let (name, mut full) = listed(1, "o/a");
    full.owner = Some(owner("o"));
    full.description = Some("with a NUL \0, a tab\t and a 'quote'".into());
    full.languages = vec![("C".into(), 10), ("Rust".into(), 20), ("C".into(), 11)];
    full.topics = vec!["x".into(), "x".into(), "y".into()];
    (full.fork, full.archived, full.stars) = (Some(false), Some(true), Some(1 << 40));
    let (_, taken) = pass(c, &[(name.clone(), full.clone()), listed(2, "o/b")], Timestamp(10));
    assert_eq!(taken.added, 2);
    let id = c.get(&name).unwrap().unwrap().id;
    let told = c.description(id).unwrap().unwrap();
    assert_eq!(told.replace('\u{fffd}', "\0"), full.description.clone().unwrap());
    full.owner = Some(owner("renamed"));
    full.topics = vec!["z".into()];
    let (_, taken) = pass(c, &[(name.clone(), full), listed(2, "o/b"), listed(2, "o/b")], Timestamp(20));
    assert_eq!(taken.known, 3, "one of them was told of twice");
    let counts = c.counts(Timestamp(30)).unwrap();
    assert_eq!((counts.repositories, counts.due, counts.archive_bytes, counts.mirrored), (2, 2, 0, 0));
    assert_eq!(c.next_ones(10).unwrap().len(), 2);
    assert!(c.failing(None, 10).unwrap().is_empty() && c.failing(Some("network"), 10).unwrap().is_empty());
    c.set_throttle("h", "network", Timestamp(30), Timestamp(60)).unwrap();
    c.set_throttle("", "disk full", Timestamp(31), Timestamp(70)).unwrap();
    assert_eq!(
        c.throttles(Timestamp(32)).unwrap().iter().map(|t| t.host.as_str()).collect::<Vec<_>>(),
        ["", "h"]
    );
    c.set_throttle("h", "server error", Timestamp(61), Timestamp(90)).unwrap();
    assert_eq!(c.throttles(Timestamp(62)).unwrap()[1].since, 61, "the pause before was over");
    assert_eq!(c.listings().unwrap().len(), 1);
    c.claim_store("one").unwrap();
    c.claim_store("one").unwrap();
    assert!(matches!(c.claim_store("two"), Err(Error::OtherStore(_))));
    c.set_hold(&name, Hold::Paused, true).unwrap();
    c.set_hold(&name, Hold::Pinned, true).unwrap();
    c.set_hold(&name, Hold::Paused, false).unwrap();
    let held = c.get(&name).unwrap().unwrap();
    assert!(held.is_pinned && !held.is_paused, "one undoes not the other");
    let counts = c.counts(Timestamp(30)).unwrap();
    assert_eq!((counts.disabled, counts.paused, counts.pinned), (1, 0, 1));
    assert_eq!(c.lease("x", Timestamp(30), Timestamp(40), &DUE, 10).unwrap().len(), 1);
}

pub fn a_clock_that_was_ahead_puts_nothing_off(c: &mut Catalog) {
    c.add(&["a", "b", "c"].map(|name| entry(name, "u")), Timestamp(0)).unwrap();
    let later = 1_000_000_000;
    // Two are visited, and one is leased, by a clock that is thirty years ahead.
    let leased = c.lease("there", Timestamp(later), Timestamp(later + 1800), &DUE, 2).unwrap();
    let visit = |r: &Repository| Visit {
        id: r.id,
        epoch: r.epoch,
        began_at: Timestamp(later - 1),
        at: Timestamp(later),
        next_due: Timestamp(later + 60),
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: false,
        snapshot: None,
        lfs_missing: None,
        outcome: Outcome::Unchanged,
    };
    let visits: Vec<Visit> = leased.iter().map(visit).collect();
    c.record(&visits).unwrap();
    c.lease("there", Timestamp(later), Timestamp(later + 1800), &DUE, 1).unwrap();
    assert!(c.lease("here", Timestamp(5000), Timestamp(6800), &DUE, 9).unwrap().is_empty());
    assert_eq!(c.mend_times(Timestamp(5000)).unwrap(), 3);
    assert_eq!(c.mend_times(Timestamp(5000)).unwrap(), 0);
    assert_eq!(c.lease("here", Timestamp(5000), Timestamp(6800), &DUE, 9).unwrap().len(), 3);
    assert!(c.list().unwrap().iter().all(|r| r.last_attempt.is_none_or(|at| at == Timestamp(5000))));
    // Seconds between two machines are nothing.
    assert_eq!(c.mend_times(Timestamp(4000)).unwrap(), 0);
    let ahead = c.follow_clock().unwrap();
    assert!(ahead.abs() <= 1, "{ahead}");
}

pub fn names_sort_by_their_bytes(c: &mut Catalog) {
    let names = ["B", "a", "a-b", "a/b", "\u{e4}", "_"];
    c.add(&names.map(|name| entry(name, "u")), Timestamp(0)).unwrap();
    let mut sorted = names.map(str::to_owned);
    sorted.sort();
    assert_eq!(c.list().unwrap().into_iter().map(|r| r.name).collect::<Vec<_>>(), sorted);
    c.add(&["\u{d7ff}x", "\u{10ffff}y", "a\u{10ffff}"].map(|name| entry(name, "u")), Timestamp(0)).unwrap();
    for (prefix, found) in
        [("a", 4), ("a-", 1), ("b", 0), ("\u{d7ff}", 1), ("\u{10ffff}", 1), ("a\u{10ffff}", 1), ("", 9)]
    {
        let list = c.list_from(prefix).unwrap();
        assert!(list.len() == found && list.iter().all(|r| r.name.starts_with(prefix)), "{prefix:?}");
    }
}

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

#[expect(clippy::too_many_lines, reason = "one story, told in order")]
pub fn forks_build_on_the_root_of_their_network(c: &mut Catalog) {
    let fork = |id: u32, of: u32, private: bool| {
        let (name, listed) = listed(id, &format!("o/r{id}"));
        (
            name,
            Listed {
                fork: Some(of > 0),
                parent_id: (of > 0).then(|| of.to_string()),
                private: Some(private),
                ..listed
            },
        )
    };
    // 1 <- 2 <- 3; 4 of one that is not known; 6 of the private 5; 7 and 8 of each other, as a forge might
    // say; 9 of itself.
    let page = [(1, 0), (2, 1), (3, 2), (4, 99), (5, 0), (6, 5), (7, 8), (8, 7), (9, 9)]
        .map(|(id, of)| fork(id, of, id == 5));
    pass(c, &page, Timestamp(1));
    let id = |c: &Catalog, n: u32| c.get(&format!("h/o/r{n}")).unwrap().unwrap().id;
    let ids: Vec<i64> = (1..=9).map(|n| id(c, n)).collect();
    let all_bases = |c: &Catalog| {
        c.bases(&ids).unwrap().into_iter().map(|b| (b.id, b.base)).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(c.bases_by_forge(&ids).unwrap().len(), 2);
    assert!(all_bases(c).is_empty());
    c.choose_bases(&ids[2..3]).unwrap();
    assert_eq!(all_bases(c), [(ids[2], ids[0])].into(), "past a parent that is not mirrored");
    c.choose_bases(&ids).unwrap();
    assert_eq!(all_bases(c), [(ids[1], ids[0]), (ids[2], ids[0])].into());
    assert_eq!(c.built_on(ids[0]).unwrap().iter().map(|r| r.id).collect::<Vec<_>>(), ids[1..3]);
    assert_eq!(c.bases(&ids[1..2]).unwrap()[0].path, "h/o/r1.tar");

    // A base stays, and stays whole.
    assert!(matches!(c.remove("h/o/r1").unwrap_err(), Error::BuiltOn { count: 2, .. }));
    assert!(matches!(c.set_base(ids[0], ids[3]).unwrap_err(), Error::BuiltOn { .. }));
    assert!(matches!(c.set_base(ids[3], ids[1]).unwrap_err(), Error::NoBase));
    assert!(matches!(c.set_base(ids[3], ids[3]).unwrap_err(), Error::NoBase));
    assert!(matches!(c.set_base(ids[3], 12345).unwrap_err(), Error::NoBase));
    let listing = c.begin_listing("f", "all", Timestamp(5)).unwrap();
    let gone: Vec<i64> = c.unseen(&listing, 0, 100).unwrap().iter().map(|u| u.id).collect();
    c.set_gone(&gone, Timestamp(5), Timestamp(6)).unwrap();
    assert!(!c.remove_gone(ids[0], Timestamp(9)).unwrap(), "purged no more than removed");
    c.clear_bases(&ids[1..3]).unwrap();
    assert!(c.remove_gone(ids[0], Timestamp(9)).unwrap());

    // What is mirrored already is left as it is, unless that is asked for.
    let visit = |id| Visit {
        id,
        epoch: Epoch::NONE,
        began_at: Timestamp(1),
        at: Timestamp(2),
        next_due: Timestamp(1000),
        fingerprint: Some(vec![7]),
        changes: 0.0,
        watched_s: 0.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        outcome: Outcome::Unchanged,
    };
    assert_eq!(c.record(&[visit(ids[1]), visit(ids[2])]).unwrap(), 2);
    c.set_base(ids[1], ids[3]).unwrap();
    c.look_again_at_what_builds_on(ids[3], Timestamp(3)).unwrap();
    let seen =
        |c: &Catalog, n| c.get(&format!("h/o/r{n}")).unwrap().map(|r| (r.next_due, r.fingerprint)).unwrap();
    assert_eq!((seen(c, 2), seen(c, 3)), ((Timestamp(3), None), (Timestamp(1000), Some(vec![7]))));
    c.clear_bases(&ids[1..2]).unwrap();
    let updated = Outcome::Updated { seq: 1, archive_bytes: 1, ref_count: 1 };
    assert_eq!(c.record(&[Visit { outcome: updated, ..visit(ids[2]) }]).unwrap(), 1);
    c.set_archive(ids[2], ArchiveEnd { seq: Seq(5), bytes: 9 }).unwrap();
    c.set_archive(ids[2], ArchiveEnd { seq: Seq(4), bytes: 8 }).unwrap();
    assert_eq!(
        c.get("h/o/r3").unwrap().map(|r| (r.seq, r.archive_bytes)).unwrap(),
        (Some(5), Some(9)),
        "never backwards"
    );
    c.choose_bases(&ids).unwrap();
    assert!(all_bases(c).is_empty());
    assert_eq!(c.bases_by_forge(&ids[2..3]).unwrap()[0].base, ids[1]);
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
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: false,
        snapshot: None,
        lfs_missing: None,
        outcome: Outcome::Unchanged,
    };
    let visits: Vec<Visit> =
        names.iter().zip(10..).map(|(name, due)| visit(id(c, name), 0, 5, due)).collect();
    c.record(&visits).unwrap();
    let settings = Settings { interval: Some(Interval::Seconds(60)), ..Settings::default() };
    let (e, set) = (id(c, "e"), [id(c, "f"), id(c, "e"), id(c, "b"), -1]);
    c.change_settings(&set, Timestamp(i64::MAX), &|priority, _| *priority += 1).unwrap();
    // What another set meanwhile stays.
    c.change_settings(&[e], Timestamp(i64::MAX), &|priority, _| *priority += 8).unwrap();
    c.change_settings(&[e], Timestamp(i64::MAX), &|_, settings| {
        settings.interval = Some(Interval::Seconds(60))
    })
    .unwrap();
    let said = c.get("e").unwrap().unwrap();
    assert_eq!((said.priority, said.settings), (PRIORITY_MAX, settings));
    assert_eq!(c.hint(&[id(c, "d"), id(c, "c"), -1], Timestamp(20)).unwrap(), 2);
    let leased = |c: &mut Catalog, who: &str, now, max| -> String {
        c.lease(who, now, now + 100, &DUE, max).unwrap().iter().map(|r| r.name.clone()).collect()
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
    // Once it was visited a hint is no hint any more.
    c.record(&[visit(id(c, "c"), 20, 30, 40), visit(id(c, "a"), 20, 30, 39)]).unwrap();
    assert_eq!(leased(c, "z", Timestamp(50), 9), "ac");
    let listed: String = c.with_settings().unwrap().iter().map(|r| r.name.clone()).collect();
    assert_eq!(listed, "ebf");
    c.change_settings(&[id(c, "e")], Timestamp(7), &|priority, settings| {
        (*priority, *settings) = Default::default()
    })
    .unwrap();
    assert_eq!((c.with_settings().unwrap().len(), c.get("e").unwrap().unwrap().next_due), (2, Timestamp(7)));
    // A visit that was under way then was none with these settings; of one that begins only then that is not
    // asked.
    let set = |c: &mut Catalog, due| {
        c.change_settings(&[e], due, &|_, settings| settings.lfs = Some(true)).unwrap()
    };
    for (before, meanwhile, next_due) in
        [(i64::MAX, i64::MAX, 900), (300, i64::MAX, 900), (i64::MAX, 310, 310)]
    {
        set(c, Timestamp(before));
        let leased = c
            .lease("z", Timestamp(300), Timestamp(400), &Which { ids: Some(&[e]), ..Which::default() }, 1)
            .unwrap();
        set(c, Timestamp(meanwhile));
        c.record(&[visit(e, leased[0].epoch.0, 300, 900)]).unwrap();
        assert_eq!(c.get("e").unwrap().unwrap().next_due, Timestamp(next_due), "{before} {meanwhile}");
    }
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
    // Two within one second are one, with what both have found.
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

pub fn accounts_and_what_is_left_of_limits(c: &mut Catalog) {
    let account =
        |id: u32, login: &str, kind| Account { forge_id: id.to_string(), login: login.to_owned(), kind };
    let user = |id, login| account(id, login, AccountKind::User);
    let organization = |id, login| account(id, login, AccountKind::Organization);
    // Known as an owner first, whose kind that forge does not tell.
    let mut owned = listed(1, "o/a");
    owned.1.owner = Some(user(9, "o"));
    pass(c, &[owned], Timestamp(5));
    let mut listing = c.begin_listing("f/accounts", "all", Timestamp(10)).unwrap();
    let members = vec![("9".to_owned(), vec![user(1, "a"), user(2, "b"), user(2, "b")])];
    c.take_accounts(
        &mut listing,
        "f",
        &[organization(9, "o"), user(1, "a")],
        &members,
        Some("2"),
        Timestamp(11),
    )
    .unwrap();
    let again = c.begin_listing("f/accounts", "all", Timestamp(20)).unwrap();
    assert_eq!((again.pass, again.position.as_deref(), again.listed), (1, Some("2"), 2), "it goes on");
    c.take_accounts(&mut listing, "f", &[user(2, "renamed")], &[], None, Timestamp(12)).unwrap();
    let counts = c.account_counts("f").unwrap();
    assert_eq!((counts.users, counts.organizations, counts.memberships), (2, 1, 2));
    let all = c.accounts(None, 10).unwrap();
    let told: Vec<_> =
        all.iter().map(|a| (a.account.login.as_str(), a.organizations.join(","), a.repositories)).collect();
    assert_eq!(told, [("a", "o".to_owned(), 0), ("o", String::new(), 1), ("renamed", "o".to_owned(), 0)]);
    // Another forge has others by the same ids; an organisation nobody told of has no members.
    let mut other = c.begin_listing("g/accounts", "all", Timestamp(10)).unwrap();
    c.take_accounts(
        &mut other,
        "g",
        &[user(1, "a")],
        &[("7".to_owned(), vec![user(3, "x")])],
        None,
        Timestamp(12),
    )
    .unwrap();
    assert_eq!(c.accounts(Some("a"), 10).unwrap().len(), 2);
    assert_eq!(
        (c.account_counts("g").unwrap().memberships, c.account_counts("f").unwrap().memberships),
        (0, 2)
    );
    // Who left.
    let mut listing = c.begin_listing("f/accounts", "all", Timestamp(30)).unwrap();
    c.take_accounts(
        &mut listing,
        "f",
        &[organization(9, "o")],
        &[("9".to_owned(), vec![user(1, "a")])],
        None,
        Timestamp(31),
    )
    .unwrap();
    assert_eq!(c.account_counts("f").unwrap().memberships, 1);

    let budget = |name: &str, remaining, reset_at| RequestBudget {
        credential: name.to_owned(),
        limit: Some(5000),
        remaining,
        reset_at,
    };
    c.set_budgets("f", &[budget("x", 10, Timestamp(100)), budget("y", 0, Timestamp(200))], Timestamp(50))
        .unwrap();
    c.set_budgets("g", &[budget("x", 3, Timestamp(90))], Timestamp(50)).unwrap();
    c.set_budgets("f", &[budget("x", 9, Timestamp(100))], Timestamp(60)).unwrap();
    let left = |c: &Catalog, now| -> Vec<_> {
        c.budgets(now).unwrap().into_iter().map(|(f, b)| (f, b.credential, b.remaining)).collect()
    };
    let row = |f: &str, name: &str, left| (f.to_owned(), name.to_owned(), left);
    assert_eq!(left(c, Timestamp(70)), [row("f", "x", 9), row("f", "y", 0), row("g", "x", 3)]);
    assert_eq!(left(c, Timestamp(100)), [row("f", "y", 0)], "the others are whole again");
}

#[expect(clippy::too_many_lines, reason = "one story, told in order")]
pub fn looks_for_metadata_are_leased_in_turn(c: &mut Catalog) {
    pass(
        c,
        &[row("1", "a"), row("2", "b"), row("2:wiki", "b.wiki"), row("3", "c"), row("4", "d")],
        Timestamp(5),
    );
    let names = |tasks: &[MetadataTask]| {
        tasks.iter().map(|t| t.repository.name.trim_start_matches("h/").to_owned()).collect::<Vec<_>>()
    };
    let visit = |r: &Repository| Visit {
        id: r.id,
        epoch: r.epoch,
        began_at: Timestamp(10),
        at: Timestamp(11),
        next_due: Timestamp(0),
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: false,
        snapshot: None,
        lfs_missing: None,
        outcome: Outcome::Updated { seq: 1, archive_bytes: 1, ref_count: 1 },
    };
    let note = |c: &mut Catalog, forge: &str, by_default| {
        let mut after = Some(0);
        while let Some(place) = after {
            after = c.note_metadata(forge, by_default, place, Timestamp(1000)).unwrap();
        }
    };
    let all = |c: &mut Catalog, now, until| -> Vec<MetadataTask> {
        std::iter::from_fn(|| c.lease_metadata("f", None, now, (now, until)).unwrap()).collect()
    };
    note(c, "f", true);
    assert!(all(c, Timestamp(10), Timestamp(100)).is_empty(), "nothing is mirrored yet");
    let leased = c.lease("o", Timestamp(10), Timestamp(1000), &Which::default(), 9).unwrap();
    let visits: Vec<Visit> = leased.iter().filter(|r| r.name != "h/d").map(visit).collect();
    c.record(&visits).unwrap();
    let by_name: std::collections::HashMap<String, i64> =
        leased.iter().map(|r| (r.name.trim_start_matches("h/").to_owned(), r.id)).collect();
    for (name, wanted) in [("a", false), ("c", true)] {
        c.change_settings(&[by_name[name]], Timestamp(i64::MAX), &|_, settings| {
            settings.metadata = Some(wanted)
        })
        .unwrap();
    }
    note(c, "g", true);
    note(c, "f", true);
    assert!(
        c.lease_metadata("g", None, Timestamp(20), (Timestamp(20), Timestamp(100))).unwrap().is_none(),
        "another forge"
    );
    let first = c.lease_metadata("f", None, Timestamp(20), (Timestamp(20), Timestamp(100))).unwrap().unwrap();
    assert_eq!((first.forge_id.as_str(), first.changed_at, first.failures), ("2", None, 0));
    assert_eq!(
        names(&all(c, Timestamp(20), Timestamp(100))),
        ["c"],
        "what is leased is left alone, and wikis have none"
    );
    let end = |c: &mut Catalog,
               (name, leased_until): (&str, Timestamp),
               due_at,
               is_changed,
               error: Option<&str>| {
        let error = error.map(str::to_owned);
        c.end_metadata_look(&MetadataLook {
            id: by_name[name],
            leased_until,
            at: Timestamp(30),
            due_at,
            is_changed,
            error,
        })
        .unwrap()
    };
    assert!(end(c, ("b", first.leased_until), Timestamp(50), true, None));
    assert!(end(c, ("c", Timestamp(100)), Timestamp(40), false, Some("oops")));
    assert_eq!(c.metadata_counts().unwrap(), MetadataCounts { looked_at: 2, failing: 1 });
    assert_eq!(c.metadata_errors(5).unwrap(), [("h/c".to_owned(), "oops".to_owned())]);
    // What has been due for longest comes first, and a lease that has run out is anybody's.
    let due = all(c, Timestamp(60), Timestamp(100));
    assert_eq!(
        (names(&due), due[0].failures, due[1].changed_at),
        (vec!["c".to_owned(), "b".to_owned()], 1, Some(Timestamp(30)))
    );
    assert!(c.extend_metadata_lease(by_name["c"], Timestamp(100), Timestamp(300)).unwrap());
    assert_eq!(names(&all(c, Timestamp(101), Timestamp(200))), ["b"]);
    // Whoever had it before has it no more.
    assert!(
        !c.extend_metadata_lease(by_name["b"], Timestamp(100), Timestamp(400)).unwrap()
            && !end(c, ("b", Timestamp(100)), Timestamp(7), true, Some("late"))
    );
    assert!(
        end(c, ("b", Timestamp(200)), Timestamp(1000), false, None)
            && end(c, ("c", Timestamp(300)), Timestamp(1000), false, None)
    );
    // Whatever was said of those that are named.
    let named = c.note_metadata_of("f", &[by_name["a"], by_name["b"], by_name["d"]]).unwrap();
    assert_eq!(named, [by_name["a"], by_name["b"]]);
    let tasks: Vec<_> = named
        .iter()
        .map(|id| {
            c.lease_metadata("f", Some(*id), Timestamp(0), (Timestamp(401), Timestamp(500))).unwrap().unwrap()
        })
        .collect();
    assert_eq!(names(&tasks), ["a", "b"]);
    assert!(["a", "b"].iter().all(|name| end(c, (name, Timestamp(500)), Timestamp(0), false, None)));
    // What is not wanted any more is not looked at.
    note(c, "f", false);
    assert_eq!(names(&all(c, Timestamp(1001), Timestamp(2000))), ["c"], "only what says so itself");
    c.remove("h/c").unwrap();
    assert_eq!(c.metadata_counts().unwrap().looked_at, 0);
}

pub fn an_inventory_has_every_repository_once(c: &mut Catalog) {
    c.add(&[entry("a", "u1"), entry("b", "u2")], Timestamp(0)).unwrap();
    let id = c.lease("x", Timestamp(10), Timestamp(20), &Which::default(), 10).unwrap()[0].id;
    let name = c.list().unwrap().into_iter().find(|r| r.id == id).unwrap().name;
    let mut found = Vec::new();
    c.for_each_entry(|entry| found.push(entry)).unwrap();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(found.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["a", "b"], "{name}");
    assert!(found.iter().all(|e| e.seq.is_none() && e.is_enabled && e.failures == 0));
    assert!(c.has_archive_at(&found[0].path).unwrap() && !c.has_archive_at("elsewhere.tar").unwrap());
    assert!(
        c.last_visit_at().unwrap().is_none_or(|at| at == Timestamp(10)) && c.faults(10).unwrap().is_empty()
    );
}
