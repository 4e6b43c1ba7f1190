//! Spans of requests and visits, sent to a collector of OpenTelemetry (OTLP 1, over HTTP, in JSON).
//!
//! A thread of its own sends them, in batches. While the collector is away, spans wait; beyond a bound they
//! are lost, and the log says how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::unistd::gethostname;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};
use weir_catalog::{EventKind, PoolEvent};
use weir_ground::Stop;
use weir_ground::thread::spawn;
use weir_serve::{AccessLine, RequestTracer, TraceContext, new_id};
use weir_settings::TracesConfig;

use crate::error::Result;

/// Spans that may wait, and those of one batch.
const WAITING_MAX: usize = 8192;
const BATCH_MAX: usize = 512;
const _: () = assert!(0 < BATCH_MAX && BATCH_MAX <= WAITING_MAX, "a batch is made of what waits");
/// Time that a batch gathers.
const GATHER: Duration = Duration::from_secs(2);
/// Time for sending a batch, and between two attempts.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(10)];
/// Time between messages about spans that are lost.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Time that the end of the program waits for the last spans to be sent.
const END_WAIT: Duration = Duration::from_secs(2);
/// Methods whose names stand in spans.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
/// Bytes of a text of clients in a span.
const TEXT_BYTES_MAX: usize = 1024;

/// The kinds of spans (opentelemetry/proto/trace/v1/trace.proto, `SpanKind`).
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const _: () = assert!(SERVER != CLIENT, "kinds of spans differ");

/// Sends spans to a collector.
#[derive(Debug)]
pub struct TraceExporter {
    spans: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
    /// The least value of the lower half of a trace's id at which the trace is not sent.
    limit: u128,
    ending: Stop,
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
        let (lost, ending) = (Arc::new(AtomicU64::new(0)), Stop::default());
        let mut resource = vec![
            text("service.name", &settings.service_name),
            text("service.version", env!("CARGO_PKG_VERSION")),
            number("process.pid", std::process::id().into()),
        ];
        resource.extend(gethostname().ok().map(|name| text("host.name", &name.to_string_lossy())));
        let mut sender = SpanSender {
            agent: agent(),
            url,
            headers: settings.headers.clone().into_iter().collect(),
            resource: json!({ "attributes": resource }).to_string(),
            ending: ending.clone(),
            lost: lost.clone(),
            told: None,
        };
        let sender = spawn("traces", move || sender.run(&waiting))?;
        // As the sampler TraceIdRatioBased does: by the id, so that all who see a trace decide alike.
        let limit = (settings.sample_ratio * 2f64.powi(64)) as u128;
        Ok(Some(TraceExporter { spans: Some(spans), lost, limit, ending, sender: Some(sender) }))
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
        if self.spans.as_ref().is_some_and(|spans| spans.try_send(span.to_string()).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RequestTracer for TraceExporter {
    fn wants(&self, context: TraceContext) -> bool {
        context.is_wanted.unwrap_or(u128::from(context.trace_id as u64) < self.limit)
    }

    fn ended(&self, line: &AccessLine, context: TraceContext) {
        let (path, query) = line.target.split_once('?').unwrap_or((&line.target, ""));
        // A proxy may be asked for a whole URL (RFC 9112, section 3.2.2), which may hold a password.
        let path = match path.split_once("://") {
            Some((_, rest)) => rest.find('/').map_or("/", |start| &rest[start..]),
            None => path,
        };
        let mut attributes = vec![
            number("weir.sent_bytes", line.bytes),
            text("weir.result", line.result),
            text("weir.request_id", &line.request_id),
        ];
        let name = if line.protocol == "git" {
            attributes.push(text("weir.command", &line.method));
            line.method.clone()
        } else {
            // The names of the semantic conventions of OpenTelemetry for HTTP. Programs group spans by their
            // names, so that these have no word of a client's.
            let method = if METHODS.contains(&&*line.method) { &line.method } else { "_OTHER" };
            attributes.extend([
                text("http.request.method", method),
                text("url.path", path),
                text("url.scheme", line.protocol),
                number("http.response.status_code", line.status.into()),
            ]);
            if method == "_OTHER" { "HTTP".to_owned() } else { method.to_owned() }
        };
        let optional = [
            ("url.query", Some(query.to_owned()).filter(|query| !query.is_empty())),
            ("client.address", line.client.map(|client| client.to_string())),
            ("user_agent.original", line.user_agent.clone()),
            ("enduser.id", line.user.clone()),
            ("weir.repository", line.repository.clone()),
        ];
        attributes.extend(optional.iter().filter_map(|(key, value)| Some(text(key, value.as_ref()?))));
        let name = if line.repository.is_some() { format!("{name} {{repository}}") } else { name };
        let error = matches!(line.result, "failed" | "broken_off").then_some(line.result);
        self.span(context, &name, SERVER, line.seconds, attributes, error);
    }
}

impl Drop for TraceExporter {
    fn drop(&mut self) {
        self.spans = None;
        self.ending.stop();
        // A collector that is away or slow does not hold up the end of the program.
        let until = Instant::now() + END_WAIT;
        while self.sender.as_ref().is_some_and(|sender| !sender.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
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

/// Why a batch is not sent.
#[derive(Debug, thiserror::Error)]
enum SendError {
    /// The collector refuses it for good.
    #[error("it answers {0}")]
    Refused(u16),
    #[error(transparent)]
    Http(ureq::Error),
}

/// The thread that sends.
struct SpanSender {
    agent: Agent,
    url: String,
    headers: Vec<(String, String)>,
    /// The resource of all spans, in JSON.
    resource: String,
    ending: Stop,
    lost: Arc<AtomicU64>,
    told: Option<Instant>,
}

impl SpanSender {
    /// Sends spans until nobody can hand over any more.
    fn run(&mut self, waiting: &Receiver<String>) {
        while let Ok(first) = waiting.recv() {
            let (mut batch, until) = (vec![first], Instant::now() + GATHER);
            while batch.len() < BATCH_MAX {
                match waiting.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(span) => batch.push(span),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            let count = batch.len() as u64;
            if let Err(why) = self.send(&batch) {
                self.lost.fetch_add(count, Ordering::Relaxed);
                self.tell(&why.to_string());
            } else if self.lost.load(Ordering::Relaxed) > 0 {
                self.tell("it takes them too slowly");
            }
        }
    }

    /// Sends a batch, and tries again a few times, unless the program is ending.
    fn send(&self, batch: &[String]) -> std::result::Result<(), SendError> {
        // The spans are JSON already.
        let (resource, spans) = (&self.resource, batch.join(","));
        let scope = format!(r#"{{"scope":{{"name":"weir"}},"spans":[{spans}]}}"#);
        let body = format!(r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{scope}]}}]}}"#);
        let mut pauses = PAUSES.iter();
        loop {
            let mut request = self.agent.post(&self.url).content_type("application/json");
            for (name, value) in &self.headers {
                request = request.header(name, value);
            }
            let failure = match request.send(&body) {
                Ok(_) => return Ok(()),
                // The collector refuses it for good (OTLP, "Failures").
                Err(ureq::Error::StatusCode(status)) if ![429, 502, 503, 504].contains(&status) => {
                    return Err(SendError::Refused(status));
                }
                Err(e) => SendError::Http(e),
            };
            let Some(pause) = pauses.next() else { return Err(failure) };
            self.ending.sleep(*pause);
            if self.ending.is_stopped() {
                return Err(failure);
            }
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
