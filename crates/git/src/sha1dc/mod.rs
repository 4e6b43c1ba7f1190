//! SHA-1 with collision detection, many blocks at a time.
//!
//! Marc Stevens' counter-cryptanalysis (CRYPTO 2013) tests each block against the 32 known disturbance
//! vectors; the unavoidable bit conditions (Stevens and Shumow, USENIX Security 2017) rule nearly all of them
//! out from the expanded message alone. Those conditions do not depend on the chaining value, so 16 blocks
//! are tested at once. Of one message (`Sha1Detect`) these are blocks in a row, and the hash runs on the
//! processor's SHA instructions; of many (`Batch`) each lane is a message, hashed in the same pass. What
//! passes is recompressed, 16 at a time, as their `sha1dc` does.
//!
//! Measured on this project's usual machine, taking in git/git: 75 % of the time went into the `sha1-checked`
//! crate, which does the same a block and a word at a time. That crate is still what runs where the processor
//! has neither AVX-512 nor AVX2, and what the tests compare with.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod vectors;

pub(crate) use batch::Batch;
use vectors::{VECTORS, conditions, differences};

const BLOCK: usize = 64;
const LANES: usize = 16;
const GROUP: usize = BLOCK * LANES;
/// A word of each lane.
type Words = [u32; LANES];

/// Whether this processor has what [`Sha1Detect`] and [`Batch`] need.
pub(crate) fn is_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        has_avx512() || is_x86_feature_detected!("avx2")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// A running hash. Only where [`is_supported`].
#[derive(Clone)]
pub(crate) struct Sha1Detect {
    state: [u32; 5],
    /// Whole groups of blocks are tested at a time: the start of an object, after its header, and its end are
    /// gathered here.
    partial: [u8; GROUP],
    partial_len: usize,
    bytes: u64,
    suspects: Vec<Suspect>,
    collision: bool,
}

/// A block that the conditions do not clear of one disturbance vector.
#[derive(Clone)]
struct Suspect {
    block: [u8; BLOCK],
    vector: u8,
    /// Chaining values.
    before: [u32; 5],
    after: [u32; 5],
}

impl Sha1Detect {
    pub(crate) fn new() -> Sha1Detect {
        Sha1Detect::from_state(INITIAL)
    }

    fn from_state(state: [u32; 5]) -> Sha1Detect {
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

    /// The hash, and whether an attack was found.
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

    fn blocks(&mut self, blocks: &[[u8; BLOCK]]) {
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

    fn test_suspects(&mut self) {
        self.collision |= attacks(&self.suspects) != 0;
        self.suspects.clear();
    }
}

const INITIAL: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];

fn to_bytes(state: &[u32; 5]) -> [u8; 20] {
    let mut out = [0; 20];
    for (o, s) in out.chunks_exact_mut(4).zip(state) {
        o.copy_from_slice(&s.to_be_bytes());
    }
    out
}

/// The numbers of the bits in a mask.
fn vectors_of(mut mask: u32) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let lowest = (mask != 0).then_some(mask.trailing_zeros() as u8)?;
        mask &= mask - 1;
        Some(lowest)
    })
}

fn compress(state: &mut [u32; 5], blocks: &[[u8; BLOCK]]) {
    if !blocks.is_empty() {
        // The `sha1` crate's compression function, on SHA-NI where there is one.
        let blocks: &[sha1::digest::generic_array::GenericArray<u8, _>] = cast(blocks);
        sha1::compress(state, blocks);
    }
}

fn cast(
    blocks: &[[u8; BLOCK]],
) -> &[sha1::digest::generic_array::GenericArray<u8, sha1::digest::typenum::U64>] {
    // SAFETY: a GenericArray<u8, U64> is 64 bytes without alignment, the same as [u8; 64].
    unsafe { std::slice::from_raw_parts(blocks.as_ptr().cast(), blocks.len()) }
}

fn expand(block: &[u8; BLOCK]) -> [u32; 80] {
    let mut w = [0u32; 80];
    for (w, bytes) in w.iter_mut().zip(block.as_chunks::<4>().0) {
        *w = u32::from_be_bytes(*bytes);
    }
    for t in 16..80 {
        w[t] = (w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]).rotate_left(1);
    }
    w
}

/// The disturbance vectors that the conditions leave, for each of at most [`LANES`] blocks.
fn suspects(blocks: &[[u8; BLOCK]]) -> Words {
    #[cfg(target_arch = "x86_64")]
    if blocks.len() > 1 {
        let lanes = std::array::from_fn(|n| &blocks[n.min(blocks.len() - 1)]);
        // SAFETY: `is_supported` was asked before a `Sha1Detect` was made.
        return unsafe { if has_avx512() { avx512::suspects(&lanes) } else { avx2::suspects(&lanes) } };
    }
    let mut masks = [0; LANES];
    for (mask, block) in masks.iter_mut().zip(blocks) {
        *mask = suspect_vectors(&expand(block));
    }
    masks
}

/// Takes one block each into sixteen states, word-major; returns what the conditions leave, as [`suspects`]
/// does.
fn compress_lanes(state: &mut [Words; 5], blocks: &[&[u8; BLOCK]; LANES]) -> Words {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: `is_supported` was asked before a `Batch` was made.
        unsafe { if has_avx512() { avx512::compress(state, blocks) } else { avx2::compress(state, blocks) } }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        unreachable!("is_supported is false, with {} blocks and {} states", blocks.len(), state.len())
    }
}

/// Which of at most [`LANES`] suspects are attacks: a bit each.
fn attacks(suspects: &[Suspect]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    if suspects.len() > 2 {
        // SAFETY: `is_supported` was asked before there was anybody to suspect.
        return unsafe { if has_avx512() { avx512::attacks(suspects) } else { avx2::attacks(suspects) } };
    }
    suspects.iter().enumerate().fold(0, |found, (n, s)| found | u16::from(is_attack(s)) << n)
}

fn suspect_vectors(w: &[u32; 80]) -> u32 {
    let mut mask = !0;
    macro_rules! condition {
        ($i:literal,$p:literal,$j:literal,$q:literal,$want:literal,$d:literal) => {
            // All ones where the condition is met: written without branches, they would be guesses.
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

/// Whether another block, differing as the suspected vector says, leads from some chaining value to the same
/// end.
fn is_attack(suspect: &Suspect) -> bool {
    let words = expand(&suspect.block);
    let (_, _, _, from) = VECTORS[usize::from(suspect.vector)];
    let difference = &differences()[usize::from(suspect.vector)];
    // Both have the same state before step `from`: the suspect's is its end, some steps back.
    let end: [u32; 5] = std::array::from_fn(|i| suspect.after[i].wrapping_sub(suspect.before[i]));
    let start = (from..80).rev().fold(end, |s, t| step_back(t, s, words[t]));
    let other = |t: usize| words[t] ^ difference[t];
    let chaining = (0..from).rev().fold(start, |s, t| step_back(t, s, other(t)));
    let end = (from..80).fold(start, |s, t| step(t, s, other(t)));
    (0..5).all(|i| chaining[i].wrapping_add(end[i]) == suspect.after[i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha1::Digest;

    #[test]
    fn hashes_as_sha1_does() {
        if !is_supported() {
            return;
        }
        let data: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for len in (0..300).chain(950..1100).chain([2047, 2048, 1023, 1024, 1025, 4096, 65_537, 70_000]) {
            let mut ours = Sha1Detect::new();
            // In pieces of odd sizes.
            for piece in data[..len].chunks(97 + len % 50) {
                ours.update(piece);
            }
            let (hash, collision) = ours.finish();
            assert_eq!(hash[..], sha1::Sha1::digest(&data[..len])[..], "{len}");
            assert!(!collision, "{len}");
        }
    }

    #[test]
    fn both_ways_of_testing_conditions_agree() {
        if !is_supported() {
            return;
        }
        let mut x = 1u64;
        let mut left = 0;
        for _ in 0..2000 {
            let mut blocks = [[0u8; BLOCK]; LANES];
            for byte in blocks.as_flattened_mut() {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (x >> 56) as u8;
            }
            let masks = suspects(&blocks);
            for (block, mask) in blocks.iter().zip(masks) {
                assert_eq!(mask, suspect_vectors(&expand(block)));
                left += u32::from(mask != 0);
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: where AVX-512 is, AVX2 is.
            assert_eq!(unsafe { avx2::suspects(&blocks.each_ref()) }, masks);
        }
        assert!(left < 32_000 / 20, "the conditions leave {left} of 32000 random blocks");
    }

    /// The first 320 bytes of the two SHAttered files (shattered.io): whatever follows them, they collide.
    #[test]
    fn a_real_attack_is_found() {
        let hex = include_str!("../../tests/shattered-prefix.hex");
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let file: Vec<u8> = digits
            .chunks(2)
            .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
            .collect();
        assert_eq!(file.len(), 320);
        for before in [0, 1, 15, 40] {
            if !is_supported() {
                break;
            }
            // The attack is on the chaining value after whole blocks: only at the start does it fit.
            let mut ours = Sha1Detect::new();
            ours.update(&vec![0; before * BLOCK]);
            ours.update(&file);
            ours.update(b"and more");
            assert_eq!(ours.finish().1, before == 0, "{before} blocks before");
        }
        assert!(sha1_checked::Sha1::try_digest(&file).has_collision());
        if !is_supported() {
            return;
        }
        // Among others, in every lane, and alone.
        for others in [0usize, 2, 20, 100] {
            for at in 0..=others {
                let mut batch = Batch::new();
                for n in 0..=others {
                    // An attack as git could meet it would have its header in the attacked blocks: here there
                    // is none.
                    let data = if n == at { file.clone() } else { vec![n as u8; n * 40] };
                    batch.push(b"", data);
                }
                batch.flush();
                let all: Vec<_> = std::iter::from_fn(|| batch.pop()).collect();
                assert_eq!(all.len(), others + 1);
                for hashed in all {
                    assert_eq!(hashed.has_collision, hashed.data == file, "{at} of {others}");
                    assert_eq!(hashed.hash[..], sha1::Sha1::digest(&hashed.data)[..]);
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn lanes_compress_as_one_does() {
        if !is_supported() {
            return;
        }
        let blocks: [[u8; BLOCK]; LANES] =
            std::array::from_fn(|n| std::array::from_fn(|i| (n * 31 + i * i) as u8));
        let mut states: [Words; 5] = std::array::from_fn(|i| [INITIAL[i]; LANES]);
        for _ in 0..3 {
            let mut alone = [INITIAL; LANES];
            for (n, block) in blocks.iter().enumerate() {
                alone[n] = std::array::from_fn(|i| states[i][n]);
                compress(&mut alone[n], &[*block]);
            }
            let mut by_avx2 = states;
            // SAFETY: where AVX-512 is, AVX2 is.
            let masks = unsafe { avx2::compress(&mut by_avx2, &blocks.each_ref()) };
            assert_eq!(compress_lanes(&mut states, &blocks.each_ref()), masks);
            assert_eq!(states, by_avx2);
            for (n, alone) in alone.iter().enumerate() {
                assert_eq!(*alone, std::array::from_fn(|i| states[i][n]));
            }
        }
    }

    #[test]
    fn both_ways_of_testing_suspects_agree() {
        if !is_supported() {
            return;
        }
        let hex = include_str!("../../tests/shattered-prefix.hex");
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let file: Vec<u8> = digits
            .chunks(2)
            .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
            .collect();
        let mut state = INITIAL;
        let mut suspects = Vec::new();
        for block in file.as_chunks::<BLOCK>().0 {
            let before = state;
            compress(&mut state, &[*block]);
            suspects.extend((0..32).map(|vector| Suspect { block: *block, vector, before, after: state }));
        }
        let mut found = 0;
        for start in 0..suspects.len() {
            let group = &suspects[start..suspects.len().min(start + LANES)];
            let expected = group.iter().enumerate().fold(0, |all, (n, s)| all | u16::from(is_attack(s)) << n);
            assert_eq!(attacks(group), expected, "{start}");
            #[cfg(target_arch = "x86_64")]
            // SAFETY: where AVX-512 is, AVX2 is.
            assert_eq!(unsafe { avx2::attacks(group) }, expected, "{start}");
            found += expected.count_ones();
        }
        assert!(found > 0);
    }
}
