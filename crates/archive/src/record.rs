//! Commit records (section 4): the small text member that makes a group count.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::sum::{Sha256Sum, parse_sum};
use crate::tar;
use weir_ground::{Epoch, Timestamp, hex};

/// The place of a record, and the checksum that identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace {
    /// Where its data starts, in bytes from the start of the archive.
    pub offset: u64,
    /// Bytes of data.
    pub len: u64,
    /// The checksum in its `end` line.
    pub sum: Sha256Sum,
}

impl RecordPlace {
    /// Returns where it ends: the next group starts there.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// The name of the member that holds a record.
pub(crate) const RECORD_NAME: &str = "weir/commit";
/// The longest record that is read, in bytes: enough for some hundred thousand members.
pub(crate) const RECORD_BYTES_MAX: u64 = 64 << 20;
/// The first bytes of every record, in all versions.
pub(crate) const MAGIC: &str = "weir-commit ";
/// The version of new archives. A commit to an older archive keeps the version of that archive.
pub(crate) const VERSION: u32 = 2;
/// The oldest version that is read.
const VERSION_MIN: u32 = 1;
/// `end <12 digits> <64 hex>\n`.
pub(crate) const END_BYTES: usize = 4 + 12 + 1 + 64 + 1;

/// A commit record. Offsets are in bytes from the start of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Version of the format.
    pub version: u32,
    /// Number of this commit, higher than the one before. A compaction continues the count.
    pub seq: u64,
    /// The number of the lease under which it was written; 0 if there was none.
    pub epoch: Epoch,
    /// The time of the commit, in seconds since 1970, as the writer gave it.
    pub time: Timestamp,
    /// Where the group starts.
    pub start: u64,
    /// The record before: offset and length of its data, and the checksum in its `end` line.
    pub previous: Option<RecordPlace>,
    /// Whether this record repeats every live member and attribute, so that reading may stop here.
    pub full: bool,
    /// Whether the group's data was durable before this record was written.
    pub synced: bool,
    /// Checksum of the group's bytes that are not file data: headers and pax data, in order.
    pub frame: Sha256Sum,
    /// Members: of this group, or all live ones if `full`.
    pub members: Vec<(String, u64, u64, Sha256Sum)>,
    /// Names of members that are no longer live.
    pub dropped: Vec<String>,
    /// Attributes set.
    pub set: Vec<(String, String)>,
    /// Attributes removed.
    pub unset: Vec<String>,
}

impl Record {
    /// Returns the record's data, padded to whole blocks, and the checksum in its last line.
    pub(crate) fn encode(&self) -> (Vec<u8>, Sha256Sum) {
        let mut t = String::with_capacity(1024);
        let yes = |b| if b { "yes" } else { "no" };
        let Record { version, seq, epoch, start, .. } = self;
        let time = self.time.as_u64();
        writeln!(t, "{MAGIC}{version}\nseq {seq}\nepoch {epoch}\ntime {time}\nstart {start}")
            .expect("to a string");
        match &self.previous {
            Some(RecordPlace { offset, len, sum }) => writeln!(t, "previous {offset} {len} {}", hex(sum)),
            None => writeln!(t, "previous none"),
        }
        .expect("to a string");
        writeln!(t, "full {}\nsynced {}\nframe {}", yes(self.full), yes(self.synced), hex(&self.frame))
            .expect("to a string");
        for (name, offset, len, sum) in &self.members {
            writeln!(t, "member {offset} {len} {} {name}", hex(sum)).expect("to a string");
        }
        for name in &self.dropped {
            writeln!(t, "drop {name}").expect("to a string");
        }
        for (key, value) in &self.set {
            writeln!(t, "set {key} {value}").expect("to a string");
        }
        for key in &self.unset {
            writeln!(t, "unset {key}").expect("to a string");
        }
        let total = tar::padded((t.len() + END_BYTES) as u64) as usize;
        let mut data = t.into_bytes();
        data.resize(total - END_BYTES, b'\n');
        let sum: Sha256Sum = Sha256::digest(&data).into();
        data.extend_from_slice(format!("end {total:012} {}\n", hex(&sum)).as_bytes());
        (data, sum)
    }

    /// Returns the length of the record that ends in `tail`, the last bytes before a block boundary.
    pub(crate) fn length_from_tail(tail: &[u8; END_BYTES]) -> Option<u64> {
        let text = std::str::from_utf8(tail).ok()?.strip_prefix("end ")?.strip_suffix('\n')?;
        let (len, sum) = text.split_once(' ')?;
        parse_sum(sum)?;
        let well_formed = len.len() == 12 && len.bytes().all(|c| c.is_ascii_digit());
        let len: u64 = len.parse().ok().filter(|_| well_formed)?;
        ((512..=RECORD_BYTES_MAX).contains(&len) && len.is_multiple_of(512)).then_some(len)
    }

    /// Returns the text of a record, whose whole data is `data`, before its end line, and its checksum;
    /// `None` if it is not a record, or its checksum is wrong.
    fn checked_text(data: &[u8]) -> Option<(&str, Sha256Sum)> {
        let (body, tail) = data.split_at_checked(data.len().checked_sub(END_BYTES)?)?;
        let len = Record::length_from_tail(tail.try_into().ok()?)?;
        let sum = parse_sum(std::str::from_utf8(&tail[END_BYTES - 65..END_BYTES - 1]).ok()?)?;
        if len != data.len() as u64 || sum != Sha256Sum::from(Sha256::digest(body)) {
            return None;
        }
        Some((std::str::from_utf8(body).ok()?, sum))
    }

    /// Returns the version of the record whose whole data is `data`, if it is later than those that are read.
    pub(crate) fn later_version(data: &[u8]) -> Option<u32> {
        let version = Record::checked_text(data)?.0.lines().next()?.strip_prefix(MAGIC)?.parse().ok()?;
        (version > VERSION).then_some(version)
    }

    /// Parses the whole data of a record. Returns `None` if it is not a record, or its checksum is wrong.
    pub(crate) fn decode(data: &[u8]) -> Option<(Record, Sha256Sum)> {
        let (text, sum) = Record::checked_text(data)?;
        let mut lines = text.lines();
        let version = lines.next()?.strip_prefix(MAGIC)?.parse().ok()?;
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return None;
        }
        let mut field = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let yes = |t: &str| match t {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        let mut record = Record {
            version,
            seq: field("seq")?.parse().ok()?,
            epoch: field("epoch")?.parse().ok()?,
            time: field("time")?.parse::<u64>().ok()?.into(),
            start: field("start")?.parse().ok()?,
            previous: match field("previous")? {
                "none" => None,
                text => {
                    let mut words = text.split(' ');
                    let (offset, len) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                    Some(RecordPlace { offset, len, sum: parse_sum(words.next()?)? })
                }
            },
            full: yes(field("full")?)?,
            synced: yes(field("synced")?)?,
            frame: parse_sum(field("frame")?)?,
            members: Vec::new(),
            dropped: Vec::new(),
            set: Vec::new(),
            unset: Vec::new(),
        };
        for line in lines.filter(|l| !l.is_empty()) {
            let (key, rest) = line.split_once(' ')?;
            match key {
                "member" => {
                    let mut words = rest.splitn(4, ' ');
                    let offset = words.next()?.parse().ok()?;
                    let len = words.next()?.parse().ok()?;
                    let sum = parse_sum(words.next()?)?;
                    record.members.push((words.next()?.to_owned(), offset, len, sum));
                }
                "drop" => record.dropped.push(rest.to_owned()),
                "set" => {
                    let (key, value) = rest.split_once(' ')?;
                    record.set.push((key.to_owned(), value.to_owned()));
                }
                "unset" => record.unset.push(rest.to_owned()),
                _ => return None,
            }
        }
        Some((record, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sample() -> Record {
        Record {
            version: VERSION,
            seq: 7,
            epoch: Epoch(3),
            time: Timestamp(1_790_000_000),
            start: 4096,
            previous: Some(RecordPlace { offset: 3072, len: 1024, sum: [9; 32] }),
            full: false,
            synced: true,
            frame: [1; 32],
            members: vec![("packed-refs".into(), 8192, 100, [2; 32])],
            dropped: vec!["objects/x".into()],
            set: vec![("body.1".into(), "some value".into())],
            unset: vec!["clone.heads".into()],
        }
    }

    #[test]
    fn encoding_comes_back_and_any_flipped_bit_is_noticed() {
        let (data, sum) = sample().encode();
        assert_eq!(data.len() % 512, 0);
        assert_eq!(Record::decode(&data), Some((sample(), sum)));
        for i in 0..data.len() {
            let mut bad = data.clone();
            bad[i] ^= 0x10;
            assert!(Record::decode(&bad).is_none(), "bit flipped in byte {i}");
        }
        for cut in [0, 1, 81, 82, 511, data.len() - 1] {
            assert!(Record::decode(&data[..cut]).is_none());
        }
    }
}
