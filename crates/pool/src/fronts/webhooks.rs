//! The webhooks in the server's HTTP front: `POST /webhooks/NAME`.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_ENCODING, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use tokio::sync::watch;
use weir_events::{EventIntake, WebhookDoors};
use weir_serve::{HandlerAnswer, HandlerClient, HttpAdmission, HttpHandler};

use crate::error::Result;
use crate::fronts::plain_answer::plain_answer;
use crate::running::{Counters, Pool, recent_deliveries};

/// The path of all webhooks.
const PATH: &str = "/webhooks/";

/// Where to send the way into the spool of webhooks.
pub type IntakeSender = watch::Sender<Option<EventIntake>>;

/// Answers deliveries.
pub struct WebhookFront(Arc<WebhookDoors>);

impl WebhookFront {
    /// Returns the front for the webhooks of `pool`, if it has any, and where to send the way into its spool.
    ///
    /// # Errors
    /// If a secret cannot be one, or the catalog fails.
    pub fn of(pool: &Pool, counters: &Counters) -> Result<Option<(WebhookFront, IntakeSender)>> {
        let webhooks = pool.config.events.webhook.iter().map(|webhook| webhook.options());
        let webhooks = webhooks.collect::<weir_settings::Result<Vec<_>>>()?;
        if webhooks.is_empty() {
            return Ok(None);
        }
        let (sender, intake) = watch::channel(None);
        let doors = WebhookDoors::new(&webhooks, intake, counters.webhooks.clone());
        let doors = doors?;
        let known = recent_deliveries(&pool.catalog)?;
        doors.remember(known.iter().map(String::as_bytes));
        Ok(Some((WebhookFront(Arc::new(doors)), sender)))
    }

    /// Returns its doors.
    pub fn doors(&self) -> Arc<WebhookDoors> {
        self.0.clone()
    }
}

impl HttpHandler for WebhookFront {
    fn admit(&self, head: &Parts) -> HttpAdmission {
        let Some(name) = head.uri.path().strip_prefix(PATH) else { return HttpAdmission::Foreign };
        match self.0.body_bytes_max(name) {
            None => HttpAdmission::Answer(plain_answer(StatusCode::NOT_FOUND, "there is no such webhook")),
            Some(_) if head.method != Method::POST => {
                let mut answer = plain_answer(StatusCode::METHOD_NOT_ALLOWED, "webhooks are sent with POST");
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                HttpAdmission::Answer(answer)
            }
            // The signature is one over the bytes that come.
            Some(_) if head.headers.contains_key(CONTENT_ENCODING) => {
                let words = "a delivery must not be compressed";
                HttpAdmission::Answer(plain_answer(StatusCode::UNSUPPORTED_MEDIA_TYPE, words))
            }
            Some(bytes_max) => HttpAdmission::Body(bytes_max),
        }
    }

    fn answer(&self, request: Request<Bytes>, client: HandlerClient) -> HandlerAnswer<'_> {
        Box::pin(async move {
            let name = request.uri().path().strip_prefix(PATH).unwrap_or_default();
            let address = client.client.address.map(|peer| peer.ip().to_canonical());
            let taken = self.0.deliver(name, request.headers(), request.body(), address).await;
            let status = StatusCode::from_u16(taken.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            plain_answer(status, &taken.words)
        })
    }
}
