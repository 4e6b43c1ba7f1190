//! Chooses the processor's instructions that do the work.

use super::block::{BLOCK, LANES, LaneWords, Suspect};
use super::scalar::{expand, is_attack, suspect_vectors};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// Returns whether this processor has what `Sha1Detect` and `HashBatch` need.
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

/// Compresses blocks into one state.
pub(super) fn compress(state: &mut [u32; 5], blocks: &[[u8; BLOCK]]) {
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

/// Returns the disturbance vectors that the conditions leave, for each of at most [`LANES`] blocks.
pub(super) fn suspects(blocks: &[[u8; BLOCK]]) -> LaneWords {
    #[cfg(target_arch = "x86_64")]
    if blocks.len() > 1 {
        let lanes = std::array::from_fn(|n| &blocks[n.min(blocks.len() - 1)]);
        // SAFETY: `is_supported` was checked before a `Sha1Detect` was made.
        return unsafe { if has_avx512() { avx512::suspects(&lanes) } else { avx2::suspects(&lanes) } };
    }
    let mut masks = [0; LANES];
    for (mask, block) in masks.iter_mut().zip(blocks) {
        *mask = suspect_vectors(&expand(block));
    }
    masks
}

/// Compresses one block into each of sixteen states, word-major; returns what the conditions leave, as
/// [`suspects`] does.
pub(super) fn compress_lanes(state: &mut [LaneWords; 5], blocks: &[&[u8; BLOCK]; LANES]) -> LaneWords {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: `is_supported` was checked before a `HashBatch` was made.
        unsafe { if has_avx512() { avx512::compress(state, blocks) } else { avx2::compress(state, blocks) } }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        unreachable!("is_supported is false, with {} blocks and {} states", blocks.len(), state.len())
    }
}

/// Returns which of at most [`LANES`] suspects are attacks: a bit each.
pub(super) fn attacks(suspects: &[Suspect]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    if suspects.len() > 2 {
        // SAFETY: `is_supported` was checked before there was any suspect.
        return unsafe { if has_avx512() { avx512::attacks(suspects) } else { avx2::attacks(suspects) } };
    }
    suspects.iter().enumerate().fold(0, |found, (n, s)| found | u16::from(is_attack(s)) << n)
}
