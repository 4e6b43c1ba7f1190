//! Spans of requests and visits, sent to a collector of OpenTelemetry (OTLP 1, over HTTP, in JSON).
//!
//! A thread of its own sends them, in batches. While the collector is away, spans wait; beyond a bound they
//! are lost, and the log says how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};
use weir_catalog::{EventKind, PoolEvent};
use weir_ground::thread::spawn;
use weir_serve::{AccessLine, RequestTracer, TraceContext, new_id};
use weir_settings::TracesConfig;

use crate::error::Result;

/// Spans that may wait, and those of one batch.
const WAITING_MAX: usize = 8192;
const BATCH_MAX: usize = 512;
/// Time that a batch gathers.
const GATHER: Duration = Duration::from_secs(2);
/// Time for sending a batch, and between two attempts.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(10)];
/// Time between messages about spans that are lost.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Bytes of a text of clients in a span.
const TEXT_BYTES_MAX: usize = 1024;

/// The kinds of spans (opentelemetry/proto/trace/v1/trace.proto, `SpanKind`).
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

/// Sends spans to a collector.
#[derive(Debug)]
pub struct TraceExporter {
    spans: Option<SyncSender<Value>>,
    lost: Arc<AtomicU64>,
    /// The least value of the lower half of a trace's id at which the trace is not sent.
    limit: u128,
    sender: Option<JoinHandle<()>>,
}

impl TraceExporter {
    /// Starts to send spans to the collector of `settings`; `None` if there is none.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(settings: &TracesConfig) -> Result<Option<TraceExporter>> {
        let Some(url) = settings.url() else { return Ok(None) };
        let (spans, waiting) = sync_channel(WAITING_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let mut sender = SpanSender {
            agent: agent(),
            url,
            headers: settings.headers.clone().into_iter().collect(),
            service: settings.service_name.clone(),
            lost: lost.clone(),
            told: None,
        };
        let sender = spawn("traces", move || sender.run(&waiting))?;
        // As the sampler TraceIdRatioBased does: by the id, so that all who see a trace decide alike.
        let limit = (settings.sample_ratio * 2f64.powi(64)) as u128;
        Ok(Some(TraceExporter { spans: Some(spans), lost, limit, sender: Some(sender) }))
    }

    /// Takes a visit that has ended.
    pub fn visited(&self, event: &PoolEvent) {
        let context = TraceContext::new();
        let Some(subject) = event.subject.as_ref().filter(|_| self.wants(context)) else { return };
        let (seconds, result, more) = match &event.kind {
            EventKind::Update(update) => {
                (update.visit.seconds, "updated", vec![number("weir.appended_bytes", update.bytes_appended)])
            }
            EventKind::Unchanged(visit) => (visit.seconds, "unchanged", Vec::new()),
            EventKind::Failed(failure) => {
                (failure.seconds, "failed", vec![text("error.type", failure.class.name())])
            }
            _ => return,
        };
        let error = match &event.kind {
            EventKind::Failed(failure) => Some(failure.error.as_str()),
            _ => None,
        };
        let mut attributes = vec![
            text("weir.repository", &subject.name),
            text("url.full", &subject.url),
            text("weir.result", result),
        ];
        attributes.extend(more);
        self.span(context, "visit", CLIENT, seconds, attributes, error);
    }

    fn wants(&self, context: TraceContext) -> bool {
        context.is_wanted.unwrap_or(u128::from(context.trace_id as u64) < self.limit)
    }

    /// Hands over a span that ends now.
    fn span(
        &self,
        context: TraceContext,
        name: &str,
        kind: u8,
        seconds: f64,
        attributes: Vec<Value>,
        error: Option<&str>,
    ) {
        let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = end.saturating_sub(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        let mut span = json!({
            "traceId": format!("{:032x}", context.trace_id),
            "spanId": format!("{:016x}", new_id()),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": start.as_nanos().to_string(),
            "endTimeUnixNano": end.as_nanos().to_string(),
            "attributes": attributes,
        });
        if let Some(parent) = context.parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        if let Some(error) = error {
            span["status"] = json!({ "code": 2, "message": shortened(error) });
        }
        if self.spans.as_ref().is_some_and(|spans| spans.try_send(span).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RequestTracer for TraceExporter {
    fn ended(&self, line: &AccessLine, context: TraceContext) {
        if !self.wants(context) {
            return;
        }
        let (path, query) = line.target.split_once('?').unwrap_or((&line.target, ""));
        // The names of the semantic conventions of OpenTelemetry for HTTP.
        let mut attributes = vec![
            text("http.request.method", &line.method),
            text("url.path", path),
            text("url.scheme", line.protocol),
            number("http.response.status_code", line.status.into()),
            number("http.response.body.size", line.bytes),
            text("weir.result", line.result),
            text("weir.request_id", &line.request_id),
        ];
        let optional = [
            ("url.query", Some(query.to_owned()).filter(|query| !query.is_empty())),
            ("client.address", line.client.map(|client| client.to_string())),
            ("user_agent.original", line.user_agent.clone()),
            ("enduser.id", line.user.clone()),
            ("weir.repository", line.repository.clone()),
        ];
        attributes.extend(optional.iter().filter_map(|(key, value)| Some(text(key, value.as_ref()?))));
        let name = match line.repository {
            Some(_) => format!("{} REPOSITORY", line.method),
            None => line.method.clone(),
        };
        let error = matches!(line.result, "failed" | "broken_off").then_some(line.result);
        self.span(context, &name, SERVER, line.seconds, attributes, error);
    }
}

impl Drop for TraceExporter {
    fn drop(&mut self) {
        self.spans = None;
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": shortened(value) } })
}

/// Returns an attribute with a number. Numbers of 64 bits are texts in the JSON of protocol buffers.
fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn agent() -> Agent {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    Agent::config_builder().timeout_global(Some(TIMEOUT)).tls_config(tls).build().new_agent()
}

/// The thread that sends.
struct SpanSender {
    agent: Agent,
    url: String,
    headers: Vec<(String, String)>,
    service: String,
    lost: Arc<AtomicU64>,
    told: Option<Instant>,
}

impl SpanSender {
    /// Sends spans until nobody can hand over any more.
    fn run(&mut self, waiting: &Receiver<Value>) {
        let mut is_last = false;
        while !is_last && let Ok(first) = waiting.recv() {
            let (mut batch, until) = (vec![first], Instant::now() + GATHER);
            while batch.len() < BATCH_MAX {
                match waiting.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(span) => batch.push(span),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        is_last = true;
                        break;
                    }
                }
            }
            let count = batch.len() as u64;
            if let Err(why) = self.send(batch, is_last) {
                self.lost.fetch_add(count, Ordering::Relaxed);
                self.tell(&why);
            } else if self.lost.load(Ordering::Relaxed) > 0 {
                self.tell("it takes them too slowly");
            }
        }
    }

    /// Sends a batch, and tries again a few times, unless the program `is_ending`.
    fn send(&self, batch: Vec<Value>, is_ending: bool) -> std::result::Result<(), String> {
        let version = text("service.version", env!("CARGO_PKG_VERSION"));
        let body = json!({ "resourceSpans": [{
            "resource": { "attributes": [text("service.name", &self.service), version] },
            "scopeSpans": [{ "scope": { "name": "weir" }, "spans": batch }],
        }] });
        let body = body.to_string();
        let mut pauses = PAUSES.iter().filter(|_| !is_ending);
        loop {
            let mut request = self.agent.post(&self.url).content_type("application/json");
            for (name, value) in &self.headers {
                request = request.header(name, value);
            }
            let failure = match request.send(&body) {
                Ok(_) => return Ok(()),
                // The collector refuses it for good (OTLP, "Failures").
                Err(ureq::Error::StatusCode(status)) if ![429, 502, 503, 504].contains(&status) => {
                    return Err(format!("it answers {status}"));
                }
                Err(e) => e.to_string(),
            };
            let Some(pause) = pauses.next() else { return Err(failure) };
            std::thread::sleep(*pause);
        }
    }

    fn tell(&mut self, why: &str) {
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            self.told = Some(Instant::now());
            let lost = self.lost.swap(0, Ordering::Relaxed);
            tracing::warn!("{lost} spans are lost: cannot send them to '{}': {why}", self.url);
        }
    }
}
