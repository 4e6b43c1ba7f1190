//! Objects that only removed history reaches are sent to no client, however it asks for them.

use crate::common::{Env, Http};

fn line(text: &str) -> Vec<u8> {
    format!("{:04x}{text}\n", text.len() + 5).into_bytes()
}

/// Returns the answer to a fetch in protocol v2.
fn fetched(server: &Http, name: &str, lines: &[String]) -> String {
    negotiated(server, name, &[lines, &["done".to_owned()]].concat())
}

/// Returns the answer to a fetch in protocol v2, which ends with a pack only if `lines` do so.
fn negotiated(server: &Http, name: &str, lines: &[String]) -> String {
    let mut body = line("command=fetch");
    body.extend_from_slice(b"0001");
    lines.iter().for_each(|text| body.extend(line(text)));
    body.extend_from_slice(b"0000");
    let head = format!(
        "POST /{name}/git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\nGit-Protocol: version=2\r\n"
    );
    let kind = "Content-Type: application/x-git-upload-pack-request\r\n";
    let mut request = format!("{head}{kind}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    request.extend(body);
    server.ask(&request)
}

#[test]
fn a_commit_that_is_only_named_is_not_deepened() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let commit = |name: &str, parents: &[&str]| {
        let blob = env.git_with(&up, &["hash-object", "-w", "--stdin"], name.as_bytes());
        let tree = env.git_with(&up, &["mktree"], format!("100644 blob {blob}\tf\n").as_bytes());
        let parents: Vec<&str> = parents.iter().flat_map(|p| ["-p", p]).collect();
        env.git(&up, &[&["commit-tree", "-m", name, &tree], &parents[..]].concat())
    };
    let base = commit("base", &[]);
    let secret = commit("secret", &[&base]);
    let removed = commit("removed", &[&secret]);
    let shown = commit("shown", &[&base]);
    env.git(&up, &["update-ref", "refs/heads/main", &removed]);
    env.mirror_new("r", &up);
    env.git(&up, &["update-ref", "refs/heads/main", &shown]);
    env.weir(&["mirror", "--all"]);
    env.git(env.dir.path(), &["clone", "-q", "--bare", up.to_str().unwrap(), "fork.git"]);
    env.weir(&["add", "--name", "fork", "--reference", "r", env.path("fork.git").to_str().unwrap()]);
    env.weir(&["mirror", "fork"]);
    let server = Http::serve(&env, &[]);
    for name in ["r", "fork"] {
        for deepen in
            [&["deepen 2147483647"][..], &["deepen 5"], &["deepen 1", "deepen-relative"], &["deepen-since 1"]]
        {
            let ask = |shallow: &str| {
                let mut lines = vec![format!("want {shown}"), format!("shallow {shallow}")];
                lines.extend(deepen.iter().map(|s| (*s).to_owned()));
                fetched(&server, name, &lines)
            };
            let answer = ask(&removed);
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.contains("PACK"),
                "{name} {deepen:?}: {answer}"
            );
            assert!(!answer.contains("unshallow"), "{name} {deepen:?}: {answer}");
            // A commit that refs reach is deepened as usual.
            let answer = ask(&shown);
            assert!(answer.contains(&format!("unshallow {shown}")), "{name} {deepen:?}: {answer}");
        }
    }
}

/// Returns the answer to a request in protocol v0.
fn fetched_v0(server: &Http, name: &str, lines: &[String]) -> String {
    let (wants, rest) = lines.split_at(1);
    let mut body = line(&format!("{} multi_ack_detailed no-done side-band-64k ofs-delta", wants[0]));
    body.extend_from_slice(b"0000");
    rest.iter().for_each(|text| body.extend(line(text)));
    body.extend_from_slice(b"0000");
    let kind = "Content-Type: application/x-git-upload-pack-request\r\n";
    let head = format!("POST /{name}/git-upload-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{kind}");
    let mut request = format!("{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    request.extend(body);
    server.ask(&request)
}

/// Checks that haves are acknowledged only if a client could fetch them.
#[test]
fn a_have_tells_nothing_of_what_was_removed() {
    let env = Env::new();
    let up = env.init_bare("up.git");
    let kept = env.commit_file(&up, "refs/heads/main", "a", b"1");
    let removed = env.commit_file(&up, "refs/heads/main", "a", b"2");
    let tree = env.git(&up, &["rev-parse", "main^{tree}"]);
    env.mirror_new("r", &up);
    env.git(&up, &["update-ref", "refs/heads/main", &kept]);
    let shown = env.commit_file(&up, "refs/heads/main", "b", b"3");
    env.weir(&["mirror", "--all"]);
    let server = Http::serve(&env, &[]);
    let absent = "1234567890123456789012345678901234567890";
    for ids in [[&kept, &removed], [&removed, &kept], [&removed, &removed]] {
        let mut lines = vec![format!("want {shown}")];
        lines.extend(ids.iter().map(|id| format!("have {id}")));
        lines.extend([&tree, &absent.to_owned()].map(|id| format!("have {id}")));
        let is_common = ids.contains(&&kept);
        let answer = fetched_v0(&server, "r", &lines);
        assert_eq!(answer.contains(&format!("ACK {kept} common")), is_common, "{answer}");
        assert!(!answer.contains(&removed) || answer.contains(&format!("ACK {removed} ready")), "{answer}");
        assert!(!answer.contains(&format!("{removed} common")), "{answer}");
        assert!(!answer.contains(&format!("{tree} common")), "{answer}");
        // The same in v2, where the client waits for what is in common.
        lines.push("wait-for-done".to_owned());
        let answer = negotiated(&server, "r", &lines);
        assert_eq!(answer.contains(&format!("ACK {kept}")), is_common, "{answer}");
        assert_eq!(answer.contains("NAK"), !is_common, "{answer}");
        assert!(!answer.contains(&removed) && !answer.contains(&tree), "{answer}");
    }
    // A pack is not built on it: the client may not have what it names.
    let lines = [format!("want {shown}"), format!("have {removed}"), "thin-pack".to_owned()];
    let answer = fetched(&server, "r", &lines);
    let alone = fetched(&server, "r", &[format!("want {shown}"), "thin-pack".to_owned()]);
    assert_eq!(answer.len(), alone.len());
}
