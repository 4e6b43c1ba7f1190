//! Senders are told `ok` of lines that are in the spool, and nobody holds up the others.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_events::{
    DoorGate, EventDoor, EventServer, EventServerOptions, EventSpool, IntakeCounts, LINE_BYTES_MAX, LineLoad,
    LoadTarget, ReceivedLine, SpoolOptions, SpoolReader,
};

/// Returns the path of the socket in `folder`. A path of a socket has at most 107 bytes, and the folder's
/// may be longer: the kernel names the folder by a descriptor, too.
fn socket_in(folder: &std::path::Path) -> PathBuf {
    static OPEN: Mutex<Vec<(PathBuf, std::fs::File)>> = Mutex::new(Vec::new());
    let mut open = OPEN.lock().unwrap();
    if open.iter().all(|(path, _)| path != folder) {
        open.push((folder.to_owned(), std::fs::File::open(folder).unwrap()));
    }
    let (_, file) = open.iter().find(|(path, _)| path == folder).unwrap();
    format!("/proc/self/fd/{}/socket", file.as_raw_fd()).into()
}

/// Doors of all kinds, and the reading end of their spool.
struct Doors {
    folder: tempfile::TempDir,
    tcp: std::net::SocketAddr,
    udp: std::net::SocketAddr,
    reader: SpoolReader,
    server: EventServer,
    counts: Arc<IntakeCounts>,
}

impl Doors {
    fn open(spool: SpoolOptions, options: EventServerOptions) -> Doors {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = EventSpool::open(&folder.path().join("spool"), spool).unwrap();
        let reader = spool.reader(0);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(socket_in(folder.path())).unwrap();
        let (tcp_at, udp_at) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
        let doors = vec![EventDoor::Tcp(tcp), EventDoor::Unix(unix), EventDoor::Udp(udp)];
        let counts = Arc::<IntakeCounts>::default();
        let server = EventServer::start(doors, spool, options, counts.clone()).unwrap();
        Doors { folder, tcp: tcp_at, udp: udp_at, reader, server, counts }
    }

    fn plain() -> Doors {
        Doors::open(SpoolOptions::default(), EventServerOptions::default())
    }

    fn path(&self) -> PathBuf {
        socket_in(self.folder.path())
    }

    /// Returns the lines that were committed, with their peers, once there are `count`.
    fn lines(&mut self, count: usize) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let until = Instant::now() + Duration::from_secs(20);
        while found.len() < count && Instant::now() < until {
            self.reader.wait(Duration::from_millis(100));
            let take = &mut |_: u64, record: &[u8]| {
                let ReceivedLine { peer, line, at_ms } = ReceivedLine::parse(record).unwrap();
                assert!(at_ms > 1_700_000_000_000);
                found.push((peer.to_owned(), String::from_utf8_lossy(line).into_owned()));
            };
            self.reader.read(1000, take).unwrap();
        }
        found
    }
}

fn answers(stream: impl Read, count: usize) -> Vec<String> {
    BufReader::new(stream).lines().take(count).map(Result::unwrap).collect()
}

#[test]
fn lines_are_acknowledged_in_order_once_they_are_in_the_spool() {
    let mut doors = Doors::plain();
    let mut tcp = TcpStream::connect(doors.tcp).unwrap();
    let mut unix = UnixStream::connect(doors.path()).unwrap();
    tcp.write_all(b"id=1 push https://h/a\nhttps://h/b\n\nid=2 {\"repository\":\"c\"}\nid=\nping\nid=3")
        .unwrap();
    unix.write_all(b"id=x d\nquit\nnever taken\n").unwrap();
    let expected = ["ok 1", "ok 2", "err no token behind id=, or a longer one than 128 bytes", "pong"];
    assert_eq!(answers(&tcp, 4), expected);
    assert_eq!(answers(&unix, 9), ["ok x"], "and then the end");
    tcp.write_all(b" late\n").unwrap();
    tcp.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(answers(&tcp, 9), ["ok 3"], "who has ended is answered");
    let mut lines = doors.lines(5);
    lines.sort_by(|a, b| a.1.cmp(&b.1));
    let texts: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(texts, ["d", "https://h/b", "late", "push https://h/a", "{\"repository\":\"c\"}"]);
    assert!(lines[0].0.starts_with("unix uid=") && lines[1].0.starts_with("tcp 127.0.0.1:"));
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.send_to(b"one\ntwo", doors.udp).unwrap();
    let lines = doors.lines(2);
    assert_eq!([&lines[0].1, &lines[1].1], ["one", "two"]);
    assert!(lines[0].0.starts_with("udp 127.0.0.1:"));
    let counts = doors.counts.clone();
    let counted = || (counts.committed.load(Ordering::Relaxed), counts.bad.load(Ordering::Relaxed));
    weir_testing::wait_until(|| format!("{:?}", counted()), || counted() == (7, 1));
}

#[test]
fn what_is_no_line_is_answered_and_a_last_line_needs_no_end() {
    let mut doors = Doors::plain();
    let mut sender = UnixStream::connect(doors.path()).unwrap();
    sender.write_all(&[b"id=long ".as_slice(), &[b'x'; 9000], b"\nid=last"].concat()).unwrap();
    sender.write_all(b" the end").unwrap();
    sender.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(answers(&sender, 9), ["err long longer than 8192 bytes", "ok last"]);
    // A page in a browser can make it send this, and no more.
    let mut browser = TcpStream::connect(doors.tcp).unwrap();
    browser.write_all(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nteam/tool\n").unwrap();
    let mut answered = String::new();
    let _ = browser.read_to_string(&mut answered);
    assert!(matches!(answered.as_str(), "err this is no HTTP server\n" | ""), "{answered}");
    assert_eq!(doors.lines(1)[0].1, "the end");
    assert!(!doors.reader.wait(Duration::from_millis(200)));
}

#[test]
fn a_thousand_senders_lose_nothing() {
    let mut doors = Doors::plain();
    let mut senders: Vec<UnixStream> =
        (0..1000).map(|_| UnixStream::connect(doors.path()).unwrap()).collect();
    for round in 0..5 {
        for (n, sender) in senders.iter_mut().enumerate() {
            sender.write_all(format!("id={n}.{round} repo{n}\n").as_bytes()).unwrap();
        }
    }
    for (n, sender) in senders.iter().enumerate() {
        let expected: Vec<String> = (0..5).map(|round| format!("ok {n}.{round}")).collect();
        assert_eq!(answers(sender, 5), expected);
    }
    assert_eq!(doors.lines(5000).len(), 5000);
    let counts = &doors.counts;
    assert_eq!(counts.connections.load(Ordering::Relaxed), 1000);
    let commits = counts.commits.load(Ordering::Relaxed);
    assert!(commits < 1000, "{commits} commits for 5000 lines");
}

#[test]
fn a_full_spool_pushes_back_and_goes_on_when_there_is_room() {
    let spool = SpoolOptions { bytes_max: 3 << 20, segment_bytes: 1 << 20 };
    let mut doors = Doors::open(spool, EventServerOptions::default());
    let mut sender = UnixStream::connect(doors.path()).unwrap();
    let line = format!("{}\n", "x".repeat(999));
    sender.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut sent = 0;
    // The sender is held up, and memory stays as it is.
    while sent < 20_000 {
        match sender.write(&line.as_bytes()[sent % 1000..]) {
            Ok(length) => sent += length / 1000 * 1000 + length % 1000,
            Err(_) => break,
        }
    }
    let held = loop {
        match sender.write(line.as_bytes()) {
            Ok(length) => sent += length,
            Err(e) => break e,
        }
    };
    assert_eq!(held.kind(), std::io::ErrorKind::WouldBlock);
    assert!(sent < 8 << 20, "{sent}");
    // As records are done with, it goes on; nothing is lost.
    let mut taken = 0;
    let until = Instant::now() + Duration::from_secs(30);
    sender.set_write_timeout(None).unwrap();
    drop(sender);
    while taken < sent / 1000 && Instant::now() < until {
        doors.reader.wait(Duration::from_millis(50));
        taken += doors.reader.read(500, &mut |_, _| {}).unwrap();
        let position = doors.reader.position();
        doors.reader.release(position).unwrap();
    }
    assert_eq!(taken, sent / 1000);
}

/// What a sender does again and again.
type Sending = Box<dyn FnMut(&mut UnixStream) -> std::io::Result<()> + Send>;

/// Returns how long a healthy sender waits for its slowest of 20 acknowledgements.
fn slowest(doors: &Doors) -> Duration {
    let mut healthy = UnixStream::connect(doors.path()).unwrap();
    let mut reader = BufReader::new(healthy.try_clone().unwrap());
    let mut slowest = Duration::ZERO;
    for n in 0..20 {
        let began = Instant::now();
        writeln!(healthy, "id={n} healthy").unwrap();
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("ok {n}\n"));
        slowest = slowest.max(began.elapsed());
    }
    slowest
}

#[test]
fn senders_that_misbehave_hold_up_nobody() {
    let doors = Doors::plain();
    let counts = doors.counts.clone();
    // One that sends without an end of line, one that never reads its answers, one that sends single bytes,
    // and many that hang up.
    let path = doors.path();
    let (endless, deaf, slow) = (path.clone(), path.clone(), path.clone());
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let run = |work: Sending, path: PathBuf| {
        let (stop, mut work) = (stop.clone(), work);
        std::thread::spawn(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            while !stop.load(Ordering::Relaxed) {
                // Held up is right.
                let _ = work(&mut stream);
            }
        })
    };
    let block = vec![b'x'; 1 << 16];
    let threads = [
        run(Box::new(move |stream| stream.write_all(&block)), endless),
        run(Box::new(|stream| stream.write_all(b"id=1234567890 push u\n")), deaf),
        run(
            Box::new(|stream| {
                std::thread::sleep(Duration::from_millis(50));
                stream.write_all(b"y")
            }),
            slow,
        ),
        run(
            Box::new(move |_| {
                drop(UnixStream::connect(&path)?);
                Ok(())
            }),
            doors.path(),
        ),
    ];
    std::thread::sleep(Duration::from_millis(300));
    let waited = slowest(&doors);
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    assert_eq!(counts.bad.load(Ordering::Relaxed), 1, "the endless line is told of once");
}

#[test]
fn an_idle_connection_ends_and_a_busy_one_does_not() {
    let options = EventServerOptions {
        idle_timeout: Some(Duration::from_millis(400)),
        ..EventServerOptions::default()
    };
    let doors = Doors::open(SpoolOptions::default(), options);
    let mut idle = UnixStream::connect(doors.path()).unwrap();
    let mut busy = UnixStream::connect(doors.path()).unwrap();
    let ended = std::thread::spawn(move || {
        let began = Instant::now();
        assert_eq!(idle.read(&mut [0]).unwrap(), 0);
        began.elapsed()
    });
    for _ in 0..15 {
        busy.write_all(b"ping\n").unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(answers(&busy, 15), ["pong"; 15]);
    assert!(ended.join().unwrap() >= Duration::from_millis(300));
}

#[test]
fn too_many_connections_are_refused_and_counted() {
    let options = EventServerOptions { connections_per_address_max: 2, ..EventServerOptions::default() };
    let doors = Doors::open(SpoolOptions::default(), options);
    let mut streams: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(doors.tcp).unwrap()).collect();
    for stream in &mut streams {
        let _ = stream.write_all(b"ping\n");
    }
    assert_eq!(answers(&streams[0], 1), ["pong"]);
    assert_eq!(answers(&streams[1], 1), ["pong"]);
    // It may be reset, since it has sent something.
    assert!(!matches!(streams[2].read(&mut [0]), Ok(1..)));
    assert_eq!(doors.counts.refused.load(Ordering::Relaxed), 1);
    // One that ends makes room.
    drop(streams.remove(0));
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let mut next = TcpStream::connect(doors.tcp).unwrap();
        let _ = next.write_all(b"ping\n");
        if matches!(next.read(&mut [0]), Ok(1..)) {
            break;
        }
        assert!(Instant::now() < until);
    }
}

#[test]
fn what_was_read_is_committed_when_the_server_ends() {
    let Doors { folder, mut reader, server, .. } = Doors::plain();
    let mut sender = UnixStream::connect(socket_in(folder.path())).unwrap();
    sender.write_all(b"id=1 first\n").unwrap();
    assert_eq!(answers(&sender, 1), ["ok 1"]);
    sender.write_all(b"second\n").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    drop(server);
    let mut count = 0;
    reader.read(10, &mut |_, _| count += 1).unwrap();
    assert_eq!(count, 2);
    assert!(!reader.wait(Duration::from_secs(600)), "the writer is gone");
}

#[test]
fn who_needs_a_token_is_taken_with_it_only() {
    let sum: [u8; 32] = ring::digest::digest(&ring::digest::SHA256, b"secret").as_ref().try_into().unwrap();
    let own = std::fs::metadata("/proc/self").unwrap().uid();
    for users in [Some(vec![own]), Some(vec![own + 1]), None] {
        let gate = DoorGate { tokens: vec![("ci".to_owned(), sum)], users: users.clone() };
        let options = EventServerOptions { gate, ..EventServerOptions::default() };
        let mut doors = Doors::open(SpoolOptions::default(), options);
        let mut tcp = TcpStream::connect(doors.tcp).unwrap();
        tcp.write_all(b"auth  secret \r\nid=1 a\nauth is a line now\nauth secret\nid=2 b\n").unwrap();
        assert_eq!(answers(&tcp, 4), ["ok", "ok 1", "ok", "ok 2"]);
        for (line, answer) in [
            (b"id=1 x\nid=2 y\n".as_slice(), "err say 'auth TOKEN' first"),
            (b"auth wrong\nid=1 x\n", "err the token is wrong"),
            (b"auth \nping\n", "err say 'auth TOKEN' first"),
            (b"auth\n", "err say 'auth TOKEN' first"),
        ] {
            let mut tcp = TcpStream::connect(doors.tcp).unwrap();
            tcp.write_all(line).unwrap();
            let mut said = String::new();
            // What was not read makes the end a reset.
            let _ = tcp.read_to_string(&mut said);
            assert!(said.is_empty() || said.trim_end() == answer, "{said}");
        }
        let mut unix = UnixStream::connect(doors.path()).unwrap();
        let is_known = users != Some(vec![own + 1]);
        unix.write_all(if is_known { b"id=3 c\n" } else { b"auth secret\nid=3 c\n" }).unwrap();
        let expected: &[&str] = if is_known { &["ok 3"] } else { &["ok", "ok 3"] };
        assert_eq!(answers(&unix, expected.len()), expected);
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.send_to(b"lost\nauth secret\nlost, too", doors.udp).unwrap();
        udp.send_to(b"auth secret\nd\ne", doors.udp).unwrap();
        let mut lines = doors.lines(6);
        lines.sort_by(|a, b| a.1.cmp(&b.1));
        let texts: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(texts, ["a", "auth is a line now", "b", "c", "d", "e"]);
        assert!(lines[0].0.ends_with(" token=ci") && lines[4].0.ends_with(" token=ci"), "{lines:?}");
        assert_eq!(lines[3].0.ends_with(" token=ci"), !is_known);
    }
}

#[test]
fn a_token_that_nobody_asked_for_is_not_kept() {
    let mut doors = Doors::plain();
    let mut unix = UnixStream::connect(doors.path()).unwrap();
    unix.write_all(b"auth secret\nid=1 a\nauth failed\n").unwrap();
    assert_eq!(answers(&unix, 2), ["ok", "ok 1"]);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.send_to(b"auth secret\nb", doors.udp).unwrap();
    let mut lines: Vec<String> = doors.lines(3).into_iter().map(|(_, line)| line).collect();
    lines.sort();
    assert_eq!(lines, ["a", "auth failed", "b"]);
}

#[test]
fn a_load_counts_what_was_acknowledged_and_says_what_was_refused() {
    let mut doors = Doors::plain();
    let mut load = LineLoad {
        target: LoadTarget::Tcp(doors.tcp.to_string()),
        connections: 3,
        rate: 20.0,
        time: Duration::from_millis(500),
        lines_per_write: 2,
        acknowledged: true,
        token: None,
        line: Some("line {i}".to_owned()),
    };
    let report = load.run().unwrap();
    assert!(report.sent > 10 && report.acknowledged == report.sent, "{report:?}");
    assert!(report.median_us.unwrap() <= report.p99_us.unwrap(), "{report:?}");
    let lines = doors.lines(report.sent as usize);
    assert!(lines.iter().any(|(_, line)| line.ends_with("line 7")), "{lines:?}");
    load.target = LoadTarget::Unix(doors.path());
    load.acknowledged = false;
    let report = load.run().unwrap();
    assert_eq!((report.acknowledged, report.median_us), (0, None));
    // A line that is too long is refused, and the reason is told.
    load.line = Some("x".repeat(LINE_BYTES_MAX + 1));
    let said = load.run().unwrap_err().to_string();
    assert!(said.starts_with("it refuses lines: "), "{said}");
}
