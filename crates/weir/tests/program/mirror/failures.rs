//! Upstreams that fail, lie and attack; processes that are killed. Nothing committed is lost, nothing
//! half-written served.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Env, Rng, free_port, wait_for_port};
use sha1::Digest;

/// How a hostile upstream answers a fetch.
type Answer = fn(&mut TcpStream);

fn pkt(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

fn read_request(stream: &mut TcpStream) {
    // To the flush that ends it.
    let mut digits = [0; 4];
    loop {
        stream.read_exact(&mut digits).unwrap();
        match usize::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap() {
            0 => return,
            n if n < 4 => {}
            n => drop(stream.read_exact(&mut vec![0; n - 4])),
        }
    }
}

/// A v2 server with one ref that answers a fetch as told.
fn hostile(answer: Answer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut first = [0; 4];
                stream.read_exact(&mut first)?;
                let n = usize::from_str_radix(std::str::from_utf8(&first).unwrap(), 16).unwrap();
                stream.read_exact(&mut vec![0; n - 4])?;
                let capabilities =
                    ["version 2\n", "agent=x\n", "ls-refs\n", "fetch\n", "object-format=sha1\n"]
                        .map(pkt)
                        .concat();
                stream.write_all(format!("{capabilities}0000").as_bytes())?;
                read_request(&mut stream);
                let line = pkt(&format!("{} refs/heads/main\n", "1234567890".repeat(4)));
                stream.write_all(format!("{line}0000").as_bytes())?;
                read_request(&mut stream);
                answer(&mut stream);
                std::io::Result::Ok(())
            });
        }
    });
    port
}

fn send_pack(stream: &mut TcpStream, pack: &[u8]) {
    let _ = stream.write_all(pkt("packfile\n").as_bytes());
    for part in pack.chunks(60_000) {
        let _ = stream.write_all(format!("{:04x}\u{1}", part.len() + 5).as_bytes());
        let _ = stream.write_all(part);
    }
    let _ = stream.write_all(b"0000");
}

fn sealed(mut pack: Vec<u8>) -> Vec<u8> {
    let sum = sha1::Sha1::digest(&pack);
    pack.extend_from_slice(&sum);
    pack
}

fn header(count: u32) -> Vec<u8> {
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    pack.extend_from_slice(&count.to_be_bytes());
    pack
}

fn entry_head(kind: u8, mut size: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut byte = (kind << 4) | (size & 15) as u8;
    size >>= 4;
    while size > 0 {
        out.push(byte | 0x80);
        byte = (size & 0x7f) as u8;
        size >>= 7;
    }
    out.push(byte);
    out
}

fn deflated(data: &[u8]) -> Vec<u8> {
    sirocco::compress(sirocco::Format::Zlib, sirocco::deflate::Level::DEFAULT, data)
}

fn object(kind: u8, data: &[u8]) -> Vec<u8> {
    [entry_head(kind, data.len() as u64), deflated(data)].concat()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn hostile_packs_are_refused_with_nothing_changed() {
    let env = Env::new();
    let config = "[transport]\nidle_timeout = \"2s\"\n[limits]\nobject_bytes_max = \"1 \
        MiB\"\ninflated_bytes_max = \"8 MiB\"\nobjects_max = 100000\npack_bytes_max = \"4 MiB\"\n";
    std::fs::write(env.pool().join("weir.toml"), config).unwrap();
    let cases: &[(&str, Answer, &str)] = &[
        ("hangs", |_| std::thread::sleep(Duration::from_secs(30)), "sent nothing for 2 s"),
        ("hangs up", |_| {}, "hung up"),
        ("garbage", |s| drop(s.write_all(b"zzzz garbage")), "bad line length"),
        ("error", |s| drop(s.write_all(pkt("ERR no such thing today").as_bytes())), "no such thing today"),
        ("cut", |s| drop(s.write_all(format!("{}0050\u{1}PACK", pkt("packfile\n")).as_bytes())), "hung up"),
        (
            "band 3",
            |s| drop(s.write_all(format!("{}{}", pkt("packfile\n"), pkt("\u{3}out of memory")).as_bytes())),
            "out of memory",
        ),
        ("empty pack", |s| send_pack(s, b""), "it is empty"),
        ("not a pack", |s| send_pack(s, b"GARBAGEGARBAGEGARBAGE"), "does not start as"),
        (
            "lies about count",
            |s| send_pack(s, &sealed([header(2), object(3, b"x")].concat())),
            "the pack sent is invalid",
        ),
        (
            "says fewer",
            |s| send_pack(s, &sealed([header(1), object(3, b"x"), object(3, b"y")].concat())),
            "checksum is wrong",
        ),
        ("too many objects", |s| send_pack(s, &header(u32::MAX)), "over a limit"),
        (
            "bad checksum",
            |s| send_pack(s, &[header(1), object(3, b"x"), vec![0; 20]].concat()),
            "checksum is wrong",
        ),
        (
            "trailing bytes",
            |s| send_pack(s, &[sealed([header(1), object(3, b"x")].concat()), b"more".to_vec()].concat()),
            "bytes follow its end",
        ),
        (
            "wrong size",
            |s| send_pack(s, &sealed([header(1), entry_head(3, 5), deflated(b"x")].concat())),
            "not of the size it says",
        ),
        (
            "type 5",
            |s| send_pack(s, &sealed([header(1), vec![0x51, 0]].concat())),
            "the pack sent is invalid",
        ),
        (
            "large object",
            |s| send_pack(s, &sealed([header(1), object(3, &vec![0; 2 << 20])].concat())),
            "over a limit",
        ),
        (
            "inflates too much",
            |s| send_pack(s, &sealed([header(12), object(3, &vec![0; 1 << 20]).repeat(12)].concat())),
            "over a limit",
        ),
        (
            "too many bytes",
            |s| send_pack(s, &[header(1000), vec![0x30; 5 << 20]].concat()),
            "the pack sent is",
        ),
        (
            "ofs-delta without a base",
            |s| {
                send_pack(
                    s,
                    &sealed([header(1), entry_head(6, 4), vec![5], deflated(b"\x01\x01\x01a")].concat()),
                )
            },
            "has no base",
        ),
        (
            "delta on itself",
            |s| {
                send_pack(
                    s,
                    &sealed([header(1), entry_head(6, 4), vec![0], deflated(b"\x01\x01\x01a")].concat()),
                )
            },
            "has no base",
        ),
        (
            "ref-delta without a base",
            |s| {
                send_pack(
                    s,
                    &sealed([header(1), entry_head(7, 4), vec![9; 20], deflated(b"\x01\x01\x01a")].concat()),
                )
            },
            "neither in the pack nor here",
        ),
        (
            "ref-deltas in a circle",
            |s| {
                let delta =
                    |base: u8| [entry_head(7, 4), vec![base; 20], deflated(b"\x01\x01\x01a")].concat();
                send_pack(s, &sealed([header(2), delta(1), delta(2)].concat()));
            },
            "neither in the pack nor here",
        ),
        (
            "delta bomb",
            |s| {
                // A delta of some bytes that says it makes 2 GiB by copying its base over and over.
                let base = vec![b'x'; 60_000];
                let mut delta = vec![0xe0, 0xd4, 0x03, 0x80, 0x80, 0x80, 0x80, 0x08];
                delta.extend([0xb0, 0x60, 0xea].repeat(40_000));
                let first = object(3, &base);
                let distance = first.len();
                let mut head = entry_head(6, delta.len() as u64);
                assert!(distance < 128);
                head.push(distance as u8);
                send_pack(s, &sealed([header(2), first, head, deflated(&delta)].concat()));
            },
            "does not fit its base, or makes too large an object",
        ),
        (
            "not connected",
            |s| {
                let commit =
                    format!("tree {}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx", "ab".repeat(20));
                send_pack(s, &sealed([header(1), object(1, commit.as_bytes())].concat()));
            },
            "abababababababababababababababababababab",
        ),
        (
            "not what was asked for",
            |s| send_pack(s, &sealed([header(1), object(3, b"x")].concat())),
            "1234567890",
        ),
        (
            "malformed tree",
            |s| send_pack(s, &sealed([header(1), object(2, b"100644 a\0short")].concat())),
            "malformed tree",
        ),
        (
            "malformed commit",
            |s| send_pack(s, &sealed([header(1), object(1, b"hello")].concat())),
            "malformed commit",
        ),
    ];
    std::thread::scope(|scope| {
        for (n, (name, answer, expected)) in cases.iter().enumerate() {
            let env = &env;
            let port = hostile(*answer);
            let repo = format!("h{n}");
            env.weir(&["add", "--name", &repo, &format!("git://127.0.0.1:{port}/x")]);
            scope.spawn(move || {
                let said = env.weir_fails(&["mirror", &repo]);
                assert!(said.contains(expected), "{name}: {said}");
                assert!(!said.contains("panicked") && !said.contains("please report"), "{name}: {said}");
                assert!(
                    !env.pool().join(format!("store/{repo}.tar")).exists(),
                    "{name}: nothing is left behind"
                );
            });
        }
    });
    assert!(env.stored().is_empty(), "{:?}", env.stored());
}

#[test]
fn hostile_ref_names_are_left_out() {
    let env = Env::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tree_id = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        let mut first = [0; 4];
        s.read_exact(&mut first).unwrap();
        let n = usize::from_str_radix(std::str::from_utf8(&first).unwrap(), 16).unwrap();
        s.read_exact(&mut vec![0; n - 4]).unwrap();
        s.write_all(format!("{}{}{}0000", pkt("version 2\n"), pkt("ls-refs\n"), pkt("fetch\n")).as_bytes())
            .unwrap();
        read_request(&mut s);
        let names = [
            "refs/heads/../../../etc/passwd",
            "refs/heads/a b",
            "HEADS",
            "refs/heads/x.lock",
            "refs/heads/-ok",
            "refs/heads/\u{7}bell",
        ];
        let lines: String = names.iter().map(|n| pkt(&format!("{tree_id} {n}\n"))).collect();
        s.write_all(format!("{lines}0000").as_bytes()).unwrap();
        read_request(&mut s);
        send_pack(&mut s, &sealed([header(1), object(2, b"")].concat()));
        std::thread::sleep(Duration::from_millis(200));
    });
    env.weir(&["add", "--name", "h", &format!("git://127.0.0.1:{port}/x")]);
    let said = env.weir(&["mirror"]);
    assert!(said.contains("left out") && !said.contains('\u{7}'), "{said}");
    assert_eq!(env.weir_json(&["show", "h"])["refs"], 2, "{said}");
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

#[test]
fn force_push_and_deletion_lose_nothing() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let before = env.picture(&upstream);
    let lost = env.git(&upstream, &["rev-parse", "main"]);
    env.git(&upstream, &["update-ref", "refs/heads/main", "main~5"]);
    for branch in ["side", "odd-mode"] {
        env.git(&upstream, &["update-ref", "-d", &format!("refs/heads/{branch}")]);
    }
    env.git(&upstream, &["tag", "-d", "v1", "nested"]);
    env.weir(&["mirror", "--all"]);
    let server = env.serve();
    env.assert_same(&server, "u", &upstream, "after the force-push");
    // What was removed is not given out, by id either.
    let elsewhere = env.init_bare("elsewhere.git");
    let fetch = env.git_command(&elsewhere, &["fetch", "-q", &server.url("u"), &lost]).output().unwrap();
    let said = String::from_utf8_lossy(&fetch.stderr);
    assert!(!fetch.status.success() && said.contains("not our ref"), "{said}");
    for round in ["as appended", "after compaction"] {
        let name = format!("old-{}", round.len());
        let log = env.weir_json(&["log", "u"]);
        // The newest state with all refs there were: the one before they went away.
        let count = before.0.lines().count();
        let seq =
            log.as_array().unwrap().iter().find(|s| s["refs"] == count).unwrap()["seq"].as_u64().unwrap();
        env.weir(&["restore", &format!("u@{seq}"), "--name", &name]);
        let copy = env.path(&format!("{name}.git"));
        env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.url(&name), copy.to_str().unwrap()]);
        assert_eq!(env.picture(&copy), before, "{round}");
        env.weir(&["compact", "u"]);
        env.weir(&["fsck"]);
    }
}

#[test]
fn whole_clones_are_never_more_or_less_than_the_refs_reach() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let tree = env.git(&upstream, &["rev-parse", "main^{tree}"]);
    let commit = |parent: &str, message: &str| {
        env.git(&upstream, &["commit-tree", "-m", message, "-p", parent, &tree])
    };
    let feature = commit("main", "feature");
    env.git(&upstream, &["update-ref", "refs/heads/feature", &feature]);
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let with_feature = env.picture(&upstream);
    let server = env.serve();
    // The branch goes away in the same visit in which a pull request on it comes.
    let pull = commit(&feature, "pull");
    env.git(&upstream, &["update-ref", "-d", "refs/heads/feature"]);
    env.git(&upstream, &["update-ref", "refs/pull/9/head", &pull]);
    env.weir(&["mirror", "--all"]);
    env.assert_same(&server, "u", &upstream, "all refs");
    let plain = env.path("plain.git");
    env.git(env.dir.path(), &["clone", "-q", "--bare", &server.url("u"), plain.to_str().unwrap()]);
    let has = |repo: &Path, oid: &str| {
        env.git_command(repo, &["cat-file", "-e", oid]).output().unwrap().status.success()
    };
    assert!(!has(&plain, &feature), "an ordinary clone holds nothing of a deleted branch");
    // Now it is nowhere; compaction moves it to what is kept for history, and then it is restored.
    env.git(&upstream, &["update-ref", "-d", "refs/pull/9/head"]);
    env.weir(&["mirror", "--all"]);
    env.weir(&["compact"]);
    env.assert_same(&server, "u", &upstream, "compacted");
    let log = env.weir_json(&["log", "u"]);
    let count = with_feature.0.lines().count();
    let is_before = |s: &&serde_json::Value| {
        s["refs"] == count && !s["changes"].to_string().contains("- refs/heads/feature")
    };
    let found = log.as_array().unwrap().iter().find(is_before);
    let seq = found.unwrap_or_else(|| panic!("{log}"))["seq"].as_u64().unwrap();
    env.weir(&["restore", &format!("u@{seq}")]);
    let restored = env.path("restored.git");
    env.git(env.dir.path(), &["clone", "-q", "--mirror", &server.url("u"), restored.to_str().unwrap()]);
    env.git(&restored, &["fsck", "--full", "--strict"]);
    assert_eq!(env.picture(&restored), with_feature);
    env.weir(&["mirror", "u"]);
    env.assert_same(&server, "u", &upstream, "mirrored again when asked for by name");
}

#[test]
fn a_compaction_that_fails_changes_nothing() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.git(&upstream, &["update-ref", "-d", "refs/heads/odd-mode"]);
    env.weir(&["mirror", "--all"]);
    let archive = env.pool().join("store/u.tar");
    let before = std::fs::read(&archive).unwrap();
    let states = env.weir_json(&["log", "u"]);
    let mut rng = Rng(3);
    for _ in 0..40 {
        let mut child = env
            .weir_command(&["compact", "--quiet"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(rng.below(30_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        if std::fs::read(&archive).unwrap() != before {
            // It came to its end: then all of it is there, older states too.
            assert_eq!(env.weir_json(&["log", "u"]), states);
            env.weir(&["fsck", "--quiet"]);
            std::fs::write(&archive, &before).unwrap();
        }
    }
}

#[test]
fn many_updates_compact_an_archive_by_themselves() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let config = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("#packs_max = 50"), "the template names the key");
    std::fs::write(&config, text.replace("#packs_max = 50", "packs_max = 4")).unwrap();
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    let server = env.serve();
    let mut packs = Vec::new();
    for step in 0..12 {
        if step == 5 {
            // What is forced away goes to a body of its own, which must not spoil the others.
            env.git(&upstream, &["update-ref", "-d", "refs/heads/odd-mode"]);
        }
        add_commit(&env, &upstream, step);
        env.weir(&["mirror", "--all"]);
        packs.push(env.weir_json(&["show", "u"])["packs"].as_array().unwrap().len());
        env.assert_same(&server, "u", &upstream, &format!("update {step}"));
    }
    assert!(
        packs.iter().max() <= Some(&4) && packs.windows(2).filter(|w| w[1] < w[0]).count() >= 2,
        "{packs:?}"
    );
    let show = env.weir_json(&["show", "u"]);
    assert_eq!(show["whole_clone"], serde_json::json!({ "heads_and_tags": true, "all": true }), "{show}");
    // The history of refs went along: one state an update at least.
    assert!(env.weir_json(&["log", "u"]).as_array().unwrap().len() >= 12);
    env.weir(&["fsck", "--quiet"]);
}

#[test]
fn killed_at_random_moments() {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11);
    println!("WEIR_SEED={seed}");
    let mut rng = Rng(seed);
    let env = Env::new();
    let mut upstreams = Vec::new();
    for i in 0..6 {
        let name = format!("r{i}.git");
        let upstream = env.odd_repository(&name);
        env.weir(&["add", "--name", &format!("r{i}"), upstream.to_str().unwrap()]);
        upstreams.push(upstream);
    }
    let kills = if cfg!(debug_assertions) { 60 } else { 200 };
    let mut step = 0;
    for round in 0..kills {
        if round % 4 == 3 {
            for upstream in &upstreams {
                step += 1;
                add_commit(&env, upstream, step);
            }
        }
        let started = Instant::now();
        let mut child = env
            .weir_command(&["mirror", "--all", "--quiet"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let after = Duration::from_micros(rng.below(60_000));
        std::thread::sleep(after.saturating_sub(started.elapsed()));
        child.kill().unwrap();
        child.wait().unwrap();
        // Whatever is there is whole.
        if round % 10 == 9 {
            env.weir(&["fsck", "--quiet"]);
        }
    }
    env.weir(&["mirror", "--all"]);
    let server = env.serve();
    for (i, upstream) in upstreams.iter().enumerate() {
        env.assert_same(&server, &format!("r{i}"), upstream, &format!("seed {seed}"));
    }
    env.weir(&["fsck"]);
    assert_eq!(env.stored().len(), 6, "one file a repository, nothing half-written: {:?}", env.stored());
}

fn add_commit(env: &Env, upstream: &Path, n: u64) {
    let stream = format!(
        "commit refs/heads/main\ncommitter C <c@x> {} +0000\ndata 1\nx\nfrom refs/heads/main^0\nM 644 inline \
        k{n}\ndata 1\nn\n",
        1_700_000_000 + n
    );
    env.git_with(upstream, &["fast-import", "--quiet"], stream.as_bytes());
}

#[test]
fn clients_that_misbehave_are_told_or_dropped() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    std::fs::write(env.pool().join("weir.toml"), "[serve]\ninit_timeout = \"1s\"\nidle_timeout = \"2s\"\n")
        .unwrap();
    let server = env.serve();
    let talk = |bytes: &[u8]| -> String {
        let mut s = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        s.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        s.write_all(bytes).unwrap();
        let _ = s.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = s.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let hello = pkt("git-upload-pack /u\0host=x\0\0version=2\0");
    assert!(talk(b"GET / HTTP/1.1\r\n\r\n").is_empty());
    assert!(talk(pkt("git-upload-pack /nope\0").as_bytes()).contains("no such repository"));
    assert!(talk(pkt("git-upload-pack /../../etc/passwd\0").as_bytes()).contains("no such repository"));
    assert!(talk(pkt("git-receive-pack /u\0").as_bytes()).contains("read-only mirror"));
    assert!(talk(pkt("hello\n").as_bytes()).contains("not a git request"));
    assert!(talk(format!("{hello}{}0000", pkt("command=rm -rf\n")).as_bytes()).contains("invalid command"));
    let fetch = pkt("command=fetch");
    for (line, said) in [
        ("deepen 0", "Invalid deepen"),
        ("deepen 99999999999", "Invalid deepen"),
        ("deepen-since x", "Invalid deepen-since"),
        ("deepen-not nothing", "ambiguous deepen-not"),
        ("shallow 12", "invalid shallow line"),
        ("filter sparse:path=main", "invalid filter-spec"),
        ("filter tree:-1", "invalid filter-spec"),
        ("want-ref refs/heads/nothing", "unknown ref"),
    ] {
        let said_of = talk(format!("{hello}{fetch}0001{}0000", pkt(&format!("{line}\n"))).as_bytes());
        assert!(said_of.contains(said), "{line}: {said_of}");
    }
    assert!(
        talk(
            format!("{hello}{fetch}0001{}{}0000", pkt(&format!("want {}\n", "12".repeat(20))), pkt("done\n"))
                .as_bytes()
        )
        .contains("not our ref")
    );
    assert!(talk(format!("{hello}{fetch}0001{}0000", pkt("want zz\n")).as_bytes()).contains("bad object id"));
    assert!(
        talk(format!("{hello}{}{}0000", fetch, pkt("object-format=sha256\n")).as_bytes())
            .contains("mismatched object format")
    );
    // Idle ones are dropped in time.
    let started = Instant::now();
    let mut idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let _ = idle.read(&mut [0; 10]);
    assert!(started.elapsed() < Duration::from_secs(8), "an idle client is dropped");
    env.assert_same(&server, "u", &upstream, "served as well as ever");
    let said =
        env.git_command(&upstream, &["push", &server.url("u"), "main:refs/heads/new"]).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("read-only mirror"));
}

#[test]
fn smart_http_behind_a_real_web_server() {
    let env = Env::new();
    let upstream = env.odd_repository("u.git");
    let port = free_port();
    let _nginx = nginx(&env, port);
    wait_for_port(port);
    for version in [2, 0] {
        std::fs::write(
            env.pool().join("weir.toml"),
            format!("[transport]\nprotocol_version_max = {version}\n"),
        )
        .unwrap();
        let name = format!("v{version}");
        env.weir(&["add", "--name", &name, &format!("http://127.0.0.1:{port}/git/u.git")]);
        env.weir(&["mirror", &name]);
        add_commit(&env, &upstream, version);
        env.weir(&["mirror", &name]);
        env.assert_same(&env.serve(), &name, &upstream, &name);
    }
    // Redirected, with a password from netrc, and refused without.
    std::fs::write(env.pool().join("weir.toml"), "[transport]\ncredential_helper = false\n").unwrap();
    env.weir(&["add", "--name", "moved", &format!("http://127.0.0.1:{port}/moved/u.git")]);
    env.weir(&["mirror", "moved"]);
    env.weir(&["add", "--name", "private", &format!("http://127.0.0.1:{port}/private/u.git")]);
    let said = env.weir_fails(&["mirror", "private"]);
    assert!(said.contains("(forbidden)"), "{said}");
    std::fs::write(env.path(".netrc"), "machine 127.0.0.1 login user password secret\n").unwrap();
    env.weir(&["mirror", "private"]);
    env.weir(&["add", "--name", "none", &format!("http://127.0.0.1:{port}/git/none.git")]);
    let said = env.weir_fails(&["mirror", "none"]);
    assert!(said.contains("(gone)"), "{said}");
}

/// nginx with git's http-backend by fcgiwrap; both end with the test.
struct Nginx(Vec<std::process::Child>);

impl Drop for Nginx {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // nginx's workers end with their master on SIGTERM, not on SIGKILL.
            let _ = std::process::Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

fn nginx(env: &Env, port: u16) -> Nginx {
    let dir = env.dir.path().display();
    let exec_path = env.git(env.dir.path(), &["--exec-path"]);
    let fastcgi = format!(
        "fastcgi_pass unix:{dir}/fcgi.sock; fastcgi_param SCRIPT_FILENAME {exec_path}/git-http-backend; \
        fastcgi_param GIT_HTTP_EXPORT_ALL 1;
         fastcgi_param GIT_PROJECT_ROOT {dir}; fastcgi_param PATH_INFO $path; fastcgi_param QUERY_STRING
         $query_string;
         fastcgi_param REQUEST_METHOD $request_method; fastcgi_param CONTENT_TYPE $content_type;
         fastcgi_param CONTENT_LENGTH $content_length;
         fastcgi_param HTTP_GIT_PROTOCOL $http_git_protocol; fastcgi_param HTTP_CONTENT_ENCODING
         $http_content_encoding; fastcgi_param REMOTE_USER $remote_user;
         fastcgi_param GIT_CONFIG_COUNT 1; fastcgi_param GIT_CONFIG_KEY_0 safe.directory; fastcgi_param
         GIT_CONFIG_VALUE_0 *;"
    );
    let config = format!(
        "daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.err; events {{}}
         http {{ access_log off; client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2;
         fastcgi_temp_path {dir}/t3;
         uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
         client_max_body_size 0;
         server {{ listen 127.0.0.1:{port};
           location ~ ^/git(?<path>/.*)$ {{ {fastcgi} }}
           location ~ ^/private(?<path>/.*)$ {{ auth_basic x; auth_basic_user_file {dir}/users; {fastcgi} }}
           location ~ ^/moved(/.*)$ {{ return 302 /git$1$is_args$args; }}
         }} }}"
    );
    std::fs::write(env.path("nginx.conf"), config).unwrap();
    std::fs::write(env.path("users"), "user:{PLAIN}secret\n").unwrap();
    let spawn = |program: &str, args: &[String]| {
        let mut c = std::process::Command::new(program);
        c.args(args)
            .current_dir(env.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        c.spawn().unwrap_or_else(|e| panic!("{program}: {e}; 'make packages' installs it"))
    };
    let fcgi = spawn(
        "fcgiwrap",
        &["-s".to_owned(), format!("unix:{dir}/fcgi.sock"), "-c".to_owned(), "4".to_owned()],
    );
    let end = Instant::now() + Duration::from_secs(10);
    while !env.path("fcgi.sock").exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    // The workers of nginx run as another user when it is started by root: they need to reach the socket.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(env.path("fcgi.sock"), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(env.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let nginx = spawn("nginx", &["-c".to_owned(), format!("{dir}/nginx.conf")]);
    Nginx(vec![nginx, fcgi])
}

#[test]
fn a_host_that_fails_pauses_and_comes_back_by_itself() {
    let env = Env::new();
    env.configure(
        "mirror",
        "throttle_window = 5\nthrottle_leak = '1h'\nthrottle_pause = '3s'\nretry = '1s'\njobs = 2",
    );
    env.odd_repository("good.git");
    let daemon = env.git_daemon(&[]);
    let dead = crate::common::free_port();
    for n in 0..30 {
        env.odd_repository(&format!("r{n}.git"));
        env.weir(&["add", "--name", &format!("r{n}"), &format!("git://127.0.0.1:{dead}/r{n}.git")]);
    }
    env.weir(&["add", "--name", "good", &daemon.url("good.git")]);
    let output = env.weir_command(&["--json", "mirror"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let summary: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let (failed, put_off) = (summary["failed"].as_u64().unwrap(), summary["put_off"].as_u64().unwrap());
    assert!(failed + put_off == 30 && (5..=8).contains(&failed) && summary["updated"] == 1, "{said}");
    assert!(said.contains("\"paused\"") && said.contains("the host fails"), "{said}");
    let status = env.weir_json(&["status"]);
    assert_eq!(
        (status["pauses"][0]["cause"].as_str(), status["errors"]["network"].as_u64()),
        (Some("the host fails"), Some(failed))
    );
    assert!(env.weir(&["status"]).contains("the host fails"));
    let told = env.weir(&["errors", "network"]);
    let (list, advice) = told.split_once("\n\nWhat to do:\n").unwrap();
    assert_eq!((list.lines().count() as u64, advice.lines().count()), (failed, 1), "{told}");
    // The host is there again: within a pause so is everything.
    let back = env.git_daemon_at(dead, &[]);
    let mut watching = env.weir_command(&["-q", "mirror", "--watch"]).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while env.weir_json(&["status"])["counts"]["mirrored"] != 31 {
        assert!(Instant::now() < end, "{}", env.weir(&["status"]));
        std::thread::sleep(Duration::from_millis(100));
    }
    watching.kill().unwrap();
    watching.wait().unwrap();
    drop(back);
    assert_eq!(env.weir(&["due", "-n", "3"]).lines().count(), 3);
}

#[test]
fn who_cannot_complain_ends_as_it_would() {
    let env = Env::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for args in [&["mirror", "nosuch"][..], &["-v", "mirror"], &["show", "nosuch"], &["fsck"]] {
        let as_ever = env.weir_command(args).output().unwrap();
        let output = env.weir_command(args).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), as_ever.status.code(), "{args:?}");
    }
}
