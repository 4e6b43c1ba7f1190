//! A pool for tests, without the program: real git repositories, a catalog, archives, and a clock that the
//! test sets. No test on it sleeps.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_catalog::{Catalog, EventKind, NewRepository, PoolEvent, Repository};
use weir_ground::thread::spawn;
use weir_ground::{Clock, Stop, Timestamp};
use weir_mirror::schedule::Policy;
use weir_mirror::throttle::{Throttle, ThrottlePolicy};
use weir_mirror::{
    Arrivals, Compacting, Event, ForgeRefs, Mirror, MirrorLoop, MirrorOptions, RefsWanted, Scratch, Space,
    Summary, VisitOptions,
};
use weir_repo::ingest::{IngestLimits, Quota};
use weir_testing::run_git;
use weir_transport::{LocalServer, LocalServerError, LocalStream, TransportOptions};
use weir_upload::{UploadOptions, UploadPack, Version};

/// Seconds of an hour, the interval of visits.
pub const HOUR_S: u64 = 3600;
/// Seconds of a lease.
pub const LEASE_S: u64 = 600;
/// The time at which a stage begins.
pub const START: Timestamp = Timestamp(1_800_000_000);

/// Serves directories over a socket pair. Refuses all connections while `are_broken` is set.
pub struct Upstreams {
    clock: Clock,
    /// Whether to refuse all connections.
    pub are_broken: AtomicBool,
    /// The times of all connections.
    pub asked: Mutex<Vec<Timestamp>>,
}

impl LocalServer for Upstreams {
    fn connect(&self, path: &Path) -> Result<LocalStream, LocalServerError> {
        self.asked.lock().unwrap().push(self.clock.now());
        if self.are_broken.load(Ordering::Relaxed) {
            return Err(LocalServerError::of("out of order"));
        }
        let repo = Arc::new(weir_repo::open_directory(path).map_err(LocalServerError::of)?);
        let (ours, theirs) = UnixStream::pair().map_err(LocalServerError::of)?;
        let reader = ours.try_clone().map_err(LocalServerError::of)?;
        let serve = move || {
            let mut machine = UploadPack::new(repo, Version::V2, UploadOptions::default());
            let cancelled = AtomicBool::new(false);
            let _ = weir_serve::serve_blocking(&mut machine, &mut &theirs, &mut &theirs, &cancelled, &|_| {});
        };
        spawn("upstream", serve).map_err(LocalServerError::of)?;
        Ok((Box::new(reader), Box::new(ours)))
    }
}

/// Returns a mirror loop that makes one pass.
pub fn one_pass(mirror: &Mirror) -> MirrorLoop<'_> {
    MirrorLoop { mirror, owner: "us", watch: false, all_first: false, retry: Duration::ZERO }
}

/// A pool, and the upstreams of its repositories.
pub struct Stage {
    folder: tempfile::TempDir,
    /// The clock of `mirror`.
    pub clock: Clock,
    /// The pool's catalog.
    pub catalog: Catalog,
    /// The upstreams, git directories.
    pub upstreams: Arc<Upstreams>,
    /// Visits as configured for tests: one at a time.
    pub mirror: Mirror,
}

impl Stage {
    /// Creates upstreams with these names and registers them.
    pub fn new(names: &[&str], window: u32) -> Stage {
        let folder = weir_testing::folder();
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
            arrivals: Arrivals::default(),
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
            waits_out_pauses: true,
            shares_forks: None,
            events_keep_s: HOUR_S,
            debounce_s: 0,
            rules: Vec::new(),
            forge_refs: ForgeRefs { named: Default::default(), others: Vec::new() },
        };
        let policy = ThrottlePolicy { window, leak_ms: 86_400_000, pause_ms: 300_000 };
        let throttle = Mutex::new(Throttle::new(policy));
        let mirror = Mirror { store, visit, options, throttle, space, clock: clock.clone() };
        let catalog = Catalog::open(&folder.path().join("catalog.db")).unwrap();
        let stage = Stage { folder, clock, catalog, upstreams, mirror };
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

    /// Returns the path of the upstream, or other file, called `name`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs git in the stage's folder. Returns what it prints.
    pub fn git(&self, args: &[&str]) -> String {
        let printed = run_git(self.folder.path(), args, b"");
        String::from_utf8(printed).unwrap().trim().to_owned()
    }

    /// Adds a commit to the upstream `name`.
    pub fn commit(&self, name: &str) {
        let tree = self.git(&["-C", name, "mktree"]);
        let commit = self.git(&["-C", name, "commit-tree", "-m", &self.clock.now().to_string(), &tree]);
        self.git(&["-C", name, "update-ref", "refs/heads/main", &commit]);
    }

    /// Returns the repository called `name`.
    pub fn get(&self, name: &str) -> Repository {
        self.catalog.get(name).unwrap().unwrap()
    }

    /// Visits all due repositories. Returns the summary, and the result of each visit and pause by name. A
    /// pause of all visits, which a run waits for, is over at once.
    pub fn run(&mut self) -> (Summary, BTreeMap<String, String>) {
        let clock = self.clock.clone();
        let mut told = BTreeMap::new();
        let mut observe = |event: Event<'_>| {
            let Event::Happened(PoolEvent { subject, kind, .. }) = event else { return };
            let name = || subject.as_ref().unwrap().name.clone();
            let (whom, what) = match kind {
                EventKind::Update(_) | EventKind::Unchanged(_) => (name(), "well".to_owned()),
                EventKind::Failed(failure) => (name(), failure.class.name().to_owned()),
                EventKind::Paused { host, cause, until } => {
                    if host.is_none() {
                        clock.advance(until.since(clock.now()));
                    }
                    ("pause".to_owned(), cause.clone())
                }
                EventKind::Left { cause, .. } => ("left".to_owned(), cause.clone()),
                _ => return,
            };
            told.insert(whom, what);
        };
        let summary = one_pass(&self.mirror)
            .run(&self.catalog, &mut |_| Ok(None), &Stop::default(), &mut observe)
            .unwrap();
        (summary, told)
    }

    /// Sets the clock forward.
    pub fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}
