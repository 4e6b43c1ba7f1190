//! The foundation of every crate: small types with one meaning each, and the few functions that several
//! crates need.
//!
//! This crate knows neither git nor tar, and must not grow: if one of two crates depends on the other, what
//! both need belongs to the lower one.

mod failure;
mod file_error;
mod hex;
mod names;
mod number;
mod other_error;
mod pattern;
mod rate;
mod stop;
mod text;
pub mod thread;
mod time;

pub use failure::FailureClass;
pub use file_error::FileError;
pub use hex::{hex, unhex};
pub use names::{NameError, check_name, check_pattern};
pub use number::{Epoch, Seq};
pub use other_error::OtherError;
pub use pattern::{glob_matches, name_matches};
pub use rate::MinRate;
pub use stop::Stop;
pub use text::{is_unprintable, printable, printable_or, without_password};
pub use time::{Clock, Timestamp};
