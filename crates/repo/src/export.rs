//! Getting a repository out: as a bare directory, as a bundle. (A sealed tar is the archive itself.)

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use weir_git::{HashKind, OidSet};

use crate::error::{Error, Result};
use crate::refs::Head;
use crate::repo::Repo;
use crate::select::{Query, select};
use crate::walk::Budget;
use crate::write::PackPlan;

/// What was written.
#[derive(Clone, Copy, Debug)]
pub struct ExportReport {
    /// Bytes.
    pub bytes: u64,
}

/// Writes an ordinary bare repository to the folder `target`, which must not exist or be empty.
///
/// # Errors
/// If it is not empty, or the disk fails.
pub fn export_directory(repo: &Repo, target: &Path) -> Result<ExportReport> {
    if target.exists() && fs::read_dir(target)?.next().is_some() {
        return Err(Error::NotFound(format!("'{}' exists and is not empty; name another folder", target.display())));
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
            let wanted = name.starts_with("objects/") || matches!(name.as_str(), "config" | "shallow");
            if wanted && let Some(data) = archive.member(name) {
                write(name, &data, name.starts_with("objects/pack/"))?;
            }
        }
    }
    write("packed-refs", &repo.refs().to_packed_refs(), false)?;
    write("HEAD", &repo.refs().to_head_file(), false)?;
    Ok(ExportReport { bytes })
}

/// Writes a bundle (gitformat-bundle) with all refs to `path`.
///
/// # Errors
/// If there is no ref to put into it, or the disk fails.
pub fn export_bundle(repo: &Repo, path: &Path) -> Result<ExportReport> {
    if repo.refs().list().is_empty() {
        return Err(Error::NotFound("a bundle needs at least one ref, and the repository has none".to_owned()));
    }
    let mut header = match repo.hash() {
        HashKind::Sha1 => b"# v2 git bundle\n".to_vec(),
        HashKind::Sha256 => b"# v3 git bundle\n@object-format=sha256\n".to_vec(),
    };
    let mut line = |oid: &weir_git::Oid, name: &[u8]| {
        oid.push_hex(&mut header);
        header.push(b' ');
        header.extend_from_slice(name);
        header.push(b'\n');
    };
    for r in repo.refs().list() {
        line(&r.oid, &r.name);
    }
    // Bundles have no symrefs: HEAD by its value, from which git guesses the branch.
    if let (Some(oid), Head::Symbolic(_) | Head::Detached(_)) = (repo.refs().head_oid(), &repo.refs().head) {
        line(&oid, b"HEAD");
    }
    header.push(b'\n');
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&header)?;
    let wants: OidSet = repo.refs().tips().collect();
    if let Some(whole) = repo.bodies().whole_clone(repo, &wants) {
        out.write_all(&crate::bodies::pack_header(whole.count))?;
        for region in &whole.regions {
            out.write_all(region)?;
        }
        out.write_all(whole.trailer(repo).as_bytes())?;
    } else {
        let wants: Vec<_> = wants.into_iter().collect();
        let selection = select(repo, &Query { wants: &wants, haves: &[], cut: None, filter: None, budget: Budget::default() })?;
        PackPlan::new(repo, selection, false, true)?.write(repo, &mut out)?;
    }
    out.flush()?;
    let file = out.into_inner().map_err(|e| e.into_error())?;
    file.sync_all()?;
    Ok(ExportReport { bytes: file.metadata()?.len() })
}
