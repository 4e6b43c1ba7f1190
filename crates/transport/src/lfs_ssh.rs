//! A client for Git LFS over ssh alone: speaks with `git-lfs-transfer PATH download` at the upstream
//! (github.com/git-lfs/git-lfs, docs/proposals/ssh_adapter.md).

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::ops::Range;

use weir_git::pktline::{self, Pkt, PktReader};

use crate::error::{Error, Result};
use crate::lfs_answer::LfsAnswer;
use crate::options::TransportOptions;
use crate::pace::Pace;
use crate::ssh::Ssh;
use crate::text::printable;
use crate::url::Url;

/// The maximum bytes of an answer that is not an object.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The memory that a line takes besides its own bytes.
const LINE_BYTES: usize = 32;

/// A session, with one request at a time.
pub(crate) struct LfsSsh {
    connection: PktReader<BufReader<Ssh>>,
    /// An object was not read to its end, or was not as announced: the position in the stream is unknown.
    is_lost: bool,
}

impl LfsSsh {
    /// Begins a session with the host of `url`.
    ///
    /// # Errors
    /// If ssh fails, or the upstream does not speak this protocol.
    pub(crate) fn connect(url: &Url, options: &TransportOptions) -> Result<LfsSsh> {
        let ssh = Ssh::run(url, options, "git-lfs-transfer", Some("download"), Pace::new(options))?;
        let mut lfs = LfsSsh { connection: PktReader::new(BufReader::new(ssh)), is_lost: false };
        let (capabilities, _) = lfs.answer()?;
        if !capabilities.iter().any(|capability| capability == "version=1") {
            return Err(Error::Protocol(
                "git-lfs-transfer at the other end does not speak version 1".to_owned(),
            ));
        }
        lfs.ask(&["version 1".to_owned()], None)?;
        let (said, words) = lfs.answer()?;
        check(&said, &words)?;
        Ok(lfs)
    }

    /// Sends lines, and the lines `after` after a delimiter.
    fn ask(&mut self, lines: &[String], after: Option<&[String]>) -> Result<()> {
        let mut out = Vec::new();
        let push = |out: &mut Vec<u8>, line: &String| pktline::push(out, format!("{line}\n").as_bytes());
        lines.iter().for_each(|line| push(&mut out, line));
        if let Some(after) = after {
            pktline::push_delim(&mut out);
            after.iter().for_each(|line| push(&mut out, line));
        }
        pktline::push_flush(&mut out);
        Ok(self.connection.get_mut().get_mut().write_all(&out)?)
    }

    /// Reads the lines of an answer, and those after a delimiter.
    fn answer(&mut self) -> Result<(Vec<String>, Vec<String>)> {
        let head = self.head()?;
        let tail = if head.1 { self.head()?.0 } else { Vec::new() };
        Ok((head.0, tail))
    }

    /// Reads lines up to the next delimiter or end; returns them and whether it was a delimiter.
    fn head(&mut self) -> Result<(Vec<String>, bool)> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        loop {
            match self.connection.next_pkt()?.ok_or(Error::HungUp("in an answer"))? {
                Pkt::Flush => return Ok((lines, false)),
                Pkt::Delim => return Ok((lines, true)),
                pkt @ Pkt::Line(line) => {
                    bytes += line.len() + LINE_BYTES;
                    lines.push(String::from_utf8_lossy(pkt.text()).into_owned());
                }
                Pkt::ResponseEnd => return Err(Error::Protocol("a packet out of place".to_owned())),
            }
            if bytes > ANSWER_BYTES_MAX {
                return Err(Error::Protocol("an answer that does not end".to_owned()));
            }
        }
    }

    /// Asks where objects are, by id and size; the answers are in the same order.
    ///
    /// # Errors
    /// If the connection fails, or the upstream refuses all of them.
    pub(crate) fn batch(&mut self, objects: &[(&str, u64)]) -> Result<Vec<LfsAnswer>> {
        self.check_is_here()?;
        let objects_asked: Vec<String> = objects.iter().map(|(oid, size)| format!("{oid} {size}")).collect();
        let asked = ["batch", "transfer=ssh", "hash-algo=sha256"].map(str::to_owned);
        self.ask(&asked, Some(&objects_asked))?;
        let (said, lines) = self.answer()?;
        check(&said, &lines)?;
        // The arguments that are sent with the request for each object.
        let mut found: HashMap<&str, Option<Vec<String>>> = HashMap::new();
        for line in &lines {
            let mut words = line.split(' ');
            let (Some(oid), Some(_), Some(action)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let passed_on =
                words.filter(|word| word.starts_with("id=") || word.starts_with("token=")).map(str::to_owned);
            if action == "download" {
                found.insert(oid, Some(passed_on.collect()));
            } else {
                found.entry(oid).or_default();
            }
        }
        let answer = |oid: &str| match found.remove(oid) {
            Some(Some(arguments)) => LfsAnswer::over_ssh(oid, arguments),
            Some(None) => LfsAnswer::Absent("the server does not have it".to_owned()),
            None => LfsAnswer::Absent("the server says nothing of it".to_owned()),
        };
        Ok(objects.iter().map(|(oid, _)| *oid).map(answer).collect())
    }

    /// Returns the bytes of the object `oid`.
    ///
    /// # Errors
    /// If the connection fails; [`Error::Http`] if the upstream does not send the object.
    pub(crate) fn download(&mut self, oid: &str, arguments: &[String]) -> Result<Box<dyn Read + Send + '_>> {
        self.check_is_here()?;
        let lines: Vec<String> =
            [format!("get-object {oid}")].into_iter().chain(arguments.iter().cloned()).collect();
        self.ask(&lines, None)?;
        self.is_lost = true;
        let (said, has_more) = self.head()?;
        if status(&said) != Some(200) {
            let words = if has_more { self.head()?.0 } else { Vec::new() };
            self.is_lost = false;
            check(&said, &words)?;
            return Err(Error::Protocol("an LFS object with a status that is not its own".to_owned()));
        }
        let size = said.iter().find_map(|line| line.strip_prefix("size=")?.parse().ok());
        match size.filter(|_| has_more) {
            Some(left) => Ok(Box::new(LfsSshObject { lfs: self, left, part: 0..0, bytes: Vec::new() })),
            None => Err(Error::Protocol("an LFS object without its size".to_owned())),
        }
    }

    fn check_is_here(&self) -> Result<()> {
        if self.is_lost { Err(Error::HungUp("in an LFS object")) } else { Ok(()) }
    }
}

/// Returns the status of an answer.
fn status(said: &[String]) -> Option<u16> {
    said.first()?.strip_prefix("status ")?.parse().ok()
}

/// Checks that the status is a success; otherwise returns an error with the words of the answer.
fn check(said: &[String], words: &[String]) -> Result<()> {
    match status(said) {
        Some(200..=299) => Ok(()),
        Some(status) => {
            let detail = Some(printable(words.join(" ").as_bytes())).filter(|words| !words.is_empty());
            Err(Error::Http { status, detail })
        }
        None => Err(Error::Protocol("an answer of git-lfs-transfer without a status".to_owned())),
    }
}

/// An object that is being received. Reading its last byte also reads the end of the answer, so that the next
/// object can be requested.
struct LfsSshObject<'a> {
    lfs: &'a mut LfsSsh,
    /// The bytes still to come.
    left: u64,
    /// The part of `bytes` that has not been given out.
    part: Range<usize>,
    bytes: Vec<u8>,
}

impl Read for LfsSshObject<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() && self.left > 0 {
            match self.lfs.connection.next_pkt()? {
                Some(Pkt::Line(line)) if (1..=self.left).contains(&(line.len() as u64)) => {
                    self.bytes.clear();
                    self.bytes.extend_from_slice(line);
                    self.left -= line.len() as u64;
                    self.part = 0..line.len();
                }
                _ => {
                    return Err(
                        Error::Protocol("an LFS object of another size than was said".to_owned()).into()
                    );
                }
            }
        }
        let n = buf.len().min(self.part.len());
        buf[..n].copy_from_slice(&self.bytes[self.part.start..self.part.start + n]);
        self.part.start += n;
        if self.left == 0 && self.part.is_empty() && self.lfs.is_lost {
            match self.lfs.connection.next_pkt()? {
                Some(Pkt::Flush) => self.lfs.is_lost = false,
                _ => {
                    return Err(
                        Error::Protocol("an LFS object of another size than was said".to_owned()).into()
                    );
                }
            }
        }
        Ok(n)
    }
}
