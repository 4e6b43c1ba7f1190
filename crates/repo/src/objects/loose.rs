//! Loose objects, each in a file (gitrepository-layout, "objects/[0-9a-f][0-9a-f]").

use std::path::{Path, PathBuf};
use std::{fs, io};

use weir_git::{HashKind, Kind, Oid};
use weir_ground::{FileError, hex};

use crate::error::{Error, Result, corrupt};
use crate::files::read_at_most;
use crate::objects::entry::OBJECT_BYTES_MAX;
use crate::objects::zlib::Inflate;

/// The smallest size from which the buffer of an inflated object is doubled.
const GROWTH_BYTES_MIN: usize = 64 << 10;

/// Returns the loose object `oid` below `objects`, a folder of objects, of at most `bytes_max` bytes.
///
/// # Errors
/// If the file cannot be read, is no loose object, or is larger: [`Error::TooLarge`].
pub fn read_loose(objects: &Path, oid: &Oid, bytes_max: u64) -> Result<(Kind, Vec<u8>)> {
    Loose { folder: objects.to_owned() }.read_at_most(oid, bytes_max, &mut Inflate::default())
}

/// A folder of loose objects.
#[derive(Clone)]
pub(crate) struct Loose {
    pub(crate) folder: PathBuf,
}

impl Loose {
    fn path(&self, id: &[u8]) -> PathBuf {
        let hex = hex(id);
        self.folder.join(&hex[..2]).join(&hex[2..])
    }

    /// Returns the ids of the loose objects in this folder, ascending.
    ///
    /// # Errors
    /// If a folder cannot be listed.
    pub(crate) fn ids(&self, hash: HashKind) -> Result<Vec<Oid>> {
        let mut ids = Vec::new();
        for byte in 0..=255u8 {
            let start = hex(&[byte]);
            let folder = self.folder.join(&start);
            let fail = |e: io::Error| io::Error::new(e.kind(), FileError::on("list", &folder)(e));
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(fail(e).into()),
            };
            for entry in entries {
                let entry = entry.map_err(fail)?;
                let name = [start.as_bytes(), entry.file_name().as_encoded_bytes()].concat();
                // Beside objects there may be temporary files.
                ids.extend(Oid::from_hex(hash, &name));
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    pub(crate) fn contains(&self, id: &[u8]) -> bool {
        self.path(id).is_file()
    }

    pub(crate) fn read(&self, oid: &Oid, inflate: &mut Inflate) -> Result<(Kind, Vec<u8>)> {
        self.read_at_most(oid, OBJECT_BYTES_MAX, inflate)
    }

    fn read_at_most(&self, oid: &Oid, bytes_max: u64, inflate: &mut Inflate) -> Result<(Kind, Vec<u8>)> {
        let path = self.path(oid.as_bytes());
        let packed = read_at_most(&path, bytes_max)?;
        let bad = |what: &str| corrupt(path.display().to_string(), what);
        // "<kind> <size>\0" comes first, and is short.
        let mut out = vec![0; 64];
        let decoder = inflate.decoder();
        decoder.reset();
        let (mut len, mut consumed, mut total) = (0, 0, None);
        loop {
            let Ok(progress) = decoder.decompress(&packed[consumed..], &mut out, true) else {
                return bad("bad zlib data");
            };
            len += progress.output.len();
            consumed += progress.consumed;
            let done = progress.done;
            if total.is_none() {
                let Some(nul) = out[..len].iter().position(|&c| c == 0) else {
                    return bad("no object header");
                };
                let header = String::from_utf8_lossy(&out[..nul]).into_owned();
                let parsed = header
                    .split_once(' ')
                    .and_then(|(k, s)| Some((Kind::from_name(k.as_bytes())?, s.parse::<u64>().ok()?)));
                match parsed {
                    Some((kind, size)) if size <= bytes_max => {
                        total = Some((kind, nul + 1, nul + 1 + size as usize))
                    }
                    Some((_, size)) => return Err(Error::TooLarge { oid: *oid, size, limit: bytes_max }),
                    _ => return bad("bad object header"),
                }
            }
            let (kind, start, end) = total.expect("set above");
            if done {
                if len != end {
                    return bad("its size is not what its header says");
                }
                out.truncate(len);
                // In place, so that the object is in memory only once.
                out.drain(..start);
                return Ok((kind, out));
            }
            if len >= end + 16 {
                return bad("it is longer than its header says");
            }
            // Memory grows with the content, not with the size that the header claims.
            out.resize((end + 16).min(out.len().max(GROWTH_BYTES_MIN) * 2).max(out.len()), 0);
        }
    }
}
