//! An HTTP server of recorded answers on loopback, for tests of what asks forges.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// An answer that a server once gave.
#[derive(Clone, Debug)]
pub struct RecordedAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    is_cut: bool,
}

impl RecordedAnswer {
    /// Returns an answer with this status and body, and no type.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> RecordedAnswer {
        RecordedAnswer { status, headers: Vec::new(), body: body.into(), is_cut: false }
    }

    /// Returns a success with this JSON.
    pub fn json(body: impl ToString) -> RecordedAnswer {
        RecordedAnswer::new(200, body.to_string()).header("Content-Type", "application/json")
    }

    /// Adds a header. `{url}` in its value is replaced by the URL of the server.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> RecordedAnswer {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the connection break off within the body.
    #[must_use]
    pub fn cut(mut self) -> RecordedAnswer {
        self.is_cut = true;
        self
    }
}

/// A request that the server got.
#[derive(Clone, Debug)]
pub struct AskedRequest {
    /// Method and target: `GET /a?b`.
    pub line: String,
    /// Headers, their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

impl AskedRequest {
    /// Returns the credentials that came with it.
    pub fn authorization(&self) -> Option<&str> {
        self.headers.get("authorization").map(String::as_str)
    }
}

#[derive(Default)]
struct RecordedState {
    answers: HashMap<String, VecDeque<RecordedAnswer>>,
    asked: Vec<AskedRequest>,
}

/// The server. What it has no answer for is not found.
pub struct RecordedServer {
    address: String,
    state: Arc<Mutex<RecordedState>>,
    is_over: Arc<AtomicBool>,
}

impl RecordedServer {
    /// Starts a server without answers.
    pub fn start() -> RecordedServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (state, is_over) = (Arc::new(Mutex::new(RecordedState::default())), Arc::default());
        let server = RecordedServer { address, state, is_over };
        let (state, is_over, url) = (server.state.clone(), server.is_over.clone(), server.url());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // A client that goes away is no failure of the server.
                let _ = stream.and_then(|stream| answer(&state, &url, &stream));
            }
        });
        server
    }

    /// Returns the URL of the server, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds an answer to requests of `line` (`GET /a?b`), behind those that it has. The last one is repeated.
    /// A line that ends with a blank and an `Authorization` is for requests with that one.
    pub fn put(&self, line: &str, answer: RecordedAnswer) {
        self.state.lock().unwrap().answers.entry(line.to_owned()).or_default().push_back(answer);
    }

    /// Adds JSON as [`RecordedServer::put`] adds answers. `{url}` in it is replaced by the URL of the server.
    pub fn put_json(&self, line: &str, body: impl ToString) {
        self.put(line, RecordedAnswer::json(body));
    }

    /// Forgets all answers to requests of `line`.
    pub fn forget(&self, line: &str) {
        self.state.lock().unwrap().answers.remove(line);
    }

    /// Returns the requests since the last call.
    pub fn asked(&self) -> Vec<AskedRequest> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }

    /// Returns the lines of the requests since the last call.
    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }
}

impl Drop for RecordedServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(&self.address));
    }
}

/// Answers the one request of a connection.
fn answer(state: &Mutex<RecordedState>, url: &str, mut stream: &TcpStream) -> std::io::Result<()> {
    let Some(asked) = read(stream)? else { return Ok(()) };
    let found = {
        let mut state = state.lock().unwrap();
        let own = format!("{} {}", asked.line, asked.authorization().unwrap_or_default());
        let key = if state.answers.contains_key(&own) { own } else { asked.line.clone() };
        state.asked.push(asked);
        let answers = state.answers.get_mut(&key);
        answers.and_then(|list| if list.len() > 1 { list.pop_front() } else { list.front().cloned() })
    };
    let missing = || RecordedAnswer::new(404, r#"{"message":"Not Found"}"#);
    let RecordedAnswer { status, headers, mut body, is_cut } = found.unwrap_or_else(missing);
    if let Ok(text) = std::str::from_utf8(&body) {
        body = text.replace("{url}", url).into_bytes();
    }
    let mut head = format!("HTTP/1.1 {status} Recorded\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {}\r\n", value.replace("{url}", url));
    }
    if status != 304 {
        head += &format!("Content-Length: {}\r\n", body.len() + usize::from(is_cut));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(&body)
}

fn read(stream: &TcpStream) -> std::io::Result<Option<AskedRequest>> {
    let mut input = BufReader::new(stream);
    let mut first = String::new();
    input.read_line(&mut first)?;
    let Some((line, _)) = first.rsplit_once(' ') else { return Ok(None) };
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        input.read_line(&mut header)?;
        let Some((name, value)) = header.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Some(AskedRequest { line: line.to_owned(), headers, body }))
}
