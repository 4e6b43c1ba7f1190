//! Deliveries of SourceForge, and of other sites of Apache Allura.
//!
//! <https://allura.readthedocs.io/en/latest/api/webhooks.html> and `allura/model/webhook.py`

use std::borrow::Cow;

use serde::Deserialize;

use crate::error::EventError;
use crate::webhooks::delivery::{Delivery, MovedRef, json, url_at};

/// Where SourceForge serves the repositories of its projects.
const SOURCEFORGE_GIT: &str = "https://git.code.sf.net";

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourceforgePayload<'b> {
    #[serde(borrow)]
    repository: SourceforgeRepository<'b>,
    #[serde(borrow, rename = "ref")]
    ref_name: Option<Cow<'b, str>>,
    #[serde(borrow)]
    before: Option<Cow<'b, str>>,
    #[serde(borrow)]
    after: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct SourceforgeRepository<'b> {
    #[serde(borrow)]
    full_name: Cow<'b, str>,
    #[serde(borrow)]
    url: Cow<'b, str>,
}

/// Reads a delivery. They have no ids.
pub(crate) fn read(body: &[u8]) -> Result<Delivery<'_>, EventError> {
    let SourceforgePayload { repository, ref_name, before, after } = json(body)?;
    let host = repository.url.split("://").nth(1).and_then(|rest| rest.split('/').next());
    let clone_url = match host {
        Some("sourceforge.net" | "www.sourceforge.net") => {
            // A repository of git is served without a suffix: https://git.code.sf.net/p/PROJECT/code
            url_at(SOURCEFORGE_GIT, &repository.full_name).trim_end_matches(".git").to_owned().into()
        }
        _ => repository.url,
    };
    let mut found = Delivery { clone_url: Some(clone_url), is_change: true, ..Delivery::of("push") };
    if let Some(name) = ref_name {
        let (old, new) = (before.unwrap_or_default(), after.unwrap_or_default());
        found.update = Some(MovedRef { name, old, new });
    }
    Ok(found)
}
