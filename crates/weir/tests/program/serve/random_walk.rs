//! Random upstreams with odd dates, and random commands: every answer holds exactly the objects that the refs
//! reach according to git.
//!
//! Each run has a new seed, and prints it. `WEIR_SEED` repeats a run; `WEIR_STEPS` and `WEIR_WALKS` set its
//! length.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::{Env, Rng, Server};

const NAMES: [&str; 12] = [
    "refs/heads/main",
    "refs/heads/a",
    "refs/heads/b",
    "refs/heads/c/d",
    "refs/tags/t1",
    "refs/tags/t2",
    "refs/pull/1/head",
    "refs/pull/2/head",
    "refs/pull/3/head",
    "refs/notes/x",
    "refs/x/y",
    "refs/x/z",
];

/// A repository that changes.
struct Upstream {
    name: &'static str,
    path: PathBuf,
    /// All commits that it ever had.
    commits: Vec<String>,
    /// A clone that is kept, and updated by fetches.
    kept: PathBuf,
}

struct Walk {
    env: Env,
    rng: Rng,
    clock: i64,
    upstreams: Vec<Upstream>,
    what: String,
}

impl Walk {
    fn git(&mut self, at: &Path, args: &[&str], input: &[u8]) -> String {
        self.clock += [1, 1, 1, -500_000, 100][self.rng.below(5) as usize];
        let date = format!("{} +0000", self.clock);
        let mut command = self.env.git_command(at, args);
        command.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date);
        command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}: git {args:?}: {}",
            self.what,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn blob(&mut self, at: &Path) -> String {
        let n = self.rng.below(30).to_string();
        let content = n.repeat([1, 50, 2000][self.rng.below(3) as usize]);
        self.git(at, &["hash-object", "-w", "--stdin"], content.as_bytes())
    }

    /// Makes a tree like `base` with some entries changed; the same trees come back often.
    fn tree(&mut self, at: &Path, base: Option<&str>) -> String {
        let listed = base.map_or(String::new(), |base| self.git(at, &["ls-tree", base], b""));
        let mut lines: Vec<String> =
            listed.lines().filter(|_| self.rng.below(10) > 0).map(str::to_owned).collect();
        let mut put = |name: &str, line: String| {
            lines.retain(|l| !l.ends_with(&format!("\t{name}")));
            lines.push(line);
        };
        match (self.rng.below(8), base) {
            (0, Some(base)) => {
                let whole = self.git(at, &["rev-parse", &format!("{base}^{{tree}}")], b"");
                put("d", format!("040000 tree {whole}\td"));
            }
            (1, _) => put("s", format!("160000 commit {}\ts", "12".repeat(20))),
            _ => {
                let (blob, name) = (self.blob(at), format!("f{}", self.rng.below(6)));
                put(&name, format!("100644 blob {blob}\t{name}"));
            }
        }
        self.git(at, &["mktree"], format!("{}\n", lines.join("\n")).trim_start().as_bytes())
    }

    fn commit(&mut self, n: usize) -> String {
        let at = self.upstreams[n].path.clone();
        let count = [0, 1, 1, 1, 1, 2][self.rng.below(6) as usize].min(self.upstreams[n].commits.len());
        let mut parents: Vec<String> = Vec::new();
        for _ in 0..count {
            let pick = self.rng.below(self.upstreams[n].commits.len() as u64) as usize;
            let parent = self.upstreams[n].commits[pick].clone();
            if !parents.contains(&parent) {
                parents.push(parent);
            }
        }
        let tree = self.tree(&at, parents.first().map(String::as_str));
        let message = self.rng.below(5).to_string();
        let mut args = vec!["commit-tree", "-m", &message];
        args.extend(parents.iter().flat_map(|p| ["-p", p.as_str()]));
        args.push(&tree);
        let commit = self.git(&at, &args, b"");
        self.upstreams[n].commits.push(commit.clone());
        commit
    }

    fn any_commit(&mut self, n: usize) -> String {
        let pick = self.rng.below(self.upstreams[n].commits.len() as u64) as usize;
        self.upstreams[n].commits[pick].clone()
    }

    fn tag(&mut self, at: &Path, target: &str, kind: &str) -> String {
        let text = format!("object {target}\ntype {kind}\ntag v\ntagger A <a@x> {} +0000\n\nm\n", self.clock);
        self.git(at, &["mktag"], text.as_bytes())
    }

    /// Changes upstream `n` in some ways.
    fn change(&mut self, n: usize) {
        let at = self.upstreams[n].path.clone();
        for _ in 0..1 + self.rng.below(4) {
            let name = NAMES[self.rng.below(NAMES.len() as u64) as usize];
            match self.rng.below(11) {
                0 | 1 => drop(self.env.git_command(&at, &["update-ref", "-d", name]).output().unwrap()),
                2 | 3 => {
                    let commit = self.any_commit(n);
                    self.git(&at, &["update-ref", name, &commit], b"");
                }
                4 => {
                    let commit = self.commit(n);
                    let mut tag = self.tag(&at, &commit, "commit");
                    if self.rng.below(3) == 0 {
                        tag = self.tag(&at, &tag, "tag");
                    }
                    let name = ["refs/tags/t1", "refs/tags/t2", "refs/x/y"][self.rng.below(3) as usize];
                    self.git(&at, &["update-ref", name, &tag], b"");
                }
                5 => {
                    let object = if self.rng.below(2) == 0 { self.blob(&at) } else { self.tree(&at, None) };
                    let name = ["refs/tags/t2", "refs/x/z"][self.rng.below(2) as usize];
                    self.git(&at, &["update-ref", name, &object], b"");
                }
                6 => {
                    let head = ["refs/heads/main", "refs/heads/a", "refs/heads/none", "refs/pull/1/head"]
                        [self.rng.below(4) as usize];
                    self.git(&at, &["symbolic-ref", "HEAD", head], b"");
                }
                // The fork takes a commit of the other upstream.
                7 if n > 0 => {
                    let (from, commit) = (self.upstreams[0].path.clone(), self.any_commit(0));
                    let fetched = self
                        .env
                        .git_command(&at, &["fetch", "-q", from.to_str().unwrap(), &commit])
                        .output()
                        .unwrap();
                    if fetched.status.success() {
                        self.git(&at, &["update-ref", name, &commit], b"");
                        self.upstreams[n].commits.push(commit);
                    }
                }
                _ => {
                    let commit = self.commit(n);
                    self.git(&at, &["update-ref", name, &commit], b"");
                }
            }
        }
    }

    /// Returns the objects that HEAD and the refs with these prefixes reach, as git lists them.
    fn reach(&mut self, at: &Path, prefixes: &[&str], filter: Option<&str>) -> BTreeSet<String> {
        let listed = self.git(at, &["for-each-ref", "--format=%(objectname) %(refname)"], b"");
        let mut tips: Vec<String> = listed
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(_, name)| prefixes.iter().any(|p| name.starts_with(p)))
            .map(|(oid, _)| oid.to_owned())
            .collect();
        let head = self.env.git_command(at, &["rev-parse", "-q", "--verify", "HEAD"]).output().unwrap();
        if head.status.success() {
            tips.push(String::from_utf8_lossy(&head.stdout).trim().to_owned());
        }
        if tips.is_empty() {
            return BTreeSet::new();
        }
        let filter = filter.map(|f| format!("--filter={f}"));
        let mut args = vec!["rev-list", "--objects", "--no-object-names", "--stdin"];
        args.extend(filter.as_deref());
        self.git(at, &args, format!("{}\n", tips.join("\n")).as_bytes()).lines().map(str::to_owned).collect()
    }

    fn objects(&mut self, at: &Path) -> BTreeSet<String> {
        let listed = self.git(at, &["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], b"");
        listed.lines().map(str::to_owned).collect()
    }

    /// Clones with `args`; returns the folder.
    fn clone(&mut self, url: &str, args: &[&str]) -> PathBuf {
        let target = self.env.path("clone");
        let _ = std::fs::remove_dir_all(&target);
        let mut all = vec!["clone", "-q"];
        all.extend(args);
        all.extend([url, target.to_str().unwrap()]);
        let root = self.env.dir.path().to_owned();
        self.git(&root, &all, b"");
        target
    }

    /// Checks that every kind of answer about upstream `n` is whole, and that it holds nothing else, where
    /// that can be told.
    fn check(&mut self, n: usize, server: &Server) {
        let (up, name) = (self.upstreams[n].path.clone(), self.upstreams[n].name);
        let (url, kept) = (server.url(name), self.upstreams[n].kept.clone());
        if self.reach(&up, &["refs/"], None).is_empty() {
            return;
        }
        for (args, prefixes) in
            [(&["--mirror"][..], &["refs/"][..]), (&["--bare"], &["refs/heads/", "refs/tags/"])]
        {
            let expected = self.reach(&up, prefixes, None);
            if expected.is_empty() {
                continue;
            }
            let copy = self.clone(&url, args);
            let found = self.objects(&copy);
            let (more, fewer): (Vec<_>, Vec<_>) =
                (found.difference(&expected).collect(), expected.difference(&found).collect());
            assert!(
                more.is_empty() && fewer.is_empty(),
                "{}: {args:?} of {name}: {more:?} too many, {fewer:?} missing",
                self.what
            );
        }
        // A fetch into the clone, which has an older state.
        if kept.exists() {
            self.git(&kept, &["fetch", "-q", "--prune", "origin", "+refs/*:refs/*"], b"");
        } else {
            let root = self.env.dir.path().to_owned();
            self.git(&root, &["clone", "-q", "--mirror", &url, kept.to_str().unwrap()], b"");
        }
        self.git(&kept, &["rev-list", "--objects", "--all", "--quiet"], b"");
        let depth = (1 + self.rng.below(4)).to_string();
        let copy = self.clone(&url, &["--bare", "--no-single-branch", "--depth", &depth]);
        self.git(&copy, &["rev-list", "--objects", "--all", "--quiet"], b"");
        let more = ["--deepen=1", "--unshallow"][self.rng.below(2) as usize];
        let _ = self.env.git_command(&copy, &["fetch", "-q", more]).output().unwrap();
        self.git(&copy, &["rev-list", "--objects", "--all", "--quiet"], b"");
        for filter in ["blob:limit=60", "tree:2", "blob:none"] {
            let copy = self.clone(&url, &["--mirror", &format!("--filter={filter}")]);
            let (expected, found) = (self.reach(&up, &["refs/"], Some(filter)), self.objects(&copy));
            let missing: Vec<_> = expected.difference(&found).collect();
            assert!(missing.is_empty(), "{}: {filter} of {name}: {missing:?} missing", self.what);
        }
    }
}

fn walk(seed: u64, steps: u64, with_fork: bool) {
    let env = Env::new();
    let mut walk = Walk {
        env,
        rng: Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        clock: 1_700_000_000,
        upstreams: Vec::new(),
        what: String::new(),
    };
    walk.what = format!("WEIR_SEED={seed}, start");
    let packs_max = [3, 6, 50][walk.rng.below(3) as usize];
    walk.env.configure("archive", &format!("packs_max = {packs_max}"));
    for name in if with_fork { &["u", "f"][..] } else { &["u"] } {
        let path = walk.env.init_bare(&format!("{name}.git"));
        let root = path.clone();
        for (key, value) in [("gc.auto", "0"), ("uploadpack.allowAnySHA1InWant", "true")] {
            walk.git(&root, &["config", key, value], b"");
        }
        let kept = walk.env.path(&format!("kept-{name}"));
        walk.upstreams.push(Upstream { name, path, commits: Vec::new(), kept });
    }
    let first = walk.commit(0);
    let up = walk.upstreams[0].path.clone();
    walk.git(&up, &["update-ref", "refs/heads/main", &first], b"");
    walk.env.weir(&["add", "--name", "u", up.to_str().unwrap()]);
    walk.env.weir(&["mirror"]);
    if with_fork {
        let fork = walk.upstreams[1].path.clone();
        walk.git(&fork, &["fetch", "-q", up.to_str().unwrap(), "+refs/*:refs/*"], b"");
        walk.upstreams[1].commits = walk.upstreams[0].commits.clone();
        let own = walk.commit(1);
        walk.git(&fork, &["update-ref", "refs/heads/main", &own], b"");
        walk.env.weir(&["add", "--reference", "u", "--name", "f", fork.to_str().unwrap()]);
        walk.env.weir(&["mirror"]);
    }
    let server = walk.env.serve();
    for step in 0..steps {
        walk.what = format!("WEIR_SEED={seed}, step {step}");
        let count = walk.upstreams.len() as u64;
        for n in 0..count as usize {
            if walk.rng.below(5) > 0 {
                walk.change(n);
            }
        }
        let first = walk.rng.below(count) as usize;
        for n in (0..count as usize).map(|n| (n + first) % count as usize) {
            if walk.rng.below(6) > 0 {
                walk.env.weir(&["mirror", "--accept-empty", walk.upstreams[n].name]);
            }
        }
        match walk.rng.below(8) {
            0 => drop(walk.env.weir(&["compact"])),
            1 => {
                let name = walk.upstreams[walk.rng.below(count) as usize].name;
                let log = walk.env.weir_json(&["log", name]);
                let states = log.as_array().unwrap();
                let seq = states[walk.rng.below(states.len() as u64) as usize]["seq"].to_string();
                walk.env.weir(&["restore", &format!("{name}@{seq}")]);
                if walk.rng.below(2) == 0 {
                    walk.env.weir(&["compact", name]);
                }
            }
            2 if with_fork => drop(walk.env.weir(&["dissociate", "f"])),
            // This fails if the two have too little in common.
            3 if with_fork => {
                drop(walk.env.weir_command(&["share", "--reference", "u", "f"]).output().unwrap())
            }
            _ => {}
        }
        for n in 0..count as usize {
            walk.env.weir(&["mirror", "--accept-empty", walk.upstreams[n].name]);
        }
        walk.env.weir(&["fsck"]);
        for n in 0..count as usize {
            walk.check(n, &server);
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn walks(with_fork: bool) {
    let clock =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed = number("WEIR_SEED", clock);
    println!("WEIR_SEED={seed}");
    for n in 0..number("WEIR_WALKS", 1) {
        walk(seed + n, number("WEIR_STEPS", 8), with_fork);
    }
}

#[test]
fn one_repository() {
    walks(false);
}

#[test]
fn a_repository_and_a_fork_of_it() {
    walks(true);
}
