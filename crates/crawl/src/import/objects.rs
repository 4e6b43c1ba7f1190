//! Repositories and accounts as GitHub's API gives them: one JSON object a line, or one BSON document after
//! the other, as mongodump writes GHTorrent's collections `repos`, `users` and `org_members`.

use bson::{RawBsonRef, RawDocument};
use serde_json::{Map, Value};
use weir_forge::{github_account, github_repository};

use super::row::{DumpRow, DumpRowError, clone_url_of};

/// Depth to which documents within documents are read: an owner, a parent and its owner.
const DEPTH_MAX: usize = 2;

pub(super) fn json_row(line: &[u8]) -> Result<DumpRow, DumpRowError> {
    if line.trim_ascii().is_empty() {
        return Ok(DumpRow::Nothing);
    }
    let object: Value = serde_json::from_slice(line).map_err(|e| format!("no object: {e}"))?;
    row(&object)
}

pub(super) fn bson_row(document: &[u8]) -> Result<DumpRow, DumpRowError> {
    let document = RawDocument::from_bytes(document).map_err(|e| format!("no document: {e}"))?;
    row(&value(document, DEPTH_MAX).map_err(|e| format!("a damaged document: {e}"))?)
}

fn row(object: &Value) -> Result<DumpRow, DumpRowError> {
    if object.get("full_name").is_none()
        && let Some(account) = github_account(object)
    {
        // In GHTorrent, a member of the organisation with that name.
        return Ok(match object["org"].as_str() {
            Some(organization) => DumpRow::Member(organization.to_owned(), account),
            None => DumpRow::Account(account),
        });
    }
    let mut listed = github_repository(object)
        .ok_or("no repository with id, full_name and clone_url or html_url, nor an account")?;
    if !listed
        .full_name
        .split_once('/')
        .is_some_and(|(owner, name)| !owner.is_empty() && !name.is_empty() && !name.contains('/'))
    {
        return Err(format!("'{}' is no repository's name", listed.full_name).into());
    }
    // The clone URL of a dump is not trusted: anyone may have written it.
    listed.clone_url = clone_url_of(&listed.full_name);
    Ok(DumpRow::Of(Box::new(listed)))
}

/// Returns the parts of a document that a repository needs: strings, numbers, booleans, and documents within
/// each other down to `depth`.
fn value(document: &RawDocument, depth: usize) -> Result<Value, bson::error::Error> {
    let mut object = Map::new();
    for element in document {
        let (name, element) = element?;
        let value = match element {
            RawBsonRef::String(text) => Value::from(text),
            RawBsonRef::Boolean(is) => Value::from(is),
            RawBsonRef::Int32(n) => Value::from(n),
            RawBsonRef::Int64(n) => Value::from(n),
            RawBsonRef::Double(n) if n.fract() == 0.0 && n.abs() < 9e15 => Value::from(n as i64),
            RawBsonRef::Document(inner) if depth > 0 => value(inner, depth - 1)?,
            _ => continue,
        };
        object.insert(name.as_str().to_owned(), value);
    }
    Ok(Value::Object(object))
}
