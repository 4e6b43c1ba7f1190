//! Deliveries of service hooks of Azure DevOps.
//!
//! <https://learn.microsoft.com/en-us/azure/devops/service-hooks/events#git.push>

use std::borrow::Cow;

use serde::Deserialize;

use crate::error::EventError;
use crate::webhooks::delivery::{Delivery, MovedRef, json};

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct AzurePayload<'b> {
    #[serde(borrow)]
    id: Option<Cow<'b, str>>,
    #[serde(borrow, rename = "eventType")]
    event: Cow<'b, str>,
    #[serde(borrow)]
    resource: Option<AzureResource<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct AzureResource<'b> {
    #[serde(borrow)]
    repository: Option<AzureRepository<'b>>,
    #[serde(borrow, default, rename = "refUpdates")]
    updates: Vec<AzureUpdate<'b>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct AzureRepository<'b> {
    #[serde(borrow, rename = "remoteUrl")]
    remote_url: Option<Cow<'b, str>>,
    #[serde(borrow, rename = "sshUrl")]
    ssh_url: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct AzureUpdate<'b> {
    #[serde(borrow)]
    name: Cow<'b, str>,
    #[serde(borrow, rename = "oldObjectId")]
    old: Cow<'b, str>,
    #[serde(borrow, rename = "newObjectId")]
    new: Cow<'b, str>,
}

/// Reads a delivery.
pub(crate) fn read(body: &[u8]) -> Result<Delivery<'_>, EventError> {
    let AzurePayload { id, event, resource } = json(body)?;
    let mut found = Delivery { delivery: id, ..Delivery::of(event) };
    found.is_change = found.event == "git.push"
        || found.event.starts_with("git.repo.")
        || found.event.starts_with("git.pullrequest.");
    if found.is_change && resource.as_ref().is_none_or(|resource| resource.repository.is_none()) {
        return Err(EventError::NoResource);
    }
    found.repository_changed = found.event.starts_with("git.repo.");
    found.repository_deleted = found.event == "git.repo.deleted";
    if let Some(AzureResource { repository, updates }) = resource {
        if let Some(AzureRepository { remote_url, ssh_url }) = repository {
            (found.clone_url, found.ssh_url) = (remote_url, ssh_url);
        }
        found.update = updates.into_iter().next().map(|u| MovedRef { name: u.name, old: u.old, new: u.new });
    }
    Ok(found)
}
