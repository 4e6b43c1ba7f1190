//! What was touched in a workspace, as git's fsmonitor asks (githooks(5), "fsmonitor-watchman", version 2).
//!
//! Nobody watches: all that was written lies in the upper folder of the union mount, so a scan of it tells.
//! What was ever there stays in a list, with a number that grows when it changes: a file that was created,
//! committed and deleted again leaves nothing above.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::heeded::{heeded, turn_off};
use crate::known_folders::{KnownFolders, now};
use crate::replaced_file::replace_file;
use crate::touched_scan::{Asked, GONE, LARGE, TouchedPath, TouchedScan};

const MAGIC: &[u8] = b"weir touched 1\n";
pub(crate) const FILE: &str = "touched";
/// The answer that everything may have changed.
const ALL: &[u8] = b"/\0";
/// The same answer with a token that no list knows, so that the next question gets this answer, too.
pub(crate) const UNKNOWN: &[u8] = b"weir:0:0\0/\0";
/// Paths at which nothing is any more are forgotten beyond this number.
const GONE_MAX: usize = 1000;
/// A name that stands for any file of a folder. git's untracked cache reads a folder again if a file of it is
/// named, not if itself is.
const ANY_FILE: &[u8] = b"/*";

/// What was touched in a workspace.
struct Touched {
    /// Tokens of another list mean nothing.
    epoch: u64,
    /// The number of the last change.
    seq: u64,
    /// The number up to which changes may be forgotten: older tokens mean nothing.
    forgotten: u64,
    paths: BTreeMap<Vec<u8>, TouchedPath>,
}

/// Begins the list of a new workspace in the folder `place`. Returns the token for its index.
pub(crate) fn begin(place: &Path, epoch: u64) -> Result<String> {
    let touched = Touched { epoch, seq: 0, forgotten: 0, paths: BTreeMap::new() };
    touched.write(place)?;
    Ok(touched.token())
}

/// What was touched at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TouchedKind {
    /// A file or link, or nothing where the commit has something.
    File,
    /// A folder that the commit does not have, or that hides the commit's.
    Folder,
    /// Such a folder with many files, which were not looked at.
    Large,
}

/// Returns what was written in the workspace of `asked`, each path with a number that is another one when it
/// was written again. The list in the folder of records says which folders are large.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn touched_now(
    asked: &Asked<'_>,
    remembered: &mut KnownFolders,
) -> Result<BTreeMap<Vec<u8>, (TouchedKind, u64)>> {
    let known = Touched::read(asked.place).map(|touched| touched.paths).unwrap_or_default();
    let TouchedScan { found, folders, .. } = TouchedScan::of(asked, &known, remembered)?;
    let kind = |path: &[u8], state| match state {
        LARGE => TouchedKind::Large,
        _ if folders.contains(path) => TouchedKind::Folder,
        _ => TouchedKind::File,
    };
    Ok(found
        .into_iter()
        .map(|(path, state)| {
            let kind = kind(&path, state);
            (path, (kind, state))
        })
        .collect())
}

/// Copies the list in the folder `from` to the folder `to`, for a workspace that is the same up to now.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let new = to.join(FILE);
    match fs::copy(from.join(FILE), &new) {
        // Then git looks at every file.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        copied => copied.map(drop).map_err(Error::on(&new)),
    }
}

/// Notes that the files at `paths` are others now, though nothing was written there: git is told so once.
/// Returns the number of the change; 0 without a list: then git looks at every file.
///
/// # Errors
/// If the list cannot be written.
pub(crate) fn note_other<'p>(place: &Path, paths: impl Iterator<Item = &'p [u8]>) -> Result<u64> {
    let _alone = lock(place)?;
    let Some(mut touched) = Touched::read(place) else { return Ok(0) };
    touched.seq += 1;
    for path in paths {
        touched.paths.insert(path.to_vec(), TouchedPath { seq: touched.seq, state: GONE });
    }
    touched.write(place)?;
    Ok(touched.seq)
}

/// Takes back what [`note_other`] noted as the change `seq`, but for paths that `is_kept`: the index has it.
///
/// # Errors
/// If the list cannot be written.
pub(crate) fn forget_other(place: &Path, seq: u64, is_kept: impl Fn(&[u8]) -> bool) -> Result<()> {
    let _alone = lock(place)?;
    let Some(mut touched) = Touched::read(place) else { return Ok(()) };
    touched.paths.retain(|path, known| known.seq != seq || known.state != GONE || is_kept(path));
    touched.write(place)
}

/// Waits until nobody else reads and writes the list: two would lose each other's changes.
fn lock(place: &Path) -> Result<File> {
    let path = place.join("touched.lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(Error::on(&path))?;
    lock.lock().map_err(Error::on(&path))?;
    Ok(lock)
}

/// Returns the oldest token that the list in the folder `place` can answer: since then, it knows of all
/// changes. One that it cannot answer, if it cannot be read.
pub(crate) fn oldest_token(place: &Path) -> String {
    Touched::read(place).map_or_else(
        || "weir:0:0".to_owned(),
        |touched| format!("weir:{}:{}", touched.epoch, touched.forgotten),
    )
}

/// Returns the answer to git's question what has changed since `token`: a token, and the paths, each with a
/// NUL at its end.
///
/// # Errors
/// If the list or what was written cannot be read, or the list cannot be written. git then looks at every
/// file.
pub(crate) fn changed_since(
    asked: &Asked<'_>,
    remembered: &mut KnownFolders,
    token: &str,
) -> Result<Vec<u8>> {
    let Asked { place, folder, tree, .. } = *asked;
    // Working trees that `git worktree` adds have the same configuration: nothing is known of them.
    if !is_same(folder, tree) {
        return Ok(UNKNOWN.to_vec());
    }
    let _alone = lock(place)?;
    let known = Touched::read(place);
    let is_known = known.is_some();
    let mut touched = known.unwrap_or_else(|| Touched {
        epoch: now().as_nanos() as u64,
        seq: 0,
        forgotten: 0,
        paths: BTreeMap::new(),
    });
    let TouchedScan { mut found, in_large, .. } = TouchedScan::of(asked, &touched.paths, remembered)?;
    let is_in_large: BTreeSet<Vec<u8>> = in_large.keys().cloned().collect();
    found.extend(in_large);
    let has_changed = touched.update(found);
    let since = touched.seq_of(token);
    let has_forgotten = since.is_some_and(|since| touched.forget(since));
    if has_changed || has_forgotten || !is_known {
        touched.write(place)?;
    }
    let mut answer = touched.token().into_bytes();
    answer.push(0);
    let changed = |since: u64| touched.paths.iter().filter(move |(_, touched)| touched.seq > since);
    // git would not look into a folder that it knows if its name is one that git does not heed.
    let is_unheeded = since.is_some_and(|since| changed(since).any(|(path, _)| heeded(path).is_some()));
    match since.filter(|_| !is_unheeded || turn_off(folder)) {
        Some(since) => {
            for (path, touched) in changed(since) {
                let mut name = |path: &[u8], end: &[u8]| {
                    answer.extend_from_slice(path);
                    answer.extend_from_slice(end);
                    answer.push(0);
                };
                if let Some(folder) = heeded(path) {
                    name(folder, if folder.is_empty() { &ANY_FILE[1..] } else { ANY_FILE });
                    continue;
                }
                name(path, b"");
                // All below a folder of that name, or only what lies right in it, if its files are not named.
                if !is_in_large.contains(path) {
                    name(path, b"/");
                }
                if is_in_large.contains(path) || touched.state == LARGE {
                    name(path, ANY_FILE);
                }
            }
        }
        None => answer.extend_from_slice(ALL),
    }
    Ok(answer)
}

/// Returns whether both paths lead to one folder.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|about| (about.dev(), about.ino())).ok();
    id(a).is_some_and(|a| Some(a) == id(b))
}

impl Touched {
    fn token(&self) -> String {
        format!("weir:{}:{}", self.epoch, self.seq)
    }

    /// Returns the number of the last change that the owner of `token` knows of.
    fn seq_of(&self, token: &str) -> Option<u64> {
        let (epoch, seq) = token.strip_prefix("weir:")?.split_once(':')?;
        let seq = seq.parse().ok()?;
        (epoch.parse() == Ok(self.epoch) && seq <= self.seq && seq >= self.forgotten).then_some(seq)
    }

    /// Forgets paths at which nothing is, if there are many, and git was told so by `since`: it takes none of
    /// them for unchanged. Returns whether it did.
    fn forget(&mut self, since: u64) -> bool {
        debug_assert!(since <= self.seq, "a change is forgotten that is to come");
        let is_gone = |touched: &TouchedPath| touched.state == GONE && touched.seq <= since;
        if self.paths.values().filter(|touched| is_gone(touched)).count() <= GONE_MAX {
            return false;
        }
        self.paths.retain(|_, touched| !is_gone(touched));
        self.forgotten = since;
        true
    }

    /// Takes what is there now; returns whether anything has changed.
    fn update(&mut self, found: BTreeMap<Vec<u8>, u64>) -> bool {
        let next = self.seq + 1;
        let mut has_changed = false;
        for (path, touched) in &mut self.paths {
            let state = found.get(path).copied().unwrap_or(GONE);
            if state != touched.state || state == LARGE {
                (touched.state, touched.seq, has_changed) = (state, next, true);
            }
        }
        for (path, state) in found {
            self.paths.entry(path).or_insert_with(|| {
                has_changed = true;
                TouchedPath { seq: next, state }
            });
        }
        if has_changed {
            self.seq = next;
        }
        has_changed
    }

    /// Reads the list; `None` if there is none that can be understood.
    fn read(place: &Path) -> Option<Touched> {
        let data = fs::read(place.join(FILE)).ok()?;
        let mut rest = data.strip_prefix(MAGIC)?;
        let number = |rest: &mut &[u8]| {
            let (bytes, after) = rest.split_first_chunk::<8>()?;
            *rest = after;
            Some(u64::from_le_bytes(*bytes))
        };
        let [epoch, seq, forgotten] = [number(&mut rest)?, number(&mut rest)?, number(&mut rest)?];
        let mut paths = BTreeMap::new();
        while !rest.is_empty() {
            let (seq, state, len) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
            let (path, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            rest = after;
            paths.insert(path.to_vec(), TouchedPath { seq, state });
        }
        Some(Touched { epoch, seq, forgotten, paths })
    }

    fn write(&self, place: &Path) -> Result<()> {
        let mut data = MAGIC.to_vec();
        let number = |data: &mut Vec<u8>, number: u64| data.extend_from_slice(&number.to_le_bytes());
        number(&mut data, self.epoch);
        number(&mut data, self.seq);
        number(&mut data, self.forgotten);
        for (path, touched) in &self.paths {
            number(&mut data, touched.seq);
            number(&mut data, touched.state);
            number(&mut data, path.len() as u64);
            data.extend_from_slice(path);
        }
        replace_file(&place.join(FILE), &data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_folders::RECENT;
    use crate::touched_scan::LARGE_MIN;

    fn paths(answer: &[u8]) -> Vec<&[u8]> {
        answer
            .split(|byte| *byte == 0)
            .skip(1)
            .filter(|path| !path.is_empty() && !path.ends_with(b"/"))
            .collect()
    }

    fn token(answer: &[u8]) -> String {
        String::from_utf8(answer.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_token_is_answered_with_what_is_new_since() {
        let dir = weir_testing::folder();
        let (place, files) = (dir.path(), dir.path().join("files"));
        fs::create_dir_all(files.join(".git")).unwrap();
        let first = begin(place, 7).unwrap();
        let lower = place.join("lower");
        fs::create_dir_all(lower.join("known")).unwrap();
        let layers = [files.clone()];
        let of = |tree: &Path, token: &str| {
            let asked = Asked { place, folder: place, tree, lower: &lower, layers: &layers };
            changed_since(&asked, &mut KnownFolders::default(), token).unwrap()
        };
        let ask = |token: &str| of(place, token);
        assert!(paths(&ask(&first)).is_empty());
        fs::write(files.join("a"), b"1").unwrap();
        fs::write(files.join(".git/index"), b"1").unwrap();
        let answer = ask(&first);
        assert_eq!(paths(&answer), [b"a"]);
        // It may change again at the same time.
        let second = token(&answer);
        assert_eq!(paths(&ask(&second)), [b"a"]);
        std::thread::sleep(RECENT * 2);
        let third = token(&ask(&second));
        assert!(paths(&ask(&third)).is_empty());
        assert_eq!(paths(&ask(&first)), [b"a"], "an older token is answered, too");
        fs::remove_file(files.join("a")).unwrap();
        assert_eq!(paths(&ask(&third)), [b"a"]);
        fs::create_dir_all(files.join("known/new/deep")).unwrap();
        assert_eq!(paths(&ask(&token(&ask(&third)))), [&b"known/new"[..], b"known/new/deep"]);
        for unknown in ["", "1700000000", "weir:8:0", "weir:7:999", "weir:7", "weir:x:y"] {
            assert!(ask(unknown).ends_with(b"\0/\0"), "{unknown}");
        }
        assert!(of(&files, &third).ends_with(b"\0/\0"), "another tree");
        fs::write(place.join(FILE), b"damaged").unwrap();
        assert!(ask(&third).ends_with(b"\0/\0"));
    }

    #[test]
    fn a_large_new_folder_is_named_without_being_looked_into() {
        let dir = weir_testing::folder();
        let (place, files) = (dir.path(), dir.path().join("files"));
        fs::create_dir_all(files.join("small")).unwrap();
        fs::create_dir_all(files.join("built/deep")).unwrap();
        fs::write(files.join("small/a"), b"").unwrap();
        (0..LARGE_MIN).for_each(|n| fs::write(files.join(format!("built/deep/{n}")), b"").unwrap());
        let first = begin(place, 7).unwrap();
        let (lower, layers) = (place.join("lower"), [files.clone()]);
        let asked = Asked { place, folder: place, tree: place, lower: &lower, layers: &layers };
        let ask = |token: &str| changed_since(&asked, &mut KnownFolders::default(), token).unwrap();
        let all = [&b"built"[..], b"built/*", b"built/deep", b"built/deep/*", b"small", b"small/a"];
        assert_eq!(paths(&ask(&first)), all);
        std::thread::sleep(RECENT * 2);
        let settled = token(&ask(&token(&ask(&first))));
        // It may have changed each time.
        for _ in 0..3 {
            assert_eq!(paths(&ask(&settled)), [&b"built"[..], b"built/*"]);
        }
        // Folders in it are seen to change, and new ones, too.
        fs::create_dir_all(files.join("built/deep/er/est")).unwrap();
        fs::create_dir_all(files.join("built/deep-er")).unwrap();
        let new = [&b"built"[..], b"built/*", b"built/deep", b"built/deep/*"];
        let newer = [&new[..], &[b"built/deep-er", b"built/deep-er/*", b"built/deep/er"]].concat();
        let newest = [&b"built/deep/er/*"[..], b"built/deep/er/est", b"built/deep/er/est/*"];
        assert_eq!(paths(&ask(&settled)), [newer, newest.to_vec()].concat());
        std::thread::sleep(RECENT * 2);
        let settled = token(&ask(&settled));
        assert_eq!(paths(&ask(&settled)), [&b"built"[..], b"built/*"]);
        fs::write(files.join("built/deep/er/est/a"), b"").unwrap();
        let changed = [&b"built"[..], b"built/*", b"built/deep/er/est", b"built/deep/er/est/*"];
        assert_eq!(paths(&ask(&settled)), changed);
        fs::remove_dir_all(files.join("built")).unwrap();
        let gone = ask(&settled);
        let all = [&b"built"[..], b"built/deep", b"built/deep-er", b"built/deep/er", b"built/deep/er/est"];
        assert_eq!(paths(&gone), all);
        assert!(paths(&ask(&token(&gone))).is_empty());
        // It is looked into again.
        fs::create_dir_all(files.join("built")).unwrap();
        fs::write(files.join("built/a"), b"").unwrap();
        assert_eq!(paths(&ask(&token(&gone))), [&b"built"[..], b"built/a"]);
    }

    #[test]
    fn what_is_gone_for_long_is_forgotten() {
        let dir = weir_testing::folder();
        let (place, files) = (dir.path(), dir.path().join("files"));
        fs::create_dir_all(&files).unwrap();
        let first = begin(place, 7).unwrap();
        let (lower, layers) = (place.join("lower"), [files.clone()]);
        let asked = Asked { place, folder: place, tree: place, lower: &lower, layers: &layers };
        let ask = |token: &str| changed_since(&asked, &mut KnownFolders::default(), token).unwrap();
        for n in 0..=GONE_MAX {
            fs::write(files.join(n.to_string()), b"").unwrap();
        }
        let all = token(&ask(&first));
        (0..=GONE_MAX).for_each(|n| fs::remove_file(files.join(n.to_string())).unwrap());
        let gone = ask(&all);
        assert_eq!(paths(&gone).len(), GONE_MAX + 1);
        let gone = token(&gone);
        assert!(paths(&ask(&gone)).is_empty());
        assert!(fs::metadata(place.join(FILE)).unwrap().len() < 100);
        assert!(ask(&all).ends_with(b"\0/\0"), "that one was not told");
        assert!(paths(&ask(&gone)).is_empty());
    }

    #[test]
    fn list_is_copied_where_there_is_one() {
        let dir = weir_testing::folder();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(oldest_token(&to), "weir:0:0");
        begin(&from, 7).unwrap();
        assert!(
            matches!(copy(&from, &to.join("none")), Err(Error::File { .. })) || !to.join("none").exists()
        );
        copy(&from, &to).unwrap();
        assert_eq!(oldest_token(&to), "weir:7:0");
        fs::remove_file(to.join(FILE)).unwrap();
        fs::create_dir(to.join(FILE)).unwrap();
        assert!(matches!(copy(&from, &to), Err(Error::File { .. })));
    }

    #[test]
    fn changes_that_are_noted_are_told_until_they_are_taken_back() {
        let dir = weir_testing::folder();
        let place = dir.path();
        assert_eq!(note_other(place, [&b"a"[..]].into_iter()).unwrap(), 0, "there is no list");
        forget_other(place, 1, |_| false).unwrap();
        begin(place, 7).unwrap();
        let states = || {
            let touched = Touched::read(place).unwrap();
            let paths = touched.paths.into_iter().map(|(path, known)| (path, known.seq, known.state));
            (touched.seq, paths.collect::<Vec<_>>())
        };
        assert_eq!(note_other(place, [&b"b"[..], b"a"].into_iter()).unwrap(), 1);
        assert_eq!(note_other(place, [&b"c"[..], b"a"].into_iter()).unwrap(), 2);
        let of = |path: &str, seq| (path.as_bytes().to_vec(), seq, GONE);
        assert_eq!(states(), (2, vec![of("a", 2), of("b", 1), of("c", 2)]));
        forget_other(place, 2, |path| path == b"c").unwrap();
        assert_eq!(states(), (2, vec![of("b", 1), of("c", 2)]));
    }
}
