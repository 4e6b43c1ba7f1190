//! Searches on GitHub, which are cut into ranges of time.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use weir_forge::{Error, Forge, GitHub, Page, Skipped};
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::api;
use crate::github::{item, listed, page};

/// The first second that is searched.
const FIRST: u64 = 1_191_196_800;

/// A range of seconds from the first one on, a page of it, and where the last range ends.
type SearchedRange = (u64, u64, u64, u64);

fn place((from, to, page, end): SearchedRange) -> String {
    format!("0:{}:{}:{page}:{}", FIRST + from, FIRST + to, FIRST + end)
}

fn line((from, to, page, _): SearchedRange) -> String {
    let time = |s: u64| format!("2007-10-01T00%3A{:02}%3A{:02}Z", s / 60, s % 60);
    let asked = format!("topic%3Aa%20created%3A{}..{}", time(from), time(to));
    format!("GET /api/v3/search/repositories?q={asked}&per_page=100&page={page}")
}

fn found(total: u64, is_incomplete: bool) -> Value {
    json!({ "total_count": total, "incomplete_results": is_incomplete, "items": [item(1)] })
}

fn search(server: &RecordedServer, questions: &[&str]) -> GitHub {
    let questions = questions.iter().map(|&question| question.to_owned()).collect();
    GitHub::new(&server.url(), vec!["not asked".to_owned()], questions, api(&[]))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Checks that `position` is the start of question `question`, asked a moment ago.
fn assert_starts(position: Option<&str>, question: u64, since: u64) {
    let numbers: Vec<u64> = position.unwrap().split(':').map(|n| n.parse().unwrap()).collect();
    assert_eq!((numbers[0], numbers[1], numbers[3]), (question, FIRST, 1));
    assert!(numbers[2] == numbers[4] && (since..=now()).contains(&numbers[2]), "{numbers:?}");
}

#[test]
fn github_search_takes_pages_of_ranges() {
    let server = RecordedServer::start();
    let all: [(SearchedRange, u64, SearchedRange, bool); 9] = [
        ((0, 199, 1, 399), 150, (0, 199, 2, 399), true),
        ((0, 199, 2, 399), 150, (200, 399, 1, 399), true),
        ((0, 99, 1, 399), 100, (100, 300, 1, 399), true),
        ((0, 99, 3, 399), 1000, (0, 99, 4, 399), true),
        ((0, 98, 1, 399), 1001, (0, 49, 1, 399), false),
        ((100, 300, 1, 399), 1500, (100, 200, 1, 399), false),
        ((5, 5, 1, 399), 1500, (5, 5, 2, 399), true),
        ((5, 5, 10, 399), 1500, (6, 8, 1, 399), true),
        ((7, 8, 1, 399), 1500, (7, 7, 1, 399), false),
    ];
    let mut forge = search(&server, &["topic:a"]);
    assert_eq!(forge.start(), "0:0:0:1");
    for (at, total, next, is_listed) in all {
        server.put_json(&line(at), found(total, false));
        let repositories = if is_listed { vec![listed(1)] } else { Vec::new() };
        assert_eq!(forge.page(&place(at)).unwrap(), page(repositories, Some(&place(next))), "{at:?}");
    }
    // The last range of the last question.
    server.put_json(&line((200, 399, 1, 399)), found(5, false));
    assert_eq!(forge.page(&place((200, 399, 1, 399))).unwrap(), page(vec![listed(1)], None));
    let (mut two, since) = (search(&server, &["topic:a", "topic:b"]), now());
    let last = two.page(&place((200, 399, 1, 399))).unwrap();
    assert_starts(last.next.as_deref(), 1, since);
    assert_eq!(forge.page("1:0:0:1").unwrap(), Page::default(), "there is no such question");
    server.asked();
    assert!(matches!(forge.page(forge.start()), Err(Error::NotFound(_))));
    let asked = server.lines();
    assert!(asked[0].contains("created%3A2007-10-01T00%3A00%3A00Z..20"), "{asked:?}");
    assert!(!asked[0].contains("..2007"), "it ends now: {asked:?}");
}

#[test]
fn github_search_that_is_not_complete_is_narrowed_some_times() {
    let server = RecordedServer::start();
    let (wide, second, last) = ((0, 199, 1, 399), (5, 5, 1, 399), (200, 399, 1, 399));
    let mut forge = search(&server, &["topic:a", "topic:b"]);
    let half = page(vec![listed(1)], Some(&place((0, 99, 1, 399))));
    let left_out = |at: SearchedRange| {
        let error = "GitHub returned incomplete search results".to_owned();
        Some(Skipped { position: place(at), error })
    };
    server.put_json(&line(wide), found(1500, true));
    server.put_json(&line(second), found(5, true));
    server.put_json(&line(last), found(5, true));
    for _ in 0..7 {
        assert_eq!(forge.page(&place(wide)).unwrap(), half);
    }
    let next = Some(place((0, 199, 2, 399)));
    for _ in 0..2 {
        let left_out = left_out(wide);
        let expected =
            Page { repositories: vec![listed(1)], next: next.clone(), left_out, ..Page::default() };
        assert_eq!(forge.page(&place(wide)).unwrap(), expected);
    }
    // With the next question, searches are narrowed again.
    let since = now();
    let ended = forge.page(&place(last)).unwrap();
    assert_eq!((ended.left_out, ended.repositories), (left_out(last), vec![listed(1)]));
    assert_starts(ended.next.as_deref(), 1, since);
    assert_eq!(forge.page(&place(wide)).unwrap(), half);
    // A range that cannot be halved is left out at once.
    let expected = page(vec![listed(1)], Some(&place((6, 8, 1, 399))));
    let left_out = left_out(second);
    assert_eq!(forge.page(&place(second)).unwrap(), Page { left_out, ..expected });
    // After a complete answer, too, the client counts incomplete ones from zero again.
    server.put_json(&line((0, 50, 1, 399)), found(5, false));
    for round in 0..2 {
        forge.page(&place((0, 50, 1, 399))).unwrap();
        for _ in 0..7 {
            assert_eq!(forge.page(&place(wide)).unwrap(), half, "{round}");
        }
    }
}

#[test]
fn github_search_that_fails_is_narrowed_some_times() {
    let server = RecordedServer::start();
    let (wide, second) = ((0, 199, 1, 399), (5, 5, 1, 399));
    server.put(&line(wide), RecordedAnswer::new(500, "no"));
    server.put(&line(second), RecordedAnswer::new(500, "no"));
    server.put_json(&line((0, 50, 1, 399)), found(5, false));
    let mut forge = search(&server, &["topic:a"]);
    let half = page(Vec::new(), Some(&place((0, 99, 1, 399))));
    for round in 0..2 {
        for _ in 0..4 {
            assert_eq!(forge.page(&place(wide)).unwrap(), half, "{round}");
        }
        assert!(matches!(forge.page(&place(wide)), Err(Error::Unavailable { .. })));
    }
    forge.page(&place(wide)).unwrap();
    forge.page(&place((0, 50, 1, 399))).unwrap();
    for _ in 0..4 {
        assert_eq!(
            forge.page(&place(wide)).unwrap(),
            half,
            "after a success, the client counts failures from zero"
        );
    }
    let error = "500 Internal Server Error: no".to_owned();
    let skipped = Some(Skipped { position: place(second), error });
    let expected = Page { skipped, ..page(Vec::new(), Some(&place((5, 5, 2, 399)))) };
    assert_eq!(forge.page(&place(second)).unwrap(), expected);
    // Another question may do if one is refused.
    server.put(&line((0, 9, 1, 399)), RecordedAnswer::new(422, "no"));
    assert_eq!(forge.page(&place((0, 9, 1, 399))).unwrap(), Page::default());
    let (mut two, since) = (search(&server, &["topic:a", "topic:b"]), now());
    let refused = two.page(&place((0, 9, 1, 399))).unwrap();
    assert_starts(refused.next.as_deref(), 1, since);
    assert!(refused.repositories.is_empty());
    server.put(&line((0, 8, 1, 399)), RecordedAnswer::new(403, "no"));
    assert!(matches!(forge.page(&place((0, 8, 1, 399))), Err(Error::Forbidden { .. })));
    for odd in [json!({}), json!({ "total_count": 5 }), json!({ "items": [] })] {
        server.forget(&line((0, 7, 1, 399)));
        server.put_json(&line((0, 7, 1, 399)), odd);
        assert!(matches!(forge.page(&place((0, 7, 1, 399))), Err(Error::Unexpected { .. })));
    }
}
