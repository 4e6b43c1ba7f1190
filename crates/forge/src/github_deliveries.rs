//! Deliveries of GitHub's webhooks (docs.github.com/rest/webhooks: "Repository webhook deliveries";
//! docs.github.com/rest/orgs/webhooks; docs.github.com/rest/apps/webhooks). GitHub keeps them for three days,
//! and sends none again by itself.

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::api::Api;
use crate::api_answer::{ApiAnswer, parameter};
use crate::deliveries::{
    AttemptPage, DeliveryAttempt, DeliveryRequest, HookDeliveries, listed_hooks, named_hook, readable,
};
use crate::{Error, GitHub, Result};

/// The webhook of an App.
const APP_HOOK: &str = "app/hook";

impl GitHub {
    /// Returns the answer at `url`: as the App, if it is about its own webhook.
    fn delivery_answer(&mut self, hook: &str, url: &str) -> Result<ApiAnswer> {
        match hook == APP_HOOK {
            true => self.api.get_as_app(url),
            false => self.api.by_any(url, Api::get),
        }
    }
}

impl HookDeliveries for GitHub {
    fn hooks(&mut self, place: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
        if place == "app" {
            return Ok(vec![APP_HOOK.to_owned()]);
        }
        if let Some(hook) = named_hook(place) {
            return Ok(vec![hook]);
        }
        let url = format!("{}/{place}/hooks", self.rest);
        listed_hooks(&mut self.api, &url, place, |item| &item["config"]["url"], is_wanted)
    }

    fn attempts(&mut self, hook: &str, position: Option<&str>) -> Result<AttemptPage> {
        let mut url = format!("{}/{hook}/deliveries?per_page=100", self.rest);
        if let Some(position) = position {
            url += &format!("&cursor={position}");
        }
        let answer = self.delivery_answer(hook, &url)?;
        let Some(items) = answer.value.as_array() else {
            return Err(Error::Unexpected { url, detail: "not a list".to_owned() });
        };
        let next = answer.next.as_deref().and_then(|next| parameter(next, "cursor")).map(str::to_owned);
        Ok(AttemptPage { attempts: readable(&url, items, attempt)?, next })
    }

    fn request(&mut self, hook: &str, attempt: &DeliveryAttempt) -> Result<Option<DeliveryRequest>> {
        let url = format!("{}/{hook}/deliveries/{}", self.rest, attempt.id);
        match self.delivery_answer(hook, &url) {
            Ok(answer) => {
                let request = &answer.value["request"];
                Ok(Some(DeliveryRequest::of(&request["headers"], &request["payload"])))
            }
            Err(Error::NotFound(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn attempt(item: &Value) -> Option<DeliveryAttempt> {
    let at = OffsetDateTime::parse(item["delivered_at"].as_str()?, &Rfc3339).ok()?.unix_timestamp();
    Some(DeliveryAttempt {
        id: item["id"].as_u64()?,
        delivery: item["guid"].as_str()?.to_owned(),
        event: item["event"].as_str()?.to_owned(),
        action: item["action"].as_str().map(str::to_owned),
        mark: at,
        at: Some(at),
        has_succeeded: item["status_code"].as_u64().is_some_and(|status| (200..300).contains(&status)),
        request: None,
    })
}
