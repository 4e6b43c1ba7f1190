//! Repositories are mirrored when clients ask for them, and upstreams are visited before old copies are read.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{Env, Http, OPEN_SESAME, Server};
use crate::serve::api_client::{get, problem, send};

/// A pool that fetches `here/...` on demand, and the server of its upstreams.
fn pool_on_demand(env: &Env, more: &str) -> Server {
    let upstreams = env.git_daemon(&[]);
    let url = format!("git://127.0.0.1:{}/{{path}}", upstreams.port);
    rule(env, &url, more);
    upstreams
}

/// Has what clients ask for below `here/` fetched from `url`.
pub(super) fn rule(env: &Env, url: &str, more: &str) {
    let settings = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let rule = format!("[[serve.fetch_on_demand]]\nrepositories = ['here/*']\nurl = '{url}'\n{more}\n");
    std::fs::write(&settings, format!("{text}\n{rule}")).unwrap();
}

fn cloned(env: &Env, url: &str, to: &str) -> Output {
    env.git_command(env.dir.path(), &["clone", "-q", "--mirror", url, to]).output().unwrap()
}

fn assert_clones(env: &Env, url: &str, upstream: &Path) {
    let folder = tempfile::tempdir_in(env.dir.path()).unwrap();
    let copy = folder.path().join("copy.git");
    let output = cloned(env, url, copy.to_str().unwrap());
    assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(env.picture(&copy), env.picture(upstream), "{url}");
}

fn assert_refused(env: &Env, url: &str, why: &str) {
    let output = cloned(env, url, "refused.git");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(why), "{url}: {said}");
}

#[test]
fn a_clone_of_what_is_not_here_fetches_it_once() {
    let env = Env::new();
    let (a, b) = (env.odd_repository("a.git"), env.odd_repository("b.git"));
    let _upstreams = pool_on_demand(&env, "");
    let log = env.path("log");
    let server = Http::serve_mirroring(&env, &log);
    assert_clones(&env, &server.url("here/a.git"), &a);
    assert_clones(&env, &server.git_url("here/a"), &a);
    std::thread::scope(|scope| {
        for n in 0..20 {
            let url = if n % 2 == 0 { server.url("here/b") } else { server.git_url("here/b.git") };
            let (env, b) = (&env, &b);
            scope.spawn(move || assert_clones(env, &url, b));
        }
    });
    let listed = env.weir_json(&["ls", "--json"]);
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["here/a", "here/b"]);
    for name in ["here/a", "here/b"] {
        let visits = env.weir_json(&["visits", "--json", name]);
        assert_eq!(visits.as_array().unwrap().len(), 1, "{visits}");
    }
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches("cloned     here/b").count(), 1, "{said}");
}

#[test]
fn the_api_fetches_what_is_not_here() {
    let env = Env::new();
    let up = env.odd_repository("a.git");
    for name in ["b.git", "c.git"] {
        env.odd_repository(name);
    }
    let _upstreams = pool_on_demand(&env, "");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    let head = env.git(&up, &["rev-parse", "main"]);
    assert_eq!(get(&server, "/repositories/here%2Fa/commits/main")["oid"], head);
    assert_eq!(get(&server, "/repositories/here%2Fb")["state"], "ok");
    let query = "/query?sql=select+count(*)%3E0+from+revision&repositories=here%2Fc";
    assert_eq!(get(&server, query)["rows"], serde_json::json!([[1]]));
    assert_eq!(problem(&server, "/repositories/here%2Fnothing/refs").0, 404);
    // Only reading fetches.
    assert_eq!(problem(&server, "/repositories/elsewhere%2Fa").0, 404);
    assert_eq!(send(&server, "DELETE", "/repositories/here%2Fd", "", "").status, 403);
    let listed = env.weir_json(&["ls", "--json"]);
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["here/a", "here/b", "here/c"]);
}

#[test]
fn what_cannot_be_fetched_leaves_nothing_behind() {
    let env = Env::new();
    env.odd_repository("a.git");
    let upstreams = pool_on_demand(&env, "");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    for name in ["here/nosuch", "other/a", "here/a%20b", "here/a@1", "here"] {
        assert_refused(&env, &server.url(name), "not found");
    }
    assert_refused(&env, &server.git_url("here/nosuch"), "no such repository: here/nosuch");
    drop(upstreams);
    let answer = server.ask(
        b"GET /here/late/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("cannot be fetched from its upstream"),
        "{answer}"
    );
    assert_eq!(env.weir_json(&["ls", "--json"]), serde_json::json!([]));
}

#[test]
fn an_old_copy_is_read_after_a_visit_and_without_if_the_upstream_is_down() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    env.commit_file(&up, "refs/heads/main", "a", b"first");
    let upstreams = pool_on_demand(&env, "max_age = '0s'");
    let log = env.path("log");
    let server = Http::serve_mirroring(&env, &log);
    for n in 0..4_u8 {
        let newest = env.commit_file(&up, "refs/heads/main", &format!("f{n}"), &[n; 100]);
        let url = if n % 2 == 0 { server.url("here/up") } else { server.git_url("here/up") };
        let here = env.git(env.dir.path(), &["ls-remote", &url, "refs/heads/main"]);
        assert!(here.starts_with(newest.trim()), "{here} {newest}");
        assert_clones(&env, &url, &up);
    }
    drop(upstreams);
    let expected = env.picture(&up);
    env.commit_file(&up, "refs/heads/main", "late", b"nobody has it");
    for (n, url) in [server.url("here/up"), server.git_url("here/up")].into_iter().enumerate() {
        let copy = env.path(&format!("copy{n}.git"));
        // A job has no terminal, and git then wants no progress.
        let arguments = ["clone", "--mirror", &url, copy.to_str().unwrap()];
        let output = env.git_command(env.dir.path(), &arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("remote: weir: the upstream could not be visited; this is the copy"), "{said}");
        assert_eq!(env.picture(&copy), expected);
    }
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("serving an older copy: its upstream could not be visited"), "{said}");
}

#[test]
fn a_commit_that_is_wanted_and_not_here_makes_weir_look_upstream() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    env.commit_file(&up, "refs/heads/main", "a", b"first");
    let _upstreams = pool_on_demand(&env, "");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    let url = server.url("here/up");
    assert_clones(&env, &url, &up);
    let newest = env.commit_file(&up, "refs/heads/main", "b", b"second").trim().to_owned();
    let copy = env.init_bare("copy.git");
    let fetch = |url: &str, oid: &str| {
        env.git_command(&copy, &["-c", "protocol.version=2", "fetch", "-q", url, oid]).output().unwrap()
    };
    let newer = |name: &str| env.commit_file(&up, "refs/heads/main", name, b"newer").trim().to_owned();
    for (url, newest) in [(&url, newest), (&server.git_url("here/up"), newer("c"))] {
        // Not at once after a visit: anybody may name a commit.
        std::thread::sleep(std::time::Duration::from_secs(3));
        let output = fetch(url, &newest);
        assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(env.git(&copy, &["rev-parse", "FETCH_HEAD"]), newest);
        let absent = "1234567890123456789012345678901234567890";
        let said = String::from_utf8_lossy(&fetch(url, absent).stderr).into_owned();
        assert!(said.contains(&format!("not our ref {absent}")), "{said}");
    }
}

#[test]
fn only_those_who_may_ask_cause_a_fetch() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.configure("access", &format!("tokens = [{{ name = 'ci', sha256 = '{OPEN_SESAME}' }}]"));
    let _upstreams = pool_on_demand(&env, "tokens = ['ci']");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    assert_refused(&env, &server.url("here/up"), "could not read Username");
    assert_refused(&env, &server.git_url("here/up"), "needs a token");
    assert_eq!(env.weir_json(&["ls", "--json"]), serde_json::json!([]));
    let with_token = server.url("here/up").replace("http://", "http://x:open%20sesame@");
    assert_clones(&env, &with_token, &up);
    // It is here now, for all who may read.
    assert_clones(&env, &server.url("here/up"), &up);
}

#[test]
fn names_that_clients_invent_cost_others_nothing() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    env.commit_file(&up, "refs/heads/main", "a", b"first");
    let _upstreams = pool_on_demand(&env, "max_age = '0s'");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    assert_clones(&env, &server.url("here/up"), &up);
    let ask = |name: &str| {
        let head = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        server.ask(format!("GET /{name}/info/refs?service=git-upload-pack {head}").as_bytes())
    };
    let answers: Vec<String> = (0..70).map(|n| ask(&format!("here/invented{n}"))).collect();
    assert!(answers[0].starts_with("HTTP/1.1 404"), "{}", answers[0]);
    // A host is not asked for many names that it does not have.
    assert!(answers[69].starts_with("HTTP/1.1 503"), "{}", answers[69]);
    assert_eq!(env.weir_json(&["ls", "--json"]).as_array().unwrap().len(), 1);
    let newest = env.commit_file(&up, "refs/heads/main", "b", b"second");
    let here = env.git(env.dir.path(), &["ls-remote", &server.url("here/up"), "refs/heads/main"]);
    assert!(here.starts_with(newest.trim()), "{here} {newest}");
}

#[test]
fn an_upstream_tells_clients_nothing_and_the_log_no_password() {
    let env = Env::new();
    let port = weir_testing::free_port();
    let log = env.path("log");
    rule(&env, &format!("http://mirror:open-sesame@127.0.0.1:{port}/{{path}}"), "");
    let server = Http::serve_mirroring(&env, &log);
    let answer = server.ask(
        b"GET /here/a/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("cannot be fetched"), "{answer}");
    assert!(!answer.contains(&port.to_string()) && !answer.contains("127.0.0.1"), "{answer}");
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("here/a") && !said.contains("open-sesame"), "{said}");
}

#[test]
fn a_folder_of_git_is_no_name() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.git(env.dir.path(), &["clone", "-q", up.to_str().unwrap(), "tree"]);
    let _upstreams = pool_on_demand(&env, "");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    assert_refused(&env, &server.url("here/tree/.git"), "not found");
    assert_eq!(env.weir_json(&["ls", "--json"]), serde_json::json!([]));
}

/// Writes a script of these `lines`.
pub(super) fn script(env: &Env, name: &str, lines: &str) -> PathBuf {
    let path = env.path(name);
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Has ssh upstreams be reached by a script that runs `first`, and then the command here.
pub(super) fn ssh_that(env: &Env, first: &str) {
    let ssh = script(env, "ssh", &format!("{first}\nfor last; do :; done\neval \"$last\""));
    env.configure("transport", &format!("ssh_command = '{}'", ssh.display()));
}

#[test]
fn who_asks_while_a_visit_is_under_way_waits_for_the_next() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    env.commit_file(&up, "refs/heads/main", "a", b"first");
    // The upstream lists its refs at once, and takes its time for the pack.
    let hook = script(&env, "hook", "sleep 3\nexec \"$@\"");
    ssh_that(
        &env,
        &format!(
            "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=uploadpack.packObjectsHook GIT_CONFIG_VALUE_0={}",
            hook.display()
        ),
    );
    let more = "max_age = '0s'";
    rule(&env, &format!("ssh://host{}/{{path}}.git", env.dir.path().display()), more);
    let server = Http::serve_mirroring(&env, &env.path("log"));
    let listed = || env.git(env.dir.path(), &["ls-remote", &server.url("here/up"), "refs/heads/main"]);
    listed();
    let visits = || env.weir_json(&["visits", "--json", "here/up"]);
    weir_testing::wait_until(|| visits().to_string(), || visits().as_array().unwrap().len() == 1);
    env.commit_file(&up, "refs/heads/main", "b", b"second");
    std::thread::scope(|scope| {
        scope.spawn(listed);
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let newest = env.commit_file(&up, "refs/heads/main", "c", b"third");
        let here = listed();
        assert!(here.starts_with(newest.trim()), "{here} {newest}");
    });
}

#[test]
fn a_client_waits_no_longer_than_it_may() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let url = format!("ssh://host{}/{{path}}.git", env.dir.path().display());
    rule(&env, &url, "max_age = '0s'\ntimeout = '2s'");
    ssh_that(&env, "[ ! -e \"$SLOW\" ] || sleep 20");
    let log = std::fs::File::create(env.path("log")).unwrap();
    let (git, http) = (weir_testing::free_port(), weir_testing::free_port());
    let addresses = [git, http].map(|port| format!("127.0.0.1:{port}"));
    let mut command = env.weir_command(&["serve", "--git", &addresses[0], "--http", &addresses[1]]);
    command.env("SLOW", env.path("slow")).stderr(log).stdout(std::process::Stdio::null());
    let server = Http(Server { child: command.spawn().unwrap(), port: http }, git);
    weir_testing::wait_for_port(http);
    assert_clones(&env, &server.url("here/up"), &up);
    std::fs::write(env.path("slow"), "").unwrap();
    // The copy is served, and the client of a repository without one is refused.
    let began = std::time::Instant::now();
    assert_clones(&env, &server.url("here/up"), &up);
    assert_refused(&env, &server.git_url("here/other"), "it is being fetched from its upstream");
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn a_repository_that_cannot_be_mirrored_is_removed_though_its_client_has_left() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    env.commit_file(&up, "refs/heads/main", "a", b"first");
    // It is there, and its pack is not.
    let hook = script(&env, "hook", "sleep 3\nexit 1");
    let set = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=uploadpack.packObjectsHook GIT_CONFIG_VALUE_0=";
    ssh_that(&env, &format!("{set}{}", hook.display()));
    rule(&env, &format!("ssh://host{}/{{path}}.git", env.dir.path().display()), "timeout = '1s'");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    // Before version 2, a client waits until it is here.
    let refused = server.get("/here/up/info/refs?service=git-upload-pack", "").0;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert_eq!(env.weir_json(&["ls", "--json"]).as_array().unwrap().len(), 1);
    let listed = || env.weir_json(&["ls", "--json"]);
    weir_testing::wait_until(|| format!("it is gone: {}", listed()), || listed() == serde_json::json!([]));
}

#[test]
fn a_client_waits_longer_than_it_may_be_idle() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    ssh_that(&env, "sleep 5");
    env.configure("serve", "idle_timeout = '2s'\ninit_timeout = '2s'");
    rule(&env, &format!("ssh://host{}/{{path}}.git", env.dir.path().display()), "");
    let server = Http::serve_mirroring(&env, &env.path("log"));
    std::thread::scope(|scope| {
        for url in [server.url("here/up"), server.git_url("here/up")] {
            let (env, up) = (&env, &up);
            scope.spawn(move || assert_clones(env, &url, up));
        }
    });
}
