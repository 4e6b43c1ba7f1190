//! Operations on archives other than visits, on a real catalog and real archives.

use std::fs;
use std::path::Path;

use weir_catalog::{AccessNames, Catalog, NewRepository};
use weir_pool::{Error, ImportedClone, PurgeOutcome, ShareOutcome, Sharer, SoundEntries, Store};
use weir_stage::Stage;

/// Returns a stage with upstreams called `names`, which are mirrored, and its store.
fn mirrored(names: &[&str]) -> (Stage, Store) {
    let mut stage = Stage::new(names, 0);
    assert_eq!(stage.run().0.updated, names.len());
    let store = Store {
        path: stage.mirror.store.clone(),
        scratch: stage.mirror.visit.scratch.clone(),
        threads: stage.mirror.visit.threads,
    };
    (stage, store)
}

/// Visits `name` now.
fn visit(stage: &mut Stage, name: &str) {
    stage.catalog.visits().hint(&[stage.get(name).id], stage.clock.now()).unwrap();
    let (summary, told) = stage.run();
    assert_eq!(summary.failed, 0, "{told:?}");
}

/// Makes `fork` an upstream with the history of `of` and a commit of its own. Mirrors both.
fn fork(stage: &mut Stage, of: &str, fork: &str) {
    let content = stage.path("content");
    let noise: String =
        (0..20_000).map(|n: u64| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    fs::write(&content, noise).unwrap();
    let blob = stage.git(&["-C", of, "hash-object", "-w", content.to_str().unwrap()]);
    stage.git(&["-C", of, "tag", "noise", &blob]);
    stage.git(&["clone", "-q", "--mirror", of, fork]);
    stage.pass(1);
    stage.commit(fork);
    let url = stage.path(fork).display().to_string();
    stage.catalog.add(&[NewRepository::new(fork, &url)], stage.clock.now()).unwrap();
    visit(stage, of);
}

fn refused<T>(result: weir_pool::Result<T>) -> String {
    match result {
        Ok(_) => panic!("not refused"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn an_archive_builds_on_another_and_is_whole_again() {
    let (mut stage, store) = mirrored(&["base"]);
    fork(&mut stage, "base", "fork");
    let (base, r) = (stage.get("base"), stage.get("fork"));
    let bases = weir_pool::bases_for(
        &stage.catalog,
        &[base.clone(), r.clone()],
        Some(&base),
        &AccessNames::default(),
    )
    .unwrap();
    assert_eq!(bases.len(), 1, "nothing builds on itself");
    let on = &bases[&r.id];
    let shared = Sharer::new(&stage.catalog, &store, true).share(&r, on).unwrap();
    assert!(matches!(shared, ShareOutcome::Would { common, objects } if common + 1 == objects), "{shared:?}");
    let mut sharer = Sharer::new(&stage.catalog, &store, false);
    let ShareOutcome::Done(done) = sharer.share(&r, on).unwrap() else { panic!("not shared") };
    assert!(done.bytes_after < done.bytes_before, "{done:?}");
    assert!(matches!(sharer.share(&r, on).unwrap(), ShareOutcome::Already));
    assert!(weir_pool::check(&store, &stage.get("fork")).unwrap().unwrap().problems.is_empty());
    // The base stays while it is needed, and the fork's archive keeps it.
    let needed = weir_pool::check_removal(&stage.catalog, &store, &mut [base.clone()], true);
    assert!(refused(needed).contains("fork"));
    let mut both = [base.clone(), r.clone()];
    let kept = weir_pool::check_removal(&stage.catalog, &store, &mut both, false);
    assert!(matches!(kept, Err(Error::NeedsBase { name, .. }) if name == "fork"));
    weir_pool::check_removal(&stage.catalog, &store, &mut both, true).unwrap();
    assert_eq!(both[0].name, "fork", "forks go first");
    // A whole archive needs the base no more.
    let whole = weir_pool::dissociate(&stage.catalog, &store, &r).unwrap().unwrap();
    assert!(whole.bytes_after > whole.bytes_before);
    assert_eq!(weir_pool::dissociate(&stage.catalog, &store, &r).unwrap(), None);
    weir_pool::check_removal(&stage.catalog, &store, &mut [base.clone()], true).unwrap();
    assert!(weir_pool::forget(&stage.catalog, &store, &base, true).unwrap());
    assert!(!store.archive_path(&base).exists());
    assert!(weir_pool::check(&store, &stage.get("fork")).unwrap().unwrap().problems.is_empty());
}

#[test]
fn archives_with_little_in_common_stay_apart() {
    let (stage, store) = mirrored(&["a"]);
    let url = stage.path("b").display().to_string();
    stage.git(&["init", "-q", "--bare", "-b", "main", "b"]);
    stage.pass(1);
    stage.commit("b");
    stage.catalog.add(&[NewRepository::new("b", &url)], stage.clock.now()).unwrap();
    let (a, b) = (stage.get("a"), stage.get("b"));
    let bases =
        weir_pool::bases_for(&stage.catalog, std::slice::from_ref(&b), Some(&a), &AccessNames::default())
            .unwrap();
    let shared = Sharer::new(&stage.catalog, &store, true).share(&b, &bases[&b.id]).unwrap();
    assert!(matches!(shared, ShareOutcome::Later), "{shared:?}");
    let unmirrored =
        weir_pool::bases_for(&stage.catalog, std::slice::from_ref(&a), Some(&b), &AccessNames::default())
            .unwrap();
    let said = refused(Sharer::new(&stage.catalog, &store, false).share(&a, &unmirrored[&a.id]));
    assert!(said.contains("'b' has not been mirrored yet"), "{said}");
}

#[test]
fn a_lost_catalog_is_made_again_from_the_store() {
    let (mut stage, store) = mirrored(&["base"]);
    fork(&mut stage, "base", "fork");
    let r = stage.get("fork");
    let bases = weir_pool::bases_for(
        &stage.catalog,
        std::slice::from_ref(&r),
        Some(&stage.get("base")),
        &AccessNames::default(),
    )
    .unwrap();
    Sharer::new(&stage.catalog, &store, false).share(&r, &bases[&r.id]).unwrap();
    let before = ["base", "fork"].map(|name| stage.get(name));
    fs::write(store.path.join("stray.tar"), "no archive").unwrap();
    fs::write(store.path.join("a b.tar"), "no name").unwrap();
    let catalog = Catalog::open(&stage.path("new.db")).unwrap();
    let found = weir_pool::find_archives(&catalog, &store).unwrap();
    let left: Vec<_> = found.left_out.iter().map(|l| l.path.as_str()).collect();
    assert_eq!((found.found.len(), left, found.unread.len()), (2, vec!["a b.tar", "stray.tar"], 0));
    assert_eq!(weir_pool::adopt(&catalog, &store, &found.found).unwrap(), 2);
    assert_eq!(weir_pool::find_archives(&catalog, &store).unwrap().found.len(), 0);
    for before in before {
        let after = weir_pool::get(&catalog, &before.name).unwrap();
        assert_eq!(
            (after.url, after.seq, after.archive_bytes),
            (before.url, before.seq, before.archive_bytes)
        );
    }
    let base = weir_pool::get(&catalog, "base").unwrap();
    assert!(refused(weir_pool::check_removal(&catalog, &store, &mut [base], true)).contains("fork"));
}

#[test]
fn a_repository_is_set_back_and_copied() {
    let (mut stage, store) = mirrored(&["r"]);
    let old = stage.git(&["-C", "r", "rev-parse", "main"]);
    let first = stage.get("r").seq.unwrap().unsigned_abs();
    stage.pass(1);
    stage.commit("r");
    visit(&mut stage, "r");
    let r = stage.get("r");
    let said = refused(weir_pool::restore(&stage.catalog, &store, &r, 99, None));
    assert!(said.contains("no state 99"), "{said}");
    for (name, why) in [("r", "already exists"), ("../r", "not a valid name")] {
        let said = refused(weir_pool::restore(&stage.catalog, &store, &r, first, Some(name)));
        assert!(said.contains(why), "{said}");
    }
    let copy = weir_pool::restore(&stage.catalog, &store, &r, first, Some("copy")).unwrap();
    assert_eq!(copy.name, "copy");
    weir_pool::restore(&stage.catalog, &store, &r, first, None).unwrap();
    for name in ["r", "copy"] {
        let (repo, r) = (store.open(&stage.get(name)).unwrap(), stage.get(name));
        assert_eq!(repo.refs().list()[0].oid.to_string(), old, "{name}");
        assert!(r.is_pinned && weir_pool::check(&store, &r).unwrap().unwrap().problems.is_empty());
    }
    stage.pass(86_400);
    assert_eq!(stage.run().0, Default::default(), "neither is visited");
}

#[test]
fn a_copy_of_a_damaged_state_leaves_no_archive() {
    let (stage, store) = mirrored(&["r"]);
    let r = stage.get("r");
    let path = store.archive_path(&r);
    let mut data = fs::read(&path).unwrap();
    let pack = data.windows(4).position(|w| w == b"PACK").unwrap();
    data[pack + 14..pack + 40].fill(0x55);
    fs::write(&path, data).unwrap();
    let first = r.seq.unwrap().unsigned_abs();
    refused(weir_pool::restore(&stage.catalog, &store, &r, first, Some("copy")));
    assert!(!store.path.join("copy.tar").exists());
}

#[test]
fn a_purge_deletes_what_is_gone_and_never_too_much() {
    let (stage, store) = mirrored(&["a", "b", "c", "d"]);
    let now = stage.clock.now();
    let gone = ["a", "b"].map(|name| stage.get(name).id);
    stage.catalog.listings().set_gone(&gone, now + 10, now + 20).unwrap();
    assert_eq!(weir_pool::gone_since(&stage.catalog, now + 9, &[]).unwrap().len(), 0, "not for so long");
    let found = weir_pool::gone_since(&stage.catalog, now + 10, &[]).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(weir_pool::gone_since(&stage.catalog, now + 10, &["b".to_owned()]).unwrap().len(), 1);
    let many = weir_pool::check_purge(&stage.catalog, &found, 49);
    assert!(matches!(many, Err(Error::TooManyGone { gone: 2, known: 4, percent: 49, .. })), "{many:?}");
    weir_pool::check_purge(&stage.catalog, &found, 50).unwrap();
    let (a, b) = (&found[0].0, &found[1].0);
    let dry = gone.into_iter().collect();
    let outcome = weir_pool::purge_one(&stage.catalog, &store, a, now + 10, Some(&dry)).unwrap();
    assert!(matches!(outcome, PurgeOutcome::Purged(1..)) && store.archive_path(a).exists());
    let outcome = weir_pool::purge_one(&stage.catalog, &store, a, now + 10, None).unwrap();
    assert!(matches!(outcome, PurgeOutcome::Purged(1..)) && !store.archive_path(a).exists());
    // The other repository has come back meanwhile.
    stage.catalog.listings().set_gone(&[b.id], now + 30, now + 30).unwrap();
    let outcome = weir_pool::purge_one(&stage.catalog, &store, b, now + 10, None).unwrap();
    assert_eq!(outcome, PurgeOutcome::Back);
    assert!(store.archive_path(b).exists());
}

#[test]
fn what_is_wrong_with_an_archive_is_told_and_mended() {
    let (mut stage, store) = mirrored(&["well", "flipped", "missing"]);
    let problems =
        |stage: &Stage, name: &str| weir_pool::check(&store, &stage.get(name)).unwrap().unwrap().problems;
    let path = store.archive_path(&stage.get("flipped"));
    let mut data = fs::read(&path).unwrap();
    let pack = data.windows(4).position(|w| w == b"PACK").unwrap();
    data[pack + 20] ^= 0x10;
    fs::write(&path, data).unwrap();
    fs::remove_file(store.archive_path(&stage.get("missing"))).unwrap();
    assert_eq!(problems(&stage, "well"), [""; 0]);
    assert!(!problems(&stage, "flipped").is_empty());
    assert!(problems(&stage, "missing")[0].contains("is missing"));
    let missing = store.open(&stage.get("missing"));
    assert!(matches!(missing, Err(Error::ArchiveMissing { name, .. }) if name == "missing"));
    for name in ["flipped", "missing"] {
        let r = stage.get(name);
        let checked = weir_pool::check(&store, &r).unwrap().unwrap();
        weir_pool::note(&stage.catalog, &r, &checked).unwrap();
    }
    stage.run();
    for name in ["well", "flipped", "missing"] {
        assert_eq!(problems(&stage, name), [""; 0], "{name}");
    }
    // A repository that is not mirrored yet is no problem.
    stage.catalog.add(&[NewRepository::new("new", "git://h/new")], stage.clock.now()).unwrap();
    assert!(weir_pool::check(&store, &stage.get("new")).unwrap().is_none());
}

#[test]
fn clones_that_are_there_are_taken_over() {
    let (stage, store) = mirrored(&["up"]);
    let up = format!("file://{}", stage.path("up").display());
    fs::create_dir_all(stage.path("clones/deep")).unwrap();
    stage.git(&["clone", "-q", "--mirror", &up, "clones/deep/bare.git"]);
    stage.git(&["clone", "-q", "--depth", "1", &up, "clones/shallow"]);
    stage.git(&["init", "-q", "--bare", "clones/own"]);
    fs::write(stage.path("clones/rubbish.tar"), "no tar").unwrap();
    let mut unread = Vec::new();
    let found = weir_pool::find_clones(&stage.path("clones"), &mut |e| unread.push(e.to_string())).unwrap();
    let names: Vec<_> = found.iter().map(|p| p.strip_prefix(stage.path("clones")).unwrap()).collect();
    let expected = ["deep/bare.git", "own", "rubbish.tar", "shallow/.git"].map(Path::new);
    assert_eq!((names, unread.len()), (expected.to_vec(), 0));
    let options = stage.mirror.visit.clone();
    let import = |dry_run, path: &Path| {
        let (catalog, store, options) = (&stage.catalog, &store, &options);
        weir_pool::CloneImport { catalog, store, owner: "us", options, dry_run }.import(path)
    };
    let (name, would) = import(true, &found[0]).unwrap();
    assert_eq!(would, ImportedClone::Would);
    assert!(matches!(import(false, &found[0]).unwrap().1, ImportedClone::New(1..)));
    assert_eq!(import(false, &found[0]).unwrap(), (name.clone(), ImportedClone::There));
    for (path, why) in [(1, "remote.origin.url"), (2, "read"), (3, "shallow")] {
        let said = refused(import(false, &found[path]));
        assert!(said.contains(why), "{said}");
    }
    assert!(weir_pool::check(&store, &stage.get(&name)).unwrap().unwrap().problems.is_empty());
}

#[test]
fn only_what_can_be_told_apart_is_registered() {
    let (stage, store) = mirrored(&["a"]);
    let (a, b) = (stage.path("a").display().to_string(), stage.path("b").display().to_string());
    let mut sound = SoundEntries::default();
    let mut take = |stage: &Stage, url: &str, name: &str, force| {
        sound.take(&stage.catalog, &store, url, Some(name), force)
    };
    take(&stage, &a, "a", false).unwrap();
    assert!(refused(take(&stage, &b, "b", false)).contains("nothing at"));
    take(&stage, &b, "b", true).unwrap();
    assert!(refused(take(&stage, &b, "a", true)).contains("is taken"));
    assert!(refused(take(&stage, &a, "b", true)).contains("is taken"), "in the list itself");
    // The archive of a repository that the catalog has forgotten still belongs to its upstream.
    stage.catalog.remove("a").unwrap();
    let mut sound = SoundEntries::default();
    let said = refused(sound.take(&stage.catalog, &store, &b, Some("a"), true));
    assert!(said.contains("already holds a copy of"), "{said}");
    sound.take(&stage.catalog, &store, &a, Some("a"), false).unwrap();
    assert_eq!(sound.new, ["a"]);
}

#[test]
fn repositories_are_found_by_name_and_pattern() {
    let (stage, _) = mirrored(&["h"]);
    let catalog = stage.catalog;
    let names = ["h/a", "h/b", "h/b.c", "g/a"].map(|name| NewRepository::new(name, "git://h/x"));
    catalog.add(&names, stage.clock.now()).unwrap();
    let found = |pattern: &str| -> Vec<String> {
        weir_pool::matching(&catalog, Some(pattern)).unwrap().into_iter().map(|r| r.name).collect()
    };
    assert_eq!(found("h/*"), ["h/a", "h/b", "h/b.c"]);
    assert_eq!(found("*/a"), ["g/a", "h/a"]);
    assert_eq!(weir_pool::get(&catalog, "/h/a.git/").unwrap().name, "h/a");
    assert!(matches!(weir_pool::matching(&catalog, Some("x*")), Err(Error::NoMatch(_))));
    assert!(matches!(weir_pool::get(&catalog, "g"), Err(Error::NotOne { count: 1, .. })));
    let any = ["h/b*".to_owned(), "h/b.git".to_owned(), "g/a".to_owned()];
    assert_eq!(weir_pool::matching_any(&catalog, &any).unwrap().len(), 3);
}
