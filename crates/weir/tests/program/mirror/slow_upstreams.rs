//! Upstreams that are slow to make a pack, or stop in the middle of one: stock git daemon, whose pack-objects
//! runs below a program that waits (`uploadpack.packObjectsHook` in git-config(1)).

use std::os::unix::fs::PermissionsExt;

use crate::common::{Env, Rng};

/// Makes git daemon run pack-objects by the shell script `hook`, and send keepalives each `keepalive_s`.
fn set_hook(env: &Env, hook: &str, keepalive_s: u32) {
    let program = env.path("hook");
    std::fs::write(&program, format!("#!/bin/sh\n{hook}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config =
        format!("[uploadpack]\n\tpackObjectsHook = {}\n\tkeepAlive = {keepalive_s}\n", program.display());
    std::fs::write(env.path(".gitconfig"), config).unwrap();
}

#[test]
fn upstream_that_is_slow_to_make_a_pack_is_waited_for() {
    let env = Env::new();
    let upstream = env.odd_repository("a.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "a", &daemon.url("a.git")]);
    for (n, keepalive_s, version) in [(0, 0, 2), (1, 1, 2), (2, 0, 0)] {
        set_hook(&env, "sleep 1.5; exec \"$@\"", keepalive_s);
        std::fs::write(
            env.pool().join("weir.toml"),
            format!("[transport]\nidle_timeout = '1s'\nprotocol_version_max = {version}\n"),
        )
        .unwrap();
        env.add_commit(&upstream, n);
        env.weir(&["mirror", "a"]);
        env.assert_same(&env.serve(), "a", &upstream, &format!("keepalive {keepalive_s}, v{version}"));
    }
}

#[test]
fn upstream_that_never_begins_its_pack_is_given_up_and_the_setting_is_named() {
    let env = Env::new();
    let upstream = env.odd_repository("a.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "a", &daemon.url("a.git")]);
    let waits = env.path("waits");
    std::fs::write(&waits, "").unwrap();
    let hook = format!("while [ -e '{}' ]; do sleep 0.1; done; exec \"$@\"", waits.display());
    for (keepalive_s, setting, said) in [
        (1, "pack_start_timeout", "did not begin to send the pack within 2 s (slow)"),
        (0, "first_byte_timeout", "did not answer for 2 s (slow)"),
    ] {
        set_hook(&env, &hook, keepalive_s);
        std::fs::write(env.pool().join("weir.toml"), format!("[transport]\n{setting} = '2s'\n")).unwrap();
        let told = env.weir_fails(&["mirror", "a"]);
        assert!(told.contains(said) && told.contains(&format!("raise transport.{setting}")), "{told}");
        let advice = env.weir(&["errors", "slow"]);
        assert!(advice.contains(setting) && advice.contains("weir.toml"), "{advice}");
    }
    std::fs::remove_file(&waits).unwrap();
    env.weir(&["mirror", "a"]);
    env.assert_same(&env.serve(), "a", &upstream, "in time");
}

#[test]
fn upstream_that_stops_in_the_middle_of_a_pack_is_given_up() {
    let env = Env::new();
    let upstream = env.init_bare("a.git");
    let noise = Rng(1).bytes(1 << 20);
    env.commit_file(&upstream, "refs/heads/main", "noise", &noise);
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "a", &daemon.url("a.git")]);
    let waits = env.path("waits");
    std::fs::write(&waits, "").unwrap();
    let stops = format!(
        "\"$@\" | {{ head -c 300000; while [ -e '{}' ]; do sleep 0.1; done; cat; }}",
        waits.display()
    );
    set_hook(&env, &stops, 0);
    env.configure("transport", "idle_timeout = '1s'");
    let told = env.weir_fails(&["mirror", "a"]);
    assert!(told.contains("the upstream sent nothing for 1 s (slow)"), "{told}");
    assert!(told.contains("transport.idle_timeout"), "{told}");
    std::fs::remove_file(&waits).unwrap();
    env.weir(&["mirror", "a"]);
    env.assert_same(&env.serve(), "a", &upstream, "it went on");
}
