//! The lines that differ between two files, as `git diff` and `git blame` show them (xdiff).
//!
//! Which of several equal lines differ is a matter of taste. This takes git's: groups of changed lines are
//! moved until they meet a group of the other file, or else to where the indentation looks best
//! (`xdl_change_compact` in xdiffi.c).

use std::ops::Range;

use memchr::memchr_iter;

use crate::lines::{EqualEnds, LineCounter, Middles};
use crate::path_search::FileSide;

/// Bytes that are compared at once at the ends of files (xdiff-interface.c, `trim_common_tail`).
const TAIL_BYTES: usize = 1024;
/// Larger indentations count as this one.
const INDENT_MAX: i32 = 200;
/// More blank lines count as this many.
const BLANKS_MAX: i32 = 20;
const _: () = assert!(BLANKS_MAX < INDENT_MAX, "blanks count less than an indent");
/// How far the best place of a group is searched, in lines.
const SLIDE_MAX: usize = 100;
/// How much the comparison of two indentations weighs beside penalties.
const INDENT_WEIGHT: i32 = 60;

/// The places where the lines of a file start.
#[derive(Clone, Debug, Default)]
pub struct LineStarts(Vec<u32>);

/// A file, and where its lines start.
#[derive(Clone, Copy)]
pub struct FileLines<'a> {
    data: &'a [u8],
    /// The start of each line, and behind them the end of the last one.
    starts: &'a [u32],
}

/// Lines that differ, by number, from 0 on. One side may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The lines of the old file.
    pub old: Range<u32>,
    /// The lines of the new file that are in their place.
    pub new: Range<u32>,
}

/// Finds the lines that differ between two files. Has buffers of its own.
#[derive(Default)]
pub struct EditFinder {
    counter: LineCounter,
    /// The places in the middles of the lines that are compared.
    old_places: Vec<u32>,
    new_places: Vec<u32>,
    old: ChangedLines,
    new: ChangedLines,
}

impl LineStarts {
    /// Returns where the lines of `data` start, which has less than 4 GiB.
    pub fn of(data: &[u8]) -> LineStarts {
        debug_assert!(u32::try_from(data.len()).is_ok(), "a line may start behind 4 GiB");
        let mut starts = vec![0];
        starts.extend(memchr_iter(b'\n', data).map(|at| at as u32 + 1));
        if data.last().is_some_and(|&last| last != b'\n') {
            starts.push(data.len() as u32);
        }
        LineStarts(starts)
    }

    /// Returns where the lines of `data` start, of which those of `other` are known: where both files begin
    /// and end alike, nothing is searched.
    pub fn beside(data: &[u8], other: FileLines<'_>) -> LineStarts {
        let EqualEnds { start, end } = EqualEnds::default().in_lines(data, other.data);
        let (first, last) = (other.number_at(start), other.number_at(other.data.len() - end));
        let mut starts = Vec::with_capacity(other.starts.len());
        starts.extend_from_slice(&other.starts[..first]);
        let middle = LineStarts::of(&data[start..data.len() - end]);
        starts.extend(middle.0.iter().map(|at| at + start as u32));
        let behind = &other.starts[last..];
        let shift = (data.len() as u32).wrapping_sub(other.data.len() as u32);
        starts.extend(behind.iter().skip(1).map(|at| at.wrapping_add(shift)));
        debug_assert_eq!(starts, LineStarts::of(data).0, "what is known of the other file is wrong");
        LineStarts(starts)
    }

    /// Returns the number of lines.
    pub fn count(&self) -> usize {
        self.0.len() - 1
    }
}

impl<'a> FileLines<'a> {
    /// Returns the lines of `data`, which start at `starts`.
    pub fn new(data: &'a [u8], starts: &'a LineStarts) -> FileLines<'a> {
        debug_assert_eq!(starts.0.last(), Some(&(data.len() as u32)), "the starts are of another file");
        FileLines { data, starts: &starts.0 }
    }

    /// Returns the number of lines.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the line `number`, with its line break.
    ///
    /// # Panics
    /// If there is none.
    pub fn line(&self, number: usize) -> &'a [u8] {
        &self.data[self.starts[number] as usize..self.starts[number + 1] as usize]
    }

    /// Returns the lines in the first `len` bytes, which end with a line.
    fn cut(self, len: usize) -> FileLines<'a> {
        let count = self.number_at(len);
        FileLines { data: &self.data[..len], starts: &self.starts[..=count] }
    }

    /// Returns the number of the line that starts at byte `at`, or behind it.
    fn number_at(&self, at: usize) -> usize {
        self.starts.partition_point(|&start| (start as usize) < at)
    }
}

/// The changed lines of a file: one flag a line, and one that is false on either side.
#[derive(Default)]
struct ChangedLines(Vec<bool>);

impl ChangedLines {
    fn reset(&mut self, count: usize) {
        self.0.clear();
        self.0.resize(count + 2, false);
    }

    fn is_changed(&self, line: usize) -> bool {
        self.0[line + 1]
    }

    fn set(&mut self, line: usize, is_changed: bool) {
        self.0[line + 1] = is_changed;
    }

    /// Returns the number of lines that are not changed.
    fn unchanged(&self) -> usize {
        self.0.iter().filter(|is_changed| !**is_changed).count() - 2
    }

    fn first(&self) -> Option<usize> {
        self.0.iter().position(|&is_changed| is_changed).map(|at| at - 1)
    }

    fn last(&self) -> Option<usize> {
        self.0.iter().rposition(|&is_changed| is_changed).map(|at| at - 1)
    }

    /// Returns the first line at or behind `line` that is not changed.
    fn end_of_group(&self, line: usize) -> usize {
        (line..).find(|&line| !self.is_changed(line)).expect("the last flag is false")
    }

    /// Returns the first changed line of those right before `line`; else `line`.
    fn start_of_group(&self, mut line: usize) -> usize {
        // The flag of line `line - 1`.
        while self.0[line] {
            line -= 1;
        }
        line
    }
}

/// Changed lines between two that are not, or no lines there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LineGroup {
    start: usize,
    end: usize,
}

/// A file whose groups are moved.
struct SlidingFile<'s, 'a> {
    lines: FileLines<'a>,
    changed: &'s mut ChangedLines,
    group: LineGroup,
}

impl SlidingFile<'_, '_> {
    /// Goes to the group at or behind line `from`, before which nothing is changed.
    fn begin(&mut self, from: usize) {
        self.group = LineGroup { start: from, end: self.changed.end_of_group(from) };
    }

    fn is_empty(&self) -> bool {
        self.group.start == self.group.end
    }

    /// Goes to the next group. Returns false at the end of the file.
    fn next(&mut self) -> bool {
        if self.group.end == self.lines.count() {
            return false;
        }
        self.begin(self.group.end + 1);
        true
    }

    /// Goes to the group before.
    fn previous(&mut self) {
        let end = self.group.start - 1;
        self.group = LineGroup { start: self.changed.start_of_group(end), end };
    }

    /// Moves the group a line down. Returns false if it cannot be moved.
    fn slide_down(&mut self) -> bool {
        let LineGroup { start, end } = self.group;
        if end == self.lines.count() || self.lines.line(start) != self.lines.line(end) {
            return false;
        }
        self.changed.set(start, false);
        self.changed.set(end, true);
        self.group = LineGroup { start: start + 1, end: self.changed.end_of_group(end + 1) };
        true
    }

    /// Moves the group a line up. Returns false if it cannot be moved.
    fn slide_up(&mut self) -> bool {
        let LineGroup { start, end } = self.group;
        if start == 0 || self.lines.line(start - 1) != self.lines.line(end - 1) {
            return false;
        }
        self.changed.set(start - 1, true);
        self.changed.set(end - 1, false);
        self.group = LineGroup { start: self.changed.start_of_group(start - 1), end: end - 1 };
        true
    }

    /// Moves the groups of this file. A group of the `other` file stands between the same unchanged lines as
    /// that of this file.
    fn compact(&mut self, other: &mut SlidingFile<'_, '_>) {
        let Some(last) = self.changed.last() else { return };
        // Before the first change, both files are equal.
        let first = self.changed.first().into_iter().chain(other.changed.first()).min().unwrap_or_default();
        self.begin(first);
        other.begin(first);
        while self.group.start <= last {
            if !self.is_empty() {
                self.place_group(other);
            }
            if !(self.next() && other.next()) {
                break;
            }
        }
    }

    fn place_group(&mut self, other: &mut SlidingFile<'_, '_>) {
        let (earliest_end, len, meets_other) = loop {
            let len = self.group.end - self.group.start;
            while self.slide_up() {
                other.previous();
            }
            let earliest_end = self.group.end;
            let mut meets_other = !other.is_empty();
            while self.slide_down() {
                other.next();
                meets_other |= !other.is_empty();
            }
            // If the group met another one, both are moved together.
            if len == self.group.end - self.group.start {
                break (earliest_end, len, meets_other);
            }
        };
        if self.group.end == earliest_end {
            return;
        }
        if meets_other {
            while other.is_empty() && self.slide_up() {
                other.previous();
            }
        } else {
            let best = self.best_end(earliest_end, len);
            while self.group.end > best && self.slide_up() {
                other.previous();
            }
        }
    }

    /// Returns the end of the group, of `len` lines, where the indentation looks best.
    fn best_end(&self, earliest_end: usize, len: usize) -> usize {
        let end = self.group.end;
        let first = earliest_end.max(end.saturating_sub(len + 1)).max(end.saturating_sub(SLIDE_MAX));
        let score = |shift: usize| {
            let mut score = SplitScore::default();
            score.add(self.lines, shift);
            score.add(self.lines, shift - len);
            score
        };
        let mut best = (first, score(first));
        for shift in first + 1..=end {
            let score = score(shift);
            if !score.is_worse_than(best.1) {
                best = (shift, score);
            }
        }
        best.0
    }
}

/// How bad it looks to split a file at some places.
#[derive(Clone, Copy, Default)]
struct SplitScore {
    indent: i32,
    penalty: i32,
}

/// Returns the indentation of a line, in columns; `None` for a blank line.
fn indent(line: &[u8]) -> Option<i32> {
    let mut indent = 0;
    for byte in line {
        match byte {
            b' ' => indent += 1,
            b'\t' => indent += 8 - indent % 8,
            // git's isspace() knows no other white space.
            b'\n' | b'\r' => {}
            _ => return Some(indent),
        }
        if indent >= INDENT_MAX {
            return Some(INDENT_MAX);
        }
    }
    None
}

/// Returns the number of blank lines at the start of `lines`, and the indentation of the line behind them.
fn blanks<'l>(lines: impl Iterator<Item = &'l [u8]>) -> (i32, Option<i32>) {
    let mut count = 0;
    for line in lines {
        let indent = indent(line);
        if indent.is_some() {
            return (count, indent);
        }
        count += 1;
        if count == BLANKS_MAX {
            return (count, Some(0));
        }
    }
    (count, None)
}

impl SplitScore {
    /// Adds a split before the line `split` (`score_add_split`).
    fn add(&mut self, lines: FileLines<'_>, split: usize) {
        let is_at_end = split >= lines.count();
        let here = if is_at_end { None } else { indent(lines.line(split)) };
        let (blanks_before, before) = blanks((0..split).rev().map(|n| lines.line(n)));
        let (blanks_behind, behind) = blanks((split + 1..lines.count()).map(|n| lines.line(n)));
        if before.is_none() && blanks_before == 0 {
            self.penalty += 1;
        }
        if is_at_end {
            self.penalty += 21;
        }
        let blanks_from_here = if here.is_none() { 1 + blanks_behind } else { 0 };
        let all_blanks = blanks_before + blanks_from_here;
        self.penalty += -30 * all_blanks + 6 * blanks_from_here;
        let indent = here.or(behind);
        self.indent += indent.unwrap_or(-1);
        let (Some(indent), Some(before)) = (indent, before) else { return };
        let has_blanks = all_blanks != 0;
        let of = |with_blanks: i32, without: i32| if has_blanks { with_blanks } else { without };
        self.penalty += if indent > before {
            of(10, -4)
        } else if indent == before {
            0
        } else if behind.is_some_and(|behind| behind > indent) {
            of(17, 24)
        } else {
            of(17, 23)
        };
    }

    fn is_worse_than(self, other: SplitScore) -> bool {
        let indents = (self.indent > other.indent) as i32 - (self.indent < other.indent) as i32;
        INDENT_WEIGHT * indents + (self.penalty - other.penalty) > 0
    }
}

/// Returns the number of bytes that git does not look at if it shows no context: whole lines at the end that
/// are the same in both files.
fn common_tail(old: &[u8], new: &[u8]) -> usize {
    let blocks = old.rchunks_exact(TAIL_BYTES).zip(new.rchunks_exact(TAIL_BYTES));
    let len = blocks.take_while(|(old, new)| old == new).count() * TAIL_BYTES;
    let tail = &old[old.len() - len..];
    memchr::memchr(b'\n', tail).map_or(0, |at| len - at - 1)
}

impl EditFinder {
    /// Fills `edits` with the lines that differ between `old` and `new`, as `git diff` has them; or as
    /// `git blame` and `git diff -U0` have them, which do not look at what both have at the end
    /// (`skips_tail`).
    pub fn find(&mut self, old: FileLines<'_>, new: FileLines<'_>, skips_tail: bool, edits: &mut Vec<Edit>) {
        edits.clear();
        let tail = if skips_tail { common_tail(old.data, new.data) } else { 0 };
        let (old, new) = (old.cut(old.data.len() - tail), new.cut(new.data.len() - tail));
        let ends = EqualEnds::default().in_lines(old.data, new.data);
        let first = old.number_at(ends.start);
        self.old.reset(old.count());
        self.new.reset(new.count());
        let range = |lines: FileLines<'_>| first..lines.number_at(lines.data.len() - ends.end);
        let (old_middle, new_middle) = (range(old), range(new));
        if old_middle.is_empty() && new_middle.is_empty() {
            return;
        }
        if old_middle.is_empty() || new_middle.is_empty() {
            old_middle.for_each(|line| self.old.set(line, true));
            new_middle.for_each(|line| self.new.set(line, true));
        } else {
            self.mark(old, new, ends, first);
        }
        let group = LineGroup { start: 0, end: 0 };
        let mut old_file = SlidingFile { lines: old, changed: &mut self.old, group };
        let mut new_file = SlidingFile { lines: new, changed: &mut self.new, group };
        old_file.compact(&mut new_file);
        new_file.compact(&mut old_file);
        debug_assert_eq!(self.old.unchanged(), self.new.unchanged(), "a line stays in one file only");
        self.edits(old.count(), new.count(), edits);
        let are_apart = |a: &Edit, b: &Edit| a.old.end < b.old.start && a.new.end < b.new.start;
        debug_assert!(edits.is_sorted_by(are_apart), "no line stays between two edits");
    }

    /// Marks the lines of the middles, which begin with line `first`, that are not on the path of the search.
    fn mark(&mut self, old: FileLines<'_>, new: FileLines<'_>, ends: EqualEnds, first: usize) {
        let middle = |data: &'_ [u8]| ends.start..data.len() - ends.end;
        let middles = Middles { old: &old.data[middle(old.data)], new: &new.data[middle(new.data)] };
        self.counter.classify(middles);
        let (old_count, new_count) = self.counter.middle_lines();
        (first..first + old_count).for_each(|line| self.old.set(line, true));
        (first..first + new_count).for_each(|line| self.new.set(line, true));
        let (old_places, new_places) = (&mut self.old_places, &mut self.new_places);
        old_places.clear();
        new_places.clear();
        self.counter.search.old.clear();
        self.counter.search.new.clear();
        self.counter.choose(old.data, new.data, ends, true, |search, side, at, class| match side {
            FileSide::Old => {
                search.old.push(class);
                old_places.push((first + at) as u32);
            }
            FileSide::New => {
                search.new.push(class);
                new_places.push((first + at) as u32);
            }
        });
        old_places.iter().for_each(|&line| self.old.set(line as usize, false));
        new_places.iter().for_each(|&line| self.new.set(line as usize, false));
        self.counter.search.differing(|side, lines| {
            let (places, changed) = match side {
                FileSide::Old => (&*old_places, &mut self.old),
                FileSide::New => (&*new_places, &mut self.new),
            };
            places[lines].iter().for_each(|&line| changed.set(line as usize, true));
        });
    }

    /// Collects the groups of changed lines.
    fn edits(&self, old_count: usize, new_count: usize, edits: &mut Vec<Edit>) {
        let (mut old, mut new) = (0, 0);
        while old < old_count || new < new_count {
            let (old_end, new_end) = (self.old.end_of_group(old), self.new.end_of_group(new));
            if old_end > old || new_end > new {
                edits.push(Edit { old: old as u32..old_end as u32, new: new as u32..new_end as u32 });
            }
            (old, new) = (old_end + 1, new_end + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_start_where_they_do_whatever_is_known() {
        let texts: &[&[u8]] = &[
            b"",
            b"\n",
            b"a",
            b"a\n",
            b"a\nb\n",
            b"a\nb",
            b"x\na\nb\n",
            b"a\nx\ny\nb\n",
            b"a\n\n\nb\n",
            b"b\n",
        ];
        for other in texts {
            let known = LineStarts::of(other);
            for text in texts {
                let starts = LineStarts::beside(text, FileLines::new(other, &known));
                assert_eq!(starts.0, LineStarts::of(text).0, "{text:?} beside {other:?}");
            }
        }
    }
}
