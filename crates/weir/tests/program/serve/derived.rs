//! Bitmaps and commit-graph have git's formats: git reads them and agrees with them, and answers made with
//! them are right.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Env, Server};

/// Returns the filters of paths in a commit-graph, by commit.
fn path_filters(graph: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let data = std::fs::read(graph).unwrap();
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let row = |n: usize| &data[8 + 12 * n..20 + 12 * n];
    let chunk = |name: &[u8]| {
        let n = (0..usize::from(data[6])).find(|n| row(*n)[..4] == *name).unwrap();
        &data[number(&row(n)[4..])..number(&row(n + 1)[4..])]
    };
    let filters = &chunk(b"BDAT")[12..];
    let ends: Vec<usize> = chunk(b"BIDX").chunks(4).map(number).collect();
    let filter = |n: usize| &filters[if n == 0 { 0 } else { ends[n - 1] }..ends[n]];
    chunk(b"OIDL").chunks(20).enumerate().map(|(n, id)| (id.to_vec(), filter(n).to_vec())).collect()
}

#[test]
fn git_agrees_with_bitmaps_and_commit_graph() {
    let env = Env::new();
    let upstream = env.init_bare("large.git");
    let generator = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/generate-repository.py");
    let generated =
        weir_testing::command("python3").args([generator, "3000"]).stdout(Stdio::piped()).output().unwrap();
    env.git_with(&upstream, &["fast-import", "--quiet"], &generated.stdout);
    // Merges of two and three parents, and a branch beside.
    env.git(&upstream, &["update-ref", "refs/heads/side", "main~1500"]);
    for (i, parents) in [&["main", "main~700"][..], &["main", "main~50", "side"]].iter().enumerate() {
        let mut args = vec!["commit-tree", "-m", "merge", "main^{tree}"];
        args.extend(parents.iter().flat_map(|p| ["-p", *p]));
        let merge = env.git(&upstream, &args);
        env.git(&upstream, &["update-ref", "refs/heads/main", &merge]);
        let _ = i;
    }
    env.weir(&["add", "--name", "large", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let archive = env.weir_json(&["show", "large"])["archive"].as_str().unwrap().to_owned();
    let target = env.path("extracted");
    std::fs::create_dir(&target).unwrap();
    assert!(
        weir_testing::command("tar").args(["xf", &archive]).current_dir(&target).status().unwrap().success()
    );
    let bitmap = std::fs::read_dir(target.join("objects/pack"))
        .unwrap()
        .any(|e| e.unwrap().path().extension().is_some_and(|x| x == "bitmap"));
    assert!(bitmap && target.join("objects/info/commit-graph").is_file(), "both are there");
    env.git(&target, &["commit-graph", "verify"]);
    let graph = target.join("objects/info/commit-graph");
    let filters = path_filters(&graph);
    // Paths of this repository have the same hash in both versions.
    env.git(
        &target,
        &["-c", "commitGraph.readChangedPaths=false", "commit-graph", "write", "--changed-paths"],
    );
    assert!(filters.len() > 3000 && filters == path_filters(&graph), "git makes the same filters");
    // Compares what the bitmaps say of a commit with a walk.
    for commit in ["main", "main~1", "side"] {
        let output = env.git_command(&target, &["rev-list", "--test-bitmap", commit]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("OK!"), "{commit}: {said}");
    }
    for range in ["main~40", "main~1000", "main~3..main", "main~900..side"] {
        let count = |more: &[&str]| {
            env.git(&target, &[&["rev-list", "--objects", "--count"], more, &[range]].concat())
        };
        assert_eq!(count(&["--use-bitmap-index"]), count(&[]), "{range}");
    }
    env.git(&target, &["fsck", "--full", "--strict"]);

    let server = env.serve();
    env.assert_same(&server, "large", &upstream, "whole");
    // Answers that bitmaps help with: one branch, and what is far behind.
    for (name, args) in [
        ("side", &["--single-branch", "-b", "side"][..]),
        ("no-tags", &["--single-branch", "--no-tags", "-b", "main"]),
    ] {
        let copy = env.path(&format!("{name}.git"));
        let mut all = vec!["clone", "-q", "--bare"];
        all.extend(args);
        let url = server.url("large");
        all.extend([url.as_str(), copy.to_str().unwrap()]);
        env.git(env.dir.path(), &all);
        env.git(&copy, &["fsck", "--full", "--strict"]);
        let walk = |at: &Path, rev: &str| {
            env.git(at, &["rev-list", "--objects", "--no-object-names", rev]).lines().count()
        };
        assert_eq!(
            walk(&copy, "HEAD"),
            walk(&upstream, if name == "side" { "side" } else { "main" }),
            "{name}"
        );
    }
    fetch_from_behind(&env, &server, &upstream);
}

/// Fetches into clones of older commits.
fn fetch_from_behind(env: &Env, server: &Server, upstream: &Path) {
    for behind in [1, 40, 60, 900, 2500] {
        let copy = env.path(&format!("behind-{behind}.git"));
        let start = format!("main~{behind}");
        env.git(env.dir.path(), &["init", "-q", "--bare", copy.to_str().unwrap()]);
        let commit = env.git(upstream, &["rev-parse", &start]);
        env.git(upstream, &["update-ref", "refs/heads/start", &commit]);
        env.git(&copy, &["fetch", "-q", upstream.to_str().unwrap(), "start:main"]);
        env.git(&copy, &["fetch", "-q", &server.url("large"), "+refs/heads/*:refs/heads/*"]);
        env.git(&copy, &["fsck", "--full", "--strict"]);
        assert_eq!(env.git(&copy, &["rev-parse", "main"]), env.git(upstream, &["rev-parse", "main"]));
        env.git(upstream, &["update-ref", "-d", "refs/heads/start"]);
    }
}
