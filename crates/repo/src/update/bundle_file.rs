//! Opens a bundle file (gitformat-bundle) as a repository: its pack is verified and becomes an archive of its
//! own.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use weir_git::{HashKind, Oid, OidSet};
use weir_ground::{Epoch, Timestamp};

use crate::error::{Error, Result, corrupt};
use crate::ingest::{IngestLimits, IngestOptions, SpillPlace, ingest};
use crate::progress::Progress;
use crate::refs::list::{Head, Ref, Refs};
use crate::refs::state_kind::StateKind;
use crate::repo::bodies::RefClass;
use crate::repo::repository::Repo;
use crate::update::archive_repo::{ArchiveRepo, NewState};

/// The most bytes of a line of the header, and of all of it.
const LINE_BYTES_MAX: u64 = 16 << 10;
const HEADER_BYTES_MAX: usize = 1 << 30;
/// The bytes of inflated deltas that are kept.
const DELTA_BYTES_MAX: usize = 64 << 20;

/// Returns whether the file at `path` begins as a bundle.
pub fn is_bundle(path: &Path) -> bool {
    let mut start = [0; 16];
    let is_read = File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok();
    is_read && matches!(&start, b"# v2 git bundle\n" | b"# v3 git bundle\n")
}

/// What a bundle says before its pack.
struct BundleHeader {
    hash: HashKind,
    refs: Vec<Ref>,
    head: Option<Oid>,
}

/// Opens the bundle at `path`. What it holds is written to an archive in `folder`, which must live as long as
/// the repository.
///
/// # Errors
/// If it is no bundle, needs commits that are not in it, or is damaged.
pub fn open_bundle(path: &Path, folder: &Path) -> Result<Repo> {
    let mut input = BufReader::new(File::open(path)?);
    let header = read_header(&mut input, path)?;
    let wanted: Vec<Oid> = header.refs.iter().map(|r| r.oid).chain(header.head).collect();
    let options = IngestOptions {
        hash: header.hash,
        limits: IngestLimits::default(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        base: None,
        wanted: &wanted,
        shallow: &OidSet::default(),
        lost: &OidSet::default(),
        delta_bytes_max: DELTA_BYTES_MAX,
        progress: &Progress::default(),
        arriving: None,
    };
    let spill = |_| Ok(SpillPlace::unlimited(tempfile::tempfile_in(folder)?));
    let pack = ingest(&mut input, &spill, &options)?;
    // As `git clone` of a bundle: HEAD is the branch that is where it is.
    let of_head = |r: &&Ref| Some(r.oid) == header.head && r.name.starts_with(b"refs/heads/");
    let is_usual = |r: &&Ref| matches!(&r.name[..], b"refs/heads/main" | b"refs/heads/master");
    let branch = header.refs.iter().filter(of_head).find(is_usual).or(header.refs.iter().find(of_head));
    let head = match (branch, header.head) {
        (Some(branch), _) => Head::Symbolic(branch.name.clone()),
        (None, Some(oid)) => Head::Detached(oid),
        (None, None) => Head::default(),
    };
    let archive = folder.join("bundle.tar");
    let refs = Cow::Owned(Refs::new(header.refs, head));
    let (shallow, epoch, kind) = (&[][..], Epoch::NONE, StateKind::Mirrored);
    ArchiveRepo::create(&archive, header.hash, 1)?.commit(
        pack.map(|pack| (RefClass::HeadsAndTags, pack)),
        NewState { refs, shallow, time: Timestamp(0), epoch, kind },
    )?;
    Repo::open_archive(&archive)
}

fn read_header(input: &mut impl BufRead, path: &Path) -> Result<BundleHeader> {
    let file = path.display().to_string();
    let mut header = BundleHeader { hash: HashKind::Sha1, refs: Vec::new(), head: None };
    let (mut needed, mut bytes) = (0, 0);
    for number in 0.. {
        let mut line = Vec::new();
        input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        bytes += line.len();
        let Some(line) = line.strip_suffix(b"\n").filter(|_| bytes <= HEADER_BYTES_MAX) else {
            return corrupt(file, "its header does not end");
        };
        match line {
            [] => break,
            b"# v2 git bundle" | b"# v3 git bundle" if number == 0 => {}
            _ if number == 0 => return corrupt(file, "it is no bundle of version 2 or 3"),
            b"@object-format=sha1" => {}
            b"@object-format=sha256" => header.hash = HashKind::Sha256,
            [b'@', what @ ..] => {
                let what = String::from_utf8_lossy(what);
                return Err(Error::Unsupported(format!(
                    "'{file}' is a bundle with '{}', which weir does not take",
                    what.escape_debug()
                )));
            }
            [b'-', ..] => needed += 1,
            line => {
                let space = memchr::memchr(b' ', line).unwrap_or(line.len());
                let name = line.get(space + 1..).unwrap_or_default().to_vec();
                let Some(oid) = Oid::from_hex(header.hash, &line[..space]) else {
                    return corrupt(file, format!("a bad line in its header: line {}", number + 1));
                };
                match &name[..] {
                    b"HEAD" => header.head = Some(oid),
                    name if weir_git::refname::is_valid(name) => {
                        header.refs.push(Ref { name: name.to_vec(), oid, peeled: None });
                    }
                    _ => {}
                }
            }
        }
    }
    if needed > 0 {
        return Err(Error::Unsupported(format!(
            "the bundle '{file}' needs {needed} commits that are not in it; make one with all history: \
            git bundle create FILE --all"
        )));
    }
    Ok(header)
}
