//! Listings of sourcehut.

use serde_json::{Value, json};
use weir_forge::{Error, Forge, Listed, Page, Sourcehut};
use weir_testing::RecordedServer;

use crate::{api, page, pages, text, user};

const QUERY: &str = "POST /query";

fn repository(name: &str) -> Value {
    json!({ "name": name, "description": "says", "visibility": "PUBLIC", "created": "2020-01-01T00:00:00Z",
        "updated": "2021-01-01T00:00:00Z", "HEAD": { "name": "refs/heads/trunk" },
        "owner": { "canonicalName": "~sir" } })
}

fn listed(url: &str, name: &str) -> Listed {
    Listed {
        forge_id: format!("~sir/{name}"),
        full_name: format!("~sir/{name}"),
        clone_url: format!("{url}/~sir/{name}"),
        owner: Some(user("~sir", "~sir")),
        description: text("says"),
        default_branch: text("trunk"),
        private: Some(false),
        created_at: text("2020-01-01T00:00:00Z"),
        updated_at: text("2021-01-01T00:00:00Z"),
        pushed_at: text("2021-01-01T00:00:00Z"),
        ..Listed::default()
    }
}

#[test]
fn sourcehut_listing_of_owners_goes_on_at_cursors() {
    let server = RecordedServer::start();
    let of = |cursor: Value, results: Vec<Value>| {
        let repositories = json!({ "cursor": cursor, "results": results });
        json!({ "data": { "user": { "repositories": repositories } } })
    };
    let mut private = repository("c");
    private["visibility"] = json!("PRIVATE");
    server.put_json(QUERY, of(json!("next"), vec![repository("a"), json!({ "name": "no owner" })]));
    server.put_json(QUERY, of(json!(null), vec![repository("b")]));
    server.put_json(QUERY, json!({ "data": { "user": null } }));
    server.put_json(QUERY, of(json!(null), vec![private]));
    let owners = ["~sir", "nobody", "late"].map(str::to_owned).to_vec();
    let mut forge = Sourcehut::new(&(server.url() + "/"), owners, api(&["t"]));
    let one = |name| listed(&server.url(), name);
    let c = Listed { private: Some(true), ..one("c") };
    let expected = [
        ("0:", page(vec![one("a")], Some("0:next"))),
        ("0:next", page(vec![one("b")], Some("1:"))),
        ("1:", page(Vec::new(), Some("2:"))),
        ("2:", page(vec![c], None)),
    ];
    assert_eq!(pages(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    let asked: Vec<Value> =
        server.asked().iter().map(|asked| serde_json::from_str(&asked.body).unwrap()).collect();
    let variables: Vec<&Value> = asked.iter().map(|question| &question["variables"]).collect();
    assert_eq!(
        variables,
        [
            &json!({ "name": "sir", "cursor": null }),
            &json!({ "name": "sir", "cursor": "next" }),
            &json!({ "name": "nobody", "cursor": null }),
            &json!({ "name": "late", "cursor": null }),
        ]
    );
    assert_eq!(forge.usage().requests, 4);
    assert_eq!(forge.page("3:").unwrap(), Page::default());
}

#[test]
fn sourcehut_listing_of_the_owner_of_the_token_and_its_failures() {
    let server = RecordedServer::start();
    let mut forge = Sourcehut::new(&server.url(), Vec::new(), api(&["t"]));
    let own = json!({ "cursor": null, "results": [repository("a")] });
    server.put_json(QUERY, json!({ "data": { "repositories": own } }));
    assert_eq!(pages(&mut forge), [("0:".to_owned(), page(vec![listed(&server.url(), "a")], None))]);
    let question: Value = serde_json::from_str(&server.asked()[0].body).unwrap();
    assert_eq!(question["variables"], json!({ "cursor": null }));
    server.forget(QUERY);
    server.put_json(QUERY, json!({ "data": null, "errors": [{ "message": "no" }] }));
    assert!(matches!(forge.page("0:"), Err(Error::Unexpected { detail, .. }) if detail == "no"));
    server.forget(QUERY);
    server.put_json(QUERY, json!({ "data": { "user": null } }));
    assert!(matches!(forge.page("0:"), Err(Error::Unexpected { .. })), "there is no user to be missing");
    let mut of_one = Sourcehut::new(&server.url(), vec!["x".to_owned()], api(&["t"]));
    for answer in [
        json!({ "data": { "user": null }, "errors": [{ "message": "later" }] }),
        json!({ "data": { "user": { "repositories": {} } } }),
    ] {
        server.forget(QUERY);
        server.put_json(QUERY, answer);
        assert!(matches!(of_one.page("0:"), Err(Error::Unexpected { .. })));
    }
}

#[test]
fn sourcehut_one_repository_is_there_gone_or_unknown() {
    let server = RecordedServer::start();
    let mut forge = Sourcehut::new(&server.url(), Vec::new(), api(&["t"]));
    let mut answer = |forge_id: &str, answer: Value| {
        server.forget(QUERY);
        server.put_json(QUERY, answer);
        forge.one(forge_id)
    };
    let there = json!({ "data": { "user": { "repository": repository("a") } } });
    assert_eq!(answer("~sir/a", there).unwrap(), Some(listed(&server.url(), "a")));
    let question: Value = serde_json::from_str(&server.asked()[0].body).unwrap();
    assert_eq!(question["variables"], json!({ "owner": "sir", "name": "a" }));
    for gone in [json!({ "data": { "user": null } }), json!({ "data": { "user": { "repository": null } } })] {
        assert_eq!(answer("~sir/a", gone).unwrap(), None);
    }
    for unknown in [
        json!({ "data": { "user": null }, "errors": [{ "message": "later" }] }),
        json!({ "data": null }),
        json!({ "data": { "user": { "repository": { "name": "a" } } } }),
    ] {
        assert!(matches!(answer("~sir/a", unknown), Err(Error::Unexpected { .. })));
    }
    assert!(matches!(answer("nameless", json!({})), Err(Error::Unexpected { .. })));
}
