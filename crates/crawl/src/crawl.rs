//! Crawls a forge: takes its listing into the catalog, page by page.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use weir_catalog::{Catalog, KeptPage, Listing, Taken};
use weir_forge::{Error, Forge, Page, Skipped, Usage};
use weir_ground::Timestamp;
use weir_listed::{Listed, RequestBudget};

use crate::asked::{ForgeAnswers, ask};
use crate::filter::FilterVerdict;
use crate::no_name::NoName;
use crate::position::CrawlPosition;
use crate::stored::{ListingScope, WantedRepositories};

/// The number of pages skipped in a row after which the forge counts as down. The listing then does not go
/// past them.
const SKIPPED_IN_TURN_MAX: usize = 5;
/// How often a page that could not be fetched is tried again; at most once in each crawl.
const SKIPPED_TRIES_MAX: i64 = 10;
/// A list of at least so many repositories does not lose nine tenths of them at once.
const SHRUNK_FROM_MIN: usize = 20;
/// How many repositories that the listing did not name are requested by themselves at its end, at most.
const UNSEEN_MAX: usize = 10_000;
const UNSEEN_BATCH: usize = 100;

/// Why a crawl ended early. The next crawl goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum CrawlError {
    /// The forge failed.
    #[error(transparent)]
    Forge(#[from] Error),
    /// The catalog failed.
    #[error(transparent)]
    Catalog(#[from] weir_catalog::Error),
}

/// The settings of a crawl.
pub struct Crawl<'a> {
    /// The forge's name in the catalog.
    pub name: &'a str,
    /// The scope of the listing. With another scope, the listing begins again.
    pub scope: &'a ListingScope,
    /// Returns the name that a repository gets here, or `None` if it is not wanted. An error says why it can
    /// have no name.
    pub name_of: &'a dyn Fn(&Listed) -> Result<Option<String>, NoName>,
    /// Which repositories are wanted. An unchanged page is not read again while this stays the same.
    pub wanted: &'a WantedRepositories,
    /// The number of wanted repositories after which the listing ends; 0 for no limit.
    pub limit: u64,
    /// Seconds until a repository that is gone is visited again.
    pub gone_s: i64,
    /// Returns the time.
    pub now: &'a dyn Fn() -> Timestamp,
}

/// The progress of a crawl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrawlProgress {
    /// Pages taken.
    pub pages: u64,
    /// Pages that have not changed since they were last taken.
    pub unchanged: u64,
    /// Repositories in the pages.
    pub listed: u64,
    /// Wanted repositories, with their wikis.
    pub wanted: u64,
    /// Repositories for which the forge lacks a property that the filter checks.
    pub unknown: u64,
    /// The missing property of the first of them.
    pub unknown_of: Option<&'static str>,
    /// Repositories that can have no name here.
    pub refused: u64,
    /// The changes that the catalog made for the wanted repositories.
    pub taken: Taken,
    /// Pages that could not be fetched.
    pub skipped: u64,
    /// Pages that an earlier crawl could not fetch and this one could.
    pub recovered: u64,
    /// Repositories found to be gone.
    pub gone: u64,
    /// Repositories that the forge was asked about, because events say that they were changed.
    pub asked: u64,
    /// The requests sent to the forge.
    pub usage: Usage,
    /// Whether the listing reached its end.
    pub finished: bool,
}

impl CrawlProgress {
    /// Returns the result of a listing of the forge `name` as a line.
    pub fn line(&self, name: &str) -> String {
        let mut parts = vec![format!("{} listed", self.listed), format!("{} wanted", self.wanted)];
        let unknown = format!("skipped (the forge does not say {})", self.unknown_of.unwrap_or_default());
        let counts = [
            (self.taken.added as u64, "new"),
            (self.taken.renamed as u64, "renamed"),
            (self.taken.hinted as u64, "changed"),
            (self.taken.back as u64, "back"),
            (self.gone, "gone"),
            (self.unknown, &unknown),
            (self.refused, "skipped (invalid names)"),
            (self.unchanged, "pages unchanged"),
            (self.skipped, "pages skipped"),
            (self.recovered, "skipped pages recovered"),
        ];
        parts.extend(counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
        let state = if self.finished { "" } else { " (to be continued)" };
        format!("{name}: {}; {} requests{state}", parts.join(", "), self.usage.requests)
    }
}

/// Stores what is left of the limits of `forge` in the catalog.
pub(crate) fn keep_budgets(
    name: &str,
    catalog: &Catalog,
    forge: &dyn Forge,
    now: Timestamp,
) -> Result<(), CrawlError> {
    let budgets = forge.budgets();
    if !budgets.is_empty() {
        catalog.accounts().set_budgets(name, &budgets, now)?;
    }
    Ok(())
}

/// Tells `forge` what was left of its limits when they were last stored.
pub(crate) fn remember_budgets(
    name: &str,
    catalog: &Catalog,
    forge: &mut dyn Forge,
    now: Timestamp,
) -> Result<(), CrawlError> {
    let known: Vec<RequestBudget> = catalog
        .accounts()
        .budgets(now)?
        .into_iter()
        .filter(|(forge, _)| forge == name)
        .map(|(_, budget)| budget)
        .collect();
    forge.remember(&known);
    Ok(())
}

/// The positions that a listing has visited. A listing that leads in a circle has no end.
#[derive(Default)]
pub(crate) struct Places(HashSet<u64>, RandomState);

impl Places {
    /// Records that the listing is at `position`. Fails if it was there before.
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

/// The progress of a listing, with the pages that are skipped.
struct Turned {
    listing: Listing,
    /// Skipped pages; no later page has been fetched yet.
    pending: Vec<Skipped>,
    progress: CrawlProgress,
}

/// Where a listing goes on.
enum After {
    /// At this page.
    Page(String),
    /// With the repositories that the listing did not name: this was the last page.
    Unseen,
    /// Nowhere: the limit of wanted repositories is reached.
    Enough,
}

impl Crawl<'_> {
    /// Continues the listing of `forge` until it ends or `observe` returns false.
    ///
    /// # Errors
    /// If the forge or the catalog fails. What was taken stays taken.
    pub fn run(
        &self,
        catalog: &Catalog,
        forge: &mut dyn Forge,
        observe: &mut dyn FnMut(&CrawlProgress) -> bool,
    ) -> Result<CrawlProgress, CrawlError> {
        let mut progress = CrawlProgress::default();
        remember_budgets(self.name, catalog, forge, (self.now)())?;
        let mut listing = self.scope.begin(catalog, self.name, (self.now)())?;
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

    /// Returns what the catalog knows of the page at `place`, if it was stored with the same `wanted`.
    fn kept_page(&self, catalog: &Catalog, place: &str) -> Result<Option<KeptPage>, CrawlError> {
        // With a limit, the result depends on how many repositories came before.
        let known = if self.limit == 0 { catalog.listings().kept_page(self.name, place)? } else { None };
        let known = known.filter(|known| known.wanted == self.wanted.to_text());
        // A repository that was gone and is there again must be reported again.
        Ok(match known {
            Some(known) if catalog.listings().has_gone(self.name, &known.ids)? => None,
            known => known,
        })
    }

    /// Takes a page that has not changed.
    fn take_unchanged(
        &self,
        catalog: &Catalog,
        turned: &mut Turned,
        known: &KeptPage,
    ) -> Result<After, CrawlError> {
        self.write_skipped(catalog, turned)?;
        let ids: Vec<&str> = known.ids.iter().map(String::as_str).collect();
        catalog.listings().mark_seen(&turned.listing, &ids)?;
        let kept = known.next.clone().unwrap_or_else(|| CrawlPosition::Unseen(0).text());
        catalog.listings().take_page(&mut turned.listing, &[], Some(&kept), (self.now)())?;
        let progress = &mut turned.progress;
        (progress.pages, progress.unchanged) = (progress.pages + 1, progress.unchanged + 1);
        progress.listed += ids.iter().filter(|id| Listed::of_wiki(id).is_none()).count() as u64;
        Ok(known.next.clone().map_or(After::Unseen, After::Page))
    }

    /// Takes a page, or records that it could not be fetched. `is_first` says whether it is the first page of
    /// a new listing.
    fn take(
        &self,
        catalog: &Catalog,
        turned: &mut Turned,
        place: &str,
        is_first: bool,
        mut page: Page,
    ) -> Result<After, CrawlError> {
        if let Some(Skipped { position, error }) = &page.left_out {
            catalog.listings().skip_page(self.name, position, error, (self.now)())?;
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
            // Skipped pages count as passed once a later page has been fetched.
            if let Some(next) = page.next {
                return Ok(After::Page(next));
            }
        }
        self.write_skipped(catalog, turned)?;
        let lists_nothing =
            turned.progress.listed == 0 && is_first && page.repositories.is_empty() && page.next.is_none();
        if lists_nothing && catalog.listings().counts(self.name)?.0 > 0 {
            // The forge may have lost its access, for example. Its repositories are not gone.
            let detail = "it no longer lists any repository; none are marked as gone".to_owned();
            return Err(Error::Unexpected { url: self.name.to_owned(), detail }.into());
        }
        self.take_listed(catalog, turned, place, page)
    }

    fn take_listed(
        &self,
        catalog: &Catalog,
        turned: &mut Turned,
        place: &str,
        page: Page,
    ) -> Result<After, CrawlError> {
        let Turned { listing, progress, .. } = turned;
        let unknown_before = progress.unknown;
        let mut wanted = self.wanted(&page.repositories, progress);
        // The next crawl may learn more about them.
        let has_unknown = progress.unknown > unknown_before;
        // The limit is for the whole listing, however many crawls it takes.
        let room = if self.limit == 0 { u64::MAX } else { self.limit.saturating_sub(listing.listed as u64) };
        let is_enough = wanted.len() as u64 >= room;
        while wanted.len() as u64 > room {
            wanted.pop();
            progress.wanted -= 1;
        }
        let next = page.next.filter(|_| !is_enough);
        // Includes the unwanted ones: the forge has them, so they need not be requested by themselves.
        let named: Vec<&str> = page.repositories.iter().map(|l| l.forge_id.as_str()).collect();
        catalog.listings().mark_seen(listing, &named)?;
        // The listing ends only after the repositories that it did not name were requested.
        let kept = next.clone().or_else(|| (!is_enough).then(|| CrawlPosition::Unseen(0).text()));
        progress.taken += catalog.listings().take_page(listing, &wanted, kept.as_deref(), (self.now)())?;
        if let (Some(etag), 0, false) = (page.etag, self.limit, has_unknown) {
            let wikis = wanted
                .iter()
                .map(|(_, listed)| listed.forge_id.as_str())
                .filter(|id| Listed::of_wiki(id).is_some());
            let ids = named.iter().copied().chain(wikis).map(str::to_owned).collect();
            let kept = KeptPage { etag, wanted: self.wanted.to_text(), ids, next: next.clone() };
            catalog.listings().keep_page(self.name, place, &kept)?;
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
            let verdict = self.wanted.filter.verdict(listed);
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
                    let wiki = listed.wiki_repository().filter(|_| self.wanted.wikis);
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

    /// Records the pending skipped pages, once a later page was fetched.
    fn write_skipped(&self, catalog: &Catalog, turned: &mut Turned) -> Result<(), CrawlError> {
        for Skipped { position, error } in turned.pending.drain(..) {
            catalog.listings().skip_page(self.name, &position, &error, (self.now)())?;
            turned.progress.skipped += 1;
        }
        Ok(())
    }

    /// Tries pages again that an earlier crawl could not fetch.
    fn recover(
        &self,
        catalog: &Catalog,
        forge: &mut dyn Forge,
        listing: &Listing,
        progress: &mut CrawlProgress,
    ) -> Result<(), CrawlError> {
        let mut in_turn = 0;
        for weir_catalog::SkippedPage { position, tries, .. } in
            catalog.listings().skipped_pages(self.name)?
        {
            // If the forge is down, the listing itself will report it.
            if tries >= SKIPPED_TRIES_MAX || in_turn >= SKIPPED_IN_TURN_MAX {
                continue;
            }
            in_turn += 1;
            match forge.page(&position) {
                Ok(
                    Page { skipped: Some(Skipped { error, .. }), .. }
                    | Page { left_out: Some(Skipped { error, .. }), .. },
                ) => {
                    catalog.listings().skip_page(self.name, &position, &error, (self.now)())?;
                }
                Ok(page) => {
                    let wanted = self.wanted(&page.repositories, progress);
                    progress.taken += catalog.listings().take_more(listing, &wanted, (self.now)())?;
                    catalog.listings().forget_skipped(self.name, &position)?;
                    progress.recovered += 1;
                    in_turn = 0;
                }
                Err(Error::Stopped) => return Err(Error::Stopped.into()),
                Err(e) => catalog.listings().skip_page(self.name, &position, &e.to_string(), (self.now)())?,
            }
        }
        progress.usage = forge.usage();
        Ok(())
    }

    /// Fails if a forge that is one list has hardly anything of what it had: it may be cut short for a
    /// moment. The next crawl reads the list again.
    fn check_shrinkage(
        &self,
        catalog: &Catalog,
        listing: &mut Listing,
        start: &str,
    ) -> Result<(), CrawlError> {
        let (all, gone) = catalog.listings().counts(self.name)?;
        let known = usize::try_from(all - gone).unwrap_or(0);
        let unseen = catalog.listings().unseen(listing, 0, known)?.len();
        if known < SHRUNK_FROM_MIN || unseen * 10 < known * 9 {
            return Ok(());
        }
        catalog.listings().take_page(listing, &[], Some(start), (self.now)())?;
        let detail = format!(
            "it lists {} of the {known} repositories that it had; none are marked as gone; if they are, \
            remove them",
            known - unseen
        );
        Err(Error::Unexpected { url: self.name.to_owned(), detail }.into())
    }

    /// Requests each repository that the listing did not name by itself, from id `after` on: it may have
    /// moved while pages were fetched. Only a repository that the forge reports as missing is gone. Returns
    /// false if it was stopped.
    fn look_for_unseen(
        &self,
        catalog: &Catalog,
        forge: &mut dyn Forge,
        listing: &mut Listing,
        mut after: i64,
        progress: &mut CrawlProgress,
        observe: &mut dyn FnMut(&CrawlProgress) -> bool,
    ) -> Result<bool, CrawlError> {
        if after == 0 && forge.is_one_list() {
            self.check_shrinkage(catalog, listing, forge.start())?;
        }
        let (mut asked, mut failed_in_row) = (0, 0);
        while asked < UNSEEN_MAX {
            let unseen = catalog.listings().unseen(listing, after, UNSEEN_BATCH)?;
            let Some(last) = unseen.last() else { break };
            after = last.id;
            asked += unseen.len();
            let ForgeAnswers { gone, there } =
                ask(self.name, self.name_of, forge, &unseen, &mut failed_in_row)?;
            let now = (self.now)();
            catalog.listings().set_gone(&gone, now, now + self.gone_s)?;
            progress.gone += gone.len() as u64;
            progress.taken += catalog.listings().take_more(listing, &there, now)?;
            progress.usage = forge.usage();
            catalog.listings().take_page(listing, &[], Some(&CrawlPosition::Unseen(after).text()), now)?;
            if !observe(progress) {
                return Ok(false);
            }
        }
        catalog.listings().take_page(listing, &[], None, (self.now)())?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forge whose pages lead from one to the other and back.
    struct Circle(u64);

    impl Forge for Circle {
        fn start(&self) -> &'static str {
            "1"
        }

        fn page(&mut self, position: &str) -> weir_forge::Result<Page> {
            self.0 += 1;
            let next = Some(if position == "1" { "2" } else { "1" }.to_owned());
            Ok(Page { next, ..Page::default() })
        }

        fn one(&mut self, _: &str) -> weir_forge::Result<Option<Listed>> {
            Ok(None)
        }

        fn accounts_start(&self) -> Option<&'static str> {
            Some("1")
        }

        fn accounts(&mut self, position: &str) -> weir_forge::Result<weir_forge::AccountsPage> {
            let next = self.page(position)?.next;
            Ok(weir_forge::AccountsPage { next, ..Default::default() })
        }

        fn usage(&self) -> Usage {
            Usage::default()
        }
    }

    #[test]
    fn a_listing_that_leads_in_a_circle_ends() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        let scope = ListingScope::new("gitea", "https://f", &[], &[]);
        let crawl = Crawl {
            name: "f",
            scope: &scope,
            name_of: &|_| Ok(None),
            wanted: &WantedRepositories::default(),
            limit: 0,
            gone_s: 1,
            now: &|| Timestamp(7),
        };
        let mut forge = Circle(0);
        let error = crawl.run(&catalog, &mut forge, &mut |_| true).unwrap_err();
        assert!(error.to_string().contains("loop back") && forge.0 == 2, "{error} {}", forge.0);
        let error = crate::crawl_accounts("f", &scope, &catalog, &mut forge, &|| Timestamp(7), &mut |_| true)
            .unwrap_err();
        assert!(error.to_string().contains("loop back") && forge.0 == 4, "{error} {}", forge.0);
    }
}
