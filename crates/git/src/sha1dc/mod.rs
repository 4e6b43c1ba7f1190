//! SHA-1 with collision detection, many blocks at a time.
//!
//! Marc Stevens' counter-cryptanalysis (CRYPTO 2013) tests each block against the 32 known disturbance
//! vectors. The unavoidable bit conditions (Stevens and Shumow, USENIX Security 2017) rule nearly all of them
//! out from the expanded message alone. Those conditions do not depend on the chaining value, so 16 blocks
//! are tested at once. For one message (`Sha1Detect`) these are consecutive blocks, and the hash runs on the
//! processor's SHA instructions. For many messages (`HashBatch`) each lane is a message, hashed in the same
//! pass. Blocks that the conditions do not clear are recompressed, 16 at a time, as their `sha1dc` does.
//!
//! Measured on this project's usual machine, importing git/git: 75 % of the time went into the `sha1-checked`
//! crate, which does the same work one block and one word at a time. That crate still runs where the
//! processor has neither AVX-512 nor AVX2, and the tests compare with it.

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
