//! `upload-pack`: the other end of `git fetch`, over standard input and output, as git-upload-pack.

use std::io::stdout;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use weir_repo::{GitConfig, Repo};
use weir_serve::{Opened, Presentation, candidates, serve_blocking};
use weir_upload::{Features, Options, UploadPack, Version};

use super::stdio;
use crate::cli::UploadPackArgs;
use crate::error::Result;

/// git's own exit code for what it cannot go on with.
pub(super) const FATAL: u8 = 128;

pub(crate) fn upload_pack(args: &UploadPackArgs) -> Result<ExitCode> {
    let (repo, mut features) = match open(args) {
        Ok(opened) => opened,
        Err(e) => {
            warn_line!("fatal: {e}");
            return Ok(ExitCode::from(FATAL));
        }
    };
    features.stateless = args.stateless_rpc;
    let options = Options { features, ..Options::default() };
    let version = Version::from_protocol(&std::env::var("GIT_PROTOCOL").unwrap_or_default());
    let mut machine = if args.stateless_rpc && !args.http_backend_info_refs {
        UploadPack::answering(repo, version, options)
    } else {
        UploadPack::new(repo, version, options)
    };
    if args.http_backend_info_refs {
        serve_blocking(&mut machine, &mut std::io::empty(), &mut stdout().lock(), &AtomicBool::new(false), &|_| {})?;
        return Ok(ExitCode::SUCCESS);
    }
    // As git: 0 is for ever.
    stdio::converse(&mut machine, args.timeout.filter(|&seconds| seconds > 0).map(Duration::from_secs))?;
    match machine.failure() {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => {
            warn_line!("fatal: {why}");
            Ok(ExitCode::from(FATAL))
        }
    }
}

/// Opens an archive, or a git directory as git finds it: with `.git` behind or below, unless `--strict`.
fn open(args: &UploadPackArgs) -> std::result::Result<(Arc<Repo>, Features), String> {
    let path = args.directory.as_path();
    let presented = |opened: Opened| (opened.repo, opened.features.unwrap_or_default());
    if path.is_file() && path.extension().is_some_and(|e| e == "tar") {
        let fail = |e: weir_repo::Error| format!("'{}': {e}", path.display());
        return match &args.git_config {
            None => Ok((Arc::new(Repo::open_archive(path).map_err(fail)?), Features::default())),
            Some(file) => {
                let config = std::fs::read(file).map_err(|e| format!("--git-config '{}': {e}", file.display()))?;
                presentation().open_archive(path, &config).map(presented).map_err(fail)
            }
        };
    }
    if args.git_config.is_some() {
        return Err(format!("--git-config is for archives, and '{}' is none", path.display()));
    }
    let presentation = presentation();
    let mut last = format!("'{}' does not appear to be a git repository", path.display());
    for candidate in candidates(path, args.strict).filter(|c| c.exists()) {
        match presentation.open(&candidate) {
            Ok(opened) => return Ok(presented(opened)),
            Err(weir_repo::Error::NotFound(_)) => {}
            Err(e) => last = format!("'{}': {e}", candidate.display()),
        }
    }
    Err(last)
}

/// As the environment and the user's git configuration say.
pub(crate) fn presentation() -> Presentation {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let files = match std::env::var_os("GIT_CONFIG_GLOBAL") {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(".config")));
            [xdg.map(|x| x.join("git/config")), home.map(|h| h.join(".gitconfig"))].into_iter().flatten().collect()
        }
    };
    let mut user = GitConfig::default();
    for file in files {
        user.extend(&std::fs::read(file).unwrap_or_default());
    }
    Presentation { namespace: std::env::var("GIT_NAMESPACE").unwrap_or_default(), user, files: false }
}
