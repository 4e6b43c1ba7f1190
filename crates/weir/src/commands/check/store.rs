//! The catalog and the store, each by itself and beside the other.

use std::collections::HashSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;

use nix::unistd::{AccessFlags, access, geteuid};
use weir_catalog::InventoryEntry;

use super::report::{Level, Report};
use crate::error::{Error, Result};
use crate::names::check_name;
use crate::output;
use crate::pool::Pool;
use crate::store_files::{SUFFIX, is_archive, is_kept_aside, walk};

const CATALOG: &str = "catalog";
const ARCHIVES: &str = "archives";
/// Faults of the catalog that are shown.
const FAULTS_MAX: usize = 10;

pub(super) fn catalog(pool: &Pool, report: &mut Report<'_>) -> Result<()> {
    let faults = pool.catalog.faults(FAULTS_MAX)?;
    for fault in &faults {
        report.add(
            Level::Error,
            CATALOG,
            format!("{fault}; put back a copy of it, or make a new pool around the store with 'weir adopt'"),
        )?;
    }
    if faults.is_empty() {
        let place = if pool.catalog.is_remote() { "PostgreSQL answers" } else { "catalog.db is whole" };
        report.add(Level::Ok, CATALOG, place)?;
    }
    Ok(())
}

/// Archives that are not there, shorter than they were, somebody else's, or nobody's. What is in them is
/// 'weir fsck's.
pub(super) fn archives(pool: &Pool, report: &mut Report<'_>) -> Result<()> {
    let store = pool.store();
    let (mut missing, mut short) = (report.many("that are missing"), report.many("that were cut short"));
    let (mut odd, mut foreign) =
        (report.many("that are no files"), report.many("that visits cannot write to"));
    let (mut orphans, mut kept) =
        (report.many("that the catalog does not know"), report.many("that were kept from damage"));
    let mut unread = report.many("that cannot be read");
    let hasher = RandomState::new();
    // Of ten million paths, 80 MB.
    let mut known = HashSet::new();
    let (mut count, mut bytes, mut kept_bytes) = (0_u64, 0_u64, 0_u64);
    let mut suspects = Vec::new();
    let user = geteuid();
    pool.catalog.for_each_entry(|entry| {
        known.insert(hasher.hash_one(&entry.path));
        let Some(len) = wanted_len(&entry) else { return };
        match fs::metadata(store.join(&entry.path)) {
            Ok(found) if found.is_file() && found.len() >= len => {
                (count, bytes) = (count + 1, bytes + found.len());
                if !user.is_root() && found.uid() != user.as_raw() {
                    let owner = found.uid();
                    foreign.add(|| {
                        format!(
                            "'{}' belongs to user {owner}: visits cannot write to it; chown it",
                            entry.path
                        )
                    });
                }
            }
            _ => suspects.push(entry.name),
        }
    })?;
    for name in suspects {
        // Whoever mirrors meanwhile may have written it anew.
        let Some(now) = pool.catalog.get(&name)? else { continue };
        let path = store.join(&now.path);
        match fs::metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                missing.add(|| {
                    format!(
                        "that of '{name}' is missing ('{}'): 'weir mirror {name}' clones it anew",
                        path.display()
                    )
                });
            }
            Err(e) => {
                missing.add(|| format!("that of '{name}' cannot be looked at ('{}'): {e}", path.display()))
            }
            Ok(found) if !found.is_file() => {
                odd.add(|| {
                    format!(
                        "that of '{name}' is no file ('{}'): move it away, and 'weir mirror {name}' \
                        clones it anew",
                        path.display()
                    )
                });
            }
            Ok(found) if found.len() < now.archive_bytes.unwrap_or(0).unsigned_abs() => {
                short.add(|| {
                    format!("that of '{name}' has been cut short: 'weir fsck --repair {name}' mends it")
                });
            }
            Ok(_) => {}
        }
    }
    let mut strangers = Vec::new();
    let unreadable = walk(&store, &mut |path, kind| {
        if kind.is_dir() && access(path, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
            foreign.add(|| {
                format!("visits cannot write to the folder '{}': chmod u+rwx, or chown it", path.display())
            });
        }
        if !kind.is_file() {
            return;
        }
        if is_kept_aside(path) {
            let len = fs::metadata(path).map_or(0, |m| m.len());
            kept_bytes += len;
            kept.add(|| {
                format!(
                    "'{}' ({}) was kept when an archive was damaged: remove it when nobody needs it",
                    path.display(),
                    output::bytes(len)
                )
            });
        } else if is_archive(path)
            && !below(pool, path).is_some_and(|path| known.contains(&hasher.hash_one(&path)))
        {
            strangers.push(path.to_owned());
        }
    })
    .map_err(|source| Error::File { what: "read", path: store.clone(), source })?;
    for path in strangers {
        // It may have been registered since.
        if path.exists()
            && !below(pool, &path).map_or(Ok(false), |path| pool.catalog.has_archive_at(&path))?
        {
            orphans.add(|| {
                let name = below(pool, &path).and_then(|below| Some(below.strip_suffix(SUFFIX)?.to_owned()));
                let remedy = match name.as_deref().map(check_name) {
                    Some(Ok(())) => "'weir adopt' registers it",
                    _ => {
                        "nothing can be called so: give the file another name, and 'weir adopt' registers it"
                    }
                };
                format!("the catalog does not know '{}': {remedy}", path.display())
            });
        }
    }
    for (folder, e) in unreadable {
        unread.add(|| format!("cannot read '{}': {e}", folder.display()));
    }
    if missing.is_empty() && short.is_empty() && odd.is_empty() {
        report.add(
            Level::Ok,
            ARCHIVES,
            format!("{count} present, {}; 'weir fsck' checks their content", output::bytes(bytes)),
        )?;
    }
    for found in [missing, short, odd, foreign] {
        report.add_all(Level::Error, ARCHIVES, found)?;
    }
    for found in [orphans, kept, unread] {
        report.add_all(Level::Warning, ARCHIVES, found)?;
    }
    Ok(())
}

/// Bytes that the archive of `entry` has at least; none, if it need not be there.
fn wanted_len(entry: &InventoryEntry) -> Option<u64> {
    entry.seq.map(|_| entry.archive_bytes.unwrap_or(0).unsigned_abs())
}

/// `path` as the catalog would write it, if it can.
fn below(pool: &Pool, path: &std::path::Path) -> Option<String> {
    Some(path.strip_prefix(pool.store()).ok()?.to_str()?.to_owned())
}
