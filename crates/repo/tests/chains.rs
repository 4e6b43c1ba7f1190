//! Chains of deltas: those that weir makes are as short as git's, longer ones are read, and a compaction
//! breaks them.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use weir_git::{HashKind, Oid, OidSet};
use weir_ground::{Epoch, Timestamp};
use weir_repo::ingest::{IngestLimits, IngestOptions, SpillPlace, ingest};
use weir_repo::{
    ArchiveRepo, Budget, Head, NewState, PackPlan, Query, Ref, RefClass, Refs, Repo, Rewrite, Sharing,
    StateKind, open_directory, select,
};
use weir_testing::run_git;

const COMMITS: usize = 4500;

fn spill(_: u64) -> std::io::Result<SpillPlace> {
    Ok(SpillPlace::unlimited(tempfile::tempfile()?))
}

/// Makes a bare repository of linear history, of which each commit changes a file of some lines.
fn linear(at: &Path, depth: usize) {
    run_git(at, &["init", "-q", "--bare", "."], b"");
    let mut stream = String::new();
    let lines: String = (0..40).map(|n| format!("line {n} of a file that hardly changes\n")).collect();
    for n in 0..COMMITS {
        let (time, text) = (1_700_000_000 + n, format!("{lines}{n}\n"));
        let _ = write!(
            stream,
            "commit refs/heads/main\ncommitter C <c@x> {time} +0000\ndata 1\nx\nM 644 inline f\n\
            data {}\n{text}\n",
            text.len()
        );
    }
    let depth = format!("--depth={depth}");
    let args = ["-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", &depth];
    run_git(at, &args, stream.as_bytes());
}

/// Returns the longest chain of deltas in the pack `pack`.
fn longest(at: &Path, pack: &Path) -> usize {
    let said = run_git(at, &["verify-pack", "-v", pack.to_str().unwrap()], b"");
    let said = String::from_utf8(said).unwrap();
    let depth = |line: &str| line.split_whitespace().nth(5)?.parse().ok();
    said.lines()
        .filter(|line| line.contains(" blob ") || line.contains(" tree "))
        .filter_map(depth)
        .max()
        .unwrap_or(0)
}

fn only_pack(at: &Path) -> PathBuf {
    let files = std::fs::read_dir(at.join("objects/pack")).unwrap().map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|e| e == "pack"))
        .max_by_key(|p| p.metadata().unwrap().len())
        .unwrap()
}

fn export(repo: &Repo, to: &Path) -> usize {
    weir_repo::export_directory(repo, to).unwrap();
    run_git(to, &["fsck", "--full"], b"");
    longest(to, &only_pack(to).with_extension("idx"))
}

#[test]
fn chain_over_gits_limit_is_read_and_broken() {
    let folder = weir_testing::folder();
    let at = folder.path();
    let up = at.join("up.git");
    std::fs::create_dir(&up).unwrap();
    linear(&up, COMMITS + 10);
    assert!(longest(&up, &only_pack(&up).with_extension("idx")) > 4095, "the test makes no long chain");
    let tip = open_directory(&up).unwrap().refs().list()[0].oid;
    let pack = std::fs::read(only_pack(&up)).unwrap();
    let options = IngestOptions {
        hash: HashKind::Sha1,
        limits: IngestLimits::default(),
        threads: 2,
        base: None,
        wanted: &[],
        shallow: &OidSet::default(),
        lost: &OidSet::default(),
        delta_bytes_max: 1 << 20,
        progress: &weir_repo::Progress::default(),
        arriving: None,
    };
    let taken = ingest(&mut &pack[..], &spill, &options).unwrap().unwrap();
    assert!(taken.chain_len > 4095);
    let refs = Refs::new(
        vec![Ref { name: b"refs/heads/main".to_vec(), oid: tip, peeled: None }],
        Head::Symbolic(b"refs/heads/main".to_vec()),
    );
    let state = NewState {
        refs: Cow::Borrowed(&refs),
        shallow: &[],
        time: Timestamp(1),
        epoch: Epoch::NONE,
        kind: StateKind::Mirrored,
    };
    let path = at.join("a.tar");
    let mut archive = ArchiveRepo::create(&path, HashKind::Sha1, 1).unwrap();
    archive.commit(Some((RefClass::HeadsAndTags, taken)), state).unwrap();
    assert!(archive.has_long_chains(Timestamp(2)).unwrap());
    let repo = Repo::open_archive(&path).unwrap();
    assert!(weir_repo::fsck(&repo).unwrap().problems.is_empty());
    let before: Oid = repo.reader().require(&tip).map(|_| tip).unwrap();
    let how = Rewrite { sharing: Sharing::Keep, time: Timestamp(3), threads: 2, spill: &spill };
    archive.compact(&how).unwrap();
    drop(archive);
    let repo = Repo::open_archive(&path).unwrap();
    assert!(repo.contains(&before) && weir_repo::fsck(&repo).unwrap().problems.is_empty());
    assert!(export(&repo, &at.join("out.git")) <= 51);
    assert!(!ArchiveRepo::open(&path).unwrap().has_long_chains(Timestamp(4)).unwrap());
}

#[test]
fn answers_have_no_longer_chains_than_git_makes() {
    let folder = weir_testing::folder();
    let up = folder.path();
    for (depth, most) in [(50, 101), (COMMITS + 10, 4095)] {
        let dir = up.join(depth.to_string());
        std::fs::create_dir(&dir).unwrap();
        linear(&dir, depth);
        let repo = open_directory(&dir).unwrap();
        let wants = [repo.refs().list()[0].oid];
        let query = Query { wants: &wants, haves: &[], cut: None, filter: None, budget: Budget::default() };
        for thin in [true, false] {
            let selection = select(repo.history(), &query).unwrap();
            let plan = PackPlan::new(repo.history(), selection, thin, true).unwrap();
            let file = up.join(format!("{depth}-{thin}.pack"));
            plan.write(repo.history(), &mut std::fs::File::create(&file).unwrap()).unwrap();
            run_git(up, &["index-pack", file.to_str().unwrap()], b"");
            let found = longest(up, &file.with_extension("idx"));
            assert!(found <= most, "{found} of at most {most}, thin: {thin}");
        }
    }
}
