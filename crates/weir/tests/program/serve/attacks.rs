//! Requests that cost a server much more than they cost the client, each beside a well-behaved client: the
//! findings of a review, one test each.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::lfs::noise;
use crate::common::{Env, Http, wait_for_answer};

/// A server, and upstreams it mirrors.
struct Stage {
    env: Env,
    server: Option<Http>,
}

impl Stage {
    fn new() -> Stage {
        Stage { env: Env::new(), server: None }
    }

    /// Mirrors a history of `commits` commits on main, and mirrors it again after the last commit was
    /// rewritten: refs do not reach all that the archive holds.
    fn rewritten(&self, name: &str, commits: usize) -> PathBuf {
        let upstream = self.env.init_bare(&format!("{name}.git"));
        let mut history = Vec::new();
        for n in 0..commits {
            let time = 1_700_000_000 + n;
            let line = format!(
                "commit refs/heads/main\ncommitter C <c@x> {time} +0000\ndata 1\nx\nM 644 inline f\ndata \
                6\n{n:06}\n"
            );
            history.extend_from_slice(line.as_bytes());
        }
        self.env.git_with(&upstream, &["fast-import", "--quiet"], &history);
        self.env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
        self.env.weir(&["mirror", name]);
        let other = self.env.git(&upstream, &["commit-tree", "-m", "another", "-p", "main~1", "main^{tree}"]);
        self.env.git(&upstream, &["update-ref", "refs/heads/main", &other]);
        self.env.weir(&["mirror", name]);
        upstream
    }

    fn serve(&mut self, settings: &str) {
        self.env.configure("serve", settings);
        self.server = Some(Http::serve(&self.env, &[]));
    }

    fn server(&self) -> &Http {
        self.server.as_ref().unwrap()
    }

    /// Begins a conversation about `name`, and reads the advertisement.
    fn talk(&self, name: &str, version: u8) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.server().1)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let line = format!(
            "git-upload-pack /{name}\0host=x\0{}",
            if version == 0 { String::new() } else { format!("\0version={version}\0") }
        );
        stream.write_all(&pkt(line.as_bytes())).unwrap();
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(b"0000") {
            assert_eq!(stream.read(&mut byte).unwrap(), 1);
            seen.push(byte[0]);
        }
        stream
    }

    /// Returns the processor time that the server has used, in seconds.
    fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.server().0.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }

    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server().0.pid())).unwrap();
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
            .unwrap()
    }

    /// Waits for a second in which the server does nothing, which must come soon after all clients have gone.
    fn is_idle(&self, after: &str) {
        let (gone, mut began, mut before) = (Instant::now(), Instant::now(), self.cpu());
        weir_testing::wait_until(
            || format!("{after}: the server works for nobody"),
            || {
                let used = self.cpu() - before;
                if used >= 0.2 {
                    (began, before) = (Instant::now(), self.cpu());
                }
                began.elapsed() >= Duration::from_secs(1)
            },
        );
        assert!(gone.elapsed() < Duration::from_secs(10), "{after}: busy for {:?}", gone.elapsed());
    }
}

fn pkt(line: &[u8]) -> Vec<u8> {
    [format!("{:04x}", line.len() + 4).as_bytes(), line].concat()
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut out = Vec::new();
    let _ = stream.read_to_end(&mut out);
    out
}

fn contains(bytes: &[u8], words: &str) -> bool {
    bytes.windows(words.len()).any(|window| window == words.as_bytes())
}

#[test]
fn sizes_of_objects_cost_what_is_bounded_and_only_for_whoever_is_there() {
    let mut stage = Stage::new();
    let upstream = stage.rewritten("it", 20_000);
    stage.serve("computed_max = 2\n");
    let root = stage.env.git(&upstream, &["rev-list", "--max-parents=0", "main"]);
    let request = |oids: &mut dyn Iterator<Item = String>| {
        let mut out = [pkt(b"command=object-info"), b"0001".to_vec(), pkt(b"size")].concat();
        oids.for_each(|oid| out.extend(pkt(format!("oid {oid}").as_bytes())));
        out.extend_from_slice(b"0000");
        out
    };
    let mut one = stage.talk("it", 2);
    let started = Instant::now();
    one.write_all(&request(&mut std::iter::repeat_n(root.clone(), 10_000))).unwrap();
    one.shutdown(Shutdown::Write).unwrap();
    let said = rest(&mut one);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    let size = stage.env.git(&upstream, &["cat-file", "-s", &root]);
    let line = pkt(format!("{root} {size}").as_bytes());
    assert_eq!(said, [pkt(b"size"), line.repeat(10_000), b"0000".to_vec()].concat());
    let mut many = stage.talk("it", 2);
    many.write_all(&request(&mut (0..10_001).map(|n| format!("{n:040x}")))).unwrap();
    assert!(contains(&rest(&mut many), "more than 10000 objects"));
    // The server does not go on working for clients that have hung up.
    for _ in 0..8 {
        let mut gone = stage.talk("it", 2);
        gone.write_all(&request(&mut (0..10_000).map(|n| format!("{n:040x}")))).unwrap();
    }
    stage.is_idle("object-info");
}

#[test]
fn who_reads_slowly_holds_no_turn() {
    let mut stage = Stage::new();
    let upstream = stage.rewritten("it", 50);
    let large = stage.env.init_bare("large.git");
    let mut history = Vec::new();
    for n in 0..12u64 {
        history.extend_from_slice(
            format!(
                "commit refs/heads/main\ncommitter C <c@x> {n} +0000\ndata 1\nx\nM 644 inline f{n}\ndata \
                4000000\n"
            )
            .as_bytes(),
        );
        history.extend(noise(n, 4_000_000));
        history.push(b'\n');
    }
    stage.env.git_with(&large, &["fast-import", "--quiet"], &history);
    stage.env.weir(&["add", "--name", "large", large.to_str().unwrap()]);
    stage.env.weir(&["mirror", "large"]);
    // No spool is large enough for those answers.
    stage.serve(
        "computed_max = 2\ncomputed_per_address_max = 2\nkept_bytes_max = '1 MiB'\nqueue_timeout = '8s'\n",
    );
    let tip = stage.env.git(&large, &["rev-parse", "main"]);
    let slow: Vec<TcpStream> = (0..4)
        .map(|n| {
            let mut stream = stage.talk("large", 2);
            let limit = format!("filter blob:limit={}m", 100 + n);
            let words = [&b"command=fetch"[..], b"object-format=sha1"].map(pkt).concat();
            let want = format!("want {tip}");
            let arguments = [want.as_bytes(), limit.as_bytes(), b"ofs-delta", b"done"].map(pkt).concat();
            stream.write_all(&[&words[..], b"0001", &arguments, b"0000"].concat()).unwrap();
            stream
        })
        .collect();
    slow.iter().take(2).for_each(wait_for_answer);
    let started = Instant::now();
    for n in 0..3 {
        let target = format!("healthy{n}");
        let depth = format!("--depth={}", n + 2);
        stage.env.git(
            stage.env.dir.path(),
            &["clone", "-q", "--bare", &depth, &stage.server().git_url("it"), &target],
        );
        assert_eq!(
            stage.env.git(&stage.env.path(&target), &["rev-parse", "main"]),
            stage.env.git(&upstream, &["rev-parse", "main"])
        );
    }
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    drop(slow);
    stage.is_idle("slow readers");
}

#[test]
fn early_negotiation_holds_up_nobody() {
    let mut stage = Stage::new();
    let upstream = stage.rewritten("it", 20_000);
    // A branch of its own that is older than everything: a search for it goes through all the rest.
    let empty = stage.env.git_with(&upstream, &["mktree"], b"");
    let old = stage.env.git(&upstream, &["commit-tree", "-m", "old", &empty]);
    stage.env.git(&upstream, &["update-ref", "refs/heads/old", &old]);
    stage.env.weir(&["mirror", "it"]);
    stage.serve("computed_max = 2\n");
    let main = stage.env.git(&upstream, &["rev-parse", "main"]);
    let olds: Vec<String> =
        stage.env.git(&upstream, &["rev-list", "-64", "main~10000"]).lines().map(str::to_owned).collect();
    let mut request = [
        pkt(format!("want {main} multi_ack_detailed side-band-64k ofs-delta\n").as_bytes()),
        b"0000".to_vec(),
    ]
    .concat();
    for have in std::iter::once(&old).chain(&olds) {
        request.extend(pkt(format!("have {have}\n").as_bytes()));
        request.extend(pkt(format!("have {:040x}\n", 7).as_bytes()));
    }
    let hostile: Vec<TcpStream> = (0..60)
        .map(|_| {
            let mut stream = stage.talk("it", 0);
            stream.write_all(&request).unwrap();
            stream
        })
        .collect();
    // Meanwhile a client that asks for little is answered at once.
    for _ in 0..5 {
        let started = Instant::now();
        stage.env.git(stage.env.dir.path(), &["ls-remote", &stage.server().git_url("it")]);
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    }
    drop(hostile);
    stage.is_idle("early negotiation");
}

#[test]
fn lfs_batches_cost_little_memory() {
    let mut stage = Stage::new();
    stage.rewritten("it", 5);
    stage.serve("");
    let batch = |count: usize, authorization: usize| {
        let objects: Vec<String> =
            (0..count).map(|n| format!("{{\"oid\":\"{:064x}\",\"size\":1}}", n % 7)).collect();
        let body = format!("{{\"operation\":\"download\",\"objects\":[{}]}}", objects.join(","));
        let head = format!(
            "POST /it/info/lfs/objects/batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nConnection: \
            close\r\n\
             Content-Type: application/vnd.git-lfs+json\r\nContent-Length: {}\r\n\r\n",
            "a".repeat(authorization),
            body.len()
        );
        [head, body].concat().into_bytes()
    };
    let said = stage.server().ask(&batch(1000, 100));
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(said.matches("\"error\"").count(), 7, "each object once: {said}");
    assert!(stage.server().ask(&batch(1001, 100)).starts_with("HTTP/1.1 413"));
    assert!(stage.server().ask(&batch(10, 20_000)).starts_with("HTTP/1.1 431"));
    let before = stage.resident_kib();
    let unread: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", stage.server().0.port)).unwrap();
            stream.write_all(&batch(1000, 1000)).unwrap();
            stream
        })
        .collect();
    unread.iter().for_each(wait_for_answer);
    let more = stage.resident_kib().saturating_sub(before);
    assert!(more < 100 << 10, "{more} KiB for {} requests", unread.len());
}

#[test]
fn lists_of_refs_that_nobody_reads_are_held_once() {
    let mut stage = Stage::new();
    let upstream = stage.rewritten("it", 5);
    let tip = stage.env.git(&upstream, &["rev-parse", "main"]);
    let refs: String =
        (0..60_000).map(|n| format!("create refs/tags/a-name-of-some-length-{n:07} {tip}\n")).collect();
    stage.env.git_with(&upstream, &["update-ref", "--stdin"], refs.as_bytes());
    stage.env.weir(&["mirror", "it"]);
    stage.serve("");
    let listed = stage.env.git(stage.env.dir.path(), &["ls-remote", &stage.server().git_url("it")]);
    assert_eq!(listed.lines().count(), 60_002);
    let before = stage.resident_kib();
    let request =
        [pkt(b"command=ls-refs"), b"0001".to_vec(), pkt(b"peel"), pkt(b"symrefs"), b"0000".to_vec()].concat();
    let mut unread = Vec::new();
    for n in 0..100 {
        let mut stream = TcpStream::connect(("127.0.0.1", stage.server().1)).unwrap();
        stream
            .write_all(&pkt(if n % 2 == 0 {
                b"git-upload-pack /it\0host=x\0\0version=2\0"
            } else {
                b"git-upload-pack /it\0host=x\0"
            }))
            .unwrap();
        if n % 2 == 0 {
            stream.write_all(&request).unwrap();
        }
        unread.push(stream);
    }
    unread.iter().for_each(wait_for_answer);
    let more = stage.resident_kib().saturating_sub(before);
    assert!(more < 100 << 10, "{more} KiB for {} lists", unread.len());
    let over_http = stage.env.git(stage.env.dir.path(), &["ls-remote", &stage.server().url("it")]);
    assert_eq!(over_http, listed);
    for version in ["0", "1"] {
        let early = stage.env.git(
            stage.env.dir.path(),
            &["-c", &format!("protocol.version={version}"), "ls-remote", &stage.server().url("it")],
        );
        assert_eq!(early, listed, "version {version}");
    }
}

#[test]
fn who_ends_its_half_of_a_connection_is_answered() {
    let mut stage = Stage::new();
    let upstream = stage.rewritten("it", 2000);
    stage.serve("kept_bytes_max = 0\n");
    let (tip, have) = (
        stage.env.git(&upstream, &["rev-parse", "main"]),
        stage.env.git(&upstream, &["rev-parse", "main~1500"]),
    );
    for depth in ["deepen 100", "filter blob:none", "ofs-delta"] {
        let mut stream = stage.talk("it", 2);
        let lines = [format!("want {tip}"), format!("have {have}"), depth.to_owned(), "done".to_owned()];
        let arguments: Vec<u8> = lines.iter().flat_map(|line| pkt(line.as_bytes())).collect();
        stream.write_all(&[&pkt(b"command=fetch")[..], b"0001", &arguments, b"0000"].concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let said = rest(&mut stream);
        assert!(contains(&said, "PACK") && said.ends_with(b"0000"), "{depth}: {} bytes", said.len());
    }
    let mut early = stage.talk("it", 0);
    early
        .write_all(
            &[&pkt(format!("want {tip} side-band-64k ofs-delta\n").as_bytes())[..], b"0000", &pkt(b"done\n")]
                .concat(),
        )
        .unwrap();
    early.shutdown(Shutdown::Write).unwrap();
    assert!(contains(&rest(&mut early), "PACK"));
    let body =
        [&pkt(b"command=fetch")[..], b"0001", &pkt(format!("want {tip}").as_bytes()), &pkt(b"done"), b"0000"]
            .concat();
    let mut stream = TcpStream::connect(("127.0.0.1", stage.server().0.port)).unwrap();
    let head = format!(
        "POST /it/git-upload-pack HTTP/1.1\r\nHost: x\r\nContent-Type: \
        application/x-git-upload-pack-request\r\nGit-Protocol: version=2\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(contains(&rest(&mut stream), "PACK"), "over HTTP");
}

#[test]
fn who_says_nothing_over_ssh_is_not_waited_for() {
    let stage = Stage::new();
    stage.rewritten("it", 5);
    stage.env.configure("serve", "idle_timeout = '2s'\n");
    let mut shell = stage
        .env
        .weir_command(&["shell", "-c", "git-upload-pack 'it'"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let mut said = String::new();
    shell.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!shell.wait().unwrap().success());
    assert!(
        started.elapsed() < Duration::from_secs(10) && said.contains("the client was idle for"),
        "{said}"
    );
}
