//! Asks forges about repositories that events say were renamed, moved, hidden or deleted.

use weir_catalog::Catalog;
use weir_forge::{Error, Forge};

use crate::asked::{ForgeAnswers, ask};
use crate::crawl::{Crawl, CrawlError, CrawlProgress, keep_budgets, remember_budgets};

/// How many questions are asked before their answers are written down.
const QUESTIONS_AT_ONCE: usize = 100;

/// Asks `forge` about the repositories that events say were changed. Returns `None` if there are none.
///
/// # Errors
/// If the forge or the catalog fails. The questions that were not asked stay.
pub(crate) fn answer_questions(
    crawl: &Crawl<'_>,
    catalog: &Catalog,
    open: impl FnOnce() -> Result<Box<dyn Forge>, Error>,
) -> Result<Option<CrawlProgress>, CrawlError> {
    let mut questions = catalog.listings().questions(crawl.name, 0, QUESTIONS_AT_ONCE)?;
    let Some(listing) = catalog.listings().get(crawl.name)?.filter(|_| !questions.is_empty()) else {
        return Ok(None);
    };
    let mut forge = open()?;
    remember_budgets(crawl.name, catalog, forge.as_mut(), (crawl.now)())?;
    let (mut progress, mut failed_in_row) = (CrawlProgress::default(), 0);
    while let Some(last) = questions.last().map(|last| last.id) {
        let ids: Vec<i64> = questions.iter().map(|one| one.id).collect();
        let ForgeAnswers { gone, there } =
            ask(crawl.name, crawl.name_of, forge.as_mut(), &questions, &mut failed_in_row)?;
        let now = (crawl.now)();
        catalog.listings().set_gone(&gone, now, now + crawl.gone_s)?;
        progress.gone += gone.len() as u64;
        progress.taken += catalog.listings().take_more(&listing, &there, now)?;
        progress.asked += ids.len() as u64;
        // Of those without an answer the next listing learns.
        catalog.listings().forget_questions(&ids)?;
        keep_budgets(crawl.name, catalog, forge.as_ref(), now)?;
        questions = catalog.listings().questions(crawl.name, last, QUESTIONS_AT_ONCE)?;
    }
    progress.usage = forge.usage();
    Ok(Some(progress))
}
