//! Downloads the pack and its index, from where an earlier attempt ended, and checks both.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_archive::Region;
use weir_git::{HashKind, PlainHasher, plain_sha};
use weir_ground::FileError;
use weir_repo::Pack;
use weir_transport::HttpFiles;

use crate::description::Description;
use crate::error::{Error, Result};
use crate::repository::Target;

/// The number of attempts in a row without a byte after which a download fails.
const TRIES_MAX: u32 = 5;
const BUFFER_BYTES: usize = 1 << 20;

/// The progress of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The bytes downloaded so far.
    pub done: u64,
    /// The bytes in total.
    pub total: u64,
}

/// A function that receives the progress of a download.
pub type TellTransfer<'a> = dyn Fn(Transfer) + 'a;

/// Downloads what `description` describes into `target`.
///
/// # Errors
/// If the download breaks off, or the result is not a pack and its index. An incomplete download is kept, to
/// be resumed. Files that fail a check are deleted.
pub(crate) fn download(
    files: &mut HttpFiles,
    description: &Description,
    target: &Target,
    tell: &TellTransfer<'_>,
) -> Result<()> {
    let packs = target.prepare()?;
    let unfinished = target.unfinished();
    let before: Option<Description> =
        fs::read(&unfinished).ok().and_then(|data| serde_json::from_slice(&data).ok());
    if before.is_some_and(|before| before.checksum != description.checksum) {
        // The upstream has changed: these are parts of another pack.
        for entry in fs::read_dir(&packs).map_err(FileError::on("read", &packs))? {
            let path = entry.map_err(FileError::on("read", &packs))?.path();
            fs::remove_file(&path).map_err(FileError::on("delete", &path))?;
        }
    }
    let write = FileError::on("write", &unfinished);
    let text = serde_json::to_vec(description).map_err(io::Error::from).map_err(write)?;
    fs::write(&unfinished, text).map_err(write)?;
    let hash = description.hash();
    let stem = packs.join(format!("pack-{}", description.checksum));
    let total = description.pack_bytes + description.index_bytes;
    let mut download = PackDownload { files, hash, transfer: Transfer { done: 0, total }, tell };
    tell(download.transfer);
    for (suffix, bytes) in [("idx", description.index_bytes), ("pack", description.pack_bytes)] {
        let part = packs.join(format!("tmp_weir_{}.{suffix}", description.checksum));
        let done = stem.with_extension(suffix);
        if done.exists() {
            download.count(bytes);
            continue;
        }
        download.file(&format!("weir/clone-{}.{suffix}", description.checksum), &part, bytes)?;
        fs::set_permissions(&part, fs::Permissions::from_mode(0o444))
            .map_err(FileError::on("write", &part))?;
        fs::rename(&part, &done).map_err(FileError::on("write", &done))?;
    }
    check_pack(&stem, hash, description).inspect_err(|_| {
        // No later attempt resumes from these files.
        let _ = (fs::remove_file(stem.with_extension("idx")), fs::remove_file(stem.with_extension("pack")));
    })
}

/// The download of one pack with its index.
struct PackDownload<'a> {
    files: &'a mut HttpFiles,
    hash: HashKind,
    transfer: Transfer,
    tell: &'a TellTransfer<'a>,
}

/// The downloaded bytes of a file, hashed as they arrive.
struct Part<'a> {
    path: &'a Path,
    file: File,
    sum: PlainHasher,
    /// The checksum that the file ends with.
    tail: Vec<u8>,
    /// The bytes downloaded so far.
    at: u64,
    /// The bytes in total.
    bytes: u64,
    checksum_bytes: u64,
}

impl Part<'_> {
    /// Hashes `data`, which is already in the file.
    fn digest(&mut self, data: &[u8]) {
        let summed = (self.bytes - self.checksum_bytes).saturating_sub(self.at).min(data.len() as u64);
        let (body, tail) = data.split_at(summed as usize);
        self.sum.update(body);
        self.tail.extend_from_slice(tail);
        self.at += data.len() as u64;
    }

    /// Appends `data`.
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let write = self.file.seek(SeekFrom::Start(self.at)).and_then(|_| self.file.write_all(data));
        write.map_err(FileError::on("write", self.path))?;
        self.digest(data);
        Ok(())
    }
}

impl PackDownload<'_> {
    fn count(&mut self, bytes: u64) {
        self.transfer.done += bytes;
        (self.tell)(self.transfer);
    }

    /// Downloads the file `name` of `bytes` bytes, which ends with its own checksum, to `path`.
    ///
    /// The file is not synced. If the machine fails, the user clones again, and leftover files are checked
    /// before they count.
    fn file(&mut self, name: &str, path: &Path, bytes: u64) -> Result<()> {
        let mut part = self.resume(path, bytes)?;
        let mut tries = 0;
        while part.at < bytes {
            let from = part.at;
            let why = match self.files.get(name, from) {
                Ok(None) => return Err(Error::Changed),
                // From the start again, if the server cannot do otherwise.
                Ok(Some(answer)) => self.take(&mut part, answer.reader, from - answer.from)?,
                Err(e) => Some(e.to_string()),
            };
            let Some(why) = why else { break };
            if part.at > from {
                tries = 0;
            }
            tries += 1;
            if tries > TRIES_MAX {
                return Err(Error::Interrupted { file: name.to_owned(), at: part.at, bytes, why });
            }
            std::thread::sleep(Duration::from_millis(200) * 2u32.pow(tries));
        }
        if part.sum.finish().as_bytes() != part.tail {
            part.file.set_len(0).map_err(FileError::on("write", path))?;
            return Err(Error::Checksum(name.to_owned()));
        }
        Ok(())
    }

    /// Opens the file at `path`, and hashes what an earlier attempt has left there.
    fn resume<'a>(&mut self, path: &'a Path, bytes: u64) -> Result<Part<'a>> {
        let fail = FileError::on("write", path);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut part = Part {
            path,
            file: file.map_err(fail)?,
            sum: plain_sha(self.hash),
            tail: Vec::new(),
            at: 0,
            bytes,
            checksum_bytes: self.hash.len() as u64,
        };
        if part.file.metadata().map_err(fail)?.len() > bytes {
            part.file.set_len(0).map_err(fail)?;
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(n @ 1..) = part.file.read(&mut buffer) {
            part.digest(&buffer[..n]);
            self.count(n as u64);
        }
        Ok(part)
    }

    /// Appends what `reader` returns after the first `skip` bytes. Returns why it ended before the file was
    /// complete.
    fn take(&mut self, part: &mut Part<'_>, mut reader: impl Read, mut skip: u64) -> Result<Option<String>> {
        let mut buffer = vec![0; BUFFER_BYTES];
        while part.at < part.bytes {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(Some("it ended early".to_owned())),
                Ok(n) if n as u64 <= skip => skip -= n as u64,
                Ok(n) => {
                    let data = &buffer[skip as usize..n];
                    let data = &data[..(data.len() as u64).min(part.bytes - part.at) as usize];
                    skip = 0;
                    part.append(data)?;
                    self.count(data.len() as u64);
                }
                Err(e) => return Ok(Some(e.to_string())),
            }
        }
        Ok(None)
    }
}

/// Checks that pack and index belong together: checksums, the number of objects, and each entry's CRC-32.
fn check_pack(stem: &Path, hash: HashKind, description: &Description) -> Result<()> {
    let open = |suffix: &str| -> Result<Region> {
        let path = stem.with_extension(suffix);
        let read = FileError::on("read", &path);
        let file = File::open(&path).map_err(read)?;
        let len = file.metadata().map_err(read)?.len();
        // SAFETY: this process created the file in its own folder, and no longer writes to it.
        Ok(unsafe { Region::map(Arc::new(file), len) }.map_err(read)?)
    };
    let in_clone = || Error::repo("the clone");
    let pack = Pack::open("the pack", open("pack")?, open("idx")?, hash).map_err(in_clone())?;
    if pack.checksum().to_string() != description.checksum || pack.index().pack_checksum() != pack.checksum()
    {
        return Err(Error::Mismatch("their checksums differ"));
    }
    if pack.index().count() != description.objects {
        return Err(Error::Mismatch("the number of objects"));
    }
    if !pack.crcs_match().map_err(in_clone())? {
        return Err(Error::Mismatch("an entry is not what its checksum says"));
    }
    Ok(())
}
