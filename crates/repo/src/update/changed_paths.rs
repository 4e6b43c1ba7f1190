//! The paths that a commit changes: those at which two trees differ.

use weir_git::{Oid, TreeEntry};

use crate::error::{Error, Result};
use crate::objects::reader::ObjectReader;
use crate::objects::tree_diff::{TREE_DEPTH_MAX, unlike_entries};
use crate::reach::path_filter::ChangedPaths;

/// Adds the paths of the files that differ between the trees `old` and `new`, and of the folders on the way,
/// to `changed`; `path` is that of both trees, with a slash at its end, or empty. Returns whether there is
/// room for all.
///
/// # Errors
/// If a tree is missing or malformed.
pub(crate) fn changed_paths(
    reader: &mut ObjectReader<'_>,
    old: Option<&Oid>,
    new: Option<&Oid>,
    path: &mut Vec<u8>,
    depth: usize,
    changed: &mut ChangedPaths,
) -> Result<bool> {
    if old == new {
        return Ok(true);
    }
    if depth > TREE_DEPTH_MAX {
        return Err(Error::Unsupported("trees are nested too deep".to_owned()));
    }
    let hash = reader.objects().hash;
    let object =
        |oid: Option<&Oid>, reader: &mut ObjectReader<'_>| oid.map(|oid| reader.require(oid)).transpose();
    let (old_object, new_object) = (object(old, reader)?, object(new, reader)?);
    let [old_data, new_data] =
        [&old_object, &new_object].map(|object| object.as_ref().map_or(&[][..], |object| &object.data));
    let mut differ: Vec<(Option<TreeEntry<'_>>, Option<TreeEntry<'_>>)> = Vec::new();
    unlike_entries(hash, new_data, &[old_data], |entry, same_name| {
        differ.push((same_name.first().copied(), Some(entry)));
    })
    .map_err(|source| Error::Object { oid: *new.unwrap_or(&Oid::null(hash)), source })?;
    unlike_entries(hash, old_data, &[new_data], |entry, same_name| {
        if same_name.is_empty() {
            differ.push((Some(entry), None));
        }
    })
    .map_err(|source| Error::Object { oid: *old.unwrap_or(&Oid::null(hash)), source })?;
    let len = path.len();
    for (old, new) in differ {
        let entry = new.or(old).expect("one of them is there");
        path.extend_from_slice(entry.name);
        let fits = if entry.is_tree() {
            let tree = |entry: TreeEntry<'_>| Oid::from_bytes(hash, entry.id).expect("of its length");
            let (count, end) = (changed.len(), path.len());
            path.push(b'/');
            let is_whole = changed_paths(
                reader,
                old.map(tree).as_ref(),
                new.map(tree).as_ref(),
                path,
                depth + 1,
                changed,
            )?;
            is_whole && (changed.len() == count || changed.add(&path[..end]))
        } else {
            changed.add(path)
        };
        path.truncate(len);
        if !fits {
            return Ok(false);
        }
    }
    Ok(true)
}
