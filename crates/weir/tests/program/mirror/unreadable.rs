//! Upstreams and served directories of which a part cannot be read: no ref is dropped, and nothing is "ok".

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Env;

/// Returns the refs of a repository as `git ls-remote` prints them, without those that tags peel to.
fn refs(env: &Env, dir: &Path) -> Vec<String> {
    let text = env.git(dir, &["for-each-ref", "--format=%(objectname) %(refname)"]);
    text.lines().map(str::to_owned).collect()
}

/// Makes a bare repository with two branches, a tag and loose and packed objects.
fn upstream(env: &Env, name: &str) -> PathBuf {
    let dir = env.path(name);
    fs::create_dir(&dir).unwrap();
    env.git(&dir, &["init", "-q", "--bare", "-b", "main", "."]);
    let commit = |branch: &str, parent: &[&str]| {
        let tree = env.git(&dir, &["write-tree"]);
        let mut args = vec!["commit-tree", "-m", branch, tree.trim()];
        parent.iter().for_each(|parent| args.extend(["-p", parent]));
        let id = env.git(&dir, &args).trim().to_owned();
        env.git(&dir, &["update-ref", &format!("refs/heads/{branch}"), &id]);
        id
    };
    let first = commit("main", &[]);
    env.git(&dir, &["repack", "-adq"]);
    env.git(&dir, &["pack-refs", "--all"]);
    commit("side", &[&first]);
    env.git(&dir, &["tag", "-a", "-m", "t", "v1", "main"]);
    dir
}

/// What is done to a file of a git directory.
const DAMAGES: [&str; 3] = ["away", "empty", "cut"];
/// What else is done with `WEIR_DAMAGES=all`.
const MORE_DAMAGES: [&str; 6] = ["garbage", "zeros", "flipped", "one byte", "folder", "link"];

/// Returns whether all damages are tried, which takes minutes: with `WEIR_DAMAGES=all`.
fn are_all_tried() -> bool {
    std::env::var_os("WEIR_DAMAGES").is_some_and(|which| which == "all")
}

fn damage(path: &Path, how: &str) {
    let mut data = fs::read(path).unwrap();
    let middle = data.len() / 2;
    fs::remove_file(path).unwrap();
    match how {
        "empty" => data.clear(),
        "cut" => data.truncate(middle),
        "garbage" => data.fill(0xa5),
        "zeros" => data.fill(0),
        "flipped" => data.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 1),
        "one byte" => data.truncate(1),
        "folder" => return fs::create_dir(path).unwrap(),
        "link" => return std::os::unix::fs::symlink("nowhere", path).unwrap(),
        _ => return,
    }
    fs::write(path, data).unwrap();
}

/// Moves the objects of a git directory to an alternate within it.
fn move_to_alternate(dir: &Path) {
    fs::create_dir(dir.join("alternate")).unwrap();
    fs::rename(dir.join("objects"), dir.join("alternate/objects")).unwrap();
    fs::create_dir_all(dir.join("objects/info")).unwrap();
    fs::write(dir.join("objects/info/alternates"), "../alternate/objects\n").unwrap();
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

/// Calls `each` with an upstream of which a file is damaged, for each file and damage, and with its name.
fn with_each_damage(env: &Env, whole: &Path, url: &Path, mut each: impl FnMut(&str)) {
    each_damage(env, whole, url, &DAMAGES, &mut each);
    if are_all_tried() {
        each_damage(env, whole, url, &MORE_DAMAGES, &mut each);
        move_to_alternate(whole);
        each_damage(env, whole, url, &DAMAGES, &mut each);
        each_damage(env, whole, url, &MORE_DAMAGES, &mut each);
    }
}

fn each_damage(env: &Env, whole: &Path, url: &Path, damages: &[&str], each: &mut impl FnMut(&str)) {
    let mut files = Vec::new();
    files_below(whole, &mut files);
    files.sort();
    for file in files {
        let below = file.strip_prefix(whole).unwrap();
        for how in damages {
            // Without its file, a ref is gone for git, too.
            if below == Path::new("packed-refs") || (below.starts_with("refs") && *how != "empty") {
                continue;
            }
            copy(whole, url);
            damage(&url.join(below), how);
            each(&format!("{how}: {}", below.display()));
            let _ = fs::remove_dir_all(env.path("g.git"));
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

#[test]
fn whatever_is_damaged_no_ref_is_dropped() {
    let env = Env::new();
    let (whole, url, clone) = (upstream(&env, "whole"), env.path("up.git"), env.path("clone"));
    copy(&whole, &url);
    env.weir(&["add", "--name", "up", url.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let wanted = refs(&env, &whole);
    with_each_damage(&env, &whole, &url, |name| {
        let _ = env.weir_command(&["mirror", "--all"]).output().unwrap();
        let _ = fs::remove_dir_all(&clone);
        env.weir(&["export", "up", clone.to_str().unwrap()]);
        assert_eq!(refs(&env, &clone), wanted, "{name}");
        // A first visit is well only if git's clone is.
        let mut git =
            env.git_command(&env.path("."), &["clone", "-q", "--mirror", url.to_str().unwrap(), "g.git"]);
        let is_well = git.output().is_ok_and(|output| output.status.success());
        let _ = env.weir_command(&["rm", "--delete", "new"]).output();
        env.weir(&["add", "--force", "--name", "new", url.to_str().unwrap()]);
        let visit = env.weir_command(&["mirror", "new"]).output().unwrap();
        if visit.status.success() && !is_well {
            let said = String::from_utf8_lossy(&visit.stdout);
            assert!(said.contains("refs"), "{name}: {said}");
            let _ = fs::remove_dir_all(&clone);
            env.weir(&["export", "new", clone.to_str().unwrap()]);
            assert_eq!(refs(&env, &clone), wanted, "first visit, {name}");
        }
    });
}

#[test]
fn whatever_is_damaged_no_client_drops_a_ref() {
    let env = Env::new();
    let (whole, url, client) = (upstream(&env, "whole"), env.path("up.git"), env.path("client"));
    let server = env.weir_daemon(&["--export-all"]);
    copy(&whole, &url);
    env.git(&env.path("."), &["clone", "-q", "--mirror", &server.url("up.git"), "client"]);
    let wanted = refs(&env, &whole);
    with_each_damage(&env, &whole, &url, |name| {
        let _ = env.git_command(&client, &["fetch", "-q", "--prune"]).output().unwrap();
        assert_eq!(refs(&env, &client), wanted, "{name}");
    });
}

#[test]
fn whatever_is_damaged_what_was_mined_stays() {
    let env = Env::new();
    let (whole, url) = (upstream(&env, "whole"), env.path("up.git"));
    let (once, rows) = (env.path("once"), env.path("rows"));
    let read = |folder: &Path, table: &str| {
        let mut files = Vec::new();
        files_below(&folder.join(table), &mut files);
        let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let mine = |folder: &Path| {
        let args = ["mine", "--to", "jsonl", "-o", folder.to_str().unwrap(), url.to_str().unwrap()];
        env.weir_command(&args).output().unwrap()
    };
    copy(&whole, &url);
    assert!(mine(&once).status.success());
    with_each_damage(&env, &whole, &url, |name| {
        copy(&once, &rows);
        mine(&rows);
        let gone = |row: &String| !row.contains("\"target\":");
        assert!(!read(&rows, "ref_change").iter().any(gone), "{name}: {:?}", read(&rows, "ref_change"));
        copy(&whole, &url);
        assert!(mine(&rows).status.success(), "{name}");
        for table in ["revision", "revision_history", "release", "file_change", "default_branch"] {
            assert_eq!(read(&rows, table), read(&once, table), "{name}: {table}");
        }
        assert!(read(&rows, "mining_error").is_empty(), "{name}");
        assert!(!read(&rows, "ref_change").iter().any(gone), "{name}");
    });
}
