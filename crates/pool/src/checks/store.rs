//! Checks the catalog and the store, and compares them.

use std::collections::HashSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::archives::{SUFFIX, is_archive, is_kept_aside, walk};
use crate::running::Pool;
use crate::words;
use nix::unistd::{AccessFlags, access, geteuid};
use weir_catalog::InventoryEntry;
use weir_ground::{FileError, check_name};

use crate::checks::report::{CheckLevel, CheckRemedy, CheckReport, FindingText, ManyFindings};
use crate::error::Result;

const CATALOG: &str = "catalog";
const ARCHIVES: &str = "archives";
/// The number of faults of the catalog that are shown.
const FAULTS_MAX: usize = 10;

pub(crate) fn catalog(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    let faults = pool.catalog.status().faults(FAULTS_MAX)?;
    for fault in &faults {
        let text = FindingText::with(fault.clone(), CheckRemedy::NewCatalog);
        report.add_text(CheckLevel::Error, CATALOG, text)?;
    }
    if faults.is_empty() {
        let place = if pool.catalog.is_remote() { "PostgreSQL answers" } else { "catalog.db is whole" };
        report.add(CheckLevel::Ok, CATALOG, place)?;
    }
    Ok(())
}

/// Checks for archives that are missing, shorter than recorded, owned by another user, or unknown to the
/// catalog. Their content is not read.
pub(crate) fn archives(pool: &Pool, report: &mut CheckReport<'_>) -> Result<()> {
    let mut look = StoreLook {
        pool,
        store: pool.store.path.clone(),
        hasher: RandomState::new(),
        known: HashSet::new(),
        count: 0,
        bytes: 0,
        missing: report.many("that are missing"),
        short: report.many("that are truncated"),
        odd: report.many("that are no files"),
        foreign: report.many("that visits cannot write to"),
        orphans: report.many("that the catalog does not know"),
        kept: report.many("that were kept from damage"),
        unread: report.many("that cannot be read"),
    };
    for name in look.at_the_catalog()? {
        look.again(&name)?;
    }
    for path in look.at_the_folder()? {
        look.at_a_stranger(&path)?;
    }
    let StoreLook { count, bytes, missing, short, odd, foreign, orphans, kept, unread, .. } = look;
    if missing.is_empty() && short.is_empty() && odd.is_empty() {
        let text = format!("{count} present, {}", words::bytes(bytes));
        report.add_text(CheckLevel::Ok, ARCHIVES, FindingText::with(text, CheckRemedy::CheckContent))?;
    }
    for found in [missing, short, odd, foreign] {
        report.add_all(CheckLevel::Error, ARCHIVES, found)?;
    }
    for found in [orphans, kept, unread] {
        report.add_all(CheckLevel::Warning, ARCHIVES, found)?;
    }
    Ok(())
}

/// A comparison of the store with the catalog, and its findings.
struct StoreLook<'a> {
    pool: &'a Pool,
    store: PathBuf,
    hasher: RandomState,
    /// Hashes of the paths that the catalog knows: 80 MB for ten million.
    known: HashSet<u64>,
    /// The number of archives that match the catalog; `bytes` is their total length.
    count: u64,
    bytes: u64,
    missing: ManyFindings,
    short: ManyFindings,
    odd: ManyFindings,
    foreign: ManyFindings,
    orphans: ManyFindings,
    kept: ManyFindings,
    unread: ManyFindings,
}

impl StoreLook<'_> {
    /// Checks the archive of each entry. Returns the names of the repositories whose archive is not as it
    /// should be.
    fn at_the_catalog(&mut self) -> Result<Vec<String>> {
        let (mut suspects, user) = (Vec::new(), geteuid());
        self.pool.catalog.archives().for_each_entry(|entry| {
            self.known.insert(self.hasher.hash_one(&entry.path));
            let Some(len) = wanted_len(&entry) else { return };
            match fs::metadata(self.store.join(&entry.path)) {
                Ok(found) if found.is_file() && found.len() >= len => {
                    self.count += 1;
                    self.bytes += found.len();
                    if !user.is_root() && found.uid() != user.as_raw() {
                        let (path, owner) = (&entry.path, found.uid());
                        self.foreign.add(|| {
                            format!("'{path}' belongs to user {owner}: visits cannot write to it; chown it")
                        });
                    }
                }
                _ => suspects.push(entry.name),
            }
        })?;
        Ok(suspects)
    }

    /// Checks the archive of `name` again: a visit may have rewritten it meanwhile.
    fn again(&mut self, name: &str) -> Result<()> {
        let Some(now) = self.pool.catalog.get(name)? else { return Ok(()) };
        let path = self.store.join(&now.path);
        let shown = path.display();
        match fs::metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => self.missing.add(|| {
                let text = format!("the archive of '{name}' is missing ('{shown}')");
                FindingText::with(text, CheckRemedy::CloneAgain(name.to_owned()))
            }),
            Err(e) => {
                self.missing.add(|| format!("cannot access the archive of '{name}' ('{shown}'): {e}"));
            }
            Ok(found) if !found.is_file() => self.odd.add(|| {
                let text = format!("the archive of '{name}' is not a file ('{shown}')");
                FindingText::with(text, CheckRemedy::MoveAway(name.to_owned()))
            }),
            Ok(found) if found.len() < now.archive_bytes.unwrap_or(0).unsigned_abs() => {
                self.short.add(|| {
                    let text = format!("the archive of '{name}' is truncated");
                    FindingText::with(text, CheckRemedy::Repair(name.to_owned()))
                });
            }
            Ok(_) => {}
        }
        Ok(())
    }

    /// Checks the files in the store. Returns the archives that the catalog does not know.
    fn at_the_folder(&mut self) -> Result<Vec<PathBuf>> {
        let mut strangers = Vec::new();
        let unreadable = walk(&self.store, &mut |path, kind| {
            let shown = path.display();
            if kind.is_dir() && access(path, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
                self.foreign
                    .add(|| format!("visits cannot write to the folder '{shown}': chmod u+rwx, or chown it"));
            }
            if !kind.is_file() {
                return;
            }
            if is_kept_aside(path) {
                let bytes = words::bytes(fs::metadata(path).map_or(0, |m| m.len()));
                self.kept.add(|| {
                    format!(
                        "'{shown}' ({bytes}) was kept when an archive was damaged; remove it when it is no \
                        longer needed"
                    )
                });
            } else if is_archive(path)
                && !below(self.pool, path)
                    .is_some_and(|path| self.known.contains(&self.hasher.hash_one(&path)))
            {
                strangers.push(path.to_owned());
            }
        })
        .map_err(FileError::on("read", &self.store))?;
        for (folder, e) in unreadable {
            self.unread.add(|| format!("cannot read '{}': {e}", folder.display()));
        }
        Ok(strangers)
    }

    /// Checks an archive again that the catalog did not know: it may have been registered since.
    fn at_a_stranger(&mut self, path: &Path) -> Result<()> {
        let below = below(self.pool, path);
        let is_known =
            || below.as_deref().map_or(Ok(false), |path| self.pool.catalog.archives().has_archive_at(path));
        if !path.exists() || is_known()? {
            return Ok(());
        }
        self.orphans.add(|| {
            let name = below.as_deref().and_then(|below| below.strip_suffix(SUFFIX));
            let text = format!("the catalog does not know '{}'", path.display());
            match name.map(check_name) {
                Some(Ok(())) => FindingText::with(text, CheckRemedy::Register),
                _ => {
                    let text = text + ", whose name is not one of a repository";
                    FindingText::with(text, CheckRemedy::RenameAndRegister)
                }
            }
        });
        Ok(())
    }
}

/// Returns the least length of the archive of `entry`, or `None` if the archive need not exist.
fn wanted_len(entry: &InventoryEntry) -> Option<u64> {
    entry.seq.map(|_| entry.archive_bytes.unwrap_or(0).unsigned_abs())
}

/// Returns `path` as the catalog stores it, or `None` if it cannot be stored.
fn below(pool: &Pool, path: &Path) -> Option<String> {
    Some(path.strip_prefix(&pool.store.path).ok()?.to_str()?.to_owned())
}
