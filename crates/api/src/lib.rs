//! The REST API of a pool.
