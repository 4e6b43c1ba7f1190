//! Changes to mirrored repositories: their URLs, their names, and which refs are wanted.

use crate::common::Env;

fn refs_of(env: &Env, server: &crate::common::Server, name: &str) -> Vec<String> {
    let listed = env.git(env.dir.path(), &["ls-remote", &server.url(name)]);
    listed
        .lines()
        .filter_map(|line| line.split('\t').nth(1))
        .filter(|name| !name.ends_with("^{}"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_url_and_a_name_can_be_changed() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "o/old", &daemon.url("gone.git")]);
    let output = env.weir_command(&["mirror"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "some failed, and that is no failure of the command");
    env.weir(&["set", "o/old", "--url", &daemon.url("up.git"), "--priority", "1"]);
    assert!(env.weir(&["mirror"]).contains("1 updated"), "it is due at once");
    env.weir(&["rename", "o/old", "new"]);
    let server = env.serve();
    env.assert_same(&server, "new", &up, "under its new name");
    let shown = env.weir_json(&["show", "new"]);
    assert_eq!(
        (shown["url"].as_str(), shown["priority"].as_i64()),
        (Some(daemon.url("up.git").as_str()), Some(1))
    );
    assert!(env.weir(&["mirror", "--all"]).contains("1 unchanged"), "its archive came along");
    // Another repository may take the old name, with an archive of its own.
    let other = env.init_bare("other.git");
    let tree = env.git_with(&other, &["mktree"], b"");
    let commit = env.git(&other, &["commit-tree", "-m", "other", &tree]);
    env.git(&other, &["update-ref", "refs/heads/main", &commit]);
    env.weir(&["add", "--name", "o/old", &daemon.url("other.git")]);
    env.weir(&["mirror", "o/old"]);
    env.assert_same(&server, "o/old", &other, "a new one of the old name");
    env.assert_same(&server, "new", &up, "which has not taken its archive");
    env.weir(&["rm", "--delete", "o/old"]);
    env.assert_same(&server, "new", &up, "nor takes it along");
    env.weir(&["add", "--name", "other", &daemon.url("other.git")]);
    for (args, why) in [
        (&["rename", "other", "new"][..], "already exists"),
        (&["rename", "other", "a//b"], "is not a valid name"),
        (&["rename", "nosuch", "x"], "no repository matches"),
        (&["set", "new", "other", "--url", "https://h/x"], "one repository"),
        (&["set", "new", "--url", "ftp://h/x"], "the scheme is none of"),
    ] {
        let said = env.weir_fails(args);
        assert!(said.contains(why), "{args:?}: {said}");
    }
    assert_eq!(env.weir_command(&["mirror", "nosuch"]).output().unwrap().status.code(), Some(1));
    assert!(env.weir(&["mirror"]).contains("1 updated"));
    let idle = env.weir(&["mirror"]);
    assert!(idle.contains("nothing is due; the next is") && idle.contains("--all"), "{idle}");
}

#[test]
fn refs_are_chosen_by_pattern() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let main = env.git(&up, &["rev-parse", "main"]);
    for name in ["refs/pull/1/head", "refs/pull/1/merge", "refs/heads/tmp/x", "refs/notes/commits"] {
        env.git(&up, &["update-ref", name, &main]);
    }
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "a/one", &daemon.url("up.git")]);
    env.weir(&["add", "--name", "b/two", &daemon.url("up.git")]);
    env.configure("mirror", "refs = ['refs/*', '^refs/pull/*/merge']");
    env.weir(&["mirror"]);
    let server = env.serve();
    let has = |name: &str, of: &str| refs_of(&env, &server, of).iter().any(|r| r == name);
    assert!(
        has("refs/pull/1/head", "a/one")
            && !has("refs/pull/1/merge", "a/one")
            && has("refs/heads/tmp/x", "a/one")
    );
    // A rule by name, and a setting of one repository that overrides it.
    let path = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let rule = "[[mirror.rules]]\nrepositories = ['a/*']\nrefs = ['heads-and-tags', \
        '^refs/heads/tmp/*']\ninterval = '7s'\n";
    std::fs::write(&path, format!("{text}\n{rule}")).unwrap();
    env.weir(&["mirror", "--all"]);
    let one = refs_of(&env, &server, "a/one");
    assert!(
        one.iter().all(|r| r == "HEAD" || r.starts_with("refs/heads/") || r.starts_with("refs/tags/")),
        "{one:?}"
    );
    assert!(!has("refs/heads/tmp/x", "a/one") && has("refs/pull/1/head", "b/two"));
    assert!(env.weir_json(&["due"])[0]["in_s"].as_i64().unwrap() <= 9);
    env.weir(&["set", "a/one", "--refs", "refs/heads/main,refs/notes/*"]);
    env.weir(&["mirror"]);
    let mut one = refs_of(&env, &server, "a/one");
    one.sort();
    assert_eq!(one, ["HEAD", "refs/heads/main", "refs/notes/commits", "refs/notes/x"]);
    assert_eq!(
        env.weir_json(&["set"])[0]["settings"]["refs"],
        serde_json::json!(["refs/heads/main", "refs/notes/*"])
    );
    env.weir(&["set", "a/one", "--refs", "refs/other/*"]);
    let said = env.weir_fails(&["mirror"]);
    assert!(said.contains("no refs that match the patterns of its 'refs'"), "{said}");
    assert!(has("refs/heads/main", "a/one"));
    let said = env.weir_fails(&["set", "a/one", "--refs", "main"]);
    assert!(said.contains("is not a ref pattern"), "{said}");
    std::fs::write(&path, text.replace("'^refs/pull/*/merge'", "'main'")).unwrap();
    assert!(env.weir_fails(&["ls"]).contains("is not a ref pattern"));
    for (rule, why) in [
        ("repositories = []\nlfs = true", "mirror.rules number 1: it needs at least one pattern of names"),
        ("repositories = ['a/*']", "mirror.rules number 1: it sets none of"),
        (
            "repositories = ['a//b', 'c']\nlfs = true",
            "mirror.rules number 1: the pattern 'a//b' matches no valid",
        ),
        ("repositories = ['a/*']\nrefs = []", "no ref pattern given"),
        ("repositories = ['a/*']\nrefs = ['refs/a..b']", "'refs/a..b' matches no valid ref name"),
    ] {
        std::fs::write(&path, format!("{text}\n[[mirror.rules]]\n{rule}\n")).unwrap();
        let said = env.weir_fails(&["ls"]);
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn refs_are_chosen_by_forge() {
    let env = Env::new();
    std::fs::create_dir(env.path("forge")).unwrap();
    let up = env.odd_repository("forge/up.git");
    let main = env.git(&up, &["rev-parse", "main"]);
    env.git(&up, &["update-ref", "refs/pull/1/merge", &main]);
    let path = env.pool().join("weir.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for (name, refs) in [("f", ""), ("g", "refs = ['refs/*']"), ("h", "refs = 'heads-and-tags'")] {
        text += &format!(
            "\n[[forge]]\ntype = 'folder'\nname = '{name}'\nurl = '{}'\n{refs}\n",
            env.path("forge").display()
        );
    }
    std::fs::write(&path, &text).unwrap();
    env.weir(&["crawl"]);
    env.weir(&["mirror"]);
    let server = env.serve();
    let has = |of: &str, name: &str| refs_of(&env, &server, of).iter().any(|r| r == name);
    assert!(has("f/up", "refs/pull/1/head") && !has("f/up", "refs/pull/1/merge"));
    assert!(has("g/up", "refs/pull/1/head") && has("g/up", "refs/pull/1/merge"));
    assert!(has("h/up", "refs/heads/main") && !has("h/up", "refs/pull/1/head"));
    // The setting of one repository overrides the forge's.
    env.weir(&["set", "h/up", "--refs", "refs/pull/*"]);
    env.weir(&["mirror"]);
    assert!(!has("h/up", "refs/heads/main") && has("h/up", "refs/pull/1/merge"));
}
