//! The first hour of a new user, and the messages about mistakes.

use crate::common::Env;

fn states(env: &Env, arguments: &[&str]) -> Vec<(String, String)> {
    let list = env.weir_json(&[&["ls"], arguments].concat());
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(|r| (text(&r["name"]), text(&r["state"]))).collect()
}

#[test]
fn what_is_no_repository_is_not_registered() {
    let env = Env::new();
    env.odd_repository("here.git");
    let here = env.path("here");
    env.weir(&["add", "--name", "a", here.to_str().unwrap()]);
    std::fs::create_dir(env.path("empty")).unwrap();
    for (url, words) in [
        ("github.com/git/git", "did you mean https://github.com/git/git?"),
        ("notaurl", "there is nothing at 'notaurl'"),
        ("/no/such/path", "there is nothing at"),
        (env.path("empty").to_str().unwrap(), "is no repository"),
        ("https://github.com/foo/bar/tree/main", "did you mean https://github.com/foo/bar?"),
        ("https://gitlab.com/a/b/c/-/issues", "did you mean https://gitlab.com/a/b/c?"),
        ("https://github.com/foo", "is an owner"),
    ] {
        let said = env.weir_fails(&["add", url]);
        assert!(said.contains(words), "{url}: {said}");
    }
    env.weir(&["add", "--force", "--name", "b", "/no/such/path"]);
    assert_eq!(states(&env, &[]).len(), 2);
}

#[test]
fn messages_about_mistyped_urls_show_no_password() {
    let env = Env::new();
    env.weir(&["init", "."]);
    let folder = env.path("folder");
    let folder = folder.to_str().unwrap();
    for url in [
        "https://user:s3cret@host.invalid/x",
        "https://s3cret:x-oauth-basic@host.invalid/x",
        "htps://user:s3cret@host.invalid/x",
        "https:/user:s3cret@host.invalid/x",
        "http//user:s3cret@host.invalid/x",
        "https://user:s3cret@ho st/x",
        "https://user:s3cret@host.invalid:99999/x",
        "postgres://user:s3cret@host.invalid/db",
        "user:s3cret@host.invalid/x",
    ] {
        for arguments in [
            &["show", url][..],
            &["mirror", url],
            &["rm", url],
            &["cat", url, "HEAD"],
            &["mine", url],
            &["query", url, "SELECT 1"],
            &["mount", url, folder],
            &["workspace", "add", url, folder],
        ] {
            let said = env.weir_fails(arguments);
            assert!(!said.contains("s3cret"), "{arguments:?}: {said}");
        }
        if !url.contains("host.invalid/x") {
            let said = env.weir_fails(&["add", url]);
            assert!(!said.contains("s3cret"), "{url}: {said}");
        }
    }
}

/// Copies the file at `path`, appends `more`, and returns the path of the copy.
fn fs_with(path: &std::path::Path, more: &[u8]) -> std::path::PathBuf {
    let copy = path.with_extension("more");
    std::fs::write(&copy, [&std::fs::read(path).unwrap()[..], more].concat()).unwrap();
    copy
}

#[test]
fn every_line_of_a_list_that_is_wrong_is_told_of() {
    let env = Env::new();
    let list = env.path("list");
    let text =
        "\u{feff}git://h/a.git\r\n# a comment\n\ngit://h/c.git # trailing\ngit://h/d.git name # trailing\n";
    std::fs::write(&list, text).unwrap();
    env.weir(&["add", "--from", list.to_str().unwrap()]);
    let names: Vec<String> = states(&env, &[]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["h/a", "h/c", "name"]);
    std::fs::write(
        &list,
        "git://h/b.git bad name\ngit://h/new.git\nftp://h/x\nhttp://user:secret@other/a.git h/a\ngit://h/x \
        y\ngit://h/z y\n",
    )
    .unwrap();
    let said = env.weir_fails(&["add", "--from", list.to_str().unwrap()]);
    for words in [
        ":1: unexpected 'name'",
        ":3: ",
        ":4: 'h/a' is taken: it is mirrored from git://h/a.git",
        ":6: 'y' is taken",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.contains("nothing was registered") && !said.contains("secret"), "{said}");
    assert_eq!(states(&env, &[]).len(), 3);
    // One line that is not UTF-8 does not hide the others.
    let bytes = fs_with(&list, b"git://h/caf\xe9.git\n");
    let said = env.weir_fails(&["add", "--from", bytes.to_str().unwrap()]);
    assert!(said.contains(":7: it is not UTF-8") && said.contains(":6: 'y' is taken"), "{said}");
    // With `--keep-going` the other lines are registered all the same.
    let output = env
        .weir_command(&["--json", "add", "--keep-going", "--from", list.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["new"], said["refused"].as_array().unwrap().len()),
        (&serde_json::json!(["h/new", "y"]), 4),
        "{said}"
    );
    assert_eq!(states(&env, &[]).len(), 5);
    env.weir(&["add", "--force", "--name", "p", "http://user:secret@h/p"]);
    let said = env.weir_fails(&["add", "--name", "p", "http://user:other@h/p"]);
    assert!(
        said.contains("mirrored from http://h/p") && !said.contains("secret") && !said.contains("other@"),
        "{said}"
    );
    let said = env.weir_json(&["add", "git://h/a.git", "git://h/e.git"]);
    assert_eq!((&said["added"], &said["new"][0]), (&1.into(), &"h/e".into()));
}

#[test]
fn states_are_told_as_they_are() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    for name in ["f/lost", "f/paused", "f/set-back", "f/well"] {
        env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
    }
    env.weir(&["add", "--force", "--name", "f/bad", "/no/such/path"]);
    env.weir_command(&["mirror"]).output().unwrap();
    env.git(&upstream, &["update-ref", "refs/heads/more", "HEAD"]);
    env.weir_command(&["mirror", "--all"]).output().unwrap();
    std::fs::remove_file(env.pool().join("store/f/lost.tar")).unwrap();
    env.weir(&["pause", "f/paused"]);
    env.weir(&["restore", "f/set-back@2"]);
    let is = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    let all = [
        is("f/bad", "failed"),
        is("f/lost", "missing"),
        is("f/paused", "paused"),
        is("f/set-back", "pinned"),
        is("f/well", "ok"),
    ];
    assert_eq!(states(&env, &[]), all);
    assert_eq!(states(&env, &["--state", "paused", "--state", "missing"]), [all[1].clone(), all[2].clone()]);
    assert_eq!(states(&env, &["--reverse", "-n", "1"]), [all[4].clone()]);
    assert_eq!(states(&env, &["f/p*", "f/well"]), [all[2].clone(), all[4].clone()]);
    assert_eq!(states(&env, &["--sort", "size", "-n", "5"]).last(), Some(&all[0]), "without an archive");
    let status = env.weir(&["status"]);
    assert!(status.contains("1 paused, 1 set back"), "{status}");
    // A pause for maintenance ends. A repository that was set back stays so.
    env.weir(&["pause", "*"]);
    assert!(env.weir(&["resume", "*"]).contains("5 resumed"));
    assert_eq!(states(&env, &["f/set-back"]), [is("f/set-back", "pinned")]);
    env.weir_command(&["mirror", "--all"]).output().unwrap();
    assert_eq!(env.weir_json(&["show", "f/set-back"])["seq"], 4);
    // `weir mirror` with its name mirrors it again, and says so.
    let output = env.weir_command(&["mirror", "f/set-back"]).output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("f/set-back was set back; it is mirrored again"),
        "{output:?}"
    );
    assert_eq!(states(&env, &["f/set-back"]), [is("f/set-back", "ok")]);
    assert_eq!(env.weir_json(&["show", "f/set-back"])["seq"], 5);
}

#[test]
fn what_was_set_back_time_and_again_follows_at_once() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "a", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    env.git(&upstream, &["update-ref", "refs/heads/more", "HEAD"]);
    env.weir(&["mirror", "--all"]);
    // Each restore writes under a new epoch. After several the epoch is ahead of the clock.
    for n in 0..8 {
        env.weir(&["restore", &format!("a@{}", 2 + n % 2)]);
    }
    env.weir(&["restore", "a@2", "--name", "o"]);
    assert!(env.weir(&["mirror", "o"]).contains("1 updated"));
    assert!(
        env.weir(&["mirror", "a"]).contains("1 updated")
            || env.weir(&["mirror", "a"]).contains("1 unchanged")
    );
    assert!(env.weir_json(&["ls", "o"])[0]["last_success"].is_i64(), "it was written down");
    // A missing archive is reported. Its repository is due, and is cloned again.
    std::fs::remove_file(env.pool().join("store/a.tar")).unwrap();
    assert!(env.weir_fails(&["log", "a"]).contains("the archive of 'a' is missing"));
    assert!(env.weir_fails(&["fsck", "a"]).contains("the next visit clones it again"));
    assert!(env.weir(&["mirror"]).contains("1 updated"));
    env.weir(&["fsck"]);
}

#[test]
fn paths_are_what_they_lead_to() {
    let env = Env::new();
    let upstream = env.odd_repository("deep/up.git");
    let round = upstream.join("../../deep/up.git");
    env.weir(&["add", "--name", "u", upstream.to_str().unwrap()]);
    assert!(env.weir(&["add", "--name", "u", round.to_str().unwrap()]).contains("0 added, 1 there already"));
    for name in ["a.bundle", "a.tar", "HEAD"] {
        std::fs::write(env.path(name), "something else").unwrap();
        let said = env.weir_fails(&["add", "--name", "x", env.path(name).to_str().unwrap()]);
        assert!(said.contains("is no repository"), "{name}: {said}");
    }
}

#[test]
fn what_names_nothing_is_said() {
    let env = Env::new();
    env.weir(&["add", "git://h/o/a.git", "git://h/o/b.git", "git://h/c.git"]);
    assert!(env.weir_fails(&["errors", "Gone"]).contains(
        "'Gone' matches no repository and names no class of failures; there are network, slow, server,"
    ));
    assert_eq!(env.weir(&["errors", "gone"]), "");
    assert!(!env.weir_command(&["hint", "nosuch"]).status().unwrap().success());
    assert!(env.weir(&["hint", "nosuch", "h/c"]).contains("unknown: nosuch"));
    env.weir(&["set", "--priority", "2", "h/c"]);
    assert_eq!(env.weir_json(&["show", "h/c"])["priority"], 2);
    env.weir(&["set", "--priority", "default", "h/c"]);
    assert_eq!(env.weir_json(&["show", "h/c"])["priority"], 0);
    assert!(
        env.weir_fails(&["set", "--priority", "9", "h/c"])
            .contains("either a number from 0 to 3, or default")
    );
    // The name of a folder does not stand for the repositories below it: a mistake would cost many.
    assert!(env.weir_fails(&["rm", "h/o"]).contains("'h/o' is not a repository, but matches 2"));
    assert!(env.weir_fails(&["show", "h/o"]).contains("'h/o' is not a repository, but matches 2"));
    env.weir(&["rm", "h/o/*"]);
    assert_eq!(states(&env, &[]).len(), 1);
}
