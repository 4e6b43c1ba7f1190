//! The server that plays a conversation.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use tokio::sync::oneshot;
use weir_serve::{
    Address, Client, Daemon, DaemonLimits, Door, Effort, Found, HandlerAnswer, HandlerClient, HttpAdmission,
    HttpHandler, Listener, Locator, Presentation, Refusal,
};
use weir_upload::{DaemonRequest, UploadOptions};

/// Has the repository `/r`, one `/secret` for clients with the token `t`, and one of each kind of refusal.
struct TestLocator(PathBuf);

impl Locator for TestLocator {
    fn find(&self, request: &DaemonRequest, client: &Client) -> Result<Found, Refusal> {
        match request.path.as_str() {
            "/r" => Ok(Found::Directory(self.0.clone())),
            "/secret" if client.token.as_deref() == Some("t") => Ok(Found::Directory(self.0.clone())),
            "/secret" => Err(Refusal::Unauthorized("a token is needed".to_owned())),
            "/off" => Err(Refusal::Off("not served".to_owned())),
            "/busy" => Err(Refusal::Busy("too much to do".to_owned())),
            "/failed" => Err(Refusal::Failed("a disk is away".to_owned())),
            "/empty" => Ok(Found::Directory(self.0.join("nothing"))),
            path => Err(Refusal::NotFound(format!("no such repository: {path}"))),
        }
    }
}

/// Answers `/echo` with the body, `/no` at once, `/written` while it writes; reserves what is below
/// `/mine/`, and takes nothing else.
struct TestHandler;

impl HttpHandler for TestHandler {
    fn reserves(&self, path: &str) -> bool {
        path.starts_with("/mine/")
    }

    fn admit(&self, head: &Parts) -> HttpAdmission {
        match head.uri.path() {
            "/echo" | "/written" | "/mine/HEAD" => HttpAdmission::Body(10),
            "/no" => {
                let mut answer = Response::new(Bytes::from_static(b"no").into());
                *answer.status_mut() = StatusCode::FORBIDDEN;
                HttpAdmission::Answer(answer)
            }
            _ => HttpAdmission::Foreign,
        }
    }

    fn answer(&self, request: Request<Bytes>, client: HandlerClient) -> HandlerAnswer<'_> {
        Box::pin(async move {
            if request.uri().path() != "/written" {
                return Response::new(request.into_body().into());
            }
            // Fewer bytes than a piece, so that the body comes in one chunk.
            let body = client
                .stream(Effort::Bounded, [0; 32], |out| (0..10).try_for_each(|n| writeln!(out, "line {n}")))
                .await;
            Response::new(body.expect("it is its turn"))
        })
    }
}

/// A server on loopback. When it is dropped, it ends.
pub struct TestServer {
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    /// Starts a server of `repository` with the settings at the start of a file.
    pub fn start(repository: &Path, settings: &[&str]) -> TestServer {
        let mut options = UploadOptions { agent: "weir".to_owned(), ..UploadOptions::default() };
        let mut presentation = Presentation::default();
        let mut has_handler = false;
        for line in settings {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "" | "#" => {}
                "git-config" => {
                    let (name, value) = value.split_once('=').expect("a name and a value");
                    presentation.environment.set(name, value).unwrap();
                }
                "request-bytes-max" => options.limits.request_bytes_max = value.parse().expect("a number"),
                "handler" => has_handler = true,
                _ => panic!("unknown setting '{line}'"),
            }
        }
        let limits = DaemonLimits { drain_timeout: Duration::ZERO, ..DaemonLimits::default() };
        let locator = Arc::new(TestLocator(repository.to_owned()));
        let daemon = Daemon::new(locator, options, limits, presentation).unwrap();
        let daemon = if has_handler { daemon.with_handler(Arc::new(TestHandler)) } else { daemon };
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
                tell.send(listener.address().unwrap()).unwrap();
                let ended = async { drop(stopped.await) };
                Arc::new(daemon).run(listener, Door::Http, ended).await;
            });
        });
        let Address::Tcp(address) = told.recv().unwrap() else { unreachable!("bound above") };
        TestServer { port: address.port(), stop: Some(stop), thread: Some(thread) }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
