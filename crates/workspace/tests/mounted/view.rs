//! Views of repositories and commits.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_ground::Stop;
use weir_repo::Repo;
use weir_testing::{tree_data, wait_until};
use weir_workspace::{
    Error, Mount, MountOptions, Repositories, Result, Shown, is_mounted, is_shown, mount, unmount_dead,
};

use crate::inside::{git, is_inside, open, start};
use crate::origin::{TestOrigin, WalkedFile, assert_same, walk};

const OPTIONS: MountOptions = MountOptions { threads: 2, allow_other: false };

/// Git directories by name. Each lookup opens one again.
#[derive(Clone, Default)]
struct NamedDirectories(Arc<Mutex<BTreeMap<String, PathBuf>>>);

impl NamedDirectories {
    fn add(&self, name: &str, git_dir: &Path) {
        self.0.lock().unwrap().insert(name.to_owned(), git_dir.to_owned());
    }
}

impl Repositories for NamedDirectories {
    fn names(&self) -> Result<Arc<Vec<String>>> {
        Ok(Arc::new(self.0.lock().unwrap().keys().cloned().collect()))
    }

    fn open(&self, name: &str) -> Result<Option<Arc<Repo>>> {
        let path = self.0.lock().unwrap().get(name).cloned();
        Ok(path.map(|path| Arc::new(open(&path))))
    }
}

/// Mounts a view, calls `look`, and unmounts it.
fn with_view(at: &Path, shown: Shown, look: impl FnOnce()) {
    fs::create_dir_all(at).unwrap();
    let mounted: Mount = mount(shown, at, &OPTIONS).unwrap();
    assert!(is_mounted(at) && is_shown(at));
    look();
    let stop = Stop::default();
    stop.stop();
    mounted.wait(&stop);
    assert!(!is_mounted(at) && !is_shown(at));
}

fn names(at: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn view_of_a_commit_has_its_files() {
    if !is_inside() {
        return;
    }
    let origin = TestOrigin::new();
    let at = origin.path("view");
    let shown = |revision: &str| {
        let id = git(&origin.git_dir, &["rev-parse", revision]);
        let id = weir_git::Oid::from_hex_any(id.trim().as_bytes()).unwrap();
        Shown::Commit(Arc::new(open(&origin.git_dir)), id)
    };
    for revision in ["main", "v1", "other", "main^{tree}"] {
        let commit = revision.trim_end_matches("^{tree}");
        let files = origin.files(commit);
        with_view(&at, shown(revision), || assert_same(&walk(&at), &files));
    }
    with_view(&at, shown("main"), || {
        let about = fs::symlink_metadata(at.join("run.sh")).unwrap();
        assert_eq!((about.mode(), about.nlink()), (0o100_555, 1));
        assert_eq!((about.mtime(), about.mtime_nsec()), (1_700_000_000, 0));
        assert_eq!(fs::symlink_metadata(at.join("dir/a")).unwrap().mode(), 0o100_444);
        assert_eq!(fs::symlink_metadata(at.join("link")).unwrap().mode(), 0o120_777);
        let (dir, sub) = (fs::metadata(at.join("dir")).unwrap(), fs::metadata(at.join("dir/sub")).unwrap());
        assert_eq!((dir.mode(), dir.len()), (0o040_555, 0));
        // Folders lead up again.
        assert_eq!(fs::metadata(at.join("dir/sub/..")).unwrap().ino(), dir.ino());
        assert_eq!(fs::metadata(at.join("dir/sub/.")).unwrap().ino(), sub.ino());
        let mut large = fs::File::open(at.join("large")).unwrap();
        assert_eq!(large.metadata().unwrap().blocks(), 300_000_u64.div_ceil(512));
        large.seek(SeekFrom::Start(299_990)).unwrap();
        let mut end = Vec::new();
        large.read_to_end(&mut end).unwrap();
        assert_eq!(end, b"xxxxxxxxxx");
        assert!(fs::write(at.join("README"), "x").is_err(), "it is read-only");
        assert_eq!(fs::read(at.join("no")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(fs::read(at.join("README/no")).unwrap_err().kind(), std::io::ErrorKind::NotADirectory);
    });
    let missing = mount(shown("main:README"), &at, &OPTIONS).err().unwrap();
    assert!(matches!(missing, Error::NoCommit(_)));
    let no_folder = mount(shown("main"), &origin.git_dir.join("config"), &OPTIONS).err().unwrap();
    assert!(matches!(no_folder, Error::Mount { .. }));
}

#[test]
fn view_leaves_out_names_that_git_would_not_check_out() {
    if !is_inside() {
        return;
    }
    let origin = TestOrigin::new();
    let blob = git(&origin.git_dir, &["rev-parse", "main:README"]);
    let other = git(&origin.git_dir, &["rev-parse", "main:dir/a"]);
    let (blob, other) = (blob.trim(), other.trim());
    let data = tree_data(&[
        ("100644", b"..", blob),
        ("100644", b".git", blob),
        ("100644", b"twice", blob),
        ("100644", b"twice", other),
        ("100600", b"odd mode", blob),
        ("100644", b"a", other),
    ]);
    let args = ["hash-object", "-t", "tree", "-w", "--stdin", "--literally"];
    let tree = weir_testing::run_git(&origin.git_dir, &args, &data);
    let tree = weir_git::Oid::from_hex_any(tree.trim_ascii()).unwrap();
    let at = origin.path("view");
    let file = |text: &str| WalkedFile::File { is_executable: false, data: text.into() };
    let expected = [("twice", "one\n"), ("odd mode", "one\n"), ("a", "a\n")];
    let expected = expected.map(|(name, text)| (PathBuf::from(name), file(text))).into_iter().collect();
    let shown = Shown::Commit(Arc::new(open(&origin.git_dir)), tree);
    with_view(&at, shown, || assert_same(&walk(&at), &expected));
}

#[test]
fn view_of_repositories_shows_branches_tags_and_commits_as_they_are_now() {
    if !is_inside() {
        return;
    }
    let origin = TestOrigin::new();
    let (named, at) = (NamedDirectories::default(), origin.path("view"));
    for name in ["a/b", "a/b/c", "a/b/tags", "a/d", "z"] {
        named.add(name, &origin.git_dir);
    }
    git(&origin.git_dir, &["branch", "x/y/z", "other"]);
    git(&origin.git_dir, &["branch", "x/w", "main"]);
    let (main, other) = (origin.main.to_string(), origin.other.to_string());
    with_view(&at, Shown::All(Box::new(named.clone())), || {
        assert_eq!(names(&at), ["a", "z"]);
        assert_eq!(names(&at.join("a")), ["b", "d"]);
        let own = ["HEAD", "branches", "commits", "refs", "tags"];
        assert_eq!(names(&at.join("a/b")), ["HEAD", "branches", "c", "commits", "refs", "tags"]);
        assert_eq!(names(&at.join("a/b/c")), own);
        assert_eq!(names(&at.join("z")), own);
        assert_eq!(names(&at.join("z/branches")), ["main", "near", "other", "x"]);
        assert_eq!(names(&at.join("z/branches/x")), ["w", "y"]);
        assert_eq!(names(&at.join("z/tags")), ["v1"]);
        assert_eq!(names(&at.join("z/refs")), ["heads", "tags"]);
        let link = |name: &str| fs::read_link(at.join(name)).unwrap().to_str().unwrap().to_owned();
        assert_eq!(link("z/HEAD"), format!("commits/{main}"));
        assert_eq!(link("z/branches/other"), format!("../commits/{other}"));
        assert_eq!(link("z/branches/x/y/z"), format!("../../../commits/{other}"));
        assert_eq!(link("z/refs/tags/v1"), format!("../../commits/{main}"));
        assert_eq!(link(&format!("z/commits/{}", &main[..9])), main);
        let mut commits = [main.clone(), other.clone(), origin.near.to_string()];
        commits.sort();
        assert_eq!(names(&at.join("z/commits")), commits);
        assert_same(&walk(&at.join("z/HEAD")), &origin.files("main"));
        assert_same(&walk(&at.join("a/b/c/branches/x/y/z")), &origin.files("other"));
        for missing in
            ["z/commits/abc", "z/commits/xyzw", "z/branches/mai", "z/branches/x/y/z/no", "a/x", "y"]
        {
            assert_eq!(fs::read_dir(at.join(missing)).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        }
        let id = |name: &str| fs::metadata(at.join(name)).unwrap().ino();
        assert_eq!(id("a/b/branches/.."), id("a/b"));
        assert_eq!(id(&format!("z/commits/{main}/dir/..")), id(&format!("z/commits/{main}")));
        assert_eq!(id(&format!("z/commits/{main}/..")), id("z/commits"));
        // The view follows changes of the repositories.
        git(&origin.git_dir, &["branch", "-f", "x/w", "other"]);
        git(&origin.git_dir, &["branch", "later", "near"]);
        named.add("a/later", &origin.git_dir);
        wait_until(
            || "nothing is new".to_owned(),
            || link("z/branches/x/w").ends_with(&other) && at.join("a/later/branches/later/README").exists(),
        );
        assert_eq!(names(&at.join("a")), ["b", "d", "later"]);
        named.0.lock().unwrap().remove("z");
        wait_until(|| "it stays".to_owned(), || !at.join("z/HEAD").exists());
    });
    with_view(&at, Shown::One(Box::new(named.clone()), "a/b".to_owned()), || {
        assert_eq!(names(&at), ["HEAD", "branches", "c", "commits", "refs", "tags"]);
        assert_same(&walk(&at.join("tags/v1")), &origin.files("main"));
    });
}

#[test]
fn view_ends_when_it_is_unmounted_also_while_it_is_in_use() {
    if !is_inside() {
        return;
    }
    let origin = TestOrigin::new();
    let at = origin.path("view");
    fs::create_dir(&at).unwrap();
    let shown = || Shown::Commit(Arc::new(open(&origin.git_dir)), origin.main);
    let mounted = mount(shown(), &at, &OPTIONS).unwrap();
    let waiting = std::thread::spawn(move || mounted.wait(&Stop::default()));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished());
    unmount_dead(&at);
    waiting.join().unwrap();
    let mounted = mount(shown(), &at, &OPTIONS).unwrap();
    let mut opened = fs::File::open(at.join("large")).unwrap();
    let stop = Stop::default();
    stop.stop();
    let waiting = std::thread::spawn(move || mounted.wait(&stop));
    wait_until(|| "it stays".to_owned(), || !is_mounted(&at));
    let mut all = Vec::new();
    opened.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 300_000, "whoever has it open reads on");
    drop(opened);
    waiting.join().unwrap();
}

#[test]
fn view_goes_on_when_the_process_is_killed_that_serves_it() {
    if !is_inside() {
        return;
    }
    let origin = TestOrigin::new();
    let at = origin.path("view");
    fs::create_dir(&at).unwrap();
    let main = origin.main.to_string();
    let fields = [origin.git_dir.as_os_str(), main.as_ref(), "".as_ref(), at.as_os_str()];
    assert!(start("show", &fields));
    assert!(is_shown(&at));
    assert_eq!(names(&at), ["files", "objects"]);
    let packs = names(&at.join("objects/pack"));
    assert_eq!(
        packs,
        names(&origin.git_dir.join("objects/pack"))
            .into_iter()
            .filter(|name| { name.ends_with(".pack") || name.ends_with(".idx") })
            .collect::<Vec<_>>()
    );
    for pack in &packs {
        let of = |folder: &Path| fs::read(folder.join("objects/pack").join(pack)).unwrap();
        assert!(of(&at) == of(&origin.git_dir), "{pack}");
    }
    let files = at.join("files");
    let numbers = |of: &[&str]| -> Vec<u64> {
        of.iter().map(|name| fs::symlink_metadata(files.join(name)).unwrap().ino()).collect()
    };
    let known = ["", "dir", "dir/sub", "dir/sub/b"];
    let before = numbers(&known);
    let all = origin.files("main");
    for round in 0..3 {
        // The guard is a child of the test's, and the server one of the guard.
        let guards = weir_testing::processes::children(std::process::id());
        let servers: Vec<u32> =
            guards.iter().flat_map(|guard| weir_testing::processes::children(*guard)).collect();
        assert_eq!(servers.len(), 1, "{guards:?}");
        assert!(weir_testing::processes::kill_found(servers[0]));
        assert_same(&walk(&files), &all);
        assert_eq!(numbers(&known), before, "{round}");
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        assert_eq!(numbers(&known), before, "{round}");
    }
    unmount_dead(&at);
    wait_until(
        || "the guard stays".to_owned(),
        || {
            let guards = weir_testing::processes::children(std::process::id());
            guards.iter().all(|guard| {
                let stat = fs::read_to_string(format!("/proc/{guard}/stat")).unwrap_or_default();
                stat.is_empty() || stat.contains(") Z ")
            })
        },
    );
    // The view shows nothing for a name that is no commit or no repository.
    let odd = [origin.path("none").into_os_string(), main.into(), "".into(), at.clone().into_os_string()];
    assert!(!start("show", &odd.each_ref().map(|field| field.as_os_str())));
    assert!(!is_mounted(&at));
}
