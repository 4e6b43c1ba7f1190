//! One block at a time, in plain Rust: for blocks and suspects too few for lanes, and to check the lanes.

use super::block::{BLOCK, Suspect};
use super::vectors::{VECTORS, conditions, differences};

/// Returns the message schedule of a block.
pub(super) fn expand(block: &[u8; BLOCK]) -> [u32; 80] {
    let mut w = [0u32; 80];
    for (w, bytes) in w.iter_mut().zip(block.as_chunks::<4>().0) {
        *w = u32::from_be_bytes(*bytes);
    }
    for t in 16..80 {
        w[t] = (w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]).rotate_left(1);
    }
    w
}

/// Returns the disturbance vectors that the conditions leave for a block with the message schedule `w`.
pub(super) fn suspect_vectors(w: &[u32; 80]) -> u32 {
    let mut mask = !0;
    macro_rules! condition {
        ($i:literal,$p:literal,$j:literal,$q:literal,$want:literal,$d:literal) => {
            // All ones where the condition is met. Written without branches, as they would be mispredicted.
            mask &= ((((w[$i] >> $p) ^ (w[$j] >> $q) ^ $want) & 1).wrapping_sub(1)) | !$d;
        };
    }
    conditions!(condition);
    mask
}

fn round(t: usize, b: u32, c: u32, d: u32) -> u32 {
    match t / 20 {
        0 => (d ^ (b & (c ^ d))).wrapping_add(0x5a82_7999),
        1 => (b ^ c ^ d).wrapping_add(0x6ed9_eba1),
        2 => ((b & c) | (d & (b | c))).wrapping_add(0x8f1b_bcdc),
        _ => (b ^ c ^ d).wrapping_add(0xca62_c1d6),
    }
}

fn step(t: usize, [a, b, c, d, e]: [u32; 5], word: u32) -> [u32; 5] {
    let new = a.rotate_left(5).wrapping_add(round(t, b, c, d)).wrapping_add(e).wrapping_add(word);
    [new, a, b.rotate_left(30), c, d]
}

fn step_back(t: usize, [new, a, b, c, d]: [u32; 5], word: u32) -> [u32; 5] {
    let b = b.rotate_right(30);
    let e = new.wrapping_sub(a.rotate_left(5)).wrapping_sub(round(t, b, c, d)).wrapping_sub(word);
    [a, b, c, d, e]
}

/// Returns whether another block, which differs as the suspected vector says, leads from some chaining value
/// to the same end.
pub(super) fn is_attack(suspect: &Suspect) -> bool {
    let words = expand(&suspect.block);
    let (_, _, _, from) = VECTORS[usize::from(suspect.vector)];
    let difference = &differences()[usize::from(suspect.vector)];
    // Both have the same state before step `from`: computed backwards from the suspect's end.
    let end: [u32; 5] = std::array::from_fn(|i| suspect.after[i].wrapping_sub(suspect.before[i]));
    let start = (from..80).rev().fold(end, |s, t| step_back(t, s, words[t]));
    let other = |t: usize| words[t] ^ difference[t];
    let chaining = (0..from).rev().fold(start, |s, t| step_back(t, s, other(t)));
    let end = (from..80).fold(start, |s, t| step(t, s, other(t)));
    (0..5).all(|i| chaining[i].wrapping_add(end[i]) == suspect.after[i])
}
