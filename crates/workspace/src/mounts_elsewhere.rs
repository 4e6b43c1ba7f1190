//! Finds programs that use a mounted workspace by another mount, or watch its files.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use weir_ground::thread::spawn;

/// A thread that finds out whether anybody uses a workspace from elsewhere, which takes a while.
pub struct UserSearch(Option<JoinHandle<bool>>);

impl UserSearch {
    /// Begins to search for users of the workspace that is mounted on `folder`.
    pub fn begin(folder: &Path) -> UserSearch {
        let folder = folder.to_owned();
        UserSearch(spawn("used", move || is_used_elsewhere(&folder)).ok())
    }

    /// Waits, and returns whether somebody uses the workspace, or may use it.
    pub(crate) fn has_found(self) -> bool {
        self.0.is_none_or(|search| search.join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

/// Returns whether what is mounted on `folder` is mounted elsewhere, too, as for a container, or a program
/// waits for changes of its files (inotify(7), fanotify(7)), as far as this user may know.
fn is_used_elsewhere(folder: &Path) -> bool {
    let Ok(about) = fs::symlink_metadata(folder) else { return true };
    let (major, minor) = (rustix::fs::major(about.dev()), rustix::fs::minor(about.dev()));
    let device = format!("{major}:{minor}");
    // As the kernel prints its own numbers of devices.
    let watched = format!(" sdev:{:x} ", major << 20 | minor);
    let own = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts_of(&own, &device);
    let [ref mount] = mounts[..] else { return true };
    let own_group = mount.shared_group();
    let mut namespaces: HashSet<PathBuf> = fs::read_link("/proc/self/ns/mnt").into_iter().collect();
    processes().any(|process| {
        let namespace = fs::read_link(process.join("ns/mnt")).ok();
        // The kernel replaces mounts that follow this one along with it.
        let is_mounted = namespace.is_some_and(|namespace| namespaces.insert(namespace)) && {
            let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
            mounts_of(&mounts, &device).iter().any(|mount| !mount.follows(own_group))
        };
        is_mounted || watches(&process, &watched)
    })
}

/// A line of mountinfo (proc(5)).
struct MountLine<'l>(&'l str);

impl<'l> MountLine<'l> {
    /// Returns the group to whose members its changes go.
    fn shared_group(&self) -> Option<&'l str> {
        self.tags().find_map(|tag| tag.strip_prefix("shared:"))
    }

    /// Returns whether changes of the mounts of `group` go to it.
    fn follows(&self, group: Option<&str>) -> bool {
        let of_tag = |tag: &'l str| tag.strip_prefix("shared:").or_else(|| tag.strip_prefix("master:"));
        group.is_some() && self.tags().filter_map(of_tag).any(|of| Some(of) == group)
    }

    fn tags(&self) -> impl Iterator<Item = &'l str> {
        self.0.split(' ').skip(6).take_while(|field| *field != "-")
    }
}

/// Returns the mounts of the file system on `device`.
fn mounts_of<'l>(mountinfo: &'l str, device: &str) -> Vec<MountLine<'l>> {
    let is_of = |line: &&str| line.split(' ').nth(2) == Some(device);
    mountinfo.lines().filter(is_of).map(MountLine).collect()
}

/// Returns the processes that may have files open: not those of the kernel, which run no program.
fn processes() -> impl Iterator<Item = PathBuf> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = all.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit));
    let runs = |path: &PathBuf| match fs::read_link(path.join("exe")) {
        Err(e) => e.kind() != ErrorKind::NotFound,
        Ok(_) => true,
    };
    processes.map(|entry| entry.path()).filter(runs)
}

/// Returns whether a process watches files on the device that the kernel prints as `device`.
fn watches(process: &Path, device: &str) -> bool {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut watching = descriptors.filter(|descriptor| {
        let kind = fs::read_link(descriptor.path()).unwrap_or_default();
        matches!(kind.to_str(), Some("anon_inode:inotify" | "anon_inode:[fanotify]"))
    });
    watching.any(|descriptor| {
        let about = process.join("fdinfo").join(descriptor.file_name());
        fs::read_to_string(about).is_ok_and(|about| about.contains(device))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_follow_are_told_from_others() {
        let info = "30 1 0:52 / /w rw,nosuid shared:7 - overlay weir rw,lowerdir=a - b\n\
                    31 1 0:53 / /x rw - overlay weir rw\n\
                    32 1 0:52 / /y rw master:7 - overlay weir rw\n\
                    33 1 0:52 /d /z rw - overlay weir rw\n\
                    34 1 0:520 / /o rw - tmpfs none rw\n";
        let mounts = mounts_of(info, "0:52");
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].shared_group(), Some("7"));
        let follow: Vec<bool> = mounts.iter().map(|mount| mount.follows(Some("7"))).collect();
        assert_eq!(follow, [true, true, false]);
        assert!(mounts.iter().all(|mount| !mount.follows(None) && !mount.follows(Some("70"))));
    }

    #[test]
    fn processes_that_run_a_program_are_found_and_those_that_watch() {
        let own = PathBuf::from(format!("/proc/{}", std::process::id()));
        let all: Vec<PathBuf> = processes().collect();
        assert!(all.contains(&own) && all.iter().all(|path| path.join("status").exists() || !path.exists()));
        let thread = PathBuf::from("/proc/2");
        if fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "kthreadd") {
            assert!(!all.contains(&thread), "the kernel's own run none");
        }
        let dir = weir_testing::folder();
        let device = fs::metadata(dir.path()).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let name = format!(" sdev:{:x} ", major << 20 | minor);
        // Other tests of this process watch nothing.
        assert!(!watches(&own, &name));
        let watch = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).unwrap();
        assert!(!watches(&own, &name), "it watches nothing yet");
        let what = rustix::fs::inotify::WatchFlags::CREATE;
        rustix::fs::inotify::add_watch(&watch, dir.path(), what).unwrap();
        assert!(watches(&own, &name) && !watches(&own, " sdev:ffffffff "));
        assert!(is_used_elsewhere(dir.path()), "it is no mount");
    }
}
