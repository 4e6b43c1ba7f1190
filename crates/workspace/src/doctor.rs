//! Checks whether a machine has what workspaces need.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use serde::Serialize;

use crate::namespace::may_mount;
use crate::overlay::FUSE_OVERLAYFS;

/// The program of FUSE that mounts for users.
const FUSERMOUNT: &str = "fusermount3";

/// How a user gets union mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountWay {
    /// By the kernel, for all processes: root.
    Kernel,
    /// By the kernel, in a namespace of the user's own.
    Namespace,
    /// By the program fuse-overlayfs, if asked for: its versions 1.10 and 1.14 show files again that were
    /// deleted.
    FuseOverlayfs,
}

/// Something that workspaces may need.
#[derive(Clone, Debug, Serialize)]
pub struct Need {
    /// Its name.
    pub name: &'static str,
    /// Whether it is there.
    pub is_there: bool,
    /// What it is for, or how to get it.
    pub remark: String,
}

/// What a machine has.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// The way in which this user gets workspaces, if there is one.
    pub way: Option<MountWay>,
    /// What was looked at.
    pub needs: Vec<Need>,
}

/// Returns what this machine has for workspaces whose records lie in `folder`. `namespace` is whether the
/// kernel makes a namespace for this user. `path` has the folders of programs (PATH).
pub fn diagnosis<E: Display>(folder: &Path, path: &OsStr, namespace: Result<(), E>) -> Diagnosis {
    let is_privileged = may_mount();
    let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let has_overlay = fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("\toverlay\n"));
    let attributes = keeps_attributes(folder, if is_privileged { "trusted.weir" } else { "user.weir" });
    let has_programs = has_program(path, FUSE_OVERLAYFS) && has_program(path, FUSERMOUNT);
    let kernel = fuse.is_ok() && has_overlay && attributes.is_ok();
    let way = if kernel && is_privileged {
        Some(MountWay::Kernel)
    } else if kernel && namespace.is_ok() {
        Some(MountWay::Namespace)
    } else {
        (fuse.is_ok() && has_programs).then_some(MountWay::FuseOverlayfs)
    };
    let need = |name, is_there: bool, yes: &str, no: &dyn Fn() -> String| Need {
        name,
        is_there,
        remark: if is_there { yes.to_owned() } else { no() },
    };
    let needs = vec![
        need("/dev/fuse", fuse.is_ok(), "", &|| match fuse.as_ref().err().map(std::io::Error::kind) {
            Some(std::io::ErrorKind::PermissionDenied) => {
                "only root may open it: 'chmod 666 /dev/fuse', as distributions have it".to_owned()
            }
            Some(std::io::ErrorKind::NotFound) => {
                "load the kernel's module 'fuse', or pass the device to the container".to_owned()
            }
            _ => fuse.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        }),
        need("overlayfs of the kernel", has_overlay, "", &|| "'modprobe overlay', as root".to_owned()),
        need("extended attributes", attributes.is_ok(), "", &|| {
            let why = attributes.as_ref().err().map(ToString::to_string).unwrap_or_default();
            format!("{}: {why}; set XDG_STATE_HOME to a folder on ext4, XFS or Btrfs", folder.display())
        }),
        need("the right to mount", is_privileged, "all processes see workspaces", &|| {
            "only root, or CAP_SYS_ADMIN in a container, has it".to_owned()
        }),
        need("a namespace of your own", namespace.is_ok(), "a shell there shows workspaces", &|| {
            namespace.as_ref().err().map(ToString::to_string).unwrap_or_default()
        }),
        need(
            "fuse-overlayfs",
            has_programs,
            "if asked for: slow, and shows deleted files again now and then",
            &|| "install the packages fuse3 and fuse-overlayfs".to_owned(),
        ),
    ];
    Diagnosis { way, needs }
}

/// Returns whether a folder of `path` has the program called `name`.
fn has_program(path: &OsStr, name: &str) -> bool {
    let is_program = |path: PathBuf| {
        fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path).any(|folder| is_program(folder.join(name)))
}

/// Checks that files in `folder` keep an attribute called `name`.
fn keeps_attributes(folder: &Path, name: &str) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("doctor-{}", std::process::id()));
    fs::write(&path, b"")?;
    let kept = rustix::fs::setxattr(&path, name, b"1", XattrFlags::empty());
    fs::remove_file(&path)?;
    Ok(kept?)
}
