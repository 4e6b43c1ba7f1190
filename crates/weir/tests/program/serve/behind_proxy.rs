//! weir behind a proxy: a trusted proxy names the clients, and no other address is believed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::common::{Env, Http};
use weir_testing::wait_until;

/// Makes a pool behind proxies at 127.0.0.1, with a repository that only 198.51.100.0/24 may read.
fn pool(serve: &str) -> Env {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "it", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.configure("serve", &format!("trusted_proxies = ['127.0.0.1']\n{serve}"));
    env.configure(
        "access",
        "public = false\nrules = [{ repositories = ['*'], addresses = ['198.51.100.0/24'] }]",
    );
    env
}

fn status(server: &Http, headers: &str) -> String {
    let (head, _) = server.get("/it/info/refs?service=git-upload-pack", headers);
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn rules_go_by_the_address_that_a_proxy_names() {
    let env = pool("");
    let server = Http::serve(&env, &[]);
    for (headers, expected) in [
        ("X-Forwarded-For: 198.51.100.7\r\n", "200"),
        ("X-Forwarded-For: 127.0.0.1, 198.51.100.7:4711, 127.0.0.1\r\n", "200"),
        ("X-Forwarded-For: 203.0.113.1\r\n", "404"),
        // The client sends the first address, and the proxy adds the second.
        ("X-Forwarded-For: 198.51.100.7, 203.0.113.1\r\n", "404"),
        ("X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-For: 203.0.113.1\r\n", "404"),
        ("X-Forwarded-For: unknown\r\n", "404"),
        ("", "404"),
    ] {
        assert_eq!(status(&server, headers), expected, "{headers:?}");
    }
    drop(server);
    // A sender that is not a trusted proxy is not believed.
    let path = env.pool().join("weir.toml");
    let text = std::fs::read_to_string(&path)
        .unwrap()
        .replace("trusted_proxies = ['127.0.0.1']", "trusted_proxies = ['10.0.0.1']");
    std::fs::write(&path, text).unwrap();
    let server = Http::serve(&env, &[]);
    assert_eq!(status(&server, "X-Forwarded-For: 198.51.100.7\r\n"), "404");
}

#[test]
fn a_proxys_clients_are_limited_one_by_one() {
    let env = pool("connections_per_address_max = 2");
    let server = Http::serve(&env, &[]);
    // Requests whose bodies do not come.
    let begin = |address: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.0.port)).unwrap();
        let head = format!(
            "POST /it/git-upload-pack HTTP/1.1\r\nHost: x\r\nContent-Type: \
            application/x-git-upload-pack-request\r\n\
             Content-Length: 100\r\nX-Forwarded-For: {address}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let is_full = || status(&server, "X-Forwarded-For: 198.51.100.1\r\n") == "503";
    // The server may see the probe before the two requests, and then refuses one of these: try again.
    let mut waiting = None;
    wait_until(
        || "no third at a time is refused".to_owned(),
        || {
            waiting = None;
            waiting = Some([begin("198.51.100.1"), begin("198.51.100.1")]);
            is_full()
        },
    );
    assert_eq!(status(&server, "X-Forwarded-For: 198.51.100.2\r\n"), "200", "others are not");
    drop(waiting);
    wait_until(|| "who has gone is counted".to_owned(), || !is_full());
}

#[test]
fn what_is_not_told_apart_by_requests_is_counted_by_connections() {
    let env = pool("connections_per_address_max = 2");
    let server = Http::serve(&env, &[]);
    // A git:// connection has no header that names the client: the limit of one address applies to the
    // proxy's.
    let waiting: Vec<_> = (0..2).map(|_| TcpStream::connect(("127.0.0.1", server.1)).unwrap()).collect();
    let is_full = || {
        let mut third = TcpStream::connect(("127.0.0.1", server.1)).unwrap();
        third.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut said = String::new();
        let _ = third.read_to_string(&mut said);
        said.contains("too many connections")
    };
    assert!((0..20).any(|_| is_full()), "a third connection is refused");
    // Requests of the proxy's clients are counted separately.
    assert_eq!(status(&server, "X-Forwarded-For: 198.51.100.1\r\n"), "200");
    drop(waiting);
    // All clients that the proxy cannot name count as one.
    let begin = |name: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.0.port)).unwrap();
        let head = format!(
            "POST /it/git-upload-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nX-Forwarded-For: \
            {name}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = [0; 12];
        let _ = stream.read_exact(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    // The access rules refuse it, not the limit: no other request is under way.
    assert_eq!(begin("unknown"), "HTTP/1.1 404");
}

#[test]
fn connections_begin_with_the_proxy_protocol() {
    let env = pool("proxy_protocol = true");
    let server = Http::serve(&env, &[]);
    let ask = |port: u16, text: &[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(text);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let (http, git) = (server.0.port, server.1);
    let request = "0026git-upload-pack /it\0host=x:9418\0\0".to_owned();
    let request = format!("{:04x}{}", request.len(), &request[4..]);
    let from = |address: &str| format!("PROXY TCP4 {address} 127.0.0.1 4711 9418\r\n{request}").into_bytes();
    assert!(ask(git, &from("198.51.100.7")).contains("refs/heads/main"));
    assert!(ask(git, &from("203.0.113.1")).contains("ERR "));
    assert_eq!(ask(git, request.as_bytes()), "");
    assert_eq!(ask(git, &[&b"PROXY TCP4 "[..], &[b'x'; 500]].concat()), "");
    let get = "GET /it/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    v2.extend([198, 51, 100, 7, 127, 0, 0, 1, 0x12, 0x67, 0, 80]);
    v2.extend(get.as_bytes());
    assert!(ask(http, &v2).starts_with("HTTP/1.1 200"));
    // The server does not believe a header that the client adds: it does not come from the proxy.
    let lied = get.replace("Host: x", "Host: x\r\nX-Forwarded-For: 198.51.100.7");
    assert!(
        ask(http, format!("PROXY TCP4 203.0.113.1 127.0.0.1 1 2\r\n{lied}").as_bytes())
            .starts_with("HTTP/1.1 404")
    );
}

#[test]
fn what_is_no_proxy_is_refused() {
    let env = Env::new();
    let path = env.pool().join("weir.toml");
    for (text, said) in [
        (
            "[serve]\ntrusted_proxies = ['example.org']\n",
            "weir.toml:2: serve.trusted_proxies is wrong: 'example.org' is no address",
        ),
        ("[serve]\nproxy_protocol = true\n", "weir.toml:2: serve.proxy_protocol needs serve.trusted_proxies"),
    ] {
        std::fs::write(&path, text).unwrap();
        assert!(env.weir_fails(&["config", "check"]).contains(said), "{text}");
    }
}
