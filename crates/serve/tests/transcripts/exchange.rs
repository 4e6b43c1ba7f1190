//! Requests and answers as text.
//!
//! A transcript has each line of a head as it was sent, but for the `date` of an answer. It has a body as
//! pkt-lines, if the content type is one of git's (`weir_testing::decode_packets`), as lines of text, or as
//! `N bytes`. The body of a request may have `raw TEXT`, and `bytes N` for N bytes. `gzip` compresses all
//! lines that follow; `chunks N` sends them in chunks of N bytes. The player adds a `Content-Length`, unless
//! the head has one. `S: end` says that the server has closed the connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use weir_testing::{ObjectNames, decode_packets, encode_packet};

/// The most bytes of an answer that stand as text.
const TEXT_BYTES_MAX: usize = 4096;

/// A request, as a transcript has it.
#[derive(Default)]
pub struct TestRequest<'t> {
    /// All its lines, with their marks.
    pub lines: Vec<&'t str>,
    head: Vec<&'t str>,
    body: Vec<&'t str>,
    /// Whether the server is known to take the body. If it refuses the request by its head, it closes the
    /// connection, and what it has answered is lost if more arrives then.
    is_taken: bool,
}

/// Returns the requests of a transcript.
pub fn requests_of(text: &str) -> Vec<TestRequest<'_>> {
    let mut requests: Vec<TestRequest<'_>> = Vec::new();
    let mut is_new = true;
    for line in text.lines() {
        let head = line.strip_prefix("C: ");
        let body = line.strip_prefix("C> ");
        if head.is_none() && body.is_none() {
            is_new = true;
            if let Some(request) = requests.last_mut() {
                request.is_taken |= line.starts_with("S: HTTP/1.1 200");
            }
            continue;
        }
        if std::mem::take(&mut is_new) {
            requests.push(TestRequest::default());
        }
        let request = requests.last_mut().expect("begun above");
        request.lines.push(line);
        request.head.extend(head);
        request.body.extend(body);
    }
    requests
}

impl TestRequest<'_> {
    /// Returns the bytes of the request, in pieces of `piece` bytes.
    pub fn to_pieces(&self, names: &ObjectNames, piece: usize) -> Vec<Vec<u8>> {
        let (head, body) = self.to_bytes(names);
        if self.is_taken {
            return [head, body].concat().chunks(piece).map(<[u8]>::to_vec).collect();
        }
        let mut pieces: Vec<Vec<u8>> = head.chunks(piece).map(<[u8]>::to_vec).collect();
        pieces.last_mut().expect("no head is empty").extend(body);
        pieces
    }

    fn to_bytes(&self, names: &ObjectNames) -> (Vec<u8>, Vec<u8>) {
        let body = encode_body(&self.body, names);
        let mut bytes = Vec::new();
        for line in &self.head {
            bytes.extend_from_slice(names.to_ids(line).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        let says = |name: &str| self.head.iter().any(|line| line.to_ascii_lowercase().starts_with(name));
        if !body.is_empty() && !says("content-length:") && !says("transfer-encoding:") {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        (bytes, body)
    }

    fn is_head(&self) -> bool {
        self.head.first().is_some_and(|line| line.starts_with("HEAD "))
    }
}

fn encode_body(lines: &[&str], names: &ObjectNames) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let rest = || encode_body(&lines[at + 1..], names);
        if *line == "gzip" {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&rest()).unwrap();
            bytes.extend(packed.finish().unwrap());
            break;
        }
        if let Some(length) = line.strip_prefix("chunks ") {
            for chunk in rest().chunks(length.parse().expect("a number")) {
                bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                bytes.extend_from_slice(&[chunk, b"\r\n"].concat());
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            break;
        }
        match line.strip_prefix("bytes ") {
            Some(count) => bytes.resize(bytes.len() + count.parse::<usize>().expect("a number"), b'x'),
            None => bytes.extend(encode_packet(line, names)),
        }
    }
    bytes
}

/// A connection to the server.
pub struct Connection {
    stream: TcpStream,
    /// Bytes behind the last answer.
    rest: Vec<u8>,
}

impl Connection {
    pub fn open(port: u16) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Connection { stream, rest: Vec::new() }
    }

    /// Sends a request.
    pub fn send(&mut self, pieces: &[Vec<u8>]) {
        pieces.iter().for_each(|piece| self.stream.write_all(piece).unwrap());
    }

    /// Returns the answer to `request`, as a transcript has it.
    pub fn answer(&mut self, request: &TestRequest<'_>, names: &ObjectNames) -> String {
        let Some(head) = self.read_head() else { return "S: end\n".to_owned() };
        let value = |name: &str| {
            let values = head.lines().filter_map(|line| line.split_once(": "));
            values.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
        };
        let shown = head.lines().filter(|line| !line.starts_with("date: "));
        let mut out: String = shown.map(|line| format!("S: {}\n", names.of_ids(line))).collect();
        if head.starts_with("HTTP/1.1 1") {
            // The answer follows.
            return out + &self.answer(request, names);
        }
        let has_none = request.is_head() || head.starts_with("HTTP/1.1 304");
        let body = match (value("content-length"), value("transfer-encoding")) {
            _ if has_none => Vec::new(),
            (Some(length), _) => self.read_exactly(length.parse().unwrap()),
            (None, Some(_)) => self.read_chunks(),
            (None, None) => self.read_all(),
        };
        for line in describe(&body, &value("content-type").unwrap_or_default(), names) {
            out.push_str(&format!("S> {line}\n"));
        }
        if value("connection").as_deref() == Some("close") || head.starts_with("HTTP/1.0") {
            assert_eq!(self.read_all(), b"", "the server closes the connection");
            out.push_str("S: end\n");
        }
        out
    }

    /// Reads more; false at the end.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.rest.extend_from_slice(&buffer[..count]);
                true
            }
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(e) => panic!("no answer: {e}"),
        }
    }

    /// Reads up to `end`, and returns the bytes before it.
    fn read_until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.rest.windows(end.len()).position(|bytes| bytes == end) {
                let found = self.rest[..at].to_vec();
                self.rest.drain(..at + end.len());
                return Some(found);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn read_head(&mut self) -> Option<String> {
        let head = self.read_until(b"\r\n\r\n")?;
        Some(String::from_utf8(head).unwrap().replace("\r\n", "\n"))
    }

    fn read_exactly(&mut self, length: usize) -> Vec<u8> {
        while self.rest.len() < length {
            assert!(self.fill(), "the answer is cut");
        }
        self.rest.drain(..length).collect()
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let length = self.read_until(b"\r\n").expect("the length of a chunk");
            let length = usize::from_str_radix(std::str::from_utf8(&length).unwrap(), 16).unwrap();
            bytes.extend(self.read_exactly(length));
            assert_eq!(self.read_exactly(2), b"\r\n");
            if length == 0 {
                return bytes;
            }
        }
    }

    fn read_all(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.rest)
    }
}

/// Returns the lines that stand for a body of a content type.
fn describe(body: &[u8], content_type: &str, names: &ObjectNames) -> Vec<String> {
    if content_type.starts_with("application/x-git-upload-pack") {
        return decode_packets(body, names);
    }
    match std::str::from_utf8(body) {
        Ok(text) if body.len() <= TEXT_BYTES_MAX => {
            text.lines().map(|line| names.of_ids(line).replace('\t', "\\t")).collect()
        }
        _ => vec![format!("{} bytes", body.len())],
    }
}
