//! The doors for webhooks: one for each that the settings name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use percent_encoding::percent_decode;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::{EventError, SecretError, WrongSecret};
use crate::notice::Notice;
use crate::record::now_ms;
use crate::spool::EventIntake;
use crate::webhooks::counts::{WebhookCounts, WebhookResult};
use crate::webhooks::delivery::Delivery;
use crate::webhooks::forge::WebhookForge;
use crate::webhooks::seen::SeenDeliveries;
use crate::webhooks::signature::{WebhookKey, check};

/// The maximum length of a body, in bytes: GitHub sends up to 25 MB.
const BODY_BYTES_MAX: usize = 26 << 20;
/// How long a delivery waits until it is on disk. GitHub and GitLab give up after ten seconds.
const DURABLE_WITHIN: Duration = Duration::from_secs(8);
/// Time between lines of the log about deliveries to one webhook that are not taken.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// A webhook, as the settings describe it.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Its name, which ends the path of its URL.
    pub name: String,
    /// The forge that sends.
    pub forge: WebhookForge,
    /// The secrets that deliveries may be made with: a second one while it is replaced.
    pub secrets: Vec<String>,
    /// Whether deliveries are taken without a signature.
    pub unsigned: bool,
    /// The URL of the forge, for forges that name repositories by path alone.
    pub site: Option<String>,
}

struct Webhook {
    forge: WebhookForge,
    keys: Vec<WebhookKey>,
    unsigned: bool,
    site: Option<String>,
    told: Mutex<Option<Instant>>,
}

/// The answer to a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookAnswer {
    /// The result.
    pub result: WebhookResult,
    /// The text of the answer.
    pub words: Cow<'static, str>,
}

impl WebhookOptions {
    /// Checks the secrets.
    ///
    /// # Errors
    /// If one cannot be a secret of the forge. The error says why.
    pub fn check(&self) -> Result<(), SecretError> {
        self.secrets.iter().try_for_each(|secret| WebhookKey::new(self.forge, secret).map(drop))
    }

    /// Returns the line to keep of a delivery that the forge itself vouches for; `None` if it changes no
    /// repository.
    ///
    /// # Errors
    /// If it cannot be read. The error says why.
    pub fn line_of(&self, headers: &HeaderMap, body: &[u8]) -> Result<Option<Vec<u8>>, EventError> {
        let mut delivery = self.forge.read(headers, body, self.site.as_deref())?;
        if !delivery.is_change {
            return Ok(None);
        }
        delivery.webhook = self.name.as_str().into();
        delivery.line().map(Some)
    }
}

impl WebhookAnswer {
    fn new(result: WebhookResult, words: impl Into<Cow<'static, str>>) -> WebhookAnswer {
        WebhookAnswer { result, words: words.into() }
    }

    /// Returns the status code of HTTP.
    pub fn status(&self) -> u16 {
        match self.result {
            WebhookResult::Taken => 202,
            // A forge takes other answers for a fault, and may turn the webhook off.
            WebhookResult::Repeated | WebhookResult::Ignored => 200,
            WebhookResult::Refused => 401,
            WebhookResult::Bad => 400,
            WebhookResult::Failed => 503,
        }
    }
}

/// Takes the deliveries of webhooks into a spool.
pub struct WebhookDoors {
    webhooks: HashMap<String, Webhook>,
    /// Where deliveries go, as soon as this process has a spool for them.
    intake: watch::Receiver<Option<EventIntake>>,
    seen: Mutex<SeenDeliveries>,
    counts: Arc<WebhookCounts>,
}

impl WebhookDoors {
    /// Returns doors that take deliveries to `intake`, and count them in `counts`.
    ///
    /// # Errors
    /// If a secret cannot be one of its forge. The error names the webhook.
    pub fn new(
        webhooks: &[WebhookOptions],
        intake: watch::Receiver<Option<EventIntake>>,
        counts: Arc<WebhookCounts>,
    ) -> Result<WebhookDoors, WrongSecret> {
        let prepare = |options: &WebhookOptions| {
            let key = |secret: &String| {
                WebhookKey::new(options.forge, secret)
                    .map_err(|why| WrongSecret { webhook: options.name.clone(), why })
            };
            let mut keys = options.secrets.iter().map(key).collect::<Result<Vec<_>, _>>()?;
            if keys.is_empty() {
                keys = WebhookKey::known(options.forge);
            }
            let WebhookOptions { forge, unsigned, site, .. } = options.clone();
            Ok((options.name.clone(), Webhook { forge, keys, unsigned, site, told: Mutex::default() }))
        };
        let webhooks = webhooks.iter().map(prepare).collect::<Result<_, WrongSecret>>()?;
        Ok(WebhookDoors { webhooks, intake, seen: Mutex::default(), counts })
    }

    /// Remembers the lines of deliveries that are on disk: those of a process that ended, so that a delivery
    /// that comes again does nothing.
    pub fn remember<'l>(&self, lines: impl Iterator<Item = &'l [u8]>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (webhook, delivery) in lines.filter_map(Notice::delivery) {
            seen.insert(&webhook, &delivery);
        }
    }

    /// Returns how long the body of a delivery to `webhook` may be; `None` if there is no such webhook.
    pub fn body_bytes_max(&self, webhook: &str) -> Option<usize> {
        self.webhooks.get(webhook).map(|_| BODY_BYTES_MAX)
    }

    /// Takes a delivery to `webhook` from `address`. Returns when it is on disk, or is not taken.
    pub async fn deliver(
        &self,
        webhook: &str,
        headers: &HeaderMap,
        body: &[u8],
        address: Option<IpAddr>,
    ) -> WebhookAnswer {
        let Some(found) = self.webhooks.get(webhook) else {
            return WebhookAnswer::new(WebhookResult::Bad, "there is no such webhook");
        };
        let answer = match self.line_of(webhook, headers, body) {
            Ok((line, id)) => self.keep(webhook, line, id, address).await,
            Err(answer) => answer,
        };
        self.counts.add(webhook, answer.result);
        if matches!(answer.result, WebhookResult::Refused | WebhookResult::Bad | WebhookResult::Failed) {
            let mut told = found.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                *told = Some(Instant::now());
                let from = address.map_or_else(|| "this machine".to_owned(), |address| address.to_string());
                tracing::warn!(
                    "a delivery from {from} to the webhook '{webhook}' is {}: {}",
                    answer.result.name(),
                    answer.words
                );
            }
        }
        answer
    }

    /// Checks a delivery to the webhook `name`, and returns the line to keep, and the id of the delivery.
    ///
    /// # Errors
    /// If there is nothing to keep. The error is the answer.
    pub fn line_of(
        &self,
        name: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(Vec<u8>, Option<String>), WebhookAnswer> {
        let Some(webhook) = self.webhooks.get(name) else {
            return Err(WebhookAnswer::new(WebhookResult::Bad, "there is no such webhook"));
        };
        let form = form_payload(headers, body);
        if !webhook.unsigned {
            let check = |signed| check(webhook.forge, &webhook.keys, headers, signed, now_ms() / 1000);
            let of_form = form.as_deref().filter(|_| webhook.forge.signs_json_of_forms());
            check(body)
                .or_else(|why| of_form.map_or(Err(why), check))
                .map_err(|why| WebhookAnswer::new(WebhookResult::Refused, why))?;
        }
        let bad = |why: EventError| WebhookAnswer::new(WebhookResult::Bad, why.to_string());
        let site = webhook.site.as_deref();
        let mut delivery = webhook.forge.read(headers, form.as_deref().unwrap_or(body), site).map_err(bad)?;
        if !delivery.is_change {
            let words = format!("taken: the event '{}' changes no repository", delivery.event);
            return Err(WebhookAnswer::new(WebhookResult::Ignored, words));
        }
        let id = delivery.delivery.as_deref().map(str::to_owned);
        let seen = |id: &String| self.seen.lock().unwrap_or_else(PoisonError::into_inner).contains(name, id);
        if id.as_ref().is_some_and(seen) {
            return Err(WebhookAnswer::new(WebhookResult::Repeated, "taken: it came before"));
        }
        delivery.webhook = name.into();
        Ok((Delivery::line(&delivery).map_err(bad)?, id))
    }

    /// Puts a delivery on disk.
    async fn keep(
        &self,
        webhook: &str,
        line: Vec<u8>,
        id: Option<String>,
        address: Option<IpAddr>,
    ) -> WebhookAnswer {
        let peer = match address {
            Some(address) => format!("http {address} webhook={webhook}"),
            None => format!("http webhook={webhook}"),
        };
        let mut intake = self.intake.clone();
        let kept = async {
            // Another process of the pool may be about to end.
            let intake = intake.wait_for(Option::is_some).await.ok()?.clone()?;
            intake.put(&peer, &line).await.ok()
        };
        match timeout(DURABLE_WITHIN, kept).await {
            Ok(Some(())) => {
                if let Some(id) = &id {
                    self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(webhook, id);
                }
                WebhookAnswer::new(WebhookResult::Taken, "taken")
            }
            _ => WebhookAnswer::new(WebhookResult::Failed, "it cannot be written now: send it again"),
        }
    }
}

/// Returns the JSON in the body of a form, as GitHub and Gitea send if they are told to; `None` if it is no
/// form.
fn form_payload(headers: &HeaderMap, body: &[u8]) -> Option<Vec<u8>> {
    let kind = headers.get(CONTENT_TYPE).map_or(b"".as_slice(), |kind| kind.as_bytes());
    // curl says that JSON is a form, too.
    if !kind.starts_with(b"application/x-www-form-urlencoded") || body.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let mut fields = body.split(|&byte| byte == b'&');
    let payload = fields.find_map(|field| field.strip_prefix(b"payload="))?;
    let with_blanks: Vec<u8> = payload.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    Some(percent_decode(&with_blanks).collect())
}
