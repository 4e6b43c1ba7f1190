//! A conversation as text, and an upstream that plays its side of one.
//!
//! A transcript writes a pkt-line as its text, and special packets as `flush`, `delim`, `response-end` and
//! `empty`. `band 1: ` marks side-band data, and `raw ` marks bytes without a length. `<a>` stands for the id
//! that repeats the digit `a`.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use weir_git::pktline::{self, Pkt};
use weir_transport::{LocalServer, LocalServerError, LocalStream};

const HEX_DIGITS: &str = "0123456789abcdef";

fn id(digit: char) -> String {
    digit.to_string().repeat(40)
}

pub fn to_ids(line: &str) -> String {
    HEX_DIGITS.chars().fold(line.to_owned(), |line, digit| line.replace(&format!("<{digit}>"), &id(digit)))
}

pub fn of_ids(line: &str) -> String {
    HEX_DIGITS.chars().fold(line.to_owned(), |line, digit| line.replace(&id(digit), &format!("<{digit}>")))
}

fn encode(line: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match line {
        "flush" => pktline::push_flush(&mut out),
        "delim" => pktline::push_delim(&mut out),
        "response-end" => out.extend_from_slice(b"0002"),
        "empty" => pktline::push(&mut out, b""),
        _ => match (line.strip_prefix("raw "), line.strip_prefix("band ")) {
            (Some(bytes), _) => out.extend_from_slice(bytes.as_bytes()),
            (_, Some(banded)) => {
                let (band, text) = banded.split_once(": ").expect("a band and what comes in it");
                let band: u8 = band.parse().expect("the number of a band");
                pktline::push(&mut out, &[&[band], text.as_bytes()].concat());
            }
            _ => {
                let line = to_ids(line).replace("\\0", "\0");
                pktline::push(&mut out, format!("{line}\n").as_bytes());
            }
        },
    }
    out
}

/// An upstream that sends the `S: ` lines of a transcript in turn, and records what the client sends.
#[derive(Clone)]
pub struct Upstream(Arc<Mutex<Script>>);

struct Script {
    /// The upstream's lines, grouped by the client's lines between them.
    turns: Vec<Vec<String>>,
    said: usize,
    written: String,
    saying: Vec<u8>,
    heard: Vec<u8>,
}

impl Upstream {
    pub fn new(text: &str) -> Upstream {
        let mut turns = vec![Vec::new()];
        for line in text.lines() {
            match line.strip_prefix("S: ") {
                Some(line) => turns.last_mut().unwrap().push(line.to_owned()),
                None if line.starts_with("C: ") && !turns.last().unwrap().is_empty() => {
                    turns.push(Vec::new())
                }
                None => {}
            }
        }
        let (saying, heard) = (Vec::new(), Vec::new());
        Upstream(Arc::new(Mutex::new(Script { turns, said: 0, written: String::new(), saying, heard })))
    }

    /// Records a result line.
    pub fn note(&self, line: &str) {
        self.0.lock().unwrap().write(line);
    }

    /// Returns the recorded conversation, followed by the lines that the upstream did not send.
    pub fn written(&self) -> String {
        let script = self.0.lock().unwrap();
        let mut written = script.written.clone();
        for line in script.turns[script.said..].iter().flatten() {
            written.push_str(&format!("not said: {line}\n"));
        }
        written
    }
}

impl Script {
    fn write(&mut self, line: &str) {
        self.written.push_str(line);
        self.written.push('\n');
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(bytes);
        while let Some((pkt, len)) = pktline::decode(&self.heard).expect("the client sends pkt-lines") {
            let line = match pkt {
                Pkt::Flush => "flush".to_owned(),
                Pkt::Delim => "delim".to_owned(),
                Pkt::ResponseEnd => "response-end".to_owned(),
                line => of_ids(&String::from_utf8_lossy(line.text())),
            };
            self.heard.drain(..len);
            self.write(&format!("C: {line}"));
        }
    }

    fn say(&mut self, buf: &mut [u8]) -> usize {
        if self.saying.is_empty() && self.said < self.turns.len() {
            let turn = std::mem::take(&mut self.turns[self.said]);
            self.said += 1;
            for line in turn {
                self.write(&format!("S: {line}"));
                self.saying.extend_from_slice(&encode(&line));
            }
        }
        let len = buf.len().min(self.saying.len());
        buf[..len].copy_from_slice(&self.saying[..len]);
        self.saying.drain(..len);
        len
    }
}

impl LocalServer for Upstream {
    fn connect(&self, _: &Path) -> Result<LocalStream, LocalServerError> {
        Ok((Box::new(self.clone()), Box::new(self.clone())))
    }
}

impl Read for Upstream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.lock().unwrap().say(buf))
    }
}

impl Write for Upstream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().hear(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
