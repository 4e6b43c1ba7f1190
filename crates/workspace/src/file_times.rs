//! The times of the files and folders of a view. They have the time of the commit that a workspace began
//! with; those that differ from what it showed before have the time of the switch that brought them.
//!
//! A file keeps the times of a workspace that was switched: the 8 bytes of [`MAGIC`], the seconds since 1970
//! of all other files, and a record of 16 bytes for each that a switch brought: the hash of its path, the
//! nanoseconds, and the seconds. All numbers are little-endian; records ascend by hash.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::Timespec;

use crate::error::{Error, Result};
use crate::known_folders::now;
use crate::replaced_file::replace_file;

const MAGIC: &[u8; 8] = b"weirtim1";
const RECORD_BYTES: usize = 16;
const NANOSECONDS: u32 = 1_000_000_000;

/// A time since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileTime {
    pub(crate) seconds: u64,
    pub(crate) nanoseconds: u32,
}

impl FileTime {
    /// Returns a whole second. The system counts up to `i64::MAX`, which stands for all later ones.
    pub(crate) fn second(seconds: u64) -> FileTime {
        FileTime { seconds: seconds.min(i64::MAX as u64), nanoseconds: 0 }
    }

    /// Returns when a file was written last.
    pub(crate) fn modified(about: &Metadata) -> FileTime {
        // A time before 1970 is no later than any other.
        let seconds = u64::try_from(about.mtime()).unwrap_or(0);
        FileTime { seconds, nanoseconds: about.mtime_nsec() as u32 }
    }

    pub(crate) fn as_timespec(self) -> Timespec {
        Timespec { tv_sec: self.seconds as i64, tv_nsec: self.nanoseconds.into() }
    }

    /// Returns the next nanosecond.
    pub(crate) fn next(self) -> FileTime {
        match self.nanoseconds + 1 {
            NANOSECONDS => FileTime::second(self.seconds + 1),
            nanoseconds => FileTime { nanoseconds, ..self },
        }
    }
}

/// The times of the files of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTimes {
    /// Of all but those below.
    base: FileTime,
    /// Of files and folders that a switch brought, by the hash of their paths. Two paths of one hash have one
    /// time: at worst a file that is the same is built again.
    later: Vec<(u32, FileTime)>,
    /// A filter: the low bits of a hash choose a bit, which is set if a hash in `later` has the same low
    /// bits. If it is not set, [`FileTimes::of`] need not search.
    filter: Vec<u64>,
}

impl FileTimes {
    /// Returns the times of files of which all have the time `seconds`, since 1970.
    pub(crate) fn all(seconds: u64) -> FileTimes {
        FileTimes::new(FileTime::second(seconds), Vec::new())
    }

    /// Returns the times of files of which all have the time `base` but those `later`, which ascend.
    fn new(base: FileTime, later: Vec<(u32, FileTime)>) -> FileTimes {
        // At least 8 bits for each hash.
        let mut filter = vec![0_u64; (later.len() / 8 + 1).next_power_of_two()];
        for (path, _) in &later {
            let (word, mask) = filter_bit(*path, filter.len());
            filter[word] |= mask;
        }
        FileTimes { base, later, filter }
    }

    /// Returns the time of the file or folder the path of which has the hash `path`.
    pub(crate) fn of(&self, path: u32) -> FileTime {
        let (word, mask) = filter_bit(path, self.filter.len());
        if self.filter[word] & mask == 0 {
            return self.base;
        }
        let found = self.later.binary_search_by_key(&path, |(path, _)| *path);
        found.map_or(self.base, |at| self.later[at].1)
    }

    /// Returns the times after a switch that brought files and folders at `time`, each of which is named by
    /// the hash of its path.
    pub(crate) fn after(&self, time: FileTime, files: impl Iterator<Item = u32>) -> FileTimes {
        let mut later: BTreeMap<u32, FileTime> = self.later.iter().copied().collect();
        later.extend(files.map(|path| (path, time)));
        FileTimes::new(self.base, later.into_iter().collect())
    }

    /// Writes the file `path`.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut data = MAGIC.to_vec();
        data.extend_from_slice(&self.base.seconds.to_le_bytes());
        for (path, time) in &self.later {
            data.extend_from_slice(&path.to_le_bytes());
            data.extend_from_slice(&time.nanoseconds.to_le_bytes());
            data.extend_from_slice(&time.seconds.to_le_bytes());
        }
        replace_file(path, &data)
    }

    /// Reads the file `path`. If it is gone or damaged, as after a loss of power, all files have the time of
    /// the next second, so that a build tool builds what may have changed.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<FileTimes> {
        let data = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            data => data.map_err(Error::on(path))?,
        };
        Ok(FileTimes::parse(&data).unwrap_or_else(|| {
            tracing::warn!("'{}' is gone or damaged: all files have the time of now", path.display());
            FileTimes::all(now().as_secs() + 1)
        }))
    }

    fn parse(data: &[u8]) -> Option<FileTimes> {
        let (seconds, records) = data.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
        let (records, rest) = records.as_chunks::<RECORD_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes);
        let mut later = Vec::with_capacity(records.len());
        for record in records {
            let (path, nanoseconds) = (number(&record[..4]).ok()?, number(&record[4..8]).ok()?);
            let seconds = u64::from_le_bytes(record[8..].try_into().ok()?);
            later.push((path, FileTime { seconds, nanoseconds }));
        }
        let is_sorted = later.is_sorted_by(|(a, _), (b, _)| a < b);
        // An index has no later time.
        let is_time = |time: &FileTime| time.seconds <= u32::MAX.into() && time.nanoseconds < NANOSECONDS;
        let base = FileTime::second(u64::from_le_bytes(*seconds));
        let has_times = is_time(&base) && later.iter().all(|(_, time)| is_time(time));
        (is_sorted && has_times).then(|| FileTimes::new(base, later))
    }
}

/// Returns where a filter of `words` words, a power of two, has the bit for the hash `path`: the number of
/// the word, and a mask of the bit.
fn filter_bit(path: u32, words: usize) -> (usize, u64) {
    ((path / 64) as usize & (words - 1), 1 << (path % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_many_files_has_its_own_time() {
        let hash = |n: u64| (n * 2_654_435_761 % (1 << 32)) as u32;
        let mut times = FileTimes::all(5);
        for seconds in 6..9 {
            times = times.after(FileTime::second(seconds), (0..1000).map(|n| hash(n * 3 + seconds % 3)));
        }
        assert!((0..3000).all(|n| times.of(hash(n)).seconds == 6 + n % 3));
        assert!((3000..9000).all(|n| times.of(hash(n)).seconds == 5));
    }

    #[test]
    fn files_have_the_time_of_the_switch_that_brought_them() {
        let dir = weir_testing::folder();
        let at = dir.path().join("times");
        let (first, second) = (FileTime { seconds: 7, nanoseconds: 999_999_999 }, FileTime::second(9));
        let times = FileTimes::all(5).after(first, [30, 10].into_iter());
        let times = times.after(second, [10, 40].into_iter());
        times.write(&at).unwrap();
        let read = FileTimes::read(&at).unwrap();
        assert_eq!(read, times);
        let of = [10, 20, 30, 40].map(|path| read.of(path));
        assert_eq!(of, [second, FileTime::second(5), first, second]);
        assert_eq!(first.next(), FileTime::second(8));
    }

    #[test]
    fn damage_makes_all_files_new() {
        let dir = weir_testing::folder();
        let at = dir.path().join("times");
        let times = FileTimes::all(5).after(FileTime::second(7), [1, 2].into_iter());
        times.write(&at).unwrap();
        let whole = fs::read(&at).unwrap();
        let swapped = [&whole[..16], &whole[32..48], &whole[16..32]].concat();
        let now = fs::metadata(&at).unwrap().mtime() as u64;
        let far = [&whole[..16], &[0xff; 8], &[0x7f; 8]].concat();
        for damaged in [&b""[..], &far, &whole[..8], &whole[..40], &swapped, b"weirtim2\0\0\0\0\0\0\0\0"] {
            fs::write(&at, damaged).unwrap();
            let read = FileTimes::read(&at).unwrap();
            assert!(read.of(1).seconds > now && read.later.is_empty(), "{damaged:?}");
        }
        fs::remove_file(&at).unwrap();
        assert!(FileTimes::read(&at).unwrap().of(1).seconds > now);
    }

    #[test]
    fn times_that_no_index_has_are_damage() {
        let bytes = |base: u64, later: &[(u32, u32, u64)]| {
            let mut data = [MAGIC.as_slice(), &base.to_le_bytes()].concat();
            for (path, nanoseconds, seconds) in later {
                data.extend(
                    [&path.to_le_bytes()[..], &nanoseconds.to_le_bytes(), &seconds.to_le_bytes()].concat(),
                );
            }
            data
        };
        let last = u64::from(u32::MAX);
        for (base, later, is_sound) in [
            (0, &[][..], true),
            (last, &[], true),
            (last + 1, &[], false),
            (5, &[(1, 999_999_999, last), (2, 0, 0)], true),
            (5, &[(1, 1_000_000_000, 7)], false),
            (5, &[(1, 0, last + 1)], false),
            (5, &[(1, 0, 7), (1, 0, 8)], false),
            (5, &[(2, 0, 7), (1, 0, 8)], false),
        ] {
            let parsed = FileTimes::parse(&bytes(base, later));
            let time = |(path, nanoseconds, seconds): &(u32, u32, u64)| {
                (*path, FileTime { seconds: *seconds, nanoseconds: *nanoseconds })
            };
            let expected = FileTimes::new(FileTime::second(base), later.iter().map(time).collect());
            assert_eq!(parsed, is_sound.then_some(expected), "{base} {later:?}");
        }
        assert_eq!(FileTime::second(u64::MAX), FileTime { seconds: i64::MAX as u64, nanoseconds: 0 });
        let before = FileTime { seconds: 7, nanoseconds: 999_999_998 };
        assert_eq!(before.next(), FileTime { seconds: 7, nanoseconds: 999_999_999 });
        let spec = before.as_timespec();
        assert_eq!((spec.tv_sec, spec.tv_nsec), (7, 999_999_998));
        assert_eq!(
            [(0, 1), (63, 1), (64, 1), (130, 4)].map(|(path, words)| filter_bit(path, words)),
            [(0, 1), (0, 1 << 63), (0, 1), (2, 4),]
        );
    }
}
