//! The door at `/mcp`.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use weir_serve::{HandlerAnswer, HandlerBody, HandlerClient, HttpAdmission, HttpHandler};

use crate::cors::{let_read, may_read, preflight};
use crate::handler::ApiHandler;
use crate::mcp::era::{Era, LEGACY, era_of, served};
use crate::mcp::message::{
    INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, McpMessage, RpcError, RpcRequest, parse, result,
};
use crate::mcp::tools;
use crate::problem::Problem;
use crate::state::ApiState;

const PATH: &str = "/mcp";
/// The headers that a page may send.
const TAKEN: &str = "Authorization, Content-Type, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id";
/// The longest message.
const BODY_BYTES_MAX: usize = 256 << 10;
/// How long clients may keep the list of tools: it changes with the program.
const TTL_MS: u64 = 3_600_000;
const INSTRUCTIONS: &str = "Reads the git repositories that a weir mirrors: their refs, commits and files. \
    Name a repository as list_repositories does. If the server lets clients read older states of the refs, \
    NAME@N is state number N of list_ref_states, and NAME@2026-05-01 the last state of that day. Lists have \
    pages: ask again with 'cursor' until 'next' is null.";

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
        let refusal =
            || RpcError::new(StatusCode::FORBIDDEN, INVALID_REQUEST, "serve.cors does not name this origin");
        let is_let = headers.get(ORIGIN).is_none_or(|origin| may_read(&self.0.cors, origin));
        is_let.then_some(()).ok_or_else(refusal)
    }

    async fn answer_to(&self, head: Parts, body: Bytes, client: HandlerClient) -> Response<HandlerBody> {
        let request = match parse(&body) {
            Ok(McpMessage::Request(request)) => request,
            Ok(McpMessage::Notification) => {
                let mut response = Response::new(HandlerBody::from(Vec::new()));
                *response.status_mut() = StatusCode::ACCEPTED;
                return response;
            }
            Err(e) => return e.into_response(None),
        };
        if self.0.locator.is_mistaken(&client.client) {
            return Problem::new(StatusCode::UNAUTHORIZED, "the token is not known").into_response();
        }
        let answered = match era_of(&head.headers, &request) {
            Ok(era) => self.result_of(era, &request, client).await,
            Err(e) => Err(e),
        };
        match answered {
            Ok(found) => result(&request.id, &found),
            Err(e) => e.into_response(Some(&request.id)),
        }
    }

    async fn result_of(
        &self,
        era: Era,
        request: &RpcRequest,
        client: HandlerClient,
    ) -> Result<Value, RpcError> {
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
            (_, "tools/call") => tools::call(self.0.clone(), &request.params, client).await?,
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
        Ok(found)
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
            return HttpAdmission::Answer(e.into_response(None));
        }
        if head.method == Method::OPTIONS {
            return HttpAdmission::Answer(preflight(&self.0.cors, &head.headers, "POST", TAKEN));
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
            let origin = head.headers.get(ORIGIN).cloned();
            let mut response = self.answer_to(head, body, client).await;
            let_read(&self.0.cors, origin.as_ref(), response.headers_mut());
            response
        })
    }

    fn refuse(&self, status: StatusCode, words: &str) -> Response<HandlerBody> {
        RpcError::new(status, INTERNAL_ERROR, words).into_response(None)
    }
}
