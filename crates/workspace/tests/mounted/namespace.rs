//! The namespace of a user, and what a machine has for workspaces.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weir_workspace::{
    Error, MountWay, Namespace, NamespaceCommand, Result, diagnosis, is_mounted, may_mount,
};

use crate::inside::{is_inside, start};
use crate::origin::set_mode;

/// Holds the namespace of the records in `root`, until a file called `needed` is gone.
pub fn hold(root: &Path, ready: impl FnOnce() -> io::Result<()>) -> Result<()> {
    let needed = root.join("needed");
    Namespace::new(root).hold(|| ready().unwrap(), move || needed.exists())
}

#[test]
fn namespace_runs_commands_until_it_is_not_needed() {
    if !is_inside() {
        return;
    }
    let dir = weir_testing::folder();
    let root = dir.path().join("a long name of a folder".repeat(4));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("needed"), "").unwrap();
    let (namespace, started) = (Namespace::new(&root), std::cell::Cell::new(0));
    let begin = || {
        started.set(started.get() + 1);
        assert!(start("hold", &[root.as_os_str()]));
        Ok(())
    };
    let run = |script: &str| {
        let args: Vec<OsString> = ["-c", script].into_iter().map(OsString::from).collect();
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let environment = [pair("PATH", "/usr/bin:/bin"), pair("SAID", "a=b c")];
        let command =
            NamespaceCommand { program: "/bin/sh".as_ref(), args: &args, environment: &environment };
        namespace.run(&command, &begin)
    };
    assert!(!namespace.is_held() && namespace.mounted().is_empty());
    std::env::set_current_dir(dir.path()).unwrap();
    let mounted = dir.path().join("a b");
    fs::create_dir(&mounted).unwrap();
    assert_eq!(run("mount -t tmpfs none 'a b' && test \"$SAID\" = 'a=b c' && pwd > said").unwrap(), 0);
    assert_eq!(fs::read_to_string("said").unwrap().trim(), dir.path().to_str().unwrap());
    assert!(namespace.is_held() && namespace.mounted().contains(&mounted));
    assert!(!is_mounted(&mounted), "only there");
    assert_eq!(run("mountpoint -q 'a b' && exit 7").unwrap(), 7);
    assert_eq!(run("kill -9 $$").unwrap(), 128 + 9);
    assert_eq!(run("exit 3").unwrap(), 3);
    let none = NamespaceCommand { program: "/nowhere".as_ref(), args: &[], environment: &[] };
    assert_eq!(namespace.run(&none, &begin).unwrap(), 1);
    assert_eq!(started.get(), 1);
    // The process has other threads, and stays where it is.
    assert!(matches!(namespace.enter(&begin), Err(Error::NoNamespace(_))));
    fs::remove_file(root.join("needed")).unwrap();
    assert_eq!(run("exit 4").unwrap(), 4);
    // The process that holds it ends after its last answer.
    let is_over = || !namespace.is_held() && !root.join("namespace.sock").exists();
    weir_testing::wait_until(|| "it is held".to_owned(), is_over);
    let refused = || Err(Error::NoNamespace(io::ErrorKind::PermissionDenied.into()));
    assert!(matches!(namespace.run(&none, &refused), Err(Error::NoNamespace(_))));
    assert!(may_mount());
}

#[test]
fn machine_has_what_workspaces_need() {
    if !is_inside() {
        return;
    }
    let dir = weir_testing::folder();
    let programs = dir.path().join("bin");
    fs::create_dir(&programs).unwrap();
    let told = |path: &Path, namespace: std::result::Result<(), &str>| {
        let found = diagnosis(&dir.path().join("new/records"), path.as_os_str(), namespace);
        let needs = found.needs.iter().map(|need| (need.name, need.is_there, need.remark.clone()));
        (found.way, needs.collect::<Vec<_>>())
    };
    let (way, needs) = told(&programs, Err("no namespace"));
    assert_eq!(way, Some(MountWay::Kernel));
    let there: Vec<bool> = needs.iter().map(|(_, is_there, _)| *is_there).collect();
    assert_eq!(there, [true, true, true, true, false, false], "{needs:?}");
    assert_eq!(needs[4].2, "no namespace");
    let left: Vec<PathBuf> =
        fs::read_dir(dir.path().join("new/records")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    fs::create_dir(programs.join("fusermount3")).unwrap();
    fs::write(programs.join("fuse-overlayfs"), "").unwrap();
    set_mode(&programs.join("fuse-overlayfs"), 0o755);
    assert!(!told(&programs, Ok(())).1[5].1, "a folder is no program");
    fs::remove_dir(programs.join("fusermount3")).unwrap();
    fs::write(programs.join("fusermount3"), "").unwrap();
    assert!(!told(&programs, Ok(())).1[5].1, "nor is a file");
    set_mode(&programs.join("fusermount3"), 0o755);
    let (_, needs) = told(&programs, Ok(()));
    assert!(needs.iter().all(|(_, is_there, _)| *is_there), "{needs:?}");
}
