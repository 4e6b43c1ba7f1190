//! A client that clones over git:// (protocol v2) and discards what it gets, to measure the server.
//!
//! `weir-bench sink HOST:PORT PATH CLIENTS CLONES [--all-refs] [--hold SECONDS] [--have OID --want OID]`
//!
//! `weir-bench http HOST:PORT PATH CLIENTS CLONES`
//! `weir-bench idle HOST:PORT PATH CONNECTIONS SECONDS`
//! `weir-bench slow HOST:PORT PATH CONNECTIONS SECONDS`
//! `weir-bench catalog FOLDER|URL ROWS VISITS`
//! `weir-bench states ARCHIVE COUNT [--same]`
//! `weir-bench hash BYTES`
//! `weir-bench delay LISTEN HOST:PORT MILLISECONDS`
//! `weir-bench lines SOCKET FILE`
//! `weir-bench spool DIR [MEBIBYTES]`
//! `weir-bench timers CONNECTIONS`
//! `weir-bench headers weir|scan|lower COUNT`
//! `weir-bench gets HOST:PORT PATH A_SECOND SECONDS`
//! `weir-bench mine DIR commits|changes|numstat THREADS`
//!
//! Starts CLIENTS threads which together make CLONES clones, and prints one JSON object: bytes, wall seconds,
//! clones a second, failures, and the times to the first pack byte.
//!
//! `--hold` pauses that long after the first bytes, so that the server's memory can be measured while clones
//! run. `--depth` limits the history, and `--filter` the objects. `http` does the same over smart HTTP, for
//! small repositories. `idle` opens connections that send only the first request line. `slow` makes clones
//! that read a little of their pack every second. Both last SECONDS. `hash` measures how fast objects of
//! BYTES are hashed. `delay` passes connections on to a server that it makes look further away. `lines`
//! takes lines, as little as a server on tokio can do. `spool` writes a spool of events, or opens one.
//! `headers` looks the headers of a request up COUNT times.
//! `timers` measures what a line costs for the time-out of its connection. `gets` makes small requests at
//! fixed times. `mine` mines a git directory and
//! drops the rows.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_git::pktline::{Pkt, PktReader, push, push_delim, push_flush};
use weir_ground::thread::spawn_scoped;

mod catalog;
mod delay;
mod gets;
mod hash;
mod headers;
mod http;
mod lines;
mod mine;
mod spool;
mod states;
mod timers;

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Arguments {
    address: String,
    path: String,
    clients: usize,
    clones: usize,
    all_refs: bool,
    hold: Option<Duration>,
    want: Option<String>,
    have: Option<String>,
    extra: Vec<String>,
    over_http: bool,
}

struct Cloned {
    bytes: u64,
    first_byte_s: f64,
}

const USAGE: &str = "usage: weir-bench sink HOST:PORT PATH CLIENTS CLONES [--all-refs] [--hold SECONDS] \
    [--want OID --have OID]";

/// Runs the measurement called `what`. Returns false if there is none of that name: the two that clone are
/// not among them.
fn measure_other(what: &str, words: &mut impl Iterator<Item = String>) -> Result<bool, Error> {
    let mut next = || words.next().ok_or(USAGE);
    match what {
        "idle" | "slow" => {
            let (address, path, connections, seconds) =
                (next()?, next()?, next()?.parse()?, next()?.parse()?);
            crowd(what == "slow", &address, &path, connections, Duration::from_secs_f64(seconds))?;
        }
        "catalog" => catalog::run(&next()?, next()?.parse()?, next()?.parse()?)?,
        "lines" => lines::run(&next()?, &next()?)?,
        "spool" => spool::run(&next()?, next().ok())?,
        "gets" => gets::run(&next()?, &next()?, next()?.parse()?, next()?.parse()?)?,
        "timers" => timers::run(next()?.parse()?)?,
        "headers" => println!("{}", headers::run(&next()?, next()?.parse()?)?),
        "delay" => {
            let (listen, target) = (next()?, next()?);
            delay::run(&listen, &target, Duration::from_secs_f64(next()?.parse::<f64>()? / 1000.0))?;
        }
        "states" => states::run(&next()?, next()?.parse()?, next().is_ok_and(|word| word == "--same"))?,
        "mine" => mine::run(&next()?, &next()?, next()?.parse()?)?,
        "hash" => hash::run(next()?.parse()?)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn arguments() -> Result<Arguments, Error> {
    let mut words = std::env::args().skip(1);
    let what = words.next().ok_or(USAGE)?;
    if measure_other(&what, &mut words)? {
        std::process::exit(0);
    }
    let over_http = match what.as_str() {
        "sink" => false,
        "http" => true,
        _ => return Err(USAGE.into()),
    };
    let mut next = || words.next().ok_or(USAGE);
    let mut a = Arguments {
        address: next()?,
        path: next()?,
        clients: next()?.parse()?,
        clones: next()?.parse()?,
        all_refs: false,
        hold: None,
        want: None,
        have: None,
        extra: Vec::new(),
        over_http,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--all-refs" => a.all_refs = true,
            "--hold" => a.hold = Some(Duration::from_secs_f64(words.next().ok_or(USAGE)?.parse()?)),
            "--want" => a.want = words.next(),
            "--have" => a.have = words.next(),
            "--depth" => a.extra.push(format!("deepen {}\n", words.next().ok_or(USAGE)?)),
            "--filter" => a.extra.push(format!("filter {}\n", words.next().ok_or(USAGE)?)),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(a)
}

fn clone_once(a: &Arguments) -> Result<Cloned, Error> {
    let started = Instant::now();
    let stream = TcpStream::connect(&a.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut writer = stream.try_clone()?;
    let mut reader = PktReader::new(BufReader::with_capacity(256 << 10, stream));
    let mut out = Vec::new();
    push(&mut out, format!("git-upload-pack {}\0host={}\0\0version=2\0", a.path, a.address).as_bytes());
    writer.write_all(&out)?;
    while !matches!(reader.next_pkt()?.ok_or("no capabilities")?, Pkt::Flush) {}
    let mut wants = Vec::new();
    if let Some(want) = &a.want {
        wants.push(want.clone());
    } else {
        out.clear();
        push(&mut out, b"command=ls-refs\n");
        push_delim(&mut out);
        push(&mut out, b"peel\n");
        push(&mut out, b"symrefs\n");
        if !a.all_refs {
            for prefix in ["HEAD", "refs/heads/", "refs/tags/"] {
                push(&mut out, format!("ref-prefix {prefix}\n").as_bytes());
            }
        }
        push_flush(&mut out);
        writer.write_all(&out)?;
        loop {
            match reader.next_pkt()?.ok_or("refs cut off")? {
                Pkt::Flush => break,
                line => wants.push(String::from_utf8_lossy(&line.text()[..40]).into_owned()),
            }
        }
        wants.sort();
        wants.dedup();
    }
    out.clear();
    push(&mut out, b"command=fetch");
    push(&mut out, b"object-format=sha1");
    push_delim(&mut out);
    for argument in ["thin-pack", "no-progress", "ofs-delta"] {
        push(&mut out, argument.as_bytes());
    }
    for want in &wants {
        push(&mut out, format!("want {want}\n").as_bytes());
    }
    if let Some(have) = &a.have {
        push(&mut out, format!("have {have}\n").as_bytes());
    }
    for line in &a.extra {
        push(&mut out, line.as_bytes());
    }
    push(&mut out, b"done\n");
    push_flush(&mut out);
    writer.write_all(&out)?;
    loop {
        let pkt = reader.next_pkt()?.ok_or("no answer")?;
        if pkt.text() == b"packfile" {
            break;
        }
        if pkt.text().starts_with(b"ERR ") {
            return Err(String::from_utf8_lossy(pkt.text()).into_owned().into());
        }
    }
    drain(&a.hold, reader.into_inner(), started)
}

/// Reads a side-band stream to its end, in large pieces and without copying: the client shares the machine
/// with the server.
fn drain(
    hold: &Option<Duration>,
    mut source: BufReader<TcpStream>,
    started: Instant,
) -> Result<Cloned, Error> {
    let mut cloned = Cloned { bytes: 0, first_byte_s: 0.0 };
    let mut buffer = vec![0; 1 << 20];
    let mut head = [0u8; 5];
    let (mut have, mut skip) = (0, 0);
    let mut message = Vec::new();
    loop {
        // Bytes in BufReader's buffer come first. After that, BufReader passes reads into a large buffer
        // through.
        let n = source.read(&mut buffer)?;
        if n == 0 {
            return Err("cut off".into());
        }
        let mut at = 0;
        while at < n {
            if skip > 0 {
                let part = skip.min(n - at);
                if head[4] == 3 {
                    message.extend_from_slice(&buffer[at..at + part]);
                }
                (skip, at) = (skip - part, at + part);
                if skip == 0 && head[4] == 3 {
                    return Err(String::from_utf8_lossy(&message).into_owned().into());
                }
                continue;
            }
            head[have] = buffer[at];
            (have, at) = (have + 1, at + 1);
            if have == 4 && head[..4] == *b"0000" {
                return Ok(cloned);
            }
            if have == 5 {
                have = 0;
                skip = usize::from_str_radix(std::str::from_utf8(&head[..4])?, 16)?
                    .checked_sub(5)
                    .ok_or("bad length")?;
                if head[4] == 1 && skip > 0 {
                    if cloned.bytes == 0 {
                        cloned.first_byte_s = started.elapsed().as_secs_f64();
                        if let Some(hold) = hold {
                            std::thread::sleep(*hold);
                        }
                    }
                    cloned.bytes += skip as u64;
                }
            }
        }
    }
}

/// Holds connections open for a while: idle ones, or clones that read up to 16 KiB a second.
fn crowd(slow: bool, address: &str, path: &str, connections: usize, time: Duration) -> Result<(), Error> {
    let mut line = Vec::new();
    push(&mut line, format!("git-upload-pack {path}\0host={address}\0\0version=1\0").as_bytes());
    let mut streams = Vec::with_capacity(connections);
    for n in 0..connections {
        // Each connection comes from its own source address: the server limits the connections of one
        // address.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&std::net::SocketAddr::from(([127, 0, (n >> 8) as u8 + 1, n as u8], 0)).into())?;
        if slow {
            socket.set_recv_buffer_size(16 << 10)?;
        }
        socket.connect(&address.parse::<std::net::SocketAddr>()?.into())?;
        let mut stream: TcpStream = socket.into();
        stream.write_all(&line)?;
        streams.push(stream);
    }
    let mut buffer = vec![0; 16 << 10];
    if slow {
        for stream in &mut streams {
            let mut reader = PktReader::new(stream);
            let mut wants = Vec::new();
            while let Some(pkt @ Pkt::Line(_)) = reader.next_pkt()? {
                let text = pkt.text();
                if text != b"version 1" && !text.ends_with(b"^{}") {
                    wants.push(String::from_utf8_lossy(&text[..40]).into_owned());
                }
            }
            wants.sort();
            wants.dedup();
            let mut out = Vec::new();
            for (n, want) in wants.iter().enumerate() {
                push(
                    &mut out,
                    format!("want {want}{}\n", if n == 0 { " ofs-delta side-band-64k" } else { "" })
                        .as_bytes(),
                );
            }
            push_flush(&mut out);
            push(&mut out, b"done\n");
            reader.into_inner().write_all(&out)?;
        }
    }
    println!("ready");
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_secs(1));
        if slow {
            for stream in &mut streams {
                let _ = stream.read(&mut buffer)?;
            }
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let a = arguments()?;
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    let results: Vec<Result<Cloned, Error>> = std::thread::scope(|scope| {
        let work = || {
            let mut results = Vec::new();
            while next.fetch_add(1, Ordering::Relaxed) < a.clones {
                results.push(if a.over_http { http::clone_once(&a) } else { clone_once(&a) });
            }
            results
        };
        let start = |_| spawn_scoped("client", scope, work).expect("as many threads as clients");
        let threads: Vec<_> = (0..a.clients).map(start).collect();
        threads.into_iter().flat_map(|t| t.join().expect("clients do not panic")).collect()
    });
    let wall = started.elapsed().as_secs_f64();
    let mut firsts: Vec<f64> = results.iter().flatten().map(|c| c.first_byte_s).collect();
    firsts.sort_by(f64::total_cmp);
    let bytes: u64 = results.iter().flatten().map(|c| c.bytes).sum();
    let failures: Vec<String> =
        results.iter().filter_map(|r| r.as_ref().err().map(ToString::to_string)).collect();
    let at = |share: f64| {
        firsts.get(((firsts.len() as f64 * share) as usize).min(firsts.len().saturating_sub(1))).copied()
    };
    println!(
        "{}",
        serde_json::json!({
            "bytes": bytes, "wall_s": wall, "clones": firsts.len(),
            "clones_per_s": firsts.len() as f64 / wall, "failed": failures.len(),
            "first_failure": failures.first(), "first_byte_median_s": at(0.5), "first_byte_max_s": at(1.0),
        })
    );
    Ok(())
}
