//! `weir check` and `weir config check` name problems before a visit or a client meets them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::common::{Env, Http};
use weir_testing::free_port;

/// Returns the exit code of `weir check`, and the problems that it finds: level, check and message.
fn findings(env: &Env, arguments: &[&str]) -> (Option<i32>, Vec<(String, String, String)>) {
    let output = env.weir_command(&[&["--json", "check"], arguments].concat()).output().unwrap();
    let found: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let text = |finding: &serde_json::Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let all = found.iter().map(|f| (text(f, "level"), text(f, "check"), text(f, "message")));
    (output.status.code(), all.filter(|f| f.0 != "ok").collect())
}

fn assert_found(found: &[(String, String, String)], level: &str, check: &str, words: &[&str]) {
    let is_it = |f: &&(String, String, String)| {
        f.0 == level && f.1 == check && words.iter().all(|word| f.2.contains(word))
    };
    assert!(found.iter().any(|f| is_it(&f)), "no {level} of {check} with {words:?}: {found:#?}");
}

#[test]
fn a_pool_in_order_is_said_to_be() {
    let env = Env::new();
    env.odd_repository("up.git");
    let daemon = env.git_daemon(&[]);
    env.weir(&["add", "--name", "a", &daemon.url("up.git")]);
    env.weir(&["mirror"]);
    let said = env.weir(&["check"]);
    assert!(
        said.contains("(1 repository) answers")
            && said.contains("1 present")
            && said.ends_with("0 errors, 0 warnings\n"),
        "{said}"
    );
    assert_eq!(findings(&env, &[]), (Some(0), Vec::new()));
    assert!(!env.weir(&["check", "--offline"]).contains("answers"));
}

#[test]
fn what_is_wrong_with_archives_is_named() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    for name in ["whole", "f/gone", "short", "stranger", "healed"] {
        env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
    }
    env.weir(&["mirror"]);
    let store = env.pool().join("store");
    // The catalog forgets the repository, but its archive stays.
    env.weir(&["rm", "stranger"]);
    fs::remove_file(store.join("f/gone.tar")).unwrap();
    fs::File::options().write(true).open(store.join("short.tar")).unwrap().set_len(4096).unwrap();
    fs::write(store.join("healed.tar.damaged-2"), "kept").unwrap();
    fs::write(store.join("notes.txt"), "not weir's").unwrap();
    let (code, found) = findings(&env, &["--offline"]);
    assert_eq!((code, found.len()), (Some(1), 4), "{found:#?}");
    assert_found(&found, "error", "archives", &["the archive of 'f/gone' is missing", "weir mirror f/gone"]);
    assert_found(
        &found,
        "error",
        "archives",
        &["the archive of 'short' is truncated", "weir fsck --repair short"],
    );
    assert_found(&found, "warning", "archives", &["does not know", "stranger.tar", "weir adopt"]);
    assert_found(&found, "warning", "archives", &["healed.tar.damaged-2", "4 B"]);
    // Every remedy that is named helps.
    env.weir(&["adopt"]);
    env.weir(&["mirror", "f/gone"]);
    env.weir_command(&["fsck", "--repair", "short"]).output().unwrap();
    fs::remove_file(store.join("healed.tar.damaged-2")).unwrap();
    let (_, found) = findings(&env, &["--offline"]);
    assert!(
        found.iter().all(|f| f.2.contains("short.tar.")),
        "what is left is what was kept of it: {found:#?}"
    );
}

#[test]
fn many_of_a_kind_are_counted() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    for n in 0..5 {
        env.weir(&["add", "--name", &format!("r{n}"), upstream.to_str().unwrap()]);
    }
    env.weir(&["mirror"]);
    for n in 0..5 {
        fs::remove_file(env.pool().join(format!("store/r{n}.tar"))).unwrap();
    }
    let (_, found) = findings(&env, &["--offline", "--max-count", "2"]);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert_found(&found, "error", "archives", &["3 more that are missing"]);
    let said =
        String::from_utf8(env.weir_command(&["check", "--offline", "-n", "0"]).output().unwrap().stdout)
            .unwrap();
    assert!(said.contains("5 more that are missing") && said.ends_with("5 errors, 0 warnings\n"), "{said}");
    // The problems of hosts are counted, too.
    for n in 0..5 {
        env.weir(&["add", "--name", &format!("h{n}"), &format!("git://127.0.0.1:{}/x", free_port())]);
    }
    let (_, found) = findings(&env, &["--max-count", "2"]);
    assert_eq!(found.iter().filter(|f| f.1 == "host").count(), 3, "{found:#?}");
}

#[test]
fn what_is_no_archive_and_what_is_no_catalog_is_said() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    for name in ["folder", "pipe"] {
        env.weir(&["add", "--name", name, upstream.to_str().unwrap()]);
    }
    env.weir(&["mirror"]);
    let store = env.pool().join("store");
    for name in ["folder.tar", "pipe.tar"] {
        fs::rename(store.join(name), store.join(name).with_extension("kept")).unwrap();
    }
    fs::create_dir(store.join("folder.tar")).unwrap();
    assert!(weir_testing::command("mkfifo").arg(store.join("pipe.tar")).status().unwrap().success());
    fs::copy(store.join("pipe.kept"), store.join("a@name.tar")).unwrap();
    let (_, found) = findings(&env, &["--offline"]);
    assert_found(&found, "error", "archives", &["'folder' is not a file", "weir mirror folder"]);
    assert_found(&found, "error", "archives", &["'pipe' is not a file"]);
    assert_found(&found, "warning", "archives", &["a@name.tar", "rename the file"]);
    // weir does not wait for a process to write into the pipe.
    let said = env.weir_fails(&["mirror", "--all"]);
    assert!(said.matches("it is no ordinary file").count() == 2 && said.contains("2 failed"), "{said}");
    fs::remove_file(store.join("pipe.tar")).unwrap();
    env.weir(&["mirror", "pipe"]);
    // `weir check` names the remedy for a damaged catalog, where other commands only fail.
    let catalog = env.pool().join("catalog.db");
    for file in ["catalog.db-wal", "catalog.db-shm"] {
        let _ = fs::remove_file(env.pool().join(file));
    }
    fs::write(&catalog, "no catalog".repeat(1000)).unwrap();
    let (code, found) = findings(&env, &[]);
    assert_eq!(code, Some(1));
    assert_found(&found, "error", "pool", &["file is not a database", "weir init", "weir adopt"]);
    fs::remove_file(catalog).unwrap();
    env.weir(&["init"]);
    env.weir_command(&["adopt"]).output().unwrap();
    assert_eq!(env.weir_json(&["show", "pipe"])["state"], "ok");
}

#[test]
fn hosts_and_forges_are_asked_once() {
    let env = Env::new();
    env.odd_repository("up.git");
    let daemon = env.git_daemon(&[]);
    let dead = free_port();
    env.weir(&["add", "--name", "good", &daemon.url("up.git")]);
    env.weir(&["add", "--name", "bad", &daemon.url("none.git")]);
    env.weir(&["add", "--name", "dead", &format!("git://127.0.0.1:{dead}/x")]);
    env.weir_fails(&["mirror"]);
    let path = env.pool().join("weir.toml");
    let text = fs::read_to_string(&path).unwrap();
    let forge = format!("\n[[forge]]\ntype = 'gitea'\nname = 'f'\nurl = 'http://127.0.0.1:{dead}'\n");
    fs::write(&path, text + &forge).unwrap();
    let (code, found) = findings(&env, &[]);
    // One repository that can be reached is enough for its host.
    assert_eq!((code, found.len()), (Some(1), 2), "{found:#?}");
    assert_found(
        &found,
        "error",
        "host",
        &[&format!("git://127.0.0.1:{dead} (1 repository)"), "'dead'", "(network)"],
    );
    assert_found(&found, "error", "forge", &["f (http://127.0.0.1"]);
    env.weir(&["rm", "good"]);
    let (_, found) = findings(&env, &[]);
    assert_found(&found, "warning", "host", &["answers, but not for 'bad'", "(gone)"]);
}

#[test]
fn a_certificate_that_is_not_believed_is_a_class_with_a_remedy() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    let (certificate, key) = env.certificate();
    let address = format!("127.0.0.1:{}", free_port());
    let files = ["--tls-certificate", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server = Http::serve(&env, &[&["--https", &address], &files[..]].concat());
    let other = Env::new();
    let url = format!("https://{address}/odd");
    other.weir(&["add", "--name", "odd", &url]);
    let said = other.weir_fails(&["mirror"]);
    assert!(
        said.contains(&format!("the certificate of {address} is not trusted"))
            && said.contains("(certificate)"),
        "{said}"
    );
    let said = other.weir(&["errors", "certificate"]);
    assert!(said.contains("transport.ca_file"), "{said}");
    let (code, found) = findings(&other, &[]);
    assert_eq!(code, Some(1));
    assert_found(&found, "error", "host", &[&url[..url.len() - 4], "transport.ca_file"]);
    other.configure("transport", &format!("ca_file = '{}'", certificate.display()));
    other.weir(&["mirror", "--all"]);
    assert_eq!(findings(&other, &[]), (Some(0), Vec::new()));
    drop(server);
}

#[test]
fn a_server_whose_very_certificate_is_named_is_believed_as_git_believes_it() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    env.weir(&["add", "--name", "odd", upstream.to_str().unwrap()]);
    env.weir(&["mirror"]);
    // openssl's usual recipe makes a certificate that claims to be an authority's.
    let (own, own_key) = env.certificate_with("own", &["subjectAltName=IP:127.0.0.1"]);
    let (other_name, other_key) = env.certificate_with("other", &["subjectAltName=DNS:example.org"]);
    let client = Env::new();
    let path = client.pool().join("weir.toml");
    for (certificate, key, trusted, said) in [
        (&own, &own_key, &own, None),
        (&other_name, &other_key, &other_name, Some("it is for another name")),
        (&own, &own_key, &other_name, Some("not trusted")),
    ] {
        let address = format!("127.0.0.1:{}", free_port());
        let files = ["--tls-certificate", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
        let server = Http::serve(&env, &[&["--https", &address], &files[..]].concat());
        let url = format!("https://{address}/odd");
        let git = client
            .git_command(client.dir.path(), &["ls-remote", &url])
            .env("GIT_SSL_CAINFO", trusted)
            .output()
            .unwrap();
        assert_eq!(git.status.success(), said.is_none(), "{git:?}");
        client.weir(&["add", "--name", &address.replace(':', "-"), &url]);
        let forge = format!("[[forge]]\ntype = 'gitea'\nname = 'f'\nurl = 'https://{address}'\n");
        fs::write(&path, format!("[transport]\nca_file = '{}'\n{forge}", trusted.display())).unwrap();
        let (_, found) = findings(&client, &[]);
        let of =
            |check: &str| found.iter().find(|f| f.1 == check && f.2.contains(&address)).map(|f| f.2.clone());
        match said {
            // There is no forge at this address, but the server answers.
            None => assert!(of("host").is_none() && of("forge").unwrap().contains("not found"), "{found:#?}"),
            Some(said) => {
                assert!(
                    of("host").unwrap().contains(said) && !of("forge").unwrap().contains("not found"),
                    "{found:#?}"
                )
            }
        }
        drop(server);
    }
}

#[test]
fn modes_and_limits_are_looked_at() {
    let env = Env::new();
    let mode =
        |path: &str, mode| fs::set_permissions(env.pool().join(path), Permissions::from_mode(mode)).unwrap();
    mode("", 0o755);
    mode("weir.toml", 0o644);
    let (code, found) = findings(&env, &["--offline"]);
    assert_eq!(code, Some(0));
    assert_found(&found, "warning", "config", &["weir.toml", "chmod o="]);
    mode("store", 0o777);
    env.configure("store", "free_bytes_min = '1024T'");
    let (code, found) = findings(&env, &["--offline"]);
    assert_eq!(code, Some(1));
    assert_found(&found, "error", "pool", &["store", "chmod o-w"]);
    assert_found(&found, "error", "disk", &["store.free_bytes_min"]);
    let program = env!("CARGO_BIN_EXE_weir");
    let limited = format!("ulimit -n 100 && exec '{program}' --json check --offline");
    let output =
        weir_testing::command("sh").args(["-c", &limited]).env("WEIR_POOL", env.pool()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("takes 50 connections at once"), "{output:?}");
}

#[test]
fn a_configuration_that_names_what_is_not_there_is_told_of() {
    let env = Env::new();
    let path = env.pool().join("weir.toml");
    fs::write(env.path("plain"), "no program").unwrap();
    let plain = env.path("plain");
    for (text, said) in [
        ("[hooks]\npost_update = ['/no/such']\n", "hooks.post_update: there is no program '/no/such'"),
        ("[hooks]\nnotify = ['no-such-program']\n", "hooks.notify: no program 'no-such-program' in PATH"),
        (&format!("[access]\nhook = '{}'\n", plain.display()), "may not be run: chmod +x"),
        (
            "[transport]\nssh_command = 'no-such-ssh -v'\n",
            "transport.ssh_command: no program 'no-such-ssh' in PATH",
        ),
        ("[transport]\nnetrc = '/no/such'\n", "transport.netrc: cannot read '/no/such'"),
        ("[serve]\ntls_certificate = '/no/such'\ntls_key = '/no/such'\n", "serve.tls_certificate: "),
        (
            "[[forge]]\ntype = 'github'\nurl = 'https://github.com'\ntoken_files = ['/no/such']\n",
            "token_files of the forge github.com: ",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let output = env.weir_command(&["config", "check"]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(said), "{text}: {output:?}");
        let (code, found) = findings(&env, &["--offline"]);
        assert_eq!(code, Some(1), "{text}");
        assert_found(&found, "error", "config", &[said]);
    }
    for (text, said) in [
        (
            "[catalog]\nurl = 'mysql://x'\n",
            "catalog.url: the URL mysql://x of a database: it must start with postgres://",
        ),
        (
            "[[forge]]\ntype = 'github'\nurl = 'https://github.com'\nactive_since = 'yesterday'\n",
            "active_since 'yesterday' is no date: YYYY-MM-DD",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let output = env.weir_command(&["config", "check"]).output().unwrap();
        assert!(
            output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains(said),
            "{text}: {output:?}"
        );
    }
    fs::write(&path, "[hooks]\npost_update = ['sh']\n").unwrap();
    assert!(env.weir(&["config", "check"]).ends_with("weir.toml: OK\n"));
}

#[test]
fn who_cannot_complain_ends_as_it_would() {
    let env = Env::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for args in [&["mirror", "nosuch"][..], &["-v", "mirror"], &["show", "nosuch"], &["fsck"]] {
        let as_ever = env.weir_command(args).output().unwrap();
        let output = env.weir_command(args).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), as_ever.status.code(), "{args:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let env = Env::new();
    env.init_bare("forge/r.git");
    let config = env.pool().join("weir.toml");
    let forge = format!("\n[[forge]]\ntype = 'folder'\nurl = '{}'\n", env.path("forge").display());
    std::fs::write(&config, std::fs::read_to_string(&config).unwrap() + &forge).unwrap();
    env.weir(&["add", "--name", "r", env.path("forge/r.git").to_str().unwrap()]);
    let all: [&[&str]; 4] =
        [&["ls"], &["status"], &["crawl", "--dry-run"], &["--json", "crawl", "--dry-run"]];
    for args in all {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = env.weir_command(args).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{args:?}: {said}");
    }
}
