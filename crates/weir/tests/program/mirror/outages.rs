//! Trouble that lasts: no network, upstreams that lie, a full disk. Visits pause, no copy is lost, and visits
//! resume by themselves. (`weir_mirror::throttle` simulates what an hour of each does to the number of
//! visits; `mirror/tests/clock.rs` tests that a pause lasts.)

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Env, Server};
use weir_testing::wait_until;

const UP: usize = 0;
/// Connections end at once.
const DOWN: usize = 1;
/// Answers stop without an end, have a wrong byte, or are not git's.
const LYING: usize = 2;

/// A proxy between weir and a daemon, at three addresses.
struct Way {
    ports: Vec<String>,
    state: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Way {
    fn to(daemon: &Server) -> Way {
        let (state, connections) = (Arc::new(AtomicUsize::new(UP)), Arc::new(AtomicUsize::new(0)));
        let mut ports = Vec::new();
        for host in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
            let listener = TcpListener::bind((host, 0)).unwrap();
            ports.push(listener.local_addr().unwrap().to_string());
            let (state, connections, port) = (state.clone(), connections.clone(), daemon.port);
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let (state, n) =
                        (state.load(Ordering::Relaxed), connections.fetch_add(1, Ordering::Relaxed));
                    if state != DOWN {
                        std::thread::spawn(move || {
                            pass(stream.unwrap(), port, (state == LYING).then_some(n % 3))
                        });
                    }
                }
            });
        }
        Way { ports, state, connections }
    }

    fn set(&self, state: usize) {
        self.state.store(state, Ordering::Relaxed);
    }
}

/// Passes a connection on to `port`, with the lie of that number in the answer.
fn pass(mut client: TcpStream, port: u16, lie: Option<usize>) {
    if lie == Some(0) {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n<html>all is well</html>");
        return;
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)) else { return };
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let (mut passed, mut buffer) = (0, [0; 8192]);
    while let Ok(n @ 1..) = server.read(&mut buffer) {
        match lie {
            Some(1) if passed + n > 1500 && passed <= 1500 => {
                buffer[1500usize.saturating_sub(passed).min(n - 1)] ^= 0x10
            }
            // Silence: the connection stays open.
            Some(2) if passed > 1200 => continue,
            _ => {}
        }
        passed += n;
        if client.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
    let _ = client.shutdown(std::net::Shutdown::Write);
}

struct Watched {
    env: Env,
    upstreams: Vec<PathBuf>,
    child: Child,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const REPOSITORIES: usize = 9;

impl Watched {
    /// Starts mirroring small repositories at those addresses, with a visit each second.
    fn start(env: Env, hosts: &[String], more: &str) -> Watched {
        let pace =
            "interval = '1s'\ninterval_min = '1s'\ninterval_max = '1s'\nretry = '1s'\nretry_max = '2s'";
        env.configure(
            "mirror",
            &format!("{pace}\nthrottle_window = 6\nthrottle_leak = '1h'\nthrottle_pause = '4s'"),
        );
        env.configure("store", more);
        env.configure("transport", "idle_timeout = '2s'\nfirst_byte_timeout = '2s'");
        let mut upstreams = Vec::new();
        for n in 0..REPOSITORIES {
            let name = format!("r{n}.git");
            upstreams.push(if n == 0 { env.odd_repository(&name) } else { env.init_bare(&name) });
            env.weir(&[
                "add",
                "--name",
                &format!("r{n}"),
                &format!("git://{}/{name}", hosts[n % hosts.len()]),
            ]);
        }
        let child = env
            .weir_command(&["-q", "mirror", "--watch"])
            .stderr(std::fs::File::create(env.path("log")).unwrap())
            .spawn()
            .unwrap();
        let this = Watched { env, upstreams, child };
        this.change("first");
        this.wait_until_all_is_here();
        this
    }

    /// Adds a commit of some size to each upstream.
    fn change(&self, text: &str) {
        for upstream in &self.upstreams {
            let mut noise = text.len() as u64 + 1;
            let content: Vec<u8> = std::iter::repeat_with(|| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (noise >> 56) as u8
            })
            .take(20_000)
            .collect();
            let blob = self.env.git_with(upstream, &["hash-object", "-w", "--stdin"], &content);
            let tree =
                self.env.git_with(upstream, &["mktree"], format!("100644 blob {blob}\t{text}\n").as_bytes());
            let commit = self.env.git(upstream, &["commit-tree", "-m", text, &tree]);
            self.env.git(upstream, &["update-ref", &format!("refs/heads/{text}"), &commit]);
        }
    }

    fn archive(&self, n: usize) -> PathBuf {
        self.env.pool().join(format!("store/r{n}.tar"))
    }

    fn refs(&self, at: &Path) -> String {
        self.env.git(at, &["for-each-ref", "--format=%(objectname) %(refname)"])
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.env.path("log")).unwrap()
    }

    fn wait_until_all_is_here(&self) {
        let server = self.env.serve();
        for (n, upstream) in self.upstreams.iter().enumerate() {
            let expected = self.refs(upstream);
            let here = || {
                let output = self
                    .env
                    .git_command(&self.env.path(""), &["ls-remote", "--refs", &server.url(&format!("r{n}"))])
                    .output()
                    .unwrap();
                String::from_utf8(output.stdout).unwrap().replace('\t', " ").trim().to_owned()
            };
            wait_until(
                || format!("r{n}: {}\n{}", self.env.weir(&["status"]), self.log()),
                || here() == expected,
            );
        }
    }

    /// Returns whether all visits pause.
    fn all_pause(&self) -> bool {
        let status = self.env.weir_json(&["status"]);
        status["pauses"].as_array().unwrap().iter().any(|pause| pause["host"] == "")
    }

    fn archives(&self) -> Vec<Vec<u8>> {
        (0..REPOSITORIES).map(|n| std::fs::read(self.archive(n)).unwrap()).collect()
    }

    /// Checks that each archive still begins with what it held, and that none was damaged.
    fn assert_nothing_lost(&self, before: &[Vec<u8>]) {
        for (n, (now, before)) in self.archives().iter().zip(before).enumerate() {
            assert!(now.starts_with(before), "r{n}");
        }
        self.env.weir(&["fsck"]);
        for n in 0..REPOSITORIES {
            assert!(!self.archive(n).with_extension("tar.damaged").exists());
        }
    }
}

#[test]
fn no_network_and_upstreams_that_lie() {
    let env = Env::new();
    let daemon = env.git_daemon(&[]);
    let way = Way::to(&daemon);
    let all = Watched::start(env, &way.ports, "");
    for state in [DOWN, LYING] {
        let before = all.archives();
        way.set(state);
        let connections = way.connections.load(Ordering::Relaxed);
        all.change(if state == DOWN { "unheard" } else { "misheard" });
        let troubled = || {
            let tried = way.connections.load(Ordering::Relaxed) - connections;
            let is_told = all.env.weir_json(&["status"])["errors"] != serde_json::json!({});
            tried >= REPOSITORIES && is_told && (state == LYING || all.all_pause())
        };
        wait_until(|| all.log(), troubled);
        way.set(UP);
        all.assert_nothing_lost(&before);
        all.wait_until_all_is_here();
        all.assert_nothing_lost(&before);
    }
}

/// A small disk that is mounted for the test; `None` if this user may not mount.
pub struct Disk(pub PathBuf);

impl Disk {
    pub fn of(bytes: u64, at: &Path) -> Option<Disk> {
        std::fs::create_dir(at).unwrap();
        let size = format!("size={bytes}");
        let mounted =
            weir_testing::command("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Disk(at.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = weir_testing::command("umount").args(["-l"]).arg(&self.0).status();
    }
}

#[test]
fn a_full_disk() {
    let folder = weir_testing::folder();
    let Some(disk) = Disk::of(64 << 20, &folder.path().join("disk")) else {
        weir_testing::skip("mount", "no disk of its own can be mounted here");
        return;
    };
    // The upstreams are elsewhere: only the pool is on that disk.
    let env = Env::new();
    let daemon = env.git_daemon(&[]);
    std::fs::rename(env.pool(), env.path("empty-pool")).unwrap();
    std::os::unix::fs::symlink(&disk.0, env.pool()).unwrap();
    env.weir(&["init"]);
    let hosts = [format!("127.0.0.1:{}", daemon.port)];
    let all = Watched::start(env, &hosts, "free_bytes_min = 0");
    let before = all.archives();
    // The disk is filled to the last byte, with the catalog's share, too.
    let filler = disk.0.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    all.change("unseen");
    let is_told = |log: &str| log.contains("full") || log.contains("No space left");
    wait_until(|| all.log(), || is_told(&all.log()));
    drop(file);
    for (n, before) in before.iter().enumerate() {
        assert!(std::fs::read(all.archive(n)).unwrap().starts_with(before), "r{n}");
    }
    std::fs::remove_file(&filler).unwrap();
    all.wait_until_all_is_here();
    all.assert_nothing_lost(&before);
}

#[test]
fn a_host_that_fails_pauses_and_comes_back_by_itself() {
    let env = Env::new();
    env.configure(
        "mirror",
        "throttle_window = 5\nthrottle_leak = '1h'\nthrottle_pause = '3s'\nretry = '1s'\njobs = 2",
    );
    env.odd_repository("good.git");
    let daemon = env.git_daemon(&[]);
    let dead = weir_testing::free_port();
    for n in 0..30 {
        env.odd_repository(&format!("r{n}.git"));
        env.weir(&["add", "--name", &format!("r{n}"), &format!("git://127.0.0.1:{dead}/r{n}.git")]);
    }
    env.weir(&["add", "--name", "good", &daemon.url("good.git")]);
    let output = env.weir_command(&["--json", "mirror"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let summary: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let (failed, left) = (summary["failed"].as_u64().unwrap(), summary["left"].as_u64().unwrap());
    assert!(failed + left == 30 && (5..=8).contains(&failed) && summary["updated"] == 1, "{said}");
    assert!(said.contains("\"event\":\"left\"") && said.contains("the host fails"), "{said}");
    // The run has ended, and its pause with it.
    let status = env.weir_json(&["status"]);
    assert_eq!((&status["pauses"], &status["errors"]["network"]), (&serde_json::json!([]), &failed.into()));
    let told = env.weir(&["errors", "--all", "network"]);
    let (list, advice) = told.split_once("\n\nWhat to do:\n").unwrap();
    assert_eq!((list.lines().count() as u64, advice.lines().count()), (failed, 1), "{told}");
    // A process that watches keeps it, and says so.
    let mut watching = env.weir_command(&["-q", "mirror", "--watch"]).spawn().unwrap();
    wait_until(|| env.weir(&["status"]), || env.weir(&["status"]).contains("the host fails"));
    // The host is back: all repositories are mirrored after the pause.
    let back = env.git_daemon_at(dead, &[]);
    wait_until(|| env.weir(&["status"]), || env.weir_json(&["status"])["counts"]["mirrored"] == 31);
    watching.kill().unwrap();
    watching.wait().unwrap();
    drop(back);
    assert_eq!(env.weir(&["due", "-n", "3"]).lines().count(), 3);
}
