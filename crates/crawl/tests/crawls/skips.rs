//! Pages that cannot be fetched.

use serde_json::json;
use weir_crawl::{CrawlError, WantedRepositories};
use weir_forge::Error;
use weir_testing::RecordedAnswer;

use crate::{CrawlStage, item, line, linked};

fn skipped(stage: &CrawlStage) -> Vec<(String, i64)> {
    let pages = stage.catalog.listings().skipped_pages("f").unwrap();
    pages.into_iter().map(|page| (page.position, page.tries)).collect()
}

#[test]
fn skipped_page_is_noted_once_a_later_one_is_there_and_tried_again() {
    let stage = CrawlStage::new();
    stage.pages(&[&[item(1)], &[item(2)], &[item(3)]]);
    stage.answer(&line("o", 2), RecordedAnswer::new(500, "no"));
    let first = stage.crawl().unwrap();
    assert_eq!((first.pages, first.skipped, first.recovered, first.listed), (2, 1, 0, 2));
    assert_eq!(skipped(&stage), [("0:2".to_owned(), 1)]);
    let second = stage.crawl().unwrap();
    assert_eq!((second.skipped, second.recovered), (1, 0));
    assert_eq!(skipped(&stage), [("0:2".to_owned(), 3)], "by the try and by the listing itself");
    stage.answer(&line("o", 2), linked(&[item(2)]));
    let third = stage.crawl().unwrap();
    assert_eq!((third.skipped, third.recovered, third.taken.added), (0, 1, 1));
    assert!(skipped(&stage).is_empty());
    assert_eq!(stage.known(&[1, 2, 3]), [Some(false); 3]);
}

#[test]
fn skipped_pages_are_tried_again_some_times() {
    let stage = CrawlStage::new();
    stage.pages(&[&[item(1)]]);
    let skip = |position: &str, times: usize| {
        for _ in 0..times {
            stage.catalog.listings().skip_page("f", position, "e", weir_ground::Timestamp(1)).unwrap();
        }
    };
    skip("0:20", 9);
    skip("0:21", 10);
    stage.crawl().unwrap();
    let asked = stage.server.lines();
    assert!(asked.contains(&line("o", 20)) && !asked.contains(&line("o", 21)), "{asked:?}");
    // After five in a row that fail, the others wait; one that is there begins a new row.
    for page in 30..40 {
        skip(&format!("0:{page}"), 1);
        stage.answer(&line("o", page), RecordedAnswer::new(500, "no"));
    }
    stage.catalog.listings().forget_skipped("f", "0:20").unwrap();
    stage.answer(&line("o", 32), RecordedAnswer::json(json!([item(5)])));
    stage.server.asked();
    let progress = stage.crawl().unwrap();
    let asked = stage.server.lines();
    let count = (30..40).filter(|page| asked.contains(&line("o", *page))).count();
    assert_eq!((count, progress.recovered, progress.taken.added), (8, 1, 1), "{asked:?}");
}

#[test]
fn owner_that_is_forbidden_is_left_out_and_tried_again() {
    let stage = CrawlStage::new();
    stage.answer(&line("closed", 1), RecordedAnswer::new(403, "no"));
    stage.answer(&line("o", 1), RecordedAnswer::json(json!([item(1)])));
    let crawl = || {
        let wanted = WantedRepositories::default();
        stage.crawl_forge(&mut stage.github(&["closed", "o"]), &wanted, 0, u64::MAX).unwrap()
    };
    let first = crawl();
    assert_eq!((first.skipped, first.pages, first.taken.added), (1, 2, 1));
    assert_eq!(skipped(&stage), [("0:1".to_owned(), 1)]);
    crawl();
    assert_eq!(skipped(&stage), [("0:1".to_owned(), 3)]);
}

#[test]
fn forge_of_which_many_pages_in_a_row_fail_is_down() {
    let stage = CrawlStage::new();
    let all = |since: u64| format!("GET /api/v3/repositories?since={since}&per_page=100");
    let ids = [0, 100, 300, 700, 1500];
    ids[..4].iter().for_each(|since| stage.answer(&all(*since), RecordedAnswer::new(500, "no")));
    stage.answer(&all(1500), RecordedAnswer::json(json!([item(1)])));
    let crawl = || {
        let wanted = WantedRepositories::default();
        stage.crawl_forge(&mut stage.github(&[]), &wanted, 0, u64::MAX)
    };
    let progress = crawl().unwrap();
    assert_eq!((progress.skipped, progress.taken.added, progress.finished), (4, 1, true));
    for (position, _) in skipped(&stage) {
        stage.catalog.listings().forget_skipped("f", &position).unwrap();
    }
    stage.answer(&all(1500), RecordedAnswer::new(500, "no"));
    assert!(matches!(crawl(), Err(CrawlError::Forge(Error::Unavailable { .. }))));
    assert!(skipped(&stage).is_empty() && stage.position().is_none(), "the listing does not pass them");
}
