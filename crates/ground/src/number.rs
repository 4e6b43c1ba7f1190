//! Numbers that are easily mistaken for one another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<$name, Self::Err> {
                text.parse().map($name)
            }
        }
    };
}

number! {
    /// The number of a lease on a repository: a later lease has a higher one. An archive refuses to be
    /// written under a lower number than its last writer had (a fencing token). 0 is no lease.
    Epoch
}

number! {
    /// The number of a commit of an archive: the first is 1, and no number is used twice. 0 is before the
    /// first.
    Seq
}

impl Epoch {
    /// No lease: writing under it fences no other writer.
    pub const NONE: Epoch = Epoch(0);
}

impl Seq {
    /// Returns the number after this one.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}
