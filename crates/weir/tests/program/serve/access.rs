//! Access to repositories, and their names: access rules, tokens, hooks, rules that map URLs.

use crate::common::{Env, Http, OPEN_SESAME};
use std::os::unix::fs::PermissionsExt;

fn pool_with(env: &Env, names: &[&str]) {
    let upstream = env.odd_repository("odd.git");
    for name in names {
        env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
    }
    env.weir(&["mirror"]);
}

#[test]
fn hidden_repositories_are_as_if_they_were_not_there() {
    let env = Env::new();
    pool_with(&env, &["open/a", "secret/b"]);
    env.configure(
        "access",
        &format!(
            "rules = [{{ repositories = [\"secret/*\"], tokens = [\"ci\"] }}]\ntokens = \
            [{{ name = \"ci\", sha256 = \"{OPEN_SESAME}\" }}]"
        ),
    );
    let server = Http::serve(&env, &[]);
    let ls = |url: &str| env.git_command(env.dir.path(), &["ls-remote", url]).output().unwrap();
    assert!(ls(&server.url("open/a")).status.success());
    assert!(ls(&server.git_url("open/a")).status.success());
    // With the token, as a password or as a bearer token.
    assert!(ls(&server.url("secret/b").replace("http://", "http://anybody:open%20sesame@")).status.success());
    let refs = "/secret/b/info/refs?service=git-upload-pack";
    assert!(server.get(refs, "Authorization: Bearer open sesame\r\n").0.starts_with("HTTP/1.1 200 "));
    // Without the token, a hidden repository and an absent one get the same answer, byte for byte.
    let strip = |(head, body): (String, Vec<u8>), name: &str| {
        let lines: Vec<&str> = head.lines().filter(|l| !l.starts_with("date: ")).collect();
        (lines.join("\n").replace(name, "X"), String::from_utf8_lossy(&body).replace(name, "X"))
    };
    for headers in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic !!!\r\n"] {
        let hidden = strip(server.get(refs, headers), "secret/b");
        let absent = strip(server.get("/secret/no/info/refs?service=git-upload-pack", headers), "secret/no");
        assert!(
            hidden.0.starts_with("HTTP/1.1 401 ") && hidden.0.contains("www-authenticate: Basic"),
            "{hidden:?}"
        );
        // Only the bodies are compared: the lengths in the heads differ with the name.
        assert_eq!(hidden.1, absent.1, "{headers}");
    }
    let refused = |name: &str| String::from_utf8_lossy(&ls(&server.git_url(name)).stderr).replace(name, "X");
    assert_eq!(refused("secret/b"), refused("secret/no"));
}

#[test]
fn a_hook_decides() {
    let env = Env::new();
    pool_with(&env, &["a", "b"]);
    let hook = env.path("hook");
    std::fs::write(
        &hook,
        "#!/bin/sh\necho \"$@\" >>\"$0.log\"\n[ \"$2\" = a ] && exit 0\necho 'not on Sundays'\nexit 1\n",
    )
    .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    env.configure("access", &format!("hook = {:?}", hook.display().to_string()));
    let server = Http::serve(&env, &[]);
    env.git(env.dir.path(), &["ls-remote", &server.git_url("a")]);
    for url in [server.git_url("b"), server.url("b")] {
        let refused = env.git_command(env.dir.path(), &["ls-remote", &url]).output().unwrap();
        assert!(String::from_utf8_lossy(&refused.stderr).contains("not on Sundays"), "{refused:?}");
    }
    let log = std::fs::read_to_string(env.path("hook.log")).unwrap();
    assert!(log.starts_with("upload-pack a 127.0.0.1 127.0.0.1 127.0.0.1 "), "{log}");
}

#[test]
fn urls_are_mapped_and_checked() {
    let env = Env::new();
    pool_with(&env, &["gist/a/b/a/ab"]);
    let rule = r"map = [{ host = '127.0.0.1', path = '/(.*)\.git', to = 'gist/{1|namespace3}/{1}' }]";
    env.configure("serve", rule);
    let server = Http::serve(&env, &[]);
    env.git(env.dir.path(), &["ls-remote", &server.git_url("ab.git")]);
    env.git(env.dir.path(), &["ls-remote", &server.url("ab.git")]);
    // Only the rules count now.
    assert!(
        !env.git_command(env.dir.path(), &["ls-remote", &server.git_url("gist/a/b/a/ab")])
            .output()
            .unwrap()
            .status
            .success()
    );
    let said = env.weir(&["config", "check", "git://127.0.0.1/ab.git"]);
    assert!(said.contains("git://127.0.0.1/ab.git: gist/a/b/a/ab, for everybody"), "{said}");
    let said =
        env.weir_fails(&["config", "check", "https://elsewhere.example/ab.git", "git://127.0.0.1/../x.git"]);
    assert!(said.contains("no rule of serve.map matches") && said.contains("which is no name"), "{said}");
    env.configure("serve", "http = ['nonsense']");
    assert!(
        env.weir_fails(&["config", "check"])
            .contains("serve.http is wrong: 'nonsense' is no address to listen on: write ADDRESS:PORT")
    );
}

#[test]
fn mistakes_in_the_rules_are_named() {
    let env = Env::new();
    env.configure("access", "rules = [{ repositories = ['x'], tokens = ['nobody'] }]");
    assert!(
        env.weir_fails(&["config", "check"])
            .contains("names a token 'nobody', which is not among access.tokens")
    );
    let env = Env::new();
    env.configure("access", "rules = [{ repositories = ['x'], addresses = ['10.0.0.0/99'] }]");
    assert!(
        env.weir_fails(&["config", "check"]).contains("'10.0.0.0/99' is neither an address nor a network")
    );
    let env = Env::new();
    env.configure("serve", "map = [{ path = '/(', to = 'x' }]");
    assert!(env.weir_fails(&["config", "check"]).contains("serve.map is wrong: path '/('"));
}

#[test]
fn access_over_git_is_told_what_carries_a_token() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "hidden", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let token = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    env.configure("access", "rules = [{ repositories = ['hidden'], tokens = ['t'] }]");
    env.configure("access", &format!("tokens = [{{ name = 't', sha256 = '{token}' }}]"));
    let server = env.serve();
    let told = |name: &str| {
        let output = env.git_command(env.dir.path(), &["ls-remote", &server.url(name)]).output().unwrap();
        assert!(!output.status.success(), "{name}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(
        told("hidden").contains("one that needs a token, which only HTTP can carry"),
        "{}",
        told("hidden")
    );
    assert_eq!(told("hidden"), told("nothing"), "what is hidden is not told from what is not there");
}
