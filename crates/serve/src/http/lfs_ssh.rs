//! Git LFS over ssh alone, as a server that only sends: it speaks `git-lfs-transfer PATH download`
//! (github.com/git-lfs/git-lfs, docs/proposals/ssh_adapter.md; git-lfs 3.0 and newer).

use std::io::{self, BufReader, Read, Write};

use weir_git::pktline::{self, PACKET_BYTES_MAX, Pkt, PktReader};
use weir_repo::{Repo, is_lfs_oid};

use crate::http::lfs::OBJECTS_MAX;

/// Bytes of one request's lines.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Bytes of an object in one packet.
const PART_BYTES: usize = PACKET_BYTES_MAX - 4;

/// A request: the command and its arguments before the delimiter, and the objects after it.
#[derive(Default)]
struct Request {
    command: String,
    arguments: Vec<String>,
    objects: Vec<String>,
}

impl Request {
    /// Reads a request; returns `None` at the end of the stream.
    fn read<R: Read>(reader: &mut PktReader<R>) -> io::Result<Option<Request>> {
        let mut request = Request::default();
        let (mut is_after, mut bytes, mut lines) = (false, 0, 0);
        loop {
            let Some(pkt) = reader.next_pkt()? else {
                return if lines == 0 && !is_after {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            };
            match pkt {
                Pkt::Flush => return Ok(Some(request)),
                Pkt::Delim if !is_after => is_after = true,
                Pkt::Line(line) => {
                    (bytes, lines) = (bytes + line.len(), lines + 1);
                    if bytes > REQUEST_BYTES_MAX || lines > 2 * OBJECTS_MAX {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            "a request that does not end",
                        ));
                    }
                    let text = String::from_utf8_lossy(pkt.text()).into_owned();
                    match (is_after, lines) {
                        (false, 1) => request.command = text,
                        (false, _) => request.arguments.push(text),
                        (true, _) => request.objects.push(text),
                    }
                }
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet out of place")),
            }
        }
    }

    fn argument(&self, key: &str) -> Option<&str> {
        self.arguments.iter().find_map(|argument| argument.strip_prefix(key)?.strip_prefix('='))
    }
}

fn push_line(out: &mut Vec<u8>, text: &str) {
    pktline::push(out, format!("{text}\n").as_bytes());
}

/// Returns a status, with a message to the user.
fn says(status: u16, words: &str) -> Vec<u8> {
    let mut out = Vec::new();
    push_line(&mut out, &format!("status {status}"));
    if !words.is_empty() {
        pktline::push_delim(&mut out);
        push_line(&mut out, words);
    }
    pktline::push_flush(&mut out);
    out
}

/// Answers a batch request. Objects that are not mirrored here are listed for download, too: this answer has
/// no other way to report them. Their download then fails.
fn batch(repo: &Repo, request: &Request) -> Vec<u8> {
    if request.argument("hash-algo").is_some_and(|hash| hash != "sha256") {
        return says(409, "objects are known by their SHA-256 only");
    }
    if request.objects.len() > OBJECTS_MAX {
        return says(413, &format!("more than {OBJECTS_MAX} objects at once"));
    }
    let mut out = Vec::new();
    push_line(&mut out, "status 200");
    pktline::push_delim(&mut out);
    for line in &request.objects {
        let mut words = line.split(' ');
        let (oid, size) =
            (words.next().unwrap_or_default(), words.next().and_then(|size| size.parse::<u64>().ok()));
        let (true, Some(size)) = (is_lfs_oid(oid), size) else {
            return says(422, &format!("no SHA-256 and size: {}", line.escape_debug()));
        };
        let size = repo.lfs_object(oid).map_or(size, |object| object.len() as u64);
        push_line(&mut out, &format!("{oid} {size} download"));
    }
    pktline::push_flush(&mut out);
    out
}

/// Serves the LFS objects of `repo` to one client until the client quits.
///
/// # Errors
/// If a stream fails; `InvalidData` if the client breaks the protocol.
pub fn serve_lfs_ssh(repo: &Repo, reader: &mut dyn Read, writer: &mut dyn Write) -> io::Result<()> {
    let mut hello = Vec::new();
    push_line(&mut hello, "version=1");
    pktline::push_flush(&mut hello);
    writer.write_all(&hello)?;
    writer.flush()?;
    let mut reader = PktReader::new(BufReader::new(reader));
    while let Some(request) = Request::read(&mut reader)? {
        let (command, operand) = request.command.split_once(' ').unwrap_or((&request.command, ""));
        let answer = match command {
            "version" if operand == "1" => says(200, ""),
            "version" => says(400, "version 1 is spoken here"),
            "batch" => batch(repo, &request),
            "get-object" => match repo.lfs_object(operand) {
                None => says(404, "it is not mirrored here"),
                Some(object) => {
                    let mut part = Vec::with_capacity(PACKET_BYTES_MAX + 64);
                    push_line(&mut part, "status 200");
                    push_line(&mut part, &format!("size={}", object.len()));
                    pktline::push_delim(&mut part);
                    for bytes in object.chunks(PART_BYTES) {
                        pktline::push(&mut part, bytes);
                        writer.write_all(&part)?;
                        part.clear();
                    }
                    pktline::push_flush(&mut part);
                    part
                }
            },
            "quit" => {
                writer.write_all(&says(200, ""))?;
                return writer.flush();
            }
            "put-object" | "verify-object" => {
                says(403, "this is a mirror: push LFS objects to where it mirrors from")
            }
            _ => says(400, "only batch, get-object and quit are known here"),
        };
        writer.write_all(&answer)?;
        writer.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_whole_and_within_bounds() {
        let read = |input: &[u8]| Request::read(&mut PktReader::new(input));
        let mut out = Vec::new();
        for text in ["batch", "transfer=ssh", "hash-algo=sha256"] {
            push_line(&mut out, text);
        }
        pktline::push_delim(&mut out);
        push_line(&mut out, "a 1");
        pktline::push_flush(&mut out);
        let request = read(&out).unwrap().unwrap();
        assert_eq!(
            (request.command.as_str(), request.argument("hash-algo"), request.argument("hash")),
            ("batch", Some("sha256"), None)
        );
        assert_eq!(request.objects, ["a 1"]);
        assert!(read(b"").unwrap().is_none());
        for cut in 1..out.len() {
            assert!(read(&out[..cut]).is_err(), "{cut}");
        }
        assert!(read(b"00010001").is_err() && read(b"0002").is_err() && read(b"zzzz").is_err());
        let endless: Vec<u8> = b"0006x\n".repeat(2 * OBJECTS_MAX + 1);
        assert!(read(&endless).is_err());
    }
}
