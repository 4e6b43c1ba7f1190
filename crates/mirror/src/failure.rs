//! Why a visit failed, and what that means.

use std::fmt;

use weir_transport::ErrorClass;

/// The class of failures of what an archive builds on.
pub(crate) const BASE: &str = "base";
/// The class of failures of what is stored here.
pub(crate) const DAMAGED: &str = "damaged";
/// The class of packs that leave something out.
pub(crate) const INCOMPLETE: &str = "incomplete";
/// The class of a replacement that was not needed.
pub(crate) const NOT_DAMAGED: &str = "not-damaged";
/// The class of an upstream that has no refs any more, and had some.
pub(crate) const EMPTIED: &str = "emptied";
/// The class of visits to upstreams whose archives should be in a store that is not there.
pub(crate) const STORE: &str = "store";
/// The class of visits whose lease has passed to another.
pub(crate) const FENCED: &str = "fenced";

/// The longest that a host is believed to want to be left alone, in seconds.
const WAIT_MAX_S: u64 = 86_400;

/// The names of all classes of failures.
pub const CLASSES: [&str; 17] = [
    "network",
    "server",
    "certificate",
    "gone",
    "forbidden",
    "protocol",
    "local",
    "bad-pack",
    INCOMPLETE,
    "limit",
    "disk-full",
    EMPTIED,
    DAMAGED,
    BASE,
    STORE,
    FENCED,
    "defect",
];

/// What to do about failures of `class`, in a few words; `None` for an unknown class.
pub fn remedy(class: &str) -> Option<&'static str> {
    Some(match class {
        "network" | "server" => "nothing: it is tried again",
        "certificate" => {
            "name its authority in 'transport.ca_file', in weir.toml; or tell the upstream's keeper"
        }
        "gone" => "'weir rm NAME' if it is gone for good; the copy stays",
        "forbidden" => "give credentials: netrc, tokens of a [[forge]], or a credential helper",
        "protocol" | "bad-pack" => "check the URL; if it is right, tell the upstream's keeper",
        INCOMPLETE => {
            "tell the upstream's keeper; 'weir set NAME --refs heads-and-tags' if the hole is elsewhere"
        }
        "limit" => "raise the limit that the message names, in weir.toml",
        DAMAGED | BASE => "'weir fsck --repair NAME'",
        EMPTIED => "'weir mirror --accept-empty NAME' if that is right; or mend the patterns of its 'refs'",
        STORE => "mount the store",
        FENCED => "nothing: it is looked at again",
        "disk-full" => "make room",
        "local" => "see what the message says of this machine",
        "defect" => "a bug in weir: please report it",
        _ => return None,
    })
}

/// Why a visit failed.
#[derive(Debug)]
pub struct Failure {
    /// What that means.
    pub class: &'static str,
    /// In words.
    pub error: String,
    /// Seconds after which its host asks to come again.
    pub wait_s: Option<u64>,
}

impl Failure {
    /// A failure of that class.
    pub(crate) fn new(class: &'static str, error: impl Into<String>) -> Failure {
        Failure { class, error: error.into(), wait_s: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.error, self.class)
    }
}

impl From<weir_transport::Error> for Failure {
    fn from(e: weir_transport::Error) -> Failure {
        let wait_s = match e {
            weir_transport::Error::Later { wait_s, .. } => Some(wait_s.min(WAIT_MAX_S)),
            _ => None,
        };
        Failure { wait_s, ..Failure::new(e.class().name(), e.to_string()) }
    }
}

impl From<weir_repo::Error> for Failure {
    fn from(e: weir_repo::Error) -> Failure {
        use weir_repo::Error as E;
        let class = match &e {
            E::BadPack(_) | E::Object { .. } | E::Collision(_) => "bad-pack",
            E::NotConnected { .. } => INCOMPLETE,
            E::Limit { .. } => "limit",
            e if e.is_disk_full() => "disk-full",
            e if e.is_fenced() => FENCED,
            e if e.is_damage() => DAMAGED,
            E::Base { .. } => BASE,
            E::Archive(_) | E::Corrupt { .. } | E::Missing(_) => "local",
            E::Io(io) => {
                // A transport's error that came through `Read`.
                let ours = io.get_ref().and_then(|inner| inner.downcast_ref::<weir_transport::Error>());
                return match ours {
                    Some(t) => Failure::new(t.class().name(), t.to_string()),
                    None => match io.kind() {
                        std::io::ErrorKind::UnexpectedEof
                        | std::io::ErrorKind::ConnectionReset
                        | std::io::ErrorKind::BrokenPipe => {
                            Failure::new(ErrorClass::Network.name(), format!("the connection broke: {io}"))
                        }
                        _ => Failure::new(ErrorClass::Local.name(), e.to_string()),
                    },
                };
            }
            E::TooLarge { .. } => "limit",
            E::NotFound(_) | E::Unsupported(_) => "local",
        };
        Failure::new(class, e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, remedy};

    #[test]
    fn each_class_has_a_remedy() {
        assert!(CLASSES.iter().all(|class| remedy(class).is_some()));
    }
}
