//! The client of `weir clone`: an ordinary git repository, from a weir server with its index, or from an
//! archive; and clones whose pack stays on the server.
//!
//! [`clone()`] takes what `git clone` would take: one pack of HEAD, branches and tags. The pack comes with
//! its index, so that nothing is indexed here. Both are checked against their checksums and each other, and
//! checked-out objects against their ids. An interrupted download resumes where it ended.
//!
//! The server is not trusted: names become files only if they are names of branches and tags, the index is
//! checked before git reads it, and a clone that fails a check is deleted.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weir_clone::{CloneOptions, CloneOutcome, clone};
//! use weir_transport::{TransportOptions, Url};
//!
//! let (url, transport) = (Url::parse("https://weir.example/project")?, TransportOptions::default());
//! let options = CloneOptions {
//!     url: &url,
//!     directory: None,
//!     is_bare: false,
//!     checks_out: true,
//!     lets_git_check_out: false,
//!     branch: None,
//!     origin: "origin",
//!     upload_pack: None,
//!     verifies_all: false,
//!     transport: &transport,
//!     tell: &|_| (),
//! };
//! match clone(&options)? {
//!     CloneOutcome::Done(done) => println!("{}", done.directory.display()),
//!     CloneOutcome::NotOffered => println!("the server gives no packs with their index; run git clone"),
//! }
//! # Ok(())
//! # }
//! ```

mod attached;
mod checkout;
mod clone;
mod description;
mod download;
mod error;
mod fetched_file;
mod from_archive;
mod git_keys;
mod repository;
mod tips;

pub use attached::{Attached, AttachedFiles, RemoteReading, TellWaiting, trees_in};
pub use clone::{CloneOptions, CloneOutcome, FinishedClone, clone, default_directory};
pub use download::{TellTransfer, Transfer};
pub use error::{Error, Result};
pub use git_keys::{GIT_CHECKOUT_KEYS, GIT_CLONE_KEYS, ORIGIN, applying_key, changes_files};
