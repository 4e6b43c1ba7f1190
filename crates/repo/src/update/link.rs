//! The way in which an archive names its base (`docs/archive-format.md`, section 9).

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::path::Path;

use weir_archive::Archive;

use crate::error::{Error, Result};
use crate::repo::base::SUFFIX;
use crate::repo::keys::ID_KEY;
use crate::repo::repository::Repo;

/// Returns an id that no other archive has.
pub(crate) fn new_id() -> String {
    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}

/// The record of an archive about its base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The content of [`crate::repo::keys::ALTERNATES`].
    pub(crate) line: String,
    /// The value of [`crate::repo::keys::BASE_KEY`].
    pub(crate) value: String,
}

impl Link {
    /// Returns the link with which the archive at `path` names `base`.
    pub(crate) fn new(path: &Path, base: &Repo) -> Result<Link> {
        let state = base.archive.as_ref().map(Archive::state);
        let id = state.and_then(|s| Some((s.attributes.get(ID_KEY)?, s.record.seq)));
        let unfit = |why: &str| {
            Err(Error::Unsupported(format!("'{}' cannot be a base: {why}", base.path().display())))
        };
        let Some((id, seq)) = id else { return unfit("it has no id, which compaction gives it") };
        if base.base.is_some() {
            return unfit("it has a base itself");
        }
        if !base.history().shallow.is_empty() {
            return unfit("it is shallow now; dissociate the archives that build on it");
        }
        match relative(path, base.path())? {
            Some(place) => {
                Ok(Link { line: format!("../../{place}/objects\n"), value: format!("{id} {seq}") })
            }
            None => unfit(&format!("its name must end in {SUFFIX} and be UTF-8 without line breaks")),
        }
    }

    /// Checks whether the archive at `base` is still the same one.
    pub(crate) fn holds(&self, base: &Path) -> Result<()> {
        let id = self.value.split(' ').next();
        match Archive::open(base)?.attribute(ID_KEY) == id {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "'{}' has been replaced meanwhile; try again",
                base.display()
            ))),
        }
    }
}

/// Returns the path of the archive `base`, without suffix, relative to the folder of the archive at `path`.
/// The path also holds when both archives are extracted where they are.
fn relative(path: &Path, base: &Path) -> Result<Option<String>> {
    let (path, base) = (std::path::absolute(path)?, std::path::absolute(base)?);
    let Some(name) = base.file_name().and_then(OsStr::to_str).and_then(|n| n.strip_suffix(SUFFIX)) else {
        return Ok(None);
    };
    let parts = |p: &Path| {
        p.parent()
            .map_or(Vec::new(), |folder| folder.components().map(|c| c.as_os_str().to_owned()).collect())
    };
    let (from, to): (Vec<_>, Vec<_>) = (parts(&path), parts(&base));
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let mut place = "../".repeat(from.len() - shared);
    for part in &to[shared..] {
        let Some(part) = part.to_str() else { return Ok(None) };
        place.push_str(part);
        place.push('/');
    }
    place.push_str(name);
    Ok(Some(place).filter(|p| !p.contains('\n')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_relative_to_the_folder() {
        let place = |path: &str, base: &str| relative(Path::new(path), Path::new(base)).unwrap();
        assert_eq!(place("/s/a/x.tar", "/s/a/y.tar").as_deref(), Some("y"));
        assert_eq!(place("/s/a/x.tar", "/s/b/c/y.git.tar").as_deref(), Some("../b/c/y.git"));
        assert_eq!(place("/s/x.tar", "/s/b/y.tar").as_deref(), Some("b/y"));
        assert_eq!(place("/s/x.tar", "/s/y"), None);
        assert_eq!(place("/s/x.tar", "/s/a\nb/y.tar"), None);
    }
}
