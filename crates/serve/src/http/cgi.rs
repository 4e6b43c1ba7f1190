//! CGI (RFC 3875), as in git-http-backend: one request from the environment and standard input.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Buf, Bytes};
use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue, IF_NONE_MATCH, IF_RANGE,
    RANGE,
};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};

use crate::http::body::ResponseBody;
use crate::http::front::GIT_PROTOCOL;
use crate::server::daemon::Daemon;

/// Variables that become headers.
const HEADERS: [(&str, HeaderName); 8] = [
    ("CONTENT_TYPE", CONTENT_TYPE),
    ("HTTP_CONTENT_ENCODING", CONTENT_ENCODING),
    ("HTTP_GIT_PROTOCOL", GIT_PROTOCOL),
    ("HTTP_HOST", HOST),
    ("HTTP_AUTHORIZATION", AUTHORIZATION),
    ("HTTP_RANGE", RANGE),
    ("HTTP_IF_RANGE", IF_RANGE),
    ("HTTP_IF_NONE_MATCH", IF_NONE_MATCH),
];

/// Answers the request that `variables` and `input` describe, on `output`. Call it inside a runtime.
///
/// # Errors
/// If a stream fails, or if `CONTENT_LENGTH` is malformed, which the client is told, too.
pub async fn serve_cgi(
    daemon: Arc<Daemon>,
    variables: &HashMap<String, String>,
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> io::Result<()> {
    let get = |name: &str| variables.get(name).map(String::as_str).filter(|v| !v.is_empty());
    let mut bad =
        |words: &str| write!(output, "Status: 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n{words}\n");
    let (Some(method), Some(path)) = (get("REQUEST_METHOD"), get("PATH_INFO")) else {
        return bad("REQUEST_METHOD and PATH_INFO must be set: this is a CGI program");
    };
    let encoded = encoded(path);
    let target = get("QUERY_STRING").map_or(encoded.clone(), |query| format!("{encoded}?{query}"));
    let (Ok(method), Ok(uri)) = (Method::from_bytes(method.as_bytes()), target.parse::<Uri>()) else {
        return bad("REQUEST_METHOD or PATH_INFO is malformed");
    };
    // Without a length, the web server ends the input where the request ends.
    let length = match get("CONTENT_LENGTH").map(str::parse::<u64>) {
        None => u64::MAX,
        Some(Ok(length)) if i64::try_from(length).is_ok() => length,
        Some(_) => {
            bad("CONTENT_LENGTH is no length")?;
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "CONTENT_LENGTH is no length"));
        }
    };
    let mut body = Vec::new();
    if method == Method::POST {
        let bytes_max = daemon.options.limits.request_bytes_max as u64 + 1;
        input.take(length.min(bytes_max)).read_to_end(&mut body)?;
        if length != u64::MAX && (body.len() as u64) < length.min(bytes_max) {
            return bad("the request is shorter than CONTENT_LENGTH says");
        }
    }
    let mut request = Request::new(Full::new(Bytes::from(body)));
    (*request.method_mut(), *request.uri_mut()) = (method, uri);
    *request.version_mut() =
        if get("SERVER_PROTOCOL") == Some("HTTP/1.0") { Version::HTTP_10 } else { Version::HTTP_11 };
    for (variable, header) in HEADERS {
        if let Some(value) = get(variable).and_then(|v| HeaderValue::from_str(v).ok()) {
            request.headers_mut().insert(header, value);
        }
    }
    let address = get("REMOTE_ADDR").and_then(|a| a.parse::<IpAddr>().ok());
    let port = get("REMOTE_PORT").and_then(|p| p.parse().ok()).unwrap_or(0);
    let is_head = *request.method() == Method::HEAD;
    let answer = daemon.answer_http(request, address.map(|a| SocketAddr::new(a, port))).await;
    write_answer(answer, is_head, output).await
}

/// Writes `answer` as the response of a CGI program (RFC 3875, section 6), without its body if `is_head`.
async fn write_answer(
    answer: Response<ResponseBody>,
    is_head: bool,
    output: &mut dyn Write,
) -> io::Result<()> {
    let (head, mut answer) = answer.into_parts();
    if head.status != StatusCode::OK {
        write!(
            output,
            "Status: {} {}\r\n",
            head.status.as_str(),
            head.status.canonical_reason().unwrap_or("")
        )?;
    }
    for (name, value) in &head.headers {
        write!(output, "{name}: ")?;
        output.write_all(value.as_bytes())?;
        output.write_all(b"\r\n")?;
    }
    output.write_all(b"\r\n")?;
    while let Some(frame) = answer.frame().await.filter(|_| !is_head) {
        if let Ok(mut data) = frame?.into_data() {
            while data.has_remaining() {
                let n = data.chunk().len();
                output.write_all(data.chunk())?;
                data.advance(n);
            }
            output.flush()?;
        }
    }
    output.flush()
}

/// Returns `path` encoded as in a URL: the web server has decoded it.
fn encoded(path: &str) -> String {
    let of = |c: u8| match c {
        c if c.is_ascii_alphanumeric() || b"/-_.~".contains(&c) => (c as char).to_string(),
        c => format!("%{c:02X}"),
    };
    path.bytes().map(of).collect()
}
