//! Programs that speak the Model Context Protocol read repositories, in either era of it.

use serde_json::{Value, json};

use crate::common::{Env, Http, OPEN_SESAME};

const MODERN: &str = "2026-07-28";

/// Sends a body with more header lines; returns the status and the body of the answer.
fn post(server: &Http, headers: &str, body: &str) -> (u16, Value) {
    let answer = server.ask(
        format!(
            "POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: \
            application/json, text/event-stream\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let value = if body.is_empty() { Value::Null } else { serde_json::from_str(body).expect(body) };
    (status, value)
}

/// Asks as a client of the newest revision does; returns the status and the answer.
fn ask_with(server: &Http, token: &str, method: &str, mut params: Value) -> (u16, Value) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().map_or(String::new(), |name| format!("Mcp-Name: {name}\r\n"));
    let headers = format!("MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n{name}{token}");
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    post(server, &headers, &body.to_string())
}

fn ask(server: &Http, method: &str, params: Value) -> Value {
    let (status, answer) = ask_with(server, "", method, params);
    assert_eq!((status, &answer["id"]), (200, &json!(7)), "{method}: {answer}");
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    answer["result"].clone()
}

/// Calls a tool; returns whether it failed, and its text.
fn call(server: &Http, name: &str, arguments: Value) -> (bool, String) {
    let result = ask(server, "tools/call", json!({ "name": name, "arguments": arguments }));
    let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    (result["isError"].as_bool().unwrap(), text)
}

fn called(server: &Http, name: &str, arguments: Value) -> String {
    let (is_error, text) = call(server, name, arguments);
    assert!(!is_error, "{name}: {text}");
    text
}

#[test]
fn tools_read_what_the_api_reads() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.mirror_new("some/up", &up);
    let server = Http::serve(&env, &[]);
    let discovered = ask(&server, "server/discover", json!({}));
    assert_eq!(discovered["supportedVersions"][0], MODERN);
    assert!(discovered["ttlMs"].as_u64().is_some() && discovered["cacheScope"] == "public", "{discovered}");
    assert_eq!(discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "weir");
    let listed = ask(&server, "tools/list", json!({}));
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"read_file") && names.contains(&"grep"), "{names:?}");
    let query = json!({ "sql": "SELECT count(*) AS n FROM revision", "repositories": ["some/up"] });
    let counted = env.git(&up, &["rev-list", "--all", "--count"]);
    let wanted = format!("{{\"columns\":[\"n\"],\"rows\":[[{counted}]],\"is_truncated\":false}}");
    assert_eq!(called(&server, "query", query), wanted);
    assert!(called(&server, "list_tables", json!({})).contains("\"file_change\""));
    let r = "some/up";
    let repositories: Value = serde_json::from_str(&called(&server, "list_repositories", json!({}))).unwrap();
    assert_eq!(repositories["items"][0]["name"], r);
    let head: Value =
        serde_json::from_str(&called(&server, "get_commit", json!({ "repository": r, "revision": "main" })))
            .unwrap();
    let tip = env.git(&up, &["rev-parse", "main"]);
    assert_eq!(head["oid"], tip);
    let files = env.git(&up, &["ls-tree", "-r", "--name-only", "main"]);
    let file = files.lines().find(|name| !name.contains('"')).unwrap();
    let text = called(&server, "read_file", json!({ "repository": r, "path": file }));
    assert_eq!(text.trim_end(), env.git(&up, &["show", &format!("main:{file}")]));
    let part = called(&server, "read_file", json!({ "repository": r, "path": file, "bytes": "0-1" }));
    assert_eq!(part, text[..2]);
    let patch = called(&server, "get_patch", json!({ "repository": r, "head": "main" }));
    assert!(patch.starts_with("diff --git "), "{patch}");
    let blame = called(&server, "blame", json!({ "repository": r, "path": file, "last_line": 1 }));
    let blame: Value = serde_json::from_str(&blame).unwrap();
    assert_eq!(blame["ranges"][0]["line"], 1);
    // The same with a state of the refs, which is off.
    let (is_error, words) = call(&server, "list_refs", json!({ "repository": format!("{r}@1") }));
    assert!(is_error && words.contains("older states are not served"), "{words}");
    for (tool, arguments, why) in [
        ("read_file", json!({ "repository": r, "path": "no such" }), "no such"),
        ("read_file", json!({ "repository": r }), "'path' is missing"),
        ("read_file", json!({ "repository": r, "path": file, "bytes": 7 }), "must be like 0-65535"),
        ("read_file", json!({ "repository": r, "path": file, "bytes": "5-2" }), "must be like 0-65535"),
        ("read_file", json!({ "repository": r, "path": file, "bytes": "-5" }), "must be like 0-65535"),
        ("read_file", json!({ "repository": r, "path": file, "bytes": "0-0,2-3" }), "must be like 0-65535"),
        ("read_file", json!({ "repository": r, "path": file, "bytes": "9999999-" }), "ends before"),
        ("read_file", json!({ "repository": r, "path_base64": "!" }), "is not base64"),
        ("read_file", json!({ "repository": r, "path": file, "path_base64": "YQ==" }), "either 'path' or"),
        ("get_repository", json!({ "repository": format!("{r}@1") }), "names an older state"),
        ("list_refs", json!({}), "'repository' is missing"),
        ("list_refs", json!({ "repository": "nothing" }), "no such repository"),
        ("list_refs", json!({ "repository": r, "more": 1 }), "no parameter 'more'"),
        ("list_refs", json!({ "repository": r, "limit": [1] }), "neither a text nor a number"),
        ("list_refs", json!({ "repository": r, "limit": 1.5 }), "must be a number"),
    ] {
        let (is_error, words) = call(&server, tool, arguments.clone());
        assert!(is_error && words.contains(why), "{tool} {arguments}: {words}");
    }
    called(&server, "list_refs", json!({ "repository": r, "limit": 5.0 }));
    // A path that is not UTF-8 is found in base64.
    let listed = called(&server, "list_files", json!({ "repository": r, "recursive": true, "limit": 1000 }));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    for encoded in listed["items"].as_array().unwrap().iter().filter_map(|file| file["path_base64"].as_str())
    {
        called(&server, "read_file", json!({ "repository": r, "path_base64": encoded }));
    }
    let (status, unknown) = ask_with(&server, "", "tools/call", json!({ "name": "rm" }));
    assert_eq!((status, &unknown["error"]["code"]), (200, &json!(-32602)), "{unknown}");
}

#[test]
fn clients_of_earlier_revisions_shake_hands_first() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.mirror_new("up", &up);
    let server = Http::serve(&env, &[]);
    for (asked, got) in [("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")] {
        let params = json!({ "protocolVersion": asked, "capabilities": {},
            "clientInfo": { "name": "t", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params });
        let (status, answer) = post(&server, "", &body.to_string());
        assert_eq!((status, &answer["result"]["protocolVersion"]), (200, &json!(got)), "{answer}");
    }
    let version = "MCP-Protocol-Version: 2025-06-18\r\n";
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(post(&server, version, notification), (202, Value::Null));
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "list_refs", "arguments": { "repository": "up" } } });
    let (status, answer) = post(&server, version, &call.to_string());
    assert_eq!((status, &answer["result"]["isError"]), (200, &json!(false)), "{answer}");
    assert!(answer["result"].get("resultType").is_none(), "{answer}");
    let (status, answer) = post(&server, version, r#"{"jsonrpc":"2.0","id":3,"method":"resources/list"}"#);
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32601)));
    assert_eq!(post(&server, version, r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#).1["result"], json!({}));
}

#[test]
fn wrong_messages_and_strangers_are_refused() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.mirror_new("open", &up);
    env.mirror_new("hidden", &up);
    env.configure(
        "access",
        &format!(
            "tokens = [{{ name = 'ci', sha256 = '{OPEN_SESAME}' }}]\nrules = [{{ repositories = ['hidden'], \
            tokens = ['ci'] }}]"
        ),
    );
    env.configure("serve", "cors = ['https://dash.example']");
    let server = Http::serve(&env, &[]);
    for (headers, body, status, code) in [
        ("", "{", 400, -32700),
        ("", "[]", 400, -32600),
        ("", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 400, -32600),
        (
            "MCP-Protocol-Version: 1900-01-01\r\n",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            400,
            -32022,
        ),
        (
            "MCP-Protocol-Version: 2026-07-28\r\n",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            400,
            -32602,
        ),
        ("Origin: https://evil.example\r\n", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, 403, -32600),
    ] {
        let (got, answer) = post(&server, headers, body);
        assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{headers}{body}: {answer}");
        // An answer to something that is no request has no id.
        assert!(code == -32022 || code == -32602 || answer.get("id").is_none(), "{answer}");
    }
    assert_eq!(ask_with(&server, "", "resources/list", json!({})).0, 404);
    let preflight = server.ask(
        b"OPTIONS /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: https://dash.example\r\n\r\n",
    );
    let preflight = preflight.to_lowercase();
    assert!(
        preflight.starts_with("http/1.1 204") && preflight.contains("allow-headers: authorization, content"),
        "{preflight}"
    );
    let get = server.ask(b"GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(get.starts_with("HTTP/1.1 405") && get.contains("allow: POST"), "{get}");
    // Who may read what holds here, too.
    let listed = called(&server, "list_repositories", json!({}));
    assert!(listed.contains("open") && !listed.contains("hidden"), "{listed}");
    let read = json!({ "name": "list_refs", "arguments": { "repository": "hidden" } });
    // As a repository that is not there: the words are for the model.
    let (status, answer) = ask_with(&server, "", "tools/call", read.clone());
    let words = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(status == 200 && words.contains("token"), "{answer}");
    let token = "Authorization: Bearer open sesame\r\n";
    let (status, answer) = ask_with(&server, token, "tools/call", read.clone());
    assert_eq!((status, &answer["result"]["isError"]), (200, &json!(false)), "{answer}");
    assert_eq!(ask_with(&server, "Authorization: Bearer wrong\r\n", "tools/call", read).0, 401);
}
