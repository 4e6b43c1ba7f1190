//! Listings of forges: pages, names, repositories that are gone, accounts.

use weir_catalog::{
    Account, AccountKind, Catalog, Error, Hold, ImportPosition, KnownAccount, NewRepository, RequestBudget,
    Taken,
};
use weir_ground::Timestamp;

use super::{DUE, listed, pass, row};

pub fn renames_keep_the_archive_and_names_move_on(c: &mut Catalog) {
    let (_, taken) = pass(c, &[listed(1, "o/a"), listed(2, "o/.github")], Timestamp(10));
    assert_eq!(taken, Taken { added: 2, ..Taken::default() });
    assert_eq!(c.get("h/o/.github").unwrap().unwrap().path, "h/o/%2Egithub.tar");
    // Repository 1 is called b now, and 3 has its old name. The page lists 3 first.
    let (_, taken) = pass(c, &[listed(3, "o/a"), listed(1, "o/b"), listed(2, "o/.github")], Timestamp(20));
    assert_eq!(taken, Taken { added: 1, renamed: 1, known: 1, ..Taken::default() });
    let (a, b) = (c.get("h/o/a").unwrap().unwrap(), c.get("h/o/b").unwrap().unwrap());
    assert_eq!((a.path.as_str(), a.url.as_str()), ("h/o/a~3.tar", "https://h/o/a.git"));
    assert_eq!((b.path.as_str(), b.url.as_str()), ("h/o/a.tar", "https://h/o/b.git"));
    // Two repositories swap their names.
    let (_, taken) = pass(c, &[listed(3, "o/b"), listed(1, "o/a"), listed(2, "o/.github")], Timestamp(30));
    assert_eq!(taken.renamed, 2);
    assert_eq!((c.get("h/o/a").unwrap().unwrap().id, c.get("h/o/b").unwrap().unwrap().id), (b.id, a.id));
}

pub fn names_of_others_are_not_taken(c: &mut Catalog) {
    let entry = NewRepository::new;
    c.add(&[entry("h/o/a", "git://elsewhere/a"), entry("h/o/b", "https://h/o/b.git")], Timestamp(1)).unwrap();
    pass(c, &[listed(1, "o/a"), listed(2, "o/b")], Timestamp(10));
    assert_eq!(c.get("h/o/a").unwrap().unwrap().url, "git://elsewhere/a");
    assert_eq!(c.get("h/o/a~1").unwrap().unwrap().url, "https://h/o/a.git");
    assert_eq!(c.list().unwrap().len(), 3, "what was added by its URL is the same one");
    let (_, taken) = pass(c, &[listed(1, "o/a"), listed(2, "o/b")], Timestamp(20));
    assert_eq!(taken, Taken { known: 2, ..Taken::default() }, "and it stays so");
    // An imported clone may have a URL without `.git`.
    c.add(&[entry("h/o/c", "https://h/o/c"), entry("h/o/d", "https://h/o/d/")], Timestamp(25)).unwrap();
    let ids = [c.get("h/o/c").unwrap().unwrap().id, c.get("h/o/d").unwrap().unwrap().id];
    pass(c, &[listed(1, "o/a"), listed(2, "o/b"), listed(3, "o/c"), listed(4, "o/d")], Timestamp(30));
    assert_eq!(c.list().unwrap().len(), 5);
    for (id, name) in ids.into_iter().zip(["c", "d"]) {
        let adopted = c.get(&format!("h/o/{name}")).unwrap().unwrap();
        assert_eq!((adopted.id, adopted.url), (id, format!("https://h/o/{name}.git")));
    }
}

pub fn a_listing_goes_on_where_it_was(c: &mut Catalog) {
    let mut listing = c.listings().begin("f", "all", Timestamp(10)).unwrap();
    c.listings().take_page(&mut listing, &[listed(1, "o/a")], Some("7"), Timestamp(11)).unwrap();
    let again = c.listings().begin("f", "all", Timestamp(20)).unwrap();
    assert_eq!(
        (again.pass, again.position.as_deref(), again.listed, again.started_at),
        (1, Some("7"), 1, Timestamp(10))
    );
    assert_eq!(
        c.listings().begin("f", "owners", Timestamp(30)).unwrap().position,
        None,
        "another scope begins anew"
    );
    let mut listing = c.listings().begin("f", "owners", Timestamp(30)).unwrap();
    c.listings().take_page(&mut listing, &[], None, Timestamp(31)).unwrap();
    assert_eq!(c.listings().begin("f", "owners", Timestamp(40)).unwrap().pass, 3);
    c.listings().skip_page("f", "7", "500", Timestamp(1)).unwrap();
    c.listings().skip_page("f", "7", "502", Timestamp(2)).unwrap();
    let skipped = c.listings().skipped_pages("f").unwrap();
    assert_eq!((skipped.len(), skipped[0].position.as_str(), skipped[0].tries), (1, "7", 2));
    c.listings().forget_skipped("f", "7").unwrap();
    assert!(c.listings().skipped_pages("f").unwrap().is_empty());
}

pub fn what_is_gone_comes_back_and_what_was_pushed_is_due(c: &mut Catalog) {
    pass(c, &[listed(1, "o/a"), listed(2, "o/b")], Timestamp(10));
    let (listing, _) = pass(c, &[listed(2, "o/b")], Timestamp(20));
    let unseen = c.listings().unseen(&listing, 0, 10).unwrap();
    assert_eq!(unseen.iter().map(|u| u.forge_id.as_str()).collect::<Vec<_>>(), ["1"]);
    c.listings().set_gone(&[unseen[0].id], Timestamp(20), Timestamp(1000)).unwrap();
    assert_eq!(
        (c.get("h/o/a").unwrap().unwrap().next_due, c.listings().counts("f").unwrap()),
        (Timestamp(1000), (2, 1))
    );
    assert!(c.listings().unseen(&listing, 0, 10).unwrap().is_empty());
    let mut pushed = listed(2, "o/b");
    pushed.1.pushed_at = Some("2".into());
    let (_, taken) = pass(c, &[listed(1, "o/a"), pushed], Timestamp(30));
    assert_eq!(taken, Taken { back: 1, hinted: 1, ..Taken::default() });
    assert_eq!(c.get("h/o/a").unwrap().unwrap().next_due, Timestamp(30));
}

pub fn what_was_skipped_belongs_to_its_scope_and_what_is_not_wanted_is_seen(c: &mut Catalog) {
    pass(c, &[listed(1, "o/a"), listed(2, "o/b")], Timestamp(10));
    let mut listing = c.listings().begin("f", "all", Timestamp(20)).unwrap();
    c.listings().mark_seen(&listing, &["1", "77"]).unwrap();
    c.listings().take_page(&mut listing, &[], None, Timestamp(20)).unwrap();
    assert_eq!(
        c.listings().unseen(&listing, 0, 10).unwrap().iter().map(|u| u.forge_id.as_str()).collect::<Vec<_>>(),
        ["2"]
    );
    c.listings().skip_page("f", "7", "500", Timestamp(1)).unwrap();
    c.listings().begin("f", "all", Timestamp(30)).unwrap();
    assert_eq!(c.listings().skipped_pages("f").unwrap().len(), 1);
    c.listings().begin("f", "owners", Timestamp(40)).unwrap();
    assert!(c.listings().skipped_pages("f").unwrap().is_empty());
}

pub fn a_dump_adds_and_a_listing_knows_better(c: &mut Catalog) {
    let at = |lines, is_finished| ImportPosition { lines, is_finished };
    assert_eq!(c.listings().import_position("d").unwrap(), at(0, false));
    // The dump names repositories without ids, then with ids: they are the same repositories.
    let take = |c: &mut Catalog, source, position, rows: &[_], now| {
        c.listings().take_import("h", source, position, rows, Timestamp(now)).unwrap()
    };
    let rows = [row("", "o/a"), row("", "o/b"), row("", "o/a")];
    assert_eq!(take(c, "d", at(2, false), &rows, 5).unwrap().added, 2);
    assert_eq!(take(c, "d", at(2, false), &[row("9", "o/z")], 5), None, "another import was as far already");
    assert_eq!(take(c, "d", at(5, true), &[row("1", "o/a"), row("3", "o/c")], 6).unwrap().added, 2);
    assert_eq!(take(c, "d", at(5, true), &[row("9", "o/z")], 6), None);
    assert_eq!(
        (c.listings().import_position("d").unwrap(), c.list().unwrap().len()),
        (at(5, true), 3),
        "o/a was adopted"
    );
    // A later dump renames a repository, and a listing renames it again. After that the old name in a dump
    // changes nothing.
    assert_eq!(take(c, "e", at(1, true), &[row("3", "o/d")], 7).unwrap().renamed, 1);
    let mut listing = c.listings().begin("h", "all", Timestamp(8)).unwrap();
    let taken = c
        .listings()
        .take_page(&mut listing, &[row("3", "o/e"), row("2", "o/b")], None, Timestamp(8))
        .unwrap();
    assert_eq!((taken.renamed, taken.added), (1, 1));
    assert_eq!(take(c, "f", at(1, true), &[row("3", "o/d")], 9).unwrap().known, 1);
    assert_eq!(
        take(c, "f", at(2, true), &[row("99", "o/e")], 9).unwrap().known,
        1,
        "one that had this name before"
    );
    let e = c.get("h/o/e").unwrap().unwrap();
    assert_eq!((e.path.as_str(), c.list().unwrap().len()), ("h/o/c.tar", 3));
    // A dump does not bring back a repository that is gone from the forge.
    let unseen = c.listings().unseen(&listing, 0, 10).unwrap();
    assert_eq!(unseen.len(), 1);
    c.listings().set_gone(&[unseen[0].id], Timestamp(9), Timestamp(9)).unwrap();
    assert_eq!(take(c, "g", at(1, true), &[row("1", "o/a")], 10).unwrap().known, 1);
    c.listings().forget_import("d").unwrap();
    assert_eq!(c.listings().import_position("d").unwrap(), at(0, false));
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
    full.languages = Some(vec![("C".into(), 10), ("Rust".into(), 20), ("C".into(), 11)]);
    full.topics = Some(vec!["x".into(), "x".into(), "y".into()]);
    (full.fork, full.archived, full.stars) = (Some(false), Some(true), Some(1 << 40));
    let (_, taken) = pass(c, &[(name.clone(), full.clone()), listed(2, "o/b")], Timestamp(10));
    assert_eq!(taken.added, 2);
    let id = c.get(&name).unwrap().unwrap().id;
    let told = c.listings().description(id).unwrap().unwrap();
    assert_eq!(told.replace('\u{fffd}', "\0"), full.description.clone().unwrap());
    full.owner = Some(owner("renamed"));
    full.topics = Some(vec!["z".into()]);
    let page = [(name.clone(), full.clone()), listed(2, "o/b"), listed(2, "o/b")];
    let (_, taken) = pass(c, &page, Timestamp(20));
    assert_eq!(taken.known, 3, "one of them was told of twice");
    let said = |c: &Catalog| {
        let said = c.metadata().of_forge(&[id]).unwrap().remove(&id).unwrap();
        (said.topics.join(" "), said.languages.len())
    };
    assert_eq!(said(c), ("z".to_owned(), 2));
    // A listing that says nothing of topics leaves them; one that says that there are none does not.
    for (topics, left) in [(None, "z"), (Some(Vec::new()), "")] {
        (full.topics, full.languages) = (topics, None);
        pass(c, &[(name.clone(), full.clone()), listed(2, "o/b")], Timestamp(20));
        assert_eq!(said(c), (left.to_owned(), 2));
    }
    let counts = c.status().counts(Timestamp(30)).unwrap();
    assert_eq!((counts.repositories, counts.due, counts.archive_bytes, counts.mirrored), (2, 2, 0, 0));
    assert_eq!(c.status().next_ones(10).unwrap().len(), 2);
    assert!(
        c.status().failing(None, 10).unwrap().is_empty()
            && c.status().failing(Some("network"), 10).unwrap().is_empty()
    );
    c.visits().set_throttle("h", "network", Timestamp(30), Timestamp(60)).unwrap();
    c.visits().set_throttle("", "disk full", Timestamp(31), Timestamp(70)).unwrap();
    assert_eq!(
        c.visits().throttles(Timestamp(32)).unwrap().iter().map(|t| t.host.as_str()).collect::<Vec<_>>(),
        ["", "h"]
    );
    c.visits().set_throttle("h", "server error", Timestamp(61), Timestamp(90)).unwrap();
    assert_eq!(c.visits().throttles(Timestamp(62)).unwrap()[1].since, 61, "the pause before was over");
    assert_eq!(c.listings().all().unwrap().len(), 1);
    c.claim_store("one").unwrap();
    c.claim_store("one").unwrap();
    assert!(matches!(c.claim_store("two"), Err(Error::OtherStore(_))));
    c.archives().set_hold(&name, Hold::Paused, true).unwrap();
    c.archives().set_hold(&name, Hold::Pinned, true).unwrap();
    c.archives().set_hold(&name, Hold::Paused, false).unwrap();
    let held = c.get(&name).unwrap().unwrap();
    assert!(held.is_pinned && !held.is_paused, "one undoes not the other");
    let counts = c.status().counts(Timestamp(30)).unwrap();
    assert_eq!((counts.disabled, counts.paused, counts.pinned), (1, 0, 1));
    assert_eq!(c.visits().lease("x", Timestamp(30), Timestamp(40), &DUE, 10).unwrap().len(), 1);
}

/// Asserts that the pages of accounts have what the whole list has.
fn assert_pages(c: &Catalog) {
    let mut paged: Vec<KnownAccount> = Vec::new();
    loop {
        let after = paged.last().map(|last| (last.account.login.clone(), last.forge.clone()));
        let after = after.as_ref().map(|(login, forge)| (login.as_str(), forge.as_str()));
        match &c.accounts().known(None, after, 1).unwrap()[..] {
            [] => break,
            page => paged.extend(page.iter().cloned()),
        }
    }
    assert_eq!(paged, c.accounts().known(None, None, 10).unwrap());
}

pub fn accounts_and_what_is_left_of_limits(c: &mut Catalog) {
    let account =
        |id: u32, login: &str, kind| Account { forge_id: id.to_string(), login: login.to_owned(), kind };
    let user = |id, login| account(id, login, AccountKind::User);
    let organization = |id, login| account(id, login, AccountKind::Organization);
    // The organisation is known first as an owner. The forge does not report the kind of owners.
    let mut owned = listed(1, "o/a");
    owned.1.owner = Some(user(9, "o"));
    pass(c, &[owned], Timestamp(5));
    let mut listing = c.listings().begin("f/accounts", "all", Timestamp(10)).unwrap();
    let members = vec![("9".to_owned(), vec![user(1, "a"), user(2, "b"), user(2, "b")])];
    c.accounts()
        .take(&mut listing, "f", &[organization(9, "o"), user(1, "a")], &members, Some("2"), Timestamp(11))
        .unwrap();
    let again = c.listings().begin("f/accounts", "all", Timestamp(20)).unwrap();
    assert_eq!((again.pass, again.position.as_deref(), again.listed), (1, Some("2"), 2), "it goes on");
    c.accounts().take(&mut listing, "f", &[user(2, "renamed")], &[], None, Timestamp(12)).unwrap();
    let counts = c.accounts().counts("f").unwrap();
    assert_eq!((counts.users, counts.organizations, counts.memberships), (2, 1, 2));
    let all = c.accounts().known(None, None, 10).unwrap();
    let told: Vec<_> =
        all.iter().map(|a| (a.account.login.as_str(), a.organizations.join(","), a.repositories)).collect();
    assert_eq!(told, [("a", "o".to_owned(), 0), ("o", String::new(), 1), ("renamed", "o".to_owned(), 0)]);
    // The ids of another forge mean other accounts. An organisation that is not listed has no members.
    let mut other = c.listings().begin("g/accounts", "all", Timestamp(10)).unwrap();
    c.accounts()
        .take(&mut other, "g", &[user(1, "a")], &[("7".to_owned(), vec![user(3, "x")])], None, Timestamp(12))
        .unwrap();
    assert_eq!(c.accounts().known(Some("a"), None, 10).unwrap().len(), 2);
    assert_pages(c);
    assert_eq!(
        (c.accounts().counts("g").unwrap().memberships, c.accounts().counts("f").unwrap().memberships),
        (0, 2)
    );
    // A member leaves the organisation.
    let mut listing = c.listings().begin("f/accounts", "all", Timestamp(30)).unwrap();
    c.accounts()
        .take(
            &mut listing,
            "f",
            &[organization(9, "o")],
            &[("9".to_owned(), vec![user(1, "a")])],
            None,
            Timestamp(31),
        )
        .unwrap();
    assert_eq!(c.accounts().counts("f").unwrap().memberships, 1);

    let budget = |name: &str, remaining, reset_at| RequestBudget {
        credential: name.to_owned(),
        limit: Some(5000),
        remaining,
        reset_at,
    };
    c.accounts()
        .set_budgets("f", &[budget("x", 10, Timestamp(100)), budget("y", 0, Timestamp(200))], Timestamp(50))
        .unwrap();
    c.accounts().set_budgets("g", &[budget("x", 3, Timestamp(90))], Timestamp(50)).unwrap();
    c.accounts().set_budgets("f", &[budget("x", 9, Timestamp(100))], Timestamp(60)).unwrap();
    let left = |c: &Catalog, now| -> Vec<_> {
        c.accounts().budgets(now).unwrap().into_iter().map(|(f, b)| (f, b.credential, b.remaining)).collect()
    };
    let row = |f: &str, name: &str, left| (f.to_owned(), name.to_owned(), left);
    assert_eq!(left(c, Timestamp(70)), [row("f", "x", 9), row("f", "y", 0), row("g", "x", 3)]);
    assert_eq!(left(c, Timestamp(100)), [row("f", "y", 0)], "the others are whole again");
}
