//! The promises of a catalog, whichever database it uses.

mod history;
mod listings;
mod metadata;
mod repositories;
mod schedule;

use weir_catalog::{Catalog, Listed, Listing, NewRepository, Taken, Which};
use weir_ground::Timestamp;

pub use history::*;
pub use listings::*;
pub use metadata::*;
pub use repositories::*;
pub use schedule::*;

const DUE: Which<'_> = Which { due_only: true, ids: None, free_only: false, ahead_only: false };

fn entry(name: &str, url: &str) -> NewRepository {
    NewRepository::new(name, url)
}

fn listed(id: u32, name: &str) -> (String, Listed) {
    let listed = Listed {
        forge_id: id.to_string(),
        full_name: name.to_owned(),
        clone_url: format!("https://h/{name}.git"),
        pushed_at: Some("1".into()),
        ..Listed::default()
    };
    (format!("h/{name}"), listed)
}

fn pass(c: &Catalog, page: &[(String, Listed)], now: Timestamp) -> (Listing, Taken) {
    let mut listing = c.listings().begin("f", "all", now).unwrap();
    let taken = c.listings().take_page(&mut listing, page, None, now).unwrap();
    (listing, taken)
}

fn row(id: &str, name: &str) -> (String, Listed) {
    let clone_url = format!("https://h/{name}.git");
    (
        format!("h/{name}"),
        Listed { forge_id: id.to_owned(), full_name: name.to_owned(), clone_url, ..Listed::default() },
    )
}
