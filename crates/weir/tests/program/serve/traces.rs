//! Spans of requests and visits reach a collector of OpenTelemetry.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_testing::{Signal, send};

use crate::common::{Env, Http};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Takes what is posted to `listener`; answers the first posts with `refusals`, and the others with 200.
fn collect(listener: TcpListener, mut refusals: Vec<&'static str>) -> Receiver<(String, Value)> {
    let (sender, bodies) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            loop {
                let (mut head, mut len) = (String::new(), 0);
                loop {
                    let start = head.len();
                    if reader.read_line(&mut head).unwrap_or(0) == 0 {
                        break;
                    }
                    let line = head[start..].to_ascii_lowercase();
                    if let Some(value) = line.strip_prefix("content-length:") {
                        len = value.trim().parse().unwrap();
                    }
                    if line == "\r\n" {
                        break;
                    }
                }
                if head.is_empty() {
                    break;
                }
                let mut body = vec![0; len];
                reader.read_exact(&mut body).unwrap();
                let status = refusals.pop().unwrap_or("200 OK");
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}").unwrap();
                if status == "200 OK" && sender.send((head, serde_json::from_slice(&body).unwrap())).is_err()
                {
                    return;
                }
            }
        }
    });
    bodies
}

/// Returns the spans of the next batches, until one of them is called `name`.
fn spans_until(bodies: &Receiver<(String, Value)>, name: &str) -> (String, Vec<Value>) {
    let mut spans = Vec::new();
    loop {
        let (head, body) = bodies.recv_timeout(Duration::from_secs(30)).expect("a batch of spans");
        let resource = &body["resourceSpans"][0];
        assert_eq!(attribute(&resource["resource"], "service.name"), "some weir");
        spans.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().clone());
        if spans.iter().any(|span| span["name"] == name) {
            return (head, spans);
        }
    }
}

fn attribute(of: &Value, key: &str) -> String {
    let all = of["attributes"].as_array().unwrap();
    let found = all.iter().find(|attribute| attribute["key"] == key);
    let value = &found.unwrap_or_else(|| panic!("no {key} in {of}"))["value"];
    value["stringValue"].as_str().or(value["intValue"].as_str()).unwrap().to_owned()
}

#[test]
fn a_collector_that_is_silent_holds_up_no_end() {
    let env = Env::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    env.configure("traces", &format!("endpoint = \"http://{}\"", silent.local_addr().unwrap()));
    let mut server = Http::serve(&env, &[]);
    for _ in 0..700 {
        server.ask_bytes(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    }
    // It has connected.
    silent.accept().unwrap();
    send(server.0.pid(), Signal::SIGTERM);
    // Far less than a batch takes that gets no answer, with all its attempts.
    let until = Instant::now() + Duration::from_secs(15);
    while server.0.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it waits for the collector");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn spans_reach_a_collector() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.mirror_new("up", &up);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    let settings = format!(
        "endpoint = \"{endpoint}\"\nservice_name = \"some weir\"\nheaders = {{ X-Key = \"secret\" }}"
    );
    env.configure("traces", &settings);
    let shown = env.weir(&["config", "show"]);
    assert!(!shown.contains("secret") && shown.contains("(hidden)"), "{shown}");
    // It is away at first.
    let bodies = collect(listener, vec!["503 Service Unavailable"]);
    let server = Http::serve(&env, &[]);
    let parent = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01");
    let asked = format!("GET /api/v1/repositories?limit=1 HTTP/1.1\r\nHost: x\r\n{parent}\r\n\r\n");
    server.ask_bytes(asked.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes());
    // One that its client does not want to be traced.
    let unwanted = asked.replace("-01\r\n", "-00\r\n").replace(TRACE, &"7".repeat(32));
    server.ask_bytes(unwanted.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes());
    env.git(env.dir.path(), &["ls-remote", "-q", &server.url("up")]);
    let (head, spans) = spans_until(&bodies, "GET {repository}");
    assert!(head.starts_with("POST /v1/traces ") && head.to_ascii_lowercase().contains("x-key: secret"));
    let span = spans.iter().find(|span| span["traceId"] == TRACE).expect("the span of the client's trace");
    assert_eq!((&span["parentSpanId"], &span["kind"]), (&"00f067aa0ba902b7".into(), &2.into()));
    let attributes = ["url.path", "url.query", "http.response.status_code"].map(|key| attribute(span, key));
    assert_eq!(attributes, ["/api/v1/repositories", "limit=1", "200"]);
    assert!(spans.iter().all(|span| span["traceId"] != "7".repeat(32)));
    let of_git = spans.iter().find(|span| span["name"] == "GET {repository}").unwrap();
    assert_eq!(attribute(of_git, "weir.repository"), "/up");
    let times = ["startTimeUnixNano", "endTimeUnixNano"].map(|key| of_git[key].as_str().unwrap().len());
    assert_eq!(times, [19, 19]);
}

#[test]
fn mirror_sends_spans_of_visits() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.weir(&["add", "--name", "up", up.to_str().unwrap()]);
    env.weir(&["add", "--force", "--name", "gone", env.path("gone.git").to_str().unwrap()]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    env.configure("traces", &format!("endpoint = \"{endpoint}\"\nservice_name = \"some weir\""));
    let bodies = collect(listener, Vec::new());
    assert!(!env.weir_command(&["mirror"]).output().unwrap().status.success());
    let mut spans = Vec::new();
    while spans.len() < 2 {
        spans.extend(spans_until(&bodies, "visit").1);
    }
    let mut visits: Vec<String> = spans
        .iter()
        .map(|span| ["weir.repository", "weir.result"].map(|key| attribute(span, key)).join(" "))
        .collect();
    visits.sort();
    assert_eq!(visits, ["gone failed", "up updated"]);
    assert!(spans.iter().all(|span| span["kind"] == 3));
}
