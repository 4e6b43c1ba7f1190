//! The same tests over SQLite and over a real PostgreSQL.

mod cases;

use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_catalog::{
    Catalog, Error, ImportPosition, Listed, NewRepository, Outcome, Repository, Visit, Which,
};
use weir_ground::Timestamp;

/// The name of a case, and the case.
type Case = (&'static str, fn(&mut Catalog));

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        const CASES: &[Case] = &[$((stringify!($name), cases::$name)),*];

        mod sqlite {
            $(#[test]
            fn $name() {
                let dir = weir_testing::folder();
                let mut catalog = weir_catalog::Catalog::open(&dir.path().join("catalog.db")).unwrap();
                crate::cases::$name(&mut catalog);
            })*
        }
    };
}

cases!(
    names_are_unique_and_adding_twice_is_harmless,
    leases_are_exclusive_until_they_run_out,
    visits_set_the_schedule,
    renames_keep_the_archive_and_names_move_on,
    names_of_others_are_not_taken,
    a_listing_goes_on_where_it_was,
    what_is_gone_comes_back_and_what_was_pushed_is_due,
    a_push_during_a_visit_is_not_forgotten,
    what_was_skipped_belongs_to_its_scope_and_what_is_not_wanted_is_seen,
    a_dump_adds_and_a_listing_knows_better,
    a_lost_lease_writes_nothing_and_others_are_left_alone,
    all_that_a_forge_tells_is_kept_and_counted,
    a_clock_that_was_ahead_puts_nothing_off,
    names_sort_by_their_bytes,
    events_are_logged_with_the_visits_that_found_them,
    events_are_deleted_once_they_are_old_and_read,
    events_from_outside_are_taken_once,
    events_make_due_with_a_pause_between_visits,
    rejected_events_are_tried_again,
    forks_build_on_the_root_of_their_network,
    priorities_go_first_then_hints_then_the_most_overdue,
    visits_that_are_news_are_kept,
    accounts_and_what_is_left_of_limits,
    looks_for_metadata_are_leased_in_turn,
    looks_of_a_killed_process_are_leased_again,
    metadata_is_looked_for_where_it_is_named_or_wanted,
    an_inventory_has_every_repository_once,
    searches_look_at_a_window_of_names
);

#[test]
fn all_cases_over_postgres() {
    let Some(server) = weir_testing::PostgresServer::start(&["fsync=off"]) else { return };
    let mut failed = Vec::new();
    for (name, case) in CASES {
        let mut catalog = Catalog::connect(&server.schema(name)).unwrap();
        if catch_unwind(AssertUnwindSafe(|| case(&mut catalog))).is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

fn entries(count: usize) -> Vec<NewRepository> {
    (0..count).map(|n| NewRepository::new(&format!("r{n:05}"), &format!("git://h/{n}"))).collect()
}

/// Returns a visit that ends the lease of `r` and makes it due again at `next_due`.
fn visit(r: &Repository, next_due: Timestamp) -> Visit {
    let outcome = Outcome::Updated { seq: 1, archive_bytes: 10, ref_count: 2 };
    let fingerprint = Some(vec![0, 1, 255, b'\\']);
    Visit {
        id: r.id,
        epoch: r.epoch,
        began_at: Timestamp(1),
        at: Timestamp(2),
        next_due,
        again_at: Timestamp(0),
        hints: 0,
        fingerprint,
        changes: 0.5,
        watched_s: 1e9,
        is_news: true,
        snapshot: None,
        lfs_missing: None,
        event: None,
        outcome,
    }
}

const DUE: Which<'_> = Which { due_only: true, ids: None, free_only: false, ahead_only: false };

#[test]
fn nodes_of_a_fleet_share_the_work_and_do_none_of_it_twice() {
    let Some(server) = weir_testing::PostgresServer::start(&["fsync=off", "deadlock_timeout=10ms"]) else {
        return;
    };
    let url = server.schema("fleet");
    let total = 3000;
    Catalog::connect(&url).unwrap().add(&entries(total), Timestamp(0)).unwrap();
    let done: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let node = |n: usize| {
            let url = &url;
            scope.spawn(move || {
                let catalog = Catalog::connect(url).unwrap();
                let mut done = Vec::new();
                loop {
                    let mut leased = catalog
                        .visits()
                        .lease(&format!("node{n}/1"), Timestamp(10), Timestamp(1000), &DUE, 100)
                        .unwrap();
                    // A lease skips rows that the listing is writing.
                    if leased.is_empty() && !catalog.visits().is_any_due(Timestamp(10)).unwrap() {
                        return done;
                    }
                    // The nodes write in different orders, so that their transactions wait for each other.
                    if n.is_multiple_of(2) {
                        leased.reverse();
                    }
                    let visits: Vec<Visit> = leased.iter().map(|r| visit(r, Timestamp(1000))).collect();
                    assert_eq!(catalog.visits().record(&visits).unwrap(), visits.len());
                    done.extend(leased.iter().map(|r| r.id));
                }
            })
        };
        let nodes: Vec<_> = (0..4).map(node).collect();
        // A listing writes the same rows meanwhile, backwards.
        let listed = |n: usize| {
            let name = format!("r{n:05}");
            (
                name.clone(),
                Listed {
                    forge_id: n.to_string(),
                    clone_url: format!("git://h/{n}"),
                    full_name: name,
                    ..Listed::default()
                },
            )
        };
        let catalog = Catalog::connect(&url).unwrap();
        for pass in 0..5 {
            let mut listing = catalog.listings().begin("h", "all", Timestamp(pass)).unwrap();
            for first in (0..total).step_by(500) {
                let page: Vec<_> = (first..first + 500).rev().map(listed).collect();
                let next = (first + 500 < total).then(|| first.to_string());
                catalog.listings().take_page(&mut listing, &page, next.as_deref(), Timestamp(pass)).unwrap();
            }
        }
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    });
    let mut all: Vec<i64> = done.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), done.iter().map(Vec::len).sum::<usize>()), (total, total), "each once");
    let catalog = Catalog::connect(&url).unwrap();
    assert_eq!(
        (catalog.visits().next_due().unwrap(), catalog.status().counts(Timestamp(10)).unwrap().mirrored),
        (Some(Timestamp(1000)), total as i64)
    );
}

#[test]
fn a_server_that_crashes_is_come_back_to_and_what_was_written_is_there() {
    let Some(mut server) = weir_testing::PostgresServer::start(&[]) else { return };
    let url = server.schema("crash");
    let catalog = Catalog::connect(&url).unwrap();
    catalog.add(&entries(10), Timestamp(0)).unwrap();
    let leased = catalog.visits().lease("a/1", Timestamp(10), Timestamp(100), &DUE, 3).unwrap();
    assert_eq!(catalog.visits().record(&[visit(&leased[0], Timestamp(50))]).unwrap(), 1);
    server.crash();
    assert_eq!(catalog.get("r00000").unwrap().unwrap().next_due, Timestamp(50));
    assert_eq!(
        catalog
            .visits()
            .record(&[visit(&leased[1], Timestamp(60)), visit(&leased[2], Timestamp(70))])
            .unwrap(),
        2
    );
    server.crash();
    assert_eq!(catalog.visits().lease("a/1", Timestamp(10), Timestamp(100), &DUE, 100).unwrap().len(), 7);
    let newer = server.schema("newer");
    drop(Catalog::connect(&newer).unwrap());
    server.sql("UPDATE newer.schema_version SET version = 999");
    assert!(matches!(Catalog::connect(&newer), Err(Error::TooNew(999))));
    drop(server);
    let gone = catalog.get("r00000").unwrap_err().to_string();
    assert!(gone.contains("PostgreSQL") && !gone.contains("db error"), "{gone}");
    assert!(Catalog::connect(&url).is_err());
}

/// Returns everything that the catalog says about repositories.
fn all_of(
    c: &Catalog,
) -> (Vec<Repository>, Vec<weir_catalog::Listing>, weir_catalog::Counts, Option<String>, ImportPosition) {
    let list = c.list().unwrap();
    let described = c.listings().description(list[0].id).unwrap();
    (
        list,
        c.listings().all().unwrap(),
        c.status().counts(Timestamp(5)).unwrap(),
        described,
        c.listings().import_position("dump").unwrap(),
    )
}

#[test]
fn a_catalog_moves_there_and_back_and_is_the_same() {
    let Some(server) = weir_testing::PostgresServer::start(&["fsync=off"]) else { return };
    let dir = weir_testing::folder();
    let old = Catalog::open(&dir.path().join("old.db")).unwrap();
    let mut listing = old.listings().begin("h", "all", Timestamp(1)).unwrap();
    let owner = weir_catalog::Account {
        forge_id: "7".into(),
        login: "o".into(),
        kind: weir_catalog::AccountKind::User,
    };
    let description = Some("tab\t, line\n, return\r, \\N, \\. and \u{1f980}".to_owned());
    let languages = Some(vec![("C".to_owned(), 5)]);
    let page: Vec<_> = (0..12_000)
        .map(|n| {
            let (name, owner, description, languages) =
                (format!("o/{n:05}"), Some(owner.clone()), description.clone(), languages.clone());
            let clone_url = format!("git://h/{n}");
            (
                name.clone(),
                Listed {
                    forge_id: n.to_string(),
                    full_name: name,
                    clone_url,
                    owner,
                    description,
                    languages,
                    ..Listed::default()
                },
            )
        })
        .collect();
    old.listings().take_page(&mut listing, &page, Some("next"), Timestamp(2)).unwrap();
    old.listings()
        .take_import("h", "dump", ImportPosition { lines: 7, is_finished: true }, &[], Timestamp(3))
        .unwrap();
    let leased = old.visits().lease("x/1", Timestamp(3), Timestamp(9), &DUE, 2).unwrap();
    old.visits().record(&[visit(&leased[0], Timestamp(1 << 40))]).unwrap();
    old.listings().skip_page("h", "7", "no", Timestamp(3)).unwrap();
    // Leases are not copied: the processes that hold them know nothing of the copy.
    old.visits().release("x/1").unwrap();

    let new = Catalog::connect(&server.schema("new")).unwrap();
    let mut told = Vec::new();
    old.migrate(&new, &mut |table, rows| told.push((table.to_owned(), rows))).unwrap();
    assert!(
        told.contains(&("repositories".to_owned(), 12_000))
            && told.contains(&("languages".to_owned(), 12_000))
    );
    assert!(all_of(&new) == all_of(&old));
    assert!(matches!(old.migrate(&new, &mut |_, _| ()), Err(Error::NotEmpty(12_000))));
    assert!(all_of(&new) == all_of(&old), "what was there stays");
    // A repository that is added next gets an unused number.
    new.add(&entries(1), Timestamp(4)).unwrap();
    let back = Catalog::open(&dir.path().join("back.db")).unwrap();
    new.migrate(&back, &mut |_, _| ()).unwrap();
    assert!(all_of(&back) == all_of(&new));
    assert_eq!(back.list().unwrap().len(), 12_001);
}

#[test]
fn certificates_are_looked_at_as_libpq_does() {
    let Some(server) = weir_testing::PostgresServer::start_with_tls() else { return };
    let (port, certificate) = (server.port(), server.folder().join("server.crt"));
    let connect = |options: &str| {
        Catalog::connect(&format!("postgres://weir@localhost:{port}/postgres?{options}")).map(|_| ())
    };
    let own = format!("sslrootcert={}", certificate.display());
    connect("").unwrap();
    connect("sslmode=require").unwrap();
    connect("sslmode=disable").unwrap_err();
    connect(&format!("sslmode=verify-full&{own}")).unwrap();
    let unknown = connect("sslmode=verify-full").unwrap_err().to_string();
    assert!(unknown.to_lowercase().contains("certificate"), "{unknown}");
    let url = format!("postgres://weir@127.0.0.1:{port}/postgres?sslmode=verify-full&{own}");
    let other_name = Catalog::connect(&url).map(|_| ()).unwrap_err().to_string();
    assert!(other_name.contains("not valid for"), "{other_name}");
    connect("sslmode=verify-full&sslrootcert=/nowhere.crt").unwrap_err();
}
