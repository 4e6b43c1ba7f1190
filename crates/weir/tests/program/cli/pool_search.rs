//! Commands find the pool that the current folder is in.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Output;

use crate::common::Env;

/// Runs weir in `folder`, without a pool in its environment.
fn weir_in(env: &Env, folder: &Path, args: &[&str]) -> Output {
    env.weir_command(args)
        .env_remove("WEIR_POOL")
        .env_remove("XDG_DATA_HOME")
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Returns what weir prints in `folder`, which must go well.
fn printed_in(env: &Env, folder: &Path, args: &[&str]) -> String {
    let output = weir_in(env, folder, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn pool_search_goes_upwards() {
    let env = Env::new();
    let (deep, elsewhere) = (env.pool().join("store/a/b"), env.path("elsewhere"));
    std::fs::create_dir_all(&deep).unwrap();
    // A configuration without a store is no pool.
    std::fs::write(deep.join("weir.toml"), "").unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    printed_in(&env, &deep, &["add", "git://h/found"]);
    assert!(env.weir(&["ls"]).contains("h/found"));
    let output = weir_in(&env, &elsewhere, &["ls"]);
    let told = String::from_utf8(output.stderr).unwrap();
    let default = env.path(".local/share/weir");
    let words = format!(
        "there is no pool at '{}', nor in '{}' or a folder above it; make one with 'weir init'",
        default.display(),
        elsewhere.display()
    );
    assert!(output.status.code() == Some(1) && told.contains(&words), "{told}");
    // The flag and the variable go before the folder, and the folder before the default place.
    printed_in(&env, &elsewhere, &["init"]);
    printed_in(&env, &elsewhere, &["add", "git://h/default"]);
    assert!(printed_in(&env, &env.pool(), &["ls"]).contains("h/found"));
    let default = default.to_str().unwrap();
    assert!(printed_in(&env, &env.pool(), &["--pool", default, "ls"]).contains("h/default"));
    let mut named = env.weir_command(&["ls"]);
    let named = named.env("WEIR_POOL", default).current_dir(env.pool()).output().unwrap();
    assert!(String::from_utf8(named.stdout).unwrap().contains("h/default"));
}

#[test]
fn init_in_a_pool_that_lost_its_catalog_makes_one_there() {
    let env = Env::new();
    std::fs::remove_file(env.pool().join("catalog.db")).unwrap();
    let told = String::from_utf8(weir_in(&env, &env.pool(), &["ls"]).stderr).unwrap();
    assert!(told.contains("has no catalog.db; restore it from a backup, or run 'weir init "), "{told}");
    assert!(printed_in(&env, &env.pool(), &["init"]).starts_with("made an empty catalog for the pool at "));
    printed_in(&env, &env.pool(), &["ls"]);
}

#[test]
fn pool_search_trusts_no_other_user() {
    if !nix::unistd::getuid().is_root() {
        weir_testing::skip("root", "only root can make files of other users");
        return;
    }
    let env = Env::new();
    chown(env.pool().join("weir.toml"), Some(1), None).unwrap();
    let refused = |folder: &Path| {
        let output = weir_in(&env, folder, &["ls"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && told.contains("belongs to 'daemon', and its weir.toml"),
            "{told}"
        );
    };
    refused(&env.pool());
    refused(&env.pool().join("store"));
    // Who names the pool trusts it, and so does whoever became root to use it.
    env.weir(&["ls"]);
    let mut sudo = env.weir_command(&["ls"]);
    let sudo = sudo.env_remove("WEIR_POOL").env("SUDO_UID", "1").current_dir(env.pool()).status().unwrap();
    assert!(sudo.success());
    chown(env.pool().join("weir.toml"), Some(0), None).unwrap();
    chown(env.pool(), Some(1), None).unwrap();
    refused(&env.pool());
}
