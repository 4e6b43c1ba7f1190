//! The deliveries of the fake forge's webhooks: lists as GitHub and GitLab have them.

use serde_json::{Value, json};

use super::Reply;

/// Webhooks, and the attempts to deliver to them.
#[derive(Default)]
pub struct Deliveries {
    /// The place of a webhook, such as `orgs/o`, its number and its URL.
    pub hooks: Vec<(&'static str, u64, String)>,
    /// The attempts, the first ones first, as GitHub's API returns one: with its request.
    pub attempts: Vec<Value>,
}

impl Deliveries {
    /// Returns the answer to a request for webhooks or deliveries, if it is one.
    pub fn route(&self, path: &str, query: &str) -> Option<Reply> {
        let (is_gitlab, rest) = match path.strip_prefix("/api/v3/") {
            Some(rest) => (false, rest.to_owned()),
            None => (true, path.strip_prefix("/api/v4/")?.replace("%2F", "/")),
        };
        let rest = rest.strip_prefix("app/hook").map_or(rest.clone(), |rest| format!("app/hooks/1{rest}"));
        let (place, rest) = rest.split_once("/hooks")?;
        let hooks = self.hooks.iter().filter(|(at, ..)| *at == place);
        if rest.is_empty() {
            let listed = hooks.map(|(_, id, url)| json!({ "id": id, "url": url, "config": { "url": url } }));
            return Some(("200 OK", String::new(), listed.collect()));
        }
        let (id, rest) = rest.strip_prefix('/')?.split_once('/')?;
        hooks.clone().find(|(_, hook, _)| hook.to_string() == id)?;
        let parameter = |name: &str| query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
        let size: usize = parameter("per_page").map_or(30, |n| n.parse().unwrap()).min(100);
        match (is_gitlab, rest.split_once('/')) {
            (false, None) if rest == "deliveries" => {
                // A cursor names the attempt at which the page begins.
                let first =
                    parameter("cursor").map(|c| c.strip_prefix("v1_").unwrap().parse::<u64>().unwrap());
                let older = self.attempts.iter().rev();
                let mut older =
                    older.filter(|a| first.is_none_or(|first| a["id"].as_u64().unwrap() <= first));
                let page: Vec<Value> = older
                    .by_ref()
                    .take(size)
                    .map(|attempt| {
                        let mut item = attempt.clone();
                        item.as_object_mut().unwrap().remove("request");
                        item
                    })
                    .collect();
                let next = older.next().map(|next| {
                    format!(
                        "Link: <http://h{path}?per_page={size}&cursor=v1_{}>; rel=\"next\"\r\n",
                        next["id"]
                    )
                });
                Some(("200 OK", next.unwrap_or_default(), page.into()))
            }
            (false, Some(("deliveries", id))) => {
                let id: u64 = id.parse().ok()?;
                Some(super::found(self.attempts.iter().find(|attempt| attempt["id"] == id).cloned()))
            }
            (true, None) if rest == "events" => {
                let skipped = (parameter("page").map_or(1, |n| n.parse().unwrap()) - 1) * size;
                let event = |attempt: &Value| {
                    json!({
                        "id": attempt["id"], "trigger": "push_hooks",
                        "request_headers": attempt["request"]["headers"],
                        "request_data": attempt["request"]["payload"],
                        "response_status": attempt["status_code"].to_string(),
                    })
                };
                let page = self.attempts.iter().rev().skip(skipped).take(size).map(event);
                Some(("200 OK", String::new(), page.collect()))
            }
            _ => None,
        }
    }
}
