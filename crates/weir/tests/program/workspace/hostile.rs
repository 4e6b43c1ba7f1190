//! Trees that git does not check out, or should not.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use nix::sys::signal::Signal;
use sha1::{Digest, Sha1};
use weir_testing::tree_data;

use crate::common::Env;
use crate::mount::{Mounted, everything};

use super::Workspace;

/// Entries of trees by deeper than git checks out.
const DEEP: usize = 4000;

/// Writes an object as it is, loose; returns its name. git takes a process for each.
fn object(up: &Path, kind: &str, data: &[u8]) -> String {
    let whole = [format!("{kind} {}\0", data.len()).as_bytes(), data].concat();
    let name: String = Sha1::digest(&whole).iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = up.join("objects").join(&name[..2]);
    fs::create_dir_all(&folder).unwrap();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&whole).unwrap();
    fs::write(folder.join(&name[2..]), encoder.finish().unwrap()).unwrap();
    name
}

/// Writes a tree with the entries `of`: mode, name, id.
fn tree(up: &Path, of: &[(&str, &[u8], &str)]) -> String {
    object(up, "tree", &tree_data(of))
}

/// Makes a branch of one commit with the tree `of`.
fn branch(env: &Env, up: &Path, name: &str, of: &str) {
    let commit = format!("tree {of}\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nx\n");
    let commit = object(up, "commit", commit.as_bytes());
    env.git(up, &["update-ref", &format!("refs/heads/{name}"), &commit]);
}

/// Makes a repository with a branch for each odd tree. Returns it, and those branches that must be refused.
fn hostile(env: &Env) -> (PathBuf, Vec<String>) {
    let up = env.init_bare("hostile.git");
    let blob = object(&up, "blob", b"x\n");
    let below = tree(&up, &[("100644", b"config", &blob)]);
    let mut refused = Vec::new();
    let long = [b'n'; 300];
    let names: [&[u8]; 9] = [b".git", b".GIT", b"..", b".", b"a/b", b"/etc", b"git~1", b"", &long];
    for (n, name) in names.iter().enumerate() {
        for (kind, mode, id) in [("file", "100644", &blob), ("folder", "40000", &below)] {
            let of = tree(&up, &[(mode, name, id), ("100644", b"z", &blob)]);
            let branch_name = format!("{kind}{n}");
            branch(env, &up, &branch_name, &of);
            refused.push(branch_name);
        }
    }
    let mut deep = tree(&up, &[("100644", b"f", &blob)]);
    for _ in 0..DEEP {
        deep = tree(&up, &[("40000", b"d", &deep)]);
    }
    branch(env, &up, "deep", &deep);
    refused.push("deep".to_owned());
    // git writes these as they are, and so may we.
    let link = |target: &[u8]| object(&up, "blob", target);
    let (out, away, own) = (link(b"../../../etc/passwd"), link(b"/etc/passwd"), link(b".git/config"));
    let of = [("120000", &b"away"[..], &*away), ("120000", b"out", &out), ("120000", b"own", &own)];
    branch(env, &up, "links", &tree(&up, &of));
    branch(env, &up, "twice", &tree(&up, &[("100644", b"a", &blob), ("100644", b"a", &blob)]));
    (up, refused)
}

#[test]
fn hostile_trees_are_refused_or_harmless() {
    let env = Env::new();
    let (up, refused) = hostile(&env);
    let source = |branch: &str| format!("{}@{branch}", up.display());
    let Some(it) = Workspace::new(&env, &source("links"), "links") else { return };
    assert_eq!(fs::read_link(it.folder.join("away")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
    let links = it.folder.to_str().unwrap();
    let refuses = |args: &[&str]| {
        let said = env.weir_fails(args);
        let why = ["git checks out no tree in which", "malformed tree entry"];
        assert!(why.iter().any(|why| said.contains(why)), "{args:?}: {said}");
    };
    for branch in &refused {
        refuses(&["ws", "add", &source(branch), "refused"]);
        assert!(!env.path("refused").exists(), "{branch}");
        refuses(&["ws", "switch", links, branch]);
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "", "{branch}");
    }
    assert!(env.weir_fails(&["ws", "add", &source("twice"), "refused"]).contains("out of order"));
    // git keeps no tree at HEAD.
    env.git(&up, &["tag", "-m", "of a tree", "of-tree", "links^{tree}"]);
    assert!(env.weir_fails(&["ws", "add", &source("of-tree"), "refused"]).contains("is no commit"));
    assert!(!env.path("refused").exists());
    // Who only looks sees what has a name, and nothing else.
    let Some(mounted) = Mounted::new(&env, up.to_str().unwrap(), "view") else { return };
    for branch in refused.iter().filter(|branch| *branch != "deep") {
        let folder = fs::canonicalize(mounted.folder.join("branches").join(branch)).unwrap();
        let names = fs::read_dir(folder).and_then(|all| all.map(|entry| Ok(entry?.file_name())).collect());
        match names {
            Ok::<Vec<_>, _>(names) => assert_eq!(names, ["z"], "{branch}"),
            // A name of no bytes ends nowhere.
            Err(_) => assert!(branch.ends_with("7"), "{branch}"),
        }
    }
    let mut at = fs::canonicalize(mounted.folder.join("branches/deep")).unwrap();
    for _ in 0..1000 {
        at.push("d");
    }
    assert!(fs::symlink_metadata(&at).unwrap().is_dir());
    assert_eq!(everything(&mounted.folder.join("branches/links/")).len(), 3);
    let said = mounted.end(Signal::SIGTERM);
    assert!(said.contains("names a file 'a/b', which git would not check out: it is not shown"), "{said}");
}
