//! What is mined equals what git prints, for random histories in all layouts.

mod history;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use history::Generator;
use weir_ground::Stop;
use weir_mine::{
    Detect, FaultKind, FaultRow, FileChangeRow, Lines, MergeMode, MineOptions, MineProgress, MineReport,
    RefChangeRow, ReleaseRow, RenameOptions, ReplacedRows, RevisionRow, RowSink, Status, Tips, VisitRow,
    mine,
};
use weir_repo::open_directory;
use weir_testing::{is_git_since, run_git};

/// Runs git in `dir` with `input`, and returns what it prints.
fn git(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let settings = ["-c", "diff.renameLimit=1000", "-c", "core.quotePath=false"];
    run_git(dir, &[&settings, args].concat(), input)
}

/// Rows as git prints them, by commit.
#[derive(Default, Debug, PartialEq)]
struct Printed {
    commits: Vec<Vec<u8>>,
    raw: BTreeMap<String, Vec<Vec<u8>>>,
    numstat: BTreeMap<String, Vec<Vec<u8>>>,
    releases: Vec<String>,
    faults: Vec<(String, FaultKind)>,
}

impl Printed {
    fn add(&mut self, other: Printed) {
        self.commits.extend(other.commits);
        for (mine, theirs) in [(&mut self.raw, other.raw), (&mut self.numstat, other.numstat)] {
            for (commit, lines) in theirs {
                mine.entry(commit).or_default().extend(lines);
            }
        }
        self.releases.extend(other.releases);
        self.faults.extend(other.faults);
    }
}

impl RowSink for Printed {
    fn revision(&mut self, row: &RevisionRow<'_>) -> io::Result<()> {
        let c = row.commit;
        let parents: Vec<String> = c.links.parents.iter().map(|id| id.to_string()).collect();
        let mut line = format!("{} {} {}", row.id, c.links.tree, parents.join(" ")).into_bytes();
        for ident in [&c.author, &c.committer] {
            // git's formats print UTF-8.
            let utf8 = |text: &[u8]| match c.encoding {
                b"" => text.to_vec(),
                _ => text.iter().map(|&c| char::from(c)).collect::<String>().into_bytes(),
            };
            line.extend([b"|", &utf8(ident.name)[..], b"|", &utf8(ident.email), b"|"].concat());
            line.extend(ident.seconds.map_or(String::new(), |n| n.to_string()).into_bytes());
            line.extend([b" ", ident.offset].concat());
        }
        line.extend([b"|", c.encoding, b"|", c.message].concat());
        self.commits.push(line);
        Ok(())
    }

    fn visit(&mut self, _: &VisitRow) -> io::Result<()> {
        unreachable!("mine writes no states of refs")
    }

    fn ref_change(&mut self, _: &RefChangeRow<'_>) -> io::Result<()> {
        unreachable!("mine writes no states of refs")
    }

    fn release(&mut self, row: &ReleaseRow<'_>) -> io::Result<()> {
        let (target, kind) = row.target.unwrap();
        let name = String::from_utf8_lossy(row.tag.name).into_owned();
        self.releases.push(format!("{name} {} {target}", kind.name()));
        Ok(())
    }

    fn file_change(&mut self, row: &FileChangeRow<'_>) -> io::Result<()> {
        let commit = match row.parent_rank {
            0 => row.revision.to_string(),
            rank => format!("{} {rank}", row.revision),
        };
        let null = weir_git::Oid::null(row.revision.kind());
        let similarity = row.similarity.map_or(String::new(), |n| format!("{n:03}"));
        let mut raw = format!(
            ":{:06o} {:06o} {} {} {}{similarity}\0",
            row.old.map_or(0, |s| s.mode),
            row.new.map_or(0, |s| s.mode),
            row.old.map_or(null, |s| s.id),
            row.new.map_or(null, |s| s.id),
            row.status.letter()
        )
        .into_bytes();
        let paths = match (row.status, row.old, row.new) {
            (Status::Renamed | Status::Copied, Some(old), Some(new)) => [old.path, b"\0", new.path].concat(),
            (_, old, new) => new.or(old).unwrap().path.to_vec(),
        };
        raw.extend_from_slice(&paths);
        self.raw.entry(commit.clone()).or_default().push(raw);
        let mut counts = match row.lines.unwrap() {
            Lines::Text { insertions, deletions } => format!("{insertions}\t{deletions}\t"),
            Lines::Binary => "-\t-\t".to_owned(),
            Lines::Unavailable => "unavailable\t".to_owned(),
        }
        .into_bytes();
        if matches!(row.status, Status::Renamed | Status::Copied) {
            counts.push(0);
        }
        counts.extend_from_slice(&paths);
        self.numstat.entry(commit).or_default().push(counts);
        Ok(())
    }

    fn branch_commit(&mut self, _: weir_git::Oid) -> io::Result<()> {
        unreachable!("no HEAD is named")
    }

    fn fault(&mut self, row: &FaultRow) -> io::Result<()> {
        self.faults.push((row.object.to_string(), row.kind));
        Ok(())
    }

    fn replace(&mut self, _: ReplacedRows) -> io::Result<()> {
        Ok(())
    }
}

fn options(merges: MergeMode, detect: Detect) -> MineOptions {
    let renames = RenameOptions { detect, counts_last_line: is_git_since(2, 44), ..RenameOptions::default() };
    MineOptions {
        has_revisions: true,
        has_changes: true,
        has_lines: true,
        merges,
        renames,
        changes_max: None,
    }
}

/// Mines the repository in `dir`, all refs, without what `known` reaches.
fn mined(
    dir: &Path,
    known: &[weir_git::Oid],
    options: &MineOptions,
    threads: usize,
) -> (Printed, MineReport) {
    let repo = open_directory(dir).unwrap();
    let tips: Vec<_> = repo.refs().tips().collect();
    let sinks: Vec<Mutex<Printed>> = (0..threads).map(|_| Mutex::default()).collect();
    let tips = Tips { wanted: &tips, known, ..Tips::default() };
    let progress = MineProgress::default();
    let report = mine(&repo, tips, options, &sinks, &progress, &Stop::default()).unwrap();
    let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
    assert_eq!(count(&progress.counted), count(&progress.pairs), "no file is left");
    assert_eq!(count(&progress.changes), report.changes);
    let mut all = Printed::default();
    sinks.into_iter().for_each(|sink| all.add(sink.into_inner().unwrap()));
    all.commits.sort();
    (all, report)
}

/// Returns the lines of `git diff-tree -z --raw --numstat` by commit.
fn diff_tree(dir: &Path, commits: &[u8], args: &[&str]) -> Printed {
    let mut all = Printed::default();
    let base = ["diff-tree", "--stdin", "--root", "-r", "-z", "--raw", "--numstat"];
    let out = git(dir, &[&base[..], args].concat(), commits);
    let mut tokens = out.split(|&c| c == 0).peekable();
    let (mut commit, mut rank) = (String::new(), 0);
    while let Some(token) = tokens.next() {
        let path = |tokens: &mut dyn Iterator<Item = &[u8]>| tokens.next().unwrap().to_vec();
        if token.first() == Some(&b':') {
            let is_pair = token.rsplit(|&c| c == b' ').next().is_some_and(|s| matches!(s[0], b'R' | b'C'));
            let first = path(&mut tokens);
            let rest = if is_pair { [&b"\0"[..], &path(&mut tokens)].concat() } else { Vec::new() };
            let row = [token, b"\0", &first, &rest].concat();
            all.raw.entry(commit.clone()).or_default().push(row);
        } else if token.contains(&b'\t') {
            let row = match token.ends_with(b"\t") {
                true => [token, b"\0", &path(&mut tokens), b"\0", &path(&mut tokens)].concat(),
                false => token.to_vec(),
            };
            all.numstat.entry(commit.clone()).or_default().push(row);
        } else if !token.is_empty() {
            // With -m, the id of a merge stands before its differences from each parent.
            let id = String::from_utf8(token.to_vec()).unwrap();
            rank = if commit.starts_with(&id) { rank + 1 } else { 0 };
            commit = if rank == 0 { id } else { format!("{id} {rank}") };
        }
    }
    all
}

/// Returns the commits that all refs reach, as `Printed` has them.
fn log(dir: &Path) -> Vec<Vec<u8>> {
    let ids = git(dir, &["rev-list", "--all"], b"");
    let batch = git(dir, &["cat-file", "--batch"], &ids);
    let format = "--format=%an|%ae|%at %ad|%cn|%ce|%ct %cd|%e|";
    let args = ["log", "--no-walk=unsorted", "-z", "--date=format:%z", format];
    let heads = git(dir, &[&args[..], &["--stdin"]].concat(), &ids);
    let mut heads = heads.split(|&c| c == 0);
    let (mut rest, mut commits) = (&batch[..], Vec::new());
    while !rest.is_empty() {
        let line = rest.iter().position(|&c| c == b'\n').unwrap();
        let title = String::from_utf8(rest[..line].to_vec()).unwrap();
        let (id, len) = (title.split(' ').next().unwrap(), title.rsplit(' ').next().unwrap());
        let data = &rest[line + 1..][..len.parse().unwrap()];
        rest = &rest[line + 2 + data.len()..];
        let blank = data.windows(2).position(|w| w == b"\n\n").unwrap();
        let header = String::from_utf8_lossy(&data[..blank]).into_owned();
        let of = |key: &str| -> Vec<String> {
            header.lines().filter_map(|l| l.strip_prefix(key)).map(str::to_owned).collect()
        };
        let links = format!("{id} {} {}|", of("tree ")[0], of("parent ").join(" "));
        commits.push([links.as_bytes(), heads.next().unwrap(), &data[blank + 2..]].concat());
    }
    commits.sort();
    commits
}

/// Compares what is mined of the repository in `dir` with what git prints.
fn compare(dir: &Path, what: &str) {
    let ids = git(dir, &["rev-list", "--all"], b"");
    let no_merges = git(dir, &["rev-list", "--all", "--no-merges"], b"");
    let commits = log(dir);
    let cases: [(MergeMode, Detect, &[u8], &[&str]); 4] = [
        (MergeMode::Off, Detect::Renames, &no_merges, &["-M"]),
        (MergeMode::Off, Detect::Nothing, &no_merges, &["--no-renames"]),
        (MergeMode::Separate, Detect::Copies, &ids, &["-m", "-C"]),
        (MergeMode::FirstParent, Detect::Renames, &ids, &["--diff-merges=first-parent", "-M"]),
    ];
    for (case, (merges, detect, list, args)) in cases.into_iter().enumerate() {
        let (rows, report) = mined(dir, &[], &options(merges, detect), 1 + case % 2);
        let expected = diff_tree(dir, list, args);
        assert_eq!(rows.commits.len(), commits.len(), "{what}");
        for (ours, theirs) in rows.commits.iter().zip(&commits) {
            let [ours, theirs] = [ours, theirs].map(|line| String::from_utf8_lossy(line));
            assert_eq!(ours, theirs, "{what}");
        }
        assert_eq!(report.revisions, commits.len() as u64);
        for (ours, theirs) in [(&rows.raw, &expected.raw), (&rows.numstat, &expected.numstat)] {
            for commit in theirs.keys().chain(ours.keys()) {
                let shown = |rows: &BTreeMap<String, Vec<Vec<u8>>>| {
                    let lines = rows.get(commit).map(Vec::as_slice).unwrap_or_default();
                    lines.iter().map(|l| String::from_utf8_lossy(l).into_owned()).collect::<Vec<_>>()
                };
                assert_eq!(shown(ours), shown(theirs), "{what}, {args:?}, commit {commit}");
            }
        }
        assert_eq!(rows.faults, []);
        assert_eq!(rows.releases.len(), 2, "{what}");
    }
}

fn init(dir: &Path, format: &str) {
    let format = format!("--object-format={format}");
    git(dir, &["init", "-q", "--bare", &format, "."], b"");
}

fn import(dir: &Path, seed: u64, id_len: usize, commits: usize) {
    let mut generator = Generator::new(seed, id_len);
    (0..commits).for_each(|_| generator.commit());
    git(dir, &["fast-import", "--quiet", "--force"], &generator.finish());
}

#[test]
fn packs_of_all_layouts() {
    for seed in 1..=8 {
        let dir = weir_testing::folder();
        let dir = dir.path();
        init(dir, "sha1");
        import(dir, seed, 20, 120);
        compare(dir, &format!("seed {seed}, as imported"));
        git(dir, &["repack", "-q", "-a", "-d", "-f", "--depth=200", "--window=40"], b"");
        compare(dir, &format!("seed {seed}, repacked"));
        if seed % 4 == 0 {
            let pack = std::fs::read_dir(dir.join("objects/pack")).unwrap();
            let pack =
                pack.map(|e| e.unwrap().path()).find(|p| p.extension().is_some_and(|e| e == "pack")).unwrap();
            let data = std::fs::read(&pack).unwrap();
            std::fs::remove_dir_all(dir.join("objects/pack")).unwrap();
            git(dir, &["unpack-objects", "-q"], &data);
            compare(dir, &format!("seed {seed}, loose"));
        }
    }
}

#[test]
fn sha256() {
    let dir = weir_testing::folder();
    init(dir.path(), "sha256");
    import(dir.path(), 77, 32, 80);
    compare(dir.path(), "sha256");
}

#[test]
fn long_files_with_few_words() {
    for words in [3, 40, 900, 100_000] {
        let dir = weir_testing::folder();
        init(dir.path(), "sha1");
        let mut generator = Generator::new(words as u64, 20);
        (0..40).for_each(|_| generator.commit_to_long_file(words));
        git(dir.path(), &["fast-import", "--quiet", "--force"], &generator.finish());
        compare(dir.path(), &format!("{words} words"));
    }
}

fn oid(hex: &[u8]) -> weir_git::Oid {
    weir_git::Oid::from_hex_any(hex.trim_ascii_end()).unwrap()
}

#[test]
fn what_was_mined_before_is_left_out() {
    let dir = weir_testing::folder();
    init(dir.path(), "sha1");
    import(dir.path(), 5, 20, 100);
    let ids = git(dir.path(), &["rev-list", "--all"], b"");
    let old = ids.split(|&c| c == b'\n').nth(40).unwrap();
    let not_old = format!("^{}", String::from_utf8_lossy(old));
    let (rows, _) = mined(dir.path(), &[oid(old)], &options(MergeMode::Off, Detect::Renames), 2);
    let expected = git(dir.path(), &["rev-list", "--all", &not_old], b"");
    assert_eq!(rows.commits.len(), expected.split_inclusive(|&c| c == b'\n').count());
    let no_merges = git(dir.path(), &["rev-list", "--all", "--no-merges", &not_old], b"");
    assert_eq!(rows.numstat, diff_tree(dir.path(), &no_merges, &["-M"]).numstat);
}

/// Removes the loose object `id`.
fn remove(dir: &Path, id: &str) {
    std::fs::remove_file(dir.join("objects").join(&id[..2]).join(&id[2..])).unwrap();
}

#[test]
fn missing_objects_become_rows() {
    let dir = weir_testing::folder();
    let dir = dir.path();
    init(dir, "sha1");
    let stream = "blob\nmark :1\ndata 4\none\n\nblob\nmark :2\ndata 4\ntwo\n\n\
        commit refs/heads/a\nmark :3\ncommitter A <a@b> 1000000000 +0000\ndata 0\nM 644 :1 d/f\n\n\
        commit refs/heads/a\nmark :4\ncommitter A <a@b> 1000000001 +0000\ndata 0\nM 644 :2 d/f\n\n\
        commit refs/heads/a\nmark :5\ncommitter A <a@b> 1000000002 +0000\ndata 0\nM 644 :1 e/g\n\n";
    git(dir, &["-c", "fastimport.unpackLimit=100", "fast-import", "--quiet"], stream.as_bytes());
    let of =
        |name: &str| String::from_utf8(git(dir, &["rev-parse", name], b"")).unwrap().trim_end().to_owned();
    let [first, second, third] = ["a~2", "a~1", "a"].map(of);
    let (blob, tree) = (of("a~1:d/f"), of("a:e"));
    let options = options(MergeMode::Off, Detect::Renames);

    remove(dir, &blob);
    let (rows, _) = mined(dir, &[], &options, 1);
    assert_eq!((rows.commits.len(), rows.faults.len()), (3, 0));
    assert_eq!(rows.numstat[&second], [b"unavailable\td/f".to_vec()]);
    assert_eq!(rows.numstat[&third], [b"1\t0\te/g".to_vec()]);

    remove(dir, &tree);
    let (rows, report) = mined(dir, &[], &options, 1);
    assert_eq!(rows.faults, [(tree, FaultKind::Missing)]);
    assert!(!rows.raw.contains_key(&third) && rows.raw.contains_key(&second));
    assert_eq!((report.revisions, report.faults), (3, 1));

    remove(dir, &first);
    let (rows, _) = mined(dir, &[], &options, 1);
    assert_eq!(rows.commits.len(), 2);
    assert!(rows.faults.contains(&(first, FaultKind::Missing)), "{:?}", rows.faults);
    assert!(!rows.raw.contains_key(&second), "a parent that is missing is not an empty tree");
}

#[test]
fn a_shallow_clone_begins_with_roots() {
    let dir = weir_testing::folder();
    init(dir.path(), "sha1");
    import(dir.path(), 9, 20, 60);
    let url = format!("file://{}", dir.path().display());
    let clone = weir_testing::folder();
    git(clone.path(), &["clone", "-q", "--bare", "--depth=5", "--no-single-branch", &url, "."], b"");
    let (rows, _) = mined(clone.path(), &[], &options(MergeMode::Off, Detect::Renames), 1);
    let no_merges = git(clone.path(), &["rev-list", "--all", "--no-merges"], b"");
    assert_eq!(rows.numstat, diff_tree(clone.path(), &no_merges, &["-M"]).numstat);
    assert_eq!(rows.faults, []);
}
