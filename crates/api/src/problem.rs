//! Why a request is not answered, as clients are told (RFC 9457).

use hyper::Response;
use hyper::StatusCode;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};
use weir_serve::{HandlerBody, Refusal};

/// The seconds after which a client may ask again.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("10");

/// The words to a client that may need a token.
pub(crate) const UNAUTHORIZED: &str =
    "there is no such repository, or a token is needed: send 'Authorization: Bearer TOKEN'";

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The status of HTTP.
    #[serde(serialize_with = "as_number")]
    #[schema(value_type = u16)]
    pub(crate) status: StatusCode,
    /// Its name.
    pub(crate) title: &'static str,
    /// The kind of the problem, for programs.
    pub(crate) code: ProblemCode,
    /// The reason, and the remedy.
    pub(crate) detail: String,
    /// The methods that are allowed, if the method is wrong.
    #[serde(skip)]
    pub(crate) allow: Option<String>,
}

/// The kind of a problem, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProblemCode {
    /// A parameter or the body is wrong.
    BadRequest,
    /// A token is needed, or the one that was sent is not known.
    Unauthorized,
    /// The client may not do that.
    Forbidden,
    /// There is no such thing, or none that the client may see.
    NotFound,
    /// The repository has not been mirrored yet.
    NotMirrored,
    /// The path takes other methods.
    MethodNotAllowed,
    /// It cannot be done as things are.
    Conflict,
    /// The answer would take too much: ask for less.
    TooLarge,
    /// The answer took longer than it may.
    TimedOut,
    /// The server failed, or has too much to do.
    Unavailable,
}

fn as_number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

/// The answers to requests that are refused.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it only describes answers")]
pub(crate) enum Problems {
    /// A parameter or the body is wrong.
    #[response(status = 400, content_type = "application/problem+json")]
    BadRequest(Problem),
    /// A token is needed, or the one that was sent is not known.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(Problem),
    /// The client may not do that.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Problem),
    /// There is no such thing, or none that the client may see.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(Problem),
    /// The path takes other methods; `Allow` names them.
    #[response(status = 405, content_type = "application/problem+json")]
    MethodNotAllowed(Problem),
    /// The body is too large.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
    /// The content of the body is not JSON, or is encoded.
    #[response(status = 415, content_type = "application/problem+json")]
    UnsupportedType(Problem),
    /// The server failed; its log says why.
    #[response(status = 500, content_type = "application/problem+json")]
    Failed(Problem),
    /// The server has too much to do, or its database is away. `Retry-After` says when to ask again.
    #[response(status = 503, content_type = "application/problem+json")]
    Busy(Problem),
}

/// The answer to a client that has what it asks for.
#[derive(IntoResponses)]
#[response(status = 304, description = "The client has it, by the header `If-None-Match`.")]
pub(crate) struct NotModified;

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        let title = status.canonical_reason().unwrap_or("Error");
        let code = match status {
            StatusCode::UNAUTHORIZED => ProblemCode::Unauthorized,
            StatusCode::FORBIDDEN => ProblemCode::Forbidden,
            StatusCode::NOT_FOUND => ProblemCode::NotFound,
            StatusCode::METHOD_NOT_ALLOWED => ProblemCode::MethodNotAllowed,
            StatusCode::CONFLICT => ProblemCode::Conflict,
            StatusCode::PAYLOAD_TOO_LARGE => ProblemCode::TooLarge,
            status if status.is_server_error() => ProblemCode::Unavailable,
            _ => ProblemCode::BadRequest,
        };
        Problem { status, title, code, detail: detail.into(), allow: None }
    }

    /// Returns the problem with another code.
    pub(crate) fn of(self, code: ProblemCode) -> Problem {
        Problem { code, ..self }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Returns the problem that an answer would take too much.
    pub(crate) fn too_large(words: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, words).of(ProblemCode::TooLarge)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, detail)
    }

    /// Returns the problem that the server failed; the log has the words.
    pub(crate) fn failed(what: &dyn std::fmt::Display) -> Problem {
        tracing::error!("the API cannot answer: {what}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed; its log says why")
    }

    /// Returns the answer.
    pub(crate) fn into_response(self) -> Response<HandlerBody> {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(HandlerBody::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"weir\""));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, RETRY_AFTER_S);
            }
            _ => {}
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let status = refusal.status();
        match refusal {
            Refusal::Unauthorized(_) => Problem::new(status, UNAUTHORIZED),
            refusal => Problem::new(status, refusal.words()),
        }
    }
}

impl From<weir_browse::Error> for Problem {
    fn from(e: weir_browse::Error) -> Problem {
        match e {
            weir_browse::Error::NotFound(words) => Problem::not_found(words),
            weir_browse::Error::WrongKind(words) => Problem::bad_request(words),
            weir_browse::Error::TooLarge(words) => Problem::too_large(words),
            weir_browse::Error::Repo(weir_repo::Error::Unsupported(words)) => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, words)
            }
            e => Problem::failed(&e),
        }
    }
}

impl From<weir_catalog::Error> for Problem {
    fn from(e: weir_catalog::Error) -> Problem {
        match e {
            weir_catalog::Error::NameTaken { .. } => Problem::new(StatusCode::CONFLICT, e.to_string()),
            e => {
                tracing::error!("the API cannot answer: {e}");
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the catalog cannot be read now")
            }
        }
    }
}

impl From<weir_pool::Error> for Problem {
    fn from(e: weir_pool::Error) -> Problem {
        match e {
            weir_pool::Error::Catalog(e) => e.into(),
            weir_pool::Error::Refused(words) => Problem::new(StatusCode::CONFLICT, words),
            weir_pool::Error::NoState { .. } => Problem::not_found(e.to_string()),
            weir_pool::Error::NoName(_) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string()),
            weir_pool::Error::OtherUpstream { .. }
            | weir_pool::Error::HasBase { .. }
            | weir_pool::Error::NeedsBase { .. }
            | weir_pool::Error::Doubtful(_)
            | weir_pool::Error::TooManyGone { .. } => Problem::new(StatusCode::CONFLICT, e.to_string()),
            weir_pool::Error::NotMirrored(_) => {
                Problem::not_found("it has not been mirrored yet").of(ProblemCode::NotMirrored)
            }
            e => Problem::failed(&e),
        }
    }
}
