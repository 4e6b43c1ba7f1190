//! Deliveries of GitLab's webhooks (docs.gitlab.com/api/project_webhooks: "List all events for a project
//! webhook"; docs.gitlab.com/api/group_webhooks). GitLab keeps them for seven days.

use serde_json::Value;

use crate::api::Api;
use crate::api_answer::escape;
use crate::deliveries::{
    AttemptPage, DeliveryAttempt, DeliveryRequest, HookDeliveries, listed_hooks, named_hook, readable,
};
use crate::{Error, GitLab, Result};

const PER_PAGE: usize = 100;
/// The headers with the id of a delivery, the best first.
const DELIVERY_IDS: [&str; 3] = ["idempotency-key", "webhook-id", "x-gitlab-event-uuid"];

impl GitLab {
    /// Returns the URL of a place or a webhook: the path of a project or group is one segment.
    fn place_url(&self, place: &str) -> String {
        let (path, hook) = place.split_once("/hooks/").unwrap_or((place, ""));
        let (kind, name) = path.split_once('/').unwrap_or((path, ""));
        let url = format!("{}/{kind}/{}/hooks", self.base, escape(name));
        if hook.is_empty() { url } else { format!("{url}/{hook}") }
    }
}

impl HookDeliveries for GitLab {
    fn hooks(&mut self, place: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
        if let Some(hook) = named_hook(place) {
            return Ok(vec![hook]);
        }
        let url = self.place_url(place);
        listed_hooks(&mut self.api, &url, place, |item| &item["url"], is_wanted)
    }

    fn attempts(&mut self, hook: &str, position: Option<&str>) -> Result<AttemptPage> {
        let page: u64 = position.and_then(|page| page.parse().ok()).unwrap_or(1);
        let url = format!("{}/events?per_page={PER_PAGE}&page={page}", self.place_url(hook));
        let answer = self.api.by_any(&url, Api::get)?;
        let Some(items) = answer.value.as_array() else {
            return Err(Error::Unexpected { url, detail: "not a list".to_owned() });
        };
        let goes_on = answer.next.is_some() || items.len() >= PER_PAGE;
        let next = goes_on.then(|| (page + 1).to_string());
        Ok(AttemptPage { attempts: readable(&url, items, attempt)?, next })
    }

    fn request(&mut self, _: &str, attempt: &DeliveryAttempt) -> Result<Option<DeliveryRequest>> {
        Ok(attempt.request.clone())
    }
}

fn attempt(item: &Value) -> Option<DeliveryAttempt> {
    let id = item["id"].as_u64()?;
    let request = DeliveryRequest::of(&item["request_headers"], &item["request_data"]);
    let delivery = DELIVERY_IDS.iter().find_map(|name| request.header(name));
    // A number, or words such as "internal error".
    let status =
        item["response_status"].as_str().map_or_else(|| item["response_status"].to_string(), str::to_owned);
    Some(DeliveryAttempt {
        id,
        delivery: delivery.map_or_else(|| format!("attempt {id}"), str::to_owned),
        event: item["trigger"].as_str().unwrap_or_default().to_owned(),
        action: None,
        mark: i64::try_from(id).ok()?,
        at: None,
        has_succeeded: status.len() == 3 && status.starts_with('2'),
        request: Some(request),
    })
}
