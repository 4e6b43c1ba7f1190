//! Rows of dumps, read without a catalog.

use std::cell::RefCell;
use std::io::{Cursor, Write};

use weir_crawl::{Dump, Import, Imported, ListingFilter, NoName};
use weir_ground::Timestamp;
use weir_listed::Listed;

/// Reads a dump without a catalog. Returns the result, the repositories, and the numbers of bad rows.
fn read(dump: Dump, text: &[u8], filter: &ListingFilter) -> (Imported, Vec<Listed>, Vec<u64>) {
    let (rows, bad) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let import = Import {
        dump,
        source: "d",
        forge: "github.com",
        filter,
        name_of: &|listed| {
            rows.borrow_mut().push(listed.clone());
            match listed.full_name.as_str() {
                "o/nameless" => Ok(None),
                "o/refused" => Err(NoName("no".to_owned())),
                name => Ok(Some(name.to_owned())),
            }
        },
        on_bad_row: &|line, _| bad.borrow_mut().push(line),
        now: &|| Timestamp(7),
    };
    let done = import.run(Box::new(Cursor::new(text.to_vec())), None, &mut |_| true).unwrap();
    (done, rows.into_inner(), bad.into_inner())
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn listed(id: &str, name: &str) -> Listed {
    Listed {
        forge_id: id.to_owned(),
        full_name: name.to_owned(),
        clone_url: format!("https://github.com/{name}.git"),
        ..Listed::default()
    }
}

#[test]
fn ghtorrent_rows_are_read_field_by_field() {
    let table = b"id,url,owner_id,name,description,language,created_at,forked_from,deleted,updated_at\n\
        1,\"https://api.github.com/repos/o/a\",5,\"a\",\"says \\\"hi\\\",\\\nand \\\\\",\"C\",\
        \"2012-01-02 03:04:05\",7,0,\"2015-01-01 00:00:00\"\r\n\
        \n\
        2,\"https://api.github.com/repos/o/b\",5,\"b\",\"\",\\N,\"0000-00-00 00:00:00\",-1,0\n\
        3,\"https://github.com/o/c\",5,\"c\",\\N,\\N,\"2012-01-02\",\\N,0\n\
        4,\"https://api.github.com/repos/o/d\",5,\"d\",\\N,\\N,\"2012-01-02 03:04:05\"\n\
        5,\"https://api.github.com/repos/o/gone\",5,\"e\",\\N,\\N,\\N,\\N,1\n\
        6,\"https://api.github.com/repos/o\",5\n\
        7,\"https://api.github.com/repos//f\",5\n\
        8,\"https://api.github.com/repos/o/\",5\n\
        9,\"https://api.github.com/repos/o/g/h\",5\n\
        10,\"https://api.github.com/repos/o/nameless\",5\n\
        11,\"https://api.github.com/repos/o/refused\",5";
    let (done, rows, bad) = read(Dump::GhTorrent, table, &ListingFilter::default());
    let a = Listed {
        description: text("says \"hi\",\nand \\"),
        language: text("C"),
        created_at: text("2012-01-02T03:04:05Z"),
        fork: Some(true),
        ..listed("", "o/a")
    };
    let d = Listed { created_at: text("2012-01-02T03:04:05Z"), ..listed("", "o/d") };
    let no_fork = |name| Listed { fork: Some(false), ..listed("", name) };
    let expected = [a, no_fork("o/b"), no_fork("o/c"), d, listed("", "o/nameless"), listed("", "o/refused")];
    assert_eq!(rows, expected);
    assert_eq!(bad, [9, 10, 11, 12, 14]);
    let expected =
        Imported { lines: 14, rows: 6, bad: 5, unwanted: 4, is_finished: true, ..Imported::default() };
    assert_eq!(done, expected);
    let filter = ListingFilter { skip_forks: true, stars_min: 1, ..ListingFilter::default() };
    let (done, rows, _) = read(Dump::GhTorrent, table, &filter);
    assert_eq!((rows.len(), done.unwanted, done.unknown, done.unknown_of), (0, 4, 5, Some("its stars")));
}

#[test]
fn gharchive_rows_are_read_field_by_field() {
    let hour = r#"{"type":"PushEvent","created_at":"2020","repo":{"id":1,"name":"o/a"}}
{"type":"CreateEvent","created_at":"2020","repo":{"id":2,"name":"o/b"}}
{"type":"WatchEvent","created_at":"2020","repo":{"id":3,"name":"o/c"}}

{"repository":{"id":4,"url":"https://github.com/o/d","description":"e",MORE}}
{"repo":{"id":5,"name":"/x"}}
{"repo":{"id":6,"name":"x/"}}
{"repo":{"id":7,"name":"x/y/z"}}
{"repo":{"id":8,"name":"x"}}
{"repository":{"id":9,"url":"https://github.com/x"}}
{"repository":{"id":10}}
{"repo":{"id":11}}
[]
"#;
    let hour = hour.replace("MORE", r#""homepage":"f","language":"C","fork":false,"private":true"#);
    let (done, rows, bad) = read(Dump::GhArchive, hour.as_bytes(), &ListingFilter::default());
    let pushed = |id, name| Listed { pushed_at: text("2020"), ..listed(id, name) };
    let d = Listed {
        description: text("e"),
        homepage: text("f"),
        language: text("C"),
        fork: Some(false),
        private: Some(true),
        ..listed("4", "o/d")
    };
    assert_eq!(rows, [pushed("1", "o/a"), pushed("2", "o/b"), listed("3", "o/c"), d]);
    assert_eq!(bad, [6, 7, 8, 9, 10, 13]);
    assert_eq!((done.lines, done.rows, done.unwanted, done.bad), (13, 4, 3, 6));
}

#[test]
fn objects_and_documents_are_read_field_by_field() {
    let owner = bson::rawdoc! { "id": 5i32, "login": "o", "type": "User",
    "deep": { "deeper": 1i32 } };
    let parent = bson::rawdoc! { "id": 6i64, "owner": owner.clone() };
    let a = bson::rawdoc! {
        "id": 1i64, "full_name": "o/a", "html_url": "x", "owner": owner.clone(), "parent": parent,
        "description": "says", "fork": true, "stargazers_count": 3.0, "forks_count": 3.5, "size": 9e15,
        "open_issues_count": 8_999_999_999_999_998.0, "topics": ["x"],
    };
    let member = bson::rawdoc! { "id": 7i32, "login": "m", "org": "o" };
    let documents: Vec<u8> = [a.as_bytes(), owner.as_bytes(), member.as_bytes()].concat();
    let (done, rows, bad) = read(Dump::Documents, &documents, &ListingFilter::default());
    let json = r#"{"id":1,"full_name":"o/a","html_url":"x","owner":{"id":5,"login":"o","type":"User"},MORE}
{"full_name":"/a","id":2,"html_url":"x"}
{"full_name":"a/","id":2,"html_url":"x"}
{"full_name":"a/b/c","id":2,"html_url":"x"}
{"full_name":"a","id":2,"html_url":"x"}
{"full_name":"a/b","html_url":"x","login":"o"}
{"id":5,"login":"o"}
{"id":7,"login":"m","org":"o"}"#;
    let more = r#""parent":{"id":6},"description":"says","fork":true,"stargazers_count":3,"#;
    let json = json.replace("MORE", &(more.to_owned() + r#""open_issues_count":8999999999999998"#));
    let (of_json, json_rows, json_bad) = read(Dump::Objects, json.as_bytes(), &ListingFilter::default());
    assert_eq!((&rows, rows.len(), bad.len()), (&json_rows, 1, 0));
    assert_eq!((rows[0].stars, rows[0].forks, rows[0].kibibytes), (Some(3), None, None));
    assert_eq!((rows[0].open_issues, rows[0].parent_id.as_deref()), (Some(8_999_999_999_999_998), Some("6")));
    assert_eq!((rows[0].clone_url.as_str(), &rows[0].topics), ("https://github.com/o/a.git", &None));
    assert_eq!(rows[0].owner.as_ref().map(|owner| owner.login.as_str()), Some("o"));
    let expected = Imported { lines: 3, rows: 1, accounts: 2, is_finished: true, ..Imported::default() };
    assert_eq!(done, expected);
    assert_eq!(json_bad, [2, 3, 4, 5, 6]);
    assert_eq!((of_json.rows, of_json.accounts, of_json.bad), (1, 2, 5));
}

#[test]
fn records_that_are_too_long_or_not_closed_are_passed_over() {
    let record = |id: u64, name: &str, text: &str| {
        format!("{id},\"https://api.github.com/repos/o/{name}\",5,\"n\",\"{text}\"\n")
    };
    let lines = |count: usize| "\n".repeat(count);
    let exact = |bytes: usize| {
        let empty = record(1, "exact", "").len() - 1;
        record(1, "exact", &"x".repeat(bytes - empty))
    };
    for (table, names, bad) in [
        (exact(1 << 20) + &record(2, "b", ""), vec!["o/exact", "o/b"], vec![]),
        (exact((1 << 20) + 1) + &record(2, "b", ""), vec!["o/b"], vec![1]),
        (record(1, "a", &lines(256)) + &record(2, "b", ""), vec!["o/a", "o/b"], vec![]),
        // The lines of one that is not closed are read again, each as a record of its own.
        (format!("1,\"open\n{}", record(2, "b", "")), vec!["o/b"], vec![1]),
    ] {
        let (done, rows, found) = read(Dump::GhTorrent, table.as_bytes(), &ListingFilter::default());
        let told: Vec<&str> = rows.iter().map(|row| row.full_name.as_str()).collect();
        assert_eq!((told, found), (names, bad));
        assert_eq!(done.lines, table.lines().count() as u64);
    }
    let table = record(1, "a", &lines(257)) + &record(2, "b", "");
    let (_, rows, bad) = read(Dump::GhTorrent, table.as_bytes(), &ListingFilter::default());
    assert!(bad.contains(&1) && !rows.iter().any(|row| row.full_name == "o/a"), "{bad:?}");
    // A line is read up to 32 MiB.
    let mut long = format!("{{\"repo\":{{\"id\":1,\"name\":\"o/a\"}},\"x\":\"{}", "x".repeat(32 << 20));
    long += "\"}\n{\"repo\":{\"id\":2,\"name\":\"o/b\"}}";
    let (_, rows, bad) = read(Dump::GhArchive, long.as_bytes(), &ListingFilter::default());
    assert_eq!((rows, bad), (vec![listed("2", "o/b")], vec![1]));
    let mut full = b"{\"repo\":{\"id\":1,\"name\":\"o/a\"}}".to_vec();
    full.resize((32 << 20) - 1, b' ');
    full.write_all(b"\n").unwrap();
    let (_, rows, bad) = read(Dump::GhArchive, &full, &ListingFilter::default());
    assert_eq!((rows, bad), (vec![listed("1", "o/a")], vec![]));
}
