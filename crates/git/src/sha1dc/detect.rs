//! Hashes one message: consecutive blocks are the lanes.

use super::block::{BLOCK, INITIAL, LANES, Suspect, to_bytes, vectors_of};
use super::dispatch::{attacks, compress, suspects};

const GROUP: usize = BLOCK * LANES;

/// A running hash. For use only where [`super::is_supported`] is true.
#[derive(Clone)]
pub(crate) struct Sha1Detect {
    pub(super) state: [u32; 5],
    /// Bytes that do not fill a group yet, as blocks are tested a whole group at a time: the start of an
    /// object, after its header, and its end.
    partial: [u8; GROUP],
    partial_len: usize,
    bytes: u64,
    suspects: Vec<Suspect>,
    pub(super) collision: bool,
}

impl Sha1Detect {
    pub(crate) fn new() -> Sha1Detect {
        Sha1Detect::from_state(INITIAL)
    }

    pub(super) fn from_state(state: [u32; 5]) -> Sha1Detect {
        Sha1Detect {
            state,
            partial: [0; GROUP],
            partial_len: 0,
            bytes: 0,
            suspects: Vec::new(),
            collision: false,
        }
    }

    pub(crate) fn update(&mut self, mut data: &[u8]) {
        self.bytes += data.len() as u64;
        if self.partial_len > 0 {
            let n = data.len().min(GROUP - self.partial_len);
            self.partial[self.partial_len..self.partial_len + n].copy_from_slice(&data[..n]);
            self.partial_len += n;
            data = &data[n..];
            if self.partial_len < GROUP {
                return;
            }
            let group = self.partial;
            self.blocks(group.as_chunks().0);
        }
        let (groups, rest) = data.split_at(data.len() - data.len() % GROUP);
        self.blocks(groups.as_chunks().0);
        self.partial[..rest.len()].copy_from_slice(rest);
        self.partial_len = rest.len();
    }

    /// Returns the hash, and whether an attack was found.
    pub(crate) fn finish(mut self) -> ([u8; 20], bool) {
        let bits = self.bytes * 8;
        let mut tail = [[0u8; BLOCK]; LANES + 1];
        let flat = tail.as_flattened_mut();
        flat[..self.partial_len].copy_from_slice(&self.partial[..self.partial_len]);
        flat[self.partial_len] = 0x80;
        let blocks = (self.partial_len + 8) / BLOCK + 1;
        flat[blocks * BLOCK - 8..blocks * BLOCK].copy_from_slice(&bits.to_be_bytes());
        self.blocks(&tail[..blocks]);
        self.test_suspects();
        (to_bytes(&self.state), self.collision)
    }

    pub(super) fn blocks(&mut self, blocks: &[[u8; BLOCK]]) {
        for group in blocks.chunks(LANES) {
            let masks = suspects(group);
            let mut from = 0;
            for (i, &mask) in masks.iter().enumerate().take(group.len()) {
                if mask == 0 {
                    continue;
                }
                compress(&mut self.state, &group[from..i]);
                let before = self.state;
                compress(&mut self.state, &group[i..=i]);
                for vector in vectors_of(mask) {
                    self.suspects.push(Suspect { block: group[i], vector, before, after: self.state });
                    if self.suspects.len() == LANES {
                        self.test_suspects();
                    }
                }
                from = i + 1;
            }
            compress(&mut self.state, &group[from..]);
        }
    }

    pub(super) fn test_suspects(&mut self) {
        self.collision |= attacks(&self.suspects) != 0;
        self.suspects.clear();
    }
}
