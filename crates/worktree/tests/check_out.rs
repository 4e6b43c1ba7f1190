//! Compares a checkout with git's: files, modes, links, the index and its cached trees.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use weir_git::Oid;
use weir_repo::open_directory;
use weir_testing::{Numbers, folder, run_git};
use weir_worktree::{CheckOut, CheckedOut, Error, IndexReader, PathForm};

/// Makes a bare repository in `dir` with the files that `add` writes to a stream of fast-import.
fn repository(dir: &Path, files: &str) -> PathBuf {
    let path = dir.join("a.git");
    run_git(dir, &["init", "-q", "--bare", "-b", "main", path.to_str().unwrap()], b"");
    let head = "commit refs/heads/main\ncommitter C <c@e> 1700000001 +0000\ndata 0\n";
    run_git(&path, &["fast-import", "--quiet"], format!("{head}{files}").as_bytes());
    path
}

fn file(mode: &str, path: &str, data: &str) -> String {
    format!("M {mode} inline {path}\ndata {}\n{data}\n", data.len())
}

/// Checks out the main branch of `from` into `top`, beside a clone of its objects; returns the result.
fn check_out(from: &Path, top: &Path, form: PathForm) -> Result<CheckedOut, Error> {
    run_git(from, &["clone", "-q", "-n", "--shared", from.to_str().unwrap(), top.to_str().unwrap()], b"");
    let repo = open_directory(from).unwrap();
    let said = String::from_utf8(run_git(from, &["rev-parse", "main^{tree}"], b"")).unwrap();
    let tree = Oid::from_hex(repo.hash(), said.trim().as_bytes()).unwrap();
    let done = CheckOut { repo: &repo, tree, folder: top, threads: 3, form }.run();
    if let Ok(CheckedOut::Done(index)) = &done {
        fs::write(top.join(".git/index"), index).unwrap();
    }
    done
}

/// Returns what is in a working tree: paths, kinds, permissions and contents.
fn everything(top: &Path, below: &Path, all: &mut Vec<(PathBuf, u32, Vec<u8>)>) {
    let mut entries: Vec<_> = fs::read_dir(top.join(below)).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries.iter().filter(|entry| entry.file_name() != ".git") {
        let path = below.join(entry.file_name());
        let about = entry.metadata().unwrap();
        let content = match () {
            () if about.is_symlink() => {
                fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
            }
            () if about.is_file() => fs::read(entry.path()).unwrap(),
            () => Vec::new(),
        };
        all.push((path.clone(), about.permissions().mode(), content));
        if about.is_dir() {
            everything(top, &path, all);
        }
    }
}

/// Checks that both working trees are the same, and that git takes both for clean.
fn assert_same(ours: &Path, theirs: &Path) {
    let [mut a, mut b] = [Vec::new(), Vec::new()];
    everything(ours, Path::new(""), &mut a);
    everything(theirs, Path::new(""), &mut b);
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a, b);
    }
    let trees = |top: &Path| {
        let index = fs::read(top.join(".git/index")).unwrap();
        let mut reader = IndexReader::new(weir_git::HashKind::Sha1, &index).unwrap();
        while reader.next_entry().unwrap().is_some() {}
        reader.extensions().unwrap().trees.unwrap().to_vec()
    };
    assert_eq!(trees(ours), trees(theirs));
    for args in [&["status", "--porcelain"][..], &["diff", "HEAD"], &["fsck", "--full"], &["ls-files", "-s"]]
    {
        let [ours, theirs] = [ours, theirs].map(|top| run_git(top, args, b""));
        assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs), "{args:?}");
    }
    assert_eq!(run_git(ours, &["status", "--porcelain"], b""), b"");
}

#[test]
fn files_are_those_of_git() {
    let dir = folder();
    let mut numbers = Numbers(3);
    let mut files =
        file("100644", ".gitattributes", "*.bat text eol=crlf\n*.id ident\n*.auto text=auto eol=crlf\n");
    files += &file("100644", "a.bat", "one\ntwo\n");
    files += &file("100644", "a.id", "$Id$\n");
    files += &file("100644", "a.auto", "one\ntwo\r\n");
    files += &file("100644", "sub/.gitattributes", "*.bat -text\n");
    files += &file("100644", "sub/b.bat", "one\ntwo\n");
    files += &file("100755", "run", "#!/bin/sh\n");
    files += &file("120000", "link", "run");
    files += &file("120000", "out", "../../../etc/passwd");
    files += &file("100644", "empty", "");
    files += &file("100644", "\"caf\\303\\251 \\377\"", "x");
    files += &file("100644", "a-b/1", "x");
    files += &file("100644", "a/1", "x");
    files += &file("100644", "a.c", "x");
    files += &format!("M 160000 {} module\n", "1".repeat(40));
    for n in 0..300 {
        let (folder, below) = (numbers.below(9), numbers.below(4));
        files += &file("100644", &format!("d{folder}/e{below}/f{n}"), &format!("{n}\n").repeat(n));
    }
    let from = repository(dir.path(), &files);
    let theirs = dir.path().join("theirs");
    run_git(dir.path(), &["clone", "-q", from.to_str().unwrap(), theirs.to_str().unwrap()], b"");
    for (name, form, version) in [("two", PathForm::Whole, 2), ("four", PathForm::Shared, 4)] {
        let ours = dir.path().join(name);
        assert!(matches!(check_out(&from, &ours, form), Ok(CheckedOut::Done(_))));
        assert_eq!(fs::read(ours.join(".git/index")).unwrap()[7], version);
        assert_same(&ours, &theirs);
    }
}

#[test]
fn a_tree_of_nothing_has_an_index_of_nothing() {
    let dir = folder();
    let from = repository(dir.path(), "");
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    run_git(dir.path(), &["clone", "-q", from.to_str().unwrap(), theirs.to_str().unwrap()], b"");
    assert!(matches!(check_out(&from, &ours, PathForm::Whole), Ok(CheckedOut::Done(_))));
    assert_same(&ours, &theirs);
}

#[test]
fn what_only_git_knows_is_left_to_it() {
    for (n, files) in [
        file("100644", ".gitattributes", "*.bin filter=lfs diff=lfs\n"),
        file("100644", "sub/.gitattributes", "* working-tree-encoding=UTF-16\n"),
        file("120000", ".gitattributes", "elsewhere"),
        file("120000", "sub/.gitmodules", "elsewhere"),
        file("100644", "\".git \"", "x"),
        file("100644", "sub/git~1", "x"),
        file("100644", "\"sub/.git\\\\config\"", "x"),
        file("100644", &"n".repeat(300), "x"),
    ]
    .into_iter()
    .enumerate()
    {
        let dir = folder();
        let from = repository(dir.path(), &(file("100644", "0", "x") + &files));
        let ours = dir.path().join("ours");
        assert!(matches!(check_out(&from, &ours, PathForm::Whole), Ok(CheckedOut::LeftToGit(_))), "{n}");
        assert_eq!(fs::read_dir(&ours).unwrap().count(), 1, "{n}: nothing is written but .git");
    }
}

#[test]
fn nothing_is_written_over_or_through_a_link() {
    let dir = folder();
    let from = dir.path().join("a.git");
    run_git(dir.path(), &["init", "-q", "--bare", "-b", "main", from.to_str().unwrap()], b"");
    let made = |kind: &str, data: &[u8]| {
        let id = run_git(&from, &["hash-object", "-w", "--literally", "-t", kind, "--stdin"], data);
        String::from_utf8(id).unwrap().trim().to_owned()
    };
    let raw = |id: &str| {
        (0..20).map(|n| u8::from_str_radix(&id[2 * n..2 * n + 2], 16).unwrap()).collect::<Vec<_>>()
    };
    let away = dir.path().join("away");
    fs::create_dir(&away).unwrap();
    let (link, blob) = (made("blob", away.to_str().unwrap().as_bytes()), made("blob", b"x"));
    let below = made("tree", &[b"100644 f\0", &raw(&blob)[..]].concat());
    // A link and a folder of the same name, in both orders.
    for (n, entries) in [
        [b"120000 a\0", &raw(&link)[..], b"40000 a\0", &raw(&below)].concat(),
        [b"40000 a\0", &raw(&below)[..], b"120000 a\0", &raw(&link)].concat(),
    ]
    .into_iter()
    .enumerate()
    {
        let tree = made("tree", &entries);
        let commit = String::from_utf8(run_git(&from, &["commit-tree", "-m", "x", &tree], b"")).unwrap();
        run_git(&from, &["update-ref", "refs/heads/main", commit.trim()], b"");
        let done = check_out(&from, &dir.path().join(format!("ours{n}")), PathForm::Whole);
        assert!(!matches!(done, Ok(CheckedOut::Done(_))), "{n}");
        assert_eq!(fs::read_dir(&away).unwrap().count(), 0, "{n}");
    }
}

#[test]
fn a_missing_object_is_an_error() {
    let dir = folder();
    let from = repository(dir.path(), &(file("100644", "a", "x") + &file("100644", "b", "y")));
    // So few objects of fast-import are loose.
    let blob = String::from_utf8(run_git(&from, &["rev-parse", "main:b"], b"")).unwrap();
    let blob = blob.trim();
    fs::remove_file(from.join("objects").join(&blob[..2]).join(&blob[2..])).unwrap();
    assert!(matches!(check_out(&from, &dir.path().join("ours"), PathForm::Whole), Err(Error::Repo(_))));
}
