//! Repositories that a listing does not name.

use serde_json::{Value, json};
use weir_crawl::{CrawlError, WantedRepositories};
use weir_forge::{Api, Error, WebIndex, WebIndexKind};
use weir_testing::RecordedAnswer;

use crate::{CrawlStage, item, line, one, options};

#[test]
fn repository_that_a_listing_does_not_name_is_asked_about() {
    let stage = CrawlStage::new();
    let mut wiki = item(4);
    wiki["has_wiki"] = json!(true);
    stage.pages(&[&[item(1), item(2), item(3), wiki]]);
    let wanted = WantedRepositories { wikis: true, ..WantedRepositories::default() };
    let crawl = || stage.crawl_forge(&mut stage.github(&["o"]), &wanted, 0, u64::MAX).unwrap();
    assert_eq!(crawl().taken.added, 5);
    stage.pages(&[&[item(1)]]);
    let mut moved = item(3);
    moved["full_name"] = json!("other/r3");
    stage.answer(&one(3), RecordedAnswer::json(moved));
    let mut there = item(4);
    there["full_name"] = json!("nameless/r4");
    stage.answer(&one(4), RecordedAnswer::json(there));
    let progress = crawl();
    assert_eq!((progress.gone, progress.taken.renamed, progress.finished), (2, 1, true));
    assert_eq!(stage.known(&[1, 2, 4]), [Some(false), Some(true), Some(false)]);
    assert!(stage.catalog.get("f/other/r3").unwrap().is_some());
    // The wiki of one that has none any more is gone. One that gets no name today keeps the one that it has.
    let gone = |id: &str| stage.catalog.listings().has_gone("f", &[id.to_owned()]).unwrap();
    assert!(gone("4:wiki") && !gone("4") && !gone("3"));
    let gone = stage.catalog.get("f/o/r2").unwrap().unwrap();
    assert_eq!(gone.next_due.0, 1050);
    stage.server.asked();
    assert_eq!(crawl().gone, 0);
    assert!(!stage.server.lines().contains(&one(2)), "one that is gone is not asked about again");
}

#[test]
fn forge_that_does_not_say_whether_repositories_are_there_is_down() {
    let stage = CrawlStage::new();
    let items: Vec<Value> = (1..=9).map(item).collect();
    stage.pages(&[&items]);
    stage.crawl().unwrap();
    stage.pages(&[&[item(1)]]);
    // Others are asked about if one is blocked, and one that is there begins a new row.
    for id in [2, 3, 4, 5, 7, 8, 9] {
        stage.answer(&one(id), RecordedAnswer::new(500, "no"));
    }
    stage.answer(&one(6), RecordedAnswer::json(item(6)));
    let progress = stage.crawl().unwrap();
    assert_eq!((progress.gone, progress.finished), (0, true));
    stage.answer(&one(6), RecordedAnswer::new(500, "no"));
    assert!(matches!(stage.crawl(), Err(CrawlError::Forge(Error::Unavailable { .. }))));
    assert_eq!(stage.position().as_deref(), Some("unseen:0"));
    // It is not down if it answers, but does not say.
    (2..=9).for_each(|id| stage.answer(&one(id), RecordedAnswer::new(403, "no")));
    assert!(stage.crawl().unwrap().finished);
    stage.answer(&one(2), RecordedAnswer::new(401, "no"));
    stage.server.asked();
    assert!(matches!(stage.crawl(), Err(CrawlError::Forge(Error::Forbidden { status: 401, .. }))));
    assert!(!stage.server.lines().contains(&one(3)), "no other would be answered");
    assert_eq!(stage.catalog.listings().counts("f").unwrap(), (9, 0));
}

#[test]
fn crawl_that_is_interrupted_among_the_unseen_goes_on_there() {
    let stage = CrawlStage::new();
    let items: Vec<Value> = (1..=151).map(item).collect();
    stage.pages(&[&items]);
    stage.crawl().unwrap();
    stage.pages(&[&[item(1)]]);
    let wanted = WantedRepositories::default();
    let first = stage.crawl_forge(&mut stage.github(&["o"]), &wanted, 0, 2).unwrap();
    assert_eq!((first.gone, first.finished), (100, false));
    let last = stage.catalog.get("f/o/r101").unwrap().unwrap().id;
    assert_eq!(stage.position(), Some(format!("unseen:{last}")));
    let rest = stage.crawl().unwrap();
    assert_eq!((rest.gone, rest.finished, rest.pages), (50, true, 0));
}

#[test]
fn forge_that_lists_nothing_any_more_has_not_lost_all() {
    let stage = CrawlStage::new();
    stage.pages(&[&[]]);
    assert!(stage.crawl().unwrap().finished, "there was nothing before either");
    stage.pages(&[&[item(1)]]);
    stage.crawl().unwrap();
    stage.pages(&[&[]]);
    assert!(matches!(stage.crawl(), Err(CrawlError::Forge(Error::Unexpected { .. }))));
    assert_eq!(stage.catalog.listings().counts("f").unwrap(), (1, 0));
    // A page without repositories says nothing if others have some.
    stage.pages(&[&[], &[item(1)]]);
    assert!(stage.crawl().unwrap().finished);
    stage.pages(&[&[item(1)], &[]]);
    assert!(stage.crawl().unwrap().finished);
    let wanted = WantedRepositories::default();
    stage.crawl_forge(&mut stage.github(&["o"]), &wanted, 0, 1).unwrap();
    assert!(stage.crawl().unwrap().finished, "the empty page is not the first");
    assert_eq!(stage.server.lines().last(), Some(&line("o", 2)));
}

#[test]
fn list_that_shrinks_to_a_tenth_is_not_believed() {
    for (before, after, is_believed) in [(20, 2, false), (20, 3, true), (19, 1, true), (40, 4, false)] {
        let stage = CrawlStage::new();
        let index = |count: u64| {
            let lines: String = (1..=count).map(|n| format!("o/r{n} owner\n")).collect();
            stage.answer("GET /?a=project_index", RecordedAnswer::new(200, lines));
        };
        let crawl = || {
            let url = stage.server.url();
            let mut forge = WebIndex::new(WebIndexKind::Gitweb, &url, &url, Api::new(options()));
            stage.crawl_forge(&mut forge, &WantedRepositories::default(), 0, u64::MAX)
        };
        index(before);
        assert_eq!(crawl().unwrap().taken.added, usize::try_from(before).unwrap());
        index(after);
        let shrunk = crawl();
        let gone = i64::try_from(before - after).unwrap();
        let expected = if is_believed { gone } else { 0 };
        assert_eq!(stage.catalog.listings().counts("f").unwrap().1, expected, "{before} {after}");
        assert_eq!(shrunk.is_ok(), is_believed, "{before} {after}");
        if !is_believed {
            assert!(matches!(shrunk, Err(CrawlError::Forge(Error::Unexpected { .. }))));
            assert_eq!(stage.position().as_deref(), Some("0"), "the list is read again");
            index(before);
            assert!(crawl().unwrap().finished);
        } else {
            // Those that are gone do not count.
            assert!(crawl().unwrap().finished);
        }
    }
}
