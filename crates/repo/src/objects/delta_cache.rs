//! A bounded cache of inflated objects by place in a pack: the bases that delta chains share.

use std::rc::Rc;

use weir_git::Kind;

const SLOTS: usize = 1 << 13;

/// An object: its pack, its offset there, its kind and content.
type Slot = (u32, u64, Kind, Rc<Vec<u8>>);

/// A direct-mapped cache: a new object replaces the previous object in its slot.
pub(crate) struct DeltaCache {
    slots: Vec<Option<Slot>>,
    bytes: usize,
    bytes_max: usize,
    hand: usize,
}

impl DeltaCache {
    pub(crate) fn new(bytes_max: usize) -> DeltaCache {
        DeltaCache { slots: Vec::new(), bytes: 0, bytes_max, hand: 0 }
    }

    fn slot(pack: u32, offset: u64) -> usize {
        let x = (offset ^ (u64::from(pack) << 48)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x >> 51) as usize % SLOTS
    }

    pub(crate) fn get(&self, pack: u32, offset: u64) -> Option<(Kind, Rc<Vec<u8>>)> {
        match self.slots.get(Self::slot(pack, offset)) {
            Some(Some((p, o, kind, data))) if (*p, *o) == (pack, offset) => Some((*kind, data.clone())),
            _ => None,
        }
    }

    pub(crate) fn put(&mut self, pack: u32, offset: u64, kind: Kind, data: &Rc<Vec<u8>>) {
        if data.len() > self.bytes_max / 4 {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        self.bytes += data.len();
        let slot = Self::slot(pack, offset);
        if let Some(old) = self.slots[slot].replace((pack, offset, kind, data.clone())) {
            self.bytes -= old.3.len();
        }
        while self.bytes > self.bytes_max {
            self.hand = (self.hand + 1) % SLOTS;
            if self.hand != slot
                && let Some(old) = self.slots[self.hand].take()
            {
                self.bytes -= old.3.len();
            }
        }
    }
}
