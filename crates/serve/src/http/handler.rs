//! Hands requests that are not git's to the handler.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body::Body;
use hyper::body::Bytes;
use hyper::{Request, Response};

use crate::access::locate::Client;
use crate::http::body::ResponseBody;
use crate::http::front::{HttpRefusal, host_of, token_of};
use crate::server::daemon::Daemon;
use crate::server::handler::{HandlerClient, HttpAdmission};

impl Daemon {
    /// Returns whether the handler answers all requests for `path`.
    pub(crate) fn reserves(&self, path: &str) -> bool {
        self.handler.as_ref().is_some_and(|handler| handler.reserves(path))
    }

    /// Lets the handler answer a request for a path that it reserves. It words refusals, too.
    pub(crate) async fn hand_on_reserved<B>(
        self: &Arc<Self>,
        request: Request<B>,
        peer: Option<SocketAddr>,
    ) -> Result<Response<ResponseBody>, HttpRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let not_found = || HttpRefusal::new(hyper::StatusCode::NOT_FOUND, "there is nothing here");
        let answered = self.hand_on(request, peer).await.and_then(|answer| answer.ok_or_else(not_found));
        answered.or_else(|refusal| match &self.handler {
            Some(handler) => Ok(handler.refuse(refusal.status, &refusal.words).map(ResponseBody::from)),
            None => Err(refusal),
        })
    }

    /// Lets the handler answer a request. Returns `None` if there is none for its path.
    pub(crate) async fn hand_on<B>(
        self: &Arc<Self>,
        request: Request<B>,
        peer: Option<SocketAddr>,
    ) -> Result<Option<Response<ResponseBody>>, HttpRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let Some(handler) = &self.handler else { return Ok(None) };
        let (head, body) = request.into_parts();
        let bytes_max = match handler.admit(&head) {
            HttpAdmission::Foreign => return Ok(None),
            HttpAdmission::Answer(answer) => return Ok(Some(answer.map(ResponseBody::from))),
            HttpAdmission::Body(bytes_max) => bytes_max,
        };
        // The sender is unknown until the handler has checked it, and gets less time.
        let idle_timeout = self.limits.init_timeout.min(self.limits.idle_timeout);
        let received = self.receive(&head.headers, body, bytes_max, idle_timeout, peer).await?;
        let (body, share) = received.unpacked().await?;
        let client = HandlerClient {
            client: Client { address: peer, token: token_of(&head.headers), known_as: None },
            host: host_of(&head.headers, &head.uri),
            repositories: self.repositories.clone(),
            reads: self.reads.clone(),
            idle_timeout: self.limits.idle_timeout,
            bytes_per_second_min: self.limits.bytes_per_second_min,
        };
        let answer = handler.answer(Request::from_parts(head, Bytes::from(body)), client).await;
        Ok(Some(answer.map(|body| ResponseBody::from(body).holding(share))))
    }
}
