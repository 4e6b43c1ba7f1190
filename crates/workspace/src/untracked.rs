//! The untracked cache of an index (gitformat-index, "Untracked cache") that says: nothing but the commit's
//! files is there. git believes it for as long as its fsmonitor names nothing in a folder.

use std::path::Path;

use weir_git::{HashKind, Kind, ObjectHasher, Oid};

/// What git looks for in `git status` (`new_untracked_cache_flags`): folders as one, and no empty ones.
const FLAGS: u32 = 6;
/// The bytes of what stat(2) says, as an index has it.
const STAT_BYTES: usize = 36;

/// The folders of a tree, each before those in it.
pub(crate) struct UntrackedFolders {
    /// Their records.
    records: Vec<u8>,
    count: u32,
    /// The files `.gitignore`, by the numbers of their folders.
    ignores: Vec<(u32, Oid)>,
}

impl UntrackedFolders {
    /// Returns the folder `name` with those `below` it, by the bytes of their names.
    pub(crate) fn of(name: &[u8], ignores: Option<Oid>, below: Vec<UntrackedFolders>) -> UntrackedFolders {
        let mut all = UntrackedFolders { records: Vec::new(), count: 1, ignores: Vec::new() };
        // No untracked file, and so many folders.
        push_varint(&mut all.records, 0);
        push_varint(&mut all.records, below.len());
        all.records.extend_from_slice(name);
        all.records.push(0);
        all.ignores.extend(ignores.map(|oid| (0, oid)));
        for child in below {
            all.records.extend_from_slice(&child.records);
            all.ignores.extend(child.ignores.into_iter().map(|(number, oid)| (all.count + number, oid)));
            all.count += child.count;
        }
        all
    }

    /// Returns the extension of an index of the work tree `folder`. `ignores` is the content of the user's
    /// file of ignored names, if there is one.
    pub(crate) fn extension(&self, hash: HashKind, folder: &Path, ignores: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        // Where the cache was made (`get_ident_string`).
        let place = [b"Location ", folder.as_os_str().as_encoded_bytes(), b", system Linux\0"].concat();
        push_varint(&mut out, place.len());
        out.extend_from_slice(&place);
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
        let mut ignores = self.ignores.clone();
        ignores.sort_unstable_by_key(|(number, _)| *number);
        let has_ignores = |number| ignores.binary_search_by_key(&number, |(number, _)| *number).is_ok();
        // All are valid, all were read whole, and some have a file `.gitignore`.
        push_bitmap(&mut out, self.count, |_| true);
        push_bitmap(&mut out, 0, |_| false);
        push_bitmap(&mut out, self.count, has_ignores);
        out.extend(vec![0; STAT_BYTES * self.count as usize]);
        ignores.iter().for_each(|(_, oid)| out.extend_from_slice(oid.as_bytes()));
        out.push(0);
        out
    }
}

/// Appends a compressed bitmap (EWAH) of `count` bits, all of it in words as they are.
fn push_bitmap(out: &mut Vec<u8>, count: u32, is_set: impl Fn(u32) -> bool) {
    let word = |first: u32| {
        let set = (first..count.min(first + 64)).filter(|bit| is_set(*bit));
        set.fold(0u64, |word, bit| word | 1 << (bit - first))
    };
    let words: Vec<u64> = (0..count.div_ceil(64)).map(|n| word(64 * n)).collect();
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&(words.len() as u32 + 1).to_be_bytes());
    // The number of words that follow is in the upper 31 bits.
    out.extend_from_slice(&((words.len() as u64) << 33).to_be_bytes());
    words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    out.extend_from_slice(&0u32.to_be_bytes());
}

/// Appends a number as the index has it (varint.c of git: as the offsets of deltas).
pub(crate) fn push_varint(out: &mut Vec<u8>, number: usize) {
    let mut bytes = vec![(number & 0x7f) as u8];
    let mut rest = number >> 7;
    while rest > 0 {
        rest -= 1;
        bytes.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.extend(bytes.iter().rev());
}
