//! The ways into a pool: doors for events, webhooks, sweeps that fetch lost deliveries, and health
//! checks; and the visits beside that.

mod door_client;
mod event_doors;
mod health;
mod mirroring;
mod plain_answer;
mod sweeps;
mod webhooks;

pub use door_client::tell_door;
pub use event_doors::{DoorAddresses, KeptSockets, OpenDoors, keep_doors, keep_webhooks, open_doors};
pub use health::HealthFront;
pub use mirroring::{CATALOG_RETRY, keep_mirroring};
pub use sweeps::keep_sweeping;
pub use webhooks::{IntakeSender, WebhookFront};
