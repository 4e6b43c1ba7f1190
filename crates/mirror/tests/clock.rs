//! Tests of schedules, retries, pauses and leases with a clock that the test sets. Catalog, archives and git
//! repositories are real; no test sleeps.

use std::sync::atomic::Ordering;

use weir_catalog::{Catalog, NewRepository};
use weir_ground::Stop;
use weir_mirror::{Batches, Summary};
use weir_stage::{HOUR_S, LEASE_S, START, Stage};

#[test]
fn a_repository_is_due_when_its_time_has_come() {
    let mut stage = Stage::new(&["a"], 0);
    assert_eq!(stage.run().0.updated, 1);
    let due = stage.get("a").next_due;
    assert!((HOUR_S as i64..=HOUR_S as i64 * 11 / 10).contains(&(due - START)), "{}", due - START);
    stage.pass((due - START) as u64 - 1);
    assert_eq!(stage.run().0, Summary::default(), "a second early");
    stage.pass(1);
    assert_eq!(stage.run().0, Summary { unchanged: 1, ..Summary::default() });
    // The next scheduled visit fetches the change; a hint makes the visit happen at once.
    stage.commit("a");
    assert_eq!(stage.run().0, Summary::default());
    stage.catalog.hint(&[stage.get("a").id], stage.clock.now()).unwrap();
    let (summary, _) = stage.run();
    assert_eq!((summary.updated, stage.get("a").last_change), (1, Some(stage.clock.now())));
}

#[test]
fn a_failure_is_tried_again_ever_later() {
    let mut stage = Stage::new(&["a"], 0);
    stage.run();
    stage.upstreams.are_broken.store(true, Ordering::Relaxed);
    stage.pass(2 * HOUR_S);
    let mut waits = Vec::new();
    for failures in 1..=6 {
        let (summary, told) = stage.run();
        assert_eq!((summary.failed, told["a"].as_str()), (1, "server"));
        let a = stage.get("a");
        assert_eq!((a.failures, a.error_class.map(|class| class.name())), (failures, Some("server")));
        waits.push(a.next_due - stage.clock.now());
        stage.pass(waits[waits.len() - 1] as u64);
    }
    // Each wait doubles, up to the maximum. The schedule adds up to a tenth.
    for (wait, least) in waits.iter().zip([60, 120, 240, 480, 600, 600]) {
        assert!((least..=least * 11 / 10).contains(wait), "{waits:?}");
    }
    stage.upstreams.are_broken.store(false, Ordering::Relaxed);
    assert_eq!(stage.run().0.unchanged, 1);
    assert_eq!((stage.get("a").failures, stage.get("a").error_class), (0, None));
}

#[test]
fn a_host_that_fails_is_left_alone_until_its_pause_is_over() {
    let names: Vec<String> = (0..20).map(|n| format!("r{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut stage = Stage::new(&names, 3);
    stage.upstreams.are_broken.store(true, Ordering::Relaxed);
    let (summary, told) = stage.run();
    assert!((3..=5).contains(&summary.failed), "{summary:?}");
    assert_eq!((summary.failed + summary.put_off, told["pause"].as_str()), (20, "the host fails"));
    assert!(names.iter().all(|name| stage.get(name).next_due > stage.clock.now()));
    // Before the end of the pause weir visits nothing. Afterwards it visits all, and the host answers.
    stage.upstreams.are_broken.store(false, Ordering::Relaxed);
    let put_off = names.iter().filter(|name| stage.get(name).failures == 0).count();
    assert_eq!(put_off, summary.put_off);
    stage.pass(299);
    let early = stage.run().0;
    assert_eq!((early.updated, early.failed), (0, 0), "{early:?}");
    stage.pass(60);
    let (summary, told) = stage.run();
    assert_eq!((summary.updated, summary.failed), (20, 0), "{told:?}");
}

#[test]
fn a_network_that_is_down_stops_all_visits_until_the_pause_is_over() {
    let mut stage = Stage::new(&["well"], 3);
    stage.run();
    // No server listens at these addresses. These repositories have been due for longest.
    let refused = |n| NewRepository::new(&format!("r{n}"), &format!("git://127.0.0.{}:1/r", 1 + n % 3));
    stage.catalog.add(&(0..20).map(refused).collect::<Vec<_>>(), stage.clock.now()).unwrap();
    stage.pass(2 * HOUR_S);
    let began = stage.clock.now();
    let (summary, told) = stage.run();
    assert_eq!(
        (told["r0"].as_str(), told["pause"].as_str()),
        ("network", "many hosts fail: the network"),
        "{told:?}"
    );
    assert!(summary.failed < 10, "{summary:?}");
    // Two pauses last longer than the lease of the last repository.
    let mut unchanged = summary.unchanged;
    while unchanged == 0 {
        stage.pass(60);
        unchanged = stage.run().0.unchanged;
    }
    let visited = *stage.upstreams.asked.lock().unwrap().last().unwrap();
    assert!(visited - began >= 300, "a visit {} s after the network failed", visited - began);
}

#[test]
fn what_was_leased_for_too_long_is_nobodys_to_visit() {
    let mut stage = Stage::new(&["a"], 0);
    let clock = stage.clock.clone();
    let now = || clock.now();
    let mut batches = Batches::due(&stage.catalog, "us", LEASE_S, &now).once();
    let first = batches.first(&mut stage.catalog).unwrap();
    assert_eq!(first.repositories.len(), 1);
    // This machine sleeps until its lease ends, and another machine takes the repository.
    stage.pass(LEASE_S);
    let leased =
        Batches::due(&stage.catalog, "them", LEASE_S, &now).once().first(&mut stage.catalog).unwrap();
    assert_eq!(leased.repositories.len(), 1);
    let none = &mut |_: &mut Catalog, _: bool| Ok(Default::default());
    let summary = stage.mirror.run(&mut stage.catalog, first, none, &Stop::default(), &mut |_| {}).unwrap();
    assert_eq!(summary, Summary { put_off: 1, ..Summary::default() });
    let a = stage.get("a");
    assert_eq!((a.epoch, a.last_attempt), (leased.repositories[0].epoch, None), "theirs it stays");
}
