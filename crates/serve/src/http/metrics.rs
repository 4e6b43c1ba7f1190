//! Serves one text over HTTP, which a monitor reads every few seconds.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use crate::sockets::paced::Paced;
use crate::sockets::socket::{Listener, Socket, WatchedListener};

/// Connections at once; a monitor has one.
const CONNECTIONS_MAX: usize = 32;
/// Time for a request and its answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A function that makes the text; it may block.
pub type MetricsText = Arc<dyn Fn() -> String + Send + Sync>;

/// Answers `GET path` with `text`, as `content_type`, on `listener` until `stop` is ready.
pub async fn serve_text(
    listener: Listener,
    path: &'static str,
    content_type: &'static str,
    text: MetricsText,
    stop: impl Future<Output = ()>,
) {
    tokio::pin!(stop);
    let listener = match WatchedListener::new(Arc::new(listener)) {
        Ok(listener) => listener,
        Err(e) => return tracing::error!("cannot accept connections: {e}"),
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(turn) = room.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => return,
        };
        let Ok(stream) = accepted.and_then(|(stream, _)| Socket::enter(stream)) else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let text = text.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, path, content_type, text.clone()));
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(TIMEOUT)
                .keep_alive(false)
                .max_buf_size(64 << 10);
            // A monitor that hangs up is no problem.
            let _ = tokio::time::timeout(
                TIMEOUT,
                builder.serve_connection(TokioIo::new(Paced::new(stream, TIMEOUT, 0)), service),
            )
            .await;
            drop(turn);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    path: &'static str,
    content_type: &'static str,
    text: MetricsText,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let refusal = |status: StatusCode, why: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(why.as_bytes())));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != path {
        return Ok(refusal(StatusCode::NOT_FOUND, "there is nothing else here\n"));
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Ok(refusal(StatusCode::METHOD_NOT_ALLOWED, "GET it\n"));
    }
    let made: io::Result<String> =
        tokio::task::spawn_blocking(move || text()).await.map_err(io::Error::other);
    let Ok(made) = made else {
        return Ok(refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal error (a bug in weir)\n"));
    };
    let mut response = Response::new(Full::new(Bytes::from(made)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}
