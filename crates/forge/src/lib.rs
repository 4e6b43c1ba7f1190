//! Lists the repositories of forges page by page, from a position that can be stored.
//!
//! This crate contains no SQL and no git. A [`Forge`] returns pages. A request waits for a rate limit by
//! itself: nothing is restarted.
//!
//! ```no_run
//! # fn main() -> Result<(), weir_forge::Error> {
//! use weir_forge::{Folder, Forge};
//!
//! let mut forge = Folder::new("/srv/git".as_ref());
//! let mut position = Some(forge.start().to_owned());
//! while let Some(at) = position {
//!     let page = forge.page(&at)?;
//!     for repository in &page.repositories {
//!         println!("{} {}", repository.full_name, repository.clone_url);
//!     }
//!     position = page.next;
//! }
//! # Ok(())
//! # }
//! ```

use weir_ground::Timestamp;

mod accounts;
mod api;
mod api_answer;
mod app;
mod app_tokens;
mod bitbucket;
mod deliveries;
mod folder;
mod gerrit;
mod gitea;
mod github;
mod github_deliveries;
mod github_search;
mod gitlab;
mod gitlab_deliveries;
mod kind;
mod manifest;
mod metadata;
mod page;
mod position;
mod sourcehut;
mod webindex;
mod whole;

pub use accounts::AccountsPage;
pub use api::{Api, ApiOptions, Connect, Usage};
pub use app::{AppError, GitHubApp};
pub use app_tokens::AppTokens;
pub use bitbucket::Bitbucket;
pub use deliveries::{AttemptPage, DeliveryAttempt, DeliveryRequest, HookDeliveries};
pub use folder::Folder;
pub use gerrit::Gerrit;
pub use gitea::Gitea;
pub use github::{GitHub, account as github_account, from_item as github_repository};
pub use gitlab::GitLab;
pub use kind::{ForgeAbilities, ForgeKind, ForgePlace};
pub use manifest::Manifest;
pub use metadata::{MetadataKind, MetadataPage, failed, resumed, sum_of_news};
pub use page::{Page, Skipped};
pub use sourcehut::Sourcehut;
pub use webindex::{WebIndex, WebIndexKind};
pub use weir_listed::{Account, AccountKind, Listed, RequestBudget};

/// Why a forge returned no page.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The forge rejects the credentials, or requires some.
    #[error("{url}: {status}: {detail}; look at the tokens of this forge")]
    Forbidden {
        /// The request.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The forge's explanation.
        detail: String,
    },
    /// There is no such thing, or no longer: 404, 410 and 451.
    #[error("{0}: not found")]
    NotFound(String),
    /// The forge cannot answer now: the network or its server failed several times in a row.
    #[error("{url}: {detail}")]
    Unavailable {
        /// The request.
        url: String,
        /// The last failure.
        detail: String,
    },
    /// The forge understands the request, and refuses it: 422.
    #[error("{url}: request rejected: {detail}")]
    Refused {
        /// The request.
        url: String,
        /// The reason.
        detail: String,
    },
    /// The answer differs from the forge's documentation.
    #[error("{url}: unexpected answer: {detail}")]
    Unexpected {
        /// The request.
        url: String,
        /// The reason.
        detail: String,
    },
    /// The caller ended the wait for a rate limit.
    #[error("stopped while waiting for a rate limit")]
    Stopped,
    /// A folder cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Its path.
        path: String,
        /// The reason.
        source: std::io::Error,
    },
}

impl Error {
    /// Returns whether the error is about one page only: the forge may still return the next one.
    pub fn is_of_page(&self) -> bool {
        matches!(self, Error::Unavailable { .. } | Error::Unexpected { .. } | Error::Refused { .. })
    }

    /// Returns whether every further request would fail in the same way: the forge accepts none of the
    /// tokens, or the caller has stopped.
    pub fn is_of_all(&self) -> bool {
        matches!(self, Error::Stopped | Error::Forbidden { status: 401 | 407, .. })
    }

    /// Returns whether the error is about one owner only: there is no owner of that name, or access is
    /// forbidden.
    pub(crate) fn is_of_owner(&self) -> bool {
        matches!(self, Error::NotFound(_) | Error::Forbidden { status: 403, .. })
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A server or folder that lists repositories.
pub trait Forge {
    /// Returns the position of the first page.
    fn start(&self) -> &'static str;

    /// Returns the page at `position`, which is [`Forge::start`] or comes from an earlier page.
    ///
    /// A page that the forge cannot return is skipped if the next one is known: then [`Page::skipped`] is
    /// set.
    ///
    /// # Errors
    /// If the page cannot be fetched after several tries.
    fn page(&mut self, position: &str) -> Result<Page>;

    /// Returns the page at `position`, or says that it has not changed since the forge gave it the tag
    /// `etag`.
    ///
    /// # Errors
    /// As [`Forge::page`].
    fn page_unless(&mut self, position: &str, etag: Option<&str>) -> Result<Page> {
        let _ = etag;
        self.page(position)
    }

    /// Returns whether the forge is one list, so that [`Forge::one`] knows no more than the listing.
    fn is_one_list(&self) -> bool {
        false
    }

    /// Says whether the repositories that are asked for next were public when they were listed.
    fn expect_public(&mut self, is_public: bool) {
        let _ = is_public;
    }

    /// Returns the repository with that id as it is now, or `None` if it is gone.
    ///
    /// # Errors
    /// If the forge does not say.
    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>>;

    /// Returns the position of the first page of accounts, or `None` if the forge lists none.
    fn accounts_start(&self) -> Option<&'static str> {
        None
    }

    /// Returns the page of accounts at `position`.
    ///
    /// # Errors
    /// As [`Forge::page`].
    fn accounts(&mut self, position: &str) -> Result<AccountsPage> {
        let _ = position;
        Ok(AccountsPage::default())
    }

    /// Returns the streams of metadata of a repository, for the `wanted` kinds: issues, pull requests,
    /// releases.
    fn metadata_streams(&self, wanted: &[MetadataKind]) -> Vec<&'static str> {
        let _ = wanted;
        Vec::new()
    }

    /// Returns the next part of a metadata stream after `cursor`, or its first part without one. `now` is in
    /// seconds since 1970.
    ///
    /// # Errors
    /// If it cannot be fetched after several tries.
    fn metadata(
        &mut self,
        forge_id: &str,
        stream: &str,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> Result<MetadataPage> {
        let _ = (forge_id, stream, cursor, now);
        Ok(MetadataPage { is_last: true, ..MetadataPage::default() })
    }

    /// Returns the deliveries of its webhooks, or `None` if it keeps none that can be listed.
    fn hook_deliveries(&mut self) -> Option<&mut dyn HookDeliveries> {
        None
    }

    /// Returns the requests made so far.
    fn usage(&self) -> Usage;

    /// Returns what is left of the limits of its API, as far as the forge has reported it.
    fn budgets(&self) -> Vec<RequestBudget> {
        Vec::new()
    }

    /// Takes what was known of these limits before: no request is made with a limit that is used up.
    fn remember(&mut self, budgets: &[RequestBudget]) {
        let _ = budgets;
    }
}
