//! Archives for `git archive --remote` (git-upload-archive(1)): what git's own arguments ask for.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_git::Oid;
use weir_repo::Repo;
use weir_upload::{ArchiverError, TreeArchiver};

use crate::archive::TreeArchive;
use crate::archive_format::ArchiveFormat;
use crate::archive_paths::ArchivePaths;
use crate::error::{Error, Result};
use crate::folder::entry_at;
use crate::revision::tree_of_revision;

/// The formats, as `git archive --list` prints them.
const FORMATS: &[u8] = b"tar\ntgz\ntar.gz\nzip\n";

/// Makes archives of what refs reach.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoteArchives;

impl TreeArchiver for RemoteArchives {
    fn write(
        &self,
        repo: &Repo,
        arguments: &[Vec<u8>],
        out: &mut dyn Write,
    ) -> std::result::Result<(), ArchiverError> {
        write(repo, arguments, out).map_err(|e| match e {
            Error::NotFound(words) | Error::WrongKind(words) | Error::TooLarge(words) => {
                ArchiverError::Refused(words)
            }
            Error::Repo(e) => ArchiverError::Repo(e),
            Error::Io(e) => ArchiverError::Output(e),
        })
    }
}

/// The arguments of a call.
#[derive(Debug, Default, PartialEq, Eq)]
struct ArchiveCall {
    format: Option<ArchiveFormat>,
    prefix: Vec<u8>,
    level: Option<u32>,
    lists_formats: bool,
    tree: Option<Vec<u8>>,
    paths: Vec<Vec<u8>>,
}

impl ArchiveCall {
    /// Reads arguments, as git-archive(1) has them.
    fn parse(arguments: &[Vec<u8>]) -> Result<ArchiveCall> {
        let mut call = ArchiveCall::default();
        let mut words = arguments.iter().map(Vec::as_slice);
        let mut has_ended = false;
        while let Some(word) = words.next() {
            if has_ended || !word.starts_with(b"-") || word == b"-" {
                call.take(word);
                continue;
            }
            let (name, value) = match word.iter().position(|byte| *byte == b'=') {
                Some(at) if word.starts_with(b"--") => (&word[..at], Some(&word[at + 1..])),
                _ => (word, None),
            };
            let mut value_of = || {
                let shown = String::from_utf8_lossy(name);
                let missing = || Error::WrongKind(format!("option '{shown}' requires a value"));
                value.or_else(|| words.next()).ok_or_else(missing)
            };
            match name {
                b"--" => has_ended = true,
                b"--format" => call.format = Some(format_of(value_of()?)?),
                b"--prefix" => call.prefix = value_of()?.to_vec(),
                b"-l" | b"--list" => call.lists_formats = true,
                // A bare repository has no other attributes, and the paths are not told.
                b"-v" | b"--verbose" | b"--worktree-attributes" => {}
                [b'-', level @ b'0'..=b'9'] => call.level = Some(u32::from(level - b'0')),
                _ => {
                    let shown = String::from_utf8_lossy(name);
                    return Err(Error::WrongKind(format!("option '{shown}' is not supported here")));
                }
            }
        }
        Ok(call)
    }

    fn take(&mut self, word: &[u8]) {
        match self.tree {
            None => self.tree = Some(word.to_vec()),
            Some(_) => self.paths.push(word.to_vec()),
        }
    }
}

fn format_of(name: &[u8]) -> Result<ArchiveFormat> {
    let known = ArchiveFormat::ALL.into_iter().find(|format| format.name().as_bytes() == name);
    known.or_else(|| (name == b"tgz").then_some(ArchiveFormat::TarGz)).ok_or_else(|| {
        Error::WrongKind(format!("Unknown archive format '{}'", String::from_utf8_lossy(name)))
    })
}

fn write(repo: &Repo, arguments: &[Vec<u8>], out: &mut dyn Write) -> Result<()> {
    let call = ArchiveCall::parse(arguments)?;
    if call.lists_formats {
        return Ok(out.write_all(FORMATS)?);
    }
    let tree = call.tree.ok_or_else(|| Error::WrongKind("name a commit or a tree".to_owned()))?;
    let (tree, commit) = tree_of(repo, &String::from_utf8_lossy(&tree))?;
    let time = match commit {
        // git takes the number, even if no time zone follows.
        Some(commit) => repo.history().commit(&mut repo.reader(), &commit)?.time,
        // git takes the time now.
        None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
    };
    let format = call.format.unwrap_or(ArchiveFormat::Tar);
    if let Some(level) = call.level.filter(|_| format == ArchiveFormat::Tar) {
        return Err(Error::WrongKind(format!("Argument not supported for format 'tar': -{level}")));
    }
    let archive = TreeArchive {
        tree,
        commit,
        prefix: call.prefix,
        time,
        paths: ArchivePaths::new(&call.paths)?,
        level: call.level,
    };
    archive.paths.check(repo, &tree)?;
    format.write(repo, &archive, out)
}

/// Returns the tree that `name` stands for, and its commit: `REVISION`, or `REVISION:FOLDER` without one.
fn tree_of(repo: &Repo, name: &str) -> Result<(Oid, Option<Oid>)> {
    let Some((revision, folder)) = name.split_once(':') else { return tree_of_revision(repo, name) };
    if revision.is_empty() {
        return Err(Error::NotFound(format!("no such revision: '{name}'")));
    }
    let (top, _) = tree_of_revision(repo, revision)?;
    match entry_at(repo, &top, folder.as_bytes())? {
        (mode, oid) if mode & 0o170_000 == 0o040_000 => Ok((oid, None)),
        _ => Err(Error::WrongKind(format!("not a tree object: {name}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<ArchiveCall> {
        ArchiveCall::parse(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_those_of_git_archive() {
        let call = parse(&["--format=zip", "--prefix", "a/", "-9", "v1", "--", "-x", "b"]).unwrap();
        let expected = ArchiveCall {
            format: Some(ArchiveFormat::Zip),
            prefix: b"a/".to_vec(),
            level: Some(9),
            lists_formats: false,
            tree: Some(b"v1".to_vec()),
            paths: vec![b"-x".to_vec(), b"b".to_vec()],
        };
        assert_eq!(call, expected);
        assert_eq!(parse(&["--format=tgz", "HEAD"]).unwrap().format, Some(ArchiveFormat::TarGz));
        assert!(parse(&["-l"]).unwrap().lists_formats);
        for wrong in ["--format=rar", "--format", "--add-file=x", "-10", "--mtime=1"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }
}
