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

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use hyper::header::CONTENT_ENCODING;
    use hyper::http::request::Parts;
    use hyper::{StatusCode, Version};
    use weir_upload::{DaemonRequest, UploadOptions};

    use super::*;
    use crate::access::locate::{Client, Found, Locator, Refusal};
    use crate::access::presentation::Presentation;
    use crate::handler::{HandlerAnswer, HttpHandler};
    use crate::server::daemon::DaemonLimits;

    struct Nothing;

    impl Locator for Nothing {
        fn find(&self, request: &DaemonRequest, _: &Client) -> Result<Found, Refusal> {
            Err(Refusal::NotFound(format!("no {}", request.path)))
        }
    }

    /// Answers `/echo` with the body, `/no` at once, and takes nothing else.
    struct Echo;

    impl HttpHandler for Echo {
        fn admit(&self, head: &Parts) -> HttpAdmission {
            match head.uri.path() {
                "/echo" => HttpAdmission::Body(10),
                "/no" => {
                    let mut answer = Response::new(Bytes::from_static(b"no"));
                    *answer.status_mut() = StatusCode::FORBIDDEN;
                    HttpAdmission::Answer(answer)
                }
                _ => HttpAdmission::Foreign,
            }
        }

        fn answer(&self, request: Request<Bytes>, peer: Option<SocketAddr>) -> HandlerAnswer<'_> {
            assert_eq!(peer, None);
            Box::pin(async move { Response::new(request.into_body()) })
        }
    }

    fn ask(daemon: &Arc<Daemon>, path: &str, body: &[u8], encoding: Option<&'static str>) -> String {
        let mut request = Request::post(path).version(Version::HTTP_10);
        if let Some(encoding) = encoding {
            request = request.header(CONTENT_ENCODING, encoding);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let answer = daemon.clone().answer_http(request, None).await;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            format!("{status} {}", String::from_utf8_lossy(&body).trim_end())
        })
    }

    #[test]
    fn handlers_answer_paths_that_are_no_git_url() {
        let limits = DaemonLimits { scratch: std::env::temp_dir(), ..DaemonLimits::default() };
        let new = || {
            let presentation = Presentation::default();
            Daemon::new(Arc::new(Nothing), UploadOptions::default(), limits.clone(), presentation).unwrap()
        };
        let bare = Arc::new(new());
        assert_eq!(ask(&bare, "/echo", b"x", None), "404 not a git URL");
        let daemon = Arc::new(new().with_handler(Arc::new(Echo)));
        assert_eq!(ask(&daemon, "/echo", b"0123456789", None), "200 0123456789");
        assert_eq!(ask(&daemon, "/echo", b"", None), "200 ");
        assert_eq!(ask(&daemon, "/no", &[b'x'; 100], None), "403 no");
        assert_eq!(ask(&daemon, "/other", b"", None), "404 not a git URL");
        assert_eq!(ask(&daemon, "/a/git-upload-pack", b"", None), "404 no /a");
        assert_eq!(ask(&daemon, "/echo", &[b'x'; 11], None), "413 the request is larger than 10 bytes");
        assert!(ask(&daemon, "/echo", b"x", Some("br")).starts_with("415 the content encoding is unknown"));
        assert!(ask(&daemon, "/echo", b"x", Some("gzip")).starts_with("400 bad gzip data"));
    }
}
