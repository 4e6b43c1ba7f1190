//! Hostile upstreams: their packs and names are not what they should be. weir keeps nothing of them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use sha1::Digest;

use crate::common::{Env, pkt};

/// How a hostile upstream answers a fetch.
type Answer = fn(&mut TcpStream);

fn read_request(stream: &mut TcpStream) {
    // Reads up to the flush packet that ends the request.
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

/// Starts a v2 server with one ref, which answers a fetch with `answer`; returns its port.
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

/// Hostile packs: what is wrong with each, how it is sent, and what weir reports.
const PACKS: &[(&str, Answer, &str)] = &[
    ("hangs", |_| std::thread::sleep(Duration::from_secs(30)), "did not answer for 2 s"),
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
    ("type 5", |s| send_pack(s, &sealed([header(1), vec![0x51, 0]].concat())), "the pack sent is invalid"),
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
    ("too many bytes", |s| send_pack(s, &[header(1000), vec![0x30; 5 << 20]].concat()), "the pack sent is"),
    (
        "ofs-delta without a base",
        |s| {
            send_pack(s, &sealed([header(1), entry_head(6, 4), vec![5], deflated(b"\x01\x01\x01a")].concat()))
        },
        "has no base",
    ),
    (
        "delta on itself",
        |s| {
            send_pack(s, &sealed([header(1), entry_head(6, 4), vec![0], deflated(b"\x01\x01\x01a")].concat()))
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
            let delta = |base: u8| [entry_head(7, 4), vec![base; 20], deflated(b"\x01\x01\x01a")].concat();
            send_pack(s, &sealed([header(2), delta(1), delta(2)].concat()));
        },
        "neither in the pack nor here",
    ),
    (
        "delta bomb",
        |s| {
            // A short delta that claims to make 2 GiB, by copying its base over and over.
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

#[test]
fn hostile_packs_are_refused_with_nothing_changed() {
    let env = Env::new();
    let config = "[transport]\nfirst_byte_timeout = \"2s\"\n[limits]\nobject_bytes_max = \"1 \
        MiB\"\ninflated_bytes_max = \"8 MiB\"\nobjects_max = 100000\npack_bytes_max = \"4 MiB\"\n";
    std::fs::write(env.pool().join("weir.toml"), config).unwrap();
    std::thread::scope(|scope| {
        for (n, (name, answer, expected)) in PACKS.iter().enumerate() {
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
        // Waits for the client to hang up.
        let _ = s.read(&mut [0]);
    });
    env.weir(&["add", "--name", "h", &format!("git://127.0.0.1:{port}/x")]);
    let said = env.weir(&["mirror"]);
    assert!(said.contains("skipped") && !said.contains('\u{7}'), "{said}");
    assert_eq!(env.weir_json(&["show", "h"])["refs"], 2, "{said}");
}
