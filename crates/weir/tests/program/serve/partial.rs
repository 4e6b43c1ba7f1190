//! Shallow and partial clones: weir sends what git daemon sends, in every protocol version.

use crate::common::{Env, Rng, Server};
use std::fmt::Write as _;
use std::path::Path;

/// Returns the objects of a clone, and the commits where its history ends.
fn inventory(env: &Env, clone: &Path) -> (Vec<String>, Vec<String>) {
    let mut objects: Vec<String> = env
        .git(clone, &["-c", "fetch.recurseSubmodules=no", "cat-file", "--batch-all-objects", "--batch-check"])
        .lines()
        .map(str::to_owned)
        .collect();
    objects.sort();
    let git_dir = if clone.join(".git").is_dir() { clone.join(".git") } else { clone.to_owned() };
    let shallow = std::fs::read_to_string(git_dir.join("shallow")).unwrap_or_default();
    let mut shallow: Vec<String> = shallow.lines().map(str::to_owned).collect();
    shallow.sort();
    (objects, shallow)
}

/// Returns a fast-import stream of a history that forks and merges, with clocks that jump.
fn tangled_history(seed: u64, commits: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut out = String::new();
    for mark in 1..=commits {
        let branch = ["main", "one", "two"][rng.below(3) as usize];
        let time = 1_600_000_000 + mark as u64 * 3600 - rng.below(3) * 5400;
        let data = format!("{mark}\n{}", "x\n".repeat(rng.below(400) as usize));
        let _ = write!(
            out,
            "commit refs/heads/{branch}\nmark :{mark}\ncommitter C <c@x> {time} +0000\ndata 1\nx\n"
        );
        if mark > 1 {
            let first = 1 + mark.saturating_sub(2 + rng.below(4) as usize);
            let first = first.clamp(1, mark - 1);
            let _ = writeln!(out, "from :{first}");
            let second = 1 + rng.below(mark as u64 - 1) as usize;
            if rng.below(4) == 0 && second != first {
                let _ = writeln!(out, "merge :{second}");
            }
        }
        let (a, b) = (rng.below(4), rng.below(6));
        let _ = write!(out, "M 644 inline d{a}/e{b}/f{}\ndata {}\n{data}\n", rng.below(3), data.len());
        // The same content at another depth.
        let _ = write!(out, "M 644 inline top{}\ndata {}\n{data}\n", rng.below(9), data.len());
        if mark % 20 == 0 {
            let _ = write!(out, "tag v{mark}\nfrom :{mark}\ntagger T <t@x> {time} +0000\ndata 1\nt\n");
        }
    }
    out.into_bytes()
}

struct Pair {
    env: Env,
    theirs: Server,
    ours: Server,
}

impl Pair {
    fn new() -> Pair {
        let env = Env::new();
        env.odd_repository("odd.git");
        let tangled = env.init_bare("tangled.git");
        env.git_with(&tangled, &["fast-import", "--quiet"], &tangled_history(7, 160));
        for name in ["odd", "tangled"] {
            let at = env.path(&format!("{name}.git"));
            env.git(&at, &["repack", "-adq"]);
            env.git(&at, &["config", "uploadpack.allowFilter", "true"]);
            env.git(&at, &["config", "uploadpack.allowAnySHA1InWant", "true"]);
        }
        let theirs = env.git_daemon(&[]);
        for name in ["odd", "tangled"] {
            env.weir(&["add", "--name", name, &theirs.url(&format!("{name}.git"))]);
        }
        env.weir(&["mirror"]);
        let ours = env.serve();
        Pair { env, theirs, ours }
    }

    /// Runs git with `args` and each server's URL of `name` after them, then compares.
    fn clone(&self, version: &str, name: &str, args: &[&str]) -> [std::path::PathBuf; 2] {
        let config = format!("protocol.version={version}");
        let targets = ["ours", "theirs"].map(|side| {
            self.env.path(&format!("{side}-{}", self.env.dir.path().read_dir().unwrap().count()))
        });
        for (target, url) in
            targets.iter().zip([self.ours.url(name), self.theirs.url(&format!("{name}.git"))])
        {
            let mut all = vec!["-c", &config, "clone", "-q"];
            all.extend(args);
            all.extend([url.as_str(), target.to_str().unwrap()]);
            self.env.git(self.env.dir.path(), &all);
        }
        let [(ours, our_ends), (theirs, their_ends)] = targets.each_ref().map(|t| inventory(&self.env, t));
        let only =
            |a: &[String], b: &[String]| a.iter().filter(|o| !b.contains(o)).cloned().collect::<Vec<_>>();
        assert_eq!(
            (only(&ours, &theirs), only(&theirs, &ours)),
            (vec![], vec![]),
            "v{version} {name} {args:?}"
        );
        assert_eq!(our_ends, their_ends, "v{version} {name} {args:?}");
        targets
    }
}

#[test]
fn shallow_clones_are_as_from_git_daemon() {
    let pair = Pair::new();
    for version in ["0", "1", "2"] {
        for name in ["odd", "tangled"] {
            let common = [
                &["--bare", "--depth=1"][..],
                &["--bare", "--depth=1", "--no-single-branch"],
                &["--bare", "--depth=3", "--no-single-branch"],
                &["--bare", "--depth=1000"],
            ];
            let of_one: &[&[&str]] = match name {
                "odd" => &[&["--bare", "--depth=2", "--branch=side"], &["--bare", "--shallow-exclude=light"]],
                _ => &[
                    &["--bare", "--shallow-since=@1600200000", "--no-single-branch"],
                    &["--bare", "--shallow-exclude=v40", "--no-single-branch"],
                ],
            };
            for args in common.iter().chain(of_one) {
                let [ours, _] = pair.clone(version, name, args);
                pair.env.git(&ours, &["fsck", "--full", "--strict", "--no-dangling"]);
            }
        }
    }
}

#[test]
fn shallow_clones_deepen_and_go_on() {
    let pair = Pair::new();
    let env = &pair.env;
    for version in ["0", "2"] {
        let config = format!("protocol.version={version}");
        let sides = pair.clone(version, "tangled", &["--bare", "--depth=2", "--no-single-branch"]);
        for step in [
            &["fetch", "-q", "--depth=4", "origin"][..],
            &["fetch", "-q", "--deepen=3", "origin"],
            &["fetch", "-q", "--shallow-since=@1600100000", "origin"],
            &["fetch", "-q", "--depth=2", "origin"],
            &["fetch", "-q", "--unshallow", "origin"],
        ] {
            for side in &sides {
                let mut all = vec!["-c", &config];
                all.extend(step);
                all.push("+refs/*:refs/*");
                env.git(side, &all);
                env.git(side, &["fsck", "--full", "--strict", "--no-dangling"]);
            }
            let [ours, theirs] = sides.each_ref().map(|side| (env.picture(side), inventory(env, side).1));
            assert_eq!(ours, theirs, "v{version} {step:?}");
        }
        assert_eq!(env.picture(&sides[0]), env.picture(&env.path("tangled.git")));
    }
}

#[test]
fn a_shallow_client_gets_what_is_new() {
    let pair = Pair::new();
    let env = &pair.env;
    let [ours, _] = pair.clone("2", "tangled", &["--bare", "--depth=1"]);
    let upstream = env.path("tangled.git");
    let tree = env.git(&upstream, &["rev-parse", "main^{tree}"]);
    let next = env.git(&upstream, &["commit-tree", "-m", "next", "-p", "main", &tree]);
    env.git(&upstream, &["update-ref", "refs/heads/main", &next]);
    env.weir(&["mirror", "--all"]);
    let before = inventory(env, &ours).0.len();
    env.git(&ours, &["fetch", "-q", "origin", "main"]);
    assert_eq!(env.git(&ours, &["rev-list", "--count", "FETCH_HEAD"]), "2");
    assert_eq!(inventory(env, &ours).0.len(), before + 1, "one commit, whose tree is here");
    env.git(&ours, &["fsck", "--full", "--strict", "--no-dangling"]);
}

#[test]
fn partial_clones_are_as_from_git_daemon() {
    let pair = Pair::new();
    for version in ["0", "2"] {
        for name in ["odd", "tangled"] {
            for filter in [
                "blob:none",
                "blob:limit=300",
                "blob:limit=1k",
                "tree:0",
                "tree:1",
                "tree:2",
                "tree:3",
                "object:type=commit",
                "object:type=tree",
                "object:type=blob",
                "object:type=tag",
                // Not with blob:limit: git then forgets a small blob that lies too deep first and high enough
                // later.
                "combine:tree:2+blob:none",
            ] {
                pair.clone(version, name, &["--bare", "--no-checkout", &format!("--filter={filter}")]);
            }
            pair.clone(version, name, &["--bare", "--filter=blob:none", "--depth=1"]);
        }
        // Not of "odd": weir always sends a tree that a wanted tag points at, and git only sometimes.
        pair.clone(version, "tangled", &["--bare", "--filter=tree:0", "--depth=3", "--no-single-branch"]);
    }
}

#[test]
fn sparse_clones_are_as_from_git_daemon() {
    let mut pair = Pair::new();
    // Specifications on a branch of their own: folders of a name at one level, single files, all but some.
    let specs = [
        "/*\n!/*/\n/d1/\n",
        "f0\n",
        "*\n!d2/\n!/d3/e*/f1\ntop[3-5]\n",
        "d0/**/f2\n!e1/\n",
        "!*\n",
        "e[!0-2]/\nd?/e0/f*\n",
        "",
    ];
    let mut stream = "commit refs/heads/specs\ncommitter C <c@x> 1600000000 +0000\ndata 1\nx\n".to_owned();
    for (n, spec) in specs.iter().enumerate() {
        let _ = write!(stream, "M 644 inline spec{n}\ndata {}\n{spec}\n", spec.len());
    }
    pair.env.git_with(&pair.env.path("tangled.git"), &["fast-import", "--quiet"], stream.as_bytes());
    pair.env.weir(&["mirror", "tangled"]);
    pair.ours = pair.env.serve();
    for n in 0..specs.len() {
        let filter = format!("--filter=sparse:oid=specs:spec{n}");
        for version in ["0", "2"] {
            pair.clone(version, "tangled", &["--bare", &filter]);
        }
        pair.clone("2", "tangled", &["--bare", &filter, "--depth=3", "--no-single-branch"]);
        pair.clone("2", "tangled", &["--bare", &filter, "--branch=one", "--single-branch"]);
    }
    // Not two sparse filters, nor sparse with blob:limit: in git, combined filters lose what one of them has
    // marked as seen at another path.
    pair.clone("2", "tangled", &["--bare", "--filter=combine:sparse:oid=refs/heads/specs:spec0+blob:none"]);
    let target = pair.env.path("unresolvable");
    for name in [
        "specs:none",
        "nobranch:spec0",
        "HEAD^0\u{e9}",
        "specs^{}\u{e9}:x",
        "specs~1",
        "1234567890123456789012345678901234567890",
        "main~9999999:x",
    ] {
        let filter = format!("--filter=sparse:oid={name}");
        let clone = ["clone", "-q", "--bare", &filter, &pair.ours.url("tangled"), target.to_str().unwrap()];
        let output = pair.env.git_command(pair.env.dir.path(), &clone).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("unable to access sparse blob in '"),
            "{name}: {said}"
        );
    }
}

#[test]
fn a_partial_clone_fetches_the_rest_when_it_is_looked_at() {
    let pair = Pair::new();
    let env = &pair.env;
    for filter in ["--filter=blob:none", "--filter=tree:0"] {
        let target = env.path(&format!("lazy{}", filter.len()));
        env.git(
            env.dir.path(),
            &["clone", "-q", filter, &pair.ours.url("tangled"), target.to_str().unwrap()],
        );
        let upstream = env.path("tangled.git");
        assert_eq!(
            env.git(&target, &["rev-parse", "HEAD^{tree}"]),
            env.git(&upstream, &["rev-parse", "main^{tree}"])
        );
        assert_eq!(
            env.git(&target, &["log", "-p", "--stat", "-m"]),
            env.git(&upstream, &["log", "-p", "--stat", "-m", "main"])
        );
    }
}

#[test]
fn only_what_refs_reach_may_be_wanted() {
    let pair = Pair::new();
    let env = &pair.env;
    let upstream = env.path("tangled.git");
    let old = env.git(&upstream, &["rev-parse", "main"]);
    let old_blob = env.git_with(&upstream, &["hash-object", "-w", "--stdin"], b"secret\n");
    let tree = env.git_with(&upstream, &["mktree"], format!("100644 blob {old_blob}\tsecret\n").as_bytes());
    let secret = env.git(&upstream, &["commit-tree", "-m", "secret", "-p", &old, &tree]);
    env.git(&upstream, &["update-ref", "refs/heads/main", &secret]);
    env.weir(&["mirror", "--all"]);
    env.git(&upstream, &["update-ref", "refs/heads/main", &old]);
    env.weir(&["mirror", "--all"]);
    let reachable_blob = env.git(&upstream, &["rev-parse", "main:d0"]);
    let client = env.init_bare("client.git");
    for version in ["0", "2"] {
        let config = format!("protocol.version={version}");
        for (oid, is_served) in
            [(&secret, false), (&tree, false), (&old_blob, false), (&reachable_blob, true), (&old, true)]
        {
            let fetch =
                ["-c", &config, "fetch", "-q", "--no-write-fetch-head", &pair.ours.url("tangled"), oid];
            let output = env.git_command(&client, &fetch).output().unwrap();
            assert_eq!(
                output.status.success(),
                is_served,
                "v{version} {oid}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            if !is_served {
                assert!(String::from_utf8_lossy(&output.stderr).contains("not our ref"), "{output:?}");
            }
        }
    }
}

#[test]
fn swapped_files_and_lying_dates_make_no_circles() {
    let env = Env::new();
    let upstream = env.init_bare("up.git");
    let text = |seed: usize| {
        (0..400).map(|n| format!("line {} of {seed}\n", n * (seed % 5 + 1))).collect::<String>()
    };
    let (x, y) = (text(1), text(2));
    let files = |a: &str, b: &str| {
        format!("M 644 inline a\ndata {}\n{a}\nM 644 inline b\ndata {}\n{b}\n", a.len(), b.len())
    };
    let commit = |date: u32, files: &str| {
        let from = if date == 1000 { "" } else { "from refs/heads/main^0\n" };
        let head =
            format!("commit refs/heads/main\ncommitter C <c@x> {date} +0000\ndata 1\nx\n{from}{files}\n");
        env.git_with(&upstream, &["fast-import", "--quiet", "--force"], head.as_bytes());
    };
    commit(1000, &files(&text(3), &text(4)));
    let copy = env.path("copy.git");
    env.git(env.dir.path(), &["clone", "-q", "--mirror", upstream.to_str().unwrap(), copy.to_str().unwrap()]);
    commit(3000, &files(&x, &y));
    commit(500, &files(&y, &x));
    commit(2500, &files(&x, &(y.clone() + "more\n")));
    commit(400, &files(&(y + "more\n"), &x));
    env.git(&upstream, &["repack", "-adfq"]);
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = env.serve();
    env.git(&copy, &["-c", "fetch.fsckObjects=true", "fetch", "-q", &server.url("up"), "+refs/*:refs/*"]);
    env.git(&copy, &["fsck", "--full", "--strict"]);
    assert_eq!(env.picture(&copy), env.picture(&upstream));
}
