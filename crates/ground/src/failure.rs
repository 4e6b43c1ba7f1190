//! What the failure of a visit means.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines [`FailureClass`] with one row per class: its name in catalogs and on screens.
macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)*) => {
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
        }
    };
}

classes! {
    /// The network or the server's host fails: the copy is kept, and weir tries again.
    Network = "network";
    /// The upstream took longer than weir waits, or sent too little.
    Slow = "slow";
    /// The server answers, and fails (5xx, "internal error").
    Server = "server";
    /// The server's certificate is not trusted.
    Certificate = "certificate";
    /// The repository does not exist, or does not exist any more.
    Gone = "gone";
    /// The repository exists, but weir may not read it.
    Forbidden = "forbidden";
    /// The server broke the protocol, or the URL is invalid.
    Protocol = "protocol";
    /// Something on this machine fails: a disk, a missing program.
    Local = "local";
    /// A pack or one of its objects is malformed.
    BadPack = "bad-pack";
    /// A pack lacks objects.
    Incomplete = "incomplete";
    /// A limit was exceeded.
    Limit = "limit";
    /// The disk is full.
    DiskFull = "disk-full";
    /// The upstream had refs and has none any more.
    Emptied = "emptied";
    /// The archive is not as it was written.
    Damaged = "damaged";
    /// The base of the archive cannot be used.
    Base = "base";
    /// The store in which the archive should be is not there.
    Store = "store";
    /// The lease of the visit has passed to another process.
    Fenced = "fenced";
    /// weir itself failed.
    Defect = "defect";
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
