//! Upstreams over ssh: how ssh is started, and how its messages are read.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::Env;

/// Writes a program that stands in for ssh and runs the remote command here; returns its path.
fn pretended_ssh(env: &Env, place: &str, first: &str) -> PathBuf {
    let script = env.path(place);
    std::fs::create_dir_all(script.parent().unwrap()).unwrap();
    std::fs::write(&script, format!("#!/bin/sh\n{first}\nfor last; do :; done\neval \"$last\"\n")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

fn add(env: &Env, name: &str, upstream: &Path) {
    env.weir(&["add", "--name", name, &format!("ssh://host{}", upstream.display())]);
}

#[test]
fn the_command_is_for_the_shell() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    let script =
        pretended_ssh(&env, "a folder/ssh", "[ \"$WANTED\" = 1 ] || { echo WANTED is not set >&2; exit 1; }");
    add(&env, "it", &upstream);
    let folder = script.parent().unwrap().display().to_string();
    for line in [
        format!("WANTED=1 '{folder}/ssh'"),
        format!("WANTED=1 \"{folder}/ssh\" -v 2>/dev/null"),
        format!("sh -c 'WANTED=1; export WANTED; \"$0\" \"$@\"' '{folder}/ssh'"),
        "WANTED=1 \"$SSH_IS_HERE\"".to_owned(),
    ] {
        let mut command = env.weir_command(&["mirror", "it"]);
        command.env("GIT_SSH_COMMAND", &line).env("SSH_IS_HERE", &script);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let output = env.weir_command(&["mirror", "it"]).env("GIT_SSH", &script).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("WANTED is not set"), "{output:?}");
}

#[test]
fn what_it_says_at_length_is_read() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    // More output than a pipe holds, before the program does anything else.
    let script = pretended_ssh(&env, "ssh", "head -c 300000 /dev/zero | tr '\\0' x >&2");
    env.configure("transport", &format!("ssh_command = '{}'\nidle_timeout = '10s'", script.display()));
    add(&env, "it", &upstream);
    assert!(env.weir(&["mirror", "it"]).contains("1 updated"), "it waited for whoever reads");
}

#[test]
fn its_words_have_classes() {
    let env = Env::new();
    let cases = [
        ("ERROR: Repository not found.", "gone"),
        ("fatal: '/nope.git' does not appear to be a git repository", "gone"),
        ("git@host: Permission denied (publickey).", "forbidden"),
        ("FATAL: R any x u DENIED by fallthru", "forbidden"),
        ("Host key verification failed.", "forbidden"),
    ];
    for (n, (words, class)) in cases.iter().enumerate() {
        let script = pretended_ssh(&env, &format!("ssh{n}"), &format!("echo \"{words}\" >&2; exit 255"));
        let name = format!("r{n}");
        add(&env, &name, Path::new("/x.git"));
        let output = env.weir_command(&["mirror", &name]).env("GIT_SSH_COMMAND", &script).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!("({class})")), "{words}: {said}");
    }
}

/// Checks that a user who may only read the pool, such as a separate ssh user, is served from it, with and
/// without a weir that writes to it.
#[test]
fn a_pool_that_may_only_be_read_is_served() {
    use std::os::unix::process::CommandExt;
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "it", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    if !std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0) {
        weir_testing::skip("root", "only root can run a program as another user");
        return;
    }
    let program = env.path("weir");
    weir_testing::copy_program(env!("CARGO_BIN_EXE_weir"), &program);
    for folder in [env.dir.path().to_owned(), env.pool()] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for file in ["weir.toml", "catalog.db"] {
        std::fs::set_permissions(env.pool().join(file), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let as_nobody = |args: &[&str]| {
        let mut command = weir_testing::command(&program);
        command
            .args(args)
            .env("WEIR_POOL", env.pool())
            .env("HOME", "/nonexistent")
            .uid(65534)
            .gid(65534)
            .current_dir("/");
        command.stdin(std::process::Stdio::null()).output().unwrap()
    };
    let listed = |why: &str| {
        let output = as_nobody(&["shell", "-c", "git-upload-pack 'it'"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.contains("refs/heads/main"),
            "{why}: {said} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(as_nobody(&["ls"]).status.success(), "{why}");
    };
    listed("nobody else is there");
    let server = env.serve();
    listed("beside a server");
    drop(server);
    listed("after it");
    let output = as_nobody(&["add", "https://example.org/x"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success()
            && said.contains("is read-only for this user")
            && said.contains("catalog.db"),
        "{said}"
    );
}
