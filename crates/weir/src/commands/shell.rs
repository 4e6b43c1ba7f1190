//! `shell`: serves the request of an ssh client from a pool, in place of git-shell.

use std::io::{self, StdoutLock, Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use weir_browse::RemoteArchives;
use weir_pool::{CatalogLocator, Pool};
use weir_serve::{
    AccessLine, Client, Locator, Presentation, RequestResult, ShellAsk, append_access_line, next_request_id,
    parse_shell_command, serve_lfs_ssh,
};
use weir_upload::{DaemonRequest, Service, UploadLimits, UploadOptions, UploadPack, Version};

use crate::cli::Global;
use crate::error::Result;
use crate::pool::open_pool;
use crate::stdio;
use crate::stdio::FATAL;

pub(crate) fn shell(global: &Global, command: Option<String>, known_as: Option<String>) -> Result<ExitCode> {
    let fatal = |words: &str| {
        warn_line!("fatal: {}", words.escape_default());
        Ok(ExitCode::from(FATAL))
    };
    let Some(command) = command.or_else(|| std::env::var("SSH_ORIGINAL_COMMAND").ok()) else {
        return fatal("no shell access here; clone repositories with git");
    };
    let Some((ask, path)) = parse_shell_command(&command) else {
        return fatal("only git-upload-pack, git-upload-archive and git-lfs-transfer are served here");
    };
    let service = match &ask {
        ShellAsk::Git(service) => *service,
        ShellAsk::Lfs(operation) if operation == "download" => Service::UploadPack,
        ShellAsk::LfsOverHttp(operation) if operation == "download" => {
            return fatal(
                "LFS objects are served over ssh only to git-lfs 3.0 and newer, and at http(s) URLs",
            );
        }
        ShellAsk::Lfs(_) | ShellAsk::LfsOverHttp(_) => {
            return fatal("this is a mirror: push LFS objects to where it mirrors from");
        }
    };
    let protocol = std::env::var("GIT_PROTOCOL").unwrap_or_default();
    let address = std::env::var("SSH_CONNECTION").ok().and_then(|connection| {
        let mut words = connection.split(' ');
        Some((words.next()?.parse::<std::net::IpAddr>().ok()?, words.next()?.parse::<u16>().ok()?).into())
    });
    let version = Version::from_protocol(&protocol);
    let request = DaemonRequest { service, path, host: None, version: 0, protocol };
    let pool = open_pool(global)?;
    let began = Instant::now();
    let client = Client { address, known_as, token: None };
    let answered = answer(&pool, &ask, &request, version, &client)?;
    let c = &pool.config.serve;
    if let Some(log) = &c.access_log {
        let line = access_line(&ask, &request, client, &answered, began.elapsed());
        if let Err(e) = append_access_line(log, &line.encode(c.access_log_format)) {
            tracing::warn!("cannot write to the access log '{}': {e}", log.display());
        }
    }
    match answered.failure {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => fatal(&why),
    }
}

/// How a request ended.
struct ShellAnswer {
    /// The status, in the terms of HTTP.
    status: StatusCode,
    /// Bytes that were sent.
    bytes: u64,
    /// Why there is no answer.
    failure: Option<String>,
}

impl ShellAnswer {
    fn refused(status: StatusCode, why: &str) -> ShellAnswer {
        ShellAnswer { status, bytes: 0, failure: Some(why.to_owned()) }
    }
}

/// Answers the request of `client` over standard input and output.
fn answer(
    pool: &Pool,
    ask: &ShellAsk,
    request: &DaemonRequest,
    version: Version,
    client: &Client,
) -> Result<ShellAnswer> {
    let found = match CatalogLocator::new(pool)?.find(request, client) {
        Ok(found) => found,
        Err(refusal) => return Ok(ShellAnswer::refused(refusal.status(), refusal.words_without_token())),
    };
    let (repo, features) = match Presentation::default().open_found(&found) {
        Ok(opened) => opened,
        Err(weir_repo::Error::NotFound(why)) => {
            return Ok(ShellAnswer::refused(
                StatusCode::NOT_FOUND,
                &format!("weir: {}: {why}", request.path),
            ));
        }
        Err(e) => {
            tracing::error!("cannot open: {e}");
            return Ok(ShellAnswer::refused(StatusCode::INTERNAL_SERVER_ERROR, weir_upload::UNREADABLE));
        }
    };
    if let ShellAsk::Lfs(_) = ask {
        let mut output = CountedOutput { output: stdout().lock(), bytes: 0 };
        serve_lfs_ssh(&repo, &mut stdin().lock(), &mut output)?;
        return Ok(ShellAnswer { status: StatusCode::OK, bytes: output.bytes, failure: None });
    }
    let c = &pool.config.serve;
    let limits = UploadLimits { steps_max: c.steps_max, ..UploadLimits::default() };
    let archiver = Some(Arc::new(RemoteArchives) as _);
    let options = UploadOptions { features, limits, archiver, ..UploadOptions::default() };
    let mut machine = match request.service {
        Service::UploadArchive => UploadPack::archiving(repo, options),
        _ => UploadPack::new(repo, version, options),
    };
    let (bytes, failure) = match stdio::converse(&mut machine, Some(c.idle_timeout.0)) {
        Ok(bytes) => (bytes, machine.failure().map(str::to_owned)),
        // The client may be gone because it was told of a failure.
        Err(e) => (0, Some(machine.failure().map_or_else(|| e.to_string(), str::to_owned))),
    };
    Ok(ShellAnswer { status: StatusCode::OK, bytes, failure })
}

/// Returns the line of a request in the access log.
fn access_line(
    ask: &ShellAsk,
    request: &DaemonRequest,
    client: Client,
    answered: &ShellAnswer,
    took: Duration,
) -> AccessLine {
    AccessLine {
        request_id: next_request_id(),
        user: client.known_as,
        protocol: "ssh",
        version: "SSH",
        method: match ask {
            ShellAsk::Git(service) => format!("git-{}", service.name()),
            ShellAsk::Lfs(_) | ShellAsk::LfsOverHttp(_) => "git-lfs-transfer".to_owned(),
        },
        target: request.path.clone(),
        repository: Some(request.path.clone()),
        status: answered.status.as_u16(),
        result: match (&answered.failure, answered.status) {
            (None, _) => RequestResult::Answered,
            (Some(_), StatusCode::OK) => RequestResult::BrokenOff,
            (Some(_), status) if status.is_server_error() => RequestResult::Failed,
            (Some(_), _) => RequestResult::Refused,
        }
        .name(),
        bytes: answered.bytes,
        ..AccessLine::ended(client.address, took)
    }
}

/// Counts what is written to standard output.
struct CountedOutput {
    output: StdoutLock<'static>,
    bytes: u64,
}

impl Write for CountedOutput {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.output.write(data)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
