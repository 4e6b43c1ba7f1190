//! Sixteen lanes on AVX-512 F and BW.

use std::arch::x86_64::*;

use super::block::{BLOCK, LANES, LaneWords, Suspect};
use super::lanes::{lanes, schedule};
use super::vectors::{VECTORS, conditions, differences};

type Vector = __m512i;
const N: usize = 16;

lanes!("avx512f,avx512bw");

/// Puts word i of all blocks, big-endian, into vector i: joins pairs of words, then rows of four, then
/// quarters.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn transpose(w: &mut [Vector], blocks: &[&[u8; BLOCK]; N]) {
    let swap = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    // SAFETY: a block is the 64 bytes that are read.
    let row = |n: usize| unsafe { _mm512_loadu_si512(blocks[n].as_ptr().cast()) };
    let mut pairs = [splat(0); N];
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
}

/// Returns `mask`, but only the bits `left` of it in lanes where `bit` of `x` is not `WANT`.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn keep_if_bit_is<const WANT: u32>(mask: Vector, x: Vector, bit: u32, left: u32) -> Vector {
    let failed = if WANT == 0 {
        _mm512_test_epi32_mask(x, splat(bit))
    } else {
        _mm512_testn_epi32_mask(x, splat(bit))
    };
    _mm512_mask_and_epi32(mask, failed, mask, splat(left))
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn splat(word: u32) -> Vector {
    _mm512_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(words: &[u32; N]) -> Vector {
    // SAFETY: the words are the 64 bytes that are read.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store(v: Vector) -> [u32; N] {
    let mut words = [0; N];
    // SAFETY: there is room for the 64 bytes that are written.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), v) };
    words
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn add(a: Vector, b: Vector) -> Vector {
    _mm512_add_epi32(a, b)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn sub(a: Vector, b: Vector) -> Vector {
    _mm512_sub_epi32(a, b)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn parity(a: Vector, b: Vector, c: Vector) -> Vector {
    _mm512_ternarylogic_epi32::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn choose(a: Vector, b: Vector, c: Vector) -> Vector {
    _mm512_ternarylogic_epi32::<0xca>(a, b, c)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn majority(a: Vector, b: Vector, c: Vector) -> Vector {
    _mm512_ternarylogic_epi32::<0xe8>(a, b, c)
}

/// Rotates to the left by `LEFT`. `LEFT` and `RIGHT` add up to 32, or both are 0.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn rotate<const LEFT: i32, const RIGHT: i32>(v: Vector) -> Vector {
    const { assert!((LEFT + RIGHT) % 32 == 0) };
    _mm512_rol_epi32::<LEFT>(v)
}

/// Returns `a`, but `b` in lanes where `mask` is all ones.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn blend(mask: Vector, a: Vector, b: Vector) -> Vector {
    _mm512_mask_blend_epi32(_mm512_test_epi32_mask(mask, mask), a, b)
}

/// Returns in which lanes both are equal, a bit each.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn equal(a: Vector, b: Vector) -> u16 {
    _mm512_cmpeq_epi32_mask(a, b)
}
