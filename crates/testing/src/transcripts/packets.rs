//! Packets as lines of text.
//!
//! A transcript writes a pkt-line as its text, special packets as `flush`, `delim` and `response-end`, and
//! bytes without a length as `raw` and the bytes. It writes a pack as `pack` and its number of objects, and a
//! packet of band 2 or 3 as `progress` or `fatal` and its text.

use weir_git::pktline::{self, Pkt};
use weir_git::{HashKind, plain_sha};

use crate::transcripts::history::ObjectNames;

/// Encodes a line of the client.
pub fn encode_packet(line: &str, names: &ObjectNames) -> Vec<u8> {
    let mut out = Vec::new();
    match line {
        "flush" => pktline::push_flush(&mut out),
        "delim" => pktline::push_delim(&mut out),
        "response-end" => out.extend_from_slice(b"0002"),
        _ => match line.strip_prefix("raw ") {
            Some(bytes) => out.extend_from_slice(bytes.as_bytes()),
            None => pktline::push(&mut out, format!("{}\n", names.to_ids(line)).as_bytes()),
        },
    }
    out
}

/// Decodes what the server sent into lines.
pub fn decode_packets(mut sent: &[u8], names: &ObjectNames) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pack = Vec::new();
    while !sent.is_empty() {
        if sent.starts_with(b"PACK") {
            lines.push(describe_pack(sent));
            break;
        }
        let (pkt, len) = pktline::decode(sent).expect("the server sends pkt-lines").expect("whole ones");
        sent = &sent[len..];
        if let Pkt::Line([1, data @ ..]) = pkt
            && (!pack.is_empty() || data.starts_with(b"PACK"))
        {
            pack.extend_from_slice(data);
            continue;
        }
        if !pack.is_empty() {
            lines.push(describe_pack(&std::mem::take(&mut pack)));
        }
        lines.push(match pkt {
            Pkt::Flush => "flush".to_owned(),
            Pkt::Delim => "delim".to_owned(),
            Pkt::ResponseEnd => "response-end".to_owned(),
            Pkt::Line(line) => {
                let (what, text) = match line {
                    [1, text @ ..] => ("band 1: ", text),
                    [2, text @ ..] => ("progress ", text),
                    [3, text @ ..] => ("fatal ", text),
                    text => ("", text),
                };
                let text = String::from_utf8_lossy(text.strip_suffix(b"\n").unwrap_or(text));
                names.of_ids(&format!("{what}{}", text.replace('\0', "\\0")))
            }
        });
    }
    lines
}

/// Checks the trailer of a pack, and describes the pack by its number of objects (gitformat-pack).
fn describe_pack(pack: &[u8]) -> String {
    let (body, trailer) = pack.split_at(pack.len() - HashKind::Sha1.len());
    let mut sum = plain_sha(HashKind::Sha1);
    sum.update(body);
    assert_eq!(sum.finish().as_bytes(), trailer, "the trailer of a pack is its sum");
    let count = u32::from_be_bytes(body[8..12].try_into().unwrap());
    format!("pack {count}")
}
