//! The untracked cache of an index (gitformat-index, "Untracked cache") that says: nothing but the commit's
//! files is there. git reads a folder again when its monitor names something in it, or its times differ.

use std::path::Path;

use weir_git::{HashKind, Kind, ObjectHasher, Oid};

use crate::ewah::ewah;
use crate::varint::{push_varint, varint};

/// The flags with which `git status` searches for untracked files (`new_untracked_cache_flags`): it lists an
/// untracked folder without its files, and no empty folder.
const FLAGS: u32 = 6;
/// What stat(2) says, as this extension has it: an entry's numbers without the mode.
pub type FolderStat = [u32; 9];
/// Their bytes.
const STAT_BYTES: usize = 36;

/// The folders of a tree, each before those in it.
pub struct UntrackedFolders {
    /// Their records.
    records: Vec<u8>,
    /// What stat(2) says of each.
    stats: Vec<u8>,
    count: u32,
    /// The files `.gitignore`, by the numbers of their folders.
    ignores: Vec<(u32, Oid)>,
}

impl UntrackedFolders {
    /// Returns the folder `name` with those `below` it, by the bytes of their names.
    pub fn of(
        name: &[u8],
        stat: &FolderStat,
        ignores: Option<Oid>,
        below: Vec<UntrackedFolders>,
    ) -> UntrackedFolders {
        let mut all =
            UntrackedFolders { records: Vec::new(), stats: Vec::new(), count: 1, ignores: Vec::new() };
        // No untracked file, and so many folders.
        push_varint(&mut all.records, 0);
        push_varint(&mut all.records, below.len());
        all.records.extend_from_slice(name);
        all.records.push(0);
        all.stats.extend(stat.iter().flat_map(|number| number.to_be_bytes()));
        all.ignores.extend(ignores.map(|oid| (0, oid)));
        for child in below {
            all.records.extend_from_slice(&child.records);
            all.stats.extend_from_slice(&child.stats);
            all.ignores.extend(child.ignores.into_iter().map(|(number, oid)| (all.count + number, oid)));
            all.count += child.count;
        }
        debug_assert_eq!(all.stats.len(), all.count as usize * STAT_BYTES, "a folder has no stat");
        all
    }

    /// Returns the extension of an index of the work tree `folder`. `ignores` is the content of the user's
    /// file of ignored names, if there is one.
    pub fn extension(&self, hash: HashKind, folder: &Path, ignores: Option<&[u8]>) -> Vec<u8> {
        let mut out = place(folder);
        // What stat(2) says of info/exclude, which is not there, and of the user's file: git looks by itself.
        out.extend_from_slice(&[0; 2 * STAT_BYTES]);
        out.extend_from_slice(&FLAGS.to_be_bytes());
        let nothing = vec![0; hash.len()];
        out.extend_from_slice(&nothing);
        // git hashes the file with a line end behind it.
        let ignores = ignores.map(|text| ObjectHasher::hash(hash, Kind::Blob, &[text, b"\n"].concat()));
        match ignores.and_then(Result::ok) {
            Some(oid) => out.extend_from_slice(oid.as_bytes()),
            None => out.extend_from_slice(&nothing),
        }
        out.extend_from_slice(b".gitignore\0");
        push_varint(&mut out, self.count as usize);
        out.extend_from_slice(&self.records);
        // All are valid, none was read in part, and some have a file `.gitignore`.
        let all: Vec<u32> = (0..self.count).collect();
        let with_ignores: Vec<u32> = self.ignores.iter().map(|(number, _)| *number).collect();
        [&all[..], &[], &with_ignores].iter().for_each(|numbers| out.extend(ewah(numbers)));
        out.extend_from_slice(&self.stats);
        self.ignores.iter().for_each(|(_, oid)| out.extend_from_slice(oid.as_bytes()));
        out.push(0);
        out
    }
}

/// Returns the beginning of the extension: the place where it is true (`get_ident_string` of git).
fn place(folder: &Path) -> Vec<u8> {
    let place = [b"Location ", folder.as_os_str().as_encoded_bytes(), b", system Linux\0"].concat();
    let mut out = Vec::new();
    push_varint(&mut out, place.len());
    out.extend_from_slice(&place);
    out
}

/// Returns the extension `data` for the work tree `folder`, which has the same files; `None` if it is cut.
pub fn moved_to(folder: &Path, data: &[u8]) -> Option<Vec<u8>> {
    let mut rest = data;
    let len = varint(&mut rest)?;
    Some([place(folder), rest.get(len..)?.to_vec()].concat())
}
