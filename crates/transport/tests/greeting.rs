//! The greeting of a git:// server, when the client remembers an earlier one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use weir_transport::{Session, TransportOptions, Url};

fn pkt(line: &str) -> String {
    format!("{:04x}{line}\n", line.len() + 5)
}

/// Reads a request up to its flush. Both kinds of request end with a flush.
fn question(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    while !said.ends_with(b"0000") {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0);
        said.extend_from_slice(&piece[..n]);
    }
    said
}

#[test]
fn a_server_that_says_less_than_before_is_understood() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let refs = |n: u8| pkt(&format!("{:040x} refs/heads/b{n}", n)) + "0000";
        let greeting =
            |more: &str| ["version 2", "agent=a/1", "ls-refs", "fetch", more].map(pkt).concat() + "0000";
        // The first request is for the greeting alone, the others are for the refs, too.
        for (n, more) in [(1, "object-info"), (2, "object-info"), (3, "x"), (4, &"server-option".repeat(60))]
        {
            let (mut stream, _) = listener.accept().unwrap();
            let mut first = [0; 4];
            stream.read_exact(&mut first).unwrap();
            let len = usize::from_str_radix(std::str::from_utf8(&first).unwrap(), 16).unwrap();
            let mut line = vec![0; len - 4];
            stream.read_exact(&mut line).unwrap();
            // The greeting arrives in small pieces.
            for piece in greeting(more).as_bytes().chunks(7) {
                stream.write_all(piece).unwrap();
            }
            question(&mut stream);
            stream.write_all(refs(n).as_bytes()).unwrap();
            // The server does not close the connection.
            std::mem::forget(stream);
        }
    });
    let url = Url::parse(&format!("git://127.0.0.1:{port}/x")).unwrap();
    let options = TransportOptions { idle_timeout: Duration::from_secs(20), ..TransportOptions::default() };
    let started = Instant::now();
    for n in 1..=2u8 {
        let (_, advertised) = Session::open_and_list(&url, &options, &[]).unwrap();
        assert_eq!(advertised.refs[0].name, format!("refs/heads/b{n}").into_bytes());
    }
    // The greeting has changed: the client asks again in the ordinary way.
    let (_, advertised) = Session::open_and_list(&url, &options, &[]).unwrap();
    assert_eq!(advertised.refs[0].name, b"refs/heads/b4");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    server.join().unwrap();
}
