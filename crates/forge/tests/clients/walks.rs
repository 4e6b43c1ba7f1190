//! Walks through lists of metadata, and the positions that they leave behind.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weir_forge::{Error, Forge, GitHub, Gitea, failed, resumed, sum_of_news};
use weir_ground::{Timestamp, hex};
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::api;

/// 2024-03-01, and a day later.
const BASE: i64 = 1_709_251_200;
const NOW: Timestamp = Timestamp(BASE + 86_400);

/// Returns an item that somebody changed `seconds` after the base time, or before it if that is negative. The
/// item is less than an hour away from the base time.
fn item(id: u64, seconds: i64) -> Value {
    json!({ "id": id, "updated_at": time(seconds) })
}

fn time(seconds: i64) -> String {
    let (day, seconds) = if seconds < 0 { ("02-29T23", seconds + 3600) } else { ("03-01T00", seconds) };
    format!("2024-{day}:{:02}:{:02}Z", seconds / 60, seconds % 60)
}

fn sum(item: &Value) -> String {
    hex(&Sha256::digest(item.to_string())[..8])
}

/// Returns items with their times, in the order of positions.
fn recent(items: &[(i64, &Value)]) -> Vec<(i64, String)> {
    let mut sums: Vec<_> = items.iter().map(|(at, item)| (BASE + at, sum(item))).collect();
    sums.sort();
    sums.reverse();
    sums
}

fn sums(items: &[&Value]) -> Vec<String> {
    let mut sums: Vec<_> = items.iter().map(|item| sum(item)).collect();
    sums.sort();
    sums
}

/// A list of a forge, and the server.
struct WalkedList<F> {
    server: RecordedServer,
    forge: F,
    stream: &'static str,
    path: &'static str,
}

fn github(stream: &'static str, path: &'static str) -> WalkedList<GitHub> {
    let server = RecordedServer::start();
    let forge = GitHub::new(&server.url(), Vec::new(), Vec::new(), api(&[]));
    WalkedList { server, forge, stream, path }
}

impl<F: Forge> WalkedList<F> {
    /// Takes the part after `cursor`, which is asked for as page `page` with `since`. Returns its items, the
    /// position behind it, and whether it is the last.
    fn take(
        &mut self,
        cursor: Option<&Value>,
        page: &str,
        answer: RecordedAnswer,
    ) -> (Vec<Value>, Value, bool) {
        let line = format!("GET {}&page={page}", self.path);
        self.server.forget(&line);
        self.server.put(&line, answer);
        let cursor = cursor.map(Value::to_string);
        let part = self.forge.metadata("7", self.stream, cursor.as_deref(), NOW).unwrap();
        assert!(part.items.iter().all(|(stream, _)| *stream == self.stream));
        let items = part.items.into_iter().map(|(_, item)| item).collect();
        (items, serde_json::from_str(&part.cursor).unwrap(), part.is_last)
    }

    fn fails(&mut self, cursor: &Value, page: &str, answer: RecordedAnswer) -> Error {
        let line = format!("GET {}&page={page}", self.path);
        self.server.forget(&line);
        self.server.put(&line, answer);
        self.forge.metadata("7", self.stream, Some(&cursor.to_string()), NOW).unwrap_err()
    }
}

fn list(items: &[&Value]) -> RecordedAnswer {
    RecordedAnswer::json(json!(items))
}

fn linked(items: &[&Value]) -> RecordedAnswer {
    list(items).header("Link", "<x>; rel=\"next\"")
}

fn since(page: u64, seconds: i64) -> String {
    format!("{page}&since={}", time(seconds).replace(':', "%3A"))
}

const ISSUES: &str = "/api/v3/repositories/7/issues?state=all&sort=updated&direction=asc&per_page=100";

#[test]
fn walk_by_time_goes_on_at_the_latest_change() {
    let mut issues = github("issues", ISSUES);
    let [a, b, c, d, e] = [item(1, 10), item(2, 20), item(3, 20), item(4, 20), item(5, 30)];
    let (items, cursor, is_last) = issues.take(None, "1", linked(&[&a, &b]));
    assert_eq!((items, is_last), (vec![a.clone(), b.clone()], false));
    let known = recent(&[(10, &a), (20, &b)]);
    assert_eq!(cursor, json!({ "began_at": NOW.0, "reached": BASE + 20, "recent": known }));
    // All of these changed in one second: the next page follows, of the same time.
    let (items, cursor, is_last) = issues.take(Some(&cursor), &since(1, 20), linked(&[&b, &c, &d]));
    assert_eq!((items, is_last), (vec![c.clone(), d.clone()], false), "one is known");
    let known = recent(&[(10, &a), (20, &b), (20, &c), (20, &d)]);
    let expected = json!({ "page": 2, "began_at": NOW.0, "reached": BASE + 20, "recent": known });
    assert_eq!(cursor, expected);
    let (items, cursor, is_last) = issues.take(Some(&cursor), &since(2, 20), linked(&[&e]));
    assert_eq!((items, is_last), (vec![e.clone()], false));
    let known = recent(&[(10, &a), (20, &b), (20, &c), (20, &d), (30, &e)]);
    assert_eq!(cursor, json!({ "began_at": NOW.0, "reached": BASE + 30, "recent": known }));
    let tagged = |items: &[&Value]| list(items).header("ETag", "\"e\"");
    let (items, cursor, is_last) = issues.take(Some(&cursor), &since(1, 30), tagged(&[&e]));
    assert_eq!((items, is_last), (vec![], true));
    let all = [&a, &b, &c, &d, &e];
    let ended = json!({ "since": BASE - 570, "seen": sums(&all) });
    assert_eq!(cursor, ended, "the next walk begins ten minutes earlier");
    // A walk that finds nothing new keeps the ETag, which the next one sends.
    let mut failing = cursor;
    failing["failures"] = json!(2);
    let (items, cursor, is_last) = issues.take(Some(&failing), &since(1, -570), tagged(&all));
    assert_eq!((items, is_last), (vec![], true));
    let kept = json!({ "since": BASE - 570, "seen": sums(&all), "etag": "\"e\"" });
    assert_eq!(cursor, kept);
    issues.server.asked();
    let mut failing = cursor;
    failing["failures"] = json!(2);
    let (items, cursor, is_last) = issues.take(Some(&failing), &since(1, -570), RecordedAnswer::new(304, ""));
    assert_eq!((items, cursor, is_last), (vec![], kept.clone(), true));
    assert_eq!(issues.server.asked()[0].headers["if-none-match"], "\"e\"");
    let new = json!({ "id": 6, "created_at": time(40) });
    let (items, cursor, is_last) = issues.take(Some(&kept), &since(1, -570), tagged(&[&e, &new]));
    assert_eq!((items, is_last), (vec![new.clone()], true));
    assert_eq!(cursor, json!({ "since": BASE - 560, "seen": sums(&[&e, &new]) }));
}

#[test]
fn walk_does_not_trust_clocks() {
    let mut issues = github("issues", ISSUES);
    let future = json!({ "id": 1, "updated_at": "2099-01-01T00:00:00Z" });
    let (old, odd) = (item(2, 30), json!({ "id": 3 }));
    let window = NOW.0 - 600;
    let (items, cursor, is_last) = issues.take(None, "1", list(&[&old, &future, &odd]));
    assert_eq!((items, is_last), (vec![old.clone(), future.clone(), odd], true));
    assert_eq!(cursor, json!({ "since": window, "seen": sums(&[&future]) }));
    // The clock was turned back after the walk began.
    let before = json!({ "began_at": NOW.0 + 50, "page": 2 });
    let (_, cursor, _) = issues.take(Some(&before), "2", list(&[&future]));
    assert_eq!(cursor["since"], json!(window));
    let (_, cursor, _) = issues.take(Some(&before), "2", linked(&[]));
    assert_eq!(cursor, json!({ "began_at": NOW.0, "page": 3 }));
    let earlier = json!({ "began_at": NOW.0 - 50, "page": 2 });
    let (_, cursor, _) = issues.take(Some(&earlier), "2", list(&[&future]));
    assert_eq!(cursor["since"], json!(window - 50));
}

#[test]
fn walk_ends_where_the_forge_gives_no_more_pages() {
    let mut issues = github("issues", ISSUES);
    let a = item(1, 10);
    let under_way = json!({ "page": 2, "reached": BASE + 10, "recent": recent(&[(10, &a)]) });
    let refused = || RecordedAnswer::new(422, "no");
    let (items, cursor, is_last) = issues.take(Some(&under_way), &since(2, 10), refused());
    let ended = json!({ "since": BASE - 590, "seen": sums(&[&a]) });
    assert_eq!((items, cursor, is_last), (vec![], ended, true));
    assert!(matches!(issues.fails(&json!({}), "1", refused()), Error::Refused { .. }));
    let none = RecordedAnswer::json("{}");
    assert!(matches!(issues.fails(&json!({}), "1", none), Error::Unexpected { .. }));
    for page in [100_000, 200_000] {
        let (_, cursor, is_last) = issues.take(Some(&json!({ "page": page })), "100000", linked(&[]));
        assert_eq!((cursor, is_last), (json!({}), true));
    }
    // An ETag is that of the first page of a walk.
    for (cursor, page) in [
        (json!({ "etag": "\"e\"", "page": 2 }), "2".to_owned()),
        (json!({ "etag": "\"e\"", "reached": BASE + 10 }), since(1, 10)),
    ] {
        issues.server.asked();
        issues.take(Some(&cursor), &page, list(&[]));
        assert!(!issues.server.asked()[0].headers.contains_key("if-none-match"));
    }
    let tagged = || list(&[]).header("ETag", "\"new\"");
    let (_, cursor, _) = issues.take(Some(&json!({ "page": 2 })), "2", tagged());
    assert_eq!(cursor, json!({}));
    let many: Vec<Value> = (0..250).map(|n| item(n, 10)).collect();
    let (items, cursor, is_last) = issues.take(None, "1", list(&many.iter().collect::<Vec<_>>()));
    assert_eq!((items.len(), is_last), (250, false), "a full page may not be the last");
    assert_eq!(cursor["recent"].as_array().unwrap().len(), 200);
    let full = &many[..100].iter().collect::<Vec<_>>();
    assert!(!issues.take(None, "1", list(full)).2);
    assert!(issues.take(None, "1", list(&full[..99])).2);
}

#[test]
fn walk_from_the_newest_ends_at_what_is_older() {
    let path = "/api/v3/repositories/7/pulls?state=all&sort=updated&direction=desc&per_page=100";
    let mut pulls = github("pulls", path);
    let [new, same, old] = [item(1, 10), item(2, 0), item(3, -10)];
    let begun = json!({ "since": BASE });
    let (items, cursor, is_last) = pulls.take(Some(&begun), "1", linked(&[&new, &same, &old]));
    assert_eq!((items, is_last), (vec![new.clone(), same.clone()], true));
    assert_eq!(cursor, json!({ "since": BASE, "seen": sums(&[&new, &same]) }));
    let (items, cursor, is_last) = pulls.take(Some(&begun), "1", linked(&[&new, &same]));
    assert_eq!((items.len(), is_last), (2, false));
    let known = recent(&[(10, &new), (0, &same)]);
    let expected = json!({ "since": BASE, "page": 2, "began_at": NOW.0, "reached": BASE + 10,
        "recent": known });
    assert_eq!(cursor, expected);
    let (items, _, is_last) = pulls.take(None, "1", list(&[&new, &same, &old]));
    assert_eq!((items.len(), is_last), (3, true), "the first walk takes all");
}

#[test]
fn walk_of_a_list_in_any_order_asks_for_the_time_of_the_last_walk() {
    let server = RecordedServer::start();
    server.put_json("GET /api/v1/settings/api", json!({ "max_response_items": 2 }));
    server.put_json("GET /api/v1/repositories/7", json!({ "id": 7, "full_name": "o/r", "clone_url": "u" }));
    let forge = Gitea::new(&server.url(), Vec::new(), api(&[]));
    let path = "/api/v1/repos/o/r/issues/comments?&limit=2";
    let mut comments = WalkedList { server, forge, stream: "comments", path };
    let (a, b) = (item(1, 10), item(2, 20));
    let begun = json!({ "since": BASE, "reached": BASE + 5 });
    let (items, cursor, is_last) = comments.take(Some(&begun), &since(1, 0), linked(&[&b, &a]));
    assert_eq!((items.len(), is_last), (2, false));
    assert_eq!((&cursor["page"], &cursor["reached"]), (&json!(2), &json!(BASE + 20)));
    let (items, cursor, is_last) = comments.take(Some(&cursor), &since(2, 0), list(&[&a]));
    assert_eq!((items, is_last), (vec![], true));
    assert_eq!(cursor, json!({ "since": BASE, "seen": sums(&[&a, &b]) }));
}

#[test]
fn walk_of_a_whole_list_begins_anew_each_time() {
    let mut labels = github("labels", "/api/v3/repositories/7/labels?&per_page=100");
    let a = item(1, 10);
    let tagged = |answer: RecordedAnswer| answer.header("ETag", "\"e\"");
    let (items, cursor, is_last) = labels.take(None, "1", tagged(linked(&[&a])));
    assert_eq!((items, cursor.clone(), is_last), (vec![a.clone()], json!({ "page": 2 }), false));
    let (items, cursor, is_last) = labels.take(Some(&cursor), "2", tagged(list(&[&a])));
    assert_eq!((items, cursor, is_last), (vec![a.clone()], json!({}), true));
    let (_, cursor, _) = labels.take(None, "1", tagged(list(&[&a])));
    assert_eq!(cursor, json!({ "etag": "\"e\"" }));
    let (items, cursor, is_last) = labels.take(Some(&cursor), "1", RecordedAnswer::new(304, ""));
    assert_eq!((items, cursor, is_last), (vec![], json!({ "etag": "\"e\"" }), true));
    let (_, cursor, is_last) = labels.take(Some(&json!({ "page": 100_000 })), "100000", linked(&[&a]));
    assert_eq!((cursor, is_last), (json!({}), true));
}

#[test]
fn walk_that_failed_goes_back_a_page_and_in_the_end_to_the_start() {
    let read = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    assert_eq!(read(failed(None)), json!({ "failures": 1 }));
    assert_eq!(read(failed(Some(r#"{"page":3,"failures":1}"#))), json!({ "page": 3, "failures": 2 }));
    for (cursor, expected) in [
        (json!({ "page": 4 }), json!({ "page": 3 })),
        (json!({ "page": 3 }), json!({ "page": 2 })),
        (json!({ "page": 2, "since": 5 }), json!({ "since": 5 })),
        (json!({ "page": 1 }), json!({})),
        (json!({ "page": 3, "failures": 2 }), json!({ "page": 2, "failures": 2 })),
        (
            json!({ "page": 3, "began_at": 6, "reached": 7, "recent": [[7, "x"]], "since": 5,
                "failures": 3 }),
            json!({ "since": 5, "failures": 3 }),
        ),
    ] {
        assert_eq!(read(resumed(&cursor.to_string())), expected, "{cursor}");
    }
}

#[test]
fn news_are_all_fields_but_counters() {
    let of = |downloads: u64, name: &str| {
        json!({ "name": name, "reactions": { "heart": downloads },
            "assets": [{ "name": "a", "download_count": downloads }] })
    };
    assert_eq!(sum_of_news(&of(1, "x")), sum_of_news(&of(2, "x")));
    assert_ne!(sum_of_news(&of(1, "x")), sum_of_news(&of(1, "y")));
    let (one, other) = (json!({ "assets": [{ "name": "a" }] }), json!({ "assets": [{ "name": "b" }] }));
    assert_ne!(sum_of_news(&one), sum_of_news(&other));
}
