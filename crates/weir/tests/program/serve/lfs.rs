//! The files that Git LFS keeps beside a repository: mirrored into its archive, served to git-lfs and to
//! another weir.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_testing::program;

use crate::common::lfs::{Upstream, lfs_objects, noise, sha256};
use crate::common::{Env, Http};

/// Clones `url` to `to` with git-lfs, and returns the contents of its files.
fn pulled(env: &Env, url: &str, to: &Path) -> Vec<Vec<u8>> {
    env.git(env.dir.path(), &["clone", "-q", url, to.to_str().unwrap()]);
    env.git(to, &["lfs", "install", "--local"]);
    env.git(to, &["lfs", "pull"]);
    env.git(to, &["lfs", "fsck"]);
    (0..).map_while(|n| std::fs::read(to.join(format!("f{n}.bin"))).ok()).collect()
}

/// Makes a pool with a repository `r` that has one file of Git LFS, and starts its server.
fn a_file_served() -> (Env, Http) {
    let first = Env::new();
    first.configure("mirror", "lfs = true");
    let upstream = Upstream::new(&first, "up.git");
    let file = noise(1, 50_000);
    upstream.put(&file);
    upstream.commit(&first, &[&file]);
    first.weir(&["add", "--name", "r", upstream.0.to_str().unwrap()]);
    first.weir(&["mirror"]);
    let server = Http::serve(&first, &[]);
    (first, server)
}

#[test]
fn objects_come_along_and_are_served_to_git_lfs_and_to_another_weir() {
    if program("git-lfs").is_none() {
        return;
    }
    let env = Env::new();
    let upstream = Upstream::new(&env, "up.git");
    let files = [noise(1, 3 << 20), noise(2, 100), b"three".to_vec()];
    let older = noise(4, 5000);
    // The upstream also keeps a file that only history names.
    for data in files.iter().chain([&older]) {
        upstream.put(data);
    }
    upstream.commit(&env, &[&older]);
    upstream.commit(&env, &[&files[0], &files[1], &files[2]]);
    env.weir(&["add", "--name", "r", upstream.0.to_str().unwrap()]);
    env.weir(&["mirror"]);
    assert_eq!(lfs_objects(&env, "r"), (0, 0), "only where that is wanted");
    let of_head = (3, files.iter().map(|f| f.len() as u64).sum::<u64>());
    env.weir(&["set", "--lfs", "true", "r"]);
    let said = env.weir(&["mirror"]);
    assert!(said.contains("lfs        r  3 objects, 3.0 MiB"), "{said}");
    assert_eq!(lfs_objects(&env, "r"), of_head);
    env.weir(&["fsck"]);
    let server = Http::serve(&env, &[]);
    assert!(pulled(&env, &server.url("r"), &env.path("clone")) == files);

    // A second weir mirrors from the first, with LFS for all repositories.
    let second = Env::new();
    second.configure("mirror", "lfs = true");
    second.weir(&["add", "--name", "r", &server.url("r")]);
    second.weir(&["mirror"]);
    assert_eq!(lfs_objects(&second, "r"), of_head);
    // The next visit fetches what is new, and only that.
    let new = noise(5, 70_000);
    upstream.put(&new);
    upstream.commit(&env, &[&files[0], &new]);
    for env in [&env, &second] {
        let before = std::fs::metadata(env.pool().join("store/r.tar")).unwrap().len();
        env.weir(&["mirror", "--all"]);
        assert_eq!(lfs_objects(env, "r"), (4, of_head.1 + 70_000));
        let grown = std::fs::metadata(env.pool().join("store/r.tar")).unwrap().len() - before;
        assert!((70_000..120_000).contains(&grown), "{grown}");
    }
    // Compaction and exports keep the objects, and git-lfs finds them in an extracted export.
    second.weir(&["compact"]);
    assert_eq!(lfs_objects(&second, "r"), (4, of_head.1 + 70_000));
    second.weir(&["fsck"]);
    for (target, format) in [("out.git", "directory"), ("out.tar", "tar")] {
        second.weir(&["export", "--format", format, "r", second.path(target).to_str().unwrap()]);
    }
    std::fs::create_dir(second.path("extracted")).unwrap();
    let tar = weir_testing::command("tar")
        .args(["xf", "../out.tar"])
        .current_dir(second.path("extracted"))
        .status()
        .unwrap();
    assert!(tar.success());
    for folder in ["out.git", "extracted"] {
        let at = second.path(folder);
        assert_eq!(second.git(&at, &["lfs", "fsck", "--objects", "main"]), "Git LFS fsck OK", "{folder}");
        let oid = sha256(&new);
        assert!(
            std::fs::read(at.join("lfs/objects").join(&oid[..2]).join(&oid[2..4]).join(&oid)).unwrap() == new
        );
    }
    // If nothing is new, the visit commits nothing.
    let said = second.weir_json(&["show", "r"]);
    second.weir(&["mirror", "--all"]);
    assert_eq!(second.weir_json(&["show", "r"])["seq"], said["seq"]);
}

#[test]
fn what_the_upstream_lacks_or_gives_wrongly_is_left_out_and_had_later() {
    let env = Env::new();
    env.configure("mirror", "lfs = true");
    env.configure("limits", "object_bytes_max = 200_000");
    let upstream = Upstream::new(&env, "up.git");
    let files = [noise(1, 50_000), noise(2, 50_000), noise(3, 50_000), noise(4, 300_000)];
    upstream.put(&files[0]);
    // One object is too short, one is missing, and one is too large.
    upstream.put(&files[3]);
    std::fs::create_dir_all(upstream.place(&files[1]).parent().unwrap()).unwrap();
    std::fs::write(upstream.place(&files[1]), &files[1][1..]).unwrap();
    upstream.commit(&env, &[&files[0], &files[1], &files[2], &files[3]]);
    env.weir(&["add", "--name", "r", upstream.0.to_str().unwrap()]);
    let output = env.weir_command(&["mirror"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the repository itself is well: {said}");
    for (file, why) in
        files[1..].iter().zip(["sent wrong content for", "has no", "more than limits.object_bytes_max"])
    {
        assert!(said.lines().any(|line| line.contains(&sha256(file)) && line.contains(why)), "{why}: {said}");
    }
    assert_eq!(lfs_objects(&env, "r"), (1, 50_000));
    // The listing shows that three objects are missing.
    let state = || {
        let listed = env.weir_json(&["ls"]);
        (listed[0]["state"].as_str().unwrap().to_owned(), listed[0]["lfs_missing"].as_i64().unwrap())
    };
    assert_eq!(state(), ("incomplete".to_owned(), 3));
    assert!(env.weir(&["status"]).contains("1 with missing LFS objects"));
    env.weir(&["mirror", "--all"]);
    assert_eq!(state(), ("incomplete".to_owned(), 3), "a visit that looks for nothing changes nothing");
    env.weir(&["fsck"]);
    // A file that is too long, but begins with the right content.
    std::fs::write(upstream.place(&files[1]), [&files[1][..], b"x"].concat()).unwrap();
    upstream.put(&files[2]);
    upstream.commit(&env, &[&files[1], &files[2]]);
    env.weir(&["mirror", "--all"]);
    assert_eq!(lfs_objects(&env, "r"), (2, 100_000));
    upstream.put(&files[1]);
    upstream.commit(&env, &[&files[1]]);
    env.weir(&["mirror", "--all"]);
    assert_eq!(lfs_objects(&env, "r"), (3, 150_000));
    assert_eq!(state(), ("incomplete".to_owned(), 1), "the one that is too large");
    // If LFS is off, no object is missing.
    env.weir(&["set", "--lfs", "false", "r"]);
    env.weir(&["mirror", "--all"]);
    assert_eq!(state(), ("ok".to_owned(), 0));
}

/// Starts a proxy in front of `port` that answers requests for objects with 503 while `fails`; returns its
/// port.
fn proxy(port: u16, fails: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, fails) = (client.unwrap(), fails.clone());
            let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from_server, &mut to_client);
                let _ = to_client.shutdown(Shutdown::Both);
            });
            std::thread::spawn(move || {
                let mut piece = [0; 64 << 10];
                while let Ok(n @ 1..) = client.read(&mut piece) {
                    let is_object = piece.starts_with(b"GET ")
                        && String::from_utf8_lossy(&piece[..n]).contains("/info/lfs/objects/");
                    if is_object && fails.load(Ordering::Relaxed) {
                        let _ = client.write_all(
                            b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                        );
                        break;
                    }
                    if server.write_all(&piece[..n]).is_err() {
                        break;
                    }
                }
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    own
}

#[test]
fn a_server_that_fails_for_a_while_costs_no_object_and_not_the_repository() {
    let (_first, server) = a_file_served();
    let fails = Arc::new(AtomicBool::new(true));
    let port = proxy(server.0.port, fails.clone());

    let env = Env::new();
    env.configure("mirror", "lfs = true\nretry = '1s'");
    env.weir(&["add", "--name", "r", &format!("http://127.0.0.1:{port}/r")]);
    let said = env.weir_command(&["mirror"]).output().unwrap();
    assert!(
        said.status.success()
            && String::from_utf8_lossy(&said.stderr).contains("put off until the next visit"),
        "{said:?}"
    );
    let shown = env.weir_json(&["show", "r"]);
    assert_eq!((&shown["error_class"], &shown["lfs"]["objects"]), (&serde_json::Value::Null, &0.into()));
    let served = env.serve();
    assert!(
        env.git(env.dir.path(), &["ls-remote", &served.url("r")]).contains("refs/heads/main"),
        "what could be had is served"
    );
    fails.store(false, Ordering::Relaxed);
    // The refs have not changed, but the visit looks for the object.
    env.weir(&["mirror", "--all"]);
    assert_eq!(lfs_objects(&env, "r"), (1, 50_000));
    assert_eq!(env.weir_json(&["show", "r"])["error_class"], serde_json::Value::Null);
}

#[test]
fn damage_costs_only_the_object_that_is_damaged() {
    let env = Env::new();
    env.configure("mirror", "lfs = true");
    let upstream = Upstream::new(&env, "up.git");
    let files = [noise(1, 50_000), noise(2, 50_000)];
    for file in &files {
        upstream.put(file);
    }
    upstream.commit(&env, &[&files[0], &files[1]]);
    env.weir(&["add", "--name", "r", upstream.0.to_str().unwrap()]);
    env.weir(&["mirror"]);
    // Another commit follows: damage in the last one would look like a torn commit.
    upstream.commit(&env, &[&files[1]]);
    env.weir(&["mirror", "--all"]);
    // The upstream has neither object any more, and one is damaged here.
    std::fs::remove_dir_all(upstream.0.join("lfs")).unwrap();
    let archive = env.pool().join("store/r.tar");
    let mut bytes = std::fs::read(&archive).unwrap();
    let at = bytes.windows(64).position(|w| w == &files[0][1000..1064]).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&archive, bytes).unwrap();
    assert!(env.weir_fails(&["fsck"]).contains("r"));
    assert!(
        env.weir_fails(&["compact"]).contains("it is not what its name says"),
        "compaction takes over nothing that is damaged"
    );
    env.weir(&["fsck", "--repair"]);
    assert_eq!(lfs_objects(&env, "r"), (1, 50_000));
    assert!(archive.with_extension("tar.damaged").exists());
    env.weir(&["fsck"]);
    upstream.put(&files[0]);
    upstream.commit(&env, &[&files[0]]);
    env.weir(&["mirror", "--all"]);
    assert_eq!(lfs_objects(&env, "r"), (2, 100_000));
}

#[test]
fn the_batch_api_says_what_is_wrong() {
    let env = Env::new();
    env.configure("mirror", "lfs = true");
    let upstream = Upstream::new(&env, "up.git");
    let file = noise(1, 5000);
    upstream.put(&file);
    upstream.commit(&env, &[&file]);
    for name in ["r", "secret"] {
        env.weir(&["add", "--name", name, upstream.0.to_str().unwrap()]);
    }
    let config = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, text + "\n[[access.rules]]\nrepositories = ['secret']\npublic = false\n").unwrap();
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    let oid = sha256(&file);
    let ask = |name: &str, body: &str| {
        let head = format!(
            "POST /{name}.git/info/lfs/objects/batch HTTP/1.1\r\nHost: h.example:80\r\nX-Forwarded-Proto: \
            https\r\n"
        );
        server.ask(
            format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes(),
        )
    };
    let batch = |operation: &str, more: &str| {
        format!(
            r#"{{"operation":"{operation}"{more},"objects":
                [{{"oid":"{oid}","size":5000}},{{"oid":"{}","size":1}},{{"oid":"../x","size":1}}]}}"#,
            "0".repeat(64)
        )
    };
    let good = ask("r", &batch("download", ""));
    assert!(
        good.starts_with("HTTP/1.1 200") && good.contains("content-type: application/vnd.git-lfs+json"),
        "{good}"
    );
    assert!(
        good.contains(&format!(r#""href":"https://h.example:80/r.git/info/lfs/objects/{oid}""#)),
        "{good}"
    );
    assert!(good.contains(r#""code":404"#) && good.contains(r#""code":422"#), "{good}");
    for (body, status) in [
        (batch("upload", ""), 403),
        (batch("download", r#","hash_algo":"md5""#), 409),
        (batch("download", r#","transfers":["tus"]"#), 422),
        ("{".to_owned(), 422),
        (
            format!(
                r#"{{"operation":"download","objects":[{}{{"oid":"x"}}]}}"#,
                r#"{"oid":"x"},"#.repeat(10_000)
            ),
            413,
        ),
    ] {
        let answer = ask("r", &body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{}", &answer[..answer.len().min(300)]);
    }
    // For clients without access, neither the repository nor its objects exist.
    let path = |name: &str| format!("/{name}/info/lfs/objects/{oid}");
    assert!(ask("secret", &batch("download", "")).starts_with("HTTP/1.1 404"));
    assert!(server.get(&path("secret"), "").0.starts_with("HTTP/1.1 404"));
    assert!(
        server
            .ask(b"GET /r/info/lfs/objects/batch HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 405")
    );
    let (head, part) = server.get(&path("r"), "Range: bytes=10-19\r\n");
    assert!(head.starts_with("HTTP/1.1 206") && part == file[10..20], "{head}");
}

#[test]
fn a_fork_finds_those_of_what_it_builds_on_and_takes_them_along_when_it_goes() {
    if program("git-lfs").is_none() {
        return;
    }
    let env = Env::new();
    env.configure("mirror", "lfs = true");
    let (base, fork) = (Upstream::new(&env, "base.git"), Upstream::new(&env, "fork.git"));
    let files = [noise(1, 40_000), noise(2, 30_000)];
    base.put(&files[0]);
    base.commit(&env, &[&files[0]]);
    env.git(&fork.0, &["fetch", "-q", base.0.to_str().unwrap(), "main"]);
    fork.put(&files[1]);
    fork.commit(&env, &[&files[0], &files[1]]);
    env.weir(&["add", "--name", "base", base.0.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.weir(&["add", "--name", "fork", "--reference", "base", fork.0.to_str().unwrap()]);
    env.weir(&["mirror"]);
    assert_eq!(env.weir_json(&["show", "fork"])["base"], "base");
    assert_eq!(lfs_objects(&env, "fork"), (1, 30_000), "the other is its base's");
    {
        let server = Http::serve(&env, &[]);
        assert!(pulled(&env, &server.url("fork"), &env.path("clone")) == files);
    }
    env.weir(&["export", "--format", "directory", "fork", env.path("whole.git").to_str().unwrap()]);
    assert_eq!(env.git(&env.path("whole.git"), &["lfs", "fsck", "--objects", "main"]), "Git LFS fsck OK");
    env.weir(&["dissociate", "fork"]);
    assert_eq!(lfs_objects(&env, "fork"), (2, 70_000));
    env.weir(&["fsck"]);
    env.weir(&["rm", "--delete", "base"]);
    let server = Http::serve(&env, &[]);
    assert!(pulled(&env, &server.url("fork"), &env.path("again")) == files);
}

#[test]
fn only_the_fork_wants_them() {
    if program("git-lfs").is_none() {
        return;
    }
    let env = Env::new();
    let (base, fork) = (Upstream::new(&env, "base.git"), Upstream::new(&env, "fork.git"));
    let files = [noise(1, 40_000), noise(2, 30_000)];
    base.commit(&env, &[&files[0]]);
    env.git(&fork.0, &["fetch", "-q", base.0.to_str().unwrap(), "main"]);
    files.iter().for_each(|file| fork.put(file));
    fork.commit(&env, &[&files[0], &files[1]]);
    env.weir(&["add", "--name", "base", base.0.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.weir(&["add", "--name", "fork", "--reference", "base", fork.0.to_str().unwrap()]);
    env.weir(&["set", "--lfs", "true", "fork"]);
    env.weir(&["mirror"]);
    assert_eq!(
        (lfs_objects(&env, "base"), lfs_objects(&env, "fork")),
        ((0, 0), (2, 70_000)),
        "what its base's packs name, too"
    );
    let server = Http::serve(&env, &[]);
    assert!(pulled(&env, &server.url("fork"), &env.path("clone")) == files);
}

/// Starts a server that redirects every request to `to`, where the repository has another name; returns its
/// port.
fn moved(to: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = client.read(&mut piece) {
                request.extend_from_slice(&piece[..n]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head
                    .lines()
                    .find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
                    .unwrap_or(0);
                if body.len() >= length {
                    let path = head.split(' ').nth(1).unwrap().trim_start_matches("/old");
                    let path = path.trim_start_matches(".git");
                    let answer = format!(
                        "HTTP/1.1 301 Moved\r\nlocation: {to}{path}\r\ncontent-length: 0\r\nconnection: \
                        close\r\n\r\n"
                    );
                    let _ = client.write_all(answer.as_bytes());
                    break;
                }
            }
        }
    });
    own
}

#[test]
fn a_repository_that_was_renamed_is_asked_where_it_is_now() {
    let (_first, server) = a_file_served();
    let port = moved(server.url("r"));
    let env = Env::new();
    env.configure("mirror", "lfs = true");
    env.weir(&["add", "--name", "r", &format!("http://127.0.0.1:{port}/old")]);
    env.weir(&["mirror"]);
    assert_eq!(lfs_objects(&env, "r"), (1, 50_000));
}

#[test]
fn a_password_does_not_follow_to_another_host() {
    let env = Env::new();
    let upstream = Upstream::new(&env, "up.git");
    upstream.commit(&env, &[b"kept elsewhere"]);
    env.weir(&["add", "--name", "first", upstream.0.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    // The server that is said to have the objects asks for a password.
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = elsewhere.local_addr().unwrap().port();
    let heard = Arc::new(std::sync::Mutex::new(String::new()));
    let hears = heard.clone();
    std::thread::spawn(move || {
        for client in elsewhere.incoming() {
            let (mut client, mut piece) = (client.unwrap(), [0; 8192]);
            let n = client.read(&mut piece).unwrap_or(0);
            hears.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..n]));
            let _ = client.write_all(
                b"HTTP/1.1 401 No\r\nwww-authenticate: Basic realm=x\r\ncontent-length: \
                    0\r\nconnection: close\r\n\r\n",
            );
        }
    });
    // This server has the repository itself, but redirects LFS requests to the other one.
    let real = server.0.port;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut piece) = (client.unwrap(), [0; 8192]);
            let n = client.read(&mut piece).unwrap_or(0);
            if String::from_utf8_lossy(&piece[..n]).contains("/info/lfs/") {
                let to = format!("http://127.0.0.1:{port}/r.git/info/lfs/objects/batch");
                let _ = client.write_all(
                    format!(
                        "HTTP/1.1 307 There\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: \
                        close\r\n\r\n"
                    )
                    .as_bytes(),
                );
                continue;
            }
            let mut server = TcpStream::connect(("127.0.0.1", real)).unwrap();
            server.write_all(&piece[..n]).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    let second = Env::new();
    second.configure("mirror", "lfs = true");
    std::fs::write(second.path("netrc"), "machine localhost login me password secret\n").unwrap();
    second.configure(
        "transport",
        &format!("netrc = \"{}\"\ncredential_helper = false", second.path("netrc").display()),
    );
    second.weir(&["add", "--name", "r", &format!("http://localhost:{own}/first")]);
    second.weir(&["mirror"]);
    let heard = heard.lock().unwrap();
    assert!(
        heard.contains("POST /r.git/info/lfs/objects/batch")
            && !heard.to_ascii_lowercase().contains("authorization"),
        "{heard}"
    );
}

#[test]
fn what_only_removed_history_names_is_given_to_nobody() {
    let env = Env::new();
    env.configure("mirror", "lfs = true");
    let (upstream, fork) = (Upstream::new(&env, "up.git"), Upstream::new(&env, "fork.git"));
    let (secret, file, own) = (noise(1, 5000), noise(2, 6000), noise(3, 7000));
    upstream.put(&secret);
    upstream.put(&file);
    upstream.commit(&env, &[&secret, &file]);
    env.weir(&["add", "--name", "r", upstream.0.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    let is_given = |name: &str, data: &[u8]| {
        let oid = sha256(data);
        let body =
            format!(r#"{{"operation":"download","objects":[{{"oid":"{oid}","size":{}}}]}}"#, data.len());
        let head =
            format!("POST /{name}.git/info/lfs/objects/batch HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
        let batch = server.ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        let (head, got) = server.get(&format!("/{name}/info/lfs/objects/{oid}"), "");
        let is_given = head.starts_with("HTTP/1.1 200") && got == data;
        assert!(is_given || head.starts_with("HTTP/1.1 404"), "{head}");
        assert_eq!(
            (batch.contains("download\":"), batch.contains(r#""code":404"#)),
            (is_given, !is_given),
            "{batch}"
        );
        is_given
    };
    assert!(is_given("r", &secret) && is_given("r", &file));
    // The file is removed, with the pointer to it.
    upstream.commit(&env, &[&file]);
    env.weir(&["mirror", "--all"]);
    assert_eq!(lfs_objects(&env, "r"), (2, 11_000), "it is kept");
    assert!(!is_given("r", &secret) && is_given("r", &file));

    // A repository that builds on this one, and only names the object, does not serve it, either.
    env.git(&fork.0, &["fetch", "-q", upstream.0.to_str().unwrap(), "main"]);
    fork.put(&own);
    fork.commit(&env, &[&secret, &file, &own]);
    env.weir(&["add", "--name", "fork", "--reference", "r", fork.0.to_str().unwrap()]);
    env.weir(&["mirror"]);
    assert_eq!(env.weir_json(&["show", "fork"])["base"], "r");
    assert!(!is_given("fork", &secret) && is_given("fork", &file) && is_given("fork", &own));
    env.weir(&["compact"]);
    for name in ["r", "fork"] {
        assert!(!is_given(name, &secret) && is_given(name, &file), "{name}");
    }
    // If the fork's upstream has the object, the fork serves it.
    fork.put(&secret);
    fork.commit(&env, &[&secret, &own]);
    env.weir(&["mirror", "--all"]);
    assert!(is_given("fork", &secret) && !is_given("r", &secret));
    // If the upstream names the object again, it is served again.
    upstream.commit(&env, &[&secret]);
    env.weir(&["mirror", "--all"]);
    assert!(is_given("r", &secret) && !is_given("r", &file));
    env.weir(&["fsck"]);
}
