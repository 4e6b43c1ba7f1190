//! Random histories with odd dates, in one process: visits, restores, compactions and forks. After each of
//! them, every kind of answer is compared with a model that knows all objects. At the end of each history,
//! the model is compared with git.
//!
//! `random_walk.rs` does the same with the program and stock git, and takes a thousand times as long. Each
//! run has a new seed, and prints it. `WEIR_SEED` repeats a run; `WEIR_HISTORIES` and `WEIR_STEPS` set the
//! number of histories and of operations in each.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sha1::{Digest, Sha1};
use weir_ground::{Epoch, Timestamp};
use weir_mirror::{Arrivals, Compacting, Known, RefsWanted, Scratch, Space, VisitOptions, visit};
use weir_repo::ingest::{IngestLimits, Quota, SpillPlace};
use weir_repo::{ArchiveRepo, NewState, Repo, Rewrite, Sharing, StateKind};
use weir_serve::serve_blocking;
use weir_transport::{LocalServer, LocalServerError, LocalStream, TransportOptions, Url};
use weir_upload::{UploadOptions, UploadPack, Version};

use crate::common::Rng;
use model::{Id, Model, NAMES, Object, Set, Upstream, hex, id_of, unhex};

mod model;

/// Serves directories over a socket pair.
struct Local;

impl LocalServer for Local {
    fn connect(&self, path: &Path) -> Result<LocalStream, LocalServerError> {
        let repo = Arc::new(weir_repo::open_directory(path).map_err(LocalServerError::of)?);
        let (ours, theirs) = UnixStream::pair().map_err(LocalServerError::of)?;
        let reader = ours.try_clone().map_err(LocalServerError::of)?;
        std::thread::spawn(move || {
            let mut machine = UploadPack::new(repo, Version::V2, UploadOptions::default());
            let _ =
                serve_blocking(&mut machine, &mut &theirs, &mut &theirs, &AtomicBool::new(false), &|_| {});
        });
        Ok((Box::new(reader), Box::new(ours)))
    }
}

/// The objects and the shallow commits in an answer.
#[derive(Default)]
struct Answer {
    objects: Set,
    shallow: Set,
}

/// The objects of a pack: kind and content by the offset of the entry, and the offset by the id.
#[derive(Default)]
struct Unpacked {
    by_offset: HashMap<usize, (String, Vec<u8>)>,
    by_id: HashMap<Id, usize>,
}

impl Unpacked {
    /// Adds an object, which must not be there yet.
    fn add(&mut self, start: usize, object: (String, Vec<u8>), what: &str) {
        let id = id_of(&object.0, &object.1);
        self.by_offset.insert(start, object);
        assert_eq!(self.by_id.insert(id.clone(), start), None, "{what}: {id} is sent twice");
    }
}

/// An entry of a pack: an object, or a delta on the object with that offset or id.
struct Entry {
    start: usize,
    kind: u8,
    base_offset: Option<usize>,
    base_id: Option<Id>,
    data: Vec<u8>,
}

/// Reads the entry at `at`, and moves `at` behind it.
fn read_entry(body: &[u8], at: &mut usize) -> Entry {
    let start = *at;
    let mut byte = body[*at];
    *at += 1;
    let kind = byte >> 4 & 7;
    while byte & 0x80 != 0 {
        byte = body[*at];
        *at += 1;
    }
    let mut base_offset = None;
    let mut base_id = None;
    if kind == 6 {
        let mut distance = usize::from(body[*at] & 0x7f);
        while body[*at] & 0x80 != 0 {
            *at += 1;
            distance = (distance + 1) << 7 | usize::from(body[*at] & 0x7f);
        }
        *at += 1;
        base_offset = Some(start - distance);
    } else if kind == 7 {
        base_id = Some(hex(&body[*at..*at + 20]));
        *at += 20;
    }
    let mut decoder = flate2::bufread::ZlibDecoder::new(&body[*at..]);
    let mut data = Vec::new();
    decoder.read_to_end(&mut data).unwrap();
    *at += decoder.total_in() as usize;
    Entry { start, kind, base_offset, base_id, data }
}

/// Returns the object that `delta` makes of its base.
fn apply((kind, base): &(String, Vec<u8>), delta: &[u8]) -> (String, Vec<u8>) {
    let mut out = Vec::new();
    weir_repo::apply_delta(base, delta, 1 << 30, &mut out).unwrap();
    (kind.clone(), out)
}

struct History {
    folder: tempfile::TempDir,
    rng: Rng,
    clock: i64,
    model: Model,
    upstreams: Vec<Upstream>,
    /// The sets of tips that were served earlier, of each upstream.
    served: Vec<Vec<Set>>,
    options: VisitOptions,
    now: u64,
    what: String,
}

impl History {
    fn new(seed: u64, with_fork: bool) -> History {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let options = VisitOptions {
            transport: TransportOptions {
                local: Some(Arc::new(Local)),
                connect_timeout: Duration::from_secs(10),
                ..Default::default()
            },
            limits: IngestLimits::default(),
            scratch: Scratch { folder: None, pack_bytes_max: 0, quota: Quota::new(0) },
            threads: 1,
            refs: RefsWanted::default(),
            delta_bytes_max: 1 << 20,
            progress: std::sync::Arc::default(),
            lfs: false,
            space: Arc::new(Space::new(folder.path().to_owned(), 0, None)),
            compacting: Compacting { packs_max: *rng.pick(&[2, 5, 50]), unused_percent_max: 100 },
            accepts_empty: true,
            store: None,
            arrivals: Arrivals::default(),
        };
        let names: &[&str] = if with_fork { &["u", "f"] } else { &["u"] };
        let upstreams: Vec<Upstream> =
            names.iter().map(|name| Upstream::new(folder.path().join(format!("{name}.git")))).collect();
        let served = upstreams.iter().map(|_| Vec::new()).collect();
        let what = format!("WEIR_SEED={seed}");
        History {
            folder,
            rng,
            clock: 1_700_000_000,
            model: Model::default(),
            upstreams,
            served,
            options,
            now: 1,
            what,
        }
    }

    fn archive(&self, n: usize) -> PathBuf {
        self.folder.path().join(["u.tar", "f.tar"][n])
    }

    fn date(&mut self) -> i64 {
        self.clock += *self.rng.pick(&[1, 1, 1, -500_000, 100]);
        self.clock
    }

    fn blob(&mut self, n: usize) -> Id {
        let content = self.rng.below(30).to_string().repeat(*self.rng.pick(&[1, 50, 400])).into_bytes();
        self.upstreams[n].put(&mut self.model, Object::Blob(content))
    }

    fn tree(&mut self, n: usize, base: Option<&Id>) -> Id {
        let mut entries = match base.map(|base| &self.model.0[base]) {
            Some(Object::Tree(entries, _)) => entries.clone(),
            _ => BTreeMap::new(),
        };
        entries.retain(|_, _| self.rng.below(10) > 0);
        match (self.rng.below(8), base) {
            (0, Some(base)) => drop(entries.insert("d".into(), (true, base.clone()))),
            _ => {
                let blob = self.blob(n);
                entries.insert(format!("f{}", self.rng.below(6)), (false, blob));
            }
        }
        let has_module = self.rng.below(8) == 0;
        let mut sorted: Vec<(String, &str, Vec<u8>)> = entries
            .iter()
            .map(|(name, (is_tree, id))| (name.clone(), if *is_tree { "40000" } else { "100644" }, unhex(id)))
            .chain(has_module.then(|| ("s".to_owned(), "160000", vec![0x12; 20])))
            .collect();
        // Like git, this sorts folders as if their names ended in a slash.
        sorted
            .sort_by_key(|(name, mode, _)| if *mode == "40000" { format!("{name}/") } else { name.clone() });
        let data = sorted
            .iter()
            .flat_map(|(name, mode, id)| [format!("{mode} {name}\0").as_bytes(), id].concat())
            .collect();
        self.upstreams[n].put(&mut self.model, Object::Tree(entries, data))
    }

    fn commit(&mut self, n: usize) -> Id {
        let known = self.upstreams[n].commits.clone();
        let mut parents = Vec::new();
        for _ in 0..*self.rng.pick(&[0, 1, 1, 1, 1, 2]) {
            if !known.is_empty() {
                let parent = self.rng.pick(&known).clone();
                if !parents.contains(&parent) {
                    parents.push(parent);
                }
            }
        }
        let before = parents.first().map(|parent| match &self.model.0[parent] {
            Object::Commit { tree, .. } => tree.clone(),
            _ => unreachable!("a commit"),
        });
        // A tree comes back, as after a revert or a cherry-pick.
        let tree = match (self.rng.below(4), known.is_empty()) {
            (0, false) => match &self.model.0[self.rng.pick(&known)] {
                Object::Commit { tree, .. } => tree.clone(),
                _ => unreachable!("a commit"),
            },
            _ => self.tree(n, before.as_ref()),
        };
        self.upstreams[n].take(&mut self.model, &tree);
        let date = self.date();
        let lines: String = parents.iter().map(|parent| format!("parent {parent}\n")).collect();
        let data = format!(
            "tree {tree}\n{lines}author A <a@x> {date} +0000\ncommitter A <a@x> {date} +0000\n\n{}\n",
            self.rng.below(5)
        );
        let id =
            self.upstreams[n].put(&mut self.model, Object::Commit { tree, parents, data: data.into_bytes() });
        self.upstreams[n].commits.push(id.clone());
        id
    }

    fn tag(&mut self, n: usize, target: &Id) -> Id {
        let kind = self.model.0[target].data().0;
        let data = format!("object {target}\ntype {kind}\ntag v\ntagger A <a@x> {} +0000\n\nm\n", self.clock)
            .into_bytes();
        self.upstreams[n].put(&mut self.model, Object::Tag { target: target.clone(), data })
    }

    fn change(&mut self, n: usize) {
        for _ in 0..1 + self.rng.below(4) {
            let name = (*self.rng.pick(&NAMES)).to_owned();
            let known = self.upstreams[n].commits.clone();
            let id = match self.rng.below(11) {
                0 | 1 => {
                    self.upstreams[n].refs.remove(&name);
                    continue;
                }
                2 | 3 if !known.is_empty() => self.rng.pick(&known).clone(),
                4 => {
                    let commit = self.commit(n);
                    let tag = self.tag(n, &commit);
                    if self.rng.below(3) == 0 { self.tag(n, &tag) } else { tag }
                }
                5 => {
                    let object = if self.rng.below(2) == 0 { self.blob(n) } else { self.tree(n, None) };
                    self.upstreams[n]
                        .refs
                        .insert((*self.rng.pick(&["refs/tags/t3", "refs/x/z"])).to_owned(), object);
                    continue;
                }
                6 => {
                    self.upstreams[n].head = (*self.rng.pick(&[
                        "refs/heads/main",
                        "refs/heads/a",
                        "refs/heads/none",
                        "refs/pull/1/head",
                    ]))
                    .to_owned();
                    continue;
                }
                // The fork takes a commit of its parent.
                7 if n > 0 => {
                    let theirs = self.upstreams[0].commits.clone();
                    let commit = self.rng.pick(&theirs).clone();
                    self.upstreams[n].take(&mut self.model, &commit);
                    self.upstreams[n].commits.push(commit.clone());
                    commit
                }
                _ => self.commit(n),
            };
            // A branch names a commit.
            let id = if name.starts_with("refs/heads/") { self.model.peel(&id).0 } else { id };
            self.upstreams[n].refs.insert(name, id);
        }
        self.upstreams[n].write_refs();
    }

    fn visit(&mut self, n: usize) {
        self.now += 10;
        let url = Url::parse(self.upstreams[n].path.to_str().unwrap()).unwrap();
        let base = (n > 0).then(|| self.archive(0));
        let known = Known { base: base.as_deref(), ..Known::default() };
        let visited = visit(&url, &self.archive(n), &known, Timestamp::from(self.now), &self.options);
        visited.unwrap_or_else(|e| panic!("{}: a visit of {n}: {e}", self.what));
    }

    fn compact(&mut self, n: usize, sharing: Sharing<'_>) {
        self.now += 10;
        let spill = |_| Ok(SpillPlace::unlimited(tempfile::tempfile_in("/dev/shm")?));
        let how = Rewrite { sharing, time: Timestamp::from(self.now), threads: 1, spill: &spill };
        weir_repo::compact(&self.archive(n), &how)
            .unwrap_or_else(|e| panic!("{}: compacting {n}: {e}", self.what));
    }

    fn restore(&mut self, n: usize) {
        self.now += 10;
        let mut archive = ArchiveRepo::open(&self.archive(n)).unwrap();
        let repo = archive.repo().unwrap().unwrap();
        let mut states = repo.ref_states().unwrap().unwrap();
        let mut seqs = Vec::new();
        while let Some((_, change)) = states.next_state().unwrap() {
            seqs.push(change.seq);
        }
        let refs = repo.refs_at(*self.rng.pick(&seqs)).unwrap().unwrap();
        assert!(
            refs.tips().all(|tip| repo.contains(&tip)),
            "{}: a state of {n} that is not whole",
            self.what
        );
        let shallow = repo.history().shallow().to_vec();
        drop(repo);
        archive
            .commit(
                None,
                NewState {
                    refs: Cow::Owned(refs),
                    shallow: &shallow,
                    time: Timestamp::from(self.now),
                    epoch: Epoch::NONE,
                    kind: StateKind::Restored,
                },
            )
            .unwrap();
    }

    /// Asks for `wants` with `haves` and more lines, as a client that holds `holds`.
    fn ask(&self, repo: &Arc<Repo>, wants: &Set, haves: &Set, holds: &Set, more: &[&str]) -> Answer {
        let pkt = |line: &str| format!("{:04x}{line}", line.len() + 4);
        let mut request = pkt("command=fetch\n") + "0001" + &pkt("ofs-delta\n");
        if !haves.is_empty() {
            request += &pkt("thin-pack\n");
        }
        wants.iter().for_each(|want| request += &pkt(&format!("want {want}\n")));
        haves.iter().for_each(|have| request += &pkt(&format!("have {have}\n")));
        more.iter().for_each(|line| request += &pkt(line));
        request += &(pkt("done\n") + "0000");
        let mut machine = UploadPack::answering(repo.clone(), Version::V2, UploadOptions::default());
        let mut said = Vec::new();
        serve_blocking(&mut machine, &mut request.as_bytes(), &mut said, &AtomicBool::new(false), &|_| {})
            .unwrap();
        let (mut answer, mut pack, mut at, mut is_pack) = (Answer::default(), Vec::new(), 0, false);
        while at + 4 <= said.len() {
            let len = usize::from_str_radix(std::str::from_utf8(&said[at..at + 4]).unwrap(), 16).unwrap();
            let line = if len < 4 { &[][..] } else { &said[at + 4..at + len] };
            at += len.max(4);
            match (is_pack, line) {
                (true, [1, data @ ..]) => pack.extend_from_slice(data),
                (true, [3, message @ ..]) => {
                    panic!("{}: {more:?}: {}", self.what, String::from_utf8_lossy(message))
                }
                (true, _) => {}
                (false, line) if line.starts_with(b"packfile") => is_pack = true,
                (false, line) if line.starts_with(b"shallow ") => {
                    answer.shallow.insert(String::from_utf8_lossy(&line[8..48]).into_owned());
                }
                (false, line) if line.starts_with(b"ERR") => {
                    panic!("{}: {more:?}: {}", self.what, String::from_utf8_lossy(line))
                }
                (false, _) => {}
            }
        }
        answer.objects = self.unpack(&pack, holds);
        answer
    }

    /// Returns the ids of the objects in a pack, whose deltas may build on what the client holds. Checks that
    /// each object is what its id says, and is sent once.
    fn unpack(&self, pack: &[u8], holds: &Set) -> Set {
        assert!(pack.starts_with(b"PACK\0\0\0\x02"), "{}: no pack", self.what);
        let (body, trailer) = pack.split_at(pack.len() - 20);
        assert_eq!(Sha1::digest(body).as_slice(), trailer, "{}: checksum", self.what);
        let count = u32::from_be_bytes(pack[8..12].try_into().unwrap());
        let mut objects = Unpacked::default();
        let mut waiting: Vec<(usize, Id, Vec<u8>)> = Vec::new();
        let mut at = 12;
        for _ in 0..count {
            let Entry { start, kind, base_offset, base_id, data } = read_entry(body, &mut at);
            let object = match (kind, base_offset, base_id) {
                (_, Some(offset), _) => apply(&objects.by_offset[&offset], &data),
                (_, _, Some(id)) => match objects.by_id.get(&id) {
                    Some(offset) => apply(&objects.by_offset[offset], &data),
                    None if holds.contains(&id) => {
                        let (kind, base) = self.model.0[&id].data();
                        apply(&(kind.to_owned(), base.to_vec()), &data)
                    }
                    None => {
                        waiting.push((start, id, data));
                        continue;
                    }
                },
                (1..=4, _, _) => (["commit", "tree", "blob", "tag"][usize::from(kind) - 1].to_owned(), data),
                _ => panic!("{}: an entry of kind {kind}", self.what),
            };
            objects.add(start, object, &self.what);
        }
        assert_eq!(at, body.len(), "{}: bytes behind the last object", self.what);
        while let Some(n) = waiting.iter().position(|(_, id, _)| objects.by_id.contains_key(id)) {
            let (start, base, delta) = waiting.remove(n);
            let object = apply(&objects.by_offset[&objects.by_id[&base]], &delta);
            objects.add(start, object, &self.what);
        }
        assert!(
            waiting.is_empty(),
            "{}: {} deltas on what the client lacks: {}",
            self.what,
            waiting.len(),
            waiting[0].1
        );
        objects.by_id.into_keys().collect()
    }

    /// Checks every kind of answer about archive `n`.
    fn check(&mut self, n: usize) {
        let repo = Arc::new(Repo::open_archive(&self.archive(n)).unwrap());
        let all = self.upstreams[n].tips(&["refs/"]);
        if all.is_empty() {
            return;
        }
        let what = self.what.clone();
        let whole = |what: &str, found: &Set, expected: &Set, visible: &Set| {
            let (missing, hidden): (Vec<_>, Vec<_>) =
                (expected.difference(found).collect(), found.difference(visible).collect());
            assert!(
                missing.is_empty() && hidden.is_empty(),
                "{what} of {n}: missing {missing:?}, hidden ones sent {hidden:?}"
            );
        };
        let none = Set::new();
        for (name, tips) in
            [("mirror", all.clone()), ("clone", self.upstreams[n].tips(&["refs/heads/", "refs/tags/"]))]
        {
            if tips.is_empty() {
                continue;
            }
            let expected = self.model.reach(tips.iter().cloned());
            let found = self.ask(&repo, &tips, &none, &none, &[]).objects;
            whole(&format!("{what}: {name}"), &found, &expected, &expected);
        }
        let visible = self.model.reach(all.iter().cloned());
        // A client that has fetched an older state, or a part of it.
        if !self.served[n].is_empty() {
            let older = self.rng.pick(&self.served[n]).clone();
            let haves: Set = older.into_iter().filter(|_| self.rng.below(4) > 0).collect();
            let holds = self.model.reach(haves.iter().cloned());
            let wants: Set = all.difference(&holds).cloned().collect();
            if !wants.is_empty() {
                let commits: Set = haves
                    .iter()
                    .map(|id| self.model.peel(id).0)
                    .filter(|id| self.model.is_commit(id))
                    .collect();
                let holds = self.model.reach(haves.iter().cloned().chain(commits.iter().cloned()));
                let found = self.ask(&repo, &wants, &haves, &holds, &[]).objects;
                let expected = self.model.reach(wants.iter().cloned()).difference(&holds).cloned().collect();
                whole(&format!("{what}: fetch"), &found, &expected, &visible);
            }
        }
        let depth = 1 + self.rng.below(4) as usize;
        let (expected, ends) = self.model.shallow(&all, depth);
        let answer = self.ask(&repo, &all, &none, &none, &[&format!("deepen {depth}\n")]);
        whole(&format!("{what}: depth {depth}"), &answer.objects, &expected, &visible);
        assert_eq!(answer.shallow, ends, "{what}: depth {depth} of {n}: where it ends");
        for filter in ["blob:none", "blob:limit=60", "tree:2"] {
            let expected = self.model.filtered(&all, filter);
            let found = self.ask(&repo, &all, &none, &none, &[&format!("filter {filter}\n")]).objects;
            whole(&format!("{what}: {filter}"), &found, &expected, &visible);
        }
        self.served[n].push(all);
    }

    /// Checks that the model agrees with git.
    fn check_model(&self, n: usize) {
        let upstream = &self.upstreams[n];
        let tips = upstream.tips(&["refs/"]);
        if tips.is_empty() {
            return;
        }
        for filter in [None, Some("blob:none"), Some("blob:limit=60"), Some("tree:2")] {
            let mut command = weir_testing::command("git");
            command
                .args(["rev-list", "--objects", "--no-object-names", "--stdin"])
                .args(filter.map(|f| format!("--filter={f}")));
            command
                .current_dir(&upstream.path)
                .env("HOME", self.folder.path())
                .env("GIT_CONFIG_NOSYSTEM", "1");
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let lines: String = tips.iter().map(|tip| format!("{tip}\n")).collect();
            child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", self.what);
            let said: Set = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
            let expected = filter
                .map_or_else(|| self.model.reach(tips.iter().cloned()), |f| self.model.filtered(&tips, f));
            assert!(
                said.is_subset(&expected),
                "{}: {filter:?}: {:?}",
                self.what,
                said.difference(&expected).collect::<Vec<_>>()
            );
            assert!(filter.is_some() || said == expected, "{}: the model has more than git", self.what);
        }
    }
}

fn history(seed: u64, steps: u64, with_fork: bool) {
    let mut history = History::new(seed, with_fork);
    let start = history.what.clone();
    let count = history.upstreams.len();
    let first = history.commit(0);
    history.upstreams[0].refs.insert("refs/heads/main".into(), first);
    history.upstreams[0].write_refs();
    history.visit(0);
    if with_fork {
        history.upstreams[1].refs = history.upstreams[0].refs.clone();
        history.upstreams[1].commits = history.upstreams[0].commits.clone();
        for tip in history.upstreams[0].refs.values().cloned().collect::<Vec<_>>() {
            history.upstreams[1].take(&mut history.model, &tip);
        }
        history.change(1);
        history.visit(1);
    }
    for step in 0..steps {
        history.what = format!("{start}, step {step}");
        let n = history.rng.below(count as u64) as usize;
        match history.rng.below(12) {
            0 => history.compact(n, Sharing::Keep),
            1 => {
                history.restore(n);
                if history.rng.below(2) == 0 {
                    history.compact(n, Sharing::Keep);
                }
            }
            2 if n > 0 => history.compact(1, Sharing::Whole),
            3 if n > 0 => {
                if let Ok(base) = weir_repo::open_as_base(&history.archive(0), Timestamp::from(history.now)) {
                    history.compact(1, Sharing::On(&base));
                }
            }
            _ => history.change(n),
        }
        for n in 0..count {
            history.visit(n);
            history.check(n);
        }
    }
    for n in 0..count {
        let report = weir_repo::fsck(&Repo::open_archive(&history.archive(n)).unwrap()).unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "{}", history.what);
        history.check_model(n);
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn histories(with_fork: bool) {
    let clock =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed = number("WEIR_SEED", clock);
    println!("WEIR_SEED={seed}");
    for n in 0..number("WEIR_HISTORIES", 25) {
        history(seed + n, number("WEIR_STEPS", 30), with_fork);
    }
}

#[test]
fn of_one_repository() {
    histories(false);
}

#[test]
fn of_a_repository_and_a_fork_of_it() {
    histories(true);
}
