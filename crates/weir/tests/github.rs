//! What only GitHub has: search, Apps. And wikis, which are repositories on three forges.

mod common;
#[path = "common/forge.rs"]
mod forge;

use std::process::Command;

use common::Env;
use forge::{Forge, Listed, State};

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
        "[[forge]]\ntype = \"{kind}\"\nurl = \"{}\"\nname = \"f\"\nclone_from = [\"https://h\"]\ntries = 2\nretry = \"0s\"\n{more}\n",
        forge.url()
    );
    std::fs::write(env.pool().join("weir.toml"), text).unwrap();
}

fn crawl(env: &Env) -> serde_json::Value {
    serde_json::from_str(&env.weir(&["--json", "crawl"])).unwrap()
}

fn names(env: &Env) -> Vec<String> {
    env.weir_json(&["ls"]).as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_search_gives_all_it_finds_however_much_that_is() {
    let env = Env::new();
    // 2999 spread over ten years, and three thousand within seconds.
    let repositories = repositories(1..6000);
    let forge = Forge::new(State { repositories, clone_base: "https://h/".into(), ..State::default() });
    configure(&env, "github", &forge, "tokens = [\"secret\"]\nsearch = [\"user:odd\", \"user:nobody\", \"user:even\"]\nlimit = 4000");
    forge.state().limit = Some(30);
    let said = crawl(&env);
    assert_eq!((said["added"].as_u64(), forge.state().impatient), (Some(4000), 0), "{said}");
    assert!(said["rate_limit_waits"].as_u64() >= Some(1));
    configure(&env, "github", &forge, "tokens = [\"secret\"]\nsearch = [\"user:odd\", \"user:nobody\", \"user:even\"]");
    forge.state().limit = None;
    forge.state().incomplete = 1;
    let said = crawl(&env);
    assert_eq!((said["skipped_pages"].as_u64(), said["finished"].as_bool()), (Some(1), Some(true)), "{said}");
    assert_eq!(crawl(&env)["recovered_pages"], 1, "what GitHub gave up is had the next time");
    assert_eq!(names(&env).len(), 5999, "each once");
    let asked = forge.state().log.iter().filter(|l| l.contains("/search/")).count();
    // Sixty pages each, and what it costs to find the seconds in which hundreds were made.
    assert!(asked < 3 * 220, "{asked} searches in three crawls");
    // What a search finds no more is asked for by itself, and is not gone for that.
    forge.state().repositories.retain(|r| r.id != 7);
    forge.state().repositories.iter_mut().find(|r| r.id == 9).unwrap().owner = "moved";
    let said = crawl(&env);
    assert_eq!((said["gone"].as_u64(), said["renamed"].as_u64()), (Some(1), Some(1)), "{said}");
    for (more, why) in [
        ("search = [\"x\"]\nowners = [\"a\"]", "either owners or search"),
        ("search = [\"x created:>2020\"]", "must not say created"),
        ("app = \"1\"", "app and app_key_file go together"),
    ] {
        configure(&env, "github", &forge, more);
        assert!(env.weir_fails(&["crawl"]).contains(why), "{why}");
    }
    configure(&env, "gitea", &forge, "search = [\"x\"]");
    assert!(env.weir_fails(&["crawl"]).contains("search and app are GitHub's"));
}

#[test]
fn an_app_is_asked_for_tokens_of_its_installations() {
    let env = Env::new();
    let forge = Forge::new(State {
        repositories: repositories(1..451),
        clone_base: "https://h/".into(),
        installations: vec![7, 9],
        ..State::default()
    });
    let openssl =
        |args: &[&str]| assert!(Command::new("openssl").args(args).current_dir(env.dir.path()).output().unwrap().status.success());
    // As GitHub gives it, and as others write it.
    openssl(&["genrsa", "-traditional", "-out", "key.pem", "2048"]);
    openssl(&["pkcs8", "-topk8", "-nocrypt", "-in", "key.pem", "-out", "pkcs8.pem"]);
    openssl(&["rsa", "-in", "key.pem", "-pubout", "-out", "public.pem"]);
    for (file, more) in [("key.pem", ""), ("pkcs8.pem", "app_installations = [9]\n")] {
        let env_of = Env::new();
        configure(&env_of, "github", &forge, &format!("app = \"Iv1.abc\"\napp_key_file = \"{}\"\n{more}", env.path(file).display()));
        forge.state().shown.clear();
        let said = crawl(&env_of);
        assert_eq!(said["added"], 450, "{said}");
        let shown = forge.state().shown.clone();
        let expected = if more.is_empty() { "Bearer ghs_7" } else { "Bearer ghs_9" };
        assert!(shown.iter().any(|s| s == expected) && said["requests"].as_u64().unwrap() < 450 / 40 + 3, "{shown:?}");
        // What was shown for a token is what the private key has signed.
        let word = shown[0].strip_prefix("Bearer ").unwrap();
        let (text, signature) = word.rsplit_once('.').unwrap();
        let decode = |text: &str| base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, text).unwrap();
        std::fs::write(env.path("text"), text).unwrap();
        std::fs::write(env.path("signature"), decode(signature)).unwrap();
        openssl(&["dgst", "-sha256", "-verify", "public.pem", "-signature", "signature", "text"]);
        let claims: serde_json::Value = serde_json::from_slice(&decode(text.split_once('.').unwrap().1)).unwrap();
        let time = |key: &str| claims[key].as_u64().unwrap();
        assert!(claims["iss"] == "Iv1.abc" && time("exp") - time("iat") == 600, "{claims}");
    }
    // Limits of one are waited out with the other.
    let wrong = |key: &str, more: &str| {
        std::fs::write(env.path("wrong.pem"), key).unwrap();
        configure(&env, "github", &forge, &format!("app = \"1\"\napp_key_file = \"{}\"\n{more}", env.path("wrong.pem").display()));
        env.weir_fails(&["crawl"])
    };
    assert!(wrong("no key", "").contains("the private key of a GitHub App"));
    forge.state().installations.clear();
    let key = std::fs::read_to_string(env.path("key.pem")).unwrap();
    assert!(wrong(&key, "").contains("installed nowhere"));
}

#[test]
fn wikis_are_repositories_beside() {
    for kind in ["github", "gitlab", "gitea"] {
        let env = Env::new();
        let forge =
            Forge::new(State { repositories: repositories(1..21), clone_base: "https://h/".into(), wikis: true, ..State::default() });
        let more = "tokens = [\"secret\"]\nwikis = true\nexclude = [\"*/r20.wiki\"]";
        configure(&env, kind, &forge, more);
        assert_eq!(env.weir(&["crawl", "--dry-run"]).lines().count(), 23, "{kind}");
        assert_eq!(crawl(&env)["added"], 23, "{kind}");
        let wikis = |env: &Env| -> Vec<String> { names(env).into_iter().filter(|name| name.ends_with(".wiki")).collect() };
        assert_eq!(wikis(&env), ["f/even/r10.wiki", "f/odd/r15.wiki", "f/odd/r5.wiki"], "{kind}");
        assert_eq!(env.weir_json(&["show", "f/odd/r5.wiki"])["url"], "https://h/odd/r5.wiki.git", "{kind}");
        // They go where their repositories go.
        forge.state().repositories.iter_mut().find(|r| r.id == 5).unwrap().name = "renamed".into();
        forge.state().repositories.retain(|r| r.id != 10);
        let said = crawl(&env);
        assert_eq!((said["renamed"].as_u64(), said["gone"].as_u64()), (Some(2), Some(2)), "{kind}: {said}");
        assert_eq!(wikis(&env), ["f/even/r10.wiki", "f/odd/r15.wiki", "f/odd/renamed.wiki"], "{kind}: gone is not forgotten");
        // Not wanted any more, they stay all the same; one that is switched off there is gone.
        configure(&env, kind, &forge, "tokens = [\"secret\"]");
        assert_eq!((crawl(&env)["gone"].as_u64(), wikis(&env).len()), (Some(0), 3), "{kind}");
        forge.state().wikis = false;
        assert_eq!(crawl(&env)["gone"], 2, "{kind}");
    }
}
