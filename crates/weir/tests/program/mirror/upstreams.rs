//! Upstreams that change: emptied, deepened, lying about their tags, naming objects that they do not have.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use crate::common::Env;

fn add_commit(env: &Env, upstream: &Path, branch: &str, name: &str) -> String {
    env.commit_file(upstream, &format!("refs/heads/{branch}"), name, name.as_bytes())
}

#[test]
fn an_upstream_that_was_emptied_keeps_its_last_refs_here() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "a", &daemon.url("up.git")]);
    env.weir(&["mirror"]);
    let (refs, objects) = env.picture(&up);
    let away = env.path("away.git");
    env.git(env.dir.path(), &["clone", "-q", "--mirror", up.to_str().unwrap(), "away.git"]);
    for name in env.git(&up, &["for-each-ref", "--format=%(refname)"]).lines() {
        env.git(&up, &["update-ref", "-d", name]);
    }
    let said = env.weir_fails(&["mirror", "--all"]);
    assert!(said.contains("no refs any more") && said.contains("--accept-empty"), "{said}");
    assert_eq!(env.weir_json(&["ls"])[0]["error_class"], "emptied");
    let server = env.serve();
    env.assert_same(&server, "a", &away, "what it had");
    assert_eq!(env.picture(&away), (refs, objects));
    // With --accept-empty, the empty state is mirrored, and it is in the log like any other.
    env.weir(&["mirror", "--accept-empty", "a"]);
    let listed = env.git(env.dir.path(), &["ls-remote", &server.url("a")]);
    assert_eq!(listed, "");
    let log = env.weir_json(&["log", "a"]);
    assert_eq!(log[0]["refs"], 0, "{log}");
    // The refs come back.
    env.git(&up, &["fetch", "-q", away.to_str().unwrap(), "+refs/*:refs/*"]);
    env.weir(&["mirror", "--all"]);
    env.assert_same(&server, "a", &up, "it is back");
    // An upstream that never had any refs is not such a case.
    env.init_bare("new.git");
    env.weir(&["add", "--name", "new", &daemon.url("new.git")]);
    env.weir(&["mirror", "new"]);
}

#[test]
fn a_history_that_is_deepened_there_is_deepened_here() {
    for protocol in [2, 1, 0] {
        let env = Env::new();
        let whole = env.init_bare("whole.git");
        for n in 0..6 {
            add_commit(&env, &whole, "main", &format!("f{n}"));
        }
        let url = format!("file://{}", whole.display());
        env.git(env.dir.path(), &["clone", "-q", "--bare", "--depth=2", &url, "up.git"]);
        let up = env.path("up.git");
        let daemon = env.git_daemon(&[]);
        env.configure("transport", &format!("protocol_version_max = {protocol}"));
        env.weir(&["add", "--name", "a", &daemon.url("up.git")]);
        env.weir(&["mirror"]);
        assert_eq!(env.weir_json(&["show", "a"])["shallow"], true);
        // More of the same depth, then a step deeper, then all of it.
        for (n, deepen) in [None, Some("--depth=4"), Some("--unshallow")].into_iter().enumerate() {
            add_commit(&env, &whole, "main", &format!("more{n}"));
            let mut args = vec!["fetch", "-q"];
            args.extend(deepen);
            args.extend([url.as_str(), "+refs/heads/*:refs/heads/*"]);
            env.git(&up, &args);
            env.weir(&["mirror", "--all"]);
            env.weir(&["fsck"]);
            let count = env.git(&up, &["rev-list", "--objects", "--all"]).lines().count();
            let server = env.serve();
            let copy = env.path(&format!("copy{n}"));
            env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.url("a"), copy.to_str().unwrap()]);
            assert_eq!(
                env.git(&copy, &["rev-list", "--objects", "--all"]).lines().count(),
                count,
                "v{protocol}, {deepen:?}"
            );
        }
        assert_eq!(env.weir_json(&["show", "a"])["shallow"], false, "v{protocol}");
        env.weir(&["compact"]);
        env.weir(&["fsck"]);
    }
}

/// Starts a proxy in front of port `to`, and returns its port. In what the server sends, the proxy replaces
/// `real` with `fake`, a text of the same length.
fn proxy(to: u16, real: &str, fake: &str) -> u16 {
    assert_eq!(real.len(), fake.len());
    let (real, fake) = (real.as_bytes().to_vec(), fake.as_bytes().to_vec());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut to_server);
                let _ = to_server.shutdown(std::net::Shutdown::Write);
            });
            let (mut server, mut client, real, fake) = (server, client, real.clone(), fake.clone());
            std::thread::spawn(move || {
                let mut part = vec![0; 1 << 16];
                while let Ok(n @ 1..) = server.read(&mut part) {
                    let data = &mut part[..n];
                    let places: Vec<usize> = data
                        .windows(real.len())
                        .enumerate()
                        .filter(|(_, w)| *w == real)
                        .map(|(at, _)| at)
                        .collect();
                    for at in places {
                        data[at..at + fake.len()].copy_from_slice(&fake);
                    }
                    if client.write_all(data).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    port
}

#[test]
fn what_tags_peel_to_is_found_out_here() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let commit = add_commit(&env, &up, "main", "f");
    add_commit(&env, &up, "other", "g");
    env.git(&up, &["tag", "-a", "-m", "one", "v1", &commit]);
    env.git(&up, &["tag", "-a", "-m", "of a tag", "v1-again", "v1"]);
    env.git(&up, &["update-ref", "refs/heads/main", "other"]);
    let daemon = env.git_daemon(&[]);
    // Only peeled lines name that commit.
    let port = proxy(daemon.port, &commit, &"dead".repeat(10));
    env.weir(&["add", "--name", "a", &format!("git://127.0.0.1:{port}/up.git")]);
    env.weir(&["mirror"]);
    let server = env.serve();
    let listed = env.git(env.dir.path(), &["ls-remote", "--tags", &server.url("a")]);
    let peeled: Vec<&str> = listed.lines().filter(|line| line.ends_with("^{}")).collect();
    assert_eq!(peeled.len(), 2, "{listed}");
    assert!(peeled.iter().all(|line| line.starts_with(&commit)), "{listed}");
    env.assert_same(&server, "a", &up, "all of it");
}

#[test]
fn an_id_is_not_enough_to_have_what_another_one_gave() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    add_commit(&env, &up, "main", "public");
    let secret = add_commit(&env, &up, "leak", "the-password");
    let evil = env.init_bare("evil.git");
    let own = add_commit(&env, &evil, "main", "own");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "base", &daemon.url("up.git")]);
    env.weir(&["mirror"]);
    env.git(&up, &["update-ref", "-d", "refs/heads/leak"]);
    env.weir(&["mirror", "--all"]);
    // The upstream claims that its branch is the commit that the base has removed.
    let port = proxy(daemon.port, &own, &secret);
    env.weir(&["add", "--reference", "base", "--name", "evil", &format!("git://127.0.0.1:{port}/evil.git")]);
    env.weir_fails(&["mirror", "evil"]);
    let server = env.serve();
    let copy =
        env.git_command(env.dir.path(), &["clone", "-q", &server.url("evil"), "copy"]).output().unwrap();
    assert!(!copy.status.success() || !env.path("copy/the-password").exists(), "the file was given away");
    // Or a new commit of the upstream names the tree of the removed one.
    let tree = env.git(&up, &["rev-parse", &format!("{secret}^{{tree}}")]);
    let content = format!("tree {tree}\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nx\n");
    let stolen = env.git_with(
        &evil,
        &["hash-object", "-t", "commit", "-w", "--literally", "--stdin"],
        content.as_bytes(),
    );
    // This server does not check whether it has what it sends.
    let port = sends_commit(&evil, &stolen);
    env.weir(&["add", "--reference", "base", "--name", "evil2", &format!("git://127.0.0.1:{port}/x")]);
    let said = env.weir_fails(&["mirror", "evil2"]);
    assert!(said.contains("not connected"), "{said}");
    // An honest fork that has all objects gets all, and shares what the base's refs reach.
    env.git(env.dir.path(), &["clone", "-q", "--mirror", up.to_str().unwrap(), "fork.git"]);
    let fork = env.path("fork.git");
    env.git(&fork, &["fetch", "-q", up.to_str().unwrap(), &format!("{secret}:refs/heads/kept")]);
    env.weir(&["add", "--reference", "base", "--name", "fork", &daemon.url("fork.git")]);
    env.weir(&["mirror", "fork"]);
    env.assert_same(&server, "fork", &fork, "an honest fork");
    for n in 0..3 {
        add_commit(&env, &fork, "kept", &format!("more{n}"));
        env.weir(&["mirror", "fork"]);
    }
    env.weir(&["compact", "fork"]);
    env.weir(&["fsck"]);
    env.assert_same(&server, "fork", &fork, "compacted");
}

/// Starts a git:// server that sends one commit only; returns its port.
fn sends_commit(repo: &Path, oid: &str) -> u16 {
    let pack = pack_of_commit(repo, oid);
    let oid = oid.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = answer_with(&mut stream, &oid, &pack);
        }
    });
    port
}

/// Returns a pack with that commit alone, stored without compression.
fn pack_of_commit(repo: &Path, oid: &str) -> Vec<u8> {
    use sha1::Digest;
    let content = weir_testing::command("git")
        .args(["cat-file", "commit", oid])
        .current_dir(repo)
        .output()
        .unwrap()
        .stdout;
    let mut pack = b"PACK\0\0\0\x02\0\0\0\x01".to_vec();
    let size = content.len();
    pack.push(0x80 | 1 << 4 | (size & 15) as u8);
    pack.push((size >> 4) as u8);
    assert!(size >> 11 == 0);
    // A zlib stream with one stored block.
    pack.extend([0x78, 0x01, 0x01]);
    pack.extend((size as u16).to_le_bytes());
    pack.extend((!(size as u16)).to_le_bytes());
    pack.extend(&content);
    let (mut a, mut b) = (1u32, 0u32);
    for byte in &content {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    pack.extend((b << 16 | a).to_be_bytes());
    let sum = sha1::Sha1::digest(&pack);
    pack.extend(sum);
    pack
}

/// Reads the lines of a request, or the first line of a conversation.
fn read_lines(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let (mut all, mut digits) = (Vec::new(), [0; 4]);
    loop {
        stream.read_exact(&mut digits)?;
        match usize::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap() {
            0 => return Ok(all),
            n if n < 4 => {}
            n => {
                let mut line = vec![0; n - 4];
                stream.read_exact(&mut line)?;
                all.extend(&line);
                if all.starts_with(b"git-upload-pack") {
                    return Ok(all);
                }
            }
        }
    }
}

/// Talks to a v2 client until it hangs up: lists `oid` as the only branch, and answers each fetch with
/// `pack`.
fn answer_with(stream: &mut TcpStream, oid: &str, pack: &[u8]) -> std::io::Result<()> {
    let pkt = |data: &[u8]| [format!("{:04x}", data.len() + 4).as_bytes(), data].concat();
    read_lines(stream)?;
    let lines = ["version 2\n", "agent=x\n", "ls-refs\n", "fetch\n", "object-format=sha1\n"];
    stream.write_all(
        &[lines.iter().flat_map(|l| pkt(l.as_bytes())).collect::<Vec<_>>(), b"0000".to_vec()].concat(),
    )?;
    loop {
        let asked = read_lines(stream)?;
        if asked.windows(7).any(|w| w == b"ls-refs") {
            stream.write_all(
                &[pkt(format!("{oid} refs/heads/main\n").as_bytes()), b"0000".to_vec()].concat(),
            )?;
        } else {
            let band = [&[1], pack].concat();
            stream.write_all(&[pkt(b"packfile\n"), pkt(&band), b"0000".to_vec()].concat())?;
        }
    }
}

#[test]
fn tags_of_a_fork_are_peeled_though_its_base_has_them() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.weir(&["add", "--name", "base", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.git(env.dir.path(), &["clone", "-q", "--mirror", up.to_str().unwrap(), "fork.git"]);
    env.weir(&["add", "--name", "fork", "--reference", "base", env.path("fork.git").to_str().unwrap()]);
    env.weir(&["mirror", "fork"]);
    assert_eq!(env.weir_json(&["show", "fork"])["base"], "base");
    let server = env.serve();
    env.assert_same(&server, "fork", &up, "a fork");
    let listed = |name: &str| env.git(env.dir.path(), &["ls-remote", &server.url(name)]);
    assert!(listed("base").contains("refs/tags/v1^{}"));
    assert_eq!(listed("fork"), listed("base"));
    env.weir(&["compact"]);
    assert_eq!(listed("fork"), listed("base"));
}

#[test]
fn a_state_from_before_its_upstream_was_shallow_is_whole() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let tree = env.git_with(&up, &["mktree"], b"");
    let mut tip = env.git(&up, &["commit-tree", "-m", "0", &tree]);
    for n in 1..4 {
        tip = env.git(&up, &["commit-tree", "-m", &n.to_string(), "-p", &tip, &tree]);
    }
    env.git(&up, &["update-ref", "refs/heads/main", &tip]);
    env.weir(&["add", "--name", "r", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    // A shallow clone of the same repository, cut off behind its last commit, with one commit more.
    std::fs::rename(&up, env.path("whole.git")).unwrap();
    env.git(
        env.dir.path(),
        &[
            "clone",
            "-q",
            "--bare",
            "--depth",
            "1",
            &format!("file://{}", env.path("whole.git").display()),
            "up.git",
        ],
    );
    let more = env.git(&up, &["commit-tree", "-m", "more", "-p", &tip, &tree]);
    env.git(&up, &["update-ref", "refs/heads/main", &more]);
    env.weir(&["mirror", "--all"]);
    let first = env.weir_json(&["log", "r"]).as_array().unwrap().last().unwrap()["seq"].clone();
    env.weir(&["restore", &format!("r@{first}"), "--name", "old"]);
    let server = env.serve();
    env.git(env.dir.path(), &["clone", "-q", "--bare", &server.url("old"), "old.git"]);
    assert_eq!(env.git(&env.path("old.git"), &["rev-list", "--count", "main"]), "4");
    env.weir(&["fsck"]);
}

#[test]
fn an_upstream_that_pruned_what_is_here_is_mirrored_on() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let tree = env.git_with(&up, &["mktree"], b"");
    let commit = |message: &str, parent: Option<&str>| {
        let parent: Vec<&str> = parent.into_iter().flat_map(|p| ["-p", p]).collect();
        env.git(&up, &[&["commit-tree", "-m", message, &tree], &parent[..]].concat())
    };
    let base = commit("base", None);
    let below = commit("below", Some(&base));
    let above = commit("above", Some(&below));
    env.git(&up, &["update-ref", "refs/heads/main", &base]);
    env.git(&up, &["update-ref", "refs/heads/x", &above]);
    env.weir(&["add", "--name", "u", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.git(&up, &["update-ref", "-d", "refs/heads/x"]);
    std::fs::remove_file(up.join(format!("objects/{}/{}", &below[..2], &below[2..]))).unwrap();
    let more = commit("more", Some(&base));
    env.git(&up, &["update-ref", "refs/heads/main", &more]);
    env.weir(&["mirror", "--all"]);
    let server = env.serve();
    assert!(env.git(env.dir.path(), &["ls-remote", &server.url("u"), "main"]).starts_with(&more));
    env.weir(&["fsck"]);
}

#[test]
fn a_host_that_says_when_to_come_again_is_left_alone_until_then() {
    let env = Env::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(
                b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7200\r\nContent-Length: \
                    0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    for n in 0..5 {
        env.weir(&["add", "--name", &format!("r{n}"), &format!("http://127.0.0.1:{port}/r{n}")]);
    }
    let said = env.weir_fails(&["mirror", "-j", "1"]);
    assert!(said.contains("try again in 7200 s") && said.contains("1 failed, 4 put off"), "{said}");
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    for r in env.weir_json(&["due"]).as_array().unwrap() {
        let wait = r["in_s"].as_i64().unwrap();
        assert!((6000..=9000).contains(&wait), "{r}");
    }
    let status = env.weir(&["status"]);
    assert!(status.contains("Retry-After"), "{status}");
}

#[test]
fn an_upstream_that_vanishes_costs_no_copy() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let picture = env.picture(&upstream);
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "u", &daemon.url("u.git")]);
    env.weir(&["mirror"]);
    std::fs::rename(&upstream, env.path("away.git")).unwrap();
    let said = env.weir_fails(&["mirror", "--all"]);
    assert!(said.contains("(gone)"), "{said}");
    drop(daemon);
    let said = env.weir_fails(&["mirror", "--all"]);
    assert!(said.contains("cannot connect") && said.contains("(network)"), "{said}");
    assert_eq!(env.weir_json(&["show", "u"])["state"], "stale");
    let server = env.serve();
    let copy = env.path("copy.git");
    env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.url("u"), copy.to_str().unwrap()]);
    assert_eq!(env.picture(&copy), picture);
}
