//! Patches are those of `git diff`, and the commits of lines those that `git blame` finds.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use weir_browse::{
    BlameQuery, Error, KeptBlames, PatchWriter, blame, commit_of, merge_base, tree_of_revision,
};
use weir_mine::{RenameOptions, TreeComparison, compare_trees};
use weir_repo::{Repo, open_directory};
use weir_testing::{Numbers, folder, is_git_since, run_git};

type Files = BTreeMap<String, Vec<String>>;

/// Returns a line as programs have it: many are the same, some are blank, and they are indented.
fn line(numbers: &mut Numbers) -> String {
    let indent = ["", "\t", "\t\t", "    ", "\t  "][numbers.below(5) as usize];
    match numbers.below(12) {
        0 | 1 => String::new(),
        2 => format!("{indent}}}"),
        3 => format!("{indent}{{"),
        4 => "  ".to_owned(),
        5..=7 => format!("{indent}call({});", numbers.below(4)),
        _ => format!("{indent}line {}", numbers.below(400)),
    }
}

fn edit(lines: &mut Vec<String>, numbers: &mut Numbers) {
    let count = lines.len() as u64;
    let at = numbers.below(count + 1) as usize;
    let len = (numbers.below(6) as usize).min(lines.len() - at);
    match numbers.below(5) {
        0 => drop(lines.drain(at..at + len)),
        1 => {
            // A part is written twice.
            let part = lines[at..at + len].to_vec();
            lines.splice(at..at, part);
        }
        2 => {
            let part: Vec<String> = lines.drain(at..at + len).collect();
            let to = numbers.below(lines.len() as u64 + 1) as usize;
            lines.splice(to..to, part);
        }
        _ => {
            let made: Vec<String> = (0..numbers.below(6)).map(|_| line(numbers)).collect();
            lines.splice(at..at + len.min(2), made);
        }
    }
}

/// Returns a history in which files of `lines` lines are edited, merged, moved, deleted and made again.
fn history(numbers: &mut Numbers, commits: usize, lines: u64) -> String {
    let mut stream = String::new();
    let mut states: Vec<Files> = Vec::new();
    for n in 1..=commits {
        let time = 1_700_000_000 + n as u64 * 10 + numbers.below(25);
        let _ = write!(stream, "commit refs/heads/main\nmark :{n}\ncommitter C <c@e> {time} +0000\ndata 0\n");
        let recent = |numbers: &mut Numbers| n - 1 - numbers.below(6.min(n as u64 - 1)) as usize;
        let mut files = Files::new();
        if n > 1 {
            let first = recent(numbers);
            let _ = writeln!(stream, "from :{first}");
            files.clone_from(&states[first - 1]);
            let second = recent(numbers);
            if numbers.below(3) == 0 && second != first {
                let _ = writeln!(stream, "merge :{second}");
                for (path, theirs) in &states[second - 1] {
                    let ours = files.entry(path.clone()).or_insert_with(|| theirs.clone());
                    match numbers.below(4) {
                        0 => ours.clone_from(theirs),
                        1 => {
                            let at = ours.len().min(theirs.len()) / 2;
                            ours.splice(at.., theirs[at..].iter().cloned());
                        }
                        _ => {}
                    }
                }
            }
        }
        for _ in 0..numbers.below(4) {
            let path = format!("d{}/f{}", numbers.below(2), numbers.below(4));
            let names: Vec<String> = files.keys().cloned().collect();
            match (numbers.below(8), names.is_empty()) {
                (0, _) | (_, true) => {
                    files.insert(path, (0..numbers.below(lines)).map(|_| line(numbers)).collect());
                }
                (1, _) => {
                    let from = &names[numbers.below(names.len() as u64) as usize];
                    let moved = files.remove(from).unwrap();
                    files.insert(path, moved);
                }
                _ => {
                    let at = numbers.below(names.len() as u64) as usize;
                    edit(files.get_mut(&names[at]).unwrap(), numbers);
                }
            }
        }
        stream += "deleteall\n";
        for (path, lines) in &files {
            let mut text = lines.join("\n");
            // Some files end without a line break.
            if lines.len() % 3 != 0 {
                text.push('\n');
            }
            let mode = if lines.len() % 17 == 3 { "120000" } else { "100644" };
            let _ = write!(stream, "M {mode} inline {path}\ndata {}\n{text}\n", text.len());
        }
        stream += "\n";
        states.push(files);
    }
    stream
}

fn create(path: &Path, stream: impl AsRef<[u8]>) -> Repo {
    run_git(path.parent().unwrap(), &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
    run_git(path, &["fast-import", "--quiet"], stream.as_ref());
    open_directory(path).unwrap()
}

/// Returns the ranges that git prints: commit, line there, line, count, path, and whether it is the boundary.
fn told_by_git(path: &Path, args: &[&str]) -> Vec<String> {
    let text = run_git(path, &[&["blame", "--line-porcelain"], args].concat(), b"");
    let (mut ranges, mut header, mut is_boundary) = (Vec::new(), None, false);
    for line in text.split(|&c| c == b'\n') {
        let line = String::from_utf8_lossy(line).into_owned();
        let words: Vec<&str> = line.split(' ').collect();
        if words[0].len() == 40 && words.len() == 4 {
            header = Some(words.join(" "));
            is_boundary = false;
        } else if line == "boundary" {
            is_boundary = true;
        } else if let Some(path) = line.strip_prefix("filename ")
            && let Some(header) = header.take()
        {
            ranges.push(format!("{header} {path} {is_boundary}"));
        }
    }
    ranges
}

fn told(repo: &Repo, revision: &str, query: &BlameQuery) -> Result<Vec<String>, Error> {
    let found = blame(repo, &commit_of(repo, revision).unwrap(), query, &KeptBlames::default())?;
    let shown = found.ranges.iter().map(|range| {
        let path = String::from_utf8_lossy(&range.path);
        let (original, line) = (range.original_line, range.line);
        format!("{} {original} {line} {} {path} {}", range.commit, range.count, range.is_boundary)
    });
    Ok(shown.collect())
}

fn of_path(path: &str) -> BlameQuery {
    BlameQuery { path: path.into(), first: 1, last: None, walked_max: 10_000 }
}

#[test]
fn lines_come_from_the_commits_that_git_blames() {
    let dir = folder();
    let mut count = 0;
    // Small files, and those of which git leaves out the end.
    for (seed, lines) in (0..24).map(|seed| (seed, if seed % 4 == 3 { 600 } else { 40 })) {
        let path = dir.path().join(format!("{seed}.git"));
        let repo = create(&path, history(&mut Numbers(seed), 80, lines));
        for back in [0, 5, 17] {
            let revision = format!("main~{back}");
            let listed = run_git(&path, &["ls-tree", "-r", "--name-only", &revision], b"");
            for file in String::from_utf8(listed).unwrap().lines() {
                let expected = told_by_git(&path, &[&revision, "--", file]);
                assert_eq!(
                    told(&repo, &revision, &of_path(file)).unwrap(),
                    expected,
                    "{seed}: {revision} {file}"
                );
                count += expected.len();
            }
        }
    }
    assert!(count > 5_000, "{count}");
}

#[test]
fn some_lines_of_a_file_come_from_the_same_commits() {
    let dir = folder();
    let path = dir.path().join("a.git");
    let text: String = (0..9).map(|n| format!("line {n}\n")).collect();
    let mut stream = String::new();
    for n in 0..9 {
        let text = text.replace(&format!("line {n}"), "changed");
        let _ = write!(stream, "commit refs/heads/main\ncommitter C <c@e> 170000000{n} +0000\ndata 0\n");
        let _ =
            write!(stream, "M 100644 inline d/f\ndata {}\n{text}\nM 100644 inline e\ndata 0\n\n", text.len());
    }
    let repo = create(&path, &stream);
    for (first, last) in [(1, 3), (4, 4), (2, 9), (8, 20)] {
        let query = BlameQuery { first, last: Some(last), ..of_path("d//f") };
        let lines = format!("-L{first},{}", last.min(9));
        assert_eq!(told(&repo, "main", &query).unwrap(), told_by_git(&path, &[&lines, "main", "--", "d/f"]));
    }
    assert!(told(&repo, "main", &of_path("e")).unwrap().is_empty(), "an empty file has no lines");
    let refused = |query: &BlameQuery| told(&repo, "main", query).unwrap_err();
    assert!(matches!(refused(&of_path("f")), Error::NotFound(_)));
    assert!(matches!(refused(&of_path("d")), Error::WrongKind(_)));
    assert!(matches!(refused(&BlameQuery { first: 10, ..of_path("d/f") }), Error::NotFound(_)));
    assert!(matches!(
        refused(&BlameQuery { first: 3, last: Some(2), ..of_path("d/f") }),
        Error::WrongKind(_)
    ));
    assert!(matches!(refused(&BlameQuery { walked_max: 1, ..of_path("d/f") }), Error::TooLarge(_)));
}

/// Returns the patch from `old` to `new`.
fn patch(repo: &Repo, old: &str, new: &str, path: &str, context: u32) -> String {
    let [old, new] = [old, new].map(|revision| tree_of_revision(repo, revision).unwrap().0);
    // Since git 2.44 the bytes behind the last line break count in similarities.
    let renames = RenameOptions { counts_last_line: is_git_since(2, 44), ..RenameOptions::default() };
    let path = path.as_bytes();
    let options = TreeComparison { path, renames, counts_lines: false, ..TreeComparison::default() };
    let found = compare_trees(repo, Some(&old), Some(&new), &options).unwrap();
    let (mut writer, mut out) = (PatchWriter::new(repo, context), Vec::new());
    found.files.iter().for_each(|file| writer.write(file, &mut out).unwrap());
    String::from_utf8_lossy(&out).into_owned()
}

fn patch_of_git(directory: &Path, old: &str, new: &str, path: &str, context: u32) -> String {
    let context = format!("-U{context}");
    let mut args = vec!["diff", "--full-index", "-M", &context, old, new, "--"];
    args.extend(Some(path).filter(|path| !path.is_empty()));
    String::from_utf8_lossy(&run_git(directory, &args, b"")).into_owned()
}

#[test]
fn the_merge_base_is_that_of_git() {
    let dir = folder();
    let mut none = 0;
    for seed in 0..6 {
        let directory = dir.path().join(format!("{seed}.git"));
        let mut stream = history(&mut Numbers(200 + seed), 60, 5);
        stream += "commit refs/heads/other\ncommitter C <c@e> 1700000001 +0000\ndata 0\n\n";
        let repo = create(&directory, &stream);
        let ids = String::from_utf8(run_git(&directory, &["rev-list", "main", "other"], b"")).unwrap();
        let ids: Vec<&str> = ids.lines().collect();
        for first in ids.iter().step_by(3) {
            for second in ids.iter().step_by(4).chain(ids.last()) {
                let args = ["merge-base", "--all", first, second];
                let expected = weir_testing::git(&directory, &args).output().unwrap().stdout;
                let expected = String::from_utf8(expected).unwrap();
                let [first, second] = [first, second].map(|id| commit_of(&repo, id).unwrap());
                let found = merge_base(&repo, &first, &second).unwrap().map(|oid| oid.to_string());
                match &found {
                    Some(found) => assert!(expected.lines().any(|line| line == found), "{first} {second}"),
                    None => none += usize::from(expected.is_empty()),
                }
                assert_eq!(found.is_none(), expected.is_empty(), "{first} {second}");
            }
        }
    }
    assert!(none > 50, "{none}");
}

#[test]
fn a_patch_is_that_of_git_diff() {
    let dir = folder();
    for seed in 0..8 {
        let lines = if seed % 4 == 3 { 600 } else { 40 };
        let directory = dir.path().join(format!("{seed}.git"));
        let repo = create(&directory, history(&mut Numbers(100 + seed), 60, lines));
        let ids = String::from_utf8(run_git(&directory, &["rev-list", "main"], b"")).unwrap();
        let ids: Vec<&str> = ids.lines().collect();
        for back in 0..40 {
            let (old, new) = (ids[back % 12 + 1 + back % 5], ids[back % 12]);
            for (context, path) in [(3, ""), (0, ""), (1, "d1"), (200, "d0/f1")] {
                let expected = patch_of_git(&directory, old, new, path, context);
                let shown = patch(&repo, old, new, path, context);
                assert_eq!(shown, expected, "{seed}: {old} {new} -U{context} {path}");
            }
        }
    }
}

#[test]
fn a_patch_shows_all_sorts_of_files_as_git_does() {
    let dir = folder();
    let directory = dir.path().join("a.git");
    let mut stream = String::new();
    let module = |digit: &str| format!("M 160000 {} module\n", digit.repeat(40));
    let commits: [&[(&str, &str, &str)]; 3] = [
        &[
            ("100644", "run", "one\ntwo\nthree\nfour\n"),
            ("100644", "gone", ""),
            ("100644", "bytes", "a\0b"),
            ("100644", "with space", "x\n"),
            ("100644", "becomes/file", "same\n"),
            ("120000", "link", "run"),
            ("100644", "\"caf\\303\\251 \\\"q\\\"\"", "y"),
            ("100644", "old name", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
            ("100644", "to link", "text\n"),
        ],
        &[
            ("100755", "run", "one\ntwo\nthree\nfour\n"),
            ("100644", "empty", ""),
            ("100644", "bytes", "a\0c"),
            ("100644", "with space", "z\n"),
            ("100644", "becomes", "same\n"),
            ("120000", "link", "bytes"),
            ("100644", "\"caf\\303\\251 \\\"q\\\"\"", "yy\n\ttab\n"),
            ("100755", "new\u{1}name", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n"),
            ("120000", "to link", "run"),
        ],
        &[(
            "100644",
            "long",
            "$start of a function whose line is so long that git does not show all of it: abcdef   ghi\n\
             2\n 3\n 4\n 5\n 6\n 7\n",
        )],
    ];
    for (n, files) in commits.iter().enumerate() {
        let _ = write!(
            stream,
            "commit refs/heads/main\ncommitter C <c@e> 170000000{n} +0000\ndata 0\ndeleteall\n"
        );
        for (mode, path, data) in *files {
            let _ = write!(stream, "M {mode} inline {path}\ndata {}\n{data}\n", data.len());
        }
        stream += &module(if n == 0 { "1" } else { "2" });
        stream += "\n";
    }
    stream += "commit refs/heads/main\ncommitter C <c@e> 1700000009 +0000\ndata 0\n";
    let long = commits[2][0].2.replace(" 7\n", " seven");
    let _ = write!(stream, "M 100644 inline long\ndata {}\n{long}\n", long.len());
    // A heading ends before what is no character, such as one that is cut in two.
    let headings: [&[u8]; 4] =
        [b"head \xa9 latin1", &"h\u{e9}".repeat(60).into_bytes(), b"x \xef\xbf\xbe y", b"z \xed\xa0\x80 y"];
    let mut stream = stream.into_bytes();
    for last in ["7", "seven"] {
        stream.extend(b"commit refs/heads/main\ncommitter C <c@e> 1700000010 +0000\ndata 0\n");
        for (n, heading) in headings.iter().enumerate() {
            let text = [heading, &b"\n 2\n 3\n 4\n 5\n 6\n "[..], last.as_bytes(), b"\n"].concat();
            stream.extend(format!("M 100644 inline h{n}\ndata {}\n", text.len()).into_bytes());
            stream.extend(text);
        }
    }
    let repo = create(&directory, &stream);
    for (old, new) in [(5, 4), (4, 5), (4, 3), (5, 3), (3, 2), (1, 0)] {
        let [old, new] = [old, new].map(|back| format!("main~{back}"));
        let expected = patch_of_git(&directory, &old, &new, "", 3);
        assert_eq!(patch(&repo, &old, &new, "", 3), expected, "{old} {new}");
    }
}
