//! upload-pack without I/O: bytes go in, bytes and ranges of archives come out (gitprotocol-pack,
//! gitprotocol-v2).
//!
//! [`UploadPack`] is a state machine over one open repository. It never touches a socket: the caller reads
//! for it, sends what [`Step`] says, and runs [`Work`] where blocking is allowed. [`UploadLimits`] bounds
//! everything a client sends. The same machine speaks upload-archive, for which a [`TreeArchiver`] makes the
//! archives. It only serves: it never writes to a repository, runs a hook or executes anything.
//!
//! ```
//! use weir_upload::{Service, parse_daemon_request};
//!
//! let line = b"git-upload-pack /project.git\0host=example.org\0\0version=2\0";
//! let request = parse_daemon_request(line).unwrap();
//! assert_eq!(request.service, Service::UploadPack);
//! assert_eq!((request.path.as_str(), request.version), ("/project.git", 2));
//! ```

mod advertise;
mod answer;
mod archive;
mod archive_request;
mod archiver;
mod band;
mod error;
mod fetch_arguments;
mod git_config;
mod options;
mod pack_request;
mod policy;
mod request;
mod upload_pack;
mod v0;
mod v2;
mod work;

pub use answer::Step;
pub use archive_request::ArchiveRequest;
pub use archiver::{ArchiverError, TreeArchiver};
pub use band::Framing;
pub use error::RequestError;
pub use options::{UploadLimits, UploadOptions};
pub use pack_request::{UNREADABLE, WorkOutcome};
pub use policy::{Features, FilterPolicy, WantPolicy};
pub use request::{DaemonRequest, Service, parse_daemon_request};
pub use upload_pack::{UploadPack, Version};
pub use work::{Keepalive, Work};
