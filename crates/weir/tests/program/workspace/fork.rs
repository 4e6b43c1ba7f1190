//! `weir workspace fork`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::json;

use super::{STATE, Workspace, ask_monitor, mirrored, work_alike};
use crate::common::{Env, Http, OPEN_SESAME};
use crate::serve::api_client::send;

/// Forks a workspace.
fn forked<'e>(env: &'e Env, from: &Workspace<'_>, name: &str) -> Workspace<'e> {
    let folder = env.path(name);
    env.weir(&["ws", "fork", from.folder.to_str().unwrap(), folder.to_str().unwrap()]);
    Workspace { env, folder }
}

/// Copies a plain clone with all that is in it.
fn copied(env: &Env, from: &str, to: &str) {
    let copied = weir_testing::command("cp").arg("-a").args([env.path(from), env.path(to)]).status().unwrap();
    assert!(copied.success());
}

#[test]
fn an_archive_is_not_deleted_below_a_workspace() {
    let env = Env::new();
    let Some((up, it)) = mirrored(&env) else { return };
    let fork = forked(&env, &it, "fork");
    let archive = env.pool().join("store/it.tar");
    let said = env.weir_fails(&["rm", "--delete", "it"]);
    let first = format!("it: the workspace '{}' and 1 more stand on its archive", fork.folder.display());
    assert!(said.contains(&first) && archive.exists(), "{said}");
    // The API refuses a manager who wants to delete it.
    let boss = format!(
        "tokens = [{{ name = \"boss\", sha256 = \"{OPEN_SESAME}\", scopes = [\"read\", \"manage\"] }}]"
    );
    env.configure("access", &boss);
    let server = Http::serve(&env, &[]);
    let token = "Authorization: Bearer open sesame\r\n";
    let refused = send(&server, "DELETE", "/repositories/it?delete_archive=true", token, "");
    let why = &refused.json()["detail"];
    assert_eq!((refused.status, why), (409, &json!("it: a workspace on the server stands on its archive")));
    assert!(archive.exists());
    drop(server);
    // Nor is it when the upstream has been gone for long.
    fs::rename(&up, env.path("away.git")).unwrap();
    assert!(env.weir_command(&["mirror", "it"]).output().unwrap().status.code() == Some(3));
    env.let_pass(100 * 86400);
    let purge = ["purge", "--gone-for", "90d", "--purge-protect", "100"];
    let output = env.weir_command(&purge).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("it: kept, the workspace") && archive.exists(), "{said}");
    drop((it, fork));
    env.weir(&["rm", "--delete", "it"]);
    assert!(!archive.exists());
}

#[test]
fn a_fork_has_all_and_goes_its_own_way() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    fs::write(it.folder.join("same1"), b"edited").unwrap();
    fs::remove_file(it.folder.join("same2")).unwrap();
    fs::remove_dir_all(it.folder.join("d3")).unwrap();
    fs::create_dir_all(it.folder.join("built/deep")).unwrap();
    fs::write(it.folder.join("built/deep/o.out"), b"built").unwrap();
    env.git(&it.folder, &["commit", "-qam", "mine"]);
    fs::write(it.folder.join("run"), b"not committed").unwrap();
    let time = |folder: &Path| {
        fs::metadata(folder.join("built/deep/o.out")).map(|about| about.mtime_nsec()).unwrap()
    };
    let built = time(&it.folder);
    let fork = forked(&env, &it, "fork");
    let status = |folder: &Path| env.git(folder, &["status", "--porcelain"]);
    assert_eq!(status(&fork.folder), " M run");
    assert_eq!(time(&fork.folder), built, "nothing is built again");
    assert_eq!(fs::read(fork.folder.join("same1")).unwrap(), b"edited");
    assert!(!fork.folder.join("d3").exists());
    assert_eq!(env.git(&fork.folder, &["log", "-1", "--format=%s"]), "mine");
    // Each goes its own way.
    fs::write(fork.folder.join("built/deep/o.out"), b"again").unwrap();
    env.git(&fork.folder, &["commit", "-qam", "of the fork"]);
    env.git(&fork.folder, &["checkout", "-q", "-f", "origin/main"]);
    assert_eq!((status(&fork.folder), status(&it.folder)), (String::new(), " M run".to_owned()));
    assert_eq!(fs::read(it.folder.join("built/deep/o.out")).unwrap(), b"built");
    assert!(fork.folder.join("d3").exists() && !it.folder.join("d3").exists());
    assert_eq!(env.git(&it.folder, &["log", "-1", "--format=%s"]), "mine");
    // What lies below both stays until both are gone.
    let layers = || fs::read_dir(env.path(STATE).join("layers")).unwrap().count();
    drop(it);
    assert_eq!((status(&fork.folder), layers()), (String::new(), 1));
    drop(fork);
    assert_eq!(layers(), 0);
}

#[test]
fn a_workspace_in_use_is_not_forked_under_a_writer() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    let work = it.folder.to_str().unwrap();
    let writer = fs::OpenOptions::new().append(true).open(it.folder.join("same1")).unwrap();
    let said = env.weir_fails(&["ws", "fork", work, "fork"]);
    assert!(said.contains("a program has a file open there to write"), "{said}");
    assert!(!env.path("fork").exists());
    drop(writer);
    fs::write(it.folder.join("same2"), b"it is written to").unwrap();
    // A program that is in it goes on in the old tree, and writes no more.
    let mut inside = weir_testing::command("sh");
    inside.args(["-c", "read _; touch lost; cd \"$PWD\" && touch kept"]).current_dir(&it.folder);
    let mut inside = inside.env("PWD", work).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let output = env.weir_command(&["ws", "fork", work, "fork"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("see it as it was, read-only"), "{said}");
    drop(inside.stdin.take());
    assert!(inside.wait().unwrap().success());
    assert!(!it.folder.join("lost").exists() && it.folder.join("kept").exists());
    let fork = Workspace { env: &env, folder: env.path("fork") };
    assert_eq!(fs::read(fork.folder.join("same2")).unwrap(), b"it is written to");
    let said = env.weir_fails(&["ws", "fork", work, fork.folder.to_str().unwrap()]);
    assert!(said.contains("is a workspace already"), "{said}");
}

#[test]
fn random_work_in_forks_is_that_of_plain_clones() {
    let env = Env::new();
    let Some((up, it)) = mirrored(&env) else { return };
    let state = env.path(STATE);
    env.git(env.dir.path(), &["clone", "-q", up.to_str().unwrap(), "plain"]);
    work_alike(&env, 25, &state, &env.path("plain"), &it.folder);
    let fork = forked(&env, &it, "fork");
    ask_monitor(&env, &fork.folder, &state);
    copied(&env, "plain", "plain-fork");
    work_alike(&env, 25, &state, &env.path("plain-fork"), &fork.folder);
    work_alike(&env, 25, &state, &env.path("plain"), &it.folder);
    let again = forked(&env, &fork, "again");
    copied(&env, "plain-fork", "plain-again");
    work_alike(&env, 25, &state, &env.path("plain-again"), &again.folder);
    // As after a new start of the machine.
    for folder in [&it.folder, &fork.folder, &again.folder] {
        assert!(weir_testing::command("umount").arg("-l").arg(folder).status().unwrap().success());
    }
    env.weir(&["ws", "mount"]);
    work_alike(&env, 25, &state, &env.path("plain-fork"), &fork.folder);
    work_alike(&env, 25, &state, &env.path("plain-again"), &again.folder);
}
