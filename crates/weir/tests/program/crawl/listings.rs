//! Crawls of a forge on loopback. The catalog must get exactly the repositories of the forge, whatever
//! happens meanwhile.

use crate::common::Env;
use crate::common::forge::{Forge, Listed, State};
use std::collections::BTreeMap;

pub fn repositories(count: u64) -> Vec<Listed> {
    let one = |n: u64| Listed {
        id: n * 3,
        owner: if n.is_multiple_of(2) { "even" } else { "odd" },
        name: format!("r{n}"),
        pushed_at: "2024-01-01T00:00:00Z".into(),
        fork: n.is_multiple_of(10),
    };
    (1..=count).map(one).collect()
}

pub fn configure(env: &Env, kind: &str, forge: &Forge, more: &str) {
    let text = format!(
        "[[forge]]\ntype = \"{kind}\"\nurl = \"{}\"\nname = \"f\"\nclone_from = [\"https://h\", \
        \"{}\"]\ntries = 2\nretry = \"0s\"\n{more}\n",
        forge.url(),
        forge.state().clone_base
    );
    std::fs::write(env.pool().join("weir.toml"), text).unwrap();
}

/// Returns the names and upstreams in the catalog.
pub fn known(env: &Env) -> BTreeMap<String, String> {
    let list = env.weir_json(&["ls"]);
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(|r| (text(&r["name"]), text(&r["url"]))).collect()
}

fn expected(forge: &Forge) -> BTreeMap<String, String> {
    let state = forge.state();
    let entry = |r: &Listed| {
        (format!("f/{}/{}", r.owner, r.name), format!("{}{}/{}.git", state.clone_base, r.owner, r.name))
    };
    state.repositories.iter().map(entry).collect()
}

fn crawl(env: &Env) -> serde_json::Value {
    serde_json::from_str(&env.weir(&["--json", "crawl"])).unwrap()
}

#[test]
fn all_of_it_with_few_requests_through_every_api() {
    for kind in ["github", "gitlab", "gitea", "forgejo"] {
        let env = Env::new();
        let forge = Forge::new(State {
            repositories: repositories(450),
            clone_base: "https://h/".into(),
            ..State::default()
        });
        configure(&env, kind, &forge, "tokens = [\"secret\"]");
        let said = crawl(&env);
        assert_eq!(
            (said["added"].as_u64(), said["finished"].as_bool()),
            (Some(450), Some(true)),
            "{kind}: {said}"
        );
        assert_eq!(known(&env), expected(&forge), "{kind}");
        let requests = said["requests"].as_u64().unwrap();
        assert!(requests <= if kind == "github" { 450 / 40 } else { 12 }, "{kind}: {requests} requests");
        assert_eq!(crawl(&env)["known"], 450, "{kind}: nothing new the second time");
        // A crawl adds only repositories that the filters admit.
        configure(
            &env,
            kind,
            &forge,
            "tokens = [\"secret\"]\nforks = false\ninclude = [\"odd/*\", \"even/r1*\"]\nexclude = \
            [\"*/r13\"]",
        );
        let other = Env::new();
        std::fs::copy(env.pool().join("weir.toml"), other.pool().join("weir.toml")).unwrap();
        crawl(&other);
        let names = known(&other);
        assert!(
            names.contains_key("f/odd/r1")
                && names.contains_key("f/even/r12")
                && !names.contains_key("f/odd/r13"),
            "{kind}"
        );
        assert!(!names.contains_key("f/even/r2"), "{kind}");
        assert!(!names.contains_key("f/even/r10"), "{kind}: a fork");
        let limited = Env::new();
        configure(&limited, kind, &forge, "limit = 120");
        assert_eq!((crawl(&limited)["added"].as_u64(), known(&limited).len()), (Some(120), 120), "{kind}");
        assert_eq!(other.weir(&["crawl", "--dry-run"]).lines().count(), names.len(), "{kind}");
    }
}

#[test]
fn what_one_owner_or_page_says_stays_with_it() {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(250),
        clone_base: "https://h/".into(),
        ..State::default()
    });
    let no = serde_json::json!({ "message": "SAML enforcement" });
    let owners = ["blocked", "html", "blocked2", "blocked3", "blocked4", "blocked5", "blocked6"];
    let paths = owners.map(|owner| format!("/api/v3/users/{owner}/repos"));
    for path in paths {
        let (status, answer) = match path.contains("html") {
            true => ("200 OK", serde_json::json!("<html>maintenance</html>")),
            false => ("403 Forbidden", no.clone()),
        };
        forge.state().answers.push((path.leak(), status, answer));
    }
    let list = owners.map(|owner| format!("'{owner}'")).join(", ");
    configure(&env, "github", &forge, &format!("owners = [{list}, 'even']"));
    let said = crawl(&env);
    assert_eq!((said["added"].as_u64(), said["finished"].as_bool()), (Some(125), Some(true)), "{said}");
    assert_eq!(said["skipped_pages"], 7, "{said}");
    let status = env.weir(&["status"]);
    assert!(status.contains("7 failed pages"), "{status}");
    // Once the pages can be read, they no longer count as failed.
    forge.state().answers.clear();
    crawl(&env);
    assert!(!env.weir(&["status"]).contains("failed pages"));
}

#[test]
fn what_is_not_known_is_not_let_in() {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(450),
        clone_base: "https://h/".into(),
        ..State::default()
    });
    let filter = "languages = ['C']\nstars_min = 10";
    configure(&env, "github", &forge, filter);
    let said = env.weir(&["crawl"]);
    assert!(said.contains("450 skipped (the forge does not say its stars)"), "{said}");
    assert_eq!(env.weir_json(&["ls"]), serde_json::json!([]));
    // With a token the forge reports the stars.
    configure(&env, "github", &forge, &format!("{filter}\ntokens = ['secret']"));
    assert_eq!(crawl(&env)["added"], 447);
}

#[test]
fn bitbucket_gerrit_and_sourcehut() {
    for (kind, id_is_name, most) in [("bitbucket", false, 7), ("gerrit", true, 6), ("sourcehut", true, 20)] {
        let env = Env::new();
        let forge = Forge::new(State { repositories: repositories(450), ..State::default() });
        let base = forge.url();
        forge.state().clone_base = format!("{base}/");
        configure(&env, kind, &forge, "tokens = [\"secret\"]");
        let said = crawl(&env);
        assert_eq!(
            (said["added"].as_u64(), said["finished"].as_bool()),
            (Some(450), Some(true)),
            "{kind}: {said}"
        );
        assert!(said["requests"].as_u64().unwrap() <= most, "{kind}: {said}");
        let names = known(&env);
        let (name, url) = names.iter().find(|(name, _)| name.ends_with("/r7")).unwrap();
        let expected = match kind {
            "bitbucket" => ("f/odd/r7", "odd/r7.git"),
            "gerrit" => ("f/odd/r7", "odd/r7"),
            _ => ("f/~odd/r7", "~odd/r7"),
        };
        assert_eq!((name.as_str(), url.as_str()), (expected.0, format!("{base}/{}", expected.1).as_str()));
        // Where the forge has ids, a renamed repository stays the same. A repository that vanishes is gone.
        {
            let mut state = forge.state();
            state.repositories[6].name = "renamed".into();
            state.repositories.remove(100);
            // Gerrit lists repositories by name.
            state
                .repositories
                .sort_by_key(|r| if id_is_name { (r.owner, r.name.clone()) } else { ("", String::new()) });
        }
        let said = crawl(&env);
        let told = (said["renamed"].as_u64(), said["gone"].as_u64(), said["added"].as_u64());
        assert_eq!(
            told,
            if id_is_name { (Some(0), Some(2), Some(1)) } else { (Some(1), Some(1), Some(0)) },
            "{kind}: {said}"
        );
        if kind == "sourcehut" {
            configure(&env, kind, &forge, "tokens = [\"secret\"]\nowners = [\"~even\", \"nobody\"]");
            let other = Env::new();
            std::fs::copy(env.pool().join("weir.toml"), other.pool().join("weir.toml")).unwrap();
            assert_eq!(crawl(&other)["added"], 225, "half of them");
        }
    }
}

#[test]
fn indexes_of_a_real_cgit_and_a_real_gitweb() {
    let env = Env::new();
    let names = ["tree/a.git", "tree/b.git", "tree/sub/c+d.git", "tree/sub/e.git", "tree/z.git"];
    for name in names {
        env.odd_repository(name);
    }
    let daemon = env.git_daemon(&[]);
    let tree = env.path("tree");
    let cgit = format!("scan-path={}\nmax-repo-count=2\ncache-size=0\nvirtual-root=/cgi/\n", tree.display());
    std::fs::write(env.path("cgitrc"), cgit).unwrap();
    std::fs::write(env.path("gitweb.conf"), format!("$projectroot = '{}';\n", tree.display())).unwrap();
    let text = |name: &str| env.path(name).to_str().unwrap().to_owned();
    for (kind, program, setting) in [
        ("cgit", "/usr/lib/cgit/cgit.cgi", ("CGIT_CONFIG", text("cgitrc"))),
        ("gitweb", "/usr/share/gitweb/gitweb.cgi", ("GITWEB_CONFIG", text("gitweb.conf"))),
    ] {
        if !std::path::Path::new(program).exists() {
            weir_testing::skip(kind, &format!("{program} is not installed ('make packages' installs it)"));
            continue;
        }
        let forge = Forge::new(State { cgi: Some((program.into(), vec![setting])), ..State::default() });
        let other = Env::new();
        let site = daemon.url("tree");
        let text = format!(
            "[[forge]]\ntype = \"{kind}\"\nurl = \"{}/cgi/\"\nname = \"f\"\nsite = \"{site}\"\n",
            forge.url()
        );
        std::fs::write(other.pool().join("weir.toml"), text).unwrap();
        assert_eq!(crawl(&other)["added"], 5, "{kind}: {:?}", forge.state().log);
        if kind == "cgit" {
            assert_eq!(forge.state().log.len(), 3, "pages of two: {:?}", forge.state().log);
        }
        let there: Vec<String> = known(&other).into_keys().collect();
        assert_eq!(there, ["f/a", "f/b", "f/sub/c+d", "f/sub/e", "f/z"], "{kind}");
        other.weir(&["mirror", "f/sub/e"]);
        assert_eq!(
            other.weir(&["ls-tree", "f/sub/e", "main"]).lines().count(),
            env.git(&env.path("tree/sub/e.git"), &["ls-tree", "main"]).lines().count()
        );
        // One repository vanishes. An index that cannot be read does not count as empty.
        std::fs::rename(env.path("tree/z.git"), env.path("moved.git")).unwrap();
        let said = crawl(&other);
        assert_eq!((said["gone"].as_u64(), said["known"].as_u64()), (Some(1), Some(4)), "{kind}: {said}");
        std::fs::rename(env.path("moved.git"), env.path("tree/z.git")).unwrap();
        forge.state().cgi = Some(("/bin/echo".into(), Vec::new()));
        assert!(other.weir_fails(&["crawl"]).contains("no index of"), "{kind}");
    }
}

#[test]
fn limits_are_waited_for_and_nothing_is_restarted() {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(700),
        clone_base: "https://h/".into(),
        limit: Some(5),
        cut: 1,
        ..State::default()
    });
    configure(&env, "github", &forge, "tokens = [\"secret\"]");
    let said = crawl(&env);
    assert_eq!((said["added"].as_u64(), said["rate_limit_waits"].as_u64()), (Some(700), Some(1)), "{said}");
    let state = forge.state();
    let lists = state.log.iter().filter(|l| l.starts_with("/api/v3/repositories?")).count();
    assert!(lists <= 8 + 2, "{lists} lists for 7 pages, one broken off, one refused: {:?}", state.log);
    assert!(state.impatient <= 1, "asked {} times while the limit was used up", state.impatient);
}

#[test]
fn pages_that_fail_are_skipped_and_had_later() {
    for (kind, broken) in [("github", 300), ("gitlab", 300), ("gitea", 3)] {
        let env = Env::new();
        let forge = Forge::new(State {
            repositories: repositories(350),
            clone_base: "https://h/".into(),
            broken: vec![broken],
            ..State::default()
        });
        configure(&env, kind, &forge, "");
        let said = crawl(&env);
        assert_eq!(said["skipped_pages"], 1, "{kind}: {said}");
        let missing = 350 - known(&env).len();
        assert!((30..=50).contains(&missing), "{kind}: {missing}");
        forge.state().broken.clear();
        let said = crawl(&env);
        assert_eq!(
            (said["recovered_pages"].as_u64(), said["added"].as_u64()),
            (Some(1), Some(missing as u64)),
            "{kind}: {said}"
        );
        assert_eq!(known(&env), expected(&forge), "{kind}");
        // If the forge is down, the crawl fails. It does not skip all pages.
        forge.state().broken = (0..5000).collect();
        let error = env.weir_fails(&["crawl"]);
        assert!(
            error.contains("pages in a row failed") && error.contains("resumes there"),
            "{kind}: {error}"
        );
        assert_eq!(known(&env).len(), 350, "{kind}");
    }
}

#[test]
fn renamed_moved_vanished_and_back() {
    let env = Env::new();
    for name in ["odd/r1", "even/r2", "odd/r3"] {
        env.odd_repository(&format!("{name}.git"));
    }
    let daemon = env.git_daemon(&[]);
    let forge =
        Forge::new(State { repositories: repositories(3), clone_base: daemon.url(""), ..State::default() });
    configure(&env, "gitea", &forge, "");
    crawl(&env);
    env.weir(&["mirror"]);
    let paths = || -> BTreeMap<String, String> {
        let list = env.weir_json(&["ls"]);
        list.as_array()
            .unwrap()
            .iter()
            .map(|r| (r["name"].as_str().unwrap().to_owned(), r["archive"].as_str().unwrap().to_owned()))
            .collect()
    };
    let before = paths();
    // The third repository moves to another owner, and the first takes its name. The second vanishes, and
    // comes back.
    std::fs::rename(env.path("odd/r3.git"), env.path("even/r3.git")).unwrap();
    std::fs::rename(env.path("odd/r1.git"), env.path("odd/r3.git")).unwrap();
    {
        let mut state = forge.state();
        state.repositories[0].name = "r3".into();
        state.repositories[2].owner = "even";
        state.repositories.remove(1);
    }
    let said = crawl(&env);
    assert_eq!(
        (said["renamed"].as_u64(), said["gone"].as_u64(), said["added"].as_u64()),
        (Some(2), Some(1), Some(0)),
        "{said}"
    );
    let after = paths();
    assert_eq!(
        (&after["f/odd/r3"], &after["f/even/r3"], &after["f/even/r2"]),
        (&before["f/odd/r1"], &before["f/odd/r3"], &before["f/even/r2"])
    );
    env.weir(&["mirror", "f/odd/r3"]);
    env.weir(&["mirror", "f/even/r3"]);
    env.weir(&["fsck"]);
    let mut second = repositories(3).remove(1);
    second.pushed_at = "2025-01-01T00:00:00Z".into();
    forge.state().repositories.insert(1, second);
    let said = crawl(&env);
    assert_eq!((said["back"].as_u64(), said["gone"].as_u64()), (Some(1), Some(0)), "{said}");
    let due = env.weir(&["--json", "mirror"]);
    assert!(due.lines().any(|l| l.contains("f/even/r2")), "what is back is due: {due}");
}

#[test]
fn only_a_purge_deletes_and_never_too_much() {
    let env = Env::new();
    for n in 1..=4 {
        env.odd_repository(&format!("{}/r{n}.git", if n % 2 == 0 { "even" } else { "odd" }));
    }
    let daemon = env.git_daemon(&[]);
    let forge =
        Forge::new(State { repositories: repositories(4), clone_base: daemon.url(""), ..State::default() });
    configure(&env, "gitea", &forge, "");
    env.weir(&["add", "--name", "alone", &daemon.url("alone.git")]);
    env.odd_repository("alone.git");
    crawl(&env);
    env.weir(&["mirror"]);
    env.let_pass(2);
    // One repository vanishes from the forge, and one that no forge lists vanishes from its host.
    forge.state().repositories.remove(0);
    std::fs::rename(env.path("alone.git"), env.path("moved.git")).unwrap();
    crawl(&env);
    env.weir_fails(&["mirror", "alone"]);
    let names = |args: &[&str]| env.weir_json(args)["purged"].as_array().unwrap().len();
    assert_eq!(names(&["purge", "--gone-for", "1h", "--dry-run"]), 0, "not for long enough");
    env.let_pass(2);
    assert_eq!(names(&["purge", "--gone-for", "1s", "--dry-run"]), 2);
    let refused = env.weir_fails(&["purge", "--gone-for", "1s"]);
    assert!(refused.contains("are gone, more than 5 per cent: nothing was deleted"), "{refused}");
    assert!(env.pool().join("store/alone.tar").exists() && env.pool().join("store/f/odd/r1.tar").exists());
    assert_eq!(names(&["purge", "--gone-for", "1s", "f/*", "--purge-protect", "25"]), 1);
    assert!(env.pool().join("store/alone.tar").exists() && !env.pool().join("store/f/odd/r1.tar").exists());
    let said = env.weir(&["purge", "--gone-for", "1s", "--purge-protect", "100"]);
    assert!(said.starts_with("alone\n1 repositories, ") && said.contains("deleted"), "{said}");
    assert_eq!(env.weir_json(&["ls"]).as_array().unwrap().len(), 3);
    assert!(env.weir_fails(&["purge", "--gone-for", "soon"]).contains("not a time"));
}

#[test]
fn ten_thousand_repositories_of_github_cost_few_requests() {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(10_000),
        clone_base: "https://h/".into(),
        ..State::default()
    });
    configure(&env, "github", &forge, "tokens = [\"secret\"]");
    let said = crawl(&env);
    let requests = said["requests"].as_u64().unwrap();
    assert_eq!((said["added"].as_u64(), said["finished"].as_bool()), (Some(10_000), Some(true)), "{said}");
    assert!(requests <= 10_000 / 40, "{requests} requests");
    println!("{requests} requests for all that GitHub says of 10,000 repositories");
    assert_eq!(known(&env), expected(&forge));
}

#[test]
fn what_a_hostile_forge_says_opens_nothing_here() {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(1),
        clone_base: "https://h/".into(),
        ..State::default()
    });
    configure(&env, "gitea", &forge, "");
    for base in ["/srv/", "file:///srv/", "https://elsewhere/", "https://user:password@h/", "ssh://h/", "h:"]
    {
        forge.state().clone_base = base.into();
        let said = env.weir_fails(&["crawl"]);
        assert!(said.contains("none of the 1 repositories that it lists can be taken"), "{base}: {said}");
    }
    forge.state().clone_base = "https://h/".into();
    for name in ["..", "../../x", ".git", "a/.git/b", "a\\b", "a\nb", "x.tar"] {
        forge.state().repositories[0].name = name.into();
        env.weir_fails(&["crawl"]);
        assert_eq!(env.weir_json(&["ls"]).as_array().unwrap().len(), 0, "{name}");
    }
    forge.state().repositories[0].name = ".github".into();
    assert_eq!(crawl(&env)["added"], 1);
    assert!(
        env.weir_json(&["show", "f/odd/.github"])["archive"]
            .as_str()
            .unwrap()
            .ends_with("/f/odd/%2Egithub.tar")
    );
}

#[test]
fn a_list_cut_short_loses_nothing() {
    let env = Env::new();
    for i in 0..30 {
        env.git(&env.path("."), &["init", "-q", "--bare", &format!("tree/{i:02}.git")]);
    }
    let folder = env.path("tree");
    let config = format!("[[forge]]\ntype = \"folder\"\nurl = \"{}\"\n", folder.display());
    std::fs::write(env.pool().join("weir.toml"), config).unwrap();
    assert_eq!(crawl(&env)["added"], 30);
    let away = env.path("away");
    std::fs::create_dir(&away).unwrap();
    for i in 1..30 {
        std::fs::rename(folder.join(format!("{i:02}.git")), away.join(format!("{i:02}.git"))).unwrap();
    }
    let said = env.weir_fails(&["crawl"]);
    assert!(
        said.contains("it lists 1 of the 30 repositories that it had; none are marked as gone"),
        "{said}"
    );
    // Some of them came back, and the rest are believed to be gone.
    for i in 1..20 {
        std::fs::rename(away.join(format!("{i:02}.git")), folder.join(format!("{i:02}.git"))).unwrap();
    }
    assert_eq!(crawl(&env)["gone"], 10);
}

#[test]
fn folders_and_manifests() {
    let env = Env::new();
    for name in ["tree/a.git", "tree/b/c.git"] {
        env.odd_repository(name);
    }
    let folder = env.path("tree");
    std::fs::write(
        env.pool().join("weir.toml"),
        format!("[[forge]]\ntype = \"folder\"\nurl = \"{}\"\n", folder.display()),
    )
    .unwrap();
    assert_eq!(crawl(&env)["added"], 2);
    assert_eq!(known(&env).keys().collect::<Vec<_>>(), ["tree/a", "tree/b/c"]);
    env.weir(&["mirror"]);
    env.weir(&["fsck"]);
    // Paused repositories are not visited, unless the command names them.
    env.weir(&["pause", "tree/*"]);
    assert!(
        env.weir(&["mirror", "--all"]).starts_with("0 updated, 0 unchanged")
            && env.weir(&["status"]).contains("2 paused")
    );
    assert_eq!(env.weir(&["resume", "tree/a", "tree/*"]).trim(), "2 resumed");
    assert!(env.weir(&["mirror", "--all"]).starts_with("0 updated, 2 unchanged"));
    // A manifest lets grokmirror or another weir mirror this pool.
    let said = env.weir(&["manifest", env.path("manifest.js").to_str().unwrap()]);
    assert!(said.starts_with("2 repositories"), "{said}");
    env.weir(&["manifest", env.path("manifest.js.gz").to_str().unwrap(), "tree/b/*"]);
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(env.path("manifest.js")).unwrap()).unwrap();
    std::fs::write(env.path("refs"), env.git(&env.path("tree/a.git"), &["show-ref"]) + "\n").unwrap();
    let sum = weir_testing::command("sha1sum").arg(env.path("refs")).output().unwrap().stdout;
    assert_eq!(
        manifest["/tree/a.git"]["fingerprint"].as_str(),
        std::str::from_utf8(&sum[..40]).ok(),
        "as grok-manifest has it"
    );
    assert_eq!(manifest["/tree/a.git"]["head"], "ref: refs/heads/main");
    let served = env.serve();
    let forge = Forge::new(State { manifest: Some(manifest), ..State::default() });
    let other = Env::new();
    let text = format!(
        "[[forge]]\ntype = \"manifest\"\nname = \"m\"\nurl = \"{}/manifest.js\"\nsite = \"{}\"\n",
        forge.url(),
        served.url("").trim_end_matches('/')
    );
    std::fs::write(other.pool().join("weir.toml"), text).unwrap();
    assert_eq!(crawl(&other)["added"], 2);
    other.weir(&["mirror"]);
    assert_eq!(known(&other).keys().collect::<Vec<_>>(), ["m/tree/a", "m/tree/b/c"]);
    assert_eq!(other.weir(&["ls-tree", "m/tree/a", "main"]), env.weir(&["ls-tree", "tree/a", "main"]));
    drop(served);
    let said = env.weir_fails(&["crawl", "nowhere"]);
    assert!(said.contains("no forge is called 'nowhere'; there are: tree"), "{said}");
    std::fs::write(env.pool().join("weir.toml"), "[[forge]]\ntype = \"gitea\"\nurl = \"ftp://h\"\n").unwrap();
    assert!(env.weir_fails(&["crawl"]).contains("must start with https:// or http://"));
}

#[test]
fn what_forges_say_can_be_read_and_asked_for() {
    let Some(postgres) = weir_testing::PostgresServer::start(&[]) else { return };
    for over in [Env::new(), Env::over(&postgres.schema("said"))] {
        let mut all = repositories(120);
        all[60].fork = true;
        let forge =
            Forge::new(State { repositories: all, clone_base: "https://h/".into(), ..State::default() });
        let path = over.pool().join("weir.toml");
        let catalog = std::fs::read_to_string(&path).unwrap();
        configure(&over, "github", &forge, "tokens = [\"secret\"]");
        let section = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{catalog}\n{section}")).unwrap();
        crawl(&over);
        let listed = over.weir_json(&["ls", "--long"]);
        let said: Vec<&serde_json::Value> =
            listed.as_array().unwrap().iter().map(|r| &r["forge_metadata"]).collect();
        assert_eq!(said.len(), 120);
        let count = |args: &[&str]| over.weir_json(&[&["ls"], args].concat()).as_array().unwrap().len();
        let language = said[0]["language"].as_str().unwrap();
        let of_language = said.iter().filter(|m| m["language"] == language).count();
        assert!(of_language > 0 && count(&["--language", &language.to_uppercase()]) == of_language);
        assert_eq!(count(&["--language", "nosuch"]), 0);
        let topic = said.iter().find_map(|m| m["topics"][0].as_str()).unwrap();
        let of_topic =
            said.iter().filter(|m| m["topics"].as_array().unwrap().iter().any(|t| t == topic)).count();
        assert!(of_topic > 0 && count(&["--topic", topic]) == of_topic);
        let stars: Vec<i64> = said.iter().map(|m| m["stars"].as_i64().unwrap()).collect();
        let most = *stars.iter().max().unwrap();
        assert_eq!(count(&["--stars-min", &most.to_string()]), stars.iter().filter(|n| **n == most).count());
        let name = listed[0]["name"].as_str().unwrap();
        let shown = over.weir(&["show", name]);
        assert!(
            shown.contains("at its forge") && shown.contains(&format!("language        {language}")),
            "{shown}"
        );
        assert_eq!(over.weir_json(&["show", name])["forge_metadata"], *said[0]);
        let table = over.weir(&["ls", "-l", "-n", "1"]);
        assert!(table.contains("STARS") && table.contains(language), "{table}");
    }
}
