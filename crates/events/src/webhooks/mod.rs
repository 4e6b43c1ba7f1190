//! Webhooks: requests by which forges tell of changes.
//!
//! A [`WebhookDoors`] checks the signature of a delivery, reads which repository it is about, and answers
//! once the event is on disk. It keeps a line of JSON of each delivery, not the body.

mod counts;
mod delivery;
mod doors;
mod forge;
mod forges;
mod seen;
mod signature;
mod signer;

pub use counts::{WebhookCounts, WebhookResult};
pub use doors::{WebhookAnswer, WebhookDoors, WebhookOptions};
pub use forge::WebhookForge;
pub use forges::gerrit::{StreamLine, gerrit_line};
pub use signer::WebhookSigner;
