//! SHA-1 with collision detection, many blocks at a time.
//!
//! Marc Stevens' counter-cryptanalysis (CRYPTO 2013) tests each block against the 32 known disturbance vectors; the
//! unavoidable bit conditions (Stevens and Shumow, USENIX Security 2017) rule nearly all of them out from the expanded
//! message alone. Those conditions do not depend on the chaining value, so 16 blocks are tested at once here, while the
//! hash itself runs on the processor's SHA instructions. What passes is recompressed as their `sha1dc` does.
//!
//! Measured on this project's usual machine, taking in git/git: 75 % of the time went into the `sha1-checked` crate, which
//! does the same a block and a word at a time. That crate is still what runs where the processor lacks AVX-512 or SHA-NI,
//! and what the tests compare with.
//!
//! The conditions are those of the generated `ubc_check.c` of sha1collisiondetection, Copyright 2017 Marc Stevens and Dan
//! Shumow, MIT licence, as a table; leaving one out would cost time and never miss an attack. The disturbance vectors are
//! computed from their definitions instead of being listed.

use std::sync::OnceLock;

const BLOCK: usize = 64;
const LANES: usize = 16;
const GROUP: usize = BLOCK * LANES;

/// Bits of a mask of disturbance vectors: type, K, b, and the step whose state recompression starts from.
const VECTORS: [(u8, usize, u32, usize); 32] = [
    (1, 43, 0, 58),
    (1, 44, 0, 58),
    (1, 45, 0, 58),
    (1, 46, 0, 58),
    (1, 46, 2, 58),
    (1, 47, 0, 58),
    (1, 47, 2, 58),
    (1, 48, 0, 58),
    (1, 48, 2, 58),
    (1, 49, 0, 58),
    (1, 49, 2, 58),
    (1, 50, 0, 65),
    (1, 50, 2, 65),
    (1, 51, 0, 65),
    (1, 51, 2, 65),
    (1, 52, 0, 65),
    (2, 45, 0, 58),
    (2, 46, 0, 58),
    (2, 46, 2, 58),
    (2, 47, 0, 58),
    (2, 48, 0, 58),
    (2, 49, 0, 58),
    (2, 49, 2, 58),
    (2, 50, 0, 65),
    (2, 50, 2, 65),
    (2, 51, 0, 65),
    (2, 51, 2, 65),
    (2, 52, 0, 65),
    (2, 53, 0, 65),
    (2, 54, 0, 65),
    (2, 55, 0, 65),
    (2, 56, 0, 65),
];

/// Each row: bit `p` of word `i` xor bit `q` of word `j` must be `want`, for the disturbance vectors in the mask.
macro_rules! conditions {
    ($c:ident) => {
        $c!(44, 29, 45, 29, 0, 0x283a080);
        $c!(49, 29, 50, 29, 0, 0xc2810008);
        $c!(48, 29, 49, 29, 0, 0x60a08004);
        $c!(47, 4, 50, 29, 0, 0x82012220);
        $c!(47, 29, 48, 29, 0, 0x30302002);
        $c!(46, 4, 49, 29, 0, 0x40808888);
        $c!(46, 29, 47, 29, 0, 0x18180801);
        $c!(45, 4, 48, 29, 0, 0x20202224);
        $c!(45, 29, 46, 29, 0, 0xa0a8200);
        $c!(44, 4, 47, 29, 0, 0x1010088a);
        $c!(43, 4, 46, 29, 0, 0x8080225);
        $c!(43, 29, 44, 29, 0, 0xa12820);
        $c!(42, 4, 45, 29, 0, 0x202808a);
        $c!(41, 4, 44, 29, 0, 0x812025);
        $c!(40, 29, 41, 29, 0, 0x800a00a2);
        $c!(54, 29, 55, 29, 0, 0xc0882000);
        $c!(53, 29, 54, 29, 0, 0x60220800);
        $c!(52, 29, 53, 29, 0, 0x30110200);
        $c!(50, 4, 53, 29, 0, 0x20128800);
        $c!(50, 29, 51, 29, 0, 0x8a020020);
        $c!(49, 4, 52, 29, 0, 0x10092200);
        $c!(48, 4, 51, 29, 0, 0x8028880);
        $c!(42, 29, 43, 29, 0, 0x300a08);
        $c!(41, 29, 42, 29, 0, 0x180284);
        $c!(40, 4, 43, 29, 0, 0x8020080a);
        $c!(39, 4, 42, 29, 0, 0x40100205);
        $c!(38, 4, 41, 29, 0, 0xa0080082);
        $c!(37, 4, 40, 29, 0, 0x50020021);
        $c!(55, 29, 56, 29, 0, 0x82108000);
        $c!(52, 4, 55, 29, 0, 0x80908000);
        $c!(51, 4, 54, 29, 0, 0x40282000);
        $c!(51, 29, 52, 29, 0, 0x18080080);
        $c!(36, 4, 40, 29, 0, 0x110208);
        $c!(53, 29, 56, 29, 1, 0x308000);
        $c!(51, 29, 54, 29, 1, 0xa0800);
        $c!(50, 29, 52, 29, 1, 0x12200);
        $c!(49, 29, 51, 29, 1, 0x8880);
        $c!(48, 29, 50, 29, 1, 0x2220);
        $c!(47, 29, 49, 29, 1, 0x888);
        $c!(46, 29, 48, 29, 1, 0x224);
        $c!(45, 6, 47, 6, 0, 0x4440);
        $c!(45, 29, 47, 29, 1, 0x8a);
        $c!(44, 6, 46, 6, 0, 0x1110);
        $c!(44, 29, 46, 29, 1, 0x25);
        $c!(41, 1, 42, 6, 1, 0x4040100);
        $c!(40, 1, 41, 6, 1, 0x1004040);
        $c!(40, 4, 42, 4, 1, 0x8000000a);
        $c!(39, 1, 40, 6, 1, 0x401010);
        $c!(39, 4, 41, 4, 1, 0x40000005);
        $c!(38, 4, 40, 4, 1, 0xa0000002);
        $c!(37, 4, 39, 4, 1, 0x50000001);
        $c!(36, 1, 37, 6, 1, 0x41040);
        $c!(35, 4, 39, 29, 0, 0x80084);
        $c!(63, 0, 64, 5, 1, 0x100080);
        $c!(63, 1, 64, 6, 1, 0x10004);
        $c!(62, 0, 63, 5, 1, 0x80020);
        $c!(61, 0, 62, 5, 1, 0x20008);
        $c!(61, 2, 62, 7, 1, 0x40010);
        $c!(60, 0, 61, 5, 1, 0x10004);
        $c!(58, 29, 59, 29, 0, 0x22000000);
        $c!(57, 29, 58, 29, 0, 0x10800000);
        $c!(56, 4, 59, 29, 0, 0x28000000);
        $c!(56, 29, 59, 29, 1, 0xa000000);
        $c!(56, 29, 57, 29, 0, 0x8200000);
        $c!(55, 4, 58, 29, 0, 0x12000000);
        $c!(54, 4, 57, 29, 0, 0x8800000);
        $c!(53, 4, 56, 29, 0, 0x2200000);
        $c!(51, 1, 50, 6, 0, 0x41000);
        $c!(48, 6, 50, 6, 0, 0x41000);
        $c!(48, 29, 55, 29, 1, 0xa000);
        $c!(47, 6, 49, 6, 0, 0x4400);
        $c!(48, 1, 47, 6, 0, 0x4000040);
        $c!(46, 6, 48, 6, 0, 0x1100);
        $c!(47, 1, 46, 6, 0, 0x1000010);
        $c!(44, 1, 45, 6, 1, 0x404000);
        $c!(43, 6, 45, 6, 0, 0x440);
        $c!(42, 6, 44, 6, 0, 0x110);
        $c!(43, 1, 42, 6, 0, 0x4040000);
        $c!(42, 1, 41, 6, 0, 0x1004000);
        $c!(41, 1, 40, 6, 0, 0x401000);
        $c!(39, 4, 43, 29, 0, 0x2008000);
        $c!(38, 4, 42, 29, 0, 0x802000);
        $c!(37, 1, 38, 6, 1, 0x4100);
        $c!(37, 4, 41, 29, 0, 0x200800);
        $c!(36, 4, 38, 4, 1, 0x28000000);
        $c!(35, 1, 36, 6, 1, 0x410);
        $c!(35, 3, 39, 28, 0, 0x82000);
        $c!(61, 1, 62, 6, 1, 0x1);
        $c!(59, 5, 63, 30, 0, 0x1);
        $c!(58, 0, 63, 30, 1, 0x1);
        $c!(62, 1, 63, 6, 1, 0x2);
        $c!(60, 5, 64, 30, 0, 0x2);
        $c!(59, 0, 64, 30, 1, 0x2);
        $c!(62, 2, 63, 7, 1, 0x40);
        $c!(41, 6, 43, 6, 0, 0x40);
        $c!(63, 2, 64, 7, 1, 0x100);
        $c!(48, 6, 49, 1, 0, 0x100);
        $c!(49, 6, 50, 1, 0, 0x400);
        $c!(42, 1, 50, 1, 1, 0x400);
        $c!(39, 6, 40, 1, 0, 0x400);
        $c!(38, 1, 40, 1, 1, 0x400);
        $c!(51, 6, 52, 1, 0, 0x4000);
        $c!(49, 6, 51, 6, 0, 0x4000);
        $c!(37, 1, 37, 6, 0, 0x4000);
        $c!(35, 5, 39, 30, 0, 0x4000);
        $c!(36, 3, 40, 28, 0, 0x100000);
        $c!(35, 30, 40, 28, 1, 0x100000);
        $c!(37, 3, 41, 28, 0, 0x200000);
        $c!(36, 30, 41, 28, 1, 0x200000);
        $c!(53, 6, 54, 1, 0, 0x400000);
        $c!(51, 6, 53, 6, 0, 0x400000);
        $c!(50, 1, 54, 1, 1, 0x400000);
        $c!(45, 6, 46, 1, 0, 0x400000);
        $c!(37, 5, 41, 30, 0, 0x400000);
        $c!(36, 0, 41, 30, 1, 0x400000);
        $c!(55, 29, 58, 29, 1, 0x800000);
        $c!(38, 3, 42, 28, 0, 0x800000);
        $c!(37, 30, 42, 28, 1, 0x800000);
        $c!(54, 6, 55, 1, 0, 0x1000000);
        $c!(52, 6, 54, 6, 0, 0x1000000);
        $c!(51, 1, 55, 1, 1, 0x1000000);
        $c!(45, 1, 47, 1, 1, 0x1000000);
        $c!(38, 5, 42, 30, 0, 0x1000000);
        $c!(37, 0, 42, 30, 1, 0x1000000);
        $c!(39, 3, 43, 28, 0, 0x2000000);
        $c!(38, 30, 43, 28, 1, 0x2000000);
        $c!(55, 6, 56, 1, 0, 0x4000000);
        $c!(53, 6, 55, 6, 0, 0x4000000);
        $c!(52, 1, 56, 1, 1, 0x4000000);
        $c!(46, 1, 48, 1, 1, 0x4000000);
        $c!(39, 5, 43, 30, 0, 0x4000000);
        $c!(38, 0, 43, 30, 1, 0x4000000);
        $c!(59, 29, 60, 29, 0, 0x8000000);
        $c!(40, 3, 44, 28, 0, 0x8000000);
        $c!(40, 4, 44, 29, 0, 0x8000000);
        $c!(39, 30, 44, 28, 1, 0x8000000);
        $c!(58, 29, 61, 29, 1, 0x10000000);
        $c!(57, 4, 61, 29, 0, 0x10000000);
        $c!(41, 3, 45, 28, 0, 0x10000000);
        $c!(41, 4, 45, 29, 0, 0x10000000);
        $c!(58, 4, 62, 29, 0, 0x20000000);
        $c!(42, 3, 46, 28, 0, 0x20000000);
        $c!(42, 4, 46, 29, 0, 0x20000000);
        $c!(59, 4, 63, 29, 0, 0x40000000);
        $c!(57, 4, 59, 29, 0, 0x40000000);
        $c!(43, 3, 47, 28, 0, 0x40000000);
        $c!(43, 4, 47, 29, 0, 0x40000000);
        $c!(60, 4, 64, 29, 0, 0x80000000);
        $c!(44, 3, 48, 28, 0, 0x80000000);
        $c!(44, 4, 48, 29, 0, 0x80000000);
        $c!(40, 6, 42, 6, 0, 0x10);
        $c!(36, 4, 37, 4, 1, 0x800);
        $c!(43, 1, 51, 1, 1, 0x1000);
        $c!(37, 4, 38, 4, 1, 0x2000);
        $c!(38, 4, 39, 4, 1, 0x8000);
        $c!(47, 1, 51, 1, 1, 0x40000);
    };
}

/// The differences in the expanded message that each disturbance vector stands for.
fn differences() -> &'static [[u32; 80]; 32] {
    static TABLE: OnceLock<Box<[[u32; 80]; 32]>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Box::new([[0; 80]; 32]);
        for (row, &(kind, k, b, _)) in table.iter_mut().zip(&VECTORS) {
            // Five steps before the first are needed: index t + 5.
            let mut dv = [0u32; 85];
            dv[k + 5 + 15] = 1 << b;
            if kind == 2 {
                dv[k + 5 + 1] = (1u32 << 31).rotate_left(b);
                dv[k + 5 + 3] = dv[k + 5 + 1];
            }
            for t in k + 5 + 16..85 {
                dv[t] = (dv[t - 3] ^ dv[t - 8] ^ dv[t - 14] ^ dv[t - 16]).rotate_left(1);
            }
            for t in (0..k + 5).rev() {
                dv[t] = dv[t + 16].rotate_right(1) ^ dv[t + 13] ^ dv[t + 8] ^ dv[t + 2];
            }
            for (t, d) in row.iter_mut().enumerate() {
                let at = |back: usize| dv[t + 5 - back];
                let rotated = at(3).rotate_left(30) ^ at(4).rotate_left(30) ^ at(5).rotate_left(30);
                *d = at(0) ^ at(1).rotate_left(5) ^ at(2) ^ rotated;
            }
        }
        table
    })
}

/// Whether this processor has what [`Sha1Detect`] needs.
pub(crate) fn is_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("sha")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// A running hash. Only where [`is_supported`].
#[derive(Clone)]
pub(crate) struct Sha1Detect {
    state: [u32; 5],
    /// Whole groups of blocks are tested at a time: the start of an object, after its header, and its end are gathered here.
    partial: [u8; GROUP],
    partial_len: usize,
    bytes: u64,
    collision: bool,
}

impl Sha1Detect {
    pub(crate) fn new() -> Sha1Detect {
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
        Sha1Detect { state, partial: [0; GROUP], partial_len: 0, bytes: 0, collision: false }
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
        let mut out = [0; 20];
        for (o, s) in out.chunks_exact_mut(4).zip(self.state) {
            o.copy_from_slice(&s.to_be_bytes());
        }
        (out, self.collision)
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
                self.collision |= is_attack(mask, &expand(&group[i]), &before, &self.state);
                from = i + 1;
            }
            compress(&mut self.state, &group[from..]);
        }
    }
}

fn compress(state: &mut [u32; 5], blocks: &[[u8; BLOCK]]) {
    if !blocks.is_empty() {
        // The `sha1` crate's compression function, on SHA-NI where there is one.
        let blocks: &[sha1::digest::generic_array::GenericArray<u8, _>] = cast(blocks);
        sha1::compress(state, blocks);
    }
}

fn cast(blocks: &[[u8; BLOCK]]) -> &[sha1::digest::generic_array::GenericArray<u8, sha1::digest::typenum::U64>] {
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
fn suspects(blocks: &[[u8; BLOCK]]) -> [u32; LANES] {
    #[cfg(target_arch = "x86_64")]
    if blocks.len() == LANES {
        // SAFETY: `is_supported` was asked before a `Sha1Detect` was made, and there are LANES blocks.
        return unsafe { suspects_avx512(blocks) };
    } else if blocks.len() > 1 {
        let mut full = [[0u8; BLOCK]; LANES];
        full[..blocks.len()].copy_from_slice(blocks);
        // SAFETY: as above.
        return unsafe { suspects_avx512(&full) };
    }
    let mut masks = [0; LANES];
    for (mask, block) in masks.iter_mut().zip(blocks) {
        *mask = suspect_vectors(&expand(block));
    }
    masks
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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn suspects_avx512(blocks: &[[u8; BLOCK]]) -> [u32; LANES] {
    use std::arch::x86_64::*;
    debug_assert_eq!(blocks.len(), LANES);
    let lanes = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi32(16));
    let swap = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    let mut w = [_mm512_setzero_si512(); 80];
    for (t, w) in w.iter_mut().enumerate().take(16) {
        // SAFETY: lane n reads word t of block n, and there are LANES blocks of 16 words.
        let words = unsafe { _mm512_i32gather_epi32::<4>(lanes, blocks.as_ptr().cast::<i32>().add(t)) };
        *w = _mm512_shuffle_epi8(words, swap);
    }
    // The conditions look at words up to 67 only.
    for t in 16..68 {
        let x = _mm512_ternarylogic_epi32::<0x96>(w[t - 3], w[t - 8], w[t - 14]);
        w[t] = _mm512_rol_epi32::<1>(_mm512_xor_si512(x, w[t - 16]));
    }
    let mut mask = _mm512_set1_epi32(-1);
    macro_rules! condition {
        ($i:literal,$p:literal,$j:literal,$q:literal,$want:literal,$d:literal) => {
            let x = _mm512_xor_si512(_mm512_slli_epi32::<{ 31 - $p }>(w[$i]), _mm512_slli_epi32::<{ 31 - $q }>(w[$j]));
            let differ = _mm512_srai_epi32::<31>(x);
            let vectors = _mm512_set1_epi32($d as u32 as i32);
            // Differ where they should not: mask & !(differ & d); agree where they should not: mask & (differ | !d).
            mask = if $want == 0 {
                _mm512_ternarylogic_epi32::<0x70>(mask, differ, vectors)
            } else {
                _mm512_ternarylogic_epi32::<0xd0>(mask, differ, vectors)
            };
        };
    }
    conditions!(condition);
    let mut out = [0u32; LANES];
    // SAFETY: `out` has room for 16 words.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), mask) };
    out
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

/// Whether some other block, differing as one of the vectors in `mask` says, leads to the same state.
fn is_attack(mask: u32, words: &[u32; 80], before: &[u32; 5], after: &[u32; 5]) -> bool {
    // States before the steps that recompression starts from.
    let mut state = *before;
    let mut at_58 = [0; 5];
    for (t, &word) in words.iter().enumerate().take(65) {
        if t == 58 {
            at_58 = state;
        }
        state = step(t, state, word);
    }
    let at_65 = state;
    (0..32).filter(|v| mask & (1 << v) != 0).any(|v| {
        let (_, _, _, from) = VECTORS[v];
        let difference = &differences()[v];
        let start = if from == 58 { at_58 } else { at_65 };
        let other = |t: usize| words[t] ^ difference[t];
        let chaining = (0..from).rev().fold(start, |s, t| step_back(t, s, other(t)));
        let end = (from..80).fold(start, |s, t| step(t, s, other(t)));
        (0..5).all(|i| chaining[i].wrapping_add(end[i]) == after[i])
    })
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
        }
        assert!(left < 32_000 / 20, "the conditions leave {left} of 32000 random blocks");
    }

    /// The first 320 bytes of the two SHAttered files (shattered.io): whatever follows them, they collide.
    #[test]
    fn a_real_attack_is_found() {
        let hex = include_str!("../tests/shattered-prefix.hex");
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let file: Vec<u8> = digits.chunks(2).map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect();
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
    }
}
