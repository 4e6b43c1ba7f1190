//! `import clones`: what others have cloned is taken over, so that upstreams send only what came since.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use weir_catalog::{Repository, Which};
use weir_ground::Stop;
use weir_mirror::{Known, VisitOptions, WorkFolder, visit};
use weir_repo::{GitConfig, read_at_most};
use weir_transport::{Scheme, Url};

use crate::cli::{Global, ImportArgs};
use crate::error::{Error, InRepo, Result, SOME_FAILED};
use crate::local::LocalClones;
use crate::mirror_guard::MirrorGuard;
use crate::output;
use crate::pool::{Pool, now};
use crate::registry::entry;
use crate::signals::stop_on_signal;

/// Longest time that one clone is nobody else's, in seconds.
const IMPORT_LEASE_S: i64 = 6 * 3600;
/// Folders below folders that are looked through.
const DEPTH_MAX: usize = 32;
/// Bytes of a clone's configuration.
const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// What came of one clone.
enum TakenClone {
    /// Its archive, in bytes.
    New(u64),
    /// There is an archive of that name.
    There,
    /// It would be.
    Would,
}

pub(crate) fn import(pool: &mut Pool, global: &Global, args: &ImportArgs) -> Result<ExitCode> {
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let guard = MirrorGuard::take(pool)?;
    let mut options = pool.mirror(None).visit;
    options.transport.local = Some(Arc::new(LocalClones));
    let (mut new, mut there, mut bad) = (0u64, 0u64, 0u64);
    for root in &args.files {
        let mut found = Vec::new();
        // Whole, whatever is in its name.
        let root = std::path::absolute(root)?;
        if root.is_file() {
            found.push(root)
        } else {
            look(&root, 0, &mut found)?
        }
        for path in found {
            if stop.is_stopped() {
                break;
            }
            match one(pool, &guard.owner, &path, &options, args.dry_run) {
                Ok((name, taken)) => {
                    match taken {
                        TakenClone::There => there += 1,
                        TakenClone::New(_) | TakenClone::Would => new += 1,
                    }
                    report(global, &name, &path, &taken)?;
                }
                Err(Error::Catalog(e)) if !matches!(e, weir_catalog::Error::NameTaken { .. }) => {
                    return Err(e.into());
                }
                Err(e) => {
                    bad += 1;
                    tracing::error!("{}: not imported: {e}", path.display());
                }
            }
        }
    }
    if global.json {
        output::json_line(&json!({ "result": "summary", "taken": new, "there": there, "bad": bad }))?;
    } else if !global.quiet {
        let what = if args.dry_run { "to be imported" } else { "imported" };
        writeln!(output::stdout(), "{new} {what}, {there} already there, {bad} not imported")?;
    }
    Ok(if bad > 0 || stop.is_stopped() { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

fn report(global: &Global, name: &str, path: &Path, taken: &TakenClone) -> Result<()> {
    if global.json {
        let (result, bytes) = match taken {
            TakenClone::New(bytes) => ("taken", Some(bytes)),
            TakenClone::There => ("there", None),
            TakenClone::Would => ("to be taken", None),
        };
        return output::json_line(
            &json!({ "name": name, "path": path, "result": result, "archive_bytes": bytes }),
        );
    }
    let mut out = output::stdout();
    match taken {
        _ if global.quiet => {}
        TakenClone::New(bytes) => writeln!(out, "{name}  <-  {}, {}", path.display(), output::bytes(*bytes))?,
        TakenClone::Would => writeln!(out, "{name}  <-  {}", path.display())?,
        TakenClone::There => {}
    }
    Ok(())
}

fn is_git_dir(folder: &Path) -> bool {
    folder.join("objects").is_dir() && folder.join("HEAD").is_file()
}

/// The git directory at `folder`, or of the work tree there.
fn git_dir_at(folder: &Path) -> Option<PathBuf> {
    [folder.to_owned(), folder.join(".git")].into_iter().find(|path| is_git_dir(path))
}

/// Git directories and tars below `folder`.
fn look(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let fail = |source| Error::File { what: "read", path: folder.to_owned(), source };
    if let Some(git_dir) = git_dir_at(folder) {
        found.push(git_dir);
        return Ok(());
    }
    let mut entries =
        fs::read_dir(folder).map_err(fail)?.collect::<std::io::Result<Vec<_>>>().map_err(fail)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Links may lead in circles.
        let kind = entry.file_type().map_err(fail)?;
        let path = entry.path();
        if kind.is_dir() && depth < DEPTH_MAX {
            // One that cannot be read keeps nobody from the others.
            if let Err(e) = look(&path, depth + 1, found) {
                tracing::error!("{e}");
            }
        } else if kind.is_file() && path.extension().is_some_and(|e| e == "tar") {
            found.push(path);
        }
    }
    Ok(())
}

/// Registers what `path` was cloned from, and makes its archive of what is there.
fn one(
    pool: &mut Pool,
    owner: &str,
    path: &Path,
    options: &VisitOptions,
    dry_run: bool,
) -> Result<(String, TakenClone)> {
    if path.is_dir() {
        return take(pool, owner, path, options, dry_run);
    }
    let folder = WorkFolder::new(&pool.store())?;
    let git_dir = extract(path, &folder.path().join("tar"))?;
    let is_local = |url: &str| Url::parse(url).is_ok_and(|url| url.scheme == Scheme::Local);
    if config_at(&git_dir)?.get("remote.origin.url").is_some_and(is_local) {
        // It may be anybody's, and name what is not theirs.
        return Err(Error::Message(
            "its upstream is a local path, which is not accepted from a tar; register it with 'weir add'"
                .to_owned(),
        ));
    }
    take(pool, owner, &git_dir, options, dry_run)
}

/// The configuration of a clone by itself: what it includes is not of the clone.
fn config_at(git_dir: &Path) -> Result<GitConfig> {
    let path = git_dir.join("config");
    let text =
        read_at_most(&path, CONFIG_BYTES_MAX).map_err(|source| Error::File { what: "read", path, source })?;
    GitConfig::parse(&text).in_repo("the clone")
}

fn take(
    pool: &mut Pool,
    owner: &str,
    git_dir: &Path,
    options: &VisitOptions,
    dry_run: bool,
) -> Result<(String, TakenClone)> {
    let Some(url) = config_at(git_dir)?.get("remote.origin.url").map(str::to_owned) else {
        let error = "its configuration has no remote.origin.url; register its upstream with 'weir add', then \
            run 'weir mirror'";
        return Err(Error::Message(error.to_owned()));
    };
    let upstream = Url::parse(&url)?;
    if upstream.scheme == Scheme::Local && !upstream.local_path().is_absolute() {
        return Err(Error::Message(format!("its upstream '{url}' is a relative path")));
    }
    let clone = weir_repo::open_directory(git_dir).in_repo("the clone")?;
    if clone.refs().list().is_empty() {
        return Err(Error::Message("it has no refs, or not the objects that they name".to_owned()));
    }
    if !clone.history().shallow().is_empty() {
        return Err(Error::Message(
            "it is shallow: run 'git fetch --unshallow' first, or clone it with 'weir add' and 'weir mirror'"
                .to_owned(),
        ));
    }
    let entry = entry(&url, None)?;
    let name = entry.0.clone();
    if dry_run {
        let archive = pool.store().join(&entry.2);
        return Ok((name, if archive.exists() { TakenClone::There } else { TakenClone::Would }));
    }
    pool.catalog.add(&[entry], now())?;
    let repository = pool.get(&name)?;
    let archive = pool.archive_path(&repository);
    if archive.exists() {
        return Ok((name, TakenClone::There));
    }
    // Nobody else clones it meanwhile.
    let ids = [repository.id];
    let which = Which { ids: Some(&ids), ..Which::default() };
    if pool.catalog.lease(owner, now(), now() + IMPORT_LEASE_S, &which, 1)?.is_empty() {
        return Err(Error::Message("it is being cloned, or paused".to_owned()));
    }
    // Another machine may have cloned it before.
    let made = (!archive.exists()).then(|| make(git_dir, &repository, &archive, options));
    pool.catalog.release(owner)?;
    Ok((name, made.transpose()?.map_or(TakenClone::There, TakenClone::New)))
}

/// Makes the archive of a clone of `repository`. Returns its length in bytes.
fn make(git_dir: &Path, repository: &Repository, archive: &Path, options: &VisitOptions) -> Result<u64> {
    let from = git_dir.to_str().ok_or_else(|| Error::Message("its path is not UTF-8".to_owned()))?;
    // As later visits have it from the catalog.
    let upstream = Url::parse(&repository.url)?;
    let known = Known { upstream: Some(&upstream), forge: repository.forge.as_deref(), ..Known::default() };
    visit(&Url::parse(from)?, archive, &known, now(), options)
        .map_err(|failure| Error::Message(failure.to_string()))?;
    weir_archive::sync_folder_of(archive).map_err(|source| Error::File {
        what: "sync",
        path: archive.to_owned(),
        source,
    })?;
    Ok(fs::metadata(archive).map_or(0, |m| m.len()))
}

/// Extracts what a tar has of git into `folder`; gives the git directory.
fn extract(path: &Path, folder: &Path) -> Result<PathBuf> {
    let fail = |source| Error::File { what: "read", path: path.to_owned(), source };
    if weir_archive::Archive::open(path).is_ok() {
        let error = "it is a weir archive already: put it where the archive of that repository belongs";
        return Err(Error::Message(error.to_owned()));
    }
    let is_of_git = |path: &Path| path.components().any(|c| c == Component::Normal(".git".as_ref()));
    let mut has_work_tree = false;
    for entry in tar::Archive::new(File::open(path).map_err(fail)?).entries().map_err(fail)? {
        has_work_tree |= is_of_git(&entry.map_err(fail)?.path().map_err(fail)?);
    }
    fs::create_dir(folder).map_err(|source| Error::File { what: "make", path: folder.to_owned(), source })?;
    for entry in tar::Archive::new(File::open(path).map_err(fail)?).entries().map_err(fail)? {
        let mut entry = entry.map_err(fail)?;
        let (kind, inside) = (entry.header().entry_type(), entry.path().map_err(fail)?.into_owned());
        // What a work tree holds is in the objects. Nothing that leads elsewhere: no links, no places of
        // others' objects.
        let leads_elsewhere =
            ["commondir", "info/alternates", "info/http-alternates"].iter().any(|end| inside.ends_with(end));
        let is_inside = inside.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if (has_work_tree && !is_of_git(&inside)) || leads_elsewhere || !is_inside {
            continue;
        }
        // With modes of our own: it is to be read, and deleted.
        let target = folder.join(&inside);
        let write = |source| Error::File { what: "write", path: target.clone(), source };
        if kind.is_dir() {
            fs::create_dir_all(&target).map_err(write)?;
        } else if kind.is_file() {
            fs::create_dir_all(target.parent().unwrap_or(folder)).map_err(write)?;
            let mut file = File::create(&target).map_err(write)?;
            std::io::copy(&mut entry, &mut file).map_err(fail)?;
        }
    }
    let mut found = Vec::new();
    look(folder, 0, &mut found)?;
    let mut found = found.into_iter().filter(|path| path.is_dir());
    let git_dir = found.next();
    if found.next().is_some() {
        return Err(Error::Message(
            "there are several git directories in it: extract it, and import the folder".to_owned(),
        ));
    }
    let git_dir = git_dir.ok_or_else(|| Error::Message("there is no git directory in it".to_owned()))?;
    Ok(git_dir)
}
