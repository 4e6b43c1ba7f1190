//! `http-backend`: a CGI program in place of git-http-backend.

use std::collections::HashMap;
use std::io::{BufWriter, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use weir_serve::{Daemon, DaemonLimits, PathLocator, Presentation, serve_cgi};
use weir_terminal::warn_line;
use weir_upload::{UploadLimits, UploadOptions};

use crate::error::Result;
use crate::presentation::presentation;

pub(crate) fn http_backend() -> Result<ExitCode> {
    let mut variables: HashMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let root = variables.get("GIT_PROJECT_ROOT").filter(|r| !r.is_empty()).cloned();
    if root.is_none()
        && let Some(translated) = variables.get("PATH_TRANSLATED").cloned()
    {
        // The web server has made this path of this machine. It may have empty parts.
        let parts: Vec<&str> = translated.split('/').filter(|part| !part.is_empty()).collect();
        variables.insert("PATH_INFO".to_owned(), format!("/{}", parts.join("/")));
    }
    // Without either, the client could name any path of this machine.
    if root.is_none() && !variables.contains_key("PATH_TRANSLATED") {
        return refuse("No GIT_PROJECT_ROOT or PATH_TRANSLATED from server");
    }
    // The web server's variables override the client's headers.
    if let Some(protocol) = variables.get("GIT_PROTOCOL").cloned() {
        variables.insert("HTTP_GIT_PROTOCOL".to_owned(), protocol);
    }
    let presentation = match presentation() {
        Ok(presentation) => presentation,
        Err(why) => return refuse(&why),
    };
    let locator = PathLocator {
        export_all: variables.contains_key("GIT_HTTP_EXPORT_ALL"),
        base_path: root.map(PathBuf::from),
        is_on: true,
        informative_errors: true,
        presentation: presentation.clone(),
        ..PathLocator::default()
    };
    let buffer = variables.get("GIT_HTTP_MAX_REQUEST_BUFFER").and_then(|v| v.parse().ok());
    let limits = UploadLimits {
        request_bytes_max: buffer.unwrap_or(UploadLimits::default().request_bytes_max),
        ..UploadLimits::default()
    };
    let options = UploadOptions { limits, ..UploadOptions::default() };
    // A user who may run this program may read the files. As with git-http-backend, a repository's
    // http.getanyfile can forbid that.
    let presentation = Presentation { files: true, ..presentation };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let daemon = Arc::new(Daemon::new(Arc::new(locator), options, DaemonLimits::default(), presentation)?);
    match runtime.block_on(serve_cgi(
        daemon,
        &variables,
        &mut stdin().lock(),
        &mut BufWriter::new(stdout().lock()),
    )) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // If the program fails, a web server makes an error of its own, though the client already has its
        // answer.
        Err(e) => {
            warn_line!("fatal: {e}");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Does what git-http-backend does when the server is set up wrongly: the client gets an error, and the
/// server's log the reason.
fn refuse(why: &str) -> Result<ExitCode> {
    warn_line!("fatal: {why}");
    stdout()
        .write_all(b"Status: 500 Internal Server Error\r\nExpires: Fri, 01 Jan 1980 00:00:00 GMT\r\n\r\n")?;
    Ok(ExitCode::SUCCESS)
}
