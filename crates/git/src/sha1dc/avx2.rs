//! Eight lanes on AVX2, twice: for the many processors without AVX-512.

use std::arch::x86_64::*;

use super::block::{BLOCK, LANES, LaneWords, Suspect};
use super::lanes::{lanes, schedule};
use super::vectors::{VECTORS, conditions, differences};

type Vector = __m256i;
const N: usize = 8;

lanes!("avx2");

/// Puts word i of all blocks, big-endian, into vector i: joins pairs of words, then rows of four, then
/// halves.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose(w: &mut [Vector], blocks: &[&[u8; BLOCK]; N]) {
    let swap =
        _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    for half in 0..2 {
        let row = |n: usize| {
            // SAFETY: a block is 64 bytes, of which one half or the other is read.
            let row = unsafe { _mm256_loadu_si256(blocks[n][32 * half..].as_ptr().cast()) };
            _mm256_shuffle_epi8(row, swap)
        };
        let mut pairs = [splat(0); N];
        for n in 0..2 {
            let (r0, r1, r2, r3) = (row(4 * n), row(4 * n + 1), row(4 * n + 2), row(4 * n + 3));
            let (a, b) = (_mm256_unpacklo_epi32(r0, r1), _mm256_unpackhi_epi32(r0, r1));
            let (c, d) = (_mm256_unpacklo_epi32(r2, r3), _mm256_unpackhi_epi32(r2, r3));
            pairs[4 * n] = _mm256_unpacklo_epi64(a, c);
            pairs[4 * n + 1] = _mm256_unpackhi_epi64(a, c);
            pairs[4 * n + 2] = _mm256_unpacklo_epi64(b, d);
            pairs[4 * n + 3] = _mm256_unpackhi_epi64(b, d);
        }
        for k in 0..4 {
            w[8 * half + k] = _mm256_permute2x128_si256::<0x20>(pairs[k], pairs[4 + k]);
            w[8 * half + 4 + k] = _mm256_permute2x128_si256::<0x31>(pairs[k], pairs[4 + k]);
        }
    }
}

/// Returns `mask`, but only the bits `left` of it in lanes where `bit` of `x` is not `WANT`.
#[target_feature(enable = "avx2")]
#[inline]
fn keep_if_bit_is<const WANT: u32>(mask: Vector, x: Vector, bit: u32, left: u32) -> Vector {
    let bit = splat(bit);
    let wanted = if WANT == 0 { splat(0) } else { bit };
    let met = _mm256_cmpeq_epi32(_mm256_and_si256(x, bit), wanted);
    _mm256_and_si256(mask, _mm256_or_si256(met, splat(left)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn splat(word: u32) -> Vector {
    _mm256_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(words: &[u32; N]) -> Vector {
    // SAFETY: the words are the 32 bytes that are read.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(v: Vector) -> [u32; N] {
    let mut words = [0; N];
    // SAFETY: there is room for the 32 bytes that are written.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), v) };
    words
}

#[target_feature(enable = "avx2")]
#[inline]
fn add(a: Vector, b: Vector) -> Vector {
    _mm256_add_epi32(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn sub(a: Vector, b: Vector) -> Vector {
    _mm256_sub_epi32(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn parity(a: Vector, b: Vector, c: Vector) -> Vector {
    xor(xor(a, b), c)
}

#[target_feature(enable = "avx2")]
#[inline]
fn choose(a: Vector, b: Vector, c: Vector) -> Vector {
    xor(c, _mm256_and_si256(a, xor(b, c)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn majority(a: Vector, b: Vector, c: Vector) -> Vector {
    _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_or_si256(a, b)))
}

/// Rotates to the left by `LEFT`. `LEFT` and `RIGHT` add up to 32, or both are 0.
#[target_feature(enable = "avx2")]
#[inline]
fn rotate<const LEFT: i32, const RIGHT: i32>(v: Vector) -> Vector {
    const { assert!((LEFT + RIGHT) % 32 == 0) };
    _mm256_or_si256(_mm256_slli_epi32::<LEFT>(v), _mm256_srli_epi32::<RIGHT>(v))
}

/// Returns `a`, but `b` in lanes where `mask` is all ones.
#[target_feature(enable = "avx2")]
#[inline]
fn blend(mask: Vector, a: Vector, b: Vector) -> Vector {
    _mm256_blendv_epi8(a, b, mask)
}

/// Returns in which lanes both are equal, a bit each.
#[target_feature(enable = "avx2")]
#[inline]
fn equal(a: Vector, b: Vector) -> u16 {
    _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))) as u16
}
