//! `weir workspace`: random work in a workspace and in a plain clone, side by side.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use weir_testing::{skip, tree_data};

use crate::common::{Env, Rng};
use crate::mount::everything;

mod attach;
mod builds;
mod fork;
mod hostile;
mod kills;
mod monitor;
mod plain_user;
mod remount;
mod strangers;
mod switch;

/// A workspace; it is removed with the test.
struct Workspace<'e> {
    env: &'e Env,
    folder: PathBuf,
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        let _ =
            self.env.weir_command(&["workspace", "rm", "--force", self.folder.to_str().unwrap()]).output();
    }
}

impl<'e> Workspace<'e> {
    /// Makes a workspace of `source` in the folder `name`. Returns `None` where the system mounts nothing.
    fn new(env: &'e Env, source: &str, name: &str) -> Option<Workspace<'e>> {
        Workspace::by(env, &["add", source], name)
    }

    /// Runs a command that makes a workspace in the folder `name`, likewise.
    fn by(env: &'e Env, command: &[&str], name: &str) -> Option<Workspace<'e>> {
        let folder = env.path(name);
        let all = [&["workspace"], command, &[folder.to_str().unwrap()]].concat();
        let output = env.weir_command(&all).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            let workspace = Workspace { env, folder };
            if workspace.folder.join(".git").exists() {
                ask_monitor(env, &workspace.folder, &env.path(STATE));
                return Some(workspace);
            }
            skip("overlay", "who is not root sees workspaces only in a namespace");
            return None;
        }
        assert!(said.contains("cannot mount on") || said.contains("workspace doctor"), "{said}");
        skip("overlay", said.trim());
        None
    }
}

/// Where workspaces are recorded, below the home.
const STATE: &str = ".local/state/weir/workspaces";

/// Lets git ask in the workspace `folder` what has changed, whatever its version: weir leaves it off for old
/// ones. The workspace is recorded below `state`.
fn ask_monitor(env: &Env, folder: &Path, state: &Path) {
    let alternates = fs::read_to_string(folder.join(".git/objects/info/alternates")).unwrap();
    assert!(!alternates.is_empty());
    if folder.join(".git/fsmonitor.config").exists() {
        // It asks at a socket.
        return;
    }
    let is_own = |place: &PathBuf| {
        let record = fs::read_to_string(place.join("workspace.json")).unwrap_or_default();
        record.contains(&format!("\"folder\": \"{}\"", folder.display()))
    };
    let place = fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path()).find(is_own).unwrap();
    let monitor = place.join("fsmonitor");
    env.git(folder, &["config", "core.fsmonitor", monitor.to_str().unwrap()]);
    env.git(folder, &["config", "core.untrackedCache", "true"]);
}

/// Makes an upstream with a history of files in folders, links and programs.
fn upstream(env: &Env) -> PathBuf {
    let up = env.init_bare("up.git");
    let mut stream = Vec::new();
    for n in 0..20 {
        stream.extend(
            format!(
                "commit refs/heads/main\nmark :{}\ncommitter C <c@x> {} +0000\ndata 1\nx\n",
                n + 1,
                1_700_000_000 + n
            )
            .bytes(),
        );
        for k in 0..(if n == 0 { 40 } else { 6 }) {
            let at = if n == 0 { k } else { (n * 7 + k * 5) % 40 };
            let path = format!("d{}/e{}/f{at}", at % 4, at % 3);
            let content = format!("{n} {k}\n").repeat(1 + at % 9);
            stream.extend(format!("M 644 inline {path}\ndata {}\n{content}\n", content.len()).bytes());
        }
        if n == 0 {
            stream.extend(b"M 755 inline run\ndata 3\n#!\n\nM 120000 inline link\ndata 5\nd0/e0\n");
            // Equal sizes: only inodes and times of changes tell them apart.
            stream.extend(b"M 644 inline same1\ndata 4\naaa\n\nM 644 inline same2\ndata 4\nbbb\n\n");
            stream.extend(b"M 644 inline .gitignore\ndata 6\n*.out\n\n");
        }
    }
    stream.extend(b"commit refs/heads/other\ncommitter C <c@x> 1700000500 +0000\ndata 1\no\n");
    stream.extend(b"from :16\nM 644 inline other\ndata 2\no\n\nD d1\nM 644 inline d2\ndata 2\nf\n\n");
    // A folder that is a file there, a link that is a folder, a program that is none, and a submodule.
    stream.extend(b"M 644 inline link/in\ndata 2\nl\n\nM 644 inline run\ndata 3\n#!\n\n");
    stream.extend(b"M 160000 1234567890123456789012345678901234567890 sub\n");
    stream.extend(b"reset refs/tags/v1\nfrom :3\n\n");
    env.git_with(&up, &["-c", "fastimport.unpackLimit=0", "fast-import", "--quiet"], &stream);
    up
}

/// Makes an upstream, mirrors it as `it`, and makes a workspace of it in the folder `work`.
fn mirrored(env: &Env) -> Option<(PathBuf, Workspace<'_>)> {
    let up = upstream(env);
    env.mirror_new("it", &up);
    let it = Workspace::new(env, "it", "work")?;
    Some((up, it))
}

/// Returns the paths of files below `folder`, and of folders, without git's own.
fn paths(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for (name, kind, ..) in everything(folder) {
        let name = PathBuf::from(String::from_utf8(name).unwrap());
        // git ends where a submodule is something else.
        if name.starts_with(".git") || name.starts_with("sub") {
            continue;
        }
        if kind == 'd' { folders.push(name) } else { files.push(name) }
    }
    (files, folders)
}

/// Does change `what`, the `n`th, to a file or a folder of a working tree.
fn change(what: u64, n: usize, at: &Path, [file, other, dir]: [&Path; 3]) -> std::io::Result<()> {
    match what {
        0 | 1 => fs::write(file, format!("edit {n}\n")),
        // The size stays.
        2 => {
            let mut data = fs::read(file)?;
            data.iter_mut().take(1).for_each(|byte| *byte ^= 1);
            fs::write(file, data)
        }
        3 => fs::write(dir.join(format!("new{n}")), format!("{n}\n")),
        4 => fs::write(dir.join(format!("o{n}.out")), b"o"),
        5 | 6 => fs::remove_file(file),
        7 => fs::rename(file, other),
        8 => fs::rename(file, dir.join(format!("moved{n}"))),
        9 => move_folder(dir, &at.join(format!("folder{n}"))),
        10 => {
            let (a, b, c) = (at.join("same1"), at.join("same2"), at.join("swap"));
            fs::rename(&a, &c)?;
            fs::rename(&b, &a)?;
            fs::rename(&c, &b)
        }
        11 => fs::remove_dir_all(dir),
        12 => {
            fs::remove_file(file)?;
            fs::create_dir(file)?;
            fs::write(file.join("in"), b"i")
        }
        13 => {
            fs::remove_dir_all(dir)?;
            fs::write(dir, format!("{n}"))
        }
        // Of a link it would be what that leads to.
        14 if file.is_symlink() => Ok(()),
        14 => {
            let mode = fs::metadata(file)?.permissions().mode();
            fs::set_permissions(file, fs::Permissions::from_mode(mode ^ 0o111))
        }
        15 => {
            fs::remove_file(file)?;
            symlink(format!("to{n}"), file)
        }
        _ => fs::OpenOptions::new().append(true).open(file)?.set_modified(std::time::SystemTime::now()),
    }
}

/// Moves a folder as mv(1) does: in a namespace, the kernel renames no folder of the commit.
fn move_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() == std::io::ErrorKind::CrossesDevices => {
            let moved = weir_testing::command("mv").arg("-T").args([from, to]).status()?;
            assert!(moved.success(), "mv {}", from.display());
            Ok(())
        }
        done => done,
    }
}

/// Changes of [`change`].
const CHANGES: u64 = 17;
const COMMANDS: [&[&str]; 11] = [
    &["add", "-A"],
    &["commit", "-q", "-a", "--allow-empty", "-m", "c"],
    &["commit", "-q", "-a", "--allow-empty", "-m", "d"],
    &["checkout", "-q", "HEAD~1"],
    &["checkout", "-q", "-f", "main"],
    // git before 2.43 takes files that a monitor vouches for as deleted here, now and then. Without one it
    // also misses changes in folders that it remembers.
    &["-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", "stash", "-q", "-u"],
    &["reset", "-q", "--hard", "HEAD~1"],
    &["reset", "-q", "HEAD~1"],
    &["reset", "-q", "--soft", "HEAD~1"],
    &["merge", "-q", "-m", "m", "origin/other"],
    &["revert", "--no-edit", "HEAD"],
];

const REVISIONS: [&str; 5] = ["main", "other", "HEAD~1", "v1", "origin/main~3"];

/// Switches the workspace, and if that is done, the plain clone with git. May mount it again if it `mounts`.
fn switch(env: &Env, state: &Path, [plain, work]: [&Path; 2], revision: &str, mounts: bool) -> String {
    let mut weir = env.weir_command(&["-q", "workspace", "switch", work.to_str().unwrap(), revision]);
    weir.args(mounts.then_some("--mount"));
    let output = weir.env("XDG_STATE_HOME", state.ancestors().nth(2).unwrap()).output().unwrap();
    if output.status.success() {
        env.git(plain, &["checkout", "-q", revision, "--"]);
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        let reasons = ["changes in", "does not track", "not finished", "unfinished merge", "'HEAD~1'"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "switch {revision}: {said}");
    }
    format!("switch {revision} (mounts: {mounts}) {}", output.status.success())
}

/// Does the same in both folders, and returns what it was.
fn step(env: &Env, state: &Path, random: &mut Rng, folders: [&Path; 2], n: usize) -> String {
    let (files, dirs) = paths(folders[0]);
    let mut pick = |list: &[PathBuf]| match list.len() {
        0 => PathBuf::from("absent"),
        len => list[random.below(len as u64) as usize].clone(),
    };
    let chosen = [pick(&files), pick(&files), pick(&dirs)];
    let what = random.below(CHANGES + COMMANDS.len() as u64 + REVISIONS.len() as u64);
    if let Some(revision) = what.checked_sub(CHANGES + COMMANDS.len() as u64) {
        let mounts = random.below(3) > 0;
        return switch(env, state, folders, REVISIONS[revision as usize], mounts);
    }
    let done = folders.map(|at| {
        if let Some(command) = what.checked_sub(CHANGES) {
            let args = COMMANDS[command as usize];
            let output = env.git_command(at, args).output().unwrap();
            if !output.status.success() {
                // It is seen if the test fails.
                eprintln!("{n}: {args:?} in {}: {}", at.display(), String::from_utf8_lossy(&output.stderr));
            }
            return format!("git {args:?} {}", output.status.success());
        }
        let [file, other, dir] = chosen.each_ref().map(|path| at.join(path));
        let changed = change(what, n, at, [&file, &other, &dir]);
        // It is seen if the test fails.
        changed.as_ref().err().inspect(|e| eprintln!("{n}: change {what} in {}: {e}", at.display()));
        format!("change {what} {}", changed.is_ok())
    });
    assert_eq!(done[0], done[1], "{chosen:?}");
    done[0].clone()
}

/// Returns the line of a tree (git-ls-tree(1)) that has the file at `path` of a working tree.
fn tree_line(env: &Env, tree: &Path, path: &str) -> String {
    let at = tree.join(path);
    let about = fs::symlink_metadata(&at).unwrap();
    let (mode, content) = match about.is_symlink() {
        true => ("120000", fs::read_link(&at).unwrap().into_os_string().into_encoded_bytes()),
        false if about.permissions().mode() & 0o100 != 0 => ("100755", fs::read(&at).unwrap()),
        false => ("100644", fs::read(&at).unwrap()),
    };
    format!("{mode} blob {}\t{path}", env.git_with(tree, &["hash-object", "--stdin"], &content))
}

/// Returns what git says of the differences of a plain clone from its HEAD, as weir says it of a workspace;
/// `None` where files are not merged.
fn differences(env: &Env, plain: &Path) -> Option<BTreeMap<String, &'static str>> {
    if !env.git(plain, &["ls-files", "--unmerged"]).is_empty() {
        return None;
    }
    let diff = env.git(plain, &["diff", "--name-status", "--no-renames", "HEAD"]);
    let mut changes = BTreeMap::new();
    for line in diff.lines() {
        let (kind, path) = line.split_once('\t').unwrap();
        let kind = match kind {
            "A" => "new",
            "D" => "deleted",
            "M" | "T" => "modified",
            _ => return None,
        };
        changes.insert(path.to_owned(), kind);
    }
    let others = env.git(plain, &["ls-files", "--others", "--exclude-standard"]);
    // A submodule that is staged, or not any more, is an empty folder: only the index knows.
    let sub = changes.get("sub").copied();
    if sub == Some("new") || sub == Some("deleted") && plain.join("sub").is_dir() {
        changes.remove("sub");
    }
    for path in others.lines() {
        // The index has it no more, but HEAD: git says both, and weir only whether it differs.
        let was_deleted = changes.insert(path.to_owned(), "new") == Some("deleted");
        if was_deleted {
            match env.git(plain, &["ls-tree", "HEAD", "--", path]) == tree_line(env, plain, path) {
                true => changes.remove(path),
                false => changes.insert(path.to_owned(), "modified"),
            };
        }
    }
    Some(changes)
}

/// Returns what weir says of the differences of a workspace from its HEAD.
fn told_differences(env: &Env, state: &Path, work: &Path) -> BTreeMap<String, String> {
    let mut weir = env.weir_command(&["--json", "workspace", "status", work.to_str().unwrap()]);
    let output = weir.env("XDG_STATE_HOME", state.ancestors().nth(2).unwrap()).output().unwrap();
    let told: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let changes = told[0]["changes"].as_array().unwrap_or_else(|| panic!("{output:?}")).iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    changes.map(|change| (text(&change["path"]), text(&change["change"]))).collect()
}

/// Works in both folders alike, and compares them after each step. Workspaces are recorded below `state`.
/// `WEIR_SEED` is the seed, and `WEIR_ROUNDS` the number of steps in place of `rounds`.
fn work_alike(env: &Env, rounds: u64, state: &Path, plain: &Path, work: &Path) {
    let of = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = of("WEIR_SEED").unwrap_or(clock % 1_000_000_007);
    let mut random = Rng(seed | 1);
    // Nothing is packed in the background.
    env.git(plain, &["config", "maintenance.auto", "false"]);
    let mut story = Vec::new();
    for n in 0..of("WEIR_ROUNDS").unwrap_or(rounds) as usize {
        story.push(step(env, state, &mut random, [plain, work], n));
        let told = || format!("WEIR_SEED={seed}: {:?}", &story[story.len().saturating_sub(6)..]);
        let status = |at: &Path| {
            // Of both ways git remembers one.
            let ways = ["-unormal", "-uall"];
            let all = ways.map(|way| env.git(at, &["status", "--porcelain=v2", "--branch", way]));
            all.join("\n")
        };
        let without_upstream = |text: String| {
            text.lines()
                .filter(|line| !line.starts_with("# branch.upstream") && !line.starts_with("# branch.ab"))
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        assert_eq!(without_upstream(status(work)), without_upstream(status(plain)), "{}", told());
        let files = |at: &Path| -> Vec<_> {
            everything(at)
                .into_iter()
                .filter(|entry| !entry.0.starts_with(b".git/") && entry.0 != b".git")
                .collect()
        };
        assert_eq!(files(work), files(plain), "{}", told());
        if let Some(differences) = differences(env, plain) {
            let told_differences = told_differences(env, state, work);
            let differences: BTreeMap<_, _> =
                differences.into_iter().map(|(path, kind)| (path, kind.to_owned())).collect();
            let only = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| -> Vec<String> {
                a.iter()
                    .filter(|(path, kind)| b.get(*path) != Some(kind))
                    .map(|at| format!("{at:?}"))
                    .collect()
            };
            let nothing: [Vec<String>; 2] = [Vec::new(), Vec::new()];
            let differing = [only(&told_differences, &differences), only(&differences, &told_differences)];
            assert_eq!(differing, nothing, "{}", told());
        }
    }
    env.git(work, &["fsck", "--no-dangling"]);
}

#[test]
fn random_work_is_that_of_a_plain_clone() {
    let env = Env::new();
    let Some((up, it)) = mirrored(&env) else { return };
    env.git(env.dir.path(), &["clone", "-q", up.to_str().unwrap(), "plain"]);
    work_alike(&env, 100, &env.path(STATE), &env.path("plain"), &it.folder);
}

/// As git before 2.43 works, which asks no monitor.
#[test]
fn random_work_without_a_monitor_is_that_of_a_plain_clone() {
    let env = Env::new();
    let Some((up, it)) = mirrored(&env) else { return };
    env.git(&it.folder, &["config", "core.fsmonitor", "false"]);
    env.git(&it.folder, &["config", "core.untrackedCache", "false"]);
    env.git(env.dir.path(), &["clone", "-q", up.to_str().unwrap(), "plain"]);
    work_alike(&env, 100, &env.path(STATE), &env.path("plain"), &it.folder);
}

#[test]
fn a_workspace_is_made_listed_and_removed() {
    let env = Env::new();
    let up = upstream(&env);
    env.mirror_new("it", &up);
    let Some(first) = Workspace::new(&env, "it", "first") else { return };
    let main = env.git(&up, &["rev-parse", "main"]);
    assert_eq!(env.git(&first.folder, &["status", "--porcelain"]), "");
    assert_eq!(env.git(&first.folder, &["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(
        env.git(&first.folder, &["rev-parse", "HEAD", "origin/main", "origin/HEAD"]),
        [&*main; 3].join("\n")
    );
    // git has read no file to find that nothing is changed.
    let debug = env.git(&first.folder, &["ls-files", "--debug", "same1"]);
    assert!(debug.contains("size: 4"), "{debug}");
    let second = Workspace::new(&env, "it@other", "second").unwrap();
    let third = Workspace::new(&env, &format!("{}@main", up.display()), "third").unwrap();
    let fourth = Workspace::new(&env, "it@main", "fourth").unwrap();
    assert_eq!(env.git(&second.folder, &["symbolic-ref", "--short", "HEAD"]), "other");
    assert_eq!(env.git(&third.folder, &["status", "--porcelain"]), "");
    env.git(&third.folder, &["checkout", "-q", "other"]);
    env.git(&third.folder, &["fetch", "-q"]);
    let list = env.weir_json(&["workspace", "ls"]);
    let folders: Vec<&str> = list.as_array().unwrap().iter().map(|w| w["folder"].as_str().unwrap()).collect();
    assert_eq!(folders.len(), 4);
    assert!(list.as_array().unwrap().iter().all(|w| w["mounted"] == true), "{list}");
    let mut keys: Vec<&str> = list[0].as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let of_source = ["branch", "commit", "folder", "made_at", "mounted", "repository", "source"];
    assert_eq!(keys, [&of_source[..], &["state", "uses_fuse_overlayfs", "waits_for"]].concat());
    // Two workspaces of one commit do not see each other.
    fs::write(first.folder.join("same1"), b"mine").unwrap();
    assert_eq!(fs::read(fourth.folder.join("same1")).unwrap(), b"aaa\n");
    let rm = |folder: &Path, more: &[&str]| {
        let output =
            env.weir_command(&[&["ws", "rm"], more, &[folder.to_str().unwrap()]].concat()).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (removed, said) = rm(&first.folder, &[]);
    assert!(!removed && said.contains("it has changes (same1)") && said.contains("--force"), "{said}");
    env.git(&first.folder, &["commit", "-qam", "mine"]);
    let (removed, said) = rm(&first.folder, &[]);
    assert!(!removed && said.contains("commits that are nowhere else"), "{said}");
    let (removed, said) = rm(&first.folder.join("d0"), &["--force"]);
    assert!(removed && !first.folder.exists(), "{said}");
    assert_eq!(fs::read(fourth.folder.join("same1")).unwrap(), b"aaa\n", "the view is still there");
    // What uses it keeps it.
    let file = fs::File::open(fourth.folder.join("same1")).unwrap();
    let (removed, said) = rm(&fourth.folder, &[]);
    assert!(!removed && said.contains("cannot unmount"), "{said}");
    drop(file);
    for workspace in [&second, &third, &fourth] {
        let (removed, said) = rm(&workspace.folder, &[]);
        assert!(removed, "{said}");
    }
    let state = env.path(STATE);
    let views: Vec<_> =
        fs::read_dir(state.join("views")).unwrap().flatten().filter(|e| e.path().is_dir()).collect();
    assert!(views.is_empty(), "{views:?}");
    assert_eq!(env.weir_json(&["workspace", "ls"]).as_array().unwrap().len(), 0);
}

#[test]
fn a_workspace_comes_back_with_what_was_written() {
    let env = Env::new();
    let Some((up, it)) = mirrored(&env) else { return };
    fs::write(it.folder.join("same1"), b"mine").unwrap();
    fs::write(it.folder.join("new"), b"new").unwrap();
    let status = env.git(&it.folder, &["status", "--porcelain"]);
    // As after a new start of the machine: nothing is mounted, and no process is left.
    let unmount = |folder: &Path| {
        let output = weir_testing::short_command("umount").arg("-l").arg(folder).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    unmount(&it.folder);
    let views = env.path(STATE).join("views");
    let view = fs::read_dir(&views).unwrap().flatten().find(|e| e.path().is_dir()).unwrap().path();
    unmount(&view);
    assert_eq!(env.weir_json(&["ws", "ls"])[0]["mounted"], false);
    let said = env.weir_fails(&["ws", "rm", it.folder.to_str().unwrap()]);
    assert!(said.contains("it is not mounted"), "{said}");
    env.weir(&["ws", "mount"]);
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), status);
    assert_eq!(fs::read(it.folder.join("same1")).unwrap(), b"mine");
    // The archive grows and is written again below it.
    env.add_commit(&up, 7);
    env.weir(&["mirror", "--all"]);
    env.weir(&["compact", "it"]);
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), status);
    env.git(&it.folder, &["fsck", "--no-dangling"]);
}

/// Untracked files in new folders are found, however git is asked to show them.
#[test]
fn new_folders_are_looked_into() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    for shown in ["all", "normal"] {
        env.git(&it.folder, &["config", "status.showUntrackedFiles", shown]);
        let status = || env.git(&it.folder, &["status", "--porcelain"]);
        assert_eq!((status(), status()), (String::new(), String::new()));
        fs::create_dir(it.folder.join("d0/empty")).unwrap();
        assert_eq!(status(), "");
        fs::create_dir_all(it.folder.join("d0/empty/e1/e2")).unwrap();
        fs::write(it.folder.join("d0/empty/e1/e2/file"), b"x").unwrap();
        let wanted = if shown == "all" { "?? d0/empty/e1/e2/file" } else { "?? d0/empty/" };
        assert_eq!(status(), wanted);
        fs::remove_dir_all(it.folder.join("d0/empty")).unwrap();
        assert_eq!(status(), "");
    }
}

/// A working tree that git adds to a workspace, and a work tree that is named by hand, have the workspace's
/// configuration.
#[test]
fn other_trees_of_its_git_directory_are_looked_at_by_git() {
    let env = Env::new();
    let Some((_, it)) = mirrored(&env) else { return };
    env.git(&it.folder, &["worktree", "add", "-q", "-b", "linked", env.path("linked").to_str().unwrap()]);
    let linked = env.path("linked");
    for (n, content) in ["one", "two", "three"].iter().enumerate() {
        fs::write(linked.join("same1"), content).unwrap();
        fs::write(linked.join(format!("new{n}")), content).unwrap();
        let status = env.git(&linked, &["status", "--porcelain"]);
        assert!(status.contains(" M same1") && status.contains(&format!("?? new{n}")), "{n}: {status}");
        assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
    }
    let git_dir = format!("--git-dir={}", it.folder.join(".git").display());
    let named = env.git(&linked, &[&git_dir, "--work-tree=.", "status", "--porcelain"]);
    assert!(named.contains(" M same1"), "{named}");
    assert_eq!(env.git(&it.folder, &["status", "--porcelain"]), "");
}

#[test]
fn what_cannot_be_a_workspace_is_named() {
    let env = Env::new();
    let Some((up, it)) = mirrored(&env) else { return };
    let fails = |source: &str, folder: &str| env.weir_fails(&["ws", "add", source, folder]);
    let said = fails("it", it.folder.to_str().unwrap());
    assert!(said.contains("is a workspace already"), "{said}");
    let said = env.weir_fails(&["mount", "it", it.folder.to_str().unwrap()]);
    assert!(said.contains("is a workspace; choose another folder"), "{said}");
    fs::create_dir(env.path("full")).unwrap();
    fs::write(env.path("full/file"), b"").unwrap();
    assert!(fails("it", "full").contains("is not empty"), "{}", fails("it", "full"));
    assert!(fails("it@none", "new").contains("no such revision"), "{}", fails("it@none", "new"));
    assert!(fails("none", "new").contains("none"), "{}", fails("none", "new"));
    // git would check other bytes out.
    env.commit_file(&up, "refs/heads/attributes", ".gitattributes", b"*.txt text\n*.bat eol=crlf\n");
    let output =
        env.weir_command(&["ws", "add", &format!("{}@attributes", up.display()), "odd"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("'.gitattributes' asks git to convert files"), "{said}");
    env.weir(&["ws", "rm", "odd"]);
    // git would not check these out.
    let blob = env.git_with(&up, &["hash-object", "-w", "--stdin"], b"x");
    let tree = format!("100644 blob {blob}\tf\n");
    let tree = env.git_with(&up, &["mktree"], tree.as_bytes());
    let data = tree_data(&[("40000", b".git", &tree)]);
    let top = env.git_with(&up, &["hash-object", "-t", "tree", "--literally", "-w", "--stdin"], &data);
    let commit = env.git(&up, &["commit-tree", "-m", "x", &top]);
    let said = fails(&format!("{}@{commit}", up.display()), "new");
    assert!(said.contains("git checks out no tree in which '.git' is a name"), "{said}");
    assert!(!env.path("new").exists(), "nothing is left");
    let said = env.weir_fails(&["ws", "rm", "full"]);
    assert!(said.contains("is in no workspace"), "{said}");
}
