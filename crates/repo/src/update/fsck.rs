//! Checks everything: the archive's checksums, every object's hash, every link.

use std::collections::BTreeMap;

use weir_git::Oid;

use crate::error::{Error, Result};
use crate::objects::lookup::Location;
use crate::objects::resident::Resident;
use crate::reach::steps::Steps;
use crate::reach::walk::visit_reachable;
use crate::repo::repository::Repo;

/// The size of the pieces in which a pack is summed.
const PIECE_BYTES: usize = 8 << 20;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct FsckReport {
    /// The number of objects checked.
    pub objects: u64,
    /// The number of objects reachable from refs, by kind; of an archive with a base only its own.
    pub reachable: BTreeMap<&'static str, u64>,
    /// Everything that is wrong, a line each.
    pub problems: Vec<String>,
    /// Everything that could not be checked, a line each.
    pub unchecked: Vec<String>,
    /// Bytes behind the last commit that were never committed. They are no damage, unless more commits were
    /// reported as finished than the archive has.
    pub unfinished: Option<String>,
}

/// Checks a repository: the checksums of the archive, the hash of every object, and that everything the refs
/// reach is here. In the base objects are only looked up: the base is checked by itself.
///
/// # Errors
/// If the system fails. Damage is not an error: the report lists it.
pub fn fsck(repo: &Repo) -> Result<FsckReport> {
    let mut report = FsckReport::default();
    if let Some(archive) = repo.archive() {
        for d in weir_archive::verify(&**archive.file())? {
            let line = format!("byte {}, commit {}: {}", d.offset, d.seq, d.what);
            match d.is_unfinished {
                true => report.unfinished = Some(line),
                false => report.problems.push(line),
            }
        }
    }
    report.problems.extend(repo.bodies.contradictions.iter().cloned());
    let of_base = repo.objects().packs().len() - repo.own_packs().len();
    for (number, pack) in repo.objects().packs().iter().enumerate().skip(of_base) {
        let mut sum = weir_git::plain_sha(repo.hash());
        let entries = &pack.data()[..pack.entries_end() as usize];
        for (n, piece) in entries.chunks(PIECE_BYTES).enumerate() {
            sum.update(piece);
            pack.data().release_pages(n * PIECE_BYTES..n * PIECE_BYTES + piece.len());
        }
        if sum.finish() != pack.checksum() {
            report.problems.push(format!("{}.pack: its checksum is wrong", pack.name()));
        }
        let Ok(order) = pack.order() else {
            report.problems.push(format!("{}.idx: corrupt", pack.name()));
            continue;
        };
        let resident = Resident::new(pack.data().clone());
        let mut reader = repo.reader();
        reader.note_in(number as u32, &resident);
        for &position in &order.index_by_rank {
            let oid = pack.index().oid(position);
            report.objects += 1;
            let location = Location::Packed { pack: number as u32, position };
            match reader.computed_id(location, &oid) {
                Ok(computed) if computed == oid => {}
                Ok(computed) => {
                    report.problems.push(format!("object {oid}: its content has the id {computed}"))
                }
                // An object that is too large to be checked is no damage.
                Err(Error::Unsupported(why)) => {
                    report.unchecked.push(format!("object {oid} was not checked: {why}"))
                }
                Err(e) => report.problems.push(format!("object {oid}: {e}")),
            }
        }
    }
    let mut problems = Vec::new();
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let is_of_base = |oid: &Oid, _| repo.base().is_some_and(|base| base.contains(oid));
    let walked = visit_reachable(
        repo.history(),
        is_of_base,
        repo.refs().tips(),
        &mut Steps::unbounded(),
        |oid, found, referrer| match found {
            Some((_, kind)) => *counts.entry(kind.name()).or_default() += 1,
            None => {
                let by = referrer.map_or("a ref".to_owned(), |r| format!("object {r}"));
                problems.push(format!("object {oid} is missing; {by} names it"));
            }
        },
    );
    if let Err(e) = repo.check_reads() {
        report.problems.push(format!("it cannot be read whole: {e}"));
    }
    report.reachable = counts;
    report.problems.extend(problems);
    if let Err(e) = walked {
        report.problems.push(e.to_string());
    }
    Ok(report)
}
