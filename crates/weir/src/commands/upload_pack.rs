//! `upload-pack`: serves `git fetch` over standard input and output, like git-upload-pack.

use std::io::stdout;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use weir_arguments::UploadPackArgs;
use weir_repo::Repo;
use weir_serve::{Opened, candidates, serve_blocking, serve_stdio};
use weir_terminal::warn_line;
use weir_upload::{Features, UploadOptions, UploadPack, Version};

use crate::error::Result;
use crate::presentation::presentation;
use crate::silence::{FATAL, give_up};

pub(crate) fn upload_pack(args: &UploadPackArgs) -> Result<ExitCode> {
    let (repo, mut features) = match open(args) {
        Ok(opened) => opened,
        Err(e) => {
            warn_line!("fatal: {e}");
            return Ok(ExitCode::from(FATAL));
        }
    };
    features.stateless = args.stateless_rpc;
    let options = UploadOptions { features, ..UploadOptions::default() };
    let version = Version::from_protocol(&std::env::var("GIT_PROTOCOL").unwrap_or_default());
    let mut machine = if args.stateless_rpc && !args.http_backend_info_refs {
        UploadPack::answering(repo, version, options)
    } else {
        UploadPack::new(repo, version, options)
    };
    if args.http_backend_info_refs {
        serve_blocking(
            &mut machine,
            &mut std::io::empty(),
            &mut stdout().lock(),
            &AtomicBool::new(false),
            &|_| {},
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    // As in git, 0 stands for no timeout.
    let idle_timeout = args.timeout.filter(|&seconds| seconds > 0).map(Duration::from_secs);
    serve_stdio(&mut machine, idle_timeout, give_up)?;
    match machine.failure() {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => {
            warn_line!("fatal: {why}");
            Ok(ExitCode::from(FATAL))
        }
    }
}

/// Opens an archive, or a git directory as git finds it: with `.git` appended or below, unless `--strict`.
fn open(args: &UploadPackArgs) -> std::result::Result<(Arc<Repo>, Features), String> {
    let path = args.directory.as_path();
    let presented = |opened: Opened| (opened.repo, opened.features.unwrap_or_default());
    if path.is_file() && path.extension().is_some_and(|e| e == "tar") {
        let fail = |e: weir_repo::Error| format!("'{}': {e}", path.display());
        return match &args.git_config {
            None => Ok((Arc::new(Repo::open_archive(path).map_err(fail)?), Features::default())),
            Some(file) if !file.is_file() => Err(format!("--git-config '{}' is no file", file.display())),
            Some(file) => presentation()?.open_archive(path, file).map(presented).map_err(fail),
        };
    }
    if args.git_config.is_some() {
        return Err(format!("--git-config is only for archives, which '{}' is not", path.display()));
    }
    let presentation = presentation()?;
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
