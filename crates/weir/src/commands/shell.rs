//! `shell`: serves the request of an ssh client from a pool, in place of git-shell.

use std::io::{stdin, stdout};
use std::process::ExitCode;

use weir_pool::CatalogLocator;
use weir_serve::{Client, Locator, Presentation, serve_lfs_ssh};
use weir_upload::{DaemonRequest, Service, UploadLimits, UploadOptions, UploadPack, Version};

use crate::cli::Global;
use crate::error::Result;
use crate::pool::open_pool;
use crate::presentation::open;
use crate::stdio;
use crate::stdio::FATAL;

/// The requested service.
#[derive(Debug, PartialEq)]
enum Ask {
    Git(Service),
    /// `git-lfs-transfer PATH OPERATION`.
    Lfs(String),
    /// `git-lfs-authenticate PATH OPERATION`: asks where objects are available over HTTP.
    LfsOverHttp(String),
}

pub(crate) fn shell(global: &Global, command: Option<String>, known_as: Option<String>) -> Result<ExitCode> {
    let fatal = |words: &str| {
        warn_line!("fatal: {}", words.escape_default());
        Ok(ExitCode::from(FATAL))
    };
    let Some(command) = command.or_else(|| std::env::var("SSH_ORIGINAL_COMMAND").ok()) else {
        return fatal("no shell access here; clone repositories with git");
    };
    let Some((ask, path)) = parse(&command) else {
        return fatal("only git-upload-pack and git-lfs-transfer are served here");
    };
    let service = match &ask {
        Ask::Git(service) => *service,
        Ask::Lfs(operation) if operation == "download" => Service::UploadPack,
        Ask::LfsOverHttp(operation) if operation == "download" => {
            return fatal(
                "LFS objects are served over ssh only to git-lfs 3.0 and newer, and at http(s) URLs",
            );
        }
        Ask::Lfs(_) | Ask::LfsOverHttp(_) => {
            return fatal("this is a mirror: push LFS objects to where it mirrors from");
        }
    };
    let protocol = std::env::var("GIT_PROTOCOL").unwrap_or_default();
    let address = std::env::var("SSH_CONNECTION").ok().and_then(|connection| {
        let mut words = connection.split(' ');
        Some((words.next()?.parse::<std::net::IpAddr>().ok()?, words.next()?.parse::<u16>().ok()?).into())
    });
    let version = Version::from_protocol(&protocol);
    let request = DaemonRequest { service, path: path.clone(), host: None, version: 0, protocol };
    let pool = open_pool(global)?;
    let locator = CatalogLocator::new(&pool)?;
    let found = match locator.find(&request, &Client { address, known_as, token: None }) {
        Ok(found) => found,
        Err(refusal) => return fatal(refusal.words_without_token()),
    };
    let (repo, features) = match open(&found, &Presentation::default()) {
        Ok(opened) => opened,
        Err(weir_repo::Error::NotFound(why)) => return fatal(&format!("weir: {path}: {why}")),
        Err(e) => {
            tracing::error!("cannot open: {e}");
            return fatal(weir_upload::UNREADABLE);
        }
    };
    if let Ask::Lfs(_) = ask {
        serve_lfs_ssh(&repo, &mut stdin().lock(), &mut stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let c = &pool.config.serve;
    let limits = UploadLimits { steps_max: c.steps_max, ..UploadLimits::default() };
    let mut machine =
        UploadPack::new(repo, version, UploadOptions { features, limits, ..UploadOptions::default() });
    stdio::converse(&mut machine, Some(c.idle_timeout.0))?;
    match machine.failure() {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => fatal(why),
    }
}

/// Parses `git-upload-pack 'PATH'`, with or without the hyphen and the quotes, or `git-lfs-transfer PATH
/// OPERATION`.
fn parse(command: &str) -> Option<(Ask, String)> {
    let rest = command.strip_prefix("git-").or_else(|| command.strip_prefix("git "))?;
    let mut words = words(rest)?.into_iter();
    let (program, path) = (words.next()?, words.next()?);
    let ask = match program.as_str() {
        "upload-pack" => Ask::Git(Service::UploadPack),
        "receive-pack" => Ask::Git(Service::ReceivePack),
        "upload-archive" => Ask::Git(Service::UploadArchive),
        "lfs-transfer" => Ask::Lfs(words.next()?),
        "lfs-authenticate" => Ask::LfsOverHttp(words.next()?),
        _ => return None,
    };
    // A path need not start with a slash (ssh://host/~/x, for one): it is looked up as a name.
    (words.next().is_none() && !path.is_empty() && !path.chars().any(char::is_control)).then_some((ask, path))
}

/// Splits a shell command that only names things into words. Knows single quotes, and backslashes, with which
/// a quote is written.
fn words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = command.trim();
    while !rest.is_empty() {
        let mut word = String::new();
        while !rest.is_empty() && !rest.starts_with(' ') {
            if let Some(quoted) = rest.strip_prefix('\'') {
                let (inside, after) = quoted.split_once('\'')?;
                word.push_str(inside);
                rest = after;
            } else if let Some(escaped) = rest.strip_prefix('\\') {
                let c = escaped.chars().next()?;
                word.push(c);
                rest = &escaped[c.len_utf8()..];
            } else {
                let end = rest.find(['\'', '\\', ' ']).unwrap_or(rest.len());
                let plain = &rest[..end];
                if plain.contains(['"', '$', '`', ';', '&', '|', '<', '>', '(', ')', '*', '?', '\n']) {
                    return None;
                }
                word.push_str(plain);
                rest = &rest[end..];
            }
        }
        words.push(word);
        rest = rest.trim_start_matches(' ');
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        let is = |command: &str, path: &str| {
            assert_eq!(parse(command), Some((Ask::Git(Service::UploadPack), path.to_owned())), "{command}");
        };
        is("git-upload-pack '/a/b.git'", "/a/b.git");
        is("git upload-pack a/b", "a/b");
        is(r"git-upload-pack 'it'\''s'", "it's");
        is("git-upload-pack 'a b'", "a b");
        assert_eq!(parse("git-receive-pack 'x'").unwrap().0, Ask::Git(Service::ReceivePack));
        for path in ["/a/b.git", "'/a/b.git'"] {
            let lfs = parse(&format!("git-lfs-transfer {path} download"));
            assert_eq!(lfs, Some((Ask::Lfs("download".to_owned()), "/a/b.git".to_owned())));
        }
        for bad in [
            "",
            "ls",
            "git-upload-pack",
            "git-upload-pack ''",
            "git-upload-pack 'a",
            "git-upload-pack a; rm -rf /",
            "git-x 'a'",
            "git-upload-pack a b",
            "git-lfs-transfer a",
            "git-lfs-transfer a download b",
            "git-lfs-authenticate a",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
