//! Workspaces of a user who is not root. Where root tests, another user is taken for it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weir_testing::{command, skip};

use super::remount::replaces_mounts;
use super::{STATE, ask_monitor, upstream, work_alike};
use crate::common::{Env, Http};

/// The folders of [`the_user_works_alike`]: the plain clone, the workspace, and the records of workspaces.
const FOLDERS: &str = "WEIR_TEST_ALIKE";
/// The user, where root tests.
const USER: &str = "65534";
/// Runs `$@` as that user, who may open the device `$0` as /dev/fuse.
const AS_USER: &str = r#"if test -n "$0"; then mount --bind "$0" /dev/fuse || exit 99; fi
exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@""#;

fn is_root() -> bool {
    nix::unistd::getuid().is_root()
}

/// A user who is not root.
struct PlainUser<'e> {
    env: &'e Env,
    device: PathBuf,
    program: PathBuf,
}

impl<'e> PlainUser<'e> {
    /// Gives all that is in the folder of `env` to the user. Returns `None` where they get no workspaces.
    fn new(env: &'e Env) -> Option<PlainUser<'e>> {
        let device = env.path("fuse");
        let program = PathBuf::from(env!("CARGO_BIN_EXE_weir"));
        let user = PlainUser { env, device, program };
        let run = |program: &str, args: &[&OsStr]| {
            assert!(command(program).args(args).status().unwrap().success(), "{program} {args:?}");
        };
        if is_root() {
            let made =
                command("mknod").args(["-m", "666"]).arg(&user.device).args(["c", "10", "229"]).output();
            if !made.unwrap().status.success() {
                skip("plain user", "root may make no devices");
                return None;
            }
            run("chown", &["-R".as_ref(), USER.as_ref(), env.dir.path().as_os_str()]);
        }
        let said = user.weir(&["workspace", "doctor"]);
        if !said.status.success() {
            skip("plain user", &String::from_utf8_lossy(&[said.stdout, said.stderr].concat()));
            return None;
        }
        Some(user)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = match is_root() {
            true => {
                let mut command = command("unshare");
                command.args(["--mount", "sh", "-c", AS_USER]).arg(&self.device).arg(program);
                command
            }
            false => command(program),
        };
        command.env("HOME", self.env.dir.path()).env("TMPDIR", self.env.dir.path());
        command.env("WEIR_POOL", self.env.pool()).current_dir(self.env.dir.path());
        command
    }

    fn weir(&self, args: &[&str]) -> Output {
        self.command(&self.program).args(args).output().unwrap()
    }

    /// Runs weir, which must succeed, and returns what it prints.
    fn weir_said(&self, args: &[&str]) -> String {
        let output = self.weir(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for PlainUser<'_> {
    fn drop(&mut self) {
        let list = self.weir(&["--json", "workspace", "ls"]);
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
        for workspace in list.as_array().into_iter().flatten() {
            self.weir(&["workspace", "rm", "--force", workspace["folder"].as_str().unwrap_or_default()]);
        }
    }
}

/// [`random_work_of_a_plain_user_is_that_of_a_plain_clone`] starts it in a workspace.
#[test]
fn the_user_works_alike() {
    let Some(folders) = std::env::var_os(FOLDERS) else { return };
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let [plain, work, state] = &folders[..] else { panic!("{folders:?}") };
    let env = Env::new();
    ask_monitor(&env, work, state);
    work_alike(&env, 80, state, plain, work);
}

#[test]
fn random_work_of_a_plain_user_is_that_of_a_plain_clone() {
    let env = Env::new();
    let up = upstream(&env);
    env.mirror_new("it", &up);
    env.git(env.dir.path(), &["clone", "-q", up.to_str().unwrap(), "plain"]);
    let Some(user) = PlainUser::new(&env) else { return };
    user.weir_said(&["workspace", "add", "it", "work"]);
    let folders = [env.path("plain"), env.path("work"), env.path(STATE)];
    let mut weir = user.command(&user.program);
    weir.args(["workspace", "shell", "work"]).arg(std::env::current_exe().unwrap());
    weir.args(["--exact", "workspace::plain_user::the_user_works_alike", "--nocapture"]);
    let done = weir.env(FOLDERS, std::env::join_paths(folders).unwrap()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{done:?}");
}

/// No random work: fuse-overlayfs 1.10 and 1.14 show files again that were deleted.
#[test]
fn a_plain_user_has_workspaces_by_fuse_overlayfs() {
    let env = Env::new();
    let up = upstream(&env);
    env.mirror_new("it", &up);
    let server = Http::serve(&env, &[]);
    let Some(user) = PlainUser::new(&env) else { return };
    let doctor = user.weir_said(&["--json", "ws", "doctor"]);
    let doctor: serde_json::Value = serde_json::from_str(&doctor).unwrap();
    let needs = doctor["needs"].as_array().unwrap();
    let is_there = |name: &str| needs.iter().any(|need| need["name"] == name && need["is_there"] == true);
    if !is_there("fuse-overlayfs") {
        return skip("fuse-overlayfs", "it is not installed, or fusermount3 is not");
    }
    let words = r#"set -e
"$0" ws add --fuse-overlayfs it work
echo mine > work/same1; rm work/same2; echo new > work/d0/new
git -C work status --porcelain
"$0" ws ls; ! "$0" ws rm work 2>&1; "$0" ws rm --force work
"$0" ws attach --fuse-overlayfs "$1" away; cat away/same1; "$0" ws rm away"#;
    // A mount of root's would be seen by no other process.
    let mut shell = user.command(Path::new("sh"));
    let done = shell.arg("-c").arg(words).arg(&user.program).arg(server.url("it@v1")).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    for part in
        [" M same1\n D same2\n?? d0/new\n", "mounted  ", "it has changes (d0/new)", "away\naaa\nremoved "]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_plain_user_has_workspaces_in_a_namespace() {
    let env = Env::new();
    let up = upstream(&env);
    env.mirror_new("it", &up);
    let server = Http::serve(&env, &[]);
    let Some(user) = PlainUser::new(&env) else { return };
    let doctor: serde_json::Value =
        serde_json::from_str(&user.weir_said(&["--json", "ws", "doctor"])).unwrap();
    if doctor["way"] != "namespace" {
        return skip("plain user", &format!("it gets workspaces by {}", doctor["way"]));
    }
    assert_eq!(user.weir_said(&["ws", "ls"]).lines().count(), 1);
    assert!(user.weir_said(&["ws", "add", "it", "work"]).contains("is at"));
    assert!(!env.path("work/same1").exists(), "others do not see it");
    assert!(user.weir_said(&["ws", "ls"]).contains("mounted"));
    let in_shell = |words: &str| {
        let output = user.weir(&["ws", "shell", "work", "sh", "-c", words]);
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(
        in_shell("cat same1; echo $WEIR_WORKSPACE; grep CapEff /proc/self/status")
            .lines()
            .collect::<Vec<_>>(),
        ["aaa", env.path("work").to_str().unwrap(), "CapEff:\t0000000000000000"]
    );
    assert_eq!(user.weir(&["ws", "shell", "work", "sh", "-c", "exit 7"]).status.code(), Some(7));
    // From within, too.
    let program = user.program.display();
    in_shell(&format!("echo mine > same1; '{program}' -q ws add it ../second && cd ../second && cat same1"));
    assert_eq!(in_shell("git status --porcelain"), " M same1\n");
    let said = user.weir(&["ws", "rm", "work"]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("it has changes"), "{said:?}");
    assert!(!said.status.success());
    assert!(user.weir_said(&["ws", "fork", "work", "fork"]).contains("is forked to"));
    let forked = user.weir(&["ws", "shell", "fork", "git", "status", "--porcelain"]);
    assert_eq!(String::from_utf8_lossy(&forked.stdout), " M same1\n");
    assert!(user.weir_said(&["ws", "switch", "fork", "v1"]).contains("files differ"));
    // A workspace that nothing uses is mounted again there, too.
    for revision in ["v1", "main"] {
        let said = user.weir(&["-v", "ws", "switch", "second", revision, "--mount"]);
        let log = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(
            said.status.success() && (!log.contains("is not mounted again") || !replaces_mounts()),
            "{log}"
        );
        let status = user.weir(&["ws", "shell", "second", "git", "status", "--porcelain"]);
        assert_eq!(String::from_utf8_lossy(&status.stdout), "", "{revision}");
    }
    // What holds the namespace ends with the last workspace, and comes back.
    user.weir_said(&["ws", "rm", "--force", "work", "second", "fork"]);
    assert!(!env.path(STATE).join("namespace.sock").exists());
    user.weir_said(&["ws", "add", "it", "third"]);
    assert!(user.weir_said(&["ws", "ls"]).contains("third"));
    user.weir_said(&["ws", "attach", &server.url("it@v1"), "away"]);
    let words =
        "git describe --tags && git status --porcelain && git fsck --connectivity-only 2>&1 && cat same1";
    let away = user.weir(&["ws", "shell", "away", "sh", "-c", words]);
    assert_eq!(String::from_utf8_lossy(&away.stdout), "v1\naaa\n", "{away:?}");
    user.weir_said(&["ws", "rm", "away"]);
}
