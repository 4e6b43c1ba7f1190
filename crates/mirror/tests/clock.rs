//! Tests of schedules, retries, pauses and leases with a clock that the test sets. Catalog, archives and git
//! repositories are real; no test sleeps.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use weir_catalog::{Catalog, EventKind, NewRepository, PoolEvent};
use weir_ground::Stop;
use weir_mirror::throttle::{Cause, Throttle, ThrottlePolicy};
use weir_mirror::{Batches, Event, Space, Summary};
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
    stage.catalog.visits().hint(&[stage.get("a").id], stage.clock.now()).unwrap();
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
    // These repositories have been due for longest.
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
    let stage = Stage::new(&["a"], 0);
    let clock = stage.clock.clone();
    let now = || clock.now();
    let mut batches = Batches::due(&stage.catalog, "us", LEASE_S, &now).once();
    let first = batches.first(&stage.catalog).unwrap();
    assert_eq!(first.repositories.len(), 1);
    // This machine sleeps until its lease ends, and another machine takes the repository.
    stage.pass(LEASE_S);
    let leased = Batches::due(&stage.catalog, "them", LEASE_S, &now).once().first(&stage.catalog).unwrap();
    assert_eq!(leased.repositories.len(), 1);
    let none = &mut |_: &Catalog, _: bool| Ok(Default::default());
    let summary = stage.mirror.run(&stage.catalog, first, none, &Stop::default(), &mut |_| {}).unwrap();
    assert_eq!(summary, Summary { put_off: 1, ..Summary::default() });
    let a = stage.get("a");
    assert_eq!((a.epoch, a.last_attempt), (leased.repositories[0].epoch, None), "theirs it stays");
}

/// Repositories at three addresses where no server listens.
fn refused(n: usize) -> NewRepository {
    NewRepository::new(&format!("r{n}"), &format!("git://127.0.0.{}:1/r", 1 + n % 3))
}

#[test]
fn run_that_does_not_wait_ends_at_a_pause_and_the_next_one_visits_what_it_left() {
    let mut stage = Stage::new(&["well"], 3);
    stage.mirror.options.waits_out_pauses = false;
    stage.run();
    stage.catalog.add(&(0..20).map(refused).collect::<Vec<_>>(), stage.clock.now()).unwrap();
    stage.pass(2 * HOUR_S);
    let began = stage.clock.now();
    let (summary, told) = stage.run();
    assert_eq!(told["left"], "many hosts fail: the network", "{told:?}");
    assert_eq!((summary.failed + summary.left, summary.put_off, summary.updated), (21, 0, 0), "{summary:?}");
    assert_eq!((stage.clock.now(), stage.catalog.visits().throttles(began).unwrap().len()), (began, 0));
    // What was left is due as before, and leased to nobody.
    let policy = ThrottlePolicy { window: 0, leak_ms: 1, pause_ms: 0 };
    stage.mirror.throttle = Mutex::new(Throttle::new(policy));
    let (next, told) = stage.run();
    assert_eq!((next.failed, next.unchanged, next.left), (20 - summary.failed, 1, 0), "{told:?}");
}

#[test]
fn run_that_does_not_wait_leaves_the_rest_of_a_host_that_fails() {
    let mut stage = Stage::new(&["well"], 3);
    stage.mirror.options.waits_out_pauses = false;
    let refused = |n| NewRepository::new(&format!("r{n}"), "git://127.0.0.1:1/r");
    stage.catalog.add(&(0..9).map(refused).collect::<Vec<_>>(), stage.clock.now()).unwrap();
    let (summary, told) = stage.run();
    assert_eq!((summary.updated, summary.failed, summary.left, summary.put_off), (1, 3, 6, 0), "{summary:?}");
    assert_eq!(told["left"], "the host fails");
    // Nobody pauses any more, and the next run takes what was left.
    assert!(stage.catalog.visits().throttles(stage.clock.now()).unwrap().is_empty());
    stage.mirror.throttle = Mutex::new(Throttle::new(ThrottlePolicy { window: 0, leak_ms: 1, pause_ms: 0 }));
    assert_eq!(stage.run().0.failed, 6);
}

#[test]
fn run_that_does_not_wait_finds_what_is_unchanged_and_leaves_the_rest_where_room_is_short() {
    let mut stage = Stage::new(&["a", "b"], 3);
    stage.mirror.options.waits_out_pauses = false;
    let short = |stage: &mut Stage, free_bytes_min| {
        let space = Arc::new(Space::new(stage.mirror.store.clone(), free_bytes_min, None));
        stage.mirror.visit.space = space.clone();
        stage.mirror.space = space;
    };
    short(&mut stage, u64::MAX);
    let (summary, told) = stage.run();
    assert_eq!(summary, Summary { left: 2, ..Summary::default() });
    assert_eq!(told["left"], "less space is free than store.free_bytes_min");
    short(&mut stage, 0);
    assert_eq!(stage.run().0.updated, 2);
    // An upstream can be asked without room. One that has changed is left, and due as before.
    stage.pass(2 * HOUR_S);
    stage.commit("a");
    short(&mut stage, u64::MAX);
    let (summary, told) = stage.run();
    assert_eq!(summary, Summary { left: 1, unchanged: 1, ..Summary::default() }, "{told:?}");
    assert_eq!(told["b"], "well");
    short(&mut stage, 0);
    let (next, _) = stage.run();
    assert_eq!((next.updated, next.unchanged, next.left), (1, 0, 0), "{next:?}");
}

#[test]
fn pause_of_a_process_that_was_killed_is_cleared_by_a_visit_that_goes_well() {
    let mut stage = Stage::new(&["a"], 3);
    let (now, until) = (stage.clock.now(), stage.clock.now() + 86_400);
    let hosts = |stage: &Stage| -> Vec<String> {
        stage.catalog.visits().throttles(now).unwrap().into_iter().map(|pause| pause.host).collect()
    };
    stage.catalog.visits().set_throttle("other:9418", "the host fails", now, until).unwrap();
    stage.catalog.visits().set_throttle("", Cause::DiskFull.name(), now, until).unwrap();
    assert_eq!(stage.run().0.updated, 1);
    assert_eq!(hosts(&stage), ["other:9418"]);
    // A visit to a local path that finds nothing new shows neither a network nor room.
    for cause in [Cause::DiskFull, Cause::Network] {
        stage.catalog.visits().set_throttle("", cause.name(), now, until).unwrap();
        stage.pass(2 * HOUR_S);
        assert_eq!(stage.run().0.unchanged, 1);
        assert_eq!(hosts(&stage), ["", "other:9418"]);
    }
}

#[test]
fn pause_that_another_process_clears_is_over() {
    let stage = Stage::new(&["a"], 3);
    stage.catalog.add(&(0..20).map(refused).collect::<Vec<_>>(), stage.clock.now()).unwrap();
    let other = Catalog::open(&stage.path("catalog.db")).unwrap();
    let (mut resumed, stop) = (0, Stop::default());
    let mut observe = |event: Event<'_>| match event {
        Event::Happened(PoolEvent { kind: EventKind::Paused { host: None, .. }, .. }) => {
            other.visits().end_throttle("").unwrap()
        }
        Event::Happened(PoolEvent { kind: EventKind::Resumed, .. }) => resumed += 1,
        _ => {}
    };
    let one_pass = weir_stage::one_pass(&stage.mirror);
    let summary = one_pass.run(&stage.catalog, &mut |_| Ok(None), &stop, &mut observe).unwrap();
    // The clock stands still: without an end by the other process this would wait for ever.
    assert_eq!((summary.failed + summary.put_off, summary.updated), (20, 1), "{summary:?}");
    assert!(resumed > 0);
}
