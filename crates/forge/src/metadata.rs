//! What forges say around a repository: issues, pull requests, releases. Each list of a forge's API is a stream of items, asked for
//! from where it was left; a position is text that the forge alone understands.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::api::{Api, escape};
use crate::{Error, Result};

/// Sums of items that a position names at most: of more in one second some are taken twice.
const SEEN_MAX: usize = 1000;
/// Pages of one list in one walk.
const PAGES_MAX: u64 = 100_000;
/// Where a list is in no order, what changed so long before a walk began may be had again: clocks differ.
const CLOCKS_S: i64 = 600;
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

/// A part of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataPage {
    /// Items with the streams they are of.
    pub items: Vec<(&'static str, Value)>,
    /// Where to go on, now or another time.
    pub cursor: String,
    /// Whether that is another time.
    pub is_last: bool,
    /// Whether there may be items that were given before: what is here already is no news.
    pub repeats: bool,
}

/// How a list can be asked for what is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By the time of change, from the one this parameter names on: no page is ever turned, so nothing slips through between two.
    OldestFirst(&'static str),
    /// By the time of change, the latest first.
    NewestFirst,
    /// In whatever order, what was changed since the time this parameter names.
    Any(&'static str),
    /// Without times: all, each time.
    Whole,
}

/// A list of a forge's API.
pub(crate) struct List {
    /// With a question mark, and whatever is the same for each page.
    pub(crate) url: String,
    pub(crate) order: Order,
    pub(crate) per_page: u64,
}

/// Where a walk through a list is, and where the next begins.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
struct Place {
    /// The latest change that was had, as the forge writes it.
    #[serde(skip_serializing_if = "String::is_empty")]
    since: String,
    /// Sums of what changed just then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seen: Vec<String>,
    /// The page that comes next, if a walk is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<u64>,
    /// What `since` and `seen` will be at its end.
    #[serde(skip_serializing_if = "String::is_empty")]
    newest: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    newest_seen: Vec<String>,
    /// When it began, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    began_at: Option<i64>,
    /// What tells the first page from what it will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
}

/// Nanoseconds since 1970; 0 for what is no time.
fn instant(text: &str) -> i128 {
    OffsetDateTime::parse(text, &Rfc3339).map_or(0, OffsetDateTime::unix_timestamp_nanos)
}

fn changed_at(item: &Value) -> &str {
    item["updated_at"].as_str().or_else(|| item["created_at"].as_str()).unwrap_or_default()
}

/// What tells an item from what it was.
fn sum(item: &Value) -> String {
    Sha256::digest(item.to_string()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
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
pub(crate) struct Walked {
    pub(crate) items: Vec<Value>,
    pub(crate) cursor: String,
    pub(crate) is_last: bool,
}

/// The next page of `list` after `cursor`; a list that is not there (issues may be turned off) has nothing.
pub(crate) fn walk(api: &mut Api, list: &List, cursor: Option<&str>, now: i64) -> Result<Walked> {
    let mut place: Place = cursor.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let number = place.page.unwrap_or(1).clamp(1, PAGES_MAX);
    let mut url = format!("{}&page={number}", list.url);
    if let (Order::OldestFirst(name) | Order::Any(name), false) = (list.order, place.since.is_empty()) {
        url += &format!("&{name}={}", escape(&place.since));
    }
    let etag = place.etag.take_if(|_| number == 1);
    let answer = match api.get_unless(&url, etag.as_deref()) {
        Err(Error::NotFound(_)) => None,
        Ok(None) => {
            place.etag = etag;
            None
        }
        Ok(Some(answer)) => Some(answer),
        Err(e) => return Err(e),
    };
    let Some(answer) = answer else {
        place = Place { page: None, newest: String::new(), newest_seen: Vec::new(), began_at: None, ..place };
        return Ok(Walked { items: Vec::new(), cursor: text_of(&place), is_last: true });
    };
    let Value::Array(mut items) = answer.value else {
        return Err(Error::Unexpected { url, detail: "not a list".to_owned() });
    };
    let count = items.len() as u64;
    // Some instances give fewer a page than they are asked for, and then name the next.
    let mut is_last = (answer.next.is_none() && count < list.per_page) || count == 0 || number == PAGES_MAX;
    let since = instant(&place.since);
    let is_older = |item: &Value| instant(changed_at(item)) < since;
    if list.order == Order::NewestFirst {
        is_last |= items.iter().any(|item| !place.since.is_empty() && is_older(item));
        items.retain(|item| place.since.is_empty() || !is_older(item));
    }
    if list.order == Order::Whole {
        let place =
            Place { page: (!is_last).then_some(number + 1), etag: answer.etag.filter(|_| is_last && number == 1), ..Place::default() };
        return Ok(Walked { items, cursor: text_of(&place), is_last });
    }
    // What changed last on this page, and all that changed just then.
    let latest = items.iter().map(changed_at).max_by_key(|time| instant(time)).unwrap_or_default().to_owned();
    let sums_of_latest: Vec<String> =
        items.iter().filter(|item| instant(changed_at(item)) == instant(&latest)).map(sum).take(SEEN_MAX).collect();
    items.retain(|item| instant(changed_at(item)) != since || !place.seen.contains(&sum(item)));
    let is_as_before = items.is_empty() && is_last && number == 1;
    match list.order {
        Order::OldestFirst(_) => {
            if instant(&latest) > since {
                place = Place { since: latest, seen: sums_of_latest, page: None, ..place };
            } else {
                // All of it changed in one second: there pages have to be turned.
                place.seen.extend(sums_of_latest);
                place.seen.sort_unstable();
                place.seen.dedup();
                place.seen.truncate(SEEN_MAX);
                place.page = (!is_last).then_some(number + 1);
            }
        }
        Order::NewestFirst | Order::Any(_) => {
            let began_at = *place.began_at.get_or_insert(now);
            // Of a list in order what comes later is older: what changes meanwhile is before the first page.
            if instant(&latest) > instant(&place.newest) && (number == 1 || list.order != Order::NewestFirst) {
                (place.newest, place.newest_seen) = (latest, sums_of_latest);
            }
            place.page = (!is_last).then_some(number + 1);
            if is_last {
                let (newest, newest_seen) = (std::mem::take(&mut place.newest), std::mem::take(&mut place.newest_seen));
                place.began_at = None;
                let safe = i128::from(began_at - CLOCKS_S) * 1_000_000_000;
                if instant(&newest) > safe && matches!(list.order, Order::Any(_)) {
                    let text = OffsetDateTime::from_unix_timestamp(began_at - CLOCKS_S).ok().and_then(|time| time.format(&Rfc3339).ok());
                    if let Some(text) = text.filter(|_| safe > since) {
                        (place.since, place.seen) = (text, Vec::new());
                    }
                } else if instant(&newest) >= since && !newest.is_empty() {
                    (place.since, place.seen) = (newest, newest_seen);
                }
            }
        }
        Order::Whole => {}
    }
    if is_as_before {
        place.etag = answer.etag;
    }
    Ok(Walked { items, cursor: text_of(&place), is_last })
}

fn text_of(place: &Place) -> String {
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
pub(crate) fn page_of(api: &mut Api, list: &List, name: &str, cursor: Option<&str>, now: i64) -> Result<MetadataPage> {
    let Walked { items, cursor, is_last } = walk(api, list, cursor, now)?;
    let name = stream_called(name);
    let items = items.into_iter().map(|item| (name, item)).collect();
    Ok(MetadataPage { items, cursor, is_last, repeats: matches!(list.order, Order::Whole | Order::Any(_)) })
}

/// All items of the list at `url`, however many pages it has.
pub(crate) fn all(api: &mut Api, url: &str, per_page: u64) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for page in 1..=PAGES_MAX {
        let answer = match api.get(&format!("{url}&page={page}")) {
            Ok(answer) => answer,
            Err(Error::NotFound(_)) => break,
            Err(e) => return Err(e),
        };
        let Value::Array(items) = answer.value else {
            return Err(Error::Unexpected { url: url.to_owned(), detail: "not a list".to_owned() });
        };
        let count = items.len() as u64;
        all.extend(items);
        if count == 0 || (answer.next.is_none() && count < per_page) {
            break;
        }
    }
    Ok(all)
}
