//! What the failure of a visit means.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines [`FailureClass`] with one row per class: its name in catalogs and on screens, and what an
/// administrator can do about it.
macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $remedy:literal;)*) => {
        /// The class of a failed visit. It decides whether and when to visit again, and who can fix the
        /// cause.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FailureClass {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl FailureClass {
            /// Every class.
            pub const ALL: &[FailureClass] = &[$(FailureClass::$variant),*];

            /// Returns its name in catalogs and on screens.
            pub const fn name(self) -> &'static str {
                match self {
                    $(FailureClass::$variant => $name,)*
                }
            }

            /// Returns what to do about it, in a few words.
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(FailureClass::$variant => $remedy,)*
                }
            }
        }
    };
}

classes! {
    /// The network or the server's host fails: the copy is kept, and weir tries again.
    Network = "network", "nothing; weir tries again";
    /// The upstream took longer than weir waits, or sent too little.
    Slow = "slow",
        "if the upstream needs longer, raise 'first_byte_timeout', 'pack_start_timeout' or 'idle_timeout' of \
        [transport] in weir.toml, or lower 'bytes_per_second_min'; otherwise nothing: weir tries again";
    /// The server answers, and fails (5xx, "internal error").
    Server = "server", "nothing; weir tries again";
    /// The server's certificate is not trusted.
    Certificate = "certificate",
        "add its CA to 'transport.ca_file' in weir.toml, correct the host in the URL, or tell the upstream's \
        administrator";
    /// The repository does not exist, or does not exist any more.
    Gone = "gone", "run 'weir rm NAME' if it is gone for good; the archive is kept";
    /// The repository exists, but weir may not read it.
    Forbidden = "forbidden", "configure credentials: netrc, tokens of a [[forge]], or a credential helper";
    /// The server broke the protocol, or the URL is invalid.
    Protocol = "protocol", "check the URL; if it is right, tell the upstream's administrator";
    /// Something on this machine fails: a disk, a missing program.
    Local = "local", "fix the problem on this machine that the message names";
    /// A pack or one of its objects is malformed.
    BadPack = "bad-pack", "check the URL; if it is right, tell the upstream's administrator";
    /// A pack lacks objects.
    Incomplete = "incomplete",
        "tell the upstream's administrator; if only other refs are broken, run 'weir set NAME --refs \
        heads-and-tags'";
    /// A limit was exceeded.
    Limit = "limit", "raise the limit that the message names in weir.toml";
    /// The disk is full.
    DiskFull = "disk-full", "free disk space";
    /// The upstream had refs and has none any more.
    Emptied = "emptied",
        "if that is right, run 'weir mirror --accept-empty NAME'; if not, fix the patterns of its 'refs'";
    /// The archive is not as it was written.
    Damaged = "damaged", "run 'weir fsck --repair NAME'";
    /// The base of the archive cannot be used.
    Base = "base", "run 'weir fsck --repair NAME'";
    /// The store in which the archive should be is not there.
    Store = "store", "mount the store";
    /// The lease of the visit has passed to another process.
    Fenced = "fenced", "nothing; weir visits it again";
    /// weir itself failed.
    Defect = "defect", "a bug in weir: please report it";
}

impl FailureClass {
    /// Returns whether the cause is on this machine, whatever the upstream is.
    pub const fn is_local(self) -> bool {
        matches!(self, FailureClass::Local | FailureClass::DiskFull | FailureClass::Store)
    }

    /// Returns the class with the name `name`.
    pub fn from_name(name: &str) -> Option<FailureClass> {
        FailureClass::ALL.iter().copied().find(|class| class.name() == name)
    }
}

/// Serializes a class as its name.
impl Serialize for FailureClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Reads a class from its name.
impl<'de> Deserialize<'de> for FailureClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FailureClass, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
        FailureClass::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("no class of failures is called '{name}'")))
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for class in FailureClass::ALL {
            assert_eq!(FailureClass::from_name(class.name()), Some(*class));
        }
        assert_eq!(FailureClass::from_name("x"), None);
    }
}
