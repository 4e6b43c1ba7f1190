//! Listings of several forges, once or at their intervals.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_catalog::Catalog;
use weir_forge::{Error, Forge};
use weir_ground::thread::spawn_scoped;
use weir_ground::{OtherError, Stop, Timestamp};
use weir_listed::Listed;

use crate::accounts::{AccountsProgress, accounts_listing, crawl_accounts};
use crate::crawl::{Crawl, CrawlError, CrawlProgress};
use crate::filter::FilterVerdict;
use crate::no_name::NoName;
use crate::questions::answer_questions;
use crate::stored::{ListingScope, WantedRepositories};

/// Longest sleep between checks of what is due while watching.
const WATCH_SLEEP: Duration = Duration::from_millis(200);
/// Time until a forge that another process lists is checked again, in seconds.
const LISTED_BY_ANOTHER_S: i64 = 60;
/// Time between looks for repositories that events say were changed.
const QUESTIONS_EVERY: Duration = Duration::from_secs(2);
/// Time until a listing that failed is resumed while watching, in seconds.
const RETRY_S: i64 = 300;

/// A forge as it is configured.
pub trait CrawlSource {
    /// Returns its name in the catalog.
    fn name(&self) -> String;

    /// Returns what is listed.
    fn scope(&self) -> ListingScope;

    /// Returns the name that a repository gets here, or `None` if its name is not wanted.
    ///
    /// # Errors
    /// If it can have no name here; the error says why.
    fn name_of(&self, listed: &Listed) -> Result<Option<String>, NoName>;

    /// Returns which of the listed repositories are wanted.
    fn wanted(&self) -> WantedRepositories;

    /// Returns the number of wanted repositories after which a listing ends, or 0.
    fn limit(&self) -> u64;

    /// Returns the time between the ends of two listings, in seconds.
    fn interval_s(&self) -> i64;

    /// Returns whether accounts and memberships are listed, too.
    fn lists_accounts(&self) -> bool;

    /// Opens the forge, which waits for its limits until `stop` is requested.
    ///
    /// # Errors
    /// If its credentials cannot be read.
    fn open(&self, stop: &Stop) -> Result<Box<dyn Forge>, OtherError>;
}

/// Something that happens while forges are listed.
#[derive(Debug)]
pub enum RoundEvent<'a> {
    /// A listing begins or goes on.
    Began,
    /// A page was taken.
    Page(&'a CrawlProgress),
    /// A page of accounts was taken.
    Accounts(&'a AccountsProgress),
    /// All accounts are taken.
    AccountsListed(&'a AccountsProgress),
    /// A listing has ended, or was interrupted.
    Ended,
    /// The result of the listing of repositories.
    Listed(&'a CrawlProgress),
    /// The forge was asked about repositories that events say were changed.
    Asked(&'a CrawlProgress),
    /// A listing failed. The next round resumes it.
    Failed(&'a RoundError),
}

/// A function that is called with what happens to the listing of the forge with that name.
pub type TellRound<'a> = dyn FnMut(&str, RoundEvent<'_>) -> Result<(), OtherError> + Send + 'a;

/// A function that opens the catalog once more, for a thread of its own.
pub type OpenCatalog<'a> = dyn Fn() -> Result<Catalog, weir_catalog::Error> + Sync + 'a;

/// Why a forge was not listed.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// The forge or the catalog failed.
    #[error(transparent)]
    Crawl(#[from] CrawlError),
    /// Another process is listing it.
    #[error("another weir process is listing it")]
    ListedByAnother,
    /// A function of the caller failed.
    #[error(transparent)]
    Other(OtherError),
}

impl From<weir_catalog::Error> for RoundError {
    fn from(e: weir_catalog::Error) -> RoundError {
        RoundError::Crawl(e.into())
    }
}

/// The listings of several forges.
pub struct Rounds<'a, S> {
    /// The forges.
    pub sources: &'a [S],
    /// Whether to list them at their intervals until `stop` is requested, or once.
    pub watch: bool,
    /// Seconds until a repository that is gone is looked at again.
    pub gone_s: i64,
    /// Returns the time.
    pub now: &'a (dyn Fn() -> Timestamp + Sync),
    /// Ends all listings.
    pub stop: &'a Stop,
}

impl<S: CrawlSource + Sync> Rounds<'_, S> {
    /// Lists the forges, each on a thread of its own: none waits for the limits of another. Returns whether
    /// one failed.
    pub fn run(&self, open: &OpenCatalog<'_>, tell: &mut TellRound<'_>) -> bool {
        let tell = Mutex::new(tell);
        let list = |source: &S| {
            let mut tell = |name: &str, event: RoundEvent<'_>| {
                (tell.lock().unwrap_or_else(PoisonError::into_inner))(name, event)
            };
            self.run_one(source, open, &mut tell)
        };
        let list = &list;
        std::thread::scope(|scope| {
            let started: Vec<_> = self
                .sources
                .iter()
                .map(|source| (source, spawn_scoped("crawl", scope, move || list(source)).ok()))
                .collect();
            let mut failed = false;
            for (source, thread) in started {
                failed |= match thread {
                    Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                    // No thread can be started.
                    None => list(source),
                };
            }
            failed
        })
    }

    /// Lists a forge, once or at its intervals. Returns whether that failed.
    fn run_one(&self, source: &S, open: &OpenCatalog<'_>, tell: &mut TellRound<'_>) -> bool {
        let (mut next, mut failed, mut catalog) = (Timestamp(0), false, None);
        let mut ask = Instant::now();
        loop {
            if !self.stop.is_stopped() && (self.now)() >= next {
                let turned = match &catalog {
                    Some(catalog) => self.turn(catalog, source, tell),
                    None => open()
                        .map_err(RoundError::from)
                        .and_then(|opened| self.turn(catalog.insert(opened), source, tell)),
                };
                next = turned.unwrap_or_else(|e| {
                    failed = true;
                    // If the caller's function is what failed, it cannot report that either.
                    let _ = tell(&source.name(), RoundEvent::Failed(&e));
                    (self.now)() + RETRY_S
                });
            }
            if let Some(catalog) = catalog.as_mut().filter(|_| !self.watch || ask <= Instant::now())
                && !self.stop.is_stopped()
            {
                ask = Instant::now() + QUESTIONS_EVERY;
                if let Err(e) = self.answer_questions(catalog, source, tell) {
                    failed = true;
                    ask += Duration::from_secs(RETRY_S as u64);
                    tracing::warn!("{}: cannot ask about repositories that were changed: {e}", source.name());
                }
            }
            if !self.watch || self.stop.is_stopped() {
                return failed;
            }
            self.stop.sleep(WATCH_SLEEP);
        }
    }

    /// Lists a forge, if that is due. Returns when it is due the next time.
    fn turn(&self, catalog: &Catalog, source: &S, tell: &mut TellRound<'_>) -> Result<Timestamp, RoundError> {
        let (name, now) = (source.name(), (self.now)());
        // While watching, a listing that ended a moment ago is not repeated, in whichever process it ended.
        let due = |at: Timestamp| at + source.interval_s();
        let lately = catalog.listings().get(&name)?.and_then(|l| l.finished_at).filter(|at| due(*at) > now);
        let accounts =
            if source.lists_accounts() { catalog.listings().get(&accounts_listing(&name))? } else { None };
        let only_accounts =
            self.watch && lately.is_some() && accounts.is_some_and(|l| l.finished_at.is_none());
        if let (true, Some(at), false) = (self.watch, lately, only_accounts) {
            return Ok(due(at));
        }
        if !catalog.listings().try_lock(&name)? {
            return if self.watch { Ok(now + LISTED_BY_ANOTHER_S) } else { Err(RoundError::ListedByAnother) };
        }
        let listed = self.list(catalog, source, only_accounts, tell);
        if let Err(e) = catalog.listings().unlock(&name) {
            tracing::warn!("{name}: {e}");
        }
        match listed {
            Ok(()) | Err(RoundError::Crawl(CrawlError::Forge(Error::Stopped))) => Ok(due((self.now)())),
            Err(RoundError::Crawl(CrawlError::Forge(e))) => {
                catalog.listings().set_failed(&name, &e.to_string(), (self.now)())?;
                Err(CrawlError::Forge(e).into())
            }
            Err(e) => Err(e),
        }
    }

    /// Lists the repositories of a forge, unless `only_accounts`, then its accounts, if they are wanted.
    fn list(
        &self,
        catalog: &Catalog,
        source: &S,
        only_accounts: bool,
        tell: &mut TellRound<'_>,
    ) -> Result<(), RoundError> {
        let name = source.name();
        let mut forge = source
            .open(self.stop)
            .map_err(|e| CrawlError::Forge(Error::Unexpected { url: name.clone(), detail: e.to_string() }))?;
        tell(&name, RoundEvent::Began).map_err(RoundError::Other)?;
        let mut progress = CrawlProgress { finished: true, ..CrawlProgress::default() };
        let mut listed = Ok(());
        if !only_accounts {
            match self.list_repositories(catalog, source, forge.as_mut(), tell) {
                Ok(crawled) => progress = crawled,
                Err(e) => {
                    tell(&name, RoundEvent::Ended).map_err(RoundError::Other)?;
                    return Err(e);
                }
            }
        }
        if source.lists_accounts() && progress.finished {
            listed = self.list_accounts(catalog, source, forge.as_mut(), &mut progress, tell);
        }
        tell(&name, RoundEvent::Ended).map_err(RoundError::Other)?;
        if !only_accounts {
            tell(&name, RoundEvent::Listed(&progress)).map_err(RoundError::Other)?;
        }
        listed
    }

    fn list_repositories(
        &self,
        catalog: &Catalog,
        source: &S,
        forge: &mut dyn Forge,
        tell: &mut TellRound<'_>,
    ) -> Result<CrawlProgress, RoundError> {
        let name = source.name();
        let mut told = Ok(());
        let crawled = self.with_crawl(source, |crawl| {
            crawl.run(catalog, forge, &mut |progress| {
                told = tell(&name, RoundEvent::Page(progress));
                told.is_ok() && !self.stop.is_stopped()
            })
        });
        told.map_err(RoundError::Other)?;
        let crawled = crawled?;
        if crawled.refused > 0 && crawled.wanted == 0 {
            let detail = format!("none of the {} repositories that it lists can be taken", crawled.refused);
            return Err(CrawlError::Forge(Error::Unexpected { url: name, detail }).into());
        }
        Ok(crawled)
    }

    /// Calls `work` with the settings of the crawl of `source`.
    fn with_crawl<T>(&self, source: &S, work: impl FnOnce(&Crawl<'_>) -> T) -> T {
        work(&Crawl {
            name: &source.name(),
            scope: &source.scope(),
            name_of: &|listed| source.name_of(listed),
            wanted: &source.wanted(),
            limit: source.limit(),
            gone_s: self.gone_s,
            now: self.now,
        })
    }

    /// Asks the forge about repositories that events say were changed, unless another process lists it.
    fn answer_questions(
        &self,
        catalog: &Catalog,
        source: &S,
        tell: &mut TellRound<'_>,
    ) -> Result<(), RoundError> {
        let name = source.name();
        if catalog.listings().questions(&name, 0, 1)?.is_empty() || !catalog.listings().try_lock(&name)? {
            return Ok(());
        }
        let open = || {
            let failed = |e: OtherError| Error::Unexpected { url: name.clone(), detail: e.to_string() };
            source.open(self.stop).map_err(failed)
        };
        let asked = self.with_crawl(source, |crawl| answer_questions(crawl, catalog, open));
        if let Err(e) = catalog.listings().unlock(&name) {
            tracing::warn!("{name}: {e}");
        }
        match asked {
            Ok(Some(asked)) => tell(&name, RoundEvent::Asked(&asked)).map_err(RoundError::Other),
            Ok(None) | Err(CrawlError::Forge(Error::Stopped)) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn list_accounts(
        &self,
        catalog: &Catalog,
        source: &S,
        forge: &mut dyn Forge,
        progress: &mut CrawlProgress,
        tell: &mut TellRound<'_>,
    ) -> Result<(), RoundError> {
        let name = source.name();
        let mut told = Ok(());
        let observe = &mut |accounts: &AccountsProgress| {
            told = tell(&name, RoundEvent::Accounts(accounts));
            told.is_ok() && !self.stop.is_stopped()
        };
        let accounts = crawl_accounts(&name, &source.scope(), catalog, forge, self.now, observe);
        progress.usage = forge.usage();
        told.map_err(RoundError::Other)?;
        if let Some(accounts) = accounts? {
            progress.finished = accounts.finished;
            tell(&name, RoundEvent::AccountsListed(&accounts)).map_err(RoundError::Other)?;
        }
        Ok(())
    }
}

/// Calls `tell` with each repository that a listing of `source` would add, and the name that it would get.
/// Does not use the catalog.
///
/// # Errors
/// If the forge or `tell` fails.
pub fn preview(
    source: &impl CrawlSource,
    stop: &Stop,
    tell: &mut dyn FnMut(&str, &Listed) -> Result<(), OtherError>,
) -> Result<(), OtherError> {
    let mut forge = source.open(stop)?;
    let (conditions, mut position, mut wanted) = (source.wanted(), forge.start().to_owned(), 0);
    let has_room = |wanted| source.limit() == 0 || wanted < source.limit();
    loop {
        let page = forge.page(&position)?;
        if let Some(skipped) = page.skipped {
            return Err(Error::Unavailable {
                url: source.name(),
                detail: format!("cannot get the page at {}: {}", skipped.position, skipped.error),
            }
            .into());
        }
        for listed in
            page.repositories.iter().filter(|l| conditions.filter.verdict(l) == FilterVerdict::Wanted)
        {
            let wiki = listed.wiki_repository().filter(|_| conditions.wikis);
            for listed in std::iter::once(listed).chain(&wiki) {
                let Ok(Some(name)) = source.name_of(listed) else { break };
                if has_room(wanted) {
                    wanted += 1;
                    tell(&name, listed)?;
                }
            }
        }
        match page.next {
            Some(next) if next != position && !stop.is_stopped() && has_room(wanted) => position = next,
            _ => return Ok(()),
        }
    }
}
