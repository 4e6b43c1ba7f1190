//! What the failure of a visit means.

use std::fmt;

use serde::{Serialize, Serializer};

/// Defines [`FailureClass`]: a row a class, with its name in catalogs and on screens, and what its keeper can
/// do about it.
macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $remedy:literal;)*) => {
        /// What the failure of a visit means: whether to come again, when, and who can mend it.
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
    /// The network, or the server's host: the copy is kept, and tried again.
    Network = "network", "nothing: it is tried again";
    /// The server is there and fails (5xx, "internal error").
    Server = "server", "nothing: it is tried again";
    /// The server's certificate is not believed.
    Certificate = "certificate",
        "name its authority in 'transport.ca_file', in weir.toml; or tell the upstream's keeper";
    /// There is no such repository, or not any more.
    Gone = "gone", "'weir rm NAME' if it is gone for good; the copy stays";
    /// It is there and not for us.
    Forbidden = "forbidden", "give credentials: netrc, tokens of a [[forge]], or a credential helper";
    /// What the server sent breaks the protocol, or the URL is none.
    Protocol = "protocol", "check the URL; if it is right, tell the upstream's keeper";
    /// Something on this machine: a disk, a missing program.
    Local = "local", "see what the message says of this machine";
    /// A pack that is none, or has objects that are none.
    BadPack = "bad-pack", "check the URL; if it is right, tell the upstream's keeper";
    /// A pack that leaves something out.
    Incomplete = "incomplete",
        "tell the upstream's keeper; 'weir set NAME --refs heads-and-tags' if the hole is elsewhere";
    /// More than a limit lets in.
    Limit = "limit", "raise the limit that the message names, in weir.toml";
    /// No room.
    DiskFull = "disk-full", "make room";
    /// The upstream has no refs any more, and had some.
    Emptied = "emptied",
        "'weir mirror --accept-empty NAME' if that is right; or mend the patterns of its 'refs'";
    /// The archive is not as it was written.
    Damaged = "damaged", "'weir fsck --repair NAME'";
    /// What the archive builds on cannot be used.
    Base = "base", "'weir fsck --repair NAME'";
    /// The store is not there, in which the archive should be.
    Store = "store", "mount the store";
    /// The lease of the visit has passed to another.
    Fenced = "fenced", "nothing: it is looked at again";
    /// weir itself failed.
    Defect = "defect", "a bug in weir: please report it";
}

impl FailureClass {
    /// Returns the class with the name `name`.
    pub fn from_name(name: &str) -> Option<FailureClass> {
        FailureClass::ALL.iter().copied().find(|class| class.name() == name)
    }
}

/// By its name.
impl Serialize for FailureClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
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
