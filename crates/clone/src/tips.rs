//! Checks objects against their ids before anything uses them. The index came from the server, and may
//! present any bytes as an object that the user trusts.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_git::{Kind, ObjectHasher, Oid, OidSet, TreeIter, commit_links, tag_target};
use weir_ground::thread::on_threads;
use weir_repo::{ObjectReader, Repo};

use crate::error::{Error, Result};

/// The longest chain of tags that is followed.
const TAGS_MAX: usize = 256;
/// The number of blobs that a thread takes at a time.
const BLOBS_AT_ONCE: usize = 64;

/// Checks the objects that refs name, and everything that would be checked out of `checked_out`, a commit or
/// a tag of one.
///
/// # Errors
/// If an object is not the one that its id names, or cannot be read.
pub(crate) fn check_tips(repo: &Repo, tips: &[Oid], checked_out: Option<Oid>) -> Result<()> {
    for pack in repo.objects().packs() {
        let index = pack.index();
        // If two entries have the same id, git might take the entry that this check did not read.
        if (1..index.count()).any(|n| index.raw_id(n - 1) >= index.raw_id(n)) {
            return Err(Error::UnsortedIndex);
        }
    }
    let mut reader = repo.reader();
    let distinct: HashSet<Oid> = tips.iter().copied().collect();
    for &tip in &distinct {
        commit_of(&mut reader, tip)?;
    }
    let Some(checked_out) = checked_out else { return Ok(()) };
    let commit = commit_of(&mut reader, checked_out)?;
    let (_, data) = checked(&mut reader, &commit)?;
    let root = commit_links(repo.hash(), &data).map_err(|e| broken(&commit, &e))?.tree;
    let (mut trees, mut seen, mut blobs) = (vec![root], OidSet::default(), Vec::new());
    while let Some(oid) = trees.pop() {
        if !seen.insert(oid) {
            continue;
        }
        let (kind, data) = checked(&mut reader, &oid)?;
        if kind != Kind::Tree {
            return Err(broken(&oid, &format_args!("a {} where a tree should be", kind.name())));
        }
        for entry in TreeIter::new(repo.hash(), &data) {
            let entry = entry.map_err(|e| broken(&oid, &e))?;
            let below = Oid::from_bytes(repo.hash(), entry.id)
                .ok_or_else(|| broken(&oid, &"an id of another length"))?;
            match entry.is_tree() {
                true => trees.push(below),
                false if entry.is_gitlink() => {}
                false if seen.insert(below) => blobs.push(below),
                false => {}
            }
        }
    }
    check_all(repo, &blobs)
}

/// Checks `blobs`, on all cores.
fn check_all(repo: &Repo, blobs: &[Oid]) -> Result<()> {
    let parts: Vec<&[Oid]> = blobs.chunks(BLOBS_AT_ONCE).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(parts.len());
    on_threads("check", threads, || {
        let mut reader = repo.reader();
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(e) = part.iter().try_for_each(|oid| checked(&mut reader, oid).map(drop)) {
                next.store(parts.len(), Ordering::Relaxed);
                failed.lock().expect("not poisoned").get_or_insert(e);
            }
        }
    });
    failed.into_inner().expect("not poisoned").map_or(Ok(()), Err)
}

/// Returns the commit that `oid` names, directly or as a tag. A tag may lead to an object of another kind:
/// that is checked and returned, too.
fn commit_of(reader: &mut ObjectReader<'_>, oid: Oid) -> Result<Oid> {
    let mut at = oid;
    for _ in 0..TAGS_MAX {
        let (kind, data) = checked(reader, &at)?;
        if kind != Kind::Tag {
            return Ok(at);
        }
        at = tag_target(at.kind(), &data).map_err(|e| broken(&at, &e))?.0;
    }
    Err(broken(&oid, &"a chain of too many tags"))
}

/// Reads an object, and checks it against its id.
fn checked(reader: &mut ObjectReader<'_>, oid: &Oid) -> Result<(Kind, std::rc::Rc<Vec<u8>>)> {
    let object = reader.require(oid).map_err(Error::repo("the clone"))?;
    match ObjectHasher::hash(oid.kind(), object.kind, &object.data) {
        Ok(computed) if computed == *oid => Ok((object.kind, object.data)),
        Ok(computed) => Err(broken(oid, &format_args!("its content has the id {computed}"))),
        Err(e) => Err(broken(oid, &e)),
    }
}

fn broken(oid: &Oid, why: &dyn std::fmt::Display) -> Error {
    Error::Untrusted { oid: *oid, why: why.to_string() }
}
