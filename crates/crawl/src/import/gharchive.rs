//! Events of GH Archive: `repo` since 2015, `repository` before (the Timeline API).

use serde::Deserialize;
use weir_listed::Listed;

use super::row::{DumpRow, DumpRowError, clone_url_of, full_name_of};

/// The types of events that change refs.
const PUSHES: [&str; 3] = ["PushEvent", "CreateEvent", "DeleteEvent"];

#[derive(Deserialize)]
struct HourlyEvent {
    #[serde(rename = "type")]
    kind: Option<String>,
    created_at: Option<String>,
    repo: Option<EventRepo>,
    repository: Option<EventRepository>,
}

#[derive(Deserialize)]
struct EventRepo {
    id: Option<u64>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct EventRepository {
    id: Option<u64>,
    url: Option<String>,
    description: Option<String>,
    homepage: Option<String>,
    language: Option<String>,
    fork: Option<bool>,
    private: Option<bool>,
}

pub(super) fn row(line: &[u8]) -> Result<DumpRow, DumpRowError> {
    if line.is_empty() {
        return Ok(DumpRow::Nothing);
    }
    let event: HourlyEvent = serde_json::from_slice(line).map_err(|e| format!("no event: {e}"))?;
    if let Some(EventRepo { id: Some(id), name: Some(full_name) }) = event.repo {
        let is_name = full_name
            .split_once('/')
            .is_some_and(|(owner, name)| !owner.is_empty() && !name.is_empty() && !name.contains('/'));
        if !is_name {
            return Err(format!("'{full_name}' is no repository's name").into());
        }
        let clone_url = clone_url_of(&full_name);
        let is_push = event.kind.is_some_and(|kind| PUSHES.contains(&kind.as_str()));
        return Ok(DumpRow::Of(Box::new(Listed {
            forge_id: id.to_string(),
            full_name,
            clone_url,
            pushed_at: event.created_at.filter(|_| is_push),
            ..Listed::default()
        })));
    }
    let Some(EventRepository {
        id: Some(id),
        url: Some(url),
        description,
        homepage,
        language,
        fork,
        private,
    }) = event.repository
    else {
        return Ok(DumpRow::Nothing);
    };
    let full_name = full_name_of(&url).ok_or_else(|| format!("'{url}' is no repository's url"))?.to_owned();
    Ok(DumpRow::Of(Box::new(Listed {
        forge_id: id.to_string(),
        clone_url: clone_url_of(&full_name),
        full_name,
        description,
        homepage,
        language,
        fork,
        private,
        ..Listed::default()
    })))
}
