//! A listing taken into the catalog, page by page.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use weir_catalog::{Catalog, KeptPage, Listed, Listing, RequestBudget, Taken};
use weir_ground::Timestamp;

use crate::api::Usage;
use crate::filter::{FilterVerdict, ListingFilter};
use crate::position::CrawlPosition;
use crate::{Error, Forge, Page, Skipped};

/// Pages skipped one after the other before the forge is taken to be down. Nothing of them counts as passed
/// then.
const SKIPPED_IN_TURN_MAX: usize = 5;
/// Tries of a page that could not be had, in as many crawls.
const SKIPPED_TRIES_MAX: i64 = 10;
/// Repositories asked for by themselves at the end, as the listing did not name them.
const UNSEEN_MAX: usize = 10_000;
const UNSEEN_BATCH: usize = 100;

/// Why a crawl ended early. It goes on where it was.
#[derive(Debug, thiserror::Error)]
pub enum CrawlError {
    /// The forge gives nothing.
    #[error(transparent)]
    Forge(#[from] Error),
    /// The catalog takes nothing.
    #[error(transparent)]
    Catalog(#[from] weir_catalog::Error),
}

/// What is crawled, and how.
pub struct Crawl<'a> {
    /// The forge's name in the catalog.
    pub name: &'a str,
    /// What is listed: with another scope a listing begins anew.
    pub scope: &'a str,
    /// What is wanted.
    pub filter: &'a ListingFilter,
    /// The name a repository gets here, none if it is not wanted; or why it can have none.
    pub name_of: &'a dyn Fn(&Listed) -> Result<Option<String>, String>,
    /// Whether wikis are wanted, too, of what is wanted.
    pub wikis: bool,
    /// All that says what is wanted, as text: a page that has not changed need not be looked through again
    /// while this is so.
    pub wanted: &'a str,
    /// Ends after so many wanted repositories; 0 for no end.
    pub limit: u64,
    /// Seconds until one that is gone is looked at again.
    pub gone_s: i64,
    /// Seconds since 1970.
    pub now: &'a dyn Fn() -> Timestamp,
}

/// How far a crawl has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrawlProgress {
    /// Pages had.
    pub pages: u64,
    /// Those of them that were as they were before.
    pub unchanged: u64,
    /// Repositories in them.
    pub listed: u64,
    /// Those that are wanted.
    pub wanted: u64,
    /// Those of which the forge does not say what the filter asks.
    pub unknown: u64,
    /// What it does not say of the first of them.
    pub unknown_of: Option<&'static str>,
    /// Those that can have no name here.
    pub refused: u64,
    /// What came of those that are wanted.
    pub taken: Taken,
    /// Pages that could not be had.
    pub skipped: u64,
    /// Pages that could be had after all.
    pub recovered: u64,
    /// Repositories found to be gone.
    pub gone: u64,
    /// What the forge was asked.
    pub usage: Usage,
    /// Whether the listing came to its end.
    pub finished: bool,
}

/// Writes down what is left of the limits of `forge`.
pub(crate) fn keep_budgets(
    name: &str,
    catalog: &mut Catalog,
    forge: &dyn Forge,
    now: Timestamp,
) -> Result<(), CrawlError> {
    let budgets = forge.budgets();
    if !budgets.is_empty() {
        catalog.set_budgets(name, &budgets, now)?;
    }
    Ok(())
}

/// Tells `forge` what was left of them when that was written down.
pub(crate) fn remember_budgets(
    name: &str,
    catalog: &Catalog,
    forge: &mut dyn Forge,
    now: Timestamp,
) -> Result<(), CrawlError> {
    let known: Vec<RequestBudget> = catalog
        .budgets(now)?
        .into_iter()
        .filter(|(forge, _)| forge == name)
        .map(|(_, budget)| budget)
        .collect();
    forge.remember(&known);
    Ok(())
}

/// Where a listing has been: one that leads in a circle has no end.
#[derive(Default)]
pub(crate) struct Places(HashSet<u64>, RandomState);

impl Places {
    /// Notes that it is at `position`.
    pub(crate) fn visit(&mut self, name: &str, position: &str) -> Result<(), Error> {
        if self.0.insert(self.1.hash_one(position)) {
            return Ok(());
        }
        Err(Error::Unexpected {
            url: name.to_owned(),
            detail: format!("the pages loop back to '{position}'"),
        })
    }
}

/// How far pages were turned.
struct Turned {
    listing: Listing,
    /// Pages that cannot be had, and have nothing behind them yet.
    pending: Vec<Skipped>,
    progress: CrawlProgress,
}

/// Where a listing goes on.
enum After {
    /// With the page there.
    Page(String),
    /// With those it did not name: this was the last page.
    Unseen,
    /// Nowhere: as many were taken as are wanted.
    Enough,
}

impl Crawl<'_> {
    /// Goes on with the listing of `forge` until it ends, or `observe` says no.
    ///
    /// # Errors
    /// If the forge or the catalog fails. What was taken stays taken.
    pub fn run(
        &self,
        catalog: &mut Catalog,
        forge: &mut dyn Forge,
        observe: &mut dyn FnMut(&CrawlProgress) -> bool,
    ) -> Result<CrawlProgress, CrawlError> {
        let mut progress = CrawlProgress::default();
        remember_budgets(self.name, catalog, forge, (self.now)())?;
        let mut listing = catalog.begin_listing(self.name, self.scope, (self.now)())?;
        self.recover(catalog, forge, &listing, &mut progress)?;
        let mut position = match listing.position.as_deref().map(CrawlPosition::parse) {
            Some(CrawlPosition::Unseen(after)) => {
                progress.finished =
                    self.look_for_unseen(catalog, forge, &mut listing, after, &mut progress, observe)?;
                return Ok(progress);
            }
            Some(CrawlPosition::Page(position)) => Some(position),
            None => None,
        };
        let mut turned = Turned { listing, pending: Vec::new(), progress };
        let mut places = Places::default();
        loop {
            let place = position.clone().unwrap_or_else(|| forge.start().to_owned());
            places.visit(self.name, &place)?;
            let known = self.kept_page(catalog, &place)?;
            let page = forge.page_unless(&place, known.as_ref().map(|known| known.etag.as_str()))?;
            turned.progress.usage = forge.usage();
            let after = match known {
                Some(known) if page.is_unchanged => self.take_unchanged(catalog, &mut turned, &known)?,
                _ => self.take(catalog, &mut turned, &place, position.is_none(), page)?,
            };
            keep_budgets(self.name, catalog, forge, (self.now)())?;
            let goes_on = observe(&turned.progress);
            match after {
                After::Page(next) if goes_on => position = Some(next),
                After::Unseen if goes_on => {
                    let Turned { mut listing, mut progress, .. } = turned;
                    progress.finished =
                        self.look_for_unseen(catalog, forge, &mut listing, 0, &mut progress, observe)?;
                    return Ok(progress);
                }
                After::Page(_) | After::Unseen => return Ok(turned.progress),
                After::Enough => return Ok(CrawlProgress { finished: true, ..turned.progress }),
            }
        }
    }

    /// Returns what is known of the page at `place`, if that holds for what is wanted today.
    fn kept_page(&self, catalog: &Catalog, place: &str) -> Result<Option<KeptPage>, CrawlError> {
        // With a limit it matters how many came before.
        let known = if self.limit == 0 { catalog.kept_page(self.name, place)? } else { None };
        let known = known.filter(|known| known.wanted == self.wanted);
        // What was gone and is there again is to be told anew.
        Ok(match known {
            Some(known) if catalog.has_gone(self.name, &known.ids)? => None,
            known => known,
        })
    }

    /// Takes a page that is as it was.
    fn take_unchanged(
        &self,
        catalog: &mut Catalog,
        turned: &mut Turned,
        known: &KeptPage,
    ) -> Result<After, CrawlError> {
        self.write_skipped(catalog, turned)?;
        let ids: Vec<&str> = known.ids.iter().map(String::as_str).collect();
        catalog.mark_seen(&turned.listing, &ids)?;
        let kept = known.next.clone().unwrap_or_else(|| CrawlPosition::Unseen(0).text());
        catalog.take_page(&mut turned.listing, &[], Some(&kept), (self.now)())?;
        let progress = &mut turned.progress;
        (progress.pages, progress.unchanged) = (progress.pages + 1, progress.unchanged + 1);
        progress.listed += ids.iter().filter(|id| Listed::of_wiki(id).is_none()).count() as u64;
        Ok(known.next.clone().map_or(After::Unseen, After::Page))
    }

    /// Takes a page, or notes that it cannot be had; `is_first` says whether it is that of a new listing.
    fn take(
        &self,
        catalog: &mut Catalog,
        turned: &mut Turned,
        place: &str,
        is_first: bool,
        mut page: Page,
    ) -> Result<After, CrawlError> {
        if let Some(Skipped { position, error }) = &page.left_out {
            catalog.skip_page(self.name, position, error, (self.now)())?;
            turned.progress.skipped += 1;
        }
        if let Some(skipped) = page.skipped.take() {
            let Skipped { position, error } = &skipped;
            tracing::warn!(forge = self.name, %position, "page skipped: {error}");
            turned.pending.push(skipped);
            if turned.pending.len() >= SKIPPED_IN_TURN_MAX {
                let Skipped { position, error } = turned.pending.swap_remove(0);
                let detail =
                    format!("{SKIPPED_IN_TURN_MAX} pages in a row failed, from {position} on: {error}");
                return Err(Error::Unavailable { url: self.name.to_owned(), detail }.into());
            }
            // What was skipped counts as passed once something behind it is there.
            if let Some(next) = page.next {
                return Ok(After::Page(next));
            }
        }
        self.write_skipped(catalog, turned)?;
        let lists_nothing =
            turned.progress.listed == 0 && is_first && page.repositories.is_empty() && page.next.is_none();
        if lists_nothing && catalog.forge_counts(self.name)?.0 > 0 {
            // One that has lost its access, say: what it had is not gone.
            let detail = "it no longer lists any repository; none are marked as gone".to_owned();
            return Err(Error::Unexpected { url: self.name.to_owned(), detail }.into());
        }
        self.take_listed(catalog, turned, place, page)
    }

    fn take_listed(
        &self,
        catalog: &mut Catalog,
        turned: &mut Turned,
        place: &str,
        page: Page,
    ) -> Result<After, CrawlError> {
        let Turned { listing, progress, .. } = turned;
        let unknown_before = progress.unknown;
        let mut wanted = self.wanted(&page.repositories, progress);
        // More may be known of them the next time.
        let has_unknown = progress.unknown > unknown_before;
        // Of this listing, however many crawls it takes.
        let room = if self.limit == 0 { u64::MAX } else { self.limit.saturating_sub(listing.listed as u64) };
        let is_enough = wanted.len() as u64 >= room;
        while wanted.len() as u64 > room {
            wanted.pop();
            progress.wanted -= 1;
        }
        let next = page.next.filter(|_| !is_enough);
        // Those that are not wanted too: the forge has them, and need not be asked.
        let named: Vec<&str> = page.repositories.iter().map(|l| l.forge_id.as_str()).collect();
        catalog.mark_seen(listing, &named)?;
        // The listing has ended only when those it did not name were asked for.
        let kept = next.clone().or_else(|| (!is_enough).then(|| CrawlPosition::Unseen(0).text()));
        progress.taken += catalog.take_page(listing, &wanted, kept.as_deref(), (self.now)())?;
        if let (Some(etag), 0, false) = (page.etag, self.limit, has_unknown) {
            let wikis = wanted
                .iter()
                .map(|(_, listed)| listed.forge_id.as_str())
                .filter(|id| Listed::of_wiki(id).is_some());
            let ids = named.iter().copied().chain(wikis).map(str::to_owned).collect();
            let kept = KeptPage { etag, wanted: self.wanted.to_owned(), ids, next: next.clone() };
            catalog.keep_page(self.name, place, &kept)?;
        }
        progress.pages += 1;
        Ok(match next {
            Some(next) => After::Page(next),
            None if is_enough => After::Enough,
            None => After::Unseen,
        })
    }

    fn wanted(&self, repositories: &[Listed], progress: &mut CrawlProgress) -> Vec<(String, Listed)> {
        progress.listed += repositories.len() as u64;
        let mut wanted = Vec::with_capacity(repositories.len());
        for listed in repositories {
            let verdict = self.filter.verdict(listed);
            if verdict == FilterVerdict::Unwanted {
                continue;
            }
            match (self.name_of)(listed) {
                Ok(Some(_)) if let FilterVerdict::Unknown(what) = verdict => {
                    progress.unknown += 1;
                    progress.unknown_of = progress.unknown_of.or(Some(what));
                }
                Ok(Some(name)) => {
                    wanted.push((name, listed.clone()));
                    let wiki = listed.wiki_repository().filter(|_| self.wikis);
                    wanted.extend(wiki.and_then(|wiki| Some(((self.name_of)(&wiki).ok()??, wiki))));
                }
                Ok(None) => {}
                Err(why) => {
                    progress.refused += 1;
                    tracing::warn!(forge = self.name, repository = %listed.full_name, "skipped: {why}");
                }
            }
        }
        progress.wanted += wanted.len() as u64;
        wanted
    }

    /// Writes down pages that could not be had, once something behind them came.
    fn write_skipped(&self, catalog: &mut Catalog, turned: &mut Turned) -> Result<(), CrawlError> {
        for Skipped { position, error } in turned.pending.drain(..) {
            catalog.skip_page(self.name, &position, &error, (self.now)())?;
            turned.progress.skipped += 1;
        }
        Ok(())
    }

    /// Tries the pages again that could not be had before.
    fn recover(
        &self,
        catalog: &mut Catalog,
        forge: &mut dyn Forge,
        listing: &Listing,
        progress: &mut CrawlProgress,
    ) -> Result<(), CrawlError> {
        let mut in_turn = 0;
        for weir_catalog::SkippedPage { position, tries, .. } in catalog.skipped_pages(self.name)? {
            // A forge that is down is told by its listing.
            if tries >= SKIPPED_TRIES_MAX || in_turn >= SKIPPED_IN_TURN_MAX {
                continue;
            }
            in_turn += 1;
            match forge.page(&position) {
                Ok(
                    Page { skipped: Some(Skipped { error, .. }), .. }
                    | Page { left_out: Some(Skipped { error, .. }), .. },
                ) => {
                    catalog.skip_page(self.name, &position, &error, (self.now)())?;
                }
                Ok(page) => {
                    let wanted = self.wanted(&page.repositories, progress);
                    progress.taken += catalog.take_more(listing, &wanted, (self.now)())?;
                    catalog.forget_skipped(self.name, &position)?;
                    progress.recovered += 1;
                    in_turn = 0;
                }
                Err(Error::Stopped) => return Err(Error::Stopped.into()),
                Err(e) => catalog.skip_page(self.name, &position, &e.to_string(), (self.now)())?,
            }
        }
        progress.usage = forge.usage();
        Ok(())
    }

    /// Asks for each repository by itself, from number `after` on, that the listing did not name: it may have
    /// moved while pages were turned. Only what the forge says it does not have is gone. False if it was
    /// stopped.
    fn look_for_unseen(
        &self,
        catalog: &mut Catalog,
        forge: &mut dyn Forge,
        listing: &mut Listing,
        mut after: i64,
        progress: &mut CrawlProgress,
        observe: &mut dyn FnMut(&CrawlProgress) -> bool,
    ) -> Result<bool, CrawlError> {
        let (mut asked, mut failed_in_turn) = (0, 0);
        while asked < UNSEEN_MAX {
            let unseen = catalog.unseen(listing, after, UNSEEN_BATCH)?;
            let Some(last) = unseen.last() else { break };
            after = last.id;
            asked += unseen.len();
            let (mut gone, mut there) = (Vec::new(), Vec::new());
            for one in &unseen {
                let found = match Listed::of_wiki(&one.forge_id) {
                    Some(id) => {
                        forge.one(id).map(|listed| listed.and_then(|listed| listed.wiki_repository()))
                    }
                    None => forge.one(&one.forge_id),
                };
                match found {
                    Ok(None) => gone.push(one.id),
                    // What is there is kept, whether it would be taken today or not.
                    Ok(Some(listed)) => there.push((
                        (self.name_of)(&listed).ok().flatten().unwrap_or_else(|| one.name.clone()),
                        listed,
                    )),
                    // It says nothing of this one, nor will it of the others.
                    Err(e) if e.is_of_all() => return Err(e.into()),
                    // One that is blocked, say: nobody knows about it, and the others are asked for.
                    Err(e) => {
                        tracing::warn!(forge = self.name, repository = %one.name,
                            "cannot tell whether it still exists: {e}");
                        failed_in_turn += 1;
                        if failed_in_turn >= SKIPPED_IN_TURN_MAX && matches!(e, Error::Unavailable { .. }) {
                            return Err(e.into());
                        }
                        continue;
                    }
                }
                failed_in_turn = 0;
            }
            let now = (self.now)();
            catalog.set_gone(&gone, now, now + self.gone_s)?;
            progress.gone += gone.len() as u64;
            progress.taken += catalog.take_more(listing, &there, now)?;
            progress.usage = forge.usage();
            catalog.take_page(listing, &[], Some(&CrawlPosition::Unseen(after).text()), now)?;
            if !observe(progress) {
                return Ok(false);
            }
        }
        catalog.take_page(listing, &[], None, (self.now)())?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its pages lead from one to the other and back.
    struct Circle(u64);

    impl Forge for Circle {
        fn start(&self) -> &'static str {
            "1"
        }

        fn page(&mut self, position: &str) -> crate::Result<Page> {
            self.0 += 1;
            let next = Some(if position == "1" { "2" } else { "1" }.to_owned());
            Ok(Page { next, ..Page::default() })
        }

        fn one(&mut self, _: &str) -> crate::Result<Option<Listed>> {
            Ok(None)
        }

        fn accounts_start(&self) -> Option<&'static str> {
            Some("1")
        }

        fn accounts(&mut self, position: &str) -> crate::Result<crate::AccountsPage> {
            let next = self.page(position)?.next;
            Ok(crate::AccountsPage { next, ..Default::default() })
        }

        fn usage(&self) -> Usage {
            Usage::default()
        }
    }

    #[test]
    fn a_listing_that_leads_in_a_circle_ends() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        let crawl = Crawl {
            name: "f",
            scope: "all",
            filter: &ListingFilter::default(),
            name_of: &|_| Ok(None),
            wikis: false,
            wanted: "",
            limit: 0,
            gone_s: 1,
            now: &|| Timestamp(7),
        };
        let mut forge = Circle(0);
        let error = crawl.run(&mut catalog, &mut forge, &mut |_| true).unwrap_err();
        assert!(error.to_string().contains("loop back") && forge.0 == 2, "{error} {}", forge.0);
        let error =
            crate::crawl_accounts("f", "all", &mut catalog, &mut forge, &|| Timestamp(7), &mut |_| true)
                .unwrap_err();
        assert!(error.to_string().contains("loop back") && forge.0 == 4, "{error} {}", forge.0);
    }
}
