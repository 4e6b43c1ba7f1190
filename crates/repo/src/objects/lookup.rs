//! Finds objects by id: which pack or folder holds each.

use std::path::PathBuf;
use std::sync::Arc;

use weir_git::{HashKind, Oid, plain_sha};

use crate::error::Result;
use crate::objects::loose::Loose;
use crate::objects::pack::Pack;

/// The place of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Location {
    /// In a pack.
    Packed {
        /// The index of the pack in [`Objects::packs`].
        pack: u32,
        /// The position in the pack's index.
        position: u32,
    },
    /// In a loose file; the number is that of the object folder.
    Loose(u32),
}

/// The objects of a repository: packs, oldest first, and folders of loose objects.
pub struct Objects {
    pub(crate) hash: HashKind,
    pub(crate) packs: Vec<Arc<Pack>>,
    pub(crate) loose: Vec<Loose>,
    /// Folders that an alternate names and that are not there.
    pub(crate) lost_folders: Vec<PathBuf>,
}

impl Objects {
    /// Returns the objects in `packs`, whose ids are of `hash`.
    pub(crate) fn of_packs(hash: HashKind, packs: Vec<Arc<Pack>>) -> Objects {
        Objects { hash, packs, loose: Vec::new(), lost_folders: Vec::new() }
    }

    /// Returns the hash that names the objects.
    pub fn hash(&self) -> HashKind {
        self.hash
    }

    /// Returns the folders that an alternate names and that are not there: why objects may be missing.
    pub fn lost_folders(&self) -> &[PathBuf] {
        &self.lost_folders
    }

    /// Returns the packs, oldest first; those of a base come before the others.
    pub fn packs(&self) -> &[Arc<Pack>] {
        &self.packs
    }

    /// Returns where the object is, if it is here.
    pub fn locate(&self, oid: &Oid) -> Option<Location> {
        self.locate_raw(oid.as_bytes())
    }

    /// Returns where the object with the raw id `id` is, if it is here. The id must be as long as the
    /// repository's hash.
    pub fn locate_raw(&self, id: &[u8]) -> Option<Location> {
        // The oldest pack comes first: later packs may repeat an object to be complete, and each object must
        // have one number.
        for (pack, p) in self.packs.iter().enumerate() {
            if let Some(position) = p.index().find(id) {
                return Some(Location::Packed { pack: pack as u32, position });
            }
        }
        self.loose.iter().position(|l| l.contains(id)).map(|i| Location::Loose(i as u32))
    }

    /// Returns whether the object is here.
    pub fn contains(&self, oid: &Oid) -> bool {
        self.locate(oid).is_some()
    }

    /// Returns the number of an object across all packs: ranks of the first pack, then of the second, and so
    /// on. Returns `None` for loose objects.
    ///
    /// # Errors
    /// If an index is corrupt.
    pub fn number(&self, location: Location) -> Result<Option<u32>> {
        let Location::Packed { pack, position } = location else { return Ok(None) };
        let before: u32 = self.packs[..pack as usize].iter().map(|p| p.index().count()).sum();
        Ok(Some(before + self.packs[pack as usize].rank(position)?))
    }

    /// Returns the place of an object in a table of all packed objects: index positions of the first pack,
    /// then of the second, and so on. Returns `None` for loose objects.
    pub(crate) fn place(&self, location: Location) -> Option<u32> {
        let Location::Packed { pack, position } = location else { return None };
        let before: u64 = self.packs[..pack as usize].iter().map(|p| u64::from(p.index().count())).sum();
        u32::try_from(before + u64::from(position)).ok()
    }

    /// Returns the pack and the index position of the object with the place `place`, which must be below
    /// [`Objects::packed_count`].
    pub(crate) fn at_place(&self, mut place: u32) -> (u32, u32) {
        debug_assert!(u64::from(place) < self.packed_count(), "no object has the place {place}");
        let mut pack = 0;
        while place >= self.packs[pack].index().count() {
            place -= self.packs[pack].index().count();
            pack += 1;
        }
        (pack as u32, place)
    }

    /// Returns the loose objects that are in no pack, by id, each once, with the number of its folder.
    ///
    /// # Errors
    /// If a folder cannot be listed.
    pub(crate) fn loose_only(&self) -> Result<Vec<(Oid, u32)>> {
        let mut found = Vec::new();
        for (folder, loose) in self.loose.iter().enumerate() {
            let ids = loose.ids(self.hash)?;
            found.extend(ids.into_iter().map(|oid| (oid, folder as u32)));
        }
        found.sort_unstable();
        found.dedup_by_key(|(oid, _)| *oid);
        found.retain(|(oid, _)| self.packs.iter().all(|pack| pack.index().find(oid.as_bytes()).is_none()));
        Ok(found)
    }

    /// Returns a text that differs once other objects are here: a sum over the packs, and over the ids of
    /// loose objects.
    ///
    /// # Errors
    /// If a folder cannot be listed.
    pub fn fingerprint(&self) -> Result<String> {
        let mut packs: Vec<(&str, usize)> = self.packs.iter().map(|p| (p.name(), p.data().len())).collect();
        packs.sort_unstable();
        let mut sum = plain_sha(HashKind::Sha256);
        for (name, len) in packs {
            sum.update(format!("{name} {len}\n").as_bytes());
        }
        for loose in &self.loose {
            loose.ids(self.hash)?.iter().for_each(|oid| sum.update(oid.as_bytes()));
        }
        Ok(sum.finish().to_hex()[..32].to_owned())
    }

    /// Returns the number of objects in all packs, duplicates counted.
    pub fn packed_count(&self) -> u64 {
        self.packs.iter().map(|p| u64::from(p.index().count())).sum()
    }

    /// Checks that everything read from the packs so far could be read: where the disk fails, zeroes are
    /// read.
    ///
    /// # Errors
    /// If a part could not be read. Then nothing that was computed from it may be sent.
    pub(crate) fn check_reads(&self) -> Result<()> {
        self.packs.iter().try_for_each(|pack| {
            pack.data().check()?;
            Ok(pack.index().data().check()?)
        })
    }

    /// Returns the position in the first pack's index of `oid`, if that pack has it.
    pub(crate) fn in_first_pack(&self, oid: &Oid) -> Option<u32> {
        match self.locate(oid) {
            Some(Location::Packed { pack: 0, position }) => Some(position),
            _ => None,
        }
    }
}
