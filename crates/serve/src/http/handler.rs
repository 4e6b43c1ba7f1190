//! Hands requests whose path is no git URL to the handler.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body::Body;
use hyper::body::Bytes;
use hyper::{Request, Response};

use crate::handler::HttpAdmission;
use crate::http::body::ResponseBody;
use crate::http::front::HttpRefusal;
use crate::server::daemon::Daemon;

impl Daemon {
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
        let answer = handler.answer(Request::from_parts(head, Bytes::from(body)), peer).await;
        Ok(Some(answer.map(|body| ResponseBody::from(body).holding(share))))
    }
}
