//! The socket at which git 2.55 and newer ask what has changed.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use weir_git::pktline::{Pkt, PktReader};
use weir_testing::{command, processes, skip, wait_until};

use super::{STATE, mirrored};
use crate::common::Env;

/// Runs the machine's git, and adds to its list of features that it can ask at a socket.
const GIT: &str = "#!/bin/sh\ntest \"$1\" != version || echo 'feature: fsmonitor--daemon'\nexec GIT \"$@\"\n";
/// Asks for what has changed since the token `$ARGV[0]`, as git does.
const ASK: &str = r#"
my $socket = IO::Socket::UNIX->new(Peer => ".git/fsmonitor--daemon.ipc") or die "cannot connect: $!";
printf $socket "%04x%s0000", length($ARGV[0]) + 4, $ARGV[0];
$socket->flush;
local $/;
print <$socket>;
"#;

/// Returns the token and the paths that a process in `folder` is told.
fn ask(folder: &Path, token: &str) -> (String, Vec<String>) {
    let asked =
        command("perl").args(["-MIO::Socket::UNIX", "-e", ASK, token]).current_dir(folder).output().unwrap();
    assert!(asked.status.success(), "{asked:?}");
    let mut lines = PktReader::new(&asked.stdout[..]);
    let mut answer = Vec::new();
    while let Pkt::Line(line) = lines.next_pkt().unwrap().expect("a flush at the end") {
        answer.extend_from_slice(line);
    }
    let text = String::from_utf8(answer).unwrap();
    let mut names = text.split_terminator('\0').map(str::to_owned);
    (names.next().unwrap(), names.filter(|path| !path.ends_with('/') || path == "/").collect())
}

/// A listener in place of git's own daemon: it notes the command that weir sends.
struct GitDaemon(std::thread::JoinHandle<Vec<u8>>);

impl GitDaemon {
    fn listen(path: &Path) -> GitDaemon {
        let listener = UnixListener::bind(path).unwrap();
        GitDaemon(std::thread::spawn(move || {
            let mut told = [0; 12];
            listener.accept().unwrap().0.read_exact(&mut told).unwrap();
            told.to_vec()
        }))
    }

    fn told(self) -> Vec<u8> {
        self.0.join().unwrap()
    }
}

/// Runs weir with a git that asks at a socket.
fn weir(env: &Env, args: &[&str]) {
    let bin = env.path("bin");
    if !bin.exists() {
        let git = String::from_utf8(command("which").arg("git").output().unwrap().stdout).unwrap();
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("git"), GIT.replace("GIT", git.trim())).unwrap();
        fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = env.weir_command(args).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// Makes two workspaces of a repository, `it` and `other`, whose git asks at a socket. Returns `None` where
/// the system mounts nothing.
fn workspaces(env: &Env) -> Option<[PathBuf; 2]> {
    drop(mirrored(env)?);
    if !nix::unistd::getuid().is_root() {
        skip("overlay", "who is not root sees workspaces only in a namespace");
        return None;
    }
    let folders = ["it", "other"].map(|name| env.path(name));
    folders.iter().for_each(|folder| weir(env, &["-q", "ws", "add", "it", folder.to_str().unwrap()]));
    Some(folders)
}

#[test]
fn who_asks_at_the_socket_is_told_what_was_touched() {
    let env = Env::new();
    let Some([it, other]) = workspaces(&env) else { return };
    let state = env.path(STATE);
    let monitor = processes::Strays(state.to_str().unwrap().to_owned());
    assert_eq!(env.git(&it, &["config", "core.fsmonitor"]), "true");
    let settled = |folder: &Path| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        ask(folder, "").0
    };
    assert_eq!(ask(&it, "").1, ["/"], "of that token nothing is known");
    let (first, first_other) = (settled(&it), settled(&other));
    fs::write(it.join("d0/e0/f0"), b"changed").unwrap();
    fs::write(it.join("new"), b"new").unwrap();
    assert_eq!(ask(&it, &first).1, ["d0/e0/f0", "new"]);
    assert!(ask(&other, &first_other).1.is_empty());
    // By another name of the folder, too, and not in folders that are none of weir's.
    let bound = env.path("bound");
    fs::create_dir(&bound).unwrap();
    assert!(command("mount").arg("--bind").args([&it, &bound]).status().unwrap().success());
    assert_eq!(ask(&bound, &first).1, ["d0/e0/f0", "new"]);
    assert!(command("umount").arg(&bound).status().unwrap().success());
    fs::create_dir_all(bound.join(".git")).unwrap();
    symlink(state.join("fsmonitor.sock"), bound.join(".git/fsmonitor--daemon.ipc")).unwrap();
    assert_eq!(ask(&bound, &first), ("weir:0:0".to_owned(), vec!["/".to_owned()]));
    // A fork asks about itself.
    let fork = env.path("fork");
    weir(&env, &["-q", "ws", "fork", it.to_str().unwrap(), fork.to_str().unwrap()]);
    assert_eq!(env.git(&fork, &["config", "core.fsmonitor"]), "true");
    assert_eq!(env.git(&it, &["config", "core.fsmonitor"]), "true");
    let first = settled(&fork);
    fs::write(fork.join("forked"), b"new").unwrap();
    assert_eq!(ask(&fork, &first).1, ["forked"]);
    // Another tree of the same git directory has no socket: git is not to start a daemon for it.
    env.git(&it, &["worktree", "add", "-q", "--detach", env.path("linked").to_str().unwrap()]);
    let linked = env.git_command(&env.path("linked"), &["config", "core.fsmonitor"]).output().unwrap();
    assert!(!linked.status.success(), "{linked:?}");
    // Another goes on if the one that answers is killed.
    let token = settled(&it);
    fs::write(it.join("later"), b"new").unwrap();
    let ids = monitor.ids();
    assert_eq!(ids.len(), 2);
    let server = ids.iter().flat_map(|id| processes::children(*id)).next().unwrap();
    assert!(processes::kill_found(server));
    assert_eq!(ask(&it, &token).1, ["later"]);
    // And if both are, who mounts starts it again, and puts away what took its place.
    monitor.ids().into_iter().for_each(|id| _ = processes::kill_found(id));
    wait_until(|| "they go on".to_owned(), || monitor.ids().is_empty());
    let link = it.join(".git/fsmonitor--daemon.ipc");
    fs::remove_file(&link).unwrap();
    drop(UnixListener::bind(&link).unwrap());
    assert!(command("umount").arg(&it).status().unwrap().success());
    weir(&env, &["-q", "ws", "mount"]);
    assert_eq!(ask(&it, &token).1, ["later"]);
    // So is it if the workspace stayed mounted meanwhile, or is removed.
    monitor.ids().into_iter().for_each(|id| _ = processes::kill_found(id));
    wait_until(|| "they go on".to_owned(), || monitor.ids().is_empty());
    fs::remove_file(&link).unwrap();
    let daemon = GitDaemon::listen(&link);
    weir(&env, &["-q", "ws", "mount"]);
    assert_eq!(daemon.told(), b"0008quit0000");
    assert_eq!(ask(&it, &token).1, ["later"]);
    // What the user says counts.
    env.git(&it, &["config", "core.fsmonitor", "false"]);
    assert_eq!(env.git(&it, &["config", "core.fsmonitor"]), "false");
    // It ends with the last workspace.
    for folder in [&it, &other, &fork] {
        assert_eq!(monitor.ids().len(), 2);
        weir(&env, &["-q", "ws", "rm", "--force", folder.to_str().unwrap()]);
    }
    wait_until(|| "it goes on".to_owned(), || monitor.ids().is_empty());
    wait_until(|| "the socket is there".to_owned(), || !state.join("fsmonitor.sock").exists());
}
