//! `weir mount`: repositories as folders, beside what git checks out.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use weir_testing::{Signal, send, skip, tree_data, wait_until};

use crate::common::Env;

/// A view that is mounted, and its process.
pub(crate) struct Mounted {
    child: Child,
    pub(crate) folder: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            send(self.child.id(), Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

impl Mounted {
    /// Mounts `source` on the folder `name`. Returns `None` where the system mounts nothing.
    pub(crate) fn new(env: &Env, source: &str, name: &str) -> Option<Mounted> {
        let folder = env.path(name);
        let mut command = env.weir_terminated(&["mount", source, folder.to_str().unwrap()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.contains("is mounted on") {
            return Some(Mounted { child, folder });
        }
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        child.wait().unwrap();
        assert!(said.contains("cannot mount on") && said.contains("fuse"), "{said}");
        skip("fuse", said.trim());
        None
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    /// Ends the program, and returns what it said of errors.
    pub(crate) fn end(mut self, signal: Signal) -> String {
        send(self.child.id(), signal);
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        said
    }
}

/// Returns all below `folder`: the path, the kind, whether it may be executed, and the content.
pub fn everything(folder: &Path) -> Vec<(Vec<u8>, char, bool, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().as_os_str().as_bytes().to_vec();
            let about = fs::symlink_metadata(&path).unwrap();
            if about.is_symlink() {
                let target = fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec();
                assert_eq!(about.len(), target.len() as u64);
                found.push((name, 'l', false, target));
            } else if about.is_dir() {
                found.push((name, 'd', false, Vec::new()));
                open.push(path);
            } else {
                let content = fs::read(&path).unwrap();
                assert_eq!(about.len(), content.len() as u64, "{}", path.display());
                found.push((name, 'f', about.permissions().mode() & 0o111 != 0, content));
            }
        }
    }
    found.sort();
    found
}

/// Makes an upstream with files of all kinds on two branches, one of them with a slash in its name.
fn upstream(env: &Env) -> PathBuf {
    let up = env.init_bare("up.git");
    let large: String = (0..60_000).map(|n| format!("line {n}\n")).collect();
    let mut stream =
        b"commit refs/heads/main\nmark :1\ncommitter C <c@x> 1700000000 +0000\ndata 1\nx\n".to_vec();
    let mut file = |mode: &str, path: &str, content: &[u8]| {
        stream.extend(format!("M {mode} inline {path}\ndata {}\n", content.len()).bytes());
        stream.extend(content);
        stream.push(b'\n');
    };
    file("644", "plain", b"1\n");
    file("755", "run", b"#!/bin/sh\n");
    file("120000", "link", b"d/deep/er");
    file("120000", "d/out", b"../../../etc/passwd");
    file("644", "d/deep/er/empty", b"");
    file("644", "d/deep/er/large", large.as_bytes());
    file("644", "d/deep/er/changed", format!("{large}end\n").as_bytes());
    // Names in whose order folders count as if they ended with a slash.
    for path in
        ["a", "a.b/x", "a-b", "a0", "\"n\\377\\303\\274\"", "\"q\\\"uote\"", "\"blank \"", "-dash", ".hidden"]
    {
        file("644", path, path.as_bytes());
    }
    stream.extend(b"M 160000 1234567890123456789012345678901234567890 sub\n");
    stream.extend(b"\ncommit refs/heads/feature/one\ncommitter C <c@x> 1700000100 +0000\ndata 1\ny\n");
    stream.extend(b"from :1\nM 644 inline plain\ndata 2\n2\n\n");
    stream.extend(b"\ntag v1\nfrom :1\ntagger T <t@x> 1 +0000\ndata 1\nx\n");
    env.git_with(&up, &["-c", "fastimport.unpackLimit=0", "fast-import", "--quiet"], &stream);
    env.git(&up, &["repack", "-adfq"]);
    up
}

#[test]
fn a_commit_has_the_files_that_git_checks_out() {
    let env = Env::new();
    let up = upstream(&env);
    env.mirror_new("a/it", &up);
    let Some(pool) = Mounted::new(&env, env.pool().to_str().unwrap(), "all") else { return };
    env.git(env.dir.path(), &["clone", "-q", up.to_str().unwrap(), "clone"]);
    let clone = env.path("clone");
    for (branch, tag) in [("main", Some("v1")), ("feature/one", None)] {
        env.git(&clone, &["checkout", "-q", branch]);
        let wanted: Vec<_> =
            everything(&clone).into_iter().filter(|entry| !entry.0.starts_with(b".git")).collect();
        let id = env.git(&up, &["rev-parse", branch]);
        let shown = pool.path(&format!("a/it/branches/{branch}"));
        assert_eq!(everything(&fs::canonicalize(&shown).unwrap()), wanted, "{branch}");
        assert!(fs::read_link(&shown).unwrap().ends_with(format!("commits/{id}")));
        for name in [&id, &id[..9]] {
            assert_eq!(everything(&pool.path(&format!("a/it/commits/{name}/"))), wanted, "{name}");
        }
        if let Some(tag) = tag {
            assert_eq!(everything(&pool.path(&format!("a/it/tags/{tag}/"))), wanted);
            assert_eq!(everything(&pool.path(&format!("a/it/refs/tags/{tag}/"))), wanted);
            assert_eq!(everything(&pool.path("a/it/HEAD/")), wanted);
            let large = pool.path("a/it/HEAD/d/deep/er/large");
            assert_eq!(fs::metadata(&large).unwrap().mtime(), 1_700_000_000, "the time of the commit");
        }
        // A single commit, from the archive itself and from the git directory.
        for source in ["pool/store/a/it.tar", "up.git", "a/it"] {
            let one = Mounted::new(&env, &format!("{source}@{branch}"), "one").unwrap();
            assert_eq!(everything(&one.folder), wanted, "{source}");
            one.end(Signal::SIGINT);
            assert!(!env.path("one").exists(), "the folder that weir made is left");
        }
    }
    let names = |below: &str| {
        let mut names: Vec<String> = fs::read_dir(pool.path(below))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["a"]);
    assert_eq!(names("a"), ["it"]);
    assert_eq!(names("a/it"), ["HEAD", "branches", "commits", "refs", "tags"]);
    assert_eq!(names("a/it/branches"), ["feature", "main"]);
    assert_eq!(names("a/it/refs"), ["heads", "tags"]);
    assert_eq!(names("a/it/commits").len(), 2);
    for absent in
        ["b", "a/it/branches/none", "a/it/commits/1234567890", "a/it/commits/main", "a/it/HEAD/none"]
    {
        let e = fs::metadata(pool.path(absent)).unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "{absent}");
    }
    for path in ["x", "a/it/branches/x", "a/it/HEAD/plain", "a/it/HEAD/d/x"] {
        let e = fs::write(pool.path(path), b"").unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{path}");
    }
}

#[test]
fn branches_move_and_what_is_open_stays() {
    let env = Env::new();
    let up = upstream(&env);
    env.mirror_new("it", &up);
    let Some(it) = Mounted::new(&env, "it", "m") else { return };
    let first = fs::read_link(it.path("HEAD")).unwrap();
    let mut file = fs::File::open(it.path("HEAD/d/deep/er/large")).unwrap();
    let id = env.commit_file(&up, "refs/heads/main", "new", b"new\n");
    env.weir(&["mirror", "--all"]);
    env.weir(&["compact", "it"]);
    wait_until(
        || "HEAD does not move".to_owned(),
        || fs::read(it.path("HEAD/new")).is_ok_and(|content| content == b"new\n"),
    );
    assert!(fs::read_link(it.path("branches/main")).unwrap().ends_with(&id));
    // What was there before is there still.
    assert!(!it.folder.join(&first).join("new").exists() && it.folder.join(&first).join("plain").exists());
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    assert!(content.ends_with("line 59999\n"));
    env.git(&up, &["update-ref", "-d", "refs/heads/feature/one"]);
    env.weir(&["mirror", "--all"]);
    wait_until(
        || "the branch stays".to_owned(),
        || fs::symlink_metadata(it.path("branches/feature/one")).is_err(),
    );
    // While a file is open, the view goes from the folder, and the process stays until it is closed.
    let mut child = it;
    send(child.child.id(), Signal::SIGTERM);
    wait_until(|| "it stays mounted".to_owned(), || !child.folder.exists() || !child.path("HEAD").exists());
    drop(file);
    assert!(child.child.wait().unwrap().success());
}

/// Writes a tree that git itself would not write.
fn tree(env: &Env, up: &Path, entries: &[(&str, &[u8], &str)]) -> String {
    env.git_with(up, &["hash-object", "-t", "tree", "--literally", "-w", "--stdin"], &tree_data(entries))
}

#[test]
fn a_hostile_tree_does_no_harm() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let blob = env.git_with(&up, &["hash-object", "-w", "--stdin"], b"x\n");
    let absent = "1234567890123456789012345678901234567890";
    let inner = tree(&env, &up, &[("100644", b"f", &blob)]);
    let path = format!("{}f", "d/".repeat(4000));
    let head = "commit refs/heads/deep\ncommitter C <c@x> 1 +0000\ndata 0\n";
    env.git_with(&up, &["fast-import", "--quiet"], format!("{head}M 644 {blob} {path}\n").as_bytes());
    let deep = env.git(&up, &["rev-parse", "deep:d"]);
    let names: Vec<(&str, &[u8], &str)> = vec![
        ("40000", b".git", &inner),
        ("40000", b".GIT", &inner),
        ("40000", b"git~1", &inner),
        ("40000", b".", &inner),
        ("40000", b"..", &inner),
        ("100644", b"a/b", &blob),
        ("100644", b"/etc", &blob),
        ("100644", b"twice", &blob),
        ("40000", b"twice", &inner),
        ("100644", b"absent", absent),
        ("40000", b"absent-folder", absent),
        ("40000", b"a-file", &blob),
        ("100644", b"a-folder", &inner),
        ("120000", b"loop", &blob),
        ("40000", b"deep", &deep),
        ("777", b"odd-mode", &blob),
        ("100644", b"well", &blob),
    ];
    let top = tree(&env, &up, &names);
    let commit = env.git(&up, &["commit-tree", "-m", "x", &top]);
    let Some(it) = Mounted::new(&env, &format!("up.git@{commit}"), "m") else { return };
    let mut found: Vec<String> = fs::read_dir(&it.folder)
        .map(|list| list.flatten().map(|e| e.file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    found.sort();
    for name in ["absent", "absent-folder", "a-folder", "deep", "loop", "twice", "well"] {
        assert!(found.contains(&name.to_owned()), "{name} is not listed: {found:?}");
    }
    for refused in [".git", ".GIT", "git~1", "a", "a/b", "etc"] {
        assert!(!it.path(refused).exists() && !found.contains(&refused.to_owned()), "{refused}");
    }
    assert_eq!(fs::read(it.path("well")).unwrap(), b"x\n");
    assert_eq!(fs::read(it.path("odd-mode")).unwrap(), b"x\n");
    assert_eq!(fs::read(it.path("twice")).unwrap(), b"x\n", "the first of two");
    for broken in ["absent", "absent-folder/f", "a-file/f", "a-folder"] {
        assert!(fs::metadata(it.path(broken)).is_err(), "{broken}");
    }
    let mut at = fs::canonicalize(it.path("deep")).unwrap();
    for _ in 0..1000 {
        at.push("d");
    }
    assert!(fs::metadata(&at).is_ok());
    assert_eq!(fs::read(it.path("well")).unwrap(), b"x\n", "it lives");
}

#[test]
fn what_cannot_be_mounted_is_named() {
    let env = Env::new();
    let up = upstream(&env);
    env.weir(&["add", "--name", "it", up.to_str().unwrap()]);
    let fails =
        |source: &str, folder: &str| env.weir_fails(&["mount", source, env.path(folder).to_str().unwrap()]);
    assert!(fails("none", "m").contains("none"), "{}", fails("none", "m"));
    assert!(fails("it", "m").contains("has not been mirrored yet"), "{}", fails("it", "m"));
    env.weir(&["mirror"]);
    assert!(fails("it@none", "m").contains("no such revision: 'none'"), "{}", fails("it@none", "m"));
    assert!(fails("it@", "m").contains("no revision without a name"), "{}", fails("it@", "m"));
    let url = fails("http://example.org/it", "m");
    assert!(
        url.contains(
            "'http://example.org/it' is a URL, not a repository of this machine; 'weir workspace attach'"
        ),
        "{url}"
    );
    let blob = format!("it@{}", env.git(&up, &["rev-parse", "main:plain"]));
    assert!(fails(&blob, "m").contains("is no commit"), "{}", fails(&blob, "m"));
    assert!(!env.path("m").exists());
    assert!(fails("it", "no/such/folder").contains("no/such/folder"), "{}", fails("it", "no/such/folder"));
    fs::write(env.path("file"), b"").unwrap();
    assert!(fails("it", "file").contains("cannot mount on"), "{}", fails("it", "file"));
}

/// A commit may have any time. A program that reads it must not end the mount of all repositories.
#[test]
fn a_commit_of_no_real_time_has_files() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let tree = env.git_with(&up, &["mktree"], b"");
    for time in ["9223372036854775808", "18446744073709551615", "99999999999999999999"] {
        let text = format!("tree {tree}\nauthor A <a> {time} +0000\ncommitter A <a> {time} +0000\n\nx\n");
        let write = &["hash-object", "-t", "commit", "-w", "--stdin", "--literally"];
        let commit = env.git_with(&up, write, text.as_bytes());
        env.git(&up, &["update-ref", &format!("refs/heads/at{time}"), &commit]);
    }
    env.mirror_new("it", &up);
    let Some(pool) = Mounted::new(&env, env.pool().to_str().unwrap(), "all") else { return };
    let branches: Vec<_> = fs::read_dir(pool.path("it/branches")).unwrap().flatten().collect();
    assert_eq!(branches.len(), 3);
    for branch in branches {
        assert_eq!(fs::read_dir(branch.path()).unwrap().count(), 0);
        assert_eq!(fs::metadata(branch.path()).unwrap().mtime(), i64::MAX, "{}", branch.path().display());
    }
}
