//! The API behind the server's HTTP front.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use weir_pool::Pool;
use weir_serve::{HandlerAnswer, HandlerBody, HandlerClient, HttpAdmission, HttpHandler};

use crate::answer::set;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::request::ApiRequest;
use crate::routes::{PREFIX, allowed, find};
use crate::state::ApiState;

/// The longest body.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Answers the requests of the API.
pub struct ApiHandler(Arc<ApiState>);

impl ApiHandler {
    /// Returns the API of `pool`.
    ///
    /// # Errors
    /// If its settings are wrong, or the catalog cannot be opened again.
    pub fn new(pool: &Pool) -> weir_pool::Result<ApiHandler> {
        Ok(ApiHandler(Arc::new(ApiState::new(pool)?)))
    }

    /// Returns the state of the API.
    pub(crate) fn state(&self) -> Arc<ApiState> {
        self.0.clone()
    }

    /// Lets pages of other origins read an answer, if the settings say so. A browser sends no token by
    /// itself.
    fn let_read(&self, origin: Option<&HeaderValue>, answer: &mut HeaderMap) {
        let cors = &self.0.cors;
        if cors.is_empty() {
            return;
        }
        answer.append(VARY, HeaderValue::from_static("Origin"));
        let Some(origin) = origin else { return };
        if cors.iter().any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes()) {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            let exposed = HeaderValue::from_static("ETag, Location, Retry-After, Content-Range");
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }

    /// Answers a question about what is allowed.
    fn preflight(&self, head: &Parts) -> Response<HandlerBody> {
        let methods = match allowed(head.uri.path()) {
            Ok(methods) => methods,
            Err(problem) => return self.problem(head.headers.get(ORIGIN), problem),
        };
        let mut response = Response::new(HandlerBody::from(Vec::new()));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        set(headers, ALLOW, &methods);
        self.let_read(head.headers.get(ORIGIN), headers);
        if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            set(headers, ACCESS_CONTROL_ALLOW_METHODS, &methods);
            let taken = "Authorization, Content-Type, If-None-Match, Range, If-Range";
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(taken));
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
        }
        response
    }

    fn problem(&self, origin: Option<&HeaderValue>, problem: Problem) -> Response<HandlerBody> {
        let mut response = problem.into_response();
        self.let_read(origin, response.headers_mut());
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
                let request = ApiRequest { parts, parameters, headers: head.headers, body, client };
                (route.answer)(self.0.clone(), request).await
            };
            match answered.await {
                Ok(mut response) => {
                    self.let_read(origin.as_ref(), response.headers_mut());
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
