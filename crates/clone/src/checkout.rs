//! Lets git write the working tree.

use std::path::Path;
use std::process::{Command, Stdio};

use weir_git::LOCAL_ENVIRONMENT;

use crate::error::{Error, Result};

/// Makes git check out HEAD in the working tree at `top`, or the commit or tag `detached`.
pub(crate) fn check_out(top: &Path, detached: Option<&str>) -> Result<()> {
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
