//! `shell`: what an ssh client asks for, out of a pool (git-shell's place).

use std::io::{stdin, stdout};
use std::process::ExitCode;

use weir_serve::{Client, Locator, Presentation, serve_blocking};
use weir_upload::{DaemonRequest, Options, Service, UploadPack, Version};

use super::daemon::open;
use super::locate::CatalogLocator;
use super::upload_pack::FATAL;
use crate::cli::Global;
use crate::error::Result;
use crate::pool::Pool;

pub(crate) fn shell(global: &Global, command: Option<String>, known_as: Option<String>) -> Result<ExitCode> {
    let fatal = |words: &str| {
        eprintln!("fatal: {}", words.escape_default());
        Ok(ExitCode::from(FATAL))
    };
    let Some(command) = command.or_else(|| std::env::var("SSH_ORIGINAL_COMMAND").ok()) else {
        return fatal("there is no shell here, only git repositories; clone them");
    };
    let Some((service, path)) = parse(&command) else { return fatal("only git-upload-pack 'PATH' is served here") };
    let protocol = std::env::var("GIT_PROTOCOL").unwrap_or_default();
    let address = std::env::var("SSH_CONNECTION").ok().and_then(|connection| {
        let mut words = connection.split(' ');
        Some((words.next()?.parse::<std::net::IpAddr>().ok()?, words.next()?.parse::<u16>().ok()?).into())
    });
    let version = Version::from_protocol(&protocol);
    let request = DaemonRequest { service, path: path.clone(), host: None, version: 0, protocol };
    let pool = Pool::open(global)?;
    let locator = CatalogLocator::new(&pool)?;
    let found = match locator.find(&request, &Client { address, known_as, token: None }) {
        Ok(found) => found,
        Err(refusal) => return fatal(refusal.words()),
    };
    let (repo, features) = match open(&found, &Presentation::default()) {
        Ok(opened) => opened,
        Err(e) => {
            tracing::error!("cannot open: {e}");
            return fatal("the repository cannot be read; its keeper finds the reason in the log");
        }
    };
    let options = Options { features, ..Options::default() };
    let mut machine = UploadPack::new(repo, version, options);
    serve_blocking(&mut machine, &mut stdin().lock(), &mut stdout().lock())?;
    match machine.failure() {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => fatal(why),
    }
}

/// `git-upload-pack 'PATH'`, with or without the hyphen and the quotes.
fn parse(command: &str) -> Option<(Service, String)> {
    let rest = command.strip_prefix("git-").or_else(|| command.strip_prefix("git "))?;
    let (service, argument) = rest.split_once(' ')?;
    let service = match service {
        "upload-pack" => Service::UploadPack,
        "receive-pack" => Service::ReceivePack,
        "upload-archive" => Service::UploadArchive,
        _ => return None,
    };
    let mut path = String::new();
    let mut rest = argument.trim();
    // A shell's single quotes; a quote itself is written '\''.
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('\'') {
            let (inside, after) = quoted.split_once('\'')?;
            path.push_str(inside);
            rest = after;
        } else if let Some(escaped) = rest.strip_prefix('\\') {
            let c = escaped.chars().next()?;
            path.push(c);
            rest = &escaped[c.len_utf8()..];
        } else {
            let end = rest.find(['\'', '\\']).unwrap_or(rest.len());
            let plain = &rest[..end];
            if plain.contains([' ', '"', '$', '`', ';', '&', '|', '<', '>', '(', ')', '*', '?', '\n']) {
                return None;
            }
            path.push_str(plain);
            rest = &rest[end..];
        }
    }
    // ssh://host/~/x and the like: names start nowhere in particular.
    (!path.is_empty() && !path.chars().any(char::is_control)).then_some((service, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        let is = |command: &str, path: &str| assert_eq!(parse(command), Some((Service::UploadPack, path.to_owned())), "{command}");
        is("git-upload-pack '/a/b.git'", "/a/b.git");
        is("git upload-pack a/b", "a/b");
        is(r"git-upload-pack 'it'\''s'", "it's");
        assert_eq!(parse("git-receive-pack 'x'").unwrap().0, Service::ReceivePack);
        for bad in [
            "",
            "ls",
            "git-upload-pack",
            "git-upload-pack ''",
            "git-upload-pack 'a",
            "git-upload-pack a; rm -rf /",
            "git-x 'a'",
            "git-upload-pack a b",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
