//! Writes the working tree of a new clone: by itself where git would write the files as they are stored, else
//! by git.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use weir_git::{Kind, LOCAL_ENVIRONMENT, Oid};
use weir_ground::FileError;
use weir_worktree::{CheckOut, CheckedOut, PathForm};

use crate::error::{Error, Result};
use crate::repository::Target;

/// Checks out HEAD, the id of which is `tip`; it `is_detached` if it names no branch. With `lets_git`, git
/// writes the files in any case.
pub(crate) fn check_out(target: &Target, tip: &str, is_detached: bool, lets_git: bool) -> Result<()> {
    if !lets_git {
        match check_out_alone(target, tip, is_detached) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // git says better what is wrong.
            Err(e) => tracing::debug!("git checks out instead: {e}"),
        }
        clear(&target.top);
    }
    check_out_by_git(&target.top, is_detached.then_some(tip))
}

/// Writes the working tree and the index. Returns false if that is left to git.
fn check_out_alone(target: &Target, tip: &str, is_detached: bool) -> Result<bool> {
    let repo = weir_repo::open_directory(&target.git_dir).map_err(Error::repo("the clone"))?;
    let fail = || Error::repo("the clone");
    let Some(tip) = Oid::from_hex(repo.hash(), tip.as_bytes()) else { return Ok(false) };
    let commit = repo.objects().peel(&tip).map_err(fail())?.unwrap_or(tip);
    let mut reader = repo.reader();
    let Some((Kind::Commit, _)) = reader.kind_and_size(&commit).map_err(fail())? else { return Ok(false) };
    let tree = repo.history().commit(&mut reader, &commit).map_err(fail())?.tree;
    let threads = available_parallelism().map_or(1, NonZero::get);
    let check_out = CheckOut { repo: &repo, tree, folder: &target.top, threads, form: PathForm::Whole };
    let index = match check_out.run()? {
        CheckedOut::Done(index) => index,
        CheckedOut::LeftToGit(path) => {
            tracing::debug!("git checks out '{path}' and all else");
            return Ok(false);
        }
    };
    if is_detached {
        let path = target.git_dir.join("HEAD");
        fs::write(&path, format!("{commit}\n")).map_err(FileError::on("write", &path))?;
    }
    // A cut index would be worse than none.
    let (lock, path) = (target.git_dir.join("index.lock"), target.git_dir.join("index"));
    fs::write(&lock, index).map_err(FileError::on("write", &lock))?;
    fs::rename(&lock, &path).map_err(FileError::on("write", &path))?;
    Ok(true)
}

/// Removes the files of a checkout that has failed. Nothing else was there.
fn clear(top: &Path) {
    for entry in fs::read_dir(top).into_iter().flatten().flatten().filter(|entry| entry.file_name() != ".git")
    {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

/// Makes git check out HEAD in the working tree at `top`, or the commit or tag `detached`.
fn check_out_by_git(top: &Path, detached: Option<&str>) -> Result<()> {
    let git = || {
        let mut command = Command::new("git");
        for name in LOCAL_ENVIRONMENT {
            command.env_remove(name);
        }
        command.arg("-C").arg(top);
        command
    };
    let mut command = git();
    command.args(["-c", "advice.detachedHead=false"]);
    // Writing the files is most of a clone: one worker a core, unless git's configuration says how many.
    let names_workers = git()
        .args(["config", "--get", "checkout.workers"])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !names_workers {
        command.args(["-c", "checkout.workers=0"]);
    }
    match detached {
        Some(oid) => command.args(["checkout", "--quiet", "--detach", oid]),
        // HEAD is a branch without an index yet: 'checkout' would take all files for deleted ones.
        None => command.args(["reset", "--hard", "--quiet"]),
    };
    let why = match command.status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("git ended with {status}"),
        Err(e) => format!("git cannot be run: {e}"),
    };
    Err(Error::CheckOut { why, top: top.to_owned() })
}
