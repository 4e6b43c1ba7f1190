//! Pages of listings: which repositories of them are taken.

use serde_json::{Value, json};
use weir_catalog::Taken;
use weir_crawl::{CrawlError, CrawlProgress, ListingFilter, WantedRepositories};
use weir_forge::{Error, Usage};
use weir_ground::Timestamp;
use weir_listed::RequestBudget;
use weir_testing::RecordedAnswer;

use crate::{CrawlStage, item, line, linked, one};

fn usage(requests: u64) -> Usage {
    Usage { requests, ..Usage::default() }
}

fn taken(added: usize, known: usize) -> Taken {
    Taken { added, known, ..Taken::default() }
}

fn changed(id: u64, field: &str, value: Value) -> Value {
    let mut item = item(id);
    item[field] = value;
    item
}

#[test]
fn crawl_takes_what_is_wanted_of_all_pages() {
    let stage = CrawlStage::new();
    let first = [
        item(1),
        changed(2, "fork", json!(true)),
        changed(3, "archived", json!(null)),
        changed(4, "has_wiki", json!(true)),
    ];
    let second = [
        changed(5, "full_name", json!("o/nameless")),
        changed(6, "full_name", json!("o/refused")),
        changed(7, "full_name", json!("o/refused2")),
        changed(8, "archived", json!(null)),
        item(9),
    ];
    stage.pages(&[&first, &second]);
    let filter = ListingFilter { skip_forks: true, skip_archived: true, ..ListingFilter::default() };
    let wanted = WantedRepositories { filter, wikis: true, ..WantedRepositories::default() };
    let mut seen = Vec::new();
    let scope = weir_crawl::ListingScope::new("github", "https://h", &[], &[]);
    let crawl = weir_crawl::Crawl {
        name: "f",
        scope: &scope,
        name_of: &crate::name_of,
        wanted: &wanted,
        limit: 0,
        gone_s: 50,
        now: &|| Timestamp(1000),
    };
    let progress = crawl.run(&stage.catalog, &mut stage.github(&["o"]), &mut |progress| {
        seen.push(*progress);
        true
    });
    let after_first = CrawlProgress {
        pages: 1,
        listed: 4,
        wanted: 3,
        unknown: 1,
        unknown_of: Some("whether it is archived"),
        taken: taken(3, 0),
        usage: usage(1),
        ..CrawlProgress::default()
    };
    let after_second = CrawlProgress {
        pages: 2,
        listed: 9,
        wanted: 4,
        unknown: 2,
        refused: 2,
        taken: taken(4, 0),
        usage: usage(2),
        ..after_first
    };
    assert_eq!(seen, [after_first, after_second]);
    assert_eq!(progress.unwrap(), CrawlProgress { finished: true, ..after_second });
    assert_eq!(stage.known(&[1, 2, 3, 4, 9]), [Some(false), None, None, Some(false), Some(false)]);
    assert!(stage.catalog.get("f/o/r4.wiki").unwrap().is_some());
    let listing = stage.catalog.listings().get("f").unwrap().unwrap();
    assert_eq!((listing.position, listing.finished_at, listing.listed), (None, Some(Timestamp(1000)), 4));
}

#[test]
fn crawl_goes_on_where_it_was_interrupted() {
    let stage = CrawlStage::new();
    stage.pages(&[&[item(1)], &[item(2)], &[item(3)]]);
    let wanted = WantedRepositories::default();
    let first = stage.crawl_forge(&mut stage.github(&["o"]), &wanted, 0, 1).unwrap();
    assert_eq!((first.pages, first.finished, stage.position().as_deref()), (1, false, Some("0:2")));
    assert_eq!(stage.server.lines(), [line("o", 1)]);
    // The last page is taken, but nobody has asked yet for what the listing did not name.
    let rest = stage.crawl_forge(&mut stage.github(&["o"]), &wanted, 0, 2).unwrap();
    assert_eq!((rest.pages, rest.finished, stage.position().as_deref()), (2, false, Some("unseen:0")));
    assert_eq!(stage.server.lines(), [line("o", 2), line("o", 3)]);
    let end = stage.crawl().unwrap();
    assert_eq!(end, CrawlProgress { finished: true, ..CrawlProgress::default() });
    assert!(stage.server.lines().is_empty() && stage.position().is_none());
}

#[test]
fn crawl_ends_when_enough_are_taken() {
    for pages in [u64::MAX, 1] {
        let stage = CrawlStage::new();
        stage.pages(&[&[item(1), item(2)], &[item(3), item(4)], &[item(5)]]);
        let wanted = WantedRepositories::default();
        let limited = || stage.crawl_forge(&mut stage.github(&["o"]), &wanted, 3, pages).unwrap();
        let mut progress = limited();
        if pages == 1 {
            assert_eq!((progress.wanted, progress.finished), (2, false));
            progress = limited();
            assert_eq!((progress.wanted, progress.listed, progress.pages), (1, 2, 1));
        } else {
            let expected = CrawlProgress {
                pages: 2,
                listed: 4,
                wanted: 3,
                taken: taken(3, 0),
                usage: usage(2),
                ..CrawlProgress::default()
            };
            assert_eq!(progress, CrawlProgress { finished: true, ..expected });
        }
        assert!(progress.finished && stage.position().is_none());
        assert_eq!(stage.known(&[3, 4]), [Some(false), None]);
        assert_eq!(stage.server.lines().len(), 2);
    }
    // A page that just suffices is the last, too.
    let stage = CrawlStage::new();
    stage.pages(&[&[item(1), item(2)], &[item(3)]]);
    let wanted = WantedRepositories::default();
    let progress = stage.crawl_forge(&mut stage.github(&["o"]), &wanted, 2, u64::MAX).unwrap();
    assert_eq!((progress.wanted, progress.pages, progress.finished), (2, 1, true));
}

#[test]
fn crawl_passes_over_pages_that_have_not_changed() {
    let stage = CrawlStage::new();
    let items = [changed(1, "has_wiki", json!(true)), item(2), changed(3, "fork", json!(true))];
    let tagged = |answer: RecordedAnswer| answer.header("ETag", "\"e\"");
    stage.answer(&line("o", 1), tagged(linked(&items)));
    stage.answer(&line("o", 2), tagged(RecordedAnswer::json(json!([item(4)]))));
    let filter = ListingFilter { skip_forks: true, ..ListingFilter::default() };
    let wanted = WantedRepositories { filter, wikis: true, ..WantedRepositories::default() };
    let crawl = |wanted: &WantedRepositories, limit| {
        let progress = stage.crawl_forge(&mut stage.github(&["o"]), wanted, limit, u64::MAX).unwrap();
        let tags = stage.server.asked().into_iter().map(|asked| asked.headers.contains_key("if-none-match"));
        (progress, tags.collect::<Vec<_>>())
    };
    assert_eq!(crawl(&wanted, 9).1, [false, false]);
    assert_eq!(crawl(&wanted, 0).1, [false, false], "with a limit, no tag is kept");
    (1..3).for_each(|page| stage.answer(&line("o", page), RecordedAnswer::new(304, "")));
    let (progress, tags) = crawl(&wanted, 0);
    let expected = CrawlProgress {
        pages: 2,
        unchanged: 2,
        listed: 4,
        usage: usage(2),
        finished: true,
        ..CrawlProgress::default()
    };
    assert_eq!((progress, tags), (expected, vec![true, true]), "all of them count as named");
    stage.answer(&line("o", 1), tagged(linked(&items)));
    stage.answer(&line("o", 2), tagged(RecordedAnswer::json(json!([item(4)]))));
    assert_eq!(crawl(&WantedRepositories { wikis: false, ..wanted.clone() }, 0).1[..2], [false, false]);
    assert_eq!(crawl(&wanted, 0).1, [false, false]);
    assert_eq!(crawl(&wanted, 9).1, [false, false], "the limit decides what is taken");
    // One that was gone and is there again must be seen.
    let id = stage.catalog.get("f/o/r2").unwrap().unwrap().id;
    stage.catalog.listings().set_gone(&[id], Timestamp(5), Timestamp(5)).unwrap();
    let (progress, tags) = crawl(&wanted, 0);
    assert_eq!((progress.taken.back, tags), (1, vec![false, true]));
    // A page of which not enough is known is read again.
    let unknown = [changed(1, "fork", json!(null)), item(2)];
    stage.answer(&line("o", 1), tagged(RecordedAnswer::json(json!(unknown))));
    let strict = WantedRepositories { wikis: false, ..wanted };
    stage.answer(&one(4), RecordedAnswer::json(item(4)));
    assert!(!crawl(&strict, 0).1[0]);
    assert!(!crawl(&strict, 0).1[0]);
}

#[test]
fn crawl_keeps_and_remembers_limits() {
    let stage = CrawlStage::new();
    let limited = RecordedAnswer::json(json!([item(1)]));
    let limited = limited.header("X-RateLimit-Remaining", "7").header("X-RateLimit-Reset", "5000");
    stage.answer(&line("o", 1), limited.header("X-RateLimit-Limit", "60"));
    stage.crawl().unwrap();
    let budgets = stage.catalog.accounts().budgets(Timestamp(0)).unwrap();
    assert_eq!((budgets.len(), budgets[0].0.as_str()), (1, "f"));
    assert_eq!((budgets[0].1.limit, budgets[0].1.remaining), (Some(60), 7));
    let far = Timestamp(4_000_000_000);
    let credential = "none".to_owned();
    let spent = RequestBudget { credential, limit: None, remaining: 0, reset_at: far };
    stage.catalog.accounts().set_budgets("g", std::slice::from_ref(&spent), Timestamp(1)).unwrap();
    assert!(stage.crawl().is_ok(), "limits of other forges are theirs");
    stage.catalog.accounts().set_budgets("f", &[spent], Timestamp(1)).unwrap();
    assert!(matches!(stage.crawl(), Err(CrawlError::Forge(Error::Stopped))));
}

#[test]
fn progress_is_a_line() {
    let all = CrawlProgress {
        listed: 1,
        wanted: 2,
        taken: Taken { added: 3, renamed: 4, hinted: 5, back: 6, known: 99 },
        gone: 7,
        unknown: 8,
        unknown_of: Some("its stars"),
        refused: 9,
        unchanged: 10,
        skipped: 11,
        recovered: 12,
        usage: usage(13),
        finished: true,
        ..CrawlProgress::default()
    };
    let line = "f: 1 listed, 2 wanted, 3 new, 4 renamed, 5 changed, 6 back, 7 gone, 8 skipped (the forge \
        does not say its stars), 9 skipped (invalid names), 10 pages unchanged, 11 pages skipped, 12 skipped \
        pages recovered; 13 requests";
    assert_eq!(all.line("f"), line);
    let none = "f: 0 listed, 0 wanted; 0 requests (to be continued)";
    assert_eq!(CrawlProgress::default().line("f"), none);
}
