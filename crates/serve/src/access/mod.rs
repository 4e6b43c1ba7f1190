//! Finds the repository that a client names, checks whether the client may have it, and keeps repositories
//! open.

pub(crate) mod cache;
pub(crate) mod clones;
mod hook;
pub(crate) mod locate;
mod mapping;
pub(crate) mod opened;
mod path_locator;
pub(crate) mod presentation;
pub(crate) mod repositories;
mod rules;

pub use cache::{OpenError, RepoCache};
pub use hook::{Hook, HookDenial};
pub use locate::{AwaitedFor, AwaitedVisit, Client, Found, Locator, Refusal};
pub use mapping::{MapError, MapRule, map};
pub use opened::{HttpFeatures, Opened};
pub use path_locator::{LogLine, PathLocator};
pub use presentation::{Presentation, candidates};
pub use rules::{Access, AccessRule, AccessedName, Token};
