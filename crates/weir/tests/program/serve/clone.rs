//! `weir clone`: ordinary repositories, from a weir and from archives; lost connections; servers that lie.

use crate::common::{Env, Http};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Makes a pool with a repository of two updates, which is served as one pack; returns its upstream.
fn pool(env: &Env) -> PathBuf {
    let upstream = env.init_bare("up.git");
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..400_000).map(|_| next()).collect();
    commit(env, &upstream, "first", &noise);
    env.weir(&["add", "--name", "it", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    commit(env, &upstream, "second", b"more\n");
    env.git(&upstream, &["tag", "-a", "-m", "one", "v1", "main~1"]);
    env.git(&upstream, &["branch", "side", "main~1"]);
    env.weir(&["mirror", "--all"]);
    upstream
}

fn commit(env: &Env, repo: &Path, name: &str, data: &[u8]) {
    let from =
        if env.git_command(repo, &["rev-parse", "-q", "--verify", "main"]).output().unwrap().status.success()
        {
            "from refs/heads/main^0\n"
        } else {
            ""
        };
    let head = format!(
        "commit refs/heads/main\ncommitter C <c@x> 1700000000 +0000\ndata 1\nx\n{from}M 644 inline \
        {name}\ndata {}\n",
        data.len()
    );
    env.git_with(repo, &["fast-import", "--quiet", "--force"], &[head.as_bytes(), data, b"\n\n"].concat());
}

/// Checks that the clone at `path` is what git would have made, and that git can go on from there.
fn check(env: &Env, path: &Path, upstream: &Path) {
    assert_eq!(env.git(path, &["status", "--porcelain"]), "");
    env.git(path, &["fsck", "--full", "--strict"]);
    assert_eq!(
        env.git(path, &["rev-parse", "HEAD", "origin/side", "v1"]),
        env.git(upstream, &["rev-parse", "main", "side", "v1"])
    );
    assert_eq!(
        env.git(path, &["rev-parse", "--abbrev-ref", "HEAD", "HEAD@{upstream}", "origin/HEAD"]),
        "main\norigin/main\norigin/main"
    );
    assert_eq!(std::fs::read(path.join("second")).unwrap(), b"more\n");
}

#[test]
fn a_clone_goes_on_as_gits_own() {
    let env = Env::new();
    let upstream = pool(&env);
    let server = Http::serve(&env, &[]);
    let path = env.path("copy");
    let said = env.weir(&["clone", &server.url("it.git"), path.to_str().unwrap()]);
    assert!(said.contains("7 objects"), "{said}");
    check(&env, &path, &upstream);
    commit(&env, &upstream, "third", b"3\n");
    env.weir(&["mirror", "--all"]);
    env.git(&path, &["pull", "-q"]);
    assert!(path.join("third").exists());
    // Bare; a branch, with another name for the remote; a tag; `--verify` checks every object.
    let bare = env.path("bare.git");
    env.weir(&["clone", "--bare", "--verify", &server.url("it"), bare.to_str().unwrap()]);
    assert_eq!(env.git(&bare, &["for-each-ref"]), env.git(&upstream, &["for-each-ref"]));
    let side = env.path("side");
    env.weir(&["clone", "-b", "side", "-o", "up", &server.url("it"), side.to_str().unwrap()]);
    assert_eq!(env.git(&side, &["rev-parse", "--abbrev-ref", "HEAD@{upstream}"]), "up/side");
    let tag = env.path("tag");
    env.weir(&["clone", "--branch", "v1", &server.url("it"), tag.to_str().unwrap()]);
    assert_eq!(env.git(&tag, &["rev-parse", "HEAD"]), env.git(&upstream, &["rev-parse", "v1^{commit}"]));
    // A folder that is not empty is left alone; a branch that does not exist is reported.
    assert!(env.weir_fails(&["clone", &server.url("it"), path.to_str().unwrap()]).contains("is not empty"));
    assert!(
        env.weir_fails(&["clone", "-b", "none", &server.url("it"), env.path("x").to_str().unwrap()])
            .contains("Remote branch none not found")
    );
    // If the server does not offer the whole clone, git makes it.
    let plain = env.git_daemon(&[]);
    let other = env.path("other");
    env.weir(&["clone", &plain.url("up.git"), other.to_str().unwrap()]);
    check_head(&env, &other, &upstream);
}

fn check_head(env: &Env, path: &Path, upstream: &Path) {
    assert_eq!(env.git(path, &["rev-parse", "HEAD"]), env.git(upstream, &["rev-parse", "main"]));
}

#[test]
fn clone_of_a_sha256_repository_is_checked_as_one() {
    let env = Env::new();
    let up = env.path("up.git");
    env.git(
        env.dir.path(),
        &["init", "-q", "--bare", "-b", "main", "--object-format=sha256", up.to_str().unwrap()],
    );
    env.commit_file(&up, "refs/heads/main", "a", b"a");
    env.mirror_new("it", &up);
    let server = Http::serve(&env, &[]);
    for args in [&["clone"][..], &["clone", "--bare", "--verify"]] {
        let path = env.path(&format!("copy{}", args.len()));
        env.weir(&[args, &[&server.url("it"), path.to_str().unwrap()]].concat());
        env.git(&path, &["fsck"]);
        check_head(&env, &path, &up);
        assert_eq!(env.git(&path, &["rev-parse", "--show-object-format"]), "sha256");
    }
}

#[test]
fn an_archive_is_cloned_in_place() {
    let env = Env::new();
    let upstream = pool(&env);
    let archive = env.weir_json(&["show", "it"])["archive"].as_str().unwrap().to_owned();
    let path = env.path("copy");
    env.weir(&["clone", &archive, path.to_str().unwrap()]);
    check(&env, &path, &upstream);
}

/// Starts a proxy in front of `port`; returns its port, and the number of connections. The first `cuts`
/// connections are cut off after some bytes of the answer, which `change` may change on the way.
fn unreliable(port: u16, cuts: usize, change: fn(usize, &mut [u8])) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap().port();
    let made = Arc::new(AtomicUsize::new(0));
    let counter = made.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let number = counter.fetch_add(1, Ordering::SeqCst);
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || {
                let (mut server, mut client) = (server, client);
                let (mut buffer, mut passed) = ([0; 4096], 0);
                while let Ok(n @ 1..) = server.read(&mut buffer) {
                    change(passed, &mut buffer[..n]);
                    if client.write_all(&buffer[..n]).is_err() {
                        break;
                    }
                    passed += n;
                    if number < cuts && passed > 100_000 {
                        break;
                    }
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    (here, made)
}

#[test]
fn what_breaks_off_goes_on() {
    let env = Env::new();
    let upstream = pool(&env);
    let server = Http::serve(&env, &[]);
    let (port, made) = unreliable(server.0.port, 3, |_, _| {});
    let path = env.path("copy");
    env.weir(&["clone", &format!("http://127.0.0.1:{port}/it"), path.to_str().unwrap()]);
    assert!(made.load(Ordering::SeqCst) >= 4, "nothing broke off");
    env.git(&path, &["remote", "set-url", "origin", &server.url("it")]);
    check(&env, &path, &upstream);
    // A clone also goes on from what an earlier command has left: the start of the pack, and its description.
    let (_, description) = server.get("/it/weir/clone", "");
    let text: serde_json::Value = serde_json::from_slice(&description).unwrap();
    let checksum = text["checksum"].as_str().unwrap();
    let (_, pack) = server.get(&format!("/it/weir/clone-{checksum}.pack"), "");
    let later = env.path("later");
    let packs = later.join(".git/objects/pack");
    std::fs::create_dir_all(&packs).unwrap();
    std::fs::write(later.join(".git/weir-clone.json"), &description).unwrap();
    std::fs::write(packs.join(format!("tmp_weir_{checksum}.pack")), &pack[..pack.len() - 1000]).unwrap();
    let (port, _) =
        unreliable(server.0.port, 0, |at, _| assert!(at < 50_000, "what is there is asked for again"));
    env.weir(&["clone", &format!("http://127.0.0.1:{port}/it"), later.to_str().unwrap()]);
    env.git(&later, &["remote", "set-url", "origin", &server.url("it")]);
    check(&env, &later, &upstream);
}

#[test]
fn changed_bytes_are_noticed() {
    let env = Env::new();
    pool(&env);
    let server = Http::serve(&env, &[]);
    // Somewhere in the pack.
    let (port, _) = unreliable(server.0.port, 0, |at, data| {
        if (200_000..210_000).contains(&at) {
            data[0] ^= 1;
        }
    });
    let path = env.path("copy");
    let said = env.weir_fails(&["clone", &format!("http://127.0.0.1:{port}/it"), path.to_str().unwrap()]);
    assert!(said.contains("wrong checksum"), "{said}");
    // Nothing of the failed attempt stays: the next one succeeds.
    env.weir(&["clone", &server.url("it"), path.to_str().unwrap()]);
    env.git(&path, &["fsck", "--full"]);
}

/// Starts a server that sends `files`, whatever else the request asks for; returns its port.
fn liar(files: Vec<(String, Vec<u8>)>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let path = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned();
            let answer = match files.iter().find(|(name, _)| path.ends_with(name)) {
                Some((name, data)) => {
                    let kind =
                        if name.ends_with("clone") { "application/json" } else { "application/octet-stream" };
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: \
                        close\r\n\r\n",
                        data.len()
                    );
                    [head.as_bytes(), data].concat()
                }
                None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
            };
            let _ = client.write_all(&answer);
        }
    });
    port
}

#[test]
fn a_server_is_not_believed() {
    let env = Env::new();
    let repo = env.init_bare("good.git");
    commit(&env, &repo, "file", b"good\n");
    let tip = env.git(&repo, &["rev-parse", "main"]);
    let good = env.git(&repo, &["rev-parse", "main:file"]);
    let evil = env.git_with(&repo, &["hash-object", "-w", "--stdin"], b"evil\n");
    let tree = env.git(&repo, &["rev-parse", "main^{tree}"]);
    // A pack with the evil file, and an index that gives it the id of the good one.
    let stem = env.path("evil");
    let checksum = env.git_with(
        &repo,
        &["pack-objects", "--quiet", stem.to_str().unwrap()],
        format!("{tip}\n{tree}\n{evil}\n").as_bytes(),
    );
    let pack = std::fs::read(env.path(&format!("evil-{checksum}.pack"))).unwrap();
    let index = std::fs::read(env.path(&format!("evil-{checksum}.idx"))).unwrap();
    let oid = |text: &str| weir_git::Oid::from_hex_any(text.as_bytes()).unwrap();
    let shown = env.git_with(&repo, &["show-index"], &index);
    let mut entries: Vec<weir_repo::IndexEntry> = shown
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let named = if words[1] == evil { &good } else { words[1] };
            let crc32 = u32::from_str_radix(words[2].trim_matches(['(', ')']), 16).unwrap();
            weir_repo::IndexEntry { oid: oid(named), offset: words[0].parse().unwrap(), crc32 }
        })
        .collect();
    entries.sort_by_key(|entry| entry.oid);
    let forged = weir_repo::write_index(weir_git::HashKind::Sha1, entries.iter().copied(), &oid(&checksum));
    let serve = |refs: serde_json::Value, index: &[u8]| {
        let description = serde_json::json!({ "version": 1, "object_format": "sha1",
            "head": "refs/heads/main", "head_oid": tip, "refs": refs,
            "checksum": checksum, "objects": 3, "pack_bytes": pack.len(), "index_bytes": index.len() });
        let files = [
            ("weir/clone", description.to_string().into_bytes()),
            (".idx", index.to_vec()),
            (".pack", pack.clone()),
        ];
        format!("http://127.0.0.1:{}/it", liar(files.map(|(name, data)| (name.to_owned(), data)).to_vec()))
    };
    let path = env.path("copy");
    let said = env.weir_fails(&[
        "clone",
        &serve(serde_json::json!([["refs/heads/main", tip]]), &forged),
        path.to_str().unwrap(),
    ]);
    assert!(said.contains(&format!("object {good}: its content has the id {evil}")), "{said}");
    assert!(!path.join("file").exists() && !path.join(".git").exists());
    // A ref that could show other content under a true id is refused, too.
    for name in ["refs/replace/x", "refs/notes/commits", "refs/remotes/origin/x", "HEAD"] {
        let said = env.weir_fails(&[
            "clone",
            &serve(serde_json::json!([[name, tip]]), &index),
            path.to_str().unwrap(),
        ]);
        assert!(said.contains(name), "{said}");
    }
    // A bare clone checks nothing out, so contents are checked only if --verify asks for it.
    let url = serve(serde_json::json!([["refs/heads/main", tip]]), &forged);
    assert!(
        env.weir_fails(&["clone", "--bare", "--verify", &url, path.to_str().unwrap()])
            .contains("its content has the id")
    );
}

#[test]
fn clone_of_a_name_takes_it_from_the_pool() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "team/tool", upstream.to_str().unwrap()]);
    assert!(env.weir_fails(&["clone", "team/tool"]).contains("'team/tool' has not been mirrored yet"));
    env.weir(&["mirror"]);
    env.weir(&["clone", "team/tool"]);
    let clone = env.path("tool");
    assert_eq!(env.git(&clone, &["status", "--porcelain", "-uno"]), "");
    // git goes on by itself.
    env.add_commit(&upstream, 1);
    env.weir(&["mirror", "--all"]);
    env.git(&clone, &["pull", "-q", "--ff-only"]);
    assert_eq!(env.git(&clone, &["rev-parse", "HEAD"]), env.git(&upstream, &["rev-parse", "main"]));
    let said = env.weir_fails(&["clone", "team/nothing"]);
    assert!(said.contains("there is nothing at 'team/nothing'; the pool at "), "{said}");
    assert!(said.contains(" has no repository of that name"), "{said}");
    // What lies in the folder comes first.
    env.git(env.dir.path(), &["init", "-q", "--bare", "team/tool"]);
    assert!(env.weir_command(&["clone", "team/tool", "empty"]).status().unwrap().success());
    assert!(!env.path("empty/.git/packed-refs").exists(), "an empty repository");
}

#[test]
fn clone_hands_options_of_git_to_git() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "r", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    let archive = env.weir_json(&["show", "r"])["archive"].as_str().unwrap().to_owned();
    let git = |at: &str, args: &[&str]| env.git(&env.path(at), args);
    for (n, source) in [server.url("r"), server.git_url("r"), archive, "r".to_owned()].iter().enumerate() {
        let to = |what: &str| format!("{what}-{n}");
        env.weir(&["-q", "clone", "--depth", "1", "--no-tags", source, &to("shallow")]);
        assert_eq!(git(&to("shallow"), &["rev-list", "--count", "HEAD"]), "1", "{source}");
        assert_eq!(git(&to("shallow"), &["tag"]), "", "{source}");
        env.weir(&["-q", "clone", "--filter=blob:none", "--single-branch", "-n", source, &to("partial")]);
        assert_eq!(git(&to("partial"), &["config", "remote.origin.promisor"]), "true", "{source}");
        let branches = git(&to("partial"), &["branch", "--remotes"]);
        assert!(branches.contains("origin/main") && !branches.contains("origin/side"), "{branches}");
        env.weir(&["-q", "clone", "--mirror", source, &to("mirror")]);
        assert_eq!(env.picture(&env.path(&to("mirror"))), env.picture(&upstream), "{source}");
        git(&to("mirror"), &["fetch", "-q"]);
    }
    let said = env.weir_fails(&["clone", "--nosuch", "r"]);
    assert!(
        said.contains("unexpected argument '--nosuch'") && said.contains("'weir help clone' lists"),
        "{said}"
    );
    assert!(!said.contains("as a value"), "{said}");
}

#[test]
fn clone_works_on_its_own_repository_alone() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "r", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    env.git(env.dir.path(), &["init", "-q", "other"]);
    // As in a hook or an alias of git: the variables are of another repository.
    let listed = env.git(env.dir.path(), &["rev-parse", "--local-env-vars"]);
    for (n, options) in [&[][..], &["--depth", "1"]].iter().enumerate() {
        let to = format!("clone-{n}");
        let mut command = env.weir_command(&[&["clone", &server.url("r"), &to][..], options].concat());
        for name in listed.lines().filter(|name| !name.starts_with("GIT_CONFIG_")) {
            command.env(name, env.path("other/.git"));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(env.git(&env.path(&to), &["status", "--porcelain", "-uno"]), "", "{options:?}");
    }
    assert_eq!(env.git(&env.path("other"), &["status", "--porcelain"]), "");
}

#[test]
fn clone_follows_the_configuration_of_git() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "r", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let (certificate, key) = env.certificate();
    let port = weir_testing::free_port();
    let address = format!("127.0.0.1:{port}");
    let (file, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let options = ["--https", &address, "--tls-certificate", file, "--tls-key", key];
    let plain = Http::serve(&env, &[]);
    let _tls = Http::serve(&env, &options);
    weir_testing::wait_for_port(port);
    let https = format!("https://{address}/r");
    let configure = |key: &str, value: &str| env.git(env.dir.path(), &["config", "--global", key, value]);
    // A certificate that git trusts is trusted here, too, without git's help.
    configure(&format!("http.{https}.sslCAInfo"), certificate.to_str().unwrap());
    assert!(env.weir(&["clone", &https, "tls"]).starts_with("cloned "));
    // Another address, and a remote of another name.
    configure(&format!("url.{}.insteadOf", plain.url("")), "https://corp.invalid/");
    configure("clone.defaultRemoteName", "up");
    let output = env.weir_command(&["clone", "https://corp.invalid/r", "moved"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("'url."), "{said}");
    assert_eq!(env.git(&env.path("moved"), &["remote"]), "up");
    assert_eq!(
        env.git(&env.path("moved"), &["rev-parse", "HEAD"]),
        env.git(&upstream, &["rev-parse", "HEAD"])
    );
}

#[test]
fn clone_that_fails_leaves_nothing() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "r", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    for (n, source) in ["r".to_owned(), server.url("r")].iter().enumerate() {
        let to = format!("clone-{n}");
        let said = env.weir_fails(&["clone", "-b", "nosuch", source, &to]);
        assert!(said.contains("nosuch") && !env.path(&to).join(".git").exists(), "{said}");
        env.weir(&["clone", source, &to]);
    }
    // A folder that is no repository does not stand for one.
    std::fs::create_dir(env.path("r")).unwrap();
    env.weir(&["clone", "r", "by-name"]);
}

#[test]
fn clone_writes_the_files_that_git_would() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let file =
        |mode: &str, path: &str, data: &str| format!("M {mode} inline {path}\ndata {}\n{data}\n", data.len());
    let attributes =
        |more: &str| file("100644", ".gitattributes", &format!("*.bat eol=crlf\n*.id ident\n{more}"));
    let stream = |branch: &str, more: &str| {
        let head = format!("commit refs/heads/{branch}\ncommitter C <c@x> 1700000000 +0000\ndata 0\n");
        let files = [
            attributes(more),
            file("100644", "a.bat", "one\ntwo\n"),
            file("100644", "a.id", "$Id$\n"),
            file("100644", "a.up", "one\ntwo\n"),
            file("100755", "sub/run", "#!/bin/sh\n"),
            file("120000", "sub/link", "run"),
        ];
        head + &files.concat() + "\n"
    };
    let both = stream("main", "") + &stream("filtered", "*.up filter=up\n");
    env.git_with(&up, &["fast-import", "--quiet"], both.as_bytes());
    env.git(&up, &["tag", "-a", "-m", "one", "v1", "main"]);
    env.mirror_new("it", &up);
    let archive = env.pool().join("store/it.tar");
    let config = env.path("config");
    for (n, (settings, args)) in [
        ("", &[][..]),
        ("", &["-b", "v1"]),
        ("", &["-b", "filtered"]),
        ("[filter \"up\"]\n\tsmudge = tr a-z A-Z\n\trequired = true\n", &["-b", "filtered"]),
        ("[core]\n\tautocrlf = true\n", &[]),
        ("[core]\n\tautocrlf = input\n", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(&config, settings).unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|whose| env.path(&format!("{whose}{n}")));
        let clone = |mut command: std::process::Command, from: &Path, to: &Path| {
            command.env("GIT_CONFIG_GLOBAL", &config).args(args).arg(from).arg(to);
            let done = command.output().unwrap();
            assert!(done.status.success(), "{settings}{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        };
        clone(env.weir_command(&["clone", "-q"]), &archive, &ours);
        clone(env.git_command(env.dir.path(), &["clone", "-q"]), &up, &theirs);
        for name in ["a.bat", "a.id", "a.up", "sub/run", "sub/link"] {
            let [ours, theirs] = [&ours, &theirs].map(|top| std::fs::read(top.join(name)).unwrap());
            assert_eq!(ours, theirs, "{settings}{args:?}: {name}");
        }
        for args in [&["ls-files", "-s"][..], &["rev-parse", "HEAD"], &["diff", "HEAD", "--stat"]] {
            assert_eq!(env.git(&ours, args), env.git(&theirs, args), "{settings}{args:?}");
        }
    }
}
