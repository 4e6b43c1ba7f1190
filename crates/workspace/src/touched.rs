//! What was touched in a workspace, as git's fsmonitor asks (githooks(5), "fsmonitor-watchman", version 2).
//!
//! Nobody watches: all that was written lies in the upper folder of the union mount, so a scan of it tells.
//! What was ever there stays in a list, with a number that grows when it changes: a file that was created,
//! committed and deleted again leaves nothing above.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"weir touched 1\n";
const FILE: &str = "touched";
/// The answer that everything may have changed.
const ALL: &[u8] = b"/\0";
/// How overlayfs marks a folder that hides the one below, and one that was renamed.
const MARKS: [&str; 4] =
    ["trusted.overlay.opaque", "trusted.overlay.redirect", "user.overlay.opaque", "user.overlay.redirect"];

/// A path that was touched.
struct TouchedPath {
    /// The number of the change that was seen last.
    seq: u64,
    /// A hash of what it was then.
    state: u64,
}

/// What was touched in a workspace.
struct Touched {
    /// Tokens of another list mean nothing.
    epoch: u64,
    /// The number of the last change.
    seq: u64,
    paths: BTreeMap<Vec<u8>, TouchedPath>,
}

/// Begins the list of a new workspace in the folder `place`. Returns the token for its index.
pub(crate) fn begin(place: &Path, epoch: u64) -> Result<String> {
    let touched = Touched { epoch, seq: 0, paths: BTreeMap::new() };
    touched.write(place)?;
    Ok(touched.token())
}

/// Returns the answer to git's question what has changed since `token`, about the workspace whose folder of
/// records is `place`: a token, and the paths, each with a NUL at its end.
///
/// # Errors
/// If the list or what was written cannot be read, or the list cannot be written. git then looks at every
/// file.
pub fn changed_since(place: &Path, token: &str) -> Result<Vec<u8>> {
    // One at a time: two would lose each other's changes.
    let path = place.join("touched.lock");
    let lock =
        OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(Error::on(&path))?;
    lock.lock().map_err(Error::on(&path))?;
    let known = Touched::read(place);
    let is_known = known.is_some();
    let mut touched = known.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Touched { epoch: now.map_or(1, |time| time.as_nanos() as u64), seq: 0, paths: BTreeMap::new() }
    });
    let mut found = BTreeMap::new();
    scan(&place.join("files"), &mut Vec::new(), &mut found)?;
    if touched.update(found) || !is_known {
        touched.write(place)?;
    }
    let mut answer = touched.token().into_bytes();
    answer.push(0);
    match touched.seq_of(token) {
        Some(since) => {
            for (path, _) in touched.paths.iter().filter(|(_, touched)| touched.seq > since) {
                // The file of that name, and all below the folder of that name.
                answer.extend_from_slice(path);
                answer.push(0);
                answer.extend_from_slice(path);
                answer.extend_from_slice(b"/\0");
            }
        }
        None => answer.extend_from_slice(ALL),
    }
    Ok(answer)
}

impl Touched {
    fn token(&self) -> String {
        format!("weir:{}:{}", self.epoch, self.seq)
    }

    /// Returns the number of the last change that the owner of `token` knows of.
    fn seq_of(&self, token: &str) -> Option<u64> {
        let (epoch, seq) = token.strip_prefix("weir:")?.split_once(':')?;
        let seq = seq.parse().ok()?;
        (epoch.parse() == Ok(self.epoch) && seq <= self.seq).then_some(seq)
    }

    /// Takes what is there now; returns whether anything has changed.
    fn update(&mut self, found: BTreeMap<Vec<u8>, u64>) -> bool {
        let next = self.seq + 1;
        let mut has_changed = false;
        for (path, touched) in &mut self.paths {
            // 0 is nothing.
            let state = found.get(path).copied().unwrap_or(0);
            if state != touched.state {
                (touched.state, touched.seq, has_changed) = (state, next, true);
            }
        }
        for (path, state) in found {
            self.paths.entry(path).or_insert_with(|| {
                has_changed = true;
                TouchedPath { seq: next, state }
            });
        }
        if has_changed {
            self.seq = next;
        }
        has_changed
    }

    /// Reads the list; `None` if there is none that can be understood.
    fn read(place: &Path) -> Option<Touched> {
        let data = fs::read(place.join(FILE)).ok()?;
        let mut rest = data.strip_prefix(MAGIC)?;
        let number = |rest: &mut &[u8]| {
            let (bytes, after) = rest.split_first_chunk::<8>()?;
            *rest = after;
            Some(u64::from_le_bytes(*bytes))
        };
        let (epoch, seq) = (number(&mut rest)?, number(&mut rest)?);
        let mut paths = BTreeMap::new();
        while !rest.is_empty() {
            let (seq, state, len) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
            let (path, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            rest = after;
            paths.insert(path.to_vec(), TouchedPath { seq, state });
        }
        Some(Touched { epoch, seq, paths })
    }

    fn write(&self, place: &Path) -> Result<()> {
        let mut data = MAGIC.to_vec();
        let number = |data: &mut Vec<u8>, number: u64| data.extend_from_slice(&number.to_le_bytes());
        number(&mut data, self.epoch);
        number(&mut data, self.seq);
        for (path, touched) in &self.paths {
            number(&mut data, touched.seq);
            number(&mut data, touched.state);
            number(&mut data, path.len() as u64);
            data.extend_from_slice(path);
        }
        let (path, new) = (place.join(FILE), place.join("touched.new"));
        File::create(&new).and_then(|mut file| file.write_all(&data)).map_err(Error::on(&new))?;
        fs::rename(&new, &path).map_err(Error::on(&path))
    }
}

/// Adds all that lies in the upper folder `at`, which is called `path` in the workspace, to `found`, with a
/// hash of what it is.
fn scan(at: &Path, path: &mut Vec<u8>, found: &mut BTreeMap<Vec<u8>, u64>) -> Result<()> {
    let entries = match fs::read_dir(at) {
        // It was deleted meanwhile; the next question finds it gone.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(Error::on(at))?,
    };
    let len = path.len();
    for entry in entries {
        let entry = entry.map_err(Error::on(at))?;
        let name = entry.file_name();
        // git's own files are not asked about.
        if len == 0 && name == ".git" {
            continue;
        }
        let file: PathBuf = entry.path();
        let Ok(about) = entry.metadata() else { continue };
        path.extend_from_slice(name.as_bytes());
        if about.is_dir() {
            let marks = MARKS.map(|mark| xattr(&file, mark));
            if marks.iter().any(Option::is_some) {
                found.insert(path.clone(), state(&about, &marks));
            }
            path.push(b'/');
            scan(&file, path, found)?;
        } else {
            found.insert(path.clone(), state(&about, &[]));
        }
        path.truncate(len);
    }
    Ok(())
}

/// Returns a hash of what a file is; never 0.
fn state(about: &Metadata, marks: &[Option<Vec<u8>>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (about.ino(), about.ctime(), about.ctime_nsec(), about.mtime(), about.mtime_nsec()).hash(&mut hasher);
    (about.size(), about.mode(), about.file_type().is_char_device(), marks).hash(&mut hasher);
    hasher.finish().max(1)
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 512];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    Some(value[..len].to_vec())
}
