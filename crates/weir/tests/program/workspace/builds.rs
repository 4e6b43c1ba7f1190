//! Build tools that compare times, in a workspace that is switched to older and newer commits.

use std::fs;
use std::path::Path;

use weir_testing::command;

use super::Workspace;
use crate::common::{Env, Rng};

/// Commits, each with another constant.
const COMMITS: u64 = 5;
const MAKEFILE: &str = "out: value\n\tcat value other > out\n";
const NINJA: &str = "rule cat\n command = cat $in > $out\nbuild ninja-out: cat value other\n";
const MANIFEST: &str = "[package]\nname = \"it\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";

/// Makes a project for make and cargo. Its commits are years apart, and all in the past.
fn project(env: &Env) -> std::path::PathBuf {
    let up = env.init_bare("project.git");
    let mut stream = String::new();
    let file =
        |path: &str, content: &str| format!("M 644 inline {path}\ndata {}\n{content}\n", content.len());
    for n in 1..=COMMITS {
        stream += "commit refs/heads/main\n";
        stream += &format!("committer C <c@x> {} +0000\ndata 1\nx\n", 1_300_000_000 + n * 31_557_600);
        stream += &file("value", &format!("value {n}\n"));
        stream += &file("src/value.rs", &format!("pub const VALUE: u32 = {n};\n"));
        if n == 1 {
            stream += &file("other", "other\n");
            stream += &file("Makefile", MAKEFILE);
            stream += &file("build.ninja", NINJA);
            stream += &file("Cargo.toml", MANIFEST);
            stream += &file("src/main.rs", "mod value;\nfn main() { println!(\"{}\", value::VALUE) }\n");
            stream += &file(".gitignore", "/target\n/out\n/Cargo.lock\n/*ninja*\n!/build.ninja\n");
        }
        stream += &format!("\nreset refs/tags/v{n}\nfrom refs/heads/main\n\n");
    }
    env.git_with(&up, &["fast-import", "--quiet"], stream.as_bytes());
    up
}

/// Builds with make; returns what it built.
fn make(at: &Path) -> String {
    let built = command("make").arg("-s").current_dir(at).status().unwrap();
    assert!(built.success());
    fs::read_to_string(at.join("out")).unwrap()
}

/// Builds with ninja; returns what it built, and whether it did anything.
fn ninja(at: &Path) -> (String, bool) {
    let built = command("ninja").current_dir(at).output().unwrap();
    assert!(built.status.success(), "{built:?}");
    let is_idle = String::from_utf8_lossy(&built.stdout).contains("no work to do");
    (fs::read_to_string(at.join("ninja-out")).unwrap(), !is_idle)
}

/// Builds and runs with cargo; returns what the program prints.
fn cargo(at: &Path) -> String {
    let mut cargo = command(std::env::var("CARGO").as_deref().unwrap_or("cargo"));
    cargo.args(["run", "--quiet", "--offline"]).current_dir(at).env_remove("CARGO_TARGET_DIR");
    // It may be rustup's, which finds its toolchains at home.
    if let Some(home) = std::env::var_os("HOME") {
        cargo.env("HOME", home);
    }
    let built = cargo.output().unwrap();
    assert!(built.status.success(), "{built:?}");
    String::from_utf8(built.stdout).unwrap()
}

#[test]
fn no_build_is_stale_after_a_switch() {
    let env = Env::new();
    let up = project(&env);
    env.mirror_new("it", &up);
    let Some(it) = Workspace::new(&env, "it", "work") else { return };
    let has_ninja = weir_testing::program("ninja").is_some();
    let mut random = Rng(7);
    let mut now = COMMITS;
    for n in 0..20 {
        assert_eq!(make(&it.folder), format!("value {now}\nother\n"), "{n}");
        if has_ninja {
            assert_eq!(ninja(&it.folder).0, format!("value {now}\nother\n"), "{n}");
        }
        // A build with cargo takes a second.
        if n % 5 == 0 {
            assert_eq!(cargo(&it.folder), format!("{now}\n"), "{n}");
        }
        now = 1 + random.below(COMMITS);
        let (work, revision) = (it.folder.to_str().unwrap(), format!("v{now}"));
        let args = ["ws", "switch", work, &revision, "--mount"];
        env.weir(if n % 3 > 0 { &args } else { &args[..4] });
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
    }
    assert_eq!(cargo(&it.folder), format!("{now}\n"));
    // A fork builds nothing again.
    make(&it.folder);
    if has_ninja {
        ninja(&it.folder);
    }
    let fork = Workspace { env: &env, folder: env.path("fork") };
    env.weir(&["ws", "fork", it.folder.to_str().unwrap(), "fork"]);
    assert!(command("make").arg("-q").current_dir(&fork.folder).status().unwrap().success());
    if has_ninja {
        assert!(!ninja(&fork.folder).1);
    }
    let built = |at: &Path| fs::metadata(at.join("target/debug/it")).unwrap().modified().unwrap();
    let before = built(&fork.folder);
    assert_eq!(cargo(&fork.folder), format!("{now}\n"));
    assert_eq!(built(&fork.folder), before);
}
