//! Repositories as forges list them: one page after the other, from a position that can be kept.
//!
//! This crate knows no SQL and no git. A [`Forge`] gives pages; a [`Crawl`] keeps the position after each in
//! the catalog, so that a listing goes on where it ended, whatever ended it. Waiting for a rate limit happens
//! inside a request: nothing is restarted. An [`Import`] reads dumps that others have made of a forge.

use weir_ground::Timestamp;

mod accounts;
mod api;
mod api_answer;
mod app;
mod app_tokens;
mod bitbucket;
mod crawl;
mod filter;
mod folder;
mod gerrit;
mod gitea;
mod github;
mod github_search;
mod gitlab;
mod import;
mod manifest;
mod metadata;
mod page;
mod position;
mod rounds;
mod sourcehut;
mod webindex;
mod whole;

pub use accounts::{
    AccountsPage, AccountsProgress, accounts_listing, crawl_accounts, forge_of_accounts_listing,
};
pub use api::{Api, ApiOptions, Connect, Usage};
pub use app::GitHubApp;
pub use app_tokens::AppTokens;
pub use bitbucket::Bitbucket;
pub use crawl::{Crawl, CrawlError, CrawlProgress};
pub use filter::{FilterVerdict, ListingFilter};
pub use folder::Folder;
pub use gerrit::Gerrit;
pub use gitea::Gitea;
pub use github::GitHub;
pub use gitlab::GitLab;
pub use import::{Dump, Import, ImportError, Imported};
pub use manifest::Manifest;
pub use metadata::{MetadataKind, MetadataPage, failed, resumed, sum_of_news};
pub use page::{Page, Skipped};
pub use rounds::{CrawlSource, OtherError, RoundError, RoundEvent, Rounds, TellRound, preview};
pub use sourcehut::Sourcehut;
pub use webindex::{WebIndex, WebIndexKind};
pub use weir_catalog::{Account, AccountKind, Listed, RequestBudget};

/// Why a forge gives no page.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not take the credentials, or wants some.
    #[error("{url}: {status}: {detail}; look at the tokens of this forge")]
    Forbidden {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
        /// What it said.
        detail: String,
    },
    /// There is nothing (any more): 404, 410 and 451.
    #[error("{0}: not found")]
    NotFound(String),
    /// It cannot answer now: the network, or a server's error, several times in turn.
    #[error("{url}: {detail}")]
    Unavailable {
        /// What was asked for.
        url: String,
        /// What went wrong the last time.
        detail: String,
    },
    /// It understands what is asked, and does not answer that: 422.
    #[error("{url}: request rejected: {detail}")]
    Refused {
        /// What was asked for.
        url: String,
        /// Why.
        detail: String,
    },
    /// The answer is not what the documentation says.
    #[error("{url}: unexpected answer: {detail}")]
    Unexpected {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The wait for a rate limit was ended by the caller.
    #[error("stopped while waiting for a rate limit")]
    Stopped,
    /// A folder cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether it says nothing of other pages: a forge that gives one badly may give the next.
    pub(crate) fn is_of_page(&self) -> bool {
        matches!(self, Error::Unavailable { .. } | Error::Unexpected { .. } | Error::Refused { .. })
    }

    /// Whether whatever is asked for next ends so: it takes none of the tokens, or the caller wants no more.
    pub(crate) fn is_of_all(&self) -> bool {
        matches!(self, Error::Stopped | Error::Forbidden { status: 401 | 407, .. })
    }

    /// Whether it says nothing of other owners: there is none of that name, or it is not for us.
    pub(crate) fn is_of_owner(&self) -> bool {
        matches!(self, Error::NotFound(_) | Error::Forbidden { status: 403, .. })
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A place that lists repositories.
pub trait Forge {
    /// The position of the first page.
    fn start(&self) -> &'static str;

    /// The page at `position`: [`Forge::start`], or what an earlier page gave.
    ///
    /// A page that the forge cannot give is skipped where the next one can be named: [`Page::skipped`] says
    /// so.
    ///
    /// # Errors
    /// If it cannot be had, after several tries.
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

    /// The repository with that id as it is now; `None` if it is gone.
    ///
    /// # Errors
    /// If that cannot be found out.
    fn one(&mut self, forge_id: &str) -> Result<Option<Listed>>;

    /// The position of the first page of its accounts; `None` if it tells of none.
    fn accounts_start(&self) -> Option<&'static str> {
        None
    }

    /// The page of accounts at `position`.
    ///
    /// # Errors
    /// As [`Forge::page`].
    fn accounts(&mut self, position: &str) -> Result<AccountsPage> {
        let _ = position;
        Ok(AccountsPage::default())
    }

    /// The streams of what it says around a repository, as far as that is `wanted`: issues, pull requests,
    /// releases.
    fn metadata_streams(&self, wanted: &[MetadataKind]) -> Vec<&'static str> {
        let _ = wanted;
        Vec::new()
    }

    /// More of such a stream, after `cursor`; from its beginning without one. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// If it cannot be had, after several tries.
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

    /// Requests made so far.
    fn usage(&self) -> Usage;

    /// What is left of the limits of its API, as far as it has said so.
    fn budgets(&self) -> Vec<RequestBudget> {
        Vec::new()
    }

    /// What is known of that from before: what is used up is not asked for.
    fn remember(&mut self, budgets: &[RequestBudget]) {
        let _ = budgets;
    }
}
