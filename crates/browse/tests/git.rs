//! Compares the answers of this crate with those of git.

use std::path::Path;

use weir_browse::{
    ArchiveFormat, ArchivePaths, Error, FolderList, GrepLine, GrepQuery, LogPositions, LogQuery,
    RemoteArchives, ToldCommits, TreeArchive, commit_of, entry_at, grep, grep_pattern, last_commits,
    list_folder, log, tree_of_revision,
};
use weir_git::Oid;
use weir_repo::{Repo, open_directory};
use weir_testing::{Numbers, folder, git, output_of, run_git};
use weir_upload::{ArchiverError, TreeArchiver};

/// Makes a bare repository at `path` with `count` commits, a third of them merges, with times that are not
/// in order.
fn create(path: &Path, count: u64, seed: u64) -> Repo {
    let mut numbers = Numbers(seed);
    let mut stream = String::new();
    for n in 1..=count {
        let time = 1_700_000_000 + n * 10 + numbers.below(60);
        stream += &format!("commit refs/heads/main\nmark :{n}\nauthor A <a@e> {time} +0100\n");
        stream += &format!("committer C <c@e> {time} +0000\ndata 3\nc {}\n", n % 10);
        let recent = |numbers: &mut Numbers| n - 1 - numbers.below(8.min(n - 1));
        if n > 1 {
            let first = recent(&mut numbers);
            stream += &format!("from :{first}\n");
            let second = recent(&mut numbers);
            if numbers.below(3) == 0 && second != first {
                stream += &format!("merge :{second}\n");
            }
        }
        for _ in 0..numbers.below(3) {
            let (folder, file) = (numbers.below(3), numbers.below(4));
            match numbers.below(6) {
                0 => stream += &format!("D f{folder}/s/n{file}\n"),
                1 => stream += &format!("D f{folder}/s\nM 100644 inline f{folder}/s\ndata 1\n{file}\n"),
                content => {
                    // A file gives way to the folder.
                    stream += &format!("D f{folder}/s\n");
                    stream += &format!("M 100644 inline f{folder}/s/n{file}\ndata 1\n{content}\n");
                }
            }
        }
        stream += "\n";
    }
    run_git(path.parent().unwrap(), &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
    run_git(path, &["fast-import", "--quiet"], stream.as_bytes());
    open_directory(path).unwrap()
}

/// Returns the log, page by page.
fn whole_log(repo: &Repo, query: &LogQuery) -> Vec<String> {
    let from = commit_of(repo, "HEAD").unwrap();
    // With two memories, some pages find the place of the page before, and others do not.
    let (mut query, mut ids) = (query.clone(), Vec::new());
    let positions = [LogPositions::default(), LogPositions::default()];
    loop {
        let page = log(repo, &from, &query, &positions[ids.len() % 2]).unwrap();
        assert!(page.commits.len() <= query.count_max);
        ids.extend(page.commits.iter().map(ToString::to_string));
        match page.next {
            Some(next) => query.passed = next,
            None => return ids,
        }
    }
}

#[test]
fn old_modes_are_no_changes() {
    let dir = folder();
    let path = dir.path().join("a.git");
    run_git(dir.path(), &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
    let blob = String::from_utf8(run_git(&path, &["hash-object", "-w", "--stdin"], b"x")).unwrap();
    let raw: Vec<u8> = (0..20).map(|n| u8::from_str_radix(&blob[2 * n..2 * n + 2], 16).unwrap()).collect();
    let mut parent: Vec<String> = Vec::new();
    for mode in ["100664", "100644", "100755", "100775"] {
        let tree = [mode.as_bytes(), b" f\0", &raw].concat();
        let made = run_git(&path, &["hash-object", "-w", "--literally", "-t", "tree", "--stdin"], &tree);
        let tree = String::from_utf8(made).unwrap().trim().to_owned();
        let mut args = vec!["commit-tree", "-m", mode, &tree];
        args.extend(parent.iter().flat_map(|parent| ["-p", parent.as_str()]));
        let commit = String::from_utf8(run_git(&path, &args, b"")).unwrap().trim().to_owned();
        parent = vec![commit];
    }
    run_git(&path, &["update-ref", "refs/heads/main", &parent[0]], b"");
    let repo = open_directory(&path).unwrap();
    let expected =
        String::from_utf8(run_git(&path, &["log", "--format=%H", "main", "--", "f"], b"")).unwrap();
    let query = LogQuery { path: b"./f".to_vec(), count_max: 10, walked_max: 10, ..LogQuery::default() };
    assert_eq!(whole_log(&repo, &query), expected.lines().collect::<Vec<_>>());
    assert_eq!(expected.lines().count(), 2);
}

#[test]
fn a_tree_out_of_order_has_one_page() {
    let dir = folder();
    let path = dir.path().join("a.git");
    run_git(dir.path(), &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
    let entry = [&b"100644 f\0"[..], &[7; 20]].concat();
    let made = run_git(
        &path,
        &["hash-object", "-w", "--literally", "-t", "tree", "--stdin"],
        &[&entry[..], &entry, &entry].concat(),
    );
    let tree = String::from_utf8(made).unwrap().trim().to_owned();
    let repo = open_directory(&path).unwrap();
    let tree = weir_git::Oid::from_hex(repo.hash(), tree.as_bytes()).unwrap();
    let list = |count_max, after| {
        list_folder(&repo, &tree, &FolderList { count_max, after, ..FolderList::default() })
    };
    assert_eq!(list(3, None).unwrap().0.len(), 3);
    assert!(matches!(list(2, None), Err(Error::WrongKind(_))));
    assert!(matches!(list(3, Some(b"f".to_vec())), Err(Error::WrongKind(_))));
}

#[test]
fn a_log_has_the_commits_that_git_lists() {
    let dir = folder();
    for seed in 0..12 {
        let path = dir.path().join(format!("{seed}.git"));
        let repo = create(&path, 150, seed);
        for at in ["", "f0", "f1/s", "f2/s/n1", "f0/s/n3", "none/x"] {
            for (since, until) in [(None, None), (Some(1_700_000_700), Some(1_700_001_200))] {
                let mut args = vec!["log".to_owned(), "--format=%H".to_owned(), "HEAD".to_owned()];
                args.extend(since.map(|time: u64| format!("--max-age={time}")));
                args.extend(until.map(|time: u64| format!("--min-age={time}")));
                args.extend(["--".to_owned(), at.to_owned()].into_iter().filter(|_| !at.is_empty()));
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                let expected = String::from_utf8(run_git(&path, &args, b"")).unwrap();
                let expected: Vec<&str> = expected.lines().collect();
                for (count_max, walked_max) in [(1000, 1000), (7, 1000), (1000, 13)] {
                    let query = LogQuery { path: at.into(), since, until, passed: 0, count_max, walked_max };
                    assert_eq!(whole_log(&repo, &query), expected, "seed {seed}, {query:?}");
                }
            }
        }
    }
}

#[test]
fn the_last_commit_of_each_entry_is_that_of_git_log() {
    let dir = folder();
    for seed in 0..12 {
        let path = dir.path().join(format!("{seed}.git"));
        let repo = create(&path, 150, seed);
        let from = commit_of(&repo, "HEAD").unwrap();
        let top = tree_of_revision(&repo, "HEAD").unwrap().0;
        for at in ["", "f0", "f1/s", "f2/s"] {
            let query = FolderList { path: at.into(), count_max: 100, ..FolderList::default() };
            let Ok((entries, _)) = list_folder(&repo, &top, &query) else { continue };
            let mut names: Vec<&[u8]> =
                entries.iter().map(|entry| entry.path.rsplit(|byte| *byte == b'/').next().unwrap()).collect();
            names.push(b"none");
            let found = last_commits(&repo, &from, at.as_bytes(), &names, 1000).unwrap();
            let told = |name: &[u8]| {
                let whole = format!("./{at}/{}", String::from_utf8_lossy(name));
                let args = ["log", "-1", "--format=%H", "HEAD", "--", &whole];
                String::from_utf8(run_git(&path, &args, b"")).unwrap().trim().to_owned()
            };
            for (name, found) in names.iter().zip(&found) {
                let shown = found.map(|oid| oid.to_string()).unwrap_or_default();
                // git finds the commit that removed a name, if there was one; nobody asks for these.
                if *name != b"none" {
                    assert_eq!(shown, told(name), "seed {seed}, {at} {}", String::from_utf8_lossy(name));
                }
            }
        }
    }
}

/// Makes a repository with all sorts of files.
fn create_odd_files(path: &Path) -> Repo {
    let long = "l".repeat(90);
    let deep = format!("{long}/{long}/{long}");
    let mut stream = "commit refs/heads/main\ncommitter C <c@e> 1700000001 +0000\ndata 0\n".to_owned();
    let mut add = |mode: &str, path: &str, data: &str| {
        stream += &format!("M {mode} inline {path}\ndata {}\n{data}\n", data.len());
    };
    add("100644", "plain", "text");
    add("100755", "run.sh", "#!/bin/sh\n");
    add("100644", "empty", "");
    add("120000", "link", "plain");
    add("120000", "far", &"t".repeat(150));
    add("100644", &format!("{long}/{}", "n".repeat(99)), "x");
    add("100644", &format!("{deep}/short"), &"x".repeat(1024));
    add("100644", &format!("{deep}/{long}{long}"), "y");
    add("100644", ".gitattributes", "*.tmp export-ignore\nhidden export-ignore\nsub/x export-ignore\n");
    add("100644", "a.tmp", "left out");
    add("100644", "hidden/x", "left out");
    add("100644", "sub/x", "left out");
    add("100644", "sub/y.tmp", "not left out");
    add("100644", "sub/z", "z");
    add("100644", "sub/.gitattributes", "y.tmp -export-ignore\nq export-ignore\n");
    add("100644", "sub/q", "left out");
    add("100644", "q", "here");
    add("100644", "\"caf\\303\\251\"", "utf8");
    add(
        "100644",
        "dos/.gitattributes",
        "*.bat eol=crlf\nauto* text=auto eol=crlf\n*.bin binary eol=crlf\n*.id ident\n",
    );
    add("100644", "dos/a.bat", "one\ntwo\r\n\nend");
    add("100644", "dos/auto.text", "one\ntwo\n");
    add("100644", "dos/auto.mixed", "one\ntwo\r\n");
    add("100644", "dos/auto.bytes", "one\n\0two\n");
    add("100644", "dos/x.bin", "one\ntwo\n");
    add("100644", "dos/old.lf", "one\ntwo\n");
    add("100644", "dos/a.id", "$Id$ $Id: 1234 $ $Id: a b $ $Id: x\n$ $Id $Idx$ $$Id$ $Id:$ $Id: $ $Id:\n");
    add("100644", "a-b/1", "order");
    add("100644", "a/1", "order");
    add("100644", "a.c", "order");
    stream += &format!("M 160000 {} module\n", "1".repeat(40));
    run_git(path.parent().unwrap(), &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
    run_git(path, &["fast-import", "--quiet"], stream.as_bytes());
    open_directory(path).unwrap()
}

fn archive_of(tree: Oid, commit: Option<Oid>, prefix: &str) -> TreeArchive {
    let (prefix, time, paths) = (prefix.into(), 1_700_000_001, ArchivePaths::default());
    TreeArchive { tree, commit, prefix, time, paths, level: None }
}

#[test]
fn a_remote_archive_is_that_of_git_archive() {
    let dir = folder();
    let path = dir.path().join("a.git");
    let repo = create_odd_files(&path);
    let ask = |words: &[&str]| {
        let arguments: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut out = Vec::new();
        RemoteArchives.write(&repo, &arguments, &mut out).map(|()| out)
    };
    for words in [
        &["main"][..],
        &["--format=tar", "--prefix=top/", "main"],
        &["main", "dos"],
        &["main", "dos/", "a/1"],
        &["main", "*.id"],
        &["--prefix=p/", "main", "d*s/*", "a.c"],
        &["main", "."],
        &["main", "--", "module"],
        &["main:dos", "old.lf"],
        &["-l"],
    ] {
        let whole = [&["archive"], words].concat();
        let (ours, theirs) = (ask(words).unwrap(), run_git(&path, &whole, b""));
        // Without a commit, the time of all files is now.
        let is_same = if words[0].contains(':') { ours.len() == theirs.len() } else { ours == theirs };
        assert!(is_same, "{words:?}: {} and {} bytes", ours.len(), theirs.len());
    }
    let tgz = ask(&["--format=tgz", "-1", "main", "dos"]).unwrap();
    std::fs::write(dir.path().join("x.tgz"), tgz).unwrap();
    let listed = output_of(weir_testing::command("tar").arg("tzf").arg(dir.path().join("x.tgz")));
    let expected = run_git(&path, &["ls-tree", "-r", "--name-only", "main", "dos"], b"");
    let of_tar = String::from_utf8(listed).unwrap();
    let files = of_tar.lines().filter(|name| !name.ends_with('/'));
    assert_eq!(files.collect::<Vec<_>>(), String::from_utf8(expected).unwrap().lines().collect::<Vec<_>>());
    for (words, why) in [
        (&["main", "nothing"][..], "pathspec 'nothing' did not match any files"),
        (&["main", "dos", "*.nothing"], "pathspec '*.nothing' did not match any files"),
        (&["nothing"], "no such revision: 'nothing'"),
        (&["main:a.c"], "not a tree object: main:a.c"),
        (&[], "name a commit or a tree"),
        (&["--format=rar", "main"], "Unknown archive format 'rar'"),
        (&["-3", "main"], "Argument not supported for format 'tar': -3"),
        (&["--mtime=1", "main"], "option '--mtime' is not supported here"),
        (&["main", ":!dos"], "pathspec magic is not supported here: ':!dos'"),
    ] {
        let error = ask(words).unwrap_err();
        assert!(matches!(&error, ArchiverError::Refused(words) if words == why), "{words:?}: {error}");
    }
}

#[test]
fn a_remote_archive_tells_why_it_cannot_be_made() {
    let dir = folder();
    let path = dir.path().join("a.git");
    create_odd_files(&path);
    let blob = String::from_utf8(run_git(&path, &["rev-parse", "main:a.c"], b"")).unwrap();
    let blob = blob.trim();
    run_git(&path, &["repack", "-adq"], b"");
    let packs = path.join("objects/pack");
    let list = run_git(&path, &["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], b"");
    let others = String::from_utf8(list).unwrap().replace(&format!("{blob}\n"), "");
    let pack = run_git(&path, &["pack-objects", "--stdout", "-q"], others.as_bytes());
    for file in packs.read_dir().unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    run_git(&path, &["index-pack", "--stdin"], &pack);
    let repo = open_directory(&path).unwrap();
    let error = RemoteArchives.write(&repo, &[b"main".to_vec()], &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ArchiverError::Repo(_)) && error.to_string().contains(blob), "{error}");
}

#[test]
fn a_tar_is_that_of_git_archive() {
    let dir = folder();
    let path = dir.path().join("a.git");
    let repo = create_odd_files(&path);
    let (tree, commit) = tree_of_revision(&repo, "main").unwrap();
    for prefix in ["", "top/", "x-", &format!("{}/", "p".repeat(120))] {
        let mut tar = Vec::new();
        ArchiveFormat::Tar.write(&repo, &archive_of(tree, commit, prefix), &mut tar).unwrap();
        let expected =
            run_git(&path, &["archive", "--format=tar", &format!("--prefix={prefix}"), "main"], b"");
        assert!(tar == expected, "with the prefix '{prefix}'");
    }
}

#[test]
fn a_zip_unpacks_to_what_gits_does() {
    let dir = folder();
    let path = dir.path().join("a.git");
    let repo = create_odd_files(&path);
    let (tree, commit) = tree_of_revision(&repo, "main").unwrap();
    let mut ours = Vec::new();
    ArchiveFormat::Zip.write(&repo, &archive_of(tree, commit, "top/"), &mut ours).unwrap();
    let theirs =
        output_of(git(&path, &["archive", "--format=zip", "--prefix=top/", "main"]).env("TZ", "UTC"));
    let files = [("ours.zip", ours), ("theirs.zip", theirs)].map(|(name, data)| {
        let path = dir.path().join(name);
        std::fs::write(&path, data).unwrap();
        path
    });
    let list = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
        for i in z.infolist():\n\
        \x20 print(i.filename, oct(i.external_attr >> 16 & 0o170111), i.date_time[3:], z.read(i))\n\
        print(z.comment)";
    let [ours, theirs] = files.map(|path| {
        let listed =
            output_of(weir_testing::command("python3").args(["-c", list]).arg(path).env("TZ", "UTC"));
        String::from_utf8(listed).unwrap()
    });
    assert_eq!(ours.lines().count(), theirs.lines().count());
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        // git gives only executable files and symbolic links a mode.
        let (ours, theirs) = (ours.replace("0o100000", "0o0"), theirs.replace("0o100000", "0o0"));
        assert_eq!(ours.replace("0o40111", "0o0"), theirs.replace("0o40111", "0o0"));
    }
}

#[test]
fn folders_have_the_entries_that_git_lists() {
    let dir = folder();
    let path = dir.path().join("a.git");
    let repo = create_odd_files(&path);
    let (tree, _) = tree_of_revision(&repo, "main").unwrap();
    let deep = "l".repeat(90);
    for (at, is_recursive) in [("", false), ("", true), ("sub", false), ("sub", true), (&deep, false)] {
        let mut args = vec![
            "-c",
            "core.quotePath=false",
            "ls-tree",
            "-z",
            "--format=%(objectmode) %(objectname) %(objectsize) %(path)",
        ];
        args.extend(is_recursive.then_some("-r"));
        let within = format!("{at}/");
        args.extend(["main", &within].into_iter().filter(|arg| *arg != "/"));
        let expected = String::from_utf8(run_git(&path, &args, b"")).unwrap();
        let mut query = FolderList { path: at.into(), is_recursive, after: None, count_max: 3 };
        let mut listed = String::new();
        loop {
            let (entries, has_more) = list_folder(&repo, &tree, &query).unwrap();
            for entry in &entries {
                let size = entry.size.map_or("-".to_owned(), |size| size.to_string());
                let path = String::from_utf8_lossy(&entry.path);
                listed += &format!("{:06o} {} {size} {path}\0", entry.mode, entry.oid);
            }
            if !has_more {
                break;
            }
            query.after = entries.last().map(weir_browse::FolderEntry::place);
        }
        assert_eq!(listed, expected, "{at}");
    }
    assert_eq!(entry_at(&repo, &tree, b"/sub//z/").unwrap().0, 0o100_644);
    assert!(matches!(entry_at(&repo, &tree, b"plain/x"), Err(Error::NotFound(_))));
    let file = FolderList { path: b"plain".to_vec(), count_max: 1, ..FolderList::default() };
    assert!(matches!(list_folder(&repo, &tree, &file), Err(Error::WrongKind(_))));
}

#[test]
fn a_search_finds_the_lines_that_git_finds() {
    let dir = folder();
    let path = dir.path().join("a.git");
    let mut stream = "commit refs/heads/main\ncommitter C <c@e> 1700000001 +0000\ndata 0\n".to_owned();
    let mut add = |mode: &str, path: &str, data: &str| {
        stream += &format!("M {mode} inline {path}\ndata {}\n{data}\n", data.len());
    };
    add("100644", "a.txt", "one\ntwo\n\nthree one\r\nlast one");
    add("100644", "b/c/d.txt", "One\n  one\n\ttwo one\n");
    add("100644", "b/none", "");
    add("100644", "b/c.txt", &"one two\n".repeat(20));
    add("100644", "binary", "one\0one\n");
    add("120000", "link", "one");
    add("100644", "z", "two\none\n");
    run_git(dir.path(), &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
    run_git(&path, &["fast-import", "--quiet"], stream.as_bytes());
    let repo = open_directory(&path).unwrap();
    let (tree, _) = tree_of_revision(&repo, "main").unwrap();
    for (options, pattern, at) in [
        ("-E", "one", ""),
        ("-E", "^one$", ""),
        ("-Ei", "ONE", "b/c"),
        ("-F", "one", "b/c.txt"),
        ("-F", "o.e", ""),
        ("-E", "(two|three) o", ""),
        ("-E", "one[^x]two", ""),
        ("-E", "e\\s", ""),
    ] {
        let args = ["grep", "-n", "-I", options, "-e", pattern, "main", "--", at];
        let args = if at.is_empty() { &args[..7] } else { &args[..] };
        let output = git(&path, args).output().unwrap();
        let expected = String::from_utf8(output.stdout).unwrap().replace("main:", "").replace('\r', "");
        let pattern = grep_pattern(pattern, options == "-F", options.contains('i')).unwrap();
        for (count_max, bytes_max) in [(1000, 1 << 20), (3, 1 << 20), (1000, 1), (1, 1)] {
            let mut query =
                GrepQuery { pattern: pattern.clone(), path: at.into(), after: None, count_max, bytes_max };
            let mut found = String::new();
            loop {
                let page = grep(&repo, &tree, &query).unwrap();
                assert!(page.lines.len() <= count_max);
                for GrepLine { path, number, text } in &page.lines {
                    let [path, text] = [path, text].map(|bytes| String::from_utf8_lossy(bytes));
                    found += &format!("{path}:{number}:{text}\n");
                }
                if page.next.is_none() {
                    break;
                }
                query.after = page.next;
            }
            assert_eq!(found, expected, "{query:?}");
        }
    }
    // git takes the end of a file behind its last line break for an empty line, as grep(1) does not.
    let pattern = grep_pattern("^$", false, false).unwrap();
    let query = GrepQuery { pattern, path: Vec::new(), after: None, count_max: 10, bytes_max: 1000 };
    let empty = GrepLine { path: b"a.txt".to_vec(), number: 3, text: Vec::new() };
    assert_eq!(grep(&repo, &tree, &query).unwrap().lines, [empty]);
    assert!(grep_pattern("(", false, false).unwrap_err().to_string().contains("unclosed group"));
    assert!(grep_pattern("(a{1000}){1000}", false, false).is_err(), "it takes too much");
}

#[test]
fn nobody_sees_what_no_ref_reaches() {
    let dir = folder();
    let path = dir.path().join("a.git");
    let hidden = create(&path, 20, 1);
    let tip = commit_of(&hidden, "main").unwrap();
    run_git(&path, &["update-ref", "refs/heads/main", "main~5"], b"");
    let repo = open_directory(&path).unwrap();
    let hex = tip.to_string();
    for revision in [&hex, &hex[..12], &format!("{hex}~1"), &format!("{hex}^{{tree}}")] {
        let why = commit_of(&repo, revision).unwrap_err().to_string();
        assert_eq!(why, format!("no such revision: '{revision}'"));
    }
    let seen = commit_of(&repo, "main").unwrap();
    assert_eq!(commit_of(&repo, &format!("{seen}~1")).unwrap(), commit_of(&repo, "main~1").unwrap());
    assert!(tree_of_revision(&repo, "main^{tree}").unwrap().1.is_none());
    assert!(matches!(commit_of(&repo, "main^{tree}"), Err(Error::WrongKind(_))));
    assert!(matches!(commit_of(&repo, "nothing"), Err(Error::NotFound(_))));
}

#[test]
fn commits_are_told_in_utf8() {
    let dir = folder();
    let path = dir.path().join("a.git");
    run_git(dir.path(), &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
    let stream = b"commit refs/heads/main\nauthor J\xfcrgen <j@e> 1700000000 -0230\n\
        committer C <c@e> 1700000001 +0000\nencoding ISO-8859-1\ndata 5\nGr\xfc\xdf\n\n";
    run_git(&path, &["fast-import", "--quiet"], stream);
    let repo = open_directory(&path).unwrap();
    let oid = commit_of(&repo, "main").unwrap();
    let told = ToldCommits::new(&repo).read(&oid).unwrap();
    assert_eq!((told.author.name.as_str(), told.message.as_str()), ("J\u{fc}rgen", "Gr\u{fc}\u{df}\n"));
    assert_eq!((told.author.seconds, told.author.offset_minutes), (Some(1_700_000_000), Some(-150)));
    assert_eq!((told.signature, told.parents.len()), (None, 0));
}
