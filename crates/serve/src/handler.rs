//! The door for requests whose path is no git URL: a handler answers them.
//!
//! The server has counted the client and checked the request before, and receives the body within its limits
//! on time, rate and memory.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use hyper::body::Bytes;
use hyper::http::request::Parts;
use hyper::{Request, Response};

/// An answer that a handler is making.
pub type HandlerAnswer<'h> = Pin<Box<dyn Future<Output = Response<Bytes>> + Send + 'h>>;

/// What a handler does with a request, by its head.
#[derive(Debug)]
pub enum HttpAdmission {
    /// The path is not one of its own.
    Foreign,
    /// It answers the request once its body is here, which may have so many bytes.
    Body(usize),
    /// It answers at once, whatever the body is.
    Answer(Response<Bytes>),
}

/// Answers requests whose path is no git URL.
pub trait HttpHandler: Send + Sync {
    /// Looks at the head of a request, before the body is received.
    fn admit(&self, head: &Parts) -> HttpAdmission;

    /// Answers a request of a client at `peer` that it has admitted.
    fn answer(&self, request: Request<Bytes>, peer: Option<SocketAddr>) -> HandlerAnswer<'_>;
}
