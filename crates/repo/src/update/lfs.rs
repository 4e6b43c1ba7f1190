//! Git LFS: the pointers in blobs, and the objects they name. The objects are members of the archive, at the
//! path where git-lfs has them itself (github.com/git-lfs/git-lfs, docs/spec.md; `lfs/objects/OI/D0/OID`).

use std::collections::BTreeSet;
use std::io::{self, Read};

use sha2::{Digest, Sha256};
use weir_archive::Region;
use weir_git::{HashKind, Kind, Oid, OidSet};
use weir_ground::{Timestamp, hex};

use crate::error::{Result, corrupt};
use crate::ingest::{PackData, SpillFn, spool_reader};
use crate::objects::pack::Pack;
use crate::repo::keys::LFS_OBJECTS;
use crate::repo::repository::Repo;
use crate::update::archive_repo::ArchiveRepo;

/// Larger blobs are no pointers.
const POINTER_BYTES_MAX: u64 = 1024;
/// The version on the first line of a pointer: version 1 and those before it.
const VERSIONS: [&str; 3] =
    ["https://git-lfs.github.com/spec/v1", "https://hawser.github.com/spec/v1", "http://git-media.io/v/2"];
/// The prefix of a member that lists the pointers in a pack; the pack's name follows. Each line has an object
/// id, a size and the blob that is the pointer.
const POINTERS: &str = "weir/lfs-";

/// A pointer to an object: the content of a blob whose real content is kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LfsPointer {
    /// The SHA-256 of the object, in hexadecimal.
    pub oid: String,
    /// The size of the object in bytes.
    pub size: u64,
}

impl LfsPointer {
    /// Parses `blob` as a pointer. Returns `None` if it is none, or if its object is empty.
    pub fn parse(blob: &[u8]) -> Option<LfsPointer> {
        let text = std::str::from_utf8(blob).ok().filter(|text| text.len() as u64 <= POINTER_BYTES_MAX)?;
        let mut lines = text.lines();
        let version = lines.next()?.strip_prefix("version ")?;
        VERSIONS.contains(&version.trim_end()).then_some(())?;
        let (mut oid, mut size) = (None, None);
        for line in lines {
            match line.split_once(' ')? {
                ("oid", value) => {
                    oid = value.trim_end().strip_prefix("sha256:").filter(|oid| is_lfs_oid(oid))
                }
                ("size", value) => size = value.trim_end().parse().ok(),
                _ => {}
            }
        }
        Some(LfsPointer { oid: oid?.to_owned(), size: size.filter(|size| *size > 0)? })
    }
}

/// A pointer, and the blob that contains it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NamedPointer {
    pointer: LfsPointer,
    blob: Oid,
}

impl NamedPointer {
    /// Parses a line of a list. Lists before version 2 of the format did not name blobs.
    fn from_line(hash: HashKind, line: &str) -> Option<NamedPointer> {
        let mut words = line.split(' ');
        let oid = words.next().filter(|oid| is_lfs_oid(oid))?.to_owned();
        let size = words.next()?.parse().ok()?;
        Some(NamedPointer {
            pointer: LfsPointer { oid, size },
            blob: Oid::from_hex(hash, words.next()?.as_bytes())?,
        })
    }
}

/// Returns whether `text` is the id of an object as git-lfs writes it.
pub fn is_lfs_oid(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the name of the member that lists the pointers in `pack`.
fn list_of(pack: &Pack) -> String {
    format!("{POINTERS}{}", pack.name().rsplit('/').next().unwrap_or_default())
}

fn member_of(oid: &str) -> String {
    format!("{LFS_OBJECTS}{}/{}/{oid}", &oid[..2], &oid[2..4])
}

/// An object on its way into an archive: in memory while it is small, then in an unnamed file.
pub struct LfsObject {
    pointer: LfsPointer,
    data: PackData,
}

impl LfsObject {
    /// Reads what should be the object that `pointer` names. Reads at most one byte more than its size.
    ///
    /// # Errors
    /// If the reader fails, or the place where the object is kept.
    pub fn read(pointer: LfsPointer, reader: &mut dyn Read, spill: SpillFn<'_>) -> io::Result<LfsObject> {
        // One byte more shows that it is another object.
        let data = spool_reader(&mut reader.take(pointer.size.saturating_add(1)), spill)?;
        Ok(LfsObject { pointer, data })
    }

    /// Returns the size of the object, according to its pointer.
    pub fn size(&self) -> u64 {
        self.pointer.size
    }

    /// Returns whether the data is what the pointer names.
    fn is_right(&self) -> bool {
        self.data.len() as u64 == self.pointer.size && sum_of(&self.data) == self.pointer.oid
    }
}

/// Returns the SHA-256 in hexadecimal.
fn sum_of(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

impl Repo {
    /// Returns the object with that id, if the archive or its base has it and the refs lead to a pointer to
    /// it. Objects that only removed history names are not served, like objects of git. The first call may
    /// read everything that the refs reach.
    pub fn lfs_object(&self, oid: &str) -> Option<Region> {
        if self.gives_lfs(oid) { self.kept_lfs_object(oid) } else { None }
    }

    /// Returns the object with that id, if the archive has it or its base serves it.
    fn kept_lfs_object(&self, oid: &str) -> Option<Region> {
        if !is_lfs_oid(oid) {
            return None;
        }
        let own = self.archive().and_then(|archive| archive.member(&member_of(oid)));
        own.or_else(|| self.base()?.lfs_object(oid))
    }

    /// Returns whether the refs lead to a pointer to the object with that id.
    fn gives_lfs(&self, oid: &str) -> bool {
        let Some(id) = Oid::from_hex(HashKind::Sha256, oid.as_bytes()) else { return false };
        self.caches.lfs_given.get_or_init(|| self.all_lfs_given()).contains(&id)
    }

    fn all_lfs_given(&self) -> OidSet {
        let mut given = OidSet::default();
        for pack in self.objects().packs() {
            let Some(list) = self.pointer_list(pack) else { continue };
            for named in String::from_utf8_lossy(&list)
                .lines()
                .filter_map(|line| NamedPointer::from_line(self.hash(), line))
            {
                if let Some(id) = Oid::from_hex(HashKind::Sha256, named.pointer.oid.as_bytes())
                    && !given.contains(&id)
                    && self.gives(&named.blob)
                {
                    given.insert(id);
                }
            }
        }
        given
    }

    /// Returns the list of pointers in `pack`, from this archive or its base.
    fn pointer_list(&self, pack: &Pack) -> Option<Region> {
        let name = list_of(pack);
        let own = self.archive().and_then(|archive| archive.member(&name));
        own.or_else(|| self.base()?.archive()?.member(&name))
    }

    /// Returns how many objects the archive itself has, and their bytes.
    pub fn lfs_count(&self) -> (u64, u64) {
        let members = self.archive().map(|archive| &archive.state().members);
        let objects = members
            .into_iter()
            .flat_map(|m| m.range(LFS_OBJECTS.to_owned()..))
            .take_while(|(name, _)| name.starts_with(LFS_OBJECTS));
        objects.fold((0, 0), |(count, bytes), (_, member)| (count + 1, bytes + member.len))
    }

    /// Returns the pointers in all blobs of the pack at `number`.
    fn pointers_in(&self, number: usize) -> Result<Vec<NamedPointer>> {
        let index = self.objects().packs()[number].index();
        let mut reader = self.reader();
        let mut found = Vec::new();
        for position in 0..index.count() {
            let blob = index.oid(position);
            if !matches!(reader.kind_and_size(&blob)?, Some((Kind::Blob, 1..=POINTER_BYTES_MAX))) {
                continue;
            }
            let pointer = LfsPointer::parse(&reader.require(&blob)?.data);
            found.extend(pointer.map(|pointer| NamedPointer { pointer, blob }));
        }
        found.sort_unstable();
        Ok(found)
    }
}

impl ArchiveRepo {
    /// Returns pointers whose objects the archive lacks and its base does not serve. The pointers are those
    /// in the packs of the archive and its base. Packs that were not searched yet are searched now, and what
    /// is found is recorded in this archive.
    ///
    /// # Errors
    /// If the archive is damaged or the disk fails.
    pub fn lfs_missing(&mut self, time: Timestamp) -> Result<Vec<LfsPointer>> {
        let Some(repo) = self.repo()? else { return Ok(Vec::new()) };
        let (mut all, mut lists) = (BTreeSet::new(), Vec::new());
        for (number, pack) in repo.objects().packs().iter().enumerate() {
            let known = repo.pointer_list(pack).and_then(|list| {
                let text = String::from_utf8_lossy(&list).into_owned();
                text.lines()
                    .map(|line| NamedPointer::from_line(repo.hash(), line))
                    .collect::<Option<Vec<_>>>()
            });
            let found = match known {
                Some(known) => known,
                None => {
                    let found = repo.pointers_in(number)?;
                    let line = |named: &NamedPointer| {
                        format!("{} {} {}\n", named.pointer.oid, named.pointer.size, named.blob)
                    };
                    lists.push((list_of(pack), found.iter().map(line).collect::<String>()));
                    found
                }
            };
            all.extend(found.into_iter().map(|named| named.pointer));
        }
        all.retain(|pointer| repo.kept_lfs_object(&pointer.oid).is_none());
        drop(repo);
        if !lists.is_empty() {
            let members: Vec<(&str, &[u8])> =
                lists.iter().map(|(name, list)| (name.as_str(), list.as_bytes())).collect();
            self.commit_members(&members, &[], time)?;
        }
        Ok(all.into_iter().collect())
    }

    /// Adds objects in one commit. Objects that are not what their pointers name are left out, and their
    /// pointers returned.
    ///
    /// # Errors
    /// If the disk fails. Then nothing has changed.
    pub fn add_lfs_objects(&mut self, objects: Vec<LfsObject>, time: Timestamp) -> Result<Vec<LfsPointer>> {
        let (right, wrong): (Vec<_>, Vec<_>) = objects.into_iter().partition(LfsObject::is_right);
        let members: Vec<(String, &[u8])> =
            right.iter().map(|object| (member_of(&object.pointer.oid), &*object.data)).collect();
        let members: Vec<(&str, &[u8])> = members.iter().map(|(name, data)| (name.as_str(), *data)).collect();
        if !members.is_empty() {
            self.commit_members(&members, &[], time)?;
        }
        Ok(wrong.into_iter().map(|object| object.pointer).collect())
    }

    /// Takes over the objects of another archive that this one lacks. Damaged objects are left out if
    /// `leaves_out_damaged` is set.
    ///
    /// # Errors
    /// If an object is damaged and `leaves_out_damaged` is not set, or if the disk fails. Then nothing has
    /// changed.
    pub fn take_lfs_objects(&mut self, repo: &Repo, leaves_out_damaged: bool, time: Timestamp) -> Result<()> {
        let Some(archive) = repo.archive() else { return Ok(()) };
        let names = archive.state().members.range(LFS_OBJECTS.to_owned()..).map(|(name, _)| name.as_str());
        let names = names.take_while(|name| name.starts_with(LFS_OBJECTS));
        let has = |name: &&str| self.has_member(name);
        let mut objects: Vec<(&str, Region)> =
            names.filter(|name| !has(name)).filter_map(|name| Some((name, archive.member(name)?))).collect();
        let is_damaged = |(name, data): &(&str, Region)| !name.ends_with(&sum_of(data));
        match objects.iter().find(|object| is_damaged(object)) {
            Some((name, _)) if !leaves_out_damaged => return corrupt(*name, "it is not what its name says"),
            Some(_) => objects.retain(|object| !is_damaged(object)),
            None => {}
        }
        if objects.is_empty() {
            return Ok(());
        }
        let members: Vec<(&str, &[u8])> = objects.iter().map(|(name, region)| (*name, &**region)).collect();
        self.commit_members(&members, &[], time)?;
        // An object is served only if a list of pointers leads to it, so missing lists are written now.
        self.lfs_missing(time).map(drop)
    }
}

impl ArchiveRepo {
    /// Takes over the objects of `base` that pointers here name, and no others: those may belong to other
    /// repositories.
    ///
    /// # Errors
    /// If an object is damaged, or the disk fails.
    pub(crate) fn take_named_lfs_objects(&mut self, base: &Repo, time: Timestamp) -> Result<()> {
        if base.lfs_count().0 == 0 {
            return Ok(());
        }
        let missing = self.lfs_missing(time)?;
        let objects: Vec<(String, Region)> =
            missing.iter().filter_map(|p| Some((member_of(&p.oid), base.lfs_object(&p.oid)?))).collect();
        if let Some((name, _)) = objects.iter().find(|(name, data)| !name.ends_with(&sum_of(data))) {
            return corrupt(name.as_str(), "it is not what its name says");
        }
        let members: Vec<(&str, &[u8])> =
            objects.iter().map(|(name, data)| (name.as_str(), &**data)).collect();
        if members.is_empty() { Ok(()) } else { self.commit_members(&members, &[], time) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OID: &str = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";

    #[test]
    fn pointers() {
        let text = |version: &str, rest: &str| format!("version {version}\n{rest}");
        let good = LfsPointer { oid: OID.to_owned(), size: 12345 };
        for version in VERSIONS {
            let pointer = text(version, &format!("oid sha256:{OID}\nsize 12345\n"));
            assert_eq!(LfsPointer::parse(pointer.as_bytes()), Some(good.clone()));
        }
        let v1 = VERSIONS[0];
        let with_extension =
            text(v1, &format!("ext-0-foo sha256:{}\noid sha256:{OID}\nsize 12345\n", "0".repeat(64)));
        assert_eq!(LfsPointer::parse(with_extension.as_bytes()), Some(good));
        for bad in [
            String::new(),
            "version".to_owned(),
            text("https://example.org/v1", &format!("oid sha256:{OID}\nsize 1\n")),
            text(v1, &format!("oid sha256:{OID}\n")),
            text(v1, &format!("oid sha256:{OID}\nsize 0\n")),
            text(v1, &format!("oid sha256:{OID}\nsize -1\n")),
            text(v1, &format!("oid sha256:{}\nsize 1\n", &OID[1..])),
            text(v1, &format!("oid sha256:{}\nsize 1\n", OID.to_uppercase())),
            text(v1, &format!("oid md5:{OID}\nsize 1\n")),
            text(v1, &format!("oid sha256:../{}\nsize 1\n", &OID[3..])),
            text(v1, &format!("oid sha256:{OID}\nsize 1\n{}", "x y\n".repeat(300))),
        ] {
            assert_eq!(LfsPointer::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(LfsPointer::parse(b"version \xff"), None);
    }
}
