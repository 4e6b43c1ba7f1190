//! Malformed requests, and requests that never come: the server reports what is wrong, or drops the client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::{Env, pkt};

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
    // Idle clients are dropped in time.
    let started = Instant::now();
    let mut idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let _ = idle.read(&mut [0; 10]);
    assert!(started.elapsed() < Duration::from_secs(8), "an idle client is dropped");
    env.assert_same(&server, "u", &upstream, "served as well as ever");
    let said =
        env.git_command(&upstream, &["push", &server.url("u"), "main:refs/heads/new"]).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("read-only mirror"));
}
