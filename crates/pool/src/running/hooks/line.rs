//! An event as hooks get it.

use std::path::{Path, PathBuf};

use serde::Serialize;
use weir_catalog::LoggedEvent;

/// An event as a program reads it: with the place of the archive on this machine.
#[derive(Serialize)]
pub(super) struct HookLine<'e> {
    #[serde(flatten)]
    event: &'e LoggedEvent,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) archive: Option<PathBuf>,
}

impl<'e> HookLine<'e> {
    pub(super) fn of(event: &'e LoggedEvent, store: &Path) -> HookLine<'e> {
        HookLine { event, archive: event.path.as_ref().map(|path| store.join(path)) }
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("an event is JSON")
    }
}

/// Returns which event it is, in words.
pub(super) fn about(event: &LoggedEvent) -> String {
    let kind = event.event.kind.name();
    match &event.event.subject {
        Some(subject) => format!("'{kind}' of {}", subject.name),
        None => format!("'{kind}'"),
    }
}
