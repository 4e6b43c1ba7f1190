//! The deliveries of webhooks, as forges keep them for some days.

use serde_json::Value;

use crate::api::Api;
use crate::{Error, Result};

/// The most webhooks of one place.
const HOOK_PAGES_MAX: u64 = 100;
const HOOKS_PER_PAGE: u64 = 100;

/// Lists the deliveries of webhooks. A place is where webhooks are, and a webhook is a path of the forge's
/// API.
pub trait HookDeliveries {
    /// Returns the webhooks at `place` whose URL `is_wanted`. A place that names one webhook is that one.
    ///
    /// # Errors
    /// If the forge has no such place, or does not say.
    fn hooks(&mut self, place: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<String>>;

    /// Returns a page of the attempts to deliver to `hook`, the latest first: the first page, or the one at a
    /// position that an earlier page gave.
    ///
    /// # Errors
    /// If the page cannot be fetched after several tries.
    fn attempts(&mut self, hook: &str, position: Option<&str>) -> Result<AttemptPage>;

    /// Returns the request that `attempt` sent; `None` if the forge keeps it no longer.
    ///
    /// # Errors
    /// If it cannot be fetched after several tries.
    fn request(&mut self, hook: &str, attempt: &DeliveryAttempt) -> Result<Option<DeliveryRequest>>;
}

/// A page of attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptPage {
    /// The attempts.
    pub attempts: Vec<DeliveryAttempt>,
    /// The position of the next page, if there is one.
    pub next: Option<String>,
}

/// An attempt to deliver an event to a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// The number of the attempt.
    pub id: u64,
    /// The id of the delivery, which all attempts of it have.
    pub delivery: String,
    /// The event and its action, as the forge calls them.
    pub event: String,
    /// The action.
    pub action: Option<String>,
    /// A number that is no lower than that of earlier attempts: a time in seconds, or the number of the
    /// attempt.
    pub mark: i64,
    /// When it was made, in seconds since 1970, if the forge says so.
    pub at: Option<i64>,
    /// Whether the receiver answered with success.
    pub has_succeeded: bool,
    /// The request, if the list has it.
    pub request: Option<DeliveryRequest>,
}

/// A request that delivers an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRequest {
    /// The names and values of its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl DeliveryRequest {
    /// Returns the request with these headers and this payload, as forges keep them.
    pub(crate) fn of(headers: &Value, payload: &Value) -> DeliveryRequest {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let headers =
            headers.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), text(value)));
        let body = match payload {
            Value::String(text) => text.clone().into_bytes(),
            payload => payload.to_string().into_bytes(),
        };
        DeliveryRequest { headers: headers.collect(), body }
    }

    /// Returns the value of a header, whatever the case of its name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Returns the paths of the webhooks in the list at `url` whose URL `is_wanted`; `url_of` returns the URL of
/// an item. Each path begins with `place`.
pub(crate) fn listed_hooks(
    api: &mut Api,
    url: &str,
    place: &str,
    url_of: fn(&Value) -> &Value,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for page in 1..=HOOK_PAGES_MAX {
        let url = format!("{url}?per_page={HOOKS_PER_PAGE}&page={page}");
        let answer = api.by_any(&url, Api::get)?;
        let Some(items) = answer.value.as_array() else {
            return Err(Error::Unexpected { url, detail: "not a list".to_owned() });
        };
        let wanted = items.iter().filter(|item| url_of(item).as_str().is_some_and(is_wanted));
        found.extend(wanted.filter_map(|item| Some(format!("{place}/hooks/{}", item["id"].as_u64()?))));
        if (items.len() as u64) < HOOKS_PER_PAGE {
            break;
        }
    }
    Ok(found)
}

/// Returns `place` if it names one webhook by its number.
pub(crate) fn named_hook(place: &str) -> Option<String> {
    let (_, id) = place.rsplit_once("/hooks/")?;
    id.bytes().all(|byte| byte.is_ascii_digit()).then(|| place.to_owned())
}

/// Returns the attempts in `items`, of the list at `url`. Tells of items that are none.
///
/// # Errors
/// If none of them is one.
pub(crate) fn readable(
    url: &str,
    items: &[Value],
    read: fn(&Value) -> Option<DeliveryAttempt>,
) -> Result<Vec<DeliveryAttempt>> {
    let attempts: Vec<DeliveryAttempt> = items.iter().filter_map(read).collect();
    match items.len() - attempts.len() {
        0 => {}
        missing if attempts.is_empty() => {
            let detail = format!("none of the {missing} entries is a delivery");
            return Err(Error::Unexpected { url: url.to_owned(), detail });
        }
        missing => tracing::warn!("{url}: {missing} of {} entries are no deliveries", items.len()),
    }
    Ok(attempts)
}
