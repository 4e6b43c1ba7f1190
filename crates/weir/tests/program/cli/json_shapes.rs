//! The book's page of JSON output matches what commands print.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::common::Env;

/// Returns the keys that each section of the page documents, with their types.
fn documented() -> BTreeMap<String, BTreeMap<String, String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/reference/json.md");
    let text = std::fs::read_to_string(page).unwrap();
    let section = |text: &str| {
        let (title, body) = text.split_once('\n').unwrap();
        let rows = body.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            Some((cells.next()?.trim_end_matches('`').to_owned(), cells.next()?.to_owned()))
        });
        (title.to_owned(), rows.collect())
    };
    text.split("\n## ").skip(1).map(section).collect()
}

/// Returns the documented name of the type of `value`.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Adds the keys of `object`. Below the keys of `parents` it adds the keys of the objects there.
fn add_keys(object: &Value, parents: &BTreeSet<&str>, found: &mut Vec<(String, &'static str)>) {
    for (key, value) in object.as_object().unwrap_or_else(|| panic!("{object} is no object")) {
        match value.as_object().filter(|_| parents.contains(key.as_str())) {
            Some(inner) => {
                found.extend(inner.iter().map(|(below, value)| (format!("{key}.{below}"), type_of(value))));
            }
            None => found.push((key.clone(), type_of(value))),
        }
    }
}

/// Commands on a pool with a mirrored repository, a fork of it and an upstream that is not there, in order.
const COMMANDS: &[&str] = &[
    "add --name a/up up.git",
    "add --name a/fork fork.git",
    "add --force --name a/gone nothing.git",
    "mirror",
    "mirror --all",
    "ls",
    "show a/up",
    "log a/up",
    "visits a/gone",
    "ls-tree a/up HEAD:",
    "errors",
    "status",
    "due",
    "du",
    "check --offline",
    "fsck",
    "compact",
    "set --priority 2 a/up",
    "set",
    "hint a/up",
    "pause a/fork",
    "resume a/fork",
    "share --reference a/up --dry-run a/fork",
    "share --reference a/up a/fork",
    "dissociate a/fork",
    "rename a/fork a/other",
    "restore a/up@2 --name copy",
    "export copy copy.bundle",
    "clone pool/store/a/up.tar clone",
    "purge --gone-for 1d --dry-run",
    "hooks ls",
    "hooks test h",
    "rm copy",
    "adopt --dry-run",
    "crawl",
    "import gharchive hour.json",
    "mine",
    "mine",
    "mine --forget a/up",
];
/// Keys that this pool never prints: those of pauses and failures, and those that only hooks read.
const UNSEEN: &[(&str, &str)] = &[
    ("weir mine", "error"),
    ("weir mirror", "archive"),
    ("weir mirror", "cause"),
    ("weir mirror", "damaged"),
    ("weir mirror", "exceeded"),
    ("weir mirror", "host"),
    ("weir mirror", "id"),
    ("weir mirror", "lfs"),
    ("weir mirror", "lost"),
    ("weir mirror", "recovered_from"),
    ("weir mirror", "refused"),
    ("weir mirror", "until"),
];

#[test]
fn the_page_of_json_output_has_every_key() {
    let env = Env::new();
    env.odd_repository("up.git");
    env.odd_repository("fork.git");
    std::fs::create_dir(env.path("forge")).unwrap();
    let event = r#"{"type":"PushEvent","repo":{"id":1,"name":"o/r"},"created_at":"2026-01-01T00:00:00Z"}"#;
    std::fs::write(env.path("hour.json"), event).unwrap();
    let config = env.pool().join("weir.toml");
    let forge = format!("\n[[forge]]\ntype = \"folder\"\nurl = \"{}\"\n", env.path("forge").display());
    let hook = "\n[[hooks.command]]\nname = \"h\"\ncommand = [\"true\"]\n";
    std::fs::write(&config, std::fs::read_to_string(&config).unwrap() + &forge + hook).unwrap();
    let documented = documented();
    let mut observed: BTreeMap<String, Vec<(String, &'static str)>> = BTreeMap::new();
    for command in COMMANDS {
        let output = env.weir_command(&["--json"]).args(command.split(' ')).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let values: Vec<Value> = serde_json::Deserializer::from_str(&text)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap_or_else(|e| panic!("{command}: {e}: {text}"));
        assert!(!values.is_empty(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        // With options, 'set' says only which.
        if command.starts_with("set ") {
            continue;
        }
        let name = format!("weir {}", command.split(' ').next().unwrap());
        let keys = documented.get(&name).unwrap_or_else(|| panic!("no section '{name}'"));
        let parents = keys.keys().filter_map(|key| Some(key.split_once('.')?.0)).collect();
        let found = observed.entry(name).or_default();
        for value in values {
            let objects = if let Value::Array(list) = value { list } else { vec![value] };
            objects.iter().for_each(|object| add_keys(object, &parents, found));
        }
    }
    let mut wrong = Vec::new();
    for (command, keys) in &documented {
        // They need a system that mounts, and senders: tests/program/workspace.rs and events.rs have them.
        if command.starts_with("weir workspace") || command == "weir events" {
            continue;
        }
        let Some(found) = observed.get(command) else {
            wrong.push(format!("{command}: the test does not run it"));
            continue;
        };
        let seen: BTreeSet<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        let is_unseen = |key: &str| UNSEEN.contains(&(command, key));
        let missing = keys.keys().filter(|key| !seen.contains(key.as_str()) && !is_unseen(key));
        wrong.extend(missing.map(|key| format!("{command}: '{key}' is not printed")));
        for (key, kind) in found {
            match keys.get(key) {
                None => wrong.push(format!("{command}: '{key}' is not documented")),
                Some(known) if known.contains(kind) => {}
                Some(known) => wrong.push(format!("{command}: '{key}' is a {kind}, documented as {known}")),
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
