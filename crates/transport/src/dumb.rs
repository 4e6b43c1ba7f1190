//! Reads upstreams that are plain files behind a web server: the files that `git update-server-info` writes
//! (gitprotocol-http, "Dumb Clients"; git's `http-walker.c`).

use std::io::{BufRead, BufReader, Read};

use weir_git::{HashKind, Oid, refname};

use crate::advertised::{Advertised, RefListing, Symbolic};
use crate::error::{Error, Result};
use crate::text::printable;
use crate::url::Url;

/// The maximum bytes of a line of `info/refs`.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// The maximum bytes of `HEAD`.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// The end of the path that an alternate names.
const OBJECTS: &str = "/objects";

type ResponseReader = Box<dyn Read + Send>;

fn no_git() -> Error {
    Error::Protocol(
        "the server answers, but has no git repository there: neither smart HTTP nor repository files"
            .to_owned(),
    )
}

/// Reads the refs and HEAD of a repository, and its hash, from the files `info/refs` and `HEAD`.
pub(crate) fn read_advertised(
    refs: ResponseReader,
    head: Option<ResponseReader>,
    bytes_max: u64,
) -> Result<(HashKind, Advertised)> {
    let mut refs = BufReader::new(refs);
    let mut listing: Option<RefListing> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        if refs.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.ends_with(b"\r\n") {
            line.truncate(line.len() - 2);
            line.push(b'\n');
        }
        let (id, name) = line
            .split_last()
            .and_then(|(end, line)| (*end == b'\n').then_some(line))
            .and_then(split_ref)
            .ok_or_else(no_git)?;
        let hash = [HashKind::Sha1, HashKind::Sha256]
            .into_iter()
            .find(|hash| hash.len() * 2 == id.len())
            .ok_or_else(no_git)?;
        let listing = listing.get_or_insert_with(|| RefListing::new(hash, bytes_max));
        let oid = Oid::from_hex(listing.hash(), id).ok_or_else(no_git)?;
        match name.strip_suffix(b"^{}") {
            Some(tag) => listing.peel_last(tag, oid),
            None => listing.push(name, oid, None)?,
        }
    }
    let is_empty = listing.is_none();
    let listing = listing.unwrap_or_else(|| RefListing::new(HashKind::Sha1, bytes_max));
    let hash = listing.hash();
    let head = match head {
        None => Symbolic::Unknown,
        Some(head) => read_head(head, hash)?,
    };
    // Any server may give an empty answer.
    if is_empty && head == Symbolic::Unknown {
        return Err(no_git());
    }
    Ok((hash, listing.finish_with(head)))
}

/// Splits `<id> TAB <name>`.
fn split_ref(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let tab = line.iter().position(|&c| c == b'\t')?;
    Some((&line[..tab], &line[tab + 1..]))
}

fn read_head(head: ResponseReader, hash: HashKind) -> Result<Symbolic> {
    let mut text = Vec::new();
    head.take(HEAD_BYTES_MAX).read_to_end(&mut text)?;
    let text = text.trim_ascii_end();
    Ok(match text.strip_prefix(b"ref:") {
        Some(name) if refname::is_valid(name.trim_ascii_start()) => {
            Symbolic::Branch(name.trim_ascii_start().to_vec())
        }
        _ => Oid::from_hex(hash, text).map_or(Symbolic::Unknown, Symbolic::Detached),
    })
}

/// Returns the URL of the repository whose object folder `line` names, relative to the repository at `base`.
pub(crate) fn alternate_of(base: &str, line: &str) -> Result<Url> {
    let bad = || Error::Protocol(format!("cannot follow its alternate '{}'", printable(line.as_bytes())));
    let is_web = line.starts_with("http://") || line.starts_with("https://");
    if line.is_empty() || (line.contains("://") && !is_web) {
        return Err(bad());
    }
    let text = if is_web {
        line.to_owned()
    } else {
        let host = base.find("://").map(|at| at + 3).ok_or_else(bad)?;
        let root = base[host..].find('/').map_or(base.len(), |at| host + at);
        if line.starts_with('/') {
            format!("{}{line}", &base[..root])
        } else {
            // Relative to `<base>/objects`; `..` is resolved here, as URLs should not contain it.
            let mut at = format!("{}{OBJECTS}", base.trim_end_matches('/'));
            let mut rest = line;
            while let Some(up) = rest.strip_prefix("../") {
                let parent = at.rfind('/').filter(|slash| *slash >= root).ok_or_else(bad)?;
                at.truncate(parent);
                rest = up;
            }
            format!("{at}/{rest}")
        }
    };
    let repository = text.trim_end_matches('/').strip_suffix(OBJECTS).ok_or_else(bad)?;
    if repository.split('/').any(|part| part == "..") {
        return Err(bad());
    }
    Url::parse(repository).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(refs: &str, head: Option<&str>) -> Result<(HashKind, Advertised)> {
        let body =
            |text: &str| -> ResponseReader { Box::new(std::io::Cursor::new(text.to_owned().into_bytes())) };
        read_advertised(body(refs), head.map(body), 1 << 20)
    }

    #[test]
    fn files_of_a_repository_are_its_advertisement() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let (hash, advertised) = read(
            &format!("{one}\trefs/heads/main\n{two}\trefs/tags/v1\n{one}\trefs/tags/v1^{{}}\n"),
            Some("ref: refs/heads/main\n"),
        )
        .unwrap();
        assert_eq!(hash, HashKind::Sha1);
        assert_eq!(advertised.head, Symbolic::Branch(b"refs/heads/main".to_vec()));
        assert_eq!(advertised.refs.len(), 2);
        assert!(advertised.refs[1].peeled.is_some());
        let id = "3".repeat(64);
        assert_eq!(read(&format!("{id}\trefs/heads/x\n"), Some(&id)).unwrap().0, HashKind::Sha256);
        assert_eq!(read("", Some("ref: refs/heads/main")).unwrap().1.refs.len(), 0);
    }

    #[test]
    fn pages_are_no_repositories() {
        for text in [
            "<html>\n",
            "",
            "1234\trefs/heads/x\n",
            &"x".repeat(200_000),
            &format!("{}\trefs/heads/main", "1".repeat(40)),
        ] {
            assert!(matches!(read(text, None), Err(Error::Protocol(_))), "{:.40}", text);
        }
        let mixed = format!("{}\trefs/heads/a\n{}\trefs/heads/b\n", "1".repeat(40), "2".repeat(64));
        assert!(read(&mixed, Some("ref: refs/heads/a\n")).is_err());
        assert!(
            read(&format!("{}\trefs/heads/a\n", "1".repeat(40)).repeat(10_000), None).is_err(),
            "no bound"
        );
    }

    #[test]
    fn alternates_are_followed_as_git_does() {
        let of = |line| alternate_of("http://h:80/a/b.git", line).map(|url| url.http_base());
        assert_eq!(of("../../c.git/objects").unwrap(), "http://h:80/a/c.git");
        assert_eq!(of("/x/y.git/objects/").unwrap(), "http://h:80/x/y.git");
        assert_eq!(of("https://o/z.git/objects").unwrap(), "https://o/z.git");
        for bad in [
            "",
            "../../../../../x/objects",
            "/etc/passwd",
            "file:///x/objects",
            "c/../../objects",
            "/a/../b/objects",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
