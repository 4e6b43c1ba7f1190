//! Repositories: registered, sorted, counted, and built on each other.

use std::collections::BTreeSet;

use weir_catalog::{
    AccessNames, ArchiveEnd, Catalog, Error, Listed, Outcome, RepositorySearch, StateFilter, Visit, Which,
};
use weir_ground::{Epoch, Seq, Timestamp};

use super::{entry, listed, pass};

pub fn names_are_unique_and_adding_twice_is_harmless(c: &mut Catalog) {
    assert_eq!(c.add(&[entry("a", "git://h/a"), entry("b", "git://h/b")], Timestamp(1)).unwrap(), 2);
    assert_eq!(c.add(&[entry("a", "git://h/a")], Timestamp(2)).unwrap(), 0);
    let taken = c.add(&[entry("c", "git://h/c"), entry("a", "git://other/a")], Timestamp(3)).unwrap_err();
    assert!(matches!(taken, Error::NameTaken { .. }));
    assert_eq!(c.list().unwrap().len(), 2, "all or nothing");
    assert!(c.remove("a").unwrap() && !c.remove("a").unwrap());
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

pub fn an_inventory_has_every_repository_once(c: &mut Catalog) {
    c.add(&[entry("a", "u1"), entry("b", "u2")], Timestamp(0)).unwrap();
    let id = c.visits().lease("x", Timestamp(10), Timestamp(20), &Which::default(), 10).unwrap()[0].id;
    let name = c.list().unwrap().into_iter().find(|r| r.id == id).unwrap().name;
    let mut found = Vec::new();
    c.archives().for_each_entry(|entry| found.push(entry)).unwrap();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(found.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["a", "b"], "{name}");
    assert!(found.iter().all(|e| e.seq.is_none() && e.is_enabled && e.failures == 0));
    assert!(
        c.archives().has_archive_at(&found[0].path).unwrap()
            && !c.archives().has_archive_at("elsewhere.tar").unwrap()
    );
    assert!(
        c.visits().last_at().unwrap().is_none_or(|at| at == Timestamp(10))
            && c.status().faults(10).unwrap().is_empty()
    );
}

pub fn forks_build_on_the_root_of_their_network(c: &mut Catalog) {
    let ids = network(c);
    assert_eq!(c.archives().bases_by_forge(&ids, &AccessNames::default()).unwrap().len(), 2);
    assert!(all_bases(c, &ids).is_empty());
    // A rule about the base alone would not hold any more.
    let rules = |patterns: &[&str]| AccessNames(vec![patterns.iter().map(|&p| p.to_owned()).collect()]);
    c.archives().choose_bases(&ids, &rules(&["h/o/r1"])).unwrap();
    assert!(
        all_bases(c, &ids).is_empty()
            && c.archives().bases_by_forge(&ids, &rules(&["h/o/r1"])).unwrap().is_empty()
    );
    assert_eq!(c.archives().bases_by_forge(&ids, &rules(&["h/o/r1", "h/o/r2"])).unwrap().len(), 1);
    assert_eq!(c.archives().bases_by_forge(&ids, &rules(&["h"])).unwrap().len(), 2);
    c.archives().choose_bases(&ids[2..3], &AccessNames::default()).unwrap();
    assert_eq!(all_bases(c, &ids), [(ids[2], ids[0])].into(), "past a parent that is not mirrored");
    c.archives().choose_bases(&ids, &AccessNames::default()).unwrap();
    assert_eq!(all_bases(c, &ids), [(ids[1], ids[0]), (ids[2], ids[0])].into());
    assert_eq!(c.archives().built_on(ids[0]).unwrap().iter().map(|r| r.id).collect::<Vec<_>>(), ids[1..3]);
    assert_eq!(c.archives().bases(&ids[1..2]).unwrap()[0].path, "h/o/r1.tar");
    a_base_stays_and_stays_whole(c, &ids);
    what_is_mirrored_already_is_left_as_it_is(c, &ids);
}

/// Registers nine repositories, most of them forks. Returns their ids.
fn network(c: &mut Catalog) -> Vec<i64> {
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
    // 2 is a fork of 1, and 3 of 2. 4 is a fork of an unknown repository, and 6 of the private 5. 7 and 8 are
    // forks of each other, as a forge might say. 9 is a fork of itself.
    let page = [(1, 0), (2, 1), (3, 2), (4, 99), (5, 0), (6, 5), (7, 8), (8, 7), (9, 9)]
        .map(|(id, of)| fork(id, of, id == 5));
    pass(c, &page, Timestamp(1));
    (1..=9).map(|n| c.get(&format!("h/o/r{n}")).unwrap().unwrap().id).collect()
}

/// Returns the pairs of a repository of `ids` and its base.
fn all_bases(c: &Catalog, ids: &[i64]) -> BTreeSet<(i64, i64)> {
    c.archives().bases(ids).unwrap().into_iter().map(|b| (b.id, b.base)).collect()
}

/// Checks that the base of 2 and 3 can neither be removed nor get a base itself. Then clears these bases, and
/// removes 1.
fn a_base_stays_and_stays_whole(c: &mut Catalog, ids: &[i64]) {
    assert!(matches!(c.remove("h/o/r1").unwrap_err(), Error::BuiltOn { count: 2, .. }));
    assert!(matches!(c.archives().set_base(ids[0], ids[3]).unwrap_err(), Error::BuiltOn { .. }));
    assert!(matches!(c.archives().set_base(ids[3], ids[1]).unwrap_err(), Error::NoBase));
    assert!(matches!(c.archives().set_base(ids[3], ids[3]).unwrap_err(), Error::NoBase));
    assert!(matches!(c.archives().set_base(ids[3], 12345).unwrap_err(), Error::NoBase));
    let listing = c.listings().begin("f", "all", Timestamp(5)).unwrap();
    let gone: Vec<i64> = c.listings().unseen(&listing, 0, 100).unwrap().iter().map(|u| u.id).collect();
    c.listings().set_gone(&gone, Timestamp(5), Timestamp(6)).unwrap();
    assert!(!c.listings().remove_gone(ids[0], Timestamp(9)).unwrap(), "purged no more than removed");
    c.archives().clear_bases(&ids[1..3]).unwrap();
    assert!(c.listings().remove_gone(ids[0], Timestamp(9)).unwrap());
}

/// Checks that no base is chosen for a repository that is mirrored already, unless the caller asks for it.
fn what_is_mirrored_already_is_left_as_it_is(c: &mut Catalog, ids: &[i64]) {
    let visit = |id| Visit {
        id,
        epoch: Epoch::NONE,
        began_at: Timestamp(1),
        at: Timestamp(2),
        next_due: Timestamp(1000),
        again_at: Timestamp(0),
        hints: 0,
        fingerprint: Some(vec![7]),
        changes: 0.0,
        watched_s: 0.0,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        event: None,
        outcome: Outcome::Unchanged,
    };
    assert_eq!(c.visits().record(&[visit(ids[1]), visit(ids[2])]).unwrap(), 2);
    c.archives().set_base(ids[1], ids[3]).unwrap();
    c.archives().look_again_at_what_builds_on(ids[3], Timestamp(3)).unwrap();
    let seen =
        |c: &Catalog, n| c.get(&format!("h/o/r{n}")).unwrap().map(|r| (r.next_due, r.fingerprint)).unwrap();
    assert_eq!((seen(c, 2), seen(c, 3)), ((Timestamp(3), None), (Timestamp(1000), Some(vec![7]))));
    c.archives().clear_bases(&ids[1..2]).unwrap();
    let updated = Outcome::Updated { seq: 1, archive_bytes: 1, ref_count: 1 };
    assert_eq!(c.visits().record(&[Visit { outcome: updated, ..visit(ids[2]) }]).unwrap(), 1);
    c.archives().set_archive(ids[2], ArchiveEnd { seq: Seq(5), bytes: 9 }).unwrap();
    c.archives().set_archive(ids[2], ArchiveEnd { seq: Seq(4), bytes: 8 }).unwrap();
    assert_eq!(
        c.get("h/o/r3").unwrap().map(|r| (r.seq, r.archive_bytes)).unwrap(),
        (Some(5), Some(9)),
        "never backwards"
    );
    c.archives().choose_bases(ids, &AccessNames::default()).unwrap();
    assert!(all_bases(c, ids).is_empty());
    assert_eq!(c.archives().bases_by_forge(&ids[2..3], &AccessNames::default()).unwrap()[0].base, ids[1]);
}

pub fn searches_look_at_a_window_of_names(c: &mut Catalog) {
    let names = ["a/one", "a/two", "B/One", "b/under_score", "b/underXscore", "c/100%", "c/new"];
    let entries: Vec<_> = names.iter().map(|name| entry(name, name)).collect();
    c.add(&entries, Timestamp(0)).unwrap();
    c.archives().set_hold("a/two", weir_catalog::Hold::Paused, true).unwrap();
    let found = |search: &RepositorySearch| {
        let (mut search, mut names, mut pages) = (search.clone(), Vec::new(), 0);
        loop {
            let found = c.search(&search).unwrap();
            assert!(found.list.len() <= search.max);
            names.extend(found.list.into_iter().map(|r| r.name));
            pages += 1;
            match found.passed {
                Some(passed) => search.after = passed,
                None => return (names.join(" "), pages),
            }
        }
    };
    let all = RepositorySearch { window: 100, max: 100, ..RepositorySearch::default() };
    assert_eq!(found(&all), ("B/One a/one a/two b/underXscore b/under_score c/100% c/new".to_owned(), 1));
    assert_eq!(found(&RepositorySearch { max: 3, ..all.clone() }).1, 3);
    for (text, expected) in [("ONE", "B/One a/one"), ("_", "b/under_score"), ("0%", "c/100%"), ("\\", "")] {
        let search = RepositorySearch { text: Some(text.to_owned()), ..all.clone() };
        assert_eq!(found(&search), (expected.to_owned(), 1));
        assert_eq!(found(&RepositorySearch { window: 2, ..search }), (expected.to_owned(), 4));
    }
    let paused = RepositorySearch { state: Some(StateFilter::Paused), ..all.clone() };
    assert_eq!(found(&paused).0, "a/two");
    assert_eq!(found(&RepositorySearch { state: Some(StateFilter::New), max: 2, ..all.clone() }).1, 4);
    for state in [StateFilter::Pinned, StateFilter::Failing, StateFilter::Incomplete] {
        assert_eq!(found(&RepositorySearch { state: Some(state), ..all.clone() }).0, "");
    }
}
