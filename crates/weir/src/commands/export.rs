//! `export`: writes a repository as a git directory, a bundle or an archive.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde_json::json;
use weir_arguments::{ExportFormat, Global};
use weir_ground::FileError;
use weir_mirror::WorkFolder;
use weir_pool::{InRepo, Pool};
use weir_repo::{ExportReport, Repo, Sharing, Takes, export_bundle, export_directory, write_anew};
use weir_terminal::output;

use crate::error::{Error, Result};

pub(crate) fn export(
    pool: &Pool,
    global: &Global,
    name: &str,
    target: &Path,
    format: Option<ExportFormat>,
) -> Result<()> {
    let (r, state) = pool.get_state(name)?;
    let mut repo = pool.open_state(&r, state)?;
    let format = match format {
        Some(format) => format,
        None => format_of(target)?,
    };
    let fail = FileError::on("write", target);
    if matches!(format, ExportFormat::Tar) && state.is_some() {
        return Err(Error::Message(
            "an archive holds all states; export an older one as a bundle (NAME.bundle) or to a directory"
                .to_owned(),
        ));
    }
    if matches!(format, ExportFormat::Tar) && target.exists() {
        return Err(Error::Message(format!("'{}' already exists; choose another file", target.display())));
    }
    // An archive that builds on another is exported with all it needs. A bundle is made from both anyway.
    let whole = match (repo.base(), format) {
        (None, _) | (_, ExportFormat::Bundle) => None,
        (Some(_), _) => Some(WorkFolder::new(&pool.store.path)?),
    };
    if let Some(whole) = &whole {
        let path = whole.path().join("whole.tar");
        pool.store
            .rewrite(Sharing::Whole, |how| write_anew(&repo, &path, Takes::FreePlace, how))
            .in_repo(&r.name)?;
        let refs = repo.refs().clone();
        repo = Repo::open_archive(&path).in_repo(&r.name)?;
        if state.is_some() {
            repo.set_refs(refs);
        }
    }
    for pack in repo.objects().packs() {
        if !pack.crcs_match().in_repo(&r.name)? {
            let name = &r.name;
            return Err(Error::Message(format!(
                "the archive of '{name}' is damaged ({}): run 'weir fsck --repair {name}' first, or save \
                what is left with 'tar xf'",
                pack.name()
            )));
        }
    }
    // Archives are mapped: errors of the system are of what is written.
    let exported = |written: weir_repo::Result<ExportReport>| match written {
        Err(weir_repo::Error::Io(e)) => Err(Error::File(fail(e))),
        written => Ok(written.in_repo(&r.name)?.bytes),
    };
    let bytes = match format {
        ExportFormat::Directory => exported(export_directory(&repo, target))?,
        ExportFormat::Bundle => write_whole(target, &mut |path| exported(export_bundle(&repo, path)))?,
        ExportFormat::Tar => {
            let archive = repo.archive().ok_or_else(|| weir_pool::Error::NotMirrored(r.name.clone()))?;
            write_whole(target, &mut |path| {
                let mut file = File::create(path).map_err(fail)?;
                let bytes = weir_archive::write_sealed(archive, &mut file).map_err(fail)?;
                file.sync_all().map_err(fail)?;
                Ok(bytes)
            })?
        }
    };
    if global.json {
        output::json(&json!({ "name": r.name, "target": target, "bytes": bytes }))?;
    } else if !global.quiet {
        writeln!(output::stdout(), "{}: {} written to {}", r.name, output::bytes(bytes), target.display())?;
    }
    Ok(())
}

/// The suffixes of archives and compressed files that are not written.
const OTHER_FORMATS: &[&str] =
    &["zip", "7z", "rar", "gz", "tgz", "bz2", "tbz", "tbz2", "xz", "txz", "zst", "tzst", "lz4", "pack"];

/// Returns the format that the name of `target` stands for. A folder may have any other name.
fn format_of(target: &Path) -> Result<ExportFormat> {
    if target == Path::new("-") {
        return Err(Error::Message("weir export writes to a file or a directory, not to '-'".to_owned()));
    }
    let suffix = target.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    match suffix.as_deref() {
        Some("bundle") => Ok(ExportFormat::Bundle),
        Some("tar") => Ok(ExportFormat::Tar),
        Some(other) if OTHER_FORMATS.contains(&other) && !target.is_dir() => Err(Error::Message(format!(
            "weir export writes no .{other}: it writes a bundle (NAME.bundle), an archive (NAME.tar) or a \
            bare repository (a directory; --format directory makes one of this name). For the files of one \
            commit, use 'git archive'"
        ))),
        _ => Ok(ExportFormat::Directory),
    }
}

/// Calls `write` with a path beside `target`, and gives the new file the name `target` once it is whole.
/// Until then an older file stays. A device is written to directly.
fn write_whole(target: &Path, write: &mut dyn FnMut(&Path) -> Result<u64>) -> Result<u64> {
    if target.exists() && !target.is_file() {
        return write(target);
    }
    let fail = FileError::on("write", target);
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new();
    new.prefix(".").suffix(".weir-tmp").permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let new = new.tempfile_in(folder).map_err(fail)?;
    let bytes = write(new.path())?;
    new.persist(target).map_err(|e| fail(e.error))?;
    Ok(bytes)
}
