//! The description of a clone that a weir server offers: `GET REPO/weir/clone`.

use std::fmt::Display;
use std::io::Read;

use serde::{Deserialize, Serialize};
use weir_git::{HashKind, Oid};
use weir_repo::{Head, Repo};
use weir_transport::HttpFiles;

/// The largest description that is read, in bytes.
const DESCRIPTION_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of a pack that is read in parts.
const PACK_BYTES_MAX: u64 = 1 << 42;
/// The version of descriptions that this client knows.
const VERSION: u32 = 1;

/// A clone that a weir server offers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Description {
    version: u32,
    pub(crate) object_format: String,
    /// The branch that HEAD names.
    pub(crate) head: Option<String>,
    pub(crate) head_oid: Option<String>,
    /// Branches and tags, with their ids.
    pub(crate) refs: Vec<(String, String)>,
    /// The ids that tags peel to, unless the server is too old to say.
    #[serde(default)]
    pub(crate) peeled: Option<Vec<(String, String)>>,
    /// The checksum of the pack, which names it.
    pub(crate) checksum: String,
    pub(crate) objects: u32,
    pub(crate) pack_bytes: u64,
    pub(crate) index_bytes: u64,
    /// The packs whose entries follow each other in the pack, by their checksums, and the bytes of each. A
    /// later clone that begins with the same ones begins with the same bytes. Older servers do not say.
    #[serde(default)]
    pub(crate) parts: Vec<(String, u64)>,
}

/// Why the description of a clone is not believed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DescriptionError {
    #[error("object format '{0}'")]
    ObjectFormat(String),
    #[error("ref '{}'", .0.escape_default())]
    Ref(String),
    #[error("HEAD or the checksum")]
    Head,
    #[error("the sizes")]
    Sizes,
    #[error("{pack} bytes of pack and {index} of index are not right for {objects} objects")]
    SizesOfObjects { pack: u64, index: u64, objects: u64 },
}

impl Description {
    /// Requests the description from the server at `files`. Returns `None` if there is none: it is not a weir
    /// server, or it does not keep the objects of a clone as one pack.
    pub(crate) fn fetch(files: &mut HttpFiles) -> weir_transport::Result<Option<Description>> {
        let Some(file) = files.get("weir/clone", 0)? else { return Ok(None) };
        if file.content_type != "application/json" {
            return Ok(None);
        }
        let bad = |e: &dyn Display| {
            weir_transport::Error::Protocol(format!("malformed description of the clone: {e}"))
        };
        let description: Description =
            serde_json::from_reader(file.reader.take(DESCRIPTION_BYTES_MAX)).map_err(|e| bad(&e))?;
        description.check().map_err(|what| bad(&what))?;
        Ok((description.version == VERSION).then_some(description))
    }

    /// Describes a clone of the archive `repo` with `objects` objects.
    pub(crate) fn of(repo: &Repo, objects: u32) -> Description {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let refs = repo.refs();
        let listed = refs.list().iter().filter(|r| weir_git::refname::is_head_or_tag(&r.name));
        Description {
            version: VERSION,
            object_format: repo.hash().name().to_owned(),
            head: match &refs.head {
                Head::Symbolic(name) => Some(text(name)),
                _ => None,
            },
            head_oid: refs.head_oid().map(|oid| oid.to_string()),
            refs: listed.map(|r| (text(&r.name), r.oid.to_string())).collect(),
            peeled: None,
            checksum: String::new(),
            objects,
            pack_bytes: 0,
            index_bytes: 0,
            parts: Vec::new(),
        }
    }

    /// Checks names and ids, which become files, and sizes.
    ///
    /// # Errors
    /// If one cannot be right.
    fn check(&self) -> std::result::Result<(), DescriptionError> {
        let hash = HashKind::from_name(self.object_format.as_bytes())
            .ok_or_else(|| DescriptionError::ObjectFormat(self.object_format.clone()))?;
        let is_oid = |text: &str| Oid::from_hex(hash, text.as_bytes()).is_some();
        // No other refs: refs/replace, for one, would show other content under a true id.
        let is_name = |name: &str| {
            (name.starts_with("refs/heads/") || name.starts_with("refs/tags/"))
                && weir_git::refname::is_valid(name.as_bytes())
        };
        let mut all = self.refs.iter().chain(self.peeled.iter().flatten());
        if let Some((name, _)) = all.find(|(name, oid)| !is_name(name) || !is_oid(oid)) {
            return Err(DescriptionError::Ref(name.clone()));
        }
        if self.head.as_ref().is_some_and(|head| !is_name(head))
            || self.head_oid.as_ref().is_some_and(|oid| !is_oid(oid))
            || !is_oid(&self.checksum)
        {
            return Err(DescriptionError::Head);
        }
        let sizes = hash.len() as u64..1 << 48;
        if !sizes.contains(&self.pack_bytes) || !sizes.contains(&self.index_bytes) {
            return Err(DescriptionError::Sizes);
        }
        Ok(())
    }

    /// Checks that the sizes of pack and index are such as its objects and parts can have.
    ///
    /// # Errors
    /// If they are others.
    pub(crate) fn check_sizes(&self) -> std::result::Result<(), DescriptionError> {
        let id = self.hash().len() as u64;
        let objects = u64::from(self.objects);
        let fixed = 8 + 256 * 4 + objects * (id + 8) + 2 * id;
        let parts = self.parts.iter().try_fold(12 + id, |sum, (_, bytes)| sum.checked_add(*bytes));
        let may_have = |bytes: u64| bytes <= PACK_BYTES_MAX;
        if parts == Some(self.pack_bytes)
            && may_have(self.pack_bytes)
            && (fixed..=fixed + 8 * objects).contains(&self.index_bytes)
        {
            return Ok(());
        }
        let Description { pack_bytes, index_bytes, .. } = self;
        Err(DescriptionError::SizesOfObjects { pack: *pack_bytes, index: *index_bytes, objects })
    }

    /// Returns the hash kind of its ids.
    pub(crate) fn hash(&self) -> HashKind {
        HashKind::from_name(self.object_format.as_bytes()).unwrap_or(HashKind::Sha1)
    }

    /// Returns the id of the branch or tag called `name`.
    pub(crate) fn oid_of(&self, name: &str) -> Option<&String> {
        self.refs.iter().find(|(known, _)| known == name).map(|(_, oid)| oid)
    }

    /// Returns the ids that refs and HEAD name.
    pub(crate) fn tips(&self) -> Vec<Oid> {
        let named = self.refs.iter().map(|(_, oid)| oid).chain(&self.head_oid);
        named.filter_map(|oid| self.parse(oid)).collect()
    }

    /// Parses `text` as an id.
    pub(crate) fn parse(&self, text: &str) -> Option<Oid> {
        Oid::from_hex(self.hash(), text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Description {
        let oid = "1".repeat(40);
        Description {
            version: VERSION,
            object_format: "sha1".to_owned(),
            head: Some("refs/heads/main".to_owned()),
            head_oid: Some(oid.clone()),
            refs: vec![("refs/heads/main".to_owned(), oid.clone()), ("refs/tags/v1".to_owned(), oid.clone())],
            peeled: None,
            checksum: oid,
            objects: 3,
            pack_bytes: 100,
            index_bytes: 1100,
            parts: Vec::new(),
        }
    }

    #[test]
    fn what_becomes_a_file_is_checked() {
        assert_eq!(sound().check(), Ok(()));
        type Change = fn(&mut Description);
        let of_ref = |name: &str| DescriptionError::Ref(name.to_owned());
        let cases: [(DescriptionError, Change); 9] = [
            (of_ref("refs/replace/1"), |d| d.refs[0].0 = "refs/replace/1".to_owned()),
            (of_ref("refs/heads/../../config"), |d| d.refs[0].0 = "refs/heads/../../config".to_owned()),
            (of_ref("refs/heads/a\nb"), |d| d.refs[1].0 = "refs/heads/a\nb".to_owned()),
            (of_ref("refs/heads/main"), |d| d.refs[0].1 = "../../../etc".to_owned()),
            (DescriptionError::Head, |d| d.head = Some("refs/notes/x".to_owned())),
            (DescriptionError::Head, |d| d.head_oid = Some("1".repeat(39))),
            (DescriptionError::Head, |d| d.checksum = "../evil".to_owned()),
            (DescriptionError::Sizes, |d| d.pack_bytes = 19),
            (DescriptionError::Sizes, |d| d.index_bytes = u64::MAX),
        ];
        for (expected, change) in cases {
            let mut description = sound();
            change(&mut description);
            assert_eq!(description.check(), Err(expected));
        }
        let mut description = sound();
        description.object_format = "sha3".to_owned();
        assert_eq!(description.check(), Err(DescriptionError::ObjectFormat("sha3".to_owned())));
        assert_eq!(of_ref("a\nb").to_string(), "ref 'a\\nb'", "one line of an error stays one");
        // The ids have another length.
        description.object_format = "sha256".to_owned();
        assert!(description.check().is_err());
    }
}
