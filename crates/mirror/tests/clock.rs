//! Tests of schedules, retries, pauses and leases with a clock that the test sets. Catalog, archives and git
//! repositories are real; no test sleeps.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_catalog::{Catalog, NewRepository, Repository};
use weir_ground::{Clock, Stop, Timestamp};
use weir_mirror::schedule::Policy;
use weir_mirror::throttle::{Throttle, ThrottlePolicy};
use weir_mirror::{
    Batches, Compacting, Event, ForgeRefs, Mirror, MirrorOptions, RefsWanted, Scratch, Space, Summary,
    VisitOptions,
};
use weir_repo::ingest::{IngestLimits, Quota};
use weir_transport::{LocalServer, LocalStream, TransportOptions};
use weir_upload::{UploadOptions, UploadPack, Version};

const HOUR_S: u64 = 3600;
const LEASE_S: u64 = 600;
const START: Timestamp = Timestamp(1_800_000_000);

/// Serves directories over a socket pair. Refuses all connections while `are_broken` is set.
struct Upstreams {
    clock: Clock,
    are_broken: AtomicBool,
    /// When each was asked.
    asked: Mutex<Vec<Timestamp>>,
}

impl LocalServer for Upstreams {
    fn connect(&self, path: &Path) -> Result<LocalStream, String> {
        self.asked.lock().unwrap().push(self.clock.now());
        if self.are_broken.load(Ordering::Relaxed) {
            return Err("out of order".to_owned());
        }
        let repo = Arc::new(weir_repo::open_directory(path).map_err(|e| e.to_string())?);
        let (ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
        let reader = ours.try_clone().map_err(|e| e.to_string())?;
        std::thread::spawn(move || {
            let mut machine = UploadPack::new(repo, Version::V2, UploadOptions::default());
            let cancelled = AtomicBool::new(false);
            let _ = weir_serve::serve_blocking(&mut machine, &mut &theirs, &mut &theirs, &cancelled, &|_| {});
        });
        Ok((Box::new(reader), Box::new(ours)))
    }
}

struct Stage {
    folder: tempfile::TempDir,
    clock: Clock,
    catalog: Catalog,
    upstreams: Arc<Upstreams>,
    mirror: Mirror,
}

impl Stage {
    /// Creates upstreams with these names and registers them.
    fn new(names: &[&str], window: u32) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        std::fs::create_dir(&store).unwrap();
        let clock = Clock::set_to(START);
        let upstreams = Arc::new(Upstreams {
            clock: clock.clone(),
            are_broken: AtomicBool::new(false),
            asked: Mutex::default(),
        });
        let space = Arc::new(Space::new(store.clone(), 0, None));
        let visit = VisitOptions {
            transport: TransportOptions { local: Some(upstreams.clone()), ..TransportOptions::default() },
            limits: IngestLimits::default(),
            scratch: Scratch { folder: None, pack_bytes_max: 0, quota: Quota::new(0) },
            threads: 1,
            refs: RefsWanted::default(),
            delta_bytes_max: 1 << 20,
            progress: Arc::default(),
            lfs: false,
            space: space.clone(),
            compacting: Compacting { packs_max: 50, unused_percent_max: 100 },
            accepts_empty: false,
            store: None,
        };
        let options = MirrorOptions {
            lease_s: LEASE_S,
            jobs: 1,
            jobs_per_host: 1,
            schedule: Policy {
                interval_s: Some(HOUR_S),
                interval_daily_s: HOUR_S,
                interval_min_s: HOUR_S,
                interval_max_s: HOUR_S,
                retry_s: 60,
                retry_max_s: 600,
                gone_s: 86_400,
                forbidden_s: 86_400,
            },
            shares_forks: false,
            rules: Vec::new(),
            forge_refs: ForgeRefs { named: Default::default(), others: Vec::new() },
        };
        let policy = ThrottlePolicy { window, leak_ms: 86_400_000, pause_ms: 300_000 };
        let throttle = Mutex::new(Throttle::new(policy));
        let mirror = Mirror { store, visit, options, throttle, space, clock: clock.clone() };
        let catalog = Catalog::open(&folder.path().join("catalog.db")).unwrap();
        let mut stage = Stage { folder, clock, catalog, upstreams, mirror };
        for name in names {
            stage.git(&["init", "-q", "--bare", "-b", "main", name]);
            stage.commit(name);
        }
        let list: Vec<_> = names
            .iter()
            .map(|name| NewRepository::new(name, &stage.path(name).display().to_string()))
            .collect();
        stage.catalog.add(&list, START).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn git(&self, args: &[&str]) -> String {
        let who = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
        let mut git = Command::new("git");
        git.args(args).current_dir(self.folder.path()).envs(who.map(|key| (key, "a@b")));
        let output = git.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Adds a commit to the upstream `name`.
    fn commit(&self, name: &str) {
        let tree = self.git(&["-C", name, "mktree"]);
        let commit = self.git(&["-C", name, "commit-tree", "-m", &self.clock.now().to_string(), &tree]);
        self.git(&["-C", name, "update-ref", "refs/heads/main", &commit]);
    }

    fn get(&self, name: &str) -> Repository {
        self.catalog.get(name).unwrap().unwrap()
    }

    /// Visits all due repositories. Returns the summary, and the result of each visit and pause by name. A
    /// pause of all visits, which a run waits for, is over at once.
    fn run(&mut self) -> (Summary, BTreeMap<String, String>) {
        let clock = self.clock.clone();
        let now = || clock.now();
        let mut batches = Batches::due(&self.catalog, "us", LEASE_S, &now).once();
        let first = batches.first(&mut self.catalog).unwrap();
        let mut told = BTreeMap::new();
        let mut observe = |event: Event<'_>| match event {
            Event::Ended(repository, result, _) => {
                let said = result.as_ref().map_or_else(|e| e.class.name(), |_| "well");
                told.insert(repository.name.clone(), said.to_owned());
            }
            Event::Paused(pause) => {
                told.insert("pause".to_owned(), pause.cause.name().to_owned());
                if pause.host.is_none() {
                    clock.advance(Duration::from_millis(pause.until_ms - clock.now().as_u64() * 1000));
                }
            }
            _ => {}
        };
        let more = &mut |catalog: &mut Catalog, ahead_only: bool| batches.more(catalog, ahead_only);
        let summary =
            self.mirror.run(&mut self.catalog, first, more, &Stop::default(), &mut observe).unwrap();
        (summary, told)
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

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
    // Nobody listens at these, which have been due for longest.
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
    // Two pauses outlast the lease of what comes last.
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
