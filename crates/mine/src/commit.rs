//! Commits and tags, parsed as git's pretty formats read them.

use memchr::memchr;
use weir_git::{CommitLinks, HashKind, ObjectError, commit_links};

/// A person and a time, as an `author`, `committer` or `tagger` line has them (ident.c, `split_ident_line`).
///
/// A malformed line has an empty name and email, as `git log --format=%an` prints it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ident<'a> {
    /// The whole line, without its keyword.
    pub line: &'a [u8],
    /// The name, without the spaces behind it.
    pub name: &'a [u8],
    /// The email address.
    pub email: &'a [u8],
    /// The time in seconds since 1970; `None` if the line has none.
    pub seconds: Option<i64>,
    /// The offset from UTC, as written: a sign and digits; empty if the line has none.
    pub offset: &'a [u8],
}

/// Returns whether git takes `c` for a space (ctype.c); a form feed is none.
fn is_space(c: u8) -> bool {
    matches!(c, b' ' | b'\t' | b'\n' | b'\r')
}

fn trim_start(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|&&c| is_space(c)).count()..]
}

fn trim_end(text: &[u8]) -> &[u8] {
    &text[..text.len() - text.iter().rev().take_while(|&&c| is_space(c)).count()]
}

/// Returns the time of the committer of the commit `data` in seconds since 1970, as [`CommitParts::parse`]
/// reads it.
pub(crate) fn committer_time(data: &[u8]) -> Option<i64> {
    let mut line = None;
    each_line(split_header(data).0, |key, value| {
        if key == b"committer" {
            line = Some(value);
        }
    });
    Ident::parse(line?).seconds
}

impl<'a> Ident<'a> {
    /// Parses the line `line`, without its keyword.
    pub fn parse(line: &'a [u8]) -> Ident<'a> {
        let malformed = Ident { line, ..Ident::default() };
        let whole = line;
        // For git the line ends with the first NUL.
        let line = &line[..memchr(0, line).unwrap_or(line.len())];
        let Some(open) = memchr(b'<', line) else { return malformed };
        let Some(close) = memchr(b'>', &line[open..]) else { return malformed };
        let mut ident = Ident {
            line: whole,
            name: trim_end(&line[..open]),
            email: &line[open + 1..open + close],
            ..Ident::default()
        };
        // An address may have a `>` in it, a time has none.
        let last = line.iter().rposition(|&c| c == b'>').expect("one was found");
        let date = trim_start(&line[last + 1..]);
        let digits = |text: &[u8]| text.iter().take_while(|c| c.is_ascii_digit()).count();
        let (seconds, rest) = date.split_at(digits(date));
        let rest = trim_start(rest);
        let zone = match rest.first() {
            Some(b'+' | b'-') => 1 + digits(&rest[1..]),
            _ => 0,
        };
        if !seconds.is_empty() && zone > 1 {
            ident.seconds =
                Some(seconds.iter().fold(0i64, |value, digit| {
                    value.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
                }));
            ident.offset = &rest[..zone];
        }
        ident
    }

    /// Returns the offset from UTC in minutes, `None` if it is not four digits. The last two are minutes,
    /// even if they are more than 59, as git has it.
    pub fn offset_minutes(&self) -> Option<i16> {
        let [sign, digits @ ..] = self.offset else { return None };
        let [h1, h2, m1, m2] = <[u8; 4]>::try_from(digits).ok()?.map(|c| i16::from(c - b'0'));
        let (hours, minutes) = (h1 * 10 + h2, m1 * 10 + m2);
        let total = hours * 60 + minutes;
        Some(if *sign == b'-' { -total } else { total })
    }
}

/// A commit, in parts. All of them are raw bytes.
#[derive(Clone, Debug)]
pub struct CommitParts<'a> {
    /// The tree and the parents.
    pub links: CommitLinks,
    /// The author.
    pub author: Ident<'a>,
    /// The committer.
    pub committer: Ident<'a>,
    /// The name of the encoding of the text; empty if the commit names none.
    pub encoding: &'a [u8],
    /// All of it.
    pub data: &'a [u8],
    /// The header from its first line on, without the empty line that ends it.
    pub header: &'a [u8],
    /// The message.
    pub message: &'a [u8],
    /// The kind of the signature in the header.
    pub signature: Option<SignatureKind>,
}

/// The kind of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureKind {
    /// OpenPGP.
    Gpg,
    /// SSH.
    Ssh,
    /// X.509.
    X509,
    /// Another one.
    Other,
}

impl SignatureKind {
    /// Returns the kind of the signature that starts with `armor`.
    fn of(armor: &[u8]) -> SignatureKind {
        match armor {
            a if a.starts_with(b"-----BEGIN PGP SIGNATURE-----")
                || a.starts_with(b"-----BEGIN PGP MESSAGE-----") =>
            {
                SignatureKind::Gpg
            }
            a if a.starts_with(b"-----BEGIN SSH SIGNATURE-----") => SignatureKind::Ssh,
            a if a.starts_with(b"-----BEGIN SIGNED MESSAGE-----") => SignatureKind::X509,
            _ => SignatureKind::Other,
        }
    }

    /// Returns the value in tables, as git's `gpg.format` names them (git calls OpenPGP "openpgp").
    pub fn name(self) -> &'static str {
        match self {
            SignatureKind::Gpg => "openpgp",
            SignatureKind::Ssh => "ssh",
            SignatureKind::X509 => "x509",
            SignatureKind::Other => "other",
        }
    }
}

/// Calls `line` with the keyword and the value of each line of `header`. The value of a line that continues
/// is whole, with the line breaks and the spaces that start the continuing lines.
fn each_line<'a>(header: &'a [u8], mut line: impl FnMut(&'a [u8], &'a [u8])) {
    let mut rest = header;
    while !rest.is_empty() {
        let mut end = memchr(b'\n', rest).unwrap_or(rest.len());
        while rest.get(end + 1) == Some(&b' ') {
            end += 1 + memchr(b'\n', &rest[end + 1..]).unwrap_or(rest.len() - end - 1);
        }
        let whole = &rest[..end];
        match memchr(b' ', whole) {
            Some(space) => line(&whole[..space], &whole[space + 1..]),
            None => line(whole, b""),
        }
        rest = rest.get(end + 1..).unwrap_or(b"");
    }
}

/// Returns the header of an object, and what follows the empty line behind it.
fn split_header(data: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while let Some(end) = memchr(b'\n', &data[at..]) {
        if end == 0 {
            return (&data[..at.saturating_sub(1)], &data[at + 1..]);
        }
        at += end + 1;
    }
    (data, b"")
}

impl<'a> CommitParts<'a> {
    /// Parses a commit.
    ///
    /// # Errors
    /// If it has no tree, or a malformed parent. Everything else may be malformed.
    pub fn parse(hash: HashKind, data: &'a [u8]) -> Result<CommitParts<'a>, ObjectError> {
        Ok(CommitParts::parse_text(&commit_links(hash, data)?, data))
    }

    /// Parses a commit whose tree and parents are known, in any encoding.
    pub fn parse_text(links: &CommitLinks, data: &'a [u8]) -> CommitParts<'a> {
        let (header, message) = split_header(data);
        let mut commit = CommitParts {
            links: links.clone(),
            author: Ident::default(),
            committer: Ident::default(),
            encoding: b"",
            data,
            header,
            message,
            signature: None,
        };
        let nul = memchr(0, header).unwrap_or(header.len());
        let is_behind_nul = |value: &[u8]| value.as_ptr() as usize - header.as_ptr() as usize > nul;
        each_line(header, |key, value| match key {
            b"author" => commit.author = Ident::parse(value),
            b"committer" => commit.committer = Ident::parse(value),
            // git takes the last line of those above, but the first of these, if no NUL comes before.
            b"encoding" if commit.encoding.is_empty() && !is_behind_nul(value) => commit.encoding = value,
            b"gpgsig" | b"gpgsig-sha256" => commit.signature = Some(SignatureKind::of(value)),
            _ => {}
        });
        commit
    }

    /// Returns the keyword and the value of each header line that is neither tree, parent, author, committer
    /// nor encoding. The value of a line that continues has no spaces at the starts of its lines.
    pub fn extra_headers(&self) -> Vec<(&'a [u8], Vec<u8>)> {
        let mut headers = Vec::new();
        each_line(self.header, |key, value| {
            if !matches!(key, b"tree" | b"parent" | b"author" | b"committer" | b"encoding") {
                let mut joined = Vec::with_capacity(value.len());
                for (n, part) in value.split(|&c| c == b'\n').enumerate() {
                    if n > 0 {
                        joined.push(b'\n');
                    }
                    joined.extend_from_slice(if n > 0 { part.get(1..).unwrap_or(b"") } else { part });
                }
                headers.push((key, joined));
            }
        });
        headers
    }
}

/// An annotated tag, in parts.
#[derive(Clone, Debug)]
pub struct TagParts<'a> {
    /// The name in the tag.
    pub name: &'a [u8],
    /// Who made the tag; `None` if it does not say.
    pub tagger: Option<Ident<'a>>,
    /// The message, with a signature at its end if it is signed.
    pub message: &'a [u8],
}

impl<'a> TagParts<'a> {
    /// Parses a tag. Lines that are missing are empty.
    pub fn parse(data: &'a [u8]) -> TagParts<'a> {
        let (header, message) = split_header(data);
        let mut tag = TagParts { name: b"", tagger: None, message };
        each_line(header, |key, value| match key {
            b"tag" => tag.name = value,
            b"tagger" => tag.tagger = Some(Ident::parse(value)),
            _ => {}
        });
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idents_are_split_as_git_splits_them() {
        let ident = |line: &'static str| Ident::parse(line.as_bytes());
        let whole = ident("A U Thor  <a@example.org> 1112911993 -0730");
        assert_eq!((whole.name, whole.email), (&b"A U Thor"[..], &b"a@example.org"[..]));
        assert_eq!((whole.seconds, whole.offset_minutes()), (Some(1_112_911_993), Some(-450)));
        assert_eq!(ident("<a@b> 1 +0000").name, b"");
        let line = b"no address 1 +0000";
        assert_eq!(Ident::parse(line), Ident { line, ..Ident::default() });
        assert_eq!(ident("A <a@b").email, b"");
        let broken = ident("A <a>b> 12 +0100");
        assert_eq!((broken.email, broken.seconds), (&b"a"[..], Some(12)));
        assert_eq!(ident("A <a@b>").seconds, None);
        assert_eq!(ident("A <a@b> 12").seconds, None, "a time without an offset counts as none");
        assert_eq!(ident("A <a@b> 99999999999999999999 +0000").seconds, Some(i64::MAX));
        let odd = ident("A <a@b> 5 +051800");
        assert_eq!((odd.offset, odd.offset_minutes(), odd.seconds), (&b"+051800"[..], None, Some(5)));
    }

    #[test]
    fn headers_may_continue() {
        let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let data = format!(
            "tree {tree}\nauthor a <b> 1 +0000\ncommitter c <d> 2 +0000\nencoding latin1\n\
             gpgsig -----BEGIN SSH SIGNATURE-----\n abc\n \n def\nHG:extra x\n\nsubject\n\nbody"
        );
        let commit = CommitParts::parse(HashKind::Sha1, data.as_bytes()).unwrap();
        assert_eq!((commit.encoding, commit.signature), (&b"latin1"[..], Some(SignatureKind::Ssh)));
        assert_eq!(commit.message, b"subject\n\nbody");
        let extra = commit.extra_headers();
        assert_eq!(extra[0].0, b"gpgsig");
        assert_eq!(extra[0].1, b"-----BEGIN SSH SIGNATURE-----\nabc\n\ndef");
        assert_eq!(extra[1], (&b"HG:extra"[..], b"x".to_vec()));
        let bare = format!("tree {tree}\n");
        let commit = CommitParts::parse(HashKind::Sha1, bare.as_bytes()).unwrap();
        assert_eq!((commit.message, commit.author), (&b""[..], Ident::default()));
    }
}
