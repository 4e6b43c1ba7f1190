//! The tools: requests of the API that read. Their arguments are those that the API's description names.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RANGE};
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};
use weir_serve::HandlerClient;

use crate::mcp::message::{INVALID_PARAMS, RpcError};
use crate::openapi::openapi;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::request::ApiRequest;
use crate::routes::{ApiRoute, PREFIX, ROUTES};
use crate::state::ApiState;

/// The longest content of a tool's result, in bytes.
const CONTENT_BYTES_MAX: usize = 1 << 20;
/// The argument that asks for a part of a file.
const BYTES_ARGUMENT: &str = "bytes";

/// A tool, and the path of its request.
struct Tool {
    name: &'static str,
    path: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool { name: "list_repositories", path: "/repositories" },
    Tool { name: "get_repository", path: "/repositories/{repository}" },
    Tool { name: "list_ref_states", path: "/repositories/{repository}/states" },
    Tool { name: "list_refs", path: "/repositories/{repository}/refs" },
    Tool { name: "list_commits", path: "/repositories/{repository}/commits" },
    Tool { name: "get_commit", path: "/repositories/{repository}/commits/{revision}" },
    Tool { name: "diff", path: "/repositories/{repository}/diff" },
    Tool { name: "list_files", path: "/repositories/{repository}/tree" },
    Tool { name: "read_file", path: "/repositories/{repository}/file" },
    Tool { name: "grep", path: "/repositories/{repository}/grep" },
];

impl Tool {
    fn route(&self) -> &'static ApiRoute {
        let is_it = |route: &&ApiRoute| route.method == Method::GET && route.path == self.path;
        ROUTES.iter().find(is_it).expect("each tool has an endpoint: a test looks")
    }

    /// Describes the tool, from the description of its endpoint.
    fn describe(&self, openapi: &Value) -> Value {
        let operation = &openapi["paths"][format!("{PREFIX}{}", self.path)]["get"];
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let Some(name) = parameter["name"].as_str() else { continue };
            let mut schema = parameter["schema"].clone();
            let said = parameter["description"].as_str().unwrap_or_default();
            // A name in a path is encoded; here it is as it is.
            schema["description"] = said.replace(", percent-encoded", "").into();
            properties.insert(name.to_owned(), schema);
            if parameter["required"].as_bool() == Some(true) {
                required.push(name);
            }
        }
        if self.name == "read_file" {
            let words = "The bytes that are wanted, FIRST-LAST; all, if it is not there.";
            let schema = json!({ "type": "string", "pattern": "^[0-9]+-[0-9]*$", "description": words });
            properties.insert(BYTES_ARGUMENT.to_owned(), schema);
        }
        let text = |key: &str| operation[key].as_str().unwrap_or_default();
        json!({
            "name": self.name,
            "description": format!("{} {}", text("summary"), text("description")).trim(),
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        })
    }
}

/// Describes all tools, always in the same order.
pub(crate) fn list() -> Value {
    let openapi = serde_json::to_value(openapi()).unwrap_or_default();
    TOOLS.iter().map(|tool| tool.describe(&openapi)).collect()
}

/// The result of a call.
pub(crate) enum Called {
    /// What the client's model is told.
    Result(Value),
    /// The client must authenticate first.
    Refused(Problem),
}

/// Calls the tool that `params` name.
///
/// # Errors
/// If there is no such tool, or its arguments are none.
pub(crate) async fn call(
    state: Arc<ApiState>,
    params: &Map<String, Value>,
    client: HandlerClient,
) -> Result<Called, RpcError> {
    let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
    let unknown = || RpcError::new(StatusCode::OK, INVALID_PARAMS, format!("there is no tool '{name}'"));
    let tool = TOOLS.iter().find(|tool| tool.name == name).ok_or_else(unknown)?;
    let mut arguments = match params.get("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        Some(_) => {
            return Err(RpcError::new(StatusCode::OK, INVALID_PARAMS, "'arguments' must be an object"));
        }
    };
    let request = match request_of(tool, &mut arguments, client) {
        Ok(request) => request,
        Err(problem) => return Ok(Called::Result(failed(&problem.detail))),
    };
    match (tool.route().answer)(state, request).await {
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED => Ok(Called::Refused(problem)),
        Err(problem) => Ok(Called::Result(failed(&problem.detail))),
        Ok(response) => {
            let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
            let status = response.status();
            let Some(body) = response.into_body().into_whole() else {
                return Ok(Called::Result(failed("the answer has no end that is known")));
            };
            Ok(Called::Result(match status {
                StatusCode::RANGE_NOT_SATISFIABLE => failed("the file is shorter"),
                _ if body.len() > CONTENT_BYTES_MAX => failed(&too_long(tool, body.len())),
                _ => content(&body, is_json, &arguments),
            }))
        }
    }
}

/// Returns the request of the API that a call stands for.
fn request_of(
    tool: &Tool,
    arguments: &mut Map<String, Value>,
    client: HandlerClient,
) -> Result<ApiRequest, Problem> {
    let mut headers = HeaderMap::new();
    if tool.name == "read_file"
        && let Some(bytes) = arguments.remove(BYTES_ARGUMENT)
    {
        let wrong = || Problem::bad_request(format!("'{BYTES_ARGUMENT}' must be like 0-65535"));
        let range = format!("bytes={}", bytes.as_str().ok_or_else(wrong)?);
        headers.insert(RANGE, HeaderValue::try_from(range).map_err(|_| wrong())?);
    }
    let mut pairs = Vec::new();
    for (name, value) in arguments.iter() {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            _ => return Err(Problem::bad_request(format!("'{name}' must be a text, a number or a truth"))),
        };
        pairs.push((name.clone(), text.into_bytes()));
    }
    let mut parts = Vec::new();
    for part in tool.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        let at = pairs.iter().position(|(name, _)| name == part);
        let at = at.ok_or_else(|| Problem::bad_request(format!("the argument '{part}' is missing")))?;
        parts.push(pairs.remove(at).1);
    }
    Ok(ApiRequest { parts, parameters: Parameters::of(pairs), headers, body: Bytes::new(), client })
}

fn too_long(tool: &Tool, len: usize) -> String {
    let remedy = match tool.name {
        "read_file" => "ask for a part of it with 'bytes'",
        _ => "ask for fewer entries with 'limit'",
    };
    format!("the answer has {len} bytes, more than the {CONTENT_BYTES_MAX} that a tool gives; {remedy}")
}

/// Returns the result with a body: a text, or else the bytes of a file.
fn content(body: &[u8], is_json: bool, arguments: &Map<String, Value>) -> Value {
    let content = match std::str::from_utf8(body) {
        Ok(text) if is_json || !text.contains('\0') => json!({ "type": "text", "text": text }),
        _ => {
            let path = arguments.get("path").and_then(Value::as_str).unwrap_or_default();
            json!({ "type": "resource", "resource": {
                "uri": format!("file:///{}", path.trim_start_matches('/')),
                "mimeType": "application/octet-stream",
                "blob": STANDARD.encode(body),
            } })
        }
    };
    json!({ "content": [content], "isError": false })
}

/// Returns the result of a call that failed: the model may mend it.
fn failed(words: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": words }], "isError": true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_described_as_their_endpoints() {
        let tools = list();
        assert_eq!(tools.as_array().unwrap().len(), TOOLS.len());
        for (described, tool) in tools.as_array().unwrap().iter().zip(TOOLS) {
            assert_eq!(tool.route().path, tool.path);
            assert!(described["description"].as_str().unwrap().len() > 10, "{described}");
            let schema = &described["inputSchema"];
            for part in tool.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
                assert!(schema["required"].as_array().unwrap().contains(&part.into()), "{described}");
            }
            let text = schema.to_string();
            assert!(!text.contains("$ref") && !text.contains("percent-encoded"), "{text}");
        }
    }
}
