//! Looks at the metadata of repositories: a client of GitHub, a server of recorded answers, a catalog and
//! archives.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use weir_catalog::clock::now;
use weir_catalog::{ArchiveEnd, Catalog, EventKind, EventReader, MetadataLook, MetadataTask, Repository};
use weir_forge::{Api, ApiOptions, Forge, GitHub, MetadataKind};
use weir_git::HashKind;
use weir_ground::{Epoch, OtherError, Seq, Stop, Timestamp};
use weir_listed::{Listed, RequestBudget};
use weir_metadata::{Error, LookOutcome, Place, Schedule, run};
use weir_mirror::throttle::Cause;
use weir_mirror::{Scratch, Space};
use weir_repo::ingest::Quota;
use weir_repo::{ArchiveRepo, Head, NewState, Refs, Repo, StateKind};
use weir_testing::{RecordedAnswer, RecordedServer};

/// Seconds between looks.
const INTERVAL_S: i64 = 1000;
const ISSUES: &str = "issues?state=all&sort=updated&direction=asc&per_page=100&page=1";
const COMMENTS: &str = "issues/comments?sort=updated&direction=asc&per_page=100&page=1";
const LABELS: &str = "labels?&per_page=100&page=";
const MILESTONES: &str = "milestones?state=all&per_page=100&page=1";
const RELEASES: &str = "releases?&per_page=100&page=1";
const ALL: [&str; 5] = [ISSUES, COMMENTS, "labels?&per_page=100&page=1", MILESTONES, RELEASES];
const KINDS: [MetadataKind; 2] = [MetadataKind::Issues, MetadataKind::Releases];

/// A catalog with repositories of the forge `f`, whose ids there are 1, 2 and so on, their archives, and the
/// server of the forge, which has empty lists.
struct LookStage {
    folder: tempfile::TempDir,
    catalog: Catalog,
    server: RecordedServer,
    place: Place,
    told: RefCell<Vec<(String, LookOutcome)>>,
}

/// The parts of a run that tests change.
struct RunPlan<'a> {
    wanted: &'a [MetadataKind],
    ids: Option<&'a [i64]>,
    watch: bool,
    is_wanted_by_default: bool,
    /// Set to stop after the first report.
    stops: bool,
}

const PLAN: RunPlan<'_> =
    RunPlan { wanted: &KINDS, ids: None, watch: false, is_wanted_by_default: true, stops: false };

fn listed(id: usize) -> Listed {
    Listed {
        forge_id: id.to_string(),
        full_name: format!("o/r{id}"),
        clone_url: format!("https://me@h/o/r{id}.git"),
        ..Listed::default()
    }
}

/// Waits for nothing, and ends what would have to wait for a limit.
fn wait_never(time: Duration) -> bool {
    time < Duration::from_secs(1)
}

impl LookStage {
    fn new(count: usize) -> LookStage {
        let folder = weir_testing::folder();
        let catalog = Catalog::open(&folder.path().join("catalog.db")).unwrap();
        let store = folder.path().join("store");
        let rows: Vec<_> = (1..=count).map(|id| (format!("f/r{id}"), listed(id))).collect();
        let mut listing = catalog.listings().begin("f", "scope", Timestamp(5)).unwrap();
        catalog.listings().take_page(&mut listing, &rows, None, Timestamp(5)).unwrap();
        let place = Place {
            store: store.clone(),
            scratch: Scratch { folder: None, pack_bytes_max: 0, quota: Quota::new(0) },
            space: Space::new(store, 0, None),
            interval: Duration::from_secs(INTERVAL_S as u64),
        };
        let server = RecordedServer::start();
        let stage = LookStage { folder, catalog, server, place, told: RefCell::default() };
        for id in 1..=count {
            let path = stage.archive(id);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut archive = ArchiveRepo::create(&path, HashKind::Sha1, 1).unwrap();
            let state = NewState {
                refs: Cow::Owned(Refs::new(Vec::new(), Head::default())),
                shallow: &[],
                time: Timestamp(5),
                epoch: Epoch::NONE,
                kind: StateKind::Mirrored,
            };
            archive.commit(None, state).unwrap();
            let (seq, bytes) = archive.committed().unwrap();
            let end = ArchiveEnd { seq: Seq(seq), bytes };
            stage.catalog.archives().set_imported(stage.get(id).id, end, 0).unwrap();
            ALL.iter().for_each(|path| stage.list(id, path, &[]));
        }
        stage
    }

    fn get(&self, id: usize) -> Repository {
        self.catalog.get(&format!("f/r{id}")).unwrap().unwrap()
    }

    fn archive(&self, id: usize) -> PathBuf {
        self.place.store.join(self.get(id).path)
    }

    /// Makes the server answer with `answer` to requests for `path` of a repository.
    fn answer(&self, id: usize, path: &str, answer: RecordedAnswer) {
        let line = format!("GET /api/v3/repositories/{id}/{path}");
        self.server.forget(&line);
        self.server.put(&line, answer);
    }

    fn list(&self, id: usize, path: &str, items: &[Value]) {
        self.answer(id, path, RecordedAnswer::json(json!(items)));
    }

    fn open(&self, wait: impl FnMut(Duration) -> bool + Send + 'static) -> Box<dyn Forge> {
        let options = ApiOptions {
            tries: 1,
            retry: Duration::from_millis(1),
            wait: Box::new(wait),
            ..ApiOptions::default()
        };
        Box::new(GitHub::new(&self.server.url(), Vec::new(), Vec::new(), Api::new(options)))
    }

    /// Runs a schedule. Returns its result, and what it told.
    fn run_as(&self, plan: &RunPlan<'_>) -> (weir_metadata::Result<bool>, Vec<(String, LookOutcome)>) {
        self.run_with(plan, &|_| Ok(self.open(wait_never)))
    }

    fn run_with(
        &self,
        plan: &RunPlan<'_>,
        open: &weir_metadata::OpenForge<'_>,
    ) -> (weir_metadata::Result<bool>, Vec<(String, LookOutcome)>) {
        let stop = Stop::default();
        let schedule = Schedule {
            owner: "us",
            forge: "f",
            is_wanted_by_default: plan.is_wanted_by_default,
            wanted: plan.wanted,
            ids: plan.ids,
            watch: plan.watch,
            open,
            report: &|name, outcome| {
                self.told.borrow_mut().push((name.to_owned(), outcome.clone()));
                if plan.stops {
                    stop.stop();
                }
                Ok(())
            },
        };
        let result = run(&self.catalog, &self.place, &schedule, &stop);
        (result, self.told.take())
    }

    /// Looks at the first repository, due or not. Returns whether it failed, and the outcome.
    fn look(&self) -> (bool, LookOutcome) {
        let (failed, mut told) = self.run_as(&RunPlan { ids: Some(&[self.get(1).id]), ..PLAN });
        assert_eq!(told.len(), 1);
        (failed.unwrap(), told.remove(0).1)
    }

    /// Leases a repository whose next look is due within `seconds`. The lease ends at once.
    fn due_in(&self, seconds: i64) -> Option<MetadataTask> {
        let at = now();
        self.catalog.metadata().lease("probe", "f", None, at + seconds, (at, at)).unwrap()
    }

    /// Checks that the next look is due in `seconds`, or up to 20 seconds sooner: the test itself takes time.
    fn assert_due_in(&self, seconds: i64) {
        assert!(self.due_in(seconds - 20).is_none(), "it is due before {seconds}");
        assert!(self.due_in(seconds + 5).is_some(), "it is not due after {seconds}");
    }

    /// Ends a look at the first repository as if it had been at `at`, and is due by now.
    fn end_look(&self, at: Timestamp, is_changed: bool, error: Option<&str>) {
        let id = self.get(1).id;
        self.catalog.metadata().note_of("f", &[id]).unwrap();
        let term = (now(), now() + 10);
        let task = self.catalog.metadata().lease("us", "f", Some(id), now(), term).unwrap().unwrap();
        let (epoch, error) = (task.epoch, error.map(str::to_owned));
        let look = MetadataLook { id, epoch, at, due_at: Timestamp(1), is_changed, error };
        assert!(self.catalog.metadata().end(&look).unwrap());
    }

    /// Returns the lines of a stream in the archive of the first repository.
    fn lines(&self, stream: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        let repo = Repo::open_archive(&self.archive(1)).unwrap();
        repo.metadata(stream, &mut |line| {
            lines.push(serde_json::from_slice(line).unwrap());
            true
        })
        .unwrap();
        lines
    }

    fn cursor(&self, stream: &str) -> Option<Value> {
        let repo = Repo::open_archive(&self.archive(1)).unwrap();
        repo.metadata_cursor(stream).map(|cursor| serde_json::from_str(cursor).unwrap())
    }

    fn events(&self) -> Vec<EventKind> {
        let kinds = vec!["metadata".to_owned()];
        let reader = EventReader { name: "r".to_owned(), part: 0, parts: 1, kinds };
        let logged = self.catalog.events().after(&reader, 0, 100).unwrap();
        logged.into_iter().map(|logged| logged.event.kind).collect()
    }
}

fn item(id: u64) -> Value {
    json!({ "id": id, "updated_at": "2024-03-01T00:00:10Z" })
}

fn label(id: u64) -> Value {
    json!({ "id": id, "name": format!("l{id}") })
}

fn added(list: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
    list.iter().copied().collect()
}

#[test]
fn look_takes_all_streams_into_the_archive_in_one_commit() {
    let stage = LookStage::new(1);
    let release = |count: u64| json!({ "id": 50, "assets": [{ "download_count": count }] });
    stage.list(1, ISSUES, &[item(1), item(2)]);
    stage.list(1, COMMENTS, &[item(11)]);
    let first = RecordedAnswer::json(json!([label(21), label(22)]));
    stage.answer(1, &format!("{LABELS}1"), first.header("Link", "<x>; rel=\"next\""));
    stage.list(1, &format!("{LABELS}2"), &[label(23)]);
    let limited = RecordedAnswer::json(json!([release(1)]))
        .header("X-RateLimit-Remaining", "7")
        .header("X-RateLimit-Reset", "3000000000");
    stage.answer(1, RELEASES, limited);
    let (failed, told) = stage.run_as(&PLAN);
    let expected = added(&[("comments", 1), ("issues", 2), ("labels", 3), ("releases", 1)]);
    assert!(!failed.unwrap());
    assert_eq!((told.len(), told[0].0.as_str(), &told[0].1.added), (1, "f/r1", &expected));
    assert_eq!((told[0].1.is_cut, told[0].1.error.as_deref()), (false, None));
    assert_eq!(stage.lines("issues"), [item(1), item(2)]);
    assert_eq!(stage.lines("labels"), [label(21), label(22), label(23)]);
    assert_eq!((stage.lines("comments"), stage.lines("releases")), (vec![item(11)], vec![release(1)]));
    let repository = stage.get(1);
    let bytes = std::fs::metadata(stage.archive(1)).unwrap().len();
    assert_eq!((repository.seq, repository.archive_bytes), (Some(2), Some(bytes as i64)));
    let of_event = expected.iter().map(|(stream, n)| ((*stream).to_owned(), *n)).collect();
    let kind = EventKind::Metadata { added: of_event, error: None };
    assert_eq!(stage.events(), [kind]);
    let budget = RequestBudget {
        credential: "none".to_owned(),
        limit: None,
        remaining: 7,
        reset_at: Timestamp(3_000_000_001),
    };
    assert_eq!(stage.catalog.accounts().budgets(now()).unwrap(), [("f".to_owned(), budget)]);
    stage.assert_due_in(INTERVAL_S);
    let task = stage.due_in(INTERVAL_S + 5).unwrap();
    assert!(task.changed_at.unwrap() > now() - 60 && task.failures == 0);
}

#[test]
fn look_adds_only_news() {
    let stage = LookStage::new(1);
    let release = |id: u64, count: u64| json!({ "id": id, "assets": [{ "download_count": count }] });
    stage.list(1, ISSUES, &[item(1)]);
    stage.list(1, RELEASES, &[release(50, 1)]);
    stage.look();
    let since = "&since=2024-02-29T23%3A50%3A10Z";
    stage.list(1, &format!("{ISSUES}{since}"), &[item(1)]);
    stage.list(1, RELEASES, &[release(50, 2)]);
    // Without news, the archive stays as it is.
    let (failed, outcome) = stage.look();
    assert!(!failed && outcome.added.is_empty() && outcome.error.is_none() && !outcome.is_cut);
    assert_eq!((stage.get(1).seq, stage.events().len()), (Some(2), 1));
    stage.list(1, RELEASES, &[release(50, 3), release(51, 1)]);
    assert_eq!(stage.look().1.added, added(&[("releases", 1)]));
    assert_eq!(stage.lines("releases"), [release(50, 1), release(51, 1)]);
    assert_eq!((stage.get(1).seq, stage.events().len()), (Some(3), 2));
    // A position may move without news.
    let tagged = RecordedAnswer::json(json!([])).header("ETag", "\"e\"");
    stage.answer(1, &format!("{LABELS}1"), tagged);
    assert!(stage.look().1.added.is_empty());
    assert_eq!(stage.cursor("labels"), Some(json!({ "etag": "\"e\"" })));
    assert_eq!((stage.get(1).seq, stage.events().len()), (Some(4), 2));
}

#[test]
fn look_at_what_seldom_changes_is_due_later() {
    let stage = LookStage::new(1);
    for (quiet, due) in [(80_000, 10_000), (100, INTERVAL_S), (10 * 365 * 86_400, 30 * 86_400)] {
        stage.end_look(now() - quiet, true, None);
        assert!(!stage.run_as(&PLAN).0.unwrap());
        stage.assert_due_in(due);
        assert!(stage.due_in(due + 5).unwrap().changed_at.unwrap() < now() - quiet + 60);
    }
    stage.list(1, RELEASES, &[item(1)]);
    assert_eq!(stage.look().1.added, added(&[("releases", 1)]));
    stage.assert_due_in(INTERVAL_S);
}

#[test]
fn look_that_fails_keeps_what_came_and_is_due_later_each_time() {
    let stage = LookStage::new(1);
    stage.list(1, ISSUES, &[item(1)]);
    stage.list(1, RELEASES, &[item(2)]);
    for (failures, due) in [(0, 1), (1, 2), (5, 6), (9, 7)] {
        (0..failures).for_each(|_| stage.end_look(now() - 10, false, Some("before")));
        if failures == 0 {
            stage.end_look(now() - 10, false, None);
        }
        stage.answer(1, COMMENTS, RecordedAnswer::new(500, "no"));
        let (failed, told) = stage.run_as(&PLAN);
        assert!(failed.unwrap() && told[0].1.error.as_deref().unwrap().contains("500"));
        stage.assert_due_in(due * INTERVAL_S);
        assert_eq!((stage.lines("issues"), stage.lines("releases")), (vec![item(1)], vec![item(2)]));
        stage.answer(1, COMMENTS, RecordedAnswer::json("[]"));
        stage.list(1, &format!("{ISSUES}&since=2024-02-29T23%3A50%3A10Z"), &[item(1)]);
        stage.end_look(now(), false, None);
    }
    let events = stage.events();
    assert_eq!(events.len(), 4);
    assert!(events.iter().all(|kind| matches!(kind, EventKind::Metadata { error: Some(_), .. })));
}

#[test]
fn look_counts_failures_of_a_stream() {
    let stage = LookStage::new(1);
    for (status, body, failures) in [
        (500, "no", Some(1)),
        (422, "no", Some(2)),
        (200, "{}", Some(3)),
        (403, "no", Some(3)),
        (404, "no", Some(3)),
        (200, "[]", None),
    ] {
        stage.answer(1, MILESTONES, RecordedAnswer::new(status, body));
        let (failed, outcome) = stage.look();
        let is_failure = !matches!(body, "[]") && !matches!(status, 403 | 404);
        assert_eq!((failed, outcome.error.is_some()), (is_failure, is_failure), "{status} {body}");
        let expected = failures.map_or(json!({}), |n| json!({ "failures": n }));
        assert_eq!(stage.cursor("milestones"), Some(expected), "{status} {body}");
    }
    // A forge that refuses all streams refuses the repository.
    for status in [403, 404] {
        ALL.iter().for_each(|path| stage.answer(1, path, RecordedAnswer::new(status, "no")));
        let (failed, outcome) = stage.look();
        assert!(failed && outcome.error.is_some(), "{status}");
    }
}

#[test]
fn look_that_is_stopped_is_no_failure_and_due_at_once() {
    let stage = LookStage::new(1);
    stage.list(1, ISSUES, &[item(1)]);
    let limited = RecordedAnswer::new(429, "").header("Retry-After", "100");
    stage.answer(1, COMMENTS, limited);
    let (failed, told) = stage.run_as(&RunPlan { stops: true, ..PLAN });
    assert!(!failed.unwrap() && told[0].1.error.is_none() && !told[0].1.is_cut);
    assert_eq!(told[0].1.added, added(&[("issues", 1)]));
    assert_eq!(stage.lines("issues"), [item(1)], "what came is kept");
    assert!(stage.due_in(0).is_some());
}

#[test]
fn look_heeds_a_stop_between_two_pages() {
    let stage = LookStage::new(1);
    let linked = RecordedAnswer::json(json!([label(1)])).header("Link", "<x>; rel=\"next\"");
    stage.answer(1, &format!("{LABELS}1"), linked);
    stage.list(1, &format!("{LABELS}2"), &[label(2)]);
    let open = |stop: &Stop| {
        let (stop, mut left) = (stop.clone(), 3);
        Ok::<_, OtherError>(stage.open(move |_| {
            left -= 1;
            if left == 0 {
                stop.stop();
            }
            true
        }))
    };
    let (failed, told) = stage.run_with(&PLAN, &open);
    assert!(!failed.unwrap() && told[0].1.error.is_none());
    assert_eq!(stage.lines("labels"), [label(1)]);
    assert!(stage.due_in(0).is_some());
}

#[test]
fn look_holds_a_lease_that_each_page_extends() {
    // Request 1 is made with the lease that the look began with, request 5 with one that was extended.
    for (taken_at, pages) in [(1, 1), (5, 3)] {
        let stage = LookStage::new(1);
        for page in 1..5 {
            let linked = RecordedAnswer::json(json!([label(page)])).header("Link", "<x>; rel=\"next\"");
            stage.answer(1, &format!("{LABELS}{page}"), linked);
        }
        stage.list(1, &format!("{LABELS}5"), &[]);
        let path = stage.folder.path().join("catalog.db");
        let open = |_: &Stop| {
            let (path, mut requests) = (path.clone(), 0);
            Ok::<_, OtherError>(stage.open(move |_| {
                requests += 1;
                let other = Catalog::open(&path).unwrap();
                let lease = |at: Timestamp| other.metadata().lease("other", "f", None, at, (at, at)).unwrap();
                // Others get no lease within three hours, and get one afterwards.
                if requests <= taken_at {
                    assert!(lease(now() + 10_000).is_none());
                }
                if requests == taken_at {
                    assert!(lease(now() + 11_000).is_some());
                }
                true
            }))
        };
        let (failed, told) = stage.run_with(&PLAN, &open);
        let outcome = &told[0].1;
        assert!(failed.unwrap() && outcome.error.as_deref().unwrap().contains("lease"), "{outcome:?}");
        let asked = stage.server.lines();
        assert_eq!(asked.iter().filter(|line| line.contains("/labels")).count(), pages, "{asked:?}");
    }
}

#[test]
fn look_waits_for_a_visit_that_is_nearly_done() {
    let stage = LookStage::new(1);
    stage.list(1, ISSUES, &[item(1)]);
    let lock = std::fs::File::open(stage.archive(1)).unwrap();
    lock.lock().unwrap();
    let (failed, outcome) = stage.look();
    assert!(!failed && outcome.is_cut && outcome.error.is_none());
    assert!(stage.lines("issues").is_empty());
    stage.assert_due_in(300);
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1200));
        drop(lock);
    });
    let (failed, outcome) = stage.look();
    other.join().unwrap();
    assert!(!failed && !outcome.is_cut && outcome.error.is_none());
    assert_eq!(stage.lines("issues"), [item(1)]);
}

#[test]
fn schedule_takes_what_is_due_and_ends() {
    let stage = LookStage::new(2);
    let names =
        |told: &[(String, LookOutcome)]| told.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (failed, told) = stage.run_as(&RunPlan { is_wanted_by_default: false, ..PLAN });
    assert!(!failed.unwrap() && told.is_empty(), "nobody wants it");
    let (failed, told) = stage.run_as(&RunPlan { stops: true, ..PLAN });
    assert_eq!((failed.unwrap(), names(&told)), (false, vec!["f/r1".to_owned()]));
    stage.answer(2, COMMENTS, RecordedAnswer::new(500, "no"));
    let (failed, told) = stage.run_as(&PLAN);
    assert_eq!((failed.unwrap(), names(&told)), (true, vec!["f/r2".to_owned()]));
    let (failed, told) = stage.run_as(&PLAN);
    assert!(!failed.unwrap() && told.is_empty(), "nothing is due");
    // Those that are named are looked at, due or not; unknown ones are passed over.
    let ids = [stage.get(1).id, stage.get(2).id, 999];
    let (failed, told) = stage.run_as(&RunPlan { ids: Some(&ids), ..PLAN });
    assert_eq!((failed.unwrap(), names(&told)), (true, vec!["f/r1".to_owned(), "f/r2".to_owned()]));
    let (failed, told) = stage.run_as(&RunPlan { ids: Some(&ids[..1]), ..PLAN });
    assert_eq!((failed.unwrap(), names(&told)), (false, vec!["f/r1".to_owned()]));
    // One that another process looks at is left to it.
    let term = (now(), now() + 100);
    stage.catalog.metadata().lease("other", "f", Some(ids[0]), now(), term).unwrap().unwrap();
    let (failed, told) = stage.run_as(&RunPlan { ids: Some(&ids), ..PLAN });
    assert_eq!((failed.unwrap(), names(&told)), (true, vec!["f/r2".to_owned()]));
    // A run that failed once has failed, however it goes on.
    stage.answer(2, COMMENTS, RecordedAnswer::json("[]"));
    stage.answer(1, COMMENTS, RecordedAnswer::new(500, "no"));
    stage.end_lease_of_other(ids[0]);
    let (failed, told) = stage.run_as(&RunPlan { ids: Some(&ids), ..PLAN });
    assert_eq!((failed.unwrap(), told.len()), (true, 2));
}

impl LookStage {
    /// Ends the lease that another process has, as if its time were over.
    fn end_lease_of_other(&self, id: i64) {
        let later = now() + 200;
        let metadata = self.catalog.metadata();
        let task = metadata.lease("other", "f", Some(id), later, (later, later)).unwrap().unwrap();
        let look =
            MetadataLook { id, epoch: task.epoch, at: now(), due_at: now(), is_changed: false, error: None };
        assert!(metadata.end(&look).unwrap());
    }
}

#[test]
fn schedule_that_watches_goes_on_until_it_is_stopped() {
    let stage = LookStage::new(2);
    stage.answer(1, COMMENTS, RecordedAnswer::new(500, "no"));
    let count = RefCell::new(0);
    let stop = Stop::default();
    let schedule = Schedule {
        owner: "us",
        forge: "f",
        is_wanted_by_default: true,
        wanted: &KINDS,
        ids: None,
        watch: true,
        open: &|_| Ok(stage.open(wait_never)),
        report: &|_, _| {
            *count.borrow_mut() += 1;
            if *count.borrow() == 2 {
                stop.stop();
            }
            Ok(())
        },
    };
    assert!(run(&stage.catalog, &stage.place, &schedule, &stop).unwrap());
    assert_eq!(count.take(), 2);
    assert!(!run(&stage.catalog, &stage.place, &schedule, &stop).unwrap(), "it was stopped before");
    assert_eq!(count.take(), 0);
}

#[test]
fn look_while_watching_leaves_the_rest_of_a_long_stream_to_later() {
    let stage = LookStage::new(1);
    for page in 1..=1001 {
        let linked = RecordedAnswer::json("[]").header("Link", "<x>; rel=\"next\"");
        stage.answer(1, &format!("{LABELS}{page}"), linked);
    }
    let (failed, told) = stage.run_as(&RunPlan { watch: true, stops: true, ..PLAN });
    assert!(!failed.unwrap() && told[0].1.is_cut && told[0].1.error.is_none());
    assert_eq!(stage.cursor("labels"), Some(json!({ "page": 1001 })));
    assert!(stage.due_in(0).is_some(), "the rest is due at once");
    // The next one begins a page earlier, as items may have been removed.
    stage.server.asked();
    stage.list(1, &format!("{LABELS}1000"), &[label(1)]);
    let (_, outcome) = stage.look();
    assert!(!outcome.is_cut);
    let asked = stage.server.lines();
    assert!(asked.iter().any(|line| line.ends_with("page=1000")) && asked.len() == 5, "{asked:?}");
}

#[test]
fn schedule_tells_why_it_cannot_run() {
    let mut stage = LookStage::new(1);
    let (result, told) = stage.run_with(&PLAN, &|_| Err("no credentials".into()));
    assert!(matches!(result, Err(Error::Other(_))) && told.is_empty());
    // A limit that an earlier run used up is not asked again; that of another forge does not count.
    let spent = |seconds: i64| RequestBudget {
        credential: "none".to_owned(),
        limit: None,
        remaining: 0,
        reset_at: now() + seconds,
    };
    stage.catalog.accounts().set_budgets("g", &[spent(1000)], now()).unwrap();
    assert!(!stage.run_as(&PLAN).0.unwrap());
    assert_eq!(stage.server.lines().len(), 5);
    stage.end_look(now(), false, None);
    stage.catalog.accounts().set_budgets("f", &[spent(1000)], now()).unwrap();
    stage.run_as(&RunPlan { stops: true, ..PLAN }).0.unwrap();
    assert!(stage.server.lines().is_empty());
    let store = stage.place.store.clone();
    stage.place.space = Space::new(store.clone(), u64::MAX, None);
    let (result, told) = stage.run_as(&PLAN);
    assert!(matches!(result, Err(Error::NoRoom(Cause::LowSpace))) && told.is_empty());
    stage.place.space = Space::new(store, 0, Some(1));
    let (result, told) = stage.run_as(&PLAN);
    assert!(matches!(result, Err(Error::NoRoom(Cause::Quota))) && told.is_empty());
}

#[test]
fn outcome_is_a_line() {
    for (list, error, is_cut, line) in [
        (vec![], None, false, "unchanged"),
        (vec![("issues", 0)], None, true, "unchanged, more to come"),
        (
            vec![("issues", 2), ("labels", 0), ("review_comments", 1)],
            None,
            false,
            "+2 issues, +1 review comments",
        ),
        (vec![("labels", 1)], Some("no"), true, "+1 labels, more to come, failed: no"),
        (vec![], Some("no"), false, "failed: no"),
    ] {
        let outcome = LookOutcome { added: added(&list), error: error.map(str::to_owned), is_cut };
        assert_eq!(outcome.line("f/r"), format!("metadata   f/r  {line}"));
    }
}
