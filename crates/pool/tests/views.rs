//! The views and the checks of a pool, as a program calls them that has the library.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use weir_catalog::clock::now;
use weir_ground::Stop;
use weir_mirror::MirrorLoop;
use weir_pool::{
    CONFIG_NAME, CheckLevel, CheckReport, MirrorGuard, Pool, PoolStatus, RepositoryDetails, RepositoryList,
    RepositoryState, SortKey, archive_sizes, check_owner, check_pool, due_repositories, listed, manifest,
    ref_log, visit_log,
};
use weir_settings::Environment;
use weir_testing::{create_history, run_git};

fn pool(at: &Path) -> Pool {
    Pool::init(at, None, Environment::default()).unwrap();
    let config = weir_settings::load(&at.join(CONFIG_NAME), Environment::default()).unwrap();
    Pool::open(at, config).unwrap()
}

/// Creates the repository of the transcripts in `folder`, and returns its path.
fn upstream_in(folder: &Path) -> PathBuf {
    let upstream = folder.join("up.git");
    std::fs::create_dir(&upstream).unwrap();
    create_history(&upstream);
    upstream
}

fn add(pool: &mut Pool, name: &str, upstream: &Path) {
    let mut entry = weir_pool::entry(upstream.to_str().unwrap(), None).unwrap();
    entry.name = name.to_owned();
    pool.catalog.add(&[entry], now()).unwrap();
}

/// Visits all repositories once.
fn mirror(pool: &mut Pool) {
    let (mirror, guard) = (pool.mirror(None), MirrorGuard::take(pool).unwrap());
    let retry = Duration::from_secs(30);
    let once = MirrorLoop { mirror: &mirror, owner: &guard.owner, watch: false, all_first: true, retry };
    once.run(&pool.catalog, &mut |_| Ok(None), &Stop::default(), &mut |_| {}).unwrap();
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_pool_is_shown_as_types_that_can_be_sent() {
    let folder = weir_testing::folder();
    let (at, upstream) = (folder.path().join("pool"), upstream_in(folder.path()));
    let mut pool = pool(&at);
    add(&mut pool, "here", &upstream);
    add(&mut pool, "nowhere", &folder.path().join("nothing.git"));
    assert_eq!(due_repositories(&pool, 9).unwrap().iter().filter(|due| !due.was_visited).count(), 2);
    mirror(&mut pool);

    let status = serde_json::to_value(PoolStatus::read(&pool).unwrap()).unwrap();
    assert_eq!((&status["counts"]["repositories"], &status["counts"]["failing"]), (&json!(2), &json!(1)));
    let parts = "accounts budgets counts errors events forges hooks metadata pauses space";
    assert_eq!(keys(&status).join(" "), parts);

    let by_size = RepositoryList { sort: SortKey::Size, ..RepositoryList::default() };
    let all: Vec<(String, RepositoryState)> =
        listed(&pool, &by_size).unwrap().into_iter().map(|(r, state)| (r.name, state)).collect();
    let (here, nowhere) = ("here".to_owned(), "nowhere".to_owned());
    assert_eq!(all, [(here, RepositoryState::Ok), (nowhere, RepositoryState::Failed)]);
    let failed = RepositoryList { states: vec![RepositoryState::Failed], ..RepositoryList::default() };
    assert_eq!(listed(&pool, &failed).unwrap().len(), 1);
    assert!(listed(&pool, &RepositoryList { patterns: vec!["no/*".into()], ..failed }).is_err());

    let r = pool.get("here").unwrap();
    let details = serde_json::to_value(RepositoryDetails::of(&pool, &r).unwrap()).unwrap();
    assert_eq!((&details["state"], &details["objects"]), (&json!("ok"), &json!(13)));
    assert_eq!(details["head"], "refs/heads/main");
    let gone = RepositoryDetails::of(&pool, &pool.get("nowhere").unwrap()).unwrap();
    assert!(gone.archive.is_none() && gone.view.error.is_some());

    run_git(&upstream, &["update-ref", "-d", "refs/heads/side"], b"");
    mirror(&mut pool);
    let r = pool.get("here").unwrap();
    let log = ref_log(&pool, &r, None, 1).unwrap();
    assert_eq!((log.len(), log[0].deleted, log[1].added, log[1].changes.len()), (2, 1, 3, 1));
    assert!(log[0].changes[0].to_string().starts_with("- refs/heads/side "), "{log:?}");
    let visits = serde_json::to_value(visit_log(&pool, &r, 9).unwrap()).unwrap();
    // Visits of one second are one entry.
    assert_eq!((&visits[0]["result"], &visits[0]["seq"]), (&json!("changed"), &json!(2)));

    let sizes = archive_sizes(&pool, &[]).unwrap();
    assert!(sizes[0].name == "here" && sizes[0].bytes > sizes[1].bytes && sizes[1].bytes == 0);
    let shown = manifest(&pool, &[], &|r| Ok(r.name != "other")).unwrap();
    assert_eq!(shown.keys().collect::<Vec<_>>(), ["/here.git"]);
    assert_eq!(shown["/here.git"].head, "ref: refs/heads/main");
    assert!(manifest(&pool, &[], &|_| Ok(false)).unwrap().is_empty());
}

#[test]
fn a_pool_is_checked_without_a_word_to_the_screen() {
    let folder = weir_testing::folder();
    let (at, upstream) = (folder.path().join("pool"), upstream_in(folder.path()));
    let mut pool = pool(&at);
    add(&mut pool, "it", &upstream);
    mirror(&mut pool);
    let check = |pool: &Pool| {
        let mut found = Vec::new();
        let mut tell = |finding| {
            found.push(finding);
            Ok(())
        };
        let mut report = CheckReport::new(10, &mut tell);
        check_owner(&at, &mut report).unwrap();
        check_pool(pool, true, &mut report).unwrap();
        let errors = report.errors;
        (errors, found)
    };
    let (errors, found) = check(&pool);
    assert_eq!(errors, 0, "{found:?}");
    std::fs::remove_file(pool.archive_path(&pool.get("it").unwrap())).unwrap();
    let (errors, found) = check(&pool);
    let missing = found.iter().find(|finding| finding.level == CheckLevel::Error).unwrap();
    assert_eq!((errors, missing.check), (1, "archives"));
    assert!(missing.message.contains("the archive of 'it' is missing"), "{missing:?}");
    let mut silent = |_| Err(std::io::ErrorKind::BrokenPipe.into());
    assert!(check_owner(&at, &mut CheckReport::new(1, &mut silent)).is_err(), "nobody hears it");
}
