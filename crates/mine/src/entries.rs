//! Entries of trees: their order, and how two lists of them differ.

use std::cmp::Ordering;
use std::rc::Rc;

use weir_git::{HashKind, TreeEntry, TreeIter, tree_entry_len};

use crate::mode::Mode;

/// Compares names as entries of a tree are ordered: as if the name of a folder ended in a slash.
pub(crate) fn name_order(a: &[u8], a_is_tree: bool, b: &[u8], b_is_tree: bool) -> Ordering {
    let common = a.len().min(b.len());
    a[..common].cmp(&b[..common]).then_with(|| {
        let end = |name: &[u8], is_tree| match name.get(common) {
            Some(&c) => c,
            None if is_tree => b'/',
            None => 0,
        };
        end(a, a_is_tree).cmp(&end(b, b_is_tree)).then_with(|| a.len().cmp(&b.len()))
    })
}

fn entry_order(a: &TreeEntry<'_>, b: &TreeEntry<'_>) -> Ordering {
    name_order(a.name, is_tree(a), b.name, is_tree(b))
}

pub(crate) fn is_tree(entry: &TreeEntry<'_>) -> bool {
    Mode::of(entry.mode) == Mode::Tree
}

/// Calls `differs` for each name that differs between the entries `old` and `new`, in order. Returns whether
/// both are well-formed and in strict order, and `differs` always returned true.
pub(crate) fn compare_entries<'a>(
    hash: HashKind,
    old: &'a [u8],
    new: &'a [u8],
    differs: impl FnMut(Option<TreeEntry<'a>>, Option<TreeEntry<'a>>) -> bool,
) -> bool {
    compare(Ordered::new(hash, old), Ordered::new(hash, new), differs)
}

/// Does what [`compare_entries`] does for entries in any order, as git does: it walks through both lists, and
/// the lesser of two names is on one side only (tree-diff.c, `diff_tree_paths`).
pub(crate) fn compare_entries_in_any_order<'a>(
    hash: HashKind,
    old: &'a [u8],
    new: &'a [u8],
    differs: impl FnMut(Option<TreeEntry<'a>>, Option<TreeEntry<'a>>) -> bool,
) -> bool {
    let any = |data| Ordered { takes_any: true, ..Ordered::new(hash, data) };
    compare(any(old), any(new), differs)
}

fn compare<'a>(
    mut olds: Ordered<'a>,
    mut news: Ordered<'a>,
    mut differs: impl FnMut(Option<TreeEntry<'a>>, Option<TreeEntry<'a>>) -> bool,
) -> bool {
    let (mut a, mut b) = (olds.next(), news.next());
    loop {
        let order = match (&a, &b) {
            (None, None) => return !(olds.is_odd || news.is_odd),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => entry_order(old, new),
        };
        let go_on = match order {
            Ordering::Less => differs(a, None),
            Ordering::Greater => differs(None, b),
            Ordering::Equal => {
                let (old, new) = (a.expect("both are there"), b.expect("both are there"));
                if old.id == new.id && Mode::of(old.mode) == Mode::of(new.mode) {
                    // Most equal entries follow each other.
                    olds.skip_equal(&mut news);
                    true
                } else {
                    differs(a, b)
                }
            }
        };
        if !go_on {
            return false;
        }
        if order != Ordering::Greater {
            a = olds.next();
        }
        if order != Ordering::Less {
            b = news.next();
        }
    }
}

/// Entries of a tree, for as long as they are well-formed and in strict order.
struct Ordered<'a> {
    hash: HashKind,
    iter: TreeIter<'a>,
    last: Option<TreeEntry<'a>>,
    /// Whether they may be in any order.
    takes_any: bool,
    is_odd: bool,
}

impl<'a> Ordered<'a> {
    fn new(hash: HashKind, data: &'a [u8]) -> Ordered<'a> {
        Ordered { hash, iter: TreeIter::new(hash, data), last: None, takes_any: false, is_odd: false }
    }

    /// Passes the entries with which what is left of both starts. Their bytes are equal, so that it is enough
    /// to look at one of them.
    fn skip_equal(&mut self, other: &mut Ordered<'a>) {
        while let Some(len) = tree_entry_len(self.hash, self.iter.rest())
            && let (Some(here), Some(there)) = (self.iter.rest().get(..len), other.iter.rest().get(..len))
            && here == there
        {
            if self.next().is_none() {
                break;
            }
            (other.last, other.iter) = (self.last, TreeIter::new(self.hash, &other.iter.rest()[len..]));
        }
    }

    fn next(&mut self) -> Option<TreeEntry<'a>> {
        match self.iter.next()? {
            Ok(entry)
                if self.takes_any
                    || self.last.is_none_or(|last| entry_order(&last, &entry) == Ordering::Less) =>
            {
                self.last = Some(entry);
                Some(entry)
            }
            _ => {
                self.is_odd = true;
                None
            }
        }
    }
}

/// Where the entries of a tree start, and where the last one ends.
pub(crate) type EntryStarts = Rc<[u32]>;

/// Returns where the entries of a tree start; `None` if they are out of order, or malformed.
pub(crate) fn entry_starts(hash: HashKind, data: &[u8]) -> Option<EntryStarts> {
    let mut entries = Ordered::new(hash, data);
    let mut starts = vec![0u32];
    while let Some(entry) = entries.next() {
        let end = entry.id.as_ptr() as usize + entry.id.len() - data.as_ptr() as usize;
        starts.push(u32::try_from(end).ok()?);
    }
    (!entries.is_odd).then(|| starts.into())
}
