//! The REST API answers as git does, and tells nobody of hidden repositories.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Env, Http, OPEN_SESAME, wait_for_answer};
use crate::serve::api_client::{all, get, problem, send, texts, unchunked};

const NO_PATH: &str = "there is nothing at this path (write %2F for each / in the name of a repository); see \
    /api/v1/openapi.json";
/// The words about a cursor that is none.
const NO_PAGE: &str =
    "there is no such page: the parameter 'cursor' must be 'next' of a page before, of the same list";

fn pool_with(env: &Env, names: &[&str]) {
    let upstream = env.odd_repository("odd.git");
    for name in names {
        env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
    }
    env.weir(&["mirror"]);
}

#[test]
fn api_says_of_a_repository_what_git_says() {
    let env = Env::new();
    pool_with(&env, &["some/odd"]);
    let upstream = env.path("odd.git");
    let server = Http::serve(&env, &[]);
    let shown = get(&server, "/repositories/some%2Fodd");
    assert_eq!((&shown["name"], &shown["state"]), (&json!("some/odd"), &json!("ok")));
    assert_eq!(shown["url"], Value::Null, "a path of this machine");
    assert_eq!(shown["default_branch"], "main");
    let (at, seq) = (format!("/repositories/{}", shown["id"]), shown["seq"].clone());
    assert_eq!(get(&server, &at), shown, "by its number");
    // Refs.
    let refs: Vec<String> = all(&server, &format!("{at}/refs"), 3)
        .iter()
        .map(|r| format!("{} {}", r["oid"].as_str().unwrap(), r["name"].as_str().unwrap()))
        .collect();
    let expected = env.git(&upstream, &["for-each-ref", "--format=%(objectname) %(refname)"]);
    let mut expected: Vec<&str> = expected.lines().collect();
    expected.sort_by_key(|line| line.split_once(' ').unwrap().1.to_owned());
    assert_eq!(refs, expected);
    let heads = all(&server, &format!("{at}/refs?prefix=refs/heads/"), 50);
    assert!(heads.iter().any(|r| r["name"] == "refs/heads/main" && r["head"] == true));
    assert!(heads.iter().all(|r| r["name"].as_str().unwrap().starts_with("refs/heads/")));
    // Commits, and the path of one of the files.
    for revision in ["main", "side~1", "v1"] {
        let ids = texts(&all(&server, &format!("{at}/commits?revision={revision}"), 2), "oid");
        assert_eq!(ids, env.git(&upstream, &["log", "--format=%H", revision]).lines().collect::<Vec<_>>());
    }
    let listed = env.git(&upstream, &["ls-tree", "-r", "--name-only", "main"]);
    let file = listed.lines().find(|path| path.is_ascii() && !path.contains('"')).unwrap();
    let ids = texts(&all(&server, &format!("{at}/commits?path={file}"), 5), "oid");
    assert_eq!(
        ids,
        env.git(&upstream, &["log", "--format=%H", "main", "--", file]).lines().collect::<Vec<_>>()
    );
    let told = get(&server, &format!("{at}/commits/side%7E1"));
    let format = "--format=%H%n%T%n%an%n%ae%n%at%n%cn%n%ct";
    let expected = env.git(&upstream, &["show", "-s", format, "side~1"]);
    let (author, committer) = (&told["author"], &told["committer"]);
    let shown = [&told["oid"], &told["tree"], &author["name"], &author["email"]].map(|v| v.as_str().unwrap());
    let shown = format!(
        "{}\n{}\n{}\n{}",
        shown.join("\n"),
        author["time"],
        committer["name"].as_str().unwrap(),
        committer["time"]
    );
    assert_eq!(shown, expected);
    let found = all(&server, &format!("{at}/grep?pattern=.&path={file}"), 1);
    assert!(!found.is_empty() && found.iter().all(|line| line["path"] == file));
    // States and visits.
    assert_eq!(get(&server, &format!("{at}/states"))["items"][0]["seq"], seq);
    assert_eq!(get(&server, &format!("{at}/visits"))["items"][0]["result"], "changed");
}

#[test]
fn api_lists_what_commits_change() {
    let env = Env::new();
    pool_with(&env, &["odd"]);
    let (upstream, at) = (env.path("odd.git"), "/repositories/odd");
    let server = Http::serve(&env, &[]);
    for revision in ["main", "side", "v1~1"] {
        let told = all(&server, &format!("{at}/diff?head={revision}"), 1);
        let lines: Vec<String> = told
            .iter()
            .map(|file| {
                let count = |key: &str| file[key].as_u64().map_or("-".to_owned(), |n| n.to_string());
                format!("{} {} {}", file["status"].as_str().unwrap(), count("insertions"), count("deletions"))
            })
            .collect();
        let range = [format!("{revision}~1"), revision.to_owned()];
        let raw = env.git(&upstream, &["diff-tree", "-r", "-M", "--raw", &range[0], &range[1]]);
        let numstat = env.git(&upstream, &["diff-tree", "-r", "-M", "--numstat", &range[0], &range[1]]);
        let expected: Vec<String> = raw
            .lines()
            .zip(numstat.lines())
            .map(|(raw, counts)| {
                let counts: Vec<&str> = counts.split('\t').take(2).collect();
                format!("{} {}", &raw.split(' ').nth(4).unwrap()[..1], counts.join(" "))
            })
            .collect();
        assert_eq!(lines, expected, "{revision}");
    }
}

/// Compares the blame of a file with that of git.
fn check_blame(env: &Env, server: &Http, file: &str) {
    let (upstream, at) = (env.path("odd.git"), "/repositories/odd");
    let blame = get(server, &format!("{at}/blame?path={file}&revision=main"));
    let expected = env.git(&upstream, &["blame", "--porcelain", "main", "--", file]);
    let is_header =
        |line: &&str| line.split(' ').count() == 4 && line.as_bytes()[..40].iter().all(u8::is_ascii_hexdigit);
    let expected: Vec<&str> = expected.lines().filter(|line| line.len() > 40).filter(is_header).collect();
    let ranges = blame["ranges"].as_array().unwrap();
    let shown: Vec<String> = ranges
        .iter()
        .map(|range| {
            let commit = range["commit"].as_str().unwrap();
            format!("{commit} {} {} {}", range["original_line"], range["line"], range["count"])
        })
        .collect();
    assert_eq!(shown, expected);
    assert_eq!(blame["commit"].as_str().unwrap(), env.git(&upstream, &["rev-parse", "main"]));
    for commit in blame["commits"].as_array().unwrap() {
        let oid = commit["oid"].as_str().unwrap();
        let told = env.git(&upstream, &["show", "-s", "--format=%an %ct %s", oid]);
        let (author, time) = (commit["author"]["name"].as_str().unwrap(), &commit["committer"]["time"]);
        assert_eq!(format!("{author} {time} {}", commit["summary"].as_str().unwrap()), told);
    }
    let line = get(server, &format!("{at}/blame?path={file}&revision=main&first_line=1&last_line=1"));
    assert_eq!(line["ranges"].as_array().unwrap().len(), 1);
    assert_eq!(line["line_count"], blame["line_count"]);
}

#[test]
fn api_sends_patches_and_blame() {
    let env = Env::new();
    pool_with(&env, &["odd"]);
    let (upstream, at) = (env.path("odd.git"), "/repositories/odd");
    let server = Http::serve(&env, &[]);
    let patch = |query: &str| {
        let answer = send(&server, "GET", &format!("{at}/patch?{query}"), "", "");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/x-diff")), "{query}");
        let etag = format!("If-None-Match: {}\r\n", answer.header("etag").unwrap());
        assert_eq!(send(&server, "GET", &format!("{at}/patch?{query}"), &etag, "").status, 304);
        String::from_utf8(answer.body).unwrap()
    };
    let diff = |args: &[&str]| {
        let args = [&["diff", "--full-index", "-M"], args].concat();
        String::from_utf8(env.git_command(&upstream, &args).output().unwrap().stdout).unwrap()
    };
    assert_eq!(patch(""), diff(&["HEAD~1", "HEAD"]));
    assert_eq!(patch("head=side&context=0"), diff(&["-U0", "side~1", "side"]));
    let listed = env.git(&upstream, &["ls-tree", "-r", "--name-only", "main"]);
    let file = listed.lines().find(|path| path.is_ascii() && !path.contains('"')).unwrap();
    let root =
        env.git(&upstream, &["rev-list", "--max-parents=0", "main"]).lines().next().unwrap().to_owned();
    let one = patch(&format!("base={root}&head=main&path={file}"));
    assert_eq!(one, diff(&[&root, "main", "--", file]));
    let listed = all(&server, &format!("{at}/diff?base={root}&head=main&path={file}"), 5);
    assert_eq!(listed.len(), one.lines().filter(|line| line.starts_with("diff --git")).count());
    // The changes of a branch.
    assert_eq!(patch("base=main&head=side&merge_base=true"), diff(&["main...side"]));
    let page = all(&server, &format!("{at}/diff?base=main&head=side&merge_base=true"), 1);
    let names = env.git(&upstream, &["diff", "-M", "--name-only", "main...side"]);
    assert_eq!(page.len(), names.lines().count());
    check_blame(&env, &server, file);
    // The last commit of each entry.
    let items = all(&server, &format!("{at}/tree?revision=main&last_commits=true"), 3);
    assert!(items.len() > 3);
    for entry in items.iter().filter(|entry| entry["path_base64"].is_null()) {
        let path = format!(":(literal){}", entry["path"].as_str().unwrap());
        let expected = env.git(&upstream, &["log", "-1", "--format=%H %s", "main", "--", &path]);
        let last = &entry["last_commit"];
        let shown = [&last["oid"], &last["summary"]].map(|text| text.as_str().unwrap());
        assert_eq!(shown.join(" "), expected, "{path}");
    }
    for (path, status, words) in [
        (
            "tree?recursive=true&last_commits=true",
            400,
            "'last_commits' is for one folder, not with 'recursive'".to_owned(),
        ),
        ("blame", 400, "the parameter 'path' is missing".to_owned()),
        ("blame?path=none", 404, "there is no 'none'".to_owned()),
        ("blame?path=.", 400, "'.' is a folder, not a file".to_owned()),
        ("patch?path=none", 404, "there is no 'none' in either revision".to_owned()),
        ("patch?merge_base=true", 400, "'merge_base' needs the parameter 'base'".to_owned()),
        ("patch?context=1001", 400, "the parameter 'context' must be a number from 0 to 1000".to_owned()),
        ("patch?base=none", 404, "no such revision: 'none'".to_owned()),
    ] {
        assert_eq!(problem(&server, &format!("{at}/{path}")), (status, words), "{path}");
    }
}

#[test]
fn api_says_why_no_archive_is_made_of_a_tree() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    let tree = env.git(&upstream, &["rev-parse", "main^{tree}"]);
    let data = weir_testing::tree_data(&[("40000", b"..", &tree)]);
    let hash = ["hash-object", "-t", "tree", "--literally", "-w", "--stdin"];
    let outside = env.git_with(&upstream, &hash, &data);
    let commit = env.git(&upstream, &["commit-tree", "-m", "outside", outside.trim()]);
    env.git(&upstream, &["update-ref", "refs/heads/outside", &commit]);
    env.mirror_new("up", &upstream);
    let server = Http::serve(&env, &[]);
    for format in ["tar.gz", "tar", "zip"] {
        let path = format!("/repositories/up/archive?revision=outside&format={format}");
        let answer = send(&server, "GET", &path, "", "");
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 400, "{said}");
        assert!(said.contains("no archive is made of a tree with '..' in it"), "{said}");
    }
}

#[test]
fn api_sends_folders_files_and_archives() {
    let env = Env::new();
    let upstream = env.init_bare("up.git");
    let stream = "commit refs/heads/main\ncommitter C <c@x> 1700000000 +0000\ndata 1\nx\n\
        M 644 inline a/b/text.txt\ndata 6\nhello\n\nM 755 inline run.sh\ndata 2\n#!\nM 644 inline a/bytes\n\
        data 3\n\x00\x01\x02\nM 644 inline page.html\ndata 8\n<script>\n";
    env.git_with(&upstream, &["fast-import", "--quiet"], stream.as_bytes());
    let odd =
        b"reset refs/heads/\xffa\nfrom refs/heads/main^0\n\nreset refs/heads/\xffb\nfrom refs/heads/main^0\n";
    env.git_with(&upstream, &["fast-import", "--quiet"], odd);
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let server = Http::serve(&env, &[]);
    assert_eq!(all(&server, "/repositories/up/refs", 1).len(), 3, "names need not be UTF-8");
    let gone = b"delete refs/heads/\xffa\ndelete refs/heads/\xffb\n";
    env.git_with(&upstream, &["update-ref", "--stdin"], gone);
    let list = |query: &str| texts(&all(&server, &format!("/repositories/up/tree?{query}"), 1), "path");
    assert_eq!(list(""), ["a", "page.html", "run.sh"]);
    assert_eq!(list("recursive=true"), ["a/b/text.txt", "a/bytes", "page.html", "run.sh"]);
    assert_eq!(list("path=a&revision=main"), ["a/b", "a/bytes"]);
    let entry = &get(&server, "/repositories/up/tree?path=a/b")["items"][0];
    assert_eq!(
        (&entry["kind"], &entry["mode"], &entry["size"]),
        (&json!("blob"), &json!("100644"), &json!(6))
    );
    let file = |path: &str, headers: &str| {
        send(&server, "GET", &format!("/repositories/up/file?path={path}"), headers, "")
    };
    let text = file("a/b/text.txt", "");
    assert_eq!((text.status, &*text.body), (200, &b"hello\n"[..]));
    assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
    let etag = text.header("etag").unwrap();
    assert_eq!(file("a/b/text.txt", &format!("If-None-Match: {etag}\r\n")).status, 304);
    let part = file("a/b/text.txt", "Range: bytes=1-3\r\n");
    assert_eq!(
        (part.status, &*part.body, part.header("content-range")),
        (206, &b"ell"[..], Some("bytes 1-3/6"))
    );
    assert_eq!(file("a/b/text.txt", "Range: bytes=9-\r\n").status, 416);
    assert_eq!(file("a/bytes", "").header("content-type"), Some("application/octet-stream"));
    // A page of a repository runs nothing.
    let page = file("page.html", "");
    assert_eq!(page.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(problem(&server, "/repositories/up/file?path=a"), (400, "'a' is no file".to_owned()));
    assert_eq!(problem(&server, "/repositories/up/file?path=no"), (404, "there is no 'no'".to_owned()));
    // Archives.
    let archive = |query: &str| send(&server, "GET", &format!("/repositories/up/archive?{query}"), "", "");
    let tar = archive("format=tar&prefix=x/");
    let expected =
        env.git_command(&upstream, &["archive", "--format=tar", "--prefix=x/", "main"]).output().unwrap();
    assert!(tar.body == expected.stdout, "the tar is that of git");
    let gz = archive("");
    assert_eq!(gz.header("content-disposition"), Some("attachment; filename=\"up-HEAD.tar.gz\""));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*gz.body).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked.windows(8).any(|part| part == b"up-HEAD/"));
    assert!(archive("format=zip").body.starts_with(b"PK"));
    let etag = gz.header("etag").unwrap().to_owned();
    let again = format!("If-None-Match: {etag}\r\n");
    assert_eq!(send(&server, "GET", "/repositories/up/archive", &again, "").status, 304);
    assert_eq!(archive("format=rar").status, 400);
    // Heads have no bodies.
    let head = send(&server, "HEAD", "/repositories/up/archive?format=tar", "", "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    // weir keeps what a force-push removed, and does not show it.
    let gone = env.git(&upstream, &["rev-parse", "main"]);
    env.git(&upstream, &["update-ref", "-d", "refs/heads/main"]);
    env.commit_file(&upstream, "refs/heads/main", "new", b"new");
    env.weir(&["mirror", "up"]);
    let why = (404, format!("no such revision: '{gone}'"));
    assert_eq!(problem(&server, &format!("/repositories/up/commits/{gone}")), why);
    assert_eq!(problem(&server, &format!("/repositories/up/file?path=run.sh&revision={gone}")), why);
    assert_eq!(list(""), ["new"]);
}

#[test]
fn api_hides_what_access_rules_hide() {
    let env = Env::new();
    pool_with(&env, &["open/a", "open/b", "secret/c"]);
    env.configure(
        "access",
        &format!(
            "rules = [{{ repositories = [\"secret/*\"], tokens = [\"ci\"] }}]\ntokens = \
            [{{ name = \"ci\", sha256 = \"{OPEN_SESAME}\" }}]"
        ),
    );
    let server = Http::serve(&env, &[]);
    let token = "Authorization: Bearer open sesame\r\n";
    assert_eq!(texts(&all(&server, "/repositories", 1), "name"), ["open/a", "open/b"]);
    assert_eq!(texts(&all(&server, "/repositories?search=SECRET", 50), "name"), [""; 0]);
    let seen = send(&server, "GET", "/repositories?search=C", token, "").json();
    assert_eq!(texts(seen["items"].as_array().unwrap(), "name"), ["secret/c"]);
    let id = seen["items"][0]["id"].to_string();
    assert_eq!(seen["items"][0]["error"], Value::Null);
    for path in ["", "/refs", "/tree", "/commits", "/archive", "/file?path=x", "/visits", "/states"] {
        let hidden = send(&server, "GET", &format!("/repositories/secret%2Fc{path}"), "", "");
        let absent = send(&server, "GET", &format!("/repositories/secret%2Fx{path}"), "", "");
        assert_eq!((hidden.status, hidden.header("www-authenticate")), (401, Some("Bearer realm=\"weir\"")));
        assert_eq!(hidden.body, absent.body, "{path}");
        let hidden = send(&server, "GET", &format!("/repositories/{id}{path}"), "", "");
        let absent = send(&server, "GET", &format!("/repositories/999999{path}"), "", "");
        assert_eq!((hidden.status, hidden.body), (401, absent.body), "{path}, by number");
    }
    assert_eq!(send(&server, "GET", "/repositories/secret%2Fc/refs", token, "").status, 200);
    assert_eq!(send(&server, "GET", &format!("/repositories/{id}/refs"), token, "").status, 200);
    // The names of hidden repositories are in no cursor.
    let page = get(&server, "/repositories?limit=2");
    assert_eq!((page["items"].as_array().unwrap().len(), &page["next"]), (2, &Value::Null));
    let next = get(&server, "/repositories?limit=1")["next"].as_str().unwrap().to_owned();
    let other = get(&server, "/repositories?limit=1")["next"].as_str().unwrap().to_owned();
    assert!(next != other && next.len() == other.len(), "it is sealed");
    // A token that only reads does not manage.
    assert_eq!(send(&server, "GET", "/status", token, "").status, 403);
}

#[test]
fn api_lets_managers_manage() {
    let env = Env::new();
    pool_with(&env, &["a"]);
    env.configure(
        "access",
        &format!(
            "tokens = [{{ name = \"boss\", sha256 = \"{OPEN_SESAME}\", scopes = [\"read\", \"manage\"] }}]"
        ),
    );
    let server = Http::serve(&env, &[]);
    let boss = "Authorization: Bearer open sesame\r\nContent-Type: application/json\r\n";
    let manage = |method: &str, path: &str, body: &str| send(&server, method, path, boss, body);
    let daemon = env.git_daemon(&[]);
    let upstream = daemon.url("odd.git");
    let new = json!({ "url": upstream, "name": "x/new" }).to_string();
    for (method, path, body) in [
        ("GET", "/status", ""),
        ("GET", "/accounts", ""),
        ("POST", "/repositories", &*new),
        ("PATCH", "/repositories/a", "{\"paused\":true}"),
        ("POST", "/repositories/a/visits", ""),
        ("DELETE", "/repositories/a", ""),
    ] {
        assert_eq!(
            send(&server, method, path, "Content-Type: application/json\r\n", body).status,
            401,
            "{path}"
        );
        let wrong = "Authorization: Bearer x\r\nContent-Type: application/json\r\n";
        let mistaken = send(&server, method, path, wrong, body);
        assert_eq!((mistaken.status, &mistaken.json()["detail"]), (401, &json!("the token is not known")));
    }
    assert_eq!(manage("GET", "/status", "").json()["counts"]["repositories"], 1);
    let added = manage("POST", "/repositories", &new);
    assert_eq!((added.status, &added.json()["state"]), (201, &json!("new")));
    let place = added.header("location").unwrap().strip_prefix("/api/v1").unwrap().to_owned();
    assert_eq!(get(&server, &place)["name"], "x/new");
    assert_eq!(manage("POST", "/repositories", &new).status, 200, "it is there");
    let refs = send(&server, "GET", &format!("{place}/refs"), "", "");
    assert_eq!((refs.status, &refs.json()["code"]), (404, &json!("not_mirrored")));
    let taken = manage("POST", "/repositories", "{\"url\": \"https://h/other\", \"name\": \"a\"}");
    assert_eq!(taken.status, 409, "{}", taken.head);
    for (body, status) in [
        ("{", 400),
        ("{}", 400),
        ("{\"url\": 1}", 400),
        ("{\"url\": \"x y\"}", 422),
        ("{\"url\": \"/etc/passwd\"}", 422),
        ("{\"url\": \"file:///srv/git\"}", 422),
        ("{\"url\": \"ext::sh -c id\", \"name\": \"e\"}", 422),
        ("{\"url\": \"https://github.com/owner\"}", 422),
    ] {
        assert_eq!(manage("POST", "/repositories", body).status, status, "{body}");
    }
    let text = "Authorization: Bearer open sesame\r\nContent-Type: text/plain\r\n";
    assert_eq!(send(&server, "POST", "/repositories", text, &new).status, 415);
    let address = "{\"url\": \"http://[::1]:1/r\", \"name\": \"v6\"}";
    assert_eq!(manage("POST", "/repositories", address).status, 201);
    assert_eq!(manage("DELETE", "/repositories/v6", "").status, 204);
    // Pause and resume, and visit.
    assert_eq!(manage("PATCH", "/repositories/a", "{\"paused\": true}").json()["state"], "paused");
    assert_eq!(manage("POST", "/repositories/a/visits", "").status, 409);
    assert_eq!(manage("PATCH", "/repositories/a", "{\"paused\": false}").json()["paused"], false);
    assert_eq!(manage("POST", "/repositories/a/visits", "").status, 202);
    env.weir(&["mirror"]);
    assert_eq!(get(&server, &place)["state"], "ok");
    // Remove: the archive stays, or goes.
    assert_eq!(manage("DELETE", &place, "").status, 204);
    assert_eq!(manage("DELETE", "/repositories/a?delete_archive=true", "").status, 204);
    assert_eq!(problem(&server, "/repositories/a").0, 404);
    assert_eq!(env.stored().len(), 1, "{:?}", env.stored());
    assert!(!Path::new(&env.pool()).join("store/a.tar").exists());
}

#[test]
fn api_waits_for_who_reads_an_archive_slowly() {
    let env = Env::new();
    let upstream = env.init_bare("up.git");
    let mut numbers = weir_testing::Numbers(1);
    let noise: Vec<u8> = (0..2 << 20).flat_map(|_| numbers.below(u64::MAX).to_le_bytes()).collect();
    let head = "commit refs/heads/main\ncommitter C <c@x> 1700000000 +0000\ndata 1\nx\nM 644 inline noise\n";
    let stream = [format!("{head}data {}\n", noise.len()).as_bytes(), &noise].concat();
    env.git_with(&upstream, &["fast-import", "--quiet"], &stream);
    env.mirror_new("up", &upstream);
    let server = Http::serve(&env, &[]);
    let mut stream = TcpStream::connect(("127.0.0.1", server.0.port)).unwrap();
    let request =
        "GET /api/v1/repositories/up/archive?format=tar HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    wait_for_answer(&stream);
    // All buffers fill up, and the thread that writes leaves its turn to others.
    std::thread::sleep(Duration::from_millis(500));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let start = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let tar = unchunked(&answer[start..]);
    let expected = env.git_command(&upstream, &["archive", "--prefix=up-HEAD/", "HEAD"]).output().unwrap();
    assert!(tar == expected.stdout, "{} bytes of {}", tar.len(), expected.stdout.len());
}

#[test]
fn api_walks_trees_as_deep_as_git_allows() {
    let env = Env::new();
    let upstream = env.init_bare("deep.git");
    let path = "d/".repeat(2000);
    let head = "commit refs/heads/main\ncommitter C <c@x> 1700000000 +0000\ndata 1\nx\n";
    let stream = format!("{head}M 644 inline {path}f\ndata 2\na\n");
    env.git_with(&upstream, &["fast-import", "--quiet"], stream.as_bytes());
    env.mirror_new("deep", &upstream);
    let server = Http::serve(&env, &[]);
    let at = "/repositories/deep";
    assert_eq!(all(&server, &format!("{at}/grep?pattern=a"), 5).len(), 1);
    assert_eq!(all(&server, &format!("{at}/diff"), 5).len(), 1);
    for path in ["patch", "archive?format=tar", "tree?recursive=true"] {
        assert_eq!(send(&server, "GET", &format!("{at}/{path}"), "", "").status, 200, "{path}");
    }
    assert_eq!(send(&server, "GET", at, "", "").status, 200, "it is still there");
}

#[test]
fn api_lists_accounts_for_managers() {
    let env = Env::new();
    pool_with(&env, &["a"]);
    let token =
        format!("tokens = [{{ name = \"boss\", sha256 = \"{OPEN_SESAME}\", scopes = [\"manage\"] }}]");
    env.configure("access", &token);
    let sql = "INSERT INTO accounts (forge, forge_id, login, kind) VALUES ('f', '1', 'ann', 'user'),
        ('g', '1', 'ann', 'user'), ('f', '2', 'org', 'organization')";
    let done = weir_testing::command("sqlite3").arg(env.pool().join("catalog.db")).arg(sql).status().unwrap();
    assert!(done.success());
    let server = Http::serve(&env, &[]);
    assert_eq!(problem(&server, "/accounts").0, 401);
    let list = |query: &str| {
        let answer =
            send(&server, "GET", &format!("/accounts{query}"), "Authorization: Bearer open sesame\r\n", "");
        assert_eq!(answer.status, 200, "{query}");
        answer.json()
    };
    let (mut shown, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = list(&format!("?limit=1{cursor}"));
        let items = page["items"].as_array().unwrap();
        shown.extend(items.iter().map(|a| format!("{} {} {}", a["login"], a["forge"], a["kind"])));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(shown.join(", ").replace('"', ""), "ann f user, ann g user, org f organization");
    assert_eq!(list("?login=ann")["items"].as_array().unwrap().len(), 2);
    assert_eq!(list("?login=nobody")["items"], json!([]));
}

#[test]
fn api_checks_requests() {
    let env = Env::new();
    pool_with(&env, &["a"]);
    env.configure("serve", "cors = [\"https://pages.example\"]");
    let server = Http::serve(&env, &[]);
    for (path, status, words) in [
        ("/nothing", 404, "there is nothing at this path; see /api/v1/openapi.json"),
        ("/repositories?limit=0", 400, "the parameter 'limit' must be a number from 1 to 1000"),
        ("/repositories?limits=1", 400, "there is no parameter 'limits' here"),
        ("/repositories?state=odd", 400, "there is no state 'odd'"),
        ("/repositories?cursor=!", 404, NO_PAGE),
        ("/repositories/a/tree?recursive=1", 400, "the parameter 'recursive' must be true or false"),
        ("/repositories/a/tree?cursor=YWJj", 404, NO_PAGE),
        ("/repositories/a/commits?cursor=bWFpbjp4", 404, NO_PAGE),
        ("/repositories/a/commits?revision=%ff", 400, "the parameter 'revision' is not UTF-8"),
        ("/repositories/a/commits?revision=main%00", 404, "no such revision: 'main\0'"),
        ("/repositories/a/commits?revision=main%5E%7Btree%7D", 400, "'main^{tree}' is no commit"),
        ("/repositories/a/grep", 400, "the parameter 'pattern' is missing"),
        ("/repositories/a/grep?pattern=x&cursor=YTpi", 404, NO_PAGE),
        ("/repositories/b", 404, "no such repository: b"),
        (
            "/repositories/%ff",
            404,
            "a name or a revision in the path is not UTF-8, or has control characters",
        ),
        ("/repositories/a/HEAD", 404, NO_PATH),
    ] {
        assert_eq!(problem(&server, path), (status, words.to_owned()), "{path}");
    }
    // A cursor leads on in its own list, whatever the size of the pages.
    let first = get(&server, "/repositories/a/tree?limit=1&revision=main");
    let cursor = format!("cursor={}", first["next"].as_str().unwrap());
    let next = get(&server, &format!("/repositories/a/tree?{cursor}&revision=main&limit=2"));
    assert_ne!(next["items"][0], first["items"][0]);
    for path in ["tree", "tree?recursive=true&revision=main", "tree?revision=HEAD", "commits?revision=main"] {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = format!("/repositories/a/{path}{mark}{cursor}");
        assert_eq!(problem(&server, &path), (404, NO_PAGE.to_owned()), "{path}");
    }
    let wrong = send(&server, "PUT", "/repositories", "", "");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, POST, HEAD, OPTIONS")));
    let long = "x".repeat(70_000);
    let answer = send(&server, "POST", "/repositories", "", &long);
    assert_eq!((answer.status, answer.header("content-type")), (413, Some("application/problem+json")));
    // Pages of other origins.
    let origin = |origin: &str| send(&server, "GET", "/repositories", &format!("Origin: {origin}\r\n"), "");
    let allowed = origin("https://pages.example");
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://pages.example"));
    assert_eq!(origin("https://evil.example").header("access-control-allow-origin"), None);
    let asked = send(&server, "OPTIONS", "/repositories", "Origin: https://pages.example\r\n", "");
    assert_eq!((asked.status, asked.header("access-control-max-age")), (204, Some("3600")));
    assert_eq!(asked.header("allow"), Some("GET, POST, HEAD, OPTIONS"));
    assert_eq!(send(&server, "OPTIONS", "/nothing", "", "").status, 404);
    let described = get(&server, "/openapi.json");
    assert_eq!(described["openapi"], "3.1.0");
    // An empty repository.
    env.init_bare("empty.git");
    env.mirror_new("empty", &env.path("empty.git"));
    for path in ["commits", "tree", "refs"] {
        assert_eq!(get(&server, &format!("/repositories/empty/{path}"))["items"], json!([]), "{path}");
    }
    // Repositories whose names are numbers: one takes the number of no other one.
    let first = get(&server, "/repositories/1")["name"].clone();
    for name in ["1", "777777"] {
        env.weir(&["add", "--name", name, env.path("odd.git").to_str().unwrap()]);
    }
    assert_eq!(get(&server, "/repositories/1")["name"], first);
    assert_eq!(get(&server, "/repositories/777777")["name"], "777777");
    // No API.
    env.configure("serve", "api = false");
    let without = Http::serve(&env, &[]);
    assert_eq!(send(&without, "GET", "/repositories", "", "").status, 404);
    // Without tokens, one is for a proxy in front.
    let passed = send(&server, "GET", "/repositories", "Authorization: Basic dTpw\r\n", "");
    assert_eq!(passed.status, 200);
}

#[test]
fn api_lists_owners_of_what_a_client_may_read() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    let of_one_owner: Vec<String> = (0..150).map(|n| format!("h/many/r{n}")).collect();
    let names = ["flat", "h/a/x", "h/a/y", "h/a-b/x", "h/group/x", "h/group/sub/x", "i/secret/x", "j/x"];
    for name in names.into_iter().chain(of_one_owner.iter().map(String::as_str)) {
        env.weir(&["add", "-q", "--name", name, upstream.to_str().unwrap()]);
    }
    env.configure(
        "access",
        &format!(
            "rules = [{{ repositories = [\"i/*\"], tokens = [\"ci\"] }}]\ntokens = \
            [{{ name = \"ci\", sha256 = \"{OPEN_SESAME}\" }}]"
        ),
    );
    let server = Http::serve(&env, &[]);
    for limit in [1, 2, 50] {
        assert_eq!(texts(&all(&server, "/owners", limit), "name"), ["h", "j"], "{limit}");
        let below = all(&server, "/owners?parent=h", limit);
        assert_eq!(texts(&below, "name"), ["h/a-b", "h/a", "h/group", "h/many"], "{limit}");
        assert_eq!(texts(&all(&server, "/owners?parent=h/group/", limit), "name"), ["h/group/sub"]);
        assert_eq!(texts(&all(&server, "/owners?parent=nothing", limit), "name"), [""; 0]);
        assert_eq!(texts(&all(&server, "/owners?parent=i", limit), "name"), [""; 0]);
    }
    let token = "Authorization: Bearer open sesame\r\n";
    let seen = send(&server, "GET", "/owners", token, "").json();
    assert_eq!(texts(seen["items"].as_array().unwrap(), "name"), ["h", "i", "j"]);
}
