//! Issues, pull requests and releases of forges, in archives. All of them must arrive, whatever changes
//! meanwhile.

use std::collections::BTreeMap;

use crate::common::Env;
use crate::common::forge::{Around, Forge, Listed, State};
use serde_json::{Value, json};

fn time(n: u64) -> String {
    format!("2024-03-{:02}T{:02}:{:02}:00Z", 1 + n / 1440, n / 60 % 24, n % 60)
}

fn item<'a>(around: &'a mut Around, stream: &'static str, id: u64) -> &'a mut Value {
    around.lists.get_mut(stream).unwrap().iter_mut().find(|item| item["id"] == id).unwrap()
}

/// Returns 350 issues, of which 120 changed in the same second, and several pages of everything else.
fn around() -> Around {
    let one = |id: u64, at: u64| {
        json!({ "id": id, "iid": id, "number": id, "title": format!("item {id}"),
        "updated_at": time(at), "body": "words\nand more" })
    };
    let mut issues: Vec<Value> =
        (1..=350).map(|id| one(id, if (100..220).contains(&id) { 100 } else { id })).collect();
    for id in (5..=350).step_by(50) {
        issues[id - 1]["user_notes_count"] = json!(1);
    }
    let comments = (1000..1130).map(|id| {
        let mut note = one(id, id - 900);
        note["noteable_iid"] = json!(if id < 1007 { 5 + (id - 1000) * 50 } else { 9999 });
        note
    });
    let releases = (1..=3).map(|n| {
        json!({ "tag_name": format!("v{n}"), "name": "One", "assets": [{ "name": "a.tgz",
            "download_count": n }] })
    });
    let lists = BTreeMap::from([
        ("issues", issues),
        ("comments", comments.collect()),
        ("pulls", (2000..2170).map(|id| one(id, id - 1500)).collect()),
        ("labels", (1..=130).map(|id| json!({ "id": id, "name": format!("l{id}") })).collect()),
        ("milestones", vec![json!({ "id": 1, "title": "one", "updated_at": time(1) })]),
        ("releases", releases.collect()),
    ]);
    Around { lists, ..Around::default() }
}

/// Returns a pool that mirrors a repository of a forge of `kind`, the forge, and the git server.
fn mirrored(kind: &str, more: &str) -> (Env, Forge, crate::common::Server) {
    let env = Env::new();
    env.odd_repository("o/r1.git");
    let daemon = env.git_daemon(&[]);
    let one = Listed { id: 1, owner: "o", name: "r1".to_owned(), pushed_at: "1".into(), fork: false };
    let forge = Forge::new(State {
        repositories: vec![one],
        clone_base: daemon.url(""),
        around: around(),
        ..State::default()
    });
    let text = format!(
        "[[forge]]\ntype = \"{kind}\"\ntokens = [\"t\"]\nurl = \"{}\"\nname = \"f\"\nclone_from = \
        [\"{}\"]\ntries = 2\nretry = \"0s\"\n{more}\n",
        forge.url(),
        daemon.url("")
    );
    std::fs::write(env.pool().join("weir.toml"), text).unwrap();
    env.weir(&["crawl"]);
    env.weir(&["mirror"]);
    (env, forge, daemon)
}

fn lines(env: &Env, stream: &str) -> BTreeMap<String, Value> {
    let key = |item: &Value| {
        if item["id"].is_null() { item["tag_name"].to_string() } else { item["id"].to_string() }
    };
    let text = env.weir(&["metadata", "cat", "f/o/r1", stream]);
    let list: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = list.len();
    let by_key: BTreeMap<String, Value> = list.into_iter().map(|item| (key(&item), item)).collect();
    assert_eq!(by_key.len(), count, "{stream}: each once");
    by_key
}

fn expected(forge: &Forge, stream: &str) -> BTreeMap<String, Value> {
    let state = forge.state();
    let key = |item: &Value| {
        if item["id"].is_null() { item["tag_name"].to_string() } else { item["id"].to_string() }
    };
    state.around.lists[stream].iter().map(|item| (key(item), item.clone())).collect()
}

const STREAMS: [&str; 7] =
    ["issues", "comments", "labels", "milestones", "pulls", "review_comments", "releases"];

fn update_fails(env: &Env) -> Value {
    let output = env.weir_command(&["--json", "metadata", "update", "f/o/r1"]).output().unwrap();
    assert!(!output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn update(env: &Env) -> Value {
    serde_json::from_str(env.weir(&["--json", "metadata", "update", "f/o/r1"]).trim()).unwrap()
}

#[test]
fn all_of_it_and_then_what_is_new() {
    for kind in ["github", "gitlab", "gitea"] {
        let (env, forge, _daemon) = mirrored(kind, "metadata = [\"issues\", \"pulls\", \"releases\"]");
        all_is_found_whatever_changes_meanwhile(kind, &env, &forge);
        what_has_not_changed_costs_nothing(kind, &env);
        what_is_new_is_added(kind, &env, &forge);
        it_is_there_as_ordinary_files(kind, &env, &forge);
    }
}

/// Checks that all metadata is here after two looks, though some of it changes during the first.
fn all_is_found_whatever_changes_meanwhile(kind: &str, env: &Env, forge: &Forge) {
    // While weir reads the pages, an issue changes, and a new issue appears.
    let change: fn(&mut Around) = |around| {
        item(around, "issues", 7)["title"] = json!("changed meanwhile");
        item(around, "issues", 7)["updated_at"] = json!(time(900));
        let mut new = item(around, "issues", 8).clone();
        (new["id"], new["updated_at"]) = (json!(351), json!(time(901)));
        around.lists.get_mut("issues").unwrap().push(new);
    };
    let mut state = forge.state();
    (state.around.calm, state.around.then) = (2, Some(change));
    drop(state);
    let first = env.weir(&["metadata", "update"]);
    assert!(first.contains("f/o/r1") && first.contains(" issues"), "{first}");
    assert_eq!(env.weir(&["metadata", "update"]), "", "{kind}: nothing is due");
    update(env);
    let mut streams = vec!["issues", "pulls", "labels", "milestones", "releases"];
    streams.extend((kind != "gitlab").then_some("comments"));
    for stream in &streams {
        assert_eq!(lines(env, stream), expected(forge, stream), "{kind} {stream}");
    }
    if kind == "gitlab" {
        assert_eq!(lines(env, "comments").len(), 7, "notes come with their issues");
    }
}

/// Checks that looks that find nothing new add nothing to the archive.
fn what_has_not_changed_costs_nothing(kind: &str, env: &Env) {
    let archive_bytes = || {
        let mut files = std::fs::read_dir(env.pool().join("store/f/o")).unwrap();
        files.next().unwrap().unwrap().metadata().unwrap().len()
    };
    let said = update(env);
    assert_eq!((&said["added"], said["error"].is_null()), (&json!({}), true), "{kind}: {said}");
    let before = archive_bytes();
    update(env);
    assert_eq!(before, archive_bytes(), "{kind}: what has not changed costs nothing");
}

/// Checks that what changes is found, and only that.
fn what_is_new_is_added(kind: &str, env: &Env, forge: &Forge) {
    {
        let mut state = forge.state();
        let around = &mut state.around;
        (item(around, "issues", 3)["title"], item(around, "issues", 3)["updated_at"]) =
            (json!("new"), json!(time(1000)));
        (item(around, "pulls", 2003)["title"], item(around, "pulls", 2003)["updated_at"]) =
            (json!("new"), json!(time(1001)));
        let releases = around.lists.get_mut("releases").unwrap();
        // A new count of downloads is no news. A release that is gone upstream is kept.
        releases[1]["assets"][0]["download_count"] = json!(77);
        releases.remove(0);
        releases.push(json!({ "tag_name": "v4" }));
    }
    let said = update(env);
    assert_eq!(said["added"], json!({ "issues": 1, "pulls": 1, "releases": 1 }), "{kind}");
    assert_eq!(lines(env, "issues"), expected(forge, "issues"), "{kind}");
    assert_eq!(lines(env, "releases").len(), 4, "{kind}");
}

/// Checks that the metadata is there after a compaction, and as ordinary files.
fn it_is_there_as_ordinary_files(kind: &str, env: &Env, forge: &Forge) {
    env.weir(&["compact", "f/o/r1"]);
    assert_eq!(lines(env, "issues"), expected(forge, "issues"), "{kind}");
    env.weir(&["fsck", "f/o/r1"]);
    let folder = env.path("x");
    std::fs::create_dir(&folder).unwrap();
    let tar = weir_testing::command("tar")
        .arg("-C")
        .arg(&folder)
        .arg("-xf")
        .arg(env.pool().join("store/f/o/r1.tar"))
        .output();
    assert!(tar.unwrap().status.success());
    let text = weir_testing::command("zcat")
        .arg(folder.join("metadata/issues-00000001.jsonl.gz"))
        .output()
        .unwrap()
        .stdout;
    assert_eq!(text.iter().filter(|b| **b == b'\n').count(), 351, "{kind}");
    let said = update(env);
    assert_eq!(said["added"], json!({}), "{kind}: it goes on where it was: {said}");
    env.weir(&["export", "f/o/r1", env.path("bare").to_str().unwrap(), "--format", "directory"]);
    assert!(env.path("bare/metadata/pulls-00000001.jsonl.gz").exists(), "{kind}");
}

#[test]
fn what_fails_is_told_and_costs_only_itself() {
    let (env, forge, _daemon) = mirrored("github", "");
    assert_eq!(env.weir(&["metadata", "update"]), "", "nobody wants it");
    assert!(env.weir_fails(&["metadata", "cat", "f/o/r1", "issues"]).contains("available: none"));
    env.weir(&["add", "--name", "other", env.path("o/r1.git").to_str().unwrap()]);
    assert!(
        env.weir_fails(&["metadata", "update", "other"])
            .contains("no repository that matches 'other' is listed")
    );
    env.weir(&["set", "--metadata", "true", "f/o/r1"]);
    let broken =
        [("comments", "410 Gone"), ("milestones", "403 Forbidden"), ("pulls", "500 Internal Server Error")];
    forge.state().around.broken = broken.to_vec();
    let error = env.weir_fails(&["metadata", "update"]);
    assert!(error.contains("f/o/r1") && error.contains("500"), "{error}");
    for stream in ["issues", "labels", "releases"] {
        assert_eq!(lines(&env, stream), expected(&forge, stream), "what comes before and after is here");
    }
    assert!(env.weir(&["errors", "metadata"]).contains("500"));
    assert_eq!(env.weir_json(&["status"])["metadata"], json!({ "looked_at": 1, "failing": 1 }));
    forge.state().around.broken.clear();
    let said = update(&env);
    assert_eq!(
        (said["added"]["pulls"].as_u64(), said["added"]["comments"].as_u64()),
        (Some(170), Some(130)),
        "{said}"
    );
    assert_eq!(env.weir_json(&["status"])["metadata"]["failing"], 0);
    // Some forges serve only the first pages of a list. That is no failure, and the next look begins at the
    // first page again.
    forge.state().around.pages_max = Some(1);
    forge.state().around.lists.get_mut("labels").unwrap().insert(0, json!({ "id": 999, "name": "first" }));
    for _ in 0..2 {
        let said = update(&env);
        assert!(said["error"].is_null(), "{said}");
    }
    assert!(lines(&env, "labels").contains_key("999"));
    forge.state().around.pages_max = None;
    // If the forge forbids all lists, the look fails.
    forge.state().around.broken = STREAMS.iter().map(|stream| (*stream, "403 Forbidden")).collect();
    assert!(!update_fails(&env)["error"].is_null());
    forge.state().around.broken.clear();
    // Metadata is turned off for one repository of a forge that has it turned on.
    let text = std::fs::read_to_string(env.pool().join("weir.toml")).unwrap();
    std::fs::write(
        env.pool().join("weir.toml"),
        format!("{text}metadata = [\"releases\"]\n[mirror]\nmetadata_interval = \"0s\"\n"),
    )
    .unwrap();
    env.weir(&["set", "--metadata", "false", "f/o/r1"]);
    assert_eq!(env.weir(&["metadata", "update"]), "");
    env.weir(&["set", "--metadata", "default", "f/o/r1"]);
    let asked = forge.state().log.len();
    env.weir(&["metadata", "update"]);
    assert!(forge.state().log[asked..].iter().all(|line| line.contains("/releases")), "only those");
    std::fs::write(
        env.pool().join("weir.toml"),
        "[[forge]]\ntype = \"gerrit\"\nurl = \"https://h\"\nmetadata = [\"issues\"]\n",
    )
    .unwrap();
    assert!(env.weir_fails(&["ls"]).contains("GitHub, GitLab and Gitea only"));
}

#[test]
fn many_small_additions_become_one() {
    let (env, forge, _daemon) = mirrored("github", "metadata = [\"issues\"]");
    update(&env);
    for n in 0..70 {
        {
            let mut state = forge.state();
            let issue = item(&mut state.around, "issues", 1 + n % 5);
            (issue["title"], issue["updated_at"]) = (json!(format!("again {n}")), json!(time(2000 + n)));
        }
        assert_eq!(update(&env)["added"], json!({ "issues": 1 }));
    }
    assert_eq!(lines(&env, "issues"), expected(&forge, "issues"));
    let shown = env.weir_json(&["metadata", "ls", "f/o/r1"]);
    let issues = shown.as_array().unwrap().iter().find(|stream| stream["stream"] == "issues").unwrap();
    assert_eq!(issues["items"], 350);
    env.weir(&["fsck", "f/o/r1"]);
}

#[test]
fn clocks_that_are_wrong_hide_nothing() {
    for kind in ["github", "gitlab", "gitea"] {
        let (env, forge, _daemon) = mirrored(kind, "metadata = [\"issues\", \"pulls\"]");
        update(&env);
        let add = |stream: &'static str, id: u64, at: &str| {
            let mut state = forge.state();
            let mut new = state.around.lists[stream][0].clone();
            (new["id"], new["updated_at"]) = (json!(id), json!(at));
            state.around.lists.get_mut(stream).unwrap().push(new);
        };
        // Items that appear late: their times are not after the latest time seen. One item has a time in the
        // far future.
        for (stream, id, latest) in [("issues", 5000, 350), ("pulls", 6000, 669)] {
            add(stream, id, &time(latest - 5));
            add(stream, id + 1, &time(latest));
            add(stream, id + 2, "2099-01-01T00:00:00Z");
        }
        assert_eq!(update(&env)["added"], json!({ "issues": 3, "pulls": 3 }), "{kind}");
        // Items of today have earlier times than that item, but they are new all the same.
        let today = weir_testing::command("date")
            .args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d", "5 minutes ago"])
            .output()
            .unwrap();
        let today = String::from_utf8(today.stdout).unwrap();
        for (stream, ids) in [("issues", 5003..5006), ("pulls", 6003..6005)] {
            ids.for_each(|id| add(stream, id, today.trim()));
        }
        let said = update(&env);
        assert_eq!(said["added"], json!({ "issues": 3, "pulls": 2 }), "{kind}");
        assert_eq!(update(&env)["added"], json!({}), "{kind}");
        for stream in ["issues", "pulls"] {
            assert_eq!(lines(&env, stream), expected(&forge, stream), "{kind}");
        }
    }
}

#[test]
fn an_archive_that_another_writes_to_is_left_alone() {
    let (env, forge, _daemon) = mirrored("github", "metadata = [\"issues\"]");
    let archive = std::fs::File::open(env.pool().join("store/f/o/r1.tar")).unwrap();
    archive.lock().unwrap();
    let said = update(&env);
    assert_eq!((said["more"].as_bool(), said["error"].is_null()), (Some(true), true), "{said}");
    drop(archive);
    update(&env);
    assert_eq!(lines(&env, "issues"), expected(&forge, "issues"));
    assert!(env.weir(&["ls"]).contains("ok"));
}

#[test]
fn gitlab_tells_no_comments_to_those_it_does_not_know() {
    let (env, forge, _daemon) = mirrored("gitlab", "metadata = [\"issues\"]");
    let text = std::fs::read_to_string(env.pool().join("weir.toml")).unwrap();
    std::fs::write(env.pool().join("weir.toml"), text.replace("tokens = [\"t\"]", "")).unwrap();
    let said = update(&env);
    assert!(said["error"].is_null() && said["added"]["comments"].is_null(), "{said}");
    assert_eq!(lines(&env, "issues"), expected(&forge, "issues"));
}

#[test]
fn kills_cost_neither_what_is_there_nor_what_comes() {
    let (env, forge, _daemon) = mirrored("github", "metadata = [\"issues\", \"pulls\", \"releases\"]");
    let log = env.weir_json(&["log", "f/o/r1"]);
    let kills: u64 = std::env::var("WEIR_KILLS").map_or(20, |n| n.parse().unwrap());
    let clock =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed: u64 = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(clock);
    println!("WEIR_SEED={seed}");
    let mut rng = crate::common::Rng(seed | 1);
    for round in 0..kills {
        item(&mut forge.state().around, "issues", 1 + round % 350)["updated_at"] = json!(time(1000 + round));
        let mut command = env.weir_command(&["metadata", "update", "f/o/r1"]);
        let mut child =
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(rng.below(120)));
        child.kill().unwrap();
        child.wait().unwrap();
        env.weir(&["fsck"]);
        assert_eq!(env.weir_json(&["log", "f/o/r1"]), log, "WEIR_SEED={seed}, round {round}");
    }
    update(&env);
    for stream in STREAMS.iter().filter(|stream| forge.state().around.lists.contains_key(*stream)) {
        assert_eq!(lines(&env, stream), expected(&forge, stream), "WEIR_SEED={seed}: {stream}");
    }
}
