//! The list of repositories that mirrors of this mirror read: grokmirror's manifest.
//!
//! <https://github.com/mricon/grokmirror> describes it.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use weir_catalog::Repository;
use weir_git::{HashKind, plain_sha};
use weir_ground::Timestamp;
use weir_repo::{Head, Repo};

use crate::error::Result;
use crate::running::Pool;

/// A repository in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MirroredRepository {
    /// Its owner. weir does not know it.
    pub owner: Option<String>,
    /// The description that its forge has.
    pub description: Option<String>,
    /// Its HEAD, as the file has it.
    pub head: String,
    /// The repository whose objects it shares.
    pub reference: Option<String>,
    /// The group of repositories that share objects. weir does not name it.
    pub forkgroup: Option<String>,
    /// When it changed last.
    pub modified: Timestamp,
    /// The SHA-1 of the output of `git show-ref`.
    pub fingerprint: String,
}

/// Returns the manifest of the repositories that match `patterns`, have an archive, and are among those that
/// `is_shown` lets pass; by their paths.
///
/// # Errors
/// If a pattern matches none, the catalog fails, or an archive cannot be read.
pub fn manifest(
    pool: &Pool,
    patterns: &[String],
    is_shown: &dyn Fn(&Repository) -> Result<bool>,
) -> Result<BTreeMap<String, MirroredRepository>> {
    let mut entries = BTreeMap::new();
    let repositories = pool.selected(patterns)?;
    let ids: Vec<i64> = repositories.iter().map(|r| r.id).collect();
    let bases: HashMap<i64, String> =
        pool.catalog.archives().bases(&ids)?.into_iter().map(|base| (base.id, base.name)).collect();
    for r in repositories {
        if !pool.archive_path(&r).exists() || !is_shown(&r)? {
            continue;
        }
        let repo = pool.open_repo(&r)?;
        let entry = MirroredRepository {
            owner: None,
            description: pool.catalog.listings().description(r.id)?,
            head: match &repo.refs().head {
                Head::Symbolic(name) => format!("ref: {}", String::from_utf8_lossy(name)),
                Head::Detached(oid) => oid.to_string(),
            },
            reference: bases.get(&r.id).map(|base| format!("/{base}.git")),
            forkgroup: None,
            modified: r.last_change.or(r.last_success).unwrap_or(r.added_at),
            fingerprint: fingerprint(&repo),
        };
        entries.insert(format!("/{}.git", r.name), entry);
    }
    Ok(entries)
}

/// Returns the SHA-1 of the output of `git show-ref`, as grok-manifest computes it.
fn fingerprint(repo: &Repo) -> String {
    let mut sum = plain_sha(HashKind::Sha1);
    for r in repo.refs().list() {
        sum.update(format!("{} ", r.oid).as_bytes());
        sum.update(&r.name);
        sum.update(b"\n");
    }
    sum.finish().to_string()
}
