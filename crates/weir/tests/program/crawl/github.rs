//! Features that only GitHub has (search, Apps), and wikis, which are repositories on three forges.

use crate::common::Env;
use crate::common::forge::{Forge, Listed, State};

fn repositories(ids: impl Iterator<Item = u64>) -> Vec<Listed> {
    let one = |id: u64| Listed {
        id,
        owner: if id.is_multiple_of(2) { "even" } else { "odd" },
        name: format!("r{id}"),
        pushed_at: "2024-01-01T00:00:00Z".into(),
        fork: false,
    };
    ids.map(one).collect()
}

fn configure(env: &Env, kind: &str, forge: &Forge, more: &str) {
    let text = format!(
        "[[forge]]\ntype = \"{kind}\"\nurl = \"{}\"\nname = \"f\"\nclone_from = [\"https://h\"]\ntries = \
        2\nretry = \"0s\"\n{more}\n",
        forge.url()
    );
    std::fs::write(env.pool().join("weir.toml"), text).unwrap();
}

fn crawl(env: &Env) -> serde_json::Value {
    serde_json::from_str(&env.weir(&["--json", "crawl"])).unwrap()
}

fn names(env: &Env) -> Vec<String> {
    env.weir_json(&["ls"])
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn private_repositories_of_organisations_are_listed_with_a_token() {
    let env = Env::new();
    let mut all = repositories(1..301);
    for (n, r) in all.iter_mut().enumerate() {
        r.owner = ["person", "org"][n % 4 / 2];
    }
    let forge = Forge::new(State {
        repositories: all,
        clone_base: "https://h/".into(),
        private_owners: vec!["org".into()],
        ..State::default()
    });
    configure(&env, "github", &forge, "owners = ['org', 'person', 'nobody']");
    assert_eq!(crawl(&env)["added"], 225, "without a token");
    configure(&env, "github", &forge, "tokens = ['secret']\nowners = ['org', 'person', 'nobody']");
    assert_eq!((crawl(&env)["added"].as_u64(), names(&env).len()), (Some(75), 300));
    let asked = crawl(&env)["requests"].as_u64().unwrap();
    assert!(asked <= 11, "{asked} requests");
}

#[test]
fn bitbucket_is_listed_by_the_workspaces_of_its_credentials() {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(1..451),
        clone_base: "https://h/".into(),
        ..State::default()
    });
    configure(&env, "bitbucket", &forge, "tokens = ['secret']");
    assert_eq!((crawl(&env)["added"].as_u64(), crawl(&env)["added"].as_u64()), (Some(450), Some(0)));
}

#[test]
fn a_search_gives_all_it_finds_however_much_that_is() {
    let env = Env::new();
    // 2999 repositories are spread over ten years, and 3000 were created within seconds.
    let repositories = repositories(1..6000);
    let forge = Forge::new(State { repositories, clone_base: "https://h/".into(), ..State::default() });
    configure(
        &env,
        "github",
        &forge,
        "tokens = [\"secret\"]\nsearch = [\"user:odd\", \"user:nobody\", \"user:even\"]\nlimit = 4000",
    );
    forge.state().limit = Some(30);
    let said = crawl(&env);
    assert_eq!((said["added"].as_u64(), forge.state().impatient), (Some(4000), 0), "{said}");
    assert!(said["rate_limit_waits"].as_u64() >= Some(1));
    configure(
        &env,
        "github",
        &forge,
        "tokens = [\"secret\"]\nsearch = [\"user:odd\", \"user:nobody\", \"user:even\"]",
    );
    forge.state().limit = None;
    forge.state().incomplete = 1;
    let said = crawl(&env);
    assert_eq!(
        (said["skipped_pages"].as_u64(), said["finished"].as_bool()),
        (Some(0), Some(true)),
        "what it gave up is asked in halves: {said}"
    );
    assert_eq!(names(&env).len(), 5999, "each once");
    // A search that fails is repeated for half of its range. If GitHub is down, the next crawl resumes there.
    forge.state().broken_searches = 2 * 3;
    assert_eq!(crawl(&env)["listed"], 5999);
    forge.state().broken_searches = 1000;
    assert!(env.weir_fails(&["crawl"]).contains("resumes there"));
    forge.state().broken_searches = 0;
    assert_eq!(crawl(&env)["listed"], 5999);
    let asked = forge.state().log.iter().filter(|l| l.contains("/search/")).count();
    // Each crawl needs sixty pages, and searches to find the seconds in which hundreds of repositories were
    // created.
    assert!(asked < 5 * 220, "{asked} searches in five crawls");
    // weir requests a repository that the search no longer finds by its id. It is not gone just because the
    // search does not find it.
    forge.state().repositories.retain(|r| r.id != 7);
    forge.state().repositories.iter_mut().find(|r| r.id == 9).unwrap().owner = "moved";
    let said = crawl(&env);
    assert_eq!((said["gone"].as_u64(), said["renamed"].as_u64()), (Some(1), Some(1)), "{said}");
    for (more, why) in [
        ("search = [\"x\"]\nowners = [\"a\"]", "owners and search exclude each other"),
        ("search = [\"x created:>2020\"]", "'created:' in a search is reserved"),
        ("app = \"1\"", "app and app_key_file must be set together"),
    ] {
        configure(&env, "github", &forge, more);
        assert!(env.weir_fails(&["crawl"]).contains(why), "{why}");
    }
    configure(&env, "gitea", &forge, "search = [\"x\"]");
    assert!(env.weir_fails(&["crawl"]).contains("search and app are for GitHub only"));
}

fn openssl(env: &Env, args: &[&str]) {
    let output = weir_testing::command("openssl").args(args).current_dir(env.dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Returns a folder with the private key of an App as GitHub gives it, `key.pem`, and a forge where the App
/// has two installations.
fn app() -> (Env, Forge) {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(1..451),
        clone_base: "https://h/".into(),
        installations: vec![7, 9],
        ..State::default()
    });
    openssl(&env, &["genrsa", "-traditional", "-out", "key.pem", "2048"]);
    (env, forge)
}

#[test]
fn an_app_is_asked_for_tokens_of_its_installations() {
    let (env, forge) = app();
    // PKCS #8 is another common format of the key.
    openssl(&env, &["pkcs8", "-topk8", "-nocrypt", "-in", "key.pem", "-out", "pkcs8.pem"]);
    openssl(&env, &["rsa", "-in", "key.pem", "-pubout", "-out", "public.pem"]);
    for (file, more) in [("key.pem", ""), ("pkcs8.pem", "app_installations = [9]\n")] {
        let env_of = Env::new();
        configure(
            &env_of,
            "github",
            &forge,
            &format!("app = \"Iv1.abc\"\napp_key_file = \"{}\"\n{more}", env.path(file).display()),
        );
        forge.state().shown.clear();
        let said = crawl(&env_of);
        assert_eq!(said["added"], 450, "{said}");
        let shown = forge.state().shown.clone();
        let expected = if more.is_empty() { "Bearer ghs_7" } else { "Bearer ghs_9" };
        assert!(
            shown.iter().any(|s| s == expected) && said["requests"].as_u64().unwrap() < 450 / 40 + 3,
            "{shown:?}"
        );
        is_signed(&env, &shown[0]);
    }
}

/// Checks that the token in `shown` is signed with the private key of `public.pem`.
fn is_signed(env: &Env, shown: &str) {
    let word = shown.strip_prefix("Bearer ").unwrap();
    let (text, signature) = word.rsplit_once('.').unwrap();
    let decode =
        |text: &str| base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, text).unwrap();
    std::fs::write(env.path("text"), text).unwrap();
    std::fs::write(env.path("signature"), decode(signature)).unwrap();
    openssl(env, &["dgst", "-sha256", "-verify", "public.pem", "-signature", "signature", "text"]);
    let claims: serde_json::Value = serde_json::from_slice(&decode(text.split_once('.').unwrap().1)).unwrap();
    let time = |key: &str| claims[key].as_u64().unwrap();
    assert!(claims["iss"] == "Iv1.abc" && time("exp") - time("iat") == 600, "{claims}");
}

#[test]
fn an_installation_that_is_gone_says_nothing_of_repositories() {
    let (env, forge) = app();
    // weir uses the other installations. Without any, it does not mark repositories as gone.
    let env_of = Env::new();
    let with = |more: &str| {
        format!(
            "owners = [\"odd\", \"even\"]\napp = \"1\"\napp_key_file = \"{}\"\n{more}",
            env.path("key.pem").display()
        )
    };
    configure(&env_of, "github", &forge, &with("app_installations = [8, 9]\n"));
    assert_eq!(crawl(&env_of)["added"], 450);
    configure(&env_of, "github", &forge, &with("app_installations = [8]\n"));
    assert!(env_of.weir_fails(&["crawl"]).contains("it rejects all tokens"));
    assert_eq!(env_of.weir_json(&["status"])["counts"]["gone"], 0);
    // Another installation may see a repository that the first must not see.
    forge.state().seen_by = Some((3, 9));
    forge.state().repositories.retain(|r| r.id != 5);
    configure(
        &env_of,
        "github",
        &forge,
        &with("app_installations = [7, 9]\nsearch = [\"user:even\"]\n").replacen(
            "owners = [\"odd\", \"even\"]\n",
            "",
            1,
        ),
    );
    let said = crawl(&env_of);
    assert_eq!((said["gone"].as_u64(), said["finished"].as_bool()), (Some(1), Some(true)), "{said}");
}

#[test]
fn an_app_without_a_key_or_installations_is_an_error() {
    let (env, forge) = app();
    let wrong = |key: &str| {
        std::fs::write(env.path("wrong.pem"), key).unwrap();
        configure(
            &env,
            "github",
            &forge,
            &format!("app = \"1\"\napp_key_file = \"{}\"\n", env.path("wrong.pem").display()),
        );
        env.weir_fails(&["crawl"])
    };
    assert!(wrong("no key").contains("the private key of a GitHub App"));
    forge.state().installations.clear();
    let key = std::fs::read_to_string(env.path("key.pem")).unwrap();
    assert!(wrong(&key).contains("has no installations"));
}

#[test]
fn clones_show_the_tokens_of_their_forge_and_of_the_installation_at_their_owner() {
    let env = Env::new();
    let forge = Forge::new(State { repositories: repositories(1..3), ..State::default() });
    forge.state().clone_base = forge.url() + "/";
    let key = env.path("key.pem");
    let made = weir_testing::command("openssl")
        .args(["genrsa", "-out", key.to_str().unwrap(), "2048"])
        .output()
        .unwrap();
    assert!(made.status.success());
    let basic = |text: &str| {
        format!("Basic {}", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text))
    };
    let shown = |env: &Env, expected: &str| {
        forge.state().shown.clear();
        // The fake forge has nothing to clone.
        assert!(env.weir_fails(&["mirror", "--all"]).contains(expected));
        let shown = forge.state().shown.clone();
        shown
            .into_iter()
            .filter(|shown| shown.starts_with("Basic "))
            .collect::<std::collections::BTreeSet<_>>()
    };
    configure(&env, "github", &forge, "tokens = [\"one\", \"two\"]");
    crawl(&env);
    // To a token that must not see a repository the forge says that there is none. So weir tries the other
    // token.
    assert_eq!(shown(&env, "failed"), [basic("x-access-token:one"), basic("x-access-token:two")].into());
    configure(&env, "github", &forge, "tokens = [\"one\"]\nclone_with_tokens = false");
    assert_eq!(shown(&env, "a password is required"), [].into());
    forge.state().installations = vec![7, 9];
    configure(&env, "github", &forge, &format!("app = \"1\"\napp_key_file = \"{}\"", key.display()));
    assert_eq!(shown(&env, "failed"), [basic("x-access-token:ghs_7"), basic("x-access-token:ghs_9")].into());
}

#[test]
fn wikis_are_repositories_beside() {
    for kind in ["github", "gitlab", "gitea"] {
        let env = Env::new();
        let forge = Forge::new(State {
            repositories: repositories(1..21),
            clone_base: "https://h/".into(),
            wikis: true,
            ..State::default()
        });
        let more = "tokens = [\"secret\"]\nwikis = true\nexclude = [\"*/r20.wiki\"]";
        configure(&env, kind, &forge, more);
        assert_eq!(env.weir(&["crawl", "--dry-run"]).lines().count(), 23, "{kind}");
        assert_eq!(crawl(&env)["added"], 23, "{kind}");
        let wikis = |env: &Env| -> Vec<String> {
            names(env).into_iter().filter(|name| name.ends_with(".wiki")).collect()
        };
        assert_eq!(wikis(&env), ["f/even/r10.wiki", "f/odd/r15.wiki", "f/odd/r5.wiki"], "{kind}");
        assert_eq!(env.weir_json(&["show", "f/odd/r5.wiki"])["url"], "https://h/odd/r5.wiki.git", "{kind}");
        // A wiki is renamed, and vanishes, with its repository.
        forge.state().repositories.iter_mut().find(|r| r.id == 5).unwrap().name = "renamed".into();
        forge.state().repositories.retain(|r| r.id != 10);
        let said = crawl(&env);
        assert_eq!((said["renamed"].as_u64(), said["gone"].as_u64()), (Some(2), Some(2)), "{kind}: {said}");
        assert_eq!(
            wikis(&env),
            ["f/even/r10.wiki", "f/odd/r15.wiki", "f/odd/renamed.wiki"],
            "{kind}: gone is not forgotten"
        );
        // Known wikis stay when the configuration no longer asks for wikis. A wiki that the forge has
        // switched off is gone.
        configure(&env, kind, &forge, "tokens = [\"secret\"]");
        assert_eq!((crawl(&env)["gone"].as_u64(), wikis(&env).len()), (Some(0), 3), "{kind}");
        forge.state().wikis = false;
        assert_eq!(crawl(&env)["gone"], 2, "{kind}");
    }
}

#[test]
fn people_organisations_and_who_belongs_to_which() {
    for kind in ["github", "gitea"] {
        let env = Env::new();
        let forge = Forge::new(State {
            repositories: repositories(1..3),
            clone_base: "https://h/".into(),
            people: (1..=230).collect(),
            organisations: vec![(1001, (1..=120).collect()), (1002, vec![5, 7]), (1003, Vec::new())],
            ..State::default()
        });
        configure(&env, kind, &forge, "tokens = [\"secret\"]\naccounts = true");
        let said = crawl(&env);
        assert_eq!(
            (said["finished"].as_bool(), said["added"].as_u64()),
            (Some(true), Some(2)),
            "{kind}: {said}"
        );
        let status = |env: &Env| env.weir_json(&["status"])["accounts"][0]["counts"].clone();
        // The owner of the repositories has the id of one of the 230 people.
        let all = serde_json::json!({ "users": 230, "organizations": 3, "memberships": 122 });
        assert_eq!(status(&env), all, "{kind}");
        let of = |env: &Env, login: &str| env.weir_json(&["accounts", login])[0]["organizations"].clone();
        assert_eq!(of(&env, "p5"), serde_json::json!(["o1001", "o1002"]), "{kind}");
        assert!(env.weir(&["accounts", "o1002"]).contains("organization"), "{kind}");
        assert!(
            env.weir(&["status"])
                .contains("accounts      f: 230 people, 3 organisations, 122 memberships, listed"),
            "{kind}"
        );
        // Memberships change. An account that is no longer listed stays known.
        {
            let mut state = forge.state();
            state.organisations[1].1 = vec![7, 9];
            state.organisations[0].1.clear();
            state.people.pop();
        }
        crawl(&env);
        assert_eq!(
            (of(&env, "p5"), of(&env, "p9")),
            (serde_json::json!([]), serde_json::json!(["o1002"])),
            "{kind}"
        );
        assert_eq!(
            status(&env),
            serde_json::json!({ "users": 230, "organizations": 3, "memberships": 2 }),
            "{kind}"
        );
        let few = Env::new();
        configure(
            &few,
            kind,
            &forge,
            "tokens = [\"secret\"]\naccounts = true\nowners = [\"o1002\", \"nobody\", \"p3\"]",
        );
        crawl(&few);
        assert_eq!(
            status(&few),
            serde_json::json!({ "users": 3, "organizations": 1, "memberships": 2 }),
            "{kind}"
        );
        assert!(env.weir_fails(&["accounts", "p999"]).contains("no account named 'p999' is known"));
    }
    // A page that fails is skipped. The next crawl reads it.
    let env = Env::new();
    let forge = Forge::new(State { people: (1..=250).collect(), broken: vec![100], ..State::default() });
    configure(&env, "github", &forge, "tokens = [\"secret\"]\naccounts = true");
    crawl(&env);
    assert_eq!(env.weir_json(&["status"])["accounts"][0]["counts"]["users"], 150);
    forge.state().broken.clear();
    crawl(&env);
    assert_eq!(env.weir_json(&["status"])["accounts"][0]["counts"]["users"], 250);
    configure(&env, "bitbucket", &forge, "accounts = true");
    assert!(env.weir_fails(&["crawl"]).contains("accounts is for GitHub and Gitea only"));
}

#[test]
fn what_is_left_of_a_limit_is_shown_and_a_token_that_is_used_up_is_not_tried() {
    let env = Env::new();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let said = Some((5000, 4321, now + 3000));
    let forge = Forge::new(State {
        repositories: repositories(1..3),
        clone_base: "https://h/".into(),
        said,
        ..State::default()
    });
    configure(&env, "github", &forge, "tokens = [\"first\", \"second\"]");
    crawl(&env);
    let status = env.weir(&["status"]);
    assert!(
        status.contains(": 4321 of 5000 requests left, reset in ") && !status.contains("first"),
        "{status}"
    );
    assert!(status.contains(" graphql: 4921 of 5000 requests left"), "{status}");
    // One request uses up each of the two tokens, and weir records that. The next process uses neither.
    forge.state().said = Some((5000, 0, now + 3000));
    crawl(&env);
    assert_eq!(env.weir(&["status"]).matches(": 0 of 5000 requests left").count(), 2);
    configure(&env, "github", &forge, "tokens = [\"first\", \"second\", \"third\"]");
    forge.state().said = said;
    forge.state().shown.clear();
    crawl(&env);
    let shown = forge.state().shown.clone();
    assert!(shown.len() >= 2 && shown.iter().all(|s| s == "Bearer third"), "{shown:?}");
}

#[test]
fn pages_that_have_not_changed_are_not_had_again() {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(1..501),
        clone_base: "https://h/".into(),
        etags: true,
        ..State::default()
    });
    let owners = "tokens = [\"secret\"]\nowners = [\"odd\", \"even\"]\n";
    configure(&env, "github", &forge, owners);
    let told = |said: &serde_json::Value| {
        (said["requests"].as_u64().unwrap(), said["unchanged_pages"].as_u64().unwrap())
    };
    let said = crawl(&env);
    assert_eq!(
        (told(&said), said["added"].as_u64()),
        ((14, 0), Some(500)),
        "six pages, a question about each, and whether each owner is an organisation: {said}"
    );
    let said = crawl(&env);
    assert_eq!(
        (told(&said), said["listed"].as_u64(), said["gone"].as_u64()),
        ((8, 6), Some(500), Some(0)),
        "{said}"
    );
    assert_eq!(said["finished"], true);
    // Pages that have changed are read again, and a repository that vanished is gone.
    forge.state().repositories[40].pushed_at = "2025-01-01T00:00:00Z".into();
    forge.state().repositories.retain(|r| r.id != 499);
    let said = crawl(&env);
    assert_eq!(
        (told(&said).1, said["hinted"].as_u64(), said["gone"].as_u64()),
        (4, Some(1), Some(1)),
        "{said}"
    );
    env.weir(&["rm", "f/odd/r9"]);
    assert_eq!(crawl(&env)["added"], 1, "what was forgotten here is found again");
    // After a change of the configuration, all pages are read again.
    configure(&env, "github", &forge, &format!("{owners}wikis = true"));
    forge.state().wikis = true;
    let said = crawl(&env);
    assert_eq!((told(&said).1, said["added"].as_u64()), (0, Some(100)), "{said}");
    assert_eq!(told(&crawl(&env)), (8, 6));
    configure(&env, "github", &forge, &format!("{owners}exclude = [\"*/r7\"]"));
    assert_eq!(told(&crawl(&env)).1, 0);
    // A limit has the same effect, and so has another list of owners.
    configure(&env, "github", &forge, &format!("{owners}limit = 120"));
    assert_eq!((crawl(&env)["wanted"].as_u64(), told(&crawl(&env)).1), (Some(120), 0));
    configure(&env, "github", &forge, owners);
    assert_eq!(crawl(&env)["listed"], 499, "what was cut by a limit is no page as it was");
    configure(&env, "github", &forge, "tokens = [\"secret\"]\nowners = [\"even\", \"odd\"]");
    assert_eq!(told(&crawl(&env)).1, 0);
    assert_eq!(told(&crawl(&env)).1, 6);
    // An owner vanishes, and comes back with the same repositories.
    let even: Vec<_> = forge.state().repositories.iter().filter(|r| r.owner == "even").cloned().collect();
    forge.state().repositories.retain(|r| r.owner != "even");
    assert_eq!(crawl(&env)["gone"], 300, "with their wikis");
    forge.state().repositories.extend(even);
    assert_eq!(crawl(&env)["back"], 250);
    // A full page does not change when a repository is added. The crawl must find the next page.
    let few = Env::new();
    forge.state().repositories.retain(|r| r.id <= 200);
    configure(&few, "github", &forge, "tokens = [\"secret\"]\nowners = [\"odd\"]");
    crawl(&few);
    forge.state().repositories.extend(repositories(999..1000));
    assert_eq!(crawl(&few)["added"], 1);
}

#[test]
fn a_search_that_github_refuses_is_not_the_end_of_the_others() {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(1..21),
        clone_base: "https://h/".into(),
        ..State::default()
    });
    configure(&env, "github", &forge, "tokens = [\"secret\"]\nsearch = [\"user:refused\", \"user:odd\"]");
    let said = crawl(&env);
    assert_eq!((said["added"].as_u64(), said["finished"].as_bool()), (Some(10), Some(true)), "{said}");
}
