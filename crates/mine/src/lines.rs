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

use crate::path_search::{PathSearch, rough_root};
use crate::tree_steps::{common_end, common_start};

/// Lines that occur in the other file at least this often count as frequent, however long the file is.
const FREQUENT_MAX: u64 = 1024;
/// How far the neighbours of a frequent line are looked at.
const NEIGHBOURS_MAX: usize = 100;
/// A frequent line is set aside if lines without a match among its neighbours are more than this many times
/// as many as frequent ones.
const NEIGHBOUR_SHARE: usize = 3;
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
    search: PathSearch,
}

/// Sets of equal lines. Their lines lie in the middle of the old or of the new file.
#[derive(Default)]
struct Classes {
    /// An open hash table of places in the list, one more than them; 0 is free.
    table: Vec<u32>,
    list: Vec<Class>,
    hasher: OidBuildHasher,
}

struct Class {
    hash: u64,
    start: usize,
    len: usize,
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
struct Middles<'a> {
    old: &'a [u8],
    new: &'a [u8],
}

/// Returns the number of lines of `data`. Bytes behind the last line break are a line.
pub(crate) fn line_count(data: &[u8]) -> u64 {
    let breaks = memchr_iter(b'\n', data).count() as u64;
    breaks + u64::from(data.last().is_some_and(|&c| c != b'\n'))
}

/// Calls `each` with where each line of `data` starts and ends. The line break belongs to the line.
#[inline]
fn each_line(data: &[u8], mut each: impl FnMut(usize, usize)) {
    let mut at = 0;
    while at < data.len() {
        let end = memchr(b'\n', &data[at..]).map_or(data.len(), |n| at + n + 1);
        each(at, end);
        at = end;
    }
}

impl LineCounter {
    /// Returns how many lines differ between `old` and `new`.
    pub fn count(&mut self, old: &[u8], new: &[u8]) -> LineCounts {
        let (start, end) = equal_ends(old, new);
        let middles = Middles { old: &old[start..old.len() - end], new: &new[start..new.len() - end] };
        if middles.old.is_empty() || middles.new.is_empty() {
            return LineCounts { insertions: line_count(middles.new), deletions: line_count(middles.old) };
        }
        self.classify(middles);
        let (olds, news) = (self.old.len(), self.new.len());
        if !self.classes.list.iter().any(Class::is_shared) {
            return LineCounts { insertions: news as u64, deletions: olds as u64 };
        }
        let shared = |line: &&u32| self.classes.list[**line as usize].is_shared();
        if olds + news <= CHEAP_LINES
            && !may_set_aside(&self.old, &self.classes)
            && !may_set_aside(&self.new, &self.classes)
        {
            self.search.old.clear();
            self.search.old.extend(self.old.iter().filter(shared));
            self.search.new.clear();
            self.search.new.extend(self.new.iter().filter(shared));
        } else {
            let around = [&old[..start], &old[old.len() - end..]];
            around.iter().for_each(|part| self.classes.count_around(part, middles));
            let lines_around = line_count(around[0]) + line_count(around[1]);
            let (classes, search) = (&self.classes.list, &mut self.search);
            let in_new = |line: u32| classes[line as usize].in_new + classes[line as usize].around;
            let in_old = |line: u32| classes[line as usize].in_old + classes[line as usize].around;
            set_aside(&self.old, lines_around + olds as u64, in_new, &mut search.old);
            set_aside(&self.new, lines_around + news as u64, in_old, &mut search.new);
        }
        let kept = self.search.common();
        LineCounts { insertions: news as u64 - kept, deletions: olds as u64 - kept }
    }

    fn classify(&mut self, middles: Middles<'_>) {
        let lines = middles.old.len().min(1 << 16) / 16 + middles.new.len().min(1 << 16) / 16;
        self.classes.clear(lines);
        self.old.clear();
        self.new.clear();
        each_line(middles.old, |start, end| {
            let class = self.classes.place(middles, true, start, end);
            self.classes.list[class as usize].in_old += 1;
            self.old.push(class);
        });
        each_line(middles.new, |start, end| {
            let class = self.classes.place(middles, false, start, end);
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
    fn place(&mut self, middles: Middles<'_>, is_in_old_file: bool, start: usize, end: usize) -> u32 {
        let line = if is_in_old_file { &middles.old[start..end] } else { &middles.new[start..end] };
        let hash = self.hasher.hash_one(line);
        let slot = match self.find(middles, line, hash) {
            Ok(class) => return class,
            Err(slot) => slot,
        };
        let class = self.list.len() as u32;
        self.list.push(Class {
            hash,
            start,
            len: end - start,
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
    fn find(&self, middles: Middles<'_>, line: &[u8], hash: u64) -> Result<u32, usize> {
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let Some(place) = self.table[slot].checked_sub(1) else { return Err(slot) };
            let class = &self.list[place as usize];
            if class.hash == hash && class.len == line.len() {
                let data = if class.is_in_old_file { middles.old } else { middles.new };
                if data[class.start..class.start + class.len] == *line {
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
        each_line(part, |start, end| {
            let line = &part[start..end];
            if let Ok(class) = self.find(middles, line, self.hasher.hash_one(line)) {
                self.list[class as usize].around += 1;
            }
        });
    }
}

/// Returns how many bytes at the start and at the end are whole lines that both files have.
fn equal_ends(old: &[u8], new: &[u8]) -> (usize, usize) {
    let same = common_start(old, new);
    if same == old.len() && same == new.len() {
        return (same, 0);
    }
    let start = memrchr(b'\n', &old[..same]).map_or(0, |at| at + 1);
    let (old, new) = (&old[start..], &new[start..]);
    let same = common_end(old, new);
    let starts_line = |data: &[u8], at: usize| at == 0 || data[at - 1] == b'\n';
    let (old_at, new_at) = (old.len() - same, new.len() - same);
    if starts_line(old, old_at) && starts_line(new, new_at) {
        return (start, same);
    }
    let end = memchr(b'\n', &old[old_at..]).map_or(0, |at| same - at - 1);
    (start, end)
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

/// Fills `kept` with the lines that are compared: those that the other file has, without frequent lines that
/// stand between lines that it has not. `count` is that of all lines of the file.
fn set_aside(lines: &[u32], count: u64, in_other: impl Fn(u32) -> u32, kept: &mut Vec<u32>) {
    let often = rough_root(count).min(FREQUENT_MAX);
    let matches: Vec<Matches> = lines
        .iter()
        .map(|&line| match u64::from(in_other(line)) {
            0 => Matches::Never,
            n if n >= often => Matches::Often,
            _ => Matches::Sometimes,
        })
        .collect();
    kept.clear();
    kept.extend(lines.iter().enumerate().filter_map(|(at, &line)| {
        let is_kept = match matches[at] {
            Matches::Never => false,
            Matches::Sometimes => true,
            Matches::Often => !is_among_unmatched(&matches, at),
        };
        is_kept.then_some(line)
    }));
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
