//! A client of the API.

use serde_json::Value;

use crate::common::Http;

/// An answer: its status, its head, and its body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.head))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends a request with more header lines and a body.
pub(crate) fn send(server: &Http, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let answer = server.ask_bytes(
        format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\
            {headers}\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a whole head") + 4;
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer[end..].to_vec();
    let body = if head.contains("transfer-encoding: chunked") { unchunked(&body) } else { body };
    Answer { status, head, body }
}

pub(crate) fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|w| w == b"\r\n").expect("the length of a chunk");
        let len = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if len == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + len]);
        body = &body[end + 2 + len + 2..];
    }
}

pub(crate) fn get(server: &Http, path: &str) -> Value {
    let answer = send(server, "GET", path, "", "");
    assert_eq!(answer.status, 200, "{path}: {}{}", answer.head, String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

/// Returns the status and the words of a problem.
pub(crate) fn problem(server: &Http, path: &str) -> (u16, String) {
    let answer = send(server, "GET", path, "", "");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}: {}", answer.head);
    let problem = answer.json();
    assert_eq!(problem["status"], answer.status);
    (answer.status, problem["detail"].as_str().unwrap().to_owned())
}

/// Returns all items of a list, page by page.
pub(crate) fn all(server: &Http, path: &str, limit: usize) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    loop {
        let mark = if path.contains('?') { '&' } else { '?' };
        let page = get(server, &format!("{path}{mark}limit={limit}{cursor}"));
        let of_page = page["items"].as_array().unwrap();
        assert!(of_page.len() <= limit);
        items.extend(of_page.iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

pub(crate) fn texts(items: &[Value], key: &str) -> Vec<String> {
    items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}
