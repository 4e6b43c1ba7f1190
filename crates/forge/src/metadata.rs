//! What forges say around a repository: issues, pull requests, releases. Each list of a forge's API is a
//! stream of items, which is read on from where it was left. A position is text that only the forge
//! understands.
//!
//! A walk through a list begins ten minutes before the last walk began, or before the latest change that the
//! last walk saw, whichever is earlier. The reasons: clocks of servers differ, some changes become visible
//! later than others, and some forges let clients set times. Items that are fetched again for that are known
//! by their checksums.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir_ground::{Timestamp, hex};

use crate::api::Api;
use crate::api_answer::escape;
use crate::{Error, Result};

/// Checksums of items that a position holds at most; if there are more, some items are returned twice.
const SEEN_MAX: usize = 200;
/// Pages of one list in one walk.
const PAGES_MAX: u64 = 100_000;
/// How far clocks may differ.
const CLOCKS_S: i64 = 600;
/// Looks in a row that fail at a page before a walk starts over.
const FAILURES_BEFORE_ANEW: u32 = 3;
/// Fields that change all the time and say nothing of the repository.
const COUNTERS: [&str; 2] = ["download_count", "reactions"];

/// A kind of metadata that a user may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataKind {
    /// Issues with their comments, labels and milestones.
    Issues,
    /// Pull requests, or merge requests, with the comments of reviews if the forge has lists of them.
    Pulls,
    /// Releases.
    Releases,
}

/// A part of a stream. It may contain items that were returned before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataPage {
    /// Items with the names of their streams.
    pub items: Vec<(&'static str, Value)>,
    /// Where to go on.
    pub cursor: String,
    /// Whether to go on another time, because this was the last page for now.
    pub is_last: bool,
}

/// How to ask a list for new items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By the time of change, from the time in this parameter on. Page numbers are used within one second
    /// only, so no item is missed between two pages.
    OldestFirst(&'static str),
    /// By the time of change, the latest first: items that change meanwhile come before those that were
    /// fetched.
    NewestFirst,
    /// In any order: the items that were changed since the time in this parameter.
    Any(&'static str),
    /// Without times: all items, each time.
    Whole,
}

/// A list of a forge's API.
pub(crate) struct MetadataList {
    /// The URL, with a question mark and the parameters that are the same for each page.
    pub(crate) url: String,
    pub(crate) order: Order,
    pub(crate) per_page: u64,
}

/// Where a walk through a list is, and where the next begins. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
struct WalkPlace {
    /// All changes before this time were fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    /// Checksums of items that were changed since then and were fetched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seen: Vec<String>,
    /// The page that comes next, if a walk is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<u64>,
    /// When the walk under way began.
    #[serde(skip_serializing_if = "Option::is_none")]
    began_at: Option<Timestamp>,
    /// The latest change that the walk has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<i64>,
    /// The items that were changed last, with their checksums.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recent: Vec<(i64, String)>,
    /// The ETag of the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    /// Looks in a row that failed at this place.
    #[serde(skip_serializing_if = "is_zero")]
    failures: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl WalkPlace {
    fn of(cursor: Option<&str>) -> WalkPlace {
        cursor.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Notes the items of a page.
    fn note(&mut self, items: &[Value]) {
        self.reached = items.iter().filter_map(changed_at).chain(self.reached).max();
        self.recent.extend(items.iter().filter_map(|item| Some((changed_at(item)?, sum(item)))));
        self.recent.sort_unstable_by(|a, b| b.cmp(a));
        self.recent.dedup();
        self.recent.truncate(SEEN_MAX);
    }

    /// Ends a walk, and notes where the next one begins.
    fn end(&mut self, began_at: Timestamp) {
        if let Some(reached) = self.reached {
            self.since = self.since.max(Some(reached.min(began_at.0) - CLOCKS_S));
            let window = self.recent.iter().filter(|(at, _)| Some(*at) >= self.since);
            self.seen = window.map(|(_, sum)| sum.clone()).collect();
            self.seen.sort_unstable();
        }
        self.give_up();
    }

    /// Forgets how far the walk has come.
    fn give_up(&mut self) {
        (self.page, self.began_at, self.reached) = (None, None, None);
        self.recent.clear();
    }
}

/// Returns the position after a page could not be fetched.
pub fn failed(cursor: Option<&str>) -> String {
    let mut place = WalkPlace::of(cursor);
    place.failures = place.failures.saturating_add(1);
    text_of(&place)
}

/// Returns the position from which a walk goes on: one page back, as items may have been removed since. If
/// the page could not be fetched several times in a row, the walk starts over.
pub fn resumed(cursor: &str) -> String {
    let mut place = WalkPlace::of(Some(cursor));
    match place.failures >= FAILURES_BEFORE_ANEW {
        true => place.give_up(),
        false => place.page = place.page.map(|page| page.saturating_sub(1)).filter(|page| *page > 1),
    }
    text_of(&place)
}

/// Returns when an item was last changed, in seconds since 1970, if it says so.
fn changed_at(item: &Value) -> Option<i64> {
    let text = item["updated_at"].as_str().or_else(|| item["created_at"].as_str())?;
    Some(OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp())
}

fn written(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_default()
}

/// Returns a checksum of an item.
fn sum(item: &Value) -> String {
    hex(&Sha256::digest(item.to_string())[..8])
}

/// Returns a checksum of an item without the fields that are no news.
pub fn sum_of_news(item: &Value) -> [u8; 16] {
    Sha256::digest(without_counters(item).to_string())[..16].try_into().expect("a sum has 32 bytes")
}

fn without_counters(item: &Value) -> Value {
    match item {
        Value::Object(fields) => {
            let news = fields.iter().filter(|(name, _)| !COUNTERS.contains(&name.as_str()));
            Value::Object(news.map(|(name, value)| (name.clone(), without_counters(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_counters).collect(),
        other => other.clone(),
    }
}

/// The items of a page, and where to go on.
struct WalkedPages {
    items: Vec<Value>,
    cursor: String,
    is_last: bool,
}

/// Returns the next page of `list` after `cursor`.
fn walk(api: &mut Api, list: &MetadataList, cursor: Option<&str>, now: Timestamp) -> Result<WalkedPages> {
    let mut place = WalkPlace::of(cursor);
    let number = place.page.unwrap_or(1).clamp(1, PAGES_MAX);
    // If the clock was turned back, the walk begins now: otherwise changes to come would seem to be fetched.
    let began_at = place.began_at.map_or(now, |at| at.min(now));
    let from = match list.order {
        Order::OldestFirst(_) => place.reached.max(place.since),
        _ => place.since,
    };
    let mut url = format!("{}&page={number}", list.url);
    if let (Order::OldestFirst(name) | Order::Any(name), Some(from)) = (list.order, from) {
        url += &format!("&{name}={}", escape(&written(from)));
    }
    let etag = place.etag.take_if(|_| number == 1 && place.reached.is_none());
    let answer = match api.by_any(&url, |api, url| api.get_unless(url, etag.as_deref())) {
        // Unchanged since the last request.
        Ok(None) => {
            (place.etag, place.failures) = (etag, 0);
            place.give_up();
            return Ok(WalkedPages { items: Vec::new(), cursor: text_of(&place), is_last: true });
        }
        // The forge limits how many pages can be requested.
        Err(Error::Refused { .. }) if number > 1 => {
            place.end(began_at);
            return Ok(WalkedPages { items: Vec::new(), cursor: text_of(&place), is_last: true });
        }
        Ok(Some(answer)) => answer,
        Err(e) => return Err(e),
    };
    let Value::Array(mut items) = answer.value else {
        return Err(Error::Unexpected { url, detail: "not a list".to_owned() });
    };
    place.failures = 0;
    // Some instances return fewer items per page than requested, and then link to the next page.
    let mut is_last = (answer.next.is_none() && (items.len() as u64) < list.per_page) || number == PAGES_MAX;
    if list.order == Order::Whole {
        let etag = answer.etag.filter(|_| is_last && number == 1);
        let place = WalkPlace { page: (!is_last).then_some(number + 1), etag, ..WalkPlace::default() };
        return Ok(WalkedPages { items, cursor: text_of(&place), is_last });
    }
    if list.order == Order::NewestFirst {
        let is_older =
            |item: &Value| changed_at(item).is_some_and(|at| place.since.is_some_and(|since| at < since));
        is_last |= items.iter().any(is_older);
        items.retain(|item| !is_older(item));
    }
    let before = place.clone();
    place.note(&items);
    let is_known = |item: &Value| {
        let (sum, at) = (sum(item), changed_at(item));
        before.seen.contains(&sum)
            || before.recent.iter().any(|(known, other)| Some(*known) == at && *other == sum)
    };
    items.retain(|item| !is_known(item));
    if is_last {
        place.end(began_at);
        if place.since == before.since && number == 1 && before.reached.is_none() {
            place.etag = answer.etag;
        }
    } else {
        place.began_at = Some(began_at);
        // Goes on by time if that makes progress.
        let leads_on = matches!(list.order, Order::OldestFirst(_)) && place.reached > from;
        place.page = (!leads_on).then_some(number + 1);
    }
    Ok(WalkedPages { items, cursor: text_of(&place), is_last })
}

fn text_of(place: &WalkPlace) -> String {
    serde_json::to_string(place).expect("numbers and words are JSON")
}

/// The streams, with their kinds of metadata.
const STREAMS: [(MetadataKind, &str); 7] = [
    (MetadataKind::Issues, "issues"),
    (MetadataKind::Issues, "comments"),
    (MetadataKind::Issues, "labels"),
    (MetadataKind::Issues, "milestones"),
    (MetadataKind::Pulls, "pulls"),
    (MetadataKind::Pulls, "review_comments"),
    (MetadataKind::Releases, "releases"),
];

/// Returns the streams of what is `wanted`, for a forge that has all streams but `lacks`.
pub(crate) fn streams(wanted: &[MetadataKind], lacks: &[&str]) -> Vec<&'static str> {
    let all = STREAMS.iter().filter(|(kind, name)| wanted.contains(kind) && !lacks.contains(name));
    all.map(|(_, name)| *name).collect()
}

/// Returns the static name of a stream, or an empty one if there is no such stream.
fn stream_called(name: &str) -> &'static str {
    STREAMS.iter().find(|(_, known)| *known == name).map_or("", |(_, known)| known)
}

/// Returns a page of `list` as a page of the stream `name`.
pub(crate) fn page_of(
    api: &mut Api,
    list: &MetadataList,
    name: &str,
    cursor: Option<&str>,
    now: Timestamp,
) -> Result<MetadataPage> {
    let WalkedPages { items, cursor, is_last } = walk(api, list, cursor, now)?;
    let name = stream_called(name);
    Ok(MetadataPage { items: items.into_iter().map(|item| (name, item)).collect(), cursor, is_last })
}

/// Returns all items of the list at `url`, from all its pages. They may take `room` bytes of JSON at most,
/// from which their bytes are subtracted.
pub(crate) fn all(api: &mut Api, url: &str, per_page: u64, room: &mut usize) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for page in 1..=PAGES_MAX {
        let answer = api.by_any(&format!("{url}&page={page}"), Api::get)?;
        let Value::Array(items) = answer.value else {
            return Err(Error::Unexpected { url: url.to_owned(), detail: "not a list".to_owned() });
        };
        let bytes: usize = items.iter().map(|item| item.to_string().len()).sum();
        let Some(left) = room.checked_sub(bytes) else {
            return Err(Error::Unexpected {
                url: url.to_owned(),
                detail: "more than is believed".to_owned(),
            });
        };
        *room = left;
        let count = items.len() as u64;
        all.extend(items);
        // Items that may not be seen are missing from a page, so a short page may still have a next one.
        if answer.next.is_none() && count < per_page {
            break;
        }
    }
    Ok(all)
}
