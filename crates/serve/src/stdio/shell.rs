//! The request of an ssh client, in place of git-shell.

use std::io::{self, StdoutLock, Write, stdin, stdout};
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use weir_upload::{
    DaemonRequest, Service, TreeArchiver, UNREADABLE, UploadLimits, UploadOptions, UploadPack, Version,
};

use crate::access::{Client, Locator, Presentation};
use crate::access_line::AccessLine;
use crate::counts::RequestResult;
use crate::http::serve_lfs_ssh;
use crate::request_log::next_request_id;
use crate::stdio::conversation::{GiveUp, serve_stdio};
use crate::stdio::shell_command::{ShellAsk, parse_shell_command};

/// The request of an ssh client.
pub struct ShellRequest {
    /// The program that it wants to have run.
    ask: ShellAsk,
    request: DaemonRequest,
    version: Version,
}

impl ShellRequest {
    /// Parses the command that ssh was given; `protocol` is the client's `GIT_PROTOCOL`.
    ///
    /// # Errors
    /// If a mirror does not answer it, for the reason that is returned.
    pub fn parse(command: &str, protocol: &str) -> Result<ShellRequest, &'static str> {
        let Some((ask, path)) = parse_shell_command(command) else {
            return Err("only git-upload-pack, git-upload-archive and git-lfs-transfer are served here");
        };
        let service = match &ask {
            ShellAsk::Git(service) => *service,
            ShellAsk::Lfs(operation) if operation == "download" => Service::UploadPack,
            ShellAsk::LfsOverHttp(operation) if operation == "download" => {
                return Err(
                    "LFS objects are served over ssh only to git-lfs 3.0 and newer, and at http(s) URLs",
                );
            }
            ShellAsk::Lfs(_) | ShellAsk::LfsOverHttp(_) => {
                return Err("this is a mirror: push LFS objects to where it mirrors from");
            }
        };
        let version = Version::from_protocol(protocol);
        let request = DaemonRequest { service, path, host: None, version: 0, protocol: protocol.to_owned() };
        Ok(ShellRequest { ask, request, version })
    }
}

/// Limits of the answer to an ssh client.
pub struct ShellLimits {
    /// The longest time in which the client neither sends nor takes anything.
    pub idle_timeout: Duration,
    /// The most steps of a walk ([`UploadLimits::steps_max`]).
    pub steps_max: u64,
}

/// The end of a request.
pub struct ShellAnswer {
    /// The status, in the terms of HTTP.
    status: StatusCode,
    /// Bytes that were sent.
    bytes: u64,
    /// The reason if there is no answer.
    pub failure: Option<String>,
}

impl ShellAnswer {
    fn refused(status: StatusCode, why: &str) -> ShellAnswer {
        ShellAnswer { status, bytes: 0, failure: Some(why.to_owned()) }
    }

    /// Returns the line of the request in the access log. `took` is the time that it took.
    pub fn access_line(&self, asked: &ShellRequest, client: &Client, took: Duration) -> AccessLine {
        let ShellRequest { ask, request, .. } = asked;
        AccessLine {
            request_id: next_request_id(),
            user: client.known_as.clone(),
            protocol: "ssh",
            version: "SSH",
            method: match ask {
                ShellAsk::Git(service) => format!("git-{}", service.name()),
                ShellAsk::Lfs(_) | ShellAsk::LfsOverHttp(_) => "git-lfs-transfer".to_owned(),
            },
            target: request.path.clone(),
            repository: Some(request.path.clone()),
            status: self.status.as_u16(),
            result: match (&self.failure, self.status) {
                (None, _) => RequestResult::Answered,
                (Some(_), StatusCode::OK) => RequestResult::BrokenOff,
                (Some(_), status) if status.is_server_error() => RequestResult::Failed,
                (Some(_), _) => RequestResult::Refused,
            }
            .name(),
            bytes: self.bytes,
            ..AccessLine::ended(client.address, took)
        }
    }
}

/// Answers the request of `client` over standard input and output. `archiver` makes archives for
/// `git archive --remote`; `give_up` ends the process if the client is silent for too long.
///
/// # Errors
/// If a system call fails.
pub fn serve_shell(
    locator: &dyn Locator,
    asked: &ShellRequest,
    client: &Client,
    limits: &ShellLimits,
    archiver: Arc<dyn TreeArchiver>,
    give_up: GiveUp,
) -> io::Result<ShellAnswer> {
    let ShellRequest { ask, request, version } = asked;
    let found = match locator.find(request, client) {
        Ok(found) => found,
        Err(refusal) => return Ok(ShellAnswer::refused(refusal.status(), refusal.words_without_token())),
    };
    let (repo, features) = match Presentation::default().open_found(&found) {
        Ok(opened) => opened,
        Err(weir_repo::Error::NotFound(why)) => {
            let why = format!("weir: {}: {why}", request.path);
            return Ok(ShellAnswer::refused(StatusCode::NOT_FOUND, &why));
        }
        Err(e) => {
            tracing::error!("cannot open: {e}");
            return Ok(ShellAnswer::refused(StatusCode::INTERNAL_SERVER_ERROR, UNREADABLE));
        }
    };
    if let ShellAsk::Lfs(_) = ask {
        let mut output = CountedOutput { output: stdout().lock(), bytes: 0 };
        serve_lfs_ssh(&repo, &mut stdin().lock(), &mut output)?;
        return Ok(ShellAnswer { status: StatusCode::OK, bytes: output.bytes, failure: None });
    }
    let own = UploadLimits { steps_max: limits.steps_max, ..UploadLimits::default() };
    let options =
        UploadOptions { features, limits: own, archiver: Some(archiver), ..UploadOptions::default() };
    let mut machine = match request.service {
        Service::UploadArchive => UploadPack::archiving(repo, options),
        _ => UploadPack::new(repo, *version, options),
    };
    let (bytes, failure) = match serve_stdio(&mut machine, Some(limits.idle_timeout), give_up) {
        Ok(bytes) => (bytes, machine.failure().map(str::to_owned)),
        // The client may be gone because it was told of a failure.
        Err(e) => (0, Some(machine.failure().map_or_else(|| e.to_string(), str::to_owned))),
    };
    Ok(ShellAnswer { status: StatusCode::OK, bytes, failure })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_requests_are_those_that_a_mirror_answers() {
        for (command, service, path) in [
            ("git-upload-pack '/a b.git'", Service::UploadPack, "/a b.git"),
            ("git upload-archive a", Service::UploadArchive, "a"),
            ("git-lfs-transfer a download", Service::UploadPack, "a"),
        ] {
            let asked = ShellRequest::parse(command, "version=2").unwrap();
            assert_eq!((asked.request.service, asked.request.path.as_str()), (service, path), "{command}");
            assert_eq!((asked.version, asked.request.protocol.as_str()), (Version::V2, "version=2"));
        }
        for refused in [
            "sh -c id",
            "git-upload-pack",
            "git-lfs-transfer a upload",
            "git-lfs-authenticate a download",
            "git-lfs-authenticate a upload",
        ] {
            assert!(ShellRequest::parse(refused, "").is_err(), "{refused}");
        }
    }

    #[test]
    fn shell_answers_are_logged_by_how_they_ended() {
        let asked = ShellRequest::parse("git-upload-pack 'a'", "").unwrap();
        let client = Client { known_as: Some("ada".to_owned()), ..Client::default() };
        for (status, failure, result) in [
            (StatusCode::OK, None, RequestResult::Answered),
            (StatusCode::OK, Some("gone"), RequestResult::BrokenOff),
            (StatusCode::NOT_FOUND, Some("none"), RequestResult::Refused),
            (StatusCode::INTERNAL_SERVER_ERROR, Some("damaged"), RequestResult::Failed),
        ] {
            let answer = ShellAnswer { status, bytes: 7, failure: failure.map(str::to_owned) };
            let line = answer.access_line(&asked, &client, Duration::from_millis(2));
            assert_eq!((line.status, line.result, line.bytes), (status.as_u16(), result.name(), 7));
            assert_eq!((line.method.as_str(), line.target.as_str()), ("git-upload-pack", "a"));
            assert_eq!((line.user.as_deref(), line.protocol), (Some("ada"), "ssh"));
        }
    }
}
