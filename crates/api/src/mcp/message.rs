//! Messages of JSON-RPC 2.0.

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};
use weir_serve::HandlerBody;

/// Codes of errors (JSON-RPC 2.0, 5.1; MCP, "Error Codes").
pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
pub(crate) const HEADER_MISMATCH: i64 = -32020;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// A message of a client.
#[derive(Debug, PartialEq)]
pub(crate) enum McpMessage {
    /// It wants an answer.
    Request(RpcRequest),
    /// It wants none.
    Notification,
}

/// A request.
#[derive(Debug, PartialEq)]
pub(crate) struct RpcRequest {
    /// A text or a number.
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Map<String, Value>,
}

/// Why a request has no result.
#[derive(Debug, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) status: StatusCode,
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(status: StatusCode, code: i64, message: impl Into<String>) -> RpcError {
        RpcError { status, code, message: message.into(), data: None }
    }

    pub(crate) fn bad(code: i64, message: impl Into<String>) -> RpcError {
        RpcError::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// Returns the answer to the request `id`; without it, to what is no request.
    pub(crate) fn into_response(self, id: Option<&Value>) -> Response<HandlerBody> {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = self.data {
            error["data"] = data;
        }
        let mut message = json!({ "jsonrpc": "2.0", "error": error });
        if let Some(id) = id {
            message["id"] = id.clone();
        }
        respond(self.status, &message)
    }
}

/// Reads the body of a request.
///
/// # Errors
/// If it is not one message.
pub(crate) fn parse(body: &[u8]) -> Result<McpMessage, RpcError> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|e| RpcError::bad(PARSE_ERROR, format!("the body is not JSON: {e}")))?;
    let invalid = |words: &str| RpcError::bad(INVALID_REQUEST, words);
    let Value::Object(mut message) = value else {
        return Err(invalid("the body must be one message; there are no batches"));
    };
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid("'jsonrpc' must be \"2.0\""));
    }
    let Some(Value::String(method)) = message.remove("method") else {
        return Err(invalid("'method' is missing: the server asks nothing, and takes no answers"));
    };
    let Some(id) = message.remove("id") else { return Ok(McpMessage::Notification) };
    if !(id.is_string() || id.is_i64() || id.is_u64()) {
        return Err(invalid("'id' must be a text or a whole number"));
    }
    let params = match message.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid("'params' must be an object")),
    };
    Ok(McpMessage::Request(RpcRequest { id, method, params }))
}

/// Returns the answer with a result.
pub(crate) fn result(id: &Value, result: &Value) -> Response<HandlerBody> {
    respond(StatusCode::OK, &json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn respond(status: StatusCode, message: &Value) -> Response<HandlerBody> {
    let mut response = Response::new(HandlerBody::from(message.to_string().into_bytes()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_checked() {
        let request = parse(br#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"b":1}}"#).unwrap();
        let McpMessage::Request(RpcRequest { id, method, params }) = request else { panic!("a request") };
        assert_eq!((id, method.as_str(), params["b"].as_i64()), (json!("a"), "ping", Some(1)));
        let notification = parse(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!(notification, Ok(McpMessage::Notification));
        for (wrong, code) in [
            (&b"{"[..], PARSE_ERROR),
            (b"\xff", PARSE_ERROR),
            (b"[]", INVALID_REQUEST),
            (b"{}", INVALID_REQUEST),
            (br#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, INVALID_REQUEST),
            (br#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, INVALID_REQUEST),
            (br#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, INVALID_REQUEST),
            (br#"{"jsonrpc":"2.0","id":1,"result":{}}"#, INVALID_REQUEST),
            (br#"{"jsonrpc":"2.0","id":1,"method":"x","params":[]}"#, INVALID_REQUEST),
        ] {
            assert_eq!(parse(wrong).unwrap_err().code, code, "{}", String::from_utf8_lossy(wrong));
        }
    }
}
