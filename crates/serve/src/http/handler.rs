//! Hands requests that are not git's to the handler.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body::Body;
use hyper::body::Bytes;
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};

use crate::access::locate::{BUSY, Client};
use crate::http::body::ResponseBody;
use crate::http::front::{HttpRefusal, host_of};
use crate::http::hang_up::HangUp;
use crate::http::token::token_of;
use crate::server::daemon::Daemon;
use crate::server::handler::{HandlerClient, HttpAdmission, HttpHandler};

/// The status in the access log of a client that hung up before its answer, as nginx has it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl Daemon {
    /// Returns the handler that answers all requests for `path`.
    pub(crate) fn reserved(&self, path: &str) -> Option<Arc<dyn HttpHandler>> {
        self.handlers.iter().find(|handler| handler.reserves(path)).cloned()
    }

    /// Lets the handler that reserves its path answer a request. It words refusals, too.
    pub(crate) async fn hand_to<B>(
        &self,
        handler: &dyn HttpHandler,
        request: Request<B>,
        peer: Option<SocketAddr>,
    ) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let (head, body) = request.into_parts();
        let answered = match handler.admit(&head) {
            HttpAdmission::Foreign => Err(HttpRefusal::new(StatusCode::NOT_FOUND, "there is nothing here")),
            admission => self.admitted(handler, admission, head, body, peer).await,
        };
        answered.unwrap_or_else(|HttpRefusal { status, words, .. }| {
            handler.refuse(status, &words).map(ResponseBody::from)
        })
    }

    /// Lets a handler answer a request that is not git's. Returns `None` if there is none for its path.
    pub(crate) async fn hand_on<B>(
        &self,
        request: Request<B>,
        peer: Option<SocketAddr>,
    ) -> Result<Option<Response<ResponseBody>>, HttpRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let (head, body) = request.into_parts();
        for handler in &self.handlers {
            match handler.admit(&head) {
                HttpAdmission::Foreign => {}
                admission => return self.admitted(&**handler, admission, head, body, peer).await.map(Some),
            }
        }
        Ok(None)
    }

    /// Receives what the handler admits, and lets it answer.
    async fn admitted<B>(
        &self,
        handler: &dyn HttpHandler,
        admission: HttpAdmission,
        head: Parts,
        body: B,
        peer: Option<SocketAddr>,
    ) -> Result<Response<ResponseBody>, HttpRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let bytes_max = match admission {
            HttpAdmission::Answer(answer) => return Ok(answer.map(ResponseBody::from)),
            HttpAdmission::Body(bytes_max) => bytes_max,
            HttpAdmission::Foreign => 0,
        };
        // Boxed, as git's requests are.
        let receive = async move {
            // The sender is unknown until the handler has checked it, and gets less time.
            let idle_timeout = self.limits.init_timeout.min(self.limits.idle_timeout);
            let received = self.receive(&head.headers, body, bytes_max, idle_timeout, peer).await?;
            let (body, mut share) = received.unpacked().await?;
            let client = HandlerClient {
                client: Client { address: peer, token: token_of(&head.headers), known_as: None },
                host: host_of(&head.headers, &head.uri),
                repositories: self.repositories.clone(),
                reads: self.reads.clone(),
                computes: self.computes.clone(),
                explorations: self.explorations.clone(),
                answers: self.answers.clone(),
            };
            let hang_up = head.extensions.get::<HangUp>().cloned();
            let request = Request::from_parts(head, Bytes::from(body));
            let answer = tokio::select! {
                answer = handler.answer(request, client) => answer,
                // Nothing more is computed for it.
                () = HangUp::of(hang_up.as_ref()) => {
                    let closed = StatusCode::from_u16(CLIENT_CLOSED_REQUEST);
                    let status = closed.unwrap_or(StatusCode::BAD_REQUEST);
                    return Err(HttpRefusal::new(status, "the client has gone"));
                }
            };
            // An answer waits in memory until its client has read it.
            share
                .resize(answer.body().held_bytes())
                .map_err(|_| HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, BUSY))?;
            Ok(answer.map(|body| ResponseBody::from(body).holding(share)))
        };
        Box::pin(receive).await
    }
}
