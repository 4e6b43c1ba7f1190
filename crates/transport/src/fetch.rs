//! Requests a pack: wants, haves, and the side-band that the pack comes in.

use std::io::{self, Read, Write};

use weir_git::pktline::{self, Pkt, PktReader};
use weir_git::{HashKind, Oid, OidSet};

use crate::error::{Error, Result};
use crate::pace::Pace;
use crate::session::{PktSource, Session, Wire, next_line};
use crate::text::printable;

/// The number of haves sent in one request.
const HAVES_A_ROUND: usize = 256;
/// The number of rounds in which more common commits are searched for.
const ROUNDS_MAX: usize = 8;
const SHALLOW_LINES_MAX: usize = 1_000_000;
/// The most bytes of keepalives and progress that may come with a pack. git sends a message a second: less
/// than a mebibyte in an hour. Without a limit an upstream could hold a visit with them.
const BESIDE_BYTES_MAX: u64 = 16 << 20;
/// The bytes of a pkt-line's length.
const PKT_HEADER_BYTES: u64 = 4;

/// Offers the commits that are here, the most useful first.
pub trait Negotiator {
    /// Returns at most `max` more ids of commits that are here; empty when there are no more.
    fn next_haves(&mut self, max: usize) -> Vec<Oid>;
}

/// A request for a pack.
pub struct FetchRequest<'a> {
    /// The ids of the wanted objects, each advertised.
    pub wants: &'a [Oid],
    /// Offers the commits that are here.
    pub negotiator: &'a mut dyn Negotiator,
    /// Receives progress messages, the latest of each packet; without it, none are requested.
    pub progress: Option<&'a mut dyn FnMut(&str)>,
}

/// A pack that is being received.
pub struct FetchedPack<'s> {
    hash: HashKind,
    source: Box<dyn PktSource + 's>,
    /// The commits whose parents the upstream does not have.
    pub shallow: Vec<Oid>,
    pending: Vec<u8>,
    used: usize,
    banded: bool,
    ended: bool,
    /// The bytes of packets that were no part of the pack.
    beside_bytes: u64,
    pace: Pace,
    progress: Option<&'s mut dyn FnMut(&str)>,
}

impl FetchedPack<'_> {
    /// Returns the hash of its object ids.
    pub fn hash(&self) -> HashKind {
        self.hash
    }
}

impl Session {
    /// Requests what `request` wants. The pack is then read from the answer, to its end.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn fetch<'s>(&'s mut self, request: FetchRequest<'s>) -> Result<FetchedPack<'s>> {
        if self.used_up {
            return Err(Error::Local("this session has fetched already".to_owned()));
        }
        if self.is_dumb() {
            return Err(Error::Local("plain files behind a web server make no packs".to_owned()));
        }
        self.has_fetched = true;
        self.pace.asks_for_pack();
        if self.version == 2 { self.fetch_v2(request) } else { self.fetch_v0(request) }
    }

    fn fetch_v2<'s>(&'s mut self, request: FetchRequest<'s>) -> Result<FetchedPack<'s>> {
        let hash = self.hash;
        let mut head = Vec::new();
        pktline::push(&mut head, b"command=fetch\n");
        self.push_common(&mut head);
        pktline::push_delim(&mut head);
        // Without haves the pack is not thin, but some servers refuse clients that do not accept thin packs.
        pktline::push(&mut head, b"thin-pack\n");
        if request.progress.is_none() {
            pktline::push(&mut head, b"no-progress\n");
        }
        pktline::push(&mut head, b"ofs-delta\n");
        for want in request.wants {
            pktline::push(&mut head, format!("want {want}\n").as_bytes());
        }
        let mut common: Vec<Oid> = Vec::new();
        let mut said = OidSet::default();
        let mut over_http = None;
        let mut round = 0;
        let shallow = loop {
            let haves =
                if round < ROUNDS_MAX { request.negotiator.next_haves(HAVES_A_ROUND) } else { Vec::new() };
            debug_assert!(haves.len() <= HAVES_A_ROUND, "{} haves", haves.len());
            let done = haves.is_empty();
            said.extend(haves.iter().copied());
            let mut body = head.clone();
            // Each v2 request is complete in itself, over streams too: known common commits are repeated.
            for have in common.iter().chain(&haves) {
                pktline::push(&mut body, format!("have {have}\n").as_bytes());
            }
            if done {
                pktline::push(&mut body, b"done\n");
            }
            pktline::push_flush(&mut body);
            let source: &mut dyn PktSource = match &mut self.wire {
                Wire::Stream(reader, writer) => {
                    writer.write_all(&body)?;
                    writer.flush()?;
                    reader
                }
                Wire::Http(http) => over_http.insert(PktReader::new(http.post(&body, &self.pace)?)),
            };
            if let Some(shallow) = read_sections(source, hash, &said, &mut common)? {
                break shallow;
            }
            if done {
                return Err(Error::Protocol("no pack follows 'done'".to_owned()));
            }
            round += 1;
        };
        let source: Box<dyn PktSource + 's> = match (over_http, &mut self.wire) {
            (Some(reader), _) => Box::new(reader),
            (None, Wire::Stream(reader, _)) => Box::new(reader),
            (None, Wire::Http(_)) => unreachable!("set in the last round"),
        };
        Ok(FetchedPack {
            hash: self.hash,
            source,
            shallow,
            pending: Vec::new(),
            used: 0,
            banded: true,
            ended: false,
            beside_bytes: 0,
            pace: self.pace.clone(),
            progress: request.progress,
        })
    }

    /// Returns the capabilities that a v0 or v1 request asks for, each after a space.
    fn early_capabilities(&self, has_progress: bool) -> String {
        let mut asked: Vec<String> = ["multi_ack_detailed", "side-band-64k", "thin-pack", "ofs-delta"]
            .into_iter()
            .filter(|capability| self.has(capability))
            .map(str::to_owned)
            .collect();
        if !self.has("side-band-64k") && self.has("side-band") {
            asked.push("side-band".to_owned());
        }
        if !has_progress && self.has("no-progress") {
            asked.push("no-progress".to_owned());
        }
        if self.has("object-format") {
            asked.push(format!("object-format={}", self.hash.name()));
        }
        if self.has("agent") {
            asked.push(format!("agent={}", self.agent));
        }
        asked.iter().map(|capability| format!(" {capability}")).collect()
    }

    /// Fetches in v0 and v1: sends everything in one request, ended by `done`.
    fn fetch_v0<'s>(&'s mut self, request: FetchRequest<'s>) -> Result<FetchedPack<'s>> {
        self.used_up = true;
        let banded = self.has("side-band-64k") || self.has("side-band");
        let mut capabilities = self.early_capabilities(request.progress.is_some());
        let mut body = Vec::new();
        for want in request.wants {
            pktline::push(&mut body, format!("want {want}{capabilities}\n").as_bytes());
            capabilities.clear();
        }
        pktline::push_flush(&mut body);
        for _ in 0..ROUNDS_MAX {
            for have in request.negotiator.next_haves(HAVES_A_ROUND) {
                pktline::push(&mut body, format!("have {have}\n").as_bytes());
            }
        }
        pktline::push(&mut body, b"done\n");
        let mut source: Box<dyn PktSource + 's> = match &mut self.wire {
            Wire::Stream(reader, writer) => {
                writer.write_all(&body)?;
                writer.flush()?;
                Box::new(reader)
            }
            Wire::Http(http) => Box::new(PktReader::new(http.post(&body, &self.pace)?)),
        };
        // At most one answer for each have, and for the flush of each round.
        for lines in 0.. {
            if lines > ROUNDS_MAX * (HAVES_A_ROUND + 1) * 2 {
                return Err(Error::Protocol("no end of acknowledgments".to_owned()));
            }
            let Some(line) = next_line(&mut *source)? else { continue };
            match line.split(|&c| c == b' ').collect::<Vec<_>>()[..] {
                [b"NAK"] | [b"ACK", _] => break,
                [b"ACK", _, _] => {}
                _ => {
                    return Err(Error::Protocol(format!(
                        "'{}' where ACK or NAK should be",
                        printable(&line)
                    )));
                }
            }
        }
        let shallow = std::mem::take(&mut self.shallow);
        Ok(FetchedPack {
            hash: self.hash,
            source,
            shallow,
            pending: Vec::new(),
            used: 0,
            banded,
            ended: false,
            beside_bytes: 0,
            pace: self.pace.clone(),
            progress: request.progress,
        })
    }
}

/// Reads sections up to the pack; returns `None` if the answer ends without a pack and another round is due.
fn read_sections(
    source: &mut dyn PktSource,
    hash: HashKind,
    said: &OidSet,
    common: &mut Vec<Oid>,
) -> Result<Option<Vec<Oid>>> {
    let mut shallow = Vec::new();
    loop {
        let Some(section) = next_line(source)? else { return Ok(None) };
        match section.as_slice() {
            b"packfile" => return Ok(Some(shallow)),
            b"acknowledgments" | b"shallow-info" | b"wanted-refs" | b"packfile-uris" => loop {
                let (text, end) = match source.next()? {
                    None => return Err(Error::HungUp("while negotiating")),
                    Some(Pkt::Delim) => break,
                    Some(Pkt::Flush | Pkt::ResponseEnd) => (Vec::new(), true),
                    Some(line) => (line.text().to_vec(), false),
                };
                if end {
                    return Ok(None);
                }
                if let Some(words) = text.strip_prefix(b"ERR ") {
                    return Err(Error::Remote(printable(words)));
                }
                if let Some(id) = text.strip_prefix(b"ACK ") {
                    let oid =
                        Oid::from_hex(hash, id).ok_or_else(|| Error::Protocol("a bad ACK".to_owned()))?;
                    // Common commits are repeated in each round, and acknowledged again.
                    if said.contains(&oid) && !common.contains(&oid) {
                        common.push(oid);
                    }
                } else if let Some(id) = text.strip_prefix(b"shallow ") {
                    shallow.push(
                        Oid::from_hex(hash, id)
                            .ok_or_else(|| Error::Protocol("a bad shallow line".to_owned()))?,
                    );
                    if shallow.len() > SHALLOW_LINES_MAX {
                        return Err(Error::Protocol("too many shallow lines".to_owned()));
                    }
                }
            },
            other => return Err(Error::Protocol(format!("unknown section '{}'", printable(other)))),
        }
    }
}

impl FetchedPack<'_> {
    /// Reads one more side-band packet; returns false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        loop {
            let payload = match self.source.next()? {
                None => return Err(Error::HungUp("in the middle of the pack").into()),
                Some(Pkt::Flush | Pkt::ResponseEnd) => return Ok(false),
                Some(Pkt::Delim) => {
                    return Err(Error::Protocol("a delimiter inside the pack".to_owned()).into());
                }
                Some(Pkt::Line(payload)) => payload,
            };
            if !matches!(payload, [1, _, ..]) {
                let bytes = payload.len() as u64 + PKT_HEADER_BYTES;
                self.pace.came_beside(bytes);
                self.beside_bytes += bytes;
                if self.beside_bytes > BESIDE_BYTES_MAX {
                    let max = BESIDE_BYTES_MAX >> 20;
                    let what = format!("more than {max} MiB of keepalives and progress came with the pack");
                    return Err(Error::Protocol(what).into());
                }
            }
            match payload.split_first() {
                Some((1, data)) => {
                    if data.is_empty() {
                        continue;
                    }
                    self.pace.pack_begins();
                    self.pending.clear();
                    self.pending.extend_from_slice(data);
                    self.used = 0;
                    return Ok(true);
                }
                Some((2, text)) => {
                    // A message that takes the place of the one before ends in a carriage return.
                    let mut messages = text.rsplit(|c| matches!(c, b'\r' | b'\n'));
                    let latest = messages.find(|message| !message.trim_ascii().is_empty());
                    if let (Some(progress), Some(latest)) = (&mut self.progress, latest) {
                        progress(&printable(latest));
                    }
                }
                Some((3, text)) => return Err(Error::Remote(printable(text)).into()),
                // Some servers keep a connection alive with empty packets.
                None => {}
                Some((band, _)) => return Err(Error::Protocol(format!("unknown side-band {band}")).into()),
            }
        }
    }
}

impl Read for FetchedPack<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.banded {
            let n = self.source.read_raw(buf)?;
            self.pace.pack_begins();
            return Ok(n);
        }
        while self.used == self.pending.len() {
            if self.ended || !self.fill()? {
                self.ended = true;
                return Ok(0);
            }
        }
        debug_assert!(self.used < self.pending.len(), "nothing is there to be read");
        let n = buf.len().min(self.pending.len() - self.used);
        buf[..n].copy_from_slice(&self.pending[self.used..self.used + n]);
        self.used += n;
        Ok(n)
    }
}
