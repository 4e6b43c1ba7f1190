//! The API behind the server's HTTP front.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use weir_pool::Pool;
use weir_serve::{HandlerAnswer, HandlerBody, HandlerClient, HttpAdmission, HttpHandler};

use crate::cors::{let_read, preflight};
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::request::ApiRequest;
use crate::routes::{PREFIX, allowed, find};
use crate::state::{ApiState, IsNeeded};

/// The headers that a page may send.
const TAKEN: &str = "Authorization, Content-Type, If-None-Match, Range, If-Range";
/// The longest body.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Answers the requests of the API.
pub struct ApiHandler(Arc<ApiState>);

impl ApiHandler {
    /// Returns the API of `pool`, which deletes no archive of which `is_needed` returns true.
    ///
    /// # Errors
    /// If its settings are wrong, or the catalog cannot be opened again.
    pub fn new(pool: &Pool, is_needed: IsNeeded) -> weir_pool::Result<ApiHandler> {
        Ok(ApiHandler(Arc::new(ApiState::new(pool, is_needed)?)))
    }

    /// Returns the state of the API.
    pub(crate) fn state(&self) -> Arc<ApiState> {
        self.0.clone()
    }

    /// Answers a question about what is allowed.
    fn preflight(&self, head: &Parts) -> Response<HandlerBody> {
        match allowed(head.uri.path()) {
            Ok(methods) => preflight(&self.0.cors, &head.headers, &methods, TAKEN),
            Err(problem) => self.problem(head.headers.get(ORIGIN), problem),
        }
    }

    fn problem(&self, origin: Option<&HeaderValue>, problem: Problem) -> Response<HandlerBody> {
        let mut response = problem.into_response();
        let_read(&self.0.cors, origin, response.headers_mut());
        response
    }
}

impl HttpHandler for ApiHandler {
    fn reserves(&self, path: &str) -> bool {
        path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn admit(&self, head: &Parts) -> HttpAdmission {
        if !self.reserves(head.uri.path()) {
            return HttpAdmission::Foreign;
        }
        if head.method == Method::OPTIONS {
            return HttpAdmission::Answer(self.preflight(head));
        }
        match find(&head.method, head.uri.path()) {
            Ok(_) => HttpAdmission::Body(BODY_BYTES_MAX),
            Err(problem) => HttpAdmission::Answer(self.problem(head.headers.get(ORIGIN), problem)),
        }
    }

    fn answer(&self, request: Request<Bytes>, client: HandlerClient) -> HandlerAnswer<'_> {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let origin = head.headers.get(ORIGIN).cloned();
            let answered = async {
                let (route, parts) = find(&head.method, head.uri.path())?;
                if self.0.locator.is_mistaken(&client.client) {
                    return Err(Problem::new(StatusCode::UNAUTHORIZED, "the token is not known"));
                }
                let parameters = Parameters::parse(head.uri.query().unwrap_or_default())?;
                let request =
                    ApiRequest { path: route.path, parts, parameters, headers: head.headers, body, client };
                (route.answer)(self.0.clone(), request).await
            };
            match answered.await {
                Ok(mut response) => {
                    let_read(&self.0.cors, origin.as_ref(), response.headers_mut());
                    response
                }
                Err(problem) => self.problem(origin.as_ref(), problem),
            }
        })
    }

    fn refuse(&self, status: StatusCode, words: &str) -> Response<HandlerBody> {
        Problem::new(status, words).into_response()
    }
}
