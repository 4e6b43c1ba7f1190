//! Git LFS as a server that only sends: the batch API and the basic transfer (github.com/git-lfs/git-lfs,
//! docs/api/batch.md).

use std::collections::HashSet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body::Body;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::{Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use weir_repo::is_lfs_oid;

use crate::access::locate::BUSY;
use crate::access::opened::Opened;
use crate::http::body::ResponseBody;
use crate::http::front::{HttpRefusal, ok};
use crate::server::daemon::Daemon;

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/vnd.git-lfs+json");
/// The header in which a proxy in front of the server names the scheme of the request.
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Objects of one request; git-lfs asks for a hundred.
pub(crate) const OBJECTS_MAX: usize = 1000;
/// Bytes of one request.
const REQUEST_BYTES_MAX: usize = 512 << 10;
const _: () = assert!(REQUEST_BYTES_MAX / OBJECTS_MAX > 2 * 64, "each object has room for its id and size");
/// Bytes of an `Authorization` header that is repeated with each object.
const SHOWN_BYTES_MAX: usize = 1024;
/// Bytes of the host in the URLs of objects.
const HOST_BYTES_MAX: usize = 260;
/// The end of the path of a request.
const BATCH: &str = "/batch";

#[derive(Deserialize)]
struct Question {
    operation: String,
    #[serde(default)]
    transfers: Option<Vec<String>>,
    objects: Vec<BatchRequest>,
    #[serde(default)]
    hash_algo: Option<String>,
}

#[derive(Deserialize)]
struct BatchRequest {
    oid: String,
    #[serde(default)]
    size: u64,
}

impl Daemon {
    /// Answers a batch request with the URLs of the objects on this server.
    pub(crate) async fn lfs_batch<B>(
        self: &Arc<Self>,
        request: Request<B>,
        opened: Opened,
        peer: Option<SocketAddr>,
    ) -> Result<Response<ResponseBody>, HttpRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let base = own_url(&request)?;
        // At an object's URL, git-lfs presents only the headers from this answer, and none that it got over
        // ssh.
        let shown = request.headers().get(AUTHORIZATION).and_then(|v| v.to_str().ok()).map(str::to_owned);
        if shown.as_ref().is_some_and(|shown| shown.len() > SHOWN_BYTES_MAX) {
            let words = format!("the Authorization header has more than {SHOWN_BYTES_MAX} bytes");
            return Err(HttpRefusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, words));
        }
        let (body, mut share) = self.body_of(request, REQUEST_BYTES_MAX, peer).await?.unpacked().await?;
        let question: Question = serde_json::from_slice(&body)
            .map_err(|e| HttpRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, format!("no LFS batch: {e}")))?;
        if question.operation != "download" {
            return Err(HttpRefusal::new(
                StatusCode::FORBIDDEN,
                "this is a mirror: push LFS objects to where it mirrors from",
            ));
        }
        if question.hash_algo.is_some_and(|hash| hash != "sha256") {
            return Err(HttpRefusal::new(StatusCode::CONFLICT, "objects are known by their SHA-256 only"));
        }
        if question.transfers.is_some_and(|known| !known.is_empty() && !known.iter().any(|t| t == "basic")) {
            return Err(HttpRefusal::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "objects are given by the transfer 'basic' only",
            ));
        }
        if question.objects.len() > OBJECTS_MAX {
            return Err(HttpRefusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("more than {OBJECTS_MAX} objects at once"),
            ));
        }
        let answer = move |asked: BatchRequest| -> Value {
            let BatchRequest { oid, size } = asked;
            let error = |code: u16, message: &str| {
                json!({ "oid": oid, "size": size, "error": { "code": code,
                "message": message } })
            };
            if !is_lfs_oid(&oid) {
                return error(422, "no SHA-256");
            }
            match opened.repo.lfs_object(&oid) {
                None => error(404, "it is not mirrored here"),
                Some(object) => {
                    let mut download = json!({ "href": format!("{base}/{oid}") });
                    if let Some(shown) = &shown {
                        download["header"] = json!({ "Authorization": shown });
                    }
                    json!({ "oid": oid, "size": object.len(), "authenticated": shown.is_some(),
                        "actions": { "download": download } })
                }
            }
        };
        // This may have to find out first what the refs reach.
        let answering = tokio::task::spawn_blocking(move || {
            // As text, one after the other: as values, all of them would take several times as much memory.
            let mut objects = String::new();
            let mut answered = HashSet::new();
            for asked in question.objects {
                if answered.insert(asked.oid.clone()) {
                    objects.push_str(if objects.is_empty() { "" } else { "," });
                    objects.push_str(&answer(asked).to_string());
                }
            }
            format!("{{\"transfer\":\"basic\",\"objects\":[{objects}],\"hash_algo\":\"sha256\"}}")
        });
        let text = answering
            .await
            .map_err(|e| HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
        share.resize(text.len()).map_err(|_| HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY))?;
        Ok(ok(MEDIA_TYPE, ResponseBody::from(text.into_bytes()).holding(share)))
    }
}

/// Returns the URL of a repository's objects, by the host and scheme that this client used.
fn own_url<B>(request: &Request<B>) -> Result<String, HttpRefusal> {
    let said = |name| request.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
    let host = said(HOST).or_else(|| request.uri().authority().map(|a| a.as_str())).unwrap_or_default();
    // The host becomes part of URLs that the client follows.
    let is_host = |host: &str| {
        !host.is_empty()
            && host.len() <= HOST_BYTES_MAX
            && host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_:[]".contains(&c))
    };
    if !is_host(host) {
        return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, "no host is named"));
    }
    let scheme = match said(FORWARDED) {
        Some("https") => "https",
        _ if request.extensions().get() == Some(&Scheme::HTTPS) => "https",
        _ => "http",
    };
    let path = request.uri().path().strip_suffix(BATCH).unwrap_or_default();
    Ok(format!("{scheme}://{host}{path}"))
}
