//! Deliveries of other programs: JSON that names a repository as a line may ([`Notice`]).

use std::borrow::Cow;

use http::HeaderMap;
use serde::Deserialize;

use crate::error::EventError;
use crate::notice::Notice;
use crate::webhooks::delivery::{Delivery, header, json};

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GenericPayload<'b> {
    /// The type of the event, as Standard Webhooks recommends.
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'b, str>>,
}

/// Reads a delivery.
pub(crate) fn read<'b>(headers: &'b HeaderMap, body: &'b [u8]) -> Result<Delivery<'b>, EventError> {
    let GenericPayload { kind } = json(body)?;
    let is_typed = kind.is_some();
    let mut found = Delivery::of(kind.unwrap_or(Cow::Borrowed("push")));
    found.delivery = header(headers, "webhook-id").map(Cow::Borrowed);
    match Notice::parse(body) {
        Ok(notice) => {
            found.clone_url = notice.names.into_iter().next();
            found.is_change = true;
        }
        // An event of another kind.
        Err(_) if is_typed => {}
        Err(why) => return Err(why),
    }
    Ok(found)
}
