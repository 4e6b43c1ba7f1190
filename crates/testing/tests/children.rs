//! Children of tests inherit nothing, and end with their tests.

use std::process::Stdio;

use weir_testing::processes::{Strays, children};
use weir_testing::{command, folder, output_of, run_git, wait_until};

#[test]
fn children_see_only_what_is_listed() {
    let environment = String::from_utf8(output_of(&mut command("env"))).unwrap();
    let keys: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let known =
        ["PATH", "LC_ALL", "TMPDIR", "HOME", "RUST_BACKTRACE", "LLVM_PROFILE_FILE", "LD_LIBRARY_PATH"];
    assert!(keys.iter().all(|key| known.contains(key)), "{keys:?}");
}

#[test]
fn children_end_with_the_thread_that_started_them() {
    let start = || {
        let child = command("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        // What setpriv has set counts from then on.
        let program = format!("/proc/{}/comm", child.id());
        let is_started = || std::fs::read_to_string(&program).is_ok_and(|name| name == "sleep\n");
        wait_until(|| "sleep does not start".to_owned(), is_started);
        child
    };
    let mut child = std::thread::spawn(start).join().unwrap();
    assert!(!child.wait().unwrap().success());
}

#[test]
fn strays_are_found_by_an_argument_and_ended() {
    let folder = folder();
    let marker = folder.path().join("marker").display().to_string();
    let mut reading = command("sh");
    let mut child = reading.args(["-c", "read line", &marker]).stdin(Stdio::piped()).spawn().unwrap();
    let strays = Strays(marker);
    wait_until(|| "no stray".to_owned(), || strays.ids() == [child.id()]);
    assert!(children(std::process::id()).contains(&child.id()));
    drop(strays);
    assert!(!child.wait().unwrap().success());
}

#[test]
fn git_acts_on_the_folder_that_it_is_given() {
    let folder = folder();
    run_git(folder.path(), &["init", "-q", "."], b"");
    let found = String::from_utf8(run_git(folder.path(), &["rev-parse", "--absolute-git-dir"], b"")).unwrap();
    assert_eq!(found.trim(), folder.path().canonicalize().unwrap().join(".git").to_str().unwrap());
}
