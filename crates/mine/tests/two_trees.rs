//! The files that differ between two trees are those that git lists.

use std::fmt::Write;

use weir_git::Oid;
use weir_mine::{Lines, TreeComparison, compare_trees};
use weir_repo::{Repo, open_directory, resolve_revision};
use weir_testing::{Numbers, folder, run_git};

/// Returns a history in which files are edited, moved, copied, deleted, and become links, folders and
/// submodules.
fn history(seed: u64, commits: u64) -> String {
    let mut numbers = Numbers(seed);
    let mut stream = String::new();
    let mut files: Vec<(String, Vec<u64>)> = Vec::new();
    for n in 1..=commits {
        let _ =
            write!(stream, "commit refs/heads/main\ncommitter C <c@e> {} +0000\ndata 0\n", 1_700_000_000 + n);
        for _ in 0..1 + numbers.below(6) {
            let path = format!("d{}/e{}/f{}", numbers.below(3), numbers.below(2), numbers.below(30));
            let action = numbers.below(10);
            let Some(at) = (!files.is_empty()).then(|| numbers.below(files.len() as u64) as usize) else {
                files.push((path, (0..20).map(|_| numbers.below(1000)).collect()));
                continue;
            };
            match action {
                0..=2 => files.push((path, (0..numbers.below(40)).map(|_| numbers.below(1000)).collect())),
                3..=5 => {
                    let line = numbers.below(1000);
                    let (_, lines) = &mut files[at];
                    let place = numbers.below(lines.len() as u64 + 1) as usize;
                    lines.insert(place, line);
                    if numbers.below(2) == 0 && lines.len() > 3 {
                        lines.remove(numbers.below(3) as usize);
                    }
                }
                6 | 7 => {
                    let name = files[at].0.rsplit('/').next().unwrap().to_owned();
                    files[at].0 = if action == 6 { path } else { format!("moved/{name}") };
                }
                8 => files.push((path, files[at].1.clone())),
                _ => drop(files.swap_remove(at)),
            }
        }
        stream += "deleteall\n";
        for (path, lines) in &files {
            let text: String = lines.iter().map(|line| format!("line {line} of a file\n")).collect();
            let mode = if lines.len() % 7 == 3 { "100755" } else { "100644" };
            let text = if lines.len() % 11 == 5 { text.replace('l', "\0") } else { text };
            let mode = if lines.len() % 13 == 6 { "120000" } else { mode };
            let _ = write!(stream, "M {mode} inline {path}\ndata {}\n{text}\n", text.len());
        }
        if n % 5 == 0 {
            let _ = writeln!(stream, "M 160000 {:040x} module", n / 10 + 1);
        }
        stream += "\n";
    }
    stream
}

/// Returns what differs, as git prints it.
fn told(repo: &Repo, old: Option<&Oid>, new: Option<&Oid>, path: &[u8]) -> String {
    let difference =
        compare_trees(repo, old, new, &TreeComparison { path, ..TreeComparison::default() }).unwrap();
    assert!(!difference.is_too_large);
    let zero = "0".repeat(40);
    let (mut raw, mut numstat) = (String::new(), String::new());
    for file in &difference.files {
        let of = |side: &Option<weir_mine::DifferenceSide>| {
            side.as_ref().map_or((0, zero.clone()), |side| (side.mode.bits(), side.oid.to_string()))
        };
        let path = |side: &Option<weir_mine::DifferenceSide>| {
            side.as_ref().map(|side| String::from_utf8(side.path.clone()).unwrap())
        };
        let ((old_mode, old_id), (new_mode, new_id)) = (of(&file.old), of(&file.new));
        let score = if file.similarity > 0 { format!("{:03}", file.similarity) } else { String::new() };
        let _ =
            write!(raw, ":{old_mode:06o} {new_mode:06o} {old_id} {new_id} {}{score}", file.status.letter());
        let (old, new) = (path(&file.old), path(&file.new));
        let is_moved = file.similarity > 0;
        let last = new.clone().or(old.clone()).unwrap();
        let both = [old.filter(|_| is_moved), Some(last)];
        let paths: Vec<String> = both.into_iter().flatten().collect();
        let _ = write!(raw, "\0{}\0", paths.join("\0"));
        let counts = match file.lines {
            Lines::Text { insertions, deletions } => format!("{insertions}\t{deletions}"),
            Lines::Binary => "-\t-".to_owned(),
            Lines::Unavailable => panic!("all files are here"),
        };
        let _ = match is_moved {
            true => write!(numstat, "{counts}\t\0{}\0", paths.join("\0")),
            false => write!(numstat, "{counts}\t{}\0", paths[0]),
        };
    }
    raw + &numstat
}

#[test]
fn two_trees_differ_as_git_says() {
    let dir = folder();
    for seed in 0..6 {
        let path = dir.path().join(format!("{seed}.git"));
        run_git(dir.path(), &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
        run_git(&path, &["fast-import", "--quiet"], history(seed, 60).as_bytes());
        let (directory, repo) = (path.clone(), open_directory(&path).unwrap());
        let tree = |revision: &str| resolve_revision(&repo, &format!("{revision}^{{tree}}")).unwrap();
        for n in 0..59 {
            for step in [1, 7] {
                let (new, old) = (format!("main~{n}"), format!("main~{}", (n + step).min(59)));
                let args = ["diff-tree", "-r", "-M", "-z", "--raw", "--numstat", &old, &new];
                let expected = String::from_utf8(run_git(&path, &args, b"")).unwrap();
                let told = told(&repo, Some(&tree(&old)), Some(&tree(&new)), b"");
                assert_eq!(told, expected, "seed {seed}, {old} {new}");
                for path in ["d1", "d0/e1", "d2/e0/f7", "module", "d1/none", "d1/e1/f3/none"] {
                    let args = [&args[..], &["--", path]].concat();
                    let expected = String::from_utf8(run_git(&directory, &args, b"")).unwrap();
                    let told = self::told(&repo, Some(&tree(&old)), Some(&tree(&new)), path.as_bytes());
                    assert_eq!(told, expected, "seed {seed}, {old} {new} {path}");
                }
            }
        }
        let args =
            ["diff-tree", "-r", "-M", "-z", "--raw", "--numstat", "--root", "--no-commit-id", "main~59"];
        let expected = String::from_utf8(run_git(&path, &args, b"")).unwrap();
        assert_eq!(told(&repo, None, Some(&tree("main~59")), b""), expected);
        let compared =
            |options: &TreeComparison<'_>| compare_trees(&repo, None, Some(&tree("main")), options).unwrap();
        let few = compared(&TreeComparison { count_max: 2, ..TreeComparison::default() });
        assert!(few.is_too_large && few.files.is_empty());
        let all = |wanted| compared(&TreeComparison { wanted, ..TreeComparison::default() });
        let (whole, part) = (all(0..10_000), all(1..3));
        assert_eq!((whole.count, part.count), (whole.files.len(), whole.count));
        assert_eq!(part.files, whole.files[1..3]);
    }
}
