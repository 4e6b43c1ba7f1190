//! The reason why a visit failed, and its class.

use std::fmt;

use weir_ground::FailureClass;
use weir_transport::TimeLimit;

/// The longest pause that a host may ask for, in seconds.
const WAIT_MAX_S: u64 = 86_400;

/// The reason why a visit failed.
#[derive(Debug)]
pub struct Failure {
    /// The class of the failure.
    pub class: FailureClass,
    /// The message.
    pub error: String,
    /// The seconds after which the host asks to come again.
    pub wait_s: Option<u64>,
    /// The limit that the upstream was too slow for.
    pub time_limit: Option<TimeLimit>,
}

impl Failure {
    /// Creates a failure of `class`.
    pub(crate) fn new(class: FailureClass, error: impl Into<String>) -> Failure {
        Failure { class, error: error.into(), wait_s: None, time_limit: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.error, self.class)
    }
}

impl From<&weir_transport::Error> for Failure {
    fn from(e: &weir_transport::Error) -> Failure {
        let wait_s = match e {
            weir_transport::Error::Later { wait_s, .. } => Some((*wait_s).min(WAIT_MAX_S)),
            _ => None,
        };
        Failure { wait_s, time_limit: e.time_limit(), ..Failure::new(e.class(), e.to_string()) }
    }
}

impl From<weir_transport::Error> for Failure {
    fn from(e: weir_transport::Error) -> Failure {
        Failure::from(&e)
    }
}

impl From<weir_repo::Error> for Failure {
    fn from(e: weir_repo::Error) -> Failure {
        use weir_repo::Error as E;
        let class = match &e {
            E::BadPack(_) | E::Object { .. } | E::Collision(_) => FailureClass::BadPack,
            E::NotConnected { .. } => FailureClass::Incomplete,
            E::Limit { .. } => FailureClass::Limit,
            e if e.is_disk_full() => FailureClass::DiskFull,
            e if e.is_fenced() => FailureClass::Fenced,
            e if e.is_damage() => FailureClass::Damaged,
            E::Base { .. } => FailureClass::Base,
            E::Archive(_) | E::Corrupt { .. } | E::Missing(_) => FailureClass::Local,
            E::Io(io) => {
                // A transport's error that came through `Read`.
                let ours = io.get_ref().and_then(|inner| inner.downcast_ref::<weir_transport::Error>());
                return match ours {
                    Some(e) => Failure::from(e),
                    None => match io.kind() {
                        std::io::ErrorKind::UnexpectedEof
                        | std::io::ErrorKind::ConnectionReset
                        | std::io::ErrorKind::BrokenPipe => {
                            Failure::new(FailureClass::Network, format!("the connection broke: {io}"))
                        }
                        _ => Failure::new(FailureClass::Local, e.to_string()),
                    },
                };
            }
            E::TooLarge { .. } => FailureClass::Limit,
            E::NotFound(_) | E::Unsupported(_) => FailureClass::Local,
        };
        Failure::new(class, e.to_string())
    }
}
