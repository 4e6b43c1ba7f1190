//! The tools: requests of the API that read. Their arguments are those that the API's description names.

use std::sync::{Arc, LazyLock};

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
/// The argument with a path, and the one with a path that is not UTF-8.
const PATH: &str = "path";
const ENCODED_PATH: &str = "path_base64";

const PATCH: &str = "get_patch";
const BLAME: &str = "blame";
const QUERY: &str = "query";
const READ_FILE: &str = "read_file";
const READ_FILE_WORDS: &str = "Reads a file as it is stored, or the target of a symbolic link. Text comes as \
    text, anything else in base64, as a resource. An answer has at most 1 MiB: of a longer file, ask for \
    parts.";

/// A tool, and the path of its request.
struct Tool {
    name: &'static str,
    path: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool { name: "list_repositories", path: "/repositories" },
    Tool { name: "list_owners", path: "/owners" },
    Tool { name: "get_repository", path: "/repositories/{repository}" },
    Tool { name: "list_ref_states", path: "/repositories/{repository}/states" },
    Tool { name: "list_refs", path: "/repositories/{repository}/refs" },
    Tool { name: "list_commits", path: "/repositories/{repository}/commits" },
    Tool { name: "get_commit", path: "/repositories/{repository}/commits/{revision}" },
    Tool { name: "diff", path: "/repositories/{repository}/diff" },
    Tool { name: PATCH, path: "/repositories/{repository}/patch" },
    Tool { name: BLAME, path: "/repositories/{repository}/blame" },
    Tool { name: "list_files", path: "/repositories/{repository}/tree" },
    Tool { name: READ_FILE, path: "/repositories/{repository}/file" },
    Tool { name: "grep", path: "/repositories/{repository}/grep" },
    Tool { name: "list_tables", path: "/tables" },
    Tool { name: QUERY, path: "/query" },
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
        if self.name == READ_FILE {
            let words = "The bytes that are wanted, FIRST-LAST or FIRST-, from 0, LAST included; all, if it \
                is not there.";
            let schema = json!({ "type": "string", "pattern": "^[0-9]+-[0-9]*$", "description": words });
            properties.insert(BYTES_ARGUMENT.to_owned(), schema);
        }
        if properties.contains_key(PATH) {
            let words = "The path in base64, in place of 'path', if it is not UTF-8.";
            properties.insert(ENCODED_PATH.to_owned(), json!({ "type": "string", "description": words }));
            required.retain(|name| *name != PATH);
        }
        let text = |key: &str| operation[key].as_str().unwrap_or_default();
        let description = match self.name {
            READ_FILE => READ_FILE_WORDS.to_owned(),
            QUERY => format!("{} {}", text("summary"), text("description"))
                .replace("`listTables`", "`list_tables`"),
            _ => format!("{} {}", text("summary"), text("description")).trim().to_owned(),
        };
        json!({
            "name": self.name,
            "description": description,
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

/// Describes all tools, always in the same order. The descriptions are made once.
pub(crate) fn list() -> &'static Value {
    static DESCRIBED: LazyLock<Value> = LazyLock::new(|| {
        let openapi = serde_json::to_value(openapi()).unwrap_or_default();
        TOOLS.iter().map(|tool| tool.describe(&openapi)).collect()
    });
    &DESCRIBED
}

/// Calls the tool that `params` name.
///
/// # Errors
/// If there is no such tool, or its arguments are none.
pub(crate) async fn call(
    state: Arc<ApiState>,
    params: &Map<String, Value>,
    client: HandlerClient,
) -> Result<Value, RpcError> {
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
        Err(problem) => return Ok(failed(&problem.detail)),
    };
    let response = match (tool.route().answer)(state, request).await {
        Ok(response) => response,
        Err(problem) => return Ok(failed(&problem.detail)),
    };
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let status = response.status();
    let Some(body) = response.into_body().into_whole() else {
        return Ok(failed("only the API gives this answer"));
    };
    Ok(match status {
        StatusCode::RANGE_NOT_SATISFIABLE => failed("the file ends before these bytes"),
        _ if body.len() > CONTENT_BYTES_MAX => failed(&too_long(tool, body.len())),
        _ => content(&body, is_json, &arguments),
    })
}

/// Returns the request of the API that a call stands for.
fn request_of(
    tool: &Tool,
    arguments: &mut Map<String, Value>,
    client: HandlerClient,
) -> Result<ApiRequest, Problem> {
    let mut headers = HeaderMap::new();
    if tool.name == READ_FILE
        && let Some(bytes) = arguments.remove(BYTES_ARGUMENT)
    {
        let wrong = || Problem::bad_request(format!("'{BYTES_ARGUMENT}' must be like 0-65535, or 65536-"));
        let range = bytes.as_str().filter(|range| is_range(range)).ok_or_else(wrong)?;
        headers.insert(RANGE, HeaderValue::try_from(format!("bytes={range}")).map_err(|_| wrong())?);
    }
    let mut pairs = Vec::new();
    for (name, value) in arguments.iter() {
        let bytes = match value {
            Value::Null => continue,
            Value::String(text) if name == ENCODED_PATH => {
                let wrong = |_| Problem::bad_request(format!("'{ENCODED_PATH}' is not base64"));
                pairs.push((PATH.to_owned(), STANDARD.decode(text).map_err(wrong)?));
                continue;
            }
            Value::String(text) => text.clone().into_bytes(),
            // A whole number may be written as 5.0.
            Value::Number(number) => match number.as_f64().filter(|number| number.fract() == 0.0) {
                Some(whole) if !number.is_u64() => format!("{whole:.0}").into_bytes(),
                _ => number.to_string().into_bytes(),
            },
            Value::Bool(_) => value.to_string().into_bytes(),
            // A list of names, as the API takes it.
            Value::Array(list) if list.iter().all(Value::is_string) => {
                list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",").into_bytes()
            }
            _ => return Err(Problem::bad_request(format!("'{name}' is neither a text nor a number"))),
        };
        pairs.push((name.clone(), bytes));
    }
    if pairs.iter().filter(|(name, _)| name == PATH).count() > 1 {
        return Err(Problem::bad_request(format!("give either '{PATH}' or '{ENCODED_PATH}'")));
    }
    let mut parts = Vec::new();
    for part in tool.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        let at = pairs.iter().position(|(name, _)| name == part);
        let at = at.ok_or_else(|| Problem::bad_request(format!("the argument '{part}' is missing")))?;
        parts.push(pairs.remove(at).1);
    }
    let (path, parameters) = (tool.path, Parameters::of(pairs));
    Ok(ApiRequest { path, parts, parameters, headers, body: Bytes::new(), client })
}

/// Returns whether `text` is FIRST-LAST or FIRST-, in bytes.
fn is_range(text: &str) -> bool {
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok());
    let Some((first, last)) = text.split_once('-') else { return false };
    match (number(first).flatten(), number(last).flatten()) {
        (Some(first), Some(last)) => first <= last,
        (Some(_), None) => last.is_empty(),
        (None, _) => false,
    }
}

fn too_long(tool: &Tool, len: usize) -> String {
    let remedy = match tool.name {
        READ_FILE => "ask for a part of it with 'bytes'",
        PATCH => {
            "ask for one file with 'path' ('diff' lists them), or for less 'context'; the API gives all of it"
        }
        BLAME => "ask for fewer lines with 'first_line' and 'last_line'",
        QUERY => "select fewer columns, or ask for fewer rows with 'limit'",
        "get_repository" | "get_commit" => "the API gives all of it",
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
