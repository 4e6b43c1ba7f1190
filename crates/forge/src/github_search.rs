//! GitHub's search for repositories (docs.github.com/rest/search: "Search repositories"). It returns a
//! thousand results of a query at most. So each query is limited to ranges of the time at which repositories
//! were created, and ranges are halved until they are small enough.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir_ground::Clock;

use crate::api::Api;
use crate::api_answer::escape;
use crate::{Error, Result};

/// The most results of one query.
pub(crate) const FOUND_MAX: u64 = 1000;
pub(crate) const PER_PAGE: u64 = 100;
/// 2007-10-01: before the first repository was created.
const FIRST_S: u64 = 1_191_196_800;

/// Where a search stands: `QUESTION:FROM:TO:PAGE:END`, the times in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchPlace {
    pub(crate) question: usize,
    from: u64,
    to: u64,
    page: u64,
    /// Where the last range ends: the time when the query was first sent.
    end: u64,
}

/// A page of a search.
pub(crate) struct SearchPage {
    pub(crate) items: Vec<serde_json::Value>,
    pub(crate) next: SearchPlace,
    /// Whether GitHub gave up before it had found everything.
    pub(crate) is_incomplete: bool,
}

impl SearchPlace {
    pub(crate) fn start(question: usize, now: u64) -> SearchPlace {
        let end = now.max(FIRST_S);
        SearchPlace { question, from: FIRST_S, to: end, page: 1, end }
    }

    pub(crate) fn parse(text: &str, now: u64) -> SearchPlace {
        let mut numbers = text.split(':').map(|n| n.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let place = SearchPlace {
            question: next() as usize,
            from: next(),
            to: next(),
            page: next().max(1),
            end: next(),
        };
        if place.from < FIRST_S || place.to < place.from {
            return SearchPlace::start(place.question, now);
        }
        // Positions of older versions do not have it.
        SearchPlace { end: if place.end < place.to { now.max(place.to) } else { place.end }, ..place }
    }

    pub(crate) fn text(&self) -> String {
        format!("{}:{}:{}:{}:{}", self.question, self.from, self.to, self.page, self.end)
    }

    /// Returns the next page, range or question, if this range has `total` results.
    fn after(self, total: u64, now: u64) -> SearchPlace {
        if total.min(FOUND_MAX) > self.page.saturating_mul(PER_PAGE) {
            return SearchPlace { page: self.page + 1, ..self };
        }
        self.skip(now)
    }

    /// Returns the next page of a second for which the number of results is unknown.
    pub(crate) fn skip_page(self, now: u64) -> SearchPlace {
        self.after(FOUND_MAX, now)
    }

    /// Returns the next range, or question.
    fn skip(self, now: u64) -> SearchPlace {
        if self.to >= self.end {
            return SearchPlace::start(self.question + 1, now);
        }
        debug_assert!(self.from <= self.to, "{self:?} is no range");
        let from = self.to + 1;
        // After a sparse range, the next one is probably sparse, too; if not, it is halved.
        let width = (self.to - self.from + 1).saturating_mul(2);
        SearchPlace { from, to: from.saturating_add(width).min(self.end), page: 1, ..self }
    }

    /// Returns half of this range, if it can be halved.
    pub(crate) fn halved(self) -> Option<SearchPlace> {
        (self.to > self.from).then(|| SearchPlace {
            to: self.from + (self.to - self.from) / 2,
            page: 1,
            ..self
        })
    }
}

pub(crate) fn now() -> u64 {
    Clock::default().now().as_u64()
}

/// Returns a time in the form `2024-01-31T12:00:00Z`.
fn written(seconds: u64) -> String {
    let time = i64::try_from(seconds)
        .ok()
        .and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_default()
}

/// Returns the page of `question` at `place`.
pub(crate) fn search(
    api: &mut Api,
    rest: &str,
    question: &str,
    place: SearchPlace,
    now: u64,
) -> Result<SearchPage> {
    debug_assert!(place.from <= place.to && place.to <= place.end, "{place:?} is no range");
    let asked = format!("{question} created:{}..{}", written(place.from), written(place.to));
    let url =
        format!("{rest}/search/repositories?q={}&per_page={PER_PAGE}&page={}", escape(&asked), place.page);
    let answer = api.get(&url)?.value;
    let unexpected = || Error::Unexpected { url: url.clone(), detail: "not what a search gives".to_owned() };
    let total = answer["total_count"].as_u64().ok_or_else(unexpected)?;
    let items = answer["items"].as_array().ok_or_else(unexpected)?;
    let is_incomplete = answer["incomplete_results"].as_bool() == Some(true);
    if total > FOUND_MAX && !is_incomplete {
        match place.halved() {
            Some(next) => return Ok(SearchPage { items: Vec::new(), next, is_incomplete: false }),
            None => tracing::warn!(
                "{url}: {total} repositories were created in one second; only {FOUND_MAX} are listed"
            ),
        }
    }
    Ok(SearchPage { items: items.clone(), next: place.after(total, now), is_incomplete })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_github_writes_them() {
        for (seconds, text) in [
            (FIRST_S, "2007-10-01T00:00:00Z"),
            (1_709_164_799, "2024-02-28T23:59:59Z"),
            (1_709_208_000, "2024-02-29T12:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
        ] {
            assert_eq!(written(seconds), text);
        }
    }

    /// Every second lies in exactly one range that is small enough, in order, whenever repositories were
    /// created.
    #[test]
    fn ranges_cover_all_time_once() {
        let now = FIRST_S + 500_000_000;
        let mut made: Vec<u64> = (0..30_000u64).map(|n| FIRST_S + n * n % 499_999_999).collect();
        made.extend((0..5000).map(|n| FIRST_S + 400_000_000 + n));
        let (mut place, mut seen, mut asked) = (SearchPlace::start(0, now), 0usize, 0);
        while place.question == 0 {
            asked += 1;
            assert_eq!(SearchPlace::parse(&place.text(), now), place);
            let total = made.iter().filter(|at| (place.from..=place.to).contains(at)).count() as u64;
            if total > FOUND_MAX {
                place = place.halved().unwrap();
                continue;
            }
            let here = total - (place.page - 1) * PER_PAGE;
            seen += here.min(PER_PAGE) as usize;
            // However long the search takes: what is created meanwhile is left to the next one.
            place = place.after(total, now + asked as u64);
        }
        assert_eq!(seen, made.len());
        assert!(asked < 35_000 / 100 * 2, "{asked} requests");
        assert_eq!(place, SearchPlace::start(1, now + asked as u64));
        let old = SearchPlace::parse(&format!("1:{FIRST_S}:{}:2", FIRST_S + 5), now);
        assert_eq!((old.page, old.end), (2, now));
        for bad in ["", "x", "0:1:2:3", "0:9:1:1"] {
            assert_eq!(SearchPlace::parse(bad, now), SearchPlace::start(0, now), "{bad}");
        }
    }
}
