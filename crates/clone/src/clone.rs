//! One clone, from the description to the working tree.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use weir_transport::{HttpFiles, Scheme, TransportOptions, Url};

use crate::checkout::check_out;
use crate::description::Description;
use crate::download::{TellTransfer, download};
use crate::error::{Error, Result};
use crate::from_archive::from_archive;
use crate::repository::{ChosenHead, Remote, Target, write_repository};
use crate::tips::check_tips;

/// The source of a clone, and its options.
pub struct CloneOptions<'a> {
    /// The repository.
    pub url: &'a Url,
    /// The directory to make; by default the last part of the URL.
    pub directory: Option<&'a Path>,
    /// Whether to make a bare repository.
    pub is_bare: bool,
    /// Whether to check out HEAD.
    pub checks_out: bool,
    /// Whether git writes the files in any case: its settings may change them.
    pub lets_git_check_out: bool,
    /// The branch or tag to check out instead of upstream's HEAD.
    pub branch: Option<&'a str>,
    /// The name of the remote.
    pub origin: &'a str,
    /// The command that serves the repository to git, if git itself could not fetch from it.
    pub upload_pack: Option<&'a str>,
    /// Whether to check every object, and not only what is used at once.
    pub verifies_all: bool,
    /// How to talk to the server.
    pub transport: &'a TransportOptions,
    /// Receives the progress of the download.
    pub tell: &'a TellTransfer<'a>,
}

/// A finished clone.
#[derive(Debug)]
pub struct FinishedClone {
    /// The working tree, or the bare repository.
    pub directory: PathBuf,
    /// The number of objects.
    pub objects: u32,
    /// Bytes of its packs and indexes.
    pub bytes: u64,
}

/// The result of a clone that did not fail.
#[derive(Debug)]
pub enum CloneOutcome {
    /// The clone is made.
    Done(FinishedClone),
    /// The server offers no whole clone. Nothing was made: `git clone` can do it.
    NotOffered,
}

/// Clones a repository.
///
/// # Errors
/// If the server cannot be reached or cannot be trusted, or files cannot be written. A download that broke
/// off is resumed by the next call.
pub fn clone(options: &CloneOptions<'_>) -> Result<CloneOutcome> {
    let url = options.url;
    let default = || default_directory(url, options.is_bare);
    let target = Target::new(&options.directory.map_or_else(default, Path::to_owned), options.is_bare)?;
    let archive = (url.scheme == Scheme::Local).then(|| url.local_path()).filter(|path| path.is_file());
    let (description, bytes) = match &archive {
        Some(path) => from_archive(path, &target).inspect_err(|_| target.discard())?,
        None => {
            let fail = |source| Error::Upstream { url: url.to_string(), source };
            let mut files = HttpFiles::new(url, options.transport).map_err(fail)?;
            let offered = files.as_mut().map(Description::fetch).transpose().map_err(fail)?.flatten();
            let (Some(mut files), Some(description)) = (files, offered) else {
                return Ok(CloneOutcome::NotOffered);
            };
            ChosenHead::of(&description, options.branch, options.origin)?;
            download(&mut files, &description, &target, options.tell)?;
            let bytes = description.pack_bytes + description.index_bytes;
            (description, bytes)
        }
    };
    let head =
        ChosenHead::of(&description, options.branch, options.origin).inspect_err(|_| target.discard())?;
    let tip = head.oid().filter(|_| options.checks_out && !options.is_bare);
    // Any machine on the way could pose as the server.
    let is_open_to_all = matches!(url.scheme, Scheme::Http { tls: false }) && !is_this_machine(&url.host);
    let format = &description.object_format;
    let is_sound = if options.verifies_all || is_open_to_all {
        verify(&target, format)
    } else if archive.is_some() {
        Ok(())
    } else {
        check_tips(&target.open(format)?, &description.tips(), tip.and_then(|tip| description.parse(tip)))
    };
    is_sound.inspect_err(|_| target.discard())?;
    let remote = Remote { name: options.origin, url, upload_pack: options.upload_pack };
    write_repository(&target, options.is_bare, &remote, &description, &head)?;
    let _ = fs::remove_file(target.unfinished());
    if let Some(tip) = tip {
        check_out(&target, tip, head.detached().is_some(), options.lets_git_check_out)?;
    }
    Ok(CloneOutcome::Done(FinishedClone { directory: target.top, objects: description.objects, bytes }))
}

/// Returns the directory that git would choose: the last part of the path, or else the host.
pub fn default_directory(url: &Url, is_bare: bool) -> PathBuf {
    let is_name = |name: &&str| !matches!(*name, "" | "." | ".." | ".git");
    let host = Some(url.host.as_str()).filter(is_name).unwrap_or("repository");
    let name = url.path.rsplit(['/', ':']).find(is_name).unwrap_or(host);
    let name = name.strip_suffix(".git").or_else(|| name.strip_suffix(".tar")).unwrap_or(name);
    PathBuf::from(if is_bare { format!("{name}.git") } else { name.to_owned() })
}

/// Inflates and hashes every object.
fn verify(target: &Target, object_format: &str) -> Result<()> {
    let report = weir_repo::fsck(&target.open(object_format)?).map_err(Error::repo("the clone"))?;
    match report.problems.first().or(report.unchecked.first()) {
        None => Ok(()),
        Some(problem) => Err(Error::Damaged(problem.clone())),
    }
}

/// Returns whether `host` is this machine: then no other machine is on the way.
fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_named_as_by_git() {
        for (url, expected) in [
            ("https://h/a/b.git", "b"),
            ("https://h/a/b/", "b"),
            ("https://h/a/b/.git", "b"),
            ("/srv/a/b.tar", "b"),
            ("host:b.git", "b"),
            ("http://h:81/.git", "h"),
            ("http://h/", "h"),
            ("http://h/a/.", "a"),
            ("/srv/a/..", "a"),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(default_directory(&url, false), Path::new(expected), "{url}");
            assert_eq!(default_directory(&url, true), Path::new(&format!("{expected}.git")), "{url}");
        }
    }

    #[test]
    fn this_machine() {
        for (host, expected) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]", true),
            ("10.0.0.1", false),
            ("localhost.example", false),
        ] {
            assert_eq!(is_this_machine(host), expected, "{host}");
        }
    }
}
