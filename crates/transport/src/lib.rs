//! The client side of git's protocols: connect, list refs, fetch a pack.
//!
//! Protocol v2 first, v1 and v0 where the server answers with them (gitprotocol-v2, gitprotocol-pack,
//! gitprotocol-http). No git process is run: this crate speaks `git://` and HTTP itself and runs the system's
//! `ssh`, and a [`LocalServer`] serves local paths. Nothing here keeps a repository or reads the environment.
//!
//! ```no_run
//! # fn main() -> weir_transport::Result<()> {
//! use weir_transport::{Session, TransportOptions, Url};
//!
//! let url = Url::parse("https://example.org/project.git").expect("a URL");
//! let (_session, upstream) = Session::open_and_list(&url, &TransportOptions::default(), &["refs/heads/"])?;
//! for reference in &upstream.refs {
//!     println!("{} {}", reference.oid.to_hex(), String::from_utf8_lossy(&reference.name));
//! }
//! # Ok(())
//! # }
//! ```

mod advertised;
mod credentials;
mod dumb;
mod error;
mod extra_headers;
mod fetch;
mod files;
mod http;
mod lfs;
mod lfs_answer;
mod lfs_ssh;
mod options;
mod pace;
mod pinned;
mod post;
mod proxy;
mod resolver;
mod server_memory;
mod session;
mod ssh;
mod ssh_command;
mod tcp;
mod text;
mod tls;
mod url;

pub use advertised::{Advertised, AdvertisedRef, Symbolic};
pub use credentials::{CredentialSource, Credentials, GitCredentialHelper, Netrc};
pub use error::{Error, Result, TimeLimit};
pub use extra_headers::{ExtraHeader, ExtraValue};
pub use fetch::{FetchRequest, FetchedPack, Negotiator};
pub use files::{HttpFile, HttpFiles};
pub use lfs::{LFS_BATCH_MAX, Lfs};
pub use lfs_answer::{LfsAnswer, LfsDownload};
pub use options::{LocalServer, LocalServerError, LocalStream, TransportOptions};
pub use post::{HttpPost, PostAnswer, PostError};
pub use proxy::{Proxies, ProxyError, http_client};
pub use session::Session;
pub use ssh_command::SshCommand;
pub use tls::{RootsError, roots_in, system_roots};
pub use ureq::tls::RootCerts;
pub use url::{Scheme, Url, UrlError};
