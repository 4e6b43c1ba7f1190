//! Bodies of an archive as bundles, one for each update.

use crate::common::{Env, Http};
use std::path::Path;

fn commit(env: &Env, at: &Path, branch: &str, file: &str) {
    let previous = env.git(at, &["for-each-ref", "--format=%(refname)", &format!("refs/heads/{branch}")]);
    let from = if previous.is_empty() { String::new() } else { format!("from refs/heads/{branch}^0\n") };
    let data = "line\n".repeat(200) + file;
    let stream = format!(
        "commit refs/heads/{branch}\ncommitter C <c@x> 1700000000 +0000\ndata 1\nx\n{from}M 644 inline \
        {file}\ndata {}\n{data}\n",
        data.len()
    );
    env.git_with(at, &["fast-import", "--quiet", "--force"], stream.as_bytes());
}

/// Returns the file and the token of each bundle in the list, in its order.
fn listed(server: &Http) -> Vec<(String, u64)> {
    let (head, list) = server.get("/up/weir/bundles", "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let list = String::from_utf8(list).unwrap();
    assert!(list.contains("heuristic = creationToken") && list.contains("mode = all"), "{list}");
    let values = |key: &str| -> Vec<String> {
        list.lines()
            .filter_map(|l| l.trim().strip_prefix(key)?.strip_prefix(" = ").map(str::to_owned))
            .collect()
    };
    values("uri").into_iter().zip(values("creationToken").iter().map(|t| t.parse().unwrap())).collect()
}

#[test]
fn each_update_is_a_bundle_that_builds_on_those_before() {
    let env = Env::new();
    let upstream = env.init_bare("up.git");
    commit(&env, &upstream, "main", "a");
    commit(&env, &upstream, "side", "b");
    env.weir(&["add", "--name", "up", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    // One branch goes on, another is deleted while a tag keeps its commits, and a third is new.
    commit(&env, &upstream, "main", "c");
    env.weir(&["mirror", "up"]);
    env.git(&upstream, &["tag", "kept", "side"]);
    env.git(&upstream, &["branch", "-qD", "side"]);
    commit(&env, &upstream, "main", "d");
    env.weir(&["mirror", "up"]);
    env.git(&upstream, &["branch", "new", "main~1"]);
    commit(&env, &upstream, "new", "e");
    env.weir(&["mirror", "up"]);

    let server = Http::serve(&env, &[]);
    let bundles = listed(&server);
    assert_eq!(bundles.len(), 4);
    assert!(bundles[0].1 == 1 && bundles.is_sorted_by(|a, b| a.1 < b.1), "{bundles:?}");
    let clone = env.init_bare("clone.git");
    for (n, (file, _)) in bundles.iter().enumerate() {
        let (head, bundle) = server.get(&format!("/up/weir/{file}"), "");
        assert!(
            head.contains("content-type: application/x-git-bundle") && head.contains("accept-ranges: bytes"),
            "{head}"
        );
        assert!(
            !String::from_utf8_lossy(&bundle).contains("refs/heads/side"),
            "names that are gone are not told"
        );
        assert_eq!(
            n > 0,
            String::from_utf8_lossy(&bundle).lines().nth(1).unwrap().starts_with('-'),
            "needs those before"
        );
        let part = server.get(&format!("/up/weir/{file}"), "Range: bytes=20-39\r\n").1;
        assert_eq!(part, bundle[20..40]);
        let path = env.path(&format!("{n}.bundle"));
        std::fs::write(&path, bundle).unwrap();
        env.git(&clone, &["bundle", "verify", "-q", path.to_str().unwrap()]);
        env.git(&clone, &["fetch", "-q", path.to_str().unwrap(), "+refs/heads/*:refs/bundles/*"]);
    }
    // git has nothing left to fetch.
    let said = env
        .git_command(&clone, &["fetch", &server.url("up"), "+refs/*:refs/*"])
        .env("GIT_TRACE_PACKET", "1")
        .output()
        .unwrap();
    assert!(
        said.status.success() && !String::from_utf8_lossy(&said.stderr).contains("fetch> want"),
        "{said:?}"
    );
    env.git(&clone, &["fsck", "--strict", "--connectivity-only"]);
    assert_eq!(
        env.git(&clone, &["rev-parse", "main", "new", "kept"]),
        env.git(&upstream, &["rev-parse", "main", "new", "kept"])
    );
    // The protocol's bundle-uri command lists the same, with keys in lower case: git's clients know no
    // others.
    let question = b"0017command=bundle-uri\n00010000";
    let head = "POST /up/git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\nGit-Protocol: \
        version=2\r\n\
                Content-Type: application/x-git-upload-pack-request\r\nContent-Length: 31\r\n\r\n";
    let told = server.ask(&[head.as_bytes(), question].concat());
    let name = bundles[3].0.strip_suffix(".bundle").unwrap();
    for line in [
        "bundle.heuristic=creationToken".to_owned(),
        format!("bundle.{name}.uri=weir/{name}.bundle"),
        format!("bundle.{name}.creationtoken={}", bundles[3].1),
    ] {
        assert!(told.contains(&line), "{line}: {told}");
    }
    env.git(env.dir.path(), &["-c", "transfer.bundleURI=true", "clone", "-q", &server.url("up"), "told"]);
    env.git(&env.path("told"), &["fsck", "--strict"]);
    drop(server);

    // Compaction makes one body again. Its bundle has the lowest token, so clients that have it do not fetch
    // it again.
    env.weir(&["compact", "up"]);
    commit(&env, &upstream, "main", "f");
    env.weir(&["mirror", "up"]);
    let server = Http::serve(&env, &[]);
    let after = listed(&server);
    assert!(after.len() == 2 && after[0].1 == 1 && after[1].1 > bundles[3].1, "{after:?}");
    drop(server);

    // What a force-push removed is in no bundle.
    env.git(&upstream, &["update-ref", "refs/heads/main", "main~1"]);
    commit(&env, &upstream, "main", "g");
    env.weir(&["mirror", "up"]);
    let server = Http::serve(&env, &[]);
    for path in ["/up/weir/bundles".to_owned(), format!("/up/weir/{}", after[1].0)] {
        assert!(server.get(&path, "").0.starts_with("HTTP/1.1 404 "), "{path}");
    }
}
