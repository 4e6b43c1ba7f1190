//! What forges say around a repository: issues, pull requests, releases. Each list of a forge's API is a
//! stream of items, asked for from where it was left; a position is text that the forge alone understands.
//!
//! A walk through a list begins where the one before was sure: ten minutes before it began, or before the
//! latest change it saw, whichever is earlier. Clocks of servers differ, some changes are seen later than
//! others, and some forges let anybody write a time. What is had again for that is known by its sum.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir_ground::{Timestamp, hex};

use crate::api::{Api, escape};
use crate::{Error, Result};

/// Sums of items that a position names at most: of more some are given twice.
const SEEN_MAX: usize = 200;
/// Pages of one list in one walk.
const PAGES_MAX: u64 = 100_000;
/// How far clocks may differ.
const CLOCKS_S: i64 = 600;
/// Looks in turn that fail at a page before a walk begins anew.
const FAILURES_BEFORE_ANEW: u32 = 3;
/// What changes all the time and says nothing of the repository.
const COUNTERS: [&str; 2] = ["download_count", "reactions"];

/// What is wanted of what a forge says around a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataKind {
    /// Issues with their comments, labels and milestones.
    Issues,
    /// Pull requests, or merge requests, with what is said in reviews as far as there are lists of that.
    Pulls,
    /// Releases.
    Releases,
}

/// A part of a stream. There may be items in it that were given before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataPage {
    /// Items with the streams they are of.
    pub items: Vec<(&'static str, Value)>,
    /// Where to go on, now or another time.
    pub cursor: String,
    /// Whether that is another time.
    pub is_last: bool,
}

/// How a list can be asked for what is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By the time of change, from the one this parameter names on: pages are turned within one second only,
    /// so nothing slips through between two.
    OldestFirst(&'static str),
    /// By the time of change, the latest first: what changes meanwhile comes before what was had.
    NewestFirst,
    /// In whatever order, what was changed since the time this parameter names.
    Any(&'static str),
    /// Without times: all, each time.
    Whole,
}

/// A list of a forge's API.
pub(crate) struct MetadataList {
    /// With a question mark, and whatever is the same for each page.
    pub(crate) url: String,
    pub(crate) order: Order,
    pub(crate) per_page: u64,
}

/// Where a walk through a list is, and where the next begins. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
struct WalkPlace {
    /// What changed before is had.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    /// Sums of what is had of what changed since.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seen: Vec<String>,
    /// The page that comes next, if a walk is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<u64>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    began_at: Option<Timestamp>,
    /// The latest change it has seen...
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<i64>,
    /// ...and the latest items, with their sums.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recent: Vec<(i64, String)>,
    /// What tells the first page from what it will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    /// Looks in turn that came to nothing here.
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

    /// Notes what a page has.
    fn note(&mut self, items: &[Value]) {
        self.reached = items.iter().filter_map(changed_at).chain(self.reached).max();
        self.recent.extend(items.iter().filter_map(|item| Some((changed_at(item)?, sum(item)))));
        self.recent.sort_unstable_by(|a, b| b.cmp(a));
        self.recent.dedup();
        self.recent.truncate(SEEN_MAX);
    }

    /// The end of a walk: where the next begins.
    fn end(&mut self, began_at: Timestamp) {
        if let Some(reached) = self.reached {
            self.since = self.since.max(Some(reached.min(began_at.0) - CLOCKS_S));
            let window = self.recent.iter().filter(|(at, _)| Some(*at) >= self.since);
            self.seen = window.map(|(_, sum)| sum.clone()).collect();
            self.seen.sort_unstable();
        }
        self.give_up();
    }

    /// Forgets how far a walk has come.
    fn give_up(&mut self) {
        (self.page, self.began_at, self.reached) = (None, None, None);
        self.recent.clear();
    }
}

/// The position where a page could not be had.
pub fn failed(cursor: Option<&str>) -> String {
    let mut place = WalkPlace::of(cursor);
    place.failures = place.failures.saturating_add(1);
    text_of(&place)
}

/// The position of a walk that was left, a page back: things may have been removed since. From its beginning,
/// if that page could not be had again and again.
pub fn resumed(cursor: &str) -> String {
    let mut place = WalkPlace::of(Some(cursor));
    match place.failures >= FAILURES_BEFORE_ANEW {
        true => place.give_up(),
        false => place.page = place.page.map(|page| page.saturating_sub(1)).filter(|page| *page > 1),
    }
    text_of(&place)
}

/// When an item was changed last, if it says so, in seconds since 1970.
fn changed_at(item: &Value) -> Option<i64> {
    let text = item["updated_at"].as_str().or_else(|| item["created_at"].as_str())?;
    Some(OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp())
}

fn written(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_default()
}

/// What tells an item from what it was.
fn sum(item: &Value) -> String {
    hex(&Sha256::digest(item.to_string())[..8])
}

/// What tells an item from what it was, but for what is no news.
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

/// Items of a page, and where to go on.
struct WalkedPages {
    items: Vec<Value>,
    cursor: String,
    is_last: bool,
}

/// The next page of `list` after `cursor`.
fn walk(api: &mut Api, list: &MetadataList, cursor: Option<&str>, now: Timestamp) -> Result<WalkedPages> {
    let mut place = WalkPlace::of(cursor);
    let number = place.page.unwrap_or(1).clamp(1, PAGES_MAX);
    // A clock that was turned back: nothing that is to come is had.
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
        // As it was when it was asked for the same.
        Ok(None) => {
            (place.etag, place.failures) = (etag, 0);
            place.give_up();
            return Ok(WalkedPages { items: Vec::new(), cursor: text_of(&place), is_last: true });
        }
        // There is an end to how far pages can be turned.
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
    // Some instances give fewer a page than they are asked for, and then name the next.
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
        // By time, if that leads on.
        let leads_on = matches!(list.order, Order::OldestFirst(_)) && place.reached > from;
        place.page = (!leads_on).then_some(number + 1);
    }
    Ok(WalkedPages { items, cursor: text_of(&place), is_last })
}

fn text_of(place: &WalkPlace) -> String {
    serde_json::to_string(place).expect("numbers and words are JSON")
}

/// Streams, by what is wanted of them.
const STREAMS: [(MetadataKind, &str); 7] = [
    (MetadataKind::Issues, "issues"),
    (MetadataKind::Issues, "comments"),
    (MetadataKind::Issues, "labels"),
    (MetadataKind::Issues, "milestones"),
    (MetadataKind::Pulls, "pulls"),
    (MetadataKind::Pulls, "review_comments"),
    (MetadataKind::Releases, "releases"),
];

/// The streams of what is `wanted`, of a forge that has all but `lacks`.
pub(crate) fn streams(wanted: &[MetadataKind], lacks: &[&str]) -> Vec<&'static str> {
    let all = STREAMS.iter().filter(|(kind, name)| wanted.contains(kind) && !lacks.contains(name));
    all.map(|(_, name)| *name).collect()
}

/// What the name of a stream stands for everywhere.
fn stream_called(name: &str) -> &'static str {
    STREAMS.iter().find(|(_, known)| *known == name).map_or("", |(_, known)| known)
}

/// A page of `list` as one of the stream `name`.
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

/// All items of the list at `url`, however many pages it has, while they take no more than `room` bytes of
/// JSON, which are taken off it.
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
        // What may not be seen is left out of pages that are named as if it were there.
        if answer.next.is_none() && count < per_page {
            break;
        }
    }
    Ok(all)
}
