//! How many lines differ between two files, as `git diff --numstat` counts them (xdiff, Myers).
//!
//! git's algorithm takes shortcuts, and its counts depend on them. This is the same algorithm, shortcuts
//! included: lines without a match are set aside, so are frequent lines between them, and where the search
//! gets expensive it settles for less than the best. Where none of the shortcuts can apply, the number of
//! changed lines depends on nothing but the longest common subsequence, and only the part in which the files
//! differ is looked at.

use std::hash::BuildHasher;

use memchr::{memchr, memchr_iter, memrchr};
use weir_git::OidBuildHasher;
use weir_repo::{DeltaOp, delta_ops};

use crate::path_search::{FileSide, PathSearch, rough_root};

/// Lines that occur in the other file at least this often count as frequent, however long the file is.
const FREQUENT_MAX: u64 = 1024;
/// How far the neighbours of a frequent line are looked at.
const NEIGHBOURS_MAX: usize = 100;
/// A frequent line is set aside if lines without a match among its neighbours are more than this many times
/// as many as frequent ones.
const NEIGHBOUR_SHARE: usize = 3;
const _: () = assert!(NEIGHBOUR_SHARE > 0, "it divides");
/// Files whose middles have at most this many lines together cannot cost as much.
const CHEAP_LINES: usize = 500;

/// The numbers of lines that differ between two files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Lines that only the new file has.
    pub insertions: u64,
    /// Lines that only the old file has.
    pub deletions: u64,
}

/// Counts lines. Has buffers of its own.
#[derive(Default)]
pub struct LineCounter {
    classes: Classes,
    /// The classes of the lines of both middles.
    old: Vec<u32>,
    new: Vec<u32>,
    pub(crate) search: PathSearch,
}

/// Sets of equal lines. Their lines lie in the middle of the old or of the new file.
#[derive(Default)]
struct Classes {
    /// An open hash table of places in the list, one more than them; 0 is free.
    table: Vec<u32>,
    list: Vec<Class>,
    keys: LineKeys,
}

struct Class {
    hash: u32,
    start: u32,
    len: u32,
    is_in_old_file: bool,
    /// The number of such lines in the middle of each file.
    in_old: u32,
    in_new: u32,
    /// The number of such lines around the middles, where the files are equal.
    around: u32,
}

impl Class {
    fn is_shared(&self) -> bool {
        self.in_old > 0 && self.in_new > 0
    }
}

/// The middles of two files.
#[derive(Clone, Copy)]
pub(crate) struct Middles<'a> {
    pub(crate) old: &'a [u8],
    pub(crate) new: &'a [u8],
}

/// Returns the number of lines of `data`. Bytes behind the last line break are a line.
pub(crate) fn line_count(data: &[u8]) -> u64 {
    let breaks = memchr_iter(b'\n', data).count() as u64;
    breaks + u64::from(data.last().is_some_and(|&c| c != b'\n'))
}

/// Returns the number of bytes with which both start.
fn common_start(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = 0;
    for step in [512, 64, 8] {
        let alike =
            a[at..].chunks_exact(step).zip(b[at..].chunks_exact(step)).take_while(|(a, b)| a == b).count();
        at += alike * step;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

/// Returns the number of bytes with which both end.
fn common_end(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[a.len() - len..], &b[b.len() - len..]);
    let mut at = 0;
    for step in [512, 64, 8] {
        let (a, b) = (&a[..len - at], &b[..len - at]);
        let alike = a.rchunks_exact(step).zip(b.rchunks_exact(step)).take_while(|(a, b)| a == b).count();
        at += alike * step;
    }
    at + a[..len - at].iter().rev().zip(b[..len - at].iter().rev()).take_while(|(a, b)| a == b).count()
}

/// A line of a file. The line break belongs to it.
#[derive(Clone, Copy)]
struct FileLine<'a> {
    start: usize,
    bytes: &'a [u8],
    hash: u32,
}

/// Calls `each` with each line of `data`.
#[inline]
fn each_line<'a>(keys: LineKeys, data: &'a [u8], mut each: impl FnMut(FileLine<'a>)) {
    let mut start = 0;
    while start < data.len() {
        let (hash, len) = keys.hash_line(&data[start..]);
        each(FileLine { start, bytes: &data[start..start + len], hash });
        start += len;
    }
}

/// Hashes lines, with keys of this process: who writes a file cannot make its lines collide.
#[derive(Clone, Copy)]
struct LineKeys([u64; 2]);

impl Default for LineKeys {
    fn default() -> LineKeys {
        let hasher = OidBuildHasher::default();
        LineKeys([0u8, 1].map(|n| hasher.hash_one([n])))
    }
}

impl LineKeys {
    /// Returns the hash of the line at the start of `data`, and its length. The end is found on the way: a
    /// search and a hash of their own take twice the time, with lines as short as those of programs.
    #[inline]
    fn hash_line(self, data: &[u8]) -> (u32, usize) {
        let LineKeys([mut state, key]) = self;
        let mut len = 0;
        loop {
            let (first, second, is_last) = match data[len..].first_chunk() {
                Some(chunk) => {
                    let (first, second) = two_words(chunk);
                    (first, second, false)
                }
                None => {
                    let mut bytes = [0; 16];
                    bytes[..data.len() - len].copy_from_slice(&data[len..]);
                    let (first, second) = two_words(&bytes);
                    (first, second, true)
                }
            };
            let (in_first, in_second) = (line_breaks(first), line_breaks(second));
            if in_first | in_second == 0 && !is_last {
                state = fold(state ^ first, key ^ second);
                len += 16;
                continue;
            }
            // The bytes up to the line break, or up to the end of the file, behind which there are zeros.
            let (first, second, count) = if in_first != 0 {
                (first & up_to_lowest(in_first), 0, in_first.trailing_zeros() / 8 + 1)
            } else if in_second != 0 {
                (first, second & up_to_lowest(in_second), in_second.trailing_zeros() / 8 + 9)
            } else {
                (first, second, (data.len() - len) as u32)
            };
            len += count as usize;
            return (fold(state ^ first, key ^ second) as u32, len);
        }
    }
}

#[inline]
fn two_words(bytes: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*bytes);
    (both as u64, (both >> 64) as u64)
}

/// Returns a word whose lowest bit that is set is the highest bit of the first line break in `word`; 0 if
/// there is none.
#[inline]
fn line_breaks(word: u64) -> u64 {
    let other = word ^ 0x0a0a_0a0a_0a0a_0a0a;
    other.wrapping_sub(0x0101_0101_0101_0101) & !other & 0x8080_8080_8080_8080
}

/// Returns the bits up to the lowest one that is set.
#[inline]
fn up_to_lowest(bits: u64) -> u64 {
    bits ^ (bits - 1)
}

/// Folds both halves of a product: each bit of the result depends on all bits of both factors.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl LineCounter {
    /// Returns how many lines differ between `old` and `new`.
    pub fn count(&mut self, old: &[u8], new: &[u8]) -> LineCounts {
        self.count_between(old, new, EqualEnds::default())
    }

    /// Returns how many lines differ between `old` and `new`, of which `known` is equal.
    pub(crate) fn count_between(&mut self, old: &[u8], new: &[u8], known: EqualEnds) -> LineCounts {
        let EqualEnds { start, end } = known.in_lines(old, new);
        let middles = Middles { old: &old[start..old.len() - end], new: &new[start..new.len() - end] };
        if middles.old.is_empty() || middles.new.is_empty() {
            return LineCounts { insertions: line_count(middles.new), deletions: line_count(middles.old) };
        }
        self.classify(middles);
        let (olds, news) = (self.old.len(), self.new.len());
        if !self.classes.list.iter().any(Class::is_shared) {
            return LineCounts { insertions: news as u64, deletions: olds as u64 };
        }
        self.search.old.clear();
        self.search.new.clear();
        let ends = EqualEnds { start, end };
        self.choose(old, new, ends, false, |search, side, _, class| match side {
            FileSide::Old => search.old.push(class),
            FileSide::New => search.new.push(class),
        });
        let kept = self.search.common();
        LineCounts { insertions: news as u64 - kept, deletions: olds as u64 - kept }
    }

    /// Calls `keep` with the place in the middle and the class of each line that the search compares, of the
    /// old file first. The middles, which lie between `ends`, were classified before. Lines that only parts
    /// around the middles have do not change how many lines differ, but which (`decides_which`).
    pub(crate) fn choose(
        &mut self,
        old: &[u8],
        new: &[u8],
        ends: EqualEnds,
        decides_which: bool,
        mut keep: impl FnMut(&mut PathSearch, FileSide, usize, u32),
    ) {
        let EqualEnds { start, end } = ends;
        let (classes, search) = (&mut self.classes, &mut self.search);
        let shared = classes.list.iter().filter(|class| class.is_shared()).count();
        let needs_all = decides_which && shared > 0 && shared < classes.list.len();
        if !needs_all
            && self.old.len() + self.new.len() <= CHEAP_LINES
            && !may_set_aside(&self.old, classes)
            && !may_set_aside(&self.new, classes)
        {
            for (side, lines) in [(FileSide::Old, &self.old), (FileSide::New, &self.new)] {
                for (at, &line) in lines.iter().enumerate() {
                    if classes.list[line as usize].is_shared() {
                        keep(search, side, at, line);
                    }
                }
            }
            return;
        }
        let middles = Middles { old: &old[start..old.len() - end], new: &new[start..new.len() - end] };
        let around = [&old[..start], &old[old.len() - end..]];
        around.iter().for_each(|part| classes.count_around(part, middles));
        let lines_around = line_count(around[0]) + line_count(around[1]);
        let list = &classes.list;
        let in_new = |line: u32| list[line as usize].in_new + list[line as usize].around;
        let in_old = |line: u32| list[line as usize].in_old + list[line as usize].around;
        let count = |lines: &Vec<u32>| lines_around + lines.len() as u64;
        set_aside(&self.old, count(&self.old), in_new, |at, line| keep(search, FileSide::Old, at, line));
        set_aside(&self.new, count(&self.new), in_old, |at, line| keep(search, FileSide::New, at, line));
    }

    /// Returns the numbers of lines of the middles that were classified.
    pub(crate) fn middle_lines(&self) -> (usize, usize) {
        (self.old.len(), self.new.len())
    }

    /// Finds the classes of the lines of `middles`.
    pub(crate) fn classify(&mut self, middles: Middles<'_>) {
        let lines = middles.old.len().min(1 << 16) / 16 + middles.new.len().min(1 << 16) / 16;
        self.classes.clear(lines);
        self.old.clear();
        self.new.clear();
        each_line(self.classes.keys, middles.old, |line| {
            let class = self.classes.place(middles, true, line);
            self.classes.list[class as usize].in_old += 1;
            self.old.push(class);
        });
        each_line(self.classes.keys, middles.new, |line| {
            let class = self.classes.place(middles, false, line);
            self.classes.list[class as usize].in_new += 1;
            self.new.push(class);
        });
    }
}

impl Classes {
    fn clear(&mut self, lines: usize) {
        let size = (lines * 2).next_power_of_two().max(64);
        self.list.clear();
        self.table.clear();
        self.table.resize(size, 0);
    }

    /// Returns the class of a line; makes it if there is none.
    fn place(&mut self, middles: Middles<'_>, is_in_old_file: bool, line: FileLine<'_>) -> u32 {
        let slot = match self.find(middles, line) {
            Ok(class) => return class,
            Err(slot) => slot,
        };
        let class = self.list.len() as u32;
        self.list.push(Class {
            hash: line.hash,
            start: line.start as u32,
            len: line.bytes.len() as u32,
            is_in_old_file,
            in_old: 0,
            in_new: 0,
            around: 0,
        });
        self.table[slot] = class + 1;
        if self.list.len() * 2 > self.table.len() {
            self.grow();
        }
        class
    }

    /// Returns the class of `line`, or the free place in the table where it belongs.
    #[inline]
    fn find(&self, middles: Middles<'_>, line: FileLine<'_>) -> Result<u32, usize> {
        let mask = self.table.len() - 1;
        let mut slot = line.hash as usize & mask;
        loop {
            let Some(place) = self.table[slot].checked_sub(1) else { return Err(slot) };
            let class = &self.list[place as usize];
            if class.hash == line.hash && class.len as usize == line.bytes.len() {
                let data = if class.is_in_old_file { middles.old } else { middles.new };
                if data[class.start as usize..][..class.len as usize] == *line.bytes {
                    return Ok(place);
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let size = self.table.len() * 4;
        self.table.clear();
        self.table.resize(size, 0);
        for (place, class) in (1u32..).zip(&self.list) {
            let mut slot = class.hash as usize & (size - 1);
            while self.table[slot] != 0 {
                slot = (slot + 1) & (size - 1);
            }
            self.table[slot] = place;
        }
    }

    /// Counts the lines of `part`, which lies around the middles.
    fn count_around(&mut self, part: &[u8], middles: Middles<'_>) {
        each_line(self.keys, part, |line| {
            if let Ok(class) = self.find(middles, line) {
                self.list[class as usize].around += 1;
            }
        });
    }
}

/// The numbers of bytes with which two files start and end alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EqualEnds {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl EqualEnds {
    /// Returns what `delta` says of its base and its result: what it copies first and last.
    pub(crate) fn of_delta(base: &[u8], delta: &[u8]) -> EqualEnds {
        let mut ends = EqualEnds::default();
        let mut made = 0;
        for op in delta_ops(delta) {
            let DeltaOp::Copy { offset, len } = op else {
                (ends.end, made) = (0, usize::MAX);
                continue;
            };
            if offset == made {
                (ends.start, made) = (made + len, made + len);
            } else {
                made = usize::MAX;
            }
            ends.end = if offset + len == base.len() { len } else { 0 };
        }
        ends
    }

    /// Returns how many bytes at the start and at the end are whole lines that both files have, of which
    /// `self` is known.
    pub(crate) fn in_lines(self, old: &[u8], new: &[u8]) -> EqualEnds {
        let same = self.start + common_start(&old[self.start..], &new[self.start..]);
        if same == old.len() && same == new.len() {
            return EqualEnds { start: same, end: 0 };
        }
        let start = memrchr(b'\n', &old[..same]).map_or(0, |at| at + 1);
        let (old, new) = (&old[start..], &new[start..]);
        let known = self.end.min(old.len()).min(new.len());
        let same = known + common_end(&old[..old.len() - known], &new[..new.len() - known]);
        let starts_line = |data: &[u8], at: usize| at == 0 || data[at - 1] == b'\n';
        let (old_at, new_at) = (old.len() - same, new.len() - same);
        if starts_line(old, old_at) && starts_line(new, new_at) {
            return EqualEnds { start, end: same };
        }
        let end = memchr(b'\n', &old[old_at..]).map_or(0, |at| same - at - 1);
        EqualEnds { start, end }
    }
}

/// Returns whether a frequent line could be set aside, if all lines that could be frequent were, and all
/// others had no match.
fn may_set_aside(lines: &[u32], classes: &Classes) -> bool {
    // A line is set aside if, in a run around it, lines without a match are more than three times as many as
    // frequent lines, itself counted twice: so the most that runs on both sides can add to that must be above
    // six.
    let weight =
        |line: &u32| if classes.list[*line as usize].is_shared() { -(NEIGHBOUR_SHARE as i64) } else { 1 };
    let mut before = 0i64;
    let mut best_after = vec![0i64; lines.len() + 1];
    for (at, line) in lines.iter().enumerate().rev() {
        best_after[at] = (best_after[at + 1] + weight(line)).max(0);
    }
    lines.iter().enumerate().any(|(at, line)| {
        let most = before + best_after[at + 1];
        before = (before + weight(line)).max(0);
        weight(line) < 0 && most > 2 * NEIGHBOUR_SHARE as i64
    })
}

/// How often a line occurs in the other file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matches {
    Never,
    Sometimes,
    Often,
}

/// Calls `keep` with the place and the class of each line that is compared: those that the other file has,
/// without frequent lines that stand between lines that it has not. `count` is that of all lines of the file.
fn set_aside(lines: &[u32], count: u64, in_other: impl Fn(u32) -> u32, mut keep: impl FnMut(usize, u32)) {
    let often = rough_root(count).min(FREQUENT_MAX);
    let matches: Vec<Matches> = lines
        .iter()
        .map(|&line| match u64::from(in_other(line)) {
            0 => Matches::Never,
            n if n >= often => Matches::Often,
            _ => Matches::Sometimes,
        })
        .collect();
    for (at, &line) in lines.iter().enumerate() {
        let is_kept = match matches[at] {
            Matches::Never => false,
            Matches::Sometimes => true,
            Matches::Often => !is_among_unmatched(&matches, at),
        };
        if is_kept {
            keep(at, line);
        }
    }
}

/// Returns whether the frequent line at `at` stands among lines without a match.
fn is_among_unmatched(matches: &[Matches], at: usize) -> bool {
    let count = |side: &mut dyn Iterator<Item = &Matches>| {
        let (mut never, mut often) = (0, 1);
        for found in side.take(NEIGHBOURS_MAX) {
            match found {
                Matches::Never => never += 1,
                Matches::Often => often += 1,
                Matches::Sometimes => break,
            }
        }
        (never, often)
    };
    let (never_before, often_before) = count(&mut matches[..at].iter().rev());
    if never_before == 0 {
        return false;
    }
    let (never_after, often_after) = count(&mut matches[at + 1..].iter());
    never_after > 0 && (often_before + often_after) * NEIGHBOUR_SHARE < never_before + never_after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_hash_whatever_follows_it() {
        let keys = LineKeys::default();
        for len in 0..70usize {
            let line: Vec<u8> = (0..len).map(|n| b'!' + (n % 90) as u8).chain([b'\n']).collect();
            let (hash, found) = keys.hash_line(&line);
            assert_eq!(found, line.len());
            for behind in [&b"\n"[..], b"x", b"\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", &[b'y'; 40]] {
                assert_eq!(keys.hash_line(&[&line, behind].concat()), (hash, line.len()), "{len}");
            }
            // Without its line break it is another line, and so it is with a NUL at its end.
            let bare = &line[..len];
            if len > 0 {
                assert_eq!(keys.hash_line(bare).1, len);
                assert_ne!(keys.hash_line(bare).0, hash, "{len}");
            }
        }
        assert_eq!(keys.hash_line(b"\x0b\n").1, 2, "a byte beside the line break's");
    }

    #[test]
    fn a_delta_tells_what_is_equal_at_the_ends() {
        let base = [7u8; 60];
        let copy = |offset: u8, len: u8| [0x80 | 0x01 | 0x10, offset, len];
        let of = |ops: &[&[u8]]| {
            let ends = EqualEnds::of_delta(&base, &[&[60, 1], ops.concat().as_slice()].concat());
            (ends.start, ends.end)
        };
        assert_eq!(of(&[&copy(0, 20), b"\x01x", &copy(30, 30)]), (20, 30));
        assert_eq!(of(&[&copy(0, 20), &copy(20, 5), b"\x01x"]), (25, 0));
        assert_eq!(of(&[b"\x01x", &copy(0, 60)]), (0, 60));
        assert_eq!(of(&[&copy(5, 20), &copy(0, 10), &copy(10, 10)]), (0, 0));
        assert_eq!(of(&[]), (0, 0));
    }
}
