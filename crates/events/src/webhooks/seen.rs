//! The ids of deliveries that are on disk, so that one that comes again does nothing.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

/// The number of ids that are remembered.
const IDS_MAX: usize = 1 << 16;

/// The last ids.
#[derive(Debug, Default)]
pub(crate) struct SeenDeliveries {
    hasher: RandomState,
    ids: HashSet<u64>,
    order: VecDeque<u64>,
}

impl SeenDeliveries {
    /// Returns whether the delivery `id` of `webhook` is on disk.
    pub(crate) fn contains(&self, webhook: &str, id: &str) -> bool {
        self.ids.contains(&self.hasher.hash_one((webhook, id)))
    }

    /// Notes that it is. The oldest id is forgotten for it.
    pub(crate) fn insert(&mut self, webhook: &str, id: &str) {
        let key = self.hasher.hash_one((webhook, id));
        if !self.ids.insert(key) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ids_are_remembered() {
        let mut seen = SeenDeliveries::default();
        for n in 0..IDS_MAX + 10 {
            seen.insert("a", &n.to_string());
            seen.insert("a", &n.to_string());
        }
        assert!(!seen.contains("a", "9") && seen.contains("a", "10") && !seen.contains("b", "10"));
        assert_eq!((seen.ids.len(), seen.order.len()), (IDS_MAX, IDS_MAX));
    }
}
