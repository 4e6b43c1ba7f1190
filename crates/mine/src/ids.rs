//! One number for each id that objects name, also for ids of objects that are not here.

use std::sync::RwLock;

use weir_git::{Oid, OidMap};
use weir_repo::{Forest, NO_OBJECT};

/// Numbers ids: objects of the forest by their number there, other ids behind them.
///
/// Ids of no object are those of submodules, which another repository has, and of missing objects.
pub(crate) struct ObjectNumbers<'f, 'o> {
    forest: &'f Forest<'o>,
    absent: RwLock<Absent>,
}

#[derive(Default)]
struct Absent {
    numbers: OidMap<u32>,
    list: Vec<Oid>,
}

impl<'f, 'o> ObjectNumbers<'f, 'o> {
    pub(crate) fn new(forest: &'f Forest<'o>) -> ObjectNumbers<'f, 'o> {
        ObjectNumbers { forest, absent: RwLock::default() }
    }

    pub(crate) fn forest(&self) -> &'f Forest<'o> {
        self.forest
    }

    /// Returns the number of the raw id `id`.
    #[inline]
    pub(crate) fn number(&self, id: &[u8]) -> u32 {
        match self.forest.find(id) {
            Some(number) => number,
            None => self.number_of_absent(id),
        }
    }

    /// Replaces `numbers` by the numbers of the raw ids in `ids`, which follow each other.
    pub(crate) fn numbers(&self, ids: &[u8], numbers: &mut Vec<u32>) {
        self.forest.find_all(ids, numbers);
        let len = self.forest.objects().hash().len();
        for (number, id) in numbers.iter_mut().zip(ids.chunks_exact(len)) {
            if *number == NO_OBJECT {
                *number = self.number_of_absent(id);
            }
        }
    }

    fn number_of_absent(&self, id: &[u8]) -> u32 {
        let oid = Oid::from_bytes(self.forest.objects().hash(), id).expect("of the repository's hash");
        if let Some(&number) = self.absent.read().expect("not poisoned").numbers.get(&oid) {
            return number;
        }
        let mut absent = self.absent.write().expect("not poisoned");
        let next = self.forest.count() + absent.list.len() as u32;
        let number = *absent.numbers.entry(oid).or_insert(next);
        if number == next {
            absent.list.push(oid);
        }
        number
    }

    /// Returns whether the object `number` is here.
    #[inline]
    pub(crate) fn is_here(&self, number: u32) -> bool {
        number < self.forest.count()
    }

    /// Returns the id that `number` stands for.
    pub(crate) fn oid(&self, number: u32) -> Oid {
        match self.is_here(number) {
            true => self.forest.oid(number),
            false => {
                let absent = self.absent.read().expect("not poisoned");
                absent.list[(number - self.forest.count()) as usize]
            }
        }
    }
}
