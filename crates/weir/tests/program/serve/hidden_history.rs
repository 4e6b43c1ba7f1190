//! Objects that only removed history reaches are sent to no client, however it asks for them.

use crate::common::{Env, Http};

fn line(text: &str) -> Vec<u8> {
    format!("{:04x}{text}\n", text.len() + 5).into_bytes()
}

/// Returns the answer to a fetch in protocol v2.
fn fetched(server: &Http, name: &str, lines: &[String]) -> String {
    let mut body = line("command=fetch");
    body.extend_from_slice(b"0001");
    lines.iter().for_each(|text| body.extend(line(text)));
    body.extend(line("done"));
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
    env.weir(&["add", "--name", "r", up.to_str().unwrap()]);
    env.weir(&["mirror"]);
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
