//! Clones over smart HTTP/1.1 (gitprotocol-http, protocol v2) and discards what it reads. Like git, it sends
//! three requests on one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir_git::pktline::{Pkt, PktReader, push, push_delim, push_flush};

use crate::{Arguments, Cloned, Error};

/// Sends a request and returns the body of its answer.
fn ask(stream: &mut BufReader<TcpStream>, head: &str, body: &[u8]) -> Result<Vec<u8>, Error> {
    let mut request = head.as_bytes().to_vec();
    if !body.is_empty() {
        request.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body);
    stream.get_mut().write_all(&request)?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 200 ") {
        return Err(format!("refused: {}", line.trim_end()).into());
    }
    let (mut length, mut chunked) = (None, false);
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let header = line.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = Some(value.trim().parse::<usize>()?);
        }
        chunked |= header.starts_with("transfer-encoding:") && header.ends_with("chunked");
    }
    let mut answer = Vec::new();
    if chunked {
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let len = usize::from_str_radix(line.trim_end(), 16)?;
            let start = answer.len();
            answer.resize(start + len + 2, 0);
            stream.read_exact(&mut answer[start..])?;
            answer.truncate(start + len);
            if len == 0 {
                return Ok(answer);
            }
        }
    }
    answer.resize(length.ok_or("an answer without a length")?, 0);
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

pub(crate) fn clone_once(a: &Arguments) -> Result<Cloned, Error> {
    let started = Instant::now();
    let stream = TcpStream::connect(&a.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut stream = BufReader::with_capacity(256 << 10, stream);
    let common = format!("Host: {}\r\nGit-Protocol: version=2\r\n", a.address);
    ask(&mut stream, &format!("GET {}/info/refs?service=git-upload-pack HTTP/1.1\r\n{common}", a.path), b"")?;
    let post = format!(
        "POST {}/git-upload-pack HTTP/1.1\r\n{common}Content-Type: application/x-git-upload-pack-request\r\n",
        a.path
    );
    let mut body = Vec::new();
    push(&mut body, b"command=ls-refs\n");
    push_delim(&mut body);
    for line in [
        &b"peel\n"[..],
        b"symrefs\n",
        b"ref-prefix HEAD\n",
        b"ref-prefix refs/heads/\n",
        b"ref-prefix refs/tags/\n",
    ] {
        push(&mut body, line);
    }
    push_flush(&mut body);
    let refs = ask(&mut stream, &post, &body)?;
    let mut reader = PktReader::new(&refs[..]);
    let mut wants = Vec::new();
    while let Some(line @ Pkt::Line(_)) = reader.next_pkt()? {
        wants.push(String::from_utf8_lossy(&line.text()[..40]).into_owned());
    }
    wants.sort();
    wants.dedup();
    body.clear();
    push(&mut body, b"command=fetch");
    push(&mut body, b"object-format=sha1");
    push_delim(&mut body);
    for argument in ["thin-pack", "no-progress", "ofs-delta"] {
        push(&mut body, argument.as_bytes());
    }
    for want in &wants {
        push(&mut body, format!("want {want}\n").as_bytes());
    }
    push(&mut body, b"done\n");
    push_flush(&mut body);
    let pack = ask(&mut stream, &post, &body)?;
    if !pack.windows(5).take(100).any(|w| w == b"\x01PACK") || !pack.ends_with(b"0000") {
        return Err("no pack".into());
    }
    Ok(Cloned { bytes: pack.len() as u64, first_byte_s: started.elapsed().as_secs_f64() })
}
