//! The door at `/mcp`.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use weir_serve::{HandlerAnswer, HandlerBody, HandlerClient, HttpAdmission, HttpHandler};

use crate::handler::ApiHandler;
use crate::mcp::era::{Era, LEGACY, era_of, served};
use crate::mcp::message::{
    INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, McpMessage, RpcError, RpcRequest, parse, result,
};
use crate::mcp::tools::{self, Called};
use crate::problem::Problem;
use crate::state::ApiState;

const PATH: &str = "/mcp";
/// The longest message.
const BODY_BYTES_MAX: usize = 256 << 10;
/// How long clients may keep the list of tools: it changes with the program.
const TTL_MS: u64 = 3_600_000;
const INSTRUCTIONS: &str = "Reads the git repositories that a weir mirrors: their refs, commits, files and \
    older states. Name a repository as list_repositories does, NAME@N for the state number N of its refs, or \
    NAME@2026-05-01 for the last state of a day. Lists have pages: ask \
    again with 'cursor' until 'next' is null.";

/// Answers requests of the Model Context Protocol with what the API answers.
pub struct McpHandler(Arc<ApiState>);

impl McpHandler {
    /// Returns the door to the tools, which read what `api` reads.
    pub fn of(api: &ApiHandler) -> McpHandler {
        McpHandler(api.state())
    }

    /// Checks that no page of another origin asks through its reader's browser (2026-07-28, "Security &
    /// Endpoint").
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), RpcError> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let allows = |allowed: &String| allowed == "*" || allowed.as_bytes() == origin.as_bytes();
        let refusal =
            || RpcError::new(StatusCode::FORBIDDEN, INVALID_REQUEST, "serve.cors does not name this origin");
        self.0.cors.iter().any(allows).then_some(()).ok_or_else(refusal)
    }

    async fn answer_to(&self, head: Parts, body: Bytes, client: HandlerClient) -> Response<HandlerBody> {
        let request = match parse(&body) {
            Ok(McpMessage::Request(request)) => request,
            Ok(McpMessage::Notification) => {
                let mut response = Response::new(HandlerBody::from(Vec::new()));
                *response.status_mut() = StatusCode::ACCEPTED;
                return response;
            }
            Err(e) => return e.into_response(&Value::Null),
        };
        if self.0.locator.is_mistaken(&client.client) {
            return Problem::new(StatusCode::UNAUTHORIZED, "the token is not known").into_response();
        }
        let answered = match era_of(&head.headers, &request) {
            Ok(era) => self.result_of(era, &request, client).await,
            Err(e) => Err(e),
        };
        match answered {
            Ok(Called::Result(found)) => result(&request.id, &found),
            // The client learns from the status that it needs a token.
            Ok(Called::Refused(problem)) => problem.into_response(),
            Err(e) => e.into_response(&request.id),
        }
    }

    async fn result_of(
        &self,
        era: Era,
        request: &RpcRequest,
        client: HandlerClient,
    ) -> Result<Called, RpcError> {
        let server = json!({ "name": "weir", "version": env!("CARGO_PKG_VERSION") });
        let mut found = match (era, request.method.as_str()) {
            (Era::Legacy, "initialize") => {
                let asked = request.params.get("protocolVersion").and_then(Value::as_str);
                let version = LEGACY.into_iter().find(|known| Some(*known) == asked).unwrap_or(LEGACY[0]);
                json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": server,
                    "instructions": INSTRUCTIONS })
            }
            (Era::Legacy, "ping") => json!({}),
            (Era::Modern, "server/discover") => json!({ "supportedVersions": served(),
                "capabilities": { "tools": {} }, "instructions": INSTRUCTIONS }),
            (_, "tools/list") => json!({ "tools": tools::list() }),
            (_, "tools/call") => match tools::call(self.0.clone(), &request.params, client).await? {
                Called::Result(found) => found,
                refused => return Ok(refused),
            },
            (era, method) => {
                let status = if era == Era::Modern { StatusCode::NOT_FOUND } else { StatusCode::OK };
                return Err(RpcError::new(
                    status,
                    METHOD_NOT_FOUND,
                    format!("there is no method '{method}'"),
                ));
            }
        };
        if era == Era::Modern {
            found["resultType"] = "complete".into();
            found["_meta"] = json!({ "io.modelcontextprotocol/serverInfo": server });
            if request.method != "tools/call" {
                found["ttlMs"] = TTL_MS.into();
                found["cacheScope"] = "public".into();
            }
        }
        Ok(Called::Result(found))
    }
}

impl HttpHandler for McpHandler {
    fn reserves(&self, path: &str) -> bool {
        path == PATH
    }

    fn admit(&self, head: &Parts) -> HttpAdmission {
        if !self.reserves(head.uri.path()) {
            return HttpAdmission::Foreign;
        }
        if let Err(e) = self.check_origin(&head.headers) {
            return HttpAdmission::Answer(e.into_response(&Value::Null));
        }
        if head.method != Method::POST {
            let mut response = self.refuse(StatusCode::METHOD_NOT_ALLOWED, "messages come by POST");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return HttpAdmission::Answer(response);
        }
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
            let words = "a message is JSON: send 'Content-Type: application/json'";
            return HttpAdmission::Answer(self.refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
        }
        HttpAdmission::Body(BODY_BYTES_MAX)
    }

    fn answer(&self, request: Request<Bytes>, client: HandlerClient) -> HandlerAnswer<'_> {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            self.answer_to(head, body, client).await
        })
    }

    fn refuse(&self, status: StatusCode, words: &str) -> Response<HandlerBody> {
        RpcError::new(status, INTERNAL_ERROR, words).into_response(&Value::Null)
    }
}
