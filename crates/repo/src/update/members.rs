//! Writes a repository's files as members of its archive: configuration, refs, packs with their companions.

use std::convert::Infallible;

use sha2::{Digest, Sha256};
use weir_archive::{Group, Storage};
use weir_git::{HashKind, Oid};

use crate::error::{Error, Result};
use crate::ingest::Ingested;
use crate::objects::entry::DELTA_CHAIN_MAX;
use crate::objects::index::{write_index, write_reverse_index};
use crate::refs::list::Refs;
use crate::refs::state_kind::{PARTIAL_KEY, RESTORED_KEY, StateKind};
use crate::repo::bodies::{RefClass, WholeClone, body_key, whole_value};
use crate::repo::keys::{DELTAS_KEY, LONG_DELTAS};
use crate::repo::origin::Origin;

/// Packs of fewer objects get no `.rev`: readers sort such an index quickly, and small updates stay small.
pub(crate) const REVERSE_INDEX_OBJECTS_MIN: usize = 4096;

/// Returns the `config` file of an extracted archive. With it `git fetch` continues where the archive ended.
pub(crate) fn config_file(hash: HashKind, origin: Option<&Origin>) -> String {
    let version = match hash {
        HashKind::Sha1 => 0,
        HashKind::Sha256 => 1,
    };
    let mut config =
        format!("[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = true\n");
    if hash == HashKind::Sha256 {
        config += "[extensions]\n\tobjectformat = sha256\n";
    }
    if let Some(Origin { url, .. }) = origin {
        // git-config(1), "Values": in quotes only these two characters are special.
        let url = url.replace('\\', "\\\\").replace('"', "\\\"");
        config +=
            &format!("[remote \"origin\"]\n\turl = \"{url}\"\n\tfetch = +refs/*:refs/*\n\tmirror = true\n");
    }
    config
}

pub(crate) fn replace_if_changed<S: Storage>(
    group: &mut Group<'_, S>,
    name: &str,
    data: &[u8],
) -> Result<()> {
    let sum: [u8; 32] = Sha256::digest(data).into();
    let same = group
        .state()
        .and_then(|s| s.members.get(name))
        .is_some_and(|m| m.sha256 == sum && m.len == data.len() as u64);
    if !same {
        group.append(name, data)?;
    }
    Ok(())
}

/// Writes the files that hold the refs.
pub(crate) fn set_refs<S: Storage>(group: &mut Group<'_, S>, refs: &Refs, shallow: &[Oid]) -> Result<()> {
    replace_if_changed(group, "packed-refs", &refs.to_packed_refs())?;
    replace_if_changed(group, "HEAD", &refs.to_head_file())?;
    let mut shallow_file = Vec::new();
    for oid in shallow {
        oid.push_hex(&mut shallow_file);
        shallow_file.push(b'\n');
    }
    if !shallow.is_empty() {
        replace_if_changed(group, "shallow", &shallow_file)?;
    } else if group.state().is_some_and(|s| s.members.contains_key("shallow")) {
        group.drop_member("shallow");
    }
    Ok(())
}

pub(crate) fn set_whole<S: Storage>(group: &mut Group<'_, S>, key: &str, whole: Option<WholeClone>) {
    match whole {
        Some(w) => group.set(key, whole_value(&w)),
        None => unset(group, key),
    }
}

/// Records how the refs came to be.
pub(crate) fn set_kind<S: Storage>(group: &mut Group<'_, S>, kind: StateKind) {
    for (key, of) in [(PARTIAL_KEY, StateKind::Partial), (RESTORED_KEY, StateKind::Restored)] {
        if kind == of {
            group.set(key, "yes");
        } else {
            unset(group, key);
        }
    }
}

/// Removes an attribute, if it is there.
pub(crate) fn unset<S: Storage>(group: &mut Group<'_, S>, key: &str) {
    if group.state().is_some_and(|s| s.attributes.contains_key(key)) {
        group.unset(key);
    }
}

/// Appends a pack with its companions, and the attribute that describes its body. If the pack is there
/// already, only the attribute is set: a pack that was kept as history may be received again unchanged.
pub(crate) fn append_pack<S: Storage>(
    group: &mut Group<'_, S>,
    hash: HashKind,
    class: RefClass,
    pack: &Ingested,
) -> Result<()> {
    let short = format!("pack-{}", pack.checksum);
    let name = format!("objects/pack/{short}");
    let what = format!("{} {} {}", class.name(), pack.sent_end, pack.sent_count);
    if let Some(live) = group.state().and_then(|state| state.members.get(&format!("{name}.pack"))) {
        // The checksum is SHA-1, for which an upstream may have made a collision.
        let mut sum = Sha256::new();
        let Ok(()) = pack.data.in_pieces(|piece| {
            sum.update(piece);
            Ok::<_, Infallible>(())
        });
        if live.sha256 != <[u8; 32]>::from(sum.finalize()) {
            return Err(Error::BadPack(format!("another pack with the checksum {} is here", pack.checksum)));
        }
        group.set(&body_key(&short), what);
        return Ok(());
    }
    group.append_aligned_pieces(&format!("{name}.pack"), pack.data.len() as u64, |take| {
        pack.data.in_pieces(take)?;
        Ok(pack.data.check()?)
    })?;
    group.append(&format!("{name}.idx"), &write_index(hash, pack.objects.iter(), &pack.checksum))?;
    if pack.objects.len() >= REVERSE_INDEX_OBJECTS_MIN {
        group.append(
            &format!("{name}.rev"),
            &write_reverse_index(hash, &pack.objects.positions(), &pack.checksum),
        )?;
    }
    group.set(&body_key(&short), what);
    if pack.chain_len > u32::from(DELTA_CHAIN_MAX) {
        group.set(DELTAS_KEY, LONG_DELTAS);
    }
    Ok(())
}
