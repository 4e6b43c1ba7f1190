//! The webhooks in the server's HTTP front: `POST /webhooks/NAME`.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::watch;
use weir_events::{EventIntake, WebhookDoors};
use weir_pool::{Counters, Pool, recent_deliveries};
use weir_serve::{HandlerAnswer, HandlerBody, HandlerClient, HttpAdmission, HttpHandler};

use crate::error::{Error, Result};

/// The path of all webhooks.
const PATH: &str = "/webhooks/";

/// Where to send the way into the spool of webhooks.
pub(crate) type IntakeSender = watch::Sender<Option<EventIntake>>;

/// Answers deliveries.
pub(crate) struct WebhookFront(Arc<WebhookDoors>);

impl WebhookFront {
    /// Returns the front for the webhooks of `pool`, if it has any, and where to send the way into its spool.
    pub(crate) fn of(pool: &Pool, counters: &Counters) -> Result<Option<(WebhookFront, IntakeSender)>> {
        let webhooks = pool.config.events.webhook.iter().map(|webhook| webhook.options());
        let webhooks = webhooks.collect::<weir_settings::Result<Vec<_>>>()?;
        if webhooks.is_empty() {
            return Ok(None);
        }
        let (sender, intake) = watch::channel(None);
        let doors = WebhookDoors::new(&webhooks, intake, counters.webhooks.clone());
        let doors = doors.map_err(Error::of)?;
        let known = recent_deliveries(&pool.catalog)?;
        doors.remember(known.iter().map(String::as_bytes));
        Ok(Some((WebhookFront(Arc::new(doors)), sender)))
    }

    /// Returns its doors.
    pub(crate) fn doors(&self) -> Arc<WebhookDoors> {
        self.0.clone()
    }
}

impl HttpHandler for WebhookFront {
    fn admit(&self, head: &Parts) -> HttpAdmission {
        let Some(name) = head.uri.path().strip_prefix(PATH) else { return HttpAdmission::Foreign };
        match self.0.body_bytes_max(name) {
            None => HttpAdmission::Answer(answer(StatusCode::NOT_FOUND, "there is no such webhook")),
            Some(_) if head.method != Method::POST => {
                let mut answer = answer(StatusCode::METHOD_NOT_ALLOWED, "webhooks are sent with POST");
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                HttpAdmission::Answer(answer)
            }
            // The signature is one over the bytes that come.
            Some(_) if head.headers.contains_key(CONTENT_ENCODING) => {
                let words = "a delivery must not be compressed";
                HttpAdmission::Answer(answer(StatusCode::UNSUPPORTED_MEDIA_TYPE, words))
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
            answer(status, &taken.words)
        })
    }
}

fn answer(status: StatusCode, words: &str) -> Response<HandlerBody> {
    let mut answer = Response::new(format!("{words}\n").into_bytes().into());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
    }
    answer
}
