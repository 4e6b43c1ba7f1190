//! Tests that run each call of the crate on SQLite and on a real PostgreSQL, and expect equal results.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use weir_ground::{Epoch, FailureClass, Seq, Timestamp};
use weir_sql::{
    Database, Error, TransactionError, TransactionKind, Type, Value, check_url, connect_postgres, quoted,
    redacted, schema_for_postgres, values,
};
use weir_testing::PostgresServer;

const SCHEMA: &str = "CREATE TABLE things (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    n     INTEGER,  -- a number
    x     REAL,
    name  TEXT,
    data  BLOB
) STRICT;";
const TYPES: [Type; 4] = [Type::Integer, Type::Real, Type::Text, Type::Blob];
const COLUMNS: [&str; 4] = ["n", "x", "name", "data"];
const ALL: &str = "SELECT n, x, name, data FROM things ORDER BY id";
const TABLE_LOCK: &str = "LOCK TABLE things IN EXCLUSIVE MODE";

/// Calls `test` with an SQLite database, and with one of PostgreSQL, where that is installed. Each has the
/// table `things`.
fn on_both(test: impl Fn(&Database, &dyn Fn() -> Database)) {
    let dir = weir_testing::folder();
    let path = dir.path().join("a b?#%.db");
    let open = || Database::open(&path).unwrap();
    let sqlite = open();
    sqlite.batch(SCHEMA).unwrap();
    assert!(!sqlite.is_postgres());
    test(&sqlite, &open);
    let Some(server) = PostgresServer::start(&["fsync=off", "deadlock_timeout=10ms"]) else { return };
    let url = server.schema("own");
    let connect = || Database::connect(&url).unwrap();
    let postgres = connect();
    postgres.batch(&schema_for_postgres(SCHEMA)).unwrap();
    assert!(postgres.is_postgres());
    test(&postgres, &connect);
}

fn rows_of(database: &Database, sql: &str, columns: usize) -> Vec<Vec<Value<'static>>> {
    database.query(sql, &[], |row| (0..columns).map(|n| row.value(n)).collect()).unwrap()
}

fn count(database: &Database) -> i64 {
    database.query_one("SELECT count(*) FROM things", &[], |row| row.get(0)).unwrap().unwrap()
}

/// Returns rows with values that are hard to send.
fn odd_rows() -> Vec<Vec<Value<'static>>> {
    vec![
        values![i64::MIN, -1.5, "tab\tline\nreturn\r\\N \\ 'quote' \"ü\"", &b"\0\\x\xff"[..]].to_vec(),
        values![0i64, 1e300, "", &b""[..]].to_vec(),
        vec![Value::Null; 4],
        values![i64::MAX, 0.1, "last", &b"a"[..]].to_vec(),
    ]
}

#[test]
fn values_come_back_as_they_were_written() {
    on_both(|database, _| {
        let insert = "INSERT INTO things (n, x, name, data) VALUES (?1, ?2, ?3, ?4)";
        for row in odd_rows() {
            assert_eq!(database.execute(insert, &row).unwrap(), 1);
        }
        assert_eq!(rows_of(database, ALL, 4), odd_rows());
        database.batch("DELETE FROM things").unwrap();
        let all = format!("INSERT INTO things ({}) SELECT * FROM rows", COLUMNS.join(", "));
        assert_eq!(database.execute_rows(&all, &TYPES, &odd_rows()).unwrap(), 4);
        assert_eq!(database.execute_rows(&all, &TYPES, &[]).unwrap(), 0);
        assert_eq!(rows_of(database, ALL, 4), odd_rows());
        database.batch("DELETE FROM things").unwrap();
        let columns = COLUMNS.map(str::to_owned);
        database
            .transaction(TransactionKind::Shared, |d| d.fill("things", &columns, &TYPES, &odd_rows()))
            .unwrap();
        assert_eq!(rows_of(database, ALL, 4), odd_rows());
        let mut streamed = Vec::new();
        let each = &mut |row: &weir_sql::Row<'_>| {
            streamed.push((0..4).map(|n| row.value(n)).collect::<Result<Vec<_>, _>>()?);
            Ok(())
        };
        database.stream(ALL, each).unwrap();
        assert_eq!(streamed, odd_rows());
        let stopped = database.stream(ALL, &mut |_| Err(Error::ReadOnly));
        assert!(matches!(stopped, Err(Error::ReadOnly)));
        // PostgreSQL has no NUL in text, SQLite may.
        database.execute("UPDATE things SET name = ?1", &values!["a\0b"]).unwrap();
        let name: String = database.query_one("SELECT name FROM things", &[], |r| r.get(0)).unwrap().unwrap();
        assert_eq!(name, if database.is_postgres() { "a\u{fffd}b" } else { "a\0b" });
    });
}

#[test]
fn values_are_read_as_each_type() {
    on_both(|database, _| {
        let insert = "INSERT INTO things (n, x, name, data) VALUES (?1, ?2, ?3, ?4)";
        let class = FailureClass::Local;
        let first = values![Timestamp(7), 5i64, class, &b""[..]];
        database.execute(insert, &first).unwrap();
        database.execute(insert, &values![true, None::<f64>, String::from("odd"), None::<&[u8]>]).unwrap();
        let sql = "SELECT n, x, name, data FROM things WHERE n = ?1";
        let read = database.query(sql, &values![Seq(7)], |row| {
            let class: Option<FailureClass> = row.get(2)?;
            let (time, epoch) = (row.get::<Timestamp>(0)?, row.get::<Option<Epoch>>(0)?);
            Ok((time, epoch, row.get::<i64>(0)?, row.get::<f64>(1)?, class, row.get::<Vec<u8>>(3)?))
        });
        let expected = (Timestamp(7), Some(Epoch(7)), 7, 5.0, Some(class), Vec::new());
        assert_eq!(read.unwrap(), [expected]);
        let read = database.query_one(sql, &values![Epoch(1)], |row| {
            let class: Option<FailureClass> = row.get(2)?;
            let (text, none) = (row.get::<Option<String>>(2)?, row.get::<Option<f64>>(1)?);
            Ok((row.get::<Option<i64>>(0)?, none, text, class, row.get::<Option<Vec<u8>>>(3)?))
        });
        let odd = Some("odd".to_owned());
        assert_eq!(read.unwrap(), Some((Some(1), None, odd, Some(FailureClass::Local), None)));
        assert_eq!(database.query_one(sql, &values![9usize], |row| row.get::<i64>(0)).unwrap(), None);
        assert_eq!(database.query(sql, &values![u64::MAX], |row| row.get::<i64>(0)).unwrap(), [0; 0]);
        assert_eq!(Value::from(u64::MAX), Value::Integer(i64::MAX));
        assert_eq!(Value::from(usize::MAX), Value::Integer(i64::MAX));
        assert_eq!(Value::from(&String::from("a")), Value::Text("a".into()));
        // A column that is NULL is no number.
        let wrong =
            database.query("SELECT data FROM things WHERE data IS NULL", &[], |row| row.get::<i64>(0));
        assert!(wrong.is_err());
        let truth = "SELECT n = 1, n IS NULL, ?1 = 1 FROM things ORDER BY id";
        if database.is_postgres() {
            let truth = "SELECT n = 1, n IS NULL, ?1::boolean, ?2::integer FROM things ORDER BY id";
            let read = |row: &weir_sql::Row<'_>| {
                let cells = (row.get::<bool>(0)?, row.get::<Option<bool>>(1)?, row.get::<bool>(2)?);
                Ok(cells)
            };
            let found = database.query(truth, &values![1i64, 5i64], read).unwrap();
            assert_eq!(found, [(false, Some(false), true), (true, Some(false), true)]);
            let found = database.query(truth, &values![0i64, 5i64], read).unwrap();
            assert_eq!(found[0], (false, Some(false), false));
            assert!(database.query(truth, &values![0i64, i64::MAX], read).is_err(), "it has 32 bits");
            assert!(database.query("SELECT ?1::text", &values![1i64], |_| Ok(())).is_err());
        } else {
            let found = database.query(truth, &values![true], |row| {
                Ok((row.get::<bool>(0)?, row.get::<Option<bool>>(1)?, row.get::<bool>(2)?))
            });
            assert_eq!(found.unwrap(), [(false, Some(false), true), (true, Some(false), true)]);
        }
    });
}

#[test]
fn statements_over_rows_change_and_return_rows() {
    on_both(|database, _| {
        let all = "INSERT INTO things (n, name) SELECT * FROM rows";
        let types = [Type::Integer, Type::Text];
        let rows: Vec<Vec<Value<'_>>> =
            [(1i64, "a"), (2, "b"), (3, "c")].map(|(n, name)| values![n, name].to_vec()).to_vec();
        assert_eq!(database.execute_rows(all, &types, &rows).unwrap(), 3);
        let update = "UPDATE things SET name = rows.p2 FROM rows WHERE n = rows.p1";
        let changed = [(2i64, "B"), (3, "C"), (4, "D")].map(|(n, name)| values![n, name].to_vec());
        assert_eq!(database.execute_rows(update, &types, &changed).unwrap(), 2);
        let returning = format!("{update} RETURNING n, name");
        let back = [(1i64, "x"), (4, "z"), (3, "y")].map(|(n, name)| values![n, name].to_vec());
        let read = |row: &weir_sql::Row<'_>| Ok((row.get::<i64>(0)?, row.get::<String>(1)?));
        let mut found = database.query_rows(&returning, &types, &back, read).unwrap();
        found.sort();
        assert_eq!(found, [(1, "x".to_owned()), (3, "y".to_owned())]);
        assert_eq!(database.query_rows(&returning, &types, &[], read).unwrap(), []);
        let among = |list: Value<'_>, column: &str| {
            let sql = format!("SELECT n FROM things WHERE {column} = ANY(?1) ORDER BY n");
            database.query(&sql, &[list], |row| row.get::<i64>(0)).unwrap()
        };
        assert_eq!(among(Value::Integers(vec![1, 3, 9]), "n"), [1, 3]);
        assert_eq!(among(Value::Texts(vec!["B", "y", "it's \"so\""]), "name"), [2, 3]);
        assert_eq!(among(Value::Integers(Vec::new()), "n"), [0; 0]);
        let most = "SELECT GREATEST(n, 2), LEAST(n, 2) FROM things WHERE n = 3 FOR UPDATE SKIP LOCKED";
        let read = |row: &weir_sql::Row<'_>| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?));
        assert_eq!(database.query(most, &[], read).unwrap(), [(3, 2)]);
        for wrong in ["SELEC", "INSERT INTO nothing VALUES (1)"] {
            assert!(database.batch(wrong).is_err() && database.execute(wrong, &[]).is_err());
            assert!(database.query(wrong, &[], |_| Ok(())).is_err());
            assert!(database.stream(wrong, &mut |_| Ok(())).is_err());
            assert!(database.execute_rows(wrong, &types, &rows).is_err());
        }
        let name = quoted("or\"der");
        database.batch(&format!("CREATE TABLE {name} (n INTEGER)")).unwrap();
        assert_eq!(database.execute(&format!("INSERT INTO {name} VALUES (1), (2)"), &[]).unwrap(), 2);
    });
}

fn conflict(code: &str) -> Error {
    Error::Postgres { message: String::new(), code: Some(code.to_owned()) }
}

fn insert(database: &Database) -> Result<(), Error> {
    database.execute("INSERT INTO things (n) VALUES (?1)", &values![1i64]).map(drop)
}

#[test]
fn transactions_are_done_as_a_whole_or_not_at_all() {
    on_both(|database, again| {
        for kind in [TransactionKind::Shared, TransactionKind::Alone(TABLE_LOCK)] {
            database.batch("DELETE FROM things").unwrap();
            assert_eq!(database.transaction(kind, |d| insert(d).map(|()| 7)).unwrap(), 7);
            assert_eq!(count(&again()), 1);
            let tries = Cell::new(0);
            let failed = database.transaction(kind, |d| {
                tries.set(tries.get() + 1);
                insert(d)?;
                Err::<(), _>(Error::ReadOnly)
            });
            assert!(matches!(failed, Err(Error::ReadOnly)) && tries.get() == 1);
            assert_eq!((count(database), count(&again())), (1, 1));
            // A conflict lets it try again, but not for ever.
            tries.set(0);
            let done = database.transaction(kind, |d| {
                insert(d)?;
                tries.set(tries.get() + 1);
                if tries.get() < 4 { Err(conflict("40001")) } else { Ok(tries.get()) }
            });
            assert_eq!((done.unwrap(), count(&again())), (4, 2));
            database.durably(kind, insert).unwrap();
            assert!(matches!(
                database.durably(kind, |_| Err::<(), _>(Error::ReadOnly)),
                Err(Error::ReadOnly)
            ));
            assert_eq!(count(&again()), 3);
        }
        let levels = || rows_of(database, "PRAGMA synchronous", 1);
        if !database.is_postgres() {
            let tries = Cell::new(0);
            let failed = database.transaction(TransactionKind::Shared, |_| {
                tries.set(tries.get() + 1);
                Err::<(), _>(conflict("40001"))
            });
            assert!(failed.is_err_and(|e| e.is_conflict()) && tries.get() == 11);
            assert_eq!(levels(), [[Value::Integer(1)]]);
            let during = database.durably(TransactionKind::Shared, |_| Ok::<_, Error>(levels())).unwrap();
            assert_eq!(during, [[Value::Integer(2)]]);
            assert_eq!(levels(), [[Value::Integer(1)]]);
        }
        assert!(conflict("40P01").is_conflict() && !conflict("42P01").is_conflict());
        assert!(!Error::ReadOnly.is_conflict());
    });
}

#[test]
fn transactions_that_are_to_be_alone_wait_for_each_other() {
    on_both(|database, again| {
        // One that may not begin leaves nothing open.
        let wrong = TransactionKind::Alone("LOCK TABLE nothing");
        let begun = database.transaction(wrong, |_| Ok::<_, Error>(()));
        assert_eq!(begun.is_err(), database.is_postgres());
        let (tell, told) = channel();
        thread::scope(|scope| {
            database
                .transaction(TransactionKind::Alone(TABLE_LOCK), |d| {
                    insert(d)?;
                    let (tell, other) = (tell.clone(), again());
                    scope.spawn(move || {
                        other
                            .transaction(TransactionKind::Alone(TABLE_LOCK), |d| {
                                tell.send(count(d)).unwrap();
                                Ok::<_, Error>(())
                            })
                            .unwrap();
                    });
                    thread::sleep(Duration::from_millis(200));
                    assert!(told.try_recv().is_err(), "it waits");
                    Ok::<_, Error>(())
                })
                .unwrap();
            assert_eq!(told.recv().unwrap(), 1);
            database.wait_for_others("SELECT pg_advisory_lock(1)").unwrap();
            let wrong = database.wait_for_others("SELECT no_such_function()");
            assert_eq!(wrong.is_err(), database.is_postgres());
        });
    });
}

#[test]
fn locks_are_held_by_one_connection() {
    on_both(|database, again| {
        let other = again();
        assert!(database.try_lock("a kind", "a/name").unwrap());
        assert!(!database.try_lock("a kind", "a/name").unwrap(), "it has it already");
        assert!(!other.try_lock("a kind", "a/name").unwrap());
        assert!(
            other.try_lock("a kind", "a%2Fname").unwrap() && other.try_lock("another", "a/name").unwrap()
        );
        other.unlock("a kind", "a/name").unwrap();
        assert!(!other.try_lock("a kind", "a/name").unwrap(), "only its owner releases it");
        database.unlock("a kind", "a/name").unwrap();
        assert!(other.try_lock("a kind", "a/name").unwrap());
        assert!(!database.try_lock("a kind", "a/name").unwrap());
        drop(other);
        weir_testing::wait_until(
            || "it is held".to_owned(),
            || database.try_lock("a kind", "a/name").unwrap(),
        );
    });
}

#[test]
fn sqlite_is_private_and_waits_for_others() {
    let dir = weir_testing::folder();
    let path = dir.path().join("x.db");
    let database = Database::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let pragma = |name: &str| rows_of(&database, &format!("PRAGMA {name}"), 1).remove(0).remove(0);
    assert_eq!(pragma("journal_mode"), Value::Text("wal".into()));
    assert_eq!(pragma("busy_timeout"), Value::Integer(30_000));
    assert_eq!(pragma("cache_size"), Value::Integer(-65_536));
    assert_eq!(pragma("wal_autocheckpoint"), Value::Integer(16_384));
    assert!(database.try_lock("kind", "A-z 9").unwrap());
    assert!(dir.path().join("x.db.kind%20A-z%209.lock").exists());
    assert!(Database::open(&dir.path().join("no/x.db")).is_err());
}

/// Runs a test of this file again as a user who may write nothing.
fn run_as_nobody(name: &str, at: &Path) {
    let mut program = weir_testing::short_command("setpriv");
    program.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    program.arg(at.parent().unwrap().join("program")).args(["--exact", name, "--nocapture"]);
    let said = program.env("WEIR_TEST_DATABASE", at).output().unwrap();
    let text = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    assert!(said.status.success(), "{text}");
}

#[test]
fn sqlite_is_read_by_who_may_not_write() {
    let insert = "INSERT INTO things (n) VALUES (5)";
    if let Some(path) = std::env::var_os("WEIR_TEST_DATABASE") {
        let database = Database::open(path.as_ref()).unwrap();
        assert_eq!(count(&database), 1);
        assert_eq!(rows_of(&database, "PRAGMA busy_timeout", 1), [[Value::Integer(30_000)]]);
        assert!(matches!(database.execute(insert, &[]), Err(Error::ReadOnly)));
        return;
    }
    if !is_root() {
        return weir_testing::skip("root", "only root can run a program as another user");
    }
    let dir = weir_testing::folder();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    weir_testing::copy_program(std::env::current_exe().unwrap(), &dir.path().join("program"));
    let path = dir.path().join("a b?mode=rw#%20.db");
    let database = Database::open(&path).unwrap();
    database.batch(SCHEMA).unwrap();
    database.execute(insert, &[]).unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mode = if path.ends_with("program") { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    // With the log of a writer, which is not in the file yet, and without.
    run_as_nobody("sqlite_is_read_by_who_may_not_write", &path);
    drop(database);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    run_as_nobody("sqlite_is_read_by_who_may_not_write", &path);
}

fn is_root() -> bool {
    let said = Command::new("id").arg("-u").output().unwrap();
    said.stdout.trim_ascii() == b"0"
}

#[test]
fn postgres_is_connected_to_again_with_its_locks() {
    let Some(mut server) = PostgresServer::start(&["fsync=off"]) else { return };
    let url = server.schema("own");
    let database = Database::connect(&url).unwrap();
    database.batch(&schema_for_postgres(SCHEMA)).unwrap();
    let other = Database::connect(&url).unwrap();
    assert!(database.try_lock("kind", "kept").unwrap() && database.try_lock("kind", "lost").unwrap());
    let insert = "INSERT INTO things (n) VALUES (?1)";
    assert_eq!(database.execute(insert, &values![1i64]).unwrap(), 1);
    // One that is lost in a transaction stays lost until its end.
    let failed = database.transaction(TransactionKind::Shared, |d| {
        d.execute(insert, &values![2i64])?;
        server.crash();
        d.execute(insert, &values![3i64]).map(drop)
    });
    assert!(matches!(failed, Err(Error::Postgres { .. })));
    let taken = Database::connect(&url).unwrap();
    assert!(taken.try_lock("kind", "lost").unwrap());
    assert!(matches!(database.batch("SELECT 1"), Err(Error::LockLost(name)) if name == "lost"));
    database.batch("SELECT 1").unwrap();
    assert!(!taken.try_lock("kind", "kept").unwrap(), "it was taken again");
    assert!(!database.try_lock("kind", "lost").unwrap());
    database.unlock("kind", "lost").unwrap();
    assert!(!database.try_lock("kind", "lost").unwrap(), "it is another's");
    assert_eq!(count(&database), 1);
    assert_eq!(other.query("SELECT n FROM things", &[], |row| row.get::<i64>(0)).unwrap(), [1]);
    assert_eq!(other.execute(insert, &values![4i64]).unwrap(), 1);
    server.stop();
    assert!(matches!(database.batch("SELECT 1"), Err(Error::Unreachable { .. } | Error::Postgres { .. })));
    assert!(matches!(Database::connect(&url), Err(Error::Unreachable { .. })));
}

#[test]
fn postgres_is_trusted_as_its_url_says() {
    let Some(server) = PostgresServer::start_with_tls() else { return };
    let certificate = server.folder().join("server.crt");
    let readable = weir_testing::folder();
    let copy = readable.path().join("a b.crt");
    fs::copy(&certificate, &copy).unwrap();
    let copy = copy.to_str().unwrap().replace(' ', "%20");
    let url = |host: &str, more: &str| format!("postgres://weir@{host}:{}/postgres?{more}", server.port());
    let is_reached = |host: &str, more: &str| {
        let connected = connect_postgres(&url(host, more));
        assert!(matches!(connected, Ok(_) | Err(Error::Unreachable { .. })), "{more}");
        connected.is_ok_and(|mut client| client.batch_execute("SELECT 1").is_ok())
    };
    for (more, is_it) in [
        ("", true),
        ("sslmode=prefer", true),
        ("sslmode=require", true),
        ("sslmode=disable", false),
        ("sslmode=verify-full", false),
        ("sslmode=verify-ca", false),
        (&format!("sslmode=verify-full&sslrootcert={copy}"), true),
        (&format!("sslmode=require&sslrootcert={copy}"), true),
    ] {
        assert_eq!(is_reached("localhost", more), is_it, "{more}");
    }
    let by_number = format!("sslmode=verify-full&sslrootcert={copy}");
    assert!(!is_reached("127.0.0.1", &by_number), "it has another name");
    let empty = readable.path().join("empty");
    fs::write(&empty, "").unwrap();
    for file in [empty.to_str().unwrap(), "/nowhere"] {
        let more = format!("sslmode=verify-full&sslrootcert={file}");
        assert!(matches!(connect_postgres(&url("localhost", &more)), Err(Error::BadUrl { .. })), "{file}");
    }
    let passwords = readable.path().join("passwords");
    fs::write(&passwords, "localhost:*:*:weir:secret\n").unwrap();
    let with = |host: &str| format!("postgres://weir@{host}/db?passfile={}", passwords.display());
    check_url(&with("localhost")).unwrap();
    assert!(matches!(check_url(&with("elsewhere")), Err(Error::BadUrl { .. })));
    assert!(matches!(check_url("mysql://h"), Err(Error::BadUrl { .. })));
    assert_eq!(redacted("postgres://weir:a@h/db"), "postgres://weir@h/db");
}
