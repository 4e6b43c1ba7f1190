//! Real packs, indices and archives with bytes changed at random. Reading them must give an error or a sound
//! result, never a panic, an endless loop or unbounded memory. (The fuzzers in `fuzz/` go on from here.)

use std::borrow::Cow;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use weir_archive::{Archive, Region, Writer};
use weir_git::{HashKind, OidSet, plain_sha};
use weir_ground::{Epoch, Timestamp};
use weir_repo::ingest::{IngestLimits, IngestOptions, Ingested, SpillPlace, ingest};
use weir_repo::{ArchiveRepo, Head, Index, NewState, Ref, RefClass, Refs, Repo, Rewrite, Sharing, StateKind};
use weir_testing::run_git;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    /// Changes some bytes, cuts the end off, or doubles a part.
    fn mutate(&mut self, data: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if data.is_empty() {
                return;
            }
            let at = self.below(data.len());
            match self.below(8) {
                0 => data.truncate(at),
                1 => {
                    let end = (at + self.below(64)).min(data.len());
                    let part = data[at..end].to_vec();
                    data.splice(at..at, part);
                }
                2 => data[at] = [0, 0xff, 0x7f, 0x80][self.below(4)],
                _ => data[at] ^= 1 << self.below(8),
            }
        }
    }
}

fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    println!("WEIR_SEED={seed}");
    seed
}

/// Returns a small pack with deltas of all sorts, and the commit whose history it holds.
fn sample() -> (Vec<u8>, weir_git::Oid) {
    let dir = weir_testing::folder();
    run_git(dir.path(), &["init", "-q", "--bare", "-b", "main"], b"");
    let mut stream = Vec::new();
    for i in 0..30 {
        let body: String =
            (0..200).map(|n| format!("line {} of {n}\n", if n == i { 999 } else { n })).collect();
        write!(
            stream,
            "commit refs/heads/main\ncommitter C <c@x> {i} +0000\ndata 1\nx\nM 644 inline d{}/f\ndata \
            {}\n{body}\n",
            i % 3,
            body.len()
        )
        .unwrap();
    }
    run_git(dir.path(), &["fast-import", "--quiet"], &stream);
    let head = run_git(dir.path(), &["rev-parse", "main"], b"");
    let oid = weir_git::Oid::from_hex_any(head.trim_ascii()).unwrap();
    let pack = run_git(dir.path(), &["pack-objects", "--revs", "--stdout", "-q"], b"main\n");
    (pack, oid)
}

fn state(refs: &Refs, time: u64) -> NewState<'_> {
    NewState {
        refs: Cow::Borrowed(refs),
        shallow: &[],
        time: Timestamp::from(time),
        epoch: Epoch::NONE,
        kind: StateKind::Mirrored,
    }
}

fn take(pack: &[u8]) -> weir_repo::Result<Option<Ingested>> {
    let none = OidSet::default();
    let options = IngestOptions {
        hash: HashKind::Sha1,
        limits: IngestLimits {
            pack_bytes_max: 1 << 22,
            objects_max: 10_000,
            object_bytes_max: 1 << 20,
            held_bytes_max: 8 << 20,
            inflated_bytes_max: 64 << 20,
        },
        threads: 1,
        base: None,
        wanted: &[],
        shallow: &none,
        lost: &none,
        delta_bytes_max: 4 << 10,
        progress: &weir_repo::Progress::default(),
        arriving: None,
    };
    ingest(&mut &pack[..], &|_| Ok(SpillPlace::unlimited(tempfile::tempfile()?)), &options)
}

#[test]
fn packs() {
    let (pack, _) = sample();
    let objects = take(&pack).unwrap().unwrap().sent_count;
    let mut rng = Rng(seed());
    for round in 0..3000 {
        let mut changed = pack[..pack.len() - 20].to_vec();
        rng.mutate(&mut changed);
        let mut sum = plain_sha(HashKind::Sha1);
        sum.update(&changed);
        changed.extend_from_slice(sum.finish().as_bytes());
        let outcome = catch_unwind(AssertUnwindSafe(|| take(&changed)));
        match outcome {
            Ok(Ok(Some(taken))) => assert!(taken.sent_count <= objects, "round {round}"),
            Ok(_) => {}
            Err(_) => panic!("round {round} panicked"),
        }
    }
}

/// Creates an archive of one branch with one commit.
fn cloned(path: &Path) -> (ArchiveRepo, Refs) {
    let (pack, oid) = sample();
    let mut archive = ArchiveRepo::create(path, HashKind::Sha1, 1).unwrap();
    let refs = Refs::new(
        vec![Ref { name: b"refs/heads/main".to_vec(), oid, peeled: None }],
        Head::Symbolic(b"refs/heads/main".to_vec()),
    );
    archive.commit(Some((RefClass::HeadsAndTags, take(&pack).unwrap().unwrap())), state(&refs, 1)).unwrap();
    (archive, refs)
}

fn archive(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("a.tar");
    let (mut archive, refs) = cloned(&path);
    archive.commit(None, state(&Refs::new(Vec::new(), Head::default()), 2)).unwrap();
    archive.commit(None, state(&refs, 3)).unwrap();
    path
}

#[test]
fn archives() {
    let folder = weir_testing::folder();
    let whole = std::fs::read(archive(folder.path())).unwrap();
    let mut rng = Rng(seed());
    for round in 0..1500 {
        let mut changed = whole.clone();
        rng.mutate(&mut changed);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&changed).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _ = weir_archive::verify(&file);
            let Ok(archive) = Archive::from_file(Arc::new(file.try_clone().unwrap())) else { return };
            let _ = archive.records();
            if let Ok(repo) = Repo::from_archive(archive, Path::new("changed")) {
                let _ = weir_repo::fsck(&repo);
                let _ = repo.tips_ever();
            }
        }));
        assert!(outcome.is_ok(), "round {round} panicked");
    }
}

#[test]
fn a_claim_that_the_bodies_contradict_is_not_believed() {
    let folder = weir_testing::folder();
    let path = folder.path().join("a.tar");
    drop(cloned(&path));
    let repo = Repo::open_archive(&path).unwrap();
    let (heads, all) = (repo.bodies().heads.unwrap(), repo.bodies().all.unwrap());
    assert!(weir_repo::fsck(&repo).unwrap().problems.is_empty());
    let mut writer = Writer::open(weir_archive::lock_existing(&path).unwrap()).unwrap();
    let mut group = writer.begin();
    group.set("clone.heads", format!("{} -", heads.count + 1));
    group.commit(Timestamp(4), Epoch::NONE).unwrap();
    drop(writer);
    let repo = Repo::open_archive(&path).unwrap();
    assert_eq!((repo.bodies().heads, repo.bodies().all), (None, Some(all)));
    let problems = weir_repo::fsck(&repo).unwrap().problems;
    assert!(matches!(&problems[..], [one] if one.contains("'clone.heads'")), "{problems:?}");
}

fn spill(_: u64) -> std::io::Result<SpillPlace> {
    Ok(SpillPlace::unlimited(tempfile::tempfile()?))
}

fn rewrite(time: u64) -> Rewrite<'static> {
    Rewrite { sharing: Sharing::Keep, time: Timestamp::from(time), threads: 1, spill: &spill }
}

#[test]
fn compactions() {
    let folder = weir_testing::folder();
    let whole = std::fs::read(archive(folder.path())).unwrap();
    let path = folder.path().join("changed.tar");
    let mut rng = Rng(seed());
    for round in 0..200 {
        let mut changed = whole.clone();
        rng.mutate(&mut changed);
        std::fs::write(&path, &changed).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| weir_repo::compact(&path, &rewrite(4))));
        match outcome {
            Ok(Ok(_)) => assert!(Repo::open_archive(&path).is_ok(), "round {round}"),
            // A writer cuts a torn tail off. It changes nothing else.
            Ok(Err(_)) => assert!(changed.starts_with(&std::fs::read(&path).unwrap()), "round {round}"),
            Err(_) => panic!("round {round} panicked"),
        }
    }
}

/// A tree may name another tree with the mode of a file. Compaction must not rely on the mode.
#[test]
fn a_tree_named_as_a_file_survives_compaction() {
    let dir = weir_testing::folder();
    let at = dir.path();
    run_git(at, &["init", "-q", "--bare", "-b", "main"], b"");
    let id = |hex: &[u8]| weir_git::Oid::from_hex_any(hex.trim_ascii()).unwrap();
    let blob = run_git(at, &["hash-object", "-w", "--stdin"], b"content");
    let inner = run_git(at, &["mktree"], format!("100644 blob {}\tf\n", id(&blob)).as_bytes());
    let odd = [b"100644 x\0", id(&inner).as_bytes()].concat();
    let odd = run_git(at, &["hash-object", "-t", "tree", "--literally", "-w", "--stdin"], &odd);
    let text = format!("tree {}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx", id(&odd));
    let commit =
        run_git(at, &["hash-object", "-t", "commit", "--literally", "-w", "--stdin"], text.as_bytes());
    let all = [blob.as_slice(), &inner, &odd, &commit];
    let pack = run_git(at, &["pack-objects", "--stdout", "-q"], &all.concat());
    let path = at.join("a.tar");
    let mut archive = ArchiveRepo::create(&path, HashKind::Sha1, 1).unwrap();
    let main = b"refs/heads/main".to_vec();
    let refs =
        Refs::new(vec![Ref { name: main.clone(), oid: id(&commit), peeled: None }], Head::Symbolic(main));
    archive.commit(Some((RefClass::HeadsAndTags, take(&pack).unwrap().unwrap())), state(&refs, 1)).unwrap();
    drop(archive);
    weir_repo::compact(&path, &rewrite(2)).unwrap();
    let repo = Repo::open_archive(&path).unwrap();
    assert!(all.iter().all(|hex| repo.contains(&id(hex))));
    assert_eq!(repo.reader().require(&id(&inner)).unwrap().kind, weir_git::Kind::Tree);
}

#[test]
fn indices() {
    let folder = weir_testing::folder();
    let repo = Repo::open_archive(&archive(folder.path())).unwrap();
    let name = format!("{}.idx", repo.objects().packs()[0].name());
    let whole = repo.archive().unwrap().member(&name).unwrap().to_vec();
    let mut rng = Rng(seed());
    for round in 0..2000 {
        let mut changed = whole.clone();
        rng.mutate(&mut changed);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&changed).unwrap();
        // SAFETY: no other process can open a file without a name, and nothing writes to it any more.
        let region = unsafe { Region::map(Arc::new(file), changed.len() as u64) }.unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let Ok(index) = Index::open("changed", region, HashKind::Sha1) else { return };
            for position in 0..index.count() {
                let _ = (index.offset(position), index.find(index.raw_id(position)));
            }
            for first in 0..=255u8 {
                let _ = index.find(&[first; 20]);
            }
        }));
        assert!(outcome.is_ok(), "round {round} panicked");
    }
}
