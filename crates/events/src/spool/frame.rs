//! Frames: the unit that a spool writes at once, with a checksum (`docs/event-spool.md`).
//!
//! A frame is found again by its marker if what is before it is damaged.

/// The bytes that begin each frame.
pub(crate) const MARKER: [u8; 4] = *b"\xf7WEf";
/// The bytes of a frame before its records: marker, length of the records, number of the first, how many they
/// are, and the checksum.
pub(crate) const HEAD_BYTES: usize = 4 + 4 + 8 + 4 + 4;
/// The maximum length of the records of a frame, in bytes.
pub(crate) const RECORDS_BYTES_MAX: usize = 4 << 20;
/// The maximum number of a record: more than are ever written.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// The bytes before each record: its length.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    /// The length of the records.
    pub(crate) bytes: usize,
    /// The number of the first record.
    pub(crate) first: u64,
    /// The number of records.
    pub(crate) count: u32,
    checksum: u32,
}

impl FrameHead {
    /// Returns the head of a frame of `records`.
    pub(crate) fn of(records: &[u8], first: u64, count: u32) -> FrameHead {
        let head = FrameHead { bytes: records.len(), first, count, checksum: 0 };
        FrameHead { checksum: head.sum(records), ..head }
    }

    /// Reads a head; `None` if it is none, whatever the checksum.
    pub(crate) fn parse(bytes: &[u8]) -> Option<FrameHead> {
        let rest = bytes.get(..HEAD_BYTES)?.strip_prefix(&MARKER)?;
        let (length, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (checksum, _) = rest.split_first_chunk()?;
        let bytes = u32::from_le_bytes(*length) as usize;
        let head = FrameHead {
            bytes,
            first: u64::from_le_bytes(*first),
            count: u32::from_le_bytes(*count),
            checksum: u32::from_le_bytes(*checksum),
        };
        // No frame is empty, and numbers never run over.
        let is_sane = (1..=RECORDS_BYTES_MAX).contains(&bytes)
            && (1..=bytes / LENGTH_BYTES).contains(&(head.count as usize))
            && (1..=NUMBER_MAX).contains(&head.first);
        is_sane.then_some(head)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(MARKER);
        out.extend((self.bytes as u32).to_le_bytes());
        out.extend(self.first.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        out.extend(self.checksum.to_le_bytes());
    }

    /// Returns whether `records` are those of the frame.
    pub(crate) fn holds(&self, records: &[u8]) -> bool {
        records.len() == self.bytes && self.checksum == self.sum(records)
    }

    fn sum(&self, records: &[u8]) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&(self.bytes as u32).to_le_bytes());
        sum.update(&self.first.to_le_bytes());
        sum.update(&self.count.to_le_bytes());
        sum.update(records);
        sum.finalize()
    }
}

/// Records that the spool writes as one frame.
#[derive(Debug, Default)]
pub struct FrameRecords {
    bytes: Vec<u8>,
    count: u32,
}

impl FrameRecords {
    /// Adds a record made of `parts`. Returns false, and adds nothing, if a frame has no room for it.
    pub fn push(&mut self, parts: &[&[u8]]) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if self.bytes.len() + LENGTH_BYTES + length > RECORDS_BYTES_MAX {
            return false;
        }
        self.bytes.extend((length as u32).to_le_bytes());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.count += 1;
        true
    }

    /// Returns the number of records.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all records, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the records in the records of a frame, whose checksum was right.
pub(crate) fn split(mut records: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = records.split_first_chunk()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        records = rest;
        Some(record)
    })
}
