//! A server to which events are posted.
//!
//! A server that does not answer, or answers with an error of its own, keeps its events waiting: weir tries
//! again, at longer and longer intervals, and delays nobody else. An event that a server refuses is given up
//! after some tries: others wait behind it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use weir_catalog::clock::now;
use weir_catalog::{Catalog, FailingHook, LoggedEvent};
use weir_events::{WebhookSigner, now_ms};
use weir_ground::Stop;
use weir_settings::{EventSelection, HookWebhookConfig};
use weir_transport::HttpPost;

use crate::error::Result;
use crate::running::hooks::line::about;
use crate::running::hooks::reader::HookTeller;
use crate::running::pool::Pool;

/// How often an event is sent to a server that refuses it, before it is given up.
const TRIES: u32 = 3;
/// Time until the second attempt, which doubles, and the longest time, in seconds.
const RETRY_S: i64 = 1;
const RETRY_MAX_S: i64 = 3600;
const _: () =
    assert!(0 < RETRY_S && RETRY_S <= RETRY_MAX_S && TRIES > 0, "waits grow from one that is not 0");
/// The number of failed attempts in a row after which weir calls a server dead, and logs that once.
pub(super) const DEAD_AFTER: i64 = 10;
/// How often a wait checks whether somebody wants the next attempt now.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Characters of an answer that are kept.
const ANSWER_CHARACTERS_MAX: usize = 200;

/// Posts events to the server of a table `[[hooks.webhook]]`.
pub(super) struct WebhookTeller {
    pub(super) config: HookWebhookConfig,
    pub(super) selection: EventSelection,
    pub(super) post: Arc<WebhookPost>,
    pub(super) stop: Stop,
    /// Set while the server takes no events.
    pub(super) is_stuck: Arc<AtomicBool>,
    /// The failures of the server, which all workers of the hook know.
    pub(super) failing: Arc<Mutex<Option<FailingHook>>>,
    /// The name of the hook in the catalog.
    pub(super) hook: String,
}

/// The ways to post to a server.
pub(super) struct WebhookPost {
    url: String,
    client: HttpPost,
    signer: WebhookSigner,
    /// The id of the pool, which makes the ids of messages differ from those of others.
    pool: String,
}

/// The result of an attempt.
pub(super) enum PostResult {
    /// The server took the event.
    Taken,
    /// The server refused this event: the reason.
    Refused(String),
    /// The server takes no events now: the reason, and after how many seconds it may, if it says so.
    Away(String, Option<u64>),
}

impl WebhookPost {
    /// Posts `data` of the kind `kind` under the number `id`.
    pub(super) fn send(&self, id: &str, kind: &str, time_s: i64, data: &Value) -> PostResult {
        let at =
            time::OffsetDateTime::from_unix_timestamp(time_s).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
        let at = at.format(&time::format_description::well_known::Rfc3339).unwrap_or_default();
        let body = json!({ "type": kind, "timestamp": at, "data": data }).to_string().into_bytes();
        let id = format!("weir-{}-{id}", self.pool);
        let mut headers = self.signer.headers(&id, now_ms() / 1000, &body);
        headers.push(("x-weir-event", kind.to_owned()));
        match self.client.post(&self.url, &headers, &body) {
            Err(e) => PostResult::Away(e.to_string(), None),
            Ok(answer) => {
                let text: String = answer.text.trim().chars().take(ANSWER_CHARACTERS_MAX).collect();
                let why = format!("it answers {} {}", answer.status, weir_ground::printable(&text));
                let why = why.trim_end().to_owned();
                match answer.status {
                    200..=299 => PostResult::Taken,
                    // Something is wrong with the address or the secret, not with this event.
                    300..=399 | 401 | 403 | 404 | 407 | 408 | 410 | 425 | 429 | 500.. => {
                        PostResult::Away(why, answer.retry_after_s)
                    }
                    _ => PostResult::Refused(why),
                }
            }
        }
    }
}

impl HookTeller for WebhookTeller {
    fn tell(&mut self, catalog: &Catalog, event: &LoggedEvent) -> bool {
        let name = event.event.subject.as_ref().map(|subject| subject.name.as_str());
        if !self.selection.has(name) {
            return true;
        }
        let data = serde_json::to_value(event).expect("an event is JSON");
        let (id, kind) = (event.id.to_string(), event.event.kind.name());
        let mut tries = 0;
        loop {
            if !self.wait_until_it_may(catalog) {
                return false;
            }
            match self.post.send(&id, kind, event.event.time.0, &data) {
                PostResult::Taken => {
                    self.note(catalog, None);
                    return true;
                }
                PostResult::Refused(why) => {
                    // It is there, and takes others.
                    self.note(catalog, None);
                    tries += 1;
                    let hook = &self.config.name;
                    let about = about(event);
                    tracing::warn!("the webhook '{hook}' refuses {about}, try {tries} of {TRIES}: {why}");
                    if tries >= TRIES {
                        tracing::error!("giving up on {about} for the webhook '{hook}'");
                        self.note_given_up(catalog, format!("{about} was given up: {why}"));
                        return true;
                    }
                    if !self.stop.sleep(Duration::from_secs(1)) {
                        return false;
                    }
                }
                PostResult::Away(why, after_s) => self.note(catalog, Some((why, after_s))),
            }
        }
    }
}

impl WebhookTeller {
    /// Waits until the server is to be tried again, if it fails. Returns false if weir is to stop.
    fn wait_until_it_may(&self, catalog: &Catalog) -> bool {
        loop {
            let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let waiting = failing.filter(|failing| failing.retry_at > now());
            self.is_stuck.store(waiting.is_some(), Ordering::Relaxed);
            let Some(mut failing) = waiting else { return !self.stop.is_stopped() };
            // Somebody may want it now, or have tried it with success.
            if let Ok(stored) = catalog.events().failing_hook(&self.hook)
                && stored.as_ref().is_none_or(|stored| stored.retry_at < failing.retry_at)
            {
                failing.retry_at = stored.map_or_else(now, |stored| stored.retry_at);
                *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = Some(failing);
                continue;
            }
            if !self.stop.sleep(LOOK_EVERY) {
                return false;
            }
        }
    }

    /// Notes the result of an attempt: `None`, or why the server took nothing, and after how many seconds it
    /// may.
    fn note(&self, catalog: &Catalog, failed: Option<(String, Option<u64>)>) {
        let hook = &self.config.name;
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match (failed, failing.as_mut()) {
            (None, None) => return,
            (None, Some(before)) => {
                tracing::info!("the webhook '{hook}' works again after {} failures", before.failures);
                *failing = None;
            }
            (Some((error, after_s)), before) => {
                let now = now();
                let failures = before.as_ref().map_or(0, |before| before.failures) + 1;
                let doubled = RETRY_S << (failures - 1).clamp(0, 20);
                let wait_s = doubled.max(after_s.map_or(0, |s| s as i64)).min(RETRY_MAX_S);
                match failures {
                    1 => tracing::warn!("the webhook '{hook}' takes no events: {error}; they wait"),
                    DEAD_AFTER => tracing::error!(
                        "the webhook '{hook}' has taken no events in {failures} attempts: {error}; weir \
                        tries less and less often"
                    ),
                    _ => {}
                }
                let failing_since = before.map_or(now, |before| before.failing_since);
                *failing = Some(FailingHook { failures, failing_since, retry_at: now + wait_s, error });
            }
        }
        let waits = failing.as_ref().is_some_and(|failing| failing.retry_at > now());
        self.is_stuck.store(waits, Ordering::Relaxed);
        self.write(catalog, failing.as_ref());
    }

    /// Notes that an event was given up, which the server refused. Others can go at once.
    fn note_given_up(&self, catalog: &Catalog, error: String) {
        let (mut failing, now) = (self.failing.lock().unwrap_or_else(PoisonError::into_inner), now());
        *failing = Some(FailingHook { failures: i64::from(TRIES), failing_since: now, retry_at: now, error });
        self.write(catalog, failing.as_ref());
    }

    fn write(&self, catalog: &Catalog, failing: Option<&FailingHook>) {
        if let Err(e) = catalog.events().set_failing_hook(&self.hook, failing) {
            tracing::warn!("cannot note how the webhook '{}' is: {e}", self.config.name);
        }
    }
}

/// Returns the client of a webhook, with its secrets.
///
/// # Errors
/// If its secrets cannot be read.
pub(super) fn post_of(pool: &Pool, config: &HookWebhookConfig) -> Result<WebhookPost> {
    Ok(WebhookPost {
        url: config.url.clone(),
        client: config.client(&pool.config.environment, pool.config.transport.ca_file.as_deref())?,
        signer: config.signer()?,
        pool: pool.store_id().to_owned(),
    })
}
