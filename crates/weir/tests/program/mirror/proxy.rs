//! Upstreams behind an HTTP proxy that makes tunnels to port 443 only, as many do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::common::{Env, Http};
use weir_testing::free_port;

/// Starts a proxy on a free port; returns the port, and what clients send.
fn proxy() -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let log = Arc::new(Mutex::new(Vec::new()));
    let sent = log.clone();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let sent = sent.clone();
            std::thread::spawn(move || {
                let mut head = vec![0; 64 << 10];
                let n = client.read(&mut head).unwrap_or(0);
                head.truncate(n);
                sent.lock().unwrap().extend_from_slice(&head);
                let text = String::from_utf8_lossy(&head).into_owned();
                let target = text
                    .split(' ')
                    .nth(1)
                    .and_then(|url| url.strip_prefix("http://"))
                    .and_then(|rest| rest.split('/').next());
                let Some(target) = target.filter(|_| !text.starts_with("CONNECT")) else {
                    let _ = client.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
                    return;
                };
                let mut server = TcpStream::connect(target).unwrap();
                server.write_all(&head).unwrap();
                let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut back, &mut to_client);
                    let _ = to_client.shutdown(std::net::Shutdown::Both);
                });
                let mut part = vec![0; 64 << 10];
                while let Ok(n @ 1..) = client.read(&mut part) {
                    sent.lock().unwrap().extend_from_slice(&part[..n]);
                    if server.write_all(&part[..n]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (port, log)
}

#[test]
fn plain_http_is_asked_for_by_whole_urls() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.weir(&["add", "--name", "it", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    let other = Env::new();
    let url = server.url("it");
    other.weir(&["add", "--name", "copy", &url]);
    let (port, log) = proxy();
    let mirror = |variables: &[(&str, String)]| {
        let mut command = other.weir_command(&["mirror", "--all"]);
        for name in [
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "no_proxy",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
        ] {
            command.env_remove(name);
        }
        let output =
            command.envs(variables.iter().map(|(name, value)| (*name, value.as_str()))).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    // A proxy for https is not used for http, and neither is HTTP_PROXY, which a web server may set.
    let dead = format!("http://127.0.0.1:{}", free_port());
    let said = mirror(&[("https_proxy", dead.clone()), ("HTTP_PROXY", dead.clone())]);
    assert!(said.contains("1 updated"), "{said}");
    let said = mirror(&[("http_proxy", format!("http://user:p%20w@127.0.0.1:{port}"))]);
    assert!(said.contains("1 unchanged"), "{said}");
    // Fetches use the proxy, too.
    let tip = env.git(&up, &["rev-parse", "main"]);
    env.git(
        &up,
        &[
            "update-ref",
            "refs/heads/new",
            &env.git(&up, &["commit-tree", "-m", "new", "-p", &tip, "main^{tree}"]),
        ],
    );
    env.weir(&["mirror", "--all"]);
    let said = mirror(&[("http_proxy", format!("user:p%20w@127.0.0.1:{port}"))]);
    assert!(said.contains("1 updated"), "{said}");
    let sent = String::from_utf8_lossy(&log.lock().unwrap()).into_owned();
    assert!(sent.contains(&format!("GET {url}/info/refs?service=git-upload-pack HTTP/1.1")), "{sent}");
    assert!(
        sent.contains(&format!("POST {url}/git-upload-pack HTTP/1.1")) && !sent.contains("CONNECT"),
        "{sent}"
    );
    // "user:p w"
    assert_eq!(
        sent.matches("Proxy-Authorization: Basic dXNlcjpwIHc=").count(),
        sent.matches(" HTTP/1.1\r\n").count(),
        "{sent}"
    );
    let before = sent.len();
    assert!(
        mirror(&[
            ("http_proxy", format!("http://127.0.0.1:{port}")),
            ("no_proxy", "example.org,127.0.0.1".into())
        ])
        .contains("1 unchanged")
    );
    assert_eq!(log.lock().unwrap().len(), before);
    let said = mirror(&[("http_proxy", dead.clone())]);
    assert!(said.contains("by the proxy 127.0.0.1:"), "{said}");
}

#[test]
fn forges_are_asked_by_the_same_proxies() {
    let env = Env::new();
    let server = Http::serve(&env, &[]);
    let (port, log) = proxy();
    let (path, url) = (env.pool().join("weir.toml"), server.url("manifest.js"));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}\n[[forge]]\ntype = 'manifest'\nname = 'f'\nurl = '{url}'\n"))
        .unwrap();
    let mut command = env.weir_command(&["crawl"]);
    // The crawl finds no manifest: it is enough that it asks the proxy for it.
    let output = command
        .env("http_proxy", format!("http://127.0.0.1:{port}"))
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output();
    assert!(!output.unwrap().status.success());
    let sent = String::from_utf8_lossy(&log.lock().unwrap()).into_owned();
    assert!(sent.contains(&format!("GET {url} HTTP/1.1")) && !sent.contains("CONNECT"), "{sent}");
}
