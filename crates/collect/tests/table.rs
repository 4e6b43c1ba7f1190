//! Rows are in a table once, whatever fails in between; those that a database refuses are named, and the
//! others get in.

use std::sync::Arc;

use weir_collect::{
    ConnectPostgres, EventRow, EventTable, EventTableSpec, LineFormat, LineParser, TableDatabase, TableError,
};

fn parser() -> LineParser {
    let columns = ["host text not null", "load real", "n integer", "at timestamp", "up boolean", "more json"];
    let columns = columns.iter().map(|text| weir_collect::EventColumn::parse(text).unwrap()).collect();
    LineParser::new(LineFormat::Json, columns).unwrap()
}

fn rows<'l>(parser: &LineParser, from: i64, lines: &'l [&str]) -> Vec<EventRow<'l>> {
    let row = |(id, line): (i64, &&'l str)| EventRow {
        id,
        at_ms: 1_700_000_000_123,
        peer: "unix uid=0",
        cells: parser.parse(line.as_bytes()).unwrap(),
    };
    (from..).zip(lines).map(row).collect()
}

/// Appends to the table, and returns all of it as text, as `read` reads it.
fn fill(database: &TableDatabase, read: &mut dyn FnMut(&str) -> Vec<String>) {
    let parser = parser();
    let spec = |name: &str| EventTableSpec {
        name: name.to_owned(),
        database: database.clone(),
        columns: parser.columns().to_vec(),
        owner: "pool".to_owned(),
    };
    let mut table = EventTable::new(spec("readings")).unwrap();
    assert_eq!(table.position().unwrap(), 0);
    let first = [
        r#"{"host":"a\tb\\c\n","load":0.5,"n":-3,"at":"2026-11-28T10:00:00Z","up":true,"more":{"k":[1]}}"#,
        r#"{"host":"","load":1e-300}"#,
    ];
    table.append(&rows(&parser, 5, &first), Some(9)).unwrap();
    // The answer to an append may be lost: it comes again.
    table.append(&rows(&parser, 5, &first), Some(9)).unwrap();
    table.append(&[], Some(12)).unwrap();
    assert_eq!(table.position().unwrap(), 12);
    let mut other = EventTable::new(spec("readings")).unwrap();
    assert_eq!(other.position().unwrap(), 12);
    // A row that is there already is refused, and none of the others are appended.
    let more = [r#"{"host":"c"}"#, r#"{"host":"d"}"#];
    let mut wrong = rows(&parser, 20, &more);
    wrong[0].id = 6;
    match other.append(&wrong, Some(21)) {
        Err(TableError::Rows(refused)) => {
            assert_eq!(refused.len(), 1);
            assert!(refused[0].id == 6 && refused[0].why.to_lowercase().contains("unique"), "{refused:?}");
        }
        done => panic!("{done:?}"),
    }
    assert_eq!(other.position().unwrap(), 12);
    wrong.remove(0);
    other.append(&wrong, Some(21)).unwrap();
    // One that was refused comes later, without a position.
    other.append(&rows(&parser, 2, &[r#"{"host":"late"}"#]), None).unwrap();
    assert_eq!(other.position().unwrap(), 21);
    let found = read("SELECT event_id, host, load, n, up FROM readings ORDER BY event_id");
    let up = if found[1].ends_with("|1") { "1" } else { "true" };
    let first = format!("5|a\tb\\c\n|0.5|-3|{up}");
    assert_eq!(found, ["2|late|-|-|-", &first, "6||1e-300|-|-", "21|d|-|-|-"]);
    let times = read("SELECT received_at, at, more, peer FROM readings WHERE event_id = 5");
    assert!(times[0].starts_with("2023-11-14") && times[0].contains("2026-11-28"), "{times:?}");
    assert!(times[0].ends_with("unix uid=0"));
    // Another pool has other events with these numbers.
    let mut raced =
        EventTable::new(EventTableSpec { owner: "other".to_owned(), ..spec("readings") }).unwrap();
    let error = raced.append(&rows(&parser, 90, &more), Some(99)).unwrap_err().to_string();
    assert!(error.contains("it is filled by another pool"), "{error}");
    let foreign = EventTableSpec { owner: "other".to_owned(), ..spec("readings") };
    let error = EventTable::new(foreign).unwrap().position().unwrap_err().to_string();
    assert!(error.contains("it is filled by another pool"), "{error}");
    // Another table of that name.
    read("CREATE TABLE taken (id INTEGER)");
    let error = EventTable::new(spec("taken")).unwrap().position().unwrap_err().to_string();
    assert!(error.contains("the table 'taken' in ") && error.contains("event_id"), "{error}");
    assert!(EventTable::new(spec("a b")).is_err());
}

#[test]
fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.db");
    let reader = rusqlite::Connection::open(&path).unwrap();
    fill(&TableDatabase::Sqlite(path.clone()), &mut |sql| {
        let mut statement = reader.prepare(sql).unwrap();
        let count = statement.column_count();
        let text = |row: &rusqlite::Row<'_>, n| match row.get_ref_unwrap(n) {
            rusqlite::types::ValueRef::Null => "-".to_owned(),
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            rusqlite::types::ValueRef::Real(number) => format!("{number:?}"),
            other => other.as_str().unwrap().to_owned(),
        };
        let rows =
            statement.query_map([], |row| Ok((0..count).map(|n| text(row, n)).collect::<Vec<_>>().join("|")));
        rows.unwrap().map(Result::unwrap).collect()
    });
    let nowhere = EventTableSpec {
        name: "t".to_owned(),
        database: TableDatabase::Sqlite(folder.path().join("no/such/folder.db")),
        columns: parser().columns().to_vec(),
        owner: "pool".to_owned(),
    };
    assert!(matches!(EventTable::new(nowhere).unwrap().position(), Err(TableError::Database(_))));
}

#[test]
fn postgres() {
    let Some(server) = weir_testing::PostgresServer::start(&[]) else { return };
    let url = server.schema("collect");
    let open = url.clone();
    let connect: ConnectPostgres = Arc::new(move || weir_sql::connect_postgres(&open));
    let mut reader = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    fill(&TableDatabase::Postgres(connect), &mut |sql| {
        if sql.starts_with("CREATE") {
            reader.batch_execute(sql).unwrap();
            return Vec::new();
        }
        let columns = sql["SELECT ".len()..].split(" FROM ").next().unwrap().split(", ");
        let names: Vec<String> = columns.map(|name| format!("coalesce({name}::text, '-')")).collect();
        let sql = format!("SELECT concat_ws('|', {}) FROM ({sql}) AS found", names.join(", "));
        reader.query(&sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
    });
}
