//! Hostile clients, and a well-behaved client at the same time.

use crate::common::{Env, Http};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_testing::wait_until;

/// A server with short timeouts, and the upstream of its repository.
struct Stage {
    env: Env,
    upstream: PathBuf,
    server: Http,
    log: PathBuf,
}

const FIRST: &[u8] = b"0025git-upload-pack /it\0\0version=2\0";

fn stage() -> Stage {
    let env = Env::new();
    let upstream = env.init_bare("up.git");
    let mut history = Vec::new();
    for n in 0..300 {
        history.extend_from_slice(
            format!(
                "commit refs/heads/main\ncommitter C <c@x> {} +0000\ndata 1\nx\nM 644 inline f{}\ndata \
                {}\n{}\n",
                1_700_000_000 + n,
                n % 7,
                n + 1,
                "y".repeat(n + 1)
            )
            .as_bytes(),
        );
    }
    env.git_with(&upstream, &["fast-import", "--quiet"], &history);
    env.weir(&["add", "--name", "it", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.configure(
        "serve",
        "init_timeout = '2s'\nidle_timeout = '4s'\nconnections_per_address_max = 300\nqueue_max = \
        8\nqueue_timeout = '1s'",
    );
    let log = env.path("log");
    let server = Http::serve_logging(&env, &[], &log);
    Stage { env, upstream, server, log }
}

impl Stage {
    fn git(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.server.1)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Begins a v2 conversation about the repository, and reads the server's capabilities.
    fn talking(&self) -> TcpStream {
        let mut stream = self.git();
        let line = b"git-upload-pack /it\0host=x\0\0version=2\0";
        stream.write_all(format!("{:04x}", line.len() + 4).as_bytes()).unwrap();
        stream.write_all(line).unwrap();
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(b"0000") {
            assert_eq!(stream.read(&mut byte).unwrap(), 1);
            seen.push(byte[0]);
        }
        stream
    }

    /// Clones over both doors; no clone may fail or take long.
    fn healthy(&self, during: &str) {
        for (n, url) in [self.server.git_url("it"), self.server.url("it")].into_iter().enumerate() {
            let started = Instant::now();
            let target = self.env.path(&format!("healthy{n}"));
            let _ = std::fs::remove_dir_all(&target);
            self.env.git(
                self.env.dir.path(),
                &["clone", "-q", "--bare", "--depth=3", &url, target.to_str().unwrap()],
            );
            assert_eq!(
                self.env.git(&target, &["rev-parse", "main"]),
                self.env.git(&self.upstream, &["rev-parse", "main"])
            );
            assert!(
                started.elapsed() < Duration::from_secs(5),
                "{during}: a healthy client waited {:?}",
                started.elapsed()
            );
        }
    }

    fn status(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.0.pid())).unwrap();
        status
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok())
            .unwrap()
    }

    /// Waits until the server has closed the connections of the test.
    fn wait_for_descriptors(&self, during: &str) {
        let open = || std::fs::read_dir(format!("/proc/{}/fd", self.server.0.pid())).unwrap().count();
        wait_until(|| format!("{during}: {} descriptors are open", open()), || open() < 100);
    }

    /// Checks that the server has recovered from what was done to it.
    fn is_well(&self, during: &str) {
        self.healthy(during);
        let resident = self.status("VmRSS");
        assert!(resident < 300 << 10, "{during}: {resident} KiB are resident");
        self.wait_for_descriptors(during);
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        assert!(!log.contains("panicked"), "{during}: {log}");
        assert!(log.lines().count() < 400, "{during}: {} lines in the log", log.lines().count());
    }
}

fn pkt(line: &str) -> Vec<u8> {
    crate::common::pkt(line).into_bytes()
}

/// Returns what the server sends until it hangs up, or until nothing comes for 20 seconds.
fn rest(stream: &mut TcpStream) -> String {
    let mut out = Vec::new();
    let _ = stream.take(1 << 20).read_to_end(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn those_who_never_come_to_the_point() {
    let stage = stage();
    // First lines, requests and heads that never end, sent byte by byte.
    let mut slow: Vec<TcpStream> = (0..100).map(|_| stage.git()).collect();
    slow.extend((0..100).map(|_| TcpStream::connect(("127.0.0.1", stage.server.0.port)).unwrap()));
    for at in 0..17 {
        for (n, stream) in slow.iter_mut().enumerate() {
            let text: &[u8] =
                if n < 100 { FIRST } else { b"GET /it/info/refs HTTP/1.1\r\nHost: x\r\nX-Slow: loris" };
            let _ = stream.write_all(&text[at..=at]);
        }
        // A byte every 300 ms, unless the server has hung up.
        slow[0].set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let _ = slow[0].peek(&mut [0]);
        if at == 3 {
            stage.healthy("slowloris");
        }
    }
    for stream in &mut slow {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut byte = [0; 512];
        // The server hangs up, or sends the reason first.
        let end = loop {
            match stream.read(&mut byte) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(e) => break e.kind() == std::io::ErrorKind::ConnectionReset,
            }
        };
        assert!(end, "somebody is still waited for");
    }
    stage.is_well("slowloris");
}

/// Returns floods, each with its name: requests of very many lines about a repository whose `main` is `oid`
/// with `tree`, and bytes that are not a request.
fn floods(oid: &str, tree: &str) -> Vec<(&'static str, Vec<u8>)> {
    let many = |line: &str, n: usize| pkt(line).repeat(n);
    let numbered = |what: &str, n: usize| -> Vec<u8> {
        (0..n).flat_map(|i| pkt(&format!("{what}{i:040x}\n"))).collect()
    };
    let request = |command: &str, lines: &[Vec<u8>]| {
        [pkt(&format!("command={command}")), b"0001".to_vec(), lines.concat(), b"0000".to_vec()].concat()
    };
    let fetch = |lines: &[Vec<u8>]| request("fetch", lines);
    let (want, done) = (pkt(&format!("want {oid}\n")), pkt("done\n"));
    let filter = pkt(&format!("filter combine:{}blob:none\n", "tree:1+".repeat(9000)));
    vec![
        ("the same want over and over", fetch(&[want.repeat(700_000)])),
        ("haves that nobody knows", fetch(&[want.clone(), numbered("have ", 590_000), done.clone()])),
        (
            "haves that are trees",
            fetch(&[want.clone(), many(&format!("have {tree}\n"), 590_000), done.clone()]),
        ),
        ("refs that are not there", fetch(&[many("want-ref refs/heads/nothing\n", 1000)])),
        ("shallow commits", fetch(&[many(&format!("shallow {oid}\n"), 590_000), want.clone(), done.clone()])),
        ("deepen-not", fetch(&[many("deepen-not refs/heads/main\n", 200_000), want.clone()])),
        ("combined filters", fetch(&[filter, want, done])),
        ("prefixes", request("ls-refs", &[many("ref-prefix refs/heads/nothing\n", 590_000)])),
        ("sizes asked for", request("object-info", &[pkt("size"), many(&format!("oid {oid}"), 500_000)])),
        ("flushes", b"0001".repeat(2_000_000)),
        ("a line without end", [b"ffff".to_vec(), vec![b'x'; 40 << 20]].concat()),
        ("nonsense", (0..4 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()),
    ]
}

#[test]
fn floods_of_lines() {
    let stage = stage();
    let oid = stage.env.git(&stage.upstream, &["rev-parse", "main"]);
    let tree = stage.env.git(&stage.upstream, &["rev-parse", "main^{tree}"]);
    for (what, request) in floods(&oid, &tree) {
        let started = Instant::now();
        let mut streams: Vec<TcpStream> = (0..3).map(|_| stage.talking()).collect();
        std::thread::scope(|scope| {
            for stream in &mut streams {
                let request = &request;
                scope.spawn(move || {
                    // The server may hang up before all is sent.
                    let _ = stream.write_all(request);
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    rest(stream)
                });
            }
            stage.healthy(what);
        });
        assert!(started.elapsed() < Duration::from_secs(15), "{what}: {:?}", started.elapsed());
    }
    stage.is_well("floods of lines");
}

#[test]
fn large_requests_of_many_share_a_bound() {
    let stage = stage();
    let before = stage.status("VmRSS");
    // Each request has 27 MiB and does not end. There is room for two of one address.
    let request: Vec<u8> =
        [pkt("command=fetch"), b"0001".to_vec(), pkt(&format!("have {:040x}\n", 7)).repeat(540_000)].concat();
    let mut streams: Vec<TcpStream> = (0..16).map(|_| stage.talking()).collect();
    let said: Vec<String> = std::thread::scope(|scope| {
        let sending: Vec<_> = streams
            .iter_mut()
            .map(|stream| {
                let request = &request;
                scope.spawn(move || {
                    let _ = stream.write_all(request);
                    rest(stream)
                })
            })
            .collect();
        stage.healthy("large requests");
        assert!(stage.status("VmRSS") - before < 250 << 10, "{} KiB are resident", stage.status("VmRSS"));
        sending.into_iter().map(|s| s.join().unwrap()).collect()
    });
    // The requests that had room get no answer: the server gives up on them.
    let refused = said.iter().filter(|s| s.contains("the server is busy")).count();
    assert!((13..=15).contains(&refused), "{refused} of {} were refused", said.len());
    stage.is_well("large requests");
}

#[test]
fn floods_of_connections() {
    let stage = stage();
    // More connections than one address may have: the server refuses the rest with a message.
    let mut held: Vec<TcpStream> = (0..500).map(|_| stage.git()).collect();
    let mut refused = 0;
    held.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    wait_until(
        || "fewer than 150 were refused".to_owned(),
        || {
            let mut buffer = [0; 100];
            for stream in &mut held {
                let said = stream.read(&mut buffer).map_or(&[][..], |n| &buffer[..n]);
                refused += usize::from(String::from_utf8_lossy(said).contains("too many connections"));
            }
            refused >= 150
        },
    );
    assert!(refused <= 250, "{refused} were refused");
    // A client at another address is served.
    let output = weir_testing::command("python3")
        .args([
            "-c",
            "import socket, sys
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5, ('127.0.0.2', 0))
s.sendall(b'001dgit-upload-pack /it\\0host=x\\0')
print(s.recv(4096))",
        ])
        .arg(stage.server.1.to_string())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("refs/heads/main"), "{output:?}");
    drop(held);
    // Thousands of connections come and go. Meanwhile no other client at this address may get in, but soon
    // after.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2000).for_each(|_| drop(TcpStream::connect(("127.0.0.1", stage.server.1)))));
        }
    });
    let mut listing =
        stage.env.git_command(stage.env.dir.path(), &["ls-remote", &stage.server.git_url("it")]);
    wait_until(|| "nobody gets in any more".to_owned(), || listing.output().unwrap().status.success());
    stage.is_well("connections that come and go");
}

#[test]
fn those_who_ask_and_go_and_those_who_take_their_time() {
    let stage = stage();
    let oid = stage.env.git(&stage.upstream, &["rev-parse", "main"]);
    // Each client asks for another computed answer, and hangs up at once.
    for n in 1..200 {
        let mut stream = stage.talking();
        let request = [
            pkt("command=fetch"),
            b"0001".to_vec(),
            pkt(&format!("want {oid}\n")),
            pkt(&format!("deepen {n}\n")),
            pkt("done\n"),
            b"0000".to_vec(),
        ];
        stream.write_all(&request.concat()).unwrap();
    }
    stage.healthy("those who hang up");
    // Each client asks, but reads nothing of the answer. The server drops them.
    let mut idle: Vec<TcpStream> = (0..200).map(|_| stage.talking()).collect();
    for stream in &mut idle {
        let request = [
            pkt("command=fetch"),
            b"0001".to_vec(),
            pkt(&format!("want {oid}\n")),
            pkt("done\n"),
            b"0000".to_vec(),
        ];
        stream.write_all(&request.concat()).unwrap();
    }
    stage.healthy("those who take nothing");
    stage.wait_for_descriptors("those who take nothing");
    drop(idle);
    stage.is_well("those who take nothing");
}

#[test]
fn http_requests_that_do_not_come_to_their_end() {
    let stage = stage();
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", stage.server.0.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    for stream in &mut streams {
        stream
            .write_all(
                b"POST /it/git-upload-pack HTTP/1.1\r\nHost: x\r\nContent-Type: \
            application/x-git-upload-pack-request\r\nContent-Length: 1000\r\n\r\n0011",
            )
            .unwrap();
    }
    stage.healthy("bodies that do not come");
    for stream in &mut streams {
        let said = rest(stream);
        assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    }
    // A body that is complete for HTTP, but only half a request for git.
    let mut stream = connect();
    stream
        .write_all(
            b"POST /it/git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: \
        application/x-git-upload-pack-request\r\nContent-Length: 4\r\n\r\n0032",
        )
        .unwrap();
    assert!(rest(&mut stream).starts_with("HTTP/1.1 400 "));
    stage.is_well("bodies that do not come");
}
