//! Events of Gerrit's `stream-events`, a line of JSON each.
//!
//! <https://gerrit-review.googlesource.com/Documentation/cmd-stream-events.html>

use std::borrow::Cow;

use serde::Deserialize;

use crate::error::EventError;
use crate::webhooks::delivery::{Delivery, MovedRef, json, url_at};

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GerritEvent<'b> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'b, str>,
    #[serde(borrow, rename = "refUpdate")]
    ref_update: Option<GerritRefUpdate<'b>>,
    #[serde(borrow, rename = "refUpdates", default)]
    ref_updates: Vec<GerritRefUpdate<'b>>,
    #[serde(borrow)]
    change: Option<GerritChange<'b>>,
    #[serde(borrow, rename = "projectName")]
    project_name: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GerritRefUpdate<'b> {
    #[serde(borrow, rename = "oldRev")]
    old: Cow<'b, str>,
    #[serde(borrow, rename = "newRev")]
    new: Cow<'b, str>,
    #[serde(borrow, rename = "refName")]
    name: Cow<'b, str>,
    #[serde(borrow)]
    project: Cow<'b, str>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GerritChange<'b> {
    #[serde(borrow)]
    project: Cow<'b, str>,
}

/// The meaning of a line of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamLine {
    /// An event: the line to keep.
    Event(Vec<u8>),
    /// It changes no repository.
    Ignored,
    /// The server has dropped events, because they were not read in time.
    Lost,
}

/// Reads a line of Gerrit's `stream-events`. Repositories are at the URL `site`.
///
/// # Errors
/// If it is no event. The error says why.
pub fn gerrit_line(site: &str, line: &[u8]) -> Result<StreamLine, EventError> {
    let event: GerritEvent<'_> = json(line)?;
    let no_part = |part| EventError::NoPart { event: event.kind.to_string(), part };
    let (project, update) = match event.kind.as_ref() {
        "dropped-output" => return Ok(StreamLine::Lost),
        "ref-updated" => {
            let update = event.ref_update.ok_or_else(|| no_part("refUpdate"))?;
            (update.project.clone(), Some(update))
        }
        // All of them are of one project.
        "batch-ref-updated" => {
            let mut updates = event.ref_updates.into_iter();
            let update = updates.next().ok_or_else(|| no_part("refUpdates"))?;
            (update.project.clone(), Some(update))
        }
        "patchset-created" => (event.change.ok_or_else(|| no_part("change"))?.project, None),
        "project-created" | "project-head-updated" => {
            (event.project_name.ok_or_else(|| no_part("projectName"))?, None)
        }
        _ => return Ok(StreamLine::Ignored),
    };
    let delivery = Delivery {
        clone_url: Some(url_at(site, &project).into()),
        update: update.map(|update| MovedRef { name: update.name, old: update.old, new: update.new }),
        ..Delivery::of(event.kind)
    };
    delivery.line().map(StreamLine::Event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_projects() {
        let site = "https://review.example.org/";
        let line = |text: &str| gerrit_line(site, text.as_bytes());
        let event = |text: &str| match line(text) {
            Ok(StreamLine::Event(line)) => serde_json::from_slice::<serde_json::Value>(&line).unwrap(),
            other => panic!("{text}: {other:?}"),
        };
        let updated = event(
            r#"{"submitter":{"name":"A"},"refUpdate":{"oldRev":"0","newRev":"1","refName":"refs/heads/master",
            "project":"tools/gerrit"},"type":"ref-updated","eventCreatedOn":1}"#,
        );
        assert_eq!(updated["clone_url"], "https://review.example.org/tools/gerrit.git");
        assert_eq!(
            (&updated["event"], &updated["ref"]),
            (&"ref-updated".into(), &"refs/heads/master".into())
        );
        for text in [
            r#"{"type":"batch-ref-updated",
                "refUpdates":[{"oldRev":"0","newRev":"1","refName":"r","project":"p"}]}"#,
            r#"{"type":"patchset-created","change":{"project":"p","branch":"m"},"patchSet":{"number":1}}"#,
            r#"{"type":"project-created","projectName":"p","headName":"refs/heads/main"}"#,
            r#"{"type":"project-head-updated","projectName":"p","oldHead":"a","newHead":"b"}"#,
        ] {
            assert_eq!(event(text)["clone_url"], "https://review.example.org/p.git", "{text}");
        }
        let other = r#"{"type":"comment-added","change":{"project":"p"}}"#;
        assert_eq!(line(other).unwrap(), StreamLine::Ignored);
        assert_eq!(line(r#"{"type":"dropped-output"}"#).unwrap(), StreamLine::Lost);
        for text in
            ["", "x", "{}", r#"{"type":"ref-updated"}"#, r#"{"type":"batch-ref-updated","refUpdates":[]}"#]
        {
            assert!(line(text).is_err(), "{text}");
        }
    }
}
