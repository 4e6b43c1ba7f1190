//! LFS files of repositories over ssh: fetched from the URL that the other end names, or over ssh itself.

use std::io::Write;
use std::path::PathBuf;

use crate::common::lfs::{Upstream, lfs_objects, noise, sha256};
use crate::common::{Env, Http};

#[test]
fn over_ssh_the_other_end_says_where_they_are() {
    let first = Env::new();
    first.configure("mirror", "lfs = true");
    let upstream = Upstream::new(&first, "up.git");
    let file = noise(1, 5000);
    upstream.put(&file);
    upstream.commit(&first, &[&file]);
    first.weir(&["add", "--name", "r", upstream.0.to_str().unwrap()]);
    let secret = "\n[[access.rules]]\nrepositories = ['r']\npublic = false\ntokens = \
        ['ci']\n[[access.tokens]]\nname = 'ci'\n";
    let config = first.pool().join("weir.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, format!("{text}{secret}sha256 = '{}'\n", sha256(b"open"))).unwrap();
    first.weir(&["mirror"]);
    let server = Http::serve(&first, &[]);
    // The answer of a forge's git-lfs-authenticate, from a host that is not a forge.
    let env = Env::new();
    let told = |token: &str| {
        format!(
            r#"{{"href":"{}.git/info/lfs","header":{{"Authorization":"Bearer {token}"}}}}"#,
            server.url("r")
        )
    };
    let ssh = |answer: &str| {
        let script = env.path("ssh");
        let text = format!(
            "#!/bin/sh\nfor last; do :; done\ncase $last in\n\"git-lfs-authenticate '/srv/r' download\") \
            {answer};;\n*) eval \"$last\";;\nesac\n"
        );
        std::fs::write(&script, text.replace("/srv/r", upstream.0.to_str().unwrap())).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    let script = env.path("ssh");
    env.configure("transport", &format!("ssh_command = '{}'", script.display()));
    env.configure("mirror", "lfs = true\nretry = '1s'");
    env.weir(&["add", "--name", "r", &format!("ssh://host{}", upstream.0.display())]);
    // The answer of a shell that lacks the command does not mean that the repository is gone.
    ssh("echo 'sh: git-lfs-authenticate: command not found' >&2; exit 127");
    let said = env.weir_command(&["mirror"]).output().unwrap();
    assert!(
        said.status.success() && String::from_utf8_lossy(&said.stderr).contains("command not found"),
        "{said:?}"
    );
    assert_eq!(env.weir_json(&["show", "r"])["error_class"], serde_json::Value::Null);
    ssh(&format!("echo '{}'", told("shut")));
    let said = env.weir(&["mirror", "--all"]);
    assert!(
        said.contains("0 objects, 0 B, the next visit tries again"),
        "a refusal may be of a token that has run out: {said}"
    );
    ssh(&format!("echo '{}'", told("open")));
    env.weir(&["mirror", "--all"]);
    assert_eq!(lfs_objects(&env, "r"), (1, 5000));
}

/// A mirror of a repository with files that Git LFS keeps, and a program that stands in for ssh to its host.
struct OverSsh {
    env: Env,
    upstream: Upstream,
    files: [Vec<u8>; 3],
    ssh: PathBuf,
}

impl OverSsh {
    /// Mirrors a new repository as `r`.
    fn new() -> OverSsh {
        let env = Env::new();
        env.configure("mirror", "lfs = true");
        let upstream = Upstream::new(&env, "up.git");
        let files = [noise(1, 3 << 20), noise(2, 100), noise(3, 65_516)];
        for data in &files {
            upstream.put(data);
        }
        upstream.commit(&env, &[&files[0], &files[1], &files[2]]);
        env.weir(&["add", "--name", "r", upstream.0.to_str().unwrap()]);
        env.weir(&["mirror"]);
        let ssh = env.path("ssh");
        let program = format!("{} --pool {} shell", env!("CARGO_BIN_EXE_weir"), env.pool().display());
        std::fs::write(
            &ssh,
            format!("#!/bin/sh\nfor last; do :; done\nSSH_ORIGINAL_COMMAND=\"$last\" exec {program}\n"),
        )
        .unwrap();
        std::fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        OverSsh { env, upstream, files, ssh }
    }
}

#[test]
fn git_lfs_has_objects_over_ssh_alone() {
    if weir_testing::program("git-lfs").is_none() {
        return;
    }
    let OverSsh { env, files, ssh, .. } = OverSsh::new();
    let clone = env.path("clone");
    let git = |args: &[&str]| {
        let output = env.git_command(&clone, args).env("GIT_SSH", &ssh).output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    std::fs::create_dir(&clone).unwrap();
    for args in [
        &["clone", "-q", "host:r", "."][..],
        &["lfs", "install", "--local"],
        &["lfs", "pull"],
        &["lfs", "fsck"],
    ] {
        let (went_well, said) = git(args);
        assert!(went_well, "{args:?}: {said}");
    }
    for (n, data) in files.iter().enumerate() {
        assert!(std::fs::read(clone.join(format!("f{n}.bin"))).unwrap() == *data);
    }
    // A mirror accepts no uploads.
    std::fs::write(clone.join("new.bin"), b"new").unwrap();
    env.git(&clone, &["add", "new.bin"]);
    env.git(&clone, &["commit", "-q", "-m", "new"]);
    let (went_well, said) = git(&["lfs", "push", "--all", "origin"]);
    assert!(!went_well && said.contains("this is a mirror"), "{said}");
}

#[test]
fn another_weir_has_objects_over_ssh_alone() {
    let OverSsh { env, upstream, files, ssh } = OverSsh::new();
    let second = Env::new();
    second.configure("transport", &format!("ssh_command = '{}'", ssh.display()));
    second.configure("mirror", "lfs = true");
    second.weir(&["add", "--name", "r", "ssh://host/r"]);
    let said = second.weir(&["mirror"]);
    assert!(said.contains("lfs        r  3 objects, 3.1 MiB"), "{said}");
    second.weir(&["fsck"]);
    let lost = noise(9, 400);
    upstream.commit(&env, &[&files[0], &lost]);
    env.weir(&["mirror", "--all"]);
    let said = second.weir(&["mirror", "--all"]);
    assert!(said.contains("lfs        r  0 objects, 0 B, 1 missing"), "{said}");
    upstream.put(&lost);
    upstream.commit(&env, &[&files[0], &lost, b"more"]);
    upstream.put(b"more");
    env.weir(&["mirror", "--all"]);
    let said = second.weir(&["mirror", "--all"]);
    assert!(said.contains("lfs        r  2 objects"), "{said}");
}

#[test]
fn what_is_wrong_with_a_request_over_ssh_is_said_in_answer_to_it() {
    let env = OverSsh::new().env;
    // The conversation goes on after each error.
    let ask = |command: &str, lines: &[u8]| {
        use std::process::Stdio;
        let mut child = env
            .weir_command(&["shell", "-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(lines).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let absent = sha256(b"absent");
    let line = |text: &str| format!("{:04x}{text}\n", text.len() + 5);
    let requests = [
        line("version 2") + "0000",
        line("version 1") + "0000",
        line("batch") + &line("hash-algo=sha512") + "00010000",
        line("batch") + "0001" + &line(&format!("{absent} 5")) + "0000",
        line("batch") + "0001" + &line("x 1") + "0000",
        line(&format!("get-object {absent}")) + "0000",
        line("get-object x") + "0000",
        line("put-object x") + "00010000",
        line("what") + "0000",
        line("quit") + "0000",
    ];
    let (went_well, said) = ask("git-lfs-transfer 'r' download", requests.concat().as_bytes());
    let statuses: Vec<&str> = said.split("status ").skip(1).map(|rest| &rest[..3]).collect();
    assert_eq!(statuses, ["400", "200", "409", "200", "422", "404", "404", "403", "400", "200"], "{said}");
    assert!(
        went_well && said.contains(&format!("{absent} 5 download\n")) && said.contains("not mirrored here"),
        "{said}"
    );
    for (lines, why) in
        [(&b"0005"[..], "cut off"), (b"zzzz", "no packet"), (b"0002", "a packet out of place")]
    {
        assert!(!ask("git-lfs-transfer r download", lines).0, "{why}");
    }
    assert!(ask("git-lfs-transfer r download", b"").0, "whoever goes without a word goes");
    for command in
        ["git-lfs-transfer nothing download", "git-lfs-transfer r upload", "git-lfs-authenticate r download"]
    {
        assert!(!ask(command, b"").0, "{command}");
    }
}

#[test]
fn what_a_host_says_wrongly_over_ssh_costs_only_the_objects() {
    let env = Env::new();
    let upstream = Upstream::new(&env, "up.git");
    upstream.commit(&env, &[b"hello"]);
    let oid = sha256(b"hello");
    let (script, said) = (env.path("ssh"), env.path("said"));
    let transfer = format!("cat {}; sleep 1", said.display());
    let text = format!(
        "#!/bin/sh\nfor last; do :; done\ncase $last in git-lfs-a*) exit 1;; git-lfs-t*) {transfer};; *) \
        eval \"$last\";; esac\n"
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    env.configure("transport", &format!("ssh_command = '{}'", script.display()));
    env.configure("mirror", "lfs = true");
    env.weir(&["add", "--name", "r", &format!("ssh://host{}", upstream.0.display())]);
    let line = |text: &str| format!("{:04x}{text}\n", text.len() + 5);
    let hello = line("version=1") + "0000" + &line("status 200") + "0000";
    let batch = line("status 200") + "0001" + &line(&format!("{oid} 5 download id=7")) + "0000";
    let object = |size: &str, data: &str| line("status 200") + &line(size) + "0001" + data + "0000";
    for (wrong, told) in [
        (String::new(), "ended without a word"),
        (line("version=2") + "0000", "does not speak version 1"),
        (
            line("version=1") + "0000" + &line("status 500") + "0001" + &line("out of order") + "0000",
            "HTTP status 500: out of order",
        ),
        (line("version=1").repeat(400_000), "an answer that does not end"),
        (hello.clone() + &line("what") + "0000", "without a status"),
        (hello.clone() + &line("status 200") + "00010000", "says nothing of it"),
        (
            hello.clone() + &line("status 200") + "0001" + &line(&format!("{oid} 5 noop")) + "0000",
            "does not have it",
        ),
        (hello.clone() + &batch + &line("status 200") + "00010000", "without its size"),
        (hello.clone() + &batch + &object("size=5", "000ahello!"), "another size"),
        (hello.clone() + &batch + &object("size=5", "0008hell"), "another size"),
        (hello.clone() + &batch + &object("size=5", "0004"), "another size"),
        (hello.clone() + &batch + &object("size=5", "0009jello"), "sent wrong content"),
        (hello.clone() + &batch + &object("size=5", "0009hello")[..30], "ended without a word"),
    ] {
        std::fs::write(&said, &wrong).unwrap();
        let output = env.weir_command(&["mirror", "--all"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.contains(told), "{told}: {stderr}");
        assert_eq!(lfs_objects(&env, "r").0, 0);
        // A change gives the next visit a reason to look: it asks again for an absent object when the
        // repository changes.
        let head = env.git(&upstream.0, &["rev-parse", "HEAD"]);
        let next = env.git(&upstream.0, &["commit-tree", "-p", &head, "-m", told, "HEAD^{tree}"]);
        env.git(&upstream.0, &["update-ref", "refs/heads/main", &next]);
    }
    std::fs::write(&said, hello + &batch + &object("size=5", "0007hel0006lo")).unwrap();
    env.weir(&["mirror", "--all"]);
    assert_eq!(lfs_objects(&env, "r"), (1, 5));
}
