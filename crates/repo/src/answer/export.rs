//! Exports a repository as a bare directory or as a bundle. (A sealed tar is the archive itself.)

use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use weir_archive::Region;
use weir_git::{HashKind, OidSet};

use crate::answer::pack_writer::PackPlan;
use crate::error::{Error, Result};
use crate::reach::steps::Budget;
use crate::refs::list::{Head, Ref};
use crate::repo::keys::{is_lfs_object, is_metadata};
use crate::repo::repository::Repo;
use crate::select::by_walk::select;
use crate::select::query::Query;

/// The result of an export.
#[derive(Clone, Copy, Debug)]
pub struct ExportReport {
    /// The number of bytes written.
    pub bytes: u64,
}

/// Writes an ordinary bare repository to the folder `target`, which must not exist or be empty.
///
/// # Errors
/// If `target` is not empty, or the disk fails.
pub fn export_directory(repo: &Repo, target: &Path) -> Result<ExportReport> {
    if target.exists() && fs::read_dir(target)?.next().is_some() {
        return Err(Error::NotFound(format!(
            "'{}' exists and is not empty; name another folder",
            target.display()
        )));
    }
    for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
        fs::create_dir_all(target.join(folder))?;
    }
    let mut bytes = 0;
    let mut write = |name: &str, data: &[u8], read_only: bool| -> Result<()> {
        let path = target.join(name);
        fs::write(&path, data)?;
        if read_only {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444))?;
        }
        bytes += data.len() as u64;
        Ok(())
    };
    if let Some(archive) = repo.archive() {
        for name in archive.state().members.keys() {
            let is_beside = is_lfs_object(name) || is_metadata(name);
            let wanted =
                name.starts_with("objects/") || is_beside || matches!(name.as_str(), "config" | "shallow");
            if wanted && let Some(data) = archive.member(name) {
                if let Some(folder) = target.join(name).parent().filter(|_| is_beside) {
                    fs::create_dir_all(folder)?;
                }
                write(name, &data, name.starts_with("objects/pack/"))?;
            }
        }
    }
    write("packed-refs", &repo.refs().to_packed_refs(), false)?;
    write("HEAD", &repo.refs().to_head_file(), false)?;
    Ok(ExportReport { bytes })
}

/// Writes `region`, a part of a file, to a new file at `path`. It shares blocks if the file system can,
/// otherwise it copies.
///
/// # Errors
/// If the file exists already, or the disk fails.
pub fn copy_out(region: &Region, path: &Path) -> std::io::Result<()> {
    /// Blocks are shared in multiples of this.
    const BLOCK_BYTES: u64 = 4096;
    let mut file = File::options().write(true).create_new(true).open(path)?;
    let (offset, len) = (region.file_offset(), region.len() as u64);
    let mut shared = len / BLOCK_BYTES * BLOCK_BYTES;
    let range = libc::file_clone_range {
        src_fd: region.file().as_raw_fd().into(),
        src_offset: offset,
        src_length: shared,
        dest_offset: 0,
    };
    // SAFETY: both descriptors are open, and the range is read only.
    let clone = || unsafe { libc::ioctl(file.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    if shared == 0 || offset % BLOCK_BYTES != 0 || clone() != 0 {
        shared = 0;
    }
    file.seek(SeekFrom::Start(shared))?;
    file.write_all(&region[shared as usize..])?;
    file.set_permissions(fs::Permissions::from_mode(0o444))
}

/// Writes a bundle (gitformat-bundle) with all refs to `path`.
///
/// # Errors
/// If the repository has no refs, or the disk fails.
pub fn export_bundle(repo: &Repo, path: &Path) -> Result<ExportReport> {
    if repo.refs().list().is_empty() {
        return Err(Error::NotFound(
            "a bundle needs at least one ref, and the repository has none".to_owned(),
        ));
    }
    let header = bundle_header(repo, true);
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&header)?;
    let wants: OidSet = repo.refs().tips().collect();
    if let Some(whole) = repo.whole_clone(&wants) {
        out.write_all(&crate::objects::pack::pack_header(whole.count))?;
        for region in &whole.regions {
            out.write_all(region)?;
        }
        out.write_all(whole.trailer(repo).as_bytes())?;
    } else {
        let wants: Vec<_> = wants.into_iter().collect();
        let selection = select(
            repo.history(),
            &Query { wants: &wants, haves: &[], cut: None, filter: None, budget: Budget::default() },
        )?;
        PackPlan::new(repo.history(), selection, false, true)?.write(repo.history(), &mut out)?;
    }
    out.flush()?;
    let file = out.into_inner().map_err(|e| e.into_error())?;
    file.sync_all()?;
    Ok(ExportReport { bytes: file.metadata()?.len() })
}

/// Returns the first lines of a bundle (gitformat-bundle).
pub(crate) fn bundle_signature(hash: HashKind) -> Vec<u8> {
    match hash {
        HashKind::Sha1 => b"# v2 git bundle\n".to_vec(),
        HashKind::Sha256 => b"# v3 git bundle\n@object-format=sha256\n".to_vec(),
    }
}

/// Returns what comes before the pack in a bundle of all refs, or of HEAD, branches and tags.
pub fn bundle_header(repo: &Repo, all: bool) -> Vec<u8> {
    let mut header = bundle_signature(repo.hash());
    let mut line = |oid: &weir_git::Oid, name: &[u8]| {
        oid.push_hex(&mut header);
        header.push(b' ');
        header.extend_from_slice(name);
        header.push(b'\n');
    };
    let is_listed = |r: &&Ref| all || r.name.starts_with(b"refs/heads/") || r.name.starts_with(b"refs/tags/");
    for r in repo.refs().list().iter().filter(is_listed) {
        line(&r.oid, &r.name);
    }
    // Bundles have no symrefs. HEAD is written as its value, from which git guesses the branch.
    if let (Some(oid), Head::Symbolic(_) | Head::Detached(_)) = (repo.refs().head_oid(), &repo.refs().head) {
        line(&oid, b"HEAD");
    }
    header.push(b'\n');
    header
}
