//! Listings of Gerrit.

use serde_json::json;
use weir_forge::{Error, Forge, Gerrit, Listed, Page};
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::{api, pages, skipping, text};

fn first() -> Listed {
    Listed {
        forge_id: "plugins%2Fa".to_owned(),
        full_name: "plugins/a".to_owned(),
        clone_url: "https://site/plugins/a".to_owned(),
        description: text("An a"),
        archived: Some(false),
        ..Listed::default()
    }
}

#[test]
fn gerrit_listing_has_pages_and_hides_what_is_hidden() {
    let server = RecordedServer::start();
    let gerrit = |start: u64| format!("GET /g/projects/?d&n=500&S={start}");
    // The server's own prefix comes before the JSON.
    let first_page = json!({
        "plugins/a": { "id": "plugins%2Fa", "description": "An a", "state": "ACTIVE" },
        "secret": { "id": "secret", "state": "HIDDEN" },
        "z y": { "state": "READ_ONLY", "_more_projects": true },
    });
    let body = format!(")]}}'\n{first_page}");
    server.put(&gerrit(0), RecordedAnswer::new(200, body).header("Content-Type", "application/json"));
    server.put_json(&gerrit(3), json!({ "bare": { "id": "bare" } }));
    let mut forge = Gerrit::new(&(server.url() + "/g/"), "https://site/", api(&[]));
    let second = Listed {
        forge_id: "z%20y".to_owned(),
        full_name: "z y".to_owned(),
        clone_url: "https://site/z%20y".to_owned(),
        archived: Some(true),
        ..Listed::default()
    };
    let third = Listed {
        forge_id: "bare".to_owned(),
        full_name: "bare".to_owned(),
        clone_url: "https://site/bare".to_owned(),
        ..Listed::default()
    };
    let page = |repositories, next: Option<&str>| Page {
        repositories,
        next: next.map(str::to_owned),
        ..Page::default()
    };
    assert_eq!(
        pages(&mut forge),
        [("0".to_owned(), page(vec![first(), second], Some("3"))), ("3".to_owned(), page(vec![third], None))]
    );
    assert_eq!((forge.usage().requests, forge.is_one_list()), (2, false));
}

#[test]
fn gerrit_page_that_fails_is_skipped_and_one_that_is_forbidden_is_an_error() {
    let server = RecordedServer::start();
    let mut forge = Gerrit::new(&server.url(), "s", api(&[]));
    server.put("GET /projects/?d&n=500&S=7", RecordedAnswer::new(503, "busy"));
    let url = format!("{}/projects/?d&n=500&S=7", server.url());
    let expected = skipping("7", &format!("{url}: 503 Service Unavailable: busy"), Some("507"));
    assert_eq!(forge.page("7").unwrap(), expected);
    server.put("GET /projects/?d&n=500&S=8", RecordedAnswer::new(403, "no"));
    assert!(matches!(forge.page("8"), Err(Error::Forbidden { status: 403, .. })));
    server.put_json("GET /projects/?d&n=500&S=9", json!([]));
    assert!(matches!(forge.page("9"), Err(Error::Unexpected { .. })));
    server.put_json("GET /projects/?d&n=500&S=10", json!({}));
    assert_eq!(forge.page("10").unwrap(), Page::default());
}

#[test]
fn gerrit_one_project_is_there_gone_or_hidden() {
    let server = RecordedServer::start();
    let mut forge = Gerrit::new(&server.url(), "https://site", api(&[]));
    let project = json!({ "id": "plugins%2Fa", "name": "plugins/a", "description": "An a",
        "state": "ACTIVE" });
    server.put_json("GET /projects/plugins%2Fa", project);
    server.put_json("GET /projects/hidden", json!({ "id": "hidden", "name": "hidden", "state": "HIDDEN" }));
    server.put_json("GET /projects/odd", json!({ "id": "odd" }));
    assert_eq!(forge.one("plugins%2Fa").unwrap(), Some(first()));
    assert_eq!((forge.one("hidden").unwrap(), forge.one("gone").unwrap()), (None, None));
    assert!(matches!(forge.one("odd"), Err(Error::Unexpected { .. })));
}
