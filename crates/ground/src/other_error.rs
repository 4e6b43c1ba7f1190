//! Errors of a caller's own functions.

/// An error of a function that the caller of a library has given to it.
pub type OtherError = Box<dyn std::error::Error + Send + Sync>;
