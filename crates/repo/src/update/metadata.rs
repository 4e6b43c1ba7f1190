//! Keeps what a forge says around a repository (issues, pull requests, releases) as members of JSON lines, in
//! streams: `metadata/issues-00000001.jsonl.gz` and so on. A line replaces all earlier lines of its stream
//! about the same thing.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use weir_archive::{Archive, Region};
use weir_ground::Timestamp;

use crate::error::{Error, Result, corrupt};
use crate::ingest::{PackData, SpillFn, spool_reader};
use crate::repo::keys::METADATA;
use crate::repo::repository::Repo;
use crate::update::archive_repo::ArchiveRepo;

const SUFFIX: &str = ".jsonl.gz";
/// The prefix of the attribute that says where to continue a stream; the stream's name follows.
const CURSOR: &str = "metadata.";
/// The number of members at the end of a stream at which they are merged into one...
const TAIL_PARTS: usize = 16;
/// ...if each has at most this many times the bytes of all behind it. So large members are seldom rewritten.
const TAIL_GROWTH: u64 = 2;
/// A longer line is treated as damage.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// An addition to one stream.
#[derive(Clone, Copy, Debug)]
pub struct MetadataAddition<'a> {
    /// The name of the stream: small letters and underscores.
    pub stream: &'a str,
    /// Where the addition begins. It must be the cursor in the archive; otherwise the archive has changed.
    pub begins_at: Option<&'a str>,
    /// JSON objects, a line each; may be empty.
    pub lines: &'a [u8],
    /// Where to continue afterwards, a line of text.
    pub cursor: Option<&'a str>,
}

/// The fields that may tell one thing from another in a stream.
#[derive(Deserialize)]
struct Names {
    id: Option<Value>,
    tag_name: Option<Value>,
    name: Option<Value>,
}

/// Returns the key of the thing that a line is about. A line without such a field is its own key.
fn key_of(line: &[u8]) -> [u8; 16] {
    let names = serde_json::from_slice::<Names>(line).ok();
    let name = names.and_then(|n| n.id.or(n.tag_name).or(n.name));
    let sum = name.map_or_else(|| Sha256::digest(line), |name| Sha256::digest(name.to_string()));
    sum[..16].try_into().expect("a sum has 32 bytes")
}

/// Returns the members of `stream` with their numbers, in order.
fn parts<'a>(archive: &'a Archive, stream: &str) -> Vec<(u64, &'a str)> {
    let prefix = format!("{METADATA}{stream}-");
    let members = archive.state().members.range(prefix.clone()..);
    let names = members.map(|(name, _)| name.as_str()).take_while(|name| name.starts_with(&prefix));
    let mut parts: Vec<(u64, &str)> = names
        .filter_map(|name| Some((name[prefix.len()..].strip_suffix(SUFFIX)?.parse().ok()?, name)))
        .collect();
    parts.sort_unstable();
    parts
}

/// Returns where the members at the end begin that are small enough to be merged.
fn tail_of(parts: &[(u64, &str)], bytes_of: impl Fn(&str) -> u64) -> usize {
    let (mut tail, mut behind) = (parts.len(), 0);
    while let Some((_, name)) = tail.checked_sub(1).map(|n| parts[n]) {
        let bytes = bytes_of(name);
        if tail < parts.len() && bytes > TAIL_GROWTH * behind {
            break;
        }
        (tail, behind) = (tail - 1, behind + bytes);
    }
    tail
}

fn part_name(stream: &str, number: u64) -> String {
    format!("{METADATA}{stream}-{number:08}{SUFFIX}")
}

struct Bytes(Region);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The lines of a stream, in the order they were added.
struct StreamLines {
    parts: std::vec::IntoIter<(String, Region)>,
    current: Option<(String, BufReader<MultiGzDecoder<Cursor<Bytes>>>)>,
}

impl StreamLines {
    fn of(archive: &Archive, parts: &[(u64, &str)]) -> StreamLines {
        let parts: Vec<_> =
            parts.iter().filter_map(|(_, name)| Some(((*name).to_owned(), archive.member(name)?))).collect();
        StreamLines { parts: parts.into_iter(), current: None }
    }

    /// Reads the next line into `line`, without its end; returns false if there is none.
    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        loop {
            if let Some((name, reader)) = &mut self.current {
                line.clear();
                match reader.take(LINE_BYTES_MAX).read_until(b'\n', line) {
                    Ok(0) => {}
                    Ok(_) if line.pop_if(|last| *last == b'\n').is_some() => return Ok(true),
                    Ok(_) => return corrupt(name.as_str(), "a line without an end"),
                    Err(e) => return corrupt(name.as_str(), e.to_string()),
                }
            }
            match self.parts.next() {
                None => return Ok(false),
                Some((name, region)) => {
                    self.current =
                        Some((name, BufReader::new(MultiGzDecoder::new(Cursor::new(Bytes(region))))));
                }
            }
        }
    }
}

/// The last line about each thing, in the order of these lines. Read as bytes, each line has an end.
struct Latest {
    lines: StreamLines,
    /// The number of the last line about each thing.
    last: HashMap<[u8; 16], u64>,
    number: u64,
    line: Vec<u8>,
    given: usize,
}

impl Latest {
    fn of(archive: &Archive, parts: &[(u64, &str)]) -> Result<Latest> {
        let (mut lines, mut last, mut line) = (StreamLines::of(archive, parts), HashMap::new(), Vec::new());
        let mut number = 0;
        while lines.next(&mut line)? {
            last.insert(key_of(&line), number);
            number += 1;
        }
        Ok(Latest { lines: StreamLines::of(archive, parts), last, number: 0, line: Vec::new(), given: 0 })
    }

    /// Returns the next line, without its end.
    fn next(&mut self) -> Result<Option<&[u8]>> {
        while self.lines.next(&mut self.line)? {
            let number = self.number;
            self.number += 1;
            if self.last.get(&key_of(&self.line)) == Some(&number) {
                return Ok(Some(&self.line));
            }
        }
        Ok(None)
    }
}

impl Read for Latest {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.line.len() {
            self.given = 0;
            if self.next().map_err(|e| io::Error::other(e.to_string()))?.is_none() {
                self.line.clear();
                return Ok(0);
            }
            self.line.push(b'\n');
        }
        let n = buffer.len().min(self.line.len() - self.given);
        buffer[..n].copy_from_slice(&self.line[self.given..self.given + n]);
        self.given += n;
        Ok(n)
    }
}

/// Merges members of a stream into one, and leaves out lines that later lines replace.
fn folded(archive: &Archive, parts: &[(u64, &str)], spill: SpillFn<'_>) -> Result<PackData> {
    let latest = BufReader::new(Latest::of(archive, parts)?);
    spool_reader(&mut flate2::bufread::GzEncoder::new(latest, Compression::default()), spill)
        .map_err(Error::Io)
}

impl Repo {
    /// Returns the names of all streams, in order.
    pub fn metadata_streams(&self) -> Vec<String> {
        let members = self.archive().map(|archive| &archive.state().members);
        let names =
            members.into_iter().flat_map(|m| m.range(METADATA.to_owned()..)).map(|(name, _)| name.as_str());
        let streams = names
            .map_while(|name| name.strip_prefix(METADATA))
            .filter_map(|name| Some(name.rsplit_once('-')?.0.to_owned()));
        streams.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns where to continue `stream`, as the last addition recorded it.
    pub fn metadata_cursor(&self, stream: &str) -> Option<&str> {
        self.archive()?.attribute(&format!("{CURSOR}{stream}"))
    }

    /// Returns the bytes of the members of `stream`, compressed.
    pub fn metadata_bytes(&self, stream: &str) -> u64 {
        let archive = self.archive();
        let sizes = archive.iter().flat_map(|archive| {
            parts(archive, stream).into_iter().map(|(_, name)| archive.state().members[name].len)
        });
        sizes.sum()
    }

    /// Passes the last line of `stream` about each thing to `observe`, without its end, until `observe`
    /// returns false. Holds a checksum per thing in memory.
    ///
    /// # Errors
    /// If the archive is damaged.
    pub fn metadata(&self, stream: &str, observe: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let Some(archive) = self.archive() else { return Ok(()) };
        let mut latest = Latest::of(archive, &parts(archive, stream))?;
        while let Some(line) = latest.next()? {
            if !observe(line) {
                break;
            }
        }
        Ok(())
    }
}

impl ArchiveRepo {
    /// Adds to streams in one commit. Returns whether all streams were where the additions begin. If not,
    /// nothing is added.
    ///
    /// # Errors
    /// If the archive is damaged or the disk fails. Then nothing has changed.
    pub fn add_metadata(
        &mut self,
        additions: &[MetadataAddition<'_>],
        spill: SpillFn<'_>,
        time: Timestamp,
    ) -> Result<bool> {
        let Some(repo) = self.repo()? else { return Err(Error::NotFound("no archive yet".to_owned())) };
        let Some(archive) = repo.archive() else { return Ok(false) };
        if additions.iter().any(|addition| repo.metadata_cursor(addition.stream) != addition.begins_at) {
            return Ok(false);
        }
        let mut folds = Vec::new();
        for addition in additions {
            debug_assert!(addition.stream.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            let parts = parts(archive, addition.stream);
            let tail = if addition.lines.is_empty() {
                parts.len()
            } else {
                tail_of(&parts, |name| archive.state().members[name].len)
            };
            let fold = if parts.len() - tail >= TAIL_PARTS {
                Some(folded(archive, &parts[tail..], spill)?)
            } else {
                None
            };
            folds.push((tail, fold));
        }
        self.commit_with(time, |group| {
            for (MetadataAddition { stream, lines, cursor, .. }, (tail, fold)) in additions.iter().zip(&folds)
            {
                let parts = parts(archive, stream);
                let mut number = parts.last().map_or(1, |(last, _)| last + 1);
                if let Some(fold) = fold {
                    parts[*tail..].iter().for_each(|(_, name)| group.drop_member(name));
                    group.append(&part_name(stream, number), fold)?;
                    number += 1;
                }
                if !lines.is_empty() {
                    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                    encoder.write_all(lines)?;
                    group.append(&part_name(stream, number), &encoder.finish()?)?;
                }
                if let Some(cursor) = cursor {
                    group.set(&format!("{CURSOR}{stream}"), *cursor);
                }
            }
            Ok(())
        })?;
        Ok(true)
    }

    /// Takes over the streams of another archive, each as one member if `spill` is given. Without `spill`,
    /// damaged members are left out, and so is the stream's cursor, so that the stream is fetched again.
    ///
    /// # Errors
    /// If a member is damaged and `spill` is given, or if the disk fails. Then nothing has changed.
    pub fn take_metadata(&mut self, repo: &Repo, spill: Option<SpillFn<'_>>, time: Timestamp) -> Result<()> {
        let Some(archive) = repo.archive() else { return Ok(()) };
        let mut members: Vec<(String, PackData)> = Vec::new();
        let mut attributes: Vec<(String, String)> = Vec::new();
        let mut regions: Vec<(&str, Region)> = Vec::new();
        for stream in repo.metadata_streams() {
            let parts = parts(archive, &stream);
            let mut is_whole = true;
            match spill {
                Some(spill) if parts.len() > 1 => {
                    members.push((part_name(&stream, 1), folded(archive, &parts, spill)?))
                }
                _ => {
                    for (_, name) in parts {
                        let Some(region) = archive.member(name) else { continue };
                        let is_right = <[u8; 32]>::from(Sha256::digest(&*region))
                            == archive.state().members[name].sha256;
                        if !is_right && spill.is_some() {
                            return corrupt(name, "it is not what was written");
                        }
                        is_whole &= is_right;
                        regions.extend(is_right.then_some((name, region)));
                    }
                }
            }
            if let Some(cursor) = repo.metadata_cursor(&stream).filter(|_| is_whole) {
                attributes.push((format!("{CURSOR}{stream}"), cursor.to_owned()));
            }
        }
        let mut all: Vec<(&str, &[u8])> =
            members.iter().map(|(name, data)| (name.as_str(), &**data)).collect();
        all.extend(regions.iter().map(|(name, region)| (*name, &**region)));
        if all.is_empty() { Ok(()) } else { self.commit_members(&all, &attributes, time) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many members are added, few remain, and each byte is rewritten few times.
    #[test]
    fn members_grow_like_the_digits_of_a_number() {
        let (mut parts, mut written): (Vec<u64>, u64) = (Vec::new(), 0);
        for _ in 0..10_000 {
            let names: Vec<String> = parts.iter().map(u64::to_string).collect();
            let named: Vec<(u64, &str)> = names.iter().map(|name| (0, name.as_str())).collect();
            let tail = tail_of(&named, |name| name.parse().unwrap());
            if parts.len() - tail >= TAIL_PARTS {
                let sum = parts.drain(tail..).sum();
                parts.push(sum);
                written += sum;
            }
            parts.push(100);
        }
        assert!(parts.len() < 60 && written < 10 * 10_000 * 100, "{parts:?} {written}");
    }

    #[test]
    fn what_lines_are_about() {
        let same = |a: &str, b: &str| key_of(a.as_bytes()) == key_of(b.as_bytes());
        assert!(same(r#"{"id":7,"title":"a"}"#, r#"{"title":"b","id":7}"#));
        assert!(!same(r#"{"id":7}"#, r#"{"id":"7"}"#));
        assert!(same(r#"{"tag_name":"v1","name":"One"}"#, r#"{"tag_name":"v1","name":"one"}"#));
        assert!(!same(r#"{"name":"bug"}"#, r#"{"name":"feature"}"#));
        assert!(!same(r#"{"x":1}"#, r#"{"x":2}"#) && same("{", "{") && !same("{", "["));
    }
}
