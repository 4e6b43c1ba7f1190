//! Listings of cgit, gitweb and manifests.

use std::io::Write;

use serde_json::json;
use weir_forge::{Error, Forge, Listed, Manifest, Page, WebIndex, WebIndexKind};
use weir_testing::{RecordedAnswer, RecordedServer};

use crate::{api, page, pages, text};

fn listed(path: &str) -> Listed {
    Listed {
        forge_id: path.to_owned(),
        full_name: path.trim_end_matches(".git").to_owned(),
        clone_url: format!("https://site/{path}"),
        ..Listed::default()
    }
}

/// Returns a page of cgit's index with these rows, and links to the pages at `offsets`.
fn index(rows: &str, offsets: &[u64]) -> RecordedAnswer {
    let links: String = offsets.iter().map(|n| format!("<a href='/cgit/?ofs={n}'>[page]</a>")).collect();
    let html = format!(
        "<html><table class='tabs'><tr><td><a href='/cgit/'>index</a></td></tr></table>
        <table summary='repository list' class='list nowrap'><tr class='nohover'><th>Name</th></tr>
        <tr><td colspan='5' class='reposection'><a href='/section/'>tools</a></td></tr>{rows}</table>
        <div class='pager'>{links}</div></html>"
    );
    RecordedAnswer::new(200, html).header("Content-Type", "text/html")
}

#[test]
fn cgit_listing_has_pages_descriptions_and_times() {
    let server = RecordedServer::start();
    let rows = "<tr><td class='sublevel-repo'><a title='a.git' href='/cgit/t/a.git/'>a.git</a></td>\
        <td><a href='/cgit/t/a.git/'>A &amp;\n B </a></td><td><a href='/cgit/t/'>owner</a></td>\
        <td><span class='age-weeks' title='2019-08-04 05:29:42 +0000'>4 weeks</span></td>\
        <td><a class='button' href='/cgit/t/a.git/log/'>log</a></td></tr>\
        <tr><td class='toplevel-repo'><a href=''>empty</a><a title='b' href='/cgit/b%20c/'>b c</a></td>\
        <td><span class='age-days' title='wrong'>Unnamed repository; edit this</span></td>\
        <td><span class='other' title='wrong'>x</span></td></tr>";
    server.put("GET /cgit/", index(rows, &[0, 100, 50]));
    let last = "<tr><td class='toplevel-repo'><a href='/cgit/d/'>d</a></td><td> </td></tr>\
        <tr><td class='odd'>e</td><td>not of d</td></tr>";
    server.put("GET /cgit/?ofs=50", index(last, &[0, 50]));
    let mut forge = WebIndex::new(WebIndexKind::Cgit, &(server.url() + "/cgit/"), "https://site/", api(&[]));
    let a = Listed {
        description: text("A & B"),
        pushed_at: text("2019-08-04 05:29:42 +0000"),
        ..listed("t/a.git")
    };
    let expected =
        [("0", page(vec![a.clone(), listed("b c")], Some("50"))), ("50", page(vec![listed("d")], None))];
    assert_eq!(pages(&mut forge), expected.map(|(at, page)| (at.to_owned(), page)));
    assert!(forge.is_one_list());
    assert_eq!((forge.one("t/a.git").unwrap(), forge.one("gone").unwrap()), (Some(a), None));
    assert_eq!(forge.usage().requests, 4, "the whole listing is read once for all questions");
}

#[test]
fn cgit_page_that_is_no_index_or_empty() {
    let server = RecordedServer::start();
    let mut forge = WebIndex::new(WebIndexKind::Cgit, &server.url(), "https://site", api(&[]));
    // A link onward does not count on a page that lists nothing.
    server.put("GET /", index("", &[50]));
    assert_eq!(forge.page("0").unwrap(), Page::default());
    for html in [
        "<html><table class='other'><tr><td>x</td></tr></table></html>",
        "<html><table class='list'><tr><td class='toplevel-repo'><a href='/x/'>x</a></td></tr></html>",
        "",
    ] {
        server.forget("GET /");
        server.put("GET /", RecordedAnswer::new(200, html));
        assert!(matches!(forge.page("0"), Err(Error::Unexpected { .. })), "{html}");
    }
}

#[test]
fn gitweb_listing_is_one_text() {
    let server = RecordedServer::start();
    let mut forge = WebIndex::new(WebIndexKind::Gitweb, &server.url(), "https://site", api(&[]));
    let line = "GET /?a=project_index";
    server.put(line, RecordedAnswer::new(200, "a/b.git The+Owner\nc+d%2fe.git\n\n.git x\n"));
    let expected = page(vec![listed("a/b.git"), listed("c d/e.git")], None);
    assert_eq!(pages(&mut forge), [("0".to_owned(), expected)]);
    assert_eq!(forge.one("a/b.git").unwrap(), Some(listed("a/b.git")));
    for none in ["", " \n", " <html>no</html>"] {
        server.forget(line);
        server.put(line, RecordedAnswer::new(200, none));
        assert!(matches!(forge.page("0"), Err(Error::Unexpected { .. })), "{none}");
    }
}

#[test]
fn manifest_listing_is_plain_or_compressed() {
    let server = RecordedServer::start();
    let text_of = json!({
        "/pub/a.git": { "description": "An a", "head": "ref: refs/heads/main", "fingerprint": "f1",
            "modified": 12, "owner": "o", "reference": null },
        "b": { "description": "", "head": "0123", "fingerprint": 7, "modified": 12 },
        "c": { "description": 5, "head": null, "fingerprint": "", "modified": "x" },
        "/.git": {},
    })
    .to_string();
    let a = Listed {
        description: text("An a"),
        default_branch: text("main"),
        pushed_at: text("f1"),
        ..listed("pub/a.git")
    };
    let b = Listed { pushed_at: text("12"), ..listed("b") };
    let expected = page(vec![a.clone(), b, listed("c")], None);
    let mut gz = Vec::new();
    let mut child = weir_testing::command("gzip")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text_of.as_bytes()).unwrap();
    gz.extend(child.wait_with_output().unwrap().stdout);
    for body in [text_of.into_bytes(), gz] {
        server.forget("GET /manifest.js");
        server.put("GET /manifest.js", RecordedAnswer::new(200, body));
        let url = server.url() + "/manifest.js";
        let mut forge = Manifest::new(&url, "https://site/", api(&[]));
        assert_eq!((forge.start(), forge.is_one_list()), ("", true));
        assert_eq!(forge.one("pub/a.git").unwrap(), Some(a.clone()));
        assert_eq!(forge.page("").unwrap(), expected);
        assert_eq!(forge.one("gone").unwrap(), None);
        assert_eq!(forge.usage().requests, 2);
    }
    for none in [&b"{}"[..], b"[]", b"\x1f\x8b\x08", b"<html>"] {
        server.forget("GET /manifest.js");
        server.put("GET /manifest.js", RecordedAnswer::new(200, none));
        let mut forge = Manifest::new(&(server.url() + "/manifest.js"), "s", api(&[]));
        assert!(matches!(forge.page(""), Err(Error::Unexpected { .. })), "{none:?}");
    }
}
