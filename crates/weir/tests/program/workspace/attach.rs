//! Workspaces of repositories that a weir serves elsewhere.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use weir_testing::{Signal, processes, send, skip, wait_until};

use super::{STATE, Workspace, upstream};
use crate::common::{Env, Http, Rng};

/// Bytes of a file that is fetched in several parts.
const LARGE_BYTES: usize = 700 << 10;
const LARGE_FILES: u64 = 6;

/// Makes an upstream with large files that cannot be compressed, and mirrors it as `it`.
fn large_upstream(env: &Env) -> PathBuf {
    let up = env.init_bare("large.git");
    let mut stream = b"commit refs/heads/main\ncommitter C <c@x> 1700000000 +0000\ndata 1\nx\n".to_vec();
    for n in 0..LARGE_FILES {
        stream.extend(format!("M 644 inline f{n}\ndata {LARGE_BYTES}\n").bytes());
        stream.extend(large(n));
        stream.push(b'\n');
    }
    env.git_with(&up, &["fast-import", "--quiet"], &stream);
    env.mirror_new("it", &up);
    up
}

fn large(n: u64) -> Vec<u8> {
    Rng(n + 1).bytes(LARGE_BYTES)
}

/// Returns the folder of the only attached clone.
fn place(env: &Env) -> PathBuf {
    let mut all = fs::read_dir(env.path(STATE).join("remotes")).unwrap();
    all.next().unwrap().unwrap().path()
}

/// Returns what `weir workspace ls` says that the only workspace waits for.
fn waits_for(env: &Env) -> Option<String> {
    env.weir_json(&["ws", "ls"])[0]["waits_for"].as_str().map(str::to_owned)
}

/// Returns whether the system mounts nothing, as an error says.
fn cannot_mount(said: &str) -> bool {
    let cannot = said.contains("cannot mount on") || said.contains("workspace doctor");
    if cannot {
        skip("overlay", said.trim());
    }
    cannot
}

#[test]
fn an_attached_workspace_is_one_like_others() {
    let env = Env::new();
    let up = upstream(&env);
    env.mirror_new("it", &up);
    let server = Http::serve(&env, &[]);
    let url = server.url("it");
    let Some(it) = Workspace::by(&env, &["attach", &url], "work") else { return };
    let clone = env.path("clone");
    env.git(env.dir.path(), &["clone", "-q", up.to_str().unwrap(), clone.to_str().unwrap()]);
    let said = |at: &Path, args: &[&str]| env.git(at, args);
    for args in [
        &["status", "--porcelain", "--untracked-files=all"][..],
        &["log", "--format=%H %s", "--all", "--stat"],
        &["ls-files", "-s"],
        &["for-each-ref", "refs/tags", "refs/remotes"],
    ] {
        assert_eq!(said(&it.folder, args), said(&clone, args), "{args:?}");
    }
    // What is there is what is checked out.
    let git_dir = format!("--git-dir={}", clone.join(".git").display());
    assert_eq!(said(&it.folder, &[&git_dir, "--work-tree=.", "status", "--porcelain"]), "");
    fs::write(it.folder.join("same1"), b"mine").unwrap();
    env.git(&it.folder, &["commit", "-q", "-a", "-m", "mine"]);
    env.git(&it.folder, &["fsck", "--strict"]);
    // What is new there is there after a switch.
    let newer = env.commit_file(&up, "refs/heads/main", "newer", b"newer");
    env.weir(&["mirror", "--all"]);
    env.weir(&["ws", "switch", it.folder.to_str().unwrap(), "origin/main"]);
    assert_eq!(env.git(&it.folder, &["rev-parse", "HEAD"]), newer);
    assert_eq!(fs::read(it.folder.join("newer")).unwrap(), b"newer");
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
    let remote = processes::Strays(place(&env).to_str().unwrap().to_owned());
    assert!(!remote.ids().is_empty());
    // Branches are where the server has them now; short ids are known of what was fetched.
    let other = env.git(&up, &["rev-parse", "other"]);
    let moved = env.commit_file(&up, "refs/heads/moved", "moved", b"moved");
    let line =
        format!("commit refs/heads/other\ncommitter C <c@x> 1700000900 +0000\ndata 1\nn\nfrom {other}\n");
    let line = format!("{line}M 644 inline advanced\ndata 1\na\n\n");
    env.git_with(&up, &["-c", "fastimport.unpackLimit=0", "fast-import", "--quiet"], line.as_bytes());
    env.weir(&["mirror", "--all"]);
    let work = it.folder.to_str().unwrap();
    for (revision, branch, file) in
        [("other", "other", "advanced"), ("moved", "moved", "moved"), (&moved[..9], "", "moved")]
    {
        env.weir(&["ws", "switch", work, revision]);
        assert!(it.folder.join(file).exists(), "{revision}");
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "", "{revision}");
        assert_eq!(env.git(&it.folder, &["branch", "--show-current"]), branch);
        let tip = env.git(&up, &["rev-parse", if branch == "other" { "other" } else { "moved" }]);
        assert_eq!(env.git(&it.folder, &["rev-parse", "HEAD"]), tip);
    }
    // Another of a newer state, at a tag.
    let Some(second) = Workspace::by(&env, &["attach", &format!("{url}@v1")], "second") else { return };
    assert_eq!(env.git(&second.folder, &["describe", "--tags"]), "v1");
    assert_eq!(env.git(&second.folder, &["status", "--porcelain"]), "");
    drop((it, second));
    assert_eq!(fs::read_dir(env.path(STATE).join("remotes")).unwrap().count(), 0);
    wait_until(|| format!("{:?} go on", remote.ids()), || remote.ids().is_empty());
}

#[test]
fn what_cannot_be_attached_is_named() {
    let env = Env::new();
    let up = upstream(&env);
    env.mirror_new("it", &up);
    let server = Http::serve(&env, &[]);
    let fails = |source: &str| env.weir_fails(&["ws", "attach", source, env.path("work").to_str().unwrap()]);
    let said = fails(&server.url("it@nowhere"));
    if cannot_mount(&said) {
        return;
    }
    assert!(said.contains("nowhere"), "{said}");
    let said = fails(&server.url("none"));
    assert!(said.contains("none"), "{said}");
    let said = fails(&server.git_url("it"));
    assert!(said.contains("is no URL of http or https"), "{said}");
    let remotes = env.path(STATE).join("remotes");
    assert!(!remotes.exists() || fs::read_dir(remotes).unwrap().count() == 0);
    let port = server.0.port;
    drop(server);
    let said = fails(&format!("http://127.0.0.1:{port}/it"));
    assert!(said.contains("cannot") && said.contains(&port.to_string()), "{said}");
}

/// Readers wait for a server that is away, and go on when it is there again, also with more in it.
#[test]
fn who_reads_waits_for_the_server() {
    let env = Env::new();
    let up = large_upstream(&env);
    let server = Http::serve(&env, &[]);
    let attach = ["attach", "--no-background-fetch", &server.url("it")];
    let Some(it) = Workspace::by(&env, &attach, "work") else { return };
    let read = |n: u64| fs::read(it.folder.join(format!("f{n}"))).unwrap();
    assert!(read(0) == large(0));
    env.commit_file(&up, "refs/heads/main", "newer", b"newer");
    env.weir(&["mirror", "--all"]);
    // The server knows no more what there was before.
    let server = server.again(&env);
    assert!(read(1) == large(1));
    let port = server.0.port;
    send(server.0.pid(), Signal::SIGSTOP);
    drop(server);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(5));
        wait_until(|| "nobody waits".to_owned(), || waits_for(&env).is_some());
        let said = env.weir(&["ws", "ls"]);
        assert!(said.contains("waits"), "{said}");
        // What was read is here.
        assert!(read(0) == large(0));
        let _server = Http::serve_on(&env, port);
        assert!(reader.join().unwrap() == large(5));
        wait_until(|| format!("{:?}", waits_for(&env)), || waits_for(&env).is_none());
    });
}

/// A repository that is another one there now: what is not here cannot be read, and this is said.
#[test]
fn what_is_gone_there_is_told() {
    let env = Env::new();
    large_upstream(&env);
    let server = Http::serve(&env, &[]);
    let attach = ["attach", "--no-background-fetch", &server.url("it")];
    let Some(it) = Workspace::by(&env, &attach, "work") else { return };
    let path = |n: u64| it.folder.join(format!("f{n}"));
    assert!(fs::read(path(0)).unwrap() == large(0));
    env.weir(&["rm", "--delete", "it"]);
    let other = env.init_bare("other.git");
    env.commit_file(&other, "refs/heads/main", "other", b"other");
    env.mirror_new("it", &other);
    let _server = server.again(&env);
    assert!(fs::read(path(0)).unwrap() == large(0));
    let e = fs::read(path(4)).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(nix::libc::EIO));
    let said = waits_for(&env).unwrap();
    assert!(said.contains("rewritten") && said.contains("attach"), "{said}");
}

/// Answers as `server` does, but with what `lie` makes of each answer's path and body; with an error where it
/// makes nothing of it. Returns the URL of the repository `it`.
fn liar<L>(server: &Http, lie: L) -> String
where
    L: Fn(&str, Vec<u8>) -> Option<Vec<u8>> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, at) = (listener.local_addr().unwrap().port(), server.0.port);
    let lie = Arc::new(lie);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let lie = Arc::clone(&lie);
            thread::spawn(move || {
                let mut near = BufReader::new(stream.unwrap());
                let mut head = String::new();
                while near.read_line(&mut head).is_ok_and(|len| len > 2) {}
                let mut far = TcpStream::connect(("127.0.0.1", at)).unwrap();
                let asked = format!("{}\r\nConnection: close\r\n\r\n", head.trim_end());
                far.write_all(asked.as_bytes()).unwrap();
                let mut answer = Vec::new();
                far.read_to_end(&mut answer).unwrap();
                let end = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
                let said = String::from_utf8_lossy(&answer[..end]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let answer = match lie(path, answer[end..].to_vec()) {
                    Some(body) => {
                        let lines = said.lines().filter(|line| !line.starts_with("content-length"));
                        let lines: String =
                            lines.take_while(|l| !l.is_empty()).map(|l| format!("{l}\r\n")).collect();
                        let head = format!("{lines}content-length: {}\r\n\r\n", body.len());
                        [head.as_bytes(), &body].concat()
                    }
                    None => b"HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_vec(),
                };
                let _ = near.get_mut().write_all(&answer);
            });
        }
    });
    format!("http://127.0.0.1:{port}/it")
}

#[test]
fn what_a_server_says_wrongly_is_refused() {
    let env = Env::new();
    let up = upstream(&env);
    env.mirror_new("it", &up);
    let server = Http::serve(&env, &[]);
    let work = env.path("work");
    let fails = |url: &str| env.weir_fails(&["ws", "attach", url, work.to_str().unwrap()]);
    // The list ends with sizes: that of the last file becomes 0.
    let said = fails(&liar(&server, |path, mut body| {
        if path.contains("/weir/trees-") {
            *body.last_mut().unwrap() = 0;
        }
        Some(body)
    }));
    if cannot_mount(&said) {
        return;
    }
    assert!(said.contains("do not trust this server"), "{said}");
    for (key, value) in [("pack_bytes", 1_u64 << 47), ("index_bytes", 1 << 40), ("objects", 4_000_000_000)] {
        let said = fails(&liar(&server, move |path, body| {
            if !path.ends_with("/weir/clone") {
                return Some(body);
            }
            let mut description: serde_json::Value = serde_json::from_slice(&body).unwrap();
            description[key] = value.into();
            Some(description.to_string().into_bytes())
        }));
        assert!(said.contains("are not right for"), "{key}: {said}");
    }
    for file in [".pack", ".idx"] {
        let url = liar(&server, move |path, body| (!path.ends_with(file)).then_some(body));
        let said = fails(&url);
        assert!(said.contains("500") && said.contains(&url), "{file}: {said}");
    }
    let said = fails(&liar(&server, |path, _| path.ends_with("/weir/clone").then(|| b"{".to_vec())));
    assert!(said.contains("malformed description"), "{said}");
    assert_eq!(fs::read_dir(env.path(STATE).join("remotes")).unwrap().count(), 0);
    assert!(!work.exists());
}

/// Bytes that are not what their id says are not shown.
#[test]
fn a_file_that_is_not_what_its_id_says_is_not_read() {
    let env = Env::new();
    large_upstream(&env);
    let server = Http::serve(&env, &[]);
    let Some(it) = Workspace::by(&env, &["attach", &server.url("it")], "work") else { return };
    let kept = place(&env).join("pack.kept");
    let is_all_fetched = || {
        let sums = fs::read(place(&env).join("pack.sums")).unwrap();
        sums.len() > 4 * 15 && sums.as_chunks::<4>().0.iter().all(|sum| *sum != [0; 4])
    };
    wait_until(|| "not all is fetched".to_owned(), is_all_fetched);
    let mut data = fs::read(&kept).unwrap();
    let end = data.len() - 1000;
    data[1000..end].iter_mut().step_by(5000).for_each(|byte| *byte ^= 1);
    fs::write(&kept, data).unwrap();
    let found: Vec<_> = (0..LARGE_FILES).map(|n| fs::read(it.folder.join(format!("f{n}")))).collect();
    for (n, found) in found.into_iter().enumerate() {
        assert!(found.is_err_and(|e| e.raw_os_error() == Some(nix::libc::EIO)), "f{n}");
    }
}

/// The process that reads from the server is killed; then the one, too, that would start another.
#[test]
fn an_attached_workspace_outlives_its_processes() {
    let env = Env::new();
    large_upstream(&env);
    let server = Http::serve(&env, &[]);
    let Some(it) = Workspace::by(&env, &["attach", &server.url("it")], "work") else { return };
    let read = |n: u64| fs::read(it.folder.join(format!("f{n}")));
    assert!(read(0).unwrap() == large(0));
    let place = place(&env);
    let remote = processes::Strays(place.to_str().unwrap().to_owned());
    let servers = || remote.ids().into_iter().flat_map(processes::children).collect::<Vec<u32>>();
    if super::kills::sends_again() {
        for n in 1..4 {
            servers().into_iter().for_each(|id| _ = processes::kill_found(id));
            assert!(read(n).unwrap() == large(n), "f{n}");
        }
    }
    let is_gone = || {
        let ids = remote.ids();
        // The end of one ends the other.
        ids.iter().filter(|id| processes::kill_found(**id)).count() == 0
    };
    wait_until(|| "they go on".to_owned(), is_gone);
    let ls = env.weir(&["ws", "ls"]);
    assert!(ls.contains("broken"), "{ls}");
    // Only the notes of a list show that a size in it is damaged.
    let lists = place.join("git/weir-trees");
    let list = fs::read_dir(&lists).unwrap().map(|e| e.unwrap().path()).find(|p| p.extension().is_none());
    let list = list.unwrap();
    let mut data = fs::read(&list).unwrap();
    *data.last_mut().unwrap() ^= 1;
    fs::write(&list, data).unwrap();
    env.weir(&["ws", "mount"]);
    for n in 0..LARGE_FILES {
        assert!(read(n).unwrap() == large(n), "f{n}");
    }
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
    drop(it);
    // An attach that is killed while a list arrives leaves this.
    let left = env.path(STATE).join("remotes/left/git/weir-trees");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join(".tmp"), b"weir trees 1\n").unwrap();
    let again = Workspace::by(&env, &["attach", &server.url("it")], "again").unwrap();
    assert!(again.folder.join("f0").exists());
    assert_eq!(fs::read_dir(env.path(STATE).join("remotes")).unwrap().count(), 1);
}
