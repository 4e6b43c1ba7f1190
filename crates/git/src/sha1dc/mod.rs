//! SHA-1 with collision detection, many blocks at a time.
//!
//! Marc Stevens' counter-cryptanalysis (CRYPTO 2013) tests each block against the 32 known disturbance
//! vectors; the unavoidable bit conditions (Stevens and Shumow, USENIX Security 2017) rule nearly all of them
//! out from the expanded message alone. Those conditions do not depend on the chaining value, so 16 blocks
//! are tested at once. Of one message (`Sha1Detect`) these are blocks in a row, and the hash runs on the
//! processor's SHA instructions; of many (`HashBatch`) each lane is a message, hashed in the same pass. What
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
mod block;
mod detect;
mod dispatch;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod scalar;
#[cfg(test)]
mod tests;
mod vectors;

pub(crate) use batch::HashBatch;
pub(crate) use detect::Sha1Detect;
pub(crate) use dispatch::is_supported;
