//! Blocks and lanes, which all ways of hashing share.

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;
/// Blocks that are processed together.
pub(super) const LANES: usize = 16;
/// A word of each lane.
pub(super) type LaneWords = [u32; LANES];

/// A block for which the conditions do not rule out a disturbance vector.
#[derive(Clone)]
pub(super) struct Suspect {
    pub(super) block: [u8; BLOCK],
    pub(super) vector: u8,
    /// The chaining values before and after the block.
    pub(super) before: [u32; 5],
    pub(super) after: [u32; 5],
}

/// The chaining value before the first block (FIPS 180-4, section 5.3.1).
pub(super) const INITIAL: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];

/// Returns a chaining value as the bytes of a hash.
pub(super) fn to_bytes(state: &[u32; 5]) -> [u8; 20] {
    let mut out = [0; 20];
    for (o, s) in out.chunks_exact_mut(4).zip(state) {
        o.copy_from_slice(&s.to_be_bytes());
    }
    out
}

/// Returns the numbers of the bits that are set in a mask.
pub(super) fn vectors_of(mut mask: u32) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let lowest = (mask != 0).then_some(mask.trailing_zeros() as u8)?;
        mask &= mask - 1;
        Some(lowest)
    })
}
