//! Sixteen blocks at a time on AVX-512: expansion, conditions, compression and recompression, a block a lane.
//!
//! All functions here need AVX-512 F and BW ([`super::is_supported`]). Sources: FIPS 180-4 section 6.1.2 for the hash;
//! Gueron and Krasnov, "Simultaneous hashing of multiple messages" (2012), for the lanes.

use std::arch::x86_64::*;

use super::vectors::{VECTORS, conditions, differences};
use super::{BLOCK, LANES, Suspect, Words};

type Vector = __m512i;

/// Words 0 to 79 of sixteen messages, lane n from block n.
#[target_feature(enable = "avx512f,avx512bw")]
fn expand(w: &mut [Vector; 80], blocks: &[&[u8; BLOCK]; LANES]) {
    let swap = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    // SAFETY: a block is the 64 bytes that are read.
    let row = |n: usize| unsafe { _mm512_loadu_si512(blocks[n].as_ptr().cast()) };
    // Sixteen rows of sixteen words are transposed: pairs of words, of rows of four, then quarters.
    let mut pairs = [_mm512_setzero_si512(); LANES];
    for n in 0..4 {
        let (r0, r1, r2, r3) = (row(4 * n), row(4 * n + 1), row(4 * n + 2), row(4 * n + 3));
        let (a, b) = (_mm512_unpacklo_epi32(r0, r1), _mm512_unpackhi_epi32(r0, r1));
        let (c, d) = (_mm512_unpacklo_epi32(r2, r3), _mm512_unpackhi_epi32(r2, r3));
        pairs[4 * n] = _mm512_unpacklo_epi64(a, c);
        pairs[4 * n + 1] = _mm512_unpackhi_epi64(a, c);
        pairs[4 * n + 2] = _mm512_unpacklo_epi64(b, d);
        pairs[4 * n + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for k in 0..4 {
        let (x0, x1) = (pairs[k], pairs[4 + k]);
        let (x2, x3) = (pairs[8 + k], pairs[12 + k]);
        let (a, b) = (_mm512_shuffle_i32x4::<0x88>(x0, x1), _mm512_shuffle_i32x4::<0xdd>(x0, x1));
        let (c, d) = (_mm512_shuffle_i32x4::<0x88>(x2, x3), _mm512_shuffle_i32x4::<0xdd>(x2, x3));
        w[k] = _mm512_shuffle_epi8(_mm512_shuffle_i32x4::<0x88>(a, c), swap);
        w[4 + k] = _mm512_shuffle_epi8(_mm512_shuffle_i32x4::<0x88>(b, d), swap);
        w[8 + k] = _mm512_shuffle_epi8(_mm512_shuffle_i32x4::<0xdd>(a, c), swap);
        w[12 + k] = _mm512_shuffle_epi8(_mm512_shuffle_i32x4::<0xdd>(b, d), swap);
    }
    // The last sixteen stay in registers.
    let (head, tail) = w.split_at_mut(16);
    let mut last: [Vector; 16] = std::array::from_fn(|i| head[i]);
    // Written out, for an index that varies would send them to memory.
    macro_rules! next {
        ($group:ident: $($i:literal)*) => {$(
            let x = _mm512_ternarylogic_epi32::<0x96>(last[($i + 13) % 16], last[($i + 8) % 16], last[($i + 2) % 16]);
            last[$i] = _mm512_rol_epi32::<1>(_mm512_xor_si512(x, last[$i]));
            $group[$i] = last[$i];
        )*};
    }
    for group in tail.as_chunks_mut::<16>().0 {
        next!(group: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
}

/// The disturbance vectors that the conditions leave, a mask a lane.
#[target_feature(enable = "avx512f,avx512bw")]
fn test(w: &[Vector; 80]) -> Vector {
    let mut mask = _mm512_set1_epi32(-1);
    macro_rules! condition {
        ($i:literal,$p:literal,$j:literal,$q:literal,$want:literal,$d:literal) => {
            // Bit p is moved to where q is; most conditions are about the same bit of both.
            let first = if $p == $q { w[$i] } else { _mm512_rol_epi32::<{ ($q - $p + 32) % 32 }>(w[$i]) };
            let (x, bit) = (_mm512_xor_si512(first, w[$j]), _mm512_set1_epi32((1u32 << $q) as i32));
            let failed = if $want == 0 { _mm512_test_epi32_mask(x, bit) } else { _mm512_testn_epi32_mask(x, bit) };
            mask = _mm512_mask_and_epi32(mask, failed, mask, _mm512_set1_epi32(!$d as u32 as i32));
        };
    }
    conditions!(condition);
    mask
}

/// Step `ROUND * 20 ..`'s function of three words, with its constant.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn mix<const ROUND: usize>(b: Vector, c: Vector, d: Vector) -> Vector {
    match ROUND {
        0 => _mm512_add_epi32(_mm512_ternarylogic_epi32::<0xca>(b, c, d), _mm512_set1_epi32(0x5a82_7999)),
        1 => _mm512_add_epi32(_mm512_ternarylogic_epi32::<0x96>(b, c, d), _mm512_set1_epi32(0x6ed9_eba1)),
        2 => _mm512_add_epi32(_mm512_ternarylogic_epi32::<0xe8>(b, c, d), _mm512_set1_epi32(0x8f1b_bcdc_u32 as i32)),
        _ => _mm512_add_epi32(_mm512_ternarylogic_epi32::<0x96>(b, c, d), _mm512_set1_epi32(0xca62_c1d6_u32 as i32)),
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn step<const ROUND: usize>([a, b, c, d, e]: [Vector; 5], word: Vector) -> [Vector; 5] {
    let mixed = _mm512_add_epi32(mix::<ROUND>(b, c, d), _mm512_add_epi32(e, word));
    [_mm512_add_epi32(_mm512_rol_epi32::<5>(a), mixed), a, _mm512_rol_epi32::<30>(b), c, d]
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn step_back<const ROUND: usize>([new, a, b, c, d]: [Vector; 5], word: Vector) -> [Vector; 5] {
    let b = _mm512_ror_epi32::<30>(b);
    let mixed = _mm512_add_epi32(mix::<ROUND>(b, c, d), _mm512_add_epi32(_mm512_rol_epi32::<5>(a), word));
    [a, b, c, d, _mm512_sub_epi32(new, mixed)]
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn steps<const ROUND: usize>(mut s: [Vector; 5], words: &[Vector]) -> [Vector; 5] {
    // Five at a time, so that the words change places without being moved.
    let (fives, rest) = words.as_chunks::<5>();
    for five in fives {
        for &word in five {
            s = step::<ROUND>(s, word);
        }
    }
    for &word in rest {
        s = step::<ROUND>(s, word);
    }
    s
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn steps_back<const ROUND: usize>(mut s: [Vector; 5], words: &[Vector]) -> [Vector; 5] {
    for &word in words.iter().rev() {
        s = step_back::<ROUND>(s, word);
    }
    s
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(words: &Words) -> Vector {
    // SAFETY: `Words` is the 64 bytes that are read.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store(v: Vector) -> Words {
    let mut words = [0; LANES];
    // SAFETY: `Words` has room for the 64 bytes that are written.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), v) };
    words
}

/// The disturbance vectors that the conditions leave, for each block.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn suspects(blocks: &[&[u8; BLOCK]; LANES]) -> Words {
    let mut w = [_mm512_setzero_si512(); 80];
    expand(&mut w, blocks);
    store(test(&w))
}

/// Takes one block each into sixteen states, word-major; returns what the conditions leave, as [`suspects`] does.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn compress(state: &mut [Words; 5], blocks: &[&[u8; BLOCK]; LANES]) -> Words {
    let mut w = [_mm512_setzero_si512(); 80];
    expand(&mut w, blocks);
    let mask = test(&w);
    let before = [load(&state[0]), load(&state[1]), load(&state[2]), load(&state[3]), load(&state[4])];
    let s = steps::<0>(before, &w[..20]);
    let s = steps::<1>(s, &w[20..40]);
    let s = steps::<2>(s, &w[40..60]);
    let s = steps::<3>(s, &w[60..]);
    for i in 0..5 {
        state[i] = store(_mm512_add_epi32(before[i], s[i]));
    }
    store(mask)
}

/// Which of at most sixteen suspects are attacks: a bit each. Another block, differing from the suspect as its disturbance
/// vector says, is compressed backwards and forwards from the step where both states are the same; the two are an attack
/// if it leads from some chaining value to the same end.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn attacks(pairs: &[Suspect]) -> u16 {
    debug_assert!(pairs.len() <= LANES);
    let pair = |n: usize| &pairs[n.min(pairs.len() - 1)];
    let blocks: [&[u8; BLOCK]; LANES] = std::array::from_fn(|n| &pair(n).block);
    let mut w = [_mm512_setzero_si512(); 80];
    expand(&mut w, &blocks);
    let after: [Vector; 5] = std::array::from_fn(|i| load(&std::array::from_fn(|n| pair(n).after[i])));
    // After the last step, before the chaining value is added.
    let mut s: [Vector; 5] = std::array::from_fn(|i| _mm512_sub_epi32(after[i], load(&std::array::from_fn(|n| pair(n).before[i]))));
    let rows: [&[u32; 80]; LANES] = std::array::from_fn(|n| &differences()[pair(n).vector as usize]);
    let other: [Vector; 80] = std::array::from_fn(|t| _mm512_xor_si512(w[t], load(&std::array::from_fn(|n| rows[n][t]))));
    let mut late = 0u16;
    for n in 0..LANES {
        late |= u16::from(VECTORS[pair(n).vector as usize].3 == 65) << n;
    }
    s = steps_back::<3>(s, &w[65..]);
    let at_65 = s;
    s = steps_back::<3>(s, &w[60..65]);
    s = steps_back::<2>(s, &w[58..60]);
    let blend = |early: [Vector; 5], late_state: [Vector; 5]| -> [Vector; 5] {
        std::array::from_fn(|i| _mm512_mask_blend_epi32(late, early[i], late_state[i]))
    };
    // Backwards: those that start at 65 first come to 58, where the others join.
    let back = steps_back::<3>(at_65, &other[60..65]);
    let back = steps_back::<2>(back, &other[58..60]);
    let back = blend(s, back);
    let back = steps_back::<2>(back, &other[40..58]);
    let back = steps_back::<1>(back, &other[20..40]);
    let back = steps_back::<0>(back, &other[..20]);
    // Forwards: those that start at 58 first come to 65.
    let end = steps::<2>(s, &other[58..60]);
    let end = steps::<3>(end, &other[60..65]);
    let end = blend(end, at_65);
    let end = steps::<3>(end, &other[65..]);
    let mut found = u16::MAX >> (LANES - pairs.len());
    for i in 0..5 {
        found &= _mm512_cmpeq_epi32_mask(_mm512_add_epi32(back[i], end[i]), after[i]);
    }
    found
}
