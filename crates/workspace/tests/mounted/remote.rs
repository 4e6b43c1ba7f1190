//! Tests of views of another machine's repository: weir mounts its files, or has only the trees of a commit
//! and fetches a file when a program reads it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_repo::{CommitTrees, Region, write_commit_trees};
use weir_workspace::{
    LowerCommit, MountOptions, RemoteCommit, RemoteFiles, Result, Shown, is_shown, mount, mount_remote_files,
    unmount_dead,
};

use crate::add::{MadeWorkspaces, assert_clean};
use crate::inside::{is_inside, open, start};
use crate::origin::{assert_same, walk};

const LONG: usize = 300_000;

/// Bytes that their file and place say.
struct CountedBytes;

fn byte(file: usize, at: u64) -> u8 {
    (at * 7 + file as u64) as u8
}

impl RemoteFiles for CountedBytes {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if file == 2 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        buffer.iter_mut().zip(offset..).for_each(|(to, at)| *to = byte(file, at));
        Ok(())
    }
}

/// Shows three files, the last of which cannot be read.
pub fn show_files(at: &Path, ready: impl FnOnce() -> io::Result<()>) -> Result<()> {
    let files = [("a", 10), ("long", LONG as u64), ("lost", 5)];
    let files = files.map(|(name, size)| (name.to_owned(), size)).to_vec();
    let options = MountOptions { threads: 1, allow_other: true };
    mount_remote_files(files, at, &options, ready, || Ok(Box::new(CountedBytes)))
}

#[test]
fn remote_files_are_read_from_where_they_are() {
    if !is_inside() {
        return;
    }
    let dir = weir_testing::folder();
    let at = dir.path();
    assert!(start("files", &[at.as_os_str()]));
    let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "long", "lost"]);
    for (file, name, size) in [(0, "a", 10), (1, "long", LONG)] {
        let expected: Vec<u8> = (0..size as u64).map(|place| byte(file, place)).collect();
        assert!(fs::read(at.join(name)).unwrap() == expected, "{name}");
        let about = fs::metadata(at.join(name)).unwrap();
        let fields = (about.mode(), about.len(), about.nlink(), about.blocks(), about.mtime());
        assert_eq!(fields, (0o100_444, size as u64, 1, (size as u64).div_ceil(512), 0));
        assert_eq!(about.ino(), file as u64 + 2);
    }
    let top = fs::metadata(at).unwrap();
    assert_eq!((top.mode(), top.ino()), (0o040_555, 1));
    assert_eq!(fs::read(at.join("lost")).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(fs::read(at.join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(fs::write(at.join("a"), "x").is_err());
    // Another process goes on.
    let guards = weir_testing::processes::children(std::process::id());
    let servers: Vec<u32> =
        guards.iter().flat_map(|guard| weir_testing::processes::children(*guard)).collect();
    assert!(servers.iter().all(|server| weir_testing::processes::kill_found(*server)));
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_eq!(fs::read(at.join("a")).unwrap()[9], byte(0, 9));
    assert!(is_shown(at));
    unmount_dead(at);
    assert!(!is_shown(at));
}

/// Returns the list of the trees of `main`.
fn trees(made: &MadeWorkspaces) -> CommitTrees {
    let list = write_commit_trees(&made.repo, &made.origin.main).unwrap();
    let at = made.origin.path("trees");
    fs::write(&at, list).unwrap();
    let (file, len) = (fs::File::open(&at).unwrap(), fs::metadata(&at).unwrap().len());
    // SAFETY: nobody writes to the file again.
    let list = unsafe { Region::map(Arc::new(file), len) }.unwrap();
    CommitTrees::parse(made.repo.hash(), &made.origin.main, list).unwrap()
}

#[test]
fn remote_commit_shows_what_its_trees_list() {
    if !is_inside() {
        return;
    }
    let made = MadeWorkspaces::new();
    let at = made.origin.path("view");
    fs::create_dir(&at).unwrap();
    let reopened = Arc::new(AtomicBool::new(false));
    let (told, git_dir) = (Arc::clone(&reopened), made.origin.git_dir.clone());
    let reopen = move || {
        told.store(true, Ordering::Relaxed);
        Ok(open(&git_dir))
    };
    let remote = Some(Arc::new(RemoteCommit::new(trees(&made), Box::new(reopen))));
    let repo = Arc::new(open(&made.origin.git_dir));
    let shown = Shown::Lower(LowerCommit { repo, commit: made.origin.main, remote, times: None });
    let options = MountOptions { threads: 1, allow_other: false };
    let mounted = mount(shown, &at, &options).unwrap();
    assert_same(&walk(&at.join("files")), &made.origin.files("main"));
    assert!(!reopened.load(Ordering::Relaxed));
    unmount_dead(&at);
    mounted.wait(&weir_ground::Stop::default());
    // A workspace needs no object for its index.
    let listed = trees(&made);
    let added = made.try_add(&made.origin.path("w"), |new| new.listed = Some(&listed)).unwrap();
    assert_clean(&added.workspace.folder);
    assert_same(&walk(&added.workspace.folder), &made.origin.files("main"));
}
