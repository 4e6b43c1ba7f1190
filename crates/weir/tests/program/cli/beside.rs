//! `weir serve` does more than serve: it crawls, mirrors, and reports its state to monitors.

use crate::common::Env;
use crate::common::forge::{Forge, Listed, State};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;
use weir_testing::{free_port, wait_for_port, wait_until};

/// Returns the answer to a GET, with its head.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_crawls_and_mirrors_and_says_so_to_monitors() {
    let env = Env::new();
    for n in 1..=4 {
        env.odd_repository(&format!("o/r{n}.git"));
    }
    let daemon = env.git_daemon(&[]);
    let one = |n: u64| Listed {
        id: n,
        owner: "o",
        name: format!("r{n}"),
        pushed_at: "2024-01-01T00:00:00Z".into(),
        fork: false,
    };
    // The last repository does not exist upstream.
    let forge = Forge::new(State {
        repositories: (1..=5).map(one).collect(),
        clone_base: daemon.url(""),
        ..State::default()
    });
    let base = daemon.url("");
    let text = format!(
        "[[forge]]\ntype = \"gitea\"\nurl = \"{}\"\nname = \"f\"\nclone_from = [\"{base}\"]\n",
        forge.url()
    );
    std::fs::write(env.pool().join("weir.toml"), text).unwrap();
    let (git, metrics) = (free_port(), free_port());
    let (git, address) = (format!("127.0.0.1:{git}"), format!("127.0.0.1:{metrics}"));
    let mut child = env
        .weir_command(&["-q", "serve", "--git", &git, "--metrics", &address])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_port(metrics);
    let counts = || env.weir_json(&["status"])["counts"].clone();
    wait_until(
        || counts().to_string(),
        || {
            let counts = counts();
            counts["mirrored"] == 4 && counts["failing"] == 1
        },
    );
    let told = get(metrics, "/metrics");
    assert!(told.starts_with("HTTP/1.1 200 OK\r\n") && told.contains("text/plain; version=0.0.4"), "{told}");
    // Values from the catalog may be a minute old. The counters of the process are current.
    assert!(
        told.contains("weir_visits_total{result=\"updated\"} 4\n")
            && told.contains("weir_visits_total{result=\"failed\"} 1\n")
            && told.contains("weir_requests_total{kind=\"git\",result=\"answered\"} 0\n")
            && told.contains("weir_request_duration_seconds_bucket{kind=\"pack\",le=\"+Inf\"} 0\n")
            && told.contains("\nprocess_open_fds "),
        "{told}"
    );
    for name in [
        "weir_catalog_up 1",
        "# TYPE weir_repositories gauge",
        "weir_lag_seconds ",
        "weir_store_free_bytes ",
        "weir_appended_bytes_total ",
    ] {
        assert!(told.contains(name), "{name}: {told}");
    }
    let lines = told.split("\r\n\r\n").nth(1).unwrap();
    assert!(lines.lines().all(|l| l.starts_with("# ") || l.rsplit_once(' ').is_some_and(|(_,
    n)| n.parse::<f64>().is_ok())), "{lines}");
    assert!(get(metrics, "/").starts_with("HTTP/1.1 404"));
    weir_testing::send(child.id(), weir_testing::Signal::SIGTERM);
    assert!(child.wait().unwrap().success());
}
