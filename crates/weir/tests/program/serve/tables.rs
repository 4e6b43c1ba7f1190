//! Tables of repositories over the API, and queries of them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{Env, Http, OPEN_SESAME};
use crate::serve::api_client::{get, problem, send};

/// Returns `text` as a value in a URL.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn query(sql: &str, repositories: &str) -> String {
    format!("/query?sql={}&repositories={}", encoded(sql), encoded(repositories))
}

/// Returns the rows of an answer of `sql`.
fn rows(server: &Http, sql: &str, repositories: &str) -> serde_json::Value {
    get(server, &query(sql, repositories))["rows"].clone()
}

#[test]
fn tables_come_in_every_format() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.mirror_new("some/up", &up);
    let server = Http::serve(&env, &[]);
    let listed = get(&server, "/tables");
    let revision = listed.as_array().unwrap().iter().find(|table| table["name"] == "revision").unwrap();
    assert_eq!(
        (&revision["description"], &revision["columns"][1]["type"]),
        (&json!("Commits."), &json!("id"))
    );
    let table = |rest: &str| send(&server, "GET", &format!("/repositories/some%2Fup/tables/{rest}"), "", "");
    let csv = table("revision?format=csv&columns=id");
    assert_eq!((csv.status, csv.header("content-type")), (200, Some("text/csv; charset=utf-8")));
    assert_eq!(csv.header("content-disposition"), Some("attachment; filename=\"up-revision.csv\""));
    let csv = String::from_utf8(csv.body).unwrap();
    let mut ids: Vec<&str> = csv.lines().collect();
    assert_eq!(ids.remove(0), "id");
    ids.sort_unstable();
    let listed = env.git(&up, &["rev-list", "--all"]);
    let mut expected: Vec<&str> = listed.lines().collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    let lines = String::from_utf8(table("revision?format=jsonl").body).unwrap();
    assert_eq!(lines.lines().count(), expected.len());
    assert_eq!(table("revision").json().as_array().unwrap().len(), expected.len());
    assert!(table("file_change?format=parquet").body.ends_with(b"PAR1"));
    let arrow = table("origin_visit?format=arrow");
    assert_eq!(arrow.header("content-type"), Some("application/vnd.apache.arrow.stream"));
    // The same again is kept, and a client that has it gets nothing.
    let again = table("revision?format=jsonl");
    assert_eq!(String::from_utf8(again.body.clone()).unwrap(), lines);
    let has_it = format!("If-None-Match: {}\r\n", again.header("etag").unwrap());
    let path = "/repositories/some%2Fup/tables/revision?format=jsonl";
    assert_eq!(send(&server, "GET", path, &has_it, "").status, 304);
    for (rest, status, words) in [
        ("nothing", 404, "there is no table 'nothing'"),
        (
            "revision?format=xml",
            400,
            "the parameter 'format' must be one of parquet, arrow, csv, json, jsonl",
        ),
        (
            "default_branch?columns=id",
            400,
            "the table default_branch has no column 'id'; it has origin, revision",
        ),
        ("revision?columns=", 400, "the table revision has no column ''"),
        ("revision?limit=1", 400, "there is no parameter 'limit' here"),
    ] {
        let (found, said) = problem(&server, &format!("/repositories/some%2Fup/tables/{rest}"));
        assert!(found == status && said.starts_with(words), "{rest}: {found} {said}");
    }
}

#[test]
fn queries_are_answered_as_git_would() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    for name in ["a", "b/c"] {
        env.mirror_new(name, &up);
    }
    let server = Http::serve(&env, &[]);
    let count = env.git(&up, &["rev-list", "--all", "--count"]).parse::<u64>().unwrap();
    let by_origin = "SELECT origin, count(*) FROM revision GROUP BY 1 ORDER BY 1";
    assert_eq!(rows(&server, by_origin, "b/c, a,a,"), json!([["a", count], ["b/c", count]]));
    let number = get(&server, "/repositories/b%2Fc")["id"].to_string();
    assert_eq!(rows(&server, by_origin, &number), json!([["b/c", count]]));
    let message =
        "SELECT message FROM revision WHERE id = x'ID'".replace("ID", &env.git(&up, &["rev-parse", "main"]));
    let expected = env.git(&up, &["log", "-1", "--format=%B", "main"]);
    let found = rows(&server, &message, "a")[0][0].as_str().unwrap().trim_end().to_owned();
    assert_eq!(found, expected.trim_end());
    let changed =
        "SELECT DISTINCT path FROM file_change JOIN revision r ON r.id = revision WHERE path REGEXP '^.'";
    assert!(!rows(&server, changed, "a").as_array().unwrap().is_empty());
    // Too many rows are told, or refused.
    let cut = get(&server, &format!("{}&limit=2", query("SELECT id FROM revision", "a")));
    assert_eq!((cut["rows"].as_array().unwrap().len(), &cut["is_truncated"]), (2, &json!(true)));
    let csv = format!("{}&format=csv", query("SELECT count(*) AS n FROM revision", "a"));
    assert_eq!(send(&server, "GET", &csv, "", "").body, format!("n\n{count}\n").into_bytes());
    for (path, status, words) in [
        (
            format!("{}&limit=2&format=csv", query("SELECT id FROM revision", "a")),
            422,
            "there are more than 2 rows",
        ),
        (query("DELETE FROM revision", "a"), 400, "a query only reads the tables"),
        (query("SELEC 1", "a"), 400, "near \"SELEC\": syntax error"),
        (query("SELECT 1", "a,nothing"), 404, "no such repository: nothing"),
        (query("SELECT 1", ","), 400, "the parameter 'repositories' is missing"),
        (query("SELECT 1", &"a,".repeat(51)), 400, "name at most 50 repositories"),
        ("/query?repositories=a".to_owned(), 400, "the parameter 'sql' is missing"),
        ("/query?sql=SELECT+1".to_owned(), 400, "the parameter 'repositories' is missing"),
    ] {
        let (found, said) = problem(&server, &path);
        assert!(found == status && said.starts_with(words), "{path}: {found} {said}");
    }
    assert_eq!(
        std::fs::read_dir(env.pool())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".query") })
            .count(),
        0,
        "the files of queries have no names"
    );
}

#[test]
fn tables_hold_what_the_refs_reach_now() {
    let env = Env::new();
    let up = env.odd_repository("up.git");
    env.configure("serve", "older_states = true");
    env.mirror_new("a", &up);
    let count = |server: &Http, name: &str| rows(server, "SELECT count(*) FROM revision", name)[0][0].clone();
    let all = env.git(&up, &["rev-list", "--all", "--count"]).parse::<u64>().unwrap();
    let server = Http::serve(&env, &[]);
    assert_eq!(count(&server, "a"), all);
    let older = format!("a@{}", get(&server, "/repositories/a")["seq"]);
    env.git(&up, &["update-ref", "-d", "refs/heads/odd-mode"]);
    env.weir(&["mirror", "a"]);
    assert_eq!(count(&server, "a"), all - 1, "of the new state");
    assert_eq!(count(&server, &older), all);
    let both = "SELECT origin, count(*) FROM revision GROUP BY 1 ORDER BY 1";
    assert_eq!(rows(&server, both, &format!("a,{older}")), json!([["a", all - 1], [older, all]]));
    let csv = send(&server, "GET", "/repositories/a/tables/revision?format=csv&columns=parent_count", "", "");
    assert_eq!(csv.body.iter().filter(|byte| **byte == b'\n').count() as u64, all);
    let gone = "SELECT name FROM ref_change WHERE target IS NULL";
    assert_eq!(rows(&server, gone, "a"), json!([["refs/heads/odd-mode"]]));
}

#[test]
fn queries_end_in_time_and_can_be_turned_off() {
    let env = Env::new();
    env.configure("serve", "sql_timeout = \"1s\"");
    env.mirror_new("a", &env.odd_repository("up.git"));
    let server = Http::serve(&env, &[]);
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";
    let began = Instant::now();
    let (status, words) = problem(&server, &query(endless, "a"));
    assert_eq!(status, 422, "{words}");
    assert_eq!(send(&server, "GET", &query(endless, "a"), "", "").json()["code"], "timed_out");
    assert!(words.starts_with("the query took longer than 1 s (serve.sql_timeout)"), "{words}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(rows(&server, "SELECT 1", "a"), json!([[1]]));
    drop(server);
    env.configure("serve", "sql = false");
    let server = Http::serve(&env, &[]);
    let (status, words) = problem(&server, &query("SELECT 1", "a"));
    assert_eq!((status, words.as_str()), (404, "queries are turned off here (serve.sql in weir.toml)"));
}

#[test]
fn queries_of_clients_that_hang_up_end() {
    let env = Env::new();
    env.configure("serve", "computed_max = 2\ncomputed_per_address_max = 2");
    env.mirror_new("a", &env.odd_repository("up.git"));
    let server = Http::serve(&env, &[]);
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";
    let mut client = std::net::TcpStream::connect(("127.0.0.1", server.0.port)).unwrap();
    let asked = format!("GET /api/v1{} HTTP/1.1\r\nHost: x\r\n\r\n", query(endless, "a"));
    std::io::Write::write_all(&mut client, asked.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    // A query has the only turn for queries, and keeps nothing else waiting.
    let began = Instant::now();
    assert_eq!(get(&server, "/repositories/a/grep?pattern=nothing&literal=true")["items"], json!([]));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(client);
    assert_eq!(rows(&server, "SELECT 1", "a"), json!([[1]]));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn tables_of_hidden_repositories_are_hidden() {
    let env = Env::new();
    env.configure(
        "access",
        &format!(
            "rules = [{{ repositories = [\"a\"], tokens = [\"ci\"] }}]\n\
            tokens = [{{ name = \"ci\", sha256 = \"{OPEN_SESAME}\" }}]"
        ),
    );
    env.mirror_new("a", &env.odd_repository("up.git"));
    let server = Http::serve(&env, &[]);
    let of_all = query("SELECT count(*) FROM revision", "a");
    for path in [of_all.as_str(), "/repositories/a/tables/revision"] {
        assert_eq!(problem(&server, path).0, 401, "{path}");
        let shown = send(&server, "GET", path, "Authorization: Bearer open sesame\r\n", "");
        assert_eq!(shown.status, 200, "{path}");
        assert_eq!(problem(&server, path).0, 401, "{path}: what is kept is hidden, too");
    }
}
