//! Adds and removes workspaces.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_repo::Repo;
use weir_workspace::{
    Added, Error, Monitor, NewWorkspace, Result, Unsaved, Workspace, Workspaces, is_mounted, unmount_dead,
};

use crate::inside::{TestProcesses, git, is_inside, open, start};
use crate::origin::{TestOrigin, assert_same, walk, write};

/// Workspaces of an origin.
pub struct MadeWorkspaces {
    pub origin: TestOrigin,
    pub repo: Repo,
    pub workspaces: Workspaces,
    pub root: PathBuf,
}

impl MadeWorkspaces {
    pub fn new() -> MadeWorkspaces {
        let origin = TestOrigin::new();
        let (repo, root) = (open(&origin.git_dir), origin.path("records"));
        MadeWorkspaces { origin, repo, workspaces: Workspaces::new(root.clone()), root }
    }

    /// Adds a workspace of `main`, on that branch, in a folder called `name`.
    pub fn add(&self, name: &str) -> Workspace {
        self.try_add(&self.origin.path(name), |_| {}).unwrap().workspace
    }

    /// Adds a workspace, after `change` has changed what it is to be.
    pub fn try_add<'a>(
        &'a self,
        folder: &'a Path,
        change: impl FnOnce(&mut NewWorkspace<'a>),
    ) -> Result<Added> {
        let mut new = NewWorkspace {
            folder,
            repository: "origin",
            source: &self.origin.git_dir,
            repo: &self.repo,
            url: None,
            commit: self.origin.main,
            listed: None,
            branch: Some("main"),
            now: 1_700_000_123,
            uses_fuse_overlayfs: false,
            monitor: "false",
            asks: Monitor::None,
            ignores: &|| None,
        };
        change(&mut new);
        self.workspaces.add(&new, &TestProcesses)
    }
}

/// Checks that git takes the workspace for unchanged, and that the index says of each file what the system
/// says: git would have to read the file otherwise.
pub fn assert_clean(folder: &Path) {
    let status =
        git(folder, &["-c", "core.fsmonitor=false", "status", "--porcelain", "--untracked-files=all"]);
    assert_eq!(status, "");
    git(folder, &["fsck", "--no-dangling"]);
    git(folder, &["diff-files", "--quiet"]);
    let said = index_of(folder);
    for (name, fields) in said {
        let about = fs::symlink_metadata(folder.join(&name)).unwrap();
        let of = |field: &str| fields[field].as_str();
        if git(folder, &["ls-files", "--stage", "--", &name]).starts_with("160000") {
            continue;
        }
        assert_eq!(of("mtime"), format!("{}:{}", about.mtime(), about.mtime_nsec()), "{name}");
        assert_eq!(of("uid"), about.uid().to_string(), "{name}");
        assert_eq!(of("gid"), about.gid().to_string(), "{name}");
        assert_eq!(of("size"), about.len().to_string(), "{name}");
        assert_eq!(of("ino"), (about.ino() as u32).to_string(), "{name}");
    }
}

/// Returns what `git ls-files --debug` prints, by paths and fields.
pub fn index_of(folder: &Path) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut entries = BTreeMap::new();
    let mut name = String::new();
    for line in git(folder, &["ls-files", "--debug"]).lines() {
        if !line.starts_with("  ") {
            name = line.to_owned();
            continue;
        }
        for field in line.trim().split('\t') {
            let (key, value) = field.split_once(": ").unwrap();
            let of: &mut BTreeMap<String, String> = entries.entry(name.clone()).or_default();
            of.insert(key.to_owned(), value.to_owned());
        }
    }
    entries
}

#[test]
fn workspace_shows_a_commit_as_git_does() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let (origin, folder) = (&made.origin, made.origin.path("w"));
    let workspace = made.add("w");
    assert_same(&walk(&folder), &origin.files("main"));
    assert_clean(&folder);
    assert!(is_mounted(&folder) && made.workspaces.is_alive(&workspace));
    let about = fs::metadata(folder.join("README")).unwrap();
    assert_eq!((about.mtime(), about.mtime_nsec()), (1_700_000_000, 0), "the time of the commit");
    assert_eq!(about.mode(), 0o100_644);
    assert_eq!(fs::metadata(folder.join("run.sh")).unwrap().mode(), 0o100_755);
    for (question, answer) in [
        (&["rev-parse", "HEAD", "main", "origin/other"][..], [origin.main, origin.main, origin.other]),
        (&["rev-parse", "v1^{}", "origin/main", "origin/HEAD"], [origin.main, origin.main, origin.main]),
    ] {
        let lines: String = answer.iter().map(|oid| format!("{oid}\n")).collect();
        assert_eq!(git(&folder, question), lines);
    }
    assert_eq!(git(&folder, &["rev-parse", "--abbrev-ref", "HEAD", "main@{u}"]), "main\norigin/main\n");
    let url = git(&folder, &["config", "remote.origin.url"]);
    assert_eq!(url.trim(), origin.git_dir.to_str().unwrap());
    assert_eq!(git(&folder, &["config", "core.untrackedCache"]).trim(), "false");
    assert_eq!(made.workspaces.head(&workspace), Some((origin.main, Some("main".to_owned()))));
    let found = made.workspaces.find(&folder.join("dir/sub")).unwrap();
    let fields = |one: &Workspace| (one.folder.clone(), one.commit.clone(), one.branch.clone(), one.made_at);
    let expected = (folder.clone(), origin.main.to_string(), Some("main".to_owned()), 1_700_000_123);
    assert_eq!(fields(&found), expected);
    assert_eq!((&*found.repository, &found.source), ("origin", &origin.git_dir));
    assert!(matches!(made.workspaces.find(&origin.path("x")), Err(Error::NoWorkspace(_))));
    // A second one shares its view and index; it is detached, and has settings that are hard to write.
    let second = made.try_add(&origin.path("a \"b\" [c]"), |new| {
        (new.branch, new.url) = (None, Some("https://h/\"a\"\\b"));
        (new.asks, new.monitor) = (Monitor::Hook, "false");
    });
    let second = second.unwrap().workspace;
    assert_eq!(git(&second.folder, &["config", "remote.origin.url"]), "https://h/\"a\"\\b\n");
    assert_eq!(git(&second.folder, &["config", "core.untrackedCache"]).trim(), "true");
    assert!(git(&second.folder, &["config", "core.fsmonitor"]).trim().ends_with("/fsmonitor"));
    assert_clean(&second.folder);
    assert_eq!(made.workspaces.head(&second), Some((origin.main, None)));
    assert_eq!(made.workspaces.view(&workspace), made.workspaces.view(&second));
    let listed: Vec<PathBuf> = made.workspaces.list().unwrap().into_iter().map(|one| one.folder).collect();
    assert_eq!(listed, [second.folder.clone(), folder.clone()]);
    // A commit of another one is in that alone.
    write(&folder.join("dir/a"), "mine\n");
    git(&folder, &["commit", "-q", "-am", "mine"]);
    assert_clean(&folder);
    assert_eq!(fs::read_to_string(second.folder.join("dir/a")).unwrap(), "a\n");
}

#[test]
fn workspace_is_mounted_again_and_removed_with_all_that_it_has() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let workspaces = &made.workspaces;
    assert!(!workspaces.are_there());
    let workspace = made.add("w");
    let second = made.add("second");
    assert!(workspaces.are_there());
    let folder = &workspace.folder;
    write(&folder.join("written"), "kept");
    let (view, written) = (workspaces.view(&workspace), workspaces.written(&workspace));
    assert_eq!(fs::read_to_string(written.join("written")).unwrap(), "kept");
    assert!(written.starts_with(&made.root));
    // As after a start of the machine: nothing is mounted.
    for path in [folder, &second.folder, &view] {
        unmount_dead(path);
        assert!(!is_mounted(path));
    }
    assert!(!workspaces.is_alive(&workspace));
    assert!(matches!(workspaces.whole_status(&workspace), Err(Error::NotMounted)));
    assert_eq!(workspaces.unsaved(&workspace, None).unwrap(), Some(Unsaved::Unknown));
    workspaces.mount(&workspace, &TestProcesses).unwrap();
    assert!(workspaces.is_alive(&workspace));
    assert_eq!(fs::read_to_string(folder.join("written")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(folder.join("dir/a")).unwrap(), "a\n");
    // Its view alone has ended: what is mounted upon it is of no use.
    unmount_dead(&view);
    assert!(is_mounted(folder) && !workspaces.is_alive(&workspace));
    workspaces.mount(&workspace, &TestProcesses).unwrap();
    assert!(workspaces.is_alive(&workspace));
    assert_eq!(fs::read_to_string(folder.join("written")).unwrap(), "kept");
    workspaces.mount(&second, &TestProcesses).unwrap();
    // One that is in use is not removed.
    let opened = fs::File::open(folder.join("README")).unwrap();
    assert!(matches!(workspaces.remove(&workspace), Err(Error::Unmount { .. })));
    drop(opened);
    workspaces.remove(&workspace).unwrap();
    assert!(!folder.exists() && !written.exists());
    assert!(is_mounted(&view), "another one stands on it");
    assert!(matches!(workspaces.remove(&workspace), Err(Error::NoWorkspace(_))));
    workspaces.remove(&second).unwrap();
    assert!(!view.exists() && !workspaces.are_there());
    let mut left: Vec<PathBuf> =
        fs::read_dir(&made.root).unwrap().map(|entry| entry.unwrap().path()).collect();
    left.retain(|path| !["lock", "views", "indexes"].iter().any(|name| path.ends_with(name)));
    assert_eq!(left, Vec::<PathBuf>::new());
    for folder in ["views", "indexes"] {
        let left: Vec<PathBuf> =
            fs::read_dir(made.root.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        // Processes that are about to end have the locks of their views.
        let left: Vec<PathBuf> =
            left.into_iter().filter(|path| path.extension() != Some("lock".as_ref())).collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

#[test]
fn workspace_is_not_added_where_something_is() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let (origin, workspaces) = (&made.origin, &made.workspaces);
    let first = made.add("w");
    let try_at = |folder: &Path| made.try_add(folder, |_| {}).map(|added| added.workspace.folder);
    assert!(matches!(try_at(&first.folder), Err(Error::Taken(at)) if at == first.folder));
    assert!(matches!(try_at(&first.folder.join("dir/in")), Err(Error::Odd(_))));
    assert!(!first.folder.join("dir/in").exists());
    let full = origin.path("full");
    write(&full.join("file"), "");
    assert!(matches!(try_at(&full), Err(Error::NotEmpty(at)) if at == full));
    assert!(matches!(try_at(&origin.path("a\nb")), Err(Error::Odd(_))));
    use std::os::unix::ffi::OsStrExt;
    let odd = origin.folder.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
    assert!(matches!(try_at(&odd), Err(Error::Odd(_))));
    // The test damages weir's record of the workspace, and leaves the files that the user wrote.
    let place = workspaces.written(&first).parent().unwrap().to_owned();
    let record = place.join("workspace.json");
    let text = fs::read(&record).unwrap();
    fs::write(&record, "{}").unwrap();
    assert!(matches!(workspaces.find(&first.folder), Err(Error::Odd(_))));
    assert!(workspaces.list().unwrap().is_empty() && workspaces.are_there());
    fs::write(&record, String::from_utf8(text.clone()).unwrap().replace("\"version\": 1", "\"version\": 3"))
        .unwrap();
    assert!(matches!(workspaces.find(&first.folder), Err(Error::Odd(_))));
    unmount_dead(&first.folder);
    fs::remove_file(&record).unwrap();
    assert!(matches!(try_at(&first.folder), Err(Error::Odd(_))));
    fs::write(&record, text).unwrap();
    // A folder that is empty is taken, and stays where the commit cannot be shown.
    let empty = origin.path("empty");
    fs::create_dir(&empty).unwrap();
    let blob = git(&origin.git_dir, &["rev-parse", "main:README"]);
    let blob = weir_git::Oid::from_hex_any(blob.trim().as_bytes()).unwrap();
    let refused = made.try_add(&empty, |new| new.commit = blob);
    assert!(matches!(refused, Err(Error::NotACommit(_))));
    let (new, none) = (origin.path("new"), origin.path("none.git"));
    for folder in [&empty, &new] {
        let refused = made.try_add(folder, |new| new.source = &none);
        assert!(matches!(refused, Err(Error::Source(_))), "{refused:?}");
    }
    assert!(empty.is_dir() && !new.exists());
    let views = fs::read_dir(made.root.join("views")).unwrap();
    let views = views.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(views.count(), 1, "that of the first");
    assert_eq!(try_at(&empty).unwrap(), empty);
    assert_clean(&empty);
}

#[test]
fn workspace_tells_of_attributes_that_ask_for_other_bytes() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let (origin, workspace) = (&made.origin, made.add("w"));
    write(&workspace.folder.join("dir/.gitattributes"), "*.txt text eol=crlf\n");
    git(&workspace.folder, &["add", "-A"]);
    git(&workspace.folder, &["commit", "-q", "-m", "attributes"]);
    git(&workspace.folder, &["push", "-q", "origin", "HEAD:refs/heads/attributes"]);
    let commit = crate::origin::head(&workspace.folder);
    let repo = open(&origin.git_dir);
    for name in ["x", "y"] {
        let added = made.try_add(&origin.path(name), |new| {
            (new.commit, new.branch, new.repo) = (commit, None, &repo);
        });
        assert_eq!(added.unwrap().converts.as_deref(), Some("dir/.gitattributes"));
    }
    assert_eq!(made.try_add(&origin.path("z"), |_| {}).unwrap().converts, None);
}

#[test]
fn process_that_answers_git_is_asked_at_its_socket() {
    if !is_inside() {
        return;
    }
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let made = MadeWorkspaces::new();
    let folder = made.origin.path("w");
    made.try_add(&folder, |new| new.asks = Monitor::Socket).unwrap();
    let socket = made.root.join("fsmonitor.sock");
    assert_eq!(fs::read_link(folder.join(".git/fsmonitor--daemon.ipc")).unwrap(), socket);
    let config = fs::read_to_string(folder.join(".git/fsmonitor.config")).unwrap();
    assert_eq!(config, "[core]\n\tfsmonitor = true\n");
    let ask = |token: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        write!(stream, "{:04x}{token}0000", token.len() + 4).unwrap();
        let mut told = Vec::new();
        stream.read_to_end(&mut told).unwrap();
        let (len, rest) = told.split_at(4);
        let len = usize::from_str_radix(std::str::from_utf8(len).unwrap(), 16).unwrap();
        assert_eq!(&rest[len - 4..], b"0000");
        let mut parts = rest[..len - 4].split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let token = parts.next().unwrap().into_owned();
        (token, parts.filter(|part| !part.is_empty()).map(|part| part.into_owned()).collect::<Vec<_>>())
    };
    // Outside of a workspace, weir answers that every file may have changed.
    std::env::set_current_dir(made.origin.folder.path()).unwrap();
    assert_eq!(ask("weir:1:0").1, ["/"]);
    std::env::set_current_dir(&folder).unwrap();
    let (token, _) = ask("x");
    assert_eq!(ask(&token).1, [""; 0]);
    write(Path::new("dir/new"), "new");
    let (later, changed) = ask(&token);
    assert_eq!(changed, ["dir/new", "dir/new/"]);
    assert_ne!(later, token);
    // Another process answers only after this one; the last workspace takes it along.
    assert!(!start("answer", &[made.origin.path("nowhere").as_os_str()]));
    std::env::set_current_dir("/").unwrap();
    made.workspaces.remove(&made.workspaces.find(&folder).unwrap()).unwrap();
    weir_testing::wait_until(|| "the socket stays".to_owned(), || !socket.exists());
}
