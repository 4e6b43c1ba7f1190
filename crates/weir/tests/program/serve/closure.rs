//! Every answer holds all objects that the wants reach, whatever the dates of commits are, and whatever was
//! deleted before.

use std::path::Path;

use crate::common::{Env, Server};

/// Makes a commit of `tree` with the date `time`.
fn commit_at(env: &Env, repo: &Path, time: u64, tree: &str, parents: &[&str]) -> String {
    let mut args = vec!["commit-tree", "-m", "x", tree];
    args.extend(parents.iter().flat_map(|p| ["-p", p]));
    let mut command = env.git_command(repo, &args);
    let date = format!("{time} +0000");
    let output = command.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Makes a tree of files with these contents.
fn tree(env: &Env, repo: &Path, files: &[(&str, &str)]) -> String {
    let lines: String = files
        .iter()
        .map(|(name, content)| {
            let blob = env.git_with(repo, &["hash-object", "-w", "--stdin"], content.as_bytes());
            format!("100644 blob {blob}\t{name}\n")
        })
        .collect();
    env.git_with(repo, &["mktree"], lines.as_bytes())
}

/// Clones with `args`, and checks that the clone has all objects that git asks for.
fn clone_is_whole(env: &Env, url: &str, args: &[&str], partial: bool) {
    let folder = tempfile::tempdir_in(env.dir.path()).unwrap();
    let target = folder.path().join("c.git");
    let mut all = vec!["clone", "-q", "--bare"];
    all.extend(args);
    all.extend([url, target.to_str().unwrap()]);
    env.git(env.dir.path(), &all);
    let missing = env.git(&target, &["rev-list", "--objects", "--all", "--missing=print"]);
    // A partial clone may lack what its filter leaves out, but the filters here leave out nothing of these
    // repositories.
    assert!(!missing.lines().any(|l| l.starts_with('?')), "{args:?}: {missing}");
    if !partial {
        env.git(&target, &["fsck", "--full", "--strict", "--no-dangling"]);
    }
}

const ANSWERS: [(&[&str], bool); 6] = [
    (&[], false),
    (&["--mirror"], false),
    (&["--no-single-branch", "--depth=5"], false),
    (&["--no-single-branch", "--shallow-since=2023-11-14T22:00:00Z"], false),
    (&["--filter=blob:limit=1m"], true),
    (&["--filter=tree:9"], true),
];

fn all_answers_are_whole(env: &Env, server: &Server, name: &str) {
    for (args, partial) in ANSWERS {
        clone_is_whole(env, &server.url(name), args, partial);
    }
}

#[test]
fn a_tree_that_comes_back_under_a_clock_that_was_ahead() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let x = tree(&env, &up, &[("f", "needed")]);
    let y = tree(&env, &up, &[("f", "needed"), ("g", "more")]);
    // The release was made by a clock that was ahead; a revert brings its tree back.
    let release = commit_at(&env, &up, 1_700_001_000, &x, &[]);
    let change = commit_at(&env, &up, 1_700_000_000, &y, &[&release]);
    let revert = commit_at(&env, &up, 1_700_000_001, &x, &[&change]);
    let topic = commit_at(&env, &up, 1_700_000_002, &y, &[&revert]);
    env.git(&up, &["update-ref", "refs/tags/v1", &release]);
    env.git(&up, &["update-ref", "refs/heads/main", &revert]);
    env.git(&up, &["update-ref", "refs/heads/topic", &topic]);
    // weir itself serves a local upstream, and computes each answer.
    env.weir(&["add", "--name", "a", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = env.serve();
    all_answers_are_whole(&env, &server, "a");
    // An unmerged branch goes: whole clones are computed from now on.
    env.git(&up, &["update-ref", "-d", "refs/heads/topic"]);
    env.weir(&["mirror", "--all"]);
    all_answers_are_whole(&env, &server, "a");
    env.weir(&["compact"]);
    all_answers_are_whole(&env, &server, "a");
}

#[test]
fn a_pull_request_on_what_only_history_holds() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let mut last = commit_at(&env, &up, 1_700_000_000, &tree(&env, &up, &[("f", "1")]), &[]);
    last = commit_at(&env, &up, 1_700_000_100, &tree(&env, &up, &[("f", "2")]), &[&last]);
    env.git(&up, &["update-ref", "refs/heads/main", &last]);
    let pull = commit_at(&env, &up, 1_700_000_200, &tree(&env, &up, &[("f", "pull")]), &[&last]);
    env.git(&up, &["update-ref", "refs/pull/1/head", &pull]);
    env.weir(&["add", "--name", "a", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.git(&up, &["update-ref", "-d", "refs/pull/1/head"]);
    env.weir(&["mirror", "--all"]);
    env.weir(&["compact"]);
    let next = commit_at(&env, &up, 1_700_000_300, &tree(&env, &up, &[("f", "pull 2")]), &[&pull]);
    env.git(&up, &["update-ref", "refs/pull/2/head", &next]);
    env.weir(&["mirror", "--all"]);
    let server = env.serve();
    all_answers_are_whole(&env, &server, "a");
    env.assert_same(&server, "a", &up, "all refs");
    // A branch takes the commit over.
    env.git(&up, &["update-ref", "refs/heads/merged", &next]);
    env.git(&up, &["update-ref", "-d", "refs/pull/2/head"]);
    env.weir(&["mirror", "--all"]);
    env.assert_same(&server, "a", &up, "the branch that took it over");
    all_answers_are_whole(&env, &server, "a");
}
