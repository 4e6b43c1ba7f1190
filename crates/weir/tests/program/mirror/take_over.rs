//! Clones that others have made are taken over: what they hold is not fetched again.

use crate::common::{Env, Server};
use std::path::{Path, PathBuf};

fn tar(at: &Path, from: &Path, what: &str) {
    assert!(
        weir_testing::command("tar")
            .arg("-cf")
            .arg(at)
            .arg("-C")
            .arg(from)
            .arg(what)
            .status()
            .unwrap()
            .success()
    );
}

/// Returns a folder of clones that can be taken over: a mirror, a clone with a work tree, and two clones in
/// tars. The folder also has a tar whose upstream is a local path.
fn clones_of_each_kind(env: &Env, daemon: &Server) -> PathBuf {
    let clones = env.path("clones");
    std::fs::create_dir_all(clones.join("go/o")).unwrap();
    for name in ["mirror", "tree", "tarred", "bare"] {
        std::fs::rename(env.path("up.git"), env.path(&format!("{name}.git"))).unwrap();
        let clone = clones.join(if name == "mirror" { "mirror.git" } else { name });
        let args: &[&str] = match name {
            "mirror" => &["--mirror"],
            "bare" => &["--bare"],
            _ => &[],
        };
        env.git(
            &clones,
            &[&["clone", "-q"], args, &[&daemon.url(&format!("{name}.git")), clone.to_str().unwrap()]]
                .concat(),
        );
        std::fs::rename(env.path(&format!("{name}.git")), env.path("up.git")).unwrap();
    }
    // As crawld stores a clone: the folder's content, with links that lead out of it.
    std::os::unix::fs::symlink("/etc", clones.join("tarred/.git/hooks/away")).unwrap();
    std::fs::write(clones.join("tarred/.git/objects/info/alternates"), "/nowhere/objects\n").unwrap();
    tar(&clones.join("go/o/tarred.tar"), &clones.join("tarred"), ".");
    std::fs::remove_dir_all(clones.join("tarred")).unwrap();
    // A clone whose `commondir` names another repository.
    std::fs::write(clones.join("bare/commondir"), env.path("elsewhere.git").to_str().unwrap()).unwrap();
    tar(&clones.join("bare.tar"), &clones, "bare");
    std::fs::remove_file(clones.join("bare/commondir")).unwrap();
    env.git(&clones.join("bare"), &["config", "remote.origin.url", "/srv/secret.git"]);
    tar(&clones.join("secret.tar"), &clones, "bare");
    std::fs::remove_dir_all(clones.join("bare")).unwrap();
    // A commit and a branch that the clone's owner has not pushed.
    env.git(
        &clones.join("tree"),
        &["-c", "user.name=k", "-c", "user.email=k@x", "commit", "-q", "--allow-empty", "-m", "private"],
    );
    env.git(&clones.join("tree"), &["branch", "mine"]);
    clones
}

/// Adds clones that cannot be taken over: without an upstream, with a relative upstream, not a tar, with
/// missing objects, shallow.
fn add_what_cannot_be_taken(env: &Env, daemon: &Server, up: &Path, clones: &Path) {
    env.git(clones, &["init", "-q", "--bare", "own.git"]);
    env.git(clones, &["init", "-q", "--bare", "relative.git"]);
    env.git(&clones.join("relative.git"), &["config", "remote.origin.url", "../elsewhere"]);
    std::fs::write(clones.join("rubbish.tar"), "no tar at all").unwrap();
    env.git(clones, &["clone", "-q", "--mirror", clones.join("mirror.git").to_str().unwrap(), "holes.git"]);
    env.git(&clones.join("holes.git"), &["config", "remote.origin.url", &daemon.url("holes.git")]);
    env.git(clones, &["clone", "-q", "--depth", "1", &format!("file://{}", up.display()), "shallow"]);
    let packs = clones.join("holes.git/objects/pack");
    let is_pack = |p: &PathBuf| p.extension().is_some_and(|e| e == "idx");
    for pack in std::fs::read_dir(packs).unwrap().map(|e| e.unwrap().path()).filter(is_pack) {
        std::fs::remove_file(pack).unwrap();
    }
}

#[test]
fn mirrors_work_trees_and_tars_of_them() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let daemon = env.git_daemon(&[]);
    let clones = clones_of_each_kind(&env, &daemon);
    add_what_cannot_be_taken(&env, &daemon, &up, &clones);
    let folder = clones.to_str().unwrap();
    let dry = env.weir_command(&["import", "clones", "--dry-run", folder]).output().unwrap();
    assert!(String::from_utf8_lossy(&dry.stdout).contains("to be imported"));
    assert_eq!(env.weir_json(&["ls"]).as_array().unwrap().len(), 0);
    let output = env.weir_command(&["import", "clones", folder]).output().unwrap();
    let (said, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        !output.status.success() && said.contains("4 imported, 0 already there, 6 not imported"),
        "{said}\n{warned}"
    );
    for why in [
        "own.git: not imported: its configuration has no remote.origin.url",
        "is a relative path",
        "rubbish.tar: not imported",
        "holes.git: not imported: the object of 'refs/",
        "secret.tar: not imported: its upstream is a local path",
        "shallow/.git: not imported: it is shallow",
    ] {
        assert!(warned.contains(why), "{why}: {warned}");
    }
    assert!(
        env.weir_command(&["import", "clones", folder])
            .output()
            .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("0 imported, 4 already there"))
    );
    // What is here is known before the first visit.
    let list = env.weir_json(&["ls"]);
    let known = list.as_array().unwrap().iter().filter(|r| r["seq"].is_u64());
    for r in known.clone() {
        let archive = env.pool().join(format!("store/{}.tar", r["name"].as_str().unwrap()));
        assert_eq!(r["archive_bytes"], std::fs::metadata(archive).unwrap().len(), "{r}");
        assert!(r["refs"].as_u64().unwrap() > 1, "{r}");
    }
    assert_eq!(known.count(), 4);
    env.weir(&["fsck"]);
    let server = env.serve();
    let shown = env.git(&env.path(""), &["ls-remote", &server.url("127.0.0.1/tree")]);
    assert!(shown.contains("refs/heads/odd-mode") && !shown.contains("refs/heads/mine"), "{shown}");
    drop(server);
    assert!(
        !std::fs::read_dir(env.pool().join("store")).unwrap().any(|e| e
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(".weir-work"))
    );
    // Visits fetch the rest from the upstreams.
    let commit = env.git(&up, &["commit-tree", "-m", "more", "-p", "main", "main^{tree}"]);
    env.git(&up, &["update-ref", "refs/heads/main", &commit]);
    for name in ["mirror", "tree", "tarred", "bare", "holes"] {
        std::os::unix::fs::symlink(&up, env.path(&format!("{name}.git"))).unwrap();
    }
    let output = env.weir_command(&["--json", "mirror"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let server = env.serve();
    for r in env.weir_json(&["ls"]).as_array().unwrap() {
        let name = r["name"].as_str().unwrap();
        let line = said.lines().find(|l| l.contains(&format!("\"{name}\""))).unwrap();
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let added = line["objects_added"].as_u64().unwrap_or_else(|| panic!("{line}"));
        assert!(name.ends_with("holes") || added <= 12, "{line}");
        env.assert_same(&server, name, &up, "taken over");
    }
}
