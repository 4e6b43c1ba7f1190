//! The untracked cache of an index (gitformat-index, "Untracked cache") that says: nothing but the commit's
//! files is there. git reads a folder again when its monitor names something in it, or its times differ.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use weir_git::{HashKind, Kind, ObjectHasher, Oid};

use crate::ewah::ewah;
use crate::varint::{push_varint, varint};

/// The flags with which `git status` searches for untracked files (`new_untracked_cache_flags`): it lists an
/// untracked folder without its files, and no empty folder.
const FLAGS: u32 = 6;
/// What stat(2) says, as this extension has it: an entry's numbers without the mode.
pub(crate) type FolderStat = [u32; 9];
/// Their bytes.
const STAT_BYTES: usize = 36;

/// The lines that [`turn_off`] appends to git's configuration.
const OFF: &str = "[core]\n\tuntrackedCache = false\n";

/// Lets git have no untracked cache in the workspace `folder` from its next command on. Returns whether git's
/// configuration says so now.
pub(crate) fn turn_off(folder: &Path) -> bool {
    let config = folder.join(".git/config");
    let Ok(mut text) = fs::read_to_string(&config) else { return false };
    if text.ends_with(OFF) {
        return true;
    }
    text.push_str(OFF);
    // As git locks its configuration.
    let lock = folder.join(".git/config.lock");
    let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(&lock) else { return false };
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&lock, &config));
    written.or_else(|e| fs::remove_file(&lock).and(Err(e))).is_ok()
}

/// Returns the folder in which the first name of `path` lies that git rejects in the answer of a monitor
/// (`verify_path`, `is_ntfs_dotgit`), if there is one. git lists untracked files of that name all the same.
pub(crate) fn heeded(path: &[u8]) -> Option<&[u8]> {
    let mut start = 0;
    for name in path.split(|byte| *byte == b'/') {
        if is_rejected(name) {
            return Some(path[..start].strip_suffix(b"/").unwrap_or_default());
        }
        start += name.len() + 1;
    }
    None
}

fn is_rejected(name: &[u8]) -> bool {
    // In each folder git passes over `.git` itself.
    name != b".git"
        && name.split(|byte| *byte == b'\\').any(|part| {
            let rest = [&b".git"[..], b"git~1"].iter().find_map(|dot_git| {
                let (start, rest) = part.split_at_checked(dot_git.len())?;
                start.eq_ignore_ascii_case(dot_git).then_some(rest)
            });
            let rest = rest.map(|rest| rest.iter().find(|byte| !matches!(byte, b' ' | b'.')));
            matches!(rest, Some(None | Some(b':')))
        })
}

/// The folders of a tree, each before those in it.
pub(crate) struct UntrackedFolders {
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
    pub(crate) fn of(
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
        all
    }

    /// Returns the extension of an index of the work tree `folder`. `ignores` is the content of the user's
    /// file of ignored names, if there is one.
    pub(crate) fn extension(&self, hash: HashKind, folder: &Path, ignores: Option<&[u8]>) -> Vec<u8> {
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
pub(crate) fn moved_to(folder: &Path, data: &[u8]) -> Option<Vec<u8>> {
    let mut rest = data;
    let len = varint(&mut rest)?;
    Some([place(folder), rest.get(len..)?.to_vec()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_git_rejects_are_known() {
        let is_in = |path: &str, folder: &str| assert_eq!(heeded(path.as_bytes()), Some(folder.as_bytes()));
        is_in("a/git~1/b", "a");
        is_in("a/b/.git::$INDEX", "a/b");
        is_in("x/.Git. ", "x");
        for odd in [".GIT", "GIT~1", "a\\.git", ".git\\a"] {
            is_in(odd, "");
        }
        for plain in ["a/.git/HEAD", ".gitignore", ".github/a", "git~2", "git~1a", ".gitfoo", "a.git", "a\\b"]
        {
            assert_eq!(heeded(plain.as_bytes()), None, "{plain}");
        }
    }

    #[test]
    fn git_is_told_once_to_have_no_cache() {
        let dir = weir_testing::folder();
        let (folder, config) = (dir.path(), dir.path().join(".git/config"));
        assert!(!turn_off(folder), "there is no configuration");
        fs::create_dir(folder.join(".git")).unwrap();
        fs::write(&config, "[core]\n\tbare = false\n").unwrap();
        let lock = folder.join(".git/config.lock");
        fs::write(&lock, "").unwrap();
        assert!(!turn_off(folder), "somebody writes it");
        fs::remove_file(&lock).unwrap();
        for _ in 0..2 {
            assert!(turn_off(folder));
            let expected = "[core]\n\tbare = false\n[core]\n\tuntrackedCache = false\n";
            assert_eq!(fs::read_to_string(&config).unwrap(), expected);
        }
    }
}
