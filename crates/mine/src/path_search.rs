//! The search for a path through two files (Myers), with the shortcuts of xdiff (xdiffi.c).

use std::ops::Range;

/// The least cost at which the search may settle for less than the best.
const COST_MIN: isize = 256;
/// The length of a run of equal lines that counts as good.
const SNAKE_LEN: isize = 20;
/// How far a path must have come, in multiples of its cost, to be taken.
const PROGRESS_SHARE: isize = 4;

/// One of two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSide {
    Old,
    New,
}

/// The search for the lines that two files have in common.
#[derive(Default)]
pub(crate) struct PathSearch {
    /// The lines of both files, by number.
    pub(crate) old: Vec<u32>,
    pub(crate) new: Vec<u32>,
    /// The furthest places reached on each diagonal, forward and backward.
    reached: Vec<isize>,
    areas: Vec<Area>,
}

/// A part of both files that is searched.
#[derive(Clone, Copy)]
struct Area {
    old_start: isize,
    old_end: isize,
    new_start: isize,
    new_end: isize,
    /// Whether the best path is wanted at any cost.
    is_exact: bool,
}

/// A place at which a box is cut in two.
struct AreaCut {
    old: isize,
    new: isize,
    is_first_exact: bool,
    is_second_exact: bool,
}

impl PathSearch {
    /// Returns the number of lines on the path through both files that the search takes.
    pub(crate) fn common(&mut self) -> u64 {
        self.differing(|_, _| ())
    }

    /// Calls `differs` with the lines of each side that are not on the path that the search takes, from the
    /// start to the end. Returns the number of lines on it.
    pub(crate) fn differing(&mut self, mut differs: impl FnMut(FileSide, Range<usize>)) -> u64 {
        let (olds, news) = (self.old.len() as isize, self.new.len() as isize);
        let diagonals = olds + news + 3;
        let cost_max = (rough_root(diagonals as u64) as isize).max(COST_MIN);
        if self.reached.len() < 2 * diagonals as usize + 2 {
            self.reached.resize(2 * diagonals as usize + 2, 0);
        }
        let mut common = 0;
        self.areas.clear();
        self.areas.push(Area { old_start: 0, old_end: olds, new_start: 0, new_end: news, is_exact: false });
        while let Some(mut part) = self.areas.pop() {
            let (old, new) = (&self.old, &self.new);
            let is_same = |o: isize, n: isize| old[o as usize] == new[n as usize];
            let is_open = |part: &Area| part.old_start < part.old_end && part.new_start < part.new_end;
            while is_open(&part) && is_same(part.old_start, part.new_start) {
                (part.old_start, part.new_start, common) =
                    (part.old_start + 1, part.new_start + 1, common + 1);
            }
            while is_open(&part) && is_same(part.old_end - 1, part.new_end - 1) {
                (part.old_end, part.new_end, common) = (part.old_end - 1, part.new_end - 1, common + 1);
            }
            if is_open(&part) {
                let cut = Diagonals {
                    old,
                    new,
                    forward: news + 1,
                    backward: diagonals + news + 1,
                    reached: &mut self.reached,
                    cost_max,
                }
                .cut(&part);
                let (first, second) = (
                    Area { old_end: cut.old, new_end: cut.new, is_exact: cut.is_first_exact, ..part },
                    Area { old_start: cut.old, new_start: cut.new, is_exact: cut.is_second_exact, ..part },
                );
                self.areas.push(second);
                self.areas.push(first);
            } else {
                let range = |start: isize, end: isize| start as usize..end as usize;
                differs(FileSide::Old, range(part.old_start, part.old_end));
                differs(FileSide::New, range(part.new_start, part.new_end));
            }
        }
        common
    }
}

/// The state of one cut: how far each diagonal is explored from either corner of a box.
struct Diagonals<'s> {
    old: &'s [u32],
    new: &'s [u32],
    /// Where diagonal 0 is in `reached`, forward and backward.
    forward: isize,
    backward: isize,
    reached: &'s mut [isize],
    cost_max: isize,
}

/// A range of diagonals that are explored.
#[derive(Clone, Copy)]
struct Explored {
    min: isize,
    max: isize,
    /// The diagonal at which it began.
    middle: isize,
}

impl Diagonals<'_> {
    fn forward(&mut self, diagonal: isize) -> &mut isize {
        &mut self.reached[(self.forward + diagonal) as usize]
    }

    fn backward(&mut self, diagonal: isize) -> &mut isize {
        &mut self.reached[(self.backward + diagonal) as usize]
    }

    fn is_same(&self, old: isize, new: isize) -> bool {
        self.old[old as usize] == self.new[new as usize]
    }

    /// Cuts a box in two ("An O(ND) Difference Algorithm and its Variations", Myers 1986, section 4b).
    fn cut(&mut self, part: &Area) -> AreaCut {
        let (least, most) = (part.old_start - part.new_end, part.old_end - part.new_start);
        let middle = part.old_start - part.new_start;
        let mut forward = Explored { min: middle, max: middle, middle };
        let middle = part.old_end - part.new_end;
        let mut backward = Explored { min: middle, max: middle, middle };
        let is_odd = (forward.middle - backward.middle) & 1 != 0;
        *self.forward(forward.middle) = part.old_start;
        *self.backward(backward.middle) = part.old_end;
        for cost in 1.. {
            let mut has_snake = false;
            self.widen(self.forward, -1, &mut forward, least, most);
            let met = self.advance(part, forward, is_odd.then_some(backward), &mut has_snake);
            if let Some(cut) = met {
                return cut;
            }
            self.widen(self.backward, isize::MAX, &mut backward, least, most);
            let met = self.retreat(part, backward, (!is_odd).then_some(forward), &mut has_snake);
            if let Some(cut) = met {
                return cut;
            }
            if part.is_exact {
                continue;
            }
            if has_snake && cost > COST_MIN {
                let found = self.good_forward(part, forward, cost);
                if let Some(cut) = found.or_else(|| self.good_backward(part, backward, cost)) {
                    return cut;
                }
            }
            if cost >= self.cost_max {
                return self.furthest(part, forward, backward);
            }
        }
        unreachable!("the paths meet before the cost overflows")
    }

    /// Explores one diagonal more on either side, or one less where the box ends. `zero` is where diagonal 0
    /// is in `reached`; the diagonals beside the range become `outside`.
    fn widen(&mut self, zero: isize, outside: isize, range: &mut Explored, least: isize, most: isize) {
        if range.min > least {
            range.min -= 1;
            self.reached[(zero + range.min - 1) as usize] = outside;
        } else {
            range.min += 1;
        }
        if range.max < most {
            range.max += 1;
            self.reached[(zero + range.max + 1) as usize] = outside;
        } else {
            range.max -= 1;
        }
    }

    /// Advances each forward path by one edit. Returns the place where one meets a backward path.
    fn advance(
        &mut self,
        part: &Area,
        range: Explored,
        other: Option<Explored>,
        has_snake: &mut bool,
    ) -> Option<AreaCut> {
        let mut diagonal = range.max;
        while diagonal >= range.min {
            let (below, above) = (*self.forward(diagonal - 1), *self.forward(diagonal + 1));
            let start = if below >= above { below + 1 } else { above };
            let (mut old, mut new) = (start, start - diagonal);
            while old < part.old_end && new < part.new_end && self.is_same(old, new) {
                (old, new) = (old + 1, new + 1);
            }
            *has_snake |= old - start > SNAKE_LEN;
            *self.forward(diagonal) = old;
            if let Some(other) = other
                && (other.min..=other.max).contains(&diagonal)
                && *self.backward(diagonal) <= old
            {
                return Some(AreaCut { old, new, is_first_exact: true, is_second_exact: true });
            }
            diagonal -= 2;
        }
        None
    }

    /// Moves each backward path by one edit. Returns the place where one meets a forward path.
    fn retreat(
        &mut self,
        part: &Area,
        range: Explored,
        other: Option<Explored>,
        has_snake: &mut bool,
    ) -> Option<AreaCut> {
        let mut diagonal = range.max;
        while diagonal >= range.min {
            let (below, above) = (*self.backward(diagonal - 1), *self.backward(diagonal + 1));
            let start = if below < above { below } else { above.wrapping_sub(1) };
            let (mut old, mut new) = (start, start.wrapping_sub(diagonal));
            while old > part.old_start && new > part.new_start && self.is_same(old - 1, new - 1) {
                (old, new) = (old - 1, new - 1);
            }
            *has_snake |= start - old > SNAKE_LEN;
            *self.backward(diagonal) = old;
            if let Some(other) = other
                && (other.min..=other.max).contains(&diagonal)
                && old <= *self.forward(diagonal)
            {
                return Some(AreaCut { old, new, is_first_exact: true, is_second_exact: true });
            }
            diagonal -= 2;
        }
        None
    }

    /// Returns the end of the forward path that has come far for its cost and ends in a good run.
    fn good_forward(&mut self, part: &Area, range: Explored, cost: isize) -> Option<AreaCut> {
        let (mut best, mut cut) = (0, None);
        let mut diagonal = range.max;
        while diagonal >= range.min {
            let old = *self.forward(diagonal);
            let new = old - diagonal;
            let value = (old - part.old_start) + (new - part.new_start) - (diagonal - range.middle).abs();
            if value > PROGRESS_SHARE * cost
                && value > best
                && part.old_start + SNAKE_LEN <= old
                && old < part.old_end
                && part.new_start + SNAKE_LEN <= new
                && new < part.new_end
                && (1..=SNAKE_LEN).all(|k| self.is_same(old - k, new - k))
            {
                best = value;
                cut = Some(AreaCut { old, new, is_first_exact: true, is_second_exact: false });
            }
            diagonal -= 2;
        }
        cut
    }

    /// Returns the end of the backward path that has come far for its cost and ends in a good run.
    fn good_backward(&mut self, part: &Area, range: Explored, cost: isize) -> Option<AreaCut> {
        let (mut best, mut cut) = (0, None);
        let mut diagonal = range.max;
        while diagonal >= range.min {
            let old = *self.backward(diagonal);
            let new = old.wrapping_sub(diagonal);
            let value = (part.old_end - old) + (part.new_end - new) - (diagonal - range.middle).abs();
            if value > PROGRESS_SHARE * cost
                && value > best
                && part.old_start < old
                && old <= part.old_end - SNAKE_LEN
                && part.new_start < new
                && new <= part.new_end - SNAKE_LEN
                && (0..SNAKE_LEN).all(|k| self.is_same(old + k, new + k))
            {
                best = value;
                cut = Some(AreaCut { old, new, is_first_exact: false, is_second_exact: true });
            }
            diagonal -= 2;
        }
        cut
    }

    /// Returns the end of the path that has come furthest.
    fn furthest(&mut self, part: &Area, forward: Explored, backward: Explored) -> AreaCut {
        let (mut most, mut most_old) = (-1, -1);
        let mut diagonal = forward.max;
        while diagonal >= forward.min {
            let mut old = (*self.forward(diagonal)).min(part.old_end);
            let mut new = old - diagonal;
            if part.new_end < new {
                (old, new) = (part.new_end + diagonal, part.new_end);
            }
            if most < old + new {
                (most, most_old) = (old + new, old);
            }
            diagonal -= 2;
        }
        let (mut least, mut least_old) = (isize::MAX, isize::MAX);
        let mut diagonal = backward.max;
        while diagonal >= backward.min {
            let mut old = (*self.backward(diagonal)).max(part.old_start);
            let mut new = old - diagonal;
            if new < part.new_start {
                (old, new) = (part.new_start + diagonal, part.new_start);
            }
            if old + new < least {
                (least, least_old) = (old + new, old);
            }
            diagonal -= 2;
        }
        if (part.old_end + part.new_end) - least < most - (part.old_start + part.new_start) {
            AreaCut { old: most_old, new: most - most_old, is_first_exact: true, is_second_exact: false }
        } else {
            AreaCut { old: least_old, new: least - least_old, is_first_exact: false, is_second_exact: true }
        }
    }
}

/// Returns an approximate square root: a power of two.
pub(crate) fn rough_root(mut n: u64) -> u64 {
    let mut root = 1;
    while n > 0 {
        root <<= 1;
        n >>= 2;
    }
    root
}
