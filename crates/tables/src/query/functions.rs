//! Functions of queries. `regexp` is one that SQLite has no body for. The others take the place of SQLite's,
//! which compare each place of one argument with all of another, and cannot be stopped meanwhile.

use std::collections::HashSet;
use std::sync::Arc;

use memchr::memmem;
use regex::{Regex, RegexBuilder};
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, Result, ffi};

/// Bytes that a compiled pattern may have.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Adds the functions to `connection`.
pub(super) fn add(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("regexp", 2, flags, regexp)?;
    connection.create_scalar_function("instr", 2, flags, instr)?;
    connection.create_scalar_function("replace", 3, flags, replace)?;
    for (name, sides) in [("trim", (true, true)), ("ltrim", (true, false)), ("rtrim", (false, true))] {
        connection.create_scalar_function(name, 2, flags, move |call| trim(call, sides))?;
    }
    Ok(())
}

/// Returns an argument as SQLite's own functions read it: a number as the text that it is printed as.
fn bytes<'a>(call: &'a Context<'_>, number: usize) -> Option<std::borrow::Cow<'a, [u8]>> {
    match call.get_raw(number) {
        ValueRef::Null => None,
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.into()),
        ValueRef::Integer(n) => Some(n.to_string().into_bytes().into()),
        // As SQLite prints it, 2 is 2.0.
        ValueRef::Real(n) => Some(format!("{n:?}").into_bytes().into()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `text REGEXP pattern`, which SQLite calls with the pattern first.
fn regexp(call: &Context<'_>) -> Result<Option<bool>> {
    let (Some(pattern), Some(subject)) = (bytes(call, 0), bytes(call, 1)) else { return Ok(None) };
    let compile = || {
        let pattern = text(&pattern);
        RegexBuilder::new(&pattern).size_limit(PATTERN_BYTES_MAX).build()
    };
    // SQLite keeps what was compiled as long as the pattern is a constant of the statement.
    let regex: Arc<Regex> =
        call.get_or_create_aux(0, |_| compile().map_err(|e| Error::UserFunctionError(e.into())))?;
    Ok(Some(regex.is_match(&String::from_utf8_lossy(&subject))))
}

/// The place of the first occurrence, from 1: in bytes of two blobs, else in characters; or 0.
fn instr(call: &Context<'_>) -> Result<Option<i64>> {
    let (Some(whole), Some(part)) = (bytes(call, 0), bytes(call, 1)) else { return Ok(None) };
    let is_blob = |number| matches!(call.get_raw(number), ValueRef::Blob(_));
    let found = memmem::find(&whole, &part).map(|at| match is_blob(0) && is_blob(1) {
        true => at,
        false => String::from_utf8_lossy(&whole[..at]).chars().count(),
    });
    Ok(Some(found.map_or(0, |at| at as i64 + 1)))
}

fn replace(call: &Context<'_>) -> Result<Value> {
    let (Some(whole), Some(part), Some(by)) = (bytes(call, 0), bytes(call, 1), bytes(call, 2)) else {
        return Ok(Value::Null);
    };
    if part.is_empty() {
        return Ok(Value::Text(text(&whole)));
    }
    let mut replaced = Vec::with_capacity(whole.len());
    let mut from = 0;
    for at in memmem::find_iter(&whole, &part) {
        replaced.extend_from_slice(&whole[from..at]);
        replaced.extend_from_slice(&by);
        from = at + part.len();
        if replaced.len() > super::rules::TEXT_BYTES_MAX as usize {
            return Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_TOOBIG), None));
        }
    }
    replaced.extend_from_slice(&whole[from..]);
    Ok(Value::Text(text(&replaced)))
}

/// Removes the characters of the second argument from the sides of the first.
fn trim(call: &Context<'_>, (start, end): (bool, bool)) -> Result<Option<String>> {
    let (Some(whole), Some(removed)) = (bytes(call, 0), bytes(call, 1)) else { return Ok(None) };
    let (whole, removed) = (text(&whole), text(&removed));
    let removed: HashSet<char> = removed.chars().collect();
    let mut rest = whole.as_str();
    if start {
        rest = rest.trim_start_matches(|c| removed.contains(&c));
    }
    if end {
        rest = rest.trim_end_matches(|c| removed.contains(&c));
    }
    Ok(Some(rest.to_owned()))
}
